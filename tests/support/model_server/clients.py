"""What the official clients make of the model server's answers, put together from their own objects."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from support.providers.loopback import _http as http_arguments  # pyright: ignore[reportPrivateUsage]  # no proxies
from support.providers.types import OPENAI_CHAT, sdk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from support.model_server.parts import Json


class Got(NamedTuple):
    """What a client got: ``calls`` with their arguments as text, ``finish`` in the provider's word, both counts."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str = ""
    tokens: tuple[int, int] | None = None


class Asked(NamedTuple):
    """What a client is to ask."""

    url: str
    key: str = "k"
    model: str = "m"
    prompt: str = "Say pong."
    stream: bool = False

    @property
    def messages(self) -> list[Json]:
        return [{"role": "user", "content": self.prompt}]


class RefusedError(Exception):
    """An error that a client gives back instead of raising it."""

    def __init__(self, message: str, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


class _Calls:
    """Calls of the chat form, whose pieces have an index."""

    def __init__(self) -> None:
        self._calls: dict[int, list[str]] = {}

    def add(self, call: Any, at: int) -> None:
        index = call.get("index", at)
        known = self._calls.setdefault(at if index is None else index, ["", "", ""])
        function: Json = call.get("function") or {}
        for place, value in enumerate((call.get("id"), function.get("name"))):
            known[place] = known[place] or value or ""
        known[2] += function.get("arguments") or ""

    def all(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((ident, name, arguments) for ident, name, arguments in self._calls.values())


def _texts(fields: Json, *names: str) -> str:
    return next((fields[name] for name in names if fields.get(name)), "")


def _chat(made: Iterable[Any]) -> Got:
    """Chunks of the chat form, or a whole answer as the only one."""
    text = thinking = finish = ""
    tokens, calls = None, _Calls()
    for one in made:
        if isinstance(one, str):  # the client hands on what is no JSON
            raise RefusedError(one)
        chunk = one.model_dump(warnings=False)  # Mistral's content may be a list
        usage = chunk.get("usage")
        for choice in chunk.get("choices") or ():
            said: Json = choice.get("delta") or choice.get("message") or {}
            content = said.get("content")
            parts: list[Any] = content if isinstance(content, list) else []
            thinking += "".join(each["text"] for part in parts for each in part.get("thinking") or ())
            text += "".join(part.get("text") or "" for part in parts) if parts else _texts(said, "content", "refusal")
            thinking += _texts(said, "reasoning_content", "reasoning")
            for at, call in enumerate(said.get("tool_calls") or ()):
                calls.add(call, at)
            finish = choice.get("finish_reason") or finish
            usage = usage or choice.get("usage")
        tokens = (usage["prompt_tokens"], usage["completion_tokens"]) if usage else tokens
    return Got(text, thinking, calls.all(), finish, tokens)


def _openai(asked: Asked, read: Callable[[Any, Asked], Got]) -> Got:
    openai = sdk("openai")
    http = openai.DefaultHttpxClient(**http_arguments())
    with openai.OpenAI(base_url=asked.url, api_key=asked.key, max_retries=0, http_client=http) as client:
        return read(client, asked)


_STREAM: Json = {"stream": True, "stream_options": {"include_usage": True}}


def _by_chat(client: Any, asked: Asked) -> Got:
    more = _STREAM if asked.stream else {}
    made = client.chat.completions.create(model=asked.model, messages=asked.messages, **more)
    return _chat(made if asked.stream else [made])


def _by_completions(client: Any, asked: Asked) -> Got:
    made = client.completions.create(model=asked.model, prompt=asked.prompt, **(_STREAM if asked.stream else {}))
    text = finish = ""
    tokens = None
    for one in made if asked.stream else [made]:
        if isinstance(one, str):
            raise RefusedError(one)
        for choice in one.choices or ():
            text, finish = text + choice.text, choice.finish_reason or finish
        tokens = (one.usage.prompt_tokens, one.usage.completion_tokens) if one.usage else tokens
    return Got(text, "", (), finish, tokens)


def _response(response: Any) -> Got:
    """A whole response."""
    if isinstance(response, str):
        raise RefusedError(response)
    items = [item.model_dump() for item in response.output]
    texts = [_texts(part, "text", "refusal") for item in items if item["type"] == "message" for part in item["content"]]
    thoughts = [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]]
    calls = [(one["call_id"], one["name"], one["arguments"]) for one in items if one["type"] == "function_call"]
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    tokens = (response.usage.input_tokens, response.usage.output_tokens)
    return Got("".join(texts), "".join(thoughts), tuple(calls), reason or response.status, tokens)


def _by_responses(client: Any, asked: Asked) -> Got:
    if not asked.stream:
        return _response(client.responses.create(model=asked.model, input=asked.messages))
    said: dict[str, str] = {"text": "", "thinking": ""}
    calls: dict[str, list[str]] = {}
    end = Got()
    for event in client.responses.create(model=asked.model, input=asked.messages, stream=True):
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                said["text"] += event.delta
            case "response.reasoning_summary_text.delta":
                said["thinking"] += event.delta
            case "response.output_item.added" if event.item.type == "function_call":
                calls[event.item.id] = [event.item.call_id, event.item.name, ""]
            case "response.function_call_arguments.delta":
                calls[event.item_id][2] += event.delta
            case "response.completed" | "response.incomplete":
                end = _response(event.response)
            case "error":  # the client does not raise it
                raise RefusedError(event.message)
            case _:
                continue
    written = tuple((ident, name, arguments) for ident, name, arguments in calls.values())
    got = Got(said["text"], said["thinking"], written, end.finish, end.tokens)
    if end.finish and got != end:
        raise RefusedError(f"the deltas say {got}, the end says {end}")
    return got


def _anthropic(asked: Asked) -> Got:
    anthropic = sdk("anthropic")
    http = anthropic.DefaultHttpxClient(**http_arguments(), mounts={"all://127.0.0.1": None})
    with anthropic.Anthropic(base_url=asked.url, api_key=asked.key, max_retries=0, http_client=http) as client:
        arguments: Json = {"model": asked.model, "max_tokens": 8, "messages": asked.messages}
        if not asked.stream:
            return _message(client.messages.create(**arguments), {})
        written: dict[int, str] = {}
        with client.messages.stream(**arguments) as stream:
            for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    written[event.index] = written.get(event.index, "") + event.delta.partial_json
            return _message(stream.get_final_message(), written)


def _message(message: Any, written: dict[int, str]) -> Got:
    if isinstance(message, str):
        raise RefusedError(message)
    blocks = message.content
    return Got(
        "".join(block.text for block in blocks if block.type == "text"),
        "".join(block.thinking for block in blocks if block.type == "thinking"),
        tuple(
            (block.id, block.name, written.get(at, json.dumps(block.input)))
            for at, block in enumerate(blocks)
            if block.type == "tool_use"
        ),
        message.stop_reason or "",
        (message.usage.input_tokens, message.usage.output_tokens),
    )


def _gemini(asked: Asked) -> Got:
    options = {"base_url": asked.url, "api_version": "v1beta", "client_args": http_arguments(), "timeout": 10_000}
    with closing(sdk("google.genai").Client(api_key=asked.key, http_options=options)) as client:
        call = client.models.generate_content_stream if asked.stream else client.models.generate_content
        made = call(model=asked.model, contents=[{"role": "user", "parts": [{"text": asked.prompt}]}])
        return _candidates(made if asked.stream else [made])


def _candidates(made: Iterable[Any]) -> Got:
    text = thinking = finish = ""
    calls: list[tuple[str, str, str]] = []
    tokens = None
    for one in made:
        finish = one.prompt_feedback.block_reason.name if one.prompt_feedback else finish
        for candidate in one.candidates or ():
            finish = candidate.finish_reason.name if candidate.finish_reason else finish
            for part in (candidate.content and candidate.content.parts) or ():
                call = part.function_call
                if call:
                    calls.append((call.id or "", call.name, json.dumps(call.args)))
                elif part.thought:
                    thinking += part.text
                else:
                    text += part.text or ""
        usage = one.usage_metadata
        tokens = (usage.prompt_token_count, usage.candidates_token_count) if usage else tokens
    return Got(text, thinking, tuple(calls), finish, tokens)


def _ollama(asked: Asked, *, generate: bool) -> Got:
    headers = {"authorization": f"Bearer {asked.key}"}
    with closing(sdk("ollama").Client(host=asked.url, headers=headers, **http_arguments())) as client:
        if generate:
            made = client.generate(model=asked.model, prompt=asked.prompt, stream=asked.stream)
        else:
            made = client.chat(model=asked.model, messages=asked.messages, stream=asked.stream)
        return _lines(made if asked.stream else [made])


def _lines(made: Iterable[Any]) -> Got:
    text = thinking = finish = ""
    calls: list[tuple[str, str, str]] = []
    tokens = None
    for one in made:
        said = one.model_dump()
        message = said.get("message") or said
        text += _texts(message, "content", "response")
        thinking += message.get("thinking") or ""
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls += [("", function["name"], json.dumps(function["arguments"])) for function in functions]
        if one.done:
            finish, tokens = one.done_reason, (one.prompt_eval_count, one.eval_count)
    return Got(text, thinking, tuple(calls), finish, tokens)


_CHAT = (*OPENAI_CHAT, "siliconflow", "dashscope", "zhipu", "mistral")
CLIENTS: dict[str, Callable[[Asked], Got]] = {
    **dict.fromkeys(_CHAT, partial(_openai, read=_by_chat)),
    "completions": partial(_openai, read=_by_completions),
    "openai-responses": partial(_openai, read=_by_responses),
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": partial(_ollama, generate=False),
    "ollama-generate": partial(_ollama, generate=True),
}
# Which client that is: what it raises has its own names.
LIBRARIES = {
    **dict.fromkeys((*_CHAT, "completions", "openai-responses"), "openai"),
    "anthropic": "anthropic",
    "gemini": "gemini",
    **dict.fromkeys(("ollama", "ollama-generate"), "ollama"),
}
