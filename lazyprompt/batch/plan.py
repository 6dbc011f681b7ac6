"""The plan that turns rows into output lines, prepared once for all rows."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from lazyprompt._base.json import Json, JsonObject, checked_object, fresh
from lazyprompt._version import __version__
from lazyprompt.batch.cells import Cells
from lazyprompt.batch.forms import BatchForm, form_of, json_bytes, text_bytes
from lazyprompt.batch.plain_lines import PlainLine, has_plain_rows, plain_line
from lazyprompt.batch.row_names import default_name
from lazyprompt.errors import BatchError, FormatError, LazyPromptError, TemplateError, ToolsError
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.prompters.payload_target import PayloadTarget
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.prompters.rows import Columns
from lazyprompt.templates.slots import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.batch.rows import Row
    from lazyprompt.chat_templates.template import ModelLike
    from lazyprompt.files.filling import FilePrompter
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.prompters.target_choice import FormatLike

Train: TypeAlias = Literal["last", "all"]

# Request fields that the prompt sets in at least one format, and that extra parameters must not replace.
_PROMPT_KEYS = frozenset(
    ("model", "messages", "tools", "system", "contents", "system_instruction", "input", "instructions", "prompt")
)


@dataclass(frozen=True, eq=False)
class RowPlan:
    """A picklable, thread-safe plan that turns rows into output lines; create one with :meth:`of`.

    Args:
        prompter: The prompter that renders the rows.
        form: The line format.
        model: The model.
        columns: The columns for slots, history, tools, label and id.
        params: Additional fields for each request.
        train: The responses to train on, ``last`` or ``all``; only training formats use it.
        strict: True to raise an error for a row with content that the format does not support.
        prompty: The prompt file that the prompter was loaded from, if any.
    """

    prompter: Prompter
    form: BatchForm
    model: ModelLike | None = None
    columns: Columns = field(default_factory=Columns)
    params: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    train: Train = "last"
    strict: bool = True
    prompty: Prompty | None = None

    @classmethod
    def of(
        cls,
        prompter: Prompter | Prompty,
        format: FormatLike | None = None,
        *,
        model: ModelLike | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
        train: Train = "last",
        strict: bool = True,
    ) -> RowPlan:
        """Create a plan.

        Args:
            prompter: The prompter, or a prompt file. A prompt file also sets the model and the request options.
            format: A name in ``FORMS``, or a Profile; None means ``flat``.
            model: The model name in each request. In formats without complete requests, this is the ``model`` argument
                of :meth:`lazyprompt.Prompter.generate_prompt`, which may also be Markers or a ChatTemplate.
            columns: The columns for slots, history, tools, label and id.
            params: Additional fields for each request, such as ``{"max_tokens": 1024}``, nested as the service expects.
            train: The responses to train on, ``last`` or ``all``; only training formats use it.
            strict: True to raise an error for a row with content that the format does not support, such as audio.

        Raises:
            FormatError: The format is unknown.
            BatchError: The format requires a setting that is missing, such as a model, or does not accept one of the
                settings. Also raised if a column is set for an unknown slot.
        """
        form, columns = form_of(format), columns or Columns()
        if not isinstance(prompter, Prompter) and not hasattr(prompter, "prompter"):
            raise BatchError(f"prompter must be a Prompter or a prompt file, not {type(prompter).__name__}")
        prompty = None if isinstance(prompter, Prompter) else prompter
        own = prompter if isinstance(prompter, Prompter) else prompter.prompter
        extra = checked_object(params or {}, "params", BatchError)
        # Copy the prompter, so that a hook added later does not affect the plan.
        plan = cls(copy(own.for_hosted() if form.hosted else own), form, model, columns, extra, train, strict, prompty)
        plan._check()
        return plan

    def line(self, number: int, row: Row) -> bytes:
        r"""Return the output line for a row as UTF-8, with a single ``\n`` at its end.

        Args:
            number: The row's number, starting at 1.
            row: The row, which is not modified.

        Raises:
            LazyPromptError: No prompt can be rendered for the row; the message begins with ``row <number>:``.
        """
        line = None if self._plain is None else self._plain.line(number, row)
        if line is None and self._plain_with_input is not None:
            line = self._plain_with_input.line(number, row)
        return self.rendered_line(number, row) if line is None else line

    def rendered_line(self, number: int, row: Row) -> bytes:
        """Render a row's prompt and return the output line, without the shortcut for rows that contain only strings."""
        # In the flat format, an output line contains only strings, which orjson and json serialize identically.
        write = text_bytes if self.form.provider == "flat" else json_bytes
        return write(self.line_object(number, row)) + b"\n"

    def line_object(self, number: int, row: Row) -> JsonObject:
        """Return the output line as a JSON object that shares no data with the row or the plan.

        Args:
            number: The row's number, starting at 1.
            row: The row, which is not modified.

        Raises:
            LazyPromptError: No prompt can be rendered for the row; the message begins with ``row <number>:``.
        """
        form = self.form
        try:
            name = self.cells.name_of(row) if form.id_key else ""
            return form.line(default_name(number) if name is None else form.checked_id(name), self.body(row))
        except LazyPromptError as error:
            raise type(error)(f"row {number}: {error}") from error

    def body(self, row: Row) -> Json:
        """Return a row's prompt in the plan's format: a text, payload, request or training sample.

        Raises:
            LazyPromptError: No prompt can be rendered for the row; the error message contains no row number.
        """
        form, cells = self.form, self.cells
        given, history, tools = cells.input_of(row), cells.history_of(row), cells.tools_of(row)
        if form.sample:
            label = cells.label_of(row)
            sample = self.prompter.training_sample(given, label, history, tools, train=self.train, model=self.model)
            rating = cells.rating_of(row)
            return sample.export(form.sample) | ({} if rating is None else {"label": rating})
        if self.prompty is not None and form.is_request:
            if tools:
                raise ToolsError("both the row and the prompt file define tools; remove the tools from one of them")
            file = cast("FilePrompter", self.prompter)
            return self._request(file.request(file.fill(given, history), form.provider, form.api))
        prompt = self.prompter.generate_prompt(given, history, tools, format=form.provider, model=self._prompt_model)
        return prompt if isinstance(prompt, str) else self._body_with(cast("JsonObject", prompt))

    def _body_with(self, payload: JsonObject) -> JsonObject:
        """Return a line's body for a payload: a complete request, or the payload alone.

        Raises:
            LazyPromptError: The format does not support some of the content, or it requires a model.
        """
        return self._request(payload) if self.form.is_request else self._checked(payload)

    @property
    def _prompt_model(self) -> ModelLike | None:
        # With the OpenAI format, ``generate_prompt`` reads ``model`` as a local model family. Add the request's model
        # name later instead.
        return None if self.form.is_request and self.form.provider == "openai" else self.model

    @cached_property
    def cells(self) -> Cells:
        """The mapping from slots, history and other row data to columns.

        Raises:
            BatchError: A column is set for an unknown slot.
        """
        return Cells.of(self.columns, self.prompter, () if self.prompty is None else self.prompty.inputs)

    @property
    def settings(self) -> JsonObject:
        """The settings that affect the output, as JSON; a run resumes only if they are unchanged.

        The settings include a hash of the prompter's texts, but not of its functions (hooks, budgets and counters).
        """
        columns: JsonObject = {each.name: getattr(self.columns, each.name) for each in fields(Columns)}
        return {
            "lazyprompt": __version__,
            "format": self.form.name,
            "model": str(self.model) if self.model else None,
            "columns": {**columns, "input": dict(self.columns.input)},
            "params": fresh(dict(self.params)),
            "train": self.train,
            "strict": self.strict,
            "prompt": self._hash(),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return the dataclass fields without cached properties."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _plain(self) -> PlainLine | None:
        return self._plain_line(with_input=False)

    @cached_property
    def _plain_with_input(self) -> PlainLine | None:
        return self._plain_line(with_input=True)

    def _plain_line(self, *, with_input: bool) -> PlainLine | None:
        if self.prompty is not None or not has_plain_rows(self.form, self.prompter):
            return None
        target = self.prompter.target(self.form.provider, self._prompt_model)
        if not isinstance(target, PayloadTarget):
            return None
        return plain_line(self.form, self.prompter, self.cells, target, self._body_with, with_input=with_input)

    def _check(self) -> None:
        """Raise an error if the plan's settings make rendering fail for every row."""
        form, _ = self.form, self.cells
        if self.train not in ("last", "all"):
            raise BatchError(f"unknown train value {self.train!r}; expected 'last' or 'all'", setting="train")
        if self.params and not form.is_request:
            what = f"{form.name} does not accept {listed(self.params)}; only complete requests have additional fields"
            raise BatchError(what, setting="params")
        if reserved := sorted(_PROMPT_KEYS & self.params.keys()):
            what = f"params contains {reserved[0]!r}, which the prompt sets; remove it"
            raise BatchError(what, setting="params")
        if form.is_request and not isinstance(self.model, str | None):
            what = f"{form.name} writes the model's name into each request; model= must be a name, not "
            raise BatchError(what + type(self.model).__name__, setting="model")
        try:
            self.prompter.target(form.provider or None, self._prompt_model)
        except TemplateError as error:
            raise BatchError(str(error), setting="model") from error
        if form.has_model and not (self.model or self._file_model):
            what = f"{form.name} requires a model name in each request; pass model="
            raise BatchError(what, setting="model")
        missing = [name for name in form.needs if name not in self.params and self.prompty is None]
        if missing:
            what = f"{form.name} requires {missing[0]!r} in each request; pass params={{{missing[0]!r}: ...}}"
            raise BatchError(what, setting="params")

    @property
    def _file_model(self) -> str | None:
        """The prompt file's model, if the file sets one for the requests' provider."""
        if self.prompty is None:
            return None
        return cast("FilePrompter", self.prompter).model_for(self.form.provider, self.form.api)

    def _request(self, payload: JsonObject) -> JsonObject:
        """Return a payload as a complete request, with the model first and the additional fields last."""
        form = self.form
        own = self._checked(payload)
        named = own.pop("model", None)
        if not form.has_model:
            return form.change({**own, **fresh(dict(self.params))})
        return form.change({"model": str(self.model) if self.model else named, **own, **fresh(dict(self.params))})

    def _checked(self, payload: JsonObject) -> JsonObject:
        """Return a payload as a plain dict; raise an error if the payload lost content.

        Lost content is an error because nobody would read a separate report for each row of a large run.
        """
        entries = payload.report.losses if self.strict and isinstance(payload, Payload) else ()
        # `_check` already reports a missing model if the format requires one.
        losses = [str(entry) for entry in entries if entry.kind != "model"]
        if losses:
            raise FormatError(
                f"{self.form.name} does not support some of the content: {'; '.join(losses)}; strict=False omits it"
            )
        return dict(payload)

    def _hash(self) -> str:
        """Return a hash of the prompter's texts; the hash is the same in every process."""
        made_of = self.prompter.made_of
        trial: Json = None
        # Don't render a trial row if the prompter has hooks, because a hook could fail on the row's placeholder values.
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
