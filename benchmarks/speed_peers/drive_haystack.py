"""haystack-ai: ``ChatPromptBuilder``."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, batch_lines, drive
from work import SLOTS, SYSTEM, TOOLS, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

builders: Any = import_module("haystack.components.builders")
Message: Any = import_module("haystack.dataclasses").ChatMessage


def builder() -> Any:
    """The builder of three slots."""
    return builders.ChatPromptBuilder(
        template=[
            Message.from_system("You answer as {{ role }}."),
            Message.from_user("Context: {{ context }}\nQuestion: {{ question }}"),
        ],
        required_variables=["role", "context", "question"],
    )


def as_dicts(made: Any) -> list[object]:
    """Its messages as OpenAI's."""
    return [each.to_openai_dict_format() for each in made["prompt"]]


def slots() -> Callable[[], object]:
    """Three slots."""
    made = builder()
    return lambda: {"messages": as_dicts(made.run(**SLOTS))}


def chat() -> Callable[[], object]:
    """Twenty turns as a template, with one slot in what is said last."""
    past = [each for one, other in TURNS for each in (Message.from_user(one), Message.from_assistant(other))]
    made = builders.ChatPromptBuilder(
        template=[Message.from_system(f"{SYSTEM}\nBe brief.\n\n"), *past, Message.from_user("{{ question }}")],
        required_variables=["question"],
    )
    return lambda: {"messages": as_dicts(made.run(question="And now?")), "tools": copy.deepcopy(TOOLS)}


def jsonl() -> Callable[[], object]:
    """Three slots a row."""
    made = builder()
    return batch_lines(lambda row: {"messages": as_dicts(made.run(**row))})


def stripped(made: Any) -> object:
    """The floor's result, with the end of the system text that Jinja takes away."""
    messages = made["messages"]
    return {**made, "messages": [{**messages[0], "content": messages[0]["content"].rstrip() + "\n\n"}, *messages[1:]]}


if __name__ == "__main__":
    drive(
        "haystack-ai",
        [
            Does("slots", slots),
            Does("dict", chat, stripped, "Jinja takes a line's end off the system text"),
            Does("jsonl", jsonl),
        ],
        "its payloads of providers are in packages of their own; "
        "no flat text with markers, no trimming by tokens, no .prompty",
    )
