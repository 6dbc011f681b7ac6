"""Messages, tools and the fields of prompters, as the dicts that chat templates know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.trusted import is_trusted
from lazyprompt.chat_templates.jinja import REASONING, Chat, ChatJinja, plain_tools, texts_in
from lazyprompt.chat_templates.traced import OWN, Origin, Traced, map_origins, map_texts, trace_message
from lazyprompt.errors import TemplateError, ToolsError
from lazyprompt.messages.msg import Msg, ThinkingBlock
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.messages.parse import is_openai, parse_messages
from lazyprompt.messages.prompt import MARKERS, Prompt
from lazyprompt.messages.tools import ToolLike, ToolSet, function_schema, listed

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.history import HistoryLike

# What stands between a system text and what the user says, where a template takes no system text: as in Gemma 3's.
_BETWEEN = "\n\n"
_WITH_SYSTEM = ({"role": "system", "content": "a"}, {"role": "user", "content": "b"})
# What transformers puts behind the text that is to be gone on with.
CONTINUED = "CONTINUE_FINAL_MESSAGE_TAG "


def dicts_from(messages: HistoryLike, template: ChatJinja) -> Chat:
    """Messages as dicts.

    Args:
        messages: OpenAI dicts, which stay as they are; all else that a history may hold takes the form that the
            template shows.
        template: The template.

    Returns:
        The dicts.

    Raises:
        HistoryError: A message has no accepted shape.
        FormatError: A block has no form that a template could be given.
    """
    if isinstance(messages, list | tuple) and all(isinstance(item, Mapping) and is_openai(item) for item in messages):
        return [_without_nulls(cast("Mapping[str, Any]", item)) for item in messages]
    return [form for message in parse_messages(messages, "messages") for form in _dicts(message, template)]


def _without_nulls(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without keys that say nothing, as clients write them: a template would read ``None``."""
    null = [key for key, value in message.items() if value is None or (key == "tool_calls" and not value)]
    null = [key for key in null if key != "content"]
    return {key: value for key, value in message.items() if key not in null} if null else message


def _dicts(message: Msg, template: ChatJinja) -> list[JsonObject]:
    """A message in OpenAI's form, with what was thought, and contents as the template shows them."""
    forms = openai_dicts([message])
    thought = "\n".join(
        block.thinking for block in message.blocks if isinstance(block, ThinkingBlock) and block.thinking
    )
    for form in forms:
        content = form.get("content")
        if isinstance(content, str):
            form["content"] = template.content(content)
        elif isinstance(content, list) and not template.shows_parts and all(_is_text(part) for part in content):
            form["content"] = "\n".join(str(cast("JsonObject", part)["text"]) for part in content)
    if thought and message.role == "assistant":
        forms[0]["reasoning_content"] = thought
    return forms


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and cast("JsonObject", part).get("type") == "text"


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
    return [_tool(tool, at) for at, tool in enumerate(listed(tools))]


def _tool(tool: object, at: int) -> Mapping[str, Any]:
    if isinstance(tool, Mapping):
        return cast("Mapping[str, Any]", tool)
    if not callable(tool):
        raise ToolsError(f"tools[{at}] is a {type(tool).__name__}; expected a dict or a function")
    return function_schema(tool)


def tagged(chat: Sequence[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    """A chat in whose last message a text ends with :data:`CONTINUED`, to be found again behind the template.

    Args:
        chat: The messages.
        field: The field of the last one that is to be gone on with.

    Returns:
        The chat, the last message a copy.

    Raises:
        TemplateError: There is nothing to go on with.
    """
    last = chat[-1] if chat else {}
    content = last.get(field)
    names = [name for name in REASONING if last.get(name) == content] if field in REASONING else [field]
    if isinstance(content, str):
        return [*chat[:-1], last | dict.fromkeys(names, content + CONTINUED)]
    parts = [*cast("Sequence[object]", content)] if isinstance(content, list | tuple) else []
    for at in reversed(range(len(parts))):
        part = parts[at]
        if isinstance(part, dict) and isinstance(text := cast("dict[str, object]", part).get("text"), str):
            parts[at] = {**cast("dict[str, object]", part), "text": text + CONTINUED}
            return [*chat[:-1], last | {field: parts}]
    raise TemplateError(
        f"there is nothing to go on with: the last message has no text in its {field!r}"
        if chat
        else "there is nothing to go on with: there are no messages"
    )


class Prompted(NamedTuple):
    """Values that a chat template is given for a prompt.

    Attributes:
        chat: The messages, their texts traced.
        tools: The tools, as plain data; None where there are none.
        texts: All texts that nobody trusts.
        literals: The developer's own texts.
    """

    chat: list[dict[str, Any]]
    tools: object
    texts: list[str]
    literals: list[str]


def prompted(prompt: Prompt, template: ChatJinja) -> Prompted:
    """The messages of a prompt.

    Args:
        prompt: The prompt.
        template: The template; one that takes no system text is given it before the first thing the user says.

    Returns:
        The messages, and what is to be looked at in them.

    Raises:
        FormatError: A message of the history holds what a template cannot be given.
    """
    instruction = prompt.instruction
    between = "\n" if prompt.system and any(instruction.parts) else ""
    slots = ("system", MARKERS, MARKERS, MARKERS, *instruction.slots)
    system = _text((prompt.system or "", "", between, "", *instruction.parts), slots)
    question = _text((*prompt.user.parts, prompt.input or "", ""), (*prompt.user.slots, "input", MARKERS))
    past = [dict(message) for message in dicts_from(list(prompt.history.messages), template)]
    chat = [trace_message(template.takes.form(message), Origin("history")) for message in past]
    if question:
        chat.append({"role": "user", "content": question})
    if system and not chat and template.writes(_WITH_SYSTEM[:1]) is None:
        chat = [{"role": "user", "content": system}]
    elif system:
        chat = _with_system(system, chat, template)
    own = plain_tools(prompt.tools.copy() if prompt.tools.names else None)
    texts = [*instruction.parts[1::2], *prompt.user.parts[1::2], prompt.input or "", *texts_in(past), *own.texts]

    def placed(at: int, text: Traced) -> Traced:
        return map_origins(text, lambda origin: origin._replace(message=at))

    shown = [map_texts(message, partial(placed, at)) for at, message in enumerate(map(template.with_content, chat))]
    return Prompted(shown, own.data, texts, [*instruction.parts[::2], *prompt.user.parts[::2]])


def _text(parts: Sequence[str], slots: Sequence[str]) -> Traced:
    """A text made of trusted and untrusted parts in turn."""
    runs = [
        (len(part), Origin(slot, trusted=is_trusted(at, part)))
        for at, (part, slot) in enumerate(zip(parts, slots, strict=True))
    ]
    return Traced("".join(parts), runs)


def _with_system(system: Traced, chat: list[dict[str, Any]], template: ChatJinja) -> list[dict[str, Any]]:
    """A chat with its system text, in the place that the template has for it."""
    if template.writes(_WITH_SYSTEM) is not None or template.writes(_WITH_SYSTEM[1:]) is None:
        return [{"role": "system", "content": system}, *chat]
    first = next((at for at, message in enumerate(chat) if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": system}, *chat]
    content = cast("str | list[object]", chat[first]["content"])
    opening = system + Traced.of(_BETWEEN, OWN)
    joined = opening + content if isinstance(content, str) else [{"type": "text", "text": opening}, *content]
    return [*chat[:first], {**chat[first], "content": joined}, *chat[first + 1 :]]
