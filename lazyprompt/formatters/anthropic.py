"""The format and rules of Anthropic's Messages API.

Source: the page "Create a Message" in the API reference and the types in the official client. Details come from the
guides on tool use, vision, PDF support, extended thinking and prompt caching.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import json_object
from lazyprompt.errors import MediaError
from lazyprompt.formatters._answers import from_anthropic
from lazyprompt.formatters.profile import IMAGES, PDF, Breakpoints, Media, Profile
from lazyprompt.formatters.shape import (
    check_of,
    list_of,
    name_of_json,
    names_at,
    new_kind,
    objects,
    parts_of,
    role_of_json,
    tagged_object,
    text_of_json,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.formatters.shape import BlockView, Check, Kind, MessageView, Path, Spec
    from lazyprompt.messages.msg import Source
    from lazyprompt.messages.turns import Content, WrittenTurn


@dataclass(frozen=True, slots=True)
class AnthropicForm:
    """Anthropic's message format, in which content consists of blocks and user messages contain the tool results."""

    messages_key: str = "messages"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns as system text and messages."""
        payload: dict[str, Any] = {}
        messages: list[JsonObject] = []
        answers: list[Json] = []
        after_results = False
        for role, _, content, _ in turns:
            if role == "system" and not messages:
                payload["system"] = content if isinstance(content, str) else _blocks(content)
            elif role == "tool":
                if not after_results:
                    answers, after_results = [], True
                    messages.append({"role": "user", "content": answers})
                if isinstance(content, Native):
                    answers += content.parts()
                    continue
                for block in content:
                    if isinstance(block, ToolResultBlock):
                        answers.append(_result(block))
            elif after_results and role == "user":
                # Tool results are part of a user message, so add the next user turn to this message.
                answers += _blocks(content)
            else:
                messages.append({"role": role, "content": content if isinstance(content, str) else _blocks(content)})
                after_results = False
        payload["messages"] = messages
        return payload

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Convert function tools to Anthropic's format; Anthropic's own tools stay unchanged."""
        return [_tool(tool) for tool in tools]

    def shape(self, profile: Profile) -> Check:
        """Return a check for a payload's messages, system text and tools; other keys are not checked."""
        user, assistant = {**_SAID, "tool_result": _RESULT_SHAPE}, {**_ANSWERED, **_SERVER}
        roles = {
            "user": {"content": parts_of(user, other=new_kind(user))},
            "assistant": {"content": parts_of(assistant, other=new_kind(assistant))},
            "system": {"content": parts_of({"text": _TEXT}, other=new_kind({"text": _TEXT}))},
        }
        messages, system = list_of(tagged_object("role", roles), 1), parts_of({"text": _TEXT})
        return check_of({"messages": messages, "system?": system, "tools?": [_TOOL], "...": "any"})

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield a ``MessageView`` of the system text and each message; a message's tool results are a separate view."""
        system = payload.get("system")
        if system is not None:
            yield ("system",), "system", _block_views(system, ()), None
        for at, message in objects(payload.get("messages")):
            path: Path = ("messages", at)
            role, seen = role_of_json(message.get("role")), _block_views(message.get("content"), ("content",))
            results = [each for each in seen if each[0] == "result"] if role == "user" else []
            if not results:
                yield path, role, seen, None
                continue
            content = [each for each in seen if each[0] != "result"]
            # Tool results must come first in a message, because user text would separate them from their calls.
            if results != seen[: len(results)]:
                yield path, role, content, None
                content = []
            yield path, "tool", results, None
            if content:
                yield path, role, content, None

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the path and name of each tool."""
        return names_at((("tools", at), tool) for at, tool in objects(payload.get("tools")))

    parse = staticmethod(from_anthropic)


def _blocks(content: Content | Native) -> list[Json]:
    if isinstance(content, Native):
        return content.parts()
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    # Convert tool calls inline, because calling a function for each tool call would double the conversion time.
    return [
        {"type": "tool_use", "id": block.id, "name": block.name, "input": block.own_arguments()}
        if isinstance(block, ToolUseBlock)
        else _WRITERS[block.kind](block)
        for block in content
    ]


def _text(block: TextBlock) -> JsonObject:
    return {"type": "text", "text": block.text}


def _thought(block: ThinkingBlock) -> JsonObject:
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}


def _image(block: ImageBlock) -> JsonObject:
    return {"type": "image", "source": _source(block.source)}


def _document(block: FileBlock) -> JsonObject:
    document: JsonObject = {"type": "document", "source": _source(block.source)}
    return document | {"title": block.filename} if block.filename else document


_WRITERS: dict[str, Callable[[Any], JsonObject]] = {
    "text": _text,
    "thinking": _thought,
    "image": _image,
    "file": _document,
}


def _source(source: Source) -> JsonObject:
    if isinstance(source, Base64Source) and source.media_type == "text/plain":
        return {"type": "text", "media_type": source.media_type, "data": _decoded(source.data)}
    if isinstance(source, Base64Source):
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    return {"type": "url", "url": source.url}


def _decoded(data: str) -> str:
    """Decode the base64 data of a plain text file.

    Raises:
        MediaError: The text is not UTF-8.
    """
    try:
        return b64decode(data).decode()
    except UnicodeDecodeError as error:
        raise MediaError(f"text/plain file is not UTF-8: {error}; convert it to UTF-8 for Anthropic") from error


def _result(block: ToolResultBlock) -> JsonObject:
    output = block.output
    form: JsonObject = {"type": "tool_result", "tool_use_id": block.id}
    # Omit the content of an empty result, because Anthropic rejects empty text.
    if output:
        form["content"] = output if isinstance(output, str) else _blocks(output)
    if block.is_error:
        form["is_error"] = True
    return form


def _tool(tool: JsonObject) -> JsonObject:
    if tool["type"] != "function":
        return tool
    function = json_object(tool["function"])
    form: JsonObject = {"name": function["name"]}
    if function.get("description"):
        form["description"] = function["description"]
    form["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        form["strict"] = function["strict"]
    # Keep the additional tool keys that the profile allows.
    return form | {key: value for key, value in tool.items() if key not in ("type", "function")}


def _block_views(content: object, path: Path) -> list[BlockView]:
    """Return a ``BlockView`` of each block in message content."""
    if isinstance(content, str):
        return [("text", path, content, None)]
    seen: list[BlockView] = []
    for at, block in objects(content):
        kind = _KINDS.get(text_of_json(block.get("type")))
        place = (*path, at)
        if kind == "call":
            seen.append((kind, place, text_of_json(block.get("id")), name_of_json(block.get("name"))))
        elif kind == "result":
            seen.append((kind, place, text_of_json(block.get("tool_use_id")), None))
        elif kind == "text":
            # The shape check reports values that are not strings, so don't also report them as blank text.
            text = block.get("text")
            seen.append((kind, place, text if isinstance(text, str) else "-", None))
        elif kind is None:
            seen.append(("other", place, "", None))
        else:
            seen.append((kind, place, _address(block), None))
    return seen


def _address(block: Mapping[str, Any]) -> str:
    """Return a media block's URL, or ``data:`` followed by its MIME type."""
    source = fields_of(block.get("source"))
    encoded = text_of_json(source.get("media_type")) if source.get("type") == "base64" else ""
    return text_of_json(source.get("url", f"data:{encoded}"))


