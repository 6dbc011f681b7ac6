"""What a model wrote: read whole and in any pieces it says the same, and reading it raises nothing."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.target import Target
from lazyprompt.answers.forms import FORMS
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.errors import LazyPromptError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import TextBlock, ThinkingBlock, ToolUseBlock
from lazyprompt.rendering.families import FAMILIES

if TYPE_CHECKING:
    from fuzz.chance import Chance
    from lazyprompt.answers.parser import Delta
    from lazyprompt.messages.msg import Msg

_NAMES = [*FORMS, *FAMILIES]
_THINKING = (None, True, False)
_TOOLS = (None, ("f", "get_weather"))
_LONGEST = 4000


@cache
def _parser(name: str, thinking: bool | None, tools: tuple[str, ...] | None) -> ResponseParser | None:  # noqa: FBT001 - that of the parser
    """A parser; None where nothing is known of the family."""
    try:
        return ResponseParser(name, thinking=thinking, tools=tools)
    except LazyPromptError:
        return None


def _run(chance: Chance) -> None:
    parser = _parser(chance.one(_NAMES), chance.one(_THINKING), chance.one(_TOOLS))
    if parser is None:
        return
    text = chance.text()[:_LONGEST]
    try:
        whole = parser.parse(text)
        stream = parser.stream()
        deltas: list[Delta] = []
        for piece in _pieces(text, chance):
            deltas += stream.feed(piece)
        message = stream.finish()
    except LazyPromptError as error:
        require(holds=False, what=f"reading an answer raised {error!r}")
        return
    require(message == whole, "in pieces it says something else")
    _adds_up([*deltas, *stream.rest], message)
    message.text.encode()
    if message.blocks:
        # What was read can be sent on; only what says nothing cannot.
        payload = ChatFormatter("openai").format([("q", "a")], message, [("q", "a")])
        json.dumps(payload)


def _pieces(text: str, chance: Chance) -> list[str]:
    """The text in pieces: one by one, or of any lengths."""
    if chance.flag():
        return [*text]
    found: list[str] = []
    while text:
        length = chance.number(12) or len(text)
        found.append(text[:length])
        text = text[length:]
    return found


def _adds_up(deltas: list[Delta], message: Msg) -> None:
    """The pieces of the answer together are the message."""
    for kind, told in (
        ("text", [each.text for each in message.blocks if isinstance(each, TextBlock)]),
        ("thinking", [each.thinking for each in message.blocks if isinstance(each, ThinkingBlock)]),
    ):
        require("".join(each.text for each in deltas if each.kind == kind) == "".join(told), f"the {kind} differs")
    calls = [each for each in message.blocks if isinstance(each, ToolUseBlock)]
    require(len({each.id for each in calls}) == len(calls), "two calls have the same id")
    for index, call in enumerate(calls):
        mine = [each for each in deltas if each.index == index]
        written = "".join(each.text for each in mine)
        require([each.name for each in mine][:1] == [call.name], "the name of a call differs")
        require([each.id for each in mine if each.id is not None] == [call.id], "the id of a call differs")
        if call.raw_input is not None:
            require(written == call.raw_input, "the arguments of a call differ")
        else:
            require(json.loads(written or "{}", strict=False) == call.input, "the arguments of a call differ")


ANSWERS = Target(
    "answers",
    _run,
    (
        *("<tool_call>", "</tool_call>", '{"name": "f", "arguments": {"a": 1}}', "<think>", "</think>", "<function=f>"),
        *("<parameter=a>", "</parameter>", "</function>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"),
        *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "functions.f:0"),
        *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        *("<|channel|>analysis<|message|>", "<|channel|>commentary to=functions.f", "<|end|>", "<|call|>", "<|start|>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", '<invoke name="f">', "</invoke>", "<tool_call|>"),
        *("<|tool_call>", "call:f{", '<|"|>', "[f(a=1)]", "```json\n", "```", '{"name":', '"arguments":', '"f"', "},"),
        *(
            "<|im_end|>",
            "<|eot_id|>",
            "<minimax:tool_call>",
            "</minimax:tool_call>",
            "action",
            "\\u",
            '\\"',
            "null",
            "\ud83d",
            "\ude00",
        ),
    ),
)
