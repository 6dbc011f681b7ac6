"""What official clients leave undone: streams that break, keys in their errors, answers that they stumble over."""

from __future__ import annotations

from contextlib import aclosing, closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping
    from types import ModuleType
    from typing import TypeAlias

    from lazyprompt._base.secret import Secret

    Cut: TypeAlias = Callable[[Exception, bool], bool]

# Redirects that clients would follow.
REDIRECTS = frozenset((301, 302, 303, 307, 308))

# How many connections a client for threads opens, and keeps. httpcore closes idle connections as soon as there are more
# than it keeps, one that it has just given to another thread too: that thread's call fails with a bad file descriptor.
CONNECTIONS = 1_000

_Event = TypeVar("_Event")
_DEPTH = 8  # how deep an error may hold what a server said


class CutError(Exception):
    """The connection was lost in the middle of a stream."""


class MalformedError(Exception):
    """What came is no answer."""


class MovedError(Exception):
    """The server redirects.

    Args:
        status: The HTTP status.
        location: The address it redirects to.
    """

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"HTTP {status}: redirected")
        self.status_code, self.location = status, location


def own_http(sdk: ModuleType, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the HTTP client for an official client, as an argument; nothing where the caller gives one.

    It follows no redirect. HTTP clients take the body of a request to whatever address a server names, and all headers
    but ``Authorization``.

    Args:
        sdk: The package, which names its HTTP clients as OpenAI does.
        name: The client's class.
        options: The caller's own arguments.
    """
    kind = "Async" if name.startswith("Async") else ""
    if "http_client" in options:
        return {}
    return {"http_client": getattr(sdk, f"Default{kind}HttpxClient")(follow_redirects=False)}


def redirected_to(error: BaseException) -> str | None:
    """Return the address that a server redirects to, if that is what went wrong; empty where it names none."""
    found: list[str] = []
    for each in _with_origins(error):
        answer: Any = getattr(each, "response", None)
        headers: Mapping[str, str] = getattr(answer, "headers", None) or {}
        status = getattr(each, "status_code", None) or getattr(answer, "status_code", None)
        location: str | None = getattr(each, "location", None) or headers.get("location")
        if status in REDIRECTS:
            found.append(location or "")
    return max(found, default=None)


@contextmanager
def hiding(key: Secret | None) -> Generator[None]:
    """Mask a key in whatever error passes here.

    Args:
        key: The key, as it is sent.
    """
    try:
        yield
    except Exception as error:
        hide(error, key)
        raise


def hide(error: BaseException, key: Secret | None) -> None:
    """Mask a key in an error and in those behind it: some servers quote it."""
    if key is None:
        return
    for each in _with_origins(error):
        each.args = tuple(_hidden(arg, key) for arg in each.args)
        vars(each).update({name: _hidden(value, key) for name, value in vars(each).items()})


def _with_origins(error: BaseException) -> list[BaseException]:
    """An error, those that caused it, and those it was raised in the midst of."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and not any(each is known for known in found):
            found.append(each)
            left += (each.__cause__, each.__context__)
            left += (arg for arg in cast("tuple[object, ...]", each.args) if isinstance(arg, BaseException))
    return found


def _hidden(value: object, key: Secret, depth: int = 0) -> object:
    """A value with the key taken out of its texts; what is no JSON stays as it is."""
    if depth > _DEPTH:
        return value
    if type(value) is str:  # a reply is text that holds more than that
        return key.hidden_in(value)
    if isinstance(value, bytes):
        return key.hidden_in(value.decode("latin-1")).encode("latin-1")
    if isinstance(value, list):
        return [_hidden(item, key, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {_hidden(name, key, depth + 1): _hidden(item, key, depth + 1) for name, item in items}
    return value


def unbroken(events: Generator[_Event], cut: Cut) -> Generator[_Event]:
    """The events of a stream, which is closed when this is.

    Args:
        events: The stream.
        cut: Whether an error is that of a connection lost in mid-stream; given whether there was an event before.

    Yields:
        The events.

    Raises:
        CutError: The connection was lost.
    """
    begun = False
    with closing(events):
        try:
            for event in events:
                begun = True
                yield event
        except Exception as error:
            if cut(error, begun):
                raise CutError(str(error)) from error
            raise


async def aunbroken(events: AsyncGenerator[_Event], cut: Cut) -> AsyncGenerator[_Event]:
    """The same as :func:`unbroken` in an event loop."""
    begun = False
    async with aclosing(events):
        try:
            async for event in events:
                begun = True
                yield event
        except Exception as error:
            if cut(error, begun):
                raise CutError(str(error)) from error
            raise
