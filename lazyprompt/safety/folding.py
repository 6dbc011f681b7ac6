"""Text as a normalizing tokenizer would read it, and the places that its characters come from.

A tokenizer may normalize text before it looks for its tokens. Whatever one of the common normalizers drops or replaces
can disguise a control sequence, so the rules here are theirs:

- NFKC and NFKD (``nmt_nfkc`` of SentencePiece; NFKC and NFKD of Hugging Face's tokenizers): compatibility characters
  become plain ones, as the full-width ``＜``. Decomposed, not composed: ``>`` with a stroke over it is one character to
  NFKC and would hide a marker's end.
- ``BertNormalizer(clean_text=True)`` drops all characters of Unicode's category C (control, format, private,
  unassigned) but tab, newline and carriage return, and U+FFFD. SentencePiece's rule ``nmt`` drops a subset: C0 but
  tab, newline, form feed and carriage return, U+007F, U+008F and U+009F.
- ``StripAccents`` drops the combining marks, which are category M; variation selectors are among them.
- Unicode's default-ignorable code points are of these categories too, but for the fillers of Hangul.
- White space of category Zs becomes a space (``nmt``, ``BertNormalizer``). A character that one normalizer drops and
  another one turns into a space, such as the zero-width space, is dropped.

Case is folded in :mod:`lazyprompt.safety.find`, which has to know both forms.

Sources: https://github.com/google/sentencepiece/blob/master/src/builder.cc (``Builder::BuildNmtNFKCMap``),
https://github.com/huggingface/tokenizers/tree/main/tokenizers/src/normalizers (``bert.rs``, ``strip.rs``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The characters that decompose to text with one of these in it: nearly all control sequences begin with one of these.
# Looking for a few characters is much faster than decomposing a text; a test holds the table against Unicode's data.
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
# Keeps the folded forms of so many characters.
_MOST_FOLDS = 20_000
# Letters that are dropped: the fillers of Hangul, decomposed, and two that were marks before Unicode 12.
_DROPPED_LETTERS = "\u115f\u1160\u1cf2\u1cf3"
_KEPT_CONTROLS = "\t\n\r"
# The characters that are dropped from ASCII text.
_ASCII_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# Characters that show nothing: soft hyphen, joiners, fillers, zero-width and bidirectional characters, tags.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Control characters that neither end a line nor move on.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
# Characters that look like a space and do not fold to one: Braille's, and the one that SentencePiece has for a space.
_BLANKS = re.compile("[\u2800\u2581]")


class Folds(dict[int, str]):
    """The folded form of each character, by its code; for ``str.translate``.

    Args:
        fold_character: Folds a character.
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
    """Fold text to what any common normalizer could make of it."""
    return text if _is_plain(text) else text.translate(FOLDS)


def _is_plain(text: str) -> bool:
    return text.isascii() and not _ASCII_CONTROLS.search(text)


def decompose(text: str) -> str:
    """Decompose text (NFKD) without its invisible characters; marks upon letters stay."""
    return text if text.isascii() else normalize("NFKD", _INVISIBLE.sub("", text))


def as_read(text: str) -> str:
    """Fold text to what a reader sees: without marks upon letters, control characters and invisible ones."""
    shown = _CONTROLS.sub("", text)
    if shown.isascii():
        return shown
    return "".join(each for each in decompose(_BLANKS.sub(" ", shown)) if category(each) not in ("Mn", "Me"))


FOLDS, SEEN = Folds(_fold_character), Folds(as_read)


def origins(text: str, places: Iterable[int], folds: Folds = FOLDS) -> Iterator[int]:
    """Find the characters of a text that folded characters come from.

    Args:
        text: The text, before it was folded character by character.
        places: The indices in the folded text, in order.
        folds: The folded form of each character.
    """
    at = folded = 0
    for place in places:
        while folded <= place:
            folded += len(folds[ord(text[at])])
            at += 1
        yield at - 1
