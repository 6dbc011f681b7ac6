"""Versions of prompts, as Semantic Versioning 2.0.0 has them, and ranges of them, as ``^1.2``.

Source of the order: semver.org, section 11; of the ranges: the grammar that npm documents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache, total_ordering
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from lazyprompt.errors import PromptFileError

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_MARK = r"[0-9A-Za-z-]++"
_VERSION = re.compile(
    rf"({_NUMBER})(?:\.({_NUMBER})(?:\.({_NUMBER})(?:-({_MARK}(?:\.{_MARK})*))?(?:\+{_MARK}(?:\.{_MARK})*)?)?)?"
)
_BOUND = re.compile(
    rf"(\^|~|>=|<=|>|<|=)?\s*({_NUMBER}|[xX*])(?:\.({_NUMBER}|[xX*])(?:\.({_NUMBER}|[xX*])"
    rf"(?:-({_MARK}(?:\.{_MARK})*))?(?:\+{_MARK}(?:\.{_MARK})*)?)?)?"
)
_PARTS: Final = 3
_RANGES: Final = "1.2.0, 1.x, ^1.2, ~1.2, or bounds with a space between, as >=1 <2"


@total_ordering
@dataclass(frozen=True)
class Version:
    """A version.

    Args:
        numbers: Major, minor and patch.
        pre: What it is before, as ``("rc", "1")``; empty for a release.
    """

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a version.

        Args:
            text: ``1.2.3``, ``1.2.3-rc.1``; numbers that are left out are 0. What stands behind a ``+`` says nothing
                about the order, and is left out.

        Raises:
            PromptFileError: It is none.
        """
        found = _VERSION.fullmatch(text)
        pre = tuple((found[4] or "").split(".")) if found and found[4] else ()
        if found is None or any(_leads(each) for each in pre):
            near = f"; write it without the {text[0]!r}" if text[:1] in ("v", "V") else ""
            raise PromptFileError(f"{text!r} is no version; a version is as 1.2.0 or 2.0.0-rc.1{near}")
        return cls((int(found[1]), int(found[2] or 0), int(found[3] or 0)), pre)

    @cached_property
    def _order(self) -> tuple[object, ...]:
        # Numbers come before words, and what is before a release before it.
        marks = tuple((0, int(each), "") if each.isdigit() else (1 if each else -1, 0, each) for each in self.pre)
        return (self.numbers, not self.pre, marks)

    def __lt__(self, other: object) -> bool:
        return self._order < other._order if isinstance(other, Version) else NotImplemented

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) + ("-" + ".".join(self.pre) if self.pre else "")


def _leads(mark: str) -> bool:
    """Whether a number begins with a 0 that it must not have."""
    return mark.isdigit() and len(mark) > 1 and mark.startswith("0")


_Bound: TypeAlias = tuple[str, Version]
_HOLDS: dict[str, Callable[[Version, Version], bool]] = {
    ">=": lambda given, bound: given >= bound,
    ">": lambda given, bound: given > bound,
    "<=": lambda given, bound: given <= bound,
    "<": lambda given, bound: given < bound,
    "=": lambda given, bound: given == bound,
}


@dataclass(frozen=True, slots=True)
class Range:
    """Which versions are asked for.

    Args:
        text: The range as it is written.
        choices: One of these is to hold, with all of its bounds.
    """

    text: str
    choices: tuple[tuple[_Bound, ...], ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a range.

        Args:
            text: A version, ``1.x``, ``^1.2`` (no change of the first number that is not 0), ``~1.2`` (no change of
                the second), bounds as ``>=1 <2``, or several of these with ``||`` between.

        Raises:
            PromptFileError: It is none.
        """
        return cls(text, _choices(text))

    def holds(self, version: Version) -> bool:
        """Whether a version is in it. One before a release is only where a bound names that same release so."""
        return any(self._all_hold(choice, version) for choice in self.choices)

    @staticmethod
    def _all_hold(choice: tuple[_Bound, ...], version: Version) -> bool:
        named = any(bound.pre and bound.pre != _LOWEST and bound.numbers == version.numbers for _, bound in choice)
        return (not version.pre or named) and all(_HOLDS[sign](version, bound) for sign, bound in choice)


# Before all else of its numbers: what is below 2.0.0 so is not 2.0.0-rc.1.
_LOWEST = ("",)


@lru_cache(maxsize=256)
def _choices(text: str) -> tuple[tuple[_Bound, ...], ...]:
    return tuple(_choice(each, text) for each in text.split("||"))


def _choice(text: str, whole: str) -> tuple[_Bound, ...]:
    bounds: list[_Bound] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _BOUND.match(text, at)
        if found is None or (found.end() < len(text) and not text[found.end()].isspace()):
            break
        bounds += _bounds(found)
        at = found.end() + len(text[found.end() :]) - len(text[found.end() :].lstrip())
    if at < len(text) or not text:
        raise PromptFileError(f"{whole!r} is neither a version nor a range of them; write {_RANGES}")
    return tuple(bounds)


def _bounds(found: re.Match[str]) -> list[_Bound]:
    """What one piece of a range says, as bounds."""
    given: list[int] = []
    for number in found.group(2, 3, 4):
        if number is None or number in "xX*":
            break
        given.append(int(number))
    sign = found[1] or "="
    pre = tuple(found[5].split(".")) if found[5] and len(given) == _PARTS else ()
    if not given:
        # Any version; and none is above or below all.
        return [("<", _version([0], _LOWEST))] if sign in ("<", ">") else [(">=", _version([0]))]
    low, whole = _version(given, pre), len(given) == _PARTS
    fixed = {"^": next((at + 1 for at, number in enumerate(given) if number), len(given)), "~": min(len(given), 2)}
    if sign in fixed or (sign == "=" and not whole):
        return [(">=", low), ("<", _next(given[: fixed.get(sign, len(given))]))]
    if not whole and sign in (">", "<="):
        return [(">=" if sign == ">" else "<", _next(given, () if sign == ">" else _LOWEST))]
    return [(sign, _version(given, _LOWEST) if sign == "<" and not pre else low)]


def _next(given: list[int], pre: tuple[str, ...] = _LOWEST) -> Version:
    """The first version behind all that begin with these numbers."""
    return _version([*given[:-1], given[-1] + 1], pre)


def _version(given: list[int], pre: tuple[str, ...] = ()) -> Version:
    major, minor, patch, *_ = (*given, 0, 0)
    return Version((major, minor, patch), pre)
