"""Sections of a prompt file, by the lines that name a role: ``user[name="Ada"]:``.

They are found in the template's own text after it was filled: a value is one character there, whatever it holds. So no
value can begin a section, or add an attribute to one; where the template itself writes a value in the place of a role
(``{{ turn.role }}:``) or of an attribute's text, it stands there and no further.
Within a fence (``` or ~~~) that is closed again, a line is no such line.

Source of the lines' form: Prompty's specification, section 6; roles of its own has the dialect of agent definitions.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import SafetyError, SlotError
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from lazyprompt._base.json import Json


PLACE: Final = "\ufdd0"
"""The code point that stands for a value, which is no character."""


class Scanned:
    """A filled template to be searched.

    Args:
        parts: The template's own text, and values.

    Attributes:
        text: The text, with :data:`PLACE` for each value.
    """

    __slots__ = ("_begins", "_parts", "text")

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = [part for part in parts if part or isinstance(part, Value)]
        texts = [PLACE if isinstance(part, Value) else part.replace(PLACE, " ") for part in self._parts]
        self.text = "".join(texts)
        self._begins = [0, *accumulate(map(len, texts))]

    def is_blank(self, begin: int, end: int) -> bool:
        """Return True if nothing but white space is between two places."""
        return not self.text[begin:end].strip()

    def value_at(self, at: int) -> Value:
        """Return the value at a place."""
        part = self._parts[bisect_right(self._begins, at) - 1]
        return part if isinstance(part, Value) else Value(part)

    def between(self, begin: int, end: int) -> tuple[str, ...]:
        """Return the parts between two places."""
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
# The characters that any reader may take for the end of a line.
_LINE_ENDS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_WORDS = {"true": True, "false": False}


class Section(NamedTuple):
    """A part of a filled template under one role.

    Attributes:
        role: The role, in lower case; ``""`` before the first line that names one.
        attributes: The attributes in that line.
        parts: The contents: the template's own text, and values.
    """

    role: str
    attributes: dict[str, Json]
    parts: tuple[str, ...]


class Boundary(NamedTuple):
    """A place where text looks as if it began a section.

    Attributes:
        role: The role.
        line: The line, without white space around it.
        begin: The beginning of the line in the text.
        end: The end of the name and the colon.
    """

    role: str
    line: str
    begin: int
    end: int


def boundaries(text: str, roles: Sequence[str] = ROLES) -> Iterator[Boundary]:
    """Find the places in text where any reader could see a section begin.

    They are more than those where one begins here: text may follow the colon, and a line ends at all that Unicode calls
    an end.

    Args:
        text: Text of anybody.
        roles: The names of roles.
    """
    _, pattern = _patterns(tuple(roles))
    # Readers take the character that stands for a value for a blank.
    plain = text.replace(PLACE, " ")
    begin = 0
    for line in plain.splitlines(keepends=True):
        # The end of a line to one reader is a blank to another: the rest of a boundary may stand behind it.
        match = pattern.match(plain, begin)
        if match is not None:
            yield Boundary(match["role"].lower(), line.strip(), begin, match.end())
        begin += len(line)


def sections(parts: Sequence[str], roles: Sequence[str] = ROLES) -> list[Section]:
    """Take a filled template apart by its roles; blank text before the first one is left out.

    Args:
        parts: The template's own text, and values.
        roles: The names of roles.

    Raises:
        SlotError: A value stands in the place of a role, and is none.
    """
    filled = Scanned(parts)
    found: list[Section] = []
    role, attributes, begin, calls = "", dict[str, "Json"](), 0, False

    def end_section(end: int) -> None:
        if role or not filled.is_blank(begin, end):
            found.append(Section(role, attributes, filled.between(begin, end)))

    for match in role_lines(filled, roles):
        # Within the YAML of a call, this is a key. A value makes no section one of calls.
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
    """The sections of a template in which they are the same whatever its values are.

    Attributes:
        sections: Each with its role, its attributes, and its parts: text, or the place of a value in the whole.
    """

    sections: tuple[tuple[str, dict[str, Json], tuple[str | int, ...]], ...]

    def fill(self, parts: Sequence[str]) -> list[Section]:
        """Return the sections of a filled template.

        Args:
            parts: The template's own text, and values, in as many places as it always has.
        """
        return [
            Section(role, {**attributes}, tuple([parts[each] if isinstance(each, int) else each for each in pieces]))
            for role, attributes, pieces in self.sections
        ]


def layout_of(outline: Sequence[str], roles: Sequence[str] = ROLES) -> SectionLayout | None:
    """Return the sections of a template, or None if a value in a line that names a role could change them.

    Args:
        outline: The template with each value's place in it as the value.
        roles: The names of roles.
    """
    if any(PLACE in match[0] for match in role_lines(Scanned(outline), roles)):
        return None
    found = sections(outline, roles)
    placed = [tuple([int(part) if isinstance(part, Value) else part for part in each.parts]) for each in found]
    return SectionLayout(tuple((each.role, each.attributes, parts) for each, parts in zip(found, placed, strict=True)))


def attributes_in(text: str) -> dict[str, Json]:
    """Return the attributes in text that holds no values, as ``name="Ada", age=7``: in quotes they are text."""
    return _attributes(Scanned([text]), 0, len(text))


def role_lines(filled: Scanned, roles: Sequence[str], *, fenced: bool = False) -> Iterator[re.Match[str]]:
    """Find the lines that name a role.

    Args:
        filled: A filled template.
        roles: The names of roles.
        fenced: True for those that stand within a fence, and so are text.
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
    """Return True if the name of a value says that it is a role. Any other is text, as in ``{{ title }}:``."""
    return source.rpartition(".")[2].lower().endswith("role")


