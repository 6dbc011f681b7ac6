"""The response formats of all providers; here those of Anthropic, Gemini and Ollama.

Sources: the API references of the providers, and the types of their official clients.
"""

import json
from collections.abc import Iterator
from functools import partial

from support.model_server.chat import COMPLETIONS, SSE, chat_voice
from support.model_server.errors import error_body
from support.model_server.parts import Answer, Ask, Event, Json, Voice, encode_json, pieces, sse
from support.providers.loopback import answer_of
from support.providers.types import OPENAI_CHAT

SIGNATURE = "c2lnbmF0dXJl"  # base64, as the providers' are
_RESPONSES_WHY = {"length": "max_output_tokens", "content_filter": "content_filter"}


def _responses_items(answer: Answer) -> Iterator[Json]:
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        yield {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": SIGNATURE}
    yield from answer.native
    if answer.text:
        refused = answer.finish == "refusal"
        said = {"type": "output_text", "text": answer.text, "annotations": []}
        part = {"type": "refusal", "refusal": answer.text} if refused else said
        phase = "commentary" if answer.calls else "final_answer"
        head = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": phase}
        yield {**head, "content": [part]}
    for (ident, name, _), arguments in zip(answer.calls, answer.arguments(), strict=True):
        head = {"type": "function_call", "id": f"fc_{ident}", "status": "completed"}
        yield {**head, "call_id": ident, "name": name, "arguments": arguments}


def _responses_whole(answer: Answer, ask: Ask) -> Json:
    why = _RESPONSES_WHY.get(answer.finish)
    ended = {"status": "incomplete", "incomplete_details": {"reason": why}} if why else {}
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    usage = {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}
    items = list(_responses_items(answer))
    return {**answer_of("openai-responses"), "model": ask.model, **ended, "output": items, "usage": usage}


def _responses_deltas(item: Json) -> Iterator[Json]:
    if item["type"] == "reasoning":
        place: Json = {"summary_index": 0}
        kind, text = "reasoning_summary_text", "".join(part["text"] for part in item["summary"])
    elif item["type"] == "function_call":
        kind, text, place = "function_call_arguments", item["arguments"], {}
    elif item["type"] != "message":
        return
    else:
        part = item["content"][0]
        kind, text = ("refusal", part["refusal"]) if part["type"] == "refusal" else ("output_text", part["text"])
        place = {"content_index": 0, **({"logprobs": []} if kind == "output_text" else {})}
    for piece in pieces(text):
        yield {"type": f"response.{kind}.delta", "item_id": item["id"], **place, "delta": piece}


def _responses_stream(answer: Answer, ask: Ask) -> list[Event]:
    whole = _responses_whole(answer, ask)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    said: list[Json] = [{"type": "response.created", "response": begun}]
    empty: Json = {"summary": [], "content": [], "arguments": "", "encrypted_content": None}
    for index, item in enumerate(whole["output"]):
        start = {key: empty.get(key, value) for key, value in item.items()}
        said.append({"type": "response.output_item.added", "output_index": index, "item": start})
        said += [{**delta, "output_index": index} for delta in _responses_deltas(item)]
        said.append({"type": "response.output_item.done", "output_index": index, "item": item})
    end = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    said.append({"type": end, "response": whole})
    return [
        Event({**data, "sequence_number": at}, data["type"], end=data["type"] == end) for at, data in enumerate(said)
    ]


def _responses_trouble(status: int, message: str) -> Event:
    code = "rate_limit_exceeded" if status == 429 else "server_error"
    return Event({"type": "error", "code": code, "message": message, "param": None, "sequence_number": 9}, "error")


_RESPONSES_NEWS = (
    ("response.created", Event({"type": "response.x_news", "x": 1, "sequence_number": 1}, "response.x_news")),
)
_ANTHROPIC_WHY = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _anthropic_blocks(answer: Answer) -> Iterator[Json]:
    if answer.thinking:
        yield {"type": "thinking", "thinking": answer.thinking, "signature": SIGNATURE}
    yield from answer.native
    if answer.text:
        yield {"type": "text", "text": answer.text}
    whole = len(answer.whole_calls())
    for at, (ident, name, arguments) in enumerate(answer.calls):
        yield {"type": "tool_use", "id": ident, "name": name, "input": arguments if at < whole else {}}


def _anthropic_whole(answer: Answer, ask: Ask) -> Json:
    usage = {
        "input_tokens": answer.prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": answer.completion_tokens,
    }
    why = _ANTHROPIC_WHY.get(answer.why, "refusal")
    blocks = list(_anthropic_blocks(answer))
    return {**answer_of("anthropic"), "model": ask.model, "content": blocks, "stop_reason": why, "usage": usage}


def _anthropic_deltas(block: Json, arguments: str) -> Iterator[Json]:
    if block["type"] == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
    elif "input" in block:
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(arguments)))


