"""Prompts in ``.prompty`` files: loaded, checked, filled."""

from __future__ import annotations

import asyncio
import os
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, cast, overload

from lazyprompt._base.files import write_whole
from lazyprompt._base.secret import HiddenEnvironment
from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.dialects.dialects import dialect_named
from lazyprompt.files.filling import FilePrompter, FilledFile, Filling, display_text
from lazyprompt.files.library.names import key_and_version
from lazyprompt.files.loaded_prompty import LoadedPrompty, Undefined, content_hash, name_of
from lazyprompt.files.properties import Property, checked_inputs
from lazyprompt.files.references import References
from lazyprompt.files.roles import TemplateSegment, check_strict, segments_of
from lazyprompt.files.targets import read_answer, sent_to
from lazyprompt.files.turns import messages_of, neutral_messages
from lazyprompt.files.yaml_nodes import text_of_file
from lazyprompt.messages.parse import parse_messages
from lazyprompt.prompters.definition import PromptOrigin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.files.spec import ToolSpec
    from lazyprompt.files.writing.conversion import Converted
    from lazyprompt.files.writing.rewriting import Changes
    from lazyprompt.formatters.providers import OtherProvider
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.rows import RowFault


class More(TypedDict, total=False):
    """Further parameters of :meth:`lazyprompt.Prompter.generate_prompt`."""

    show: bool
    model: str | None
    chat_template: ChatTemplate | None


