"""HTML views of the package's values for notebooks; ``%load_ext lazyprompt.inspect.notebook`` adds conversations.

The templates in ``views/`` define the views; their Jinja environment escapes all output. This module provides filters
that make hidden characters visible, and :class:`Room`, which limits the size of a view.

Prompts, messages, reports and answers are displayed in any notebook. For lists of messages, which are plain Python
lists, the extension must be loaded; other lists are not affected. IPython is never imported.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from binascii import Error as NoBase64
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast
from unicodedata import name as unicode_name

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lazyprompt._base.characters import code_point, split_hidden, visible
from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt._base.roles import ROLES
from lazyprompt._base.secret import shown
from lazyprompt.budget.report import TrimReport
from lazyprompt.errors import HistoryError, MissingExtraError
from lazyprompt.formatters.reply import Reply
from lazyprompt.inspect.cautions import Mark, split_at_marks
from lazyprompt.inspect.look import Look
from lazyprompt.media.resolver import sniff_type
from lazyprompt.messages.history import HistoryLike, messages_from
from lazyprompt.messages.msg import Base64Source, Msg
from lazyprompt.messages.prompt import MARKERS, Prompt, Rendered, Segment
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.media import CountedMedia, image_size

_T = TypeVar("_T")

# The maximum length of a text's unfolded beginning, in characters and lines, and the minimum length of a folded rest.
_OPEN: Final = 4_000
_OPEN_LINES: Final = 60
_NOT_FOLDED: Final = 400
# The cost of a hidden character, an element and a table row, in characters.
_SIGN: Final = 20
_ELEMENT: Final = 15
_ROW: Final = 12 * _ELEMENT
# The maximum length of a name.
_NAME: Final = 80
# The number of colors for slots.
_HUES: Final = 8
# Image types without executable content.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# A few bytes may encode an image that is too large for a browser's memory.
_MOST_PIXELS: Final = 40_000_000
# Code points that HTML doesn't allow: lone surrogates, with which a notebook can't be saved, and noncharacters (a block
# of 32, and the last two of each plane).
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
    """Return the HTML view of a value.

    Args:
        value: A flat prompt, a prompt, a message, a budget's report, an answer or a Look.

    Raises:
        TypeError: The value has another type.
    """
    kind = next((_KINDS[kind] for kind in type(value).__mro__ if kind in _KINDS), None)
    if kind is None:
        raise TypeError(f"there is no view of a {type(value).__name__}")
    return _view(kind, value)


def messages_html(given: HistoryLike) -> str:
    """Return the HTML view of a conversation.

    Args:
        given: Messages, as :class:`lazyprompt.Msg` or in any other form of a history.

    Raises:
        HistoryError: The argument is not a history.
    """
    return _view("messages", messages_from(given))


def _view(kind: str, value: object) -> str:
    return _environment().get_template("views.html").render(kind=kind, value=value, room=Room())


class Run(NamedTuple):
    """A run of text with the same style.

    Attributes:
        text: The text.
        look: The CSS classes; empty for plain text.
        title: The tooltip.
        number: The number of the slot, or 0.
    """

    text: str
    look: str = ""
    title: str = ""
    number: int = 0


class Flow(NamedTuple):
    """A text, cut to the room of a view.

    Attributes:
        whole: The length of the text.
        head: The runs that are shown without a click.
        rest: The folded runs.
        more: The length of the folded runs.
        left: The length of the omitted text.
    """

    whole: int
    head: list[Run]
    rest: list[Run]
    more: int
    left: int


@dataclass(slots=True)
class Room:
    """The remaining room of a view, which keeps notebooks small.

    Attributes:
        signs: The remaining characters of text; elements have a cost in characters.
        pictures: The remaining bytes of images.
    """

    signs: int = 200_000
    pictures: int = 2_000_000

    def flow(self, runs: Iterable[Run]) -> Flow:
        """Cut a text into its unfolded beginning, its folded rest, and an omitted part."""
        given = [*runs]
        whole = _length(given)
        fold = _fold("".join(run.text for run in given))
        head = [*self._fitting(_between(given, 0, fold))]
        shown = _length(head)
        rest = [*self._fitting(_between(given, fold, whole))] if shown == fold else []
        more = _length(rest)
        return Flow(whole, head, rest, more, whole - shown - more)

    def fill(self, items: Iterable[_T], macro: Callable[[_T], Markup], cost: int) -> list[Markup]:
        """Render each item with a macro, until there is no more room."""
        shown: list[Markup] = []
        for item in items:
            if self.signs <= 0:
                break
            self.signs -= cost
            shown.append(macro(item))
        return shown

    def rows(self, rows: Sequence[_T]) -> Sequence[_T]:
        """Return as many rows of a table as fit."""
        fitting = rows[: max(self.signs // _ROW, 0)]
        self.signs -= len(fitting) * _ROW
        return fitting

    def picture(self, source: Base64Source) -> dict[str, str] | None:
        """Return the attributes of an image; None if its bytes are not an image, or it is too large."""
        if len(source.data) > self.pictures:
            return None
        try:
            content = a2b_base64(source.data, strict_mode=True)
        except (NoBase64, ValueError):
            return None
        kind = sniff_type(content[:64])
        try:
            size = image_size(CountedMedia("image", data=content)) if kind in _PICTURES else None
        except MissingExtraError:  # an image of unknown size could freeze the page
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


def _length(runs: Iterable[Run]) -> int:
    return sum(len(run.text) for run in runs)


def _fold(text: str) -> int:
    """Return the index at which a text is folded; its end if the rest is short."""
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
    """Yield a text in pieces, with True for each single character that must be escaped."""
    for piece, is_sign in split_hidden(text):
        if is_sign or piece.isascii():
            yield piece, is_sign
        else:
            yield from ((part, at % 2 == 1) for at, part in enumerate(_NO_TEXT.split(piece)) if part)


def _sign(sign: str) -> Markup:
    title = f"{code_point(sign)} {unicode_name(sign, '')}".rstrip()
    return Markup('<span class="lp-sign" title="{}">{}</span>').format(title, code_point(sign))


def _short(text: object) -> str:
    whole = str(text)
    return whole if len(whole) <= _NAME else f"{whole[:_NAME]}…"


def _numbered(slots: Iterable[str]) -> dict[str, int]:
    """Number the slots by first appearance; text outside slots gets 0."""
    names = [slot for slot in dict.fromkeys(slots) if slot != MARKERS]
    return {MARKERS: 0, **{slot: number for number, slot in enumerate(names, 1)}}


def _hue(number: int) -> str:
    return f"lp-slot lp-hue{(number - 1) % _HUES + 1 if number else 0}"


def _runs(segments: Iterable[Segment], numbers: Mapping[str, int], marks: Sequence[Mark] = ()) -> Iterator[Run]:
    """Yield segments as runs of text, with neutralised control sequences marked."""
    is_behind_mark = False
    for (text, slot, trusted), is_mark in split_at_marks(segments, marks):
        look, title = _hue(numbers[slot]), _short(slot)
        if not trusted:
            look, title = f"{look} lp-open", f"{title}, not trusted"
        if is_mark:
            look, title = f"{look} lp-mark", f"{title}; made harmless"
        # Number each occurrence of a slot once.
        yield Run(str(text), look, title, 0 if is_mark or is_behind_mark else numbers[slot])
        is_behind_mark = is_mark


@cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        loader=PackageLoader("lazyprompt.inspect", "views"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[[Any], object]] = {
        "count": "{:,}".format,
        "hue": _hue,
        "joined": Markup().join,
        "json": lambda value: json.dumps(shown(value), ensure_ascii=False, indent=2, default=repr),
        "numbered": _numbered,
        # On one line, with hidden characters escaped.
        "plain": lambda value: _NO_TEXT.sub(lambda sign: code_point(sign[0]), visible(str(value))).replace("\n", " "),
        "repr": repr,
        "run": lambda text: Run(str(text)),
        "segments": lambda text: Rendered(text.parts, text.slots).segments,
        "short": _short,
        # Each hidden character gets its own element.
        "signs": lambda text: Markup().join(_sign(part) if hides else part for part, hides in _pieces(str(text))),
        "tokens": lambda rendered: rendered.tokens(ApproximateTokenCounter()),
    }
    made.filters.update(cast("dict[str, Any]", {**filters, "runs": _runs}))
    return made


Shows: TypeAlias = Callable[[object], str | None]
"""A function that returns the HTML of a value, or None if there is none."""


class Formatter(Protocol):
    """IPython's HTML formatter."""

    def for_type(self, typ: type, func: Shows | None = None, /) -> Shows | None:
        """Register a function for a type, and return the previous one."""
        ...

    def pop(self, typ: type, default: None, /) -> Shows | None:
        """Remove the function of a type, and return it."""
        ...