def _anthropic_events(answer: Answer, ask: Ask) -> Iterator[Json]:
    whole = _anthropic_whole(answer, ask)
    begun: Json = {"content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": {**whole, **begun}}
    empty: Json = {"thinking": "", "signature": "", "text": "", "input": {}}
    arguments = iter(answer.arguments())
    for index, block in enumerate(whole["content"]):
        start = {key: empty.get(key, value) for key, value in block.items()}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        written = next(arguments) if block["type"] == "tool_use" else json.dumps(block.get("input"))
        for delta in _anthropic_deltas(block, written):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.completion_tokens}}
    yield {"type": "message_stop"}


def _anthropic_stream(answer: Answer, ask: Ask) -> list[Event]:
    ends = ("message_delta", "message_stop")
    return [Event(data, data["type"], end=data["type"] in ends) for data in _anthropic_events(answer, ask)]


_GEMINI_WHY = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "STOP", "tool_calls": "STOP"}


def _gemini_usage(answer: Answer) -> Json:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": completion, "totalTokenCount": prompt + completion}
    return {"usageMetadata": counts, "modelVersion": "m", "responseId": "r"}


def _gemini_parts(answer: Answer) -> list[Json]:
    thoughts = [{"text": piece, "thought": True} for piece in pieces(answer.thinking)]
    texts: list[Json] = [{"text": piece} for piece in pieces(answer.text)]
    calls: list[Json] = [
        {"functionCall": {"name": name, "args": arguments, **({"id": ident} if ident else {})}}
        for ident, name, arguments in answer.whole_calls()
    ]
    if thoughts and calls:
        calls[0]["thoughtSignature"] = SIGNATURE
    return [*thoughts, *answer.native, *texts, *calls]


def _gemini_end(answer: Answer) -> str:
    """The finish reason; a malformed call has its own reason."""
    return "MALFORMED_FUNCTION_CALL" if answer.half else _GEMINI_WHY.get(answer.why, "STOP")


def _gemini_blocked(answer: Answer) -> Json | None:
    """The response without candidates, if the prompt itself was blocked."""
    if answer.finish == "content_filter" and not answer.text:
        return {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **_gemini_usage(answer)}
    return None


def _gemini_whole(answer: Answer, _: Ask) -> Json:
    parts: list[Json] = []
    for part in _gemini_parts(answer):  # pieces of one text are one part
        more = parts and "text" in part and part.keys() == parts[-1].keys()
        parts.append({**part, "text": parts.pop()["text"] + part["text"]} if more else part)
    content = {"content": {"role": "model", "parts": parts}} if parts else {}
    candidate = {**content, "finishReason": _gemini_end(answer), "index": 0}
    return _gemini_blocked(answer) or {"candidates": [candidate], **_gemini_usage(answer)}


def _gemini_stream(answer: Answer, _: Ask) -> list[Event]:
    if blocked := _gemini_blocked(answer):
        return [Event(blocked, end=True)]
    usage = _gemini_usage(answer)
    said = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in _gemini_parts(answer)]
    last = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": _gemini_end(answer), "index": 0}
    events = [Event({"candidates": [candidate], **usage}) for candidate in said]
    return [*events, Event({"candidates": [last], **usage}, end=True)]


