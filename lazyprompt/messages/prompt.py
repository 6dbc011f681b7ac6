"""A prompt as values, and its layout as segments. Rendered text is never parsed.

Both use *parts*: a list of strings whose even items are trusted (the developer's template, the model's markers) and
whose odd items are not (values, history, tool results). The list starts and ends with a trusted item, which may be
empty. Two lists are joined with an empty untrusted item between them. The index of a part therefore shows its trust, at
no cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from lazyprompt._base.display import html_of
from lazyprompt._base.frozen import draft_of, fill, read_only
from lazyprompt._base.json import checked_text
from lazyprompt._base.trusted import is_trusted
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.messages.history import History, HistoryLike
from lazyprompt.messages.tools import ToolLike, ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.msg import Block, Msg

# The slot name of the model's markers and of fixed text.
MARKERS = "markers"
_MARKERS = (MARKERS,)
# The slot of the user's text, and the names of the parts of a prompt that are not slots.
_INPUT = "input"
_OWN_SLOTS = frozenset({MARKERS, "system", "instruction", "user", "tools", "history", "label"})


class CountsText(Protocol):
    """Anything that counts the tokens of a text, as every :class:`TokenCounter` does."""

    def count_text(self, text: str, /) -> int:
        """Return the number of tokens of a text."""
        ...


class Segment(NamedTuple):
    """A run of rendered text with one origin.

    Attributes:
        text: The text; in untrusted text, control sequences are neutralised.
        slot: The origin: the name of a slot, ``system``, ``instruction``, ``tools``, ``history``, ``user``, ``input``,
            ``label``, or ``markers``.
        trusted: True if the developer (or the model's own layout) wrote it.
    """

    text: str
    slot: str
    trusted: bool


class Composition(NamedTuple):
    """The parts of a text, and their slots.

    Attributes:
        parts: Trusted and untrusted text in turn; the first and the last are trusted.
        slots: The slot of each part.
        note: The reason why origins are lost, if they are; only control sequences of the template are trusted then. Or
            the roles of messages that the chat template does not render.
    """

    parts: tuple[str, ...]
    slots: tuple[str, ...]
    note: str = ""


@read_only
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Rendered:
    """A flat prompt with the origin of each character.

    Args:
        parts: Trusted and untrusted text in turn; the first and the last are trusted.
        slots: The slot of each part.
        note: The reason why origins are lost, if they are.
    """

    text: str
    """The whole text."""
    _laid: Composition | Callable[[], Composition]

    def __init__(self, parts: Iterable[str], slots: Iterable[str], note: str = "") -> None:
        out = Composition(tuple(parts), tuple(slots), note)
        object.__setattr__(self, "_laid", out)
        object.__setattr__(self, "text", "".join(out.parts))

    @classmethod
    def later(cls, text: str, lay: Callable[[], Composition]) -> Rendered:
        """Return a flat prompt whose origins are computed on first use.

        Args:
            text: The text.
            lay: Function that returns the origins; its parts make up the text.
        """
        made = cls.__new__(cls)
        object.__setattr__(made, "_laid", lay)
        object.__setattr__(made, "text", text)
        return made

    def _known(self) -> Composition:
        out = self._laid
        if not isinstance(out, Composition):
            # Concurrent threads compute equal values.
            out = out()
            object.__setattr__(self, "_laid", out)
        return out

    @property
    def parts(self) -> tuple[str, ...]:
        """Trusted and untrusted text in turn; the first and the last are trusted."""
        return self._known().parts

    @property
    def slots(self) -> tuple[str, ...]:
        """The slot of each part."""
        return self._known().slots

    @property
    def note(self) -> str:
        """The reason why origins are lost, if they are; only control sequences of the template are trusted then.

        Or the roles of messages that the chat template does not render, such as ``developer``.
        """
        return self._known().note

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order, without empty ones; adjacent segments of the same origin are merged."""
        segments: list[Segment] = []
        for index, (text, slot) in enumerate(zip(self.parts, self.slots, strict=True)):
            trusted = is_trusted(index, text)
            if not text:
                continue
            if segments and segments[-1][1:] == (slot, trusted):
                segments[-1] = Segment(segments[-1].text + text, slot, trusted)
            else:
                segments.append(Segment(text, slot, trusted))
        return tuple(segments)

    def tokens(self, counter: CountsText) -> dict[str, int]:
        """Count the tokens of each slot.

        Each segment is counted alone, so a token that would span two segments counts in both.

        Args:
            counter: Anything with ``count_text(text) -> int``.

        Returns:
            Tokens by slot, in the order in which the slots first appear.
        """
        counts: dict[str, int] = {}
        for text, slot, _ in self.segments:
            counts[slot] = counts.get(slot, 0) + counter.count_text(text)
        return counts

    def encode(self, tokenizer: TokenizerLike) -> list[int]:
        """Return token ids in which only trusted text can become a special token.

        Untrusted text becomes ordinary tokens. For text without control sequences, the ids equal the tokenizer's own.
        No beginning-of-sequence or end-of-sequence ids are added: the text already contains its markers.

        Args:
            tokenizer: A tokenizer of the packages tokenizers or tiktoken, a fast one of transformers, mistral-common's
                Tekkenizer; or a :class:`TokenCache` of one, which encodes only new texts.

        Raises:
            TokenizerError: The tokenizer is none of these.
        """
        from lazyprompt.messages.encoding import TokenCache, encode  # noqa: PLC0415 - only ids need it

        if isinstance(tokenizer, TokenCache):
            return tokenizer.encode(self.parts)
        return encode(self.parts, tokenizer).ids

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rendered) and self.segments == other.segments

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Rendered({list(self.segments)!r})"

    def __reduce__(self) -> tuple[type[Rendered], Composition]:
        return Rendered, self._known()

    def _repr_html_(self) -> str:
        return html_of(self)


