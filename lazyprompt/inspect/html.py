"""Views of values of the package as HTML, for notebooks.

The templates in ``views/`` say what a view shows; their Jinja environment escapes every output. This module gives them
filters that write out hidden characters, and the :class:`Room` that keeps a view small.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from binascii import Error as NoBase64
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from unicodedata import name as unicode_name

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lazyprompt._base.signs import named, pieces, visible
from lazyprompt.budget.report import TrimReport
from lazyprompt.errors import MissingExtraError
from lazyprompt.formatters.reply import Reply
from lazyprompt.inspect.cautions import marked
from lazyprompt.inspect.look import Look
from lazyprompt.media.resolver import sniffed
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.prompt import MARKERS, Prompt, Rendered
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.media import Medium, image_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lazyprompt.inspect.cautions import Mark
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Base64Source
    from lazyprompt.messages.prompt import Segment, Text

_T = TypeVar("_T")

# The beginning of a text that is open, in characters and lines; the rest is folded if it has more than a few.
_OPEN: Final = 4_000
_OPEN_LINES: Final = 60
_NOT_FOLDED: Final = 400
# What a hidden character, an element and a row of a table take of the room, in characters.
_SIGN: Final = 20
_ELEMENT: Final = 15
_ROW: Final = 12 * _ELEMENT
# The longest name that is shown whole.
_NAME: Final = 80
# The colours for slots; more slots begin again with the first.
_HUES: Final = 8
# Browsers show these, and run nothing of them.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# A picture of a few bytes may be one of many pixels, which a browser would have to hold.
_MOST_PIXELS: Final = 40_000_000
# HTML has no place for halves of surrogate pairs, which no encoding can write, so that a notebook that holds one cannot
# be saved, and for code points that are no characters: 32 of them together, and the last two of each plane.
_LAST_OF_PLANES: Final = "".join(f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
_NO_TEXT: Final = re.compile(f"([\ud800-\udfff\ufdd0-\ufdef{_LAST_OF_PLANES}])")
_KINDS: Final[Mapping[type, str]] = {
    Rendered: "rendered",
    Prompt: "prompt",
    Msg: "message",
    TrimReport: "trim",
    Reply: "reply",
    Look: "look",
}


def html_of(value: object) -> str:
    """Return the view of a value of the package that a notebook shows.

    Args:
        value: A flat prompt, a prompt, a message, a budget's report, an answer or a Look.

    Raises:
        TypeError: It is none of these.
    """
    kind = next((_KINDS[kind] for kind in type(value).__mro__ if kind in _KINDS), None)
    if kind is None:
        raise TypeError(f"there is no view of a {type(value).__name__}")
    return _view(kind, value)


def messages_html(given: HistoryLike) -> str:
    """Return the view of a conversation.

    Args:
        given: Messages, as :class:`lazyprompt.Msg` or in any other form of a history.

    Raises:
        HistoryError: It is no history.
    """
    return _view("messages", messages_from(given))


def _view(kind: str, value: object) -> str:
    return _environment().get_template("views.html").render(kind=kind, value=value, room=Room())


class Run(NamedTuple):
    """A run of text that looks alike.

    Attributes:
        text: The text.
        look: Its classes; empty for plain text.
        title: Its title.
        number: The number of its slot, or 0.
    """

    text: str
    look: str = ""
    title: str = ""
    number: int = 0


class Flow(NamedTuple):
    """A text cut to the room of a view.

    Attributes:
        whole: The length of the text.
        head: The runs that are open.
        rest: The runs that are folded.
        more: The length of these.
        left: The length of the text that there is no room for.
    """

    whole: int
    head: list[Run]
    rest: list[Run]
    more: int
    left: int


@dataclass(slots=True)
class Room:
    """The room that one view has left, so that no prompt makes a notebook huge.

    Attributes:
        signs: Characters of text; an element counts as some of them.
        pictures: Bytes of pictures.
    """

    signs: int = 200_000
    pictures: int = 2_000_000

    def flow(self, runs: Iterable[Run]) -> Flow:
        """Cut a text: its beginning, the rest, and the part that there is no room for."""
        given = [*runs]
        whole = _length(given)
        fold = _fold("".join(run.text for run in given))
        head = [*self._fitting(_between(given, 0, fold))]
        shown = _length(head)
        rest = [*self._fitting(_between(given, fold, whole))] if shown == fold else []
        more = _length(rest)
        return Flow(whole, head, rest, more, whole - shown - more)

    def fill(self, items: Iterable[_T], macro: Callable[[_T], Markup], cost: int) -> list[Markup]:
        """Return what a macro makes of each item, until there is no more room."""
        shown: list[Markup] = []
        for item in items:
            if self.signs <= 0:
                break
            self.signs -= cost
            shown.append(macro(item))
        return shown

    def rows(self, rows: Sequence[_T]) -> Sequence[_T]:
        """Return the rows of a table that there is room for."""
        fitting = rows[: max(self.signs // _ROW, 0)]
        self.signs -= len(fitting) * _ROW
        return fitting

    def picture(self, source: Base64Source) -> dict[str, str] | None:
        """Return the attributes of a picture that is one by its own bytes, and not too large for a notebook."""
        if len(source.data) > self.pictures:
            return None
        try:
            content = a2b_base64(source.data, strict_mode=True)
        except (NoBase64, ValueError):
            return None
        kind = sniffed(content[:64])
        try:
            size = image_size(Medium("image", data=content)) if kind in _PICTURES else None
        except MissingExtraError:  # a picture of unknown size could stall the page
            return None
        if size is None or size[0] * size[1] > _MOST_PIXELS:
            return None
        self.pictures -= len(source.data)
        alt = f"{kind}, {size[0]} × {size[1]} pixels"
        return {"alt": alt, "src": f"data:{kind};base64,{b64encode(content).decode('ascii')}"}

    def _fitting(self, runs: Iterable[Run]) -> Iterator[Run]:
        for run in runs:
            if self.signs <= 0:
                break
            self.signs -= _ELEMENT
            done = 0
            for piece, is_sign in _pieces(run.text):
                if self.signs <= 0:
                    break
                done += min(len(piece), self.signs)
                self.signs -= _SIGN if is_sign else min(len(piece), self.signs)
            yield run._replace(text=run.text[:done])


def _run(text: object) -> Run:
    return Run(str(text))


def _length(runs: Iterable[Run]) -> int:
    return sum(len(run.text) for run in runs)


def _fold(text: str) -> int:
    """Return where a text is folded: its end if that is not worth it."""
    beginning = text[:_OPEN]
    lines = beginning.split("\n", _OPEN_LINES)
    place = len(beginning) - len(lines[-1]) if len(lines) > _OPEN_LINES else _OPEN
    return place if len(text) - place > _NOT_FOLDED else len(text)


def _between(runs: Iterable[Run], start: int, stop: int) -> Iterator[Run]:
    at = 0
    for run in runs:
        text = run.text[max(start - at, 0) : max(stop - at, 0)]
        if text:
            yield run._replace(text=text)
        at += len(run.text)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a text in pieces: text that can be shown as it is, and single characters that cannot."""
    for piece, is_sign in pieces(text):
        if is_sign or piece.isascii():
            yield piece, is_sign
        else:
            yield from ((part, at % 2 == 1) for at, part in enumerate(_NO_TEXT.split(piece)) if part)


