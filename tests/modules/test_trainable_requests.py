"""The requests to each engine: parameters, schemas, and prompts as text or token ids."""

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


# The fields of vLLM's CompletionRequest, SGLang's, LMDeploy's and Ollama's generate; other engines get only
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
def test_payload_has_the_fields_that_each_engine_supports(engine: str) -> None:
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


def test_expected_payloads_cover_all_engines() -> None:
    assert SENT.keys() == ENGINES.keys()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lmdeploy", "other"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_engine_receives_the_payload(server: ModelServer, engine: str, streamed: bool) -> None:  # noqa: FBT001 - two ways
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
def test_usage_is_the_token_count_of_the_engine(server: ModelServer, engine: str, voice: str) -> None:
    server.answer = Answer("pong", prompt_tokens=7, completion_tokens=5)
    with make_module(engine, server.url(voice).removesuffix("/v1")) as made:
        assert made("hi").usage == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    server.answer = Answer()


def test_module_with_stream_true_streams_each_call(server: ModelServer) -> None:
    """The constructor accepted stream= as a call parameter, and the first call raised an error."""
    before = len(server.seen)
    with TrainableModule("org/m", url=server.url("completions"), markers="chatml", stream=True) as made:
        assert made("hi") == made.chat()("hi") == "pong"
    assert [seen.streamed for seen in server.seen[before:]] == [True, True]


def test_key_of_an_engine_is_sent_and_not_shown(server: ModelServer) -> None:
    made = module("org/m", engine="vllm", url=server.url("completions"), markers="chatml", api_key="sk-secret")
    before = len(server.seen)
    assert made("hi") == "pong"
    made.close()
    assert server.seen[before].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in f"{made!r}{made.payload('hi')}"
    refused = module("org/m", engine="vllm", url=server.url("completions"), markers="chatml", api_key="wrong")
    with pytest.raises(EngineError) as caught:
        refused("hi")
    refused.close()
    assert caught.value.kind == "key"
    assert "wrong" not in str(caught.value)


def test_payload_works_without_a_running_engine(folder: Path) -> None:
    made = TrainableModule(folder, engine="sglang", safe_tokens=True)
    prompt = made.payload("hi")["prompt"]
    assert prompt == LLAMA.tokenizer().encode(LLAMA.bos + LLAMA_HI).ids
    assert TrainableModule("Qwen/Qwen2.5-7B-Instruct").payload("hi")["prompt"] == CHATML_HI


@pytest.mark.parametrize("adds", [False, True])
def test_bos_is_left_out_if_the_tokenizer_adds_one(folder: Path, adds: bool) -> None:  # noqa: FBT001 - two ways
    from tokenizers.processors import TemplateProcessing  # noqa: PLC0415 - here alone

    tokenizer = LLAMA.tokenizer()
    number = tokenizer.token_to_id(LLAMA.bos)
    if adds:
        tokenizer.post_processor = TemplateProcessing(single=f"{LLAMA.bos} $A", special_tokens=[(LLAMA.bos, number)])
    tokenizer.save(str(folder / "tokenizer.json"))
    made = module(folder, engine="sglang")
    assert made.payload("hi")["prompt"] == ("" if adds else LLAMA.bos) + LLAMA_HI
    # The ids equal those that the engine makes from the text.
    safe = module(folder, engine="sglang", safe_tokens=True)
    assert safe.payload("hi")["prompt"].count(number) == 1
    plain = module(folder, engine="sglang", markers="chatml", safe_tokens=True)
    assert plain.payload("hi")["prompt"].count(number) == adds
    # A BOS token in the caller's text counted as the BOS of the prompt, and the ids had none.
    raw = module(folder, engine="sglang", markers="llama-3", safe_tokens=True).prompt(None)
    assert raw.payload(f"{LLAMA.bos}hi")["prompt"].count(number) == adds


def test_safe_tokens_require_a_tokenizer(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a model, a tokenizer file in the current folder is not used.
    LLAMA.tokenizer().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    for made in (module(gguf, safe_tokens=True), module(markers="chatml", engine="vllm", safe_tokens=True)):
        with pytest.raises(EngineError, match="pass tokenizer="):
            made.payload("hi")


@pytest.mark.parametrize(
    ("defaults", "params"),
    [({}, {"prompt": "mine"}), ({}, {"model": "other"}), ({}, {"stream": True}), ({"model": "other"}, {})],
)
def test_prompt_model_and_stream_are_rejected_as_parameters(defaults: dict[str, Any], params: dict[str, Any]) -> None:
    (name,) = {**defaults, **params}
    with pytest.raises(EngineError, match=f"{name!r} cannot be a call parameter"):
        module("org/m", markers="chatml", **defaults).payload("hi", **params)


def test_invalid_history_tools_or_budget_are_rejected_before_anything_is_sent() -> None:
    made = module("org/m", markers="chatml")
    with pytest.raises(HistoryError):
        made("hi", history=[{"role": "wizard", "content": "x"}])
    with pytest.raises(ToolsError):
        made("hi", tools=[{"name": "weather"}])
    with pytest.raises(BudgetError):
        module("org/m", markers="chatml", budget={"nobody": 3}).payload("hi")
