"""What differs from one server of OpenAI's form to the next: names of parameters, tokens of streams, JSON schemas."""

import json
from contextlib import closing
from typing import Any

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.modules.clients._base import ClientSettings, Request
from lazyprompt.modules.clients.openai import connect, is_strict, response_format
from lazyprompt.modules.engines import engine_named
from modules.clients.helpers import ask, collect_stream, parse_answer, settings_for
from support.client_scenes import KEY, TIMEOUT
from support.model_server.server import ModelServer

OBJECT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
STRICT = {**OBJECT, "additionalProperties": False}


@pytest.mark.parametrize(
    ("base_url", "limit", "usage", "schemas"),
    [
        (None, "max_completion_tokens", True, True),
        ("https://eu.api.openai.com/v1", "max_completion_tokens", True, True),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens", True, True),
        ("https://api.x.ai/v1", "max_completion_tokens", True, True),
        *((f"https://api.moonshot.{end}/v1", "max_completion_tokens", True, True) for end in ("cn", "ai")),
        ("https://api.deepseek.com", "max_tokens", True, False),
        *((f"https://api.siliconflow.{end}/v1", "max_tokens", False, False) for end in ("cn", "com")),
        *((f"https://dashscope{end}.aliyuncs.com/v1", "max_tokens", True, True) for end in ("", "-intl")),
        *((f"https://{host}/api/paas/v4/", "max_tokens", False, False) for host in ("open.bigmodel.cn", "api.z.ai")),
        ("https://notapi.openai.com.example.org/v1", "max_tokens", False, False),
        ("http://127.0.0.1:8000/v1", "max_tokens", False, False),
    ],
)
def test_servers_are_known_by_their_hosts(
    base_url: str | None, limit: str, monkeypatch: pytest.MonkeyPatch, *, usage: bool, schemas: bool
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    client = connect(ClientSettings(base_url, None, 1.0, 0, {}))
    common = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["\n"], "seed": 1, "user": "me"}
    own = {**common}
    own[limit] = own.pop("max_tokens")
    assert client.params(common) == own
    assert (client.structured(STRICT, "Number") is not None) == schemas
    assert usage == client._server.usage  # noqa: SLF001 - seen from outside only at the real hosts


REFUSED = "allOf oneOf not if then else dependentRequired dependentSchemas patternProperties default"


def test_a_schema_is_strict_without_the_keywords_that_strict_mode_refuses() -> None:
    assert is_strict(STRICT)
    assert [word for word in REFUSED.split() if is_strict({**STRICT, word: {}})] == []
    assert not is_strict({**STRICT, "type": "array"})


@pytest.mark.parametrize(
    ("name", "sent"), [("a-b c.d", "a-b_c_d"), ("a" * 64, "a" * 64), ("a" * 65, "a" * 64), ("", "answer")]
)
def test_a_schema_has_a_name_that_openai_allows(name: str, sent: str) -> None:
    assert response_format(STRICT, name)["response_format"]["json_schema"]["name"] == sent


def test_the_environment_may_name_the_server(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url("vllm"))
    with closing(connect(ClientSettings(None, Secret(KEY), TIMEOUT, 0, {}))) as client:
        assert parse_answer("openai", client.send(ask())).content == "pong"
        assert client.params({"max_tokens": 1}) == {"max_tokens": 1}
    assert server.seen[0].provider == "vllm"


def test_a_stream_is_asked_for_its_tokens_where_the_server_takes_that(server: ModelServer) -> None:
    for provider in ("openai", "siliconflow"):
        with closing(connect(settings_for(server, provider), provider)) as client:
            collect_stream(client, ask())
    with closing(connect(settings_for(server, "openai"), "openai")) as client:
        collect_stream(client, ask(stream_options={"x": 1}))
    with closing(connect(settings_for(server, "openai"))) as client:  # of which nothing is known
        collect_stream(client, ask())
    assert [seen.body.get("stream_options") for seen in server.seen] == [{"include_usage": True}, None, {"x": 1}, None]


@pytest.mark.parametrize(("schema", "strict"), [(STRICT, True), (OBJECT, False)], ids=["strict", "loose"])
def test_a_schema_is_sent_and_strict_only_where_it_may_be(
    server: ModelServer, schema: dict[str, Any], *, strict: bool
) -> None:
    with closing(connect(settings_for(server, "openai"), "openai")) as client:
        wanted = client.structured(schema, "Numbers[int]")
        assert wanted is not None
        client.send(ask(**wanted))
    assert server.seen[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "Numbers_int_", "schema": schema, "strict": strict},
    }


@pytest.mark.parametrize(
    ("engine", "sent"),
    [
        ("llama.cpp", {"json_schema": OBJECT}),
        ("vllm", {"structured_outputs": {"json": OBJECT}}),
        ("sglang", {"json_schema": json.dumps(OBJECT)}),
        ("lmdeploy", None),
        ("other", None),
    ],
)
def test_engines_have_their_own_ways_to_ask_for_a_schema(
    server: ModelServer, engine: str, sent: dict[str, Any] | None
) -> None:
    settings = settings_for(server, "completions")
    # An engine's address is without the path.
    settings = settings._replace(base_url=(settings.base_url or "").removesuffix("/v1"))
    with closing(engine_named(engine).connect(settings)) as client:
        wanted = client.structured(OBJECT, "Number")
        if sent is None:
            assert wanted is None
            return
        assert wanted is not None
        client.send(Request("m", {"prompt": "n = "}, wanted))
    assert server.seen[0].body == {"model": "m", "prompt": "n = ", **sent}


def test_mistral_has_its_own_name_for_a_seed(server: ModelServer) -> None:
    with closing(connect(settings_for(server, "mistral"), "mistral")) as client:
        client.send(ask(**client.params({"seed": 1, "extra_body": {"safe_prompt": True}})))
    body = server.seen[0].body
    assert (body["random_seed"], body["safe_prompt"], "seed" in body) == (1, True, False)