def _signs(text: object) -> Markup:
    """Escape a text, each of its hidden characters in an element of its own."""
    return Markup().join(_sign(piece) if is_sign else piece for piece, is_sign in _pieces(str(text)))


def _sign(sign: str) -> Markup:
    title = f"{named(sign)} {unicode_name(sign, '')}".rstrip()
    return Markup('<span class="lp-sign" title="{}">{}</span>').format(title, named(sign))


def _plain(value: object) -> str:
    """Return a value as words in one line, hidden characters written out."""
    return _NO_TEXT.sub(lambda found: named(found[0]), visible(str(value))).replace("\n", " ")


def _short(text: object) -> str:
    whole = str(text)
    return whole if len(whole) <= _NAME else f"{whole[:_NAME]}…"


def _json(value: object) -> str:
    return json.dumps(_unrevealed(value), ensure_ascii=False, indent=2, default=repr)


def _unrevealed(value: object) -> object:
    """Return JSON values with their secret texts as they show."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _unrevealed(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [*map(_unrevealed, cast("Sequence[object]", value))]
    return value


def _numbered(slots: Iterable[str]) -> dict[str, int]:
    """Number the slots by first appearance; text outside slots gets 0."""
    names = [slot for slot in dict.fromkeys(slots) if slot != MARKERS]
    return {MARKERS: 0, **{slot: number for number, slot in enumerate(names, 1)}}


def _hue(number: int) -> str:
    return f"lp-slot lp-hue{(number - 1) % _HUES + 1 if number else 0}"


def _runs(segments: Iterable[Segment], numbers: Mapping[str, int], marks: Sequence[Mark] = ()) -> Iterator[Run]:
    """Yield segments as runs of text, with what was neutralised in them marked."""
    is_behind_mark = False
    for (text, slot, trusted), is_mark in marked(segments, marks):
        look, title = _hue(numbers[slot]), _short(slot)
        if not trusted:
            look, title = f"{look} lp-open", f"{title}, not trusted"
        if is_mark:
            look, title = f"{look} lp-mark", f"{title}; made harmless"
        # Once for each place of a slot.
        yield Run(str(text), look, title, 0 if is_mark or is_behind_mark else numbers[slot])
        is_behind_mark = is_mark


def _segments(text: Text) -> tuple[Segment, ...]:
    return Rendered(text.parts, text.slots).segments


def _tokens(rendered: Rendered) -> dict[str, int]:
    return rendered.tokens(ApproximateTokenCounter())


@cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        loader=PackageLoader("lazyprompt.inspect", "views"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., object]] = {
        "count": "{:,}".format,
        "hue": _hue,
        "joined": Markup().join,
        "json": _json,
        "numbered": _numbered,
        "plain": _plain,
        "repr": repr,
        "run": _run,
        "runs": _runs,
        "segments": _segments,
        "short": _short,
        "signs": _signs,
        "tokens": _tokens,
    }
    made.filters.update(cast("dict[str, Any]", filters))
    return made
