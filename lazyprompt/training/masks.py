"""Masks: text inside an answer that is not trained, selected by patterns or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt._base.patterns import PatternTimeoutError, compile_pattern, find_all
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    import regex

Span: TypeAlias = tuple[int, int]
# A pattern, several patterns, or a function from the text of an answer to the spans to mask.
Mask: TypeAlias = str | Sequence[str] | Callable[[str], Iterable[Span]]


class Masked(NamedTuple):
    """The text that a mask excludes from training.

    Attributes:
        masked: The character ranges in the sample's text, in order; adjacent ranges are merged.
        unmatched: The patterns without a match.
    """

    masked: tuple[Span, ...]
    unmatched: tuple[str, ...]


def find_masked(text: str, answers: Sequence[Span], mask: Mask) -> Masked:
    """Find the text that a mask excludes from training.

    Args:
        text: The text of a sample.
        answers: The trained ranges of the text. The mask is applied to each one separately.
        mask: The mask.

    Raises:
        FormatError: A pattern is invalid or takes too long, or a span is outside of the answer.
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
                raise FormatError(
                    f"the mask returned {span!r} for {length} characters of an answer; expected (start, end)"
                )


def _matches(pattern: regex.Pattern[str], text: str) -> list[Span]:
    try:
        return [match.span() for match in find_all(pattern, text) if match[0]]
    except PatternTimeoutError as error:
        raise FormatError(f"{error}, or give a function as mask") from None


def _compiled(pattern: object) -> regex.Pattern[str]:
    if not isinstance(pattern, str):
        raise FormatError(
            f"a mask is a string, a list of strings or a function; it contains {pattern!r}, so give its .pattern"
        )
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise FormatError(f"the mask's pattern {pattern!r} is not a regular expression: {error}") from error
