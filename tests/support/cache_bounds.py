"""How much each thing keeps whose source does not say so in a number: see cache_finder."""

from __future__ import annotations

from support.cache_finder import Kept, kept

# What lives longer than a call, and why it does not grow.
BOUNDS: dict[str, str] = {
    "batch/asking.py:Asking._tasks": "the calls under way, as many as may be at once",
    "budget/summary.py:Summaries._made": "the summaries of 64 conversations",
    "budget/tally.py:Tally._new": "the counts of 16,384 messages, and as many from before",
    "messages/encoding.py:_KNOWN": "one entry a tokenizer, as long as that lives",
    "messages/encoding.py:_VOCABULARIES": "one entry an encoding, while that lives; of its tokens, those seen",
    "files/library/file_cache.py:FileCache._kept": (
        "1,000 prompts, and 4,000 listings of directories, of a library; 8 texts of a studio"
    ),
    "modules/_sending.py:Sender._loops": "the event loops that are open",
    "modules/clients/_opened.py:Opened._loops": "the event loops that are open",
    "modules/clients/_zai_lines.py:Lines._all": "the connections that are open",
    "prompters/prompt_maker.py:PromptMaker._by_model": "the copies of a prompter for 32 models",
    "templates/example_selection.py:LengthBudget._known": "the counts of the examples it chose from, 4,096 at most",
}

# Objects of one call, one answer or one file, which go with it.
ONE_CALL = frozenset(
    {
        "AnthropicCollector",
        "ChatCollector",
        "DashScopeCollector",
        "GeminiCollector",
        "Reader",
        "Said",
        "Trace",
        "_Calls",
        "_Candidate",
        "_ChoiceCollector",
        "_Including",
        "_Looking",
        "_Prompt",
        "_Order",
        "_Walk",
        "_Work",
    }
)

# Empty, and never changed.
CONSTANTS = frozenset(
    {
        "modules/clients/_chat_stream.py:_NOTHING",
        "chat_templates/bridge_chats.py:ANY_RESULT",
        "tokens/openai.py:_NO_PARAMETERS",
        "tokens/openai.py:_NO_ROLES",
    }
)


def lasting() -> list[Kept]:
    """All that is kept longer than one call."""
    return [
        each
        for each in kept()
        if each.place not in CONSTANTS and not (each.kind == "object" and owner(each) in ONE_CALL)
    ]


def owner(each: Kept) -> str:
    """The class whose objects keep something."""
    return each.place.rpartition(":")[2].partition(".")[0]


def table() -> str:
    """The table of the documents: what is kept, and how much of it at most."""
    lines = ["| kept by | at most |", "|---|---|"]
    for each in lasting():
        bound = BOUNDS.get(each.place, "") if each.bound is None else f"{each.bound:,}"
        lines.append(f"| `{each.place}` | {bound} |")
    return "\n".join(lines)
