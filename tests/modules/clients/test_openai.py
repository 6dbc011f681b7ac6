"""OpenAI's official client against a server that plays everybody who speaks like OpenAI."""

import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lazyprompt.modules.clients._base import ClientSettings, OfficialClient, Request
from lazyprompt.modules.clients.openai import CompletionsClient, Server, connect
from lazyprompt.modules.engines import ENGINES
from modules.clients.helpers import ask, call_error, collect_stream, parse_answer, settings_for
from support.client_scenes import KEY, TIMEOUT
from support.model_server.server import Answer, Cut, Fails, ModelServer
from support.tiny_model import CHATML, llama_cpp, write_model

CHATS = ("openai", "dashscope", "deepseek", "litellm", "mistral", "moonshot", "siliconflow", "vllm", "xai", "zhipu")
ENGINE = ENGINES["llama.cpp"].server or Server()


def client_for(server: ModelServer, provider: str, **settings: Any) -> OfficialClient:
    made = settings_for(server, provider, **settings)
    return CompletionsClient(made, ENGINE) if provider == "completions" else connect(made, provider)


def request_for(provider: str, content: str = "ping", model: str = "m") -> Request:
    return Request(model, {"prompt": content}, {}) if provider == "completions" else ask(content, model)


@pytest.mark.parametrize("prompt", ["### Instruction:\n你好\n### Response:\n", [1, 2, 491]], ids=["text", "ids"])
def test_flat_text_and_token_ids_arrive_as_they_are(server: ModelServer, prompt: str | list[int]) -> None:
    server.answer = Answer("Grüße aus Köln, 你好 🙂", prompt_tokens=11, completion_tokens=7)
    request = Request("m", {"prompt": prompt}, {"max_tokens": 8})
    with closing(CompletionsClient(settings_for(server, "completions"), ENGINE)) as client:
        whole: Any = client.send(request)
        stream = collect_stream(client, request)

    assert [seen.body["prompt"] for seen in server.seen] == [prompt, prompt]
    assert [seen.body["max_tokens"] for seen in server.seen] == [8, 8]
    told = whole.to_dict()
    assert "".join(delta.text for delta in stream.deltas) == whole.choices[0].text == server.answer.text
    assert stream.complete
    for key in ("id", "object", "created", "model", "usage"):
        assert stream.answer[key] == told[key]
    assert stream.answer["choices"] == told["choices"]


@pytest.mark.parametrize("provider", ["openai", "dashscope", "mistral", "siliconflow", "vllm", "xai", "zhipu"])
def test_what_a_stream_says_of_its_own_failure_is_told(server: ModelServer, provider: str) -> None:
    server.faults = [Fails()]
    with closing(client_for(server, provider)) as client:
        _, told = call_error(client, ask(), stream=True)

    assert (told.kind, told.message) == ("server", "the server failed in mid-stream")


@pytest.mark.parametrize("provider", [*CHATS, "completions"])
def test_refusals_are_recognised_by_each_server_s_words(server: ModelServer, provider: str) -> None:
    with closing(client_for(server, provider, key="wrong")) as client:
        error, told = call_error(client, request_for(provider), stream=False)
        assert told.kind == "key"
        assert "wrong" not in "".join(traceback.format_exception(error)) + f"{told} {client!r}"
    with closing(client_for(server, provider)) as client:
        assert call_error(client, request_for(provider, model="no-such-model"), stream=False)[1].kind == "not found"
        assert call_error(client, request_for(provider, "OVERFLOW"), stream=True)[1].kind == "overflow"


@pytest.mark.asyncio
async def test_without_a_key_none_is_sent_not_even_that_of_the_environment(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    client = client_for(server, "vllm", key=None)
    client.send(ask())
    collect_stream(client, ask(extra_headers={"x-mine": "1"}))
    await client.asend(ask())
    client.close()
    await client.aclose()
    with closing(client_for(server, "vllm", key=None, default_headers={"authorization": "Basic me"})) as client:
        client.send(ask())

    assert [seen.headers.get("authorization") for seen in server.seen] == [None, None, None, "Basic me"]
    assert server.seen[1].headers["x-mine"] == "1"


@pytest.mark.slow
def test_a_body_that_breaks_off_is_asked_for_again_a_stream_is_not(server: ModelServer) -> None:
    server.faults = [Cut(), None, Cut()]
    with closing(client_for(server, "openai", retries=1)) as client:
        assert parse_answer("openai", client.send(ask())).content == "pong"
        assert call_error(client, ask(), stream=True)[1].kind == "connection"
    assert len(server.seen) == 3


def test_a_bug_is_no_fault(server: ModelServer) -> None:
    with closing(client_for(server, "openai")) as client:
        with pytest.raises(TypeError, match="temprature") as wrong:
            client.send(ask(temprature=1))
        assert client.fault(wrong.value) is None


def test_llama_cpp_itself_answers_a_chat(tmp_path: Path) -> None:
    with llama_cpp(write_model(tmp_path / "m.gguf", {"default": CHATML})) as engine:
        ids = engine.tokens("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        request = ask("hi", max_tokens=8, temperature=0.0, seed=1)
        with closing(connect(ClientSettings(f"{engine.address}/v1", None, TIMEOUT, 0, {}), "vllm")) as chat:
            message = parse_answer("vllm", chat.send(request))
            assert parse_answer("vllm", collect_stream(chat, request).answer) == message
            assert message.usage is not None
            assert message.usage["prompt_tokens"] == len(ids)
