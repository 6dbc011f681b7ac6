"""Whole requests of prompt files, and the answers to them.

A target is data: the places of a prompt file's options in an interface of a provider, and its other properties.
Messages and tools are written by the formatters, as all other payloads: a target only names the profile, and the few
rules in which Prompty's specification (section 7) differs from it. The payload's report lists all that a request cannot
carry.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.secret import revealed
from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.properties import MediaBlock, Property, schema_of
from lazyprompt.files.spec import OPTIONS, OTHERS, Spec, snake_names
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.formatters.openai import OPENAI
from lazyprompt.formatters.profile import PDF, Media, MediaKind, Profile
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.formatters.report import Notes, Payload
from lazyprompt.formatters.responses import ResponsesForm
from lazyprompt.messages.msg import FileBlock, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from lazyprompt.messages.openai_form import UrlPart, write_part
from lazyprompt.messages.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt._base.json import Fields, Json, JsonObject
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters.report import Report
    from lazyprompt.messages.msg import Block, Msg
    from lazyprompt.messages.turns import WrittenTurn

Place: TypeAlias = tuple[str, ...]
"""A place in a request: the keys that lead to it."""


def _places(same: str, holder: str = "", /, **names: str) -> dict[str, Place]:
    """Return the places of options: the provider's own names, which may be paths.

    Args:
        same: The options that have the same name there, in snake_case.
        holder: The part of a request that holds them; ``""`` for the request itself.
        **names: The other options.
    """
    within = (holder,) if holder else ()
    return {option: (*within, *name.split(".")) for option, name in {**snake_names(same.split()), **names}.items()}


_SAMPLING = "temperature topP frequencyPenalty presencePenalty seed"
_CHAT = partial(
    _places, f"{_SAMPLING} reasoningEffort", stopSequences="stop", allowMultipleToolCalls="parallel_tool_calls"
)


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """An interface of a provider.

    Args:
        profile: The rules of its messages, by the name of a formatter.
        api: ``chat``, ``responses``, ``embedding`` or ``image``.
        options: The places of the options of a prompt file in a request; one that is not named has no place.
        defaults: The fields that a request must have, where the file does not say them.
        changes: The rules of the profile that are others here.
        structured: The part of a request that asks for an answer of some properties; ``""`` where there is none.
        text_content: True if a content that is text alone is one text; else all content is a list of blocks.
        strict_tools: True if tools are builder to keep strict schemas, where the provider can.
    """

    profile: str
    api: str = "chat"
    options: Mapping[str, Place] = field(default_factory=dict[str, Place])
    defaults: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    changes: Mapping[str, object] = field(default_factory=dict[str, object])
    structured: str = ""
    text_content: bool = True
    strict_tools: bool = True

    def own_profile(self) -> Profile:
        """The rules of its messages."""
        return profile_of(self.profile).but(**self.changes)

    def passes_on(self, block: Block) -> bool:
        """Return True if the address of a medium is sent, though the provider itself takes data only."""
        kind = cast("MediaKind", block.kind)
        ours, its = (profile.media.get(kind) for profile in (self.own_profile(), profile_of(self.profile)))
        return ours is not None and ours.url and (its is None or not its.url)


class _FilePart(UrlPart):
    """A file as a part: by its address, which Prompty has and OpenAI's own form does not, or as data."""

    __slots__ = ()

    def __call__(self, block: MediaBlock) -> JsonObject:
        """Return the part of a block."""
        by_address = isinstance(block, FileBlock) and isinstance(block.source, URLSource)
        return super().__call__(block) if by_address else write_part(block)


