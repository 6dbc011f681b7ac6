"""From a row to its line: a plan that is made once, and is the same for all rows.

Most rows are text alone, and what their lines hold beside it never changes. So one row is rendered, the ordinary way,
with a mark for each value; what stands around the marks is kept as bytes, and the values of any other row are put
there. A second row is rendered both ways before that is relied on. A row that is not plain (a value that is no text,
a history, tools, an empty turn) goes the ordinary way, and so does every row of a prompter that could do anything
else with a value than put it into its place: one with hooks, with a budget, with another syntax, of a class of one's
own.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from lazyprompt._base.json import Json, JsonObject, checked_object, fresh
from lazyprompt._version import __version__
from lazyprompt.batch.cells import Cells
from lazyprompt.batch.forms import BatchForm, form_of, json_bytes, text_bytes
from lazyprompt.batch.row_names import default_name
from lazyprompt.errors import BatchError, FormatError, LazyPromptError, ToolsError
from lazyprompt.formatters.providers import profile_of
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter, EmptyPrompter
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.prompters.rows import Columns
from lazyprompt.templates.instruction import AlpacaInstructionTemplate, ChatInstructionTemplate, InstructionTemplate
from lazyprompt.templates.slots import SlotTemplate, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.batch.rows import Row
    from lazyprompt.files.prompty import Prompty

Train: TypeAlias = Literal["last", "all"]

# What a prompt says itself, in whichever form: no further field of a request may take its place.
_SAID = frozenset(
    ("model", "messages", "tools", "system", "contents", "system_instruction", "input", "instructions", "prompt")
)

# The prompters that only put values into their places; a class that somebody derives may do anything.
_PROMPTERS = (Prompter, ChatPrompter, AlpacaPrompter, EmptyPrompter)
_INSTRUCTIONS = (InstructionTemplate, ChatInstructionTemplate, AlpacaInstructionTemplate)
# Signs that Unicode leaves to everybody. A developer whose own text holds one goes the careful way.
_VALUE = "\ue000{}\ue001"
_TEXT = "\ue002{}\ue003"
_VALUES = re.compile("\ue000([0-9]+)\ue001")
_TEXTS = re.compile('"\ue002([0-9]+)\ue003"')
_SIGNS = re.compile("[\ue000-\ue003]")
# What a value of another row may be like.
_TRIAL = ' "A\\\n\r\t\x00\x7f\u2028中文 {x} </s> '


@dataclass(frozen=True, eq=False)
class RowPlan:
    """A plan to turn rows into lines; made by :meth:`of`. It can be pickled, and serves any number of rows and threads.

    Args:
        prompter: The prompter.
        form: The form of a line.
        model: The model.
        columns: The columns of slots, history and the like.
        params: Further fields of each request.
        train: The answers that are trained, in the forms to train with.
        strict: True if a row of which the form cannot carry all is an error.
        prompty: The prompt file, where the prompter is one's.
    """

    prompter: Prompter
    form: BatchForm
    model: str | None = None
    columns: Columns = field(default_factory=Columns)
    params: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    train: Train = "last"
    strict: bool = True
    prompty: Prompty | None = None

    @classmethod
    def of(
        cls,
        prompter: Prompter | Prompty,
        format: str | None = None,
        *,
        model: str | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
        train: Train = "last",
        strict: bool = True,
    ) -> RowPlan:
        """Make a plan.

        Args:
            prompter: The prompter, or a prompt file. A prompt file also says the model and the options of requests.
            format: A name of ``FORMS``; None is ``flat``.
            model: The model of a request; in all other forms as of :meth:`lazyprompt.Prompter.generate_prompt`.
            columns: The columns of slots, history and the like.
            params: Further fields of each request, as ``{"max_tokens": 1024}``, at the place where the service has
                them.
            train: The answers that are trained, in the forms to train with.
            strict: True if a row of which the form cannot carry all, as a sound, is an error.

        Raises:
            FormatError: There is no such form.
            BatchError: The form needs what is not given, as a model, or has no place for what is; or a column that is
                named fills no slot.
        """
        form, columns = form_of(format), columns or Columns()
        if not isinstance(prompter, Prompter) and not hasattr(prompter, "prompter"):
            raise BatchError(f"prompts are made by a prompter or a prompt file, not by a {type(prompter).__name__}")
        prompty = None if isinstance(prompter, Prompter) else prompter
        own = prompter if isinstance(prompter, Prompter) else prompter.prompter
        extra = checked_object(params or {}, "params", BatchError)
        # A hook that is added later is not the plan's.
        plan = cls(copy(own), form, model, columns, extra, train, strict, prompty)
        plan._check()
        return plan

    def line(self, number: int, row: Row) -> bytes:
        r"""Return the line of a row: UTF-8, with ``\n`` at its end and nowhere else.

        Args:
            number: The number of the row, from 1.
            row: The row; it stays as it is.

        Raises:
            LazyPromptError: The row has no prompt; the message begins ``row <number>:``.
        """
        made = None if self._quick is None else self._quick.line(number, row)
        if made is None and self._quick_with_input is not None:
            made = self._quick_with_input.line(number, row)
        return self.careful_line(number, row) if made is None else made

    def careful_line(self, number: int, row: Row) -> bytes:
        """Return the line of any row, without the quick way of plain rows."""
        made = self.made(number, row)
        # A flat prompt and its name are texts alone.
        return (text_bytes if self.form.provider == "flat" else json_bytes)(made) + b"\n"

    def made(self, number: int, row: Row) -> JsonObject:
        """Return the object of a line; it shares nothing with the row or the plan.

        Args:
            number: The number of the row, from 1.
            row: The row; it stays as it is.

        Raises:
            LazyPromptError: As of :meth:`line`.
        """
        form = self.form
        try:
            name = self.cells.name_of(row) if form.id_key else ""
            return form.line(default_name(number) if name is None else form.checked_id(name), self.body(row))
        except LazyPromptError as error:
            raise type(error)(f"row {number}: {error}") from error

    def body(self, row: Row) -> Json:
        """Return the prompt of a row in its form: a text, a payload, a request, or a sample.

        Raises:
            LazyPromptError: The row has no prompt; the message does not know which row it is.
        """
        form, cells = self.form, self.cells
        given, history, tools = cells.given(row), cells.history_of(row), cells.tools_of(row)
        if form.sample:
            label = cells.label_of(row)
            sample = self.prompter.training_sample(given, label, history, tools, train=self.train, model=self.model)
            return sample.export(form.sample)
        if self.prompty is not None and form.is_request:
            if tools:
                raise ToolsError("the row has tools, and a prompt file names its own: take them out of one of both")
            return self._request(self.prompty.request(given, history=history, provider=form.provider, api=form.api))
        # The form of OpenAI knows families of local models alone; the model of a request is put in below.
        model = None if form.is_request and form.provider == "openai" else self.model
        made = self.prompter.generate_prompt(given, history, tools, format=form.provider, model=model)
        if isinstance(made, str):
            return made
        payload = cast("JsonObject", made)
        return self._request(payload) if form.is_request else self._checked(payload)

    @cached_property
    def cells(self) -> Cells:
        """The columns of a row's parts.

        Raises:
            BatchError: A column is named for what is no slot.
        """
        return Cells.of(self.columns, self.prompter, () if self.prompty is None else self.prompty.inputs)

    @property
    def settings(self) -> JsonObject:
        """The settings that lines depend on, as JSON; a run continues only with the same ones.

        The prompter's texts are in it as a hash. Functions (hooks, budgets, counters) are not.
        """
        columns: JsonObject = {each.name: getattr(self.columns, each.name) for each in fields(Columns)}
        return {
            "lazyprompt": __version__,
            "format": self.form.name,
            "model": self.model,
            "columns": {**columns, "input": dict(self.columns.input)},
            "params": fresh(dict(self.params)),
            "train": self.train,
            "strict": self.strict,
            "prompt": self._hash(),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone; what was made on first use is made again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _quick(self) -> QuickLine | None:
        """The writer of plain rows without an input beside the slots."""
        return quick_line(self, with_input=False)

    @cached_property
    def _quick_with_input(self) -> QuickLine | None:
        """The writer of plain rows with one; it is made apart, for most tables are of one kind."""
        return quick_line(self, with_input=True)

    def _check(self) -> None:
        """Refuse what no row could have a line with."""
        form, _ = self.form, self.cells
        if self.train not in ("last", "all"):
            raise BatchError(f"train {self.train!r} is unknown; give last or all")
        if self.params and not form.is_request:
            what = listed(self.params)
            raise BatchError(f"{form.name} has no place for {what}: only whole requests have further fields")
        if reserved := sorted(_SAID & self.params.keys()):
            raise BatchError(f"params has {reserved[0]!r}, which the prompt says itself; leave it out")
        if self.prompty is not None:
            return
        if form.has_model and not self.model:
            raise BatchError(f"{form.name} needs a model: each request names the one that is to answer; give model=")
        if missing := [name for name in form.needs if name not in self.params]:
            raise BatchError(f"{form.name} needs {missing[0]!r} in each request: give params={{{missing[0]!r}: ...}}")

    def _request(self, payload: JsonObject) -> JsonObject:
        """Return a payload as a whole request: with the model first, and the further fields last."""
        form = self.form
        own = self._checked(payload)
        named = own.pop("model", None)
        model = self.model or named
        if not form.has_model:
            return form.change({**own, **fresh(dict(self.params))})
        if not model:
            raise BatchError(f"{form.name} needs a model, and the prompt file names none; give model=")
        return form.change({"model": model, **own, **fresh(dict(self.params))})

    def _checked(self, payload: JsonObject) -> JsonObject:
        """Return a payload as a plain dict, if all is in it; nobody would look at the reports of a million rows."""
        report = payload.report if isinstance(payload, Payload) else ()
        # A prompt file without a model is reported where a model is needed.
        losses = [str(entry) for entry in report if entry.is_loss and entry.kind != "model"] if self.strict else []
        if losses:
            raise FormatError(
                f"{self.form.name} cannot carry all of it: {'; '.join(losses)}; with strict=False it is left out"
            )
        return dict(payload)

    def _hash(self) -> str:
        """Return the hash of the prompter's texts, in every process the same."""
        made_of = self.prompter.made_of
        trial: Json = None
        # A hook may want more of a row than what a trial has.
        if not made_of.has_functions:
            try:
                trial = self.body(self.cells.trial())
            except LazyPromptError as error:
                trial = str(error)
        content: list[Json] = [
            type(self.prompter).__name__,
            [template.text for template in made_of.instruction.templates],
            [*made_of.instruction.literals],
            made_of.system,
            [*openai_dicts(made_of.history.messages)],
            made_of.tools.json,
            None if self.prompty is None else self.prompty.hash,
            trial,
        ]
        return f"sha256:{sha256(json_bytes(content)).hexdigest()}"


