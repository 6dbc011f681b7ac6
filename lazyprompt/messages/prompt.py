"""Immutable prompts, and rendered prompts that record the origin of each part. Rendered text is never parsed.

Prompts and rendered prompts store text as a list of *parts*. The parts at even indices are trusted (the developer's
template, the model's markers), and the parts at odd indices are untrusted (values, history, tool results). The first
and last parts are always trusted and may be empty. When two lists of parts are joined, an empty untrusted part is
inserted between them. The index of a part therefore determines whether the part is trusted.
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

# The slot name for markers and literal text.
MARKERS = "markers"
_MARKERS = (MARKERS,)
_INPUT = "input"
# Names for the parts of a prompt that are not template slots.
_OWN_SLOTS = frozenset({MARKERS, "system", "instruction", "user", "tools", "history", "label"})


class CountsText(Protocol):
    """The interface for counting tokens in text, which every :class:`TokenCounter` implements."""

    def count_text(self, text: str, /) -> int:
        """Return the number of tokens in a text."""
        ...


class Segment(NamedTuple):
    """A run of rendered text from a single origin.

    Attributes:
        text: The text. Control sequences in untrusted text are neutralised.
        slot: The origin of the text: the name of a slot, ``system``, ``instruction``, ``tools``, ``history``, ``user``,
            ``input``, ``label``, or ``markers``.
        trusted: True if the text comes from the developer or from the model's own prompt format.
    """

    text: str
    slot: str
    trusted: bool


class Composition(NamedTuple):
    """The parts of a rendered text, and the slot that each part comes from.

    Attributes:
        parts: Alternating trusted and untrusted texts; the first and the last are trusted.
        slots: The name of the slot that each part comes from.
        note: An explanation if the origins of the parts are unknown, or if the chat template doesn't render some roles;
            otherwise an empty string. If the origins are unknown, only the template's control sequences are trusted.
    """

    parts: tuple[str, ...]
    slots: tuple[str, ...]
    note: str = ""


@read_only
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Rendered:
    """A flat prompt that records the origin of each character.

    Args:
        parts: Alternating trusted and untrusted texts; the first and the last are trusted.
        slots: The name of the slot that each part comes from.
        note: An explanation if the origins of the parts are unknown or some roles are not rendered; otherwise an empty
            string.
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
        """Create a flat prompt that computes the origins of its text on first access.

        Args:
            text: The complete text of the flat prompt.
            lay: A function that returns the parts of the flat prompt and the slot that each part comes from.
        """
        made = cls.__new__(cls)
        object.__setattr__(made, "_laid", lay)
        object.__setattr__(made, "text", text)
        return made

    def _known(self) -> Composition:
        out = self._laid
        if not isinstance(out, Composition):
            # No lock is needed, because concurrent threads compute equal compositions.
            out = out()
            object.__setattr__(self, "_laid", out)
        return out

    @property
    def parts(self) -> tuple[str, ...]:
        """Alternating trusted and untrusted texts; the first and the last are trusted."""
        return self._known().parts

    @property
    def slots(self) -> tuple[str, ...]:
        """The name of the slot that each part comes from."""
        return self._known().slots

    @property
    def note(self) -> str:
        """An explanation if the origins of the text are unknown, or if the chat template doesn't render some roles.

        If the origins are unknown, only the template's control sequences are trusted. The note is an empty string if
        all origins are known and the chat template renders all roles.
        """
        return self._known().note

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The non-empty segments in order; adjacent segments from the same origin are merged."""
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
        """Count the tokens in each slot.

        Each segment is counted separately, so a token that spans two segments is counted in both.

        Args:
            counter: An object with a method ``count_text(text) -> int``.

        Returns:
            The token count of each slot, in the order in which the slots first appear.
        """
        counts: dict[str, int] = {}
        for text, slot, _ in self.segments:
            counts[slot] = counts.get(slot, 0) + counter.count_text(text)
        return counts

    def encode(self, tokenizer: TokenizerLike) -> list[int]:
        """Encode the prompt to token ids, so that only trusted text can become a special token.

        Untrusted text becomes ordinary tokens. If untrusted text contains no control sequences, the ids equal the
        tokenizer's own encoding. No beginning-of-sequence or end-of-sequence ids are added, because the text already
        contains the model's markers.

        Args:
            tokenizer: A tokenizer from tokenizers or tiktoken, a fast tokenizer from transformers, or mistral-common's
                Tekkenizer. To encode only new text, wrap the tokenizer in a :class:`TokenCache`.

        Raises:
            TokenizerError: The tokenizer's type is not supported.
        """
        from lazyprompt.messages.encoding import TokenCache, encode  # noqa: PLC0415 - needed only for token ids

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


class Text(NamedTuple):
    """A text that records which of its parts came from values.

    Attributes:
        parts: Alternating trusted and untrusted texts; the first and the last are trusted.
        slots: The name of the slot that each part comes from.
    """

    parts: tuple[str, ...] = ("",)
    slots: tuple[str, ...] = _MARKERS

    @classmethod
    def trusted(cls, text: str, slot: str) -> Text:
        """Create a text that consists of one trusted part."""
        return cls((text,), (slot,))

    def with_slot(self, name: str, text: str, *, every: bool) -> tuple[Text, bool]:
        """Return a copy of this text, in which the text of one slot is replaced.

        Args:
            name: The name of the slot.
            text: The new text of the slot.
            every: True to replace every occurrence; False to replace the first occurrence and empty all others.

        Returns:
            The changed copy of this text, and True if no part of this text comes from the slot.
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


