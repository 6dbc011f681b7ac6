"""HTML views of the package's objects for notebooks.

The templates in ``views/`` define the views, and their Jinja environment escapes all output. This module provides
filters that make hidden characters visible, and the class :class:`Room`, which limits the size of a view.

Notebooks display prompts, messages, reports and replies as HTML. To display lists of messages as conversations,
load the extension with ``%load_ext lazyprompt.inspect.notebook``; other lists are not affected. This module never
imports IPython.
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

# Longer texts are folded, unless folding would hide only a few characters.
_OPEN: Final = 4_000
_OPEN_LINES: Final = 60
_NOT_FOLDED: Final = 400
# Each hidden character, HTML element and table row counts as this many characters toward the output limit.
_SIGN: Final = 20
_ELEMENT: Final = 15
_ROW: Final = 12 * _ELEMENT
_NAME: Final = 80
_HUES: Final = 8
# Images of these types can't contain scripts.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# A small image file can contain more pixels than a browser can handle.
_MOST_PIXELS: Final = 40_000_000
# The last two code points of each Unicode plane are noncharacters.
_LAST_OF_PLANES: Final = "".join(f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
# Matches lone surrogates, which prevent saving a notebook, and noncharacters, which HTML doesn't allow.
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
    """Render a value as HTML.

    Args:
        value: The object to display: a ``Rendered``, ``Prompt``, ``Msg``, ``TrimReport``, ``Reply`` or
            :class:`~lazyprompt.inspect.look.Look`.

    Raises:
        TypeError: The value's type is not supported.
    """
    kind = next((_KINDS[kind] for kind in type(value).__mro__ if kind in _KINDS), None)
    if kind is None:
        raise TypeError(f"objects of type {type(value).__name__} have no HTML view")
    return _view(kind, value)


def messages_html(given: HistoryLike) -> str:
    """Render a conversation as HTML.

    Args:
        given: The messages, as :class:`lazyprompt.Msg` objects or in any other history format.

    Raises:
        HistoryError: The argument is not a valid history.
    """
    return _view("messages", messages_from(given))


def _view(kind: str, value: object) -> str:
    return _environment().get_template("views.html").render(kind=kind, value=value, room=Room())


class Run(NamedTuple):
    """A run of text with a single style.

    Attributes:
        text: The text of the run.
        look: The CSS classes of the run; empty for plain text.
        title: The tooltip of the run.
        number: The number of the slot that contains the run, or 0 outside slots.
    """

    text: str
    look: str = ""
    title: str = ""
    number: int = 0


class Flow(NamedTuple):
    """A text that is collapsed and truncated to fit a view.

    Attributes:
        whole: The number of characters in the full text.
        head: The text runs that are always visible.
        rest: The collapsed text runs, which become visible after a click.
        more: The number of characters in the collapsed text runs.
        left: The number of characters omitted at the end of the text.
    """

    whole: int
    head: list[Run]
    rest: list[Run]
    more: int
    left: int


@dataclass(slots=True)
class Room:
    """The numbers of characters and image bytes that a prompt's HTML view may still add to a notebook file.

    Attributes:
        signs: The number of characters that the view may still add; each HTML element counts as several characters.
        pictures: The number of bytes of Base64 image data that the view may still add.
    """

    signs: int = 200_000
    pictures: int = 2_000_000

    def flow(self, runs: Iterable[Run]) -> Flow:
        """Split a text into a visible beginning, a collapsed middle and an omitted end."""
        given = [*runs]
        whole = _length(given)
        fold = _fold("".join(run.text for run in given))
        head = [*self._fitting(_between(given, 0, fold))]
        shown = _length(head)
        rest = [*self._fitting(_between(given, fold, whole))] if shown == fold else []
        more = _length(rest)
        return Flow(whole, head, rest, more, whole - shown - more)

    def fill(self, items: Iterable[_T], macro: Callable[[_T], Markup], cost: int) -> list[Markup]:
        """Render items with a Jinja macro until ``signs`` is used up; each item deducts ``cost`` characters."""
        shown: list[Markup] = []
        for item in items:
            if self.signs <= 0:
                break
            self.signs -= cost
            shown.append(macro(item))
        return shown

    def rows(self, rows: Sequence[_T]) -> Sequence[_T]:
        """Return as many table rows as fit in the remaining space."""
        fitting = rows[: max(self.signs // _ROW, 0)]
        self.signs -= len(fitting) * _ROW
        return fitting

    def picture(self, source: Base64Source) -> dict[str, str] | None:
        """Return an image's HTML attributes, or None if the image is invalid or too large."""
        if len(source.data) > self.pictures:
            return None
        try:
            content = a2b_base64(source.data, strict_mode=True)
        except (NoBase64, ValueError):
            return None
        kind = sniff_type(content[:64])
        try:
            size = image_size(CountedMedia("image", data=content)) if kind in _PICTURES else None
        except MissingExtraError:  # the image may be large enough to freeze the page
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
    """Return the index after which a text is collapsed, or the text's length if the rest is too short to collapse."""
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
    """Split a text, and yield ``(piece, is_sign)`` pairs; ``is_sign`` is True for a single character to escape."""
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
    """Convert segments to runs of text, and highlight neutralised control sequences."""
    is_behind_mark = False
    for (text, slot, trusted), is_mark in split_at_marks(segments, marks):
        look, title = _hue(numbers[slot]), _short(slot)
        if not trusted:
            look, title = f"{look} lp-open", f"{title}, not trusted"
        if is_mark:
            look, title = f"{look} lp-mark", f"{title}; neutralised"
        # Show the slot's number only once per segment.
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
        "plain": lambda value: _NO_TEXT.sub(lambda sign: code_point(sign[0]), visible(str(value))).replace("\n", " "),
        "repr": repr,
        "run": lambda text: Run(str(text)),
        "segments": lambda text: Rendered(text.parts, text.slots).segments,
        "short": _short,
        "signs": lambda text: Markup().join(_sign(part) if hides else part for part, hides in _pieces(str(text))),
        "tokens": lambda rendered: rendered.tokens(ApproximateTokenCounter()),
    }
    made.filters.update(cast("dict[str, Any]", {**filters, "runs": _runs}))
    return made


