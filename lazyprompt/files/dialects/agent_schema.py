"""The dialect of agent definitions: tools before the text, calls and results as turns, media in Markdown.

Source: the prompt section of the specification of agent definitions (AgentSchema).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from lazyprompt.errors import PromptFileError
from lazyprompt.files.inputs import MEDIA, Thread
from lazyprompt.files.roles import ROLES, Scanned, attributes_in
from lazyprompt.files.turns import Called, Returned, Said, Shown, Turn, said, steps_of
from lazyprompt.files.yaml_nodes import Reader, Source, plain
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.roles import Section
    from lazyprompt.files.turns import Item, Step


def slotted_yaml(parts: Sequence[str], name: str) -> Json:
    """Read YAML.

    Args:
        parts: The template's own text, and values.
        name: How errors call it.

    Returns:
        What it says. A value is text in its place: it adds no key, no item and no line.

    Raises:
        PromptFileError: It is no YAML, or a value stands in the place of a key.
    """
    own = "".join(part for part in parts if not isinstance(part, Value))
    # A word that is not in the text stands for each value, and is text wherever it stands.
    word = "slot"
    while word in own:
        word += "s"
    values: dict[str, str] = {}
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, Value):
            sign = f"{word}{len(values)}x"
            values[sign] = part
            pieces.append(sign)
        else:
            pieces.append(part)
    read = plain(Reader(Source("".join(pieces), name)).read())
    return _filled(read, re.compile(rf"{word}\d+x"), values, name)


def _filled(value: Json, sign: re.Pattern[str], values: Mapping[str, str], name: str) -> Json:
    if isinstance(value, str):
        return sign.sub(lambda match: values[match[0]], value)
    if isinstance(value, list):
        return [_filled(item, sign, values, name) for item in value]
    if isinstance(value, dict):
        for key in value:
            if sign.search(key):
                raise PromptFileError(f"{name}: a value stands in the place of a key; keys are the template's own")
        return {key: _filled(item, sign, values, name) for key, item in value.items()}
    return value


AGENT_ROLES: Final = (*ROLES, "function", "tool", "tools", "thread")
"""The names that begin a section."""

# Neither part holds a bracket of its own, so that no text takes long to search.
_MEDIUM = re.compile(r"!\[([^\[\]\n]*)\]\(([^()\s]*)\)")


def agent_steps(sections: Sequence[Section]) -> Iterator[Step]:
    """The turns of an agent definition; its tools are not among them.

    Args:
        sections: The sections of the filled template.

    Yields:
        Turns and threads.

    Raises:
        PromptFileError: A call is no YAML.
    """
    for section in sections:
        if section.role == "tools":
            continue
        if section.role == "thread":
            yield from _threads(section)
        elif section.role in ("tool", "function"):
            yield result_turn(section)
        elif section.attributes.get("type") == "tool_call":
            attributes = {key: value for key, value in section.attributes.items() if key != "type"}
            yield Turn(section.role, tuple(_calls(section)), attributes)
        else:
            yield from steps_with_media(section, _medium)


def agent_tools(sections: Sequence[Section]) -> list[JsonObject]:
    """The tools that an agent definition names before its text.

    Args:
        sections: The sections of the filled template.

    Raises:
        PromptFileError: They are no list of mappings.
    """
    found: list[JsonObject] = []
    for section in sections:
        if section.role != "tools":
            continue
        read = slotted_yaml(section.parts, "tools")
        if read is None:
            continue
        if not isinstance(read, list) or not all(isinstance(each, dict) for each in read):
            raise PromptFileError("tools: this section is a list of tools, each of them a mapping")
        found += cast("list[JsonObject]", read)
    return found


def _threads(section: Section) -> Iterator[Thread]:
    """Find the threads of a ``thread`` section; one without a slot holds the place of the history.

    Text in it stands for the messages: it is sent nowhere, and the report tells of it.
    """
    steps = [*steps_of(section)]
    items = (item for step in steps if isinstance(step, Turn) for item in step.items)
    texts = (f"the text {item.text!r} of a thread section" for item in items if isinstance(item, Said))
    left_out = (*(f"the attribute {name!r}" for name in section.attributes), *texts)
    threads = [step for step in steps if isinstance(step, Thread)]
    # The slot of a thread that is not given is a value with nothing in it.
    if not threads and any(isinstance(part, Value) for part in section.parts):
        return
    for thread in threads or [Thread("", ())]:
        yield Thread(thread.name, thread.messages, left_out)
        left_out = ()


def _calls(section: Section) -> Iterator[Called]:
    """The calls that a turn makes: one mapping, or a list of them."""
    read: Json = slotted_yaml(section.parts, f'{section.role}[type="tool_call"]')
    for call in read if isinstance(read, list) else [read]:
        if not isinstance(call, dict):
            raise PromptFileError(f"a tool_call is a mapping: id, type, function; not {call!r}")
        yield Called(call)


def result_turn(section: Section) -> Turn:
    """The turn of a section that holds what a tool gave back."""
    attributes = {key: value for key, value in section.attributes.items() if key != "type"}
    items = [item for item in said(section.parts) if isinstance(item, Said)]
    return Turn("tool", (Returned(items[0] if items else Said(())),), attributes)


def steps_with_media(section: Section, medium: Callable[[re.Match[str], Scanned], Shown | None]) -> Iterator[Step]:
    """The steps of a section, with the media that its own text has in Markdown; what is in a value is text.

    Args:
        section: The section.
        medium: What is shown for a match (the words in brackets, the address) in a filled text; None where it is text.

    Yields:
        Turns and threads.
    """
    for step in steps_of(section):
        yield step if isinstance(step, Thread) else replace(step, items=tuple(_with_media(step, medium)))


def _with_media(turn: Turn, medium: Callable[[re.Match[str], Scanned], Shown | None]) -> Iterator[Item]:
    for item in turn.items:
        if not isinstance(item, Said):
            yield item
            continue
        filled = Scanned(item.parts)
        if "](" not in filled.text:
            yield item
            continue
        end = 0
        for match in _MEDIUM.finditer(filled.text):
            shown = medium(match, filled)
            if shown is not None:
                yield from said(filled.between(end, match.start()))
                yield shown
                end = match.end()
        yield from said(filled.between(end, len(filled.text)))


def medium_named(label: str) -> tuple[str, dict[str, Json]] | None:
    """Of which kind the medium is that stands behind some words in brackets, and what else they say of it.

    Args:
        label: The words: ``image``, or ``type="image", quality="high"``.

    Returns:
        The kind and the attributes; None where they name no medium, as in any other Markdown.
    """
    attributes: dict[str, Json] = {} if label in MEDIA else attributes_in(label)
    kind = label if label in MEDIA else attributes.pop("type", None)
    return (kind, attributes) if isinstance(kind, str) and kind in MEDIA else None


def _medium(match: re.Match[str], filled: Scanned) -> Shown | None:
    """What is shown; None where it is text."""
    named = medium_named(match[1].strip())
    if named is None:
        return None
    kind, attributes = named
    address = "".join(filled.between(*match.span(2)))
    return Shown(MEDIA[kind](source_of(address)), attributes)
