"""Prompts in files: ``.prompty`` and its dialects, loaded, checked, filled.

A file is read once, with all that it refers to; what is wrong in it is one error with its place. It is filled in one
way: the template gives its own text and values in turn, roles are found in its own text, and all forms (messages, a
prompter's, the neutral one) are made of that.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, Unpack, cast

from jinja2 import ChainableUndefined

from lazyprompt.errors import LazyPromptError, PromptFileError, PromptFileMissingError, SlotError, TemplateError
from lazyprompt.files.dialects.dotprompt import check_marks, shown_mark
from lazyprompt.files.dialects.table import Dialect, dialect_named, dialect_of
from lazyprompt.files.dialects.translation import Reading
from lazyprompt.files.front_matter import split
from lazyprompt.files.includes import expanded, place_in
from lazyprompt.files.inputs import Medium, Thread, checked_inputs, ready
from lazyprompt.files.library.content_hash import content_hash
from lazyprompt.files.neutral import neutral
from lazyprompt.files.references import References
from lazyprompt.files.spec import read_spec
from lazyprompt.files.turns import messages_of, with_history
from lazyprompt.files.yaml_nodes import MAX_BYTES, Source, decoded
from lazyprompt.history import History
from lazyprompt.text.handlebars import HandlebarsTemplate
from lazyprompt.text.jinja import JinjaTemplate
from lazyprompt.text.mustache import MustacheTemplate
from lazyprompt.text.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from lazyprompt._json import Json, JsonObject
    from lazyprompt.files.dialects.translation import Note
    from lazyprompt.files.file_prompter import FilePrompter
    from lazyprompt.files.includes import Expanded
    from lazyprompt.files.properties import Property
    from lazyprompt.files.segments import Segment
    from lazyprompt.files.spec import Spec, ToolSpec
    from lazyprompt.files.turns import Step
    from lazyprompt.files.writing.rewriting import Changes
    from lazyprompt.files.yaml_nodes import Node
    from lazyprompt.formatters.report import Payload
    from lazyprompt.history import HistoryLike
    from lazyprompt.messages import Msg
    from lazyprompt.prompt_maker import PromptMaker, ToolsLike

Undefined: TypeAlias = Literal["error", "empty"]
Inputs: TypeAlias = "Mapping[str, object] | None"
Template: TypeAlias = JinjaTemplate | MustacheTemplate | HandlebarsTemplate


class _Engine(NamedTuple):
    """A syntax of templates: what reads it, and what stands for an input that is not given."""

    parse: Callable[..., Template]
    absent: Callable[[str], object]


_ENGINES: dict[str, _Engine] = {
    "jinja2": _Engine(JinjaTemplate, lambda name: ChainableUndefined(name=name)),
    "mustache": _Engine(MustacheTemplate, lambda _: ""),
    "handlebars": _Engine(HandlebarsTemplate, lambda _: ""),
}

_LINE = re.compile(r"\w+, line ([0-9]+): ")
_BREAK = re.compile(r"\r\n|[\r\n]")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A template that was filled.

    Args:
        steps: What it says: turns and threads.
        tools: The tools that it names in its text.
    """

    steps: tuple[Step, ...]
    tools: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, repr=False)
