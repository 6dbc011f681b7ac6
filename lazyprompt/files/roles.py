"""Sections of a prompt file, each of which begins with a role line such as ``user[name="Ada"]:``.

The parser searches the filled template for role lines, with a placeholder in place of each inserted value. Therefore,
an inserted value can't begin a section or add an attribute. A template can still use a value as a role
(``{{ turn.role }}:``) or as an attribute's value. Lines inside a closed code fence (``` or ~~~) aren't role lines.

Source: the Prompty specification, section 6. Agent definitions allow additional roles, such as ``tool``.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import is_mapping, is_sequence
from lazyprompt.errors import SafetyError, SlotError
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json


PLACE: Final = "\ufdd0"
"""The placeholder for a value: a code point that isn't a character."""


class Scanned:
    """A filled template in which the parser can search for role lines.

    Args:
        parts: The template's literal text and the inserted values, in order.

    Attributes:
        text: The filled template's text, with :data:`PLACE` in place of each value.
    """

    __slots__ = ("_begins", "_parts", "text")

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = [part for part in parts if part or isinstance(part, Value)]
        texts = [PLACE if isinstance(part, Value) else part.replace(PLACE, " ") for part in self._parts]
        self.text = "".join(texts)
        self._begins = [0, *accumulate(map(len, texts))]

    def is_blank(self, begin: int, end: int) -> bool:
        """Return True if the text between two indexes contains only white space."""
        return not self.text[begin:end].strip()

    def value_at(self, at: int) -> Value:
        """Return the inserted value at an index in the text, or literal text as a :class:`Value`."""
        part = self._parts[bisect_right(self._begins, at) - 1]
        return part if isinstance(part, Value) else Value(part)

    def between(self, begin: int, end: int) -> tuple[str, ...]:
        """Return the literal text and the values between two indexes in the text."""
        found: list[str] = []
        index = bisect_right(self._begins, begin) - 1
        while begin < end:
            part, start = self._parts[index], self._begins[index]
            stop = min(end, self._begins[index + 1])
            found.append(part if isinstance(part, Value) else part[begin - start : stop - start])
            begin, index = stop, index + 1
        return tuple(found)


ROLES: Final = ("system", "user", "assistant", "developer")
"""The roles of Prompty v2."""

