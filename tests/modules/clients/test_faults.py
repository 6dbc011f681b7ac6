"""The fault kinds of client errors, HTTP statuses and error messages."""

import json
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.modules.clients import anthropic, gemini, ollama, openai, responses
from lazyprompt.modules.clients._base import ClientSettings, OfficialClient
from lazyprompt.modules.clients._faults import (
    WORDS,
    ErrorResponse,
    Fault,
    MalformedError,
    StreamedError,
    fault_of,
    hide,
    kind_of_class,
    kind_of_refusal,
    one_line,
    redirect_target,
)

SETTINGS = ClientSettings("http://127.0.0.1:9", Secret("k.k"), 1.0, 0, {})


def test_http_status_determines_the_fault_kind() -> None:
    statuses = (None, 299, 300, 400, 401, 402, 403, 404, 408, 409, 413, 422, 424, 429, 499, 500, 503)
    assert {status: kind_of_refusal(status, "", WORDS, None) for status in statuses} == {
        **dict.fromkeys((299, 300, 400, 409, 422, 499), "request"),
        **dict.fromkeys((None, 424, 500, 503), "server"),
        **dict.fromkeys((401, 403), "key"),
        **dict.fromkeys((402, 429), "rate limit"),
        404: "not found",
        408: "timeout",
        413: "overflow",
    }
    # The message of the server decides unless the status is unambiguous.
    clear = [status for status in statuses if kind_of_refusal(status, "arrearage", {"arrearage": "cut"}, None) != "cut"]
    assert clear == [401, 404, 408, 429]
    seen = {
        status: fault_of("request", ValueError("x"), ErrorResponse(status), {}, None).status for status in (299, 300)
    }
    assert seen == {299: None, 300: 300}


# Error messages from the servers' documentation and issues.
MESSAGES = """
overflow: {"code": "context_length_exceeded"}
overflow: {"type": "exceed_context_size_error"}
overflow: {"message": "the request exceeds the available context size, try increasing it"}
overflow: {"message": "This model's maximum context length is 4096 tokens."}
overflow: {"message": "Your input exceeds the context window of this model."}
overflow: {"message": "The prompt is longer than the maximum model length of 4096."}
overflow: {"message": "The input is longer than the model's context length (4096 tokens)."}
overflow: {"error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}
overflow: {"message": "Invalid request: Your request exceeded model token limit: 8192"}
overflow: {"message": "length of prompt_tokens must be less than max_seq_len"}
overflow: {"message": "Prompt exceeds max length"}
overflow: {"message": "Prompt 超长"}
overflow: {"message": "Range of input length should be [1, 30720]"}
overflow: {"message": "Input validation error: `inputs` must have less than 1024 tokens"}
overflow: {"message": "`inputs` tokens + `max_new_tokens` must be <= 2048"}
key: {"error": "Incorrect API key provided: xa***"}
key: {"message": "API key not valid. Please pass a valid API key."}
key: {"code": "Arrearage"}
not found: {"message": "Model Not Exist"}
not found: {"message": "Model does not exist. Please check it carefully."}
not found: {"message": "模型不存在,请检查模型代码。"}
not found: {"type": "invalid_model"}
not found: {"detail": "Invalid model name passed in model=x", "error": "Invalid model name"}
rate limit: {"message": "Insufficient Balance"}
rate limit: {"message": "Sorry, your account balance is insufficient"}
rate limit: {"error": "Your newly created team doesn't have any credits yet."}
rate limit: {"error": "Your team has used all available credits."}
rate limit: {"code": "rate_limit_exceeded"}
"""
ANTHROPIC = """
overflow: {"message": "prompt is too long: 210000 tokens > 200000 maximum"}
overflow: {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}
rate limit: {"message": "Your credit balance is too low to access the API."}
overflow: {"message": "the request exceeds the available context size"}
overflow: {"message": "This model's maximum context length is 4096 tokens."}
key: {"type": "authentication_error"}
key: {"type": "permission_error"}
rate limit: {"type": "billing_error"}
not found: {"type": "not_found_error"}
overflow: {"type": "request_too_large"}
rate limit: {"type": "rate_limit_error"}
server: {"type": "timeout_error"}
server: {"type": "api_error"}
server: {"type": "overloaded_error"}
"""
GEMINI = """
key: {"message": "API key not valid. Please pass a valid API key."}
overflow: {"message": "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."}
overflow: {"message": "Request payload size exceeds the limit: 20971520 bytes."}
malformed: {"message": "1 validation error for GenerateContentResponse"}
"""
OLLAMA = """
overflow: {"message": "request (1407 tokens) exceeds the available context size (256 tokens), try increasing it"}
overflow: {"message": "the input length exceeds the context length"}
overflow: {"message": "prompt is too long"}
overflow: {"type": "exceed_context_size_error"}
"""


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (openai.OpenAIClient.words, MESSAGES),
        (anthropic.AnthropicClient.words, ANTHROPIC),
        (gemini.GeminiClient.words, GEMINI),
        (ollama.OllamaClient.words, OLLAMA),
    ],
    ids=["openai", "anthropic", "gemini", "ollama"],
)
def test_error_message_of_each_server_determines_the_fault_kind(words: Any, messages: str, *, nested: bool) -> None:
    rows = [row.split(": ", 1) for row in messages.strip().split("\n")]
    bodies = [{"error": json.loads(body)} if nested else json.loads(body) for _, body in rows]
    refusals = [ErrorResponse(None, body) for body in bodies]
    found = [fault_of("request", ValueError("no"), refusal, words, None).kind for refusal in refusals]
    assert found == [kind for kind, _ in rows]
    assert len(rows) == len(words)


