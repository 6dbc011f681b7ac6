"""What this library does for each row of the table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from floors import FEW, MANY, half, run_python
from shapes import DICT, NEXT, ORDERS, SHAPES, TEXT, forged_pairs, history, orders, talk
from work import MODEL, QUESTION, ROWS, SLOTS, TOOLS, TURNS, conversation, prompt_path

from lazyprompt import (
    AlpacaPrompter,
    Budget,
    ChatFormatter,
    ChatPrompter,
    Markers,
    TiktokenCounter,
    messages_from,
)
from lazyprompt.batch.render import RowPlan
from lazyprompt.files.library.library import PromptLibrary
from lazyprompt.files.prompty import Prompty
from lazyprompt.messages.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


def contenders(vocabulary: Path) -> dict[str, Callable[..., object]]:
    """All rows by their keys; those that have shapes are called with one.

    Args:
        vocabulary: The file of o200k_base.
    """
    return {**prompts(), **payloads(), **shaped(), **trims(vocabulary), **files(), **bulk()}


def prompts() -> dict[str, Callable[..., object]]:
    """A chat as a dict and as flat text; both are safe by default."""
    slots, chat = slotted(), ChatPrompter("Be brief.", tools=TOOLS)
    alpaca, brief = AlpacaPrompter("When does it open? {context}"), ChatPrompter("Be brief.")
    family = brief.with_markers(Markers.for_model("chatml"))
    pairs, messages = forged_pairs(), messages_from(talk())
    opening: dict[str, str | dict[str, str]] = {TEXT: SLOTS["context"], DICT: {"context": SLOTS["context"]}}
    return {
        "alpaca": lambda shape: alpaca.generate_prompt(opening[shape]),
        "forged": lambda: family.generate_prompt(NEXT, pairs),
        "talk": lambda: brief.generate_prompt(NEXT, messages, return_dict=True),
        "slots": lambda: slots.generate_prompt(SLOTS, return_dict=True),
        "dict": lambda: chat.generate_prompt("And now?", TURNS, return_dict=True),
        "flat": lambda: chat.generate_prompt("And now?", TURNS),
        "chatml": lambda: family.generate_prompt("And now?", TURNS),
        "import": partial(run_python, "from lazyprompt import ChatPrompter"),
    }


def slotted() -> ChatPrompter:
    """The prompter of three slots."""
    return ChatPrompter(
        {"system": "You answer as {role}.", "user": "Context: {context}\nQuestion: {question}"}, system=""
    )


def payloads() -> dict[str, Callable[[], object]]:
    """Forty messages with tools as payloads: from Msg, from OpenAI dicts, and judged after."""
    messages, tools = messages_from(ORDERS), ToolSet.of(TOOLS)
    found: dict[str, Callable[[], object]] = {}
    for provider in ("anthropic", "gemini"):
        formatter = ChatFormatter(provider)

        def judged(formatter: ChatFormatter = formatter) -> object:
            payload = formatter.format(*messages, tools=tools)
            formatter.validate(payload)
            return payload

        found[provider] = partial(formatter.format, *messages, tools=tools)
        found[f"{provider} dicts"] = partial(formatter.format, *ORDERS, tools=tools)
        found[f"{provider} judged"] = judged
    return found


def shaped() -> dict[str, Callable[[str], object]]:
    """Conversations of every shape, from Msg and from OpenAI dicts: as payloads, as OpenAI's dict and as ChatML."""
    prompter, tools = ChatPrompter("Be brief."), ToolSet.of(TOOLS)
    family = prompter.with_markers(Markers.for_model("chatml"))

    def payload(formatter: ChatFormatter, conversations: Mapping[str, Sequence[Any]], shape: str) -> object:
        return formatter.format(*conversations[shape], tools=tools)

    def openai(histories: Mapping[str, Sequence[Any]], shape: str) -> object:
        return prompter.generate_prompt(NEXT, histories[shape], return_dict=True)

    def chatml(histories: Mapping[str, Sequence[Any]], shape: str) -> object:
        return family.generate_prompt(NEXT, histories[shape])

    found: dict[str, Callable[[str], object]] = {}
    for given, made in (("", messages_from), (" dicts", list[Any])):
        asked, behind = ({shape: made(work(shape)) for shape in SHAPES} for work in (orders, history))
        for provider in ("anthropic", "gemini"):
            found[f"{provider}{given} shapes"] = partial(payload, ChatFormatter(provider), asked)
        found[f"agent openai{given}"] = partial(openai, behind)
        found[f"agent chatml{given}"] = partial(chatml, behind)
    return found


def trims(vocabulary: Path) -> dict[str, Callable[[], object]]:
    """A conversation cut to half of its tokens: none counted before, and all."""
    counter = TiktokenCounter("o200k_base", bpe_file=vocabulary)
    found: dict[str, Callable[[], object]] = {}
    for name, count in (("trim few", FEW), ("trim many", MANY)):
        messages, most = conversation(count), half(count)
        known = Budget(most, counter, low_water=1)
        found[name] = lambda messages=messages, most=most: Budget(most, counter, low_water=1).fit(messages)[0]  # type: ignore[misc]  # mypy knows no types of a lambda's defaults
        found[f"{name} known"] = lambda messages=messages, known=known: known.fit(messages)[0]  # type: ignore[misc]  # the same
    return found


def files() -> dict[str, Callable[[], object]]:
    """A prompt file, read each time; and out of a library, which reads it when it has changed."""
    path = prompt_path()
    library = PromptLibrary(path.parent)
    return {
        "file": lambda: Prompty.load(path).generate_prompt(QUESTION, return_dict=True)["messages"],
        "file kept": lambda: library.get("order-help").generate_prompt(QUESTION, return_dict=True)["messages"],
    }


def bulk() -> dict[str, Callable[[], object]]:
    """Rows as lines of an OpenAI Batch file."""
    prompter = slotted()

    def lines() -> object:
        line = RowPlan.of(prompter, "openai-batch", model=MODEL).line
        return b"".join([line(number, row) for number, row in enumerate(ROWS, 1)])

    return {"jsonl": lines}
