"""A model's answer: its text, and all else that came with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from lazyprompt._base.display import html_of
from lazyprompt.messages.msg import Msg, ThinkingBlock, ToolUseBlock, message_of

if TYPE_CHECKING:
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.report import Report

# Why an answer ended: by itself, at the limit of tokens, to call tools, because the provider holds something back or
# the model refuses, with a call of a tool that is none, or for a reason of the provider's own.
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "broken call", "other"]

# Where the forms of answers say why they ended: the first path that is there counts.
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
# Where Gemini says why it takes a prompt for one that is not to be answered.
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
    """A model's answer: a string of its text, with all that came with it.

    Attributes:
        message: The answer as a message, ready for history.
        raw: The provider's own answer, as a dict.
        finish: Why it ended; None where nobody says.
        model: The model that answered, as the provider names it; ``""`` where it does not.
        parsed: What the text says as an object of the ``response_format`` that was asked for; else ``None``.
        said: The user's text of this call, or None if the history awaited the answer.
        trim: The report of the budget: what was dropped from the prompt, or None without a budget.
        report: The report of the payload: what the provider's form could not carry, entry by entry.
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
        """Make a reply.

        Args:
            message: The answer.
            raw: The provider's own answer.
            parsed: The object that the text stands for.
            said: The user's text.
            trim: The report of the budget.
            report: The report of the payload.
        """
        made = super().__new__(cls, message.text)
        made.message, made.raw, made.parsed, made.said = message, raw, parsed, said
        made.trim, made.report = trim, report
        made.finish = _finish(raw, called=bool(made.tool_calls))
        made.model = str(raw.get("model") or raw.get("model_version") or "")
        return made

    @property
    def turn(self) -> tuple[Msg, ...]:
        """The user's text and the model's answer, which end the history of the next call."""
        return (*user_turn(self.said), self.message)

    @property
    def tool_calls(self) -> Sequence[ToolUseBlock]:
        """The tools that the model wants called: ``id``, ``name``, ``input``; running them is the caller's."""
        return [block for block in self.message.blocks if isinstance(block, ToolUseBlock)]

    @property
    def thinking(self) -> str:
        """The model's thoughts before its answer, where they are reported."""
        blocks = (block for block in self.message.blocks if isinstance(block, ThinkingBlock))
        return "\n".join(block.thinking for block in blocks if block.thinking)

    @property
    def usage(self) -> Mapping[str, int] | None:
        """``prompt_tokens``, ``completion_tokens`` and ``total_tokens``; None where the provider does not tell."""
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
    """Return a user's text as messages of a history; none where there is no text."""
    return () if text is None else (message_of("", text, "user"),)


def _finish(raw: Mapping[str, Any], *, called: bool) -> Finish | None:
    """Return the reason why an answer ended."""
    if any(at(raw, path) for path in _BLOCKED):
        return "content_filter"
    found = next(filter(None, (at(raw, path) for path in _PLACES)), None)
    if found is None:
        return None
    reason = _REASONS.get(str(getattr(found, "value", found)).rpartition(".")[2].lower(), "other")
    refused = at(raw, ("choices", 0, "message", "refusal")) or _refuses(raw.get("output"))
    return "refusal" if refused else "tool_calls" if called and reason == "stop" else reason


def _refuses(output: object) -> bool:
    """Return True if a message of a Responses answer has a refusal among its parts."""
    items = cast("list[object]", output) if isinstance(output, list) else []
    return any(part.get("type") == "refusal" for item in items for part in _fields_in(at(item, ("content",))))


def _fields_in(value: object) -> list[Mapping[str, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, object]", item) for item in items if isinstance(item, Mapping)]


def at(value: object, path: Sequence[str | int]) -> object:
    """Return the value of an answer at a path of keys and places; None where there is none."""
    for key in path:
        if type(value) is dict or isinstance(value, Mapping):  # the first of them is ten times as fast
            value = cast("Mapping[str | int, object]", value).get(key)
        elif isinstance(value, list) and isinstance(key, int):
            value = next(iter(cast("list[object]", value)[key:]), None)
        else:
            return None
    return value
