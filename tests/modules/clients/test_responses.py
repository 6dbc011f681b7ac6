"""The Responses API: interrupted streams, errors in a stream, and names of parameters."""

from typing import Any

import pytest
from pydantic import BaseModel

from lazyprompt.answers.message_builder import Delta
from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._base import ClientSettings
from lazyprompt.modules.clients._faults import StreamedError
from lazyprompt.modules.clients.responses import ResponsesCollector, connect

CREATED = {"type": "response.created", "response": {"id": "r", "output": []}}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""}


class Event(BaseModel, extra="allow"):
    """An event of the official client."""

    type: str


def added_event(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def delta(kind: str, index: int, text: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


def test_interrupted_stream_keeps_each_item_with_its_received_text() -> None:
    collector = ResponsesCollector()
    events = (
        CREATED,
        added_event(0, type="reasoning", id="t", summary=[]),
        *(delta("reasoning_summary_text", 0, "h"), delta("reasoning_text", 0, "m")),
        *(
            added_event(2, **CALL),
            added_event(3, **{**CALL, "call_id": 7, "name": "g"}),
            added_event(4, type="message", id="e"),
        ),
        added_event(1, type="message", id="m", content=[]),
        *(delta("output_text", 1, "po"), delta("output_text", 1, ""), delta("refusal", 1, "ng")),
        *(delta("function_call_arguments", 3, '{"a'), delta("function_call_arguments", 2, "")),
        *(delta("function_call_arguments", 1, "x"), delta("output_text", 1, None), delta("audio", 1, "x")),
        *(added_event(5, type="message"), delta("output_text", 5, "half")),
        {"type": "response.output_item.done", "output_index": 5, "item": {"type": "message", "id": "whole"}},
    )
    assert [each for event in events for each in collector.feed(event)] == [
        *(Delta("thinking", "h"), Delta("thinking", "m")),
        *(Delta("tool_call", "", 0, "c1", "f"), Delta("tool_call", "", 1, None, "g")),
        *(Delta("text", "po"), Delta("text", "ng"), Delta("tool_call", '{"a', 1), Delta("text", "half")),
    ]
    assert not collector.complete
    assert collector.answer() == {
        "id": "r",
        "output": [
            {"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "pong", "annotations": []}]},
            CALL,
            {"type": "function_call", "call_id": 7, "name": "g", "arguments": '{"a'},
            {"type": "message", "id": "e"},
            {"type": "message", "id": "whole"},
        ],
    }


def test_events_without_an_index_belong_to_the_first_item() -> None:
    collector = ResponsesCollector()
    for kind, more in (("output_item.added", {"item": {"type": "message"}}), ("output_text.delta", {"delta": "hi"})):
        collector.feed({"type": f"response.{kind}", **more})
    collector.feed(delta("output_text", 0, "!"))
    content = [{"type": "output_text", "text": "hi!", "annotations": []}]
    assert collector.answer() == {"output": [{"type": "message", "content": content}]}


@pytest.mark.parametrize("end", ["completed", "incomplete"])
def test_collected_response_is_that_of_the_last_event(end: str) -> None:
    collector = ResponsesCollector()
    for event in (CREATED, added_event(0, type="message"), delta("output_text", 0, "po")):
        collector.feed(event)
    whole = {"id": "r", "status": end, "output": [{"type": "message", "id": "m"}]}
    assert collector.feed({"type": f"response.{end}", "response": whole}) == []
    assert (collector.complete, collector.answer()) == (True, whole)


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ({"type": "error", "message": "no", "code": "x"}, {"type": "error", "message": "no", "code": "x"}),
        ({"type": "response.failed", "response": {"error": {"code": "y"}}}, {"code": "y"}),
        ({"type": "response.failed", "response": {}}, {"type": "response.failed", "response": {}}),
        ({"type": "response.created"}, None),
    ],
)
def test_an_event_that_reports_a_failure_is_an_error(event: dict[str, Any], body: dict[str, Any] | None) -> None:
    client, given = connect(ClientSettings(None, None, 1.0, 0, {})), Event(**event)
    if body is None:
        assert client._event(given) is given  # noqa: SLF001 - without a server
        return
    with pytest.raises(StreamedError) as caught:
        client._event(given)  # noqa: SLF001 - as above
    assert caught.value.body == body


@pytest.mark.parametrize("name", ["stop", "seed"])
def test_parameters_of_chat_completions_are_rejected(name: str) -> None:
    client = connect(ClientSettings(None, None, 1.0, 0, {}))
    assert client.params({"max_tokens": 3, "top_p": 0.5}) == {"max_output_tokens": 3, "top_p": 0.5}
    with pytest.raises(ModuleError, match=f"^responses.create does not accept '{name}'; remove it$"):
        client.params({name: 1})


def test_schema_is_sent_as_the_text_format() -> None:
    schema: Any = {"type": "object", "properties": {}, "additionalProperties": False}
    wanted = connect(ClientSettings(None, None, 1.0, 0, {})).structured(schema, "City[x]")
    assert wanted == {"text": {"format": {"type": "json_schema", "name": "City_x_", "schema": schema, "strict": True}}}
