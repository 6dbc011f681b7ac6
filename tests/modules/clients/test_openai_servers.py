"""Differences of OpenAI-compatible servers: parameter names, usage of streams, JSON schemas."""

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
def test_server_features_are_recognized_by_the_host(
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


def test_schema_with_a_keyword_that_strict_mode_rejects_is_not_strict() -> None:
    assert is_strict(STRICT)
    assert [word for word in REFUSED.split() if is_strict({**STRICT, word: {}})] == []
    assert not is_strict({**STRICT, "type": "array"})


@pytest.mark.parametrize(
    ("name", "sent"), [("a-b c.d", "a-b_c_d"), ("a" * 64, "a" * 64), ("a" * 65, "a" * 64), ("", "answer")]
)
def test_schema_name_is_rewritten_to_characters_that_openai_accepts(name: str, sent: str) -> None:
    assert response_format(STRICT, name)["response_format"]["json_schema"]["name"] == sent


def test_base_url_is_read_from_the_environment(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url("vllm"))
    with closing(connect(ClientSettings(None, Secret(KEY), TIMEOUT, 0, {}))) as client:
        assert parse_answer("openai", client.send(ask())).content == "pong"
        assert client.params({"max_tokens": 1}) == {"max_tokens": 1}
    assert server.seen[0].provider == "vllm"


@pytest.mark.parametrize(
    ("provider", "known", "params", "sent"),
    [
        ("openai", ("openai",), {}, {"include_usage": True}),
        ("openai", ("openai",), {"stream_options": {"x": 1}}, {"x": 1}),
        ("openai", (), {}, None),  # a server of unknown features
        ("siliconflow", ("siliconflow",), {}, None),
    ],
)
def test_stream_usage_is_requested_only_from_servers_that_support_the_option(
    server: ModelServer, provider: str, known: tuple[str, ...], params: dict[str, Any], sent: Any
) -> None:
    with closing(connect(settings_for(server, provider), *known)) as client:
        collect_stream(client, ask(**params))
    assert server.seen[0].body.get("stream_options") == sent


@pytest.mark.parametrize(("schema", "strict"), [(STRICT, True), (OBJECT, False)], ids=["strict", "loose"])
def test_sent_schema_is_strict_only_if_strict_mode_accepts_the_schema(
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
def test_schema_is_sent_in_the_engines_own_field(server: ModelServer, engine: str, sent: dict[str, Any] | None) -> None:
    settings = settings_for(server, "completions")
    # The address of an engine has no path.
    settings = settings._replace(base_url=(settings.base_url or "").removesuffix("/v1"))
    with closing(engine_named(engine).connect(settings)) as client:
        wanted = client.structured(OBJECT, "Number")
        if sent is None:
            assert wanted is None
            return
        assert wanted is not None
        client.send(Request("m", {"prompt": "n = "}, wanted))
    assert server.seen[0].body == {"model": "m", "prompt": "n = ", **sent}


def test_seed_is_sent_to_mistral_as_random_seed(server: ModelServer) -> None:
    with closing(connect(settings_for(server, "mistral"), "mistral")) as client:
        client.send(ask(**client.params({"seed": 1, "extra_body": {"safe_prompt": True}})))
    body = server.seen[0].body
    assert (body["random_seed"], body["safe_prompt"], "seed" in body) == (1, True, False)
