"""An unknown parameter is told with the nearest name before anything is sent, whatever the client."""

from typing import Any

import pytest

from lazyprompt import ModuleError, OnlineChatModule, TrainableModule
from lazyprompt.modules.engines import ENGINES
from lazyprompt.modules.sources import SOURCES

# Nothing listens there: a request would end in an error of the connection, which is of another kind.
NOWHERE = "http://127.0.0.1:9"


def module(source: str, **params: Any) -> OnlineChatModule:
    return OnlineChatModule(source, model="some-model", api_key="k.k", base_url=NOWHERE, retries=0, **params)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("given", "meant"), [("temprature", "temperature"), ("max_token", "max_tokens")])
def test_a_misspelt_parameter_is_told_with_the_nearest_name(source: str, given: str, meant: str) -> None:
    misspelt: dict[str, Any] = {given: 1}
    for asked, params in ((module(source), misspelt), (module(source, **misspelt), {})):
        with pytest.raises(ModuleError, match=given) as caught:
            asked("Hi", **params)
        assert caught.value.kind == ""  # nothing was sent
        assert meant in str(caught.value) or source in ("anthropic", "gemini")  # their newest names differ


@pytest.mark.parametrize("engine", ENGINES)
def test_so_it_is_with_every_engine(engine: str) -> None:
    asked = TrainableModule("Qwen2.5-7B-Instruct", engine=engine, url=NOWHERE, retries=0)
    with pytest.raises(ModuleError, match="does not accept 'temprature' .did you mean 'temperature'") as caught:
        asked("Hi", temprature=1)
    assert caught.value.kind == ""


@pytest.mark.parametrize("asked", [module("openai"), TrainableModule("Qwen2.5-7B-Instruct", url=NOWHERE)])
def test_lazyllm_s_name_of_the_history_is_told_with_ours(asked: OnlineChatModule | TrainableModule) -> None:
    # It was refused with a hint about extra_body, which would have sent a call without its history.
    with pytest.raises(ModuleError) as caught:
        asked("Hi", llm_chat_history=[["Hello", "Hello!"]])
    assert str(caught.value) == "'llm_chat_history' is LazyLLM's name for the earlier messages; pass them as history="


@pytest.mark.parametrize(
    ("source", "params"),
    [
        ("openai", {"reasoning_effort": "low", "extra_body": {"of_the_server": 1}}),
        ("dashscope", {"extra_body": {"enable_thinking": True}}),
        ("ollama", {"think": True, "options": {"num_ctx": 4096}}),
        ("anthropic", {"thinking": {"type": "disabled"}}),
        ("gemini", {"top_k": 40}),
    ],
)
def test_parameters_of_the_clients_own_are_taken(source: str, params: dict[str, Any]) -> None:
    payload = module(source).payload("Hi", **params)
    assert {name: payload[name] for name in params} == params
