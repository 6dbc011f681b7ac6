"""Modules of all sources against a server that plays them: what is sent, what comes back, in all ways."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from client_scenes import KEY, WEATHER
from model_server import Answer, ModelServer
from online_scenes import ASKED, FEW, LITELLM, NAMES, PROMPTER, looped, marked, module, said, ways

from lazyprompt import (
    AlpacaPrompter,
    Budget,
    CharTokenCounter,
    ChatPrompter,
    EmptyPrompter,
    HistoryError,
    MissingExtraError,
    ModuleError,
    Msg,
    OnlineChatModule,
    TemplateError,
    ToolResultBlock,
)
from lazyprompt.modules.sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from model_server import Seen

    from lazyprompt.modules.client import Client, Settings

pytestmark = pytest.mark.filterwarnings(*LITELLM)
ALL = pytest.mark.parametrize("source", NAMES)
SOME = pytest.mark.parametrize("source", FEW)

CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("c1", "weather", {"city": "Zürich", "days": 2}),
    ("c2", "time", {}),
    ("c3", "weather", {"city": "東京", "days": 1}),
)
FULL = Answer("let me see: 雨?", thinking="which city?\n\nhm", calls=CALLS, prompt_tokens=30, completion_tokens=50)
ANSWERS = (Answer(), FULL, Answer("cut of", finish="length"), Answer("", calls=CALLS))
NO_THOUGHTS = {"openai"}
# Where nobody is asked for the tokens of a stream: it is not known of the address, or the model, that it tells them.
NO_USAGE = {"openai", "litellm"}
COMMON: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "stop": ["END", "."], "seed": 7}
# What a source calls them, or that its client does not take them.
OTHERS: dict[str, dict[str, str | None]] = {
    "anthropic": {"temperature": None, "top_p": None, "seed": None, "stop": "stop_sequences"},
    "gemini": {"max_tokens": "max_output_tokens", "stop": "stop_sequences"},
    "ollama": {"max_tokens": "num_predict"},
    "moonshot": {"max_tokens": "max_completion_tokens"},
    "xai": {"max_tokens": "max_completion_tokens"},
}
# What the clients add of their own to the settings of a call, and of a stream.
ADDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemini": ({}, {}),
    "ollama": ({"stream": False}, {"stream": True}),
    "zhipu": ({"response_format": None, "thinking": None}, {"stream": True, "response_format": None, "thinking": None}),
    **dict.fromkeys(
        ("dashscope", "dashscope-multimodal"),
        ({"result_format": "message"}, {"result_format": "message", "incremental_output": True}),
    ),
    **dict.fromkeys(
        ("deepseek", "moonshot", "xai", "vllm"), ({}, {"stream": True, "stream_options": {"include_usage": True}})
    ),
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


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


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def common_for(source: str) -> dict[str, Any]:
    """The common parameters that a source takes."""
    others = OTHERS.get(source, {})
    return {name: value for name, value in COMMON.items() if others.get(name, name)}


def settings_in(source: str, seen: Seen) -> dict[str, Any]:
    """The settings in a request: what is neither the payload nor the model."""
    if source == "gemini":
        names = {"topP": "top_p", "maxOutputTokens": "max_output_tokens", "stopSequences": "stop_sequences"}
        return {names.get(name, name): value for name, value in seen.body.get("generationConfig", {}).items()}
    body = seen.body["parameters"] if source.startswith("dashscope") else seen.body
    return {name: value for name, value in body.items() if name not in {"model", *seen.payload}}


def as_sent(source: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A payload as the client writes it: Gemini's makes a content of a system text."""
    if source == "gemini" and isinstance(payload.get("system_instruction"), str):
        content = {"role": "user", "parts": [{"text": payload["system_instruction"]}]}
        return {**payload, "system_instruction": content}
    return payload


