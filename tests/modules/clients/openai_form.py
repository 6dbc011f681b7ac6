"""What the tests of the clients for OpenAI's form have in common: settings, questions, answers, and ways to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.secret import Secret
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.modules.clients._base import ClientSettings, Request
from lazyprompt.modules.sources import SOURCES
from modules.clients.helpers import raised_error
from support.client_scenes import KEY, TIMEOUT

if TYPE_CHECKING:
    from lazyprompt.answers.parser import Delta
    from lazyprompt.messages.msg import Msg
    from lazyprompt.modules.clients._base import OfficialClient
    from lazyprompt.modules.clients._faults import Fault
    from support.model_server.server import ModelServer


def settings_for(
    server: ModelServer,
    provider: str,
    *,
    key: str | None = KEY,
    timeout: float = TIMEOUT,
    retries: int = 0,
    **options: Any,
) -> ClientSettings:
    """Settings for a client of the server."""
    return ClientSettings(server.url(provider), None if key is None else Secret(key), timeout, retries, options)


def ask(content: str = "ping", model: str = "m", **params: object) -> Request:
    """A request of one user's turn."""
    return Request(model, {"messages": [{"role": "user", "content": content}]}, params)


def parse_answer(provider: str, answer: object) -> Msg:
    """What a module makes of an answer."""
    return ChatFormatter(SOURCES[provider].provider).parse(answer)


class Streamed(NamedTuple):
    """A stream to its end."""

    answer: dict[str, Any]
    deltas: list[Delta]
    complete: bool

    @property
    def text_and_thinking(self) -> str:
        """The text and the thoughts in the deltas."""
        return "".join(delta.text for delta in self.deltas if delta.kind != "tool_call")


def collect_stream(client: OfficialClient, request: Request) -> Streamed:
    """A stream, collected."""
    collector = client.collector()
    deltas = [delta for event in client.stream(request) for delta in collector.feed(event)]
    return Streamed(collector.answer(), deltas, collector.complete)


def call_error(client: OfficialClient, request: Request, *, stream: bool) -> tuple[Exception, Fault]:
    """The error of a call or of a stream, and the fault that the client makes of it."""
    error = raised_error(lambda: list(client.stream(request)) if stream else client.send(request))
    fault = client.fault(error)
    assert fault is not None, repr(error)
    return error, fault
