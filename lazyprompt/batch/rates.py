"""The rate of requests: so many a minute, with so many tokens a minute."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MINUTE = 60.0
# How many seconds' worth may be caught up with, since no timer is exact to the millisecond. It is little on purpose:
# providers count in parts of a minute too, and refuse a minute's worth that comes at once.
_CATCH_UP = 0.1
# The tokens of an answer before the first has come.
_FIRST_GUESS = 500


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits of requests at once, and of requests and tokens in a minute.

    Args:
        concurrency: The most requests under way at once.
        rpm: The most requests that begin in a minute; None is any number.
        tpm: The most tokens of a minute's requests and their answers; None is any number.

    Raises:
        BatchError: One of them is less than 1.
    """

    concurrency: int = 8
    rpm: int | None = None
    tpm: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("concurrency", self.concurrency), ("rpm", self.rpm), ("tpm", self.tpm)):
            if value is not None and value < 1:
                raise BatchError(f"{name} is {value}; it must be 1 or more")


class Bucket:
    """A bucket of tokens that fills up by the minute and holds next to nothing, so that what is taken is spread out.

    What is taken may be more than there is; whoever comes next waits until that is made up for. So in any minute no
    more is taken than the limit, the worth of a tenth of a second, and the last taking.

    Args:
        limit: The most that it gives in a minute.
    """

    __slots__ = ("_free", "_per_unit")

    def __init__(self, limit: int) -> None:
        self._per_unit = _MINUTE / limit
        self._free: float | None = None

    def wait(self, now: float) -> float:
        """Return the seconds until something can be taken.

        Args:
            now: The time in seconds, by a clock that never goes back.
        """
        return 0.0 if self._free is None else max(0.0, self._free - now)

    def take(self, amount: float, now: float) -> None:
        """Take something; what is less than nothing gives it back.

        Args:
            amount: How much.
            now: The time, as of :meth:`wait`.
        """
        begin = now if self._free is None else max(self._free, now - _CATCH_UP)
        self._free = begin + amount * self._per_unit


class Pace:
    """Lets requests go one after another, as fast as rates allow; it belongs to one event loop.

    Args:
        rates: The rates.
    """

    def __init__(self, rates: Rates) -> None:
        self._requests = None if rates.rpm is None else Bucket(rates.rpm)
        self._tokens = None if rates.tpm is None else Bucket(rates.tpm)
        self._corrected = asyncio.Event()
        self._answers = self._answer_tokens = 0

    @property
    def counts(self) -> bool:
        """True if the tokens of a prompt matter."""
        return self._tokens is not None

    async def turn(self, prompt_tokens: int) -> int:
        """Wait until a request may go.

        Args:
            prompt_tokens: About how many tokens its prompt has.

        Returns:
            How many tokens it was taken to have, with its answer; to be given to :meth:`settle`.
        """
        clock = asyncio.get_running_loop().time
        buckets = [bucket for bucket in (self._requests, self._tokens) if bucket is not None]
        while (wait := max((bucket.wait(clock()) for bucket in buckets), default=0.0)) > 0:
            # An answer that comes meanwhile may tell that there is more left than was thought, or less.
            self._corrected.clear()
            try:
                await asyncio.wait_for(self._corrected.wait(), wait)
            except TimeoutError:
                continue
        # An answer has as many tokens as the average of those before it.
        taken = prompt_tokens + (round(self._answer_tokens / self._answers) if self._answers else _FIRST_GUESS)
        now = clock()
        if self._requests is not None:
            self._requests.take(1, now)
        if self._tokens is not None:
            self._tokens.take(taken, now)
        return taken

    def settle(self, taken: int, usage: Mapping[str, int] | None) -> None:
        """Correct the number of tokens of a request.

        Args:
            taken: The number that :meth:`turn` returned for it.
            usage: The tokens that the provider has counted; None if it does not tell, or there is no answer.
        """
        if self._tokens is None or not usage or not usage.get("total_tokens"):
            return
        self._answers += 1
        self._answer_tokens += usage.get("completion_tokens", 0)
        self._tokens.take(usage["total_tokens"] - taken, asyncio.get_running_loop().time())
        self._corrected.set()
