"""Messages, tools and the fields of prompters, as the dicts that chat templates know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.json import texts_in
from lazyprompt.chat_templates.jinja import REASONING, ChatJinja, PlainData, plain_tools, with_reasoning
from lazyprompt.chat_templates.traced import OWN, Origin, Traced, map_origins, map_texts, trace_message, trace_parts
from lazyprompt.errors import TemplateError, ToolsError
from lazyprompt.messages.msg import Block, MediaBlock, Msg, ToolUseBlock
from lazyprompt.messages.openai_form import OpenAIWriter, address_of, openai_dicts, write_part
from lazyprompt.messages.prompt import MARKERS, Prompt, Text
from lazyprompt.messages.tools import ToolLike, ToolSet, function_schema, list_tools

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject

# The number of keys of a message that is a role and a content.
_BARE = 2
# What stands between a system text and what the user says, where a template takes no system text: as in Gemma 3's.
_BETWEEN = "\n\n"
_WITH_SYSTEM = ({"role": "system", "content": "a"}, {"role": "user", "content": "b"})
# The text that transformers puts behind the text to continue. It is trusted, so no message can forge it.
TAG = Traced.of("CONTINUE_FINAL_MESSAGE_TAG ", OWN)


@dataclass(frozen=True, slots=True)
class TemplateForm(OpenAIWriter):
    """OpenAI's form as templates know it: arguments are dicts, and a medium is a part with its kind as its type.

    Source: transformers' guide "Writing a chat template"; ``ProcessorMixin.apply_chat_template`` gives templates
    ``{"type": "image", "url": ...}`` in the place of ``image_url``.
    """

    named_results: bool = True
    thinking: str | None = "reasoning_content"

    def call(self, block: ToolUseBlock) -> JsonObject:
        """Write a call of a tool."""
        return {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": block.own_arguments()},
        }

    def part(self, block: Block) -> JsonObject:
        """Write a block as a part of a content."""
        if not isinstance(block, MediaBlock):
            return write_part(block)
        address = address_of(block.source)
        return {"type": block.kind, "url": address} if address else {"type": block.kind}


@lru_cache(maxsize=128)
def _form_of(template: ChatJinja) -> TemplateForm:
    """Return the form of messages whose contents a template shows."""
    parts_only = template.shows_parts and not template.shows_text
    no_text: Json = [{"type": "text", "text": ""}] if parts_only else None
    return TemplateForm(no_text, text_lists=template.shows_parts, lists=parts_only)


def template_dicts(messages: Iterable[Msg], template: ChatJinja) -> list[dict[str, Any]]:
    """Write messages as the dicts that a template is given.

    Args:
        messages: The messages.
        template: The template: contents are text or parts, and arguments dicts or JSON, as it shows them.

    Returns:
        Fresh dicts. Keys that OpenAI's form gives no meaning stay, for a template may know them.

    Raises:
        FormatError: A block has no place in the form.
    """
    chat = openai_dicts(messages, _form_of(template))
    return [message if len(message) == _BARE else _formed(message, template) for message in chat]


def _formed(message: dict[str, Any], template: ChatJinja) -> dict[str, Any]:
    return with_reasoning(template.takes.form(message) if "tool_calls" in message else message)


def texts_of(chat: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all texts that messages of :func:`template_dicts` brought; roles and types of parts are known words."""
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


def dicts_of(tools: Iterable[ToolLike] | ToolSet | None) -> list[Mapping[str, Any]] | None:
    """Tools as dicts; no tools are None, as in transformers.

    Args:
        tools: Dicts, which stay as they are, and Python functions.

    Returns:
        The dicts.

    Raises:
        ToolsError: A function cannot be described, or something is neither.
    """
    if tools is None:
        return None
    if isinstance(tools, ToolSet):
        return [*tools.copy()]
    return [_tool(tool, at) for at, tool in enumerate(list_tools(tools))]


def _tool(tool: object, at: int) -> Mapping[str, Any]:
    if isinstance(tool, Mapping):
        return cast("Mapping[str, Any]", tool)
    if not callable(tool):
        raise ToolsError(f"tools[{at}] is a {type(tool).__name__}; expected a dict or a function")
    return function_schema(tool)