@ALL
@pytest.mark.parametrize("answer", ANSWERS, ids=["pong", "full", "length", "calls"])
def test_all_ways_give_the_same(server: ModelServer, source: str, answer: Answer) -> None:
    server.answer = answer
    called, *others = (said(way()) for way in ways(module(server, source), ASKED, tools=[weather, time]))
    if source in NO_USAGE:
        others[::2] = (each._replace(usage=called.usage) for each in others[::2])
    assert others == [called] * 3
    assert called.text == answer.text
    assert called.thinking == ("" if source in NO_THOUGHTS else answer.thinking)
    assert [call[1:] for call in called.calls] == [call[1:] for call in answer.calls]
    assert called.finish == answer.why
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    assert called.usage == {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    assert [seen.refusal for seen in server.seen] == [None] * 4
    assert len({written(seen.payload) for seen in server.seen}) == 1


@ALL
def test_a_streaming_module_gives_the_same(server: ModelServer, source: str) -> None:
    server.answer = FULL
    called = said(module(server, source)(ASKED, tools=[WEATHER]))
    streaming = module(server, source, stream=True)
    replies = [streaming(ASKED, tools=[WEATHER]), looped(streaming, streaming.acall(ASKED, tools=[WEATHER]))]
    assert {said(reply)._replace(usage=None).__repr__() for reply in replies} == {repr(called._replace(usage=None))}
    assert [seen.streamed for seen in server.seen] == [False, True, True]


@ALL
def test_the_dry_run_is_what_is_sent(server: ModelServer, source: str) -> None:
    model = module(server, source)
    call: tuple[Any, ...] = (ASKED, [["früher", "ja"], ["“quoted”\n", "🎈"]], [weather, time])
    dry = as_sent(source, dict(model.payload(*call, **common_for(source))))
    assert not server.seen
    for way in ways(model, *call, **common_for(source)):
        way()
    for at, seen in enumerate(server.seen):
        assert seen.model == "m"
        assert written(seen.payload) == written({name: dry[name] for name in seen.payload})
        settings = {name: value for name, value in dry.items() if name not in {"model", *seen.payload}}
        added = ADDED.get(source, ({}, {"stream": True}))[at % 2]
        assert written(settings_in(source, seen)) == written({**settings, **added})


@ALL
def test_calls_and_their_results_go_back(server: ModelServer, source: str) -> None:
    server.answer = FULL
    model = module(server, source)
    reply = model(ASKED, tools=[weather, time])
    assert [call.name for call in reply.tool_calls] == ["weather", "time", "weather"]
    tools: dict[str, Callable[..., str]] = {"weather": weather, "time": time}
    outputs = [tools[call.name](**call.input) for call in reply.tool_calls]
    assert outputs[0] == "Rain in Zürich for 2 days."
    results = [
        ToolResultBlock(call.id, call.name, output) for call, output in zip(reply.tool_calls, outputs, strict=True)
    ]
    history = [Msg("user", "the weather?", "user"), reply.message, Msg("tool", results, "tool")]
    before = copy.deepcopy(history)
    server.answer = Answer("It rains.")
    assert [str(way()) for way in ways(model, {"language": "Dutch"}, history, [weather, time])] == ["It rains."] * 4
    assert history == before
    assert [seen.refusal for seen in server.seen] == [None] * 5
    body = written(server.seen[-1].payload)
    assert all(json.dumps(output, ensure_ascii=False)[1:-1] in body for output in outputs)


@SOME
def test_tools_of_prompters_and_dicts_are_described(server: ModelServer, source: str) -> None:
    prompter = ChatPrompter("Help.", tools=[weather])
    model = module(server, source).prompt(prompter)
    by_prompter = model.payload("hi")
    by_call = model.prompt("Help.").payload("hi", tools=[weather])
    assert dict(by_prompter) == dict(by_call)
    assert "The weather of a city." in written(by_call["tools"])
    assert '"days"' in written(by_call["tools"])


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
def test_whatever_is_a_prompter_is_one(
    server: ModelServer, source: str, prompter: Any, call: Any, words: tuple[str, ...]
) -> None:
    model = module(server, source).prompt(prompter)
    assert model(call) == "pong"
    sent = written(server.seen[0].payload)
    assert all(word in sent for word in words)
    assert "lazyllm" not in sent.lower() or prompter is not None


@SOME
def test_none_says_no_more_than_the_caller(server: ModelServer, source: str) -> None:
    model = module(server, source).prompt()
    dry = dict(model.payload("hi"))
    assert not {"system", "system_instruction"} & dry.keys()
    assert len(dry.get("messages", dry.get("contents", []))) == 1


@pytest.mark.parametrize("wrong", [5, b"x", ["a"], object(), ChatPrompter])
def test_what_is_no_prompter_is_refused_and_changes_nothing(server: ModelServer, wrong: Any) -> None:
    model = module(server, "openai").prompt(PROMPTER, [["a", "b"]])
    dry = model.payload(ASKED)
    with pytest.raises(TemplateError, match="a prompter is"):
        model.prompt(wrong, [["c", "d"]])
    with pytest.raises(TemplateError):
        model.prompt({"system": "x", "usr": "y"}, [["c", "d"]])
    with pytest.raises(HistoryError):
        model.prompt("other", history=[object()])  # type: ignore[list-item]  # that is the point
    assert model.payload(ASKED) == dry
    assert model.prompter is PROMPTER


@SOME
def test_a_history_of_the_module_begins_each_conversation(server: ModelServer, source: str) -> None:
    begun, said_before = [["first", "one"]], [Msg("Ann", "second", "user"), Msg("bot", "two", "assistant")]
    model = module(server, source).prompt(PROMPTER, begun)
    model(ASKED, said_before)
    model(ASKED)
    model.prompt(PROMPTER)(ASKED)
    sent = [written(seen.payload) for seen in server.seen]
    assert ["first" in each for each in sent] == [True, True, False]
    assert ["second" in each for each in sent] == [True, False, False]
    assert (begun, len(said_before)) == ([["first", "one"]], 2)


@ALL
def test_the_prompter_and_what_is_given_stay_as_they_are(server: ModelServer, source: str) -> None:
    prompter = ChatPrompter("Answer in {language}.", history=[["x", "y"]])
    before = pickle.dumps(prompter)
    given = {"language": "Dutch", "input": "ping"}
    history, tools, stop = [["a", "b"]], [dict(WEATHER)], ["END"]
    held = copy.deepcopy((given, history, tools, stop))
    model = module(server, source).prompt(prompter)
    server.answer = FULL
    for way in ways(model, given, history, tools, stop=stop):
        way()
    server.answer = Answer('{"a": 1}')
    for way in ways(model, given, history, response_format={"type": "object"}):
        way()
    assert pickle.dumps(prompter) == before
    assert (given, history, tools, stop) == held


def test_one_prompter_serves_four_sources_at_once() -> None:
    """64 calls at once over 4 sources, whole and streamed, in threads and a loop: each gets what it asked for."""
    with ModelServer(marked) as server:
        prompter = ChatPrompter("Answer in {language}.")
        before = pickle.dumps(prompter)
        models = [module(server, source).prompt(prompter) for source in FEW]
        expected = {}

        def ask(number: int) -> bool:
            model, mark = models[number % 4], f"<m-{number}>"
            given = {"language": f"L{number}", "input": f"say {mark}"}
            expected[mark] = as_sent(model.source.name, dict(model.payload(given, [[f"h{number}", "k"]])))
            if number % 8 < 4:
                return model(given, [[f"h{number}", "k"]]) == mark
            with model.stream(given, [[f"h{number}", "k"]]) as stream:
                return "".join(stream) == mark

        with ThreadPoolExecutor(64) as pool:
            assert all(pool.map(ask, range(64)))

        async def aask(number: int) -> bool:
            model, mark = models[number % 4], f"<m-{number}>"
            given = {"language": f"L{number}", "input": f"say {mark}"}
            expected[mark] = as_sent(model.source.name, dict(model.payload(given, [[f"h{number}", "k"]])))
            return await model.acall(given, [[f"h{number}", "k"]]) == mark

        async def all_at_once() -> bool:
            right = await asyncio.gather(*map(aask, range(64, 128)))
            for model in models:
                await model.aclose()
            return all(right)

        assert asyncio.run(all_at_once())
        for model in models:
            model.close()
        assert pickle.dumps(prompter) == before
        assert len(server.seen) == 128
        for seen in server.seen:
            mark = marked(seen).text
            dry = expected.pop(mark)
            assert written(seen.payload) == written({name: dry[name] for name in seen.payload})
        assert not expected


# Parameters.


@ALL
def test_common_parameters_get_the_names_of_the_source(server: ModelServer, source: str) -> None:
    model = module(server, source, **common_for(source))
    model(ASKED)
    found = settings_in(source, server.seen[0])
    found = found.get("options", found)
    names = {name: OTHERS.get(source, {}).get(name, name) for name in common_for(source)}
    assert {name: found[str(own)] for name, own in names.items()} == common_for(source)


@ALL
def test_parameters_of_a_call_go_before_those_of_the_module(server: ModelServer, source: str) -> None:
    model = module(server, source, max_tokens=100, stop="A")
    calls: tuple[dict[str, Any], ...] = (
        {},
        {"max_tokens": 7},
        {"stop": ["B", "C"]},
        {"stop": "D"},
        {"stop": None},
        {"stop": []},
    )
    for params in calls:
        model(ASKED, **params)
    found = [settings.get("options", settings) for settings in (settings_in(source, seen) for seen in server.seen)]
    limit, stop = (OTHERS.get(source, {}).get(name, name) for name in ("max_tokens", "stop"))
    assert [each[limit] for each in found] == [100, 7, 100, 100, 100, 100]
    assert [each.get(stop) for each in found] == [["A"], ["A"], ["B", "C"], ["D"], None, None]


@ALL
def test_none_takes_a_parameter_away(server: ModelServer, source: str) -> None:
    model = module(server, source, **common_for(source))
    model(ASKED, **dict.fromkeys(COMMON))
    left = settings_in(source, server.seen[0])
    assert left.get("max_tokens", 0) == (4096 if source == "anthropic" else 0)  # its API asks for one
    assert not {"temperature", "top_p", "seed", "stop", "stop_sequences", "max_output_tokens", "options"} & left.keys()


@ALL
def test_what_a_source_does_not_know_is_not_lost(server: ModelServer, source: str) -> None:
    """An error before anything is sent, or there in what is sent."""
    told = ""
    try:
        module(server, source)(ASKED, x_unheard_of=5)
    except (ModuleError, TypeError) as error:
        told = str(error)
    assert ("x_unheard_of" in told) == (not server.seen)
    assert ("x_unheard_of" in told) != any('"x_unheard_of": 5' in written(seen.body) for seen in server.seen)


def test_what_anthropics_client_took_away_is_said() -> None:
    with ModelServer() as server, pytest.raises(ModuleError, match="takes no 'temperature'.*leave it out"):
        module(server, "anthropic")(ASKED, temperature=0.5)


@SOME
def test_parameters_put_nothing_in_the_place_of_the_prompt(server: ModelServer, source: str) -> None:
    model = module(server, source)
    for name in (*model.payload(ASKED), "stream"):
        for way in ways(model, ASKED, **{name: True}) if name != "max_tokens" else ():
            with pytest.raises(ModuleError, match=name):
                way()
    assert not server.seen


@SOME
@pytest.mark.parametrize("wrong", [5, [1], {"a": 1}, b"x"])
def test_a_stop_that_is_no_text_is_refused(server: ModelServer, source: str, wrong: Any) -> None:
    with pytest.raises(ModuleError, match="stop is a text or a list of texts"):
        module(server, source)(ASKED, stop=wrong)


@SOME
def test_the_sources_own_parameters_go_through(server: ModelServer, source: str) -> None:
    own: dict[str, dict[str, Any]] = {
        "openai": {"logit_bias": {"5": 1}, "extra_body": {"own": 1}, "extra_headers": {"x-own": "1"}},
        "anthropic": {"metadata": {"user_id": "u"}, "extra_headers": {"x-own": "1"}},
        "gemini": {"presence_penalty": 0.5, "http_options": {"headers": {"x-own": "1"}}},
        "ollama": {"keep_alive": "5m", "options": {"num_ctx": 512}, "seed": 3},
    }
    module(server, source)(ASKED, **own[source])
    seen = server.seen[0]
    expected: dict[str, Any] = {
        "openai": {"logit_bias": {"5": 1}, "own": 1},
        "anthropic": {"metadata": {"user_id": "u"}},
        "gemini": {},
        "ollama": {"keep_alive": "5m", "options": {"num_ctx": 512, "seed": 3}},
    }
    assert {name: seen.body[name] for name in expected[source]} == expected[source]
    assert source == "ollama" or seen.headers["x-own"] == "1"


# Length.


@ALL
def test_a_prompt_that_is_too_long_is_not_sent(server: ModelServer, source: str) -> None:
    model = module(server, source, counter=CharTokenCounter(), context=300)
    assert model(ASKED) == "pong"
    for way in ways(model, {"language": "Dutch", "input": "x" * 400}):
        with pytest.raises(ModuleError, match=r"takes 300: shorten it, or give a budget") as caught:
            way()
        assert caught.value.kind == "overflow"
    assert len(server.seen) == 1


@SOME
def test_a_budget_makes_it_fit(server: ModelServer, source: str) -> None:
    counter = CharTokenCounter()
    model = module(server, source, counter=counter, context=400, budget=Budget(400, counter))
    history = [[f"question {number}", "answer"] for number in range(50)]
    held = copy.deepcopy(history)
    assert model(ASKED, history) == "pong"
    sent = written(server.seen[0].payload)
    assert "question 49" in sent
    assert "question 0" not in sent
    assert history == held


# Copies, pickles, closing.


@SOME
def test_copies_are_modules_of_their_own(server: ModelServer, source: str) -> None:
    model = module(server, source, max_tokens=5)
    model(ASKED)
    for copied in (copy.copy(model), copy.deepcopy(model)):
        copied.prompt("Other words.")
        assert copied("hi") == "pong"
        copied.close()
    assert model.prompter is PROMPTER
    assert model(ASKED) == "pong"
    model.close()
    assert ["Other words." in written(seen.payload) for seen in server.seen] == [False, True, True, False]


def test_a_pickle_holds_no_key(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="a secret is not pickled"):
        pickle.dumps(module(server, "openai"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = module(server, "openai", api_key=None, max_tokens=5)
    model(ASKED)
    pickled = pickle.dumps(model)
    assert KEY.encode() not in pickled
    loaded = pickle.loads(pickled)  # noqa: S301 - our own
    assert loaded(ASKED) == "pong"
    assert loaded.payload(ASKED) == model.payload(ASKED)
    assert server.seen[1].headers["authorization"] == f"Bearer {KEY}"
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModuleError, match="OPENAI_API_KEY"):
        pickle.loads(pickled)  # noqa: S301 - our own
    for each in (model, loaded):
        each.close()


# Made lazily, and once.


@SOME
def test_nothing_is_made_before_it_is_needed(source: str) -> None:
    """No client is loaded, and no connection made, by making a module and attaching a prompter."""
    import subprocess  # noqa: PLC0415 - only here

    script = (
        f"import sys; from lazyprompt import OnlineChatModule; m = OnlineChatModule({source!r}, model='m', "
        "api_key='k.k').prompt('x'); repr(m); "
        "print([n for n in ('openai', 'anthropic', 'google.genai', 'ollama', 'httpx') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout.strip() == "[]"


@SOME
def test_threads_that_race_make_one_client(server: ModelServer, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Client] = []
    model = module(server, source)
    make = Source.client

    def counted(self: Source, settings: Settings) -> Client:
        made.append(make(self, settings))
        return made[-1]

    monkeypatch.setattr(Source, "client", counted)
    start = Barrier(16)

    def ask(_: int) -> str:
        start.wait()
        return str(model(ASKED))

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(16))) == {"pong"}
    assert len(made) == 1
    model.close()


@pytest.mark.parametrize(
    ("source", "package", "extra"),
    [
        ("openai", "openai", "openai"),
        ("deepseek", "openai", "openai"),
        ("anthropic", "anthropic", "anthropic"),
        ("gemini", "google.genai", "google-genai"),
        ("dashscope", "dashscope", "dashscope"),
        ("zhipu", "zai", "zai-sdk"),
        ("ollama", "ollama", "ollama"),
        ("litellm", "litellm", "litellm"),
    ],
)
def test_a_client_that_is_missing_is_named(
    server: ModelServer, source: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "google.genai":
        monkeypatch.setitem(sys.modules, "google", None)
    model = module(server, source)
    for way in ways(model, ASKED):
        with pytest.raises(MissingExtraError, match=rf'pip install "lazyprompt\[{extra}\]"'):
            way()


# What is wrong from the beginning.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retries": -1}, "retries is 0 or more"),
        ({"retries": 1.5}, "retries is a whole number"),
        ({"concurrency": 0}, "concurrency is 1 or more"),
        ({"concurrency": "2"}, "concurrency is a whole number"),
        ({"timeout": 0}, "timeout is in seconds, and more than 0"),
        ({"timeout": None}, "timeout is in seconds"),
        ({"options": {"api_key": KEY}}, "a key is given as api_key="),
    ],
)
def test_wrong_settings_are_refused_at_once(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ModuleError, match=words) as caught:
        OnlineChatModule("openai", **{"api_key": KEY, **settings})
    assert KEY not in str(caught.value)


def test_a_repr_shows_no_key() -> None:
    model = OnlineChatModule("openai", api_key=KEY)
    assert repr(model) == "OnlineChatModule('openai', model='gpt-5-mini')"
    assert KEY not in repr(vars(model))
