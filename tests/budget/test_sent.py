"""A budget without a formatter counts the dicts that the OpenAI formatter sends."""

import pytest

from lazyprompt import ChatFormatter, Msg
from lazyprompt.budget.sent import link_calls, sent_forms
from lazyprompt.messages.msg import (
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)

IMAGE = ImageBlock(URLSource("https://example.org/x.png"))
FILE = FileBlock(Base64Source("application/pdf", "aGk="))
LONG = "c" * 41


def user(*blocks: Block) -> Msg:
    return Msg("user", blocks, "user")


def assistant(*blocks: Block) -> Msg:
    return Msg("assistant", blocks, "assistant")


def tool(*blocks: Block) -> Msg:
    return Msg("tool", blocks, "tool")


def call(call_id: str, name: str = "f") -> ToolUseBlock:
    return ToolUseBlock(call_id, name, {})


@pytest.mark.parametrize(
    "messages",
    [
        [Msg("Bob Smith", "hi", "user"), Msg("assistant", "ho", "assistant"), Msg("", "more", "user")],
        [Msg("system", "Be short.", "system"), Msg("user", [TextBlock("a"), IMAGE], "user")],
        [Msg("user", "look", "user", url=["https://example.org/x.png", "data:image/png;base64,aGk="])],
        [assistant(ThinkingBlock("hm"), TextBlock("so"), call(LONG, "my tool")), tool(ToolResultBlock(LONG))],
        [assistant(call("1"), call("2", "g")), tool(ToolResultBlock("1", "f", "a"), ToolResultBlock("2", "g", "b"))],
        [assistant(call("1")), tool(ToolResultBlock("1", "my tool", [TextBlock("a"), IMAGE, FILE]))],
        [assistant(call("1", "my tool")), tool(ToolResultBlock("1", "", [IMAGE, FILE]))],
        [assistant(call("1")), tool(ToolResultBlock("1", "f", [TextBlock("a")]))],
        [assistant(call("1")), tool(ToolResultBlock("1", "f", ""))],
        [assistant(call("1")), user(ToolResultBlock("1", "f", "a"), TextBlock("on"))],
        [assistant(call("1")), user(TextBlock("on"), ToolResultBlock("1", "f", "a"))],
        [assistant(call("1")), assistant(ToolResultBlock("1", "f", "a"), TextBlock("done"))],
        [assistant(TextBlock("so"), call("1"), ToolResultBlock("1", "f", "a"), TextBlock("done"))],
    ],
)
def test_messages_are_counted_as_the_openai_formatter_sends_them(messages: list[Msg]) -> None:
    assert sent_forms(link_calls(messages)) == ChatFormatter("openai").format(*messages)["messages"]


def test_dicts_are_counted_unchanged() -> None:
    given = {"role": "user", "content": "a"}
    first, second, third = sent_forms([given, Msg("", "b", "user"), given])
    assert first is third is given
    assert second == {"role": "user", "content": "b"}


def test_a_tool_message_without_results_is_sent_as_a_user_message() -> None:
    assert sent_forms([tool(TextBlock("a"))]) == [{"role": "user", "name": "tool", "content": "a"}]
    assert sent_forms([assistant()]) == [{"role": "assistant", "name": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("given", "linked"),
    [
        # A server assigned one id to all calls; the results come in the order of the calls.
        (
            [assistant(call("1"), call("1", "g"), call("1")), tool(*[ToolResultBlock("1", "f", x) for x in "abc"])],
            [
                assistant(call("1"), call("1_2", "g"), call("1_3")),
                tool(
                    *[
                        ToolResultBlock(f"1{n}", t, x)
                        for n, t, x in (("", "f", "a"), ("_2", "g", "b"), ("_3", "f", "c"))
                    ]
                ),
            ],
        ),
        # The next suffix is the id of another call.
        (
            [assistant(call("1_2"), call("1"), call("1")), tool(*[ToolResultBlock(n, "f") for n in ("1", "1", "1_2")])],
            [
                assistant(call("1_2"), call("1"), call("1_3")),
                tool(*[ToolResultBlock(n, "f") for n in ("1", "1_3", "1_2")]),
            ],
        ),
        # Calls without a result get one in their own message.
        (
            [
                user(TextBlock("a")),
                assistant(TextBlock("b"), call("1"), call("2")),
                tool(ToolResultBlock("1", "f", "c")),
            ],
            [
                user(TextBlock("a")),
                assistant(TextBlock("b"), call("1"), call("2"), ToolResultBlock("2", "", "(no result)")),
                tool(ToolResultBlock("1", "f", "c")),
            ],
        ),
    ],
)
def test_each_tool_call_gets_a_unique_id_and_a_result(given: list[Msg], linked: list[Msg]) -> None:
    assert link_calls(given) == linked


def test_messages_with_linked_tool_calls_stay_the_same_objects() -> None:
    given = [
        Msg("user", "hi", "user"),
        assistant(TextBlock("a"), call("1"), call("2", "g")),
        tool(ToolResultBlock("2", "g", "b"), ToolResultBlock("1", "f", "a"), ToolResultBlock("9", "x", "no call")),
        tool(ToolResultBlock("1", "f", "again")),
    ]
    assert all(new is old for new, old in zip(link_calls(given), given, strict=True))
