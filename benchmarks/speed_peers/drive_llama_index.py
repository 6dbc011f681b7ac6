"""llama-index-core: chat prompts."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, batch_lines, drive
from work import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable

llms: Any = import_module("llama_index.core.llms")
prompts: Any = import_module("llama_index.core.prompts")


def template() -> Any:
    """The prompt of three slots."""
    return prompts.ChatPromptTemplate(
        [
            llms.ChatMessage(role="system", content="You answer as {role}."),
            llms.ChatMessage(role="user", content="Context: {context}\nQuestion: {question}"),
        ]
    )


def as_dicts(made: Any) -> list[dict[str, object]]:
    """Its messages as OpenAI's: its own converters come with its OpenAI package."""
    return [{"role": each.role.value, "content": each.content} for each in made]


def slots() -> Callable[[], object]:
    """Three slots."""
    prompt = template()
    return lambda: {"messages": as_dicts(prompt.format_messages(**SLOTS))}


def jsonl() -> Callable[[], object]:
    """Three slots a row."""
    prompt = template()
    return batch_lines(lambda row: {"messages": as_dicts(prompt.format_messages(**row))})


if __name__ == "__main__":
    drive(
        "llama-index-core",
        [
            Does("slots", slots),
            Does("jsonl", jsonl),
        ],
        "its memory counts texts without what each message costs, so that it keeps others than the floor; "
        "payloads of providers are in packages of their own",
    )