class _Text(NamedTuple):
    """A text of a line that has values in it.

    Attributes:
        start: Its beginning.
        values: The column of each value, and what stands behind that.
        is_bare: True if nothing visible stands beside the values.
        after: The bytes behind it, up to the next such text.
    """

    start: str
    values: tuple[tuple[str, str], ...]
    is_bare: bool
    after: bytes


@dataclass(slots=True)
class QuickLine:
    """Writes the lines of plain rows; see :func:`quick_line`.

    Args:
        checked_id: Refuses the names of rows that lines cannot have.
        name: The column of the name.
        others: The columns that plain rows have not.
        head: The bytes before the name.
        start: The bytes behind it, up to the first text.
        numbered: All these bytes around the number of a row, which is the name of most.
        texts: The texts.
    """

    checked_id: Callable[[str], str]
    name: str
    others: tuple[str, ...]
    head: bytes
    start: bytes
    numbered: bytes
    texts: tuple[_Text, ...]

    def line(self, number: int, row: Row) -> bytes | None:
        """Return the line of a row; None if the row is not plain.

        Args:
            number: The number of the row.
            row: The row.
        """
        for column in self.others:
            if column in row and row[column] is not None:
                return None
        column = self.name
        name = row[column] if column in row else None  # noqa: SIM401 - get would take twice as long as both
        try:
            if name is None:
                line = [self.numbered % number]
            elif type(name) is str:
                line = [self.head, text_bytes(self.checked_id(name)), self.start]
            else:
                return None
            for text, values, is_bare, after in self.texts:
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


