"""Adapts lazyprompt to the names and shapes of Prompty's conformance vectors, without logic of its own."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from fuzz.rendered import messages_from_text
from lazyprompt import AudioBlock, Base64Source, FileBlock, ImageBlock, Msg, TextBlock, URLSource
from lazyprompt.errors import SafetyError
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.properties import Property
from lazyprompt.files.spec import Spec
from lazyprompt.files.targets import request
from lazyprompt.messages.msg import Block
from lazyprompt.messages.openai_form import address_of, source_of
from lazyprompt.modules.clients._base import Collector
from lazyprompt.modules.clients.anthropic import AnthropicCollector
from lazyprompt.modules.clients.openai import ChatCollector

Data = dict[str, Any]

_COLLECTORS: dict[str, Callable[[], Collector]] = {"openai": ChatCollector, "anthropic": AnthropicCollector}
_DATA = "YmFzZTY0ZGF0YQ=="
_MEDIA = {"image": ImageBlock, "audio": AudioBlock, "file": FileBlock}


def load(path: Path) -> Data:
    try:
        return Prompty.load(path, undefined="empty").to_dict()
    except FileNotFoundError as error:
        raise FileNotFoundError(str(error)) from error  # by exactly this class name, which the vectors expect


def validate(path: Path, inputs: Mapping[str, object]) -> Data:
    return Prompty.load(path, undefined="empty").validate(inputs)


def render(template: str, engine: str, inputs: Mapping[str, object], threads: Sequence[str]) -> str:
    return _prompty(template, engine, threads).render(_values(inputs, threads))


def segments(template: str, engine: str, inputs: Mapping[str, object], strict_props: Collection[str] | None) -> Data:
    try:
        found = _prompty(template, engine, ()).render_segments(_values(inputs, ()), strict_props or ())
    except SafetyError:
        return {"error": "StrictViolation"}
    keys = ("kind", "text", "source", "strict")
    return {"segments": [{key: getattr(each, key) for key in keys} for each in found]}


def parse(rendered: str, thread_inputs: Mapping[str, Sequence[Data]] | None) -> list[Data]:
    threads = {name: [_message(each) for each in given] for name, given in (thread_inputs or {}).items()}
    return [_message_fields(message) for message in messages_from_text(rendered, threads)]


def to_request(given: Data) -> Data:
    fields: Data = {
        "model": {"id": given["model_id"], "options": given.get("options") or {}},
        "tools": given.get("tools") or [],
        "outputs": given.get("outputs") or [],
    }
    messages = [_message(each) for each in given["messages"]]
    made = request(_spec(fields), messages, given.get("provider"), given.get("apiType"))
    # The vectors have a placeholder instead of base64 data.
    return cast("Data", json.loads(json.dumps(made).replace(_DATA, "base64data")))


def process_stream(provider: str, events: Sequence[Data]) -> Data:
    """Assemble a stream with the collectors of the clients."""
    collector = _COLLECTORS[provider]()
    chunks: list[Data] = []
    texts: list[str] = []
    refusal = ""
    broken = False
    for each in events:
        broken = each["kind"] == "transportError"
        if broken:
            chunks.append(_failure("indeterminate", each["message"]))
            break
        # A collector yields a refusal as text; only the complete response marks it as a refusal.
        pieces = [delta.text for delta in collector.feed(each["value"]) if delta.kind == "text"]
        before, refusal = refusal, _refusal(collector.answer())
        texts += [piece for piece in pieces if piece != refusal.removeprefix(before)]
    chunks = [{"kind": "text", "value": text} for text in texts] + chunks
    if refusal:
        chunks.append(_failure("determinate", f"Model refused: {refusal}"))
    return {
        "chunks": chunks,
        "partialText": "".join(texts),
        "requiresReconciliation": broken,
        "completionCommitted": not (broken or refusal),
    }


def _failure(outcome: str, message: str) -> Data:
    return {"kind": "failure", "failure": {"outcome": outcome, "message": message}}


def _refusal(answer: Data) -> str:
    return str(answer["choices"][0]["message"].get("refusal", "")) if "choices" in answer else ""


def _spec(fields: Data) -> Spec:
    # JSON is YAML.
    return Prompty.loads(f"---\n{json.dumps(fields, ensure_ascii=False)}\n---\n").spec


def _prompty(template: str, engine: str, threads: Sequence[str]) -> Prompty:
    inputs = tuple(Property(name, "thread") for name in threads)
    return Prompty(Spec(inputs=inputs, engine=engine), template, "v2", template, undefined="empty")


def _values(inputs: Mapping[str, object], threads: Sequence[str]) -> dict[str, object]:
    return {name: _thread(value) if name in threads else value for name, value in inputs.items()}


def _thread(value: object) -> list[Msg]:
    given: Any = value
    messages: list[Data] = given.get("messages", []) if isinstance(value, dict) else given
    return [_message(each) for each in messages]


def _message(given: Data) -> Msg:
    content = given.get("content", given.get("parts"))
    metadata = dict(given.get("metadata") or {})
    name = metadata.pop("name", None)
    blocks = content if isinstance(content, str) or content is None else [_block(part) for part in content]
    if isinstance(blocks, list) and len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        # A single text is a plain string, as in a prompt file.
        blocks = blocks[0].text
    message = Msg(str(name or given["role"]), blocks, given["role"], metadata=metadata)
    return message if name else message.without_speaker()


def _block(part: Data) -> Block:
    kind: str = part["kind"]
    value: str = part["value"]
    if kind == "text":
        return TextBlock(value)
    media_type = part.get("mediaType")
    source = source_of(value)
    if isinstance(source, URLSource) and "://" not in value and (media_type or kind == "audio"):
        source = Base64Source(media_type or "audio/wav", value.replace("base64data", _DATA))
    return ImageBlock(source, detail=part.get("detail")) if kind == "image" else _MEDIA[kind](source)


def _message_fields(message: Msg) -> Data:
    name = {"name": message.name} if message.name != message.role else {}
    fields: Data = {
        "role": message.role,
        "content": [_part(block) for block in message.blocks] or [{"kind": "text", "value": ""}],
    }
    metadata = {**name, **message.metadata}
    return fields | {"metadata": metadata} if metadata else fields


def _part(block: Any) -> Data:
    if isinstance(block, TextBlock):
        return {"kind": "text", "value": block.text}
    return {"kind": block.kind, "value": address_of(block.source)}