class Formatters(Protocol):
    """IPython's formatters, by MIME type."""

    @property
    def formatters(self) -> Mapping[str, Formatter]:
        """The formatters."""
        ...


class Shell(Protocol):
    """The used part of IPython's shell."""

    @property
    def display_formatter(self) -> Formatters:
        """The formatters of values."""
        ...


_TYPES: Final = (list, tuple)


@dataclass(frozen=True, slots=True)
class _Conversations:
    """Displays lists of messages, and passes other lists to the previous function."""

    before: Shows | None

    def __call__(self, given: object) -> str | None:
        if is_sequence(given) and given and all(map(_is_message, given)):
            try:
                return messages_html(cast("list[Msg]", [*given]))
            except HistoryError:
                # Dicts with roles that are not messages are displayed like any other list.
                pass
        return self.before(given) if self.before else None


def load_ipython_extension(ipython: Shell) -> None:
    """Display lists and tuples of messages (:class:`lazyprompt.Msg`, or OpenAI dicts) as conversations.

    Args:
        ipython: IPython's shell.
    """
    html = ipython.display_formatter.formatters["text/html"]
    for each in _TYPES:
        html.for_type(each, _Conversations(html.for_type(each)))


def unload_ipython_extension(ipython: Shell) -> None:
    """Restore the display of lists and tuples.

    Args:
        ipython: IPython's shell.
    """
    html = ipython.display_formatter.formatters["text/html"]
    for each in _TYPES:
        ours = html.pop(each, None)
        before = ours.before if isinstance(ours, _Conversations) else ours
        if before is not None:
            html.for_type(each, before)


def _is_message(given: object) -> bool:
    if not is_dict(given):
        return isinstance(given, Msg)
    return given.get("role") in ROLES and ("content" in given or "tool_calls" in given)
