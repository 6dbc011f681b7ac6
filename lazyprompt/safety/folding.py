"""Text as a normalizing tokenizer would read it, and the origins of its characters.

A tokenizer may normalize text before it searches for its tokens. A character that a common normalizer drops or replaces
can disguise a control sequence, so this module follows the normalizers' rules:

- NFKC and NFKD (``nmt_nfkc`` of SentencePiece; NFKC and NFKD of Hugging Face's tokenizers): compatibility characters,
  such as the full-width ``＜``, become plain ones. Text is decomposed, not composed: ``>`` with a stroke over it is one
  character in NFKC and would hide the end of a marker.
- ``BertNormalizer(clean_text=True)`` drops all characters of Unicode's category C (control, format, private,
  unassigned) except tab, newline and carriage return, and U+FFFD. SentencePiece's rule ``nmt`` drops a subset: C0
  except tab, newline, form feed and carriage return, U+007F, U+008F and U+009F.
- ``StripAccents`` drops the combining marks (category M), including variation selectors.
- Unicode's default-ignorable code points belong to these categories too, except the fillers of Hangul.
- White space of category Zs becomes a space (``nmt``, ``BertNormalizer``). A character that one normalizer drops and
  another turns into a space, such as the zero-width space, is dropped.

:mod:`lazyprompt.safety.find` folds case, because it needs both forms.

Sources: https://github.com/google/sentencepiece/blob/master/src/builder.cc (``Builder::BuildNmtNFKCMap``),
https://github.com/huggingface/tokenizers/tree/main/tokenizers/src/normalizers (``bert.rs``, ``strip.rs``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The first characters of nearly all control sequences, each with the characters whose decomposition contains it.
# Searching for a few characters is much faster than decomposing a text. A test compares the table with Unicode's data.
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
# The size of the cache of folded characters.
_MOST_FOLDS = 20_000
# Dropped letters: the decomposed fillers of Hangul, and two characters that were marks before Unicode 12.
_DROPPED_LETTERS = "\u115f\u1160\u1cf2\u1cf3"
_KEPT_CONTROLS = "\t\n\r"
# The dropped ASCII characters.
_ASCII_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# Invisible characters: soft hyphen, joiners, fillers, zero-width and bidirectional characters, tags.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Control characters that are not white space.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
# Characters that look like a space and do not fold to one: the blank of Braille, and SentencePiece's space.
_BLANKS = re.compile("[\u2800\u2581]")


class Folds(dict[int, str]):
    """The folded form of each character by its code point, for ``str.translate``.

    Args:
        fold_character: Function that folds a character.
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
    """Fold text as the common normalizers together would."""
    return text if _is_plain(text) else text.translate(FOLDS)


def _is_plain(text: str) -> bool:
    return text.isascii() and not _ASCII_CONTROLS.search(text)


def decompose(text: str) -> str:
    """Decompose text (NFKD) without its invisible characters; marks on letters stay."""
    return text if text.isascii() else normalize("NFKD", _INVISIBLE.sub("", text))


def as_read(text: str) -> str:
    """Fold text to what a reader sees, without marks on letters, control characters and invisible characters."""
    shown = _CONTROLS.sub("", text)
    if shown.isascii():
        return shown
    return "".join(each for each in decompose(_BLANKS.sub(" ", shown)) if category(each) not in ("Mn", "Me"))


FOLDS, SEEN = Folds(_fold_character), Folds(as_read)


def origins(text: str, places: Iterable[int], folds: Folds = FOLDS) -> Iterator[int]:
    """Yield the index in the original text of each folded character.

    Args:
        text: The original text.
        places: The indices in the folded text, in order.
        folds: The folded form of each character.
    """
    at = folded = 0
    for place in places:
        while folded <= place:
            folded += len(folds[ord(text[at])])
            at += 1
        yield at - 1
