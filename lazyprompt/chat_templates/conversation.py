"""Conversion of messages, tools and prompts to the dicts that chat templates expect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.json import is_dict, is_mapping, is_sequence, texts_in
from lazyprompt.chat_templates.jinja import REASONING, ChatJinja, PlainData, plain_tools, with_reasoning
from lazyprompt.chat_templates.traced import OWN, TextOrigin, Traced, map_origins, map_texts, trace_message, trace_parts
from lazyprompt.errors import TemplateError, ToolsError
from lazyprompt.messages.msg import Block, MediaBlock, Msg, ToolUseBlock
from lazyprompt.messages.openai_form import OpenAIWriter, address_of, openai_dicts, write_part
from lazyprompt.messages.prompt import MARKERS, Prompt, Text
from lazyprompt.messages.tools import ToolLike, ToolSet, function_schema, list_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject

# The number of keys in a message that contains only a role and content.
_BARE = 2
# The separator between system and user text for templates without a system role, as in Gemma 3's template.
_BETWEEN = "\n\n"
_WITH_SYSTEM = ({"role": "system", "content": "a"}, {"role": "user", "content": "b"})
# The tag that transformers appends to the text that the model must continue.
TAG = Traced.of("CONTINUE_FINAL_MESSAGE_TAG ", OWN)


@dataclass(frozen=True, slots=True)
class TemplateForm(OpenAIWriter):
    """OpenAI's message format for chat templates, with tool-call arguments as dicts and media types like ``image``.

    Source: transformers' guide "Writing a chat template" and ``ProcessorMixin.apply_chat_template``, which passes
    ``{"type": "image", "url": ...}`` to templates instead of ``image_url``.
    """

    named_results: bool = True
    thinking: str | None = "reasoning_content"

    def call(self, block: ToolUseBlock) -> JsonObject:
        """Write a tool call as a dict."""
        return {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": block.own_arguments()},
        }

    def part(self, block: Block) -> JsonObject:
        """Write a block as a content part."""
        if not isinstance(block, MediaBlock):
            return write_part(block)
        address = address_of(block.source)
        return {"type": block.kind, "url": address} if address else {"type": block.kind}


@lru_cache(maxsize=128)
def _form_of(template: ChatJinja) -> TemplateForm:
    """Return the message format in which a template renders all message content."""
    parts_only = template.shows_parts and not template.shows_text
    no_text: Json = [{"type": "text", "text": ""}] if parts_only else None
    return TemplateForm(no_text, text_lists=template.shows_parts, lists=parts_only)


def template_dicts(messages: Iterable[Msg], template: ChatJinja) -> list[dict[str, Any]]:
    """Convert messages to the dicts that a template receives.

    Args:
        messages: The messages.
        template: The template. It determines whether contents are text or parts, and whether arguments are dicts
            or JSON.

    Returns:
        New dicts. Keys outside OpenAI's format are kept, because a template may use them.

    Raises:
        FormatError: The template's message format cannot represent a block.
    """
    chat = openai_dicts(messages, _form_of(template))
    return [message if len(message) == _BARE else _form_message(message, template) for message in chat]


def _form_message(message: dict[str, Any], template: ChatJinja) -> dict[str, Any]:
    return with_reasoning(template.call_form.convert(message) if "tool_calls" in message else message)


def texts_of(chat: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all untrusted texts in messages from :func:`template_dicts`, without roles and part types."""
    texts: list[str] = []
    for message in chat:
        for key, value in message.items():
            if key == "content":
                texts += (value,) if isinstance(value, str) else _texts_in_parts(value)
            elif key != "role":
                texts += (key, *texts_in(value))
    return texts


def _texts_in_parts(parts: Iterable[Mapping[str, Any]] | None) -> list[str]:
    return [text for part in parts or () for key, value in part.items() if key != "type" for text in texts_in(value)]


def tool_dicts(tools: Iterable[ToolLike] | ToolSet | None) -> list[Mapping[str, Any]] | None:
    """Convert tools to dicts.

    Args:
        tools: Python functions or dicts. A dict is returned unchanged.

    Returns:
        The tools as dicts, or None if ``tools`` is None, as in transformers.

    Raises:
        ToolsError: A function has no valid schema, or a tool is neither a dict nor a function.
    """
    if tools is None:
        return None
    if isinstance(tools, ToolSet):
        return [*tools.copy()]
    return [_tool(tool, at) for at, tool in enumerate(list_tools(tools))]


def _tool(tool: object, at: int) -> Mapping[str, Any]:
    if is_mapping(tool):
        return tool
    if not callable(tool):
        raise ToolsError(f"tools[{at}] must be a dict or a function, not {type(tool).__name__}")
    return function_schema(tool)


