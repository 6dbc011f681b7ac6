"""From a row to its line: a plan that is made once, and is the same for all rows."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from lazyprompt._base.json import checked_object, fresh
from lazyprompt._version import __version__
from lazyprompt.batch.cells import Cells, cell
from lazyprompt.batch.forms import BatchForm, form_of, json_bytes, text_bytes
from lazyprompt.batch.quick import PROMPTERS, quick_line
from lazyprompt.batch.tables import rows_of
from lazyprompt.errors import BatchError, FormatError, LazyPromptError, ToolsError
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.history import History
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.prompters.rows import Columns, OnError, RowFault
from lazyprompt.templates.slots import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.quick import QuickLine
    from lazyprompt.batch.rows import Row
    from lazyprompt.files.prompty import Prompty

Train: TypeAlias = Literal["last", "all"]

# What a prompt says itself, in whichever form: no further field of a request may take its place.
_SAID = frozenset(
    ("model", "messages", "tools", "system", "contents", "system_instruction", "input", "instructions", "prompt")
)
# The kinds of a prompt file's inputs whose values are no text: a text may be meant for all others.
_TYPED = frozenset(("integer", "float", "boolean", "array", "object", "thread"))


@dataclass(frozen=True, eq=False)
class RowPlan:
    """How a row becomes a line; made by :meth:`of`. It can be pickled, and serves any number of rows and threads.

    Args:
        prompter: What makes the prompts.
        form: What a line is.
        model: The model.
        columns: Which columns are what.
        params: Further fields of each request.
        train: Which answers are trained, in the forms to train with.
        strict: Whether a row of which the form cannot carry all is an error.
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
        format: str | None = None,  # noqa: A002 - the name of the documents
        *,
        model: str | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
        train: Train = "last",
        strict: bool = True,
    ) -> RowPlan:
        """A plan.

        Args:
            prompter: What makes the prompts. A prompt file also says the model and the options of requests.
            format: A name of ``FORMS``; None is ``flat``.
            model: The model of a request; in all other forms as of :meth:`lazyprompt.Prompter.generate_prompt`.
            columns: Which columns are what.
            params: Further fields of each request, as ``{"max_tokens": 1024}``, at the place where the service has
                them.
            train: Which answers are trained, in the forms to train with.
            strict: Whether a row of which the form cannot carry all, as a sound, is an error.

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
        r"""The line of a row: UTF-8, with ``\n`` at its end and nowhere else.

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
        """The same as :meth:`line`, the way that every row can go."""
        made = self.made(number, row)
        return (text_bytes if self._is_text(row) else json_bytes)(made) + b"\n"

    def made(self, number: int, row: Row) -> JsonObject:
        """The same as :meth:`line`, as a dict that shares nothing with the row or the plan.

        Args:
            number: The number of the row, from 1.
            row: The row; it stays as it is.

        Raises:
            LazyPromptError: As of :meth:`line`.
        """
        form = self.form
        try:
            name = self.cells.name_of(row) if form.id_key else ""
            return form.line(f"row-{number}" if name is None else form.checked_id(name), self.body(row))
        except LazyPromptError as error:
            raise type(error)(f"row {number}: {error}") from error

    def body(self, row: Row) -> Json:
        """The prompt of a row in its form: a text, a payload, a request, or a sample.

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
        """Where in a row its parts are.

        Raises:
            BatchError: A column is named for what is no slot.
        """
        # A prompt file takes its inputs, and what else its template names.
        inputs = () if self.prompty is None else self.prompty.inputs
        return Cells.of(
            self.columns,
            tuple(dict.fromkeys((*(each.name for each in inputs), *self.prompter.slots))),
            takes_input=self.prompter.made_of.instruction.accepts_input,
            has_defaults=self._is_file(),
            typed=(each.name for each in inputs if each.kind in _TYPED),
        )

    def _is_file(self) -> bool:
        """Whether the prompter is a prompt file's."""
        return self.prompter.made_of.instruction.input_form.has_defaults

    @property
    def settings(self) -> JsonObject:
        """What lines depend on beside their rows, as JSON: to be kept, and compared when work is gone on with.

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
        """What a pickle holds: not what was made on first use."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _quick(self) -> QuickLine | None:
        """What makes the lines of plain rows that say nothing beside the slots."""
        return quick_line(self, with_input=False)

    @cached_property
    def _quick_with_input(self) -> QuickLine | None:
        """The same for those that do: most tables are of one kind, and finding out takes as long as many lines."""
        return quick_line(self, with_input=True)

    def _check(self) -> None:
        """Refuse what no row could have a line with."""
        form, _ = self.form, self.cells
        if self.train not in ("last", "all"):
            raise BatchError(f"train {self.train!r} is unknown; give last or all")
        if self.params and not form.is_request:
            what = listed(self.params)
            raise BatchError(f"{form.name} has no place for {what}: only whole requests have further fields")
        if said := sorted(_SAID & self.params.keys()):
            raise BatchError(f"params has {said[0]!r}, which the prompt says itself; leave it out")
        if self.prompty is not None:
            return
        if form.has_model and not self.model:
            raise BatchError(f"{form.name} needs a model: each request names the one that is to answer; give model=")
        if missing := [name for name in form.needs if name not in self.params]:
            raise BatchError(f"{form.name} needs {missing[0]!r} in each request: give params={{{missing[0]!r}: ...}}")

    def _request(self, payload: JsonObject) -> JsonObject:
        """A payload as a whole request: with the model first, and the further fields last."""
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
        """A payload as a plain dict, if all is in it; nobody would look at the reports of a million rows."""
        report = payload.report if isinstance(payload, Payload) else ()
        # That a prompt file names no model is said where it matters.
        losses = [str(entry) for entry in report if entry.is_loss and entry.kind != "model"] if self.strict else []
        if losses:
            raise FormatError(
                f"{self.form.name} cannot carry all of it: {'; '.join(losses)}; with strict=False it is left out"
            )
        return dict(payload)

    def _is_text(self, row: Row) -> bool:
        """Whether no number in the line of a row comes from the row: see :data:`lazyprompt.batch.forms.text_bytes`."""
        form, cells = self.form, self.cells
        if form.provider == "flat":
            return True
        if not self._is_alike or cell(row, cells.tools) is not None:
            return False
        return not History.of(cells.history_of(row)).has_messages

    @cached_property
    def _is_alike(self) -> bool:
        """Whether orjson writes all that is the same in every row as Python does: numbers in tools, further fields."""
        plain = type(self.prompter) in PROMPTERS and not self.prompter.made_of.has_functions
        if text_bytes is json_bytes or self.form.sample or not plain:
            return False
        try:
            body = self.body(self.cells.trial())
            return text_bytes(body) == json_bytes(body)
        except (LazyPromptError, TypeError):
            # orjson does not write an integer beyond 64 bits at all.
            return False

    def _hash(self) -> str:
        """What the prompter says, in every process the same."""
        made_of = self.prompter.made_of
        trial: Json = None
        # A hook may want more of a row than what a trial has.
        if not made_of.has_functions:
            try:
                trial = self.body(self.cells.trial())
            except LazyPromptError as error:
                trial = str(error)
        said: list[Json] = [
            type(self.prompter).__name__,
            [template.text for template in made_of.instruction.templates],
            [*made_of.instruction.literals],
            made_of.system,
            [*made_of.history.to_openai()],
            made_of.tools.json,
            None if self.prompty is None else self.prompty.hash,
            trial,
        ]
        return f"sha256:{sha256(json_bytes(said)).hexdigest()}"


