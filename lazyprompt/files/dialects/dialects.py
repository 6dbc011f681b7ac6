"""The dialects of prompt files, and their detection.

Dialects differ in their roles and in how sections become turns. Fields with other names are translated to those of
Prompty v2 when a file is read.
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
        roles: The names that begin a section.
        steps: Function that converts sections to turns.
        tools: Function that returns the tools that sections define.
        translate: Function that translates a file to Prompty v2.
    """

    name: str
    roles: Sequence[str] = ROLES
    steps: Callable[[Sequence[Section]], Iterator[Step]] = _steps
    tools: Callable[[Sequence[Section]], list[JsonObject]] = lambda _: []
    translate: Callable[[DialectFile], Translated] = lambda reading: Translated(reading.fields, reading.body)

    def read(self, reading: DialectFile) -> Translated:
        """Translate a file to Prompty v2; a template with Mustache sections gets ``template: {format: mustache}``."""
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
            f"there is no dialect {name!r}{did_you_mean(name, DIALECTS)}; there are {', '.join(DIALECTS)}"
        )
    return DIALECTS[name]


def dialect_of(fields: Mapping[str, Node], body: str) -> Dialect:
    """Detect the dialect of a file by fields and syntax that only this dialect has.

    Args:
        fields: The front matter.
        body: The template.
    """
    return next((DIALECTS[each] for each, has_signs in _SIGNS if has_signs(fields, body)), DIALECTS["v2"])


def _is_v1(fields: Mapping[str, Node], _: str) -> bool:
    """Return True for a file with a field that only Prompty v1 has, or a property with ``type`` but no ``kind``."""
    properties = [item for part in ("inputs", "outputs") if part in fields for item in fields[part].parts]
    return (
        not {"sample", "base"}.isdisjoint(fields)
        or not _OF_V1_MODEL.isdisjoint(_keys(fields.get("model")))
        or any("type" in item.fields and "kind" not in item.fields for item in properties)
    )


def _keys(node: Node | None) -> set[str]:
    return set() if node is None else set(node.fields)


# The order matters: sections of v1 and of agent definitions can have the same names.
_SIGNS: tuple[tuple[str, Callable[[Mapping[str, Node], str], bool]], ...] = (
    ("agentschema", lambda fields, _: "inputSchema" in fields or "outputSchema" in fields),
    ("v1", _is_v1),
    ("agentschema", lambda _, body: _OF_AGENTS.search(body) is not None),
)
