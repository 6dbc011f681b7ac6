"""Modules of all sources against a simulated server: requests and replies, in all four ways to call."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt import AlpacaPrompter, ChatPrompter, EmptyPrompter, HistoryError, Msg, TemplateError, ToolResultBlock
from modules.online_scenes import (
    ALL,
    ASKED,
    PROMPTER,
    SOME,
    as_sent,
    common_for,
    module,
    reply_contents,
    run_in_loop,
    settings_in,
    to_json,
    ways,
)
from support.client_scenes import KEY, WEATHER
from support.model_server.server import Answer, ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.slow

CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("c1", "weather", {"city": "Zürich", "days": 2}),
    ("c2", "time", {}),
    ("c3", "weather", {"city": "東京", "days": 1}),
)
FULL = Answer("let me see: 雨?", thinking="which city?\n\nhm", calls=CALLS, prompt_tokens=30, completion_tokens=50)
ANSWERS = (Answer(), FULL, Answer("cut of", finish="length"), Answer("", calls=CALLS))
NO_THOUGHTS = {"openai"}
# Sources whose streams report no usage, because the server at the address is not known to support it.
NO_USAGE = {"openai"}
# What the clients add to the settings of a call, and of a stream.
ADDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemini": ({}, {}),
    "ollama": ({"stream": False}, {"stream": True}),
    **dict.fromkeys(
        ("dashscope", "deepseek", "litellm", "moonshot", "xai", "vllm"),
        ({}, {"stream": True, "stream_options": {"include_usage": True}}),
    ),
}


def weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: Its name.
        days: How many.
    """
    return f"Rain in {city} for {days} days."


def time() -> str:
    """What time it is."""
    return "noon"


@ALL
@pytest.mark.parametrize("answer", ANSWERS, ids=["pong", "full", "length", "calls"])
def test_call_stream_acall_and_astream_give_the_same_reply(server: ModelServer, source: str, answer: Answer) -> None:
    server.answer = answer
    called, *others = (reply_contents(way()) for way in ways(module(server, source), ASKED, tools=[weather, time]))
    if source in NO_USAGE:
        others[::2] = (each._replace(usage=called.usage) for each in others[::2])
    assert others == [called] * 3
    assert called.text == answer.text
    assert called.thinking == ("" if source in NO_THOUGHTS else answer.thinking)
    assert [call[1:] for call in called.calls] == [call[1:] for call in answer.calls]
    assert called.finish == answer.why
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    tokens = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    assert called.usage == tokens
    assert [seen.refusal for seen in server.seen] == [None] * 4
    assert len({to_json(seen.payload) for seen in server.seen}) == 1
    assert all({KEY, f"Bearer {KEY}"} & {*seen.headers.values()} for seen in server.seen)


@ALL
def test_module_with_stream_true_gives_the_same_reply(server: ModelServer, source: str) -> None:
    server.answer = FULL
    called = reply_contents(module(server, source)(ASKED, tools=[WEATHER]))
    streaming = module(server, source, stream=True)
    replies = [streaming(ASKED, tools=[WEATHER]), run_in_loop(streaming, streaming.acall(ASKED, tools=[WEATHER]))]
    assert {reply_contents(reply)._replace(usage=None).__repr__() for reply in replies} == {
        repr(called._replace(usage=None))
    }
    assert [seen.streamed for seen in server.seen] == [False, True, True]


@ALL
def test_payload_equals_the_sent_request(server: ModelServer, source: str) -> None:
    model = module(server, source)
    call: tuple[Any, ...] = (ASKED, [["früher", "ja"], ["“quoted”\n", "🎈"]], [weather, time])
    dry = as_sent(source, dict(model.payload(*call, **common_for(source))))
    assert not server.seen
    for way in ways(model, *call, **common_for(source)):
        way()
    for at, seen in enumerate(server.seen):
        assert seen.model == "m"
        assert to_json(seen.payload) == to_json({name: dry[name] for name in seen.payload})
        settings = {name: value for name, value in dry.items() if name not in {"model", *seen.payload}}
        added = ADDED.get(source, ({}, {"stream": True}))[at % 2]
        assert to_json(settings_in(source, seen)) == to_json({**settings, **added})


@ALL
def test_tool_calls_and_results_in_the_history_are_sent(server: ModelServer, source: str) -> None:
    server.answer = FULL
    model = module(server, source)
    reply = model(ASKED, tools=[weather, time])
    assert [call.name for call in reply.tool_calls] == ["weather", "time", "weather"]
    tools: dict[str, Callable[..., str]] = {"weather": weather, "time": time}
    outputs = [tools[call.name](**call.input) for call in reply.tool_calls]
    results = [
        ToolResultBlock(call.id, call.name, output) for call, output in zip(reply.tool_calls, outputs, strict=True)
    ]
    history = [Msg("user", "the weather?", "user"), reply.message, Msg("tool", results, "tool")]
    before = copy.deepcopy(history)
    server.answer = Answer("It rains.")
    assert [str(way()) for way in ways(model, {"language": "Dutch"}, history, [weather, time])] == ["It rains."] * 4
    assert history == before
    assert [seen.refusal for seen in server.seen] == [None] * 5
    body = to_json(server.seen[-1].payload)
    assert all(json.dumps(output, ensure_ascii=False)[1:-1] in body for output in outputs)


