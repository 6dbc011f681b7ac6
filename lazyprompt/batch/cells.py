"""The parts of a prompt that come from a row: slot values, input, history, tools, label and name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, cast

from lazyprompt._base.json import is_sequence
from lazyprompt.errors import BatchError, HistoryError, LazyPromptError, SlotError, ToolsError, did_you_mean
from lazyprompt.messages.history import History, HistoryLike
from lazyprompt.templates.slots import listed, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.batch.rows import Row
    from lazyprompt.files.properties import Property
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.rows import Columns

_INPUT = "input"
_ROLES = ("history", "tools", "label", "id")
_NO_SLOTS = "the prompt has no slots, so each row needs an input"
# Common names of the conversation column in training datasets.
_MESSAGES = ("messages", "conversations", "conversation")
_MEDIA = ("images", "videos", "audios")
# The input types in prompt files whose values are never strings.
_TYPED = frozenset(("integer", "float", "boolean", "array", "object", "thread"))
# The type names of pandas.NA and pandas.NaT, which mark missing values.
_MISSING_TYPES = frozenset({"NAType", "NaTType"})


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns that contain each row's slot values, user text, history, tools, target response and name.

    Args:
        slots: The column for each slot.
        input: The column that contains the user's text; None if the prompt accepts only slot values.
        history: The column that contains the history; None if the chosen history column fills a slot instead.
        tools: The column that contains the tools; None if the chosen tools column fills a slot instead.
        label: The column that contains the target response.
        id: The column that contains the row's name.
        has_defaults: True for a prompt file, which supplies default values and validates its inputs.
        typed: The slots whose values are not text; a text value, such as one from CSV, is parsed as JSON.
        named: The columns that the caller set, keyed by slot name or by ``history``, ``tools``, ``label`` or ``id``.
        needed: The slots without a default value.
        has_user_text: True if the prompt contains user text even without an input.
    """

    slots: Mapping[str, str]
    input: str | None
    history: str | None
    tools: str | None
    label: str
    id: str
    has_defaults: bool
    typed: frozenset[str]
    named: Mapping[str, str]
    needed: tuple[str, ...]
    has_user_text: bool

    @classmethod
    def of(cls, columns: Columns, prompter: Prompter, inputs: Sequence[Property] = ()) -> Cells:
        """Return the column mapping for a prompter's rows.

        Args:
            columns: The columns for slots, history, tools, label and id.
            prompter: The prompter that renders the rows.
            inputs: The inputs that a prompt file declares, if the prompter was loaded from one.

        Raises:
            BatchError: A column is set for an unknown slot.
        """
        instruction = prompter.made_of.instruction
        slots = tuple(dict.fromkeys((*(each.name for each in inputs), *prompter.slots)))
        takes_input = instruction.accepts_input and _INPUT not in slots
        known = (*slots, _INPUT) if takes_input else slots
        for slot in columns.input:
            if slot not in known:
                what = f"a column is set for {slot!r}, which the prompt doesn't use{did_you_mean(slot, known)}"
                raise BatchError(f"{what}; the prompt uses {listed(known) or 'no input'}", setting="columns")
        filled = {slot: columns.input.get(slot, slot) for slot in slots}
        taken = frozenset(filled.values())
        roles = {role: str(getattr(columns, role)) for role in _ROLES}
        has_defaults = instruction.input_form.has_defaults
        return cls(
            filled,
            columns.input.get(_INPUT, _INPUT) if takes_input else None,
            None if columns.history in taken else columns.history,
            None if columns.tools in taken else columns.tools,
            columns.label,
            columns.id,
            has_defaults,
            frozenset(each.name for each in inputs if each.kind in _TYPED),
            {**columns.input, **{role: column for role, column in roles.items() if column != role}},
            tuple(each.name for each in inputs if each.is_needed) if has_defaults else slots,
            # Treat a prompter with hooks as if it had user text, because a hook may add text to the user turn.
            bool(instruction.templates[-1].text.strip()) or prompter.made_of.has_functions,
        )

    def input_of(self, row: Row) -> dict[str, object]:
        """Return a row's input: a value for each slot, and the user's text.

        Raises:
            SlotError: A slot has no value.
        """
        given: dict[str, object] = {}
        for slot, column in self.slots.items():
            value = cell(row, column)
            if slot in self.typed and isinstance(value, str):
                # Keep invalid JSON as a string, so that validating the inputs of the prompt file raises the error.
                with suppress(ValueError, RecursionError):
                    value = _json(value)
            if value is not None:
                given[slot] = value
            elif not self.has_defaults and History.of(self.history_of(row)).question_before_results is None:
                raise SlotError(_describe_missing(slot, column, row))
        if self.input is not None:
            text = cell(row, self.input)
            if text is not None:
                given[_INPUT] = text
            elif cell(row, self.history) is None:
                if not given:
                    raise SlotError(f"{_NO_SLOTS}: {_describe_missing('', self.input, row)}")
                if fault := self._without_user_text(row):
                    raise SlotError(fault)
        return given

    def missing_in(self, columns: Row) -> str | None:
        """Return the reason why no row of a table can be rendered, or None if the columns suffice.

        The reason is that a column needed by the prompt is missing, or that no column contains the user's text although
        some columns are unused.

        Args:
            columns: A mapping with the table's column names as keys; its values are ignored.
        """
        needed = dict(self.named)
        # A row whose history ends with a tool result needs no slot values or user text.
        if self.history not in columns:
            needed |= {slot: self.slots[slot] for slot in self.needed}
            if self.input is not None and not self.slots:
                needed |= {_INPUT: self.input}
        missing = next(((slot, column) for slot, column in needed.items() if column not in columns), None)
        return (
            self._without_user_text(columns)
            if missing is None
            else _describe_missing(*missing, columns, "the rows have")
        )

    def _without_user_text(self, columns: Row) -> str | None:
        """Return an error message if columns are unused and none provides the user's text, or None otherwise."""
        if self.input is None or self.has_user_text or self.input in columns or self.history in columns:
            return None
        if not (unused := [name for name in columns if name not in self.used]):
            return None
        return (
            f"the prompt has no user text: there is no column {self.input!r}"
            f"{did_you_mean(self.input, columns)}, and no slot uses {listed(unused)}; "
            f"--column input={unused[0]} makes it the user text"
        )

    def history_of(self, row: Row) -> HistoryLike | None:
        """Return the row's history.

        Raises:
            HistoryError: The column contains text that is not valid JSON.
        """
        return cast("HistoryLike | None", _parse(cell(row, self.history), self.history, HistoryError))

    def tools_of(self, row: Row) -> ToolsLike:
        """Return the row's tools.

        Raises:
            ToolsError: The column contains text that is not valid JSON.
        """
        return cast("ToolsLike", _parse(cell(row, self.tools), self.tools, ToolsError))

    @property
    def used(self) -> frozenset[str]:
        """The names of the columns that are read from each row."""
        own = (*self.slots.values(), self.input, self.history, self.tools, self.label, self.id)
        return frozenset(column for column in own if column is not None)

    def unused(self, row: Row) -> tuple[str, ...]:
        """Return the names of unused columns that contain conversations, media or tools."""
        return tuple(name for name in (*_MESSAGES, *_MEDIA, "tools") if name not in self.used and row.get(name))

    def label_of(self, row: Row) -> str | Mapping[str, object] | None:
        """Return the target response as text or a message, or None if the label is missing or is a KTO rating.

        Raises:
            SlotError: The label is not text, a message or a rating.
        """
        given = cell(row, self.label)
        if given is None or isinstance(given, bool):
            return None
        if isinstance(given, str):
            return value_text(given, self.label)
        message = _only_item(given)
        if _is_message(message):
            return message
        raise SlotError(
            f"column {self.label!r} contains a value of type {type(given).__name__}; expected response text, a message "
            "with 'role' and 'content', or a KTO rating (true or false)"
        )

    def rating_of(self, row: Row) -> bool | None:
        """Return the label if it is a KTO rating (true or false), or None otherwise."""
        given = cell(row, self.label)
        return given if isinstance(given, bool) else None

    def name_of(self, row: Row) -> str | None:
        """Return the row's name, or None if it is missing or empty.

        Raises:
            SlotError: The name cannot be converted to text.
        """
        given = cell(row, self.id)
        return None if given is None or given == "" else value_text(given, self.id)

    def trial(self) -> Row:
        """Return a trial row with placeholder text in every column except those for history, tools and name."""
        columns = [*self.slots.values(), self.label, *([] if self.input is None else [self.input])]
        return dict.fromkeys(columns, "?")


