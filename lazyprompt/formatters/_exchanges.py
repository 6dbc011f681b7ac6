"""Calls and their results: each result right behind its call, each call with a result, each id used once."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from lazyprompt.errors import FormatError
from lazyprompt.formatters._turns import answering
from lazyprompt.messages.msg import ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import NO_RESULT

if TYPE_CHECKING:
    from lazyprompt._base.roles import Role
    from lazyprompt.formatters._turns import Job
    from lazyprompt.formatters.profile import Turn
    from lazyprompt.formatters.report import Notes
    from lazyprompt.messages.msg import Block

# A call, and its result once that is there.
_Place: TypeAlias = "tuple[ToolUseBlock, list[ToolResultBlock]]"


def order_exchanges(turns: list[Turn], job: Job) -> list[Turn]:
    """Put the results of all calls right behind them, in the order of the calls.

    Results stand in turns of the role ``tool`` and nowhere else, and those hold nothing else.

    Raises:
        FormatError: A result has no call before it, a call has two results, or somebody calls who is not the assistant.
    """
    order = _Order(job.notes)
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
        # The calls of a turn, by its index among the turns.
        self.calls: dict[int, list[_Place]] = {}
        # The same by the id that the call was given, the oldest first.
        self.waiting: dict[str, deque[_Place]] = {}
        self.used: set[str] = set()
        # The number to try next for an id that is used again.
        self.numbers: dict[str, int] = {}
        # The calls of messages that follow each other without anything between may wait together.
        self.together: set[str] = set()

    def take(self, role: Role, name: str, content: tuple[Block, ...], at: int) -> None:
        """Put the blocks of a message where they belong."""
        waiting: list[Block] = []
        for index, block in enumerate(content):
            if not isinstance(block, ToolResultBlock):
                waiting.append(block)
                continue
            self.together.clear()
            if role == "assistant" and waiting:
                # Call and result in one message: the content before the result stays before it.
                self.say(role, name, waiting, at)
                waiting = []
            self.answer(block, f"messages[{at}].content[{index}]", behind=bool(waiting))
        if waiting:
            # A tool cannot say anything but results; the user's side can.
            self.say("user" if role == "tool" else role, name, waiting, at)

    def say(self, role: Role, name: str, blocks: list[Block], at: int) -> None:
        """Add a turn, with the places of the results of its calls."""
        calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
        if not calls:
            self.together.clear()
            self.turns.append((role, name, tuple(blocks), at))
            return
        if role != "assistant":
            where = f"messages[{at}] calls the tool {calls[0].name!r}"
            raise FormatError(f"{where}, and its role is {role!r}; only the assistant's messages can")
        places: list[_Place] = []
        for call in calls:
            places.append((self.unique(call, at), []))
            if call.id not in self.together:
                # An older call of this id is answered already, or never will be.
                self.waiting[call.id] = deque()
            self.together.add(call.id)
            self.waiting[call.id].append(places[-1])
        self.calls[len(self.turns)] = places
        # Calls come last: the content beside them was written before their results were there.
        others = [block for block in blocks if not isinstance(block, ToolUseBlock)]
        self.turns.append((role, name, (*others, *(call for call, _ in places)), at))

    def unique(self, call: ToolUseBlock, at: int) -> ToolUseBlock:
        """Return the call with an id that no other has."""
        new, number = call.id, self.numbers.get(call.id, 2)
        while new in self.used:
            new, number = f"{call.id}_{number}", number + 1
        self.numbers[call.id] = number
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
        results.append(answering(result, call.id, call.name))
        if behind or len(self.turns) - 1 not in self.calls:
            self.notes.add(where, "tool_result", "moved", "a result stands right behind its call")

    def finished(self) -> list[Turn]:
        """Return all turns, the results behind the calls."""
        ordered: list[Turn] = []
        for index, turn in enumerate(self.turns):
            ordered.append(turn)
            if index not in self.calls:
                continue
            places = self.calls[index]
            for call, results in places:
                if not results:
                    why = f"the call {call.id!r} was never answered, and every call must be"
                    self.notes.add(f"messages[{turn[3]}]", "tool_result", "added", why)
                    results.append(ToolResultBlock(call.id, call.name, NO_RESULT))
            ordered.append(("tool", "", tuple(result for _, results in places for result in results), turn[3]))
        return ordered
