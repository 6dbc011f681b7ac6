"""Detection of possible problems in a prompt before it is sent, including control sequences in values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from lazyprompt._base.characters import code_point, find_hidden, visible
from lazyprompt._base.json import is_list, is_mapping
from lazyprompt.messages.prompt import MARKERS, Rendered, Segment
from lazyprompt.safety.neutralised import Neutralised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt.formatters.report import Entry


class Mark(NamedTuple):
    """A control sequence in an untrusted text.

    Attributes:
        slot: The slot that contains the control sequence.
        start: The index of the control sequence's first character in the flat prompt.
        end: The index after the control sequence's last character in the flat prompt.
        raw: The control sequence before neutralising.
        safe: The neutralised control sequence.
    """

    slot: str
    start: int
    end: int
    raw: str
    safe: str


def marks_of(shown: Rendered, safe: Rendered) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
    """Return the neutralised and the unchanged control sequences of a prompt as two tuples, in prompt order.

    Args:
        shown: The rendered prompt.
        safe: The same prompt, rendered with all slots neutralised.
    """
    marks: list[Mark] = []
    forged: list[Mark] = []
    at = 0
    for place, (part, slot) in enumerate(zip(shown.parts, shown.slots, strict=True)):
        if isinstance(part, Neutralised):
            marks += (Mark(slot, at + start, at + end, raw, part[start:end]) for start, end, raw in part.marks)
        # Compare a part only if both prompts have the same slots, because a chat template may render other parts if a
        # value is neutralised.
        harmless = safe.parts[place] if shown.slots == safe.slots else part
        if isinstance(harmless, Neutralised) and harmless != part:
            grown = 0
            for start, end, raw in harmless.marks:
                begin = at + start - grown
                forged.append(Mark(slot, begin, begin + len(raw), raw, harmless[start:end]))
                grown += end - start - len(raw)
        at += len(part)
    return tuple(marks), tuple(forged)


def split_at_marks(segments: Iterable[Segment], marks: Sequence[Mark]) -> Iterator[tuple[Segment, bool]]:
    """Split segments at the start and end of each :class:`Mark`, and yield ``(piece, is_mark)`` pairs."""
    at = 0
    waiting = [*reversed(marks)]
    for segment in segments:
        text, done, end = segment.text, at, at + len(segment.text)
        while waiting and waiting[-1].end <= end:
            mark = waiting.pop()
            yield segment._replace(text=text[done - at : mark.start - at]), False
            yield segment._replace(text=text[mark.start - at : mark.end - at]), True
            done = mark.end
        # Yield an unsplit segment as is, because slicing a secret string would return a plain ``str``.
        yield segment._replace(text=text[done - at :]) if done > at else segment, False
        at = end


Kind: TypeAlias = Literal["neutralised", "forged", "hidden", "empty", "window", "cache", "loss", "origin", "refused"]

# A prompt above this fraction of the context window may leave too few tokens for the response.
_NEAR = 0.9
# OpenAI's prompt cache grows in steps of this many tokens (https://platform.openai.com/docs/guides/prompt-caching).
_CACHED = 128
_NAMED = 4

TEMPLATES: Final[Mapping[Kind, str]] = {
    "neutralised": "{slot}: {count} control sequence(s) neutralised; {raw} is sent as {safe}",
    "forged": "{slot}: {count} control sequence(s) sent unchanged because safety is off; the first is {raw}",
    "hidden": "{slot}: {count} invisible character(s): {signs}",
    "empty": "{slot}: the value is empty",
    "window": "{total} tokens are {percent} % of the context window ({window}), which must also fit the response",
    "cache": "{slot}: placed before {tokens} tokens that never change; the provider's prefix cache ends here, "
    "so move the slot after them",
    "loss": "{where}: left out: {reason}",
    "origin": "chat template: {note}",
    "refused": "{where}: {form} would reject this: {reason}",
}
"""The message template for each kind of caution. The studio contains translations of these templates."""


@dataclass(frozen=True, slots=True)
class Caution:
    """A possible problem in a prompt.

    Attributes:
        kind: The kind of problem.
        values: The values for the message's placeholders, with control characters escaped for printing.
    """

    kind: Kind
    values: Mapping[str, str | int]

    def __str__(self) -> str:
        return TEMPLATES[self.kind].format(**self.values)


class PromptPiece(NamedTuple):
    """A piece of a prompt that comes from one slot.

    Attributes:
        slot: The slot that the text comes from.
        text: The text.
        constant: True if the text is the same in every prompt.
        texts: The strings inside a JSON text, or None for plain text.
    """

    slot: str
    text: str
    constant: bool
    texts: tuple[str, ...] | None = None


class Facts(NamedTuple):
    """The data of a prompt that the caution rules examine.

    Attributes:
        values: The input values, keyed by slot.
        pieces: The pieces of the prompt, in the order in which they are sent.
        marks: The neutralised control sequences.
        forged: The control sequences that were not neutralised because safety is off.
        total: The number of tokens in the prompt.
        window: The size of the model's context window in tokens, or None if unknown.
        report: The payload's report.
        note: The renderer's note on why text origins are unknown or which roles the chat template omits.
        tokens_of: The function that counts the tokens in a text.
    """

    values: Mapping[str, object]
    pieces: Sequence[PromptPiece]
    marks: Sequence[Mark]
    forged: Sequence[Mark]
    total: int
    window: int | None
    report: Sequence[Entry]
    note: str
    tokens_of: Callable[[str], int]


def cautions_of(facts: Facts) -> tuple[Caution, ...]:
    """Return all cautions about a prompt, most important first."""
    marks = (*_of_marks("forged", facts.forged), *_of_marks("neutralised", facts.marks))
    losses = (
        Caution("loss", {"where": visible(entry.where), "reason": visible(entry.reason)})
        for entry in facts.report
        if entry.is_loss
    )
    origin = [Caution("origin", {"note": visible(facts.note)})] if facts.note else []
    return (*marks, *_hidden(facts), *_window(facts), *losses, *_empty(facts), *_cache(facts), *origin)


def _of_marks(kind: Kind, marks: Sequence[Mark]) -> Iterator[Caution]:
    """Yield one caution for each slot with control sequences; the caution quotes the first of these sequences."""
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
        found = [match[0] for each in ((text,) if texts is None else texts) for match in find_hidden(each)]
        if found:
            signs.setdefault(slot, []).extend(found)
    for slot, found in signs.items():
        kinds = [*dict.fromkeys(found)]
        names = ", ".join(map(code_point, kinds[:_NAMED])) + (" …" if len(kinds) > _NAMED else "")
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
    # Count each piece separately, because the slot counts have already cached the token counts of these pieces.
    tokens = sum(map(facts.tokens_of, behind))
    if tokens >= _CACHED:
        yield Caution("cache", {"slot": visible(facts.pieces[first].slot), "tokens": tokens})


def texts_in(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, including object keys."""
    if isinstance(value, str):
        yield value
    elif is_mapping(value):
        for key, item in value.items():
            yield key
            yield from texts_in(item)
    elif is_list(value):
        for item in value:
            yield from texts_in(item)
