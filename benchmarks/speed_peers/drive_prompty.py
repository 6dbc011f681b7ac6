"""prompty: the runtime of .prompty files."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, drive
from work import QUESTION, SLOTS, prompt_folder

if TYPE_CHECKING:
    from collections.abc import Callable

prompty: Any = import_module("prompty")
SLOTTED = """---
name: slots
model:
  id: gpt-4o
  provider: openai
inputs:
  - name: role
    kind: string
  - name: context
    kind: string
  - name: question
    kind: string
---
system:
You answer as {{role}}.

user:
Context: {{context}}
Question: {{question}}
"""


def as_dicts(made: Any) -> list[dict[str, object]]:
    """Its messages as OpenAI's."""
    return [{"role": each.role, "content": each.parts[0].value} for each in made]


def slots() -> Callable[[], object]:
    """Three slots of a file that was loaded before."""
    agent = prompty.load(str(prompt_folder("slots.prompty", SLOTTED).file))
    return lambda: {"messages": as_dicts(prompty.prepare(agent, SLOTS))}


def file() -> Callable[[], object]:
    """The file, loaded and filled."""
    path = str(prompt_folder().file)
    return lambda: as_dicts(prompty.prepare(prompty.load(path), QUESTION))


def kept() -> Callable[[], object]:
    """The file, filled; it does not look whether it has changed."""
    agent = prompty.load(str(prompt_folder().file))
    return lambda: as_dicts(prompty.prepare(agent, QUESTION))


if __name__ == "__main__":
    drive(
        "prompty",
        [Does("slots", slots), Does("file", file), Does("file kept", kept)],
        "a file that was loaded is not looked at again; histories need a thread input, payloads its provider packages",
    )
