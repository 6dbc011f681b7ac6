"""OpenAI's Responses API.

Source: the API reference, "Create a model response"; the guides on reasoning, function calling and file inputs; the
types of the official client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.json import Json, JsonObject, dump
from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import from_responses
from lazyprompt.formatters.chat_form import json_text
from lazyprompt.formatters.openai import OPENAI
from lazyprompt.formatters.profile import IMAGES, PDF, Media, Profile
from lazyprompt.formatters.shape import (
    check_of,
    listed,
    name_of_json,
    named,
    objects,
    one_of,
    parts_of,
    role_of_json,
    tagged,
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

    from lazyprompt.formatters.shape import Check, Path, Seen, Spec, View
    from lazyprompt.messages.msg import Block
    from lazyprompt.messages.turns import Content, WrittenTurn


# Blocks that are items of their own; texts and media are parts of a message.
_Apart = ThinkingBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True)
class ResponsesForm:
    """Items in a row: messages, reasoning, calls and their outputs.

    System text is a message of the role ``developer``: the newest models put ``instructions`` behind the input, where
    no cache holds them.
    """

    messages_key: str = "input"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the input of turns."""
        customs = [turn[2].custom_calls() for turn in turns if isinstance(turn[2], Native)]
        free = frozenset[str]().union(*customs)
        return {"input": [item for role, _, content, _ in turns for item in _items(role, content, free)]}

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return functions with name and parameters beside their type, and OpenAI's own tools as they are."""
        return [_tool(tool) for tool in tools]

    def shape(self, profile: Profile) -> Check:
        """Return the check of items by type; other keys of a request are the caller's."""
        items = text_or(listed(_ITEM, 1))
        return check_of({"input": items, "instructions?": "text", "tools?": [_TOOL], "...": "any"})

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the names of the functions."""
        tools = objects(payload.get("tools"))
        return named((("tools", at), tool) for at, tool in tools if tool.get("type") == "function")

    def views(self, payload: Mapping[str, Any]) -> Iterator[View]:
        """Yield the instructions and the items, each as a message of its own."""
        if "instructions" in payload:
            yield ("instructions",), "system", [("text", (), text_of_json(payload["instructions"]), None)], None
        if isinstance(payload.get("input"), str):
            yield ("input",), "user", [("text", (), payload["input"], None)], None
        items = objects(payload.get("input"))
        # A conversation that the server keeps has its calls there.
        kept = bool(payload.get("previous_response_id") or payload.get("conversation"))
        kinds = [(text_of_json(item.get("type")), text_of_json(item.get("call_id"))) for _, item in items]
        calls = {call_id for kind, call_id in kinds if kind == "function_call"}
        # Calls of OpenAI's own tools may be answered by the same item as those of functions.
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
                content = item.get("content")
                seen = [_seen(part, ("content", index)) for index, part in objects(content)]
                content_seen: list[Seen] = [("text", ("content",), content, None)] if isinstance(content, str) else seen
                yield path, role_of_json(item.get("role")), content_seen, None

    parse = staticmethod(from_responses)


def _items(role: str, content: Content | Native, free: frozenset[str]) -> Iterator[Json]:
    """Yield the items of a turn; texts and media between other blocks stay in one message.

    Args:
        role: The role of the turn.
        content: Its content.
        free: The ids of calls of custom tools, whose outputs have a type of their own.
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
    # The assistant's texts have no input form of their own but a plain string.
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
            raise FormatError(f"the Responses API has no item for this {block!r}")


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
            raise FormatError(f"the Responses API has no part for this {block.kind} block: {block!r}")


def _tool(tool: JsonObject) -> JsonObject:
    if tool["type"] != "function":
        return tool
    function = cast("JsonObject", tool["function"])
    # Without "strict" the API would hold the schema to rules that Chat Completions does not ask for.
    form: JsonObject = {"type": "function", "name": function["name"], "strict": function.get("strict", False)}
    form["parameters"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("description"):
        form["description"] = function["description"]
    # The profile's ``tool_keys`` stand beside the function.
    return form | {key: value for key, value in tool.items() if key not in ("type", "function")}


def _seen(part: Mapping[str, Any], path: Path) -> Seen:
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
    "message": tagged(
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
# Of OpenAI's own tools, and of what they leave in its answers, only that each has a type.
_OTHER: dict[str, Spec] = {"type": "text", "...": "any"}
_TOOL = tagged("type", {"function": _FUNCTION}, other=_OTHER)
_ITEM = tagged("type", _ITEMS, other=_OTHER, default="message")

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
