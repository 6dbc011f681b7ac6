"""What clients say, read alike for all: faults by class, status and words; objects as dicts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, cast

from lazyprompt.formatters._answers import as_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt._base.json import Fields
    from lazyprompt._base.secret import Secret
    from lazyprompt.modules.client import FaultKind

# A message that quotes the whole of a broken answer is cut here.
_LONGEST = 1_000
_SERVER = 500
# Packages that raise a RuntimeError where their client was closed under a call.
_HTTP = frozenset(("httpx", "httpx2", "aiohttp"))
_STATUSES: dict[int, FaultKind] = {
    401: "key",
    402: "rate limit",  # nothing is left to pay with
    403: "key",
    404: "not found",
    408: "timeout",
    413: "overflow",
    429: "rate limit",
}


def kind_of_status(status: int) -> FaultKind:
    """What an HTTP status means that is no success."""
    return _STATUSES.get(status, "server" if status >= _SERVER else "request")


def kind_of_words(said: str, words: Mapping[str, FaultKind]) -> FaultKind | None:
    """What the words of a server mean, of which it has no better sign.

    Args:
        said: What it said.
        words: Known words in lower case, and what they mean; the first that are found count.
    """
    lower = said.lower()
    return next((kind for known, kind in words.items() if known in lower), None)


def kind_of_class(error: BaseException, kinds: Mapping[str, FaultKind]) -> FaultKind | None:
    """What an exception means by its class; nothing is imported for that.

    Args:
        error: The exception.
        kinds: Classes as ``package.Name``, special ones first; httpx2 counts as the httpx it was made from.
    """
    names = classes_of(error)
    found: FaultKind | None = next((kind for name, kind in kinds.items() if name in names), None)
    closed = found is None and isinstance(error, RuntimeError) and raised_by(error) in _HTTP
    return "connection" if closed else found


def raised_by(error: BaseException) -> str:
    """The package whose code raised an error: clients that trust their server stumble over what is no answer."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def classes_of(error: BaseException) -> set[str]:
    """The class of an exception and all above it, each as ``package.Name``."""
    packages = ((cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__)
    return {f"{'httpx' if package == 'httpx2' else package}.{name}" for package, name in packages}


def told(error: BaseException) -> str:
    """What an exception says, and what the one that caused it says; some say nothing but their name."""
    words = [str(each).strip(". ") or type(each).__name__ for each in (error, error.__cause__) if each is not None]
    return ": ".join(dict.fromkeys(words))


def one_line(said: str, key: Secret | None) -> str:
    """Words without the key, in one line of a readable length."""
    hidden = key.hidden_in(said) if key is not None else said
    line = " ".join(hidden.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def seconds(retry_after: str | None) -> float | None:
    """The seconds of a ``Retry-After`` header: a number or a date (RFC 9110, section 10.2.3); else ``None``."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    now = datetime.now(UTC)
    return max(0.0, (until - (now if until.tzinfo else now.replace(tzinfo=None))).total_seconds())


def fields_of(value: object) -> Fields:
    """A dict, or an object of a client as one; nothing of what is neither."""
    known: object = value  # nothing is known of what a mapping holds
    return as_dict(known) if isinstance(value, Mapping) or hasattr(value, "model_dump") else {}


def listed(value: object) -> Sequence[object]:
    """A list; nothing of what is none."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()
