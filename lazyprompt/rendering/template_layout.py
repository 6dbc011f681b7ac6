"""A layout that replaces the placeholders in a prompt template with a prompt's fields."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from lazyprompt.errors import HistoryError, LazyPromptError, SlotError, TemplateError, ToolsError, did_you_mean
from lazyprompt.messages.history import EMPTY_HISTORY
from lazyprompt.rendering.history_turns import put_history
from lazyprompt.rendering.layout import MARKER, OWN, Origin, PartList, Run, slot_origins, tool_parts, turn_literals
from lazyprompt.rendering.markers import TURN_MARKERS, Markers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyprompt.messages.prompt import Prompt


_Put: TypeAlias = "Callable[[Prompt, Markers, PartList], None]"
_Step: TypeAlias = "tuple[_Put | None, Sequence[str], Sequence[Origin]]"

_PLACE = re.compile(r"\{(\w+)\}")
_INPUT = (Origin("input"), MARKER)
_SYSTEM = (Origin("system"),)
_BEGINNING: Run = ("",), OWN[:1]


class _FieldRun(NamedTuple):
    """A section of a prompt template, with the names of its fields and the fixed text between the fields."""

    items: tuple[str | Run, ...]
    optional: bool

    @property
    def names(self) -> list[str]:
        """The names of the fields in the section."""
        return [item for item in self.items if isinstance(item, str)]


class TemplateLayout:
    """The layout of a prompt template with a model's markers.

    Args:
        sections: The sections of the template. The first section is not optional, and begins with fixed text.
        markers: The model's markers.
    """

    __slots__ = ("_head", "_markers", "_plan", "_sections", "_unplaced", "literals")
    opening: str = ""

    def __init__(self, sections: tuple[_FieldRun, ...], markers: Markers) -> None:
        self._markers = markers
        self._sections = sections
        self._head = cast("Run", sections[0].items[0])
        # An optional section is rendered only if at least one of the section's conditions is true.
        self._plan = tuple(
            (tuple(map(_is_shown, section.names)) if section.optional else (), _steps(section.items[index == 0 :]))
            for index, section in enumerate(sections)
        )
        placed = {name for section in sections for name in section.names}
        self._unplaced = tuple(
            (name, field.has_text, field.no_place)
            for name, field in _FIELDS.items()
            if field.no_place and name not in placed
        )
        fixed = [item for section in sections for item in section.items if not isinstance(item, str)]
        self.literals: tuple[str, ...] = (
            *(text for parts, _ in fixed for text in parts[::-2]),
            *turn_literals(markers),
        )

    @classmethod
    def of(cls, text: str, optional: Sequence[str], markers: Markers) -> TemplateLayout:
        """Parse the text of a prompt template with a model's markers.

        Args:
            text: The text, in which ``{name}`` is the placeholder for a prompt's field or a marker.
            optional: The optional sections of ``text``, in order. A section is omitted if the prompt contains none of
                its fields.
            markers: The model's markers.

        Raises:
            TemplateError: A placeholder is unknown, or ``text`` does not contain the sections in ``optional`` in order.
        """
        sections = [_FieldRun((_BEGINNING,), optional=False)]
        rest = text
        for run in optional:
            before, found, rest = rest.partition(run)
            if not found:
                raise TemplateError(
                    f"the template does not contain the optional part {run!r}, or the optional parts are not in the "
                    "template's order"
                )
            sections += (
                _FieldRun(_items(before, markers), optional=False),
                _FieldRun(_items(run, markers), optional=True),
            )
        sections.append(_FieldRun(_items(rest, markers), optional=False))
        return cls(_joined(sections), markers)

    def folded(self, prompt: Prompt, constant: frozenset[str]) -> TemplateLayout:
        """Return a layout with the constant fields filled in."""
        sections: list[_FieldRun] = []
        for section in self._sections:
            known = [name for name in section.names if name in constant]
            optional = section.optional and not any(_FIELDS[name].has_text(prompt) for name in known)
            if not optional or known != section.names:
                items = (
                    self._run(item, prompt) if isinstance(item, str) and item in known else item
                    for item in section.items
                )
                sections.append(_FieldRun(tuple(items), optional))
        layout = TemplateLayout(_joined(sections), self._markers)
        layout._unplaced = self._unplaced
        return layout

    def _run(self, name: str, prompt: Prompt) -> Run:
        out = PartList()
        _FIELDS[name].put(prompt, self._markers, out)
        return tuple(out.parts[1:]), tuple(out.origins[1:])

    def lay(self, prompt: Prompt) -> PartList:
        """Replace the placeholders in the template with a prompt's fields.

        Raises:
            HistoryError: The prompt has a history, but the template contains no placeholder for it.
            ToolsError: The prompt has tools, but the template contains no placeholder for them.
            SlotError: The prompt has an input, but the template contains no placeholder for it.
        """
        for name, has_text, error in self._unplaced:
            if has_text(prompt):
                raise error(f"this prompt template has no placeholder for the {name}; add {{{name}}} to the template")
        out = PartList(*self._head)
        markers = self._markers
        for tests, steps in self._plan:
            if tests and not any(is_shown(prompt) for is_shown in tests):
                continue
            for put, parts, origins in steps:
                if put is not None:
                    put(prompt, markers, out)
                if parts:
                    out.extend(parts, origins)
        return out

    def mark(self, split: str) -> str:
        """Return the separator ``split`` with marker placeholders replaced by the model's markers."""
        return _with_markers(split, self._markers)


