"""What of a prompt file goes to a provider: its functions, and its turns without what only the template says of them.

What stays behind is told in the report of the request.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyprompt.files.inputs import Thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.spec import ToolSpec
    from lazyprompt.files.turns import Step
    from lazyprompt.formatters.report import Notes

# What of a turn's attributes a message has a place for: the speaker; and of a result, whose it is.
_PLACES = frozenset({"name"})
_PLACES_OF_RESULT = frozenset({"name", "tool_call_id", "id"})


def functions_of(specs: Sequence[ToolSpec], notes: Notes) -> list[JsonObject]:
    """The tools of a front matter that are functions, in OpenAI's form: no provider calls others.

    Args:
        specs: The tools.
        notes: Where those that are no functions are written down.
    """
    found: list[JsonObject] = []
    for at, spec in enumerate(specs):
        if spec.kind == "function":
            found.append(spec.function())
        else:
            _note_tool(f"tools[{at}]", f"of the kind {spec.kind!r}", spec.name, notes)
    return found


def named_functions(tools: Sequence[Mapping[str, Json]], notes: Notes) -> list[JsonObject]:
    """The tools that a text names and that are functions, in OpenAI's form.

    Args:
        tools: The tools.
        notes: Where those that are no functions are written down.
    """
    found: list[JsonObject] = []
    for tool in tools:
        if isinstance(tool.get("function"), dict):
            found.append({"type": "function", "function": deepcopy(tool["function"])})
        else:
            name = str(tool.get("name") or tool.get("id") or "")
            _note_tool("tools", f"of the type {tool.get('type')!r}", name, notes)
    return found


def _note_tool(where: str, kind: str, name: str, notes: Notes) -> None:
    why = f"a tool {kind} is called by who runs the prompt: turn it into functions"
    notes.add(where, "tools", "left out", why, name)


def as_sent(steps: Iterable[Step], notes: Notes) -> list[Step]:
    """The turns of a prompt without the attributes that no message has a place for; threads are their caller's.

    Args:
        steps: Turns and threads.
        notes: Where those attributes are written down.
    """
    found: list[Step] = []
    at = 0
    for step in steps:
        if isinstance(step, Thread):
            for what in step.left_out:
                notes.add(f"messages[{at}]", "metadata", "left out", f"{what} is the template's own")
            found.append(step)
            at += len(step.messages)
            continue
        places = _PLACES_OF_RESULT if step.role == "tool" else _PLACES
        kept = {name: value for name, value in step.attributes.items() if name in places}
        if len(kept) == len(step.attributes):
            found.append(step)
        else:
            note_attributes((name for name in step.attributes if name not in places), at, notes)
            found.append(replace(step, attributes=kept))
        at += 1
    return found


def note_attributes(names: Iterable[str], at: int, notes: Notes) -> None:
    """Write down attributes that stay behind.

    Args:
        names: Their names.
        at: The message that has them.
        notes: Where they are written down.
    """
    for name in names:
        notes.add(f"messages[{at}]", "metadata", "left out", f"the attribute {name!r} is the template's own")
