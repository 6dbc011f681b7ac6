"""Defines turns: messages with an index, which a provider's rules modify and a writer renders."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lazyprompt.messages.msg import ThinkingBlock, ToolUseBlock, plain_block
from lazyprompt.messages.native import Native

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt._base.roles import Role
    from lazyprompt.messages.msg import Block, Msg

Content: TypeAlias = "str | tuple[Block, ...]"
# A turn contains the role, the speaker's name (or an empty string), the content, and the message's index.
Turn: TypeAlias = "tuple[Role, str, Content, int]"
# A turn to write. The content keeps the provider's native format if no rule changed the content.
WrittenTurn: TypeAlias = "tuple[Role, str, Content | Native, int]"


def turns_of(messages: Iterable[Msg]) -> list[Turn]:
    """Convert each message to a :class:`Turn`, which contains the message's role, speaker, content and index."""
    return [(message.role, message.speaker, message.content, at) for at, message in enumerate(messages)]


_SPOKEN = frozenset({"system", "user", "assistant"})


def are_texts(messages: Sequence[Msg]) -> bool:
    """Return True if every message is a system, user or assistant message that contains only non-blank text.

    Most conversations contain only plain text messages, so the rules for blocks, names and media can be skipped.
    """
    return not [
        message
        for message in messages
        if not isinstance(message.content, str)
        or not message.content
        or message.content.isspace()
        or message.role not in _SPOKEN
        or message.url is not None
        or message.speaker
        or message.metadata
        or message.native
    ]


def blocks_of(content: Content) -> tuple[Block, ...]:
    """Return message content as blocks. A plain string becomes a single block."""
    return content if isinstance(content, tuple) else (plain_block(content),) if content else ()


def tools_called(turns: Iterable[WrittenTurn]) -> dict[str, str]:
    """Return the names of the tools called in turns, by call id."""
    return {
        block.id: block.name
        for turn in turns
        if isinstance(turn[2], tuple) and not isinstance(turn[2], Native)
        for block in turn[2]
        if isinstance(block, ToolUseBlock)
    }


def calls_tools(content: Content) -> bool:
    """Return True if the content contains a tool call."""
    return isinstance(content, tuple) and any(isinstance(block, ToolUseBlock) for block in content)


def without_signed_thoughts(content: Content) -> Content:
    """Remove reasoning that a provider signed. Content without signed reasoning is returned unchanged."""
    if isinstance(content, str) or not any(map(_is_signed, content)):
        return content
    return tuple(block for block in content if not _is_signed(block))


def _is_signed(block: Block) -> bool:
    return isinstance(block, ThinkingBlock) and bool(block.signature or block.redacted or block.id)
