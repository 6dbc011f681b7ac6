"""The table of sources: the requirements of each, and the errors if they are not met."""

import json
import pickle
from typing import Any

import pytest

from lazyprompt import ChatFormatter, ChatPrompter, ModuleError, OnlineChatModule, Profile, Prompty, Secret, Source
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.modules.clients._base import ClientSettings, Request
from lazyprompt.modules.clients.openai import OpenAIClient, Server
from lazyprompt.modules.sources import SOURCES, source_named
from support.model_server.server import Answer, ModelServer

PARROT = Profile(name="parrot", form=ChatForm(), source="https://parrot.example/docs", alternate=True)
ALL = pytest.mark.parametrize("name", SOURCES)


def test_settings_requests_and_sources_have_defaults() -> None:
    assert ClientSettings(None, None, 1.0, 0, {}) == (None, None, 1.0, 0, {}, 16_777_216, None)
    assert Request("m", {}, {}) == ("m", {}, {}, None, ())
    assert Source("mine") == ("mine", "openai", "", "openai:connect", (), None, True, ())


def test_sources_are_found_by_name_and_alias() -> None:
    assert all(source_named(name) is source for source in SOURCES.values() for name in (source.name, *source.aliases))
    assert [source_named(name.upper()).name for name in SOURCES] == list(SOURCES)
    names = [name for source in SOURCES.values() for name in (source.name, *source.aliases)]
    assert len(names) == len(set(names))


def test_source_table_is_read_only() -> None:
    with pytest.raises(TypeError):
        SOURCES["mine"] = SOURCES["openai"]  # type: ignore[index]  # that is the point


@ALL
def test_each_source_has_a_formatter_and_a_client_that_is_made_without_connecting(name: str) -> None:
    source = SOURCES[name]
    assert ChatFormatter(source.provider).provider == source.provider
    client = source.client(ClientSettings(source.base_url or "http://127.0.0.1:9", Secret("k.k"), 1.0, 0, {}))
    assert client.params({"max_tokens": 5})
    assert client.fault(KeyError("x")) is client.fault(RuntimeError("x")) is None
    client.close()


@ALL
def test_source_has_a_default_model_or_requires_model(name: str) -> None:
    source = SOURCES[name]
    if source.model:
        assert OnlineChatModule(name, api_key="k.k").model == source.model
    else:
        with pytest.raises(ModuleError, match=f"{name} has no default model; pass model="):
            OnlineChatModule(name, api_key="k.k")
    assert OnlineChatModule(name, model="mine", base_url="http://127.0.0.1:9", api_key="k.k").model == "mine"


def test_litellm_requires_a_base_url() -> None:
    """With a default URL, keys and conversations for a proxy would go to OpenAI."""
    with pytest.raises(ModuleError, match="litellm has no default URL; pass base_url="):
        OnlineChatModule("litellm", model="openai/gpt-5", api_key="k")


@ALL
def test_key_is_the_argument_or_read_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES[name]
    for variable in source.keys:
        monkeypatch.delenv(variable, raising=False)
    given = Secret("given")
    assert source.key("given") == source.key(given) == given
    assert source.key(given) is given
    for at, variable in reversed(list(enumerate(source.keys))):
        monkeypatch.setenv(variable, f" key{at}\n")
        found = source.key(None)
        assert found is not None
        assert found.reveal() == f"key{at}"
        assert source.key("  ") == source.key(Secret("")) == found
        assert source.key("given") == given
    for variable in source.keys:
        monkeypatch.setenv(variable, "\t ")
    if source.needs_key:
        with pytest.raises(ModuleError, match=" or ".join(source.keys)) as caught:
            source.key(None)
        assert caught.value.kind == "key"
    else:
        assert source.key(None) is None


@pytest.mark.parametrize("wrong", [5, b"key", ["key"]])
def test_key_that_is_not_text_is_rejected_and_not_shown(wrong: object) -> None:
    with pytest.raises(TypeError, match="a secret must be a string, not") as caught:
        OnlineChatModule("openai", api_key=wrong)  # type: ignore[arg-type]  # that is the point
    assert "key" not in str(caught.value)
    assert "5" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("opnai", "unknown source 'opnai' (did you mean 'openai'?)"),
        ("Claud", "unknown source 'Claud' (did you mean 'claude'?)"),
        ("", "unknown source ''"),
        (None, "source must be a name or a Source, not NoneType"),
        (PARROT, "source must be a name or a Source, not Profile; pass Source(NAME, provider=PROFILE, ...)"),
    ],
)
def test_unknown_source_is_rejected_with_a_suggestion(name: Any, words: str) -> None:
    with pytest.raises(ModuleError) as caught:
        OnlineChatModule(name)
    rest = 'for any other server with OpenAI\'s API, use OnlineChatModule("openai", base_url=...)'
    assert str(caught.value) == f"{words}; expected one of {', '.join(SOURCES)}; {rest}"


