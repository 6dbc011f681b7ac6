"""Folding text to the form that a normalizing tokenizer sees, with a mapping back to the original indices.

A tokenizer may normalize text before it searches the text for special tokens. A character that a common normalizer
drops or replaces can disguise a control sequence, so this module follows the rules of the common normalizers.

- NFKC and NFKD (``nmt_nfkc`` in SentencePiece; NFKC and NFKD in Hugging Face's tokenizers) replace compatibility
  characters, such as the full-width ``＜``, with plain characters. This module decomposes text without composing it,
  because NFKC would combine ``>`` and a stroke into one character and hide the end of a marker.

- ``BertNormalizer(clean_text=True)`` drops U+FFFD and all characters in Unicode's category C (control, format, private,
  unassigned), except tab, newline and carriage return. SentencePiece's rule ``nmt`` only drops U+007F, U+008F, U+009F
  and the C0 controls, except tab, newline, form feed and carriage return.

- ``StripAccents`` drops the combining marks (category M), including variation selectors.

- Unicode's default-ignorable code points also belong to these categories, except the Hangul fillers, which are dropped
  separately.

- White space in category Zs becomes a space (``nmt``, ``BertNormalizer``). A character that one normalizer drops and
  another converts to a space, such as the zero-width space, is dropped.

This module doesn't fold case; :mod:`lazyprompt.safety.find` does, because it also needs the original case.

Sources: https://github.com/google/sentencepiece/blob/master/src/builder.cc (``Builder::BuildNmtNFKCMap``),
https://github.com/huggingface/tokenizers/tree/main/tokenizers/src/normalizers (``bert.rs``, ``strip.rs``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Maps each common first character of a control sequence to the characters whose Unicode decomposition contains it.
# Searching for these few characters is much faster than decomposing the text.
DISGUISES = {
    "<": "\u226e\ufe64\uff1c",
    "[": "\ufe47\uff3b",
    "]": "\ufe48\uff3d",
    "#": "\ufe5f\uff03",
    "{": "\ufe37\ufe5b\uff5b",
    "|": "\uff5c",
    "=": "\u207c\u208c\u2260\u2a74\u2a75\u2a76\ufe66\uff1d",
    "\u273f": "",
}
# The maximum number of entries in the fold cache.
_MOST_FOLDS = 20_000
# Letters that folding drops: decomposed Hangul fillers, and two letters that Unicode 11 classifies as marks.
_DROPPED_LETTERS = "\u115f\u1160\u1cf2\u1cf3"
_KEPT_CONTROLS = "\t\n\r"
_ASCII_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# Invisible characters: soft hyphen, joiners, fillers, zero-width and bidirectional characters, and tag characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
# Characters that look like spaces but don't fold to a space: the blank Braille pattern and SentencePiece's space.
_BLANKS = re.compile("[\u2800\u2581]")


class Folds(dict[int, str]):
    """A cached table from code points to folded characters, for ``str.translate``.

    Args:
        fold_character: The function that folds a single character.
    """

    def __init__(self, fold_character: Callable[[str], str]) -> None:
        super().__init__()
        self._fold_character = fold_character

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST_FOLDS:
            self.clear()
        folded = self[code] = self._fold_character(chr(code))
        return folded


def _fold_character(character: str) -> str:
    decomposed = " " if category(character) == "Zs" else normalize("NFKD", character)
    return "".join(each for each in decomposed if not _is_dropped(each))


def _is_dropped(character: str) -> bool:
    if character in _KEPT_CONTROLS:
        return False
    return category(character)[0] in "CM" or character in _DROPPED_LETTERS or character == "\ufffd"


def fold(text: str) -> str:
    """Fold text by applying the rules of all common normalizers."""
    return text if _is_plain(text) else text.translate(FOLDS)


def _is_plain(text: str) -> bool:
    return text.isascii() and not _ASCII_CONTROLS.search(text)


def decompose(text: str) -> str:
    """Remove invisible characters from text and decompose the rest (NFKD), keeping combining marks."""
    return text if text.isascii() else normalize("NFKD", _INVISIBLE.sub("", text))


def as_read(text: str) -> str:
    """Reduce text to visible base characters: remove combining marks, control characters and invisible characters."""
    shown = _CONTROLS.sub("", text)
    if shown.isascii():
        return shown
    return "".join(each for each in decompose(_BLANKS.sub(" ", shown)) if category(each) not in ("Mn", "Me"))


FOLDS, SEEN = Folds(_fold_character), Folds(as_read)


def origins(text: str, places: Iterable[int], folds: Folds = FOLDS) -> Iterator[int]:
    """Convert indices in folded text to indices in the original text.

    Args:
        text: The original text.
        places: The indices in the folded text, in increasing order.
        folds: The table that was used to fold the text.
    """
    at = folded = 0
    for place in places:
        while folded <= place:
            folded += len(folds[ord(text[at])])
            at += 1
        yield at - 1
