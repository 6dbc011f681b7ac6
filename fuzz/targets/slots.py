"""Templates with slots: no value is read as a template, and escaped text is text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.target import Target
from lazyprompt.templates.slots import SlotTemplate, escape, value_text

if TYPE_CHECKING:
    from fuzz.chance import Chance


def _run(chance: Chance) -> None:
    text = chance.text()
    template = SlotTemplate(text)
    values = {name: value_text(chance.json() if chance.flag() else chance.hostile(), name) for name in template.slots}
    parts = template.fill(values)
    require(tuple(parts[0::2]) == template.literals, "a value changed the developer's text")
    origins = template.origins(parts)
    require(len(origins) == len(parts), "a part has no origin")
    require(
        all(part == values[name] for part, name in zip(parts[1::2], origins[1::2], strict=True)), "a value was changed"
    )
    require(all(name.isidentifier() for name in template.slots), "a slot is no name")
    literal = SlotTemplate(escape(text))
    require(not literal.slots, f"escaped text has the slots {literal.slots}")
    require("".join(literal.fill({})) == text, "escaped text is filled to something else")


SLOTS = Target(
    "slots", _run, ("{name}", "{{name}}", "{", "}", "{{", "}}", "{a}", "{{{a}}}", "{é}", '{"a": 1}', "\\{", "\ud800")
)
