"""What a prompt file sends as a whole: the model, the messages, its options, its tools, and the form of the answer.

Messages and tools are written by the formatters. What a request cannot carry is in the payload's report.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from copy import deepcopy
from dataclasses import replace
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt._base.secret import revealed
from lazyprompt.errors import did_you_mean
from lazyprompt.files.sent import functions_of, named_functions, note_attributes
from lazyprompt.files.targets import OPTIONS, takes, target_of
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.formatters.report import Notes, Payload
from lazyprompt.messages.msg import (
    AudioBlock,
    Base64Source,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ToolResultBlock,
    VideoBlock,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.spec import Spec
    from lazyprompt.files.targets import Place, Target
    from lazyprompt.messages.msg import Block

_URLSAFE = str.maketrans("-_", "+/")


def request(
    spec: Spec,
    messages: Sequence[Msg],
    provider: str | None = None,
    api: str | None = None,
    *,
    tools: Sequence[Mapping[str, Json]] = (),
) -> Payload:
    """The request of a prompt file.

    Args:
        spec: What the file says.
        messages: Its messages.
        provider: Who it goes to; None is the provider of the file, or else ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``; None is what the file says, or else ``chat``.
        tools: Tools beside those of the front matter.

    Returns:
        The body of the request, with a report of what is not in it: options and tools that have no place there, and
        what the formatter could not carry.

    Raises:
        FormatError: The provider is unknown or has no such interface; or the messages have no form there.
        MediaError: A picture or the like may not be sent.
    """
    model = spec.model
    target = target_of(*sent_to(spec, provider, api))
    notes = Notes()
    body: dict[str, Any] = {"model": model["id"]} if model.get("id") else {}
    if not body:
        notes.add("model", "model", "left out", "the file names no model: it is model.id")
    body |= _WRITERS.get(target.api, _talk)(spec, messages, target, tools, notes)
    options = model.get("options")
    _put_options(body, options if isinstance(options, dict) else {}, target, notes)
    for name, value in target.defaults.items():
        body.setdefault(name, deepcopy(value))
    return Payload(cast("dict[str, Any]", revealed(body)), tuple(notes))


def sent_to(spec: Spec, provider: str | None = None, api: str | None = None) -> tuple[str | None, str | None]:
    """The provider and the interface of a prompt file.

    Args:
        spec: What the file says.
        provider: The provider that goes before the file's.
        api: The interface that goes before the file's.
    """
    own = _text(spec.model.get("apiType"))
    # Only OpenAI has a second interface for chats: a file that names it can be sent to others all the same.
    own = None if own == "responses" and provider and not takes(provider, own) else own
    return provider or _text(spec.model.get("provider")), api or own


def _talk(
    spec: Spec, messages: Sequence[Msg], target: Target, tools: Sequence[Mapping[str, Json]], notes: Notes
) -> dict[str, Any]:
    """The messages, the tools and the form of the answer."""
    held: dict[str, str] = {}
    shown = [_as_sent(message, at, target, held, notes) for at, message in enumerate(messages)]
    made = ChatFormatter(target.own_profile()).format(shown, tools=_functions(spec, tools, target, notes))
    notes += made.report
    body: dict[str, Any] = dict(made)
    if held:
        body = cast("dict[str, Any]", _put_back(body, held))
    if not target.text_content:
        for message in body["messages"]:
            if isinstance(message["content"], str):
                message["content"] = [{"type": "text", "text": message["content"]}]
    silent = {each.name for each in spec.tools if each.strict is None}
    for tool in body.get("tools", ()):
        # The Responses formatter says strict for all; here the file's silence stays silence.
        if tool.get("strict") is False and tool.get("name") in silent:
            del tool["strict"]
    if spec.outputs:
        if target.structured is None:
            notes.add("outputs", "outputs", "left out", f"{target.profile} takes no schema of an answer")
        else:
            body |= target.structured(spec.outputs)
    return body


def _embed(
    spec: Spec, messages: Sequence[Msg], target: Target, tools: Sequence[Mapping[str, Json]], notes: Notes
) -> dict[str, Any]:
    """What is to be embedded: a text, or the texts of several messages."""
    _note_unused(spec, target, tools, notes)
    texts = [_only_text(message, at, target, notes) for at, message in enumerate(messages)]
    return {"input": texts[0] if len(texts) == 1 else texts}


def _draw(
    spec: Spec, messages: Sequence[Msg], target: Target, tools: Sequence[Mapping[str, Json]], notes: Notes
) -> dict[str, Any]:
    """What is to be drawn: what the user says last; the last message where the user says nothing."""
    _note_unused(spec, target, tools, notes)
    users = [at for at, message in enumerate(messages) if message.role == "user"] or [len(messages) - 1]
    for at, message in enumerate(messages):
        if at != users[-1]:
            notes.add(f"messages[{at}]", "text", "left out", "an image has one prompt: the last message", message.text)
    return {"prompt": "" if not messages else _only_text(messages[users[-1]], users[-1], target, notes)}


_WRITERS = {"embedding": _embed, "image": _draw}


def _note_unused(spec: Spec, target: Target, tools: Sequence[Mapping[str, Json]], notes: Notes) -> None:
    """Note tools and outputs for an interface that has neither."""
    if spec.tools or tools:
        notes.add("tools", "tools", "left out", f"the interface {target.api!r} knows no tools")
    if spec.outputs:
        notes.add("outputs", "outputs", "left out", f"the interface {target.api!r} knows no outputs")


def _only_text(message: Msg, at: int, target: Target, notes: Notes) -> str:
    for index, block in enumerate(message.blocks):
        if not isinstance(block, TextBlock):
            where = f"messages[{at}].content[{index}]"
            notes.add(where, block.kind, "left out", f"the interface {target.api!r} takes text alone")
    return _joined(message.blocks)


def _joined(blocks: Sequence[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def _functions(
    spec: Spec, tools: Sequence[Mapping[str, Json]], target: Target, notes: Notes
) -> list[JsonObject] | None:
    """The tools that are functions."""
    specs = spec.tools
    if not target.strict_tools:
        for index, each in enumerate(specs):
            if each.strict:
                notes.add(f"tools[{index}]", "strict", "left out", f"{target.profile} is sent no strict tools")
        specs = tuple(replace(each, strict=None) for each in specs)
    elif target.api == "chat":
        # There, what asks for nothing is not strict; the Responses API takes it for strict.
        specs = tuple(replace(each, strict=each.strict or None) for each in specs)
    return [*functions_of(specs, notes), *named_functions(tools, notes)] or None


def _as_sent(message: Msg, at: int, target: Target, held: dict[str, str], notes: Notes) -> Msg:
    """A message as a formatter is to see it: a name that is only the role is none, texts alone are one."""
    content = message.content
    if not isinstance(content, str):
        joins = target.text_content or message.role in SYSTEM_ROLES
        if joins and all(isinstance(block, TextBlock) and not block.signature for block in content):
            content = _joined(content)
        else:
            content = tuple(
                _sent_block(block, f"messages[{at}].content[{index}]", target, held, notes)
                for index, block in enumerate(content)
            )
    note_attributes(message.metadata, at, notes)
    name = "" if message.name == message.role else message.name
    return Msg(name, content, message.role, url=message.url)


def _sent_block(block: Block, where: str, target: Target, held: dict[str, str], notes: Notes) -> Block:
    """A block; data that is no base64 is sent as the caller gave it, so something holds its place until then."""
    if isinstance(block, ToolResultBlock) and not isinstance(block.output, str):
        inner = [
            _sent_block(each, f"{where}.output[{at}]", target, held, notes) for at, each in enumerate(block.output)
        ]
        return replace(block, output=tuple(inner))
    if not isinstance(block, (ImageBlock, AudioBlock, VideoBlock, FileBlock)):
        return block
    source = block.source
    if not isinstance(source, Base64Source):
        if target.passes_on(block):
            why = f"{target.profile} refuses an address here, which Prompty sends: give data, or see api='responses'"
            notes.add(where, block.kind, "changed", why, source.url)
        return block
    if _is_base64(source.data):
        return block
    place = b64encode(blake2s(f"{where}\0{source.data}".encode()).hexdigest().encode()).decode()
    held[place] = source.data
    notes.add(where, block.kind, "changed", "its data is no base64, and is sent as it was given")
    return replace(block, source=Base64Source(source.media_type, place))


def _is_base64(data: str) -> bool:
    if not data or data.startswith("data:"):
        return True  # the formatter says what is wrong with it
    try:
        a2b_base64("".join(data.split()).translate(_URLSAFE), strict_mode=True)
    except ValueError:
        return False
    return True


def _put_back(value: Json, held: Mapping[str, str]) -> Json:
    """A body with the data that something held the place of."""
    if isinstance(value, list):
        return [_put_back(each, held) for each in value]
    if isinstance(value, dict):
        return {name: _put_back(each, held) for name, each in value.items()}
    if isinstance(value, str):
        for place, data in held.items():
            value = value.replace(place, data)
    return value


def _put_options(body: dict[str, Any], options: Mapping[str, Json], target: Target, notes: Notes) -> None:
    """Put options where the target has them; those of the provider's own never take the place of anything."""
    for name, value in options.items():
        place = target.options.get(name)
        if name == "additionalProperties" or value is None or value == []:
            continue
        if place is None:
            known = "" if name in OPTIONS else f" and is no option{did_you_mean(name, OPTIONS)}"
            why = f"a request to {target.profile} ({target.api}) has no place for it{known}; see additionalProperties"
            notes.add(f"model.options.{name}", "option", "left out", why)
        else:
            _put(body, place, deepcopy(value))
    others = options.get("additionalProperties") or {}
    if not isinstance(others, dict):
        why = "it is to be a mapping: the provider's own options, by their names"
        notes.add("model.options.additionalProperties", "option", "left out", why)
        return
    for name, value in others.items():
        if name in body:
            why = f"the request has {name!r} already"
            notes.add(f"model.options.additionalProperties.{name}", "option", "left out", why)
        else:
            body[name] = deepcopy(value)


def _put(body: dict[str, Any], place: Place, value: Json) -> None:
    *above, last = place
    for key in above:
        body = body.setdefault(key, {})
    body[last] = value


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
