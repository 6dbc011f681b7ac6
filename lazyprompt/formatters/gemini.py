"""The format and rules of Google's Gemini API, using the field names of the official client (google-genai).

Source: the page "generateContent" in the API reference and the types in the official client, which accepts bytes as
base64 text. Details come from the guides on function calling, thought signatures and file input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lazyprompt._base.client_objects import fields_of, snake_keys
from lazyprompt._base.json import is_dict, is_list, json_object
from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import from_gemini
from lazyprompt.formatters.profile import PDF, HistoryLayout, Media, Profile
from lazyprompt.formatters.shape import (
    FINE,
    check_of,
    list_of,
    name_of_json,
    names_at,
    objects,
    one_of,
    text_of_json,
    text_or,
)
from lazyprompt.media.resolver import media_type_of
from lazyprompt.messages.msg import Base64Source, TextBlock, ToolResultBlock, ToolUseBlock, text_of
from lazyprompt.messages.native import Native
from lazyprompt.messages.turns import Content, WrittenTurn, tools_called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Fields, Json, JsonObject
    from lazyprompt.formatters.shape import BlockView, Check, Fault, Kind, MessageView, Path, Spec
    from lazyprompt.messages.msg import AudioBlock, FileBlock, ImageBlock, VideoBlock

# Google's documented placeholder signature for function calls that Gemini did not generate.
_UNSIGNED = "skip_thought_signature_validator"
_ASKS_SIGNATURES = re.compile(r"(models/)?gemini-([3-9]|\d\d)")


@dataclass(frozen=True, slots=True)
class GeminiForm:
    """Gemini's format, in which ``contents`` entries consist of parts and user entries contain the tool results.

    Args:
        strings: True to write text parts as plain strings, which Google's original SDK accepted.
    """

    strings: bool = False
    messages_key: str = "contents"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns as the system instruction and contents."""
        payload: dict[str, Any] = {}
        contents: list[JsonObject] = []
        signs = model is not None and _ASKS_SIGNATURES.match(model) is not None
        tools = tools_called(turns)
        parts: list[Json] = []
        after_results = False
        # The ids of Gemini's function calls. If a call has no id, its result must not have an id either.
        ids: set[object] | None = None
        for role, _, content, _ in turns:
            if role == "system" and not isinstance(content, Native):
                payload["system_instruction"] = text_of(content)
            elif role == "tool":
                if not after_results:
                    parts, after_results = [], True
                    contents.append({"role": "user", "parts": parts})
                parts += content.parts() if isinstance(content, Native) else _responses(content, tools, ids)
            elif after_results and role == "user":
                # Gemini expects tool results and the next user text in one content entry.
                parts += self.parts(content)
            else:
                parts, after_results = self.parts(content), False
                contents.append({"role": _ROLES[role], "parts": parts})
                if role == "assistant":
                    ids = _call_ids(parts) if isinstance(content, Native) else None
                    _with_signature(parts if signs else [])
        payload["contents"] = contents
        return payload

    def parts(self, content: Content | Native) -> list[Json]:
        """Write a turn's content as a list of parts."""
        if isinstance(content, Native):
            return content.parts()
        if isinstance(content, str):
            return [content] if self.strings else [{"text": content}]
        # Convert tool calls inline, because calling a function for each tool call would double the conversion time.
        parts: list[Json] = [
            {"function_call": {"id": block.id, "name": block.name, "args": block.own_arguments()}}
            if isinstance(block, ToolUseBlock) and not block.signature
            else _WRITERS.get(block.kind, _medium)(block)
            for block in content
        ]
        if self.strings:
            return [part["text"] if isinstance(part, dict) and part.keys() == {"text"} else part for part in parts]
        return parts

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return a single tool that declares all functions."""
        return [{"function_declarations": [_declaration(tool, index) for index, tool in enumerate(tools)]}]

    def shape(self, profile: Profile) -> Check:
        """Return a check for a payload's contents, system instruction and tools; other keys are not checked."""
        part = text_or(_part_shape) if self.strings else _part_shape
        contents = list_of({"parts": list_of(part, 1), "role?": one_of("user", "model")}, 1)
        return check_of({"contents": contents, "system_instruction?": "any", "tools?": ["object"], "...": "any"})

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the payload path and the name of each declared function."""
        for at, tool in objects(payload.get("tools")):
            for key in ("function_declarations", "functionDeclarations"):
                yield from names_at((("tools", at, key, index), each) for index, each in objects(tool.get(key)))

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield a ``MessageView`` of the system text and of each entry; an entry's tool results are a separate view."""
        system = payload.get("system_instruction")
        if isinstance(system, str):
            yield ("system_instruction",), "system", [("text", (), system, None)], None
        calls: list[BlockView] = []
        for at, content in objects(payload.get("contents")):
            path: Path = ("contents", at)
            seen = _block_views(content.get("parts"), at)
            if content.get("role") == "model":
                yield path, "assistant", seen, None
                calls = [each for each in seen if each[0] == "call"]
                continue
            results = [each for each in seen if each[0] == "result"]
            if results:
                yield path, "tool", _matched(results, calls), None
            others = [each for each in seen if each[0] != "result"]
            if others or not results:
                yield path, "user", others, None

    parse = staticmethod(from_gemini)