class FilledText(str):
    """The text of a message that was filled from a template.

    Concatenating, slicing or formatting a filled text returns a plain string, which is untrusted.

    Attributes:
        origins: The parts of the message text, with the slot that each part comes from.
    """

    __slots__ = ("origins",)
    origins: Text

    def __new__(cls, origins: Text) -> Self:
        """Create the text by joining the parts of ``origins``."""
        made = super().__new__(cls, "".join(origins.parts))
        made.origins = origins
        return made

    def strip(self, chars: str | None = None, /) -> FilledText:
        """Strip the text, as ``str.strip`` does, and keep the origin of each part."""
        return FilledText(Text(tuple(stripped(self.origins.parts, chars)), self.origins.slots))

    def __reduce__(self) -> tuple[type[FilledText], tuple[Text]]:
        return FilledText, (self.origins,)


def stripped(parts: Sequence[str], chars: str | None = None) -> list[str]:
    """Strip both ends of the joined parts, as ``str.strip`` does. The number of parts stays the same."""
    texts = [*parts]
    for indexes, strip in ((range(len(texts)), str.lstrip), (range(len(texts) - 1, -1, -1), str.rstrip)):
        for index in indexes:
            text = strip(texts[index], chars)
            # Keep the original object if the text is unchanged, because the object may be a `JsonText`.
            if text != texts[index]:
                texts[index] = text
            if text:
                break
    return texts


def join_lines(texts: Sequence[str]) -> str:
    """Join texts with newlines. If one of the texts is a :class:`FilledText`, the result is a ``FilledText`` too."""
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
    """Yield the texts in a message that were filled from a template."""
    content = message.content
    for text in (content,) if isinstance(content, str) else map(_text_in, content):
        if isinstance(text, FilledText):
            yield text


def map_filled(message: Msg, change: Callable[[FilledText], str]) -> Msg:
    """Apply a function to the filled texts of a message. A message without filled texts is returned unchanged."""
    content = message.content
    if isinstance(content, FilledText):
        changed: str | tuple[Block, ...] = change(content)
    elif isinstance(content, str) or not any(True for _ in filled_texts(message)):
        return message
    else:
        changed = tuple(_with_text(block, change) for block in content)
    from lazyprompt.messages.msg import message_of  # noqa: PLC0415 - needed only for filled messages

    return message_of(message.speaker, changed, message.role, message.url, message.metadata, message.usage)


def without_origins(message: Msg) -> Msg:
    """Return a message in which filled texts are replaced by plain strings."""
    return map_filled(message, str.__str__)


def _text_in(block: Block) -> str:
    return block.text if block.type == "text" else ""


def _with_text(block: Block, change: Callable[[FilledText], str]) -> Block:
    if block.type == "text" and isinstance(block.text, FilledText):
        return replace(block, text=change(block.text))
    return block


def _developers(given: Text | str, slot: str) -> Text:
    """Return a part of an instruction as a ``Text`` that consists of tuples; a plain string is trusted text."""
    if isinstance(given, Text):
        return Text(tuple(given.parts), tuple(given.slots))
    return Text.trusted(checked_text(given, f"the {slot} part", TemplateError) or "", slot)


