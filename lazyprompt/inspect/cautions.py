"""Cautions about a prompt before it is sent, and the control sequences in its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast

from lazyprompt._base.signs import hidden, named, visible
from lazyprompt.messages.prompt import MARKERS, Rendered, Segment
from lazyprompt.safety.neutralised import Neutralised

if TYPE_CHECKING:
    from lazyprompt.formatters.report import Entry


class Mark(NamedTuple):
    """A control sequence in untrusted text.

    Attributes:
        slot: Its slot.
        start: Its start in the flat prompt, in characters.
        end: Its end.
        raw: The sequence as it was given.
        safe: The sequence as it is when it is neutralised.
    """

    slot: str
    start: int
    end: int
    raw: str
    safe: str


def marks_of(shown: Rendered, safe: Rendered) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
    """Return the control sequences of a prompt that were neutralised, and those that were not, in order.

    Args:
        shown: The prompt.
        safe: The same prompt with every slot neutralised.
    """
    marks: list[Mark] = []
    forged: list[Mark] = []
    at = 0
    for place, (part, slot) in enumerate(zip(shown.parts, shown.slots, strict=True)):
        if isinstance(part, Neutralised):
            marks += (Mark(slot, at + start, at + end, raw, part[start:end]) for start, end, raw in part.marks)
        # A chat template may make other parts of other text.
        harmless = safe.parts[place] if shown.slots == safe.slots else part
        if isinstance(harmless, Neutralised) and harmless != part:
            grown = 0
            for start, end, raw in harmless.marks:
                begin = at + start - grown
                forged.append(Mark(slot, begin, begin + len(raw), raw, harmless[start:end]))
                grown += end - start - len(raw)
        at += len(part)
    return tuple(marks), tuple(forged)


def marked(segments: Iterable[Segment], marks: Sequence[Mark]) -> Iterator[tuple[Segment, bool]]:
    """Yield segments cut where marks begin and end, each with True if it is what a mark stands for."""
    at = 0
    waiting = [*reversed(marks)]
    for segment in segments:
        text, done, end = segment.text, at, at + len(segment.text)
        while waiting and waiting[-1].end <= end:
            mark = waiting.pop()
            yield segment._replace(text=text[done - at : mark.start - at]), False
            yield segment._replace(text=text[mark.start - at : mark.end - at]), True
            done = mark.end
        # What is whole stays the kind of text that it is: a secret.
        yield segment._replace(text=text[done - at :]) if done > at else segment, False
        at = end


Kind: TypeAlias = Literal["neutralised", "forged", "hidden", "empty", "window", "cache", "loss", "origin", "refused"]

# From this share of the window on a prompt is near its end: an answer has to fit in as well.
_NEAR = 0.9
# Fewer tokens than these are not worth moving: OpenAI's cache of prefixes goes in steps of 128
# (https://platform.openai.com/docs/guides/prompt-caching).
_CACHED = 128
# How many kinds of hidden signs are named.
_NAMED = 4

SAID: Final[Mapping[Kind, str]] = {
    "neutralised": "{slot}: {count} control sequence(s) made harmless; {raw} is sent as {safe}",
    "forged": "{slot}: {count} control sequence(s) sent as they are, as safety is off here; the first is {raw}",
    "hidden": "{slot}: {count} sign(s) that nobody sees: {signs}",
    "empty": "{slot}: the value is empty",
    "window": "{total} tokens are {percent} % of the context window ({window}); the answer has to fit in as well",
    "cache": "{slot}: stands before {tokens} tokens that never change; a provider's cache of the prefix ends at it, so "
    "put it behind them",
    "loss": "{where}: left out: {reason}",
    "origin": "a note on the chat template: {note}",
    "refused": "{where}: {form} would refuse this: {reason}",
}
"""What each kind says, with the names of its values; a view in another language has a table of its own."""


@dataclass(frozen=True, slots=True)
class Caution:
    """One thing to look at twice.

    Attributes:
        kind: What it is about.
        values: What the sentence of its kind names; all that came from a prompt is written out, so that it can be
            shown anywhere.
    """

    kind: Kind
    values: Mapping[str, str | int]

    def __str__(self) -> str:
        return SAID[self.kind].format(**self.values)


class Piece(NamedTuple):
    """A piece of a prompt in the order in which it is sent.

    Attributes:
        slot: Where it is from.
        text: The text.
        constant: Whether it is the same in every prompt.
        texts: The texts in it as a model reads them, where it is JSON; else it is the text itself.
    """

    slot: str
    text: str
    constant: bool
    texts: tuple[str, ...] | None = None


class Facts(NamedTuple):
    """All that cautions are found in.

    Attributes:
        values: The values that were given, by their slots.
        pieces: The prompt in the order in which it is sent.
        marks: What was neutralised.
        forged: What was not, as safety is off there.
        total: The tokens of the whole.
        window: The tokens that the model takes; None where that is not known.
        report: What a payload could not carry as it was given.
        note: The note of the rendered text: why origins are lost, or roles that the chat template does not show.
        tokens_of: Counts the tokens of a text.
    """

    values: Mapping[str, object]
    pieces: Sequence[Piece]
    marks: Sequence[Mark]
    forged: Sequence[Mark]
    total: int
    window: int | None
    report: Sequence[Entry]
    note: str
    tokens_of: Callable[[str], int]


def cautions_of(facts: Facts) -> tuple[Caution, ...]:
    """Return all cautions about a prompt, what matters most first.

    Args:
        facts: The facts about the prompt.
    """
    marks = (*_of_marks("forged", facts.forged), *_of_marks("neutralised", facts.marks))
    losses = (
        Caution("loss", {"where": visible(entry.where), "reason": visible(entry.reason)})
        for entry in facts.report
        if entry.is_loss
    )
    origin = [Caution("origin", {"note": visible(facts.note)})] if facts.note else []
    return (*marks, *_hidden(facts), *_window(facts), *losses, *_empty(facts), *_cache(facts), *origin)


def _of_marks(kind: Kind, marks: Sequence[Mark]) -> Iterator[Caution]:
    """Yield a caution for each slot, which shows the first of its marks."""
    by_slot: dict[str, list[Mark]] = {}
    for mark in marks:
        by_slot.setdefault(mark.slot, []).append(mark)
    for slot, found in by_slot.items():
        raw, safe = visible(found[0].raw), visible(found[0].safe)
        yield Caution(kind, {"slot": visible(slot), "count": len(found), "raw": raw, "safe": safe})


def _hidden(facts: Facts) -> Iterator[Caution]:
    signs: dict[str, list[str]] = {}
    for slot, text, _, texts in facts.pieces:
        if slot == MARKERS:
            continue
        found = [match[0] for each in ((text,) if texts is None else texts) for match in hidden(each)]
        if found:
            signs.setdefault(slot, []).extend(found)
    for slot, found in signs.items():
        kinds = [*dict.fromkeys(found)]
        names = ", ".join(map(named, kinds[:_NAMED])) + (" …" if len(kinds) > _NAMED else "")
        yield Caution("hidden", {"slot": visible(slot), "count": len(found), "signs": names})


def _empty(facts: Facts) -> Iterator[Caution]:
    for slot, value in facts.values.items():
        if value is None or (isinstance(value, str) and not value.strip()) or value in ([], {}):
            yield Caution("empty", {"slot": visible(slot)})


def _window(facts: Facts) -> Iterator[Caution]:
    if facts.window is not None and facts.total >= _NEAR * facts.window:
        percent = round(100 * facts.total / facts.window)
        yield Caution("window", {"total": facts.total, "percent": percent, "window": facts.window})


def _cache(facts: Facts) -> Iterator[Caution]:
    first = next((at for at, piece in enumerate(facts.pieces) if not piece.constant and piece.text), None)
    if first is None:
        return
    behind = (each.text for each in facts.pieces[first:] if each.constant and each.slot != MARKERS)
    # Piece by piece, as the slots were counted: a text that is known is not counted again.
    tokens = sum(map(facts.tokens_of, behind))
    if tokens >= _CACHED:
        yield Caution("cache", {"slot": visible(facts.pieces[first].slot), "tokens": tokens})


def texts_in(value: object) -> Iterator[str]:
    """All texts in a JSON value, the names of its fields too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, object]", value).items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from texts_in(item)