@dataclass(frozen=True, repr=False, eq=False)
class Prompty(LoadedPrompty):
    """A prompt in a file; made by :meth:`load` or :meth:`loads`."""

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
            dialect: ``v2``, ``agentschema`` or ``v1``; None finds it out.
            undefined: The value of a variable that is nowhere: an ``error``, or ``empty``.

        Raises:
            PromptFileError: The file cannot be read, or is wrong; the message begins ``path:line:column:``.
        """
        file = Path(path)
        references = References(file.parent, tuple(map(Path, allowed_roots)), dict(params or {}))
        return cls._read(text_of_file(os.fspath(path)), os.fspath(path), file, references, dialect, undefined)

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
        """Async version of :meth:`load`: files are read in a thread."""
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
        """Read the text of a prompt file.

        Args:
            text: The text.
            base_dir: The directory that ``${file:...}`` is relative to, and stays in; None allows none.
            params: As of :meth:`load` (so with all others).
            dialect: The dialect.
            name: The name of the text in errors.
            allowed_roots: Further directories.
            undefined: The value of a variable that is nowhere.

        Raises:
            PromptFileError: The text is wrong; the message begins ``name:line:column:``.
        """
        if not isinstance(cast("object", text), str):
            raise PromptFileError(f"{name}:1:1: a prompt is text, not {type(text).__name__}; see Prompty.load")
        base = None if base_dir is None else Path(base_dir)
        references = References(base, tuple(map(Path, allowed_roots)), dict(params or {}))
        return cls._read(text, name, None, references, dialect, undefined)

    @classmethod
    def of_file(
        cls, path: Path, references: References, undefined: Undefined = "error", *, text: str | None = None
    ) -> Self:
        """Read a prompt file whose references lead elsewhere than those of a file alone: one of a library.

        Args:
            path: The file.
            references: The places that its references lead to.
            undefined: As of :meth:`load`.
            text: The text to read in its place, as of an editor; None reads the file.

        Raises:
            PromptFileError: As of :meth:`load`.
        """
        held = text_of_file(str(path)) if text is None else text
        return cls._read(held, str(path), path, references, None, undefined)

    @property
    def description(self) -> str | None:
        """The description."""
        return self.spec.description

    @property
    def metadata(self) -> JsonObject:
        """The metadata."""
        return deepcopy(dict(self.spec.metadata))

    @property
    def model(self) -> JsonObject:
        """The model: ``id``, ``provider``, ``apiType``, ``connection``, ``options``; empty where none is named."""
        return deepcopy(dict(self.spec.model))

    @property
    def inputs(self) -> tuple[Property, ...]:
        """The inputs."""
        return self.spec.inputs

    @property
    def outputs(self) -> tuple[Property, ...]:
        """The outputs."""
        return self.spec.outputs

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of its front matter."""
        return self.spec.tools

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of its contents, the same in every process; its first 12 characters will do for logs.

        Counted are the values of its front matter (but for ``model.connection``), its template and what it includes;
        not where the file is, or when it was written.
        """
        return content_hash(self.dialect, self.to_dict())

    @cached_property
    def _filling(self) -> Filling:
        return Filling(self.spec, self.template, dialect_named(self.dialect), name_of(self))

    @property
    def slots(self) -> tuple[str, ...]:
        """The variables of its template."""
        return self.template.slots

    def with_text(self, values: Mapping[str, object], name: str, text: object) -> dict[str, object]:
        """Return inputs with the value of one that was given without its name.

        Args:
            values: The other inputs.
            name: The input, as of ``prompter.name_of_text``.
            text: Its value.

        Raises:
            SlotError: It would not be the user's text: the input is not called ``input`` and stands in no user turn.
        """
        return self._filling.with_text(values, name, text)

    def validate(self, inputs: object = None) -> dict[str, object]:
        """Check inputs.

        Args:
            inputs: A value for each input, by its name; or the user's text alone, for the only input
                that needs a value.

        Returns:
            The inputs, with defaults where nothing is given.

        Raises:
            SlotError: Some are missing, or not of their kind; all faults are in it.
        """
        return checked_inputs(self._filling.inputs_of(inputs), self.spec.inputs)

    def parts(self, inputs: object = None) -> Sequence[str]:
        """Return the filled template: its own text, and values (:class:`~lazyprompt.templates.slots.Value`), in turn.

        Args:
            inputs: As of :meth:`validate`.

        Raises:
            SlotError: As of :meth:`validate`; or a variable is nowhere.
            TemplateError: The template fails.
        """
        return self._filling.parts(inputs)

    def render(self, inputs: object = None) -> str:
        """Return the filled template as text, for looking at: nothing finds roles in it again.

        Args:
            inputs: As of :meth:`validate`.

        Returns:
            The text. Threads and media are marks, different each time.
        """
        return "".join(map(display_text, self.parts(inputs)))

    def render_segments(self, inputs: object = None, strict: Collection[str] = ()) -> list[TemplateSegment]:
        """Return the filled template as segments: its own text, and the text from inputs.

        Args:
            inputs: As of :meth:`validate`.
            strict: The names of inputs that may hold no line that names a role.

        Raises:
            SafetyError: One of them does, alone or with what stands around it.
        """
        values = self.validate(inputs)
        check_strict(values, strict)
        return segments_of(self.parts(inputs), strict, {*values, *(each.name for each in self.inputs)}, display_text)

    def filled(self, inputs: object = None, history: HistoryLike | None = None) -> FilledFile:
        """Return the prompt as turns and threads, which all its forms are made of.

        Args:
            inputs: As of :meth:`validate`.
            history: The messages before: they stand in the place of the first thread that is not among the inputs, or
                where the template has the history; else before the last turn, if that is the user's.

        Raises:
            SlotError: As of :meth:`parts`.
            TemplateError: As of :meth:`parts`.
            PromptFileError: Something is wrong in its dialect, as a call without a name.
        """
        return self._filling.filled(inputs, history)

    def messages(self, inputs: object = None) -> list[Msg]:
        """Return the prompt as messages.

        Args:
            inputs: As of :meth:`validate`.

        Returns:
            The messages; an attribute ``name`` is the speaker's name, all others are metadata.
        """
        return messages_of(self.filled(inputs).steps)

    def tools_for(self, inputs: object = None) -> list[JsonObject]:
        """Return all tools: those of the front matter, and those that the text names, filled.

        Args:
            inputs: As of :meth:`validate`.
        """
        return [*(each.to_dict() for each in self.spec.tools), *deepcopy(self.filled(inputs).tools)]

    # A property, for pyright takes no cached_property for one of a protocol.
    @property
    def prompter(self) -> FilePrompter:
        """The prompt as a prompter, whose input are the inputs. It attaches to modules."""
        return self._prompter

    @cached_property
    def _prompter(self) -> FilePrompter:
        made = FilePrompter(self._filling, self)
        key, version = key_and_version(self.path, self.references.layers) if self.path else (None, None)
        given = version or self.spec.metadata.get("version")
        if name := self.name or key:
            made.origin = PromptOrigin(name, None if given is None else str(given))
        return made

    def hidden_prompter(self) -> FilePrompter:
        """Return its prompter with a reference in the place of each value of the environment: that of its views."""
        hidden = HiddenEnvironment(self.references.environment)
        references = replace(self.references, environment=hidden, named=None, trace=None)
        return self._read(self.text, name_of(self), self.path, references, self.dialect, self.undefined).prompter

    @overload
    def generate_prompt(
        self,
        inputs: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        return_dict: Literal[False] = ...,
        format: Literal["flat"] | None = ...,
        **more: Unpack[More],
    ) -> str: ...
    @overload
    def generate_prompt(
        self,
        inputs: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        return_dict: Literal[True],
        format: Literal["openai"] | None = ...,
        **more: Unpack[More],
    ) -> Payload: ...
    @overload
    def generate_prompt(
        self,
        inputs: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        return_dict: bool = ...,
        format: Literal["openai"] | OtherProvider,
        **more: Unpack[More],
    ) -> Payload: ...
    @overload
    def generate_prompt(
        self,
        inputs: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        return_dict: bool = ...,
        format: Literal["neutral"],
        **more: Unpack[More],
    ) -> OpenAIPrompt: ...
    @overload
    def generate_prompt(
        self,
        inputs: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        return_dict: bool = ...,
        format: str | None = ...,
        **more: Unpack[More],
    ) -> str | OpenAIPrompt | Payload: ...
    def generate_prompt(
        self,
        inputs: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        return_dict: bool = False,
        format: str | None = None,
        **more: Unpack[More],
    ) -> str | OpenAIPrompt | Payload:
        """Return the prompt in a form; see :meth:`lazyprompt.Prompter.generate_prompt`.

        Args:
            inputs: As of :meth:`validate`.
            history: The messages before: they stand in the place of the thread, or before the last turn of the user.
            tools: Tools of this call.
            label: The answer, in training data.
            return_dict: As there.
            format: As there; or ``neutral``, for ``messages`` and ``tools`` in the form of no provider.
            more: As there: ``show``, ``model`` and ``chat_template``.
        """
        if format == "neutral":
            made = self.filled(inputs, history)
            every = [*(each.to_dict() for each in self.spec.tools), *deepcopy(made.tools)]
            messages = [*neutral_messages(made.steps)]
            return {"messages": messages, "tools": every} if every else {"messages": messages}
        return self.prompter.generate_prompt(
            inputs, history, tools, label, return_dict=return_dict, format=format, **more
        )

    def request(
        self,
        inputs: object = None,
        *,
        messages: HistoryLike | None = None,
        history: HistoryLike | None = None,
        provider: str | None = None,
        api: str | None = None,
    ) -> Payload:
        """Return the whole request: model, messages, options, tools and the form of the answer.

        Args:
            inputs: As of :meth:`validate`.
            messages: Messages in the place of those of the template.
            history: The messages before: they stand in the place of the thread.
            provider: The provider; None is the one of the file, or else ``openai``.
            api: ``chat``, ``responses``, ``embedding`` or ``image``; None is the one of the file, or else ``chat``.

        Returns:
            The body, with a report of the content that it cannot carry.

        Raises:
            FormatError: There is no such provider or interface; or the messages have no form there.
        """
        if messages is not None:
            return self.prompter.request_of(parse_messages(messages), provider, api)
        return self.prompter.request(self.prompter.fill(inputs, history), provider, api)

    def render_batch(self, rows: object, **more: Any) -> Iterator[JsonObject | RowFault]:
        """Render the prompts of many rows, one at a time; see :func:`lazyprompt.batch.render.render_batch`.

        In the forms of whole requests the model and the options are those of the file.

        Args:
            rows: Mappings one after another, a mapping of columns, an Arrow table or a DataFrame.
            more: As there.
        """
        from lazyprompt.batch.render import render_batch  # noqa: PLC0415  # door: as of Prompter.render_batch

        return render_batch(self, rows, **more)

    def read(self, response: object, provider: str | None = None, api: str | None = None) -> Json:
        """Parse an answer: text, an object where the file has outputs, calls, vectors or a picture.

        Args:
            response: The answer: a dict, or the object of the provider's official client.
            provider: The provider; None is the one of the file, or else ``openai``.
            api: As of :meth:`request`.

        Raises:
            FormatError: It is no answer of this provider.
        """
        return read_answer(response, *sent_to(self.spec, provider, api), structured=bool(self.outputs))

    @classmethod
    def from_prompter(
        cls,
        prompter: Prompter,
        *,
        name: str | None = None,
        description: str | None = None,
        model: str | Mapping[str, object] | None = None,
    ) -> Self:
        """Return the prompt file of a prompter; see :func:`lazyprompt.files.writing.from_prompter.text_of`.

        Args:
            prompter: The prompter.
            name: The name of the prompt.
            description: Its description.
            model: Its model.

        Raises:
            FormatError: A file cannot say it.
        """
        from lazyprompt.files.writing.from_prompter import text_of  # noqa: PLC0415 - it is seldom asked for

        return cls.loads(text_of(prompter, name=name, description=description, model=model), dialect="v2")

    def with_fields(self, **changes: Unpack[Changes]) -> Self:
        """Return a copy with fields changed; in its text all else stays as it is written.

        Args:
            changes: ``name``, ``description``, ``model``, ``inputs``, ``metadata`` or ``instructions``, each whole;
                None takes one out.

        Returns:
            The copy; this prompt stays as it is.

        Raises:
            PromptFileError: A value is wrong, or cannot be written in this file.
        """
        from lazyprompt.files.writing.rewriting import checked_copy, rewrite_fields  # noqa: PLC0415 - it is seldom asked for

        made = self._read(
            rewrite_fields(self, changes), name_of(self), self.path, self.references, self.dialect, self.undefined
        )
        return checked_copy(made, changes)

    def dumps(self, to: str | None = None) -> str:
        """Return the text of the file.

        Args:
            to: The form that it is to have, as of :func:`lazyprompt.convert`; None is its own, in which
                it is what was read, to the character.

        Raises:
            FormatError: That form cannot say all of it; ``convert`` gives what it can.
        """
        if to is None:
            return self.text
        made, read = convert(self, to), {*map(str, self.notes)}
        if lost := [note for note in made.notes if note not in read]:
            raise FormatError(f"{to} cannot say all of it, and convert() gives the rest: {'; '.join(lost)}")
        return made.text

    def dump(self, path: str | os.PathLike[str], to: str | None = None) -> None:
        """Write the file.

        Args:
            path: The path to write to.
            to: As of :meth:`dumps`.

        Raises:
            FormatError: As of :meth:`dumps`.
            OSError: It cannot be written.
        """
        write_whole(Path(path), self.dumps(to).encode())


def convert(prompty: Prompty, to: str) -> Converted:
    """Write a prompt file in another dialect of Prompty.

    References stay references, so that no secret is written. What is the same in both dialects stays as it is written,
    with its comments.

    Args:
        prompty: The prompt file.
        to: ``v2`` or ``agentschema``.

    Returns:
        The text, and the parts that the dialect cannot hold.

    Raises:
        FormatError: There is no such dialect to write; or the template has a section that it lacks: the message names
            the line.
    """
    from lazyprompt.files.writing.targets import write_dialect  # noqa: PLC0415 - it is seldom asked for

    return write_dialect(prompty, to)
