"""What the tests of the model server have in common."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support.model_server.clients import CLIENTS, Asked, Got
from support.model_server.server import PROVIDERS, Answer

if TYPE_CHECKING:
    from support.model_server.server import ModelServer

SECONDS = 30.0  # longer than anything takes, for a busy machine
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
ALL = pytest.mark.parametrize("provider", PROVIDERS)

TEXT = 'Zürich, 東京 and 🌧️: it rains.\n\n- "all day"\ttoo'
CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("call_1", "weather", {"city": "Zürich", "days": [1, 2]}),
    ("call_2", "time", {}),
)
FULL = Answer(text=TEXT, thinking="Hm, 雨? Let me look.", calls=CALLS, prompt_tokens=30, completion_tokens=50)
ANSWERS = {
    "pong": Answer(),
    "full": FULL,
    "calls": Answer(text="", calls=CALLS),
    "one sign": Answer(text="é", prompt_tokens=7),
    "long": Answer(text="The rain in Spain stays. " * 200, completion_tokens=2000),
    "nothing": Answer(text="", completion_tokens=0),
}
NO_THOUGHTS = {"openai", "completions"}
NO_CALLS = {"ollama-generate", "completions"}
NO_IDS = {"ollama"}  # its client has no field for them


FINISHES = {  # the providers' words for the end of a text, of a text that is too long, of calls, of a filtered text
    **dict.fromkeys(PROVIDERS, ("stop", "length", "tool_calls", "content_filter")),
    "zhipu": ("stop", "length", "tool_calls", "sensitive"),
    "openai-responses": ("completed", "max_output_tokens", "completed", "content_filter"),
    "anthropic": ("end_turn", "max_tokens", "tool_use", "refusal"),
    "gemini": ("STOP", "MAX_TOKENS", "STOP", "SAFETY"),
    **dict.fromkeys(("ollama", "ollama-generate"), ("stop", "length", "stop", "stop")),
    "completions": ("stop", "length", "stop", "stop"),
}

MESSAGES = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def ask(server: ModelServer, provider: str, **more: Any) -> Got:
    return CLIENTS[provider](Asked(server.url(provider), **more))


def said(provider: str, answer: Answer) -> tuple[str, str, list[tuple[str, str, Any]]]:
    """What a client can know of an answer."""
    calls = [("" if provider in NO_IDS else ident, name, arguments) for ident, name, arguments in answer.calls]
    thinking = "" if provider in NO_THOUGHTS else answer.thinking
    return answer.text, thinking, [] if provider in NO_CALLS else calls


def heard(got: Got) -> tuple[str, str, list[tuple[str, str, Any]]]:
    return got.text, got.thinking, [(ident, name, json.loads(arguments)) for ident, name, arguments in got.calls]


def failure(server: ModelServer, provider: str, **more: Any) -> tuple[str, int | None, str]:
    """The name of the client's error, the status it tells, and what it says."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is is what is looked at
        ask(server, provider, **more)
    error: Any = caught.value
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    # OpenAI's client has the words of some servers in the body alone.
    words = f"{error} {getattr(error, 'body', '')}"
    return type(error).__name__, status or getattr(response, "status_code", None), words


def post(server: ModelServer, provider: str, path: str, body: dict[str, Any], **headers: str) -> tuple[int, str, bytes]:
    """The status, the content type and the bytes of an answer, as they are."""
    url = urlsplit(server.url(provider))
    with closing(HTTPConnection(url.netloc, timeout=SECONDS)) as connection:
        connection.request("POST", f"{url.path}{path}", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read()
