r"""Control sequences in untrusted text: found, neutralised, refused or left.

A control sequence is whatever a model, or its engine, reads as structure: a marker of its family, a special token, a
thinking or tool tag, or a section header that the developer's own template has. In trusted text it is what the
developer meant. In untrusted text it would open a turn, a role or a tool that nobody gave.

It is neutralised with a backslash behind its first sign: ``<|im_end|>`` becomes ``<\|im_end|>``. No tokenizer knows
that form, no Unicode normalisation folds it back, and a reader still sees what was written. Inside JSON the first sign
becomes JSON's own escape (``\u003c``), so that the value stays the same value.

Where a text stands decides, not what it says: only a sequence that reaches into untrusted text is touched, also one
that begins in the template and ends in a value.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from unicodedata import normalize

from lazyprompt._json import JsonText
from lazyprompt.errors import SafetyError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Safety: TypeAlias = Literal["neutralize", "raise", "off"]
SAFETIES: tuple[Safety, ...] = get_args(Safety)

# Tags that chat templates and engines of many families read as structure, whichever markers the family has.
COMMON_TAGS = frozenset(
    f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response", "tools") for slash in ("", "/")
)

# The form of nearly all reserved tokens, <|name|>; a tokenizer may have more of them than its template uses.
_NAME = r"[^<>|\s\\]{1,64}"
_RESERVED = rf"<\|{_NAME}\|>"
# How a reserved token may begin, end or go on in a trusted text whose neighbours are values.
_RESERVED_ACROSS = re.compile(rf"<(?:\|(?:{_NAME}\|?)?)?\Z|\A(?:>|\|>|\|?{_NAME}\|>)|\A\|?(?:{_NAME})?\|?\Z")

# Signs that do not show and that a normaliser may drop: soft hyphen, joiners, zero-width and bidirectional signs, tags.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
# Where Unicode keeps full-width, small and vertical forms of ASCII signs.
_WIDE = "".join(map(chr, (*range(0xFE10, 0xFE70), *range(0xFF01, 0xFF5F))))

_LINE_START = "(?:(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029])|\\A)[ \t]*"
_HEADER = re.compile(r"^[ \t]*(#{2,}[ \t]+\S.*?)[ \t]*$", re.MULTILINE)


class Controls:
    """A set of control sequences, compiled.

    Args:
        sequences: The sequences, as they are written.
        headers: Section headers that are structure at the start of a line, as ``### Response:``.
        reserved: Whether anything of the form ``<|name|>`` counts.
    """

    __slots__ = ("_pattern", "_reserved", "_searches", "_texts")

    def __init__(self, sequences: Iterable[str], headers: Iterable[str] = (), *, reserved: bool = True) -> None:
        # The longest first, so that of two sequences with one beginning the whole one is found.
        plain = _longest_first(sequences)
        headers = _longest_first(headers)
        self._reserved = reserved
        self._texts = plain + [text.lower() for text in headers]
        anywhere = [(text[0], re.escape(text)) for text in plain]
        anywhere += [("<", _RESERVED)] if reserved else []
        at_line_start = [("#", f"(?i:{re.escape(text)})") for text in headers]
        self._pattern = re.compile(
            "|".join([pattern for _, pattern in anywhere] + [_LINE_START + pattern for _, pattern in at_line_start])
        )
        # Looking for one sign costs a thirtieth of a search: text without any first sign is clean at once. Values are
        # looked at joined, where a line's start is not to be seen, so a header anywhere counts.
        by_sign: dict[str, list[str]] = {}
        for sign, pattern in anywhere + at_line_start:
            by_sign.setdefault(sign, []).append(pattern)
        self._searches = [
            (sign, _wide_forms(sign), re.compile("|".join(patterns)).search) for sign, patterns in by_sign.items()
        ]

    def clean(self, text: str) -> bool:
        """Whether a text surely holds no control sequence, in plain or in disguise."""
        if text.isascii():
            for sign, _, search in self._searches:  # noqa: SIM110 - a generator would cost as much as the look itself
                if sign in text and search(text):
                    return False
            return True
        return not any(
            (sign in text or not wide_forms or any(form in text for form in wide_forms)) and search(_fold(text))
            for sign, wide_forms, search in self._searches
        )

    def may_cross(self, literal: str) -> bool:
        """Whether a control sequence could lie partly in this trusted text and partly in a value beside it."""
        text = _fold(literal)
        lower = text.lower()
        return bool(text) and (
            (self._reserved and _RESERVED_ACROSS.search(text) is not None)
            or any(
                (lower in known and lower != known)
                or any(lower.endswith(known[:cut]) or lower.startswith(known[cut:]) for cut in range(1, len(known)))
                for known in map(str.lower, self._texts)
            )
        )

    def guard(self, parts: Sequence[str], slots: Sequence[str], safety: Safety) -> list[str]:
        """The parts with every control sequence that reaches into untrusted text neutralised.

        Args:
            parts: Trusted and untrusted text in turn.
            slots: The slot of each part, for the error.
            safety: ``neutralize`` or ``raise`` (``off`` never comes here).

        Returns:
            New parts of the same number.

        Raises:
            SafetyError: There is one, and ``safety`` is ``raise``.
        """
        guarded = list(parts)
        while forged := self._forged(guarded):
            if safety == "raise":
                index, _, found = forged[0]
                raise SafetyError(
                    f"{slots[index]!r} holds the control sequence {found!r}; "
                    'take it out, or use safety="neutralize" to make it harmless'
                )
            # From the end, so that the earlier places stay right.
            for index, at, _ in reversed(forged):
                guarded[index] = _defuse(guarded[index], at)
        return guarded

    def _forged(self, parts: Sequence[str]) -> list[tuple[int, int, str]]:
        """Where each sequence that reaches into untrusted text has to be broken: part, index in it, the sequence."""
        whole = "".join(parts)
        folded, places = _fold_with_places(whole)
        starts = list(accumulate(map(len, parts), initial=0))
        forged: list[tuple[int, int, str]] = []
        for match in self._pattern.finditer(folded):
            sequence = match[0].lstrip(" \t")
            begin, end = places[match.end() - len(sequence)], places[match.end() - 1] + 1
            first = bisect_right(starts, begin) - 1
            for index in range(first, bisect_left(starts, end)):
                if index % 2 and parts[index]:
                    # Behind the first sign, or before the first one that a value adds to what the template began.
                    at = begin + 1 - starts[index] if index == first else 0
                    forged.append((index, at, whole[begin:end]))
                    break
        return forged


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(set(map(_fold, texts)), key=lambda text: (-len(text), text))


def _defuse(text: str, at: int) -> str:
    """Text whose control sequence is broken at an index."""
    if isinstance(text, JsonText):
        sign = max(at - 1, 0)
        return JsonText(f"{text[:sign]}\\u{ord(text[sign]):04x}{text[sign + 1 :]}")
    return f"{text[:at]}\\{text[at:]}"


def _fold(text: str) -> str:
    """Text as a normalising tokenizer would see it: full-width signs narrow, invisible ones gone.

    Decomposed (NFKD), not composed: ``>`` with a stroke over it is one sign to NFKC, and would hide a marker's end.
    """
    return text if text.isascii() else normalize("NFKD", _INVISIBLE.sub("", text))


def _fold_with_places(text: str) -> tuple[str, Sequence[int]]:
    """Folded text, and for each of its signs the index it had in the text."""
    if text.isascii():
        return text, range(len(text))
    signs: list[str] = []
    places: list[int] = []
    for place, sign in enumerate(text):
        folded = sign if sign.isascii() else _fold(sign)
        signs.append(folded)
        places += [place] * len(folded)
    return "".join(signs), places


@lru_cache(maxsize=128)
def _wide_forms(sign: str) -> tuple[str, ...]:
    """The other signs that normalisation turns into this one; none for letters, which have too many."""
    return () if sign.isalnum() else tuple(form for form in _WIDE if normalize("NFKD", form) == sign)


@lru_cache(maxsize=64)
def controls_for(sequences: frozenset[str], headers: frozenset[str], *, reserved: bool = True) -> Controls:
    """The compiled set of control sequences, made once for each of the last 64 sets."""
    return Controls(sequences, headers, reserved=reserved)


def headers_in(text: str) -> list[str]:
    """The section headers (``## …`` and deeper) of a trusted text, each of which is structure there."""
    return _HEADER.findall(text)


def checked_safety(safety: str) -> Safety:
    """A safety policy, checked.

    Raises:
        SafetyError: There is no such policy.
    """
    for known in SAFETIES:
        if safety == known:
            return known
    raise SafetyError(
        f"safety {safety!r} is unknown; known are {', '.join(SAFETIES)}{did_you_mean(str(safety), SAFETIES)}"
    )
