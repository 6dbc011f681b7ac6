"""Text as HTML: escaped, the signs that hide written out, and no more of it than a notebook bears.

Every text that is shown goes through this module, and nothing that a text says becomes a tag, an attribute or an
address. What is made here is :data:`Html`, which a plain string is not: a type checker finds what was not escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, NewType, cast
from unicodedata import name as unicode_name

from lazyprompt._base.signs import named, pieces, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Html = NewType("Html", str)
"""Text that is HTML already."""

# What is open of a text before the rest is folded.
_OPEN_SIGNS: Final = 4_000
_OPEN_LINES: Final = 60
# Fewer signs than these are not worth a fold.
_NOT_FOLDED: Final = 400
# What a sign costs that is written out, and what a run or another element costs beside its text, in plain signs.
_MARKED: Final = 20
ELEMENT: Final = 15
# Names are shown no longer than this.
_NAME: Final = 80
# Elements that hold nothing, and have no end.
_VOID: Final = frozenset({"img"})
# What HTML has no place for: halves of surrogate pairs, which no encoding can write, so that a notebook that holds one
# cannot be saved, and code points that are no characters: 32 of them together, and the last two of each plane.
_LAST_OF_PLANES: Final = "".join(f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
_NO_TEXT: Final = re.compile(f"[\ud800-\udfff\ufdd0-\ufdef{_LAST_OF_PLANES}]")


@dataclass(slots=True)
class Room:
    """How much more one view has room for, so that no prompt makes a notebook huge.

    Attributes:
        signs: How many signs of text; an element counts as some of them.
        pictures: How many bytes of pictures.
    """

    signs: int = 200_000
    pictures: int = 2_000_000


class Run(NamedTuple):
    """A run of text that looks alike.

    Attributes:
        text: The text, as its ``str``: a secret says ``***`` by that, and by nothing else.
        look: Its classes; none for plain text.
        title: What it is, for whoever points at it.
        number: The number of its slot; empty where it has none.
    """

    text: str
    look: str = ""
    title: str = ""
    number: str = ""


def element(tag: str, *children: Html, look: str = "", **attributes: str) -> Html:
    """An element.

    Args:
        tag: Its tag.
        *children: What it holds.
        look: Its classes.
        **attributes: Its other attributes, a ``_`` for a ``-``; empty ones are left out. Their values are escaped.
    """
    given = {"class": look, **attributes}
    written = "".join(f' {name.replace("_", "-")}="{label(value)}"' for name, value in given.items() if value)
    return Html(f"<{tag}{written}>{''.join(children)}" + ("" if tag in _VOID else f"</{tag}>"))


def joined(parts: Iterable[Html], between: str = "") -> Html:
    """HTML put together.

    Args:
        parts: The parts.
        between: What stands between them; plain text.
    """
    return Html(escape(between).join(parts))


def label(text: object) -> Html:
    """A text of our own, or a name, in one line; hidden signs written out, as an attribute can mark none.

    Args:
        text: The text; a secret shows as ``***``.
    """
    safe = visible(str(text)).replace("\n", " ")
    return Html(escape(_NO_TEXT.sub(lambda found: named(found[0]), safe)))


def name(text: object) -> Html:
    """A name out of a prompt or a message, cut where it is long; its direction is its own.

    Args:
        text: The name.
    """
    return element("bdi", *(html for html, _ in _written(short(text))), look="lp-name")


def short(text: object) -> str:
    """A name, cut where it is long.

    Args:
        text: The name.
    """
    whole = str(text)
    return whole if len(whole) <= _NAME else f"{whole[:_NAME]}…"


def flow(runs: Iterable[Run], room: Room) -> Html:
    """A text of several runs: its beginning, then the rest folded, then how much of it there is no room for.

    Args:
        runs: The runs.
        room: What it may take; what it takes is taken off.
    """
    shown = [*runs]
    whole = sum(len(run.text) for run in shown)
    if not whole:
        return element("p", label("(empty)"), look="lp-note")
    first = _fold(shown, whole)
    head, done = _laid(_cut(shown, 0, first), room)
    parts = [_block(head)] if head else []
    if first < whole and done == first and room.signs > 0:
        rest, more = _laid(_cut(shown, first, first + room.signs), room)
        done += more
        parts.append(folded(f"{more:,} more characters", _block(rest)))
    if done < whole:
        parts.append(left_out(whole - done, "characters"))
    return joined(parts)


def text(given: object, room: Room) -> Html:
    """A text of one run.

    Args:
        given: The text.
        room: As of :func:`flow`.
    """
    return flow([Run(str(given))], room)


def json_view(value: object, room: Room) -> Html:
    """JSON values, written for people.

    Args:
        value: The values; what is none is shown by its ``repr``.
        room: As of :func:`flow`.
    """
    return text(json.dumps(_unrevealed(value), ensure_ascii=False, indent=2, default=repr), room)


def folded(summary: str, *inside: Html) -> Html:
    """What is seen when it is opened.

    Args:
        summary: What is said of it.
        *inside: What it holds.
    """
    return element("details", element("summary", label(summary)), *inside)


def left_out(count: int, what: str) -> Html:
    """A line that says how much is not shown.

    Args:
        count: How many.
        what: Of what, as ``characters``.
    """
    return element("p", label(f"… {count:,} more {what} are not shown here: the view is full"), look="lp-note lp-left")


def _block(inside: Html) -> Html:
    # The newline is the one that HTML takes away after <pre>, so that one of the text's own stays.
    return element("pre", Html(f"\n{inside}"), look="lp-text", dir="auto")


def _fold(runs: Sequence[Run], whole: int) -> int:
    """Where a text is folded, in signs from its beginning; its end where that is not worth it."""
    beginning = "".join(run.text for run in _cut(runs, 0, _OPEN_SIGNS))
    ends = islice(re.finditer("\n", beginning), _OPEN_LINES - 1, _OPEN_LINES)
    place = next((found.end() for found in ends), _OPEN_SIGNS)
    return place if whole - place > _NOT_FOLDED else whole


def _cut(runs: Sequence[Run], start: int, stop: int) -> Iterator[Run]:
    """The runs between two places."""
    at = 0
    for run in runs:
        begin, end = max(start - at, 0), min(stop - at, len(run.text))
        if begin < end:
            yield run._replace(text=run.text[begin:end])
        at += len(run.text)
        if at >= stop:
            return


def _laid(runs: Iterable[Run], room: Room) -> tuple[Html, int]:
    """Runs as HTML until there is no more room, and how many of their signs that are."""
    made: list[Html] = []
    done = 0
    for run in runs:
        room.signs -= ELEMENT
        inside: list[Html] = []
        for html, size in _written(run.text, room):
            inside.append(html)
            done += size
        made.append(
            element("bdi", *inside, look=run.look, title=run.title, data_n=run.number) if run.look else joined(inside)
        )
        if room.signs <= 0:
            break
    return joined(made), done


def _written(given: str, room: Room | None = None) -> Iterator[tuple[Html, int]]:
    """A text piece by piece, as HTML, and how many of its signs each is; it ends where there is no more room."""
    for piece, is_sign in _pieces(given):
        if room is not None and room.signs <= 0:
            return
        if is_sign:
            said = f"{named(piece)} {unicode_name(piece, '')}".rstrip()
            html, size, cost = element("span", Html(named(piece)), look="lp-sign", title=said), 1, _MARKED
        else:
            fits = piece if room is None else piece[: room.signs]
            html, size, cost = Html(escape(fits)), len(fits), len(fits)
        if room is not None:
            room.signs -= cost
        yield html, size


def _pieces(given: str) -> Iterator[tuple[str, bool]]:
    """A text in pieces: what can be shown as it is, and single signs that cannot."""
    for piece, is_sign in pieces(given):
        if is_sign or piece.isascii():
            yield piece, is_sign
            continue
        done = 0
        for found in _NO_TEXT.finditer(piece):
            if found.start() > done:
                yield piece[done : found.start()], False
            yield found[0], True
            done = found.end()
        if done < len(piece):
            yield piece[done:], False


def _unrevealed(value: object) -> object:
    """JSON values with their secret texts as they show."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _unrevealed(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [*map(_unrevealed, cast("Sequence[object]", value))]
    return value