_ROLES = {"assistant": "model", "user": "user"}


def _call_ids(parts: list[Json]) -> set[object]:
    """Return the ids of the function calls among the parts."""
    calls = [fields_of(snake_keys(part).get("function_call")) for part in parts]
    return {call["id"] for call in calls if call.get("id")}


def _with_signature(parts: list[Json]) -> None:
    """Add a signature to a turn's first call, because Gemini 3 requires one even for another model's calls."""
    call = next((part for part in parts if isinstance(part, dict) and "function_call" in part), None)
    if call is not None:
        call.setdefault("thought_signature", _UNSIGNED)


def _text(block: TextBlock) -> JsonObject:
    return _signed({"text": block.text}, block.signature)


def _call(block: ToolUseBlock) -> JsonObject:
    call: JsonObject = {"id": block.id, "name": block.name, "args": block.own_arguments()}
    return _signed({"function_call": call}, block.signature)


_WRITERS: dict[str, Callable[[Any], JsonObject]] = {"text": _text, "tool_use": _call}


def _signed(part: JsonObject, signature: str | None) -> JsonObject:
    if signature:
        part["thought_signature"] = signature
    return part


def _medium(block: ImageBlock | AudioBlock | VideoBlock | FileBlock) -> JsonObject:
    source = block.source
    if isinstance(source, Base64Source):
        return {"inline_data": {"mime_type": source.media_type, "data": source.data}}
    media_type = source.media_type or media_type_of(source.url)
    file: JsonObject = {"file_uri": source.url}
    return {"file_data": file | {"mime_type": media_type} if media_type else file}


def _responses(content: Content, tools: Mapping[str, str], ids: set[object] | None) -> list[Json]:
    """Write a turn's tool results as function responses.

    Args:
        content: The content of the turn.
        tools: The names of the called tools, by call id.
        ids: The call ids that results may contain if Gemini made the tool calls; None if another model made the calls.
    """
    return [
        _response(block, tools.get(block.id, block.name), has_id=ids is None or block.id in ids)
        for block in content
        if isinstance(block, ToolResultBlock)
    ]


def _response(block: ToolResultBlock, tool: str, *, has_id: bool) -> JsonObject:
    response: JsonObject = {"name": tool, "response": {"error" if block.is_error else "output": block.text}}
    return {"function_response": {"id": block.id, **response} if has_id else response}


def _declaration(tool: JsonObject, index: int) -> JsonObject:
    if tool["type"] != "function":
        raise FormatError(f"tools[{index}] has the type {tool['type']!r}, but Gemini only accepts functions")
    function = json_object(tool["function"])
    form: JsonObject = {"name": function["name"]}
    if function.get("description"):
        form["description"] = function["description"]
    if function.get("parameters"):
        form["parameters_json_schema"] = function["parameters"]
    return form


def _matched(results: list[BlockView], calls: list[BlockView]) -> list[BlockView]:
    """Return the tool results, each with its call's id; a result without an id is matched by tool name and order."""
    matched: list[BlockView] = []
    left = list(calls)
    for kind, path, call_id, name in results:
        call = next((each for each in left if call_id == each[2] or (not call_id and name == each[3])), None)
        if call is not None:
            left.remove(call)
        matched.append((kind, path, call_id if call is None else call[2], name))
    return matched