@read_only
@dataclass(frozen=True, slots=True)
class Text:
    """A text that records which of its parts came from values.

    Args:
        parts: Trusted and untrusted text in turn; the first and the last are trusted.
        slots: The slot of each part.
    """

    parts: tuple[str, ...] = ("",)
    slots: tuple[str, ...] = _MARKERS

    @classmethod
    def trusted(cls, text: str, slot: str) -> Text:
        """Return text that the developer wrote."""
        return cls((text,), (slot,))

    def with_slot(self, name: str, text: str, *, every: bool) -> tuple[Text, bool]:
        """Return a copy with another text in a slot, and True if the slot does not occur.

        Args:
            name: The slot.
            text: The text.
            every: True to replace every occurrence; otherwise the occurrences after the first become empty.
        """
        places = [at for at, slot in enumerate(self.slots) if slot == name and not is_trusted(at, self.parts[at])]
        parts = [*self.parts]
        for number, at in enumerate(places):
            parts[at] = text if every or not number else ""
        return Text(tuple(parts), self.slots), not places

    def __str__(self) -> str:
        return "".join(self.parts)

    def __bool__(self) -> bool:
        return any(self.parts)


class OfMessage(str):
    """The slot of a part of a filled message. It equals the slot's plain name; only its class marks it."""

    __slots__ = ()


class FilledText(str):
    """The text of a message that was filled from a template.

    Adding, slicing or formatting it returns plain text, which is untrusted.

    Attributes:
        origins: The parts with their slots.
    """

    __slots__ = ("origins",)
    origins: Text

    def __new__(cls, origins: Text) -> Self:
        """Join the parts."""
        made = super().__new__(cls, "".join(origins.parts))
        made.origins = Text(origins.parts, tuple(map(OfMessage, origins.slots)))
        return made

    def strip(self, chars: str | None = None, /) -> FilledText:
        """Strip as ``str.strip`` does, with origins."""
        return FilledText(Text(tuple(stripped(self.origins.parts, chars)), self.origins.slots))

    def __reduce__(self) -> tuple[type[FilledText], tuple[Text]]:
        return FilledText, (self.origins,)


def stripped(parts: Sequence[str], chars: str | None = None) -> list[str]:
    """Strip the text that the parts form, as ``str.strip`` does."""
    texts = [*parts]
    for indexes, strip in ((range(len(texts)), str.lstrip), (range(len(texts) - 1, -1, -1), str.rstrip)):
        for index in indexes:
            text = strip(texts[index], chars)
            # Keep an unchanged value, which may be a JsonText: JSON has no space at its ends.
            if text != texts[index]:
                texts[index] = text
            if text:
                break
    return texts


def join_lines(texts: Sequence[str]) -> str:
    """Join texts with newlines; the result has origins if one of the texts does."""
    if not any(isinstance(text, FilledText) for text in texts):
        return "\n".join(texts)
    parts, slots = [""], [MARKERS]
    for at, text in enumerate(texts):
        run = text.origins if isinstance(text, FilledText) else Text(("", text, ""), (MARKERS, "history", MARKERS))
        parts[-1] += "\n" if at else ""
        parts += ("", *run.parts)
        slots += (MARKERS, *run.slots)
    return FilledText(Text(tuple(parts), tuple(slots)))


def filled_texts(message: Msg) -> Iterator[FilledText]:
    """Yield the texts of a message that a template filled."""
    content = message.content
    for text in (content,) if isinstance(content, str) else map(_text_in, content):
        if isinstance(text, FilledText):
            yield text


