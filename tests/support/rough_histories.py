"""Rough histories: random conversations with the faults of real ones, in every form that a history may have."""

import json
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from lazyprompt import (
    AudioBlock,
    Base64Source,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.messages.msg import Block
from support.conversations import Maker

Item = Any
# Keys without a value, as ``model_dump()`` of a client's message gives them.
EMPTY_KEYS: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
NOTHING: tuple[Any, ...] = (None, "", [])
UNKNOWN_KEYS: dict[str, Any] = {"trace_id": "abc", "cache_control": {"type": "ephemeral"}}


class RoughHistory(NamedTuple):
    """One history for all entry points.

    Attributes:
        form: The form of its items.
        items: The items as a caller gives them.
        input: What the user says then; None where the history ends with a user's turn or a tool's result.
    """

    form: str
    items: list[Item]
    input: str | None


def rough_history(seed: int) -> RoughHistory:
    """Return the history of a seed, the same in every process."""
    maker = RoughMaker(Random(seed))  # noqa: S311 - reproducible random data
    form = maker.one(tuple(FORMS))
    messages = maker.conversation()
    if form in _TEXT_FORMS:
        messages = [Msg(each.role, each.text, each.role) for each in messages if each.text and each.role != "tool"]
    if form == "pairs":
        messages = [each for each in messages if each.role not in SYSTEM_ROLES]
    items = FORMS[form](messages, maker) or [["hello", "hi"]]
    last = messages[-1] if messages else None
    waits = last is not None and form != "pairs" and (last.role in ("user", "tool") and _is_said(last))
    return RoughHistory(form, items, None if waits and maker.maybe(0.3) else maker.text(empty=0))


def _is_said(message: Msg) -> bool:
    return any(isinstance(block, ToolResultBlock) or getattr(block, "text", "x").strip() for block in message.blocks)


class RoughMaker(Maker):
    """A maker whose exchanges may lack a call, and may use an id twice."""

    def exchange(self, number: int) -> list[Msg]:
        made = super().exchange(number)
        if self.maybe(0.05):
            return [each for each in made if each.role != "assistant"]
        return [*made, *made[-1:]] if self.maybe(0.03) else made


def as_msgs(messages: Sequence[Msg], _: RoughMaker) -> list[Item]:
    """The messages as they are."""
    return [*messages]


def as_openai(messages: Sequence[Msg], maker: RoughMaker) -> list[Item]:
    """OpenAI's dicts, with the omissions and additions of code that writes them by hand."""
    found: list[Item] = []
    for message in messages:
        results, calls, thoughts, rest = _sorted(message)
        form: dict[str, Any] = {"role": message.role, "content": message.content}
        if not isinstance(message.content, str) or message.url:
            shown = [
                *map(_openai_part, rest),
                *({"type": "image_url", "image_url": {"url": url}} for url in message.urls),
            ]
            form["content"] = shown or maker.one(NOTHING)
        if message.name != message.role or maker.maybe(0.3):
            form["name"] = message.name
        if calls:
            form["tool_calls"] = [_openai_call(call, maker) for call in calls]
        elif message.role == "assistant" and maker.maybe(0.2):
            form["tool_calls"] = maker.one((None, []))
        if thoughts and maker.maybe(0.5):
            form["reasoning_content"] = "\n".join(each.thinking for each in thoughts)
        elif thoughts:
            form["thinking_blocks"] = [_anthropic_part(each) for each in thoughts]
        if maker.maybe(0.1):
            form |= maker.one((EMPTY_KEYS, UNKNOWN_KEYS, {"name": None}))
        own = [_openai_result(result, maker) for result in results]
        found += own if results and not rest and not calls else [form, *own] if calls else [*own, form]
    return found


def _sorted(message: Msg) -> tuple[list[ToolResultBlock], list[ToolUseBlock], list[ThinkingBlock], list[Block]]:
    blocks = message.blocks
    results = [each for each in blocks if isinstance(each, ToolResultBlock)]
    calls = [each for each in blocks if isinstance(each, ToolUseBlock)]
    thoughts = [each for each in blocks if isinstance(each, ThinkingBlock)]
    apart = ToolResultBlock | ToolUseBlock | ThinkingBlock
    return results, calls, thoughts, [each for each in blocks if not isinstance(each, apart)]


def _openai_call(call: ToolUseBlock, maker: RoughMaker) -> dict[str, Any]:
    written = call.raw_input if call.raw_input is not None else json.dumps(call.input, ensure_ascii=False)
    given: Any = maker.one((written, written, written, call.input, "" if not call.input else written))
    form = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": given}}
    return {key: value for key, value in form.items() if key == "function" or not maker.maybe(0.03)}


def _openai_result(result: ToolResultBlock, maker: RoughMaker) -> dict[str, Any]:
    output = result.output
    form: dict[str, Any] = {"role": "tool", "tool_call_id": result.id, "name": result.name or None}
    form["content"] = output if isinstance(output, str) else [_openai_part(block) for block in output]
    return {key: value for key, value in form.items() if key != "tool_call_id" or not maker.maybe(0.03)}


def _openai_part(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text}
        case ImageBlock(source):
            return {"type": "image_url", "image_url": {"url": _address(source)}}
        case AudioBlock(Base64Source(media_type, data)):
            kind = media_type.removeprefix("audio/")
            return {"type": "input_audio", "input_audio": {"data": data, "format": kind.replace("mpeg", "mp3")}}
        case FileBlock(Base64Source() as source, filename=name):
            return {"type": "file", "file": {"file_data": _address(source), "filename": name}}
        case _:
            return _block_part(block)


def _address(source: Any) -> str:
    return source.url if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"


def _block_part(block: Any) -> dict[str, Any]:
    """A medium as a block in dict form."""
    source = block.source
    fields = (
        {"url": source.url} if isinstance(source, URLSource) else {"media_type": source.media_type, "data": source.data}
    )
    return {"type": block.kind, "source": {"type": source.type, **fields}}


def as_anthropic(messages: Sequence[Msg], _: RoughMaker) -> list[Item]:
    """Anthropic's messages: results in the user's turn."""
    found: list[Item] = []
    for message in messages:
        if isinstance(message.content, str):
            found.append({"role": message.role, "content": message.content})
            continue
        for role, blocks in _turns(message, "user", message.role):
            found.append({"role": role, "content": [*map(_anthropic_part, blocks)]})
    return found


def _turns(message: Msg, user: str, role: str) -> list[tuple[str, Sequence[Block]]]:
    """The blocks of a message by turn: tool results, in the user's turn, after the calls or before the text."""
    results = _sorted(message)[0]
    rest = [block for block in message.blocks if not isinstance(block, ToolResultBlock)]
    if not results:
        return [(role, rest)]
    if message.role == "assistant":
        return [(role, rest), (user, results)]
    return [(user, [*results, *rest])]


def _anthropic_part(block: Block) -> dict[str, Any]:
    made: dict[str, Any]
    match block:
        case TextBlock(text):
            made = {"type": "text", "text": text}
        case ThinkingBlock(redacted=str(data)):
            made = {"type": "redacted_thinking", "data": data}
        case ThinkingBlock(text, signature):
            made = {"type": "thinking", "thinking": text} | ({"signature": signature} if signature else {})
        case ToolUseBlock(call_id, name, arguments):
            made = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case ToolResultBlock(call_id, output=output):
            content = output if isinstance(output, str) else [_anthropic_part(each) for each in output]
            made = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        case _:
            made = _block_part(block)
            made["type"] = made["type"].replace("file", "document")
    return made


def as_gemini(messages: Sequence[Msg], _: RoughMaker) -> list[Item]:
    """Gemini's contents; system text is a message of OpenAI's among them."""
    found: list[Item] = []
    for message in messages:
        if message.role in SYSTEM_ROLES and not _sorted(message)[0]:
            found.append({"role": message.role, "content": message.text})
            continue
        role = "model" if message.role == "assistant" else "user"
        found += [
            {"role": role, "parts": [*map(_gemini_part, blocks)]} for role, blocks in _turns(message, "user", role)
        ]
    return found


def _gemini_part(block: Any) -> dict[str, Any]:
    match block:
        case TextBlock(text):
            return {"text": text}
        case ThinkingBlock():
            return {"text": block.thinking, "thought": True}
        case ToolUseBlock():
            return {"function_call": {"id": block.id, "name": block.name, "args": block.input}}
        case ToolResultBlock():
            return {"function_response": {"id": block.id, "name": block.name, "response": {"output": block.text}}}
        case _ if isinstance(block.source, URLSource):
            return {
                "file_data": {
                    "file_uri": block.source.url,
                    "mime_type": f"{block.kind}/x".replace("file/x", "application/pdf"),
                }
            }
        case _:
            return {"inline_data": {"mime_type": block.source.media_type, "data": block.source.data}}


def as_responses(messages: Sequence[Msg], maker: RoughMaker) -> list[Item]:
    """Items of the Responses API."""
    found: list[Item] = []
    for message in messages:
        results, calls, thoughts, rest = _sorted(message)
        for thought in thoughts:
            summary = [{"type": "summary_text", "text": thought.thinking}]
            found.append({"type": "reasoning", "id": thought.id or f"rs_{len(found)}", "summary": summary})
        kind = "output_text" if message.role == "assistant" else "input_text"
        parts = [
            {"type": kind, "text": each.text} if isinstance(each, TextBlock) else _openai_part(each) for each in rest
        ]
        if rest or not (results or calls or thoughts):
            found.append(
                {"type": "message", "role": "user" if message.role == "tool" else message.role, "content": parts}
            )
        for call in calls:
            arguments = call.raw_input if call.raw_input is not None else json.dumps(call.input)
            item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
            found.append(item | ({"id": f"fc_{len(found)}", "status": "completed"} if maker.maybe(0.5) else {}))
        for result in results:
            output = result.output if isinstance(result.output, str) else [*map(_openai_part, result.output)]
            found.append({"type": "function_call_output", "call_id": result.id, "output": output})
    return found


def as_pairs(messages: Sequence[Msg], _: RoughMaker) -> list[Item]:
    """Pairs of question and answer; a message without its counterpart gets an empty one."""
    found: list[Item] = []
    for message in messages:
        if message.role == "assistant":
            found = (
                [*found[:-1], [found[-1][0], message.text]]
                if found and not found[-1][1]
                else [*found, ["", message.text]]
            )
        else:
            found.append([message.text, ""])
    return found


_LANGCHAIN = {"user": "human", "assistant": "ai"}


def as_tuples(messages: Sequence[Msg], _: RoughMaker) -> list[Item]:
    """LangChain's tuples of role and text."""
    return [(_LANGCHAIN.get(each.role, each.role), each.text) for each in messages]


def as_langchain(messages: Sequence[Msg], _: RoughMaker) -> list[Item]:
    """LangChain's message objects."""
    found: list[Item] = []
    for message in messages:
        results, calls, thoughts, rest = _sorted(message)
        asked = [{"name": each.name, "args": each.input, "id": each.id, "type": "tool_call"} for each in calls]
        content: Any = message.content if isinstance(message.content, str) else [*map(_openai_part, rest)]
        kwargs = {"reasoning_content": thoughts[0].thinking} if thoughts else {}
        name = None if message.name == message.role else message.name
        kind = _LANGCHAIN.get(message.role, message.role)
        own: list[Item] = [
            SimpleNamespace(
                type="tool",
                content=each.output if isinstance(each.output, str) else [*map(_openai_part, each.output)],
                tool_call_id=each.id,
                name=each.name or None,
                status="success",
            )
            for each in results
        ]
        said = SimpleNamespace(type=kind, content=content, name=name, tool_calls=asked, additional_kwargs=kwargs)
        found += own if results and not rest and not calls else [said, *own] if calls else [*own, said]
    return found


def as_mixture(messages: Sequence[Msg], maker: RoughMaker) -> list[Item]:
    """Each message in another form."""
    forms = (as_msgs, as_openai, as_anthropic, as_langchain)
    return [item for message in messages for item in maker.one(forms)([message], maker)]


FORMS: dict[str, Callable[[Sequence[Msg], RoughMaker], list[Item]]] = {
    "msg": as_msgs,
    "openai": as_openai,
    "anthropic": as_anthropic,
    "gemini": as_gemini,
    "responses": as_responses,
    "pairs": as_pairs,
    "tuples": as_tuples,
    "langchain": as_langchain,
    "mixture": as_mixture,
}
_TEXT_FORMS = frozenset({"pairs", "tuples"})
