"""Unknown parameters are rejected before anything is sent, with a suggestion, by every client."""

import asyncio
import re
from contextlib import nullcontext
from typing import Any

import httpx
import openai
import pytest
from google.genai import types
from pydantic import BaseModel

from lazyprompt import Budget, ChatTemplate, Markers, OnlineChatModule, Profile, Source, TrainableModule
from lazyprompt.errors import FormatError, ModuleError
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.messages.msg import ImageBlock, Msg, URLSource
from lazyprompt.modules.clients._base import check_parameters
from lazyprompt.modules.engines import ENGINES
from lazyprompt.modules.sources import SOURCES

# Nothing listens there: a request would fail with the kind "connection".
NOWHERE = "http://127.0.0.1:9"


def module(source: str, **params: Any) -> OnlineChatModule:
    return OnlineChatModule(source, model="some-model", api_key="k.k", base_url=NOWHERE, retries=0, **params)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("given", "meant"), [("temprature", "temperature"), ("max_token", "max_tokens")])
def test_misspelt_parameter_of_a_source_is_rejected_with_a_suggestion(source: str, given: str, meant: str) -> None:
    misspelt: dict[str, Any] = {given: 1}
    for asked, params in ((module(source), misspelt), (module(source, **misspelt), {})):
        with pytest.raises(ModuleError, match=given) as caught:
            asked("Hi", **params)
        assert caught.value.kind == ""  # nothing was sent
        assert meant in str(caught.value) or source in ("anthropic", "gemini")  # their newest names differ


@pytest.mark.parametrize("engine", ENGINES)
def test_misspelt_parameter_of_an_engine_is_rejected_with_a_suggestion(engine: str) -> None:
    asked = TrainableModule("Qwen2.5-7B-Instruct", engine=engine, url=NOWHERE, retries=0)
    with pytest.raises(ModuleError, match="does not accept 'temprature' .did you mean 'temperature'") as caught:
        asked("Hi", temprature=1)
    assert caught.value.kind == ""


class ClientMethods:
    """Methods like those of official clients."""

    def closed(self, top_k: int) -> None: ...

    def open(self, top_k: int, **more: object) -> None: ...


@pytest.mark.parametrize(
    ("method", "name", "words"),
    [
        (ClientMethods.closed, "top_k", ""),
        (ClientMethods.closed, "temprature", " (did you mean 'temperature'?)"),
        (ClientMethods.closed, "tp_k", " (did you mean 'top_k'?)"),
        *((ClientMethods.closed, each, "?") for each in ("self", "seed", "nothing")),
        *((ClientMethods.open, each, "") for each in ("top_k", "tp_n", "seed", "nothing", "top_n")),
        (ClientMethods.open, "temprature", " (did you mean 'temperature'?)"),
    ],
)
def test_parameter_unknown_to_the_client_method_is_rejected(method: Any, name: str, words: str) -> None:
    error = re.escape(f"ask does not accept {name!r}{words.strip('?')}; remove it, or write {name}")
    with pytest.raises(ModuleError, match=f"^{error}$") if words else nullcontext():
        check_parameters(["top_k", name], method, "ask", ", or write {name}")


OWN = Profile(name="acme", form=ChatForm(), source="https://acme.example")


@pytest.mark.parametrize(
    ("params", "kind", "advice"),
    [
        ({"provider": OWN}, "Profile", "did you mean source=Source(NAME, provider=PROFILE, ...)?"),
        ({"of": [Source("acme")]}, "Source", "did you mean source=?"),
        ({"of": ChatTemplate.load("{{ messages[0].content }}")}, "ChatTemplate", "did you mean chat_template=?"),
        ({"family": Markers()}, "Markers", "did you mean markers=?"),
        ({"limit": Budget(9)}, "Budget", "did you mean budget=?"),
        ({"seed": {1, 2}}, "set", "pass JSON values, or objects of the official"),
        ({"extra_body": {"a": [b"x"]}}, "bytes", "pass JSON values"),
    ],
)
def test_parameter_value_that_cannot_be_sent_is_rejected_by_constructor_and_call(
    params: dict[str, Any], kind: str, advice: str
) -> None:
    words = f"the call parameter {next(iter(params))!r} contains a {kind}, which can't be sent; {advice}"
    for call in (
        lambda: module("openai", **params),
        lambda: module("openai").payload("Hi", **params),
        lambda: module("openai").chat()("Hi", **params),
        lambda: TrainableModule("Qwen2.5-7B-Instruct", url=NOWHERE, **params),
        lambda: TrainableModule("Qwen2.5-7B-Instruct", url=NOWHERE)("Hi", **params),
    ):
        with pytest.raises(ModuleError) as caught:
            call()
        assert str(caught.value).startswith(words)


