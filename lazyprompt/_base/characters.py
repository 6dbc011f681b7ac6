r"""Detection and escaping of invisible characters and control characters.

A control character can move a terminal's cursor, and a direction control can reverse text. Zero-width and tag
characters are invisible. A model reads all of these characters, so every view must display them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Iterator

# Matches invisible characters: Default_Ignorable_Code_Point, separators, U+2800, and controls except \n and \t.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
_JOINER, _NON_JOINER = "\u200d", "\u200c"
# Variation selectors that request text or emoji presentation for the preceding character.
_STYLES = ("\ufe0e", "\ufe0f")
# The flags of England, Scotland and Wales are the only standard emoji that contain tag characters.
_BLACK_FLAG, _TAGS = "\U0001f3f4", 0xE0000
_FLAGS = tuple(
    _BLACK_FLAG + "".join(chr(_TAGS + ord(letter)) for letter in f"{region}\x7f")
    for region in ("gbeng", "gbsct", "gbwls")
)
# Digits and punctuation that a variation selector can follow, as in keycap emoji.
_KEYCAPS = frozenset("0123456789#*")


def find_hidden(text: str) -> Iterator[re.Match[str]]:
    """Find the hidden characters in a text, in order.

    Joiners between letters of a joining script or between emoji, and variation selectors after a symbol, have a visible
    effect, so they don't count as hidden.

    Args:
        text: The text.

    Yields:
        A match for each hidden character.
    """
    return (found for found in _HIDDEN.finditer(text) if not _shapes(text, found.start()))


def visible(text: str) -> str:
    r"""Escape hidden characters in JSON notation, such as ``\u001b``; keep newlines and tabs.

    Args:
        text: The text.
    """
    return _HIDDEN.sub(lambda found: found[0] if _shapes(text, found.start()) else _written(found[0]), text)


def split_hidden(text: str) -> Iterator[tuple[str, bool]]:
    """Split a text into runs of visible text and single hidden characters.

    Args:
        text: The text.

    Yields:
        Pairs: a run of visible text and False, or a hidden character and True.
    """
    done = 0
    for found in find_hidden(text):
        if found.start() > done:
            yield text[done : found.start()], False
        yield found[0], True
        done = found.end()
    if done < len(text):
        yield text[done:], False


def code_point(character: str) -> str:
    """Return a character's code point in the notation ``U+202E``."""
    return f"U+{ord(character):04X}"


def _written(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _shapes(text: str, at: int) -> bool:
    """Return True if the character at an index has a visible effect on its neighbours."""
    character = text[at]
    before = text[at - 1 : at] if at else ""
    if character in _STYLES:
        return before in _KEYCAPS or _is_symbol(before)
    if character not in (_JOINER, _NON_JOINER):
        return character > chr(_TAGS) and _is_in_flag(text, at)
    behind = text[at + 1 : at + 2]
    if _is_letter(before) and _is_letter(behind):
        return True
    return character == _JOINER and (_is_symbol(before) or before in _STYLES) and _is_symbol(behind)


def _is_in_flag(text: str, at: int) -> bool:
    longest = len(_FLAGS[0])
    begin = text.rfind(_BLACK_FLAG, max(at - longest + 1, 0), at)
    return begin >= 0 and text.startswith(_FLAGS, begin)


def _is_letter(character: str) -> bool:
    """Return True for a letter or mark of a script that uses joiners, unlike European and Chinese scripts."""
    return bool(character) and category(character) in ("Lo", "Mn", "Mc") and "\u0600" <= character < "\u2000"


def _is_symbol(character: str) -> bool:
    """Return True for a symbol that may be an emoji, or for a skin tone modifier."""
    return bool(character) and character > "\x7f" and category(character) in ("So", "Sk", "Sm", "Po")
