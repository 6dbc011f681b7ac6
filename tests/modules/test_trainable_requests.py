"""What each engine is sent, with its parameters, its forms, and as ids or text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import ToolsError, TrainableModule
from lazyprompt.errors import BudgetError, EngineError, HistoryError
from lazyprompt.modules.engines import ENGINES
from modules.local_models import CHATML_HI, LLAMA, LLAMA_HI, NOWHERE
from modules.local_models import local_module as module
from support.model_server.server import Answer, ModelServer


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


# What each engine is sent: vLLM's CompletionRequest, SGLang's, LMDeploy's, Ollama's generate; others get nothing but
# OpenAI's fields.
GIVEN = {"max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 7}
COMMON = {**GIVEN, "stop": ["X", "<|eot_id|>"]}
EXACT = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
SCHEMA = {"title": "w", "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
SENT: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama.cpp": (LLAMA_HI, COMMON, {"extra_body": {"json_schema": SCHEMA}}),
    "vllm": (
        LLAMA.bos + LLAMA_HI,
        {**COMMON, "extra_body": {**EXACT, "add_special_tokens": False}},
        {"extra_body": {"structured_outputs": {"json": SCHEMA}}},
    ),
    "sglang": (
        LLAMA_HI,
        {**COMMON, "extra_body": {"skip_special_tokens": False}},
        {"extra_body": {"json_schema": json.dumps(SCHEMA)}},
    ),
    "lmdeploy": (LLAMA_HI, {**COMMON, "extra_body": EXACT}, {}),
    "ollama": (
        LLAMA_HI,
        {"options": {"num_predict": 5, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": COMMON["stop"]}},
        {"format": SCHEMA},
    ),
    "other": (LLAMA_HI, COMMON, {}),
}


def make_module(engine: str, url: str = NOWHERE) -> TrainableModule:
    return module("org/m", engine=engine, url=url, markers="llama-3", stop="X", **GIVEN)


@pytest.mark.parametrize("engine", SENT)
def test_each_engine_is_sent_what_it_knows(engine: str) -> None:
    prompt, params, structured = SENT[engine]
    made = make_module(engine)
    assert made.payload("hi") == {"model": "org/m", "prompt": prompt, **params}
    formed = made.payload("hi", response_format=SCHEMA)
    if structured:
        assert formed["prompt"] == prompt
        assert {key: formed[key] for key in structured} == {
            key: {**params.get(key, {}), **value} if isinstance(value, dict) else value
            for key, value in structured.items()
        }
    else:  # it is told in words
        assert json.dumps(SCHEMA) in formed["prompt"]
        assert formed == {"model": "org/m", **params, "prompt": formed["prompt"]}


def test_all_engines_have_a_row() -> None:
    assert SENT.keys() == ENGINES.keys()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lmdeploy", "other"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_what_an_engine_sees_is_what_payload_says(server: ModelServer, engine: str, streamed: bool) -> None:  # noqa: FBT001 - two ways
    made = make_module(engine, server.url("completions"))
    before = len(server.seen)
    if streamed:
        assert "".join(made.stream("hi", n=1)) == "pong"
    else:
        assert made("hi", n=1) == "pong"
    made.close()
    (seen,) = server.seen[before:]
    payload = dict(made.payload("hi", n=1))
    body = {**payload, **payload.pop("extra_body", {})}
    body.pop("extra_body", None)
    if streamed:
        usage = {"stream_options": {"include_usage": True}} if engine in ("vllm", "sglang", "lmdeploy") else {}
        body |= {"stream": True, **usage}
    assert seen.body == body
    assert "authorization" not in seen.headers


@pytest.mark.parametrize(("engine", "voice"), [("vllm", "completions"), ("ollama", "ollama-generate")])
def test_the_tokens_that_an_engine_counts_are_the_usage(server: ModelServer, engine: str, voice: str) -> None:
    server.answer = Answer("pong", prompt_tokens=7, completion_tokens=5)
    with make_module(engine, server.url(voice).removesuffix("/v1")) as made:
        assert made("hi").usage == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    server.answer = Answer()


def test_a_streaming_module_streams_each_call(server: ModelServer) -> None:
    """The constructor accepted stream= as a call parameter, and the first call raised an error."""
    before = len(server.seen)
    with TrainableModule("org/m", url=server.url("completions"), markers="chatml", stream=True) as made:
        assert made("hi") == made.chat()("hi") == "pong"
    assert [seen.streamed for seen in server.seen[before:]] == [True, True]


def test_the_key_of_an_engine_is_sent_and_never_shown(server: ModelServer) -> None:
    made = module("org/m", engine="vllm", url=server.url("completions"), markers="chatml", api_key="sk-secret")
    before = len(server.seen)
    assert made("hi") == "pong"
    made.close()
    assert server.seen[before].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in f"{made!r}{made.payload('hi')}"
    refused = module("org/m", engine="vllm", url=server.url("completions"), markers="chatml", api_key="wrong")
    with pytest.raises(EngineError) as told:
        refused("hi")
    refused.close()
    assert told.value.kind == "key"
    assert "wrong" not in str(told.value)


def test_a_payload_is_made_where_no_engine_runs(folder: Path) -> None:
    made = TrainableModule(folder, engine="sglang", safe_tokens=True)
    prompt = made.payload("hi")["prompt"]
    assert prompt == LLAMA.tokenizer().encode(LLAMA.bos + LLAMA_HI).ids
    assert TrainableModule("Qwen/Qwen2.5-7B-Instruct").payload("hi")["prompt"] == CHATML_HI


@pytest.mark.parametrize("adds", [False, True])
def test_a_bos_is_left_out_where_the_tokenizer_adds_one(folder: Path, adds: bool) -> None:  # noqa: FBT001 - two ways
    from tokenizers.processors import TemplateProcessing  # noqa: PLC0415 - here alone

    tokenizer = LLAMA.tokenizer()
    number = tokenizer.token_to_id(LLAMA.bos)
    if adds:
        tokenizer.post_processor = TemplateProcessing(single=f"{LLAMA.bos} $A", special_tokens=[(LLAMA.bos, number)])
    tokenizer.save(str(folder / "tokenizer.json"))
    made = module(folder, engine="sglang")
    assert made.payload("hi")["prompt"] == ("" if adds else LLAMA.bos) + LLAMA_HI
    # Ids are those that the engine makes of the text.
    safe = module(folder, engine="sglang", safe_tokens=True)
    assert safe.payload("hi")["prompt"].count(number) == 1
    plain = module(folder, engine="sglang", markers="chatml", safe_tokens=True)
    assert plain.payload("hi")["prompt"].count(number) == adds
    # The text of a caller that began with it counted as a BOS, and the ids had none.
    raw = module(folder, engine="sglang", markers="llama-3", safe_tokens=True).prompt(None)
    assert raw.payload(f"{LLAMA.bos}hi")["prompt"].count(number) == adds


def test_ids_need_a_tokenizer(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where no model is named, the tokenizer that lies about is none of it.
    LLAMA.tokenizer().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    for made in (module(gguf, safe_tokens=True), module(markers="chatml", engine="vllm", safe_tokens=True)):
        with pytest.raises(EngineError, match="pass tokenizer="):
            made.payload("hi")


def test_the_prompt_and_the_model_are_no_parameters_of_a_call() -> None:
    made = module("org/m", markers="chatml")
    taken: dict[str, Any] = {"prompt": "mine", "model": "other", "stream": True}
    for name, value in taken.items():
        with pytest.raises(EngineError, match=f"{name!r} cannot be a call parameter"):
            made.payload("hi", **{name: value})
    with pytest.raises(EngineError, match="'model' cannot be a call parameter"):
        module("org/m", markers="chatml", model="other").payload("hi")


def test_what_is_wrong_in_a_call_is_said_before_anything_is_sent() -> None:
    made = module("org/m", markers="chatml")
    with pytest.raises(HistoryError):
        made("hi", history=[{"role": "wizard", "content": "x"}])
    with pytest.raises(ToolsError):
        made("hi", tools=[{"name": "weather"}])
    with pytest.raises(BudgetError):
        module("org/m", markers="chatml", budget={"nobody": 3}).payload("hi")
