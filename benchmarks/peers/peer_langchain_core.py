"""langchain-core: chat prompts with messages made before, its trimmer."""

from __future__ import annotations

import copy
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import batch_lines, drive
from floors import FEW, MANY, half, size
from work import SLOTS, SYSTEM, TOOLS, TURNS, conversation

if TYPE_CHECKING:
    from collections.abc import Callable

prompts: Any = import_module("langchain_core.prompts")
messages: Any = import_module("langchain_core.messages")
SLOTTED = (("system", "You answer as {role}."), ("human", "Context: {context}\nQuestion: {question}"))


def slots() -> Callable[[], object]:
    """Prepare three slots, as OpenAI's messages."""
    template = prompts.ChatPromptTemplate.from_messages(list(SLOTTED))
    return lambda: {"messages": messages.convert_to_openai_messages(template.format_messages(**SLOTS))}


def chat() -> Callable[[], object]:
    """Prepare twenty turns and tools."""
    template = prompts.ChatPromptTemplate.from_messages(
        [("system", "{system}"), ("placeholder", "{history}"), ("human", "{question}")]
    )
    past = [made for one, other in TURNS for made in (messages.HumanMessage(one), messages.AIMessage(other))]
    given = {"system": f"{SYSTEM}\nBe brief.\n\n", "history": past, "question": "And now?"}
    return lambda: {
        "messages": messages.convert_to_openai_messages(template.format_messages(**given)),
        "tools": copy.deepcopy(TOOLS),
    }


def trim(count: int) -> Callable[[], object]:
    """Prepare its trimmer, with our function that counts."""
    measured, most = size(), half(count)
    given = messages.convert_to_messages(conversation(count))

    def tokens(part: list[Any]) -> int:
        return 3 + sum(4 + measured(each.content) for each in part)

    return partial(
        messages.trim_messages, given, max_tokens=most, token_counter=tokens, strategy="last", include_system=True
    )


def jsonl() -> Callable[[], object]:
    """Prepare three slots a row."""
    template = prompts.ChatPromptTemplate.from_messages(list(SLOTTED))
    return batch_lines(lambda row: {"messages": messages.convert_to_openai_messages(template.format_messages(**row))})


if __name__ == "__main__":
    trims = {"trim few": partial(trim, FEW), "trim many": partial(trim, MANY)}
    drive("langchain-core", {"slots": slots, "dict": chat, **trims, "jsonl": jsonl})
