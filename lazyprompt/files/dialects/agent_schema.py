"""The dialect of agent definitions: tools before the text, calls and results as turns, media in Markdown.

Source: the prompt section of the specification of agent definitions (AgentSchema).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from lazyprompt.errors import PromptFileError
from lazyprompt.files.inputs import MEDIA, Thread
from lazyprompt.files.roles import ROLES, Scanned, attributes_in
from lazyprompt.files.turns import Called, Returned, Shown, TextItem, Turn, steps_of, text_items
from lazyprompt.files.yaml_nodes import Reader, Source, plain
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.roles import Section
    from lazyprompt.files.turns import Item, Step


def _read_yaml(parts: Sequence[str], name: str) -> Json:
    """Read YAML in which a value is text in its place: it adds no key, no item and no line."""
    own = "".join(part for part in parts if not isinstance(part, Value))
    # A word that is not in the text stands for each value, and is text wherever it stands.
    word = "slot"
    while word in own:
        word += "s"
    values = [part for part in parts if isinstance(part, Value)]
    names = (f"{word}{number}x" for number in range(len(values)))
    text = "".join(next(names) if isinstance(part, Value) else part for part in parts)
    slot = re.compile(rf"{word}(\d+)x")

    def filled(value: Json) -> Json:
        if isinstance(value, str):
            return slot.sub(lambda match: values[int(match[1])], value)
        if isinstance(value, list):
            return [*map(filled, value)]
        if not isinstance(value, dict):
            return value
        if any(map(slot.search, value)):
            raise PromptFileError(f"{name}: a value stands in the place of a key; keys are the template's own")
        return {key: filled(item) for key, item in value.items()}

    return filled(plain(Reader(Source(text, name)).read()))


AGENT_ROLES: Final = (*ROLES, "function", "tool", "tools", "thread")
"""The names that begin a section."""

# Neither part holds a bracket of its own, so that no text takes long to search.
_MEDIUM = re.compile(r"!\[([^\[\]\n]*)\]\(([^()\s]*)\)")


def agent_steps(sections: Sequence[Section]) -> Iterator[Step]:
    """Find the turns of an agent definition; its tools are not among them.

    Args:
        sections: The sections of the filled template.

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
            yield Turn(section.role, tuple(_calls(section)), _untyped(section))
        else:
            yield from steps_with_media(section, lambda label, _: medium_named(label.strip()))


def agent_tools(sections: Sequence[Section]) -> list[JsonObject]:
    """Return the tools that an agent definition names before its text.

    Args:
        sections: The sections of the filled template.

    Raises:
        PromptFileError: They are no list of mappings.
    """
    found: list[JsonObject] = []
    for section in sections:
        if section.role != "tools":
            continue
        read = _read_yaml(section.parts, "tools")
        tools = [] if read is None else read
        if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
            raise PromptFileError("tools: this section is a list of tools, each of them a mapping")
        found += cast("list[JsonObject]", tools)
    return found


def _threads(section: Section) -> Iterator[Thread]:
    """Find the threads of a ``thread`` section; one without a slot holds the place of the history.

    Text in it stands for the messages: it is sent nowhere, and the report tells of it.
    """
    steps = [*steps_of(section)]
    items = (item for step in steps if isinstance(step, Turn) for item in step.items)
    texts = (f"the text {item.text!r} of a thread section" for item in items if isinstance(item, TextItem))
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
    read = _read_yaml(section.parts, f'{section.role}[type="tool_call"]')
    for call in read if isinstance(read, list) else [read]:
        if not isinstance(call, dict):
            raise PromptFileError(f"a tool_call is a mapping: id, type, function; not {call!r}")
        yield Called(call)


def _untyped(section: Section) -> dict[str, Json]:
    return {key: value for key, value in section.attributes.items() if key != "type"}


def result_turn(section: Section) -> Turn:
    """Return the turn of a section that holds what a tool gave back."""
    text = "".join(item.text for item in text_items(section.parts))
    return Turn("tool", (Returned(text),), _untyped(section))


_Medium: TypeAlias = "tuple[str, dict[str, Json]] | None"


def steps_with_media(section: Section, medium: Callable[[str, str], _Medium]) -> Iterator[Step]:
    """Find the steps of a section, with the media that its own text has in Markdown; what is in a value is text.

    Args:
        section: The section.
        medium: Gives the kind and the attributes of a medium, by the words in brackets and the address; None for text.
    """
    for step in steps_of(section):
        yield step if isinstance(step, Thread) else replace(step, items=tuple(_with_media(step, medium)))


def _with_media(turn: Turn, medium: Callable[[str, str], _Medium]) -> Iterator[Item]:
    for item in turn.items:
        if not isinstance(item, TextItem):
            yield item
            continue
        filled = Scanned(item.parts)
        end = 0
        for match in _MEDIUM.finditer(filled.text) if "](" in filled.text else ():
            address = "".join(filled.between(*match.span(2)))
            if named := medium(match[1], address):
                yield from text_items(filled.between(end, match.start()))
                yield Shown(MEDIA[named[0]](source_of(address)), named[1])
                end = match.end()
        yield from text_items(filled.between(end, len(filled.text))) if end else [item]


def medium_named(label: str) -> _Medium:
    """Return the kind of the medium that stands behind some words in brackets, and what else they say of it.

    Args:
        label: The words: ``image``, or ``type="image", quality="high"``.

    Returns:
        The kind and the attributes; None where they name no medium, as in any other Markdown.
    """
    attributes: dict[str, Json] = {} if label in MEDIA else attributes_in(label)
    kind = label if label in MEDIA else attributes.pop("type", None)
    return (kind, attributes) if isinstance(kind, str) and kind in MEDIA else None
