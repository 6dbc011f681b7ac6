"""LangChain's answers in both output versions, as its own objects."""

from __future__ import annotations

from typing import Any

import pytest

from lazyprompt import ChatFormatter, messages_from
from support.missing import needs

langchain: Any = needs("langchain_core.messages")
AIMessage, HumanMessage = langchain.AIMessage, langchain.HumanMessage

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
TEXT = {"type": "text", "text": "hi", "annotations": [], "id": "msg_1"}
CALL = {"type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "c1", "id": "fc_1"}
ARGUMENTS: dict[str, Any] = {"a": 1}


def answer(*content: Any, arguments: dict[str, Any] = ARGUMENTS, **more: Any) -> Any:
    calls = [{"name": "f", "args": arguments, "id": "c1"}] if CALL in content else []
    return AIMessage(content=[*content], tool_calls=calls, **more)


def test_items_of_the_responses_api_go_back_as_they_came() -> None:
    """Of real answers, 185 of 190 raised."""
    given = answer(REASONING, SEARCH, TEXT, CALL, response_metadata={"output_version": "responses/v1"})
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    payload = ChatFormatter("openai-responses").format(HumanMessage("q"), given, result)
    part = {"type": "output_text", "text": "hi", "annotations": []}
    said = {"type": "message", "role": "assistant", "id": "msg_1", "content": [part]}
    assert payload["input"][1:-1] == [REASONING, SEARCH, said, CALL]
    assert payload.report == ()


@pytest.mark.parametrize(
    "content",
    [(TEXT, CALL), ({"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c1", "name": "f", "input": ARGUMENTS})],
)
def test_edited_calls_win_over_the_content(content: tuple[Any, ...]) -> None:
    """LangChain sends ``tool_calls``; the content held the call as the model made it."""
    given = AIMessage(content=[*content], tool_calls=[{"name": "f", "args": {"a": 2}, "id": "c1"}])
    (message,) = messages_from([given])
    assert [block.input for block in message.blocks if block.type == "tool_use"] == [{"a": 2}]
    assert message.native is None


def test_a_function_call_of_older_answers_is_read() -> None:
    """It vanished."""
    legacy = {"function_call": {"name": "f", "arguments": '{"a":1}'}}
    (message,) = messages_from([AIMessage(content="", additional_kwargs=legacy)])
    assert [(block.name, block.input) for block in message.blocks if block.type == "tool_use"] == [("f", ARGUMENTS)]