_KINDS: dict[str, Kind] = {
    "text": "text",
    "tool_use": "call",
    "tool_result": "result",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "image": "image",
    "document": "file",
}
_MARK: dict[str, Spec] = {"cache_control?": "object|null"}
_TEXT: dict[str, Spec] = {"text": "text", **_MARK, "citations?": "any"}
_SOURCES: dict[str, Spec] = {
    "base64": {"media_type": "text", "data": "base64"},
    "url": {"url": "text"},
    "file": {"file_id": "text"},
}
_DOCUMENTS: dict[str, Spec] = {"text": {"media_type": "text", "data": "text"}, "content": {"content": "any"}}
_SAID: dict[str, Spec] = {
    "text": _TEXT,
    "image": {"source": tagged_object("type", _SOURCES), **_MARK, "transformations?": "any"},
    "document": {
        "source": tagged_object("type", {**_SOURCES, **_DOCUMENTS}),
        **_MARK,
        "citations?": "any",
        "context?": "text|null",
        "title?": "text|null",
    },
    "search_result": "object",
    "container_upload": "object",
}
_RESULT_SHAPE: dict[str, Spec] = {
    "tool_use_id": "text",
    **_MARK,
    "content?": parts_of({**_SAID, "tool_reference": "object"}, 0),
    "is_error?": "any",
    "toolset_name?": "any",
}
# The content blocks of model responses. Unknown keys are accepted, because new API versions may add keys.
_ANSWERED: dict[str, Spec] = {
    "text": {**_TEXT, "...": "any"},
    "thinking": {"thinking": "text", "signature": "text", "...": "any"},
    "redacted_thinking": {"data": "text", "...": "any"},
    "tool_use": {"id": "text", "name": "text", "input": "object", **_MARK, "...": "any"},
}
# The content blocks of Anthropic's server tools, for which only the block type is checked.
_EXECUTION = ("code_execution", "bash_code_execution", "text_editor_code_execution")
_SERVER_TOOLS = ("web_search", "web_fetch", *_EXECUTION, "tool_search")
_SERVER: dict[str, Spec] = dict.fromkeys(
    ("server_tool_use", "container_upload", *(f"{tool}_tool_result" for tool in _SERVER_TOOLS)), "object"
)
_TOOL_KEYS = ("input_examples", "defer_loading", "allowed_callers", "eager_input_streaming")
_FUNCTION: dict[str, Spec] = {
    "name": "text",
    "input_schema": "object",
    **_MARK,
    "type?": "text|null",
    "description?": "text",
    "strict?": "any",
    **dict.fromkeys((f"{key}?" for key in _TOOL_KEYS), "any"),
}
# A custom tool with an input schema, or an Anthropic-defined tool, for which only the type and name are checked.
_TOOL = tagged_object("type", {"custom": _FUNCTION}, {"type": "text", "name": "text", "...": "any"}, default="custom")

