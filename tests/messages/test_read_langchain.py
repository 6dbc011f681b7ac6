"""LangChain messages, as objects and dicts, with responses in both output versions."""

import re
from typing import Any

import pytest

from lazyprompt import ChatFormatter, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, messages_from
from lazyprompt.errors import HistoryError
from support.missing import needs

langchain: Any = needs("langchain_core.messages")
AIMessage, HumanMessage = langchain.AIMessage, langchain.HumanMessage

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
TEXT = {"type": "text", "text": "hi", "annotations": [], "id": "msg_1"}
CALL = {"type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "c1", "id": "fc_1"}
ARGUMENTS: dict[str, Any] = {"a": 1}


def response(*content: Any, arguments: dict[str, Any] = ARGUMENTS, **more: Any) -> Any:
    calls = [{"name": "f", "args": arguments, "id": "c1"}] if CALL in content else []
    return AIMessage(content=[*content], tool_calls=calls, **more)


def test_responses_api_items_in_langchain_messages_are_sent_back_unchanged() -> None:
    """Formatting raised an error for 185 of 190 real responses."""
    given = response(REASONING, SEARCH, TEXT, CALL, response_metadata={"output_version": "responses/v1"})
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    payload = ChatFormatter("openai-responses").format(HumanMessage("q"), given, result)
    part = {"type": "output_text", "text": "hi", "annotations": []}
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": [part]}
    assert payload["input"][1:-1] == [REASONING, SEARCH, item, CALL]
    assert payload.report == ()


@pytest.mark.parametrize(
    "content",
    [(TEXT, CALL), ({"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c1", "name": "f", "input": ARGUMENTS})],
)
def test_edited_tool_calls_override_the_calls_in_the_content(content: tuple[Any, ...]) -> None:
    """LangChain sends ``tool_calls``, so a call edited there must not be sent as in the content."""
    given = AIMessage(content=[*content], tool_calls=[{"name": "f", "args": {"a": 2}, "id": "c1"}])
    (message,) = messages_from([given])
    assert [block.input for block in message.blocks if block.type == "tool_use"] == [{"a": 2}]
    assert message.native is None


def test_legacy_function_call_in_additional_kwargs_is_read() -> None:
    """The legacy function call was lost."""
    legacy = {"function_call": {"name": "f", "arguments": '{"a":1}'}}
    (message,) = messages_from([AIMessage(content="", additional_kwargs=legacy)])
    assert [(block.name, block.input) for block in message.blocks if block.type == "tool_use"] == [("f", ARGUMENTS)]


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        *(("human", "user"), ("HumanMessageChunk", "user"), ("ai", "assistant"), ("AIMessageChunk", "assistant")),
        *(("system", "system"), ("SystemMessageChunk", "system"), ("developer", "developer"), ("chat", "user")),
        *(("ChatMessageChunk", "user"), ("tool", "tool"), ("ToolMessageChunk", "tool"), ("function", "tool")),
        ("FunctionMessageChunk", "tool"),
    ],
)
def test_langchain_message_type_determines_the_role(kind: str, role: str) -> None:
    (message,) = messages_from([{"type": kind, "content": "a", "role": "user", "tool_call_id": "c1"}])
    texts = [getattr(block, "text", "") for block in message.blocks]
    assert (message.role, message.name, texts) == (role, role, ["a"])


