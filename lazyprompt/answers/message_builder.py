"""A builder for the chat message or the stream deltas in a local model's response."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count, groupby
from typing import Literal, NamedTuple, TypeAlias

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import Json, JsonObject, dump
from lazyprompt.answers.source import SPACE
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock, ToolUseBlock

# Allow line breaks inside strings, which JSON forbids but models often write.
JSON = json.JSONDecoder(strict=False)

Kind: TypeAlias = Literal["text", "thinking", "tool_call"]


@read_only
@dataclass(frozen=True, slots=True)
class Delta:
    """A new piece of a streamed response.

    Args:
        kind: The type of content, which is ``text``, ``thinking`` or ``tool_call``.
        text: The new text, or the next piece of a call's arguments. Arguments are JSON, or the model's output unchanged
            if it is not valid JSON.
        index: The index of the call in the message, starting at 0; None for text and thinking.
        id: The id of the call; set in the call's last delta at the latest.
        name: The name of the tool; set in the first delta of a call.
    """

    kind: Kind
    text: str
    index: int | None = None
    id: str | None = None
    name: str | None = None


class WrittenCall(NamedTuple):
    """A complete tool call: its name, its raw arguments, and the parsed arguments if they are an object."""

    name: str
    raw: str
    arguments: JsonObject | None


def well(text: str) -> str:
    """Join surrogate pairs and replace each lone surrogate with U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def arguments_of(text: str) -> JsonObject | None:
    """Parse the arguments of a tool call, which may be JSON or a JSON string that contains JSON.

    Args:
        text: The call's arguments as the model wrote them. Empty text and ``null`` are parsed as an empty object.

    Returns:
        The arguments as a dict, or None if they are not a JSON object. The values are not validated, so a tool call
        block may still reject one of them.
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
    """A builder for the message in a response.

    Whitespace next to a marker or around reasoning is layout, so it is dropped. Whitespace at the start and the end of
    the response is kept.
    """

    __slots__ = ("_behind", "_blocks", "_call", "_calls", "_ids", "_kind", "_news", "_parts", "_space")

    def __init__(self) -> None:
        self._blocks: list[TextBlock | ThinkingBlock | ToolUseBlock] = []
        self._kind: Literal["text", "thinking"] | None = None
        self._parts: list[str] = []
        # Whitespace to add before the next text, or to drop if no text follows.
        self._space: list[str] = []
        # True after a marker that ended a block.
        self._behind = False
        self._call: tuple[int, str, str | None] = (0, "", None)
        self._calls = 0
        self._ids: set[str] = set()
        self._news: list[Delta] = []

    @property
    def fresh(self) -> bool:
        """True if only whitespace was added since the start of the response or since the last block."""
        return not self._parts

    @property
    def called(self) -> bool:
        """True if the last block in the message is a tool call."""
        return not self._parts and bool(self._blocks) and isinstance(self._blocks[-1], ToolUseBlock)

    def text(self, piece: str) -> None:
        """Add a piece of text to the message."""
        self._add("text", piece)

    def thinking(self, piece: str) -> None:
        """Add a piece of reasoning to the message."""
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
        """End the current block of text or reasoning at a marker."""
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
        """Start a tool call.

        Args:
            name: The tool name.
            own_id: The id that the model wrote for the call; empty if the model has not written an id yet.
            sure: True if the model can no longer write an id for this call.
        """
        self.close()
        call_id = self._id(own_id, self._calls) if own_id or sure else None
        self._call = (self._calls, name, call_id)
        self._news.append(Delta("tool_call", "", self._calls, call_id, name))
        self._calls += 1

    def arguments(self, piece: str) -> None:
        """Add a piece of the current call's arguments."""
        self._parts.append(piece)
        self._news.append(Delta("tool_call", piece, self._call[0]))

    def end_call(self, own_id: str = "") -> None:
        """End the current call.

        Args:
            own_id: The id that the model wrote after the tool name; empty if it wrote no id.
        """
        index, name, call_id = self._call
        raw = "".join(self._parts)
        self._parts.clear()
        if call_id is None:
            call_id = self._id(own_id, index)
            self._news.append(Delta("tool_call", "", index, call_id))
        self._blocks.append(_block(call_id, WrittenCall(name, raw, arguments_of(raw))))

    def call(self, call: WrittenCall, own_id: str = "") -> None:
        """Add a complete tool call."""
        self.close()
        block = _block(self._id(own_id, self._calls), call)
        text = dump(block.input) if block.raw_input is None else block.raw_input
        self._news.append(Delta("tool_call", text, self._calls, block.id, block.name))
        self._blocks.append(block)
        self._calls += 1

    def _id(self, own: str, index: int) -> str:
        """Return an id that is unique in the message: the model's own id, or an id based on the call's number."""
        places = (f"call_{index}" if number == 0 else f"call_{index}_{number}" for number in count())
        chosen = own if own and own not in self._ids else next(each for each in places if each not in self._ids)
        self._ids.add(chosen)
        return chosen

    def end(self) -> None:
        """End the response."""
        if self._space and self._kind == "text":
            rest = "".join(self._space)
            self._parts.append(rest)
            self._news.append(Delta("text", rest))
        self.close()

    def news(self) -> list[Delta]:
        """Return all deltas since the last call to this method; adjacent deltas of the same kind are joined."""
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
        """Return the message; its content is a string if the response contains only text."""
        alone = self._blocks[0] if len(self._blocks) == 1 else TextBlock("") if not self._blocks else None
        content = alone.text if isinstance(alone, TextBlock) else tuple(self._blocks)
        return Msg("assistant", content, "assistant").without_speaker()


def _block(call_id: str, call: WrittenCall) -> ToolUseBlock:
    if call.arguments is not None:
        try:
            return ToolUseBlock(call_id, call.name, call.arguments)
        except (ValueError, RecursionError):
            pass  # ToolUseBlock rejects NaN, huge numbers, deep nesting and lone surrogates.
    return ToolUseBlock(call_id, call.name, raw_input=call.raw)
