"""A prompt file that is tested, and a case of it rendered: turns, payloads, tokens, control sequences."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from lazyprompt.batch.plan import RowPlan
from lazyprompt.errors import FormatError, LazyPromptError
from lazyprompt.files.filling import Filled
from lazyprompt.files.library.names import YAML_SUFFIXES
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.targets import request, sent_to, target_of
from lazyprompt.files.turns import Called, Returned, Shown, TextItem, Turn, messages_of
from lazyprompt.inspect.marks import marks_of
from lazyprompt.messages.history import EMPTY_HISTORY
from lazyprompt.templates.slots import Value
from lazyprompt.testing.github import GITHUB_ENDS, read_github
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.rows import Row
    from lazyprompt.formatters.report import Payload
    from lazyprompt.inspect.marks import Mark
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter

_COUNTER: Final = ApproximateTokenCounter()
HISTORY: Final = "history"
Frame: TypeAlias = "tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]"
"""The role of each turn, its own text before, between and behind slots, and the names of these."""


class TurnText(NamedTuple):
    """The text of a message.

    Attributes:
        role: Its role.
        pieces: Pairs of a slot and a text; the prompt's own text has the slot ``""``.
    """

    role: str
    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(text for _, text in self.pieces)


@dataclass(frozen=True)
class LoadedPrompt:
    """A prompt file that was read.

    Args:
        path: Its path.
        prompter: Its prompter.
        file: The prompt; None of a YAML prompt file.
        settings: What requests have beside messages: model, parameters, tools, the form of the answer.
    """

    path: Path | None
    prompter: Prompter
    file: Prompty | None
    settings: JsonObject

    @classmethod
    def load(cls, path: Path, params: Mapping[str, object] | None = None, roots: Sequence[str] = ()) -> LoadedPrompt:
        """Read a prompt file.

        Args:
            path: The path.
            params: The values of ``${params:name}``.
            roots: Directories that files may refer to, beside its own.

        Raises:
            PromptFileError: It is wrong, or not there.
        """
        if path.name.endswith(GITHUB_ENDS):
            found = read_github(path)
            return cls(path, found.prompter, None, found.settings)
        if path.suffix.lower() in YAML_SUFFIXES:
            made = PromptFile.load(path)
            return cls(path, made.prompter, None, {"model": made.model, **cls.of(made.prompter).settings})
        return cls.of(Prompty.load(path, params, roots))

    @classmethod
    def of(cls, prompt: Prompty | Prompter) -> LoadedPrompt:
        """Return what is tested of a prompt."""
        if not isinstance(prompt, Prompty):
            return cls(None, prompt, None, {"tools": [*prompt.made_of.tools]})
        spec = prompt.spec
        model = {name: value for name, value in spec.model.items() if name != "connection"}
        options = model.pop("options", None)
        tools, outputs = ([each.to_dict() for each in some] for some in (spec.tools, spec.outputs))
        settings = {"model": model, "parameters": options, "tools": tools, "answer form": outputs}
        return cls(prompt.path, prompt.prompter, prompt, cast("JsonObject", settings))

    @cached_property
    def settings_text(self) -> str:
        """The settings as JSON, in their order."""
        return json.dumps(self.settings)

    @cached_property
    def system(self) -> str:
        """The system text of a prompt that has none of its own."""
        return self.prompter.made_of.system

    @cached_property
    def _plan(self) -> RowPlan:
        return RowPlan.of(self.file or self.prompter, "flat")

    def rendered(
        self,
        inputs: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        is_row: bool = False,
        name: str = "",
    ) -> RenderedCase:
        """Fill the prompt.

        Args:
            inputs: The inputs, or a row of a table.
            history: The history.
            tools: The tools of the call.
            is_row: True if the inputs are a row, whose columns have history and tools.
            name: The name of the case.

        Raises:
            LazyPromptError: The inputs do not fit.
        """
        if is_row:
            row, cells = cast("Row", inputs), self._plan.cells
            inputs, history, tools = cells.given(row), cells.history_of(row), cells.tools_of(row)
        if self.file is not None and tools is None:
            return RenderedCase(self, inputs, history, tools, self.file.filled(inputs, history), name)
        return RenderedCase(self, inputs, history, tools, self.prompter.fill(inputs, history, tools), name)


@dataclass(frozen=True)
class RenderedCase:
    """A prompt with the inputs of a case.

    Args:
        source: The prompt file.
        inputs: The inputs.
        history: The history.
        tools: The tools of the call.
        value: The prompt as a value, before it takes any form.
        name: The name of the case.
    """

    source: LoadedPrompt
    inputs: object
    history: HistoryLike | None
    tools: ToolsLike
    value: Prompt | Filled
    name: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def call(self) -> tuple[object, HistoryLike | None, ToolsLike]:
        """The arguments of the prompter's call."""
        return self.inputs, self.history, self.tools

    @cached_property
    def prompt(self) -> Prompt:
        """The prompt as a value."""
        filled = self.source.file is not None and self.tools is None
        return self.source.prompter.fill(*self.call) if filled else cast("Prompt", self.value)

    def payload(self, provider: str = "openai") -> Payload:
        """Return the request to a provider; of a file without settings only messages and tools.

        Args:
            provider: The provider.

        Raises:
            FormatError: The provider is unknown, or cannot carry the prompt.
        """
        file = self.source.file
        if file is None or self.tools is not None or not _takes_requests(file, provider):
            return cast("Payload", self.source.prompter.target(provider).render(self.prompt))
        filled = cast("Filled", self.value)
        return request(file.spec, messages_of(filled.steps), provider, tools=filled.tools)

    @cached_property
    def turns(self) -> tuple[TurnText, ...]:
        """The messages in order, as their texts."""
        if self.source.file is not None and self.tools is None:
            return tuple(_turns_of_file(cast("Filled", self.value)))
        return tuple(_turns_of_prompt(self.source, cast("Prompt", self.value)))

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "\n\n".join(turn.text for turn in self.turns)

    @property
    def slots(self) -> dict[str, str]:
        """The text of each slot; the prompt's own text is that of ``""``."""
        found: dict[str, str] = {}
        for turn in self.turns:
            for slot, text in turn.pieces:
                found[slot] = found.get(slot, "") + text
        return found

    @cached_property
    def tokens(self) -> int:
        """About how many tokens the messages and tools have."""
        try:
            fields = cast("JsonObject", self.source.prompter.target("openai").render(self.prompt))
        except LazyPromptError:  # it shows what OpenAI does not take
            return _COUNTER.count_text(self.text)
        return _COUNTER.count(
            cast("list[JsonObject]", fields["messages"]), cast("list[JsonObject]", fields.get("tools"))
        )

    @property
    def outline(self) -> tuple[Frame, tuple[str, ...]]:
        """Each turn's role, own text and slots, the same for many cases; and the values of the slots in order."""
        value = self.value
        if isinstance(value, Filled) or value.history is not EMPTY_HISTORY:
            return _outline_of_turns(self.turns)
        system = self.source.system if value.system is None else value.system
        told, said = value.instruction, value.user
        first, *own = told.parts[::2]
        turns = ("system", (f"{system}\n{first}", *own), told.slots[1::2]), ("user", said.parts[::2], said.slots[1::2])
        values = (*told.parts[1::2], *said.parts[1::2])
        if value.input:
            return (*turns, ("user", (), ("input",))), (*values, value.input)
        return turns, values

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """The control sequences in values, which flat text has neutralised."""
        prompter = self.source.prompter.with_safety("neutralize")
        shown = prompter.text_target().segments(self.prompt)
        return marks_of(shown, shown)[0]


