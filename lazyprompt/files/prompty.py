"""The ``Prompty`` class for prompts in ``.prompty`` files."""

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
    from lazyprompt.chat_templates.template import ChatTemplate, ModelLike
    from lazyprompt.files.spec import ToolSpec
    from lazyprompt.files.writing.conversion import Converted
    from lazyprompt.files.writing.rewriting import Changes
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.providers import OtherProvider
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.rows import RowFault
    from lazyprompt.prompters.target_choice import FormatLike


class More(TypedDict, total=False):
    """Additional parameters of :meth:`lazyprompt.Prompter.generate_prompt`."""

    show: bool
    model: ModelLike | None
    chat_template: ChatTemplate | None


@dataclass(frozen=True, repr=False, eq=False)
class Prompty(LoadedPrompty):
    """A prompt file, created with :meth:`load` or :meth:`loads`."""

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
            path: The path of the file. The file must be encoded in UTF-8.
            params: The values for ``${params:name}`` references, by name.
            allowed_roots: Additional directories that ``${file:...}`` references and includes may read from.
            dialect: ``v2``, ``agentschema`` or ``v1``. If None, the dialect is detected.
            undefined: ``error`` to raise for undefined template variables, or ``empty`` to render them as empty text.

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
        """Async version of :meth:`load` that reads files in a thread."""
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
        """Parse a prompt file from text; see :meth:`load` for the other arguments.

        Args:
            text: The text of the prompt file.
            base_dir: The base directory of the paths in ``${file:...}`` references and includes. Files can be read only
                from this directory and ``allowed_roots``. If ``base_dir`` is None, no files can be read.
            params: The values for ``${params:name}`` references, by name.
            dialect: The file's dialect. If None, the dialect is detected.
            name: The name to use in error messages.
            allowed_roots: Additional directories that files may be read from.
            undefined: ``error`` or ``empty``; see :meth:`load`.

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
        """Load a prompt file, and resolve references with the given values and directories.

        Args:
            path: The path of the file.
            references: The values and directories used to resolve references.
            undefined: ``error`` or ``empty``; see :meth:`load`.
            text: Text to parse instead of the file's contents, such as unsaved changes. If None, the file's contents
                are parsed.

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
        """The metadata, including unknown fields."""
        return deepcopy(dict(self.spec.metadata))

    @property
    def model(self) -> JsonObject:
        """The model's ``id``, ``provider``, ``apiType``, ``connection`` and ``options``; empty if no model is set."""
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
        """The tools declared in the front matter."""
        return self.spec.tools

    @cached_property
    def hash(self) -> str:
        """The SHA-256 hash of the prompt file's contents, in hexadecimal.

        The first 12 characters of the hash are enough to identify a prompt in logs. The hash is the same in every
        process. The hash depends on the template, the included files and all fields of the front matter except
        ``model.connection``. The file's path and modification time don't affect the hash.
        """
        return content_hash(self.dialect, self.to_dict())

    @cached_property
    def _filling(self) -> Filling:
        return Filling(self.spec, self.template, dialect_named(self.dialect), name_of(self))

    @property
    def slots(self) -> tuple[str, ...]:
        """The variables in the template."""
        return self.template.slots

    def with_text(self, values: Mapping[str, object], name: str, text: object) -> dict[str, object]:
        """Add an unnamed value to the inputs.

        Args:
            values: The inputs that already have a value, by name.
            name: The input's name, as returned by ``prompter.name_of_text``.
            text: The value to add.

        Raises:
            SlotError: No user turn uses the input, and the input isn't named ``input``.
        """
        return self._filling.with_text(values, name, text)

    def validate(self, inputs: object = None) -> dict[str, object]:
        """Validate inputs and add defaults.

        Args:
            inputs: The values by input name, or only the user's text if a single input needs a value.

        Returns:
            The inputs, with defaults added.

        Raises:
            SlotError: An input is missing, or a value doesn't match its input's kind; the message lists all errors.
        """
        return checked_inputs(self._filling.inputs_of(inputs), self.spec.inputs)

    def parts(self, inputs: object = None) -> Sequence[str]:
        """Fill the template, and return its literal text and values (:class:`~lazyprompt.templates.slots.Value`).

        Args:
            inputs: The inputs; see :meth:`validate`.

        Raises:
            SlotError: An input is missing, a value doesn't match its input's kind, or a variable is undefined.
            TemplateError: The template can't be rendered.
        """
        return self._filling.parts(inputs)

    def render(self, inputs: object = None) -> str:
        """Return the filled template as text for display, without splitting it into messages.

        Args:
            inputs: The inputs; see :meth:`validate`.

        Returns:
            The text of the filled template, with random placeholders for thread and media inputs.
        """
        return "".join(map(display_text, self.parts(inputs)))

    def render_segments(self, inputs: object = None, strict: Collection[str] = ()) -> list[TemplateSegment]:
        """Return the filled template as segments of template text and values.

        Args:
            inputs: The inputs; see :meth:`validate`.
            strict: The names of inputs that must not contain role lines.

        Raises:
            SafetyError: A strict input contains a role line, or forms a role line with the surrounding text.
        """
        values = self.validate(inputs)
        check_strict(values, strict)
        return segments_of(self.parts(inputs), strict, {*values, *(each.name for each in self.inputs)}, display_text)

    def filled(self, inputs: object = None, history: HistoryLike | None = None) -> FilledFile:
        """Fill the template, and return its turns and the messages of its thread inputs.

        All output formats are built from this result.

        Args:
            inputs: The inputs; see :meth:`validate`.
            history: Earlier messages, which become the value of the first thread input without a value. Without such an
                input, the messages replace the template's history section. If the template has no history section, the
                messages are placed before the final user turn.

        Raises:
            SlotError: An input is missing, a value doesn't match its input's kind, or a variable is undefined.
            TemplateError: The template can't be rendered.
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
        """Return the tools defined in the front matter and in the filled template.

        Args:
            inputs: The inputs; see :meth:`validate`.
        """
        return [*(each.to_dict() for each in self.spec.tools), *deepcopy(self.filled(inputs).tools)]

    # pyright doesn't accept a cached_property where a protocol declares a property.
    @property
    def prompter(self) -> FilePrompter:
        """The prompt as a prompter, for example for an :class:`~lazyprompt.OnlineChatModule`.

        The prompter's input is a mapping from input names to values.
        """
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
        """Return a prompter that is safe to display: references replace the values of environment variables."""
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
        format: Literal["openai"] | OtherProvider | Profile,
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
        format: FormatLike | None = ...,
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
        format: FormatLike | None = None,
        **more: Unpack[More],
    ) -> str | OpenAIPrompt | Payload:
        """Render the prompt; see :meth:`lazyprompt.Prompter.generate_prompt`.

        Args:
            inputs: The inputs; see :meth:`validate`.
            history: Earlier messages; :meth:`filled` describes where they are inserted.
            tools: The tools for this call.
            label: The expected response, for training data.
            return_dict: True to return a dict with OpenAI's ``messages`` and ``tools``.
            format: A format that :meth:`lazyprompt.Prompter.generate_prompt` accepts, or ``neutral`` for ``messages``
                and ``tools`` in Prompty's provider-independent format.
            more: The arguments ``show``, ``model`` and ``chat_template`` of
                :meth:`lazyprompt.Prompter.generate_prompt`.
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
        provider: str | Profile | None = None,
        api: str | None = None,
    ) -> Payload:
        """Return the complete request: model, messages, options, tools and output schema.

        Args:
            inputs: The inputs; see :meth:`validate`.
            messages: Messages to send instead of the template's messages.
            history: Earlier messages, which replace the thread.
            provider: The provider's name, or a profile. The default is the file's provider, or else ``openai``.
            api: ``chat``, ``responses``, ``embedding`` or ``image``. The default is the file's API, or else ``chat``.

        Returns:
            The request body, with a report of content that the body can't represent; ``report.raise_for_losses()``
            raises an error if content was lost.

        Raises:
            FormatError: The provider or API is unknown, or the messages can't be sent to it.
        """
        if messages is not None:
            return self.prompter.request_of(parse_messages(messages), provider, api)
        return self.prompter.request(self.prompter.fill(inputs, history), provider, api)

    def render_batch(self, rows: object, **more: Any) -> Iterator[JsonObject | RowFault]:
        """Render one prompt per row, one row at a time; see :func:`lazyprompt.batch.render.render_batch`.

        If each output line is a complete request, the request includes the file's model and options.

        Args:
            rows: An iterable of mappings, a mapping of columns, an Arrow table or a DataFrame.
            more: All other arguments of ``render_batch``.
        """
        from lazyprompt.batch.render import render_batch  # noqa: PLC0415  # door: as of Prompter.render_batch

        return render_batch(self, rows, **more)

    def read(self, response: object, provider: str | Profile | None = None, api: str | None = None) -> Json:
        """Return the text, tool calls, vectors or image in a response, or a JSON object if the file declares outputs.

        Args:
            response: The response, as a dict or as an object from the provider's official client.
            provider: The provider's name, or a profile. The default is the file's provider, or else ``openai``.
            api: The API; see :meth:`request`.

        Raises:
            FormatError: The response isn't in the format of this provider.
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
            prompter: The prompter to convert.
            name: The prompt's name.
            description: The prompt's description.
            model: The prompt's model.

        Raises:
            FormatError: The prompter can't be expressed as a prompt file.
        """
        from lazyprompt.files.writing.from_prompter import text_of  # noqa: PLC0415 - rarely used

        return cls.loads(text_of(prompter, name=name, description=description, model=model), dialect="v2")

    def with_fields(self, **changes: Unpack[Changes]) -> Self:
        """Return a copy with changed fields. Text outside the changed fields is unchanged.

        Args:
            changes: New values for ``name``, ``description``, ``model``, ``inputs``, ``metadata`` or ``instructions``;
                None removes a field.

        Returns:
            The changed copy.

        Raises:
            PromptFileError: A value is invalid or can't be written to this file.
        """
        from lazyprompt.files.writing.rewriting import checked_copy, rewrite_fields  # noqa: PLC0415 - rarely used

        made = self._read(
            rewrite_fields(self, changes), name_of(self), self.path, self.references, self.dialect, self.undefined
        )
        return checked_copy(made, changes)

    def dumps(self, to: str | None = None) -> str:
        """Return the text of the file.

        Args:
            to: The dialect to convert to; see :func:`lazyprompt.convert`. If None, the text is returned unchanged.

        Raises:
            FormatError: The dialect can't express the whole file. :func:`lazyprompt.convert` returns the parts that the
                dialect can express.
        """
        if to is None:
            return self.text
        made, read = convert(self, to), {*map(str, self.notes)}
        if lost := [note for note in made.notes if note not in read]:
            raise FormatError(f"{to} can't express the whole file; convert() makes these changes: {'; '.join(lost)}")
        return made.text

    def dump(self, path: str | os.PathLike[str], to: str | None = None) -> None:
        """Write the result of :meth:`dumps` to a file.

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

    References are not resolved, so no secret is written. Parts that are the same in both dialects are copied unchanged,
    including comments.

    Args:
        prompty: The prompt file.
        to: ``v2`` or ``agentschema``.

    Returns:
        The text of the converted file, and notes on the prompt's parts that the new dialect can't express.

    Raises:
        FormatError: The dialect is unknown or doesn't support a section of the template. The error message contains the
            line number.
    """
    from lazyprompt.files.writing.targets import write_dialect  # noqa: PLC0415 - rarely used

    return write_dialect(prompty, to)
