"""A prompter's fields as the messages of a chat template, each text with the slots it was made of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.trusted import is_trusted
from lazyprompt.chat_templates.conversation import dicts_from
from lazyprompt.chat_templates.messages import plain_tools, texts_in
from lazyprompt.chat_templates.traced import OWN, Origin, Traced, map_origins, map_texts, trace
from lazyprompt.messages.prompt import MARKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja
    from lazyprompt.messages.prompt import Prompt

# What stands between a system text and what the user says, where a template takes no system text: as in Gemma 3's.
_BETWEEN = "\n\n"
_WITH_SYSTEM = ({"role": "system", "content": "a"}, {"role": "user", "content": "b"})


class Prompted(NamedTuple):
    """What a chat template is given for a prompt.

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
    system = _text(
        (
            prompt.system or "",
            "",
            "\n" if prompt.system and any(prompt.instruction.parts) else "",
            "",
            *prompt.instruction.parts,
        ),
        ("system", MARKERS, MARKERS, MARKERS, *prompt.instruction.slots),
    )
    said = _text((*prompt.user.parts, prompt.input or "", ""), (*prompt.user.slots, "input", MARKERS))
    past = [dict(message) for message in dicts_from(list(prompt.history.messages), template)]
    chat = [_traced(template.takes.form(message)) for message in past]
    if said:
        chat.append({"role": "user", "content": said})
    if system and not chat and template.writes(_WITH_SYSTEM[:1]) is None:
        chat = [{"role": "user", "content": system}]
    elif system:
        chat = _with_system(system, chat, template)
    own = plain_tools(prompt.tools.copy() if prompt.tools.names else None)
    texts = [*prompt.instruction.parts[1::2], *prompt.user.parts[1::2], prompt.input or "", *texts_in(past), *own.texts]
    placed = [map_texts(message, partial(_placed, at)) for at, message in enumerate(_in_parts(chat, template))]
    return Prompted(placed, own.data, texts, [*prompt.instruction.parts[::2], *prompt.user.parts[::2]])


def _text(parts: Sequence[str], slots: Sequence[str]) -> Traced:
    """A text made of trusted and untrusted parts in turn."""
    runs = [
        (len(part), Origin(slot, trusted=is_trusted(at, part)))
        for at, (part, slot) in enumerate(zip(parts, slots, strict=True))
    ]
    return Traced("".join(parts), runs)


def _traced(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the history."""
    return {name: value if name == "role" else trace(value, Origin("history")) for name, value in message.items()}


def _placed(at: int, text: Traced) -> Traced:
    """Return a text of the message at an index."""
    return map_origins(text, lambda origin: origin._replace(message=at))


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


def _in_parts(chat: list[dict[str, Any]], template: ChatJinja) -> list[dict[str, Any]]:
    """A chat whose contents are parts, where the template shows nothing else."""
    if template.shows_text or not template.shows_parts:
        return chat
    return [
        {**message, "content": [{"type": "text", "text": content}]}
        if isinstance(content := message.get("content"), str)
        else message
        for message in chat
    ]
