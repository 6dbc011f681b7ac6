"""The message of a local model's answer, built piece by piece, and the deltas of a stream."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count, groupby
from typing import Literal, NamedTuple, TypeAlias

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import Json, JsonObject, dump
from lazyprompt.answers.source import SPACE
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock, ToolUseBlock

# Models often write line breaks within strings, which JSON forbids.
JSON = json.JSONDecoder(strict=False)

Kind: TypeAlias = Literal["text", "thinking", "tool_call"]


@read_only
@dataclass(frozen=True, slots=True)
class Delta:
    """A new piece of an answer.

    Args:
        kind: ``text``, ``thinking`` or ``tool_call``.
        text: The new text, or the new piece of a call's arguments: JSON, or the model's own text if that is no JSON.
        index: The number of the call in the message, from 0; ``None`` for text and thinking.
        id: The id of the call, in its last delta at the latest.
        name: The name of the tool, in the first delta of a call.
    """

    kind: Kind
    text: str
    index: int | None = None
    id: str | None = None
    name: str | None = None


class WrittenCall(NamedTuple):
    """A whole call: its name, its arguments as written, and their value if they are an object."""

    name: str
    raw: str
    arguments: JsonObject | None


def well(text: str) -> str:
    """Join the halves of surrogate pairs; replace each lone half by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def arguments_of(text: str) -> JsonObject | None:
    """Parse the arguments of a call: JSON, or JSON in a JSON string. An empty text and ``null`` are no arguments.

    Args:
        text: JSON, as a model wrote it.

    Returns:
        The object; ``None`` if the text is not an object. A block may still refuse a value in it.
    """
    value: Json = text
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = JSON.decode(value) if value.strip(SPACE) else None
        except (ValueError, RecursionError):
            return None
    return {} if value is None else value if isinstance(value, dict) else None


class MessageBuilder:
    """Builds the message of an answer.

    Whitespace between text and a marker, and around a thought, belongs to the layout and is dropped. Whitespace at the
    beginning and the end of the answer is kept.
    """

    __slots__ = ("_behind", "_blocks", "_call", "_calls", "_ids", "_kind", "_news", "_parts", "_space")

    def __init__(self) -> None:
        self._blocks: list[TextBlock | ThinkingBlock | ToolUseBlock] = []
        self._kind: Literal["text", "thinking"] | None = None
        self._parts: list[str] = []
        # Whitespace that is dropped unless text follows.
        self._space: list[str] = []
        # True behind a marker.
        self._behind = False
        self._call: tuple[int, str, str | None] = (0, "", None)
        self._calls = 0
        self._ids: set[str] = set()
        self._news: list[Delta] = []

    @property
    def fresh(self) -> bool:
        """True if only whitespace was added since the beginning, or since the last marker that counted."""
        return not self._parts

    @property
    def called(self) -> bool:
        """True if the last thing in the message is a call."""
        return not self._parts and bool(self._blocks) and isinstance(self._blocks[-1], ToolUseBlock)

    def text(self, piece: str) -> None:
        """Add text."""
        self._add("text", piece)

    def thinking(self, piece: str) -> None:
        """Add a part of a thought."""
        self._add("thinking", piece)

    def _add(self, kind: Literal["text", "thinking"], piece: str) -> None:
        if kind != self._kind:
            self._flush()
            self._kind = kind
        if not self._parts and (kind == "thinking" or self._behind):
            piece = piece.lstrip(SPACE)
        bare = piece.rstrip(SPACE)
        if bare:
            added = "".join((*self._space, bare))
            self._space.clear()
            self._parts.append(added)
            self._news.append(Delta(kind, added))
        if len(bare) < len(piece):
            self._space.append(piece[len(bare) :])

    def close(self) -> None:
        """End the text or thought at a marker."""
        self._flush()
        self._behind = True

    def _flush(self) -> None:
        self._space.clear()
        if self._parts:
            whole = "".join(self._parts)
            self._blocks.append(TextBlock(whole) if self._kind == "text" else ThinkingBlock(whole))
            self._parts.clear()
        self._kind = None

    def start_call(self, name: str, own_id: str, *, sure: bool) -> None:
        """Begin a call.

        Args:
            name: The tool.
            own_id: The id in the answer; ``""`` for none so far.
            sure: True if no id can follow.
        """
        self.close()
        call_id = self._id(own_id, self._calls) if own_id or sure else None
        self._call = (self._calls, name, call_id)
        self._news.append(Delta("tool_call", "", self._calls, call_id, name))
        self._calls += 1

    def arguments(self, piece: str) -> None:
        """Add a piece of the arguments of the call that began."""
        self._parts.append(piece)
        self._news.append(Delta("tool_call", piece, self._call[0]))

    def end_call(self, own_id: str = "") -> None:
        """End the call.

        Args:
            own_id: The id in the answer that followed the name; ``""`` for none.
        """
        index, name, call_id = self._call
        raw = "".join(self._parts)
        self._parts.clear()
        if call_id is None:
            call_id = self._id(own_id, index)
            self._news.append(Delta("tool_call", "", index, call_id))
        self._blocks.append(_block(call_id, WrittenCall(name, raw, arguments_of(raw))))

    def call(self, call: WrittenCall, own_id: str = "") -> None:
        """Add a whole call."""
        self.close()
        block = _block(self._id(own_id, self._calls), call)
        text = dump(block.input) if block.raw_input is None else block.raw_input
        self._news.append(Delta("tool_call", text, self._calls, block.id, block.name))
        self._blocks.append(block)
        self._calls += 1

    def _id(self, own: str, index: int) -> str:
        """Return an id that no other call of the message has: the model's own, or one with the call's number."""
        places = (f"call_{index}" if number == 0 else f"call_{index}_{number}" for number in count())
        chosen = own if own and own not in self._ids else next(each for each in places if each not in self._ids)
        self._ids.add(chosen)
        return chosen

    def end(self) -> None:
        """End the answer."""
        if self._space and self._kind == "text":
            rest = "".join(self._space)
            self._parts.append(rest)
            self._news.append(Delta("text", rest))
        self.close()

    def news(self) -> list[Delta]:
        """Return the deltas since the last call of this method, with neighbours of one kind joined."""
        grouped = [list(group) for _, group in groupby(self._news, lambda delta: (delta.kind, delta.index))]
        self._news = []
        return [
            Delta(
                group[0].kind,
                "".join(delta.text for delta in group),
                group[0].index,
                next((delta.id for delta in group if delta.id is not None), None),
                group[0].name,
            )
            for group in grouped
        ]

    def message(self) -> Msg:
        """Return the message; its content is a string if there is only text."""
        alone = self._blocks[0] if len(self._blocks) == 1 else TextBlock("") if not self._blocks else None
        content = alone.text if isinstance(alone, TextBlock) else tuple(self._blocks)
        return Msg("assistant", content, "assistant").without_speaker()


def _block(call_id: str, call: WrittenCall) -> ToolUseBlock:
    if call.arguments is not None:
        try:
            return ToolUseBlock(call_id, call.name, call.arguments)
        except (ValueError, RecursionError):
            pass  # A block holds no NaN, huge number, deep nesting or half of a surrogate pair.
    return ToolUseBlock(call_id, call.name, raw_input=call.raw)
