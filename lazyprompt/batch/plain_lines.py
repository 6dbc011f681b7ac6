"""Lines of plain rows, whose values are text alone: constant bytes, with the values of a row between them.

Most rows are plain, and their lines differ in a few texts. One prompt is filled, and its segments say which text is the
developer's and which a value. What is the same in all lines is written as JSON once. All other rows are rendered one by
one: a value that is no text, a history, tools, an empty turn; and each row of a prompter that may change a value: one
with hooks, with a budget, with another syntax, of a class of one's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.batch.forms import json_bytes, text_bytes
from lazyprompt.batch.row_names import default_name
from lazyprompt.errors import LazyPromptError
from lazyprompt.formatters.providers import profile_of
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter, EmptyPrompter
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.templates.instruction import AlpacaInstructionTemplate, ChatInstructionTemplate, InstructionTemplate
from lazyprompt.templates.slots import SlotTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.forms import BatchForm
    from lazyprompt.batch.rows import Row
    from lazyprompt.prompters.payload_target import PayloadTarget
    from lazyprompt.safety.find import Controls

# The prompters that only put values into their places; a class that somebody derives may do anything.
_PROMPTERS = (Prompter, ChatPrompter, AlpacaPrompter, EmptyPrompter)
_INSTRUCTIONS = (InstructionTemplate, ChatInstructionTemplate, AlpacaInstructionTemplate)


class PlainLine(NamedTuple):
    """Writes the lines of plain rows; see :func:`plain_line`.

    Attributes:
        checked_id: Refuses the names of rows that lines cannot have.
        name: The column of the name.
        others: The columns that plain rows have not.
        only: The columns that plain rows may have; None for any.
        head: The bytes before the name.
        start: The bytes between the name and the first value.
        values: The column of each value, and the bytes behind it.
        bare: The columns of each text that is blank if their values are.
        controls: The control sequences that values may not have; None for any value.
        texts: The parts of each text: own text and values in turn, each part with True if it is the name of a column.
    """

    checked_id: Callable[[str], str]
    name: str
    others: tuple[str, ...]
    only: frozenset[str] | None
    head: bytes
    start: bytes
    values: tuple[tuple[str, bytes], ...]
    bare: tuple[tuple[str, ...], ...]
    controls: Controls | None
    texts: tuple[tuple[tuple[str, bool], ...], ...]

    def line(self, number: int, row: Row) -> bytes | None:
        """Return the line of a row; None if the row is not plain.

        Args:
            number: The number of the row.
            row: The row.
        """
        for column in self.others:
            if row.get(column) is not None:
                return None
        name = row.get(self.name)
        # A text of another class may have an addition of its own, as Markup has.
        if (name is not None and type(name) is not str) or not (self.only is None or self.only.issuperset(row)):
            return None
        try:
            named = self.checked_id(name) if name else default_name(number)
            line = [self.head, _inside(named), self.start]
            for column, after in self.values:
                value = row[column]
                if type(value) is not str:
                    return None
                line += (text_bytes(value)[1:-1], after)
        except (KeyError, TypeError, ValueError):
            # A value that is missing, or has half of a surrogate pair; rendering says what is wrong.
            return None
        # A provider has rules for turns without any text.
        if any(not "".join(cast("str", row[column]) for column in columns).strip() for columns in self.bare):
            return None
        return b"".join(line) if self.controls is None or self._is_clean(row, self.controls) else None

    def _is_clean(self, row: Row, controls: Controls) -> bool:
        """Return True if the values make no control sequence, alone or with the text around them."""
        filled = ([cast("str", row[part]) if named else part for part, named in text] for text in self.texts)
        return not any(map(controls.find, filled))


def plain_line(
    form: BatchForm,
    prompter: Prompter,
    cells: Cells,
    target: PayloadTarget,
    body_with: Callable[[JsonObject], Json],
    *,
    with_input: bool,
) -> PlainLine | None:
    """Make the writer of plain rows.

    Args:
        form: The form of a line.
        prompter: The prompter, which :func:`has_plain_rows`.
        cells: The columns of a row's parts.
        target: The target of the prompts.
        body_with: Returns the body of a line, given the payload.
        with_input: True for rows with an input beside the slots.

    Returns:
        That; None where no row is plain.
    """
    columns = {*cells.slots.values(), *((cells.input,) if with_input and cells.input is not None else ())}
    if not columns or (with_input and cells.input is None):
        return None
    # New objects, which are nowhere else in a line: a value or a text is found by its identity.
    values = {column: f"value {at}" for at, column in enumerate(columns)}
    name = f"name {len(values)}"
    try:
        prompt = prompter.fill(cells.given(values))
        conversation = target.conversation(prompt)
        messages = conversation.messages
        line = form.line(name, body_with(target.write(conversation, prompt)))
    except LazyPromptError:
        return None  # as each row then says
    system, user = (() if text is None else text.parts for text in target.texts(prompt))
    holes: dict[int, list[bytes | str]] = {id(name): [cells.id]}
    bare: list[tuple[str, ...]] = []
    texts: list[tuple[tuple[str, bool], ...]] = []
    # The user's text is the last message, system text the first.
    for parts, message in ((system, messages[0]), (user, messages[-1])):
        if len(parts) > 1:
            hole = [_column(part, values) or _inside(part) for part in parts]
            holes[id(message.content)] = hole
            named = [_column(part, values) for part in parts]
            texts.append(tuple((name or part, name is not None) for part, name in zip(parts, named, strict=True)))
            if not "".join(part for part in parts if _column(part, values) is None).strip():
                bare.append(tuple(each for each in hole if isinstance(each, str)))
    # The bytes before the name; the column of the name and of each value, with the bytes behind it.
    pieces = [("", b"")]
    for piece in (*_json(line, holes), b"\n"):
        if isinstance(piece, str):
            pieces.append((piece, b""))
        else:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + piece)
    (_, head), (_, start), *found = pieces
    wanted = [each for hole in holes.values() for each in hole if isinstance(each, str)]
    if len(found) + 1 != len(wanted) or columns != {column for column, _ in found}:
        return None  # the form has another text in the place of one of these
    others = [None if with_input else cells.input, cells.history, cells.tools]
    columns_left = tuple(column for column in others if column is not None)
    # Without text of the user, a row with columns that nothing uses is refused.
    only = None if with_input or cells.input is None or cells.has_user_text else cells.used
    fixed = form.checked_id, cells.id, columns_left, only, head, start
    return PlainLine(*fixed, tuple(found), tuple(bare), target.controls, tuple(texts))


def has_plain_rows(form: BatchForm, prompter: Prompter) -> bool:
    """Return True if values are put into their places, and nothing else happens to them."""
    if form.sample or form.provider == "flat" or type(prompter) not in _PROMPTERS:
        return False
    if not profile_of(form.provider).turns:
        # One text is made of all turns, and what is in them is changed so that none can be forged.
        return False
    made_of = prompter.made_of
    return (
        type(made_of.instruction) in _INSTRUCTIONS
        and all(type(template) is SlotTemplate for template in made_of.instruction.templates)
        and not (made_of.has_functions or made_of.has_budget or prompter.shows)
    )


def _column(part: str, values: Mapping[str, str]) -> str | None:
    """Return the column of a value; None for any other text."""
    return next((column for column, value in values.items() if value is part), None)


def _inside(text: str) -> bytes:
    """Return a text as JSON, without its quotes."""
    return text_bytes(text)[1:-1]


def _json(value: Json, holes: Mapping[int, Sequence[bytes | str]]) -> Iterator[bytes | str]:
    """Yield a JSON value in pieces.

    Args:
        value: The value.
        holes: The pieces of some texts, by the identity of the text: JSON without quotes, and names of columns.
    """
    if id(value) in holes:
        yield from (b'"', *holes[id(value)], b'"')
    elif isinstance(value, dict) and value:
        for at, (key, item) in enumerate(value.items()):
            yield (b"," if at else b"{") + json_bytes(key) + b":"
            yield from _json(item, holes)
        yield b"}"
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield b"," if at else b"["
            yield from _json(item, holes)
        yield b"]"
    else:
        yield json_bytes(value)