def _block_views(parts: object, at: int) -> list[BlockView]:
    """Return a ``BlockView`` of each part in a ``contents`` entry.

    A call without an id gets an id derived from its position.
    """
    seen: list[BlockView] = []
    for index, part in enumerate(parts if is_list(parts) else ()):
        path: Path = ("parts", index)
        if not is_dict(part):
            seen.append(("text", path, text_of_json(part), None))
            continue
        key = next((key for key in part if key in _KEYS), None)
        if key is None:
            seen += _text_view(part, path)
            continue
        kind, inner = _KEYS[key], fields_of(part[key])
        call_id, name = text_of_json(inner.get("id")), name_of_json(inner.get("name"))
        if kind == "call":
            seen.append((kind, path, call_id or f"call {at}.{index}", name))
        elif kind == "result":
            seen.append((kind, path, call_id, name))
        else:
            media_type = text_of_json(inner.get("mime_type") or inner.get("mimeType"))
            address = text_of_json(inner.get("file_uri") or inner.get("fileUri")) or f"data:{media_type}"
            seen.append((_MEDIA.get(media_type.partition("/")[0], kind), path, address, None))
    return seen


def _text_view(part: Fields, path: Path) -> list[BlockView]:
    """Return a one-item list with the ``BlockView`` of a text or thinking part, or ``[]`` for a part without text."""
    if "text" not in part:
        return []
    text = text_of_json(part["text"])
    # Gemini may return empty text with a signature that the next request must repeat, so don't report blank text.
    signed = "thought_signature" in part or "thoughtSignature" in part
    thought = part.get("thought") is True or (signed and not text)
    return [("thinking" if thought else "text", path, text, None)]


_MEDIA: dict[str, Kind] = {"image": "image", "audio": "audio", "video": "video"}
_KEYS: dict[str, Kind] = {
    "function_call": "call",
    "functionCall": "call",
    "function_response": "result",
    "functionResponse": "result",
    "inline_data": "file",
    "inlineData": "file",
    "file_data": "file",
    "fileData": "file",
}
_TYPE: dict[str, Spec] = dict.fromkeys(("mime_type?", "mimeType?", "display_name?", "displayName?"), "text")
_CALL = {"name": "text", "id?": "text|null", "args?": "object"}
_RESPONSE: dict[str, Spec] = {
    "name": "text",
    "response": "object",
    "id?": "text|null",
    "parts?": ["object"],
    "will_continue?": "any",
    "scheduling?": "any",
}
_INLINE: dict[str, Spec] = {"data": "base64", **_TYPE}
_FILE: dict[str, Spec] = {**_TYPE, "file_uri?": "text", "fileUri?": "text"}
# The keys of a content part in the SDK and in the REST API.
_PART: dict[str, Spec] = {
    "text?": "text",
    **dict.fromkeys(("function_call?", "functionCall?"), _CALL),
    **dict.fromkeys(("function_response?", "functionResponse?"), _RESPONSE),
    **dict.fromkeys(("inline_data?", "inlineData?"), _INLINE),
    **dict.fromkeys(("file_data?", "fileData?"), _FILE),
    **dict.fromkeys(
        ("thought?", "thought_signature?", "thoughtSignature?", "video_metadata?", "videoMetadata?"), "any"
    ),
    **dict.fromkeys(("executable_code?", "code_execution_result?", "executableCode?", "codeExecutionResult?"), "any"),
}

_check_part = check_of(_PART)
# The keys that any part may contain besides its content.
_BESIDE = frozenset({"thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata"})
_KNOWN = frozenset(key.removesuffix("?") for key in _PART) - _BESIDE


def _part_shape(part: object) -> Sequence[Fault]:
    """Check a part; accept a part with only unknown keys, because new API releases may add kinds of parts."""
    keys = fields_of(part).keys()
    return FINE if keys and _KNOWN.isdisjoint(keys) else _check_part(part)


GEMINI = Profile(
    name="gemini",
    form=GeminiForm(),
    source="https://ai.google.dev/api/generate-content",
    native="gemini",
    media={
        # Gemini can generate media, so assistant turns may contain media.
        "image": Media(("image/*",), schemes=("gs",), assistant=True),
        # Google documents audio/mp3 instead of audio/mpeg.
        "audio": Media(("audio/mp3", "audio/*"), schemes=("gs",), assistant=True),
        "video": Media(("video/*",), schemes=("gs",), assistant=True),
        "file": Media((*PDF, "text/*"), schemes=("gs",), assistant=True),
    },
    error_results=True,
    signs_parts=True,
    system="apart",
    alternate=True,
    user_first=True,
    user_last=True,
    needs_user=True,
    empty_text=False,
    unenforced=frozenset({"alternation", "empty text"}),
    tool_names=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
    strict_tools=False,
    layouts={
        # AgentScope's documented examples pass parts as plain strings, which Google's original SDK accepted.
        style: HistoryLayout("joined", changes={"form": GeminiForm(strings=True)})
        for style in ("conversation", "dialogue")
    },
)
