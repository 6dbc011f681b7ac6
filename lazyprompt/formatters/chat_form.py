"""The format of OpenAI's Chat Completions API, which is also the base class for other providers' formats."""

from __future__ import annotations

from dataclasses import dataclass
from json import loads
from typing import TYPE_CHECKING, Any

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import is_dict
from lazyprompt.formatters._answers import from_openai_chat
from lazyprompt.formatters._job import PREFILL
from lazyprompt.formatters.shape import (
    FINE,
    check_of,
    list_of,
    name_of_json,
    names_at,
    nullable,
    objects,
    one_of,
    parts_of,
    role_of_json,
    tagged_object,
    text,
    text_of_json,
)
from lazyprompt.messages.msg import (
    Base64Source,
    Source,
)
from lazyprompt.messages.openai_form import OpenAIWriter, UrlPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.profile import MediaKind, Profile
    from lazyprompt.formatters.shape import BlockView, Check, Fault, MessageView, Path, Spec
    from lazyprompt.messages.turns import WrittenTurn


@dataclass(frozen=True, slots=True)
class ChatForm(OpenAIWriter):
    """The format of the Chat Completions API.

    Args:
        needs_content: True if a message with tool calls must also have content.
    """

    needs_content: bool = False
    messages_key: str = "messages"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns as messages."""
        messages = self.messages(turns, names=profile.names is not None)
        if self.thinking and profile.needs_thoughts(model):
            for message in messages:
                if "tool_calls" in message:
                    message.setdefault(self.thinking, "")
        return {"messages": messages}

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return the tools unchanged, because they are already in OpenAI's format."""
        return tools

    def shape(self, profile: Profile) -> Check:
        """Return a check for a payload's messages and tools; other keys are not checked."""
        names = {"text", *(PARTS[kind] for kind in profile.media)}
        own = (self.parts.get(kind) for kind in profile.media)
        names |= {part.kind for part in own if isinstance(part, UrlPart)}
        content, plain, answers = (
            parts_of({kind: each for kind, each in PART_SHAPES.items() if kind in kinds})
            for kinds in (names, {"text"}, {"text", "refusal"})
        )
        calls = list_of(call_shape(json_text), 1)
        return chat_shape(content, plain, calls, profile, answers=answers, needs_content=self.needs_content)

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the path and name of each function tool."""
        for at, tool in objects(payload.get("tools")):
            function = tool.get("function")
            if is_dict(function) and tool.get("type") == "function":
                yield from names_at([(("tools", at, "function"), function)])

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield a ``MessageView`` of each message."""
        # The unanswered calls of the last message with tool calls. A result without an id answers the first call.
        calls: list[BlockView] = []
        messages = objects(payload.get("messages"))
        for at, message in messages:
            path: Path = ("messages", at)
            role, content = message.get("role"), message.get("content")
            if role == "tool":
                given = message.get("tool_call_id", calls[0][2] if calls else "")
                calls = [call for call in calls if call[2] != given]
                yield path, "tool", [("result", (), text_of_json(given), None)], None
                continue
            if at == messages[-1][0] and any(message.get(key) is True for key in PREFILL):
                parts = [self.block_view(part, ("content", index)) for index, part in objects(content)]
                text: BlockView = ("text", ("content",), text_of_json(content), None)
                yield path, "prefill", [text] if isinstance(content, str) else parts, None
                continue
            seen: list[BlockView] = []
            if isinstance(content, str):
                # If a message contains tool calls, empty content is equivalent to missing content.
                if content or not message.get("tool_calls"):
                    seen.append(("text", ("content",), content, None))
            else:
                seen += [self.block_view(part, ("content", index)) for index, part in objects(content)]
            if self.thinking and isinstance(message.get(self.thinking), str):
                seen.append(("thinking", (self.thinking,), message[self.thinking], None))
            calls = [_call_view(call, at, index) for index, call in objects(message.get("tool_calls"))]
            name = message.get("name")
            yield path, role_of_json(role), [*seen, *calls, *self.extra_blocks(message)], name_of_json(name)

    def block_view(self, part: Mapping[str, Any], path: Path) -> BlockView:
        """Return a ``BlockView`` of a content part."""
        kind = text_of_json(part.get("type"))
        inner = part.get(kind)
        if kind not in MEDIA_KINDS or not is_dict(inner):
            # Validate a refusal as text.
            return "text", path, text_of_json(part.get("refusal" if kind == "refusal" else "text")), None
        if kind == "input_audio":
            audio_format = text_of_json(inner.get("format"))
            return "audio", path, f"data:audio/{'mpeg' if audio_format == 'mp3' else audio_format}", None
        address = inner.get("file_data", "data:") if kind == "file" else inner.get("url", "")
        return MEDIA_KINDS[kind], path, text_of_json(address), None

    def extra_blocks(self, message: Mapping[str, Any]) -> list[BlockView]:
        """Return a ``BlockView`` of each block that is stored outside of a message's content."""
        return []

    parse = staticmethod(from_openai_chat)


def _call_view(call: Mapping[str, Any], at: int, index: int) -> BlockView:
    """Return a ``BlockView`` of a tool call; a call without an id gets an id derived from its position."""
    name = fields_of(call.get("function")).get("name")
    call_id = call.get("id", f"call {at}.{index}")
    return "call", ("tool_calls", index), text_of_json(call_id), name_of_json(name)