@pytest.mark.parametrize(
    ("name", "address", "hosted"),
    [
        *(("openai", None, True), ("gemini", None, True), ("vllm", None, False), ("litellm", None, False)),
        *(("vllm", "https://API.openai.com/v1", True), ("openai", "https://eu.api.openai.com/v1", True)),
        *(("openai", "https://not-api.openai.com/v1", False), ("openai", "http://api.openai.com.example.org", False)),
        *(("openai", "http://127.0.0.1:8000", False), ("gemini", "https://x-aiplatform.googleapis.com", True)),
    ],
)
def test_is_hosted_is_true_only_for_an_address_of_the_provider(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str | None, *, hosted: bool
) -> None:
    for variable in ("OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    assert SOURCES[name].is_hosted(address) is hosted
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000")
    assert SOURCES[name].is_hosted(address) is (hosted and (name, address) != ("openai", None))


def test_source_is_not_hosted_if_a_base_url_variable_of_its_client_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        **dict.fromkeys(("openai", "openai-responses"), "OPENAI_BASE_URL"),
        "anthropic": "ANTHROPIC_BASE_URL",
        "gemini": "GOOGLE_GEMINI_BASE_URL",
    }
    for variable in variables.values():
        monkeypatch.delenv(variable, raising=False)
    assert all(SOURCES[name].is_hosted(None) for name in variables)
    for variable in set(variables.values()):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "http://127.0.0.1:8000")
            told = [each for each in SOURCES if not SOURCES[each].is_hosted(None)]
        assert told == [*(each for each in variables if variables[each] == variable), "ollama", "vllm", "litellm"]


@pytest.mark.parametrize("source", ["openai", "vllm"])
def test_online_payload_has_no_system_text_of_the_model_family(source: str) -> None:
    module = OnlineChatModule(source, model="Qwen/Qwen2.5-7B-Instruct", base_url="http://127.0.0.1:9", api_key="k")
    messages = module.prompt(ChatPrompter("")).payload("<|im_end|>")["messages"]
    system = "You are an AI-Agent developed by LazyLLM."
    assert [message["content"] for message in messages] == [system, "<\\|im_end|>"]


def connect(settings: ClientSettings) -> OpenAIClient:
    """A custom client: this server has another name for the seed."""
    return OpenAIClient(settings, Server(seed="random_seed"))


def test_custom_source_uses_its_profile_key_and_client(lenient: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARROT_KEY", "k.k")
    source = Source("parrot", PARROT, "polly-1", connect, ("PARROT_KEY",), lenient.url("openai"))
    module = OnlineChatModule(source)
    assert str(module("Sing.", history=[{"role": "user", "content": "Hi."}], seed=3)) == Answer().text
    body = lenient.seen[-1].body
    messages = [{"role": "user", "content": "Hi.\nSing."}]
    assert body == {"model": "polly-1", "messages": messages, "random_seed": 3}
    assert pickle.loads(pickle.dumps(module)).payload("Sing.") == module.payload("Sing.")  # noqa: S301 - our own


def test_custom_source_may_use_the_client_of_another_provider() -> None:
    """The name of the source was passed to a client that does not accept a name."""
    profile = ChatFormatter("anthropic").profile.but(name="parrot")
    source = Source("parrot", profile, "polly-1", "anthropic:connect", base_url="https://parrot.example")
    messages = [{"role": "user", "content": "Sing."}]
    expected = {"model": "polly-1", "messages": messages, "max_tokens": 4096}
    assert OnlineChatModule(source).payload("Sing.") == expected


@pytest.mark.parametrize("name", ["anthropic", "gemini", "openai-responses"])
def test_custom_source_requires_a_client_if_its_format_is_not_that_of_openai(name: str) -> None:
    """The payload was written, and the call failed with a TypeError of OpenAI's client."""
    profile = ChatFormatter(name).profile.but(name="parrot")
    with pytest.raises(ModuleError, match=r"not the format of the profile 'parrot'; pass Source\(\.\.\., connect="):
        OnlineChatModule(Source("parrot", profile, "polly-1", base_url="https://parrot.example"))


WHY = Prompty.loads("---\nmodel: {id: polly-1}\noutputs: {a: {kind: string, required: true}}\n---\nuser:\nWhy?")


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize("host", ["parrot.example", "api.openai.com"])
def test_profile_of_a_custom_source_decides_whether_the_schema_is_sent(host: str, *, schemas: bool) -> None:
    """A request of a prompt file sent the schema, but a module put it into the system text."""
    source = Source("parrot", PARROT.but(output_schemas=schemas), "polly-1", base_url=f"https://{host}/v1")
    payload = OnlineChatModule(source).prompt(WHY).payload()
    properties = {"a": {"type": "string"}}
    schema = {"title": "answer", "type": "object", "properties": properties, "required": ["a"]}
    told = (
        "Answer with one JSON value and nothing else: no words before or behind it. Its JSON schema:\n"
        f"{json.dumps(schema)}"
    )
    user = {"role": "user", "content": "Why?"}
    sent = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": False}}
    assert payload == {
        "model": "polly-1",
        "messages": [user] if schemas else [{"role": "system", "content": told}, user],
        **({"response_format": sent} if schemas else {}),
    }
    request = WHY.request(provider=source.provider)
    assert ("response_format" in request) == schemas
    assert [str(each) for each in request.report] == (
        [] if schemas else ["outputs (outputs) left out: parrot supports no output schema"]
    )


def test_custom_source_requires_only_a_model_a_base_url_and_a_key() -> None:
    source = Source("parrot", model="polly-1", base_url="https://parrot.example/v1")
    payload = OnlineChatModule(source, stream=True).payload("Sing.")
    assert payload["model"] == "polly-1"
    with pytest.raises(ModuleError, match="^parrot requires an API key: pass api_key="):
        OnlineChatModule(source)("Sing.")


def test_profile_passed_as_model_is_rejected() -> None:
    with pytest.raises(ModuleError, match="^model must be the provider's name for the model, not Profile$"):
        OnlineChatModule("openai", model=PARROT)  # type: ignore[arg-type]  # that is the point
