"""The dialects of prompt files: how each names its roles, and what its sections say.

What a dialect calls otherwise is given the names of Prompty v2 when a file is read; all else is the same for all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.files.agent_schema import AGENT_ROLES, agent_steps, agent_tools
from lazyprompt.files.roles import ROLES
from lazyprompt.files.turns import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt._json import JsonObject
    from lazyprompt.files.roles import Section
    from lazyprompt.files.turns import Step
    from lazyprompt.files.yaml_nodes import Node


def _steps(sections: Sequence[Section]) -> Iterator[Step]:
    return (step for section in sections for step in steps_of(section))


def _no_tools(_: Sequence[Section]) -> list[JsonObject]:
    return []


class Dialect(NamedTuple):
    """A dialect.

    Attributes:
        name: Its name.
        roles: The names that begin a section.
        steps: What sections say.
        tools: The tools among the sections.
        fields: What its fields are called in Prompty v2.
    """

    name: str
    roles: Sequence[str] = ROLES
    steps: Callable[[Sequence[Section]], Iterator[Step]] = _steps
    tools: Callable[[Sequence[Section]], list[JsonObject]] = _no_tools
    fields: Callable[[Mapping[str, Node]], dict[str, Node]] = dict


def _agent_fields(fields: Mapping[str, Node]) -> dict[str, Node]:
    """``inputSchema.properties`` are the inputs, and so with the outputs."""
    made = dict(fields)
    for old, new in (("inputSchema", "inputs"), ("outputSchema", "outputs")):
        node = made.pop(old, None)
        if node is not None and isinstance(node.value, dict) and "properties" in node.value:
            made.setdefault(new, node.value["properties"])
    return made


DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (
        Dialect("v2"),
        Dialect("agentschema", AGENT_ROLES, agent_steps, agent_tools, _agent_fields),
    )
}
"""The dialects by their names."""

_OF_AGENTS = re.compile(
    r"^[^\S\n]*+(?:(?:tool|function|tools|thread)(?:\[[^\]\n]*+\])?|assistant\[[^\]\n]*type\s*=\s*\"?tool_call\"?[^\]\n]*\])"
    r"[^\S\n]*+:[^\S\n]*+$",
    re.MULTILINE,
)


def dialect_named(name: str) -> Dialect:
    """The dialect of a name.

    Raises:
        TemplateError: There is none.
    """
    if name not in DIALECTS:
        raise TemplateError(
            f"there is no dialect {name!r}{did_you_mean(name, DIALECTS)}; there are {', '.join(DIALECTS)}"
        )
    return DIALECTS[name]


def dialect_of(fields: Mapping[str, Node], body: str) -> Dialect:
    """The dialect that a file is written in, by what only that one has.

    Args:
        fields: Its front matter.
        body: Its template.
    """
    if "inputSchema" in fields or "outputSchema" in fields or _OF_AGENTS.search(body):
        return DIALECTS["agentschema"]
    return DIALECTS["v2"]
