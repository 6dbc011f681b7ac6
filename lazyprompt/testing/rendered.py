"""Prompts under test, and the turns, requests, token counts and control sequences of their test cases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lazyprompt._base.json import is_mapping
from lazyprompt._base.secret import HiddenEnvironment, SecretText, secrets_within
from lazyprompt.batch.plan import RowPlan
from lazyprompt.errors import FormatError, LazyPromptError, SlotError, TokenizerError
from lazyprompt.files.filling import FilledFile
from lazyprompt.files.library.names import YAML_SUFFIXES
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.references import References, text_in_place
from lazyprompt.files.targets import sent_to, target_of
from lazyprompt.files.turns import CallItem, MediaItem, ResultItem, TextItem, Turn
from lazyprompt.files.yaml_nodes import plain
from lazyprompt.inspect.cautions import Mark, marks_of
from lazyprompt.inspect.counting import counter_named
from lazyprompt.messages.prompt import filled_texts
from lazyprompt.templates.slots import Value, unknown_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.rows import Row
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt, Text
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.target_choice import FormatLike
    from lazyprompt.tokens.counter import TokenCounter

    Arguments: TypeAlias = tuple[object, HistoryLike | None, ToolsLike]

_HIDDEN: Final = HiddenEnvironment()


class TurnText(NamedTuple):
    """The text of one message.

    Attributes:
        role: The message's role.
        pieces: The pieces of the text, each with the slot that it comes from. For text outside all slots, the slot is
            ``""``.
    """

    role: str
    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(text for _, text in self.pieces)

    def slot_at(self, start: int, end: int) -> str:
        """Return the slot that covers most of a text range, or ``instruction`` for text outside all slots."""
        at, best = 0, (0, "")
        for slot, text in self.pieces:
            inside = min(end, at + len(text)) - max(start, at)
            best = max(best, (inside, slot or "instruction"), key=lambda each: each[0])
            at += len(text)
        return best[1]


@dataclass(frozen=True, eq=False)
class LoadedPrompt:
    """A prompt under test.

    Args:
        prompter: The prompter.
        file: The parsed ``.prompty`` file, or None for any other prompt.
        settings: The request settings: the model, the parameters, the tools and the response format.
        sent: The same prompt with resolved environment variables, to send to a model; None to send this prompt.
    """

    prompter: Prompter
    file: Prompty | None
    settings: JsonObject
    sent: LoadedPrompt | None = None

    @classmethod
    def load(
        cls,
        path: Path,
        params: Mapping[str, object] | None = None,
        roots: Sequence[str] = (),
        *,
        text: str | None = None,
        environment: Mapping[str, str] | None = _HIDDEN,
        named: frozenset[str] | None = None,
    ) -> LoadedPrompt:
        """Read a prompt file, rejecting links to files outside its directory.

        Args:
            path: The prompt file's path.
            params: The values for ``${params:name}`` references.
            roots: Additional directories that contain files to which the prompt file may refer.
            text: The file's text; by default, the text is read from the path.
            environment: The values for ``${env:NAME}`` references; None uses the process's environment. By default,
                environment variables are not resolved, because tests print prompts.
            named: The names of the environment variables that fields other than connection settings may refer to; None
                allows all names.

        Raises:
            PromptFileError: The file is invalid or doesn't exist.
        """
        held = text_in_place(path, roots) if text is None else text
        if path.suffix.lower() in YAML_SUFFIXES:
            made = PromptFile.loads(held, str(path))
            return cls(made.prompter, None, {"model": made.model, **cls.of(made.prompter).settings})
        places = tuple(map(Path, roots))
        references = References(path.parent, places, dict(params or {}), environment, named, connects_later=True)
        return cls.of(Prompty.of_file(path, references, text=held))

    @classmethod
    def of(cls, prompt: Prompty | Prompter) -> LoadedPrompt:
        """Create a prompt under test from a parsed prompt file or a prompter."""
        if not isinstance(prompt, Prompty):
            return cls(prompt, None, {"tools": [*prompt.made_of.tools]})
        spec = prompt.spec
        model = {name: value for name, value in spec.model.items() if name != "connection"}
        options = model.pop("options", None)
        tools: list[Json] = [each.to_dict() for each in spec.tools]
        outputs: list[Json] = [each.to_dict() for each in spec.outputs]
        settings: JsonObject = {"model": model, "parameters": options, "tools": tools, "answer form": outputs}
        return cls(prompt.prompter, prompt, settings)

    @cached_property
    def secrets(self) -> tuple[SecretText, ...]:
        """The values of the environment variables that the file's front matter refers to."""
        return () if self.file is None else tuple(secrets_within([plain(each) for each in self.file.seen.values()]))

    @cached_property
    def system(self) -> str:
        """The default system text."""
        return self.prompter.made_of.system

    @property
    def is_chat(self) -> bool:
        """True if requests contain each turn as a separate message."""
        return self.file is None or self.file.spec.model.get("apiType") in (None, "chat", "responses")

    @cached_property
    def cells(self) -> Cells:
        """The columns that the prompt reads from a row."""
        return RowPlan.of(self.file or self.prompter, "flat").cells

    @cached_property
    def counter(self) -> tuple[str, TokenCounter]:
        """The token counter's name and the token counter.

        If the vocabulary of the prompt's model is missing, the counts are approximate.
        """
        model = self.settings.get("model")
        name = f"tiktoken:{str(model.get('id') if isinstance(model, dict) else model).rpartition('/')[2]}"
        try:
            return name, counter_named(name)
        except TokenizerError:
            return "approximate", counter_named("approximate")

    def reads_like(self, other: LoadedPrompt) -> bool:
        """Return True if both versions of a prompt read the same columns from a row."""
        return self.cells == other.cells

    def arguments(self, row: Row) -> Arguments:
        """Return the inputs, history and tools that a table row contains.

        Raises:
            LazyPromptError: A column is missing or contains an invalid value.
        """
        history = self.cells.history_of(row)
        return self.cells.input_of(row), history, self.cells.tools_of(row)

    def check_names(self, inputs: object) -> None:
        """Check that a prompt file has all inputs that a test case sets; other prompts check this when they are filled.

        Raises:
            SlotError: The file has no input with one of the names.
        """
        if self.file is None or not is_mapping(inputs):
            return
        if unknown := unknown_inputs(map(str, inputs), self.cells.slots):
            raise SlotError(unknown)

    def render(
        self, inputs: object = None, history: HistoryLike | None = None, tools: ToolsLike = None, name: str = ""
    ) -> RenderedCase:
        """Fill the prompt.

        Args:
            inputs: The inputs.
            history: The history.
            tools: The tools for this call.
            name: The test case's name.

        Raises:
            LazyPromptError: The inputs don't match the prompt.
        """
        if self.file is not None and tools is None:
            return RenderedCase(self, inputs, history, tools, self.file.filled(inputs, history), name)
        return RenderedCase(self, inputs, history, tools, self.prompter.fill(inputs, history, tools), name)