WAITING = Msg("assistant", [ToolUseBlock("c9", "g")], "assistant")
F, G, X = ToolUseBlock("call_without_id_1", "f"), ToolUseBlock("c2", "g"), TextBlock("x")
LEGACY = {"function_call": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        *(({"content": None}, ""), ({"content": "x"}, "x"), ({"content": ["x"]}, [X])),
        ({"content": "x", "additional_kwargs": {"reasoning_content": "hm"}}, [ThinkingBlock("hm"), X]),
        ({"content": "x", "additional_kwargs": LEGACY}, [X, F]),
        ({"content": "x", "tool_calls": [{"name": "g", "args": {}, "id": "c2"}], "additional_kwargs": LEGACY}, [X, G]),
        (
            {"tool_calls": [{"name": "f", "args": {}}], "invalid_tool_calls": [{"name": "g", "args": "{"}]},
            [F, ToolUseBlock("call_without_id_2", "g", raw_input="{")],
        ),
        (
            {"content": [CALL], "tool_calls": [{"name": "f", "args": ARGUMENTS, "id": "c1"}]},
            [ToolUseBlock("c1", "f", ARGUMENTS)],
        ),
        (
            {"content": [REASONING, TEXT]},
            [ThinkingBlock("hm", id="rs_1", provider="openai-responses"), TextBlock("hi")],
        ),
        (
            {"content": [TEXT, {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            [TextBlock("hi"), ToolUseBlock("c1", "f")],
        ),
    ],
)
def test_content_of_a_langchain_response_is_read(fields: dict[str, Any], content: Any) -> None:
    (_, message) = messages_from([WAITING, {"type": "ai", **fields}])
    assert message == Msg("assistant", content, "assistant", metadata=message.metadata)


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"content": "1", "tool_call_id": "c9", "name": "g", "status": "error"}, ("c9", "g", "1", True)),
        ({"content": ["1"], "status": "success"}, ("c9", "", (TextBlock("1"),), False)),
    ],
)
def test_langchain_tool_result_is_read(fields: dict[str, Any], result: tuple[Any, ...]) -> None:
    call_id, name, output, is_error = result
    (_, message) = messages_from([WAITING, {"type": "tool", **fields}])
    assert message == Msg("tool", [ToolResultBlock(call_id, name, output, is_error=is_error)], "tool")


def test_langchain_fields_without_a_block_field_are_kept_in_the_metadata() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    item = {"type": "human", "name": "Ann", "content": [part], "empty": "", "own": 1}
    (message,) = messages_from([{**item, "additional_kwargs": {"more": 2, "refusal": "x", "none": None}}])
    part_fields = {"content[0]": {"cache_control": {"type": "ephemeral"}}}
    assert message == Msg("Ann", [X], "user", metadata={"own": 1, "more": 2, "part_fields": part_fields})


def test_developer_role_is_read_from_a_langchain_system_message_only() -> None:
    kwargs = {"__openai_role__": "developer"}
    given = [{"type": kind, "content": "x", "additional_kwargs": kwargs} for kind in ("system", "human")]
    assert messages_from(given) == [Msg("developer", "x", "developer"), Msg("user", "x", "user")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "chat", "role": "usr"}, "history[0] has the unknown role 'usr'; expected one of system, developer"),
        ({"type": "tool"}, "history[0] is a tool result without 'tool_call_id', and no call is waiting for a result"),
        ({"type": "tool", "tool_call_id": 3}, "history[0].tool_call_id must be a string, not int"),
        ({"data": 3}, "history[0].data must be a dict, not int"),
        ({"content": 3}, "history[0].content must be a string, not int"),
        ({"content": [{"type": "image_url", "image_url": 3}]}, "history[0].content[0].image_url"),
        ({"content": [{"type": "function_call"}]}, "history[0].content.name is missing or empty"),
        ({"name": 3}, "history[0].name must be a string, not int"),
        ({"tool_calls": {}}, "history[0].tool_calls must be a list, not dict"),
        ({"tool_calls": [3]}, "history[0].tool_calls[0] must be a dict, not int"),
        ({"tool_calls": [{"id": 3}]}, "history[0].tool_calls[0].id must be a string, not int"),
        ({"tool_calls": [{"id": "a", "name": 3}]}, "history[0].tool_calls[0].name must be a string, not int"),
        ({"invalid_tool_calls": [{"args": 3}]}, "history[0].invalid_tool_calls[0].args must be a string, not int"),
        ({"additional_kwargs": {"function_call": {"name": 3}}}, "history[0].additional_kwargs.function_call must be a"),
        ({"additional_kwargs": {"reasoning_content": 3}}, "history[0].additional_kwargs.reasoning_content must be a s"),
    ],
)
def test_malformed_langchain_message_is_refused_with_its_path(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(HistoryError, match="^" + re.escape(message)):
        messages_from([{"type": "ai", **fields}])