_NANOSECONDS = {"total_duration": 9, "load_duration": 1, "prompt_eval_duration": 4, "eval_duration": 4}


def _ollama_head(ask: Ask) -> Json:
    return {"model": ask.model, "created_at": "2026-01-01T00:00:00.123456789Z"}


def _ollama_end(answer: Answer) -> Json:
    counts = {"prompt_eval_count": answer.prompt_tokens, "eval_count": answer.completion_tokens}
    why = "length" if answer.why == "length" else "stop"
    return {"done": True, "done_reason": why, **_NANOSECONDS, **counts}


def _ollama_calls(answer: Answer) -> list[Json]:
    return [
        {**({"id": ident} if ident else {}), "function": {"index": at, "name": name, "arguments": arguments}}
        for at, (ident, name, arguments) in enumerate(answer.whole_calls())
    ]


def _chat_message(content: str, **more: object) -> Json:
    return {"message": {"role": "assistant", "content": content, **more}}


def _generated(content: str, **more: object) -> Json:
    return {"response": content, **more}


def _ollama_whole(answer: Answer, ask: Ask, *, generate: bool = False) -> Json:
    more: Json = {"thinking": answer.thinking} if answer.thinking else {}
    if generate:
        said = _generated(answer.text, **more)
    else:
        calls = _ollama_calls(answer)
        said = _chat_message(answer.text, **more, **({"tool_calls": calls} if calls else {}))
    return {**_ollama_head(ask), **said, **_ollama_end(answer)}


def _ollama_stream(answer: Answer, ask: Ask, *, generate: bool = False) -> list[Event]:
    message = _generated if generate else _chat_message
    said = [message("", thinking=piece) for piece in pieces(answer.thinking)]
    said += [message(piece) for piece in pieces(answer.text)]
    if not generate:
        said += [message("", tool_calls=[call]) for call in _ollama_calls(answer)]
    head = _ollama_head(ask)
    events = [Event({**head, **one, "done": False}) for one in said]
    return [*events, Event({**head, **message(""), **_ollama_end(answer)}, end=True)]


def _line(event: Event, _: int) -> bytes:
    return encode_json(event.data) + b"\n"


def _trouble(provider: str, name: str, status: int, message: str) -> Event:
    return Event(error_body(provider, status, message), name)


def _ollama_voice(provider: str) -> Voice:
    generate = provider == "ollama-generate"
    message = _generated("") if generate else _chat_message("")
    return Voice(
        partial(_ollama_whole, generate=generate),
        partial(_ollama_stream, generate=generate),
        _line,
        "application/x-ndjson",
        (("", Event({"model": "m", "created_at": "2026-01-01T00:00:00Z", **message, "done": False, "x_news": 1})),),
        partial(_trouble, provider, ""),
    )


_DELTA = "content_block_delta"
_ANTHROPIC_NEWS = (
    ("message_start", Event({"type": "x_news", "x": 1}, "x_news")),
    ("content_block_delta", Event({"type": _DELTA, "index": 0, "delta": {"type": "x_delta", "x": 1}}, _DELTA)),
)
_GEMINI_NEWS = (
    ("", Event({"xNews": {"of": 1}})),
    ("", Event({"candidates": [{"content": {"role": "model", "parts": [{"xPart": {}}]}, "index": 0}]})),
)
VOICES: dict[str, Voice] = {
    **{one: chat_voice(one) for one in (*OPENAI_CHAT, "siliconflow", "dashscope", "zhipu", "mistral")},
    "completions": COMPLETIONS,
    "anthropic": Voice(
        _anthropic_whole, _anthropic_stream, sse, SSE, _ANTHROPIC_NEWS, partial(_trouble, "anthropic", "error")
    ),
    "openai-responses": Voice(_responses_whole, _responses_stream, sse, SSE, _RESPONSES_NEWS, _responses_trouble),
    "gemini": Voice(
        _gemini_whole, _gemini_stream, sse, "text/event-stream", _GEMINI_NEWS, partial(_trouble, "gemini", "")
    ),
    **{one: _ollama_voice(one) for one in ("ollama", "ollama-generate")},
}
