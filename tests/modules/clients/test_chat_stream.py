"""Collected streams in OpenAI's format: tool calls in every server's style, and arbitrary events."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt.answers.parser import Delta
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.modules.clients.openai import ChatCollector, TextCollector, is_strict

PARIS, ROME = '{"city": "Paris"}', '{"city": "Rome"}'


def chunk(finish: str | None = None, **delta: object) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(arguments: object = "", name: str | None = None, **more: object) -> dict[str, Any]:
    return {**more, "function": {"arguments": arguments, **({} if name is None else {"name": name})}}


def collect(*events: object) -> tuple[ChatCollector, list[Delta]]:
    collector = ChatCollector()
    return collector, [delta for event in events for delta in collector.feed(event)]


OPENS_A, OPENS_B = (piece("", "weather", index=at, id=own_id) for at, own_id in enumerate("ab"))
BOTH: list[tuple[str | None, str, str]] = [("a", "weather", PARIS), ("b", "weather", ROME)]
CALLS: dict[str, tuple[list[list[dict[str, Any]]], list[tuple[str | None, str, str]]]] = {
    "as OpenAI": (
        [[OPENS_A], [piece(PARIS[:5], index=0)], [piece(PARIS[5:], index=0)], [OPENS_B], [piece(ROME, index=1)]],
        BOTH,
    ),
    "side by side": (
        [
            [OPENS_A, OPENS_B],
            [piece(PARIS[:5], index=0), piece(ROME[:7], index=1)],
            [piece(ROME[7:], index=1), piece(PARIS[5:], index=0)],
        ],
        BOTH,
    ),
    "all at once": ([[piece(PARIS, "weather", index=0, id="a"), piece(ROME, "weather", index=1, id="b")]], BOTH),
    "all at once without an index": ([[piece(PARIS, "weather", id="a"), piece(ROME, "weather", id="b")]], BOTH),
    "all with the index 0": (
        [[piece(PARIS, "weather", index=0, id="a")], [piece(ROME, "weather", index=0, id="b")]],
        BOTH,
    ),
    "the index 0, and pieces": (
        [[OPENS_A], [piece(PARIS, index=0)], [{**OPENS_B, "index": 0}], [piece(ROME, index=0)]],
        BOTH,
    ),
    "no index, no ids, whole": (
        [[piece(PARIS, "weather")], [piece(ROME, "weather")]],
        [(None, "weather", PARIS), (None, "weather", ROME)],
    ),
    "no index, no ids, pieces": (
        [[piece("", "weather")], [piece(PARIS[:4])], [piece(PARIS[4:])], [piece("", "clock")], [piece("{}")]],
        [(None, "weather", PARIS), (None, "clock", "{}")],
    ),
    "no index, pieces known by their id": (
        [
            [piece(PARIS[:4], "weather", id="a")],
            [piece(ROME[:4], "weather", id="b")],
            [piece(PARIS[4:], id="a")],
            [piece(ROME[4:], id="b")],
        ],
        BOTH,
    ),
    "a new id for each piece": (
        [[OPENS_A], [piece(PARIS[:4], index=0, id="x")], [piece(PARIS[4:], index=0, id="y")]],
        BOTH[:1],
    ),
    "the name again and again": (
        [
            [piece(PARIS[:4], "weather", index=0, id="a")],
            [piece(PARIS[4:], "weather", index=0, id="a")],
            [piece("", "weather", index=0)],
        ],
        BOTH[:1],
    ),
    "empty ids and names, and null": (
        [[OPENS_A], [piece(PARIS, "", index=0, id="")], [piece(None, index=0, id=None)]],
        BOTH[:1],
    ),
    "an id that comes late": ([[piece(PARIS, "weather", index=0)], [piece("", index=0, id="a")]], BOTH[:1]),
    "arguments that are an object": ([[piece({"city": "Paris"}, "weather", index=0, id="a")]], BOTH[:1]),
    "an index that begins at 1": ([[piece(PARIS, "weather", index=1, id="a")]], BOTH[:1]),
    "cut off": ([[piece(PARIS[:4], "weather", index=0, id="a")]], [("a", "weather", PARIS[:4])]),
}


@pytest.mark.parametrize(("pieces", "calls"), CALLS.values(), ids=CALLS)
def test_streamed_tool_calls_are_assembled_for_every_server_style(
    pieces: list[list[dict[str, Any]]], calls: list[tuple[str | None, str, str]]
) -> None:
    collector, deltas = collect(*(chunk(tool_calls=told) for told in pieces), chunk("tool_calls"))
    answer = collector.answer()
    assert [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in answer["choices"][0]["message"]["tool_calls"]
    ] == calls
    for place, (own_id, name, arguments) in enumerate(calls):
        own = [delta for delta in deltas if delta.index == place]
        assert "".join(delta.text for delta in own) == arguments
        assert [delta.name for delta in own if delta.name] == [name]
        assert [delta.id for delta in own if delta.id] == ([own_id] if own_id else [])
        assert own[0].name == name
    assert all(delta.text or delta.id or delta.name for delta in deltas)
    message = ChatFormatter("openai").parse(answer)
    assert len(message.content) == len(calls)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_read_from_each_field_name(name: str) -> None:
    collector, deltas = collect(
        chunk(**{name: "So "}), chunk(**{name: "then", "content": "a"}), chunk("stop", content="b")
    )
    assert deltas == [Delta("thinking", "So "), Delta("thinking", "then"), Delta("text", "a"), Delta("text", "b")]
    said = {"role": "assistant", "content": "ab", "reasoning_content": "So then"}
    assert collector.answer()["choices"][0]["message"] == said


def test_reasoning_in_two_fields_of_one_chunk_is_read_once() -> None:
    _, deltas = collect(chunk(reasoning="x", reasoning_content="x"))
    assert deltas == [Delta("thinking", "x")]


def test_signed_reasoning_pieces_are_joined_up_to_their_signature() -> None:
    blocks = [
        [{"type": "thinking", "thinking": "So "}],
        [{"type": "thinking", "thinking": "then"}],
        [{"type": "thinking", "thinking": "", "signature": "s1"}],
        [{"type": "redacted_thinking", "data": "d"}],
        [{"type": "thinking", "thinking": "more"}, {"type": "thinking", "thinking": "", "signature": "s2"}],
    ]
    collector, _ = collect(*(chunk(thinking_blocks=told) for told in blocks))
    assert collector.answer()["choices"][0]["message"]["thinking_blocks"] == [
        {"type": "thinking", "thinking": "So then", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "thinking", "thinking": "more", "signature": "s2"},
    ]


def test_refusals_and_content_parts_are_read_as_text_and_reasoning() -> None:
    collector, deltas = collect(
        chunk(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]),
        chunk(content=[{"type": "thinking", "thinking": [{"text": "h"}, {"text": "m"}]}, {"thinking": "no"}]),
        chunk(content=[{"type": "thinking", "thinking": "!"}]),
        chunk(refusal="no"),
    )
    assert deltas == [Delta("text", "ab"), Delta("thinking", "hm"), Delta("thinking", "!"), Delta("text", "no")]
    said = {"role": "assistant", "content": "ab", "refusal": "no", "reasoning_content": "hm!"}
    assert collector.answer()["choices"][0]["message"] == said


EARLY, LATE = ({"prompt_tokens": 1, "completion_tokens": tokens} for tokens in (1, 9))
USAGES: dict[str, list[object]] = {
    "in each chunk": [{**chunk(content="a"), "usage": EARLY}, {**chunk("stop"), "usage": LATE}, chunk()],
    "in the choice": [chunk(content="a"), {"choices": [{**chunk("stop")["choices"][0], "usage": LATE}]}],
    "after the choices": [chunk("stop", content="a"), {"choices": [], "usage": LATE}],
}


@pytest.mark.parametrize("events", USAGES.values(), ids=USAGES)
def test_last_reported_usage_of_a_stream_is_used(events: list[object]) -> None:
    assert collect(*events)[0].answer()["usage"] == LATE


def test_stream_is_complete_after_a_finish_reason() -> None:
    collector = ChatCollector()
    for finish, complete in ((None, False), ("", False), ("stop", True), (None, True)):
        collector.feed(chunk(finish))
        assert collector.complete == complete
    assert collector.answer()["choices"][0]["finish_reason"] == "stop"


def test_other_choices_of_a_stream_are_ignored() -> None:
    second = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
    collector, deltas = collect(chunk(content="mine"), second)
    assert deltas == [Delta("text", "mine")]
    assert not collector.complete


KEYS = ("choices", "delta", "tool_calls", "function", "name", "arguments", "index", "id", "content", "usage", "x")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(VALUES, max_size=6))
def test_arbitrary_events_raise_no_error(events: list[object]) -> None:
    for collector in (ChatCollector(), TextCollector()):
        for event in events:
            for delta in collector.feed(event):
                assert delta.text or delta.id or delta.name
        answer = collector.answer()
        json.dumps(answer, allow_nan=True)
        if isinstance(collector, ChatCollector):
            ChatFormatter("openai").parse(answer)


@given(
    st.lists(st.sampled_from(["think", "text", "call"]), max_size=8),
    st.lists(st.text(max_size=6), min_size=8, max_size=8),
    st.integers(1, 4),
)
def test_collected_response_does_not_depend_on_the_chunk_size(kinds: list[str], texts: list[str], size: int) -> None:
    thought = "".join(text for kind, text in zip(kinds, texts, strict=False) if kind == "think")
    said = "".join(text for kind, text in zip(kinds, texts, strict=False) if kind == "text")
    calls = [json.dumps({"x": text}) for kind, text in zip(kinds, texts, strict=False) if kind == "call"]

    def cut(text: str) -> list[str]:
        return [text[at : at + size] for at in range(0, len(text), size)]

    events = [chunk(reasoning_content=part) for part in cut(thought)] + [chunk(content=part) for part in cut(said)]
    for index, arguments in enumerate(calls):
        events.append(chunk(tool_calls=[piece("", "f", index=index, id=f"c{index}")]))
        events += [chunk(tool_calls=[piece(part, index=index)]) for part in cut(arguments)]
    collector, deltas = collect(*events, chunk("stop"))
    whole = {
        "role": "assistant",
        "content": said or None,
        "reasoning_content": thought,
        "tool_calls": [
            {"id": f"c{index}", "type": "function", "function": {"name": "f", "arguments": arguments}}
            for index, arguments in enumerate(calls)
        ],
    }
    parse = ChatFormatter("openai").parse
    assert parse(collector.answer()) == parse({"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}]})
    assert "".join(delta.text for delta in deltas) == thought + said + "".join(calls)


def test_stream_of_a_text_completion_is_collected() -> None:
    collector = TextCollector()
    events: list[object] = [
        {"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, "text": "a", "finish_reason": None}]},
        {"choices": [{"index": 0, "text": "", "finish_reason": None}]},
        {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 2}},
        "[DONE]",
    ]
    assert [delta for event in events for delta in collector.feed(event)] == [Delta("text", "a"), Delta("text", "b")]
    assert collector.complete
    assert collector.answer() == {
        "id": "c",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "text": "ab", "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 2},
    }


def _object(required: list[str], **properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


INT = {"type": "integer"}
SCHEMAS: dict[str, tuple[dict[str, Any], bool]] = {
    "flat": (_object(["a"], a=INT), True),
    "no keys": (_object([]), True),
    "nested": (_object(["a"], a=_object(["b"], b=INT)), True),
    "a list of objects": (_object(["a"], a={"type": "array", "items": _object(["b"], b=INT)}), True),
    "a reference": ({**_object(["a"], a={"$ref": "#/$defs/A"}), "$defs": {"A": _object(["b"], b=INT)}}, True),
    "one or none": (_object(["a"], a={"anyOf": [INT, {"type": "null"}]}), True),
    "a key named not": (_object(["not"], **{"not": INT}), True),
    "a key that may be missing": (_object(["a"], a=INT, b=INT), False),
    "a default": (_object(["a"], a={**INT, "default": 1}), False),
    "free keys": ({"type": "object", "properties": {"a": INT}, "required": ["a"]}, False),
    "free keys below": (_object(["a"], a={"type": "object"}), False),
    "free keys in a definition": ({**_object([]), "$defs": {"A": {"type": ["object", "null"]}}}, False),
    "free keys in a definition of old": ({**_object([]), "definitions": {"A": {"type": "object"}}}, False),
    "a definition of old": ({**_object([]), "definitions": {"A": _object(["b"], b=INT)}}, True),
    "free keys in a choice": (_object(["a"], a={"anyOf": [INT, {"type": "object"}]}), False),
    "a key that is asked for and not there": (_object(["a", "b"], a=INT), False),
    "properties of no type": (_object(["a"], a={"properties": {"b": INT}}), False),
    "free keys in a list": (_object(["a"], a={"type": "array", "items": {"type": "object"}}), False),
    "one of": (_object(["a"], a={"oneOf": [INT]}), False),
    "no object": ({"type": "array", "items": INT}, False),
    "anything": (_object(["a"], a=True), False),
}


@pytest.mark.parametrize(("schema", "strict"), SCHEMAS.values(), ids=SCHEMAS)
def test_is_strict_recognizes_schemas_of_the_strict_mode(schema: dict[str, Any], *, strict: bool) -> None:
    assert is_strict(schema) == strict
