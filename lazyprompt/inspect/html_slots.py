"""Text coloured by slot: each slot has a number and a colour, and a legend says which is which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lazyprompt.inspect.html_page import HUES
from lazyprompt.inspect.html_text import Html, Run, element, joined, label, name, short
from lazyprompt.messages.prompt import MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt.inspect.marks import Mark
    from lazyprompt.messages.prompt import Segment

# More slots than these are not named one by one: no prompt that a person wrote has as many.
_NAMED: Final = 100


def numbered(slots: Iterable[str]) -> dict[str, int]:
    """A number for each slot, in the order in which they first appear; what is no slot has none, which is 0.

    Args:
        slots: The slots, in any number of places.
    """
    names = [slot for slot in dict.fromkeys(slots) if slot != MARKERS]
    return {MARKERS: 0, **{slot: number for number, slot in enumerate(names, 1)}}


def runs_of(segments: Iterable[Segment], numbers: Mapping[str, int], marks: Sequence[Mark] = ()) -> Iterator[Run]:
    """Segments as runs of text, with what was neutralised in them marked.

    Args:
        segments: The segments.
        numbers: The numbers of their slots.
        marks: Where something was neutralised in the text that they make up, in order.
    """
    at = 0
    waiting = list(reversed(marks))
    for sent, slot, trusted in segments:
        text = str(sent)  # a secret says *** by its str, and by no part of it
        end = at + len(text)
        look = _look(numbers[slot], trusted=trusted)
        title = short(slot) if trusted else f"{short(slot)}, not trusted"
        done = at
        while waiting and waiting[-1].start < end:
            mark = waiting.pop()
            start, stop = max(mark.start, done), min(mark.end, end)
            if start >= stop:
                continue
            yield Run(text[done - at : start - at], look, title, _shown(numbers[slot]))
            yield Run(text[start - at : stop - at], f"{look} lp-mark", f"{title}; made harmless")
            done = stop
        yield Run(text[done - at :], look, title, _shown(numbers[slot]) if done == at else "")
        at = end


def legend(tokens: Mapping[str, int], numbers: Mapping[str, int], *, untrusted: bool) -> Html:
    """What each colour is, with the tokens of each slot.

    Args:
        tokens: The tokens of each slot.
        numbers: The numbers of the slots.
        untrusted: Whether there is text that nobody vouches for.
    """
    items = [
        joined((_key(slot, numbers.get(slot, 0)), label(f" {count:,}"))) for slot, count in [*tokens.items()][:_NAMED]
    ]
    if len(tokens) > _NAMED:
        items.append(label(f"and {len(tokens) - _NAMED:,} more"))
    if untrusted:
        items.append(element("span", label("not trusted"), look="lp-open"))
    return element("ul", *(element("li", item) for item in items), look="lp-list", aria_label="slots and their tokens")


def _key(slot: str, number: int) -> Html:
    return element("span", name(slot), look=_look(number, trusted=True), data_n=_shown(number))


def _look(number: int, *, trusted: bool) -> str:
    """The classes of a slot; more slots than colours begin again with the first, their numbers go on."""
    hue = (number - 1) % (len(HUES) - 1) + 1 if number else 0
    return f"lp-slot lp-hue{hue}" if trusted else f"lp-slot lp-hue{hue} lp-open"


def _shown(number: int) -> str:
    return str(number) if number else ""
