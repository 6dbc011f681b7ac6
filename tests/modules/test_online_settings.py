"""The settings of online modules: parameters, context window, copies, pickles and lazy clients."""

import copy
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Barrier
from typing import Any

import pytest

from lazyprompt import Budget, CharTokenCounter, ChatPrompter, Msg, OnlineChatModule, TextBlock, ThinkingBlock
from lazyprompt.errors import MissingExtraError, ModuleError
from lazyprompt.modules.clients._base import ClientSettings, OfficialClient
from lazyprompt.modules.sources import SOURCES, Source
from modules.clients.helpers import raised_error
from modules.online_scenes import ALL, ASKED, OTHERS, PROMPTER, SOME, common_for, module, settings_in, to_json, ways
from support.client_scenes import KEY
from support.model_server.server import ModelServer


@ALL
def test_common_parameters_are_renamed_for_each_source(server: ModelServer, source: str) -> None:
    model = module(server, source, **common_for(source))
    model(ASKED)
    found = settings_in(source, server.seen[0])
    found = found.get("options", found)
    names = {name: OTHERS.get(source, {}).get(name, name) for name in common_for(source)}
    assert {name: found[str(own)] for name, own in names.items()} == common_for(source)


@pytest.mark.parametrize("source", [name for name in SOURCES if OTHERS.get(name, {}).get("stop", "stop")])
def test_call_parameters_override_module_parameters(server: ModelServer, source: str) -> None:
    model = module(server, source, max_tokens=100, stop="A")
    stops: tuple[Any, ...] = (["B", "C"], "D", None, [])
    for params in ({}, {"max_tokens": 7}, *({"stop": each} for each in stops)):
        model(ASKED, **params)
    found = [settings.get("options", settings) for settings in (settings_in(source, seen) for seen in server.seen)]
    limit, stop = (OTHERS.get(source, {}).get(name, name) for name in ("max_tokens", "stop"))
    assert [each[limit] for each in found] == [100, 7, 100, 100, 100, 100]
    assert [each.get(stop) for each in found] == [["A"], ["A"], ["B", "C"], ["D"], None, None]


@ALL
def test_call_parameter_none_removes_the_module_parameter(server: ModelServer, source: str) -> None:
    model = module(server, source, **common_for(source))
    model(ASKED, **dict.fromkeys(common_for("openai")))  # whose client takes them all
    left = settings_in(source, server.seen[0])
    assert left.get("max_tokens", 0) == (4096 if source == "anthropic" else 0)  # its API asks for one
    assert not {"temperature", "top_p", "seed", "stop", "stop_sequences", "max_output_tokens", "options"} & left.keys()


@SOME
def test_parameters_cannot_replace_parts_of_the_payload(server: ModelServer, source: str) -> None:
    model = module(server, source)
    for name in (*model.payload(ASKED), "stream"):
        for way in ways(model, ASKED, **{name: True}) if name != "max_tokens" else ():
            with pytest.raises(ModuleError, match=name):
                way()
    assert not server.seen


@SOME
@pytest.mark.parametrize("wrong", [5, [1], {"a": 1}, b"x"])
def test_stop_that_is_not_text_is_rejected(server: ModelServer, source: str, wrong: Any) -> None:
    with pytest.raises(ModuleError, match="stop must be a string or a list of strings"):
        module(server, source)(ASKED, stop=wrong)


@SOME
def test_provider_specific_parameters_are_sent(server: ModelServer, source: str) -> None:
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


# Context window.


@ALL
def test_prompt_longer_than_the_context_window_is_not_sent(server: ModelServer, source: str) -> None:
    model = module(server, source, counter=CharTokenCounter(), context=300)
    assert model(ASKED) == "pong"
    asked = {"language": "Dutch", "input": "x" * 400}
    told = (
        r"the prompt has (\d+) tokens, but the context window of m is 300; shorten the prompt or set budget=Budget\(300"
    )
    for way in ways(model, asked):
        with pytest.raises(ModuleError, match=told) as caught:
            way()
        assert caught.value.kind == "overflow"
    assert len(server.seen) == 1
    fits = int(re.findall(told, str(caught.value))[0])
    assert module(server, source, counter=CharTokenCounter(), context=fits)(asked) == "pong"


# Copies, pickles, closing.


@SOME
def test_copied_module_has_an_independent_prompter(server: ModelServer, source: str) -> None:
    model = module(server, source, max_tokens=5)
    model(ASKED)
    for copied in (copy.copy(model), copy.deepcopy(model)):
        copied.prompt("Other words.")
        assert copied("hi") == "pong"
        copied.close()
    assert model.prompter is PROMPTER
    assert model(ASKED) == "pong"
    model.close()
    assert ["Other words." in to_json(seen.payload) for seen in server.seen] == [False, True, True, False]


def test_pickled_module_holds_no_key(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="a secret can.t be pickled"):
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
    keyless: OnlineChatModule = pickle.loads(pickled)  # noqa: S301 - our own
    with pytest.raises(ModuleError, match="OPENAI_API_KEY"):
        keyless(ASKED)
    for each in (model, loaded):
        each.close()