def tag_last_message(chat: Sequence[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    """Append :data:`TAG` to the last text in a field of the last message.

    Args:
        chat: The messages.
        field: The message field, such as ``content``, whose text the model should continue.

    Returns:
        The chat with a tagged copy of the last message.

    Raises:
        TemplateError: The last message contains no text in ``field``, or there are no messages.
    """
    last = chat[-1] if chat else {}
    origin = TextOrigin(str(last.get("role")), len(chat) - 1)
    content = last.get(field)
    names = [name for name in REASONING if last.get(name) == content] if field in REASONING else [field]
    if isinstance(content, str):
        return [*chat[:-1], last | dict.fromkeys(names, Traced.of(content, origin) + TAG)]
    parts = [*content] if is_sequence(content) else []
    for at in reversed(range(len(parts))):
        part = parts[at]
        if is_dict(part) and isinstance(text := part.get("text"), str):
            parts[at] = {**part, "text": Traced.of(text, origin) + TAG}
            return [*chat[:-1], last | {field: parts}]
    raise TemplateError(
        f"no text to continue: the last message has no text in its {field!r}"
        if chat
        else "no text to continue: there are no messages"
    )


class ChatInput(NamedTuple):
    """The values that a chat template receives for a prompt.

    Attributes:
        chat: The messages.
        tools: The tools as plain data, or None if the prompt has no tools.
        texts: All untrusted texts in the messages and tools.
    """

    chat: list[dict[str, Any]]
    tools: object
    texts: list[str]


def build_chat(prompt: Prompt, system: str, template: ChatJinja) -> ChatInput:
    """Build the messages of a prompt for a template.

    Args:
        prompt: The prompt.
        system: The system text.
        template: The template. If the template accepts no system message, the system text is put before the first
            user text.

    Returns:
        The messages, the tools, and all untrusted texts.

    Raises:
        FormatError: The template cannot represent a message in the history.
    """
    past = template_dicts(prompt.plain_messages, template)
    own = tools_of(prompt)
    values = (*prompt.instruction.parts[1::2], *prompt.user.parts[1::2], prompt.input or "")
    chat = _put_around(past, prompt, system, template, lambda parts, _: "".join(parts))
    return ChatInput(chat, own.data, [*values, *texts_of(past), *own.texts])


def traced_chat(prompt: Prompt, system: str, template: ChatJinja) -> list[dict[str, Any]]:
    """Build the same messages as :func:`build_chat`, but with :class:`Traced` texts."""
    past = template_dicts(prompt.history.messages, template)
    chat = _put_around(
        [trace_message(message, TextOrigin("history")) for message in past],
        prompt,
        system,
        template,
        _trace_parts,
    )

    def placed(at: int, text: Traced) -> Traced:
        return map_origins(text, lambda origin: origin._replace(message=at))

    return [map_texts(message, partial(placed, at)) for at, message in enumerate(chat)]


def tools_of(prompt: Prompt) -> PlainData:
    """Return a prompt's tools as plain data; for a prompt without tools, the data is None."""
    return plain_tools(prompt.tools.copy() if prompt.tools.names else None)


def _trace_parts(parts: Sequence[str], slots: Sequence[str]) -> Traced:
    return trace_parts(Text(tuple(parts), tuple(slots)))


def _put_around(
    past: list[dict[str, Any]],
    prompt: Prompt,
    system_text: str,
    template: ChatJinja,
    joined: Callable[[Sequence[str], Sequence[str]], str],
) -> list[dict[str, Any]]:
    """Put a prompt's system text before the history's messages, and the prompt's user text after them.

    Args:
        past: The messages of the history.
        prompt: The prompt.
        system_text: The system text.
        template: The template.
        joined: A function that joins alternating trusted and untrusted parts; it also receives the slots of the parts.
    """
    instruction = prompt.instruction
    between = "\n" if system_text and any(instruction.parts) else ""
    slots = ("system", MARKERS, MARKERS, MARKERS, *instruction.slots)
    system = joined((system_text, "", between, "", *instruction.parts), slots)
    question = joined((*prompt.user.parts, prompt.input or "", ""), (*prompt.user.slots, "input", MARKERS))
    chat = [*past, {"role": "user", "content": template.content(question)}] if question else past
    if not system:
        return chat
    if _takes_system(template, alone=not chat):
        return [{"role": "system", "content": template.content(system)}, *chat]
    first = next((at for at, message in enumerate(chat) if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": template.content(system)}, *chat]
    content: str | list[object] = chat[first]["content"]
    opening = system + joined((_BETWEEN,), (MARKERS,))
    whole = opening + content if isinstance(content, str) else [{"type": "text", "text": opening}, *content]
    return [*chat[:first], {**chat[first], "content": whole}, *chat[first + 1 :]]


@lru_cache(maxsize=256)
def _takes_system(template: ChatJinja, *, alone: bool) -> bool:
    """Return True if a template accepts a system message, alone or before a user message."""
    system, user = map(template.with_content, _WITH_SYSTEM)
    if alone:
        return template.try_render([system]) is not None
    return template.try_render([system, user]) is not None or template.try_render([user]) is None