@SOME
def test_tools_of_the_prompter_are_sent_like_tools_of_the_call(server: ModelServer, source: str) -> None:
    prompter = ChatPrompter("Help.", tools=[weather])
    model = module(server, source).prompt(prompter)
    by_prompter = model.payload("hi")
    by_call = model.prompt("Help.").payload("hi", tools=[weather])
    assert dict(by_prompter) == dict(by_call)
    assert "The weather of a city." in to_json(by_call["tools"])
    assert '"days"' in to_json(by_call["tools"])


# Prompters.


@SOME
@pytest.mark.parametrize(
    ("prompter", "call", "words"),
    [
        (ChatPrompter("Be {mood}."), {"mood": "kind", "input": "hi"}, ("Be kind.", "hi")),
        (EmptyPrompter(), "hi", ("hi",)),
        ("Be {mood}.", {"mood": "kind", "input": "hi"}, ("Be kind.", "hi")),
        ({"system": "Be {mood}.", "user": "Say {word}."}, {"mood": "kind", "word": "so"}, ("Be kind.", "Say so.")),
        (AlpacaPrompter("Be {mood}."), {"mood": "kind"}, ("Be kind.",)),
        ("Be kind.", "hi", ("Be kind.", "hi")),
        (None, "hi", ("hi",)),
    ],
)
def test_prompt_accepts_prompters_texts_mappings_and_none(
    server: ModelServer, source: str, prompter: Any, call: Any, words: tuple[str, ...]
) -> None:
    model = module(server, source).prompt(prompter)
    assert model(call) == "pong"
    sent = to_json(server.seen[0].payload)
    assert all(word in sent for word in words)
    assert "lazyllm" not in sent.lower() or prompter is not None


@SOME
def test_module_without_a_prompter_sends_only_the_user_message(server: ModelServer, source: str) -> None:
    model = module(server, source).prompt()
    assert isinstance(model.prompter, EmptyPrompter)
    dry = dict(model.payload("hi"))
    assert not {"system", "system_instruction"} & dry.keys()
    assert len(dry.get("messages", dry.get("contents", []))) == 1


@pytest.mark.parametrize("wrong", [5, b"x", ["a"], object(), ChatPrompter])
def test_rejected_prompter_or_history_leaves_the_module_unchanged(server: ModelServer, wrong: Any) -> None:
    model = module(server, "openai").prompt(PROMPTER, [["a", "b"]])
    dry = model.payload(ASKED)
    with pytest.raises(TemplateError, match="prompter must be"):
        model.prompt(wrong, [["c", "d"]])
    with pytest.raises(TemplateError):
        model.prompt({"system": "x", "usr": "y"}, [["c", "d"]])
    with pytest.raises(HistoryError):
        model.prompt("other", history=[object()])  # type: ignore[list-item]  # that is the point
    assert model.payload(ASKED) == dry
    assert model.prompter is PROMPTER


@SOME
def test_history_of_the_module_precedes_the_history_of_each_call(server: ModelServer, source: str) -> None:
    begun, said_before = [["first", "one"]], [Msg("Ann", "second", "user"), Msg("bot", "two", "assistant")]
    model = module(server, source).prompt(PROMPTER, begun)
    model(ASKED, said_before)
    model(ASKED)
    model.prompt(PROMPTER)(ASKED)
    sent = [to_json(seen.payload) for seen in server.seen]
    assert ["first" in each for each in sent] == [True, True, False]
    assert ["second" in each for each in sent] == [True, False, False]
    assert (begun, len(said_before)) == ([["first", "one"]], 2)


@ALL
def test_calls_do_not_change_the_prompter_or_the_arguments(server: ModelServer, source: str) -> None:
    prompter = ChatPrompter("Answer in {language}.", history=[["x", "y"]])
    before = pickle.dumps(prompter)
    given = {"language": "Dutch", "input": "ping"}
    history, tools, stop = [["a", "b"]], [dict(WEATHER)], ["END"]
    held = copy.deepcopy((given, history, tools, stop))
    model = module(server, source).prompt(prompter)
    server.answer = FULL
    params = {"stop": stop} if "stop" in common_for(source) else {}
    for way in ways(model, given, history, tools, **params):
        way()
    server.answer = Answer('{"a": 1}')
    for way in ways(model, given, history, response_format={"type": "object"}):
        way()
    assert pickle.dumps(prompter) == before
    assert (given, history, tools, stop) == held