class _InstructedForm(ResponsesForm):
    """The form of the Responses API with the system text as ``instructions``, as Prompty's vectors print it."""

    __slots__ = ()

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the instructions and the input of turns."""
        payload = super().write(turns, profile, model)
        role, _, content, _ = turns[0]
        if role != "system" or not isinstance(content, str) or len(turns) == 1:
            return payload
        return {"instructions": content, "input": payload["input"][1:]}


def _close_schema(schema: Json) -> Json:
    """Return a schema whose objects have no other properties than theirs."""
    if isinstance(schema, list):
        return [_close_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Json] = {key: _close_schema(value) for key, value in schema.items()}
    return {**made, "additionalProperties": False} if made.get("type") == "object" else made


def _named_schema(outputs: tuple[Property, ...]) -> dict[str, Json]:
    return {"name": "structured_output", "strict": True, "schema": schema_of(outputs, strict=True)}


_STRUCTURED: Final[Mapping[str, Callable[[tuple[Property, ...]], JsonObject]]] = {
    "response_format": lambda outputs: {
        "response_format": {"type": "json_schema", "json_schema": _named_schema(outputs)}
    },
    "text": lambda outputs: {"text": {"format": {"type": "json_schema", **_named_schema(outputs)}}},
    "output_config": lambda outputs: {
        "output_config": {"format": {"type": "json_schema", "schema": _close_schema(schema_of(outputs))}}
    },
    "generation_config": lambda outputs: {
        "generation_config": {"response_mime_type": "application/json", "response_json_schema": schema_of(outputs)}
    },
    "format": lambda outputs: {"format": schema_of(outputs)},
}
_LIKE_OPENAI = RequestTarget("", options=_CHAT(maxOutputTokens="max_tokens"), structured="response_format")
_ROWS = (
    RequestTarget(
        "openai",
        options=_CHAT(maxOutputTokens="max_completion_tokens"),
        changes={
            "form": ChatForm(text_lists=True, parts={"file": _FilePart("file")}),
            # Section 7.1.2 has a file by its address, and a sound of any format by its own name.
            "media": {**OPENAI.media, "audio": Media(("audio/*",), url=False), "file": Media(PDF)},
        },
        structured="response_format",
    ),
    RequestTarget(
        "openai-responses",
        "responses",
        _places(
            "temperature topP maxOutputTokens",
            allowMultipleToolCalls="parallel_tool_calls",
            reasoningEffort="reasoning.effort",
        ),
        changes={"form": _InstructedForm()},
        structured="text",
    ),
    RequestTarget("openai", "embedding"),
    RequestTarget("openai", "image"),
    RequestTarget(
        "anthropic",
        options=_places(
            "temperature topP topK stopSequences",
            maxOutputTokens="max_tokens",
            reasoningEffort="output_config.effort",
        ),
        defaults={"max_tokens": 4096},
        structured="output_config",
        text_content=False,
        # Anthropic takes them, but Prompty's specification has none there.
        strict_tools=False,
    ),
    RequestTarget(
        "gemini",
        options=_places(f"{_SAMPLING} topK maxOutputTokens stopSequences", "generation_config"),
        structured="generation_config",
    ),
    RequestTarget(
        "ollama",
        options=_places(f"{_SAMPLING} topK", "options", maxOutputTokens="num_predict", stopSequences="stop"),
        structured="format",
    ),
    # DeepSeek answers in JSON, but keeps to no schema.
    replace(_LIKE_OPENAI, profile="deepseek", structured=""),
    *(replace(_LIKE_OPENAI, profile=name) for name in ("litellm", "mistral", "moonshot", "vllm", "xai", "zhipu")),
)
_TARGETS: Final = {(row.profile.removesuffix("-responses"), row.api): row for row in _ROWS}
# Services that have the interface of another provider.
_OTHER_NAMES = {
    **dict.fromkeys(("azure", "azure_openai", "foundry", "openai-responses"), "openai"),
    **dict.fromkeys(("googleai", "vertexai"), "gemini"),
}


def target_of(provider: str | None = None, api: str | None = None) -> RequestTarget:
    """Return the target of a request.

    Args:
        provider: The provider, as a prompt file names it; None is ``openai``.
        api: As of :class:`RequestTarget`; None is ``chat``.

    Raises:
        FormatError: There is no such provider, or it has no such interface.
    """
    name, kind = provider or "openai", api or "chat"
    if name == "openai-responses" and kind == "chat":
        kind = "responses"
    family = _OTHER_NAMES.get(name, name)
    if (family, kind) in _TARGETS:
        return _TARGETS[family, kind]
    kinds = [each for owner, each in _TARGETS if owner == family]
    if kinds:
        raise FormatError(f"{name} has no interface {kind!r}{did_you_mean(kind, kinds)}; it has {', '.join(kinds)}")
    known = sorted({each for each, _ in _TARGETS})
    what = "is sent no whole requests" if family in PROVIDERS else "is unknown"
    near = did_you_mean(family, known)
    raise FormatError(f"provider {name!r} {what}{near}; prompt files are sent to {', '.join(known)}")


def request(
    spec: Spec,
    messages: Sequence[Msg],
    provider: str | None = None,
    api: str | None = None,
    *,
    tools: Sequence[JsonObject] = (),
    report: Report = (),
    guard: MessageGuard | None = None,
) -> Payload:
    """Return the request of a prompt file, with a report of the options, tools and blocks that have no place in it.

    Args:
        spec: Its front matter.
        messages: Its messages.
        provider: The provider; None is the one of the file, or else ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``; None is the one of the file, or else ``chat``.
        tools: Functions beside those of the front matter, in OpenAI's form.
        report: What the messages and tools lack of the file's.
        guard: The search for control sequences in the messages and tools; None if they stay.

    Raises:
        FormatError: The provider is unknown or has no such interface; or the messages have no form there.
        MediaError: A picture or the like may not be sent.
    """
    model = spec.model
    target = target_of(*sent_to(spec, provider, api))
    notes = Notes(report)
    body: dict[str, Any] = {"model": model["id"]} if model.get("id") else {}
    if not body:
        notes.add("model", "model", "left out", "the file names no model: it is model.id")
    builder = _RequestBuilder(spec, messages, target, tools, notes, guard)
    made = {"embedding": builder.embed, "image": builder.image}.get(target.api, builder.chat)()
    body |= made
    options = model.get("options")
    _put_options(body, options if isinstance(options, dict) else {}, target, notes)
    for name, value in target.defaults.items():
        body.setdefault(name, deepcopy(value))
    neutralised = made.neutralised if isinstance(made, Payload) else ()
    return Payload(cast("dict[str, Any]", revealed(body)), tuple(notes), None, neutralised)


def sent_to(spec: Spec, provider: str | None = None, api: str | None = None) -> tuple[str | None, str | None]:
    """Return the provider and the interface of a prompt file, or those that are given in their place."""
    own, named = ((it if isinstance(it, str) else None) for it in map(spec.model.get, ("apiType", "provider")))
    # Only OpenAI has a second interface for chats: a file that names it can be sent to others all the same.
    if own == "responses" and provider and (_OTHER_NAMES.get(provider, provider), own) not in _TARGETS:
        own = None
    return provider or named, api or own


class _RequestBuilder(NamedTuple):
    """The contents of a request, and the report of what it cannot carry."""

    spec: Spec
    messages: Sequence[Msg]
    target: RequestTarget
    tools: Sequence[JsonObject]
    notes: Notes
    guard: MessageGuard | None

    def chat(self) -> dict[str, Any]:
        """Return the messages, the tools and the form of the answer."""
        spec, target = self.spec, self.target
        _note_addresses(self.messages, target, self.notes)
        made = ChatFormatter(target.own_profile()).format_parsed(self.messages, self._functions(), self.guard)
        self.notes.extend(made.report)
        body = Payload(dict(made), neutralised=made.neutralised)
        if not target.text_content:
            for message in body["messages"]:
                if isinstance(message["content"], str):
                    message["content"] = [{"type": "text", "text": message["content"]}]
        silent = {each.name for each in spec.tools if each.strict is None}
        for tool in body.get("tools", ()):
            # The Responses formatter writes strict for all; here the file's silence stays silence.
            if tool.get("strict") is False and tool.get("name") in silent:
                del tool["strict"]
        if spec.outputs and not target.structured:
            self.notes.add("outputs", "outputs", "left out", f"{target.profile} takes no schema of an answer")
        elif spec.outputs:
            body |= _STRUCTURED[target.structured](spec.outputs)
        return body

    def _functions(self) -> ToolSet:
        specs = self.spec.tools
        if not self.target.strict_tools:
            for index, each in enumerate(specs):
                if each.strict:
                    why = f"{self.target.profile} is sent no strict tools"
                    self.notes.add(f"tools[{index}]", "strict", "left out", why)
            specs = tuple(replace(each, strict=None) for each in specs)
        elif self.target.api == "chat":
            # There, a tool that asks for nothing is not strict; to the Responses API it is.
            specs = tuple(replace(each, strict=each.strict or None) for each in specs)
        return ToolSet.of([*(each.function() for each in specs if each.kind == "function"), *self.tools])

    def embed(self) -> dict[str, Any]:
        """Return the text to embed, or the texts of several messages."""
        self._note_unused()
        texts = self._texts(range(len(self.messages)))
        return {"input": texts[0] if len(texts) == 1 else texts}

    def image(self) -> dict[str, Any]:
        """Return the prompt of an image: the user's last message, or the last one where the user has none."""
        users = [at for at, message in enumerate(self.messages) if message.role == "user"]
        last = users[-1] if users else len(self.messages) - 1
        self._note_unused()
        for at, message in enumerate(self.messages):
            if at != last:
                why = "an image has one prompt: the last message"
                self.notes.add(f"messages[{at}]", "text", "left out", why, message.text)
        return {"prompt": "".join(self._texts([last] if self.messages else []))}

    def _note_unused(self) -> None:
        for name, has in (("tools", self.spec.tools or self.tools), ("outputs", self.spec.outputs)):
            if has:
                self.notes.add(name, name, "left out", f"the interface {self.target.api!r} knows no {name}")

    def _texts(self, places: Sequence[int]) -> list[str]:
        """Return the texts of some messages, for an interface that takes text alone."""
        for at in places:
            for index, block in enumerate(self.messages[at].blocks):
                if not isinstance(block, TextBlock):
                    why = f"the interface {self.target.api!r} takes text alone"
                    self.notes.add(f"messages[{at}].content[{index}]", block.kind, "left out", why)
        return [_join_text(self.messages[at].blocks) for at in places]


