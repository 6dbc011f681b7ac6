"""Helpers of the readers of other dialects, which make fields of Prompty v2, with places and notes."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.files.properties import kind_of
from lazyprompt.files.yaml_nodes import KINDS, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lazyprompt.errors import PromptFileError
    from lazyprompt.files.references import References
    from lazyprompt.files.yaml_nodes import Node, Source

OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "temperature": (int, float),
    "maxOutputTokens": (int,),
    "topP": (int, float),
    "topK": (int, float),
    "frequencyPenalty": (int, float),
    "presencePenalty": (int, float),
    "seed": (int,),
    "stopSequences": (list,),
    "allowMultipleToolCalls": (bool,),
    "reasoningEffort": (str,),
}
"""The options of a model in Prompty v2, and their types."""

OTHERS: Final = "additionalProperties"
"""The option that holds all that have no name in Prompty v2."""


def snake_names(options: Iterable[str]) -> dict[str, str]:
    """Return the names of options in snake_case, as most other formats have them."""
    return {name: re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name) for name in options}


# The similarity of two names from which one is taken for a mistake.
_ALIKE = 0.75


class Note(NamedTuple):
    """A field that was read otherwise than it is written, or that was not carried over.

    Attributes:
        line: Its line in the file.
        column: Its column.
        text: The change.
    """

    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.text}"


class Translated(NamedTuple):
    """A file as Prompty v2 has it.

    Attributes:
        fields: Its front matter.
        body: Its template.
        notes: The changes.
    """

    fields: dict[str, Node]
    body: str
    notes: tuple[Note, ...] = ()


class Reading:
    """A file that is being read.

    Args:
        source: The file.
        fields: Its front matter, with all references looked up.
        body: Its template.
        references: The places that further references lead to.
    """

    def __init__(self, source: Source, fields: dict[str, Node], body: str, references: References) -> None:
        self.source, self.fields, self.body, self.references = source, fields, body, references
        self.notes: list[Note] = []

    def note(self, node: Node, text: str) -> None:
        """Note a change of a field."""
        self.notes.append(Note(*self.source.place(node.key_at), text))

    def fault(self, node: Node, what: str) -> PromptFileError:
        """Return the error for a field."""
        return self.source.pointed(node.at, what)

    def mapping(self, node: Node | None, where: str) -> dict[str, Node]:
        """Return a copy of a field that is a mapping; see :meth:`Source.mapping_of`."""
        return self.source.mapping_of(node, where)

    def text(self, node: Node, where: str) -> str:
        """Return a field that is text, and not empty."""
        if not isinstance(node.value, str) or not node.value:
            raise self.source.refused(node, f"{where} is", ", and must be text")
        return node.value

    def options(self, given: Mapping[str, Node], names: Mapping[str, str], where: str) -> dict[str, Node]:
        """Return the settings of a model as options of Prompty v2; those without a name there are :data:`OTHERS`.

        Args:
            given: The settings, by their names in the dialect.
            names: The names of options, by those in the dialect.
            where: The name of the settings in errors.

        Raises:
            PromptFileError: One is of a wrong type, or nearly one that is known.
        """
        made: dict[str, Node] = {}
        others: dict[str, Node] = {}
        for name, node in given.items():
            option = names.get(name, name)
            if option in OPTIONS:
                if option in made:
                    raise self.fault(node, f"{where}.{name} says a second time what {option} is; take one out")
                made[option] = self._option(node, option, f"{where}.{name}")
            elif near := _near(name, (*names, *OPTIONS)):
                what = f"{where}.{name} is no setting that is known (did you mean {near!r}?)"
                raise self.source.pointed(node.key_at, what)
            else:
                self.note(node, f"{where}.{name} has no name in Prompty v2: it is among the options' {OTHERS}")
                others[name] = node
        return {**made, **({OTHERS: written(others, next(iter(others.values())))} if others else {})}

    def _option(self, node: Node, option: str, where: str) -> Node:
        if option == "stopSequences" and isinstance(node.value, str):
            return node._replace(value=[node])
        fits = isinstance(node.value, OPTIONS[option])
        if node.value is not None and (not fits or (isinstance(node.value, bool) and bool not in OPTIONS[option])):
            raise self.source.refused(node, f"{where} is", f", and must be {KINDS[OPTIONS[option][0]]}")
        return node


def _near(name: str, known: Iterable[str]) -> str:
    """Return the known name that was most likely meant; settings of one runtime that only look alike are none."""
    by_letters = {_letters(each): each for each in known}
    near = get_close_matches(_letters(name), by_letters, 1, _ALIKE)
    return by_letters[near[0]] if near else ""


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def fits(node: Node, kind: str) -> bool:
    """Return True if a value may be that of a property of a kind."""
    found = kind_of(node.value)
    return node.value is None or kind in (found, "union") or (kind == "float" and found == "integer")
