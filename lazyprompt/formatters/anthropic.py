"""Anthropic's Messages API.

Source: the API reference, "Create a Message"; the guides on tool use, vision, PDF, extended thinking and prompt
caching; the types of the official client.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.errors import MediaError
from lazyprompt.formatters._answers import from_anthropic
from lazyprompt.formatters.profile import IMAGES, PDF, Breakpoints, Media, Profile
from lazyprompt.formatters.shape import (
    check_of,
    listed,
    name_of_json,
    named,
    new_kind,
    objects,
    parts_of,
    role_of_json,
    tagged,
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
    from lazyprompt.formatters.shape import Check, Kind, Path, Seen, Spec, View
    from lazyprompt.messages.msg import Source
    from lazyprompt.messages.turns import Content, WrittenTurn


@dataclass(frozen=True, slots=True)
class AnthropicForm:
    """Messages of content blocks, results in the user's."""

    messages_key: str = "messages"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the system text and the messages of turns."""
        payload: dict[str, Any] = {}
        messages: list[JsonObject] = []
        # The results of the turn before, where there are any.
        answers: list[Json] = []
        behind_results = False
        for role, _, content, _ in turns:
            if role == "system" and not messages:
                payload["system"] = content if isinstance(content, str) else _blocks(content)
            elif role == "tool":
                if not behind_results:
                    answers, behind_results = [], True
                    messages.append({"role": "user", "content": answers})
                if isinstance(content, Native):
                    answers += content.parts()
                    continue
                for block in content:
                    if isinstance(block, ToolResultBlock):
                        answers.append(_result(block))
            elif behind_results and role == "user":
                # Results are the user's, so what the user says next stands in the same turn.
                answers += _blocks(content)
            else:
                messages.append({"role": role, "content": content if isinstance(content, str) else _blocks(content)})
                behind_results = False
        payload["messages"] = messages
        return payload

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return functions with their ``input_schema``, and Anthropic's own tools as they are."""
        return [_tool(tool) for tool in tools]

    def shape(self, profile: Profile) -> Check:
        """Return the check of messages, and of system text beside and among them; other keys are the caller's."""
        user, assistant = {**_SAID, "tool_result": _RESULT_SHAPE}, {**_ANSWERED, **_SERVER}
        roles = {
            "user": {"content": parts_of(user, other=new_kind(user))},
            "assistant": {"content": parts_of(assistant, other=new_kind(assistant))},
            "system": {"content": parts_of({"text": _TEXT}, other=new_kind({"text": _TEXT}))},
        }
        messages, system = listed(tagged("role", roles), 1), parts_of({"text": _TEXT})
        return check_of({"messages": messages, "system?": system, "tools?": [_TOOL], "...": "any"})

    def views(self, payload: Mapping[str, Any]) -> Iterator[View]:
        """Yield the system text and the messages, results apart from the user's text behind them."""
        system = payload.get("system")
        if system is not None:
            yield ("system",), "system", _seen(system, ()), None
        for at, message in objects(payload.get("messages")):
            path: Path = ("messages", at)
            role, seen = role_of_json(message.get("role")), _seen(message.get("content"), ("content",))
            results = [each for each in seen if each[0] == "result"] if role == "user" else []
            if not results:
                yield path, role, seen, None
                continue
            content = [each for each in seen if each[0] != "result"]
            # What the user says before results parts them from their calls.
            if results != seen[: len(results)]:
                yield path, role, content, None
                content = []
            yield path, "tool", results, None
            if content:
                yield path, role, content, None

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the names of the tools."""
        return named((("tools", at), tool) for at, tool in objects(payload.get("tools")))

    parse = staticmethod(from_anthropic)


def _blocks(content: Content | Native) -> list[Json]:
    if isinstance(content, Native):
        return content.parts()
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    # A call is written here, for there are many: a function of its own would cost as much again.
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
    """Return the text of a plain text file.

    Raises:
        MediaError: It is not UTF-8.
    """
    try:
        return b64decode(data).decode()
    except UnicodeDecodeError as error:
        raise MediaError(f"a text/plain file is not UTF-8: {error}; Anthropic takes its text: convert it") from error


def _result(block: ToolResultBlock) -> JsonObject:
    output = block.output
    form: JsonObject = {"type": "tool_result", "tool_use_id": block.id}
    # A result that is empty has no content; an empty text would be refused.
    if output:
        form["content"] = output if isinstance(output, str) else _blocks(output)
    if block.is_error:
        form["is_error"] = True
    return form


def _tool(tool: JsonObject) -> JsonObject:
    if tool["type"] != "function":
        return tool
    function = cast("JsonObject", tool["function"])
    form: JsonObject = {"name": function["name"]}
    if function.get("description"):
        form["description"] = function["description"]
    form["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        form["strict"] = function["strict"]
    # The profile's ``tool_keys`` stand beside the function.
    return form | {key: value for key, value in tool.items() if key not in ("type", "function")}


def _seen(content: object, path: Path) -> list[Seen]:
    """Return the blocks of a content as the rules look at them."""
    if isinstance(content, str):
        return [("text", path, content, None)]
    seen: list[Seen] = []
    for at, block in objects(content):
        kind = _KINDS.get(text_of_json(block.get("type")))
        place = (*path, at)
        if kind == "call":
            seen.append((kind, place, text_of_json(block.get("id")), name_of_json(block.get("name"))))
        elif kind == "result":
            seen.append((kind, place, text_of_json(block.get("tool_use_id")), None))
        elif kind == "text":
            # The shape reports what is no text; it is not reported as empty as well.
            text = block.get("text")
            seen.append((kind, place, text if isinstance(text, str) else "-", None))
        elif kind is None:
            seen.append(("other", place, "", None))
        else:
            seen.append((kind, place, _address(block), None))
    return seen


def _address(block: Mapping[str, Any]) -> str:
    """Return the address of a medium, or ``data:`` and its MIME type; nothing of a thought."""
    source = block.get("source")
    given = cast("JsonObject", source) if isinstance(source, dict) else {}
    encoded = text_of_json(given.get("media_type")) if given.get("type") == "base64" else ""
    return text_of_json(given.get("url", f"data:{encoded}"))


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
    "image": {"source": tagged("type", _SOURCES), **_MARK, "transformations?": "any"},
    "document": {
        "source": tagged("type", {**_SOURCES, **_DOCUMENTS}),
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
# A new release may put further keys into what the model says.
_ANSWERED: dict[str, Spec] = {
    "text": {**_TEXT, "...": "any"},
    "thinking": {"thinking": "text", "signature": "text", "...": "any"},
    "redacted_thinking": {"data": "text", "...": "any"},
    "tool_use": {"id": "text", "name": "text", "input": "object", **_MARK, "...": "any"},
}
# What Anthropic's own tools leave in its answers; their form is not judged.
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
# A tool with its schema; Anthropic's own have a type instead.
_TOOL = tagged("type", {"custom": _FUNCTION}, {"type": "text", "name": "text", "...": "any"}, default="custom")

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
    # Those from Claude Opus 4.8 on, without the preview of Mythos.
    late_system=re.compile(
        r"(?!.*\b(?:claude-(?:instant|v?[12]\b|3|(?:sonnet|haiku)-4|opus-4(?![-.](?:[89]|\d\d)(?!\d)))|mythos-preview))"
    ),
    alternate=True,
    user_first=True,
    needs_user=True,
    empty_text=False,
    # Its API makes one turn of neighbours.
    unenforced=frozenset({"alternation", "user first", "unique ids"}),
    ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    tool_names=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    tool_keys=frozenset({"cache_control", *_TOOL_KEYS}),
    # The API's own error names them.
    refused_schema_keys=frozenset({"oneOf", "anyOf", "allOf"}),
    # Older models go on with a last turn of the assistant; those from Claude 4.6 on refuse it.
    prefill="",
    no_prefill=re.compile(r".*\bclaude-(?!instant|v?[12]\b|3|(?:opus|sonnet|haiku)-4(?![-.](?:[6-9]|\d\d)(?!\d)))"),
    trailing_space=False,
    breakpoints=Breakpoints(key="cache_control", mark={"type": "ephemeral"}, lifetimes=("5m", "1h"), tools=True),
)
