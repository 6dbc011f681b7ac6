"""The dialects of prompt files and the functions that detect them.

Dialects differ in their roles and in how sections become turns. When a file is read, field names from other dialects
are translated to Prompty v2 names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.files.dialects.agentschema import AGENT_ROLES, agent_fields, agent_steps, agent_tools
from lazyprompt.files.dialects.prompty_v1 import V1_ROLES, v1_fields, v1_steps
from lazyprompt.files.roles import ROLES, Section
from lazyprompt.files.spec import DialectFile, Translated
from lazyprompt.files.turns import Step, steps_of
from lazyprompt.files.yaml_nodes import Node, to_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject


def _steps(sections: Sequence[Section]) -> Iterator[Step]:
    return (step for section in sections for step in steps_of(section))


class Dialect(NamedTuple):
    """A dialect of prompt files.

    Attributes:
        name: The dialect's name.
        roles: The role names that begin a section.
        steps: The function that converts sections to turns.
        tools: The function that returns the tools defined in sections.
        translate: The function that translates a file to Prompty v2.
    """

    name: str
    roles: Sequence[str] = ROLES
    steps: Callable[[Sequence[Section]], Iterator[Step]] = _steps
    tools: Callable[[Sequence[Section]], list[JsonObject]] = lambda _: []
    translate: Callable[[DialectFile], Translated] = lambda reading: Translated(reading.fields, reading.body)

    def read(self, reading: DialectFile) -> Translated:
        """Translate a file to Prompty v2; templates with Mustache sections get ``template: {format: mustache}``."""
        made = self.translate(reading)
        text = made.body or made.fields.get("instructions", _NOWHERE).value
        if "template" in made.fields or not isinstance(text, str) or "{%" in text or not _OF_MUSTACHE.search(text):
            return made
        place = next(iter(reading.fields.values()), _NOWHERE)
        reading.note(place, "{{#name}} in the template is Mustache: add template: {format: mustache}")
        return Translated(
            {**made.fields, "template": to_node({"format": "mustache"}, place)}, made.body, tuple(sorted(reading.notes))
        )

    def __reduce__(self) -> tuple[Callable[[str], Dialect], tuple[str]]:
        return dialect_named, (self.name,)


DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (
        Dialect("v2"),
        Dialect("agentschema", AGENT_ROLES, agent_steps, agent_tools, agent_fields),
        Dialect("v1", V1_ROLES, v1_steps, translate=v1_fields),
    )
}
"""All dialects by name."""

_OF_AGENTS = re.compile(
    r"^[^\S\n]*+(?:(?:tool|function|tools|thread)(?:\[[^\]\n]*+\])?|assistant\[[^\]\n]*type\s*=\s*\"?tool_call\"?[^\]\n]*\])"
    r"[^\S\n]*+:[^\S\n]*+$|!\[type\s*+=\s*+\"(?:image|file|audio)\"[^\]\n]*+\]\(",
    re.MULTILINE,
)

_OF_MUSTACHE = re.compile(r"\{\{[#^]\s*([\w.]+)\s*\}\}.*?\{\{/\s*\1\s*\}\}", re.DOTALL)
_NOWHERE = Node(None, 0, 0)

_OF_V1_MODEL = {"api", "configuration", "parameters"}


def dialect_named(name: str) -> Dialect:
    """Return a dialect by name.

    Raises:
        TemplateError: The name is unknown.
    """
    if name not in DIALECTS:
        raise TemplateError(
            f"unknown dialect {name!r}{did_you_mean(name, DIALECTS)}; expected one of {', '.join(DIALECTS)}"
        )
    return DIALECTS[name]


def dialect_of(fields: Mapping[str, Node], body: str) -> Dialect:
    """Detect a file's dialect from fields and syntax that are unique to that dialect.

    Args:
        fields: The front matter.
        body: The template.
    """
    return next((DIALECTS[each] for each, has_signs in _SIGNS if has_signs(fields, body)), DIALECTS["v2"])


def _is_v1(fields: Mapping[str, Node], _: str) -> bool:
    """Return True if a file has a field unique to Prompty v1, or a property with ``type`` but no ``kind``."""
    properties = [item for part in ("inputs", "outputs") if part in fields for item in fields[part].parts]
    return (
        not {"sample", "base"}.isdisjoint(fields)
        or not _OF_V1_MODEL.isdisjoint(_keys(fields.get("model")))
        or any("type" in item.fields and "kind" not in item.fields for item in properties)
    )


def _keys(node: Node | None) -> set[str]:
    return set() if node is None else set(node.fields)


# The order of the tests matters, because v1 files and agent definitions can use the same section names.
_SIGNS: tuple[tuple[str, Callable[[Mapping[str, Node], str], bool]], ...] = (
    ("agentschema", lambda fields, _: "inputSchema" in fields or "outputSchema" in fields),
    ("v1", _is_v1),
    ("agentschema", lambda _, body: _OF_AGENTS.search(body) is not None),
)
