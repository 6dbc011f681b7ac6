"""OpenAI's response formats: Chat Completions of a dozen providers, and Completions.

Sources: the API references of the providers, and the types of the client ``openai``.
"""

from collections.abc import Iterator
from functools import partial

from support.model_server.errors import error_body
from support.model_server.parts import Answer, Ask, Event, Json, Refusal, Voice, pieces, sse
from support.providers.loopback import answer_of

SSE = "text/event-stream; charset=utf-8"
DONE = Event("[DONE]", end=True)
# The name of the reasoning field. vLLM renamed it (vllm-project/vllm#27752); OpenAI shows none in its chat.
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
# Providers that report the usage of a stream with its last choice, even if unrequested; Moonshot, in the choice.
_TELLS = {
    "deepseek": "chunk",
    "xai": "chunk",
    "siliconflow": "chunk",
    "zhipu": "chunk",
    "mistral": "chunk",
    "moonshot": "choice",
}
# Finish reasons where the provider has other names. OpenAI reports a model's refusal in a separate field.
_WHY = {"zhipu": {"content_filter": "sensitive", "refusal": "stop"}}


def _why(provider: str, answer: Answer) -> str:
    known = _WHY.get(provider, {"refusal": "stop"})
    return known.get(answer.why, answer.why)


def usage_fields(answer: Answer) -> Json:
    """Usage as OpenAI reports it."""
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _calls(answer: Answer) -> list[Json]:
    calls = [
        {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
        for (ident, name, _), arguments in zip(answer.calls, answer.arguments(), strict=True)
    ]
    return [*answer.native, *calls]


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
    if answer.calls or answer.native:
        message["tool_calls"] = _calls(answer)
        message["content"] = message["content"] or None
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _why(provider, answer)}
    return {**whole, "model": ask.model, "choices": [choice], "usage": usage_fields(answer)}


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
        if "function" not in call:
            yield {"tool_calls": [{"index": index, **call}]}
            continue
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
    usage = usage_fields(answer)
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
    return {**_completion(ask, answer.text, _completed(answer)), "usage": usage_fields(answer)}


def _completions_stream(answer: Answer, ask: Ask) -> list[Event]:
    said = [Event(_completion(ask, piece, None)) for piece in pieces(answer.text)]
    ended = _completion(ask, "", _completed(answer))
    told = [Event({**ended, "choices": [], "usage": usage_fields(answer)}, end=True)] if ask.usage else []
    return [*said, Event(ended, end=True), *told, DONE]


def _with_comment(event: Event, at: int) -> bytes:
    """Comments while the client waits, as DeepSeek and OpenRouter send them."""
    return b": keep-alive\n\n" + sse(event) if at == 2 else sse(event)


def _trouble(provider: str, status: int, message: str) -> Event:
    return Event(error_body(provider, status, message))


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
