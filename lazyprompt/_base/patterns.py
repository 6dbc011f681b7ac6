"""Regular expressions from files and options, matched with a time limit because a pattern can take exponential time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

SECONDS = 1.0
"""The time limit in seconds for one text, 10,000 times as long as a pattern without nested repetitions takes."""


class PatternTimeoutError(ValueError):
    """An error for a pattern that takes longer than :data:`SECONDS`."""


def compile_pattern(pattern: str, *, multiline: bool = False) -> regex.Pattern[str]:
    """Compile a regular expression.

    Args:
        pattern: The pattern.
        multiline: True if ``^`` and ``$`` match at the start and end of each line.

    Raises:
        ValueError: The pattern is not a valid regular expression.
    """
    import regex  # noqa: PLC0415 - most programs use no custom patterns

    try:
        return regex.compile(pattern, regex.MULTILINE if multiline else 0)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error) or "the pattern is nested too deeply") from error


def find_all(pattern: regex.Pattern[str], text: str) -> list[regex.Match[str]]:
    """Return all matches of a pattern in a text.

    Raises:
        PatternTimeoutError: The search exceeds the time limit.
    """
    try:
        return [*pattern.finditer(text, timeout=SECONDS)]
    except TimeoutError:
        raise _timeout(pattern, text) from None


def find_first(pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
    """Return the first match of a pattern in a text, or None.

    Raises:
        PatternTimeoutError: The search exceeds the time limit.
    """
    try:
        return pattern.search(text, timeout=SECONDS)
    except TimeoutError:
        raise _timeout(pattern, text) from None


def _timeout(pattern: regex.Pattern[str], text: str) -> PatternTimeoutError:
    return PatternTimeoutError(
        f"the pattern {pattern.pattern!r:.200} takes more than {SECONDS:g} s for {len(text):,} characters; rewrite it "
        "without nested repetitions"
    )
