"""What payloads of the OpenAI chat form, and of its likes, look like."""

from __future__ import annotations

from json import loads
from typing import TYPE_CHECKING, cast

from lazyprompt.formatters.shape import (
    FINE,
    anything,
    base64,
    fields,
    listed,
    mapping,
    nullable,
    one_of,
    tagged,
    text,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.formatters.profile import MediaKind, Profile
    from lazyprompt.formatters.shape import Check, Fault

# The key of a block that marks the end of what OpenAI is to cache.
MARK = "prompt_cache_breakpoint"
# How the kinds of media are called among the parts, and what such parts look like.
PARTS: dict[MediaKind, str] = {"image": "image_url", "audio": "input_audio", "video": "video_url", "file": "file"}
MEDIA_KINDS: dict[str, MediaKind] = {
    **{part: kind for kind, part in PARTS.items()},
    "file_url": "file",
    "audio_url": "audio",
}
_MARKS: dict[str, Check] = {MARK: mapping, "cache_control": mapping}


def url_shape(part: str) -> Check:
    """A part of an address under a key of its own kind."""
    return fields({"type": anything, part: fields({"url": text}, {"detail": text})}, _MARKS)


PART_SHAPES: dict[str, Check] = {
    "text": fields({"type": anything, "text": text}, _MARKS),
    "image_url": url_shape("image_url"),
    "video_url": url_shape("video_url"),
    "audio_url": url_shape("audio_url"),
    "refusal": fields({"type": anything, "refusal": text}),
    "input_audio": fields(
        {"type": anything, "input_audio": fields({"data": base64, "format": one_of("wav", "mp3")})}, _MARKS
    ),
    "file": fields(
        {"type": anything, "file": fields({}, {"file_data": text, "filename": text, "file_id": text})}, _MARKS
    ),
}


# What LiteLLM passes on to Anthropic.
_THOUGHTS: dict[str, Check] = {
    "thinking": fields({"type": anything, "thinking": text, "signature": text}, _MARKS),
    "redacted_thinking": fields({"type": anything, "data": text}, _MARKS),
}


def call_shape(arguments: Check) -> Check:
    """A call of a tool, with its arguments as text or as an object."""
    function = fields({"name": text, "arguments": arguments})
    own = fields({"function": function}, {"id": text, "type": text, "index": anything})
    custom = fields({"custom": fields({"name": text, "input": text})}, {"id": text, "type": text})
    return tagged("type", {"function": own, "custom": custom}, default="function")


def json_text(value: object) -> Sequence[Fault]:
    """The text of a JSON object."""
    if type(value) is not str:
        return text(value)
    try:
        fine = isinstance(loads(value), dict)
    except (ValueError, RecursionError):
        fine = False
    return FINE if fine else [((), f"is {value[:60]!r}", "give the text of a JSON object")]


def chat_shape(
    said: Check,
    plain: Check,
    call: Check,
    profile: Profile,
    extra: Mapping[str, Check] | None = None,
    *,
    answers: Check | None = None,
    needs_content: bool = False,
    names_calls: bool = True,
) -> Check:
    """Messages by role, and tools.

    Args:
        said: What the user may say.
        plain: What others may say, text alone.
        call: A call of a tool.
        profile: The provider's rules.
        extra: Further keys that a message may have.
        answers: What the assistant may say, where that is more.
        needs_content: Whether a message that calls tools must have a content all the same.
        names_calls: Whether a result must name the call it answers.
    """
    own = {"name": text, **(extra or {})}
    thoughts = dict.fromkeys(("reasoning_content", "reasoning", "refusal", "thinking"), nullable(text))
    assistant = {**own, **thoughts, "content": nullable(answers or plain), "tool_calls": listed(call, 1)}
    assistant |= dict.fromkeys(("audio", "function_call", "annotations"), anything)
    if profile.prefill:
        assistant[profile.prefill] = truth
    assistant["thinking_blocks"] = listed(tagged("type", _THOUGHTS))
    answered = {"tool_call_id": text} if names_calls else {}
    needed = {"content": nullable(plain)} if needs_content else {}
    roles = {
        "system": fields({"role": anything, "content": plain}, own),
        "user": fields({"role": anything, "content": said}, own),
        "assistant": _answers_something(fields({"role": anything, **needed}, assistant)),
        "tool": fields(
            {"role": anything, "content": plain, **answered}, {**own, "tool_name": text, "tool_call_id": text}
        ),
    }
    if profile.developer:
        roles["developer"] = roles["system"]
    return fields({"messages": listed(tagged("role", roles), 1)}, {"tools": listed(tool_shape())}, more=True)


def tool_shape() -> Check:
    """A tool; of those that are no functions only that they have a type."""
    function = fields({"name": text}, {"description": text, "parameters": mapping, "strict": anything})
    own = fields({"type": anything, "function": function}, {"cache_control": mapping})
    return tagged("type", {"function": own}, other=fields({"type": text}, more=True))


def _answers_something(message: Check) -> Check:
    def check(value: object) -> Sequence[Fault]:
        faults = message(value)
        given = cast("Mapping[str, object]", value)
        if (
            faults
            or given.get("content") is not None
            or any(given.get(key) for key in ("tool_calls", "refusal", "audio"))
        ):
            return faults
        return [(("content",), "is missing, and there are no tool_calls", "give one of them")]

    return check
