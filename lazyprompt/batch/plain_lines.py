"""A fast writer for plain rows, whose values are all strings: it inserts the values between constant bytes.

Most rows contain only string values for slots and the user's text, so their lines differ only in these values. Filling
a trial prompt shows which text comes from the template and which from a value; the constant part of the line is then
serialized only once.

A row is rendered individually if it contains a history, tools, an empty turn, or a value that is not a string. All rows
are rendered individually if the prompter may change values: if it has hooks, a budget or a non-default template syntax,
or if its class is user-defined.
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

# Prompter classes that insert values unchanged. Subclasses are excluded because they may modify values.
_PROMPTERS = (Prompter, ChatPrompter, AlpacaPrompter, EmptyPrompter)
_INSTRUCTIONS = (InstructionTemplate, ChatInstructionTemplate, AlpacaInstructionTemplate)


class PlainLine(NamedTuple):
    """A writer for the lines of rows whose values are all strings; see :func:`plain_line`.

    Attributes:
        checked_id: A function that rejects invalid row names.
        name: The id column, which contains the name of each row.
        others: The optional columns; a row with a value in one of these columns is rendered individually.
        only: The allowed columns; a row with any other column is rendered individually. None to allow all columns.
        head: The bytes of the line before the value from the id column.
        start: The bytes of the line between the value from the id column and the first value in ``values``.
        values: For each value, its column and the bytes that follow the value.
        bare: For each system or user text that consists only of row values and white space, the columns of these
            values.
        controls: The control sequences that values must not contain; None for no restriction.
        texts: For each system or user text, its parts as pairs: a template string and False, or a column name and True.
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
        """Return the line for a row, or None if the row must be rendered individually.

        Args:
            number: The row's number.
            row: The row.
        """
        for column in self.others:
            if row.get(column) is not None:
                return None
        name = row.get(self.name)
        # A str subclass can override methods. Markup, for example, escapes text that is added to it.
        if (name is not None and type(name) is not str) or not (self.only is None or self.only.issuperset(row)):
            return None
        try:
            named = self.checked_id(name) if name else default_name(number)
            line = [self.head, _escape(named), self.start]
            for column, after in self.values:
                value = row[column]
                if type(value) is not str:
                    return None
                line += (text_bytes(value)[1:-1], after)
        except (KeyError, TypeError, ValueError):
            # A value is missing or invalid, so rendering this row by itself raises the error.
            return None
        texts = cast("Mapping[str, str]", row)
        # A blank turn is handled differently by each provider format, so render this row by itself.
        if any(not "".join(texts[column] for column in columns).strip() for columns in self.bare):
            return None
        return b"".join(line) if self.controls is None or self._is_clean(texts, self.controls) else None

    def _is_clean(self, row: Mapping[str, str], controls: Controls) -> bool:
        """Return True if no value forms a control sequence, alone or together with adjacent text."""
        filled = ([row[part] if named else part for part, named in text] for text in self.texts)
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
    """Create a writer for the lines of rows whose values are all strings.

    Args:
        form: The line format.
        prompter: A prompter for which :func:`has_plain_rows` returns True.
        cells: The mapping from slots, history and other row data to columns.
        target: An object that renders prompts as the provider's payloads.
        body_with: A function that converts a payload to a line's body.
        with_input: True for rows that have an input in addition to slot values.

    Returns:
        The writer, or None if all rows must be rendered individually.
    """
    columns = {*cells.slots.values(), *((cells.input,) if with_input and cells.input is not None else ())}
    if not columns or (with_input and cells.input is None):
        return None
    # Create a new string object for each column, because ``_column`` finds a placeholder's column by object identity.
    values = {column: f"value {at}" for at, column in enumerate(columns)}
    name = f"name {len(values)}"
    try:
        prompt = prompter.fill(cells.input_of(values))
        conversation = target.conversation(prompt)
        messages = conversation.messages
        line = form.line(name, body_with(target.write(conversation, prompt)))
    except LazyPromptError:
        return None  # each row is then rendered individually, which raises the error again
    system, user = (() if text is None else text.parts for text in target.texts(prompt))
    holes: dict[int, list[bytes | str]] = {id(name): [cells.id]}
    bare: list[tuple[str, ...]] = []
    texts: list[tuple[tuple[str, bool], ...]] = []
    # The first message contains the system text, and the last message contains the user's text.
    for parts, message in ((system, messages[0]), (user, messages[-1])):
        if len(parts) > 1:
            hole = [_column(part, values) or _escape(part) for part in parts]
            holes[id(message.content)] = hole
            named = [_column(part, values) for part in parts]
            texts.append(tuple((name or part, name is not None) for part, name in zip(parts, named, strict=True)))
            if not "".join(part for part in parts if _column(part, values) is None).strip():
                bare.append(tuple(each for each in hole if isinstance(each, str)))
    # Each pair contains a column name and the bytes of the line after this column's value. The first pair contains an
    # empty name and the start of the line.
    pieces = [("", b"")]
    for piece in (*_write_json(line, holes), b"\n"):
        if isinstance(piece, str):
            pieces.append((piece, b""))
        else:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + piece)
    (_, head), (_, start), *found = pieces
    wanted = [each for hole in holes.values() for each in hole if isinstance(each, str)]
    if len(found) + 1 != len(wanted) or columns != {column for column, _ in found}:
        return None  # at least one placeholder value is missing from the line or was changed
    others = [None if with_input else cells.input, cells.history, cells.tools]
    columns_left = tuple(column for column in others if column is not None)
    # If the prompt has no user text, rendering a row with unused columns raises an error.
    only = None if with_input or cells.input is None or cells.has_user_text else cells.used
    fixed = form.checked_id, cells.id, columns_left, only, head, start
    return PlainLine(*fixed, tuple(found), tuple(bare), target.controls, tuple(texts))


def has_plain_rows(form: BatchForm, prompter: Prompter) -> bool:
    """Return True if the line format and the prompter insert values into a line unchanged."""
    if form.sample or form.provider == "flat" or type(prompter) not in _PROMPTERS:
        return False
    if not isinstance(form.provider, str) or not profile_of(form.provider).turns:
        # A custom format may change values, and a format without turns merges and escapes them.
        return False
    made_of = prompter.made_of
    return (
        type(made_of.instruction) in _INSTRUCTIONS
        and all(type(template) is SlotTemplate for template in made_of.instruction.templates)
        and not (made_of.has_functions or made_of.has_budget or prompter.shows)
    )


def _column(part: str, values: Mapping[str, str]) -> str | None:
    """Return the name of the column that a text in the trial prompt came from, or None for template text."""
    return next((column for column, value in values.items() if value is part), None)


def _escape(text: str) -> bytes:
    """Return a text as a JSON string without the quotes."""
    return text_bytes(text)[1:-1]


def _write_json(value: Json, holes: Mapping[int, Sequence[bytes | str]]) -> Iterator[bytes | str]:
    """Yield the serialized bytes of a JSON value in pieces, with a column's name in place of each value from a row.

    Args:
        value: The JSON value.
        holes: For each string that contains row values, its serialized template text and column names, keyed by the
            string's ``id()``.
    """
    if id(value) in holes:
        yield from (b'"', *holes[id(value)], b'"')
    elif isinstance(value, dict) and value:
        for at, (key, item) in enumerate(value.items()):
            yield (b"," if at else b"{") + json_bytes(key) + b":"
            yield from _write_json(item, holes)
        yield b"}"
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield b"," if at else b"["
            yield from _write_json(item, holes)
        yield b"]"
    else:
        yield json_bytes(value)
