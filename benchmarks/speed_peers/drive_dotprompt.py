"""dotpromptz: ``.prompt`` files."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, drive
from work import PROMPT_FILE, QUESTION, SLOTS, prompt_folder

if TYPE_CHECKING:
    from collections.abc import Callable

dotpromptz: Any = import_module("dotpromptz")
LOOP = asyncio.new_event_loop()
SLOTTED = '{{role "system"}}You answer as {{role_name}}.{{role "user"}}Context: {{context}}\nQuestion: {{question}}'
# The same file with sections as it writes them, and its inputs' defaults where it looks for them.
_, _FRONT, _BODY = PROMPT_FILE.split("---\n", 2)
FILE = (
    "---\nmodel: gpt-4o\nconfig:\n  temperature: 0.7\n  maxOutputTokens: 1000\ninput:\n  default:\n"
    "    firstName: Jane\n    lastName: Doe\n    question: Where is my order?\n---\n"
    + _BODY.replace("system:\n", '{{role "system"}}').replace("\n\nuser:\n", '{{role "user"}}').rstrip("\n")
)


def as_dicts(made: Any) -> list[dict[str, object]]:
    """Its messages as OpenAI's."""
    return [{"role": each.role.value, "content": "".join(part.text for part in each.content)} for each in made.messages]


def given(values: dict[str, str]) -> Any:
    """Values as it takes them."""
    return dotpromptz.DataArgument(input=values)


def slots() -> Callable[[], object]:
    """Three slots of a prompt that was compiled before; no slot can be called what its helper is."""
    compiled = LOOP.run_until_complete(dotpromptz.Dotprompt().compile(SLOTTED))
    values = given({**SLOTS, "role_name": SLOTS["role"]})
    return lambda: {"messages": as_dicts(LOOP.run_until_complete(compiled(values)))}


def file() -> Callable[[], object]:
    """Its form of the file, read and rendered."""
    path, library, values = prompt_folder("order-help.prompt", FILE).file, dotpromptz.Dotprompt(), given(QUESTION)
    return lambda: as_dicts(LOOP.run_until_complete(library.render(path.read_text(encoding="utf-8"), values)))


if __name__ == "__main__":
    drive(
        "dotpromptz",
        [Does("slots", slots), Does("file", file)],
        "its file is of its own form and says the same; no flat text with markers, payloads or trimming",
    )
