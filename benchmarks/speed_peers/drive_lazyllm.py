"""LazyLLM: ``ChatPrompter``."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, batch_lines, drive
from work import SLOTS, TOOLS, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

lazyllm: Any = import_module("lazyllm")


def slotted() -> Any:
    """The prompter of three slots, without its own system text."""
    prompter = lazyllm.ChatPrompter(
        {"system": "You answer as {role}.", "user": "Context: {context}\nQuestion: {question}"}
    )
    prompter._set_model_configs(system="")  # noqa: SLF001 - as its module does
    return prompter


def slots() -> Callable[[], object]:
    """Three slots."""
    prompter = slotted()
    return lambda: prompter.generate_prompt(SLOTS, format="openai")


def plain(made: Any) -> object:
    """Its messages without the line's end that it puts between two system texts."""
    messages = [{**each, "content": each["content"].strip("\n")} for each in made["messages"]]
    return {**made, "messages": messages}


def chat() -> Callable[[], object]:
    """Twenty turns and tools: the lists of the history and the tools are handed on as they are."""
    prompter = lazyllm.ChatPrompter("Be brief.", tools=copy.deepcopy(TOOLS))
    return lambda: prompter.generate_prompt("And now?", history=TURNS, format="openai")


def jsonl() -> Callable[[], object]:
    """Three slots a row."""
    prompter = slotted()
    return batch_lines(lambda row: prompter.generate_prompt(row, format="openai"))


if __name__ == "__main__":
    drive(
        "lazyllm",
        [
            Does("slots", slots, plain, "a line's end where its own system text was"),
            Does("dict", chat),
            Does("jsonl", jsonl),
        ],
        "its flat text with tools tells a call syntax of its own, and no tools can be given with text as the input; "
        "no provider's payload but OpenAI's, no trimming, no .prompty; nothing is neutralised, all is handed on",
    )