ANTHROPIC = Profile(
    name="anthropic",
    form=AnthropicForm(),
    source="https://platform.claude.com/docs/en/api/messages",
    native="anthropic",
    media={"image": Media(IMAGES), "file": Media((*PDF, "text/plain"))},
    result_media=frozenset({"image", "file"}),
    error_results=True,
    thinking="signed",
    system="apart",
    # Claude Opus 4.8 and later models, except Mythos Preview, accept system text after the first turn.
    late_system=re.compile(
        r"(?!.*\b(?:claude-(?:instant|v?[12]\b|3|(?:sonnet|haiku)-4|opus-4(?![-.](?:[89]|\d\d)(?!\d)))|mythos-preview))"
    ),
    alternate=True,
    user_first=True,
    needs_user=True,
    empty_text=False,
    # Anthropic's documentation states these message rules, but Anthropic's API does not enforce them.
    unenforced=frozenset({"alternation", "user first", "unique ids"}),
    ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    tool_names=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    tool_keys=frozenset({"cache_control", *_TOOL_KEYS}),
    # Anthropic rejects these keys at the root of a tool's schema.
    refused_schema_keys=frozenset({"oneOf", "anyOf", "allOf"}),
    # Older models continue a final assistant turn, but Claude 4.6 and later models reject it.
    prefill="",
    no_prefill=re.compile(r".*\bclaude-(?!instant|v?[12]\b|3|(?:opus|sonnet|haiku)-4(?![-.](?:[6-9]|\d\d)(?!\d)))"),
    trailing_space=False,
    breakpoints=Breakpoints(key="cache_control", mark={"type": "ephemeral"}, lifetimes=("5m", "1h"), tools=True),
)
