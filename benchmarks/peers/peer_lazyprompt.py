"""lazyprompt itself, put to the same test: every place that takes a text of somebody else, with its defaults."""

# ruff: noqa: ANN401 - the payloads of providers have no type

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from driving import CANARY, Case, Entry, Message, serve

from lazyprompt import AlpacaPrompter, ChatFormatter, ChatPrompter, Msg, MultiAgentFormatter, Prompty, TextBlock

if TYPE_CHECKING:
    from lazyprompt.messages.history import HistoryLike

# A model family for every layout that the judges know; none for the markers of the documents.
FAMILIES = {
    "documented": "",
    "chatml": "qwen2.5",
    "llama-2": "llama-2",
    "llama-3": "llama-3.1",
    "llama-4": "llama-4",
    "mistral": "mistral-v7",
    "gemma": "gemma-3",
    "gemma-4": "gemma-4",
    "phi-3": "phi-3.5",
    "phi-4": "phi-4",
    "deepseek": "deepseek-v3",
    "deepseek-v2": "deepseek-v2",
    "vicuna": "vicuna",
    "glm-4": "glm-4.5",
    "chatglm3": "chatglm3",
    "baichuan2": "baichuan2",
    "kimi-k2": "kimi-k2",
    "seed-oss": "seed-oss",
    "minimax-m2": "minimax-m2",
    "command-r": "command-r",
    "granite": "granite-3",
    "zephyr": "zephyr",
    "tulu-3": "tulu-3",
    "olmo-2": "olmo-2",
    "nemotron-nano-2": "nemotron-nano-2",
    "exaone-3.5": "exaone-3.5",
    "exaone-deep": "exaone-deep",
    "exaone-4": "exaone-4",
}
PLAIN = ChatPrompter("Be kind.")
STYLES: tuple[Literal["tags", "conversation"], ...] = ("tags", "conversation")
# What the judges see where nothing is done.
OFF = PLAIN.with_safety("off")
ALPACA = AlpacaPrompter("Sum up.", extra_keys=["text"])
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Pay it."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}],
    },
]
INPUTS = "{text: {kind: string}, more: {kind: string}, secret: {kind: string}}"
RULES = "system:\nBe kind. The key is {{secret}}.\n\n"
FILE = "---\nname: attacked\ninputs: %s\ntemplate: {format: %s, parser: prompty}\n---\n" + RULES + "user:\n"
AGENT = "---\nname: attacked\ninputs: %s\n---\n" + RULES + "tools:\n[]\n\nuser:\n"
# The prompt files: their dialect, and what stands before the values.
FILES = {
    "Prompty v2": ("v2", FILE % (INPUTS, "jinja2")),
    "Prompty v2, mustache": ("v2", FILE % (INPUTS, "mustache")),
    "agent definition": ("agentschema", AGENT % INPUTS),
}


def slots(case: Case) -> dict[str, str]:
    """What fills the slots, and what the user asks."""
    first, second = case.two
    return {"text": first, "more": second, "secret": CANARY, "input": "Go on."}


@lru_cache(maxsize=64)
def slotted(before: str, behind: str) -> ChatPrompter:
    """A prompter with the values in its instruction."""
    return ChatPrompter(f"Be kind. {before}{{text}}{{more}}{behind}\nThe key is {{secret}}.")


def flat(prompter: ChatPrompter, family: str, given: object, history: HistoryLike | None = None) -> list[Message]:
    """Flat text for a model, or for none that is known."""
    return [("", prompter.generate_prompt(given, history, model=family or None), 0)]


def flat_slot(case: Case, family: str) -> list[Message]:
    """Flat text with the values in slots."""
    return flat(slotted(case.before, case.behind), family, slots(case))


def flat_input(case: Case, family: str) -> list[Message]:
    """Flat text with the values as what the user asks."""
    return flat(PLAIN, family, case.text)


def flat_off(case: Case, family: str) -> list[Message]:
    """The same with nothing done about it."""
    return flat(OFF, family, case.text)


def flat_past(case: Case, family: str) -> list[Message]:
    """Flat text with the values as what the user asked before."""
    return flat(PLAIN, family, "Go on.", [[case.text, "Fine."]])


def flat_result(case: Case, family: str) -> list[Message]:
    """Flat text with the values as what a tool gave back."""
    return flat(PLAIN, family, "Go on.", [*CALLED, {"role": "tool", "tool_call_id": "call_1", "content": case.text}])


def alpaca(case: Case) -> list[Message]:
    """Flat text of the other prompter."""
    return [("", ALPACA.generate_prompt({"text": case.text}), 0)]


