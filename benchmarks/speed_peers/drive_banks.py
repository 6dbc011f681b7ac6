"""banks: prompts in Jinja with blocks of roles."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, batch_lines, drive
from work import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable

Prompt: Any = import_module("banks").Prompt
TEXT = (
    "{% chat role='system' %}You answer as {{ role }}.{% endchat %}"
    "{% chat role='user' %}Context: {{ context }}\nQuestion: {{ question }}{% endchat %}"
)


def as_dicts(made: Any) -> list[object]:
    """Its messages as OpenAI's; a text may stand in a block of its own."""
    return [
        {
            "role": each.role,
            "content": each.content if isinstance(each.content, str) else "".join(block.text for block in each.content),
        }
        for each in made
    ]


def slots() -> Callable[[], object]:
    """Three slots; its own cache of rendered prompts is as it is by default."""
    prompt = Prompt(TEXT)
    return lambda: {"messages": as_dicts(prompt.chat_messages(SLOTS))}


def jsonl() -> Callable[[], object]:
    """Three slots a row."""
    prompt = Prompt(TEXT)
    return batch_lines(lambda row: {"messages": as_dicts(prompt.chat_messages(row))})


if __name__ == "__main__":
    drive(
        "banks",
        [Does("slots", slots), Does("jsonl", jsonl)],
        "the same prompt comes out of its cache, which has no bound; new rows do not; "
        "no histories, payloads, trimming or .prompty",
    )
