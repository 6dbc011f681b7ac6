"""How responses and errors of a client become replies and errors, and which calls are retried."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lazyprompt.errors import ModuleError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.formatters.reply import Reply
from lazyprompt.modules._reading import Exchange, ReplyReader
from lazyprompt.modules._sending import Sender
from lazyprompt.modules.clients._base import ClientSettings, Request
from lazyprompt.modules.clients._faults import Fault, FaultKind
from lazyprompt.modules.clients.gemini import GeminiClient, GeminiCollector

SETTINGS = ClientSettings(None, None, 1.0, 2, {})
EXCHANGE = Exchange(Request("m", {}, {}), ReplyReader(ChatFormatter("gemini").parse, GeminiCollector))
ADVICE: dict[FaultKind, str] = {
    "key": "pass a valid key as api_key= or set it in the environment",
    "not found": "check the model's name and the server's URL",
    "overflow": "shorten the prompt or set a budget with budget=Budget(tokens, counter)",
    "request": "the request breaks a rule of the server; inspect it with payload(...)",
    "rate limit": "reduce concurrency=, try again later, or raise the quota",
    "server": "try again later",
    "timeout": "try again, or increase timeout=",
    "connection": "check that the server is running and that its URL is correct",
    "cut": "check that the server is running and that its URL is correct",  # nothing was received
    "malformed": "check that the URL belongs to the expected API",
    "too large": "increase max_answer_bytes= if you expect responses of this size",
}


class Client(GeminiClient):
    """A client that lazyprompt retries. Each call returns the same response or events, or fails with the same error."""

    def __init__(self, answer: Any, failure: Fault | None = None) -> None:
        super().__init__(SETTINGS)
        self.answer, self.failure, self.calls = answer, failure, 0

    def _make(self, *, in_loop: bool) -> Any:
        return in_loop

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:  # noqa: ARG002 - the client's
        async def events() -> AsyncIterator[Any]:
            for each in self.answer:
                yield each

        async def answer() -> Any:
            return events() if stream else self.answer

        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return answer() if client else (each for each in self.answer) if stream else self.answer

    def fault(self, error: Exception) -> Fault | None:
        return self.failure if error is self.answer else super().fault(error)


def sender_of(client: Client, *hooks: Any) -> Sender:
    def failed(message: str, fault: Fault, partial: Reply | None) -> ModuleError:
        return ModuleError(message, kind=fault.kind, partial=partial)

    return Sender(client, "acme", SETTINGS, None, hooks, failed)


@pytest.mark.parametrize(
    ("kind", "status", "wait", "calls"),
    [
        *((kind, None, 0.0, 1) for kind in ("key", "not found", "overflow", "request", "malformed", "too large")),
        *((kind, None, 0.0, 3) for kind in ("rate limit", "server", "timeout", "connection", "cut")),
        *(("request", status, 0.0, calls) for status, calls in ((408, 3), (409, 3), (410, 1))),
        *(("server", 503, wait, calls) for wait, calls in ((60.0, 3), (60.1, 1), (None, 3))),
        (None, None, 0.0, 1),
    ],
)
def test_failed_call_has_advice_and_is_retried_if_the_fault_is_temporary(
    monkeypatch: pytest.MonkeyPatch, kind: FaultKind | None, status: int | None, wait: float | None, calls: int
) -> None:
    error, records, waits = RuntimeError("x"), list[Any](), list[float]()
    monkeypatch.setattr("time.sleep", waits.append)
    client = Client(error, kind and Fault(kind, "no", status, wait))
    with pytest.raises(ModuleError if kind else RuntimeError) as caught:
        sender_of(client, records.append).send(EXCHANGE)
    delays = [(0.5, 1.0), (1.0, 1.5)] if wait is None else [(wait, wait)] * (calls - 1)
    assert all(least <= seconds <= most for seconds, (least, most) in zip(waits, delays, strict=True))
    told = f"acme: no{f' (HTTP {status})' if status else ''}; {ADVICE[kind]}" if kind else "x"
    assert (client.calls, str(caught.value), caught.value is error) == (calls, told, kind is None)
    assert [(each.source, each.model, each.reply, each.error) for each in records] == [
        ("acme", "m", None, caught.value)
    ]


def chunk(text: str, **end: str) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **end}]}


@pytest.mark.parametrize(
    ("answer", "streamed", "text", "told"),
    [
        (chunk("pong", finish_reason="STOP"), False, "pong", ""),
        ([chunk("po"), chunk("ng", finish_reason="STOP")], True, "pong", ""),
        (
            [chunk("po")],
            True,
            "po",
            "the stream ended before its final event; the received part is in .partial; repeat",
        ),
        (
            "x" * 201,
            False,
            None,
            f"the server's response is not JSON; check that the URL is an API endpoint: {'x' * 200};",
        ),
        ([], True, None, "the server's stream contains no events; check that the URL is an API endpoint; "),
    ],
)
@pytest.mark.parametrize("in_loop", ["", "a"])
def test_response_becomes_a_reply_or_an_error_with_the_received_part(
    answer: Any, streamed: Any, text: str | None, told: str, in_loop: str
) -> None:
    records, ended = list[Any](), list[Any]()
    sender = sender_of(Client(answer), records.append)

    async def acall() -> None:
        if streamed:
            ended.append("".join([delta.text async for delta in sender.astream(lambda: EXCHANGE, ended.append)]))
        else:
            ended.append(await sender.asend(lambda: EXCHANGE))

    def call() -> None:
        if in_loop:
            asyncio.run(acall())
        elif streamed:
            ended.append("".join(delta.text for delta in sender.stream(EXCHANGE, ended.append)))
        else:
            ended.append(sender.send(EXCHANGE))

    if told:
        with pytest.raises(ModuleError) as caught:
            call()
        assert str(caught.value).startswith(f"acme: {told}")
        assert caught.value.partial == records[0].reply
    else:
        call()
    assert ended == ([] if told else [text] * (1 + streamed))
    assert [(each.reply, each.streamed) for each in records] == [(text, streamed)]
