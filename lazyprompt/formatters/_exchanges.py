"""Calls and their results: each result right behind its call, each call with a result, each id used once."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import NO_RESULT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt._base.roles import Role
    from lazyprompt.formatters._turns import Turn
    from lazyprompt.formatters.report import Notes
    from lazyprompt.messages.msg import Block


def exchanges(turns: Iterable[Turn], notes: Notes) -> list[Turn]:
    """The turns with the results of all calls right behind them, in the order of the calls.

    Args:
        turns: The turns, results in turns of any role.
        notes: Where moved results, changed ids and missing results are written down.

    Returns:
        The turns; results stand in turns of the role ``tool`` and nowhere else, and those hold nothing else.

    Raises:
        FormatError: A result has no call before it, a call has two results, or somebody calls who is not the assistant.
    """
    order = _Order(notes)
    for role, name, content, at in turns:
        if isinstance(content, str):
            order.together.clear()
            order.turns.append(("user" if role == "tool" else role, name, content, at))
        else:
            order.take(role, name, content, at)
    return order.finished()


class _Order:
    """The turns so far, and the calls that wait for their results."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.turns: list[Turn] = []
        # The calls of a turn, by its index among the turns, each with its result once that is there.
        self.calls: dict[int, list[tuple[ToolUseBlock, list[ToolResultBlock]]]] = {}
        # The same by the id that the call was given, the oldest first.
        self.waiting: dict[str, deque[tuple[ToolUseBlock, list[ToolResultBlock]]]] = {}
        self.used: set[str] = set()
        # The calls of messages that follow each other without anything between may wait together.
        self.together: set[str] = set()

    def take(self, role: Role, name: str, content: tuple[Block, ...], at: int) -> None:
        """Put the blocks of a message where they belong."""
        said: list[Block] = []
        for index, block in enumerate(content):
            if not isinstance(block, ToolResultBlock):
                said.append(block)
                continue
            self.together.clear()
            if role == "assistant" and said:
                # Call and result in one message: what was said before the result stands before it.
                self.say(role, name, said, at)
                said = []
            self.answer(block, f"messages[{at}].content[{index}]", behind=bool(said))
        if said:
            # A tool cannot say anything but results; the user's side can.
            self.say("user" if role == "tool" else role, name, said, at)

    def say(self, role: Role, name: str, said: list[Block], at: int) -> None:
        """A turn, with the places of the results of its calls."""
        places: list[tuple[ToolUseBlock, list[ToolResultBlock]]] = []
        if not any(isinstance(block, ToolUseBlock) for block in said):
            self.together.clear()
        for block in said:
            if isinstance(block, ToolUseBlock):
                if role != "assistant":
                    where = f"messages[{at}] calls the tool {block.name!r}"
                    raise FormatError(f"{where}, and its role is {role!r}; only the assistant's messages can")
                places.append((self.unique(block, at), []))
                if block.id not in self.together:
                    # An older call of this id is answered already, or never will be.
                    self.waiting[block.id] = deque()
                self.together.add(block.id)
                self.waiting[block.id].append(places[-1])
        # Calls come last: whatever the assistant said with them it said before their results were there.
        others = [block for block in said if not isinstance(block, ToolUseBlock)]
        if places:
            self.calls[len(self.turns)] = places
        self.turns.append((role, name, (*others, *(call for call, _ in places)), at))

    def unique(self, call: ToolUseBlock, at: int) -> ToolUseBlock:
        """The call with an id that no other has."""
        new, number = call.id, 2
        while new in self.used:
            new, number = f"{call.id}_{number}", number + 1
        self.used.add(new)
        if new == call.id:
            return call
        self.notes.add(f"messages[{at}]", "id", "changed", f"the id {call.id!r} was used before; it is {new!r} here")
        return replace(call, id=new)

    def answer(self, result: ToolResultBlock, where: str, *, behind: bool) -> None:
        """Put a result behind its call."""
        if result.id not in self.waiting:
            raise FormatError(
                f"{where} is the result of the call {result.id!r}, which nobody made before it; keep a call and its "
                "result together, or leave out both"
            )
        if not self.waiting[result.id]:
            raise FormatError(f"{where} is a second result of the call {result.id!r}; a call has one result")
        call, results = self.waiting[result.id].popleft()
        results.append(replace(result, id=call.id, name=call.name))
        if behind or len(self.turns) - 1 not in self.calls:
            self.notes.add(where, "tool_result", "moved", "a result stands right behind its call")

    def finished(self) -> list[Turn]:
        """All turns, the results behind the calls."""
        ordered: list[Turn] = []
        for index, turn in enumerate(self.turns):
            ordered.append(turn)
            places = self.calls.get(index, [])
            for call, results in places:
                if not results:
                    why = f"the call {call.id!r} was never answered, and every call must be"
                    self.notes.add(f"messages[{turn[3]}]", "tool_result", "added", why)
                    results.append(ToolResultBlock(call.id, call.name, NO_RESULT))
            if places:
                ordered.append(("tool", "", tuple(result for _, results in places for result in results), turn[3]))
        return ordered