def cell(row: Row, column: str | None) -> object:
    """Return the value in a column, or None if it is missing or NaN."""
    value = row.get(column) if column is not None else None
    return value if type(value) is str or value is None or not is_nan(value) else None


def _is_message(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return True for a mapping with a ``role`` key and a ``content`` or ``tool_calls`` key."""
    return isinstance(value, Mapping) and "role" in value and ("content" in value or "tool_calls" in value)


def is_nan(value: object) -> bool:
    """Return True if a table cell's value is NaN, pandas.NA or pandas.NaT."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - only NaN differs from itself
    return type(value).__name__ in _MISSING_TYPES


def _only_item(value: object) -> object:
    """Return the only item of a one-item list, or any other value unchanged."""
    return value[0] if is_sequence(value) and len(value) == 1 else value


def _json(text: str) -> object:
    """Parse JSON text; return None for blank text."""
    return json.loads(text) if text and not text.isspace() else None


def _describe_missing(slot: str, column: str, row: Row, owner: str = "the row has") -> str:
    what = "" if slot == _INPUT or slot in _ROLES else "the slot "
    where = f" (for {what}{slot!r})" if slot not in ("", column) else ""
    if column in row:
        return f"column {column!r}{where} has no value"
    messages = next((name for name in _MESSAGES if name in row), "")
    advice = f"; if {messages!r} contains messages, use --column history={messages}" if messages else ""
    found = listed(row) or "no columns"
    return f"there is no column {column!r}{where}{did_you_mean(column, row)}; {owner} {found}{advice}"


def _parse(value: object, column: str | None, error: type[LazyPromptError]) -> object:
    """Return the value of a column that contains lists; a text value, such as one from CSV, is parsed as JSON."""
    try:
        return _json(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as fault:
        raise error(f"column {column!r} is not a valid JSON list: {fault}") from fault
