"""The names of files in a library: ``key[.language][@version]`` followed by a suffix.

A complete file name is, for example, ``support/refund.zh-CN@1.2.0.prompty``.

- The version after ``@`` is written as ``1.2.0``, ``2.0.0-rc.1`` or ``2`` (short for 2.0.0).
- The word after the last dot is a language if it is a BCP 47 tag such as ``zh``, ``pt-BR`` or ``zh_Hant_TW``. Because
  many short words are language codes, a tag without script or region must be one of :data:`LANGUAGES`; write other
  languages with a script or region (``refund.tlh-Latn.prompty``). If the word after the last dot is not a language,
  the word is part of the key: ``refund.v2.prompty``, ``refund.old.prompty``.
- The suffix is ``.prompty``, ``.yaml`` or ``.yml``.
- ``refund.test.yaml`` and ``refund.test.snapshots.yaml`` are tests, not prompts.
- Files and directories whose names begin with a dot or an underscore aren't prompts, but files such as ``_tone.md`` can
  be included.
- Symbolic links to directories aren't followed.

Versions follow Semantic Versioning 2.0.0 (precedence: semver.org, section 11). Ranges such as ``^1.2`` follow npm's
documented grammar.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache, total_ordering
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from lazyprompt.errors import PromptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lazyprompt.files.library.layers import Trace


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
_RANGES: Final = "1.2.0, 1.x, ^1.2, ~1.2, or bounds separated by a space such as >=1 <2"


@total_ordering
@dataclass(frozen=True)
class Version:
    """A semantic version.

    Args:
        numbers: The major, minor and patch numbers.
        pre: The parts of the pre-release, such as ``("rc", "1")``; empty for a release.
    """

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a version.

        Args:
            text: ``1.2.3`` or ``1.2.3-rc.1``. Missing numbers are 0, and build metadata after ``+`` is ignored.

        Raises:
            PromptFileError: The text isn't a version.
        """
        found = _VERSION.fullmatch(text)
        pre = tuple((found[4] or "").split(".")) if found and found[4] else ()
        if found is None or any(each.isdigit() and len(each) > 1 and each.startswith("0") for each in pre):
            near = f"; write it without the {text[0]!r}" if text[:1] in ("v", "V") else ""
            raise PromptFileError(f"invalid version {text!r}; expected something like 1.2.0 or 2.0.0-rc.1{near}")
        return cls((int(found[1]), int(found[2] or 0), int(found[3] or 0)), pre)

    @cached_property
    def _order(self) -> tuple[object, ...]:
        # Numbers in a pre-release sort before words, and a pre-release sorts before its release.
        marks = tuple((0, int(each), "") if each.isdigit() else (1 if each else -1, 0, each) for each in self.pre)
        return (self.numbers, not self.pre, marks)

    def __lt__(self, other: object) -> bool:
        return self._order < other._order if isinstance(other, Version) else NotImplemented

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) + ("-" + ".".join(self.pre) if self.pre else "")


_Bound: TypeAlias = tuple[str, Version]
_HOLDS: dict[str, Callable[[Version, Version], bool]] = {">=": ge, ">": gt, "<=": le, "<": lt, "=": eq}


