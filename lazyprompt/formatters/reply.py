"""A model's reply, with its text, tool calls, token usage and finish reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from lazyprompt._base.client_objects import fields_of, items_of
from lazyprompt._base.display import html_of
from lazyprompt.formatters.report import Report
from lazyprompt.messages.msg import Msg, ThinkingBlock, ToolUseBlock, message_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.report import Entries

# Why a reply ended. A "broken call" is a malformed tool call, and "other" is a provider-specific reason.
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "broken call", "other"]

# The paths to the finish reason in a response. The first path with a value applies.
_PLACES: tuple[tuple[str | int, ...], ...] = (
    ("choices", 0, "finish_reason"),
    ("output", "choices", 0, "finish_reason"),
    ("candidates", 0, "finish_reason"),
    ("candidates", 0, "finishReason"),
    ("stop_reason",),
    ("done_reason",),
    ("details", "finish_reason"),
    ("incomplete_details", "reason"),
    ("status",),
)
# The paths to the reason why Gemini blocked a prompt.
_BLOCKED: tuple[tuple[str, ...], ...] = (("prompt_feedback", "block_reason"), ("promptFeedback", "blockReason"))
_REASONS: dict[str, Finish] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos", "eos_token", "null", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use", "pause_turn"), "tool_calls"),
    **dict.fromkeys(("content_filter", "sensitive", "safety", "recitation", "blocklist", "spii"), "content_filter"),
    **dict.fromkeys(("prohibited_content", "image_safety", "data_inspection_failed"), "content_filter"),
    **dict.fromkeys(("image_prohibited_content", "image_recitation", "model_armor"), "content_filter"),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "malformed_response"), "broken call"),
    "refusal": "refusal",
}


class Reply(str):
    """A model's reply: a ``str`` that contains the reply's text and has extra attributes.

    Attributes:
        message: The reply as a message that can be added to the history.
        raw: The provider's raw response, as a dict.
        finish: The finish reason; None if the provider doesn't report one.
        model: The model that replied, as reported by the provider; ``""`` if it is not reported.
        parsed: The reply's text, parsed as the requested ``response_format``; None if no format was requested.
        said: The user's text in this call, or None if the history already awaited a reply.
        trim: The budget's report on dropped content, or None without a budget.
        report: The payload's report on changed and dropped content.
    """

    __slots__ = ("finish", "message", "model", "parsed", "raw", "report", "said", "trim")
    message: Msg
    raw: Mapping[str, Any]
    finish: Finish | None
    model: str
    parsed: Any
    said: str | None
    trim: TrimReport | None
    report: Report

    def __new__(
        cls,
        message: Msg,
        raw: Mapping[str, Any],
        parsed: object = None,
        said: str | None = None,
        trim: TrimReport | None = None,
        report: Entries = (),
    ) -> Self:
        """Create a reply.

        Args:
            message: The reply as a message.
            raw: The provider's raw response.
            parsed: The reply's text, parsed as the requested ``response_format``.
            said: The user's text.
            trim: The budget's report on dropped content.
            report: The payload's report on changed and dropped content.
        """
        reply = super().__new__(cls, message.text)
        reply.message, reply.raw, reply.parsed, reply.said = message, raw, parsed, said
        reply.trim, reply.report = trim, Report(report)
        reply.finish = _finish(raw, called=bool(reply.tool_calls))
        reply.model = str(raw.get("model") or raw.get("model_version") or "")
        return reply

    @property
    def turn(self) -> tuple[Msg, ...]:
        """The user's text and the model's reply, as messages for the history."""
        return (*user_turn(self.said), self.message)

    @property
    def tool_calls(self) -> Sequence[ToolUseBlock]:
        """The model's tool calls, each with ``id``, ``name`` and ``input``, which the caller must run."""
        return [block for block in self.message.blocks if isinstance(block, ToolUseBlock)]

    @property
    def thinking(self) -> str:
        """The text of the model's reasoning; ``""`` if the reply contains no reasoning."""
        blocks = (block for block in self.message.blocks if isinstance(block, ThinkingBlock))
        return "\n".join(block.thinking for block in blocks if block.thinking)

    @property
    def usage(self) -> Mapping[str, int] | None:
        """The prompt, completion and total token counts, or None if the provider doesn't report them."""
        return self.message.usage

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.raw, self.parsed, self.said, self.trim, self.report)

    def __repr__(self) -> str:
        calls = "".join(f", {call.name}({call.input!r})" for call in self.tool_calls)
        return f"{type(self).__name__}({str(self)!r}{calls})"

    def __str__(self) -> str:
        return str.__str__(self)

    def _repr_html_(self) -> str:
        return html_of(self)


def user_turn(text: str | None) -> tuple[Msg, ...]:
    """Return the user's text as a one-message tuple, or an empty tuple if the text is None."""
    return () if text is None else (message_of("", text, "user"),)


def _finish(raw: Mapping[str, Any], *, called: bool) -> Finish | None:
    """Return the finish reason of a response."""
    if any(value_at(raw, path) for path in _BLOCKED):
        return "content_filter"
    found = next(filter(None, (value_at(raw, path) for path in _PLACES)), None)
    if found is None:
        return None
    reason = _REASONS.get(str(getattr(found, "value", found)).rpartition(".")[2].lower(), "other")
    refused = value_at(raw, ("choices", 0, "message", "refusal")) or _refuses(raw.get("output"))
    return "refusal" if refused else "tool_calls" if called and reason == "stop" else reason


def _refuses(output: object) -> bool:
    """Return True if a Responses API output contains a message with a refusal."""
    parts = (part for item in items_of(output) for part in items_of(value_at(item, ("content",))))
    return any(fields_of(part).get("type") == "refusal" for part in parts)


def value_at(value: object, path: Sequence[str | int]) -> object:
    """Return the value at a path of keys and indices in a response, or None if the path doesn't exist."""
    for key in path:
        value = fields_of(value).get(key) if isinstance(key, str) else next(iter(items_of(value)[key:]), None)
    return value
