"""OpenAI's voices: Chat Completions as a dozen providers speak it, Completions, and Responses.

Sources: the API references of the providers, and the types of the client ``openai``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from support.model_server.errors import error_body
from support.model_server.parts import Answer, Ask, Event, Json, Refusal, Voice, pieces, sse
from support.providers.loopback import answer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SSE = "text/event-stream; charset=utf-8"
DONE = Event("[DONE]", end=True)
# What a thought is called. vLLM renamed it (vllm-project/vllm#27752); OpenAI shows none in its chat.
_THOUGHT = {
    "deepseek": "reasoning_content",
    "moonshot": "reasoning_content",
    "xai": "reasoning_content",
    "siliconflow": "reasoning_content",
    "litellm": "reasoning_content",
    "zhipu": "reasoning_content",
    "vllm": "reasoning",
    "dashscope": "reasoning_content",
}
# Providers whose models refuse in their text; others have a field for it.
_SAYS_NO = {*_THOUGHT, "mistral"}
# Providers that tell the tokens of a stream with its last choice, asked or not; Moonshot within the choice.
_TELLS = {
    "deepseek": "chunk",
    "xai": "chunk",
    "siliconflow": "chunk",
    "zhipu": "chunk",
    "mistral": "chunk",
    "moonshot": "choice",
}
# Why an answer ended where the provider calls it otherwise. A model's refusal is told by OpenAI in a field of its own.
_WHY = {
    "zhipu": {"content_filter": "sensitive", "refusal": "stop"},
}


def _why(provider: str, answer: Answer) -> str:
    known = _WHY.get(provider, {"refusal": "stop"})
    return known.get(answer.why, answer.why)


def counted(answer: Answer) -> Json:
    """Tokens as OpenAI tells them."""
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _calls(answer: Answer) -> list[Json]:
    return [
        {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
        for (ident, name, _), arguments in zip(answer.calls, answer.arguments(), strict=True)
    ]


def _thought_chunks(thinking: str) -> list[Json]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": thinking}]}]


def _chat_whole(provider: str, answer: Answer, ask: Ask) -> Json:
    refused = answer.finish == "refusal" and provider not in _SAYS_NO
    whole = answer_of("openai")
    message: Json = {"role": "assistant", "content": None if refused else answer.text}
    if provider == "openai":
        message["refusal"] = answer.text if refused else None
    if answer.thinking and provider == "mistral":
        text = [{"type": "text", "text": answer.text}] if answer.text else []
        message["content"] = [*_thought_chunks(answer.thinking), *text]
    elif answer.thinking and provider in _THOUGHT:
        message[_THOUGHT[provider]] = answer.thinking
    if answer.calls:
        message["tool_calls"] = _calls(answer)
        message["content"] = message["content"] or None
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _why(provider, answer)}
    return {**whole, "model": ask.model, "choices": [choice], "usage": counted(answer)}


def _deltas(provider: str, answer: Answer) -> Iterator[Json]:
    thought = _THOUGHT.get(provider, "")
    said = "refusal" if answer.finish == "refusal" and provider not in _SAYS_NO else "content"
    if provider == "deepseek":  # it names both, and one of them is null
        yield {"role": "assistant", "content": None, thought: ""}
        yield from ({"content": None, thought: piece} for piece in pieces(answer.thinking))
        yield from ({"content": piece, thought: None} for piece in pieces(answer.text))
    else:
        yield {"role": "assistant", "content": "" if said == "content" and answer.text else None}
        if provider == "mistral":
            yield from ({"content": _thought_chunks(piece)} for piece in pieces(answer.thinking))
        yield from ({thought: piece} for piece in pieces(answer.thinking) if thought)
        yield from ({said: piece} for piece in pieces(answer.text))
    for index, call in enumerate(_calls(answer)):
        function = call["function"]
        if provider == "mistral":  # each call comes in one piece
            yield {"tool_calls": [{"index": index, **call}]}
            continue
        yield {"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chat_stream(provider: str, answer: Answer, ask: Ask) -> list[Event]:
    head: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": ask.model}
    own = ask.usage and provider not in _TELLS
    if own:
        head["usage"] = None
    deltas = [
        Event({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
        for delta in _deltas(provider, answer)
    ]
    usage = counted(answer)
    choice: Json = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _why(provider, answer)}
    last: Json = {**head, "choices": [choice]}
    if _TELLS.get(provider) == "chunk":
        last["usage"] = usage
    elif _TELLS.get(provider) == "choice":
        choice["usage"] = usage
    told = [Event({**head, "choices": [], "usage": usage}, end=True)] if own else []
    return [*deltas, Event(last, end=True), *told, DONE]


def _completion(ask: Ask, text: str, finish: str | None) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": ask.model, "choices": [choice]}


def _completed(answer: Answer) -> str:
    return "length" if answer.finish == "length" else "stop"


def _completions_whole(answer: Answer, ask: Ask) -> Json:
    return {**_completion(ask, answer.text, _completed(answer)), "usage": counted(answer)}


def _completions_stream(answer: Answer, ask: Ask) -> list[Event]:
    said = [Event(_completion(ask, piece, None)) for piece in pieces(answer.text)]
    ended = _completion(ask, "", _completed(answer))
    told = [Event({**ended, "choices": [], "usage": counted(answer)}, end=True)] if ask.usage else []
    return [*said, Event(ended, end=True), *told, DONE]


def _item(kind: str, number: int, **fields: object) -> Json:
    prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
    return {"type": kind, "id": f"{prefix}_{number}", **fields}


def _content(answer: Answer) -> Json:
    if answer.finish == "refusal":
        return {"type": "refusal", "refusal": answer.text}
    return {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}


def _output(answer: Answer) -> list[Json]:
    """The items of a response."""
    items: list[Json] = []
    if answer.thinking:
        items.append(_item("reasoning", 1, summary=[{"type": "summary_text", "text": answer.thinking}]))
    if answer.text:
        items.append(_item("message", 1, role="assistant", status="completed", content=[_content(answer)]))
    for at, ((ident, name, _), arguments) in enumerate(zip(answer.calls, answer.arguments(), strict=True), 1):
        status = "incomplete" if answer.half and at == len(answer.calls) else "completed"
        items.append(_item("function_call", at, call_id=ident, name=name, arguments=arguments, status=status))
    return items


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def _responses_whole(answer: Answer, ask: Ask) -> Json:
    reason = _INCOMPLETE.get(answer.why)
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }
    return {
        **answer_of("openai-responses"),
        "model": ask.model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": _output(answer),
        "usage": usage,
    }


def _pieces_of(item: Json) -> Iterator[Json]:
    """The events between the beginning and the end of an item."""
    ident = {"item_id": item["id"]}
    if item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **ident, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **ident, "arguments": item["arguments"]}
        return
    thought = item["type"] == "reasoning"
    part = item["summary" if thought else "content"][0]
    key = "refusal" if part["type"] == "refusal" else "text"
    name = {"summary_text": "reasoning_summary_text", "output_text": "output_text", "refusal": "refusal"}[part["type"]]
    whole = "reasoning_summary_part" if thought else "content_part"
    place = {**ident, "summary_index" if thought else "content_index": 0}
    yield {"type": f"response.{whole}.added", **place, "part": {**part, key: ""}}
    for piece in pieces(part[key]):
        yield {"type": f"response.{name}.delta", **place, "delta": piece}
    yield {"type": f"response.{name}.done", **place, key: part[key]}
    yield {"type": f"response.{whole}.done", **place, "part": part}


def _begun(item: Json) -> Json:
    """An item before anything was said in it."""
    empty: Json = {key: "" if key == "arguments" else [] for key in ("arguments", "content", "summary") if key in item}
    status = {"status": "in_progress"} if "status" in item else {}
    return {**item, **empty, **status}


def _responses_stream(answer: Answer, ask: Ask) -> list[Event]:
    whole = _responses_whole(answer, ask)
    begun: Json = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    said: list[Json] = [{"type": f"response.{what}", "response": begun} for what in ("created", "in_progress")]
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index}
        said.append({"type": "response.output_item.added", **place, "item": _begun(item)})
        said += ({**event, **place} for event in _pieces_of(item))
        said.append({"type": "response.output_item.done", **place, "item": item})
    said.append({"type": f"response.{whole['status']}", "response": whole})
    return [
        Event({**event, "sequence_number": at}, event["type"], end=at == len(said) - 1) for at, event in enumerate(said)
    ]


def _with_comment(event: Event, at: int) -> bytes:
    """As DeepSeek and OpenRouter do: a comment while one waits."""
    return b": keep-alive\n\n" + sse(event) if at == 2 else sse(event)


def _trouble(provider: str, status: int, message: str) -> Event:
    return Event(error_body(provider, status, message))


def _responses_trouble(status: int, message: str) -> Event:
    code = "rate_limit_exceeded" if status == 429 else "server_error"
    told = {"code": code, "message": message, "param": None, "sequence_number": 99}
    return Event({"type": "error", **told}, "error")


# The first chunk of Azure has no choices either.
_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m", "object": "x.news"}
_NEWS = (("", Event({**_HEAD, "choices": []})), ("", Event({**_HEAD, "x_news": 1})))


# Where a filtered answer is an error instead.
_BLOCKED = {
    "moonshot": Refusal(
        400, "The request was rejected because it was considered high risk", {"type": "content_filter"}
    ),
    "dashscope": Refusal(400, "Output data may contain inappropriate content.", {"code": "data_inspection_failed"}),
}


def chat_voice(provider: str) -> Voice:
    """The voice of a provider of the chat form."""
    whole, stream = partial(_chat_whole, provider), partial(_chat_stream, provider)
    return Voice(whole, stream, _with_comment, SSE, _NEWS, partial(_trouble, provider), _BLOCKED.get(provider))


COMPLETIONS = Voice(_completions_whole, _completions_stream, sse, SSE, _NEWS, partial(_trouble, "completions"))
RESPONSES = Voice(
    _responses_whole,
    _responses_stream,
    sse,
    SSE,
    (("response.created", Event({"type": "response.x_news", "sequence_number": 99, "x": 1}, "response.x_news")),),
    _responses_trouble,
)
