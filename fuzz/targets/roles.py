"""Sections by roles: no value begins one, or adds an attribute to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.target import Target
from lazyprompt.files.dialects.dialects import DIALECTS
from lazyprompt.files.roles import boundaries, layout_of, sections
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuzz.chance import Chance

_ROLES = [dialect.roles for dialect in DIALECTS.values() if dialect.roles]


def _heads(parts: Sequence[str], roles: Sequence[str]) -> list[tuple[str, list[str], int]]:
    """Of each section: its role, the names of its attributes, and how many values it holds."""
    return [
        (each.role, [*each.attributes], sum(isinstance(part, Value) for part in each.parts))
        for each in sections(parts, roles)
    ]


def _run(chance: Chance) -> None:
    roles = chance.one(_ROLES)
    parts: list[str] = [chance.text()]
    for _ in range(chance.number(4)):
        parts += (Value(chance.hostile(), "a"), chance.text())
    found = sections(parts, roles)
    quiet = [Value("x", "a") if isinstance(part, Value) else part for part in parts]
    require(_heads(parts, roles) == _heads(quiet, roles), "a value changed the sections")
    require(all(each.role in ("", *roles) for each in found), "a section has a role that is none")
    values = [str.__str__(part) for part in parts if isinstance(part, Value)]
    kept = iter(values)
    shown = [str.__str__(part) for each in found for part in each.parts if isinstance(part, Value)]
    require(all(text in kept for text in shown), "a value was changed, or moved")
    outline = [
        Value(str(at), "a") if isinstance(part, Value) else part.replace("\ufdd0", " ") for at, part in enumerate(parts)
    ]
    layout = layout_of(outline, roles)
    if layout is not None and not any("\ufdd0" in part for part in parts[::2]):
        same = [(each.role, each.attributes, "".join(each.parts)) for each in layout.fill(parts)]
        require(
            same == [(each.role, each.attributes, "".join(each.parts)) for each in found], "the quick reading differs"
        )
    own = "".join(parts[::2])
    begun = sum(bool(each.role) for each in sections([own], roles))
    require(begun <= len([*boundaries(own, roles)]), "a section begins where no reader could see one")


ROLES = Target(
    "roles",
    _run,
    (
        *("system:\n", "user:\n", "assistant:\n", "developer:\n", "tool:\n", "# User :\n", "USER:", "thread:\n"),
        *('user[name="Ada"]:\n', "assistant[type=tool_call]:\n", "function:\n", "[a=1, b='c']", "```\n", "~~~\n", "\n"),
    ),
)
