"""Complete provider requests built from prompt files, and parsers for the responses to these requests.

A target describes one API of a provider: the request fields for a prompt file's options, and other properties of the
API. The package :mod:`lazyprompt.formatters` writes a request's messages and tools. A target selects a formatter's
profile and changes the profile's rules according to section 7 of the Prompty specification. The payload's report lists
everything that a request can't represent.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import is_sequence
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
    from lazyprompt.formatters.report import Entries
    from lazyprompt.messages.msg import Block, Msg
    from lazyprompt.messages.turns import WrittenTurn

Place: TypeAlias = tuple[str, ...]
"""A path in a request, as a sequence of keys from the outermost to the innermost."""


def _places(same: str, holder: str = "", /, **names: str) -> dict[str, Place]:
    """Return the path of the request field for each model option.

    Args:
        same: The space-separated names of the options whose request field is the option's name in snake_case.
        holder: The request field that contains the options; ``""`` for the request itself.
        **names: The provider's names for the options that are not in ``same``. A dotted name is a path in the request.
    """
    within = (holder,) if holder else ()
    return {option: (*within, *name.split(".")) for option, name in {**snake_names(same.split()), **names}.items()}


_SAMPLING = "temperature topP frequencyPenalty presencePenalty seed"
_CHAT = partial(
    _places, f"{_SAMPLING} reasoningEffort", stopSequences="stop", allowMultipleToolCalls="parallel_tool_calls"
)


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """A description of one API of a provider, used to build requests.

    Args:
        profile: The formatter profile for the messages, or its name.
        api: ``chat``, ``responses``, ``embedding`` or ``image``.
        options: The path of the request field for each model option of a prompt file. Options without a path in this
            mapping can't be sent.
        defaults: Required request fields, with the values to use if the file doesn't set them.
        changes: Values, by rule name, that override the profile's rules in requests built from prompt files.
        structured: The request field for an output schema, or ``""`` if the API supports no output schema.
        text_content: True if content with only text is sent as a string, False if content is always a list of blocks.
        strict_tools: True if the setting ``strict`` is sent for tools.
    """

    profile: str | Profile
    api: str = "chat"
    options: Mapping[str, Place] = field(default_factory=dict[str, Place])
    defaults: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    changes: Mapping[str, object] = field(default_factory=dict[str, object])
    structured: str = ""
    text_content: bool = True
    strict_tools: bool = True

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.profile if isinstance(self.profile, str) else self.profile.name

    def own_profile(self) -> Profile:
        """Return the formatter profile with the rules in ``changes`` applied."""
        return profile_of(self.profile).but(**self.changes)

    def passes_on(self, block: Block) -> bool:
        """Return True if a media block's URL is sent although the provider itself accepts only data."""
        kind = cast("MediaKind", block.kind)
        ours, its = (profile.media.get(kind) for profile in (self.own_profile(), profile_of(self.profile)))
        return ours is not None and ours.url and (its is None or not its.url)


class _FilePart(UrlPart):
    """A writer for file parts that accepts file URLs; Prompty allows file URLs, but OpenAI doesn't."""

    __slots__ = ()

    def __call__(self, block: MediaBlock) -> JsonObject:
        """Return the content part for a block."""
        by_address = isinstance(block, FileBlock) and isinstance(block.source, URLSource)
        return super().__call__(block) if by_address else write_part(block)


