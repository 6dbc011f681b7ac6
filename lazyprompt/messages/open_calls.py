"""Tracks which tool calls have no result yet while a conversation is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lazyprompt.messages.msg import ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.messages.msg import Msg


@dataclass(eq=False)
class OpenCalls(Mapping[str, str]):
    """A mapping from the id of each tool call without a result to the tool's name, oldest call first.

    Few tool results need this mapping, so the messages are searched only on access.

    Args:
        messages: The messages parsed so far.
    """

    messages: Sequence[Msg] = ()
    _seen: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _names: dict[str, str] = field(default_factory=dict[str, str], init=False)

    def new_id(self, index: int = 0) -> str:
        """Create an id for a call that has none, based on the call's position in the conversation.

        Args:
            index: The call's index among the calls in its own message.
        """
        self._update()
        return f"call_without_id_{self._count + index}"

    def _update(self) -> dict[str, str]:
        for message in self.messages[self._seen :]:
            for block in message.blocks:
                if isinstance(block, ToolUseBlock):
                    self._count += 1
                    self._names[block.id] = block.name
                elif isinstance(block, ToolResultBlock):
                    self._names.pop(block.id, None)
        self._seen = len(self.messages)
        return self._names

    def __getitem__(self, call_id: str) -> str:
        return self._update()[call_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._update())

    def __len__(self) -> int:
        return len(self._update())
