"""Reads the items of OpenAI's Responses API: messages, reasoning, calls and their outputs, each an item by itself.

Source of the form: the API reference, "Create a model response", and the types of the official client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt.messages.histories.openai import arguments_in, id_of_place, message_from_openai
from lazyprompt.messages.histories.parts import Beside, list_in, needed_text, object_in, read_parts, text_in
from lazyprompt.messages.msg import Msg, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import PART_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Fields

# State of the service's own; no content of a speaker.
_STATE = {"type", "id", "status"}


def read_item(item: Fields, where: str, waiting: Mapping[str, str]) -> tuple[Msg, ...]:
    """Read an item.

    Args:
        item: The item as a dict.
        where: How an error names it.
        waiting: The calls still without a result: their tools by their ids.

    Returns:
        The message that the item is, or is a part of; see :func:`continues`.

    Raises:
        HistoryError: A field has a wrong shape.
    """
    beside: Beside = {}
    message = ITEMS[str(item["type"])](item, where, waiting, beside)
    if not beside:
        return (message,)
    return (Msg(message.name, message.content, message.role, metadata={**message.metadata, PART_FIELDS: beside}),)


def continues(before: Msg, new: Msg) -> bool:
    """Return True if an item belongs to the message of the items before it.

    Outputs belong together. An answer is thoughts, then text, then calls, as one message of any other form has them.
    """
    if before.role != new.role or new.role not in ("assistant", "tool") or (before.metadata and new.metadata):
        return False
    order = ["thinking", "text", "tool_use", "tool_result"]
    last, first = before.blocks[-1:], new.blocks[:1]
    return (
        bool(last and first)
        and order.index(_order(last[0].type)) <= order.index(_order(first[0].type))
        and not (last[0].type == first[0].type == "text")
    )


def _order(kind: str) -> str:
    return kind if kind in ("thinking", "tool_use", "tool_result") else "text"


def _message(item: Fields, where: str, waiting: Mapping[str, str], _: Beside) -> Msg:
    return message_from_openai({key: item[key] for key in item if key not in _STATE}, where, waiting)


def _reasoning(item: Fields, where: str, _: Mapping[str, str], __: Beside) -> Msg:
    parts = list_in(item.get("summary"), f"{where}.summary") or list_in(item.get("content"), f"{where}.content")
    texts = [
        text_in(object_in(part, f"{where}.summary[{index}]").get("text"), f"{where}.summary[{index}].text")
        for index, part in enumerate(parts)
    ]
    thought = ThinkingBlock(
        "\n\n".join(texts),
        text_in(item.get("encrypted_content"), f"{where}.encrypted_content") or None,
        id=text_in(item.get("id"), f"{where}.id") or None,
        provider="openai-responses",
    )
    return Msg("assistant", [thought], "assistant")


def _call(item: Fields, where: str, _: Mapping[str, str], __: Beside) -> Msg:
    call_id = text_in(item.get("call_id"), f"{where}.call_id") or id_of_place(where)
    name = needed_text(item.get("name"), f"{where}.name")
    arguments = arguments_in(item.get("arguments"), f"{where}.arguments")
    return Msg("assistant", [ToolUseBlock(call_id, name, arguments)], "assistant")


def _output(item: Fields, where: str, _: Mapping[str, str], beside: Beside) -> Msg:
    call_id = needed_text(item.get("call_id"), f"{where}.call_id")
    output = item.get("output")
    content = output if isinstance(output, str) else read_parts(output, f"{where}.output", beside)
    return Msg("tool", [ToolResultBlock(call_id, text_in(item.get("name"), f"{where}.name"), content)], "tool")


ITEMS: dict[str, Callable[[Fields, str, Mapping[str, str], Beside], Msg]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _output,
}
"""The readers of items, by their type."""