class _InstructedForm(ResponsesForm):
    """The Responses API format, with the system text in the field ``instructions`` as in Prompty's test vectors."""

    __slots__ = ()

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns as the fields ``instructions`` and ``input``."""
        payload = super().write(turns, profile, model)
        role, _, content, _ = turns[0]
        if role != "system" or not isinstance(content, str) or len(turns) == 1:
            return payload
        return {"instructions": content, "input": payload["input"][1:]}


def _close_schema(schema: Json) -> Json:
    """Copy a schema, and forbid additional properties in each of its objects."""
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
            # Section 7.1.2 of the Prompty specification allows URLs for files, and any format for audio.
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
        # Anthropic supports strict tools, but the Prompty specification omits the setting for Anthropic.
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
    *(
        replace(_LIKE_OPENAI, profile=name)
        for name in ("deepseek", "litellm", "mistral", "moonshot", "vllm", "xai", "zhipu")
    ),
)
_TARGETS: Final = {(row.name.removesuffix("-responses"), row.api): row for row in _ROWS}
# Maps service names in prompt files to the providers whose APIs the services use.
_OTHER_NAMES = {
    **dict.fromkeys(("azure", "azure_openai", "foundry", "openai-responses"), "openai"),
    **dict.fromkeys(("googleai", "vertexai"), "gemini"),
}


def target_of(provider: str | Profile | None = None, api: str | None = None) -> RequestTarget:
    """Return the target for a provider and an API.

    Args:
        provider: The provider's name in a prompt file, or a profile, whose requests contain the same fields as those of
            the built-in provider with the same wire format. The default is ``openai``.
        api: The API; see :class:`RequestTarget`. The default is ``chat``, or the API of the wire format.

    Raises:
        FormatError: The provider is unknown or doesn't support the API.
    """
    if provider is not None and not isinstance(provider, str):
        return _target_like(profile_of(provider), api)
    name, kind = provider or "openai", api or "chat"
    if name == "openai-responses" and kind == "chat":
        kind = "responses"
    family = _OTHER_NAMES.get(name, name)
    if (family, kind) in _TARGETS:
        return _TARGETS[family, kind]
    kinds = [each for owner, each in _TARGETS if owner == family]
    if kinds:
        raise FormatError(
            f"{name} doesn't support the {kind!r} API{did_you_mean(kind, kinds)}; expected one of {', '.join(kinds)}"
        )
    known = sorted({each for each, _ in _TARGETS})
    what = "does not support complete requests" if family in PROVIDERS else "is unknown"
    near = did_you_mean(family, known)
    raise FormatError(
        f"provider {name!r} {what}{near}; prompt files can be sent to {', '.join(known)}, or with "
        "request(provider=...) to a Profile"
    )


def _target_like(profile: Profile, api: str | None) -> RequestTarget:
    """Return the target for a custom profile: the target of the built-in provider with the same wire format.

    Raises:
        FormatError: No built-in provider with complete requests has this wire format, or the API is a different one.
    """
    forms = {type(profile_of(name).form): name for name in reversed(PROVIDERS)}
    like = next((forms[each] for each in type(profile.form).__mro__ if each in forms), "")
    # OpenAI itself renamed an option and has rules that other servers with its wire format don't have.
    row = (
        _LIKE_OPENAI
        if like == "openai"
        else _TARGETS.get((like.removesuffix("-responses"), "responses" if like == "openai-responses" else "chat"))
    )
    if row is None:
        raise FormatError(
            f"prompt files have no request fields for the wire format {type(profile.form).__name__} of the provider "
            f"{profile.name!r}; use generate_prompt(format=...), and add the model and its options to the payload"
        )
    if api not in (None, row.api):
        raise FormatError(f"the profile {profile.name!r} supports only the {row.api!r} API, not {api!r}")
    return replace(row, profile=profile, changes={})


def request(
    spec: Spec,
    messages: Sequence[Msg],
    provider: str | Profile | None = None,
    api: str | None = None,
    *,
    tools: Sequence[JsonObject] = (),
    report: Entries = (),
    guard: MessageGuard | None = None,
) -> Payload:
    """Build the request for a prompt file, with a report of content that the request can't represent.

    Args:
        spec: The front matter of the prompt file.
        messages: The messages to send.
        provider: The provider's name, or a profile. The default is the file's provider, or else ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``. The default is the file's API, or else ``chat``.
        tools: Additional functions, in OpenAI's format.
        report: The report entries for parts of the file that the messages and tools don't include.
        guard: The neutralizer for control sequences in messages and tools. Without a neutralizer, messages and tools
            are sent unchanged.

    Raises:
        FormatError: The provider or API is unknown, or the messages can't be sent to it.
        MediaError: A media block can't be sent.
    """
    model = spec.model
    target = target_of(*sent_to(spec, provider, api))
    notes = Notes(report)
    other = other_provider(spec, target)
    body: dict[str, Any] = {"model": model["id"]} if model.get("id") and not other else {}
    if not body:
        why = other if model.get("id") else "the file names no model; set model.id"
        notes.add("model", "native" if model.get("id") else "model", "left out", why)
    builder = _RequestBuilder(spec, messages, target, tools, notes, guard)
    made = {"embedding": builder.embed, "image": builder.image}.get(target.api, builder.chat)()
    body |= made
    options = model.get("options")
    _put_options(body, options if isinstance(options, dict) else {}, target, notes, other)
    for name, value in target.defaults.items():
        body.setdefault(name, deepcopy(value))
    neutralised = made.neutralised if isinstance(made, Payload) else ()
    sent = {name: revealed(value) for name, value in body.items()}
    return Payload(sent, tuple(notes), None, neutralised)


def other_provider(spec: Spec, target: RequestTarget) -> str:
    """Return why a file's model and additional options can't be sent to a provider, or ``""`` if they can be.

    A model without a provider can be sent to any provider.
    """
    named = spec.model.get("provider")
    if not isinstance(named, str) or _OTHER_NAMES.get(named, named) == target.name.removesuffix("-responses"):
        return ""
    return f"the file sets it for {named}, not for {target.name}; add it to the request"


def sent_to(
    spec: Spec, provider: str | Profile | None = None, api: str | None = None
) -> tuple[str | Profile | None, str | None]:
    """Return the provider and API for a request: the arguments, or else the file's settings."""
    own, named = ((it if isinstance(it, str) else None) for it in map(spec.model.get, ("apiType", "provider")))
    # If the provider has no Responses API, ignore the file's ``apiType`` and use the chat API. A profile has one API.
    if isinstance(provider, str | None):
        if own == "responses" and provider and (_OTHER_NAMES.get(provider, provider), own) not in _TARGETS:
            own = None
    elif own in ("chat", "responses"):
        own = None
    return provider or named, api or own