def _items(text: str, markers: Markers) -> tuple[str | Run, ...]:
    """Split a section of a template into field names and runs of fixed text."""
    pieces = _PLACE.split(_with_markers(text, markers))
    return tuple(piece if index % 2 else (("", piece), OWN) for index, piece in enumerate(pieces) if piece or index % 2)


def _steps(items: Iterable[str | Run]) -> tuple[_Step, ...]:
    """Return the steps that append the fields and fixed texts of a template section to a part list."""
    steps: list[_Step] = []
    for item in items:
        if isinstance(item, str):
            steps.append((_FIELDS[item].put, (), ()))
        elif steps and not steps[-1][1]:
            steps[-1] = (steps[-1][0], *item)
        else:
            steps.append((None, *item))
    return tuple(steps)


def _joined(sections: Iterable[_FieldRun]) -> tuple[_FieldRun, ...]:
    """Join adjacent sections that are not optional, and adjacent runs of fixed text in each section."""
    joined: list[_FieldRun] = []
    for section in sections:
        is_apart = section.optional or not joined or joined[-1].optional
        items: list[str | Run] = []
        for item in section.items if is_apart else (*joined.pop().items, *section.items):
            before = items[-1] if items else ""
            if isinstance(item, str) or isinstance(before, str):
                items.append(item)
            else:
                items[-1] = (*before[0], *item[0]), (*before[1], *item[1])
        joined.append(_FieldRun(tuple(items), section.optional))
    return tuple(joined)


def _with_markers(text: str, markers: Markers) -> str:
    """Replace each marker placeholder in a template with the model's marker, and keep the placeholders for fields."""
    known = (*_FIELDS, *TURN_MARKERS)

    def marker(match: re.Match[str]) -> str:
        name = match[1]
        if name not in known:
            raise TemplateError(
                f"unknown placeholder {match[0]} in the prompt template{did_you_mean(name, known)}; "
                f"expected one of {', '.join(known)}"
            )
        return match[0] if name in _FIELDS else str(getattr(markers, name))

    return _PLACE.sub(marker, text)


def _put_tools(prompt: Prompt, markers: Markers, out: PartList) -> None:
    if prompt.tools.names:
        out.add(*tool_parts(prompt.tools, markers, markers.tools))


def _put_history(prompt: Prompt, markers: Markers, out: PartList) -> None:
    put_history(prompt.history.messages, markers, out)


def _is_shown(name: str) -> Callable[[Prompt], object]:
    """Return a function that tests whether the field ``name`` of a prompt is set; an empty input also counts as set."""
    return (lambda prompt: prompt.input is not None) if name == "input" else _FIELDS[name].has_text


@dataclass(frozen=True)
class _Field:
    """The rendering rules for one field of :class:`Prompt`, such as ``system``.

    Args:
        put: A function that adds the field to a part list.
        has_text: A function that returns a truthy value if a prompt's field is not empty.
        no_place: The exception class to raise if a template contains no placeholder for the field; None to raise
            nothing.
    """

    put: _Put
    has_text: Callable[[Prompt], object]
    no_place: type[LazyPromptError] | None = TemplateError


_FIELDS: dict[str, _Field] = {
    "system": _Field(
        lambda prompt, _, out: out.add((prompt.system or "",), _SYSTEM), attrgetter("system"), no_place=None
    ),
    "instruction": _Field(
        lambda prompt, _, out: out.add(prompt.instruction.parts, slot_origins(prompt.instruction.slots)),
        lambda prompt: any(prompt.instruction.parts),
    ),
    "tools": _Field(_put_tools, attrgetter("tools.names"), ToolsError),
    "history": _Field(
        _put_history, lambda prompt: prompt.history is not EMPTY_HISTORY and prompt.history, HistoryError
    ),
    "user": _Field(
        lambda prompt, _, out: out.add(prompt.user.parts, slot_origins(prompt.user.slots)),
        lambda prompt: any(prompt.user.parts),
    ),
    "input": _Field(
        lambda prompt, _, out: out.extend((prompt.input or "", ""), _INPUT), attrgetter("input"), SlotError
    ),
}
