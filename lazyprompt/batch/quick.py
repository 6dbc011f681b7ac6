"""Lines of plain rows, with all that is the same in every row written once.

Most rows are text alone, and what their lines hold beside it never changes. So one row is rendered, the ordinary way,
with a mark for each value; what stands around the marks is kept as bytes, and the values of any other row are put
there. A second row is rendered both ways before that is relied on. A row that is not plain (a value that is no text,
a history, tools, an empty turn) goes the ordinary way, and so does every row of a prompter that could do anything
else with a value than put it into its place: one with hooks, with a budget, with another syntax, of a class of one's
own.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lazyprompt.batch.forms import json_bytes, text_bytes
from lazyprompt.errors import LazyPromptError
from lazyprompt.formatters.providers import profile_of
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter, EmptyPrompter
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.templates.instruction import AlpacaInstructionTemplate, ChatInstructionTemplate, InstructionTemplate
from lazyprompt.templates.slots import SlotTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt._base.json import Json
    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.forms import BatchForm
    from lazyprompt.batch.rows import Row

PROMPTERS = (Prompter, ChatPrompter, AlpacaPrompter, EmptyPrompter)
"""The prompters that only put values into their places; a class that somebody derives may do anything."""

_INSTRUCTIONS = (InstructionTemplate, ChatInstructionTemplate, AlpacaInstructionTemplate)
# Signs that Unicode leaves to everybody. A developer whose own text holds one goes the careful way.
_VALUE = "\ue000{}\ue001"
_TEXT = "\ue002{}\ue003"
_VALUES = re.compile("\ue000([0-9]+)\ue001")
_TEXTS = re.compile('"\ue002([0-9]+)\ue003"')
_SIGNS = re.compile("[\ue000-\ue003]")
# What a value of another row may be like.
_TRIAL = ' "A\\\n\r\t\x00\x7f\u2028中文 {x} </s> '


class Plan(Protocol):
    """A plan of rows, as :class:`lazyprompt.batch.render.RowPlan` is one."""

    @property
    def prompter(self) -> Prompter:
        """The prompter."""
        ...

    @property
    def form(self) -> BatchForm:
        """The form of a line."""
        ...

    @property
    def prompty(self) -> object:
        """The prompt file, or None."""
        ...

    @cached_property
    def cells(self) -> Cells:
        """The places of values in a row."""
        ...

    def body(self, row: Row) -> Json:
        """Return the prompt of a row."""
        ...

    def careful_line(self, number: int, row: Row) -> bytes:
        """Return the line of any row."""
        ...


class _Text(NamedTuple):
    """A text of a line that is made of values.

    Attributes:
        start: What it begins with.
        values: The column of each value, and what stands behind that.
        is_bare: Whether nothing that can be seen stands beside the values.
        after: What follows in the line, up to the next such text.
    """

    start: str
    values: tuple[tuple[str, str], ...]
    is_bare: bool
    after: bytes


class QuickLine:
    """What makes the lines of plain rows; see :func:`quick_line`.

    Args:
        checked_id: What refuses the names of rows that lines cannot have.
        name: The column of the name.
        others: The columns that plain rows have not.
        head: What stands before the name.
        start: What stands behind it, up to the first text.
        texts: The texts.
    """

    __slots__ = ("_checked_id", "_head", "_name", "_numbered", "_others", "_start", "_texts")

    def __init__(
        self,
        checked_id: Callable[[str], str],
        name: str,
        others: tuple[str, ...],
        head: bytes,
        start: bytes,
        texts: tuple[_Text, ...],
    ) -> None:
        self._checked_id = checked_id
        self._name = name
        self._others = others
        self._head, self._start = head, start
        self._texts = texts
        # Most rows have no name: theirs is put in together with what stands around it.
        self._numbered = head.replace(b"%", b"%%") + b'"row-%d"' + start.replace(b"%", b"%%")

    def line(self, number: int, row: Row) -> bytes | None:
        """The line of a row; None where the row is not plain.

        Args:
            number: The number of the row.
            row: The row.
        """
        for column in self._others:
            if column in row and row[column] is not None:
                return None
        column = self._name
        name = row[column] if column in row else None  # noqa: SIM401 - get would take twice as long as both
        try:
            if name is None:
                line = [self._numbered % number]
            elif type(name) is str:
                line = [self._head, text_bytes(self._checked_id(name)), self._start]
            else:
                return None
            for text, values, is_bare, after in self._texts:
                for column, literal in values:
                    value = row[column]
                    # A text of another class may have an addition of its own, as Markup has.
                    if type(value) is not str:
                        return None
                    text += value + literal  # noqa: PLW2901 - CPython adds to it in place
                if is_bare and (not text or text.isspace()):
                    return None
                line.append(text_bytes(text))
                line.append(after)
        except (KeyError, TypeError, ValueError):
            # A value that is missing, or has half of a surrogate pair; the ordinary way says what is wrong.
            return None
        return b"".join(line)


def quick_line(plan: Plan, *, with_input: bool) -> QuickLine | None:
    """What makes the lines of a plan's plain rows.

    Args:
        plan: The plan.
        with_input: Whether it is for rows with what the user says beside the slots.

    Returns:
        That; None where no row of the plan is plain.
    """
    if not _is_plain(plan) or not (plan.cells.input is not None if with_input else plan.cells.slots):
        return None
    wanted = _wanted(plan, with_input=with_input)
    try:
        made = _compiled(plan, wanted, with_input=with_input)
        if made is None:
            return None
        trial = {column: f"{_TRIAL}{at}{_TRIAL}" for at, column in enumerate(wanted)}
        return made if made.line(7, trial) == plan.careful_line(7, trial) else None
    except LazyPromptError:
        # Not even marks can be put in: what is wrong, the rows themselves say.
        return None


def _is_plain(plan: Plan) -> bool:
    """Whether all that happens to the values of a plan is that they are put into their places."""
    form, prompter = plan.form, plan.prompter
    if form.sample or form.provider == "flat" or plan.prompty is not None or type(prompter) not in PROMPTERS:
        return False
    if not profile_of(form.provider).turns:
        # One text is made of all turns, and what is in them is changed so that none can be forged.
        return False
    made_of = prompter.made_of
    return (
        type(made_of.instruction) in _INSTRUCTIONS
        and all(type(template) is SlotTemplate for template in made_of.instruction.templates)
        and not made_of.instruction.input_form.fixed
        and not (made_of.has_functions or made_of.has_budget or prompter.shows)
    )


def _compiled(plan: Plan, wanted: Sequence[str], *, with_input: bool) -> QuickLine | None:
    columns = list(dict.fromkeys(wanted))
    texts: list[_Text] = []

    def replaced(value: Json) -> Json:
        """A value with a mark in the place of each text that has values in it."""
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if not isinstance(value, str) or not (marks := _VALUES.findall(value)):
            return value
        named = [columns[int(mark)] for mark in marks]
        start, *behind = _VALUES.split(value)[::2]
        # What follows in the line is known only when all of it is written.
        texts.append(_Text(start, tuple(zip(named, behind, strict=True)), not "".join((start, *behind)).strip(), b""))
        return _TEXT.format(len(texts))

    if _SIGNS.search(json_bytes(plan.body(dict.fromkeys(columns, "?"))).decode()):
        return None
    body = replaced(plan.body({column: _VALUE.format(at) for at, column in enumerate(columns)}))
    head, *pieces = _TEXTS.split(json_bytes(plan.form.line(_TEXT.format(0), body)).decode() + "\n")
    found = [column for text in texts for column, _ in text.values]
    if pieces[::2] != [str(at) for at in range(len(texts) + 1)] or sorted(found) != sorted(wanted):
        return None
    start, *after = (piece.encode() for piece in pieces[1::2])
    cells = plan.cells
    others = [cells.history, cells.tools, None if with_input else cells.input]
    return QuickLine(
        plan.form.checked_id,
        cells.id,
        tuple(column for column in others if column is not None),
        head.encode(),
        start,
        tuple(text._replace(after=piece) for text, piece in zip(texts, after, strict=True)),
    )


def _wanted(plan: Plan, *, with_input: bool) -> list[str]:
    """The column of each place that a value goes to."""
    instruction, cells = plan.prompter.made_of.instruction, plan.cells
    slots = [slot for template in instruction.templates for slot in template.origins(template.literals)[1::2]]
    columns = [cells.slots[slot] for slot in slots]
    return [*columns, cells.input] if with_input and cells.input is not None else columns