def tagged(chat: Sequence[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    """A chat in whose last message a text ends with :data:`TAG`, which is found in trusted text alone.

    Args:
        chat: The messages.
        field: The field of the last one that is to be gone on with.

    Returns:
        The chat, the last message a copy.

    Raises:
        TemplateError: There is nothing to go on with.
    """
    last = chat[-1] if chat else {}
    origin = Origin(str(last.get("role")), len(chat) - 1)
    content = last.get(field)
    names = [name for name in REASONING if last.get(name) == content] if field in REASONING else [field]
    if isinstance(content, str):
        return [*chat[:-1], last | dict.fromkeys(names, Traced.of(content, origin) + TAG)]
    parts = [*cast("Sequence[object]", content)] if isinstance(content, list | tuple) else []
    for at in reversed(range(len(parts))):
        part = parts[at]
        if isinstance(part, dict) and isinstance(text := cast("dict[str, object]", part).get("text"), str):
            parts[at] = {**cast("dict[str, object]", part), "text": Traced.of(text, origin) + TAG}
            return [*chat[:-1], last | {field: parts}]
    raise TemplateError(
        f"there is nothing to go on with: the last message has no text in its {field!r}"
        if chat
        else "there is nothing to go on with: there are no messages"
    )


class Prompted(NamedTuple):
    """Values that a chat template is given for a prompt.

    Attributes:
        chat: The messages.
        tools: The tools, as plain data; None where there are none.
        texts: All texts that nobody trusts.
    """

    chat: list[dict[str, Any]]
    tools: object
    texts: list[str]


def prompted(prompt: Prompt, system: str, template: ChatJinja) -> Prompted:
    """The messages of a prompt.

    Args:
        prompt: The prompt.
        system: Its system text.
        template: The template; one that takes no system text is given it before the first thing the user says.

    Returns:
        The messages, and what is to be looked at in them.

    Raises:
        FormatError: A message of the history holds what a template cannot be given.
    """
    past = template_dicts(prompt.plain_messages, template)
    own = tools_of(prompt)
    values = (*prompt.instruction.parts[1::2], *prompt.user.parts[1::2], prompt.input or "")
    chat = _around(past, prompt, system, template, lambda parts, _: "".join(parts))
    return Prompted(chat, own.data, [*values, *texts_of(past), *own.texts])


def traced_chat(prompt: Prompt, system: str, template: ChatJinja) -> list[dict[str, Any]]:
    """The messages of a prompt, as :func:`prompted` has them, with the slots that their texts came from."""
    past = template_dicts(prompt.history.messages, template)
    chat = _around(
        [trace_message(message, Origin("history")) for message in past],
        prompt,
        system,
        template,
        _traced,
    )

    def placed(at: int, text: Traced) -> Traced:
        return map_origins(text, lambda origin: origin._replace(message=at))

    return [map_texts(message, partial(placed, at)) for at, message in enumerate(chat)]


def tools_of(prompt: Prompt) -> PlainData:
    """Return the tools of a prompt as plain data; no tools are None, as in transformers."""
    return plain_tools(prompt.tools.copy() if prompt.tools.names else None)


def _traced(parts: Sequence[str], slots: Sequence[str]) -> Traced:
    return trace_parts(Text(tuple(parts), tuple(slots)))


def _around(
    past: list[dict[str, Any]],
    prompt: Prompt,
    system_text: str,
    template: ChatJinja,
    joined: Callable[[Sequence[str], Sequence[str]], str],
) -> list[dict[str, Any]]:
    """Put the system text and the user's question of a prompt around the messages of its history.

    Args:
        past: The messages.
        prompt: The prompt.
        system_text: Its system text.
        template: The template.
        joined: Makes a text of trusted and untrusted parts in turn, and their slots.
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
    content = cast("str | list[object]", chat[first]["content"])
    opening = system + joined((_BETWEEN,), (MARKERS,))
    whole = opening + content if isinstance(content, str) else [{"type": "text", "text": opening}, *content]
    return [*chat[:first], {**chat[first], "content": whole}, *chat[first + 1 :]]


@lru_cache(maxsize=256)
def _takes_system(template: ChatJinja, *, alone: bool) -> bool:
    """Return True if a template takes a system message, alone or before a user's: tried once, nothing in it tells."""
    system, user = _WITH_SYSTEM
    if alone:
        return template.writes([system]) is not None
    return template.writes([system, user]) is not None or template.writes([user]) is None