class PromptFiller(Protocol):
    """A template and its values, used to fill a prompt again after a list has been shortened.

    Implementations contain only plain values and no reference to the prompter, so they can be pickled.
    """

    @property
    def lists(self) -> Mapping[str, Sequence[object]]:
        """The values that are non-empty lists, by slot name."""
        ...

    @property
    def fills_turns(self) -> bool:
        """True if the values can fill any message, as in a prompt file; False if they fill only the instruction."""
        ...

    def fill(self, prompt: Prompt, slot: str, items: Sequence[object]) -> Prompt:
        """Fill the prompt again, with new items for the list in one slot."""
        ...


@read_only
@dataclass(frozen=True, slots=True, init=False)
class Prompt:
    """The immutable content of a prompt, independent of any model's format.

    A prompter fills the prompt, a budget trims it, and a target renders it.

    Args:
        system: The system text; ``None`` means the model family's default text or, without one, the general default.
        instruction: The system-level instruction, filled with values; a plain string is trusted text.
        user: The user-level instruction, filled with values; a plain string is trusted text.
        input: The current user text, which is untrusted. ``""`` renders the user's section without text, and ``None``
            omits the section if the history already awaits a response.
        history: The earlier messages, in any accepted format.
        tools: The tools that the model may call.
        label: The expected response of the assistant, for training data.
        opening: The number of the prompter's own messages at the start of the history, which a budget never drops.
        closing: The number of the prompter's own messages at the end of the history, which a budget never drops.
        report: Entries to add to a payload's report, such as entries about dropped attributes of a prompt file.
        source: The template and the values that filled the prompt; None unless a value is a list and a budget is set.

    Raises:
        TemplateError: The system text or the instruction is not a string.
        SlotError: The input or the label is not a string.
        HistoryError: The history's format is not accepted.
        ToolsError: A tool is invalid, or its schema can't be generated.
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
        """The user-level instruction followed by the input, or None if both are empty."""
        return "".join(self.user.parts) + (self.input or "") or None

    @property
    def conversation(self) -> tuple[Msg, ...]:
        """The history's messages, without the messages that the prompter adds at the start and end of the history."""
        messages = self.history.messages
        return messages[self.opening : len(messages) - self.closing]

    @property
    def plain_messages(self) -> Sequence[Msg]:
        """The messages in the history, with filled texts replaced by plain strings."""
        if not self.opening and not self.closing:
            return self.history.messages
        return [*map(without_origins, self.history.messages)]

    @property
    def texts(self) -> tuple[Text, ...]:
        """The filled texts in order: the instruction, the prompter's own messages, and the user-level instruction."""
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
        """The trusted literal texts that the developer wrote around the values in :attr:`texts`."""
        return tuple(part for text in self.texts for part in text.parts[::2])

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        """The values in the prompt by slot name, with one value for each occurrence of the slot, in order."""
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
        """The values that are lists, by slot name; empty unless a budget is set."""
        return {} if self.source is None else self.source.lists

    def with_slot(self, name: str, text: str | Sequence[object]) -> Prompt:
        """Return a copy with a new value in a slot.

        Args:
            name: The name of the slot; ``input`` refers to the user's text.
            text: The new text, which replaces every occurrence of the slot. If the slot's occurrences have different
                values, only the first occurrence is replaced, and all other occurrences become empty. To replace a
                value in :attr:`lists`, pass a list of new items.

        Raises:
            SlotError: The prompt has no slot or no list with this name.
        """
        if not isinstance(text, str):
            if self.source is None or name not in self.lists:
                raise SlotError(
                    f"the prompt has no list slot {name!r}{did_you_mean(name, self.lists)}; pass a string for a text "
                    "slot"
                )
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
        """Return the history after applying a function to each filled text in the messages that the prompter adds."""
        if not self.opening and not self.closing:
            return self.history

        def changed(message: Msg) -> Msg:
            return map_filled(message, lambda text: FilledText(change(text.origins)))

        return History(tuple(map(changed, self.history.messages)))

    def with_history(self, history: HistoryLike | History) -> Prompt:
        """Return a copy with a different history."""
        return self.evolve(history=History.of(history))

    def with_system(self, system: str) -> Prompt:
        """Return a copy with a different system text."""
        return self.evolve(system=system)

    def evolve(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the constructor validates the values

    def __reduce__(self) -> tuple[type[Prompt], tuple[object, ...]]:
        return Prompt, tuple(getattr(self, each.name) for each in fields(self))

    def _repr_html_(self) -> str:
        return html_of(self)


_PromptDraft = draft_of(Prompt)


def prompt_of(  # noqa: PLR0913, PLR0917 - the same arguments as the constructor
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
    """Build a prompt without validating the fields, because validation takes a third of the constructor's time."""
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