_ATTRIBUTES = r"\[(?:\w++\s*+=\s*+(?:\"[^\"\n]*+\"|'[^'\n]*+'|[^\"',\]\n]*+)\s*+,?+\s*+)+\]"
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\"',\]]*))")
_FENCE = re.compile(r"^[^\S\n]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
# All characters that any parser treats as a line ending.
_LINE_ENDS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_WORDS = {"true": True, "false": False}


class Section(NamedTuple):
    """A section of a filled template: one role, and the contents below its role line.

    Attributes:
        role: The role in lower case, or ``""`` for the part before the first role line.
        attributes: The attributes of the role line.
        parts: The literal text and the inserted values in the section, in order.
    """

    role: str
    attributes: dict[str, Json]
    parts: tuple[str, ...]


class Boundary(NamedTuple):
    """A line that some parser could read as the start of a section.

    Attributes:
        role: The role that the line begins with.
        line: The text of the line, without surrounding white space.
        begin: The index in the searched text where the line starts.
        end: The index in the searched text after the role and the colon or attribute that follows the role.
    """

    role: str
    line: str
    begin: int
    end: int


def boundaries(text: str, roles: Sequence[str] = ROLES) -> Iterator[Boundary]:
    """Yield the lines that some parser could read as the start of a section.

    This function finds more lines than :func:`role_lines`: text may follow the colon, and any Unicode line
    ending is accepted.

    Args:
        text: Untrusted text to search.
        roles: The role names.
    """
    _, pattern = _patterns(tuple(roles))
    plain = text.replace(PLACE, " ")
    begin = 0
    for line in plain.splitlines(keepends=True):
        # Match beyond the end of the line, because some parsers treat the line ending as white space.
        match = pattern.match(plain, begin)
        if match is not None:
            yield Boundary(match["role"].lower(), line.strip(), begin, match.end())
        begin += len(line)


def sections(parts: Sequence[str], roles: Sequence[str] = ROLES) -> list[Section]:
    """Split a filled template into sections, ignoring blank text before the first section.

    Args:
        parts: The template's literal text and the inserted values, in order.
        roles: The role names.

    Raises:
        SlotError: A value is used as a role but isn't a role name.
    """
    filled = Scanned(parts)
    found: list[Section] = []
    role, attributes, begin, calls = "", dict[str, "Json"](), 0, False

    def end_section(end: int) -> None:
        if role or not filled.is_blank(begin, end):
            found.append(Section(role, attributes, filled.between(begin, end)))

    for match in role_lines(filled, roles):
        # In a tool call's YAML, ``function:`` is a key, not a role.
        if calls and match[0].strip() == "function:":
            continue
        end_section(match.start())
        role = _role(filled, match, roles)
        attributes = _attributes(filled, *match.span("attributes")) if match["attributes"] else {}
        calls = attributes.get("type") == "tool_call" and PLACE not in match["attributes"]
        begin = match.end()
    end_section(len(filled.text))
    return found or [Section("", {}, filled.between(0, len(filled.text)))]


class SectionLayout(NamedTuple):
    """The sections of a template in which values can't begin, end or change a section.

    Attributes:
        sections: The role, attributes and parts of each section. Each part is literal text, or the index of a value in
            the outline that was passed to :func:`layout_of`.
    """

    sections: tuple[tuple[str, dict[str, Json], tuple[str | int, ...]], ...]

    def fill(self, parts: Sequence[str]) -> list[Section]:
        """Return the sections of a filled template.

        Args:
            parts: The filled template's literal text and values, with one item for each item of the outline given to
                :func:`layout_of`.
        """
        return [
            Section(role, {**attributes}, tuple([parts[each] if isinstance(each, int) else each for each in pieces]))
            for role, attributes, pieces in self.sections
        ]


def layout_of(outline: Sequence[str], roles: Sequence[str] = ROLES) -> SectionLayout | None:
    """Return the section layout of a template, or None if a role line contains a value.

    Args:
        outline: The template's literal text and values. Each value is represented by the value's index in this
            sequence.
        roles: The role names.
    """
    if any(PLACE in match[0] for match in role_lines(Scanned(outline), roles)):
        return None
    found = sections(outline, roles)
    placed = [tuple([int(part) if isinstance(part, Value) else part for part in each.parts]) for each in found]
    return SectionLayout(tuple((each.role, each.attributes, parts) for each, parts in zip(found, placed, strict=True)))


def attributes_in(text: str) -> dict[str, Json]:
    """Parse attributes such as ``name="Ada", age=7``; quoted values are text."""
    return _attributes(Scanned([text]), 0, len(text))


def role_lines(filled: Scanned, roles: Sequence[str], *, fenced: bool = False) -> Iterator[re.Match[str]]:
    """Yield the role lines in a filled template.

    Args:
        filled: The filled template.
        roles: The role names.
        fenced: True to yield only the role lines inside code fences; False to yield only the role lines outside code
            fences.
    """
    fences = list(closed_fences(filled.text)) if "```" in filled.text or "~~~" in filled.text else []
    begins = [begin for begin, _ in fences]
    for match in _patterns(tuple(roles))[0].finditer(filled.text):
        if match["role"] == PLACE and not names_role(filled.value_at(match.start("role")).source):
            continue
        before = bisect_left(begins, match.start()) - 1
        if (before >= 0 and match.start() < fences[before][1]) is fenced:
            yield match


def names_role(source: str) -> bool:
    """Return True if a variable's name ends in ``role``. Only variables with such a name can be used as roles."""
    return source.rpartition(".")[2].lower().endswith("role")


def _role(filled: Scanned, match: re.Match[str], roles: Sequence[str]) -> str:
    if match["role"] != PLACE:
        return match["role"].lower()
    value = filled.value_at(match.start("role"))
    role = value.strip().lower()
    if role not in roles:
        raise SlotError(
            f"{value.source} is used as a role, but is {str.__str__(value)!r}; expected one of {', '.join(roles)}"
        )
    return role


def _attributes(filled: Scanned, begin: int, end: int) -> dict[str, Json]:
    """Parse the attributes of a role line; only unquoted values can be numbers or booleans."""
    found: dict[str, Json] = {}
    for each in _ATTRIBUTE.finditer(filled.text, begin, end):
        group = next(number for number in (2, 3, 4) if each[number] is not None)
        text = "".join(filled.between(*each.span(group)))
        bare = group == len(each.groups()) and PLACE not in each[group]
        found[each[1]] = _parse_attribute(text.strip()) if bare else text
    return found


def _parse_attribute(text: str) -> Json:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def closed_fences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of closed code fences."""
    opened, begin = "", 0
    for match in _FENCE.finditer(text):
        fence, behind = match[1], match[2]
        if not opened and fence[0] not in behind:
            opened, begin = fence, match.start()
        elif opened and fence[0] == opened[0] and len(fence) >= len(opened) and not behind.strip():
            yield begin, match.end()
            opened = ""


@lru_cache(maxsize=8)
def _patterns(roles: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern for role lines, and a pattern for lines that some parser could read as role lines."""
    names = "|".join(sorted(roles, key=len, reverse=True))
    line = rf"^[^\S\n]*+#?[^\S\n]*+(?P<role>{names}|{PLACE})(?P<attributes>{_ATTRIBUTES})?[^\S\n]*+:[^\S\n]*+(?:\n|\Z)"
    # Match only the start of the attributes, because attributes may continue on another line.
    rest = r":|\[\w++\s*+=|\[[^\]\n]*+\][^\S\n]*+:"
    boundary = rf"[^\S{_LINE_ENDS}]*+#?[^\S\n]*+(?P<role>{names})[^\S\n]*+(?:{rest})"
    return re.compile(line, re.IGNORECASE | re.MULTILINE), re.compile(boundary, re.IGNORECASE)


@read_only
@dataclass(frozen=True, slots=True)
class TemplateSegment:
    """A segment of a filled template.

    Args:
        kind: ``literal`` for the template's own text, ``interp`` for the value of an expression.
        text: The segment's text.
        source: The name of the input or variable if the expression consists of only this name, or else None.
        strict: True if the value comes from a strict input, which must not contain role lines.
    """

    kind: Literal["literal", "interp"]
    text: str
    source: str | None = None
    strict: bool = False


def check_strict(inputs: Mapping[str, object], strict: Collection[str]) -> None:
    """Raise an error if a strict input contains a role line at any nesting depth.

    Args:
        inputs: All inputs.
        strict: The names of the strict inputs.

    Raises:
        SafetyError: A strict input contains a role line.
    """
    for name in strict:
        for text, where in _texts(inputs.get(name), name):
            line = next(boundaries(text), None)
            if line is not None:
                raise _strict_error(where, line)


def segments_of(
    parts: Sequence[str], strict: Collection[str], inputs: Collection[str], marked: Callable[[Value], str]
) -> list[TemplateSegment]:
    """Convert a filled template to segments.

    Args:
        parts: The template's literal text and the inserted values, in order.
        strict: The names of the strict inputs.
        inputs: The names of all inputs.
        marked: The function that returns a placeholder for a thread or media input.

    Raises:
        SafetyError: The value of a strict input forms a role line with the surrounding text, or changes the sections.
    """
    found: list[TemplateSegment] = []
    # ``spans`` contains the position and input name of each value to check.
    # ``masked`` is the whole text, with each character of those values replaced by x.
    spans: list[tuple[int, int, str]] = []
    masked: list[str] = []
    at = 0
    for part in parts:
        if isinstance(part, Value):
            text = shown = marked(part) if part.held is not None else str.__str__(part)
            found.append(TemplateSegment("interp", text, part.root or None, part.root in strict))
            # Filters and loops hide an input's name, so check values of unknown origin too.
            unknown = part.root not in inputs and not names_role(part.source) and part.held is None
            if part.root in strict or unknown:
                spans.append((at, at + len(text), part.root or "an expression"))
                shown = "x" * len(text) or "x"
        else:
            text = shown = str(part)
            if found and found[-1].kind == "literal":
                found[-1] = TemplateSegment("literal", found[-1].text + text)
            elif text:
                found.append(TemplateSegment("literal", text))
        masked.append(shown)
        at += len(text)
    if strict and spans:
        _check_joints("".join(each.text for each in found), "".join(masked), spans)
    return found


def _check_joints(whole: str, masked: str, spans: Sequence[tuple[int, int, str]]) -> None:
    """Raise an error if a strict input's value may be part of a role line or changes which sections are found."""
    for line in boundaries(whole):
        whose = next((source for begin, end, source in spans if begin < min(line.end, end) and line.begin < end), None)
        if whose is not None:
            where = f"{whose}, with the surrounding text,"
            raise _strict_error(where, line)
    if _roles(whole) != _roles(masked):
        names = ", ".join(dict.fromkeys(source for _, _, source in spans))
        raise SafetyError(
            f"{names}: the value of a strict input changes which lines begin a section, for example because "
            "the value is empty or contains a code fence or a line break"
        )


def _roles(text: str) -> list[str]:
    """Return the roles of a text's role lines, in order."""
    return [line["role"].lower() for line in role_lines(Scanned([text.replace("\r", "\n")]), ROLES)]


def _strict_error(where: str, line: Boundary) -> SafetyError:
    return SafetyError(
        f"{where} is strict, but contains a line that could begin a section with the role {line.role!r}: {line.line!r}"
    )


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Yield each string in a value, with the string's path."""
    if isinstance(value, str):
        yield value, where
    elif is_mapping(value):
        for key, item in value.items():
            yield from _texts(key, where)
            yield from _texts(item, f"{where}.{key}")
    elif is_sequence(value):
        for index, item in enumerate(value):
            yield from _texts(item, f"{where}[{index}]")
