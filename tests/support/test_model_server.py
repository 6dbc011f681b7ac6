"""The model server, held against the official clients: what they make of its answers, streams and refusals."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support.model_server.clients import CLIENTS, Asked, Got
from support.model_server.errors import error_body
from support.model_server.helpers import (
    ALL,
    ANSWERS,
    BOTH,
    CALLS,
    FINISHES,
    MESSAGES,
    SECONDS,
    ask,
    failure,
    heard,
    post,
    said,
)
from support.model_server.server import (
    PATHS,
    Answer,
    ModelServer,
)
from support.providers.loopback import _http as http_arguments  # pyright: ignore[reportPrivateUsage]  # no proxies
from support.providers.types import sdk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.model_server.server import Seen

pytestmark = pytest.mark.slow  # every client


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@ALL
@BOTH
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_arrive(server: ModelServer, provider: str, *, stream: bool, name: str) -> None:
    answer = server.answer = ANSWERS[name]

    got = ask(server, provider, stream=stream)

    assert heard(got) == said(provider, answer)
    assert got.tokens == (answer.prompt_tokens, answer.completion_tokens)
    assert got.finish
    [seen] = server.seen
    assert (seen.provider, seen.streamed, seen.refusal, seen.client_left) == (provider, stream, None, False)


BLOCKING = ("moonshot", "dashscope")  # a filtered answer is an error


@ALL
@BOTH
def test_why_an_answer_ended_is_told_in_the_words_of_the_provider(
    server: ModelServer, provider: str, *, stream: bool
) -> None:
    ends = [Answer(), Answer(finish="length"), Answer(calls=CALLS), Answer(finish="content_filter")]
    for answer, finish in zip(ends, FINISHES[provider], strict=True):
        server.answer = answer
        if answer.finish == "content_filter" and provider in BLOCKING:
            assert failure(server, provider, stream=stream)[1] == 400
        else:
            assert ask(server, provider, stream=stream).finish == finish


@BOTH
def test_the_model_itself_may_refuse(server: ModelServer, *, stream: bool) -> None:
    server.answer = Answer(text="I can't help with that.", finish="refusal")
    openai = sdk("openai")
    http = openai.DefaultHttpxClient(**http_arguments())
    with openai.OpenAI(base_url=server.url("openai"), api_key="k", http_client=http) as client:
        made = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=stream)
        parts = [chunk.choices[0].delta for chunk in made] if stream else [made.choices[0].message]

    assert "".join(part.refusal or "" for part in parts) == "I can't help with that."
    assert not any(part.content for part in parts)
    assert ask(server, "anthropic", stream=stream).finish == "refusal"
    assert ask(server, "openai-responses", stream=stream).text == "I can't help with that."


@BOTH
def test_gemini_blocks_a_prompt(server: ModelServer, *, stream: bool) -> None:
    server.answer = Answer(text="", finish="content_filter")

    assert ask(server, "gemini", stream=stream) == Got(finish="PROHIBITED_CONTENT", tokens=(1, 1))


@BOTH
@pytest.mark.parametrize("provider", ["completions", "ollama-generate", "moonshot", "anthropic", "gemini"])
def test_payloads_are_judged(server: ModelServer, provider: str, *, stream: bool) -> None:
    _, status, message = failure(server, provider, stream=stream, prompt="")  # an empty text is an error there

    refusal = server.seen[-1].refusal
    assert status == 400
    assert refusal
    assert refusal in message
    with ModelServer(judges=False) as lenient:
        assert ask(lenient, provider, stream=stream, prompt="").text == "pong"


@ALL
def test_payloads_without_content_are_refused(server: ModelServer, provider: str) -> None:
    status, media, data = post(server, provider, PATHS[provider][1], {"model": "m"})

    refusal = server.seen[-1].refusal
    assert refusal
    assert (status, media, json.loads(data)) == (400, "application/json", error_body(provider, 400, refusal))


def test_openai_streams_end_with_done(server: ModelServer) -> None:
    options = {"stream_options": {"include_usage": True}}
    _, media, data = post(server, "openai", "/chat/completions", MESSAGES | options)
    assert media == "text/event-stream; charset=utf-8"
    *events, done, rest = data.replace(b": keep-alive\n\n", b"").split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 2
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert b"usage" not in post(server, "openai", "/chat/completions", MESSAGES)[2]


def test_anthropic_names_its_events(server: ModelServer) -> None:
    server.answer = Answer(thinking="Hm.", calls=CALLS[1:])
    _, media, data = post(server, "anthropic", "/v1/messages", MESSAGES | {"max_tokens": 8})
    assert media == "text/event-stream; charset=utf-8"
    events = [event.split(b"\n") for event in data.removesuffix(b"\n\n").split(b"\n\n")]
    bodies = [json.loads(line.removeprefix(b"data: ")) for _, line in events]
    names = [name.removeprefix(b"event: ").decode() for name, _ in events]
    assert names == [body["type"] for body in bodies]
    kinds = [body.get("delta", {}).get("type") or body["type"].removeprefix("content_") for body in bodies]
    assert kinds == [
        *("message_start", "block_start", "ping", "thinking_delta", "thinking_delta", "signature_delta", "block_stop"),
        *("block_start", "text_delta", "text_delta", "block_stop"),
        *("block_start", "input_json_delta", "input_json_delta", "input_json_delta", "block_stop"),
        *("message_delta", "message_stop"),
    ]


def test_gemini_streams_where_its_path_says_so(server: ModelServer) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    _, media, data = post(server, "gemini", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", body)
    assert media == "text/event-stream"
    last = json.loads(data.split(b"\n\n")[-2].removeprefix(b"data: "))
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert server.seen[0].model == "gemini-x"


def test_ollama_streams_lines_unless_it_is_told_not_to(server: ModelServer) -> None:
    body = {"model": "m", "messages": MESSAGES["messages"]}
    _, media, data = post(server, "ollama", "/api/chat", body)
    assert media == "application/x-ndjson"
    assert [json.loads(line)["done"] for line in data.splitlines()] == [False, False, True]
    assert post(server, "ollama", "/api/chat", body | {"stream": False})[1] == "application/json"


def test_completions_take_token_ids(server: ModelServer) -> None:
    right: list[Any] = [[1, 2, 3], "Say pong."]
    wrong: list[Any] = [[], [-1], ["a"], [True], [[1]], None, ""]
    for prompt in right:
        assert post(server, "completions", "/completions", {"model": "m", "prompt": prompt})[0] == 200
        assert server.seen[-1].payload == {"prompt": prompt}
    for prompt in wrong:
        assert post(server, "completions", "/completions", {"model": "m", "prompt": prompt})[0] == 400


@ALL
def test_there_is_nothing_elsewhere(server: ModelServer, provider: str) -> None:
    asked = Asked(server.url(provider) + "/elsewhere")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
        CLIENTS[provider](asked)
    assert "there is nothing at" in f"{caught.value} {getattr(caught.value, 'body', '')}"
    assert server.seen == []


def marked(seen: Seen) -> Answer:
    """The last word of what was asked."""
    return Answer(text=json.dumps(seen.payload).split()[-1].strip('"}]'))


def test_hundreds_of_connections_each_get_their_own_answer() -> None:
    count = 300

    def one(connection: HTTPConnection, number: int, path: str) -> bool:
        message = {"role": "user", "content": f"echo {number}"}
        body = {"model": "m", "messages": [message], "stream": number % 2 == 0}
        connection.request("POST", path, json.dumps(body))
        data = connection.getresponse().read().decode()
        if body["stream"]:
            chunks = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: {")]
            text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        else:
            text = json.loads(data)["choices"][0]["message"]["content"]
        return text == str(number)

    with ModelServer(marked) as server, ThreadPoolExecutor(32) as pool:
        url = urlsplit(server.url("openai"))
        connections = [HTTPConnection(url.netloc, timeout=SECONDS) for _ in range(count)]
        try:
            for turn in range(2):  # each connection is open all the time, and serves twice
                numbers = range(turn * count, (turn + 1) * count)
                paths = [f"{url.path}/chat/completions"] * count
                assert all(pool.map(one, connections, numbers, paths))
        finally:
            for connection in connections:
                connection.close()
        server.wait_for(2 * count, SECONDS)

    assert len(server.seen) == 2 * count
    assert not any(seen.refusal or seen.client_left for seen in server.seen)


def test_connections_that_are_kept_do_not_keep_the_server() -> None:
    with ModelServer() as server:
        url = urlsplit(server.url("ollama"))
        kept = HTTPConnection(url.netloc, timeout=SECONDS)
        kept.request("POST", f"{url.path}/api/chat", json.dumps(MESSAGES))
        assert kept.getresponse().read()
    kept.close()