# The content part types, by kind of media.
PARTS: dict[MediaKind, str] = {"image": "image_url", "audio": "input_audio", "video": "video_url", "file": "file"}
MEDIA_KINDS: dict[str, MediaKind] = {
    **{part: kind for kind, part in PARTS.items()},
    "file_url": "file",
    "audio_url": "audio",
}
_MARKS: dict[str, Spec] = {"prompt_cache_breakpoint?": "object", "cache_control?": "object"}


def _url_shape(part: str) -> dict[str, Spec]:
    return {part: {"url": "text", "detail?": "text"}, **_MARKS}


PART_SHAPES: dict[str, Spec] = {
    "text": {"text": "text", **_MARKS},
    "image_url": _url_shape("image_url"),
    "input_audio": {"input_audio": {"data": "base64", "format": one_of("wav", "mp3")}, **_MARKS},
    "audio_url": _url_shape("audio_url"),
    "video_url": _url_shape("video_url"),
    "file": {"file": {"file_data?": "text", "filename?": "text", "file_id?": "text"}, **_MARKS},
    "file_url": _url_shape("file_url"),
    "refusal": {"refusal": "text"},
}
# The thinking blocks that LiteLLM forwards to Anthropic.
_THOUGHTS: dict[str, Spec] = {
    "thinking": {"thinking": "text", "signature": "text", **_MARKS},
    "redacted_thinking": {"data": "text", **_MARKS},
}
# A function tool, or a tool of another type, for which only the type is checked.
_TOOL = tagged_object(
    "type",
    {
        "function": {
            "function": {"name": "text", "description?": "text", "parameters?": "object", "strict?": "any"},
            "cache_control?": "object",
        }
    },
    other={"type": "text", "...": "any"},
    default="function",
)


def call_shape(arguments: Spec) -> Check:
    """Build a check for a tool call from a check for its arguments."""
    beside: dict[str, Spec] = {"id?": "text", "type?": "text", "index?": "any", "extra_content?": "any"}
    own: dict[str, Spec] = {"function": {"name": "text", "arguments": arguments}, **beside}
    custom = {"custom": {"name": "text", "input": "text"}, "id?": "text", "type?": "text"}
    return tagged_object("type", {"function": own, "custom": custom}, default="function")


def json_text(value: object) -> Sequence[Fault]:
    """Check that a value is a string that contains a JSON object."""
    if type(value) is not str:
        return text(value)
    try:
        is_object = isinstance(loads(value), dict)
    except (ValueError, RecursionError):
        is_object = False
    return FINE if is_object else [((), f"is {value[:60]!r}", "use a string that contains a JSON object")]


def chat_shape(
    content: Check,
    plain: Check,
    calls: Check,
    profile: Profile,
    extra: Mapping[str, Spec] | None = None,
    *,
    answers: Check | None = None,
    needs_content: bool = False,
    names_calls: bool = True,
) -> Check:
    """Build a check for a payload's messages and tools; each role has its own check.

    Args:
        content: The check for the content of user messages.
        plain: The check for the content of system and tool messages, which may only contain text.
        calls: The check for the list of tool calls in an assistant message.
        profile: The provider's rules.
        extra: The checks for additional message keys, by key.
        answers: The check for the content of assistant messages; None to use ``plain``.
        needs_content: True if a message with tool calls must also have content.
        names_calls: True if a tool result must contain the id of its call.
    """
    own: dict[str, Spec] = {"name?": "text", **(extra or {})}
    assistant: dict[str, Spec] = {
        **own,
        **dict.fromkeys(("reasoning_content?", "reasoning?", "refusal?", "thinking?"), "text|null"),
        "content" if needs_content else "content?": nullable(answers or plain),
        "tool_calls?": calls,
        **dict.fromkeys(("audio?", "function_call?", "annotations?"), "any"),
        "thinking_blocks?": list_of(tagged_object("type", _THOUGHTS)),
    }
    if profile.prefill:
        assistant[f"{profile.prefill}?"] = "bool"
    call_id = "tool_call_id" if names_calls else "tool_call_id?"
    system: dict[str, Spec] = {"content": plain, **own}
    roles: dict[str, Spec] = {
        "system": system,
        "user": {"content": content, **own},
        "assistant": _answers_something(check_of({"role": "any", **assistant})),
        "tool": {"content": plain, **own, "tool_name?": "text", call_id: "text"},
    }
    if profile.developer:
        roles["developer"] = system
    return check_of({"messages": list_of(tagged_object("role", roles), 1), "tools?": [_TOOL], "...": "any"})


def _answers_something(message: Check) -> Check:
    def check(value: object) -> Sequence[Fault]:
        faults = message(value)
        given = fields_of(value)
        has_content = given.get("content") is not None
        if faults or has_content or any(given.get(key) for key in ("tool_calls", "refusal", "audio")):
            return faults
        return [(("content",), "is missing, and so are tool_calls", "add one of them")]

    return check


def bare_media(source: Source) -> str:
    """Return a media source's base64 data or its URL."""
    return source.data if isinstance(source, Base64Source) else source.url
