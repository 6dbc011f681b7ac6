"""Token counters of providers: the official clients, connected to a local server that counts words."""

import json
import re
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from copy import deepcopy
from typing import Any, TypeAlias

import pytest

from formatters.helpers import call, result
from lazyprompt.errors import (
    BudgetError,
    FormatError,
    HistoryError,
    MediaError,
    MissingExtraError,
    TokenizerError,
    install_command,
)
from lazyprompt.formatters.counters import AnthropicTokenCounter, GeminiTokenCounter
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.msg import Base64Source, ImageBlock, Msg, TextBlock, ThinkingBlock, URLSource
from lazyprompt.tokens.counter import TokenCounter
from support.conversations import PNG
from support.providers.loopback import JsonServer, judge, payload_of
from support.providers.types import fits, sdk

Counter: TypeAlias = AnthropicTokenCounter | GeminiTokenCounter

# What the server counts for each message and tool, for system text, and for a picture.
MESSAGE, SYSTEM, PICTURE = 10, 100, 1000
# Each client chooses its API version.
PATHS = {
    "anthropic": re.compile("/v1/messages/count_tokens"),
    "gemini": re.compile("/v1(beta)?/models/m:countTokens"),
    "vertex": re.compile("/v1(beta1)?/publishers/google/models/m:countTokens"),
}
# Keys whose texts do not count as words of the prompt.
SILENT = {"role", "type", "id", "tool_use_id", "mime_type", "media_type", "model", "thought_signature"}


def weight(value: Any) -> int:
    """The words of all texts below a value, and what its media count."""
    if isinstance(value, dict):
        if "data" in value or "file_uri" in value or "url" in value:
            return PICTURE
        return sum(weight(item) for key, item in value.items() if key not in SILENT)
    return sum(map(weight, value)) if isinstance(value, list) else len(str(value).split())


def total(payload: Mapping[str, Any]) -> int:
    """What the server counts for a payload of a provider."""
    said = payload.get("messages") or payload["contents"]
    system = payload.get("system") or payload.get("system_instruction")
    tools = [one for tool in payload.get("tools", []) for one in tool.get("function_declarations", [tool])]
    return sum(weight(item) + MESSAGE for item in [*said, *tools]) + (weight(system) + SYSTEM if system else 0)


