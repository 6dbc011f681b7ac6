"""The control sequences of a flat prompt that were neutralised, or that safety left as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.safety.neutralised import Neutralised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lazyprompt.messages.prompt import Rendered, Segment


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