class _RequestBuilder(NamedTuple):
    """A builder for the contents of a request, with notes on parts that the request can't represent."""

    spec: Spec
    messages: Sequence[Msg]
    target: RequestTarget
    tools: Sequence[JsonObject]
    notes: Notes
    guard: MessageGuard | None

    def chat(self) -> dict[str, Any]:
        """Return the request fields for the messages, the tools and the output schema."""
        spec, target = self.spec, self.target
        _note_addresses(self.messages, target, self.notes)
        profile = target.own_profile()
        made = ChatFormatter(profile).format_parsed(self.messages, self._functions(), self.guard)
        self.notes.extend(made.report)
        body = Payload(dict(made), neutralised=made.neutralised)
        if not target.text_content:
            for message in body["messages"]:
                if isinstance(message["content"], str):
                    message["content"] = [{"type": "text", "text": message["content"]}]
        silent = {each.name for each in spec.tools if each.strict is None}
        for tool in body.get("tools", ()):
            # The Responses formatter always writes ``strict``, so remove the key if the file doesn't set it.
            if tool.get("strict") is False and tool.get("name") in silent:
                del tool["strict"]
        if spec.outputs and not profile.output_schemas:
            self.notes.add("outputs", "outputs", "left out", f"{target.name} supports no output schema")
        elif spec.outputs:
            body |= _STRUCTURED[target.structured](spec.outputs)
        return body

    def _functions(self) -> ToolSet:
        specs = self.spec.tools
        if not self.target.strict_tools:
            for index, each in enumerate(specs):
                if each.strict:
                    why = f"strict is not sent to {self.target.name}"
                    self.notes.add(f"tools[{index}]", "strict", "left out", why)
            specs = tuple(replace(each, strict=None) for each in specs)
        elif self.target.api == "chat":
            # Omit ``strict: false``, which is the default in the chat API but not in the Responses API.
            specs = tuple(replace(each, strict=each.strict or None) for each in specs)
        return ToolSet.of([*(each.function() for each in specs if each.kind == "function"), *self.tools])

    def embed(self) -> dict[str, Any]:
        """Return the field ``input``: the text of the only message, or a list with the text of each message."""
        self._note_unused()
        texts = self._texts(range(len(self.messages)))
        return {"input": texts[0] if len(texts) == 1 else texts}

    def image(self) -> dict[str, Any]:
        """Return the field ``prompt``: the text of the last user message, or else of the last message."""
        users = [at for at, message in enumerate(self.messages) if message.role == "user"]
        last = users[-1] if users else len(self.messages) - 1
        self._note_unused()
        for at, message in enumerate(self.messages):
            if at != last:
                why = "only one message can be the image prompt"
                self.notes.add(f"messages[{at}]", "text", "left out", why, message.text)
        return {"prompt": "".join(self._texts([last] if self.messages else []))}

    def _note_unused(self) -> None:
        for name, has in (("tools", self.spec.tools or self.tools), ("outputs", self.spec.outputs)):
            if has:
                self.notes.add(name, name, "left out", f"the {self.target.api!r} API supports no {name}")

    def _texts(self, places: Sequence[int]) -> list[str]:
        """Return the text of the messages at the given indexes, and report each block that isn't text."""
        for at in places:
            for index, block in enumerate(self.messages[at].blocks):
                if not isinstance(block, TextBlock):
                    why = f"the {self.target.api!r} API accepts only text"
                    self.notes.add(f"messages[{at}].content[{index}]", block.kind, "left out", why)
        return [_join_text(self.messages[at].blocks) for at in places]