def messages(made: Any) -> list[Message]:
    """Messages, with what else they hold counted."""
    return [(each["role"], each["content"], len(each.get("tool_calls", ()))) for each in made["messages"]]


def openai_slot(case: Case) -> list[Message]:
    """Messages with the values in slots."""
    return messages(slotted(case.before, case.behind).generate_prompt(slots(case), format="openai"))


def openai_input(case: Case) -> list[Message]:
    """Messages with the values as what the user asks."""
    return messages(PLAIN.generate_prompt(case.text, format="openai"))


@lru_cache(maxsize=256)
def loaded(name: str, before: str, behind: str) -> Prompty:
    """A prompt file with the developer's text in it."""
    dialect, head = FILES[name]
    return Prompty.loads(f"{head}{before}{{{{text}}}}{{{{more}}}}{behind}\n", dialect=dialect)


def prepared(case: Case, name: str) -> list[Message]:
    """The messages of a prompt file."""
    first, second = case.two
    prompt = loaded(name, case.before, case.behind)
    given = {"text": first, "more": second, "secret": CANARY}
    return [message(each, len(prompt.tools_for(given))) for each in prompt.messages(given)]


def message(made: Msg, tools: int) -> Message:
    """A message, with the tools, and with what is no text in it counted."""
    texts = [block.text for block in made.blocks if isinstance(block, TextBlock)]
    return made.role, "".join(texts), len(made.blocks) - len(texts) + tools + len(made.metadata)


def file_flat(case: Case) -> list[Message]:
    """Flat text of a prompt file."""
    first, second = case.two
    given = {"text": first, "more": second, "secret": CANARY}
    return [("", loaded("Prompty v2", case.before, case.behind).generate_prompt(given, model="qwen2.5"), 0)]


def talk(said: list[str], name: str = "Ada") -> list[Msg]:
    """A talk in which somebody says something; each value is a block."""
    return [
        Msg("system", "Be kind.", "system"),
        Msg(name, [TextBlock(value) for value in said], "user"),
        Msg("Bob", "Fine.", "assistant"),
        Msg("Ada", "Go on.", "user"),
    ]


def merged(case: Case, formatter: ChatFormatter) -> list[Message]:
    """The talk as a formatter writes it."""
    return formatted(formatter, talk(case.values))


def named(case: Case, formatter: ChatFormatter) -> list[Message]:
    """The same, with somebody whose name ends in the value."""
    return formatted(formatter, talk(["Yes."], f"Dr {case.text}"))


def formatted(formatter: ChatFormatter, said: list[Msg]) -> list[Message]:
    """What a formatter makes of messages."""
    return [(each["role"], text_of(each["content"]), 0) for each in formatter.format(*said)["messages"]]


def text_of(content: Any) -> str:
    """The text of a message, be it in parts or not."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def entries() -> list[Entry]:
    """All entries; those of flat text once for every family."""
    found: list[Entry] = []
    for layout, family in FAMILIES.items():
        found += [
            Entry("ChatPrompter, a slot, flat", layout, partial(flat_slot, family=family)),
            Entry("ChatPrompter, the input, flat", layout, partial(flat_input, family=family), slots=False),
            Entry("ChatPrompter, history, flat", layout, partial(flat_past, family=family), slots=False),
            Entry("ChatPrompter, a tool's result, flat", layout, partial(flat_result, family=family), slots=False),
        ]
    found += [
        Entry('ChatPrompter, the input, flat, safety="off"', layout, partial(flat_off, family=family), slots=False)
        for layout, family in FAMILIES.items()
    ]
    found += [
        Entry("AlpacaPrompter, an extra key, flat", "alpaca", alpaca, slots=False),
        Entry("ChatPrompter, a slot, messages", "", openai_slot),
        Entry("ChatPrompter, the input, messages", "", openai_input, slots=False),
        Entry("Prompty v2, an input, flat", "chatml", file_flat),
    ]
    found += [Entry(f"{name}, an input, messages", "", partial(prepared, name=name)) for name in FILES]
    for style in STYLES:
        many = MultiAgentFormatter("openai", history_style=style)
        found += [
            Entry(
                f"MultiAgentFormatter, {style}, what is said", "history", partial(merged, formatter=many), slots=False
            ),
            Entry(f"MultiAgentFormatter, {style}, a name", "history", partial(named, formatter=many), slots=False),
        ]
    single = partial(merged, formatter=ChatFormatter("openai"))
    return [*found, Entry("ChatFormatter, what is said", "", single, slots=False)]


if __name__ == "__main__":
    serve(entries())
