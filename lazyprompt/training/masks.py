"""Masks: text inside an answer that is not trained, found by patterns or by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt._base.patterns import PatternTimeoutError, compile_pattern, find_all
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    import regex

Span: TypeAlias = tuple[int, int]
# A pattern, several, or a function that is given the text of an answer and gives spans of it.
Mask: TypeAlias = str | Sequence[str] | Callable[[str], Iterable[Span]]


class Masked(NamedTuple):
    """Text that a mask leaves out.

    Attributes:
        masked: The ranges of characters in the sample's text, in order; neighbours are one range.
        unmatched: The patterns that match nowhere.
    """

    masked: tuple[Span, ...]
    unmatched: tuple[str, ...]


def find_masked(text: str, answers: Sequence[Span], mask: Mask) -> Masked:
    """Find the text that a mask leaves out.

    Args:
        text: The text of a sample.
        answers: The ranges of it that are trained; each is looked at by itself.
        mask: The mask.

    Raises:
        FormatError: A pattern is no regular expression or takes too long, or a span is no range of the answer.
    """
    found: list[Span] = []
    unmatched: list[str] = []
    if callable(mask):
        for start, end in answers:
            found += [(start + first, start + last) for first, last in _checked(mask(text[start:end]), end - start)]
    else:
        for pattern in [mask] if isinstance(mask, str) else mask:
            compiled = _compiled(pattern)
            spans = [
                (start + first, start + last)
                for start, end in answers
                for first, last in _matches(compiled, text[start:end])
            ]
            found += spans
            if not spans:
                unmatched.append(pattern)
    joined: list[Span] = []
    for span in sorted(found):
        if joined and span[0] <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], span[1])
        else:
            joined.append(span)
    return Masked(tuple(joined), tuple(unmatched))


def _checked(spans: Iterable[Any], length: int) -> Iterable[Span]:
    for span in spans:
        match span:
            case (int(start), int(end)) if 0 <= start <= end <= length:
                if start < end:
                    yield start, end
            case _:
                raise FormatError(f"the mask gave {span!r} for an answer of {length} characters; expected (start, end)")


def _matches(pattern: regex.Pattern[str], text: str) -> list[Span]:
    try:
        return [match.span() for match in find_all(pattern, text) if match[0]]
    except PatternTimeoutError as error:
        raise FormatError(f"{error}, or give a function as mask") from None


def _compiled(pattern: object) -> regex.Pattern[str]:
    if not isinstance(pattern, str):
        raise FormatError(f"a mask is text, a list of texts or a function, but holds {pattern!r}; give its .pattern")
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise FormatError(f"the mask's pattern {pattern!r} is no regular expression: {error}") from error
