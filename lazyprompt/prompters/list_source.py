"""The template and values of a prompt with list values, so that a budget can drop list items."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from lazyprompt.messages.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.templates.instruction import Fixed, InstructionTemplate


@dataclass(frozen=True, slots=True)
class InstructionSource:
    """An instruction together with its values; implements :class:`lazyprompt.messages.prompt.PromptFiller`.

    Args:
        instruction: The instruction template.
        values: The value of each slot, and the user's text.
        asked: See :meth:`InstructionTemplate.parts`.
    """

    instruction: InstructionTemplate
    values: Mapping[str, object]
    asked: str | None

    @property
    def lists(self) -> Mapping[str, Sequence[object]]:
        """The values that are non-empty lists, by slot name."""
        return lists_in(self.values, self.instruction.input_form.slots)

    @property
    def fills_turns(self) -> bool:
        """Always False, because the values fill only the instruction and not the turns of the history."""
        return False

    def fill(self, prompt: Prompt, slot: str, items: Sequence[object]) -> Prompt:
        """Return a copy of the prompt with a list value replaced."""
        source = replace(self, values={**self.values, slot: [*items]})
        system, user, _, (before, after) = self.instruction.parts(source.values, self.asked)
        past = prompt.history.messages
        history = History((*before, *past[len(before) : len(past) - len(after)], *after))
        return prompt.evolve(instruction=system, user=user, history=history, source=source)


def may_have_lists(given: object, fixed: Fixed) -> bool:
    """Return True if an input contains a list, or if a fixed value is a list or a function."""
    values = cast("Mapping[str, object]", given).values() if isinstance(given, Mapping) else (given,)
    has_list = any(isinstance(value, list | tuple) for value in values)
    return has_list or any(isinstance(value, list | tuple) or callable(value) for _, value in fixed)


def source_of(
    instruction: InstructionTemplate, values: Mapping[str, object], asked: str | None
) -> InstructionSource | None:
    """Return the template and values of a prompt, or None if no value is a non-empty list."""
    if not lists_in(values, instruction.input_form.slots):
        return None
    return InstructionSource(instruction, deepcopy(dict(values)), asked)


def lists_in(values: Mapping[str, object], slots: Sequence[str]) -> dict[str, Sequence[object]]:
    """Return the slot values that are non-empty lists."""
    return {slot: value for slot in slots if isinstance(value := values.get(slot), list | tuple) and value}