def _join_text(blocks: Sequence[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def _note_addresses(messages: Sequence[Msg], target: RequestTarget, notes: Notes) -> None:
    """Report media URLs that are sent according to the Prompty specification although the provider rejects them."""
    why = f"{target.name} refuses URLs here, but Prompty sends them: pass data, or use api='responses'"
    for at, message in enumerate(messages):
        for index, given in enumerate(message.blocks):
            within = (
                given.output if isinstance(given, ToolResultBlock) and not isinstance(given.output, str) else (given,)
            )
            for block in within:
                if isinstance(block, MediaBlock) and isinstance(block.source, URLSource) and target.passes_on(block):
                    notes.add(f"messages[{at}].content[{index}]", block.kind, "changed", why, block.source.url)


def _put_options(
    body: dict[str, Any], options: Mapping[str, Json], target: RequestTarget, notes: Notes, other: str
) -> None:
    """Add model options to a request; the options in the mapping :data:`OTHERS` never replace existing fields.

    Args:
        body: The request.
        options: The file's model options.
        target: The request's target.
        notes: The report, which receives an entry for each option that isn't sent.
        other: The reason why the options in :data:`OTHERS` aren't sent; ``""`` to send them.
    """

    def note(name: str, why: str) -> None:
        notes.add(f"model.options.{name}", "option", "left out", why)

    for name, value in options.items():
        if name == OTHERS or value is None or value == []:
            continue
        if name not in target.options:
            known = "" if name in OPTIONS else f"; it is not a known option{did_you_mean(name, OPTIONS)}"
            note(name, f"requests to {target.name} ({target.api}) have no such option{known}; see {OTHERS}")
            continue
        *above, last = target.options[name]
        holder = body
        for key in above:
            holder = holder.setdefault(key, {})
        holder[last] = deepcopy(value)
    others = options.get(OTHERS) or {}
    if not isinstance(others, dict):
        note(OTHERS, "it must be a mapping of the provider's own options")
        return
    for name, value in others.items():
        if other:
            notes.add(f"model.options.{OTHERS}.{name}", "native", "left out", other)
        elif name in body:
            note(f"{OTHERS}.{name}", f"the request already has {name!r}")
        else:
            body[name] = deepcopy(value)


# Maps each API to the keys that may contain the embedding or image in an item of a response's ``data``.
_ITEMS = {"embedding": ("embedding",), "image": ("url", "b64_json")}


def read_answer(
    response: object, provider: str | Profile | None = None, api: str | None = None, *, structured: bool = False
) -> Json:
    """Parse a provider's response.

    Args:
        response: The response, as a dict or as an object from the provider's official client.
        provider: The provider. The default is ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``. The default is ``chat``.
        structured: True to parse the text as JSON, for prompt files with outputs.

    Returns:
        If the response contains tool calls, a list of ``{id, name, arguments}``, with the arguments as JSON text.
        Otherwise, the text or refusal; if ``structured`` is true, text that is valid JSON is parsed. For an embedding
        API: the vector, or a list of vectors if the response contains several. For an image API: the image's URL or
        base64 data, or a list of these if the response contains several images.

    Raises:
        FormatError: The response isn't in the provider's format, or contains no vector or image.
    """
    target = target_of(provider, api)
    answer = dict(as_dict(response))
    if target.api in _ITEMS:
        return _items(answer, target)
    if target.api == "responses" and answer.get("output") is None and isinstance(answer.get("output_text"), str):
        answer["output"] = list[object]()
    message = target.own_profile().form.parse(answer, target.name)
    calls = [block for block in message.blocks if isinstance(block, ToolUseBlock)]
    if calls:
        written = _written_arguments(answer)
        return [_call(call, written[at] if at < len(written) else None) for at, call in enumerate(calls)]
    text = _join_text(message.blocks)
    if not text and target.api == "responses":
        given = answer.get("output_text")
        text = given if isinstance(given, str) else ""
    if not structured:
        return text
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _call(call: ToolUseBlock, written: object) -> Json:
    """Return a tool call; arguments that the response contains as text are kept as written."""
    if not isinstance(written, str):
        compact = json.dumps(call.input, ensure_ascii=False, separators=(",", ":"))
        written = compact if call.raw_input is None else call.raw_input
    return {"id": call.id, "name": call.name, "arguments": written}


def _written_arguments(answer: Fields) -> list[object]:
    """Return the arguments of the tool calls in an OpenAI response, usually as text."""
    calls = _list(fields_of(_first(answer.get("choices")).get("message")).get("tool_calls"))
    items = [item for item in map(fields_of, _list(answer.get("output"))) if item.get("type") == "function_call"]
    return [each.get("arguments") for each in (*(fields_of(fields_of(call).get("function")) for call in calls), *items)]


def _items(answer: Fields, target: RequestTarget) -> Json:
    """Return the only vector or image in a response, or a list if the response contains several."""
    fault = answer.get("error")
    if fault:
        raise FormatError(f"{target.name} returned an error: {fields_of(fault).get('message') or fault}")
    given = [*map(fields_of, _list(answer.get("data")))]
    # Sort vectors by index to restore the order of the embedded texts.
    given.sort(key=lambda item: at if isinstance(at := item.get("index"), int) else 0)
    found = [next(filter(None, map(item.get, _ITEMS[target.api])), None) for item in given]
    if not found or None in found:
        raise FormatError(f"not a response from the {target.api!r} API: its data contains no {target.api}")
    return cast("Json", found[0] if len(found) == 1 else found)


def _list(value: object) -> Sequence[object]:
    return value if is_sequence(value) else ()


def _first(value: object) -> Fields:
    return fields_of(next(iter(_list(value)), None))