@dataclass(eq=False)
class RenderedCase:
    """A prompt filled with the inputs of a test case.

    Args:
        source: The prompt under test.
        inputs: The inputs.
        history: The history.
        tools: The tools for this call.
        value: The filled prompt.
        name: The test case's name.
    """

    source: LoadedPrompt
    inputs: object
    history: HistoryLike | None
    tools: ToolsLike
    value: Prompt | FilledFile
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def call(self) -> Arguments:
        """The arguments to pass to the prompter."""
        return self.inputs, self.history, self.tools

    @cached_property
    def prompt(self) -> Prompt:
        """The filled prompt as a :class:`~lazyprompt.Prompt`."""
        return self.source.prompter.fill(*self.call) if isinstance(self.value, FilledFile) else self.value

    def payload(self, provider: FormatLike = "openai") -> Payload:
        """Return the request for a provider, or only the messages and tools if complete requests are not supported.

        Args:
            provider: The provider's name, or a profile.

        Raises:
            FormatError: The provider is unknown, or can't represent the prompt.
        """
        file = self.source.file
        if file is None or not isinstance(self.value, FilledFile) or not _takes_requests(file, provider):
            return self.render(provider)
        return file.prompter.request(self.prompt, provider)

    def render(self, provider: FormatLike) -> Payload:
        """Render the messages and tools for a provider, given as a name or a profile.

        Raises:
            FormatError: The provider is unknown, or can't represent the prompt.
        """
        payload = self.source.prompter.target(provider).render(self.prompt)
        if isinstance(payload, str):
            raise FormatError(f"{provider!r} renders text; use a provider that renders a payload")
        return payload

    @cached_property
    def turns(self) -> tuple[TurnText, ...]:
        """The text of each message, in order."""
        if isinstance(self.value, FilledFile):
            return tuple(_turns_of_file(self.value))
        return tuple(_turns_of_prompt(self.value, self.source.system))

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "\n\n".join(turn.text for turn in self.turns)

    @property
    def slots(self) -> dict[str, str]:
        """The text of each slot, keyed by name; the key ``""`` contains the text outside all slots."""
        found: dict[str, str] = {}
        for turn in self.turns:
            for slot, text in turn.pieces:
                found[slot] = found.get(slot, "") + text
        return found

    @property
    def tokens(self) -> int:
        """The number of tokens in messages and tools, as counted by the counter for the prompt's model."""
        return self.count(self.source.counter[1])

    def count(self, counter: TokenCounter) -> int:
        """Count the tokens in messages and tools."""
        try:
            fields = self.render("openai")
        except LazyPromptError:  # OpenAI's format can't represent part of the prompt
            return counter.count_text(self.text)
        return counter.count(fields["messages"], fields.get("tools"))

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """The control sequences in values, which are neutralised in flat text."""
        prompter = self.source.prompter.with_safety("neutralize")
        shown = prompter.text_target().segments(self.prompt)
        return marks_of(shown, shown)[0]


