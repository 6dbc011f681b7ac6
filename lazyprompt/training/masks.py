"""Masks: patterns or functions that select the parts of a response to exclude from the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt._base.patterns import PatternTimeoutError, compile_pattern, find_all
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    import regex

Span: TypeAlias = tuple[int, int]
# One or more patterns, or a function that maps a response's text to the spans to mask.
Mask: TypeAlias = str | Sequence[str] | Callable[[str], Iterable[Span]]


class Masked(NamedTuple):
    """The text that a mask excludes from the loss.

    Attributes:
        masked: The character ranges in the sample's text, in order; adjacent ranges are merged.
        unmatched: The patterns that don't match any response.
    """

    masked: tuple[Span, ...]
    unmatched: tuple[str, ...]


def find_masked(text: str, answers: Sequence[Span], mask: Mask) -> Masked:
    """Find the text that a mask excludes from the loss.

    Args:
        text: The sample's text.
        answers: The character ranges of the responses in ``text``; the mask is applied to each range separately.
        mask: The mask.

    Raises:
        FormatError: A pattern is invalid or takes too long, or a span is outside the response.
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
                    f"the mask returned {span!r} for a response of {length} characters; expected (start, end)"
                )


def _matches(pattern: regex.Pattern[str], text: str) -> list[Span]:
    try:
        return [match.span() for match in find_all(pattern, text) if match[0]]
    except PatternTimeoutError as error:
        raise FormatError(f"{error}, or use a function as the mask") from None


def _compiled(pattern: object) -> regex.Pattern[str]:
    if not isinstance(pattern, str):
        raise FormatError(
            f"a mask must be a string, a list of strings or a function, not {pattern!r}; for a compiled pattern, "
            "use its .pattern"
        )
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise FormatError(f"the mask's pattern {pattern!r} is not a valid regular expression: {error}") from error