class Server(JsonServer):
    """A server that counts words, refuses bodies that the provider would refuse, and records all bodies."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer: tuple[int, dict[str, Any]] | None = None
        super().__init__()

    def reply(self, path: str, _: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.bodies.append(deepcopy(body))
        if self.answer:
            return self.answer
        try:
            kinds = [kind for kind, pattern in PATHS.items() if pattern.fullmatch(path.partition("?")[0])]
            count = total(check_request(kinds[0], body))
        except (ValueError, TypeError, LookupError) as error:
            return 400, {"error": {"code": 400, "message": f"{path}: {error!r}", "status": "INVALID_ARGUMENT"}}
        return 200, {"input_tokens": count, "totalTokens": count}


def check_request(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """The payload in the body of a request, checked against the types and rules of the provider."""
    if kind == "anthropic":
        fits(sdk("anthropic.types.message_count_tokens_params").MessageCountTokensParams, body)
        payload = payload_of("anthropic", body)
        judge("anthropic", payload)
        return payload
    if kind == "gemini" and "generateContentRequest" in body:
        if body.get("contents"):
            raise ValueError("contents and generateContentRequest are mutually exclusive")
        whole = body.pop("generateContentRequest")
        if whole.pop("model", None) != "models/m":
            raise ValueError("generate_content_request.model: unexpected model name format")
        body = whole
    elif kind == "gemini" and body.keys() != {"contents"}:
        raise ValueError(f"Unknown name: {sorted(body)}")
    payload = {key: value for key, value in payload_of("gemini", body).items() if key != "tools" or value}
    judge("gemini", payload)
    return payload


class Asked:
    """A counter of a provider, and the server that it asks."""

    def __init__(self, kind: str, counter: Counter, server: Server) -> None:
        self.kind, self.counter, self.server = kind, counter, server
        self.provider = "gemini" if kind == "vertex" else kind
        self.formatter = ChatFormatter(self.provider, model="m")

    def in_own_form(self, payload: Payload) -> tuple[list[Any], list[Any] | None]:
        """A payload as a formatter hands it to a counter."""
        messages = list(payload[self.formatter.profile.form.messages_key])
        system = payload.get("system") or payload.get("system_instruction")
        return [{"role": "system", "content": system}, *messages] if system else messages, payload.get("tools")

    def sent(self) -> dict[str, Any]:
        """The payload that the last request held."""
        return check_request(self.kind, deepcopy(self.server.bodies[-1]))


@pytest.fixture(scope="module")
def serving() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def server(serving: Server) -> Server:
    serving.bodies, serving.answer = [], None
    return serving


def client_of(kind: str, server: Server) -> Any:
    http = {"trust_env": False, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "timeout": 10.0}
    if kind == "anthropic":
        anthropic = sdk("anthropic")
        own = anthropic.DefaultHttpxClient(**http, mounts={"all://127.0.0.1": None})
        return anthropic.Anthropic(base_url=server.root, api_key="k", max_retries=0, http_client=own)
    options = {"base_url": server.root, "client_args": http, "timeout": 10_000}
    return sdk("google.genai").Client(api_key="k", vertexai=kind == "vertex", http_options=options)


def counter_of(kind: str, client: Any = None) -> Counter:
    return AnthropicTokenCounter("m", client) if kind == "anthropic" else GeminiTokenCounter("m", client)


@pytest.fixture(params=["anthropic", "gemini", "vertex"])
def asked(request: pytest.FixtureRequest, server: Server) -> Iterator[Asked]:
    with closing(client_of(request.param, server)) as client:
        yield Asked(request.param, counter_of(request.param, client), server)


S = {"role": "system", "content": "be brief and kind"}
U = {"role": "user", "content": "what is the weather"}
A = {"role": "assistant", "content": "fine"}
SCHEMA = {"type": "object", "properties": {"the_place": {"type": "string", "default": None}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "tells the weather", "parameters": SCHEMA}}
PICTURED = Msg("Ann", [TextBlock("see here"), ImageBlock(Base64Source("image/png", PNG))], "user")
USED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"the_place": "here"}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [USED]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain and wind"}
CONVERSATIONS: dict[str, list[Any]] = {
    "dict": [U],
    "system": [S, U],
    "dicts": [S, U, A, U],
    "msg": [Msg("Bob", "what now", "user")],
    "msgs": [Msg("system", "be brief", "system"), Msg("Ann", "hi there", "user"), Msg("Bot", "hi", "assistant"), U],
    "users": [U, U, Msg("Ann", "and this", "user")],
    "assistant": [A],
    "system only": [S],
    "system later": [U, A, S, U],
    "picture": [S, PICTURED],
    "calls": [S, U, CALLS, RESULT],
    "calls of msgs": [
        U,
        Msg("Bot", [TextBlock("I look"), call("c1", the_place="here"), call("c2", the_place="there")], "assistant"),
        Msg("tool", [result("c1", "rain"), result("c2", "sun")], "tool"),
        Msg("Bot", "so so", "assistant"),
        U,
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]}],
}


@pytest.mark.slow
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["alone", "tools"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_messages_of_any_form_are_counted(asked: Asked, name: str, tools: list[dict[str, Any]] | None) -> None:
    messages = CONVERSATIONS[name]
    given = deepcopy((messages, tools))
    payload = asked.formatter.format(messages, tools=tools)
    assert asked.counter.count(messages, tools) == total(payload) > MESSAGE
    assert (messages, tools) == given
    assert len(asked.server.bodies) == 1
    assert sent_as(asked, payload)


def sent_as(asked: Asked, payload: Mapping[str, Any]) -> bool:
    """Whether the last request contained a payload, with the system instruction as a content."""
    expected = dict(payload)
    system = expected.get("system_instruction")
    if system:
        expected["system_instruction"] = {"parts": [{"text": system}]}
    sent = asked.sent()
    if asked.kind == "vertex" and system:
        sent["system_instruction"].pop("role", None)  # which its client writes there
    return sent == expected


@pytest.mark.slow
@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["alone", "tools"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_provider_form_messages_are_sent_unchanged(asked: Asked, name: str, tools: list[dict[str, Any]] | None) -> None:
    payload = asked.formatter.format(CONVERSATIONS[name], tools=tools)
    given = deepcopy(payload)
    assert asked.counter.count(*asked.in_own_form(payload)) == total(payload)
    assert payload == given
    assert sent_as(asked, payload)


@pytest.mark.parametrize("style", ["tags", "conversation"])
def test_merged_history_of_many_speakers_is_counted(asked: Asked, style: Any) -> None:
    formatter = MultiAgentFormatter(asked.provider, history_style=style)
    payload = formatter.format(S, Msg("Ann", "hi there", "user"), Msg("Bob", "hi", "assistant"), PICTURED)
    assert asked.counter.count(*asked.in_own_form(payload)) == total(payload)


@pytest.mark.parametrize("limit", [1, 45, 68, 90])
def test_formatter_trims_to_a_limit_with_a_provider_counter(asked: Asked, limit: int) -> None:
    said = Msg("Ann", "number one", "user"), Msg("Bot", "yes", "assistant")
    messages = [said[at % 2] for at in range(9)]
    formatter = ChatFormatter(asked.provider, token_counter=asked.counter, max_tokens=limit)
    if limit < MESSAGE:
        with pytest.raises(BudgetError):
            formatter.format(messages)
        return
    payload = formatter.format(messages)
    assert 0 < total(payload) <= limit
    assert len(asked.in_own_form(payload)[0]) < len(messages)


def test_empty_input_counts_zero_without_a_request(asked: Asked) -> None:
    assert asked.counter.count([]) == asked.counter.count([], []) == asked.counter.count_text("") == 0
    assert asked.server.bodies == []


def test_tools_without_messages_are_counted(asked: Asked) -> None:
    own = asked.formatter.format(U, tools=[TOOL])["tools"]
    expected = total({"messages": [], "contents": [], "tools": own})
    assert asked.counter.count([], [TOOL]) == expected > MESSAGE
    assert asked.counter.count([], own) == asked.counter.count((), tuple(own)) == expected
    # The placeholder message beside the tools was counted only once.
    assert len(asked.server.bodies) == 4


def test_tools_in_openai_and_provider_form_are_counted_together(asked: Asked) -> None:
    other = {**TOOL, "function": {**TOOL["function"], "name": "g"}}  # type: ignore[dict-item]  # a dict it is
    own = asked.formatter.format(U, tools=[other])["tools"]
    tools = [*own, TOOL]
    given = deepcopy(tools)
    assert asked.counter.count([U], tools) == total(asked.formatter.format(U, tools=[TOOL, other]))
    assert tools == given


def test_plain_texts_are_counted(asked: Asked) -> None:
    assert asked.counter.count_text("a b c") == 3
    assert asked.counter.count_text("你好") == 1
    assert len(asked.server.bodies) == 3
    assert asked.counter.count_text(" \n") == 0  # to a server that counts words


CACHED = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
anthropic_alone = pytest.mark.parametrize("asked", ["anthropic"], indirect=True)
gemini_alone = pytest.mark.parametrize("asked", ["gemini"], indirect=True)


@anthropic_alone
def test_system_text_alone_is_counted_with_a_placeholder_message(asked: Asked) -> None:
    assert asked.counter.count([{"role": "system", "content": CACHED}]) == SYSTEM + 2


@anthropic_alone
def test_anthropic_counter_sends_breakpoints_and_reasoning(asked: Asked) -> None:
    formatter = ChatFormatter("anthropic", cache=["system", "tools", "history"])
    thought = ThinkingBlock("let me see", signature="c2ln")
    payload = formatter.format(S, U, Msg("Bot", [thought, call("c1")], "assistant"), RESULT, U, tools=[TOOL])
    asked.counter.count(*asked.in_own_form(payload))
    assert asked.sent() == payload
    assert json.dumps(asked.sent()).count("cache_control") == json.dumps(payload).count("cache_control") > 1
    # System text with a breakpoint; the rest exists in OpenAI's form too.
    payload = formatter.format(S, U, A, U)
    asked.counter.count(*asked.in_own_form(payload))
    assert asked.sent() == payload
    # A formatter would join these turns.
    asked.server.answer, turns = (200, {"input_tokens": 7}), [{"role": "user", "content": CACHED}] * 2
    assert asked.counter.count(turns) == 7
    assert asked.server.bodies[-1]["messages"] == turns
    assert asked.counter.count([{"role": "user", "content": [{"type": "text", "text": "a"}]}] * 2) == 7
    assert len(asked.server.bodies[-1]["messages"]) == 1


@gemini_alone
def test_gemini_counter_sends_signatures_and_joins_system_text_blocks(asked: Asked, server: Server) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    contents = [{"role": "user", "parts": [{"text": "hi", "thought_signature": "c2ln"}]}]
    assert asked.counter.count([{"role": "system", "content": blocks}, *contents]) == SYSTEM + 2 + MESSAGE + 1
    body = server.bodies[-1]["generateContentRequest"]
    assert body["systemInstruction"] == {"parts": [{"text": "a\nb"}]}
    assert body["contents"][0]["parts"][0]["thoughtSignature"] == "c2ln"


@gemini_alone
def test_gemini_counter_sends_only_contents_without_system_text_and_tools(asked: Asked, server: Server) -> None:
    asked.counter.count([U])
    assert server.bodies == [{"contents": [{"role": "user", "parts": [{"text": U["content"]}]}]}]


@pytest.mark.parametrize("model", ["models/m", "tunedModels/m"])
def test_gemini_counter_sends_the_full_model_path(server: Server, model: str) -> None:
    server.answer = 200, {"totalTokens": 7}
    with closing(client_of("gemini", server)) as client:
        assert GeminiTokenCounter(model, client).count([S, U]) == 7
    assert server.bodies[-1]["generateContentRequest"]["model"] == model


@pytest.mark.parametrize(
    ("messages", "error", "match"),
    [
        ([RESULT], FormatError, "the result of the call 'c1', but no earlier message contains this call"),
        ([Msg("Ann", "", "user")], FormatError, "no message has any content"),
        ([Msg("Ann", [ImageBlock(URLSource("/x/a.png"))], "user")], MediaError, "the local file '/x/a.png'"),
        ([{"role": "usr", "content": "a"}], HistoryError, "did you mean 'user'"),
        ([U, 3], FormatError, "3 has type int"),
    ],
)
def test_invalid_message_is_not_counted(asked: Asked, messages: list[Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        asked.counter.count(messages)
    assert asked.server.bodies == []


@pytest.mark.parametrize("kind", ["gemini", "vertex"])
def test_messages_in_mixed_forms_are_refused_by_the_gemini_client(kind: str, server: Server) -> None:
    mixed: list[Any] = [{"role": "user", "parts": [{"text": "hi"}]}, A]
    with closing(client_of(kind, server)) as client, pytest.raises(ValueError, match="content"):
        GeminiTokenCounter("m", client).count([S, *mixed])
    assert server.bodies == []


def test_image_url_is_counted_by_the_provider(asked: Asked) -> None:
    shown = Msg("Ann", [TextBlock("see"), ImageBlock(URLSource("https://example.com/a.png"))], "user")
    assert asked.counter.count([shown]) == MESSAGE + 1 + PICTURE


def test_client_errors_of_a_counter_are_raised_unchanged(asked: Asked) -> None:
    is_anthropic = asked.kind == "anthropic"
    error = sdk("anthropic").AuthenticationError if is_anthropic else sdk("google.genai.errors").ClientError
    asked.server.answer = 401, {"error": {"code": 401, "message": "no such key", "status": "UNAUTHENTICATED"}}
    with pytest.raises(error, match="no such key"):
        asked.counter.count([S, U], [TOOL])
    with pytest.raises(error, match="no such key"):
        asked.counter.count_text("a")
    asked.server.answer = None
    assert asked.counter.count_text("a b") == 2


@gemini_alone
def test_gemini_response_without_a_token_count_is_an_error(asked: Asked, server: Server) -> None:
    server.answer = 200, {}
    with pytest.raises(TokenizerError, match="'m' contains no totalTokens"):
        asked.counter.count([U])


@pytest.mark.parametrize("kind", ["anthropic", "gemini"])
def test_counter_client_reads_environment_variables(kind: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "k")
    for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(name, server.root)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    counter = counter_of(kind)
    with closing(counter.client) as client:
        assert counter.count([U]) == MESSAGE + 4
        assert counter.client is client


@pytest.mark.parametrize(
    ("kind", "module", "extra"), [("anthropic", "anthropic", "anthropic"), ("gemini", "google.genai", "google-genai")]
)
def test_missing_client_error_names_extra(kind: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    counter = counter_of(kind)
    assert counter.count([]) == 0
    with pytest.raises(MissingExtraError, match=re.escape(install_command(extra))) as caught:
        counter.count([U])
    assert isinstance(caught.value.__cause__, ImportError)


BOTH: list[TokenCounter] = [AnthropicTokenCounter("m"), GeminiTokenCounter("m")]


@pytest.mark.parametrize("kind", [AnthropicTokenCounter, GeminiTokenCounter])
def test_counter_model_that_is_not_a_string_is_refused(kind: Any) -> None:
    with pytest.raises(TokenizerError, match="model must be the provider's name for the model, not NoneType"):
        kind(None)


def test_provider_token_counters_are_not_additive() -> None:
    assert [getattr(counter, "additive", None) for counter in BOTH] == [False, False]