def map_filled(message: Msg, change: Callable[[FilledText], str]) -> Msg:
    """Return a message with its filled texts changed; the same message if it has none."""
    content = message.content
    if isinstance(content, FilledText):
        changed: str | tuple[Block, ...] = change(content)
    elif isinstance(content, str) or not any(True for _ in filled_texts(message)):
        return message
    else:
        changed = tuple(_with_text(block, change) for block in content)
    from lazyprompt.messages.msg import message_of  # noqa: PLC0415 - most prompts have no such messages

    return message_of(message.speaker, changed, message.role, message.url, message.metadata, message.usage)


def without_origins(message: Msg) -> Msg:
    """Return a message whose texts are plain."""
    return map_filled(message, str.__str__)


def _text_in(block: Block) -> str:
    return block.text if block.type == "text" else ""


def _with_text(block: Block, change: Callable[[FilledText], str]) -> Block:
    if block.type == "text" and isinstance(block.text, FilledText):
        return replace(block, text=change(block.text))
    return block


def _developers(given: Text | str, slot: str) -> Text:
    """Return a part of an instruction; a plain string is the developer's own."""
    if isinstance(given, Text):
        return given
    return Text.trusted(checked_text(given, f"the {slot} part", TemplateError) or "", slot)


class PromptFiller(Protocol):
    """A template with its values, which fills a prompt again when a list has fewer items.

    It is a value like the prompt: it can be pickled and doesn't reference the prompter.
    """

    @property
    def lists(self) -> Mapping[str, Sequence[object]]:
        """The non-empty lists among the values, by slot name."""
        ...

    @property
    def fills_turns(self) -> bool:
        """True if values are filled into the conversation's messages, or into slots with other names (prompt files)."""
        ...

    def fill(self, prompt: Prompt, slot: str, items: Sequence[object]) -> Prompt:
        """Return the prompt, filled again with other items for a list."""
        ...


