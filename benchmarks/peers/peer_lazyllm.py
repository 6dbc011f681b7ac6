"""LazyLLM: ``ChatPrompter`` and ``AlpacaPrompter``, as its documents show them.

A local model's markers come from its own table, as its ``TrainableModule`` sets them.
"""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import copy
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import Case, Entry, Message, batch_lines, drive
from work import SLOTS, TOOLS, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

lazyllm: Any = import_module("lazyllm")
models: Any = import_module("lazyllm.components.utils.downloader").ModelManager

# A model of its table for each layout.
MODELS = {
    "chatml": "qwen2.5-7b-instruct",
    "llama-3": "meta-llama-3-8b-instruct",
    "llama-2": "llama-2-7b-chat",
    "deepseek": "deepseek-v3",
    "glm-4": "glm-4-9b-chat",
    "chatglm3": "chatglm3-6b",
    "baichuan2": "baichuan2-7b-chat",
    "internlm": "internlm-chat-7b",
}


def three_slots() -> Any:
    """Return the prompter of three slots, without its own system text."""
    prompter = lazyllm.ChatPrompter(
        {"system": "You answer as {role}.", "user": "Context: {context}\nQuestion: {question}"}
    )
    prompter._set_model_configs(system="")  # noqa: SLF001 - as its module does
    return prompter


def slots() -> Callable[[], object]:
    """Prepare three slots."""
    prompter = three_slots()
    return lambda: prompter.generate_prompt(SLOTS, format="openai")


def chat() -> Callable[[], object]:
    """Prepare twenty turns and tools; its result shares them with the caller."""
    prompter = lazyllm.ChatPrompter("Be brief.", tools=copy.deepcopy(TOOLS))
    return lambda: prompter.generate_prompt("And now?", history=TURNS, format="openai")


def jsonl() -> Callable[[], object]:
    """Prepare three slots a row."""
    prompter = three_slots()
    return batch_lines(lambda row: prompter.generate_prompt(row, format="openai"))


def marked(prompter: Any, layout: str) -> Any:
    """Return the prompter with the markers of a layout's model."""
    if layout in MODELS:
        prompter._set_model_configs(**models.get_model_prompt_keys(MODELS[layout]))  # noqa: SLF001 - as its module does
    return prompter


@cache
def plain(layout: str) -> Any:
    """Return a prompter without slots."""
    return marked(lazyllm.ChatPrompter("Be kind."), layout)


def in_slots(case: Case, layout: str) -> Any:
    """Put the values into slots."""
    instruction = f"Be kind. {case.before}{{text}}{{more}}{case.behind}\nThe key is {{secret}}."
    given = {**case.slots, "input": "Go on."}
    made = marked(lazyllm.ChatPrompter(instruction), layout)
    return made.generate_prompt(given) if layout else made.generate_prompt(given, format="openai")


def in_input(case: Case, layout: str) -> Any:
    """Put the values into the user's input."""
    made = plain(layout)
    return made.generate_prompt(case.text) if layout else made.generate_prompt(case.text, format="openai")


def in_past(case: Case, layout: str) -> Any:
    """Put the values into an earlier turn."""
    return plain(layout).generate_prompt("Go on.", history=[[case.text, "Fine."]])


def in_alpaca(case: Case, layout: str) -> Any:  # noqa: ARG001 - as the others
    """Put the values into an extra key of the other prompter."""
    return lazyllm.AlpacaPrompter("Sum up.", extra_keys=["text"]).generate_prompt({"text": case.text})


def messages(case: Case, make: Callable[[Case, str], Any], layout: str) -> list[Message]:
    """Return a prompt as messages; flat text is one without a role."""
    made = make(case, layout)
    if layout:
        return [("", str(made), 0)]
    return [
        (str(each["role"]), str(each.get("content")), len(each.get("tool_calls") or ())) for each in made["messages"]
    ]


def entry(name: str, make: Callable[[Case, str], Any], layout: str = "", *, slots: bool = False) -> Entry:
    """Return an entry."""
    return Entry(name, layout, partial(messages, make=make, layout=layout), slots)


if __name__ == "__main__":
    drive(
        "lazyllm",
        {"slots": slots, "dict": chat, "jsonl": jsonl},
        [
            *(entry("ChatPrompter, a slot, flat", in_slots, layout, slots=True) for layout in MODELS),
            *(entry("ChatPrompter, the input, flat", in_input, layout) for layout in MODELS),
            *(entry("ChatPrompter, history, flat", in_past, layout) for layout in MODELS),
            entry("AlpacaPrompter, an extra key, flat", in_alpaca, "alpaca"),
            entry("ChatPrompter, a slot, messages", in_slots, slots=True),
            entry("ChatPrompter, the input, messages", in_input),
        ],
    )
