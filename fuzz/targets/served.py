"""Whatever a server sends is a reply or an error of ours, and no more of it is read than the limits allow."""

from __future__ import annotations

import gzip
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fuzz.judge import require
from fuzz.target import Target
from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._limits import STREAM_BYTES, AnswerLimits, limit_hooks
from lazyprompt.modules.online import OnlineChatModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.chance import Chance

_LIMIT = 20_000
_CLIENTS = ("openai", "anthropic", "gemini", "ollama")
_TYPES = ("application/json", "text/event-stream", "application/x-ndjson", "text/plain", "")
_STATUSES = (200, 200, 200, 400, 429, 500, 302)
_URL = "http://127.0.0.1:9"


class _Body:
    """A body that is sent as long as it is read, up to a few times the limits.

    Attributes:
        read: The bytes that were read.
    """

    def __init__(self, pieces: list[bytes], times: int) -> None:
        self._pieces, self._times = pieces, times
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._times):
            for piece in self._pieces:
                self.read += len(piece)
                yield piece


_NOW: dict[str, Any] = {}


@cache
def _module(source: str) -> OnlineChatModule:
    """A module whose official client asks no network."""
    library = import_module("httpx" if source == "ollama" else "httpx2")

    def answer(_: object) -> object:
        return library.Response(_NOW["status"], headers=_NOW["headers"], content=iter(_NOW["body"]))

    transport = library.MockTransport(answer)
    hooks = limit_hooks(library, AnswerLimits(5.0, _LIMIT), {}, in_loop=False)
    options: dict[str, dict[str, Any]] = {
        "ollama": {"transport": transport},
        "gemini": {"http_options": {"client_args": {"transport": transport}}},
    }
    other = {"http_client": library.Client(transport=transport, event_hooks=hooks)}
    return OnlineChatModule(
        source,
        model="m",
        base_url=_URL,
        api_key="k" * 9,
        retries=0,
        timeout=5,
        max_answer_bytes=_LIMIT,
        options=options.get(source, other),
    )


def _run(chance: Chance) -> None:
    module = _module(chance.one(_CLIENTS))
    media_type, is_gzip, streams = chance.one(_TYPES), chance.flag(), chance.flag()
    pieces = [chance.text().encode("utf-8", "surrogatepass")[:2_000] or b" " for _ in range(1 + chance.number(5))]
    times = chance.one((1, 2, 100, 10 * STREAM_BYTES * _LIMIT // sum(map(len, pieces))))
    body = _Body([gzip.compress(b"".join(pieces) * times)], 1) if is_gzip else _Body(pieces, times)
    headers = {"content-type": media_type} | ({"content-encoding": "gzip"} if is_gzip else {})
    _NOW.update(status=chance.one(_STATUSES), headers=headers, body=body)
    size = 0
    try:
        if streams:
            stream = module.stream("hi")
            for delta in stream.deltas():
                size += len(delta.text)
            size = max(size, len(stream.reply))
        else:
            size = len(module("hi"))
    except ModuleError as error:
        require(sys.getsizeof(str(error)) < 10 * _LIMIT, "an error quotes all that came")
        partial = error.partial
        size = max(size, 0 if partial is None else len(partial))
    require(size <= STREAM_BYTES * _LIMIT, "an answer is longer than its limit")
    if not is_gzip:
        require(body.read <= STREAM_BYTES * _LIMIT + sum(map(len, pieces)), "more was read than the limit says")


SERVED = Target(
    "served",
    _run,
    (
        *("data: ", "\n\n", "\n", "\r\n\r\n", "\r", "event: ", ": ", "data: [DONE]\n\n", "id: 1\n", "retry: 1\n"),
        *(
            '{"choices": [{"delta": {"content": "a"}}]}',
            '{"choices": [{"message": {"content": "a"}}]}',
            "[{}]",
            "[[",
            "]]",
        ),
        *(
            '{"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}',
            '"finish_reason": "stop"',
        ),
        *('{"message": {"role": "assistant", "content": "a"}, "done": true}', '{"response": "a", "done": false}'),
        *('{"type": "message_start", "message": {"content": []}}', '{"type": "message_stop"}', "event: message_stop\n"),
        *('{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}', "null", "{}"),
        *('{"error": {"message": "no", "code": 1}}', '{"error": "no"}', "1e999", "NaN", '"\\ud800"', "true", "-", "0"),
    ),
    seconds=10,  # the first run imports the official clients
)
