"""Anthropic's stream of events, put together to the message.

Source: the guide "Streaming Messages"; the types of the official client.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, cast

from lazyprompt.answers.parser import Delta
from lazyprompt.modules.clients._said import fields_of

if TYPE_CHECKING:
    from lazyprompt._base.json import Fields


# What the pieces of a block are added to, and where they are in it, by the type of the piece.
_PIECES: dict[str, tuple[str, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
}
_KINDS: dict[str, Literal["text", "thinking"]] = {"text": "text", "thinking": "thinking"}


class AnthropicCollector:
    """Puts the events of a stream together; see :class:`lazyprompt.modules.client.Collector`."""

    __slots__ = ("_blocks", "_calls", "_message", "_pieces", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        # What is added to the fields of a block, and which call it is, by the index of the block.
        self._pieces: defaultdict[int, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._calls: dict[int, int] = {}

    def feed(self, event: object) -> list[Delta]:
        """What is new in an event."""
        fields = fields_of(event)
        match fields.get("type"):
            case "content_block_delta":
                return self._add(_index(fields), fields_of(fields.get("delta")))
            case "content_block_start":
                return self._start(_index(fields), fields_of(fields.get("content_block")))
            case "content_block_stop":
                return self._stop(_index(fields))
            case "message_start":
                self._message = dict(fields_of(fields.get("message")))
            case "message_delta":
                # Counts are totals, and what is left out stays as it was.
                usage = {**fields_of(self._message.get("usage")), **_given(fields.get("usage"))}
                self._message = {**self._message, **_given(fields.get("delta")), "usage": usage}
            case "message_stop":
                self.complete = True
            case _:
                pass
        return []

    def answer(self) -> dict[str, Any]:
        """The message so far. Arguments that stopped half way are the text that came of them."""
        return {**self._message, "content": [self._block(index) for index in sorted(self._blocks)]}

    def _block(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key, pieces in self._pieces[index].items():
            added = "".join(pieces)
            block[key] = _read(added) if key == "input" else _word(block, key) + added
        return block

    def _start(self, index: int, block: Fields) -> list[Delta]:
        self._blocks[index] = dict(block)
        if block.get("type") == "tool_use":
            call = self._calls[index] = len(self._calls)
            given = block.get("input")
            written = json.dumps(given) if given else ""
            return [Delta("tool_call", written, call, _word(block, "id"), _word(block, "name"))]
        return [Delta(kind, text) for key, kind in _KINDS.items() if (text := _word(block, key))]

    def _add(self, index: int, delta: Fields) -> list[Delta]:
        block = self._blocks.setdefault(index, {})
        kind = _word(delta, "type")
        key, source = _PIECES.get(kind, ("", ""))
        piece = _word(delta, source)
        if piece:
            self._pieces[index][key].append(piece)
            if key in _KINDS:
                return [Delta(_KINDS[key], piece)]
            # Anthropic's own tools are called as well, which is nobody else's business.
            return [Delta("tool_call", piece, self._calls[index])] if index in self._calls else []
        if kind == "signature_delta":
            block["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        return []

    def _stop(self, index: int) -> list[Delta]:
        # A call without arguments is written as nothing at all.
        silent = index in self._calls and not self._pieces[index] and not self._blocks[index].get("input")
        return [Delta("tool_call", "{}", self._calls[index])] if silent else []


def _index(fields: Fields) -> int:
    index = fields.get("index")
    return index if isinstance(index, int) else 0


def _word(fields: Fields, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _given(value: object) -> dict[str, object]:
    """The fields of a dict that are not null."""
    return {key: item for key, item in fields_of(value).items() if item is not None}


def _read(written: str) -> object:
    """Arguments as JSON, or as they were written where they are none."""
    try:
        return cast("object", json.loads(written))
    except (ValueError, RecursionError):
        return written
