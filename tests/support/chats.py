"""Chats with tools and signed reasoning, as an application keeps them: each request has all previous messages."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from lazyprompt import Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Block

TOOL = {
    "type": "function",
    "function": {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}
_WORDS = ("lighthouse", "keeper", "counts", "ships", "at", "night", "and", "writes", "each", "name", "down")


def synthetic_chat(seed: int, *, late_system: bool = False, provider: str = "anthropic") -> list[Msg]:
    """Return a chat of about twelve answers.

    Args:
        seed: The seed of all chance.
        late_system: Whether system text stands in mid-conversation too.
        provider: The provider whose thoughts they are.
    """
    chance = Random(seed)  # noqa: S311 - reproducible random data
    messages = [Msg("system", f"You keep the log. {_text(chance, 20)}", "system")]
    for turn in range(6):
        if late_system and turn and chance.random() < 0.4:
            messages.append(Msg("system", f"From now on: {_text(chance, 6)}", "system"))
        messages.append(Msg("user", _text(chance, 15), "user"))
        for call in range(chance.choice((0, 1, 1, 2))):
            call_id = f"toolu_{turn}_{call}"
            thinks = _thought(chance, f"{turn}.{call}", provider)
            asks: tuple[Block, ...] = thinks, ToolUseBlock(call_id, "find", {"q": _text(chance, 3)})
            messages.append(Msg("assistant", asks, "assistant"))
            messages.append(Msg("tool", [ToolResultBlock(call_id, "find", _text(chance, 25))], "tool"))
        answer = _thought(chance, f"{turn}.answer", provider), TextBlock(_text(chance, 20))
        messages.append(Msg("assistant", answer, "assistant"))
    return [*messages, Msg("user", _text(chance, 15), "user")]


def requests_of(messages: Sequence[Msg]) -> list[list[Msg]]:
    """Return the messages of each request of a chat: all before an answer, and all."""
    ends = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return [list(messages[:end]) for end in (*ends, len(messages))]


def _thought(chance: Random, name: str, provider: str) -> ThinkingBlock:
    return ThinkingBlock(_text(chance, 8), signature=f"signed-{name}", id=f"rs_{name}", provider=provider)


def _text(chance: Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words))
