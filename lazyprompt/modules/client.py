"""What a module asks of a client: send, stream, collect what was streamed, tell what went wrong.

Each official client has a file in ``clients/`` that says this in its own way; nothing above knows which one it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt._base.secret import Secret
    from lazyprompt.answers.parser import Delta

# What can go wrong between a module and a model.
FaultKind: TypeAlias = Literal[
    "key",  # no key, or one that is refused
    "not found",  # there is no such model, or no such path at the server
    "overflow",  # the prompt is longer than the model takes
    "request",  # the server refuses the request for another reason
    "rate limit",  # too many requests, or the quota is used up
    "server",  # the server failed, or is overloaded
    "timeout",  # no answer in time
    "connection",  # no connection, or it was lost before the answer began
    "cut",  # a stream ended without its end; of a client's "connection", the module tells whether an answer had begun
    "malformed",  # what came is no answer
]


class Fault(NamedTuple):
    """What went wrong, in words that do not depend on the client.

    Attributes:
        kind: What it was.
        message: What the client or the server said of it, in one line, without keys.
        status: The HTTP status, where there was an answer.
        retry_after: Seconds after which the server asks to try again.
    """

    kind: FaultKind
    message: str
    status: int | None = None
    retry_after: float | None = None


class Settings(NamedTuple):
    """How a client is to be made.

    Attributes:
        base_url: Where the server is; None is where the client looks by itself.
        key: The key; None where the server asks for none.
        timeout: Seconds to wait for a connection, and for each piece of an answer.
        retries: How often the client may try again by itself where it can do so (408, 409, 429, 5xx, connection lost),
            with back-off and ``Retry-After``.
        options: Further arguments of the client's constructor, as they are.
    """

    base_url: str | None
    key: Secret | None
    timeout: float
    retries: int
    options: Mapping[str, Any]


class Request(NamedTuple):
    """What is sent.

    Attributes:
        model: The model's name at the source.
        payload: What a formatter made (``messages`` and ``tools``, ``contents`` and so on), or ``{"prompt": ...}`` for
            engines: flat text or token ids.
        params: Further arguments of the call in the client's own names, as :meth:`Client.params` gives them.
    """

    model: str
    payload: Mapping[str, Any]
    params: Mapping[str, Any]


class Collector(Protocol):
    """Puts the events of one stream together."""

    def feed(self, event: object) -> list[Delta]:
        """What is new in an event of the client's stream; events of unknown types or with unknown fields say nothing.

        The pieces of a call carry its index within the message; its id and name as soon as they are known.
        """
        ...

    @property
    def complete(self) -> bool:
        """Whether the stream said that it is at its end; one that stops before was cut."""
        ...

    def answer(self) -> dict[str, Any]:
        """The answer so far, as the provider gives it without streaming; ``ChatFormatter.parse`` reads it."""
        ...


class Client(Protocol):
    """An official client, for threads and for event loops; what it needs is made when it is first used.

    Async connections belong to their event loop: there is one set for each loop that asks.
    """

    retries_itself: bool
    """Whether the client tries again by itself (``Settings.retries``); else the module does."""

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters in the client's own names.

        Args:
            common: ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a list), ``seed`` under these names; all
                others are the client's own already and stay.
        """
        ...

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """The parameters that make the model answer in a JSON schema; None where the provider has no such thing."""
        ...

    def send(self, request: Request) -> object:
        """The answer, as the client gives it (``ChatFormatter.parse`` reads it)."""
        ...

    async def asend(self, request: Request) -> object:
        """The same as :meth:`send`; cancelling it closes the connection."""
        ...

    def stream(self, request: Request) -> Iterator[object]:
        """The events of a streamed answer. A generator: closing it closes the connection."""
        ...

    def astream(self, request: Request) -> AsyncIterator[object]:
        """The same as :meth:`stream`: an async generator."""
        ...

    def collector(self) -> Collector:
        """A new collector for one stream."""
        ...

    def fault(self, error: Exception) -> Fault | None:
        """What an error of a call or a stream means; None where it is none of the client's, and so a bug."""
        ...

    def close(self) -> None:
        """Close the connections of threads; those of event loops close with ``aclose``."""
        ...

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        ...


# Some clients are told which of several servers it is, or which engine.
Connect: TypeAlias = "Callable[..., Client]"
