r"""Signs that a view would obey or not show: found, so that every view can write them out.

A control character moves a terminal's cursor, a direction control turns text around, a zero-width or tag character is
there and nobody sees it. What reads a prompt reads all of them; so does whoever looks at it here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Iterator

# Control characters but newline and tab, separators that lines may break at, and all that Unicode's property
# Default_Ignorable_Code_Point (DerivedCoreProperties.txt) says is not shown, with the two blanks that are no white
# space beside: the annotation controls and the empty sign of Braille.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
_JOINER, _NON_JOINER = "\u200d", "\u200c"
# Whether the sign before is an emoji or plain text; others of the sort change nothing that most fonts show.
_STYLES = ("\ufe0e", "\ufe0f")
# The only flags that are written with tags: England's, Scotland's and Wales's
# (https://www.unicode.org/Public/emoji/latest/emoji-sequences.txt).
_BLACK_FLAG, _TAGS = "\U0001f3f4", 0xE0000
_FLAGS = tuple(
    _BLACK_FLAG + "".join(chr(_TAGS + ord(letter)) for letter in f"{region}\x7f")
    for region in ("gbeng", "gbsct", "gbwls")
)
# Signs with a form for text and one as emoji that are no symbols by their category.
_KEYCAPS = frozenset("0123456789#*")


def hidden(text: str) -> Iterator[re.Match[str]]:
    """Each sign of a text that a view would obey or not show, in order.

    A joiner between letters of a script that joins them, or between emoji, and the sign that makes an emoji of what
    stands before it are seen by what they do: they are not among them.

    Args:
        text: The text.

    Yields:
        A match of one sign.
    """
    return (found for found in _HIDDEN.finditer(text) if not _shapes(text, found.start()))


def visible(text: str) -> str:
    r"""Text with each such sign written out, so that a terminal shows it and never obeys it.

    Args:
        text: Any text.

    Returns:
        The text with ``\u001b`` for an escape and so on, in JSON's own form; newlines and tabs stay.
    """
    return _HIDDEN.sub(lambda found: found[0] if _shapes(text, found.start()) else _written(found[0]), text)


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """A text in pieces: what can be shown as it is, and single signs that have to be written out.

    Args:
        text: The text.

    Yields:
        A piece, and whether it is such a sign; put together they are the text.
    """
    done = 0
    for found in hidden(text):
        if found.start() > done:
            yield text[done : found.start()], False
        yield found[0], True
        done = found.end()
    if done < len(text):
        yield text[done:], False


def named(sign: str) -> str:
    """A sign as Unicode's charts call it: ``U+202E``."""
    return f"U+{ord(sign):04X}"


def _written(sign: str) -> str:
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _shapes(text: str, at: int) -> bool:
    """Return True if the sign at a place shapes its neighbours, which show that it is there."""
    sign = text[at]
    before = text[at - 1 : at] if at else ""
    if sign in _STYLES:
        return before in _KEYCAPS or _is_symbol(before)
    if sign not in (_JOINER, _NON_JOINER):
        return sign > chr(_TAGS) and _is_in_flag(text, at)
    behind = text[at + 1 : at + 2]
    if _is_letter(before) and _is_letter(behind):
        return True
    return sign == _JOINER and (_is_symbol(before) or before in _STYLES) and _is_symbol(behind)


def _is_in_flag(text: str, at: int) -> bool:
    """Return True if a tag is one of a flag's."""
    longest = len(_FLAGS[0])
    begin = text.rfind(_BLACK_FLAG, max(at - longest + 1, 0), at)
    return begin >= 0 and text.startswith(_FLAGS, begin)


def _is_letter(sign: str) -> bool:
    """Return True for a letter, or a mark on one, of a script that may join them: none of Europe's, none of China's."""
    return bool(sign) and category(sign) in ("Lo", "Mn", "Mc") and "\u0600" <= sign < "\u2000"


def _is_symbol(sign: str) -> bool:
    """Return True for a symbol that is or may be an emoji, or the tone of one."""
    return bool(sign) and sign > "\x7f" and category(sign) in ("So", "Sk", "Sm", "Po")
