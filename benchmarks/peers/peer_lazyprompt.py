"""lazyprompt itself, put to the same test with its defaults, and once with safety off."""

# ruff: noqa: ANN401 - the payloads of providers have no type

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from driving import Case, Entry, Message, drive

from lazyprompt import ChatFormatter, ChatPrompter, Msg, MultiAgentFormatter, Prompty, TextBlock

# A model family for every layout that the judges know; none for the default markers.
FAMILIES = {
    "documented": "",
    "chatml": "qwen2.5",
    "llama-3": "llama-3.1",
    "mistral": "mistral-v7",
    "gemma": "gemma-3",
    "gemma-4": "gemma-4",
    "phi-3": "phi-3.5",
    "phi-4": "phi-4",
    "deepseek": "deepseek-v3",
    "glm-4": "glm-4.5",
    "kimi-k2": "kimi-k2",
    "seed-oss": "seed-oss",
    "minimax-m2": "minimax-m2",
    "command-r": "command-r",
    "granite": "granite-3",
    **{
        name: name
        for name in (
            *("llama-2", "llama-4", "deepseek-v2", "vicuna", "chatglm3", "baichuan2", "zephyr", "tulu-3", "olmo-2"),
            *("nemotron-nano-2", "exaone-3.5", "exaone-deep", "exaone-4"),
        )
    },
}
PLAIN = ChatPrompter("Be kind.")
OFF = PLAIN.with_safety("off")
INPUTS = "{text: {kind: string}, more: {kind: string}, secret: {kind: string}}"
FILE = f"---\nname: attacked\ninputs: {INPUTS}\ntemplate: {{format: KIND, parser: prompty}}\n---\n"
BODY = "system:\nBe kind. The key is {{secret}}.\n\nuser:\nBEFORE{{text}}{{more}}BEHIND\n"


@lru_cache(maxsize=64)
def slotted(before: str, behind: str) -> ChatPrompter:
    """Return a prompter with the values in its instruction."""
    return ChatPrompter(f"Be kind. {before}{{text}}{{more}}{behind}\nThe key is {{secret}}.")


def flat(case: Case, family: str, *, slots: bool = False, safe: bool = True) -> list[Message]:
    """Put the values into flat text: into slots, or into the user's input."""
    if slots:
        prompter, given = slotted(case.before, case.behind), {**case.slots, "input": "Go on."}
        return [("", prompter.generate_prompt(given, model=family or None), 0)]
    return [("", (PLAIN if safe else OFF).generate_prompt(case.text, model=family or None), 0)]


def openai(case: Case, *, slots: bool) -> list[Message]:
    """Put the values into messages: into slots, or into the user's input."""
    given = {**case.slots, "input": "Go on."} if slots else case.text
    prompter = slotted(case.before, case.behind) if slots else PLAIN
    made: Any = prompter.generate_prompt(given, format="openai")
    return [(each["role"], each["content"], len(each.get("tool_calls", ()))) for each in made["messages"]]


@lru_cache(maxsize=256)
def loaded(kind: str, before: str, behind: str) -> Prompty:
    """Load a prompt file with the developer's text in it."""
    return Prompty.loads(FILE.replace("KIND", kind) + BODY.replace("BEFORE", before).replace("BEHIND", behind))


def prepared(case: Case, kind: str) -> list[Message]:
    """Put the values into a prompt file."""
    prompt = loaded(kind, case.before, case.behind)
    return [message(each, len(prompt.tools_for(case.slots))) for each in prompt.messages(case.slots)]


def message(made: Msg, tools: int) -> Message:
    """Return role, text and the number of other blocks, of tools and of metadata."""
    texts = [block.text for block in made.blocks if isinstance(block, TextBlock)]
    return made.role, "".join(texts), len(made.blocks) - len(texts) + tools + len(made.metadata)


def talk(case: Case, formatter: ChatFormatter) -> list[Message]:
    """Put the values into a talk of several agents."""
    said = [
        Msg("system", "Be kind.", "system"),
        Msg("Ada", [TextBlock(value) for value in case.values], "user"),
        Msg("Bob", "Fine.", "assistant"),
        Msg("Ada", "Go on.", "user"),
    ]
    return [(each["role"], text_of(each["content"]), 0) for each in formatter.format(*said)["messages"]]


def text_of(content: Any) -> str:
    """Return the text of a message, in parts or not."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def entries() -> list[Entry]:
    """Return all entries; those of flat text once for every family."""
    found: list[Entry] = []
    for layout, family in FAMILIES.items():
        at = partial(flat, family=family)
        found += [
            Entry("ChatPrompter, a slot, flat", layout, partial(at, slots=True)),
            Entry("ChatPrompter, the input, flat", layout, at, slots=False),
            Entry('ChatPrompter, the input, flat, safety="off"', layout, partial(at, safe=False), slots=False),
        ]
    many, single = MultiAgentFormatter("openai", history_style="tags"), ChatFormatter("openai")
    return [
        *found,
        Entry("ChatPrompter, a slot, messages", "", partial(openai, slots=True)),
        Entry("ChatPrompter, the input, messages", "", partial(openai, slots=False), slots=False),
        Entry("Prompty v2, an input, messages", "", partial(prepared, kind="jinja2")),
        Entry("Prompty v2, mustache, an input, messages", "", partial(prepared, kind="mustache")),
        Entry("MultiAgentFormatter, tags, what is said", "history", partial(talk, formatter=many), slots=False),
        Entry("ChatFormatter, what is said", "", partial(talk, formatter=single), slots=False),
    ]


if __name__ == "__main__":
    drive("lazyprompt", {}, entries())