@read_only
@dataclass(frozen=True, slots=True, init=False)
class Prompt:
    """A prompt as values, independent of any model's format.

    A prompter fills it, a budget trims it, and a target renders it.

    Args:
        system: The system text; ``None`` means the model family's text, or else the default.
        instruction: The system-level instruction with its values; a plain string is the developer's own.
        user: The user-level instruction with its values; a plain string is the developer's own.
        input: The current user text, which is untrusted; ``""`` renders the user's section without text, and ``None``
            omits the section if the history awaits an answer.
        history: The earlier messages, in any accepted form.
        tools: The tools the model may call.
        label: The assistant's expected answer, in training data.
        opening: The number of the prompter's own messages at the start of the history; a budget keeps them.
        closing: The number of the prompter's own messages at the end of the history; a budget keeps them.
        report: Entries for a payload's report about content that the prompt drops, such as attributes of a prompt file.
        source: The template and values that the prompt was filled from, if a value is a list and there is a budget.

    Raises:
        TemplateError: The system text or the instruction is not a string.
        SlotError: The input or the label is not a string.
        HistoryError: The history has no accepted form.
        ToolsError: A tool cannot be described.
    """

    system: str | None
    instruction: Text
    user: Text
    input: str | None
    history: History
    tools: ToolSet
    label: str | None
    opening: int = field(repr=False)
    closing: int = field(repr=False)
    report: tuple[object, ...] = field(compare=False, repr=False)
    source: PromptFiller | None = field(compare=False, repr=False)

    def __init__(  # noqa: PLR0913, PLR0917 - one argument for each part of a prompt
        self,
        system: str | None = None,
        instruction: Text | str = "",
        user: Text | str = "",
        input: str | None = None,
        history: HistoryLike | History | None = None,
        tools: Iterable[ToolLike] | ToolSet | None = None,
        label: str | None = None,
        opening: int = 0,
        closing: int = 0,
        report: tuple[object, ...] = (),
        source: PromptFiller | None = None,
    ) -> None:
        checked = (
            checked_text(system, "the system text", TemplateError),
            _developers(instruction, "instruction"),
            _developers(user, "user"),
            checked_text(input, "the input", SlotError),
            History.of(history),
            ToolSet.of(tools),
            checked_text(label, "the label", SlotError),
            opening,
            closing,
            report,
            source,
        )
        fill(self, checked)

    @property
    def said(self) -> str | None:
        """The user's text: the user's part of the instruction and the input; None if both are empty."""
        return "".join(self.user.parts) + (self.input or "") or None

    @property
    def conversation(self) -> tuple[Msg, ...]:
        """The messages of the history that are not the prompter's own."""
        messages = self.history.messages
        return messages[self.opening : len(messages) - self.closing]

    @property
    def plain_messages(self) -> Sequence[Msg]:
        """The messages of the history, with plain strings for filled texts."""
        if not self.opening and not self.closing:
            return self.history.messages
        return [*map(without_origins, self.history.messages)]

    @property
    def texts(self) -> tuple[Text, ...]:
        """The texts that templates filled, in order: the instruction, the prompter's own messages, the user's part."""
        return (self.instruction, *self._own_texts, self.user)

    @property
    def _own_texts(self) -> Iterable[Text]:
        own = self.opening + self.closing
        if not own:
            return ()
        messages = self.history.messages
        first = len(messages) - self.closing
        return [
            text.origins for message in (*messages[: self.opening], *messages[first:]) for text in filled_texts(message)
        ]

    @property
    def literals(self) -> tuple[str, ...]:
        """The pieces of the developer's own texts."""
        return tuple(part for text in self.texts for part in text.parts[::2])

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        """The values in the prompt by slot name, in order; a slot has one value for each occurrence."""
        found: dict[str, list[str]] = {}
        for text in self.texts:
            for at, (part, slot) in enumerate(zip(text.parts, text.slots, strict=True)):
                if slot not in _OWN_SLOTS and not is_trusted(at, part):
                    found.setdefault(slot, []).append(part)
        if self.input:
            found.setdefault(_INPUT, []).append(self.input)
        return {slot: tuple(parts) for slot, parts in found.items()}

    @property
    def lists(self) -> Mapping[str, Sequence[object]]:
        """The values that are lists, by slot name; recorded only if there is a budget."""
        return {} if self.source is None else self.source.lists

    def with_slot(self, name: str, text: str | Sequence[object]) -> Prompt:
        """Return a copy with another value in a slot; ``input`` is the user's text.

        Args:
            name: The slot.
            text: The text, which replaces every occurrence. If the occurrences have different values, it replaces the
                first and empties the others. For a slot in :attr:`lists`, the items to fill the template with.

        Raises:
            SlotError: The prompt has no such slot, or no such list.
        """
        if not isinstance(text, str):
            if self.source is None or name not in self.lists:
                raise SlotError(f"the prompt has no list {name!r}{did_you_mean(name, self.lists)}; give its text")
            return self.source.fill(self, name, text)
        values = self.slots.get(name)
        if values is None:
            raise SlotError(f"the prompt has no slot {name!r}{did_you_mean(name, self.slots)}")
        one, left = len({*values}) == 1, True

        def changed(given: Text) -> Text:
            nonlocal left
            made, has_none = given.with_slot(name, text if one or left else "", every=one)
            left = left and has_none
            return made

        instruction, history, user = changed(self.instruction), self._with_own_texts(changed), changed(self.user)
        own = self.input if name != _INPUT or not self.input else text if one or left else ""
        return self.evolve(instruction=instruction, history=history, user=user, input=own)

    def _with_own_texts(self, change: Callable[[Text], Text]) -> History:
        """Return the history with the texts of the prompter's own messages changed."""
        if not self.opening and not self.closing:
            return self.history

        def changed(message: Msg) -> Msg:
            return map_filled(message, lambda text: FilledText(change(text.origins)))

        return History(tuple(map(changed, self.history.messages)))

    def with_history(self, history: HistoryLike | History) -> Prompt:
        """Return a copy with another history."""
        return self.evolve(history=History.of(history))

    def with_system(self, system: str) -> Prompt:
        """Return a copy with another system text."""
        return self.evolve(system=system)

    def evolve(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the fields check themselves

    def __reduce__(self) -> tuple[type[Prompt], tuple[object, ...]]:
        return Prompt, tuple(getattr(self, each.name) for each in fields(self))

    def _repr_html_(self) -> str:
        return html_of(self)


_PromptDraft = draft_of(Prompt)


def prompt_of(  # noqa: PLR0913, PLR0917 - as the constructor
    system: str | None,
    instruction: Text,
    user: Text,
    input: str | None,
    history: History,
    tools: ToolSet,
    label: str | None,
    opening: int = 0,
    closing: int = 0,
    report: tuple[object, ...] = (),
    source: PromptFiller | None = None,
) -> Prompt:
    """Build a prompt from checked fields, in a third of the constructor's time."""
    draft = _PromptDraft()
    draft.system = system
    draft.instruction = instruction
    draft.user = user
    draft.input = input
    draft.history = history
    draft.tools = tools
    draft.label = label
    draft.opening = opening
    draft.closing = closing
    draft.report = report
    draft.source = source
    draft.__class__ = Prompt
    prompt: Prompt = draft
    return prompt
