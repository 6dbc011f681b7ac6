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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import SafetyError, SlotError
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lazyprompt._base.json import Json


PLACE: Final = "\ufdd0"
"""What stands for a value: a code point that is no character."""


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
        self.text = "".join(PLACE if isinstance(part, Value) else part.replace(PLACE, " ") for part in self._parts)
        lengths = (1 if isinstance(part, Value) else len(part) for part in self._parts)
        self._begins = [0, *accumulate(lengths)]

    def is_blank(self, begin: int, end: int) -> bool:
        """Whether nothing but white space is between two places."""
        return not self.text[begin:end].strip()

    def value_at(self, at: int) -> Value:
        """The value at a place."""
        part = self._parts[bisect_right(self._begins, at) - 1]
        return part if isinstance(part, Value) else Value(part)

    def between(self, begin: int, end: int) -> tuple[str, ...]:
        """The parts between two places."""
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
# What anybody may take for the end of a line.
_LINE_ENDS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_WORDS = {"true": True, "false": False}


class Section(NamedTuple):
    """A part of a filled template under one role.

    Attributes:
        role: The role, in lower case; ``""`` for what stands before the first line that names one.
        attributes: What the line says beside it.
        parts: What stands below: the template's own text, and values.
    """

    role: str
    attributes: dict[str, Json]
    parts: tuple[str, ...]


class Boundary(NamedTuple):
    """A place where text looks as if it began a section.

    Attributes:
        role: The role.
        line: The line, without white space around it.
        begin: Where the line begins in the text.
        end: Where the name and the colon end.
    """

    role: str
    line: str
    begin: int
    end: int


def boundaries(text: str, roles: Sequence[str] = ROLES) -> Iterator[Boundary]:
    """The places in text where any reader could see a section begin.

    They are more than those where one begins here: text may follow the colon, and a line ends at all that Unicode calls
    an end.

    Args:
        text: Text of anybody.
        roles: The names of roles.
    """
    pattern = _boundary(tuple(roles))
    # Readers take the sign that stands for a value for a blank.
    plain = text.replace(PLACE, " ")
    begin = 0
    for line in plain.splitlines(keepends=True):
        # What ends a line to one reader is a blank to another: the rest of a boundary may stand behind it.
        match = pattern.match(plain, begin)
        if match is not None:
            yield Boundary(match["role"].lower(), line.strip(), begin, match.end())
        begin += len(line)


def sections(parts: Sequence[str], roles: Sequence[str] = ROLES) -> list[Section]:
    """Take a filled template apart by its roles.

    Args:
        parts: The template's own text, and values.
        roles: The names of roles.

    Returns:
        The sections; what stands before the first one is left out if it is blank.

    Raises:
        SlotError: A value stands in the place of a role, and is none.
    """
    filled = Scanned(parts)
    found: list[Section] = []
    role, attributes, begin, calls = "", dict[str, "Json"](), 0, False
    for match in role_lines(filled, roles):
        # Within the YAML of a call, this is a key. A value says of no section that it is a call.
        if calls and match[0].strip() == "function:":
            continue
        if role or not filled.is_blank(begin, match.start()):
            found.append(Section(role, attributes, filled.between(begin, match.start())))
        role = _role(filled, match, roles)
        attributes = _attributes(filled, *match.span("attributes")) if match["attributes"] else {}
        calls = attributes.get("type") == "tool_call" and PLACE not in match["attributes"]
        begin = match.end()
    if role or not filled.is_blank(begin, len(filled.text)) or not found:
        found.append(Section(role, attributes, filled.between(begin, len(filled.text))))
    return found


class Layout(NamedTuple):
    """The sections of a template in which they are the same whatever its values are.

    Attributes:
        sections: Each with its role, its attributes, and its parts: text, or the place of a value in the whole.
    """

    sections: tuple[tuple[str, dict[str, Json], tuple[str | int, ...]], ...]

    def filled(self, parts: Sequence[str]) -> list[Section]:
        """The sections of a filled template.

        Args:
            parts: The template's own text, and values, in as many places as it always has.
        """
        return [
            Section(role, {**attributes}, tuple([parts[each] if isinstance(each, int) else each for each in pieces]))
            for role, attributes, pieces in self.sections
        ]


