"""Lazyprompt as the conformance vectors of Prompty ask for it: names and shapes, no logic of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.rendered import messages_from_text
from lazyprompt import AudioBlock, Base64Source, FileBlock, ImageBlock, Msg, TextBlock, URLSource
from lazyprompt.errors import SafetyError
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.properties import Property
from lazyprompt.files.spec import Spec
from lazyprompt.files.targets import read_answer, request
from lazyprompt.messages.openai_form import address_of, source_of
from lazyprompt.modules.clients.anthropic import AnthropicCollector
from lazyprompt.modules.clients.openai import ChatCollector

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lazyprompt.messages.msg import Block
    from lazyprompt.modules.clients._base import Collector

Data = dict[str, Any]

_COLLECTORS: dict[str, Callable[[], Collector]] = {"openai": ChatCollector, "anthropic": AnthropicCollector}
_MEDIA = {"image": ImageBlock, "audio": AudioBlock, "file": FileBlock}


class Adapter:
    """What the vectors call."""

    def load(self, path: str | os.PathLike[str]) -> Data:
        """The canonical dict of a file."""
        try:
            return Prompty.load(path, undefined="empty").to_dict()
        except FileNotFoundError as error:
            raise FileNotFoundError(str(error)) from error  # by its own name, which the vectors look for

    def validate(self, path: str | os.PathLike[str], inputs: Mapping[str, object] | None) -> Data:
        """The inputs of a file, with defaults."""
        return Prompty.load(path, undefined="empty").validate(inputs)

    def render(
        self,
        template: str,
        engine: str = "jinja2",
        inputs: Mapping[str, object] | None = None,
        thread_names: Sequence[str] = (),
    ) -> str:
        """A template, filled."""
        return _prompty(template, engine, thread_names).render(_values(inputs, thread_names))

    def segments(
        self,
        template: str,
        engine: str = "jinja2",
        inputs: Mapping[str, object] | None = None,
        strict_props: Collection[str] | None = None,
    ) -> Data:
        """A template, filled, as segments."""
        try:
            found = _prompty(template, engine, ()).render_segments(_values(inputs, ()), strict_props or ())
        except SafetyError:
            return {"error": "StrictViolation"}
        keys = ("kind", "text", "source", "strict")
        return {"segments": [{key: getattr(each, key) for key in keys} for each in found]}

    def parse(self, rendered: str, thread_inputs: Mapping[str, Sequence[Data]] | None = None) -> list[Data]:
        """The messages of a rendered text."""
        threads = {name: [_message(each) for each in given] for name, given in (thread_inputs or {}).items()}
        return [_said(message) for message in messages_from_text(rendered, threads)]

    def to_request(self, given: Data) -> Data:
        """The request of messages, tools, options and outputs."""
        fields: Data = {
            "model": {"id": given["model_id"], "options": given.get("options") or {}},
            "tools": given.get("tools") or [],
            "outputs": given.get("outputs") or [],
        }
        messages = [_message(each) for each in given["messages"]]
        return dict(request(_spec(fields), messages, given.get("provider"), given.get("apiType")))

    def process(self, provider: str, api: str, response: Data, has_outputs: bool = False) -> Any:  # noqa: FBT001, FBT002 - the form of the vectors
        """What an answer says."""
        return read_answer(response, provider, api, structured=has_outputs)

    def process_stream(self, provider: str, events: Sequence[Data]) -> Data:
        """What a stream says, as the collectors of the clients put it together."""
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
            # A collector gives a refusal as text, and tells it apart in the whole answer.
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

    processStream = process_stream  # noqa: N815 - the name of the operation


def _failure(outcome: str, message: str) -> Data:
    return {"kind": "failure", "failure": {"outcome": outcome, "message": message}}


def _refusal(answer: Data) -> str:
    return str(answer["choices"][0]["message"].get("refusal", "")) if "choices" in answer else ""


def _spec(fields: Data) -> Spec:
    import json  # noqa: PLC0415 - JSON is YAML

    return Prompty.loads(f"---\n{json.dumps(fields, ensure_ascii=False)}\n---\n").spec


def _prompty(template: str, engine: str, threads: Sequence[str]) -> Prompty:
    inputs = tuple(Property(name, "thread") for name in threads)
    return Prompty(Spec(inputs=inputs, engine=engine), template, "v2", template, undefined="empty")


def _values(inputs: Mapping[str, object] | None, threads: Sequence[str]) -> dict[str, object]:
    return {name: _thread(value) if name in threads else value for name, value in (inputs or {}).items()}


def _thread(value: object) -> list[Msg]:
    given: Any = value
    said: list[Data] = given.get("messages", []) if isinstance(value, dict) else given
    return [_message(each) for each in said]


def _message(given: Data) -> Msg:
    content = given.get("content", given.get("parts"))
    metadata = dict(given.get("metadata") or {})
    name = str(metadata.pop("name", given["role"]))
    blocks = content if isinstance(content, str) or content is None else [_block(part) for part in content]
    return Msg(name, blocks, given["role"], metadata=metadata)


def _block(part: Data) -> Block:
    kind: str = part["kind"]
    value: str = part["value"]
    if kind == "text":
        return TextBlock(value)
    media_type = part.get("mediaType")
    source = source_of(value)
    if isinstance(source, URLSource) and "://" not in value and (media_type or kind == "audio"):
        source = Base64Source(media_type or "audio/wav", value)
    return ImageBlock(source, detail=part.get("detail")) if kind == "image" else _MEDIA[kind](source)


def _said(message: Msg) -> Data:
    name = {"name": message.name} if message.name != message.role else {}
    said: Data = {
        "role": message.role,
        "content": [_part(block) for block in message.blocks] or [{"kind": "text", "value": ""}],
    }
    metadata = {**name, **message.metadata}
    return said | {"metadata": metadata} if metadata else said


def _part(block: Any) -> Data:
    if isinstance(block, TextBlock):
        return {"kind": "text", "value": block.text}
    return {"kind": block.kind, "value": address_of(block.source)}
