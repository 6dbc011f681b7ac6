"""A filled template as segments, which tell whose text is whose; and inputs that may hold no line that names a role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import SafetyError
from lazyprompt.files.roles import ROLES, Boundary, Scanned, boundaries, names_role, role_lines
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence


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
