"""Rate limits: requests and tokens per minute."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MINUTE = 60.0
# The maximum unused capacity, in seconds, that carries over when a timer fires late.
_CATCH_UP = 0.1
# The estimated number of tokens in a response, used until the first response arrives.
_FIRST_GUESS = 500


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits for simultaneous requests, and for requests and tokens per minute.

    Args:
        concurrency: The maximum number of simultaneous requests.
        rpm: The maximum number of requests started per minute; None for no limit.
        tpm: The maximum number of tokens per minute in prompts and responses; None for no limit.

    Raises:
        BatchError: A limit is less than 1.
    """

    concurrency: int = 8
    rpm: int | None = None
    tpm: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("concurrency", self.concurrency), ("rpm", self.rpm), ("tpm", self.tpm)):
            if value is not None and value < 1:
                raise BatchError(f"{name} must be 1 or more, not {value}")


class Bucket:
    """A token bucket with almost no capacity, which spreads requests or tokens evenly over each minute.

    A caller may take more requests or tokens than are available; the next caller waits until this debt is repaid. In
    any minute, callers therefore take at most ``limit``, plus ``limit / 600`` (for 0.1 s), plus the amount of the last
    :meth:`take` call.

    Args:
        limit: The maximum number of requests or tokens per minute.
    """

    __slots__ = ("_free", "_per_unit")

    def __init__(self, limit: int) -> None:
        self._per_unit = _MINUTE / limit
        self._free: float | None = None

    def wait(self, now: float) -> float:
        """Return the number of seconds until the limit allows another request.

        Args:
            now: The current time in seconds, on a monotonic clock.
        """
        return 0.0 if self._free is None else max(0.0, self._free - now)

    def take(self, amount: float, now: float) -> None:
        """Take requests or tokens from the bucket; a negative amount puts them back.

        Args:
            amount: The number of requests or tokens to take.
            now: The current time in seconds, on the clock that is used for :meth:`wait`.
        """
        begin = now if self._free is None else max(self._free, now - _CATCH_UP)
        self._free = begin + amount * self._per_unit


class Pace:
    """Delays requests to stay within the rate limits; bound to one event loop.

    Args:
        rates: The limits.
    """

    def __init__(self, rates: Rates) -> None:
        self._requests = None if rates.rpm is None else Bucket(rates.rpm)
        self._tokens = None if rates.tpm is None else Bucket(rates.tpm)
        self._corrected = asyncio.Event()
        self._answers = self._answer_tokens = 0

    @property
    def counts(self) -> bool:
        """True if tokens per minute are limited."""
        return self._tokens is not None

    async def turn(self, prompt_tokens: int) -> int:
        """Wait until a request may be sent.

        Args:
            prompt_tokens: The estimated number of tokens in the prompt.

        Returns:
            The estimated number of tokens in the prompt and the response, to pass to :meth:`settle`.
        """
        clock = asyncio.get_running_loop().time
        buckets = [bucket for bucket in (self._requests, self._tokens) if bucket is not None]
        while (wait := max((bucket.wait(clock()) for bucket in buckets), default=0.0)) > 0:
            # The next response corrects the token estimate, which may end the wait early.
            self._corrected.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._corrected.wait(), wait)
        taken = prompt_tokens + (round(self._answer_tokens / self._answers) if self._answers else _FIRST_GUESS)
        now = clock()
        if self._requests is not None:
            self._requests.take(1, now)
        if self._tokens is not None:
            self._tokens.take(taken, now)
        return taken

    def settle(self, taken: int, usage: Mapping[str, int] | None) -> None:
        """Replace the estimated token count of a request with the actual count.

        Args:
            taken: The estimate that :meth:`turn` returned.
            usage: The token counts that the provider reported; None if no response or no counts arrived.
        """
        if self._tokens is None or not usage or not usage.get("total_tokens"):
            return
        self._answers += 1
        self._answer_tokens += usage.get("completion_tokens", 0)
        self._tokens.take(usage["total_tokens"] - taken, asyncio.get_running_loop().time())
        self._corrected.set()
