"""Prompts in ``.prompty`` files."""

from __future__ import annotations

import asyncio
import os
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, overload

from lazyprompt._base.files import write_whole
from lazyprompt._base.secret import HiddenEnvironment
from lazyprompt.errors import FormatError
from lazyprompt.files.dialects.dialects import dialect_named
from lazyprompt.files.filling import FilePrompter, FilledFile, Filling, display_text
from lazyprompt.files.library.names import key_and_version
from lazyprompt.files.loaded_prompty import LoadedPrompty, Undefined, content_hash, name_of
from lazyprompt.files.properties import Property, checked_inputs
from lazyprompt.files.references import References
from lazyprompt.files.roles import TemplateSegment, check_strict, segments_of
from lazyprompt.files.targets import read_answer, sent_to
from lazyprompt.files.turns import messages_of, neutral_messages
from lazyprompt.files.yaml_nodes import require_text, text_of_file
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
    """A prompt file; create it with :meth:`load` or :meth:`loads`."""

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
        """Load a prompt file.

        Args:
            path: The file, in UTF-8.
            params: The values of ``${params:name}``.
            allowed_roots: Additional directories that ``${file:...}`` and includes may lead to.
            dialect: ``v2``, ``agentschema`` or ``v1``; None detects it.
            undefined: The treatment of undefined template variables: ``error``, or ``empty`` text.

        Raises:
            PromptFileError: The file can't be read or is invalid; the message begins with ``path:line:column:``.
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
        """Parse the text of a prompt file; see :meth:`load` for the other arguments.

        Args:
            text: The text.
            base_dir: The directory that ``${file:...}`` and includes are relative to and must stay in; None allows no
                files.
            params: The values of ``${params:name}``.
            dialect: The dialect; None detects it.
            name: The text's name in errors.
            allowed_roots: Additional directories.
            undefined: The treatment of undefined template variables.

        Raises:
            PromptFileError: The text is invalid; the message begins with ``name:line:column:``.
        """
        require_text(text, name, "Prompty.load")
        base = None if base_dir is None else Path(base_dir)
        references = References(base, tuple(map(Path, allowed_roots)), dict(params or {}))
        return cls._read(text, name, None, references, dialect, undefined)

    @classmethod
    def of_file(
        cls, path: Path, references: References, undefined: Undefined = "error", *, text: str | None = None
    ) -> Self:
        """Load a prompt file with given references, such as a library's.

        Args:
            path: The file.
            references: The values and directories to resolve references with.
            undefined: The treatment of undefined template variables; see :meth:`load`.
            text: Text to parse instead of the file's, such as unsaved changes in an editor; None reads the file.

        Raises:
            PromptFileError: The file can't be read or is invalid.
        """
        held = text_of_file(str(path)) if text is None else text
        return cls._read(held, str(path), path, references, None, undefined)

    @property
    def description(self) -> str | None:
        """The prompt's description."""
        return self.spec.description

    @property
    def metadata(self) -> JsonObject:
        """The metadata, with unknown fields."""
        return deepcopy(dict(self.spec.metadata))

    @property
    def model(self) -> JsonObject:
        """The model: ``id``, ``provider``, ``apiType``, ``connection``, ``options``; empty if the file names none."""
        return deepcopy(dict(self.spec.model))

    @property
    def inputs(self) -> tuple[Property, ...]:
        """The declared inputs."""
        return self.spec.inputs

    @property
    def outputs(self) -> tuple[Property, ...]:
        """The declared outputs."""
        return self.spec.outputs

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the front matter."""
        return self.spec.tools

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the contents, the same in every process; 12 characters are enough for logs.

        It covers the front matter without ``model.connection``, the template and included files, but not the path or
        the modification time.
        """
        return content_hash(self.dialect, self.to_dict())

    @cached_property
    def _filling(self) -> Filling:
        return Filling(self.spec, self.template, dialect_named(self.dialect), name_of(self))

    @property
    def slots(self) -> tuple[str, ...]:
        """The variables of the template."""
        return self.template.slots

    def with_text(self, values: Mapping[str, object], name: str, text: object) -> dict[str, object]:
        """Add a value that was passed without a name to the inputs.

        Args:
            values: The other inputs.
            name: The name that ``prompter.name_of_text`` returns.
            text: The value.

        Raises:
            SlotError: The value wouldn't be the user's text: the input isn't called ``input`` and is in no user turn.
        """
        return self._filling.with_text(values, name, text)

    def validate(self, inputs: object = None) -> dict[str, object]:
        """Validate inputs and add defaults.

        Args:
            inputs: The values by input name; or only the user's text, for the one input that needs a value.

        Returns:
            The inputs with defaults.

        Raises:
            SlotError: Inputs are missing or have the wrong kind; the message lists all errors.
        """
        return checked_inputs(self._filling.inputs_of(inputs), self.spec.inputs)

    def parts(self, inputs: object = None) -> Sequence[str]:
        """Return the filled template as its own text and values (:class:`~lazyprompt.templates.slots.Value`).

        Args:
            inputs: The inputs; see :meth:`validate`.

        Raises:
            SlotError: Inputs are missing or have the wrong kind, or a variable is undefined.
            TemplateError: The template fails.
        """
        return self._filling.parts(inputs)

    def render(self, inputs: object = None) -> str:
        """Return the filled template as text for display; it isn't parsed again.

        Args:
            inputs: The inputs; see :meth:`validate`.

        Returns:
            The text, with random placeholders for threads and media.
        """
        return "".join(map(display_text, self.parts(inputs)))

    def render_segments(self, inputs: object = None, strict: Collection[str] = ()) -> list[TemplateSegment]:
        """Return the filled template as segments: its own text, and values.

        Args:
            inputs: The inputs; see :meth:`validate`.
            strict: The names of inputs that must not contain a line that names a role.

        Raises:
            SafetyError: A strict input contains such a line, or forms one with the text around it.
        """
        values = self.validate(inputs)
        check_strict(values, strict)
        return segments_of(self.parts(inputs), strict, {*values, *(each.name for each in self.inputs)}, display_text)

    def filled(self, inputs: object = None, history: HistoryLike | None = None) -> FilledFile:
        """Return the prompt as turns and threads, from which all output forms are made.

        Args:
            inputs: The inputs; see :meth:`validate`.
            history: The earlier messages. They replace the first thread without a value or the template's history
                section; otherwise they precede the final user turn.

        Raises:
            SlotError: Inputs are missing or have the wrong kind, or a variable is undefined.
            TemplateError: The template fails.
            PromptFileError: A section is invalid in this dialect, such as a tool call without a name.
        """
        return self._filling.filled(inputs, history)

    def messages(self, inputs: object = None) -> list[Msg]:
        """Return the prompt as messages.

        Args:
            inputs: The inputs; see :meth:`validate`.

        Returns:
            The messages. The section attribute ``name`` is the speaker's name; other attributes become metadata.
        """
        return messages_of(self.filled(inputs).steps)

    def tools_for(self, inputs: object = None) -> list[JsonObject]:
        """Return the tools of the front matter and of the filled template.

        Args:
            inputs: The inputs; see :meth:`validate`.
        """
        return [*(each.to_dict() for each in self.spec.tools), *deepcopy(self.filled(inputs).tools)]

    # pyright doesn't accept a cached_property for a protocol's property.
    @property
    def prompter(self) -> FilePrompter:
        """The prompt as a prompter, for modules; its input is the mapping of inputs."""
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
        """Return the prompter for display, with references in place of values from the environment."""
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
        """Render the prompt; see :meth:`lazyprompt.Prompter.generate_prompt`.

        Args:
            inputs: The inputs; see :meth:`validate`.
            history: The earlier messages. They replace the thread, or precede the final user turn.
            tools: The tools of this call.
            label: The answer, in training data.
            return_dict: True to return OpenAI's ``messages`` and ``tools``.
            format: A format of :meth:`lazyprompt.Prompter.generate_prompt`; or ``neutral``, for ``messages`` and
                ``tools`` in Prompty's provider-independent form.
            more: The arguments ``show``, ``model`` and ``chat_template``.
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
        """Return the whole request: model, messages, options, tools and output schema.

        Args:
            inputs: The inputs; see :meth:`validate`.
            messages: Messages to send instead of the template's.
            history: The earlier messages, which replace the thread.
            provider: The provider; None is the file's, or else ``openai``.
            api: ``chat``, ``responses``, ``embedding`` or ``image``; None is the file's, or else ``chat``.

        Returns:
            The request body, with a report of content that it can't carry.

        Raises:
            FormatError: The provider or API is unknown, or the messages can't be sent to it.
        """
        if messages is not None:
            return self.prompter.request_of(parse_messages(messages), provider, api)
        return self.prompter.request(self.prompter.fill(inputs, history), provider, api)

    def render_batch(self, rows: object, **more: Any) -> Iterator[JsonObject | RowFault]:
        """Render the prompts of many rows, one at a time; see :func:`lazyprompt.batch.render.render_batch`.

        Whole requests have the file's model and options.

        Args:
            rows: An iterable of mappings, a mapping of columns, an Arrow table or a DataFrame.
            more: The other arguments of ``render_batch``.
        """
        from lazyprompt.batch.render import render_batch  # noqa: PLC0415  # door: as of Prompter.render_batch

        return render_batch(self, rows, **more)

    def read(self, response: object, provider: str | None = None, api: str | None = None) -> Json:
        """Parse an answer: text, an object if the file has outputs, tool calls, vectors or an image.

        Args:
            response: The answer, as a dict or as an object of the provider's official client.
            provider: The provider; None is the file's, or else ``openai``.
            api: The API; see :meth:`request`.

        Raises:
            FormatError: The response isn't an answer of this provider.
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
        """Convert a prompter to a prompt file; see :func:`lazyprompt.files.writing.from_prompter.text_of`.

        Args:
            prompter: The prompter.
            name: The prompt's name.
            description: The prompt's description.
            model: The prompt's model.

        Raises:
            FormatError: A file can't express the prompter.
        """
        from lazyprompt.files.writing.from_prompter import text_of  # noqa: PLC0415 - rarely used

        return cls.loads(text_of(prompter, name=name, description=description, model=model), dialect="v2")

    def with_fields(self, **changes: Unpack[Changes]) -> Self:
        """Return a copy with other fields; the rest of the text stays as written.

        Args:
            changes: New values of ``name``, ``description``, ``model``, ``inputs``, ``metadata`` or ``instructions``;
                None removes a field.

        Returns:
            The changed copy.

        Raises:
            PromptFileError: A value is invalid, or can't be written in this file.
        """
        from lazyprompt.files.writing.rewriting import checked_copy, rewrite_fields  # noqa: PLC0415 - rarely used

        made = self._read(
            rewrite_fields(self, changes), name_of(self), self.path, self.references, self.dialect, self.undefined
        )
        return checked_copy(made, changes)

    def dumps(self, to: str | None = None) -> str:
        """Return the text of the file.

        Args:
            to: The dialect to convert to; see :func:`lazyprompt.convert`. None returns the text as read.

        Raises:
            FormatError: The dialect can't express the whole file; ``convert`` returns as much as it can.
        """
        if to is None:
            return self.text
        made, read = convert(self, to), {*map(str, self.notes)}
        if lost := [note for note in made.notes if note not in read]:
            raise FormatError(f"{to} can't express the whole file; convert() returns the rest: {'; '.join(lost)}")
        return made.text

    def dump(self, path: str | os.PathLike[str], to: str | None = None) -> None:
        """Write the file.

        Args:
            path: The path to write to.
            to: The dialect to convert to; see :meth:`dumps`.

        Raises:
            FormatError: The dialect can't express the whole file.
            OSError: The file can't be written.
        """
        write_whole(Path(path), self.dumps(to).encode())


def convert(prompty: Prompty, to: str) -> Converted:
    """Convert a prompt file to another dialect.

    References stay references, so that no secret is written. Parts that are the same in both dialects stay as written,
    with their comments.

    Args:
        prompty: The prompt file.
        to: ``v2`` or ``agentschema``.

    Returns:
        The text, and notes on the parts that the dialect can't express.

    Raises:
        FormatError: The dialect is unknown, or lacks a section of the template; the message names the line.
    """
    from lazyprompt.files.writing.targets import write_dialect  # noqa: PLC0415 - rarely used

    return write_dialect(prompty, to)
