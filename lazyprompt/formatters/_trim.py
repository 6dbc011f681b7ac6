"""Where a conversation may be cut: the oldest goes first, a call and its results go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lazyprompt.messages import Msg, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from lazyprompt.formatters._turns import MessageLike
    from lazyprompt.openai_form import Fields


def cuts(messages: list[MessageLike]) -> list[tuple[list[MessageLike], list[MessageLike]]]:
    """All ways to leave out the oldest messages, the one that leaves out least first.

    Args:
        messages: The messages.

    Returns:
        For each way the system messages at the front, which always stay, and the messages that are left. A message
        goes by itself, a call with all its results; the newest of these always stays.
    """
    front = 0
    while front < len(messages) and _role(messages[front]) in ("system", "developer"):
        if _ids(messages[front])[1]:
            break  # a result in a message of the role system
        front += 1
    system = messages[:front]
    ends: list[int] = []
    waiting: set[str] = set()
    for at in range(front, len(messages)):
        calls, results = _ids(messages[at])
        waiting = (waiting | calls) - results
        if not waiting:
            ends.append(at + 1)
    return [(system, messages[end:]) for end in ends if end < len(messages)]


def _role(message: MessageLike) -> object:
    return message.role if isinstance(message, Msg) else message.get("role")


def _ids(message: MessageLike) -> tuple[set[str], set[str]]:
    """The ids of the calls in a message, and of the results."""
    if isinstance(message, Msg):
        blocks = message.blocks
        calls = {block.id for block in blocks if isinstance(block, ToolUseBlock)}
        return calls, {block.id for block in blocks if isinstance(block, ToolResultBlock)}
    listed = message.get("tool_calls")
    calls = {str(call.get("id")) for call in cast("list[Fields]", listed)} if isinstance(listed, list) else set[str]()
    given = message.get("tool_call_id")
    return calls, {str(given)} if given is not None else set()