def _join_text(blocks: Sequence[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def _note_addresses(messages: Sequence[Msg], target: RequestTarget, notes: Notes) -> None:
    """Note the media whose addresses Prompty's specification sends and the provider refuses."""
    why = f"{target.profile} refuses an address here, which Prompty sends: give data, or see api='responses'"
    for at, message in enumerate(messages):
        for index, given in enumerate(message.blocks):
            within = (
                given.output if isinstance(given, ToolResultBlock) and not isinstance(given.output, str) else (given,)
            )
            for block in within:
                if isinstance(block, MediaBlock) and isinstance(block.source, URLSource) and target.passes_on(block):
                    notes.add(f"messages[{at}].content[{index}]", block.kind, "changed", why, block.source.url)


def _put_options(body: dict[str, Any], options: Mapping[str, Json], target: RequestTarget, notes: Notes) -> None:
    """Put options where the target has them; those of the provider's own never take the place of anything."""

    def note(name: str, why: str) -> None:
        notes.add(f"model.options.{name}", "option", "left out", why)

    for name, value in options.items():
        if name == OTHERS or value is None or value == []:
            continue
        if name not in target.options:
            known = "" if name in OPTIONS else f" and is no option{did_you_mean(name, OPTIONS)}"
            note(name, f"a request to {target.profile} ({target.api}) has no place for it{known}; see {OTHERS}")
            continue
        *above, last = target.options[name]
        holder = body
        for key in above:
            holder = holder.setdefault(key, {})
        holder[last] = deepcopy(value)
    others = options.get(OTHERS) or {}
    if not isinstance(others, dict):
        note(OTHERS, "it is to be a mapping: the provider's own options, by their names")
        return
    for name, value in others.items():
        if name in body:
            note(f"{OTHERS}.{name}", f"the request has {name!r} already")
        else:
            body[name] = deepcopy(value)


# The keys of the items of an answer's data.
_ITEMS = {"embedding": ("embedding",), "image": ("url", "b64_json")}


def read_answer(
    response: object, provider: str | None = None, api: str | None = None, *, structured: bool = False
) -> Json:
    """Parse an answer.

    Args:
        response: The answer: a dict, or the object of the provider's official client.
        provider: The provider; None is ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``; None is ``chat``.
        structured: True if the answer is JSON, as it is where a prompt file has outputs.

    Returns:
        A list of calls ``{id, name, arguments}``, the arguments as JSON text, where tools are called. Else the text, or
        the reason of a refusal; where it is to be JSON, the value that it is, or the text if it is none. Of embeddings
        the vector, or a list of them; of pictures the address or the base64 data, or a list of them.

    Raises:
        FormatError: It is no answer of this provider, or holds no vector or picture.
    """
    target = target_of(provider, api)
    answer = dict(as_dict(response))
    if target.api in _ITEMS:
        return _items(answer, target)
    if target.api == "responses" and answer.get("output") is None and isinstance(answer.get("output_text"), str):
        answer["output"] = list[object]()
    message = target.own_profile().form.parse(answer, target.profile)
    calls = [block for block in message.blocks if isinstance(block, ToolUseBlock)]
    if calls:
        written = _written_arguments(answer)
        return [_call(call, written[at] if at < len(written) else None) for at, call in enumerate(calls)]
    text = _join_text(message.blocks)
    if not text and target.api == "responses":
        given = answer.get("output_text")
        text = given if isinstance(given, str) else ""
    try:
        return cast("Json", json.loads(text)) if structured else text
    except (ValueError, RecursionError):
        return text


def _call(call: ToolUseBlock, written: object) -> Json:
    """Return a call, its arguments as they were written where they were text."""
    if not isinstance(written, str):
        compact = json.dumps(call.input, ensure_ascii=False, separators=(",", ":"))
        written = compact if call.raw_input is None else call.raw_input
    return {"id": call.id, "name": call.name, "arguments": written}


def _written_arguments(answer: Fields) -> list[object]:
    """Return the arguments of calls as an answer of OpenAI's has them; text, as a rule."""
    calls = _list(fields_of(_first(answer.get("choices")).get("message")).get("tool_calls"))
    items = [item for item in map(fields_of, _list(answer.get("output"))) if item.get("type") == "function_call"]
    return [each.get("arguments") for each in (*(fields_of(fields_of(call).get("function")) for call in calls), *items)]


def _items(answer: Fields, target: RequestTarget) -> Json:
    """Return the vectors or pictures of an answer; one alone is not in a list."""
    fault = answer.get("error")
    if fault:
        raise FormatError(f"{target.profile} answered with an error: {fields_of(fault).get('message') or fault}")
    given = [*map(fields_of, _list(answer.get("data")))]
    # Vectors tell their place: they are put in the order of what was embedded.
    given.sort(key=lambda item: at if isinstance(at := item.get("index"), int) else 0)
    found = [next(filter(None, map(item.get, _ITEMS[target.api])), None) for item in given]
    if not found or None in found:
        raise FormatError(f"this is no answer to a request of the interface {target.api!r}: there is none in its data")
    return cast("Json", found[0] if len(found) == 1 else found)


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _first(value: object) -> Fields:
    return fields_of(next(iter(_list(value)), None))