@ALL
def test_payload_works_without_a_key(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SOURCES[source].keys:
        monkeypatch.delenv(name, raising=False)
    base_url = None if SOURCES[source].base_url != "" else "http://127.0.0.1:9"
    model = OnlineChatModule(source, model="some-model", base_url=base_url).prompt("Answer in one word.")
    assert "Is it raining?" in to_json(model.payload("Is it raining?", max_tokens=5))
    if SOURCES[source].needs_key:
        with pytest.raises(ModuleError, match=f"{source} requires an API key.*set {SOURCES[source].keys[0]}") as caught:
            model("Is it raining?")
        assert caught.value.kind == "key"


@ALL
def test_shared_module_has_its_own_prompter_and_the_same_client(server: ModelServer, source: str) -> None:
    model = module(server, source)
    first = model.share("Answer in French.", history=[("Hello", "Bonjour")])
    second = first.share("Answer in Greek.")
    assert model.prompter is not first.prompter
    for each in (model.share(ChatPrompter()), first, second, first.share()):
        each("ping")
    told = [to_json(seen.body) for seen in server.seen]
    assert ["French" in each for each in told] == [False, True, False, True]
    assert ["Bonjour" in each for each in told] == [False, True, False, True]
    assert len({id(each._sender()) for each in (model, first, second)}) == 1  # noqa: SLF001 - the same connections
    first.close()  # closes them for all, and all can be used again
    assert second("ping") == "pong"


@ALL
def test_reply_has_the_trim_and_format_reports_of_its_payload(server: ModelServer, source: str) -> None:
    long = [("A question that is long enough to be dropped. " * 9, "An answer.")]
    budgeted = module(server, source, budget=Budget(250, CharTokenCounter())).prompt("Be brief.")
    reply = budgeted("Short?", long)
    assert reply.trim is not None
    assert reply.trim.dropped == (0, 1)
    assert "long enough" not in to_json(server.seen[0].payload)
    # The payload had no trim report.
    shown = budgeted.payload("Short?", long).trim
    assert shown is not None
    assert shown.dropped == (0, 1)
    thought = Msg("b", [ThinkingBlock("Hm."), TextBlock("Hi.")], "assistant")
    asked = module(server, source).prompt("Be brief.")
    stream = asked.stream("Short?", [("Hello", "Hi"), Msg("a", "Hello?", "user"), thought])
    list(stream)
    assert stream.reply.trim is None
    assert stream.reply.report == asked.payload("Short?", [("Hello", "Hi"), Msg("a", "Hello?", "user"), thought]).report


# Lazy clients.


@pytest.mark.slow
@SOME
def test_client_package_is_not_imported_before_the_first_call(source: str) -> None:
    """Making a module and attaching a prompter imports no client and opens no connection."""
    script = (
        f"import sys; from lazyprompt import OnlineChatModule; m = OnlineChatModule({source!r}, model='m', "
        "api_key='k.k').prompt('x'); repr(m); "
        "print([n for n in ('openai', 'anthropic', 'google.genai', 'ollama', 'httpx') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout.strip() == "[]"


@SOME
def test_racing_first_calls_share_one_client(server: ModelServer, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[OfficialClient] = []
    model = module(server, source)
    make = Source.client

    def counted(self: Source, settings: ClientSettings) -> OfficialClient:
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
        ("openai-responses", "openai", "openai"),
        ("anthropic", "anthropic", "anthropic"),
        ("gemini", "google.genai", "google-genai"),
        ("ollama", "ollama", "ollama"),
        # These clients do not retry by themselves.
        ("ollama", "tenacity", "ollama"),
        ("gemini", "tenacity", "google-genai"),
    ],
)
def test_missing_client_package_is_an_error_that_names_the_extra(
    server: ModelServer, source: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "google.genai":
        monkeypatch.setitem(sys.modules, "google", None)
    model = module(server, source)
    parameters: tuple[dict[str, Any], ...] = ({},) if package == "tenacity" else ({}, {"stop": "x"}, {"not_common": 1})
    for way in chain.from_iterable(ways(model, ASKED, **each) for each in parameters):
        error = raised_error(way)
        assert isinstance(error, MissingExtraError)
        assert re.search(rf"pip install .+\[{extra}\]", str(error))


# Invalid settings.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retries": -1}, "retries must be at least 0"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"timeout": 0}, "timeout must be a positive number of seconds"),
        ({"timeout": None}, "timeout must be a positive number"),
        ({"options": {"api_key": KEY}}, "pass the key as api_key="),
    ],
)
def test_invalid_settings_are_rejected_by_the_constructor(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ModuleError, match=words) as caught:
        OnlineChatModule("openai", **{"api_key": KEY, **settings})
    assert KEY not in str(caught.value)


def test_repr_of_a_module_shows_no_key() -> None:
    model = OnlineChatModule("openai", api_key=KEY)
    assert repr(model) == "OnlineChatModule('openai', model='gpt-5-mini')"
    assert KEY not in repr(vars(model))
