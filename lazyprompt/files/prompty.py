"""Prompts in files: ``.prompty`` and its dialects, loaded, checked, filled.

A file is read once, with all that it refers to; what is wrong in it is one error with its place. It is filled in one
way: the template gives its own text and values in turn, roles are found in its own text, and all forms (messages, a
prompter's, the neutral one) are made of that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, cast

from jinja2 import ChainableUndefined

from lazyprompt.errors import LazyPromptError, PromptFileError, PromptFileMissingError, SlotError, TemplateError
from lazyprompt.files.dialects import Dialect, dialect_named, dialect_of
from lazyprompt.files.front_matter import split
from lazyprompt.files.inputs import Medium, Thread, checked_inputs, ready
from lazyprompt.files.neutral import neutral
from lazyprompt.files.references import References
from lazyprompt.files.roles import sections
from lazyprompt.files.spec import read_spec
from lazyprompt.files.turns import messages_of
from lazyprompt.files.yaml_nodes import MAX_BYTES, Source, decoded
from lazyprompt.text.jinja import JinjaTemplate
from lazyprompt.text.mustache import MustacheTemplate
from lazyprompt.text.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lazyprompt._json import Json, JsonObject
    from lazyprompt.files.file_prompter import FilePrompter
    from lazyprompt.files.properties import Property
    from lazyprompt.files.spec import Spec, ToolSpec
    from lazyprompt.files.turns import Step
    from lazyprompt.history import HistoryLike
    from lazyprompt.messages import Msg
    from lazyprompt.prompt_maker import ToolsLike

Undefined: TypeAlias = Literal["error", "empty"]
Inputs: TypeAlias = "Mapping[str, object] | None"


class _Engine(NamedTuple):
    """A syntax of templates: what reads it, and what stands for an input that is not given."""

    parse: Callable[..., JinjaTemplate | MustacheTemplate]
    absent: Callable[[str], object]


_ENGINES: dict[str, _Engine] = {
    "jinja2": _Engine(JinjaTemplate, lambda name: ChainableUndefined(name=name)),
    "mustache": _Engine(MustacheTemplate, lambda _: ""),
}


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
    """

    spec: Spec
    instructions: str
    dialect: str
    text: str
    path: Path | None = None
    undefined: Undefined = "error"
    references: References = field(default_factory=References)

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
            dialect: ``v2`` or ``agentschema``; None finds it out.
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
            spoken = dialect_of(fields, parts.body) if dialect is None else dialect_named(dialect)
        except TemplateError as error:
            raise PromptFileError(f"{name}:1:1: {error}") from error
        spec = read_spec(references.resolved(spoken.fields(fields), source), source)
        instructions = parts.body or spec.instructions or ""
        made = cls(spec, instructions, spoken.name, source.text, path, undefined, references)
        made._check(source, parts.body_at)
        return made

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
    def template(self) -> JinjaTemplate | MustacheTemplate:
        """Its template, parsed once."""
        return _ENGINES[self.spec.engine].parse(self.instructions, lenient=self.undefined == "empty")

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

    def rendered(self, inputs: Inputs = None, history: HistoryLike | None = None) -> Rendered:
        """The filled template as turns.

        Args:
            inputs: As of :meth:`validate`.
            history: What is given in the place of the first thread that is not among the inputs.
        """
        given = dict(inputs or {})
        threads = [each.name for each in self.spec.inputs if each.kind == "thread"]
        open_thread = next((name for name in threads if given.get(name) is None), None)
        if history is not None and open_thread is not None:
            given[open_thread] = history
        dialect: Dialect = dialect_named(self.dialect)
        try:
            found = sections(self.parts(given), dialect.roles)
            steps = [*dialect.steps(found)]
            tools = dialect.tools(found)
        except PromptFileError as error:
            raise PromptFileError(f"{self._called}: {error}") from error
        # A thread that the template does not name stands at the end.
        values = self.validate(given)
        rest = [name for name in threads if name not in self.slots and values.get(name) is not None]
        ready_ones = self._ready({name: values[name] for name in rest})
        steps += [cast("Thread", ready_ones[name]) for name in rest]
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

    @property
    def _called(self) -> str:
        return str(self.path or self.name or "<string>")

    def _ready(self, values: Mapping[str, object]) -> dict[str, Any]:
        return ready(values, self.spec.inputs, _ENGINES[self.spec.engine].absent)

    def _check(self, source: Source, body_at: int) -> None:
        """Refuse a template that is wrong, and defaults that are not of their kind."""
        try:
            _ = self.template
        except TemplateError as error:
            raise source.pointed(body_at, str(error)) from error
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


def _plain(template: JinjaTemplate | MustacheTemplate, value: object, name: str) -> object:
    """A value as a template may see it."""
    if isinstance(value, (Thread, Medium, ChainableUndefined)):
        return value
    try:
        return template.coerce(value, name)
    except LazyPromptError as error:
        raise SlotError(f"input {name}: {error}") from error


def _mark(value: Value) -> str:
    """What stands for a thread or a medium in text."""
    held = cast("Thread | Medium", value.held)
    return f"__PROMPTY_THREAD_{token_hex(4)}_{held.name}__"