def _takes_requests(file: Prompty, provider: FormatLike) -> bool:
    try:
        return bool(target_of(*sent_to(file.spec, provider)))
    except FormatError:
        return False


def _turns_of_file(filled: FilledFile) -> Iterator[TurnText]:
    for step in filled.steps:
        if isinstance(step, Turn):
            yield TurnText(step.role, tuple(piece for item in step.items for piece in _pieces(item)))
        else:
            yield from map(_turn_of_message, step.messages)


def _pieces(item: TextItem | MediaItem | CallItem | ResultItem) -> Iterator[tuple[str, str]]:
    if isinstance(item, TextItem):
        yield from ((part.root or "" if isinstance(part, Value) else "", str(part)) for part in item.parts)
    elif isinstance(item, ResultItem):
        yield "", item.text
    else:
        yield "", json.dumps(item.call, ensure_ascii=False) if isinstance(item, CallItem) else f"[{item.block.kind}]"


def _turn_of_message(message: Msg) -> TurnText:
    if filled := [*filled_texts(message)]:
        return TurnText(message.role, tuple(piece for text in filled for piece in _pieces_of_text(text.origins)))
    return TurnText(message.role, (("history", message.text or str(message.content)),))


def _turns_of_prompt(prompt: Prompt, default: str) -> Iterator[TurnText]:
    system = default if prompt.system is None else prompt.system
    own = _pieces_of_text(prompt.instruction)
    if system:
        own = [("", f"{system}\n" if own else system), *own]
    if own:
        yield TurnText("system", tuple(own))
    yield from map(_turn_of_message, prompt.history.messages)
    user = [*_pieces_of_text(prompt.user), *([("input", prompt.input)] if prompt.input else [])]
    if user:
        yield TurnText("user", tuple(user))


def _pieces_of_text(text: Text) -> list[tuple[str, str]]:
    """Return the nonempty parts of a text as (slot, text) pairs. For text outside all slots, the slot is ``""``."""
    return [
        (slot if at % 2 else "", part)
        for at, (part, slot) in enumerate(zip(text.parts, text.slots, strict=True))
        if part
    ]
