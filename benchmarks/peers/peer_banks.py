"""banks: prompts in Jinja with blocks of roles."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import drive
from work import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable

Prompt: Any = import_module("banks").Prompt
TEXT = (
    "{% chat role='system' %}You answer as {{ role }}.{% endchat %}"
    "{% chat role='user' %}Context: {{ context }}\nQuestion: {{ question }}{% endchat %}"
)


def as_dicts(made: Any) -> list[object]:
    """Return its messages as OpenAI's."""
    return [
        {
            "role": each.role,
            "content": each.content if isinstance(each.content, str) else "".join(block.text for block in each.content),
        }
        for each in made
    ]


def slots() -> Callable[[], object]:
    """Prepare three slots; its cache of rendered prompts is on by default."""
    prompt = Prompt(TEXT)
    return lambda: {"messages": as_dicts(prompt.chat_messages(SLOTS))}


if __name__ == "__main__":
    drive("banks", {"slots": slots})