def layout_of(outline: Sequence[str], roles: Sequence[str] = ROLES) -> Layout | None:
    """Where the sections of a template are, if that is the same whatever is put in.

    Args:
        outline: What the template gives, with each value's place in it as the value.
        roles: The names of roles.

    Returns:
        The layout; None where a value stands in a line that names a role.
    """
    if any(PLACE in match[0] for match in role_lines(Scanned(outline), roles)):
        return None
    return Layout(
        tuple(
            (role, attributes, tuple(int(part) if isinstance(part, Value) else part for part in parts))
            for role, attributes, parts in sections(outline, roles)
        )
    )


def attributes_in(text: str) -> dict[str, Json]:
    """Attributes in text that holds no values, as ``name="Ada", age=7``: in quotes they are text."""
    return _attributes(Scanned([text]), 0, len(text))


def role_lines(filled: Scanned, roles: Sequence[str], *, fenced: bool = False) -> Iterator[re.Match[str]]:
    """The lines that name a role.

    Args:
        filled: A filled template.
        roles: The names of roles.
        fenced: Whether those are meant that stand within a fence, and so are text.
    """
    fences = list(closed_fences(filled.text)) if "```" in filled.text or "~~~" in filled.text else []
    begins = [begin for begin, _ in fences]
    for match in _line(tuple(roles)).finditer(filled.text):
        if match["role"] == PLACE and not names_role(filled.value_at(match.start("role")).source):
            continue
        before = bisect_left(begins, match.start()) - 1
        if (before >= 0 and match.start() < fences[before][1]) is fenced:
            yield match


def names_role(source: str) -> bool:
    """Whether a value is meant to be a role: its name says so. Any other is text, as in ``{{ title }}:``."""
    return source.rpartition(".")[2].lower().endswith("role")


def _role(filled: Scanned, match: re.Match[str], roles: Sequence[str]) -> str:
    """The role that a line names."""
    if match["role"] != PLACE:
        return match["role"].lower()
    value = filled.value_at(match.start("role"))
    role = value.strip().lower()
    if role not in roles:
        known = ", ".join(roles)
        raise SlotError(
            f"{value.source} stands in the place of a role, and is {str.__str__(value)!r}; roles are {known}"
        )
    return role


def _attributes(filled: Scanned, begin: int, end: int) -> dict[str, Json]:
    """The attributes between two places: in quotes they are text, without them also numbers, true and false."""
    found: dict[str, Json] = {}
    for each in _ATTRIBUTE.finditer(filled.text, begin, end):
        group = next(number for number in (2, 3, 4) if each[number] is not None)
        text = "".join(filled.between(*each.span(group)))
        bare = group == len(each.groups()) and PLACE not in each[group]
        found[each[1]] = _typed(text.strip()) if bare else text
    return found


def _typed(text: str) -> Json:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def closed_fences(text: str) -> Iterator[tuple[int, int]]:
    """Where fenced blocks begin and end; one that is not closed is none."""
    opened = ""
    begin = 0
    for match in _FENCE.finditer(text):
        fence, behind = match[1], match[2]
        if not opened:
            # What stands behind the signs is the language; there is none of the signs in it.
            if fence[0] not in behind:
                opened, begin = fence, match.start()
        elif fence[0] == opened[0] and len(fence) >= len(opened) and not behind.strip():
            yield begin, match.end()
            opened = ""


