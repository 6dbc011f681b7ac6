"""A model's answer: its text, tool calls, usage and finish reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from lazyprompt._base.client_objects import fields_of, items_of
from lazyprompt._base.display import html_of
from lazyprompt.messages.msg import Msg, ThinkingBlock, ToolUseBlock, message_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.report import Report

# The reason for the end of an answer: its natural end, the token limit, tool calls, the provider's content filter, the
# model's refusal, a malformed tool call, or a reason of the provider's own.
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "broken call", "other"]

# The paths of finish reasons in answers; the first path with a value is used.
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
# The paths of Gemini's reason for blocking a prompt.
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
    """A model's answer: a ``str`` of its text with extra attributes.

    Attributes:
        message: The answer as a message, ready for history.
        raw: The provider's own answer, as a dict.
        finish: The reason for its end; None if the provider doesn't report one.
        model: The provider's name of the model that answered; ``""`` if it is not reported.
        parsed: The text as an object of the requested ``response_format``; None without one.
        said: The user's text of this call, or None if the history awaited the answer.
        trim: The report of the budget on dropped content, or None without a budget.
        report: The report of the payload on changed and dropped content.
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
        report: Report = (),
    ) -> Self:
        """Create a reply.

        Args:
            message: The answer.
            raw: The provider's own answer.
            parsed: The text as an object of the requested ``response_format``.
            said: The user's text.
            trim: The report of the budget.
            report: The report of the payload.
        """
        reply = super().__new__(cls, message.text)
        reply.message, reply.raw, reply.parsed, reply.said = message, raw, parsed, said
        reply.trim, reply.report = trim, report
        reply.finish = _finish(raw, called=bool(reply.tool_calls))
        reply.model = str(raw.get("model") or raw.get("model_version") or "")
        return reply

    @property
    def turn(self) -> tuple[Msg, ...]:
        """The user's text and the model's answer, as the last messages of the next call's history."""
        return (*user_turn(self.said), self.message)

    @property
    def tool_calls(self) -> Sequence[ToolUseBlock]:
        """The model's tool calls, each with ``id``, ``name`` and ``input``. The caller runs them."""
        return [block for block in self.message.blocks if isinstance(block, ToolUseBlock)]

    @property
    def thinking(self) -> str:
        """The text of the model's thoughts; ``""`` if the answer has none."""
        blocks = (block for block in self.message.blocks if isinstance(block, ThinkingBlock))
        return "\n".join(block.thinking for block in blocks if block.thinking)

    @property
    def usage(self) -> Mapping[str, int] | None:
        """``prompt_tokens``, ``completion_tokens`` and ``total_tokens``; None if the provider doesn't report them."""
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
    """Return a user's text as messages of a history; an empty tuple for None."""
    return () if text is None else (message_of("", text, "user"),)


def _finish(raw: Mapping[str, Any], *, called: bool) -> Finish | None:
    """Return the finish reason of an answer."""
    if any(value_at(raw, path) for path in _BLOCKED):
        return "content_filter"
    found = next(filter(None, (value_at(raw, path) for path in _PLACES)), None)
    if found is None:
        return None
    reason = _REASONS.get(str(getattr(found, "value", found)).rpartition(".")[2].lower(), "other")
    refused = value_at(raw, ("choices", 0, "message", "refusal")) or _refuses(raw.get("output"))
    return "refusal" if refused else "tool_calls" if called and reason == "stop" else reason


def _refuses(output: object) -> bool:
    """Return True if a message of a Responses answer has a refusal among its parts."""
    parts = (part for item in items_of(output) for part in items_of(value_at(item, ("content",))))
    return any(fields_of(part).get("type") == "refusal" for part in parts)


def value_at(value: object, path: Sequence[str | int]) -> object:
    """Return the value at a path of keys and indices in an answer; None if there is no such value."""
    for key in path:
        value = fields_of(value).get(key) if isinstance(key, str) else next(iter(items_of(value)[key:]), None)
    return value