def quick_line(plan: RowPlan, *, with_input: bool) -> QuickLine | None:
    """Make the writer of a plan's plain rows.

    Args:
        plan: The plan.
        with_input: True for rows with an input beside the slots.

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


def _is_plain(plan: RowPlan) -> bool:
    """Return True if the values of a plan are put into their places, and nothing else happens to them."""
    form, prompter = plan.form, plan.prompter
    if form.sample or form.provider == "flat" or plan.prompty is not None or type(prompter) not in _PROMPTERS:
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


def _compiled(plan: RowPlan, wanted: Sequence[str], *, with_input: bool) -> QuickLine | None:
    columns = list(dict.fromkeys(wanted))
    texts: list[_Text] = []

    def replaced(value: Json) -> Json:
        """Return a value with a mark in the place of each text that has values in it."""
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
        head.encode().replace(b"%", b"%%") + b'"row-%d"' + start.replace(b"%", b"%%"),
        tuple(text._replace(after=piece) for text, piece in zip(texts, after, strict=True)),
    )


def _wanted(plan: RowPlan, *, with_input: bool) -> list[str]:
    """Return the column of each place that a value goes to."""
    instruction, cells = plan.prompter.made_of.instruction, plan.cells
    slots = [slot for template in instruction.templates for slot in template.origins(template.literals)[1::2]]
    columns = [cells.slots[slot] for slot in slots]
    return [*columns, cells.input] if with_input and cells.input is not None else columns
