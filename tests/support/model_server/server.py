"""A server that simulates all providers: it judges requests, responds in their formats, and can misbehave."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock
from typing import Any

from support.model_server.errors import NO_KEY, NO_MODEL, REFUSALS, TOO_LONG, error_body
from support.model_server.http import Script, ScriptServer
from support.model_server.parts import (
    JSON_TYPE,
    Answer,
    Ask,
    Cut,
    Drop,
    Ends,
    Fails,
    HalfCall,
    Malformed,
    Misbehaviour,
    Refusal,
    Slow,
    Status,
    Unknown,
    encode_json,
    make_script,
)
from support.model_server.voices import VOICES
from support.providers.loopback import _PATHS as CHECKED_PATHS  # pyright: ignore[reportPrivateUsage]  # the one table of them
from support.providers.loopback import judge, payload_of
from support.serving import Serving

__all__ = [
    "PATHS",
    "PROVIDERS",
    "Answer",
    "Cut",
    "Drop",
    "Ends",
    "Fails",
    "HalfCall",
    "Malformed",
    "Misbehaviour",
    "ModelServer",
    "Seen",
    "Slow",
    "Status",
    "Unknown",
]
PROVIDERS = tuple(VOICES)
# What a client's base_url ends with, and what it puts after that.
PATHS = {
    **CHECKED_PATHS,
    **dict.fromkeys(("siliconflow", "mistral"), CHECKED_PATHS["openai"]),
    "dashscope": ("/compatible-mode/v1", "/chat/completions"),
    "completions": ("/v1", "/completions"),
}
# The form of providers that have rules of another one.
_FORMS = {"siliconflow": "openai", "dashscope": "vllm"}
_GEMINI = re.compile(r"/v1(?:beta|alpha)?/models/([^/:]+):(generateContent|streamGenerateContent)")
_JUDGING = Lock()  # judges load clients when they first need them, with warnings off: that is for one thread at a time
_KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


@dataclass(eq=False)
class Seen:
    """A request as it arrived.

    Attributes:
        provider: Which of the servers was asked.
        path: The path and the query.
        headers: The headers, their names in lower case.
        body: The body.
        payload: The body without the model and the settings, as it was before the client; the body where nothing is
            judged.
        streamed: Whether a stream was asked for.
        model: The model's name.
        refusal: Why the request was refused in the provider's own form: by the judges, for key, model or length.
        client_left: Whether the client closed the connection before it had the whole answer.
    """

    provider: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any]
    payload: dict[str, Any]
    streamed: bool
    model: str
    refusal: str | None = None
    client_left: bool = False


class ModelServer(Serving):
    """A server for all providers, each below its own path, to be used as a context manager.

    It refuses, as the provider does, payloads that break the provider's rules, the model ``no-such-model``, the key
    ``wrong``, and texts that hold ``OVERFLOW``. What goes wrong in its threads is raised when the context ends.

    Attributes:
        answer: What the model says, or a function of what was seen that says it.
        faults: How the server misbehaves: one for each request in order, None is not at all; or a function of it.
        seen: The requests.

    Args:
        answer: The first value of the attribute.
        judges: Whether payloads are judged, which costs more than the rest of a call.
    """

    def __init__(self, answer: Answer | Callable[[Seen], Answer] | None = None, *, judges: bool = True) -> None:
        self.answer: Answer | Callable[[Seen], Answer] = answer or Answer()
        self.faults: list[Misbehaviour | None] | Callable[[Seen], Misbehaviour | None] = []
        self.seen: list[Seen] = []
        self._judges = judges
        self._changed = Condition()
        self._over = 0
        self.http = ScriptServer(self._reply)
        super().__init__(self.http)

    def url(self, provider: str) -> str:
        """The base_url to give to the provider's client."""
        return f"http://127.0.0.1:{self.http.server_port}/{provider}{PATHS[provider][0]}"

    def wait_for(self, requests: int, seconds: float) -> None:
        """Wait until so many requests came to their end.

        Raises:
            TimeoutError: They did not in these seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._over >= requests, seconds):
                raise TimeoutError(f"{self._over} of {requests} requests came to their end in {seconds} s")

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self.http.errors:
            raise ExceptionGroup("the model server failed", self.http.errors)

    def _reply(self, path: str, headers: dict[str, str], content: bytes) -> tuple[Script, Callable[[bool], None]]:
        seen = _seen(path, headers, content)
        if seen is None:
            return _nothing_at(path), lambda _: None
        refusal = _refusal(seen, content) or (self._judged(seen, content) if self._judges else None)
        if refusal:
            seen.refusal = refusal.message
        with self._changed:
            self.seen.append(seen)
        return self._script(seen, self._fault(seen), refusal), partial(self._ended, seen)

    def _judged(self, seen: Seen, content: bytes) -> Refusal | None:
        try:
            if seen.provider == "completions":
                seen.payload = _prompt_of(seen.body)
            else:
                known = _FORMS.get(seen.provider, seen.provider)
                seen.payload = payload_of(known, json.loads(content))  # a copy, since it changes its argument
                with _JUDGING:
                    judge(known, seen.payload)
        except (ValueError, TypeError) as error:
            return Refusal(400, str(error))
        return None

    def _fault(self, seen: Seen) -> Misbehaviour | None:
        if callable(self.faults):
            return self.faults(seen)
        with self._changed:
            return self.faults.pop(0) if self.faults else None

    def _script(self, seen: Seen, fault: Misbehaviour | None, refusal: Refusal | None) -> Script:
        if isinstance(fault, Drop):
            return Script(0)
        if isinstance(fault, Status) or (isinstance(fault, Fails) and not seen.streamed):
            return _failed(seen.provider, fault)
        if refusal:
            return _refused(seen.provider, refusal)
        answer = self.answer if isinstance(self.answer, Answer) else self.answer(seen)
        voice = VOICES[seen.provider]
        if voice.blocked and answer.finish == "content_filter":
            return _refused(seen.provider, voice.blocked)
        return make_script(voice, answer, Ask(seen.model, seen.body), fault, streamed=seen.streamed)

    def _ended(self, seen: Seen, left: bool) -> None:  # noqa: FBT001 - one thing to tell
        with self._changed:
            seen.client_left = left
            self._over += 1
            self._changed.notify_all()


def _seen(path: str, headers: dict[str, str], content: bytes) -> Seen | None:
    """A request; None if the server has nothing at its path."""
    bare, _, query = path.partition("?")
    _, provider, *rest = bare.split("/", 2)
    endpoint = "/" + "".join(rest)
    gemini = _GEMINI.fullmatch(endpoint) if provider == "gemini" else None
    if not content or not (gemini or endpoint == "".join(PATHS.get(provider, ()))):
        return None
    body = json.loads(content)
    if gemini:
        streamed = gemini[2] == "streamGenerateContent" and "alt=sse" in query.split("&")
        return Seen(provider, path, headers, body, body, streamed, gemini[1])
    streamed = bool(body.get("stream", provider.startswith("ollama")))  # Ollama streams by default
    return Seen(provider, path, headers, body, body, streamed, body.get("model", ""))


def _refusal(seen: Seen, content: bytes) -> Refusal | None:
    """The provider's error about the key, the model or the length, whatever the payload is."""
    refusals = REFUSALS[seen.provider]
    if NO_KEY in {seen.headers.get(name, "").removeprefix("Bearer ") for name in _KEY_HEADERS}:
        return refusals["key"]
    if seen.model == NO_MODEL:
        return refusals["model"]
    return refusals.get("length") if TOO_LONG in content else None


def _prompt_of(body: dict[str, Any]) -> dict[str, Any]:
    """The payload of a completion: text, or token ids."""
    prompt: Any = body.get("prompt")
    if not prompt or not (isinstance(prompt, str) or all(type(one) is int and one >= 0 for one in prompt)):
        raise ValueError('"prompt" must be a string or a list of token ids')
    return {"prompt": prompt}


def _nothing_at(path: str) -> Script:
    provider = path.split("/")[1]
    return _refused(provider if provider in VOICES else "openai", Refusal(404, f"there is nothing at {path}"))


def _refused(provider: str, refusal: Refusal, headers: dict[str, str] | None = None) -> Script:
    body = error_body(provider, *refusal)
    return Script(refusal.status, JSON_TYPE, (encode_json(body),), headers=headers)


def _failed(provider: str, fault: Status | Fails) -> Script:
    after = fault.retry_after if isinstance(fault, Status) else None
    if after is None:
        return _refused(provider, Refusal(fault.code, fault.message))
    if provider == "gemini":  # it has no header for it
        told = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{after:g}s"}
        return _refused(provider, Refusal(fault.code, fault.message, {"details": [told]}))
    return _refused(provider, Refusal(fault.code, fault.message), {"retry-after": f"{after:g}"})