@lru_cache(maxsize=8)
def _line(roles: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(sorted(roles, key=len, reverse=True))
    return re.compile(
        rf"^[^\S\n]*+#?[^\S\n]*+(?P<role>{names}|{PLACE})(?P<attributes>{_ATTRIBUTES})?[^\S\n]*+:[^\S\n]*+(?:\n|\Z)",
        re.IGNORECASE | re.MULTILINE,
    )


@lru_cache(maxsize=8)
def _boundary(roles: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(sorted(roles, key=len, reverse=True))
    # What begins as attributes do counts, wherever they end.
    rest = r":|\[\w++\s*+=|\[[^\]\n]*+\][^\S\n]*+:"
    return re.compile(rf"[^\S{_LINE_ENDS}]*+#?[^\S\n]*+(?P<role>{names})[^\S\n]*+(?:{rest})", re.IGNORECASE)


@read_only
@dataclass(frozen=True, slots=True)
class TemplateSegment:
    """A piece of a filled template.

    Args:
        kind: ``literal`` for the template's own text, ``interp`` for what an expression gave.
        text: The text.
        source: The input, or the variable, that the expression is; None for any other expression, and for own text.
        strict: Whether it is of an input that may hold no line that names a role.
    """

    kind: Literal["literal", "interp"]
    text: str
    source: str | None = None
    strict: bool = False


def check_strict(inputs: Mapping[str, object], strict: Collection[str]) -> None:
    """Refuse inputs that hold a line that names a role.

    Args:
        inputs: All inputs.
        strict: The names of those that are looked at, with all that is in them.

    Raises:
        SafetyError: One does.
    """
    for name in strict:
        for text, where in _texts(inputs.get(name), name):
            line = next(boundaries(text), None)
            if line is not None:
                raise _refused(where, line)


def segments_of(
    parts: Sequence[str], strict: Collection[str], inputs: Collection[str], marked: Callable[[Value], str]
) -> list[TemplateSegment]:
    """A filled template as segments.

    Args:
        parts: The template's own text, and values.
        strict: The inputs that may hold no line that names a role.
        inputs: The names of all inputs.
        marked: What stands for a value that holds something without text.

    Raises:
        SafetyError: A strict value and the text around it are such a line.
    """
    found: list[TemplateSegment] = []
    for part in parts:
        if isinstance(part, Value):
            root = part.root
            text = marked(part) if part.held is not None else str.__str__(part)
            found.append(TemplateSegment("interp", text, root or None, root in strict))
        elif part and found and found[-1].kind == "literal":
            found[-1] = TemplateSegment("literal", found[-1].text + part)
        elif part:
            found.append(TemplateSegment("literal", str(part)))
    if strict:
        _check_joints(found, parts, inputs)
    return found


def _check_joints(segments: Sequence[TemplateSegment], parts: Sequence[str], inputs: Collection[str]) -> None:
    """Refuse a line that names a role where a part of it is of a strict input, or may be."""
    values = [part for part in parts if isinstance(part, Value)]
    spans: list[tuple[int, int, str]] = []
    # The text with words in the place of what is looked at.
    calm: list[str] = []
    at = seen = 0
    for segment in segments:
        text = segment.text
        if segment.kind == "interp":
            value = values[seen]
            seen += 1
            # What a filter or a loop made of an input has lost its name.
            unknown = segment.source not in inputs and not names_role(value.source)
            if segment.strict or (unknown and value.held is None):
                spans.append((at, at + len(text), segment.source or "an expression"))
                text = "x" * len(text) or "x"
        calm.append(text)
        at += len(segment.text)
    if not spans:
        return
    whole = "".join(each.text for each in segments)
    for line in boundaries(whole):
        whose = next((source for begin, end, source in spans if begin < min(line.end, end) and line.begin < end), None)
        if whose is not None:
            raise _refused(f"{whose}, with what stands around it,", line)
    if _roles(whole) != _roles("".join(calm)):
        names = ", ".join(dict.fromkeys(source for _, _, source in spans))
        raise SafetyError(
            f"{names}: a strict input opens or ends a fence, or leaves a line empty, so other lines begin a section"
        )


def _roles(text: str) -> list[str]:
    """The roles of the sections that a reader finds in text."""
    return [line["role"].lower() for line in role_lines(Scanned([text.replace("\r", "\n")]), ROLES)]


def _refused(where: str, line: Boundary) -> SafetyError:
    return SafetyError(
        f"{where} is strict, and holds a line that would begin a section of the role {line.role!r}: {line.line!r}"
    )


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    """All texts in a value, each with its place."""
    if isinstance(value, str):
        yield value, where
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield from _texts(key, where)
            yield from _texts(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("Sequence[object]", value)):
            yield from _texts(item, f"{where}[{index}]")