@overload
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: str | None = ...,
    model: str | None = ...,
    columns: Columns | None = ...,
    params: Mapping[str, object] | None = ...,
    on_error: Literal["raise"] = ...,
) -> Iterator[dict[str, Any]]: ...
@overload
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: str | None = ...,
    model: str | None = ...,
    columns: Columns | None = ...,
    params: Mapping[str, object] | None = ...,
    on_error: OnError = ...,
) -> Iterator[dict[str, Any] | RowFault]: ...
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: str | None = None,  # noqa: A002 - the name of the documents
    model: str | None = None,
    columns: Columns | None = None,
    params: Mapping[str, object] | None = None,
    on_error: OnError = "raise",
) -> Iterator[dict[str, Any] | RowFault]:
    """The prompts of many rows, one at a time: what the line of each holds.

    Args:
        prompter: What makes the prompts.
        rows: As of :func:`lazyprompt.batch.tables.rows_of`.
        format: As of :meth:`RowPlan.of` (so with model, columns and params).
        model: The model.
        columns: Which columns are what.
        params: Further fields of each request.
        on_error: Whether a row without a prompt ends the work (``raise``), or its fault stands in its place
            (``return``).

    Returns:
        The objects of the lines.

    Raises:
        BatchError: The rows are no rows, or the settings do not fit.
        FormatError: There is no such form.
    """
    if on_error not in ("raise", "return"):
        raise BatchError(f"on_error {on_error!r} is unknown; give raise or return")
    plan = RowPlan.of(prompter, format, model=model, columns=columns, params=params)
    return _objects(plan, rows_of(rows), on_error)


def _objects(plan: RowPlan, rows: Iterator[Row], on_error: OnError) -> Iterator[JsonObject | RowFault]:
    for number, row in enumerate(rows, 1):
        try:
            yield plan.made(number, row)
        except LazyPromptError as error:
            if on_error == "raise":
                raise
            yield RowFault(number, str(error))


def render_columns(
    plan: RowPlan, columns: Mapping[str, Sequence[object]], *, first: int = 1
) -> dict[str, list[str | None]]:
    """Columns in, columns out: for tables that are worked on piece by piece.

    Args:
        plan: How a row becomes a line.
        columns: The columns of the rows, all of one length: lists, or arrays.
        first: The number of the first row, by which a row without an id is named.

    Returns:
        ``line``, without its end, None where the row has no prompt; and ``error``, which says why, else None.

    Raises:
        BatchError: The columns are of different lengths.
    """
    lines: list[str | None] = []
    errors: list[str | None] = []
    for number, row in enumerate(rows_of(columns), first):
        try:
            lines.append(plan.line(number, row)[:-1].decode())
            errors.append(None)
        except LazyPromptError as error:
            lines.append(None)
            errors.append(str(error))
    return {"line": lines, "error": errors}