class Wanted(BaseModel):
    name: str


def test_parameter_values_may_be_objects_of_the_official_clients() -> None:
    thinking = types.ThinkingConfig(thinking_budget=0)
    assert module("gemini", thinking_config=thinking).payload("Hi")["thinking_config"] is thinking
    assert module("gemini").payload("Hi", response_schema=Wanted)["response_schema"] is Wanted
    wait = httpx.Timeout(5)
    assert module("openai").payload("Hi", timeout=wait)["timeout"] is wait
    assert module("openai").payload("Hi", top_p=openai.NOT_GIVEN)["top_p"] is openai.NOT_GIVEN


def test_response_format_is_rejected_by_the_constructor() -> None:
    with pytest.raises(ModuleError, match="^response_format= is an argument of each call, not of the module: module"):
        module("openai", response_format=Wanted)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"llm_chat_history": [["Hello", "Hello!"]]},
            "'llm_chat_history' is LazyLLM's name for the earlier messages; pass them as history=",
        ),
        (
            {"static_params": {"temperature": 0.2}},
            "'static_params' is LazyLLM's name for default parameters; pass them as keyword arguments: temperature=0.2",
        ),
    ],
)
def test_lazyllm_parameter_name_is_rejected_with_the_lazyprompt_name(given: dict[str, Any], words: str) -> None:
    # The error named only extra_body, and the constructor accepted the names.
    for call in (
        lambda: module("openai", **given),
        lambda: module("openai")("Hi", **given),
        lambda: TrainableModule("Qwen2.5-7B-Instruct", url=NOWHERE, **given),
        lambda: TrainableModule("Qwen2.5-7B-Instruct", url=NOWHERE)("Hi", **given),
    ):
        with pytest.raises(ModuleError) as caught:
            call()
        assert str(caught.value) == words


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
def test_provider_specific_parameters_are_in_the_payload(source: str, params: dict[str, Any]) -> None:
    payload = module(source).payload("Hi", **params)
    assert {name: payload[name] for name in params} == params


@pytest.mark.parametrize("source", ["deepseek", Source("acme", OWN, "m", base_url=NOWHERE)])
def test_strict_module_rejects_a_lossy_payload_before_anything_is_sent(source: str | Source) -> None:
    """``strict`` was passed to the client as a call parameter, and the call failed."""
    past = [Msg("user", [ImageBlock(URLSource("https://images.example/a.png"))], "user")]
    strict, lax = (
        OnlineChatModule(source, api_key="k", base_url=NOWHERE, retries=0, strict=each) for each in (True, False)
    )
    name = strict.source.name
    for call in (
        lambda: strict("Hi", past),
        lambda: asyncio.run(strict.acall("Hi", past)),
        lambda: strict.stream("Hi", past),
        lambda: strict.payload("Hi", past),
        lambda: strict.chat(past).run("Hi"),
    ):
        with pytest.raises(FormatError) as caught:
            call()
        assert str(caught.value) == (
            f"the payload would lose content: messages[0].content[0] (image) left out: {name} does not accept image"
        )
    payload = lax.payload("Hi", past)
    assert payload["messages"] == [{"role": "user", "content": "Hi"}]
    assert strict.payload("Hi") == lax.payload("Hi")