CLIENTS: dict[str, Callable[[ClientSettings], OfficialClient]] = {
    "openai": openai.connect,
    "openai-responses": responses.connect,
    "anthropic": anthropic.connect,
    "google": gemini.connect,
    "ollama": ollama.connect,
}
# The package and name of a class of errors, and its kind; None if the error is a bug of the caller.
OPENAI = """
openai.APITimeoutError timeout, openai.APIConnectionError connection, openai.APIResponseValidationError malformed,
openai.APIStatusError request, openai.APIError server, openai.OpenAIError key
"""
CLASSES = {
    "openai": OPENAI,
    "openai-responses": OPENAI,
    "anthropic": """anthropic.APITimeoutError timeout, anthropic.APIConnectionError connection,
        anthropic.APIResponseValidationError malformed, anthropic.CredentialsError key,
        anthropic.AnthropicError request""",
    "google": """google.APIError request, google.UnknownApiResponseError malformed, google.TransportError connection,
        google.GoogleAuthError key, pydantic_core.ValidationError request""",
    "ollama": "builtins.ConnectionError connection, ollama.RequestError request, ollama.ResponseError server",
}
EVERYWHERE = """, httpx.DecodingError malformed, httpx2.DecodingError malformed, httpx.TimeoutException timeout,
httpx2.TimeoutException timeout, httpx.RequestError connection, lazyprompt.MalformedError malformed,
lazyprompt.StreamedError server, json.JSONDecodeError malformed, builtins.UnicodeDecodeError malformed,
mine.TimeoutException None, builtins.RuntimeError None"""


@pytest.mark.parametrize("name", CLIENTS)
def test_error_class_determines_the_fault_kind(name: str) -> None:
    with closing(CLIENTS[name](SETTINGS)) as client:
        rows = [row.split() for row in (CLASSES[name] + EVERYWHERE).split(",")]
        errors = [type(at.partition(".")[2], (Exception,), {"__module__": at.partition(".")[0]}) for at, _ in rows]
        assert [
            [at, str(kind_of_class(error("x"), client.kinds))] for (at, _), error in zip(rows, errors, strict=True)
        ] == rows


def test_error_classes_of_lazyprompt_have_a_fault_kind() -> None:
    assert kind_of_class(MalformedError("x"), {}) == "malformed"
    assert kind_of_class(StreamedError({"message": "x"}), {}) == "server"
    assert str(StreamedError({"message": "x"})) == "x"
    assert Fault("key", "x") == ("key", "x", None, None)
    assert ErrorResponse() == (None, None, None)


def raise_in(package: str, error: Exception) -> Exception:
    """The error, raised by the code of a package."""
    try:
        exec("raise error", {"__name__": f"{package}.below", "error": error})  # noqa: S102 - our own
    except Exception as caught:  # noqa: BLE001 - whatever it is
        return caught
    raise AssertionError


def test_built_in_error_is_classified_by_the_package_that_raised_the_error() -> None:
    closed = [kind_of_class(raise_in(name, RuntimeError("x")), {}) for name in ("httpx", "httpx2", "mine")]
    assert closed == ["connection", "connection", None]
    kinds = (TypeError, AttributeError, KeyError, IndexError, ValueError, OSError)
    for package, malformed in (("sdk", "malformed"), ("mine", None)):
        found = [kind_of_class(raise_in(package, kind("x")), {}, "sdk") for kind in kinds]
        assert found == [malformed] * 5 + [None]
    assert kind_of_class(raise_in("sdk", TypeError("x")), {}) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("no", "no"),
        ({"message": "no", "detail": "why"}, "no"),
        ({"error": "no", "detail": "why"}, "no"),
        ({"error": {"message": "no"}, "message": "why"}, "no"),
        ({"detail": "no"}, "no"),
        *((nothing, "x: y") for nothing in (None, "", {}, {"code": "z"}, [1])),
    ],
)
def test_message_of_the_server_overrides_the_message_of_the_client(body: object, message: str) -> None:
    error = ValueError("x.")
    error.__cause__ = ValueError("y")
    refusal = ErrorResponse(400, body, {"retry-after": "3"})
    assert fault_of("server", error, refusal, {}, None) == ("request", message, 400, 3.0)


def test_fault_message_is_one_line_of_limited_length() -> None:
    assert one_line("a" * 1_000, None) == "a" * 1_000
    assert one_line("a" * 1_001, None) == "a" * 1_000 + "…"
    assert one_line(" a\n b  sk-12345678", Secret("sk-12345678")).startswith("a b ")
    assert "12345678" not in one_line(" a\n b  sk-12345678", Secret("sk-12345678"))


@pytest.mark.parametrize("status", range(300, 310))
def test_redirect_target_is_found_only_with_a_redirect_status(status: int) -> None:
    error = ValueError("moved")
    vars(error)["response"] = SimpleNamespace(status_code=status, headers=httpx.Headers({"location": "http://there"}))
    assert redirect_target(error) == ("http://there" if status in (301, 302, 303, 307, 308) else None)


@pytest.mark.parametrize(("depth", "hidden"), [(0, True), (1, True), (8, True), (9, False)])
def test_key_is_hidden_in_error_arguments_nested_up_to_eight_levels(depth: int, *, hidden: bool) -> None:
    nested: Any = "sk-12345678"
    for at in range(depth):
        nested = [nested] if at % 2 else {"a": nested}
    error = ValueError(nested, {"sk-12345678": b"sk-12345678"})
    hide(error, Secret("sk-12345678"))
    assert ("sk-12345678" not in repr(error.args[0])) == hidden
    assert "sk-12345678" not in repr(error.args[1])
