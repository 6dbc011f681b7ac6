"""The AgentSchema dialect: agent definitions with tool sections, tool calls as turns, and media links in Markdown.

Source: the prompt section of the AgentSchema specification.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import PromptFileError
from lazyprompt.files.properties import MEDIA, Thread
from lazyprompt.files.roles import ROLES, Section, attributes_in
from lazyprompt.files.spec import DialectFile, Translated
from lazyprompt.files.turns import (
    CallItem,
    MediaItem,
    Step,
    TextItem,
    Turn,
    attributes_without_type,
    result_turn,
    steps_of,
    steps_with_media,
)
from lazyprompt.files.yaml_nodes import SourceText, YamlReader, plain
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt._base.json import Json, JsonObject


AGENT_ROLES: Final = (*ROLES, "function", "tool", "tools", "thread")
"""The role names that begin a section."""


def agent_steps(sections: Sequence[Section]) -> Iterator[Step]:
    """Yield an agent definition's turns and threads (inserted message lists); skip ``tools`` sections.

    Args:
        sections: The sections of the filled template.

    Raises:
        PromptFileError: A tool call isn't valid YAML.
    """
    for section in sections:
        if section.role == "tools":
            continue
        if section.role == "thread":
            yield from _threads(section)
        elif section.role in ("tool", "function"):
            yield result_turn(section)
        elif section.attributes.get("type") == "tool_call":
            yield Turn(section.role, tuple(_calls(section)), attributes_without_type(section))
        else:
            yield from steps_with_media(section, lambda label, _: medium_named(label.strip()))


def agent_tools(sections: Sequence[Section]) -> list[JsonObject]:
    """Return the tools from an agent definition's ``tools`` sections.

    Args:
        sections: The sections of the filled template.

    Raises:
        PromptFileError: A section isn't a list of mappings.
    """
    found: list[JsonObject] = []
    for section in sections:
        if section.role != "tools":
            continue
        read = _read_yaml(section.parts, "tools")
        given = [] if read is None else read
        tools = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else None
        if tools is None or tools != given:
            raise PromptFileError("the tools section must contain a list of tools, each a mapping")
        found += tools
    return found


def _threads(section: Section) -> Iterator[Thread]:
    """Yield the threads in a ``thread`` section. A ``thread`` section without a slot marks the position of the history.

    Text and media in a ``thread`` section aren't sent, but the report lists them.
    """
    steps = [*steps_of(section)]
    items = (item for step in steps if isinstance(step, Turn) for item in step.items)
    attributes = (f"the attribute {name!r}" for name in section.attributes)
    contents = (
        f"text {item.text!r}" if isinstance(item, TextItem) else item.block.kind
        for item in items
        if isinstance(item, TextItem | MediaItem)
    )
    left_out = (*attributes, *(f"the {content} of a thread section" for content in contents))
    threads = [step for step in steps if isinstance(step, Thread)]
    # Only a thread without a name is the position of the history, so name the thread of a section with other slots.
    name = "thread" if any(isinstance(part, Value) for part in section.parts) else ""
    for thread in threads or [Thread(name, ())]:
        yield Thread(thread.name, thread.messages, left_out)
        left_out = ()


def _calls(section: Section) -> Iterator[CallItem]:
    """Yield the tool calls in a turn, written as one mapping or as a list of mappings."""
    read = _read_yaml(section.parts, f'{section.role}[type="tool_call"]')
    for call in read if isinstance(read, list) else [read]:
        if not isinstance(call, dict):
            raise PromptFileError(f"a tool_call must be a mapping with id, type and function, not {call!r}")
        yield CallItem(call)


def medium_named(label: str) -> tuple[str, dict[str, Json]] | None:
    """Parse the label of a Markdown media link into the kind of media and its attributes.

    Args:
        label: The text in brackets, such as ``image`` or ``type="image", quality="high"``.

    Returns:
        The kind and the attributes, or None if the label doesn't describe media.
    """
    attributes: dict[str, Json] = {} if label in MEDIA else attributes_in(label)
    kind = label if label in MEDIA else attributes.pop("type", None)
    return (kind, attributes) if isinstance(kind, str) and kind in MEDIA else None


def agent_fields(reading: DialectFile) -> Translated:
    """Translate ``inputSchema`` and ``outputSchema`` to ``inputs`` and ``outputs``."""
    made = dict(reading.fields)
    for old, new in (("inputSchema", "inputs"), ("outputSchema", "outputs")):
        if old in made and (properties := made.pop(old).fields.get("properties")):
            made.setdefault(new, properties)
    return Translated(made, reading.body)


def _read_yaml(parts: Sequence[str], name: str) -> Json:
    """Parse YAML that contains template values, which are inserted as text and can't add keys, items or lines."""
    own = "".join(part for part in parts if not isinstance(part, Value))
    # Replace each value with a placeholder word that YAML reads as text and that doesn't occur in the template.
    word = "slot"
    while word in own:
        word += "s"
    values = [part for part in parts if isinstance(part, Value)]
    names = (f"{word}{number}x" for number in range(len(values)))
    text = "".join(next(names) if isinstance(part, Value) else part for part in parts)
    slot = re.compile(rf"{word}(\d+)x")

    def fill(value: Json) -> Json:
        if isinstance(value, str):
            return slot.sub(lambda match: values[int(match[1])], value)
        if isinstance(value, list):
            return [*map(fill, value)]
        if not isinstance(value, dict):
            return value
        if any(map(slot.search, value)):
            raise PromptFileError(
                f"{name}: a mapping key contains an inserted value; keys must be literal text in the template"
            )
        return {key: fill(item) for key, item in value.items()}

    return fill(plain(YamlReader(SourceText(text, name)).read()))
