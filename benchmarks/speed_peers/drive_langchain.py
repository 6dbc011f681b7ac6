"""langchain-core: chat prompts, messages made ready before, its trimmer; langchain-anthropic for the payload."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import copy
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, batch_lines, drive
from floors import FEW, MANY, half, size
from work import ORDERS, SLOTS, SYSTEM, TOOLS, TURNS, conversation

if TYPE_CHECKING:
    from collections.abc import Callable

prompts: Any = import_module("langchain_core.prompts")
messages: Any = import_module("langchain_core.messages")
SLOTTED = (("system", "You answer as {role}."), ("human", "Context: {context}\nQuestion: {question}"))


def slots() -> Callable[[], object]:
    """Three slots, and the messages as OpenAI's."""
    template = prompts.ChatPromptTemplate.from_messages(list(SLOTTED))
    return lambda: {"messages": messages.convert_to_openai_messages(template.format_messages(**SLOTS))}


def chat() -> Callable[[], object]:
    """Twenty turns and tools: the messages of the history are made before, the tools copied as they are."""
    template = prompts.ChatPromptTemplate.from_messages(
        [("system", "{system}"), ("placeholder", "{history}"), ("human", "{question}")]
    )
    past = [made for one, other in TURNS for made in (messages.HumanMessage(one), messages.AIMessage(other))]
    given = {"system": f"{SYSTEM}\nBe brief.\n\n", "history": past, "question": "And now?"}
    return lambda: {
        "messages": messages.convert_to_openai_messages(template.format_messages(**given)),
        "tools": copy.deepcopy(TOOLS),
    }


def anthropic() -> Callable[[], object]:
    """The payload that its Anthropic client would send, from messages made before."""
    chat_models: Any = import_module("langchain_anthropic.chat_models")
    model = chat_models.ChatAnthropic(model="claude", api_key="k", max_tokens=100)
    given = messages.convert_to_messages(copy.deepcopy(ORDERS))
    tools = [chat_models.convert_to_anthropic_tool(tool) for tool in TOOLS]
    return lambda: model._get_request_payload(given, tools=copy.deepcopy(tools))  # noqa: SLF001 - what its client sends


def payload_alone(made: Any) -> object:
    """The messages, system text and tools, without the settings of its client, and no word of no error in results."""
    messages = [
        {
            **each,
            "content": each["content"]
            if isinstance(each["content"], str)
            else [{key: value for key, value in block.items() if key != "is_error"} for block in each["content"]],
        }
        for each in made["messages"]
    ]
    return {"system": made["system"], "messages": messages, "tools": made["tools"]}


def trim(count: int) -> Callable[[], object]:
    """Its trimmer, which counts with a function of ours; its messages made before."""
    measured, most = size(), half(count)
    given = messages.convert_to_messages(conversation(count))

    def tokens(part: list[Any]) -> int:
        return 3 + sum(4 + measured(each.content) for each in part)

    return partial(
        messages.trim_messages, given, max_tokens=most, token_counter=tokens, strategy="last", include_system=True
    )


def jsonl() -> Callable[[], object]:
    """Three slots a row."""
    template = prompts.ChatPromptTemplate.from_messages(list(SLOTTED))
    return batch_lines(lambda row: {"messages": messages.convert_to_openai_messages(template.format_messages(**row))})


if __name__ == "__main__":
    drive(
        "langchain-core",
        [
            Does("slots", slots),
            Does("dict", chat),
            Does(
                "anthropic",
                anthropic,
                payload_alone,
                "the payload of langchain-anthropic also has its client's settings, and is_error in results",
            ),
            Does("trim few", partial(trim, FEW), messages.convert_to_openai_messages),
            Does("trim many", partial(trim, MANY), messages.convert_to_openai_messages),
            Does("jsonl", jsonl),
        ],
        "it has no flat text with a model's markers, no .prompty, and keeps no counts",
    )