Shows: TypeAlias = Callable[[object], str | None]
"""A function that renders a value as HTML, or returns None for unsupported values."""


class Formatter(Protocol):
    """IPython's HTML formatter."""

    def for_type(self, typ: type, func: Shows | None = None, /) -> Shows | None:
        """Register a function for a type, and return the previously registered function."""
        ...

    def pop(self, typ: type, default: None, /) -> Shows | None:
        """Remove and return the function registered for a type."""
        ...


class Formatters(Protocol):
    """IPython's formatters, by MIME type."""

    @property
    def formatters(self) -> Mapping[str, Formatter]:
        """The formatters."""
        ...


class Shell(Protocol):
    """The part of IPython's shell that this module uses."""

    @property
    def display_formatter(self) -> Formatters:
        """The formatters for displayed values."""
        ...


_TYPES: Final = (list, tuple)


@dataclass(frozen=True, slots=True)
class _Conversations:
    """A display function for lists of messages, which passes other lists to the previously registered function."""

    before: Shows | None

    def __call__(self, given: object) -> str | None:
        if is_sequence(given) and given and all(map(_is_message, given)):
            try:
                return messages_html(cast("list[Msg]", [*given]))
            except HistoryError:
                # These dicts have roles but are not valid messages, so display the list like any other list.
                pass
        return self.before(given) if self.before else None


def load_ipython_extension(ipython: Shell) -> None:
    """Display lists and tuples of messages (:class:`lazyprompt.Msg` or OpenAI dicts) as conversations.

    Args:
        ipython: IPython's shell.
    """
    html = ipython.display_formatter.formatters["text/html"]
    for each in _TYPES:
        html.for_type(each, _Conversations(html.for_type(each)))


def unload_ipython_extension(ipython: Shell) -> None:
    """Restore the default display of lists and tuples.

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
