"""What the tests of the clients for OpenAI's form have in common: settings, questions, answers, and ways to ask."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.secret import Secret
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.modules.clients._base import Request, Settings
from lazyprompt.modules.clients._faults import Fault
from lazyprompt.modules.sources import SOURCES

if TYPE_CHECKING:
    from lazyprompt.answers.parser import Delta
    from lazyprompt.messages.msg import Msg
    from lazyprompt.modules.clients._base import OfficialClient
    from support.model_server.server import ModelServer

KEY = "sk-test-0123456789abcdef"
PATIENCE = 30.0  # seconds; for what is to happen soon, on a machine that has other things to do


def settings_for(
    server: ModelServer,
    provider: str,
    *,
    key: str | None = KEY,
    timeout: float = PATIENCE,
    retries: int = 0,
    **options: Any,
) -> Settings:
    """Settings for a client of the server."""
    return Settings(server.url(provider), None if key is None else Secret(key), timeout, retries, options)


def ask(content: str = "ping", model: str = "m", **params: object) -> Request:
    """A request of one user's turn."""
    return Request(model, {"messages": [{"role": "user", "content": content}]}, params)


def read(provider: str, answer: object) -> Msg:
    """What a module makes of an answer."""
    return ChatFormatter(SOURCES[provider].provider).parse(answer)


class Streamed(NamedTuple):
    """A stream to its end."""

    answer: dict[str, Any]
    deltas: list[Delta]
    complete: bool

    @property
    def said(self) -> str:
        """The text and the thoughts in the deltas."""
        return "".join(delta.text for delta in self.deltas if delta.kind != "tool_call")


def streamed(client: OfficialClient, request: Request) -> Streamed:
    """A stream, collected."""
    collector = client.collector()
    deltas = [delta for event in client.stream(request) for delta in collector.feed(event)]
    return Streamed(collector.answer(), deltas, collector.complete)


_ENDED = EOFError("the stream ended without its end")


def failed(client: OfficialClient, request: Request, *, stream: bool) -> tuple[Exception, Fault]:
    """What went wrong with a call, or with a stream that came to its end."""
    try:
        fine = streamed(client, request).complete if stream else client.send(request) is not None
    except Exception as error:  # noqa: BLE001 - whichever the client has
        return _fault(client, error)
    return _ended(fine=fine)


def _fault(client: OfficialClient, error: Exception) -> tuple[Exception, Fault]:
    fault = client.fault(error)
    if fault is None:
        raise error
    return error, fault


def _ended(*, fine: bool) -> tuple[Exception, Fault]:
    """What a module says where a stream ended and its collector is not complete."""
    assert not fine, "nothing went wrong"
    return _ENDED, Fault("cut", str(_ENDED))


def shown(error: BaseException, *more: object) -> str:
    """All that can be read of an error, and of other things."""
    return "".join((*traceback.format_exception(error), *(f"{each!r} {each!s}" for each in (error, *more))))