def _role(filled: Scanned, match: re.Match[str], roles: Sequence[str]) -> str:
    if match["role"] != PLACE:
        return match["role"].lower()
    value = filled.value_at(match.start("role"))
    role = value.strip().lower()
    if role not in roles:
        given = f"{value.source} stands in the place of a role, and is {str.__str__(value)!r}"
        raise SlotError(f"{given}; roles are {', '.join(roles)}")
    return role


def _attributes(filled: Scanned, begin: int, end: int) -> dict[str, Json]:
    """Return the attributes between two places: in quotes they are text, else also numbers, true and false."""
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
    """Find the beginnings and ends of fenced blocks; one that is not closed is none."""
    opened, begin = "", 0
    for match in _FENCE.finditer(text):
        fence, behind = match[1], match[2]
        if not opened and fence[0] not in behind:  # the language stands behind the characters, and has none of them
            opened, begin = fence, match.start()
        elif opened and fence[0] == opened[0] and len(fence) >= len(opened) and not behind.strip():
            yield begin, match.end()
            opened = ""


@lru_cache(maxsize=8)
def _patterns(roles: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a line that names a role, and of one that any reader could take for such."""
    names = "|".join(sorted(roles, key=len, reverse=True))
    line = rf"^[^\S\n]*+#?[^\S\n]*+(?P<role>{names}|{PLACE})(?P<attributes>{_ATTRIBUTES})?[^\S\n]*+:[^\S\n]*+(?:\n|\Z)"
    # The beginning of attributes counts, wherever they end.
    rest = r":|\[\w++\s*+=|\[[^\]\n]*+\][^\S\n]*+:"
    boundary = rf"[^\S{_LINE_ENDS}]*+#?[^\S\n]*+(?P<role>{names})[^\S\n]*+(?:{rest})"
    return re.compile(line, re.IGNORECASE | re.MULTILINE), re.compile(boundary, re.IGNORECASE)


@read_only
@dataclass(frozen=True, slots=True)
class TemplateSegment:
    """A piece of a filled template.

    Args:
        kind: ``literal`` for the template's own text, ``interp`` for the value of an expression.
        text: The text.
        source: The input, or the variable, that the expression is; None for any other expression, and for own text.
        strict: True if it is of an input that may hold no line that names a role.
    """

    kind: Literal["literal", "interp"]
    text: str
    source: str | None = None
    strict: bool = False


def check_strict(inputs: Mapping[str, object], strict: Collection[str]) -> None:
    """Refuse inputs that hold a line that names a role.

    Args:
        inputs: All inputs.
        strict: The names of those that are looked at, at any depth.

    Raises:
        SafetyError: One does.
    """
    for name in strict:
        for text, where in _texts(inputs.get(name), name):
            line = next(boundaries(text), None)
            if line is not None:
                raise _strict_error(where, line)


def segments_of(
    parts: Sequence[str], strict: Collection[str], inputs: Collection[str], marked: Callable[[Value], str]
) -> list[TemplateSegment]:
    """Return a filled template as segments.

    Args:
        parts: The template's own text, and values.
        strict: The inputs that may hold no line that names a role.
        inputs: The names of all inputs.
        marked: Gives the text of a value that holds something without text.

    Raises:
        SafetyError: A strict value and the text around it are such a line.
    """
    found: list[TemplateSegment] = []
    # The values that are looked at, in the whole text; and the text with words in their place.
    spans: list[tuple[int, int, str]] = []
    calm: list[str] = []
    at = 0
    for part in parts:
        if isinstance(part, Value):
            text = shown = marked(part) if part.held is not None else str.__str__(part)
            found.append(TemplateSegment("interp", text, part.root or None, part.root in strict))
            # A filter or a loop takes the name of an input away.
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
        calm.append(shown)
        at += len(text)
    if strict and spans:
        _check_joints("".join(each.text for each in found), "".join(calm), spans)
    return found


def _check_joints(whole: str, calm: str, spans: Sequence[tuple[int, int, str]]) -> None:
    """Refuse a line that names a role where a part of it is of a strict input, or may be."""
    for line in boundaries(whole):
        whose = next((source for begin, end, source in spans if begin < min(line.end, end) and line.begin < end), None)
        if whose is not None:
            raise _strict_error(f"{whose}, with what stands around it,", line)
    if _roles(whole) != _roles(calm):
        names = ", ".join(dict.fromkeys(source for _, _, source in spans))
        raise SafetyError(
            f"{names}: a strict input opens or ends a fence, or leaves a line empty, so other lines begin a section"
        )


def _roles(text: str) -> list[str]:
    """Return the roles of the sections that a reader finds in text."""
    return [line["role"].lower() for line in role_lines(Scanned([text.replace("\r", "\n")]), ROLES)]


def _strict_error(where: str, line: Boundary) -> SafetyError:
    return SafetyError(
        f"{where} is strict, and holds a line that would begin a section of the role {line.role!r}: {line.line!r}"
    )


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Find all texts in a value, each with its place."""
    if isinstance(value, str):
        yield value, where
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield from _texts(key, where)
            yield from _texts(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("Sequence[object]", value)):
            yield from _texts(item, f"{where}[{index}]")
