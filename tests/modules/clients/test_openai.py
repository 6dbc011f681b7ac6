"""OpenAI's official client against a simulation of the OpenAI-compatible servers."""

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
def test_text_and_token_id_prompts_are_sent_unchanged(server: ModelServer, prompt: str | list[int]) -> None:
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
    for key in ("id", "object", "created", "model", "usage", "choices"):
        assert stream.answer[key] == told[key]


@pytest.mark.parametrize("provider", ["openai", "dashscope", "mistral", "siliconflow", "vllm", "xai", "zhipu"])
def test_error_event_of_a_stream_is_a_server_fault(server: ModelServer, provider: str) -> None:
    server.faults = [Fails()]
    with closing(client_for(server, provider)) as client:
        _, told = call_error(client, ask(), stream=True)

    assert (told.kind, told.message) == ("server", "the server failed in mid-stream")


@pytest.mark.parametrize("provider", [*CHATS, "completions"])
def test_rejected_request_is_classified_by_the_message_of_each_server(server: ModelServer, provider: str) -> None:
    with closing(client_for(server, provider, key="wrong")) as client:
        error, told = call_error(client, request_for(provider), stream=False)
        assert told.kind == "key"
        assert "wrong" not in "".join(traceback.format_exception(error)) + f"{told} {client!r}"
    with closing(client_for(server, provider)) as client:
        assert call_error(client, request_for(provider, model="no-such-model"), stream=False)[1].kind == "not found"
        assert call_error(client, request_for(provider, "OVERFLOW"), stream=True)[1].kind == "overflow"


@pytest.mark.asyncio
async def test_key_of_the_environment_is_not_sent_if_no_key_is_set(
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
def test_truncated_body_is_retried_and_a_truncated_stream_is_not(server: ModelServer) -> None:
    server.faults = [Cut(), None, Cut()]
    with closing(client_for(server, "openai", retries=1)) as client:
        assert parse_answer("openai", client.send(ask())).content == "pong"
        assert call_error(client, ask(), stream=True)[1].kind == "connection"
    assert len(server.seen) == 3


def test_type_error_of_a_misspelt_argument_is_not_a_fault(server: ModelServer) -> None:
    with closing(client_for(server, "openai")) as client:
        with pytest.raises(TypeError, match="temprature") as wrong:
            client.send(ask(temprature=1))
        assert client.fault(wrong.value) is None


def test_real_llama_cpp_server_answers_a_chat_request(tmp_path: Path) -> None:
    with llama_cpp(write_model(tmp_path / "m.gguf", {"default": CHATML})) as engine:
        ids = engine.tokens("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        request = ask("hi", max_tokens=8, temperature=0.0, seed=1)
        with closing(connect(ClientSettings(f"{engine.address}/v1", None, TIMEOUT, 0, {}), "vllm")) as chat:
            message = parse_answer("vllm", chat.send(request))
            assert parse_answer("vllm", collect_stream(chat, request).answer) == message
            assert message.usage is not None
            assert message.usage["prompt_tokens"] == len(ids)
