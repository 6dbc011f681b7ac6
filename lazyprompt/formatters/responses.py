"""The format and rules of OpenAI's Responses API.

Source: the page "Create a model response" in the API reference and the types in the official client. Further details
of the format come from OpenAI's guides on reasoning, function calling and file inputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lazyprompt._base.json import Json, JsonObject, dump, json_object
from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import from_responses
from lazyprompt.formatters.chat_form import json_text
from lazyprompt.formatters.openai import OPENAI
from lazyprompt.formatters.profile import IMAGES, PDF, Media, Profile
from lazyprompt.formatters.shape import (
    check_of,
    list_of,
    name_of_json,
    names_at,
    objects,
    one_of,
    parts_of,
    role_of_json,
    tagged_object,
    text_of_json,
    text_or,
)
from lazyprompt.messages.msg import (
    Base64Source,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from lazyprompt.messages.native import Native
from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt.formatters.shape import BlockView, Check, MessageView, Path, Spec
    from lazyprompt.messages.msg import Block
    from lazyprompt.messages.turns import Content, WrittenTurn


# The block types that become separate items. Text and media become parts of a message item.
_Apart = ThinkingBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True)
class ResponsesForm:
    """OpenAI's Responses format: a list of messages, reasoning items, tool calls and tool outputs.

    System text is written as a message with the role ``developer``. The key ``instructions`` is not used, because for
    the newest models the API inserts instructions after the input, where they are not cached.
    """

    messages_key: str = "input"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns as input items."""
        customs = [turn[2].custom_calls() for turn in turns if isinstance(turn[2], Native)]
        free = frozenset[str]().union(*customs)
        return {"input": [item for role, _, content, _ in turns for item in _items(role, content, free)]}

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Convert function tools to the flat format of the Responses API; OpenAI's own tools stay unchanged."""
        return [_tool(tool) for tool in tools]

    def shape(self, profile: Profile) -> Check:
        """Return a check for a payload's input items and tools; other keys are not checked."""
        items = text_or(list_of(_ITEM, 1))
        return check_of({"input": items, "instructions?": "text", "tools?": [_TOOL], "...": "any"})

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield each function tool's path in the payload and its name."""
        tools = objects(payload.get("tools"))
        return names_at((("tools", at), tool) for at, tool in tools if tool.get("type") == "function")

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield a ``MessageView`` of the instructions and of each input item."""
        if "instructions" in payload:
            yield ("instructions",), "system", [("text", (), text_of_json(payload["instructions"]), None)], None
        if isinstance(payload.get("input"), str):
            yield ("input",), "user", [("text", (), payload["input"], None)], None
        items = objects(payload.get("input"))
        # If OpenAI stores the earlier conversation, the payload may contain tool results without their calls.
        kept = bool(payload.get("previous_response_id") or payload.get("conversation"))
        kinds = [(text_of_json(item.get("type")), text_of_json(item.get("call_id"))) for _, item in items]
        calls = {call_id for kind, call_id in kinds if kind == "function_call"}
        # The call ids of built-in tools. Some built-in tools use the same result type as functions.
        others = {call_id for kind, call_id in kinds if kind.endswith("_call")} - calls
        for place, (at, item) in enumerate(items):
            path: Path = ("input", at)
            kind = item.get("type", "message")
            call_id = text_of_json(item.get("call_id"))
            if kind == "function_call":
                yield path, "assistant", [("call", (), call_id, name_of_json(item.get("name")))], None
            elif kind == "function_call_output":
                if call_id in calls or not (kept or call_id in others):
                    yield path, "tool", [("result", (), call_id, None)], None
            elif kind == "reasoning":
                follows = items[place + 1][1] if place + 1 < len(items) else {}
                if follows.get("role", "user") != "assistant" and follows.get("type", "message") == "message":
                    yield path, "assistant", [("thinking", (), "", None)], None
            elif kind == "message":
                yield path, role_of_json(item.get("role")), _content_views(item.get("content")), None

    parse = staticmethod(from_responses)


def _items(role: str, content: Content | Native, free: frozenset[str]) -> Iterator[Json]:
    """Yield the items for a turn; adjacent texts and media become a single message item.

    Args:
        role: The role of the turn.
        content: The content of the turn.
        free: The ids of custom tool calls; outputs of custom tools are items of a different type.
    """
    if isinstance(content, Native):
        yield from content.parts()
        return
    role = "developer" if role == "system" else role
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    for apart, group in groupby(content, lambda block: isinstance(block, _Apart)):
        if apart:
            yield from (_item(block, free) for block in group)
        else:
            yield _message(role, [*group])


def _message(role: str, blocks: list[Block]) -> JsonObject:
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    # The Responses API accepts assistant text in the input only as a plain string.
    if role == "assistant" or len(blocks) == len(texts) == 1:
        return {"role": role, "content": "\n".join(texts)}
    return {"role": role, "content": [_part(block) for block in blocks]}


def _item(block: Block, free: frozenset[str]) -> JsonObject:
    match block:
        case ToolUseBlock():
            arguments = str(dump(block.arguments))
            return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
        case ToolResultBlock():
            kind = "custom_tool_call_output" if block.id in free else "function_call_output"
            given = block.output
            output: Json = given if isinstance(given, str) else [_part(each) for each in given] or ""
            return {"type": kind, "call_id": block.id, "output": output}
        case ThinkingBlock(thinking, id=thought_id):
            summary: list[Json] = [{"type": "summary_text", "text": thinking}] if thinking else []
            item: JsonObject = {"type": "reasoning", "id": thought_id, "summary": summary}
            return item | {"encrypted_content": block.signature} if block.signature else item
        case _:
            raise FormatError(f"the Responses API does not support this item: {block!r}")


def _part(block: Block) -> JsonObject:
    match block:
        case TextBlock(text):
            return {"type": "input_text", "text": text}
        case ImageBlock(source, detail=detail):
            return {"type": "input_image", "detail": detail or "auto", "image_url": address_of(source)}
        case FileBlock(source, filename=filename):
            if isinstance(source, Base64Source):
                return {"type": "input_file", "filename": filename or "file.pdf", "file_data": address_of(source)}
            return {"type": "input_file", "file_url": source.url}
        case _:
            raise FormatError(f"the Responses API does not support this {block.kind} block: {block!r}")


def _tool(tool: JsonObject) -> JsonObject:
    if tool["type"] != "function":
        return tool
    function = json_object(tool["function"])
    # Set ``strict``, because the Responses API enables strict mode by default and Chat Completions doesn't.
    form: JsonObject = {"type": "function", "name": function["name"], "strict": function.get("strict", False)}
    form["parameters"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("description"):
        form["description"] = function["description"]
    # Keep the additional tool keys that the profile allows.
    return form | {key: value for key, value in tool.items() if key not in ("type", "function")}


def _content_views(content: object) -> list[BlockView]:
    if isinstance(content, str):
        return [("text", ("content",), content, None)]
    return [_block_view(part, ("content", index)) for index, part in objects(content)]


def _block_view(part: Mapping[str, Any], path: Path) -> BlockView:
    match part.get("type"):
        case "input_image":
            return "image", path, text_of_json(part.get("image_url")) or "data:", None
        case "input_file":
            return "file", path, text_of_json(part.get("file_url") or part.get("file_data")) or "data:", None
        case _:
            return "text", path, text_of_json(part.get("text")), None


_MARKED: dict[str, Spec] = {"prompt_cache_breakpoint?": "object"}
_INPUTS: dict[str, Spec] = {
    "input_text": {"text": "text", **_MARKED},
    "input_image": {**_MARKED, "image_url?": "text|null", "file_id?": "text|null", "detail?": "text"},
    "input_file": {
        **_MARKED,
        **dict.fromkeys(("file_data?", "file_url?", "file_id?", "filename?"), "text|null"),
        "detail?": "text",
    },
}
_OUTPUTS: dict[str, Spec] = {
    "output_text": {"text": "text", "annotations?": "any", "logprobs?": "any"},
    "refusal": {"refusal": "text"},
}
_BESIDE: dict[str, Spec] = {"type?": one_of("message"), "id?": "text", "status?": "text", "phase?": "any"}
_SAYS: dict[str, Spec] = {"content": parts_of(_INPUTS), **_BESIDE}
_STATE: dict[str, Spec] = {"id?": "text|null", "status?": "text|null", "caller?": "any", "namespace?": "any"}
_ITEMS: dict[str, Spec] = {
    "message": tagged_object(
        "role",
        {
            **dict.fromkeys(("user", "system", "developer"), _SAYS),
            "assistant": {"content": parts_of(_OUTPUTS), **_BESIDE, "...": "any"},
        },
    ),
    "function_call": {"call_id": "text", "name": "text", "arguments": json_text, **_STATE, "...": "any"},
    "function_call_output": {"call_id": "text", "output": parts_of(_INPUTS, 0), **_STATE, "name?": "any"},
    "reasoning": {
        "id": "text",
        "summary": [{"type": one_of("summary_text"), "text": "text"}],
        "encrypted_content?": "text|null",
        "content?": "any",
        "status?": "text|null",
        "...": "any",
    },
}
_FUNCTION: dict[str, Spec] = {
    "name": "text",
    "parameters": "object|null",
    "strict?": "any",
    "description?": "text|null",
    "defer_loading?": "any",
    "allowed_callers?": "any",
}
# OpenAI's built-in tools and their call items, for which only the type is checked.
_OTHER: dict[str, Spec] = {"type": "text", "...": "any"}
_TOOL = tagged_object("type", {"function": _FUNCTION}, other=_OTHER)
_ITEM = tagged_object("type", _ITEMS, other=_OTHER, default="message")

OPENAI_RESPONSES = OPENAI.but(
    name="openai-responses",
    form=ResponsesForm(),
    source="https://platform.openai.com/docs/api-reference/responses/create",
    native="openai-responses",
    media={"image": Media(IMAGES), "file": Media((*PDF, "application/*", "text/*"))},
    result_media=frozenset({"image", "file"}),
    results_anywhere=True,
    thinking="items",
    names=None,
    tool_keys=frozenset({"defer_loading", "allowed_callers"}),
    ids=re.compile(r"[^\x00-\x1f\x7f]{1,64}"),
    id_length=64,
)