@lru_cache(maxsize=1024)
def tokens_of_text(text: str) -> int:
    """Return about how many tokens a text has."""
    return _COUNTER.count_text(text)


def _takes_requests(file: Prompty, provider: str) -> bool:
    try:
        return bool(target_of(*sent_to(file.spec, provider)))
    except FormatError:
        return False


def _outline_of_turns(turns: Sequence[TurnText]) -> tuple[Frame, tuple[str, ...]]:
    frame: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
    values: list[str] = []
    for turn in turns:
        own, names = [""], list[str]()
        for slot, text in turn.pieces:
            if slot:
                names.append(slot)
                values.append(text)
                own.append("")
            else:
                own[-1] += text
        frame.append((turn.role, tuple(own), tuple(names)))
    return tuple(frame), tuple(values)


def _turns_of_file(filled: Filled) -> Iterator[TurnText]:
    for step in filled.steps:
        if isinstance(step, Turn):
            yield TurnText(step.role, tuple(piece for item in step.items for piece in _pieces(item)))
        else:
            yield from map(_turn_of_message, step.messages)


def _pieces(item: TextItem | Shown | Called | Returned) -> Iterator[tuple[str, str]]:
    if isinstance(item, TextItem):
        yield from ((part.root or "" if isinstance(part, Value) else "", str(part)) for part in item.parts)
    elif isinstance(item, Returned):
        yield "", item.text
    else:
        yield "", json.dumps(item.call, ensure_ascii=False) if isinstance(item, Called) else f"[{item.block.kind}]"


def _turn_of_message(message: Msg) -> TurnText:
    return TurnText(message.role, ((HISTORY, message.text or str(message.content)),))


def _turns_of_prompt(source: LoadedPrompt, prompt: Prompt) -> Iterator[TurnText]:
    system = source.system if prompt.system is None else prompt.system
    own = tuple(_own(prompt.instruction.parts, prompt.instruction.slots))
    between = (("", "\n"),) if system and own else ()
    if system or own:
        yield TurnText("system", (*((("", system),) if system else ()), *between, *own))
    yield from map(_turn_of_message, prompt.history.messages)
    user = (*_own(prompt.user.parts, prompt.user.slots), *((("input", prompt.input),) if prompt.input else ()))
    if user:
        yield TurnText("user", user)


def _own(parts: Sequence[str], slots: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pieces of an instruction: the own text stands at the even places."""
    yield from (
        (slot if at % 2 else "", part) for at, (part, slot) in enumerate(zip(parts, slots, strict=True)) if part
    )