class Prompty:
    """A prompt in a file; made by :meth:`load` or :meth:`loads`.

    Args:
        spec: What its front matter says.
        instructions: Its template.
        dialect: The dialect that it is written in.
        text: The file as it is written.
        path: Where it is; None where it was given as text.
        undefined: Whether a variable that is nowhere is an ``error``, or ``empty``.
        references: Where its references lead.
        seen: The fields of its front matter, with all references looked up.
        notes: What another dialect says otherwise, or could not be carried over; each with its line and column.
    """

    spec: Spec
    instructions: str
    dialect: str
    text: str
    path: Path | None = None
    undefined: Undefined = "error"
    references: References = field(default_factory=References)
    seen: Mapping[str, Node] = field(default_factory=dict[str, "Node"], compare=False)
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        allowed_roots: Iterable[str | os.PathLike[str]] = (),
        *,
        dialect: str | None = None,
        undefined: Undefined = "error",
    ) -> Self:
        """Read a prompt file.

        Args:
            path: The file, in UTF-8.
            params: The values of ``${params:name}``.
            allowed_roots: Directories that ``${file:...}`` may lead to, beside the file's own.
            dialect: ``v2``, ``agentschema``, ``v1`` or ``dotprompt``; None finds it out.
            undefined: What a variable is that is nowhere: an ``error``, or ``empty``.

        Returns:
            The prompt.

        Raises:
            PromptFileError: The file cannot be read, or is wrong; the message begins ``path:line:column:``.
        """
        name = os.fspath(path)
        references = References(Path(name).parent, tuple(map(Path, allowed_roots)), dict(params or {}))
        return cls._made(_read(name), name, Path(name), references, dialect, undefined)

    @classmethod
    async def aload(
        cls,
        path: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        allowed_roots: Iterable[str | os.PathLike[str]] = (),
        *,
        dialect: str | None = None,
        undefined: Undefined = "error",
    ) -> Self:
        """The same as :meth:`load`, in a thread: files are read there."""
        return await asyncio.to_thread(cls.load, path, params, allowed_roots, dialect=dialect, undefined=undefined)

    @classmethod
    def loads(
        cls,
        text: str,
        base_dir: str | os.PathLike[str] | None = None,
        params: Mapping[str, object] | None = None,
        dialect: str | None = None,
        *,
        name: str = "<string>",
        allowed_roots: Iterable[str | os.PathLike[str]] = (),
        undefined: Undefined = "error",
    ) -> Self:
        """Read a prompt file that is at hand as text.

        Args:
            text: What stands in the file.
            base_dir: The directory that ``${file:...}`` is relative to, and stays in; None allows none.
            params: As of :meth:`load` (so with all others).
            dialect: The dialect.
            name: How errors call the text.
            allowed_roots: Further directories.
            undefined: What a variable is that is nowhere.

        Returns:
            The prompt.

        Raises:
            PromptFileError: The text is wrong; the message begins ``name:line:column:``.
        """
        if not isinstance(cast("object", text), str):
            raise PromptFileError(f"{name}:1:1: a prompt is text, not {type(text).__name__}; see Prompty.load")
        base = None if base_dir is None else Path(base_dir)
        references = References(base, tuple(map(Path, allowed_roots)), dict(params or {}))
        return cls._made(text, name, None, references, dialect, undefined)

    @classmethod
    def _made(
        cls, text: str, name: str, path: Path | None, references: References, dialect: str | None, undefined: Undefined
    ) -> Self:
        source = Source(text, name)
        parts = split(source)
        fields = parts.fields or {}
        try:
            spoken = dialect_of(fields, parts.body, name) if dialect is None else dialect_named(dialect)
        except TemplateError as error:
            raise PromptFileError(f"{name}:1:1: {error}") from error
        seen = references.resolved(fields, source)
        said = spoken.translate(Reading(source, seen, parts.body, references))
        spec = read_spec(said.fields, source)
        template, begin = said.body or spec.instructions or "", parts.body_at
        if not said.body and "instructions" in fields:
            begin = fields["instructions"].at
        whole = expanded(template, spec.engine, references, source, begin)
        made = cls(spec, whole.text, spoken.name, text, path, undefined, references, seen, said.notes)
        made._check(source, begin, whole)
        return made

    @classmethod
    def of_file(cls, path: Path, references: References, undefined: Undefined = "error") -> Self:
        """Read a prompt file whose references lead elsewhere than those of a file alone: one of a library.

        Args:
            path: The file.
            references: Where its references lead.
            undefined: As of :meth:`load`.

        Raises:
            PromptFileError: As of :meth:`load`.
        """
        return cls._made(_read(str(path)), str(path), path, references, None, undefined)

    @property
    def name(self) -> str | None:
        """Its name."""
        return self.spec.name

    @property
    def description(self) -> str | None:
        """What it is for."""
        return self.spec.description

    @property
    def metadata(self) -> JsonObject:
        """What else is said of it."""
        return deepcopy(dict(self.spec.metadata))

    @property
    def model(self) -> JsonObject:
        """The model: ``id``, ``provider``, ``apiType``, ``connection``, ``options``; empty where none is named."""
        return deepcopy(dict(self.spec.model))

    @property
    def inputs(self) -> tuple[Property, ...]:
        """What it takes."""
        return self.spec.inputs

    @property
    def outputs(self) -> tuple[Property, ...]:
        """What it gives."""
        return self.spec.outputs

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of its front matter."""
        return self.spec.tools

    @cached_property
    def template(self) -> Template:
        """Its template, parsed once."""
        return _ENGINES[self.spec.engine].parse(self.instructions, lenient=self.undefined == "empty")

    @cached_property
    def hash(self) -> str:
        """What it says as SHA-256, in every process the same; its first 12 signs will do for logs.

        Counted are the values of its front matter (but for ``model.connection``), its template and what it includes;
        not where the file is, or when it was written.
        """
        return content_hash(self.dialect, self.to_dict())

    @property
    def slots(self) -> tuple[str, ...]:
        """The variables of its template."""
        return self.template.slots

    def to_dict(self) -> JsonObject:
        """What the file says, in the canonical form of Prompty v2, with its template as ``instructions``."""
        return {**self.spec.to_dict(), "instructions": self.instructions}

    def inputs_of(self, given: object) -> Mapping[str, object]:
        """Inputs by their names: a value alone is that of the only input that is no thread.

        Args:
            given: A mapping, a value, or None.

        Raises:
            SlotError: It is a value, and there are several inputs, or none.
        """
        if given is None:
            return {}
        if isinstance(given, Mapping):
            return cast("Mapping[str, object]", given)
        names = [each.name for each in self.inputs] or [*self.slots]
        plain = [each.name for each in self.inputs if each.kind != "thread"] or names
        if len(plain) == 1:
            return {plain[0]: given}
        raise SlotError(
            f"the inputs of {self._called} are a dict: {', '.join(names) or 'there are none'}; given was a "
            f"{type(given).__name__}"
        )

    def validate(self, inputs: Inputs = None) -> dict[str, object]:
        """Check inputs.

        Args:
            inputs: A value for each input, by its name.

        Returns:
            The inputs, with defaults where nothing is given.

        Raises:
            SlotError: Some are missing, or not of their kind; all faults are in it.
        """
        return checked_inputs(inputs or {}, self.spec.inputs)

    def parts(self, inputs: Inputs = None) -> list[str]:
        """The filled template: its own text, and values (:class:`~lazyprompt.text.values.Value`), in turn.

        Args:
            inputs: As of :meth:`validate`.

        Raises:
            SlotError: As of :meth:`validate`; or a variable is nowhere.
            TemplateError: The template fails.
        """
        values = self.validate(inputs)
        template = self.template
        plain = {name: _plain(template, value, name) for name, value in self._ready(values).items()}
        return [*template.fill(plain)]

    def render(self, inputs: Inputs = None) -> str:
        """The filled template as text; for looking at: nothing finds roles in it again.

        Args:
            inputs: As of :meth:`validate`.

        Returns:
            The text. Threads and media are marks, which are others each time.
        """
        return "".join(_mark(part) if isinstance(part, Value) and part.held else part for part in self.parts(inputs))

    def render_segments(self, inputs: Inputs = None, strict: Collection[str] = ()) -> list[Segment]:
        """The filled template as segments: its own text, and what is from inputs.

        Args:
            inputs: As of :meth:`validate`.
            strict: The names of inputs that may hold no line that names a role.

        Raises:
            SafetyError: One of them does, alone or with what stands around it.
        """
        from lazyprompt.files.segments import check_strict, segments_of  # noqa: PLC0415 - only this method needs it

        values = self.validate(inputs)
        check_strict(values, strict)
        return segments_of(self.parts(inputs), strict, {*values, *(each.name for each in self.inputs)}, _mark)

    def rendered(self, inputs: Inputs = None, history: HistoryLike | None = None) -> Rendered:
        """The filled template as turns.

        Args:
            inputs: As of :meth:`validate`.
            history: What was said before: it stands in the place of the first thread that is not among the inputs, or
                where the template has the history; else before the last turn, if that is the user's.
        """
        given = dict(inputs or {})
        threads = [each.name for each in self.spec.inputs if each.kind == "thread"]
        open_thread = next((name for name in threads if given.get(name) is None), None)
        if history is not None and open_thread is not None:
            given[open_thread] = history
        dialect: Dialect = dialect_named(self.dialect)
        try:
            found = dialect.sections(self.parts(given))
            steps = [*dialect.steps(found)]
            tools = dialect.tools(found)
        except PromptFileError as error:
            raise PromptFileError(f"{self._called}: {error}") from error
        # A thread that the template does not name stands at the end.
        values = self.validate(given)
        rest = [name for name in threads if name not in self.slots and values.get(name) is not None]
        ready_ones = self._ready({name: values[name] for name in rest})
        steps += [cast("Thread", ready_ones[name]) for name in rest]
        if history is not None and open_thread is None:
            steps = with_history(steps, History.of(history).messages)
        return Rendered(tuple(steps), tuple(tools))

    def messages(self, inputs: Inputs = None) -> list[Msg]:
        """The prompt as messages.

        Args:
            inputs: As of :meth:`validate`.

        Returns:
            The messages; an attribute ``name`` is the speaker's name, all others are metadata.
        """
        return messages_of(self.rendered(inputs).steps)

    def tools_for(self, inputs: Inputs = None) -> list[JsonObject]:
        """All tools: those of the front matter, and those that the text names, filled.

        Args:
            inputs: As of :meth:`validate`.
        """
        return [*(each.to_dict() for each in self.spec.tools), *deepcopy(self.rendered(inputs).tools)]

    @cached_property
    def prompter(self) -> FilePrompter:
        """The prompt as a prompter: its input are the inputs. It attaches to modules."""
        from lazyprompt.files.file_prompter import FilePrompter  # noqa: PLC0415 - it knows this module

        return FilePrompter(self)

    def generate_prompt(
        self,
        inputs: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        format: str | None = None,  # noqa: A002 - the name of the documents
        **more: Any,  # noqa: ANN401 - those of Prompter.generate_prompt
    ) -> Any:  # noqa: ANN401 - as the format has it
        """The prompt in a form; see :meth:`lazyprompt.Prompter.generate_prompt`.

        Args:
            inputs: As of :meth:`validate`; or a value for the only one.
            history: What was said before: it stands in the place of the thread, or before the last turn of the user.
            tools: Tools of this call.
            label: The answer, in training data.
            format: As there; or ``neutral``, for ``messages`` and ``tools`` in the form of no provider.
            more: As there.
        """
        if format == "neutral":
            made = self.rendered(self.inputs_of(inputs), history)
            every = [*(each.to_dict() for each in self.spec.tools), *deepcopy(made.tools)]
            messages: list[Json] = [*neutral(made.steps)]
            return {"messages": messages, "tools": every} if every else {"messages": messages}
        return self.prompter.generate_prompt(inputs, history, tools, label, format=format, **more)

    def request(
        self,
        inputs: Inputs = None,
        *,
        messages: HistoryLike | None = None,
        history: HistoryLike | None = None,
        provider: str | None = None,
        api: str | None = None,
    ) -> Payload:
        """The whole request: model, messages, options, tools and the form of the answer.

        Args:
            inputs: As of :meth:`validate`.
            messages: Messages in the place of those of the template.
            history: What was said before: it stands in the place of the thread.
            provider: Who it goes to; None is who the file names, or else ``openai``.
            api: ``chat``, ``responses``, ``embedding`` or ``image``; None is what the file names, or else ``chat``.

        Returns:
            The body, with a report of what it cannot carry.

        Raises:
            FormatError: There is no such provider or interface; or the messages have no form there.
        """
        from lazyprompt.files.wire import request  # noqa: PLC0415 - only this method needs it

        if messages is not None:
            return request(self.spec, History.of(messages).messages, provider, api)
        made = self.rendered(inputs, history)
        return request(self.spec, messages_of(made.steps), provider, api, tools=made.tools)

    def read(self, response: object, provider: str | None = None, api: str | None = None) -> Json:
        """What an answer says: text, an object where the file has outputs, calls, vectors or a picture.

        Args:
            response: The answer: a dict, or the object of the provider's official client.
            provider: Who answered; None is who the file names, or else ``openai``.
            api: As of :meth:`request`.

        Raises:
            FormatError: It is no answer of this provider.
        """
        from lazyprompt.files.answer import read_answer  # noqa: PLC0415 - only this method needs it
        from lazyprompt.files.wire import sent_to  # noqa: PLC0415 - as above

        return read_answer(response, *sent_to(self.spec, provider, api), structured=bool(self.outputs))

    @classmethod
    def from_prompter(
        cls,
        prompter: PromptMaker,
        *,
        name: str | None = None,
        description: str | None = None,
        model: str | Mapping[str, object] | None = None,
    ) -> Self:
        """A prompt file that says what a prompter says; see :func:`lazyprompt.files.writing.from_prompter.text_of`.

        Args:
            prompter: The prompter.
            name: The name of the prompt.
            description: What it is for.
            model: Its model.

        Raises:
            FormatError: A file cannot say it.
        """
        from lazyprompt.files.writing.from_prompter import text_of  # noqa: PLC0415 - it is seldom asked for

        return cls.loads(text_of(prompter, name=name, description=description, model=model), dialect="v2")

    def with_fields(self, **changes: Unpack[Changes]) -> Self:
        """A copy with fields changed; in its text all else stays as it is written.

        Args:
            changes: ``name``, ``description``, ``model``, ``inputs``, ``metadata`` or ``instructions``, each whole;
                None takes one out.

        Returns:
            The copy; this prompt stays as it is.

        Raises:
            PromptFileError: A value is wrong, or cannot be written in this file.
        """
        from lazyprompt.files.writing.rewriting import checked_copy, rewritten  # noqa: PLC0415 - it is seldom asked for

        made = self._made(
            rewritten(self, changes), self._called, self.path, self.references, self.dialect, self.undefined
        )
        return checked_copy(made, changes)

    def dumps(self, to: str | None = None) -> str:
        """The text of the file.

        Args:
            to: The form that it is to have, as of :func:`lazyprompt.files.writing.convert`; None is its own, in which
                it is what was read, to the character.

        Raises:
            FormatError: That form cannot say all of it; ``convert`` gives what it can.
        """
        if to is None:
            return self.text
        from lazyprompt.files.writing.convert import converted_whole  # noqa: PLC0415 - it is seldom asked for

        return converted_whole(self, to)

    def dump(self, path: str | os.PathLike[str], to: str | None = None) -> None:
        """Write the file.

        Args:
            path: Where to.
            to: As of :meth:`dumps`.

        Raises:
            FormatError: As of :meth:`dumps`.
            OSError: It cannot be written.
        """
        Path(path).write_bytes(self.dumps(to).encode())

    @property
    def _called(self) -> str:
        return str(self.path or self.name or "<string>")

    def _ready(self, values: Mapping[str, object]) -> dict[str, Any]:
        return ready(values, self.spec.inputs, _ENGINES[self.spec.engine].absent)

    def _check(self, source: Source, body_at: int, whole: Expanded) -> None:
        """Refuse a template that is wrong, and defaults that are not of their kind."""
        try:
            if isinstance(self.template, HandlebarsTemplate):
                check_marks(self.template.marks)
        except TemplateError as error:
            its, at = whole.fault(error, _ENGINES[self.spec.engine].parse)
            place = _place_of(its, source, body_at) if at is None else place_in(source, body_at, at)
            raise source.pointed(place, str(its)) from error
        try:
            checked_inputs(
                {each.name: each.default for each in self.inputs if each.default is not None},
                [each for each in self.inputs if each.default is not None],
            )
        except SlotError as error:
            raise source.pointed(0, f"a default is wrong: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("template", "prompter")}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._called!r}, dialect={self.dialect!r})"


def _read(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise PromptFileMissingError(f"{name}:1:1: there is no such file") from error
    except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
        raise PromptFileError(f"{name}:1:1: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return decoded(data, name)


def _place_of(error: TemplateError, source: Source, body_at: int) -> int:
    """Where the line of a template begins in its file that an error names."""
    named = _LINE.match(str(error))
    for line, found in enumerate(_BREAK.finditer(source.text, body_at), 2):
        if named and line == int(named[1]):
            return found.end()
    return body_at


def _plain(template: Template, value: object, name: str) -> object:
    """A value as a template may see it."""
    if isinstance(value, (Thread, Medium, ChainableUndefined)):
        return value
    try:
        return template.coerce(value, name)
    except LazyPromptError as error:
        raise SlotError(f"input {name}: {error}") from error


def _mark(value: Value) -> str:
    """What stands for a thread or a medium in text."""
    if shown := shown_mark(value.held):
        return shown
    held = cast("Thread | Medium", value.held)
    return f"__PROMPTY_THREAD_{token_hex(4)}_{held.name}__"