@dataclass(frozen=True, slots=True)
class Range:
    """A range of versions.

    Args:
        text: The version range as written.
        choices: The alternatives. A version is in the range if the version satisfies all bounds of at least one
            alternative.
    """

    text: str
    choices: tuple[tuple[_Bound, ...], ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a range.

        Args:
            text: A version, ``1.x``, ``^1.2`` (the first non-zero number stays the same), ``~1.2`` (the second number
                stays the same), bounds such as ``>=1 <2``, or several of these separated by ``||``.

        Raises:
            PromptFileError: The text isn't a valid version range.
        """
        return cls(text, _choices(text))

    def holds(self, version: Version) -> bool:
        """Return True if a version matches the range.

        A pre-release matches only if a bound is a pre-release of the same version.
        """
        for choice in self.choices:
            named = any(bound.pre and bound.pre != _LOWEST and bound.numbers == version.numbers for _, bound in choice)
            if (not version.pre or named) and all(_HOLDS[sign](version, bound) for sign, bound in choice):
                return True
        return False


# The lowest possible pre-release. The bound <2.0.0 uses this value to exclude 2.0.0-rc.1.
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
        raise PromptFileError(f"invalid version or range {whole!r}; expected something like {_RANGES}")
    return tuple(bounds)


def _bounds(found: re.Match[str]) -> list[_Bound]:
    """Convert one term of a range, such as ``^1.2``, to bounds."""
    given: list[int] = []
    for number in found.group(2, 3, 4):
        if number is None or number in "xX*":
            break
        given.append(int(number))
    sign = found[1] or "="
    pre = tuple(found[5].split(".")) if found[5] and len(given) == _PARTS else ()
    if not given:
        # A wildcard matches any version, except after < or >, where a wildcard matches no version.
        return [("<", _version([0], _LOWEST))] if sign in ("<", ">") else [(">=", _version([0]))]
    low, whole = _version(given, pre), len(given) == _PARTS
    fixed = {"^": next((at + 1 for at, number in enumerate(given) if number), len(given)), "~": min(len(given), 2)}
    if sign in fixed or (sign == "=" and not whole):
        return [(">=", low), ("<", _next(given[: fixed.get(sign, len(given))]))]
    if not whole and sign in (">", "<="):
        return [(">=" if sign == ">" else "<", _next(given, () if sign == ">" else _LOWEST))]
    return [(sign, _version(given, _LOWEST) if sign == "<" and not pre else low)]


def _next(given: list[int], pre: tuple[str, ...] = _LOWEST) -> Version:
    """Return the lowest version that is higher than every version with the given leading numbers."""
    return _version([*given[:-1], given[-1] + 1], pre)


def _version(given: list[int], pre: tuple[str, ...] = ()) -> Version:
    major, minor, patch, *_ = (*given, 0, 0)
    return Version((major, minor, patch), pre)


SUFFIXES: Final = (".prompty", ".yaml", ".yml")
"""The file name suffixes of prompt files."""

YAML_SUFFIXES: Final = (".yaml", ".yml")
"""The file name suffixes of YAML prompt files."""

# All language codes in ISO 639-1.
_SHORT_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja "
    "jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb "
    "nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq "
    "sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu "
)
# ISO 639-3 codes of common languages without a two-letter code, excluding codes that are also English words.
_LONG_CODES = (
    "apc arn ars ary arz ast bho brx ceb chr ckb cmn crh csb doi dsb fil fur gsw hak haw hil hmn hsb ilo kab kmr kok "
    "lij lmo lus mai mni nan nds nqo nso pap pcm sah sat scn sco sma smj smn sms szl tcy tpi tzm vec wuu yue zgh "
)
LANGUAGES: Final = frozenset((_SHORT_CODES + _LONG_CODES).split())
"""The languages that a file name may contain without a script or region."""

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z]{4})?(?:[-_](?:[A-Za-z]{2}|[0-9]{3}))?(?:[-_][A-Za-z0-9]{5,8})*")
_LONGEST_CODE = 3
_MAX_DEPTH = 20


class LibraryEntry(NamedTuple):
    """A prompt file in a library.

    Attributes:
        key: The prompt's key.
        lang: The language, such as ``zh-CN``, or ``""`` for the default language.
        version: The version in the file name, if any.
        path: The path of the file.
        layer: The directory of the layer that contains the file.
    """

    key: str
    lang: str
    version: Version | None
    path: Path
    layer: Path


def language(tag: str) -> str:
    """Return the canonical spelling of a language tag; for example, ``zh_cn`` becomes ``zh-CN``.

    Raises:
        PromptFileError: The tag is invalid.
    """
    if not _LANGUAGE.fullmatch(tag):
        raise PromptFileError(f"invalid language {tag!r}; expected something like zh, pt-BR or zh-Hant-TW")
    first, *rest = tag.replace("_", "-").split("-")
    made = {2: str.upper, 4: str.title}  # regions have two letters, scripts have four
    return "-".join([first.lower(), *(made.get(len(each), str.lower)(each) for each in rest)])


@lru_cache(maxsize=256)
def fallbacks(lang: str | None) -> tuple[str, ...]:
    """Return the languages to search, in order: zh-Hant-TW, zh-Hant, zh, then the default.

    Raises:
        PromptFileError: The language is invalid.
    """
    parts = language(lang).split("-") if lang else []
    return (*("-".join(parts[:count]) for count in range(len(parts), 0, -1)), "")


def is_test(name: str) -> bool:
    """Return True if a file with this name contains a prompt's tests."""
    return name.rpartition(".")[0].lower().endswith((".test", ".test.snapshots"))


def entry_of(name: str, directory: str, layer: Path) -> LibraryEntry | None:
    """Parse a file name, or return None if the file isn't a prompt.

    Args:
        name: The file name, without directories.
        directory: The directory in the layer, such as ``support/``; ``""`` for the layer's root.
        layer: The directory of the layer.

    Raises:
        PromptFileError: The version is invalid, or the key is missing.
    """
    stem, dot, ending = name.rpartition(".")
    if f"{dot}{ending.lower()}" not in SUFFIXES or name.startswith((".", "_")) or is_test(name):
        return None
    path = layer.joinpath(directory, name)
    own, at, numbers = stem.partition("@")
    try:
        version = Version.read(numbers) if at else None
    except PromptFileError as error:
        raise PromptFileError(f"{path}:1:1: invalid file name; expected key[.language][@version]: {error}") from error
    key, _, tag = own.rpartition(".")
    # A word after a dot is part of the key, unless the word is a language tag.
    is_language = _LANGUAGE.fullmatch(tag) is not None and (len(tag) > _LONGEST_CODE or tag.lower() in LANGUAGES)
    if not key or not is_language:
        key, tag = own, ""
    if not key:
        raise PromptFileError(f"{path}:1:1: invalid file name; expected key[.language][@version], but the key is empty")
    return LibraryEntry(directory + key, language(tag) if tag else "", version, path, layer)


def key_and_version(path: Path, layers: Iterable[Path]) -> tuple[str, str | None]:
    """Return the key and version of a prompt file.

    Args:
        path: The path of the file, which may have any name.
        layers: The directories of a library's layers. The key is relative to the first layer that contains the file, or
            else to the file's own directory.
    """
    layer = next((each for each in layers if path.is_relative_to(each)), None)
    within = "." if layer is None else path.parent.relative_to(layer).as_posix()
    try:
        entry = entry_of(path.name, "" if within == "." else f"{within}/", layer or path.parent)
    except PromptFileError:
        entry = None
    if entry is None:
        return path.stem, None
    return entry.key, None if entry.version is None else str(entry.version)


def entries_in(layer: Path, directory: str, trace: Trace) -> tuple[LibraryEntry, ...]:
    """Return the prompt files in one directory of a library layer.

    Args:
        layer: The root directory of the library layer.
        directory: The directory's path relative to ``layer``, such as ``support/``.
        trace: The record of files that a cached value depends on, to which the directory is added.

    Raises:
        PromptFileError: A file name is invalid, or the directory can't be read.
    """
    place = layer / directory
    trace.file(place)
    try:
        names = sorted(each.name for each in os.scandir(place) if each.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PromptFileError(f"{place}:1:1: the directory cannot be read: {why}") from error
    return tuple(found for name in names if (found := entry_of(name, directory, layer)) is not None)


def directories(layer: Path) -> Iterator[str]:
    """Yield the directories in a layer, such as ``support/``, starting with the root ``""``."""
    for place, names, _ in os.walk(layer):
        within = Path(place).relative_to(layer)
        depth = len(within.parts)
        names[:] = sorted(name for name in names if not name.startswith((".", "_"))) if depth < _MAX_DEPTH else []
        yield f"{within.as_posix()}/" if depth else ""


def visible_files(directory: Path) -> Iterator[Path]:
    """Yield the visible files in a directory tree, sorted by path."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts):
            yield path
