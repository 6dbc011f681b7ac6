"""A prompt file written as Prompty v2, or in the dialect of agent definitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.dialects.agent_schema import AGENT_ROLES
from lazyprompt.files.inputs import MEDIA
from lazyprompt.files.roles import ROLES, attributes_in, role_lines
from lazyprompt.files.scanned import Scanned
from lazyprompt.files.writing.conversion import Converted
from lazyprompt.files.yaml_nodes import Reader, Source, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._json import Json, JsonObject
    from lazyprompt.files.writing.conversion import Original

_RENAMED: Final = {"inputs": "inputSchema", "outputs": "outputSchema"}
_MEDIUM: Final = re.compile(r"!\[([^\[\]\n]*)\]\([^()\s]*\)")
_OPENS: Final = re.compile(r"\{[{%]")


def to_v2(original: Original) -> Converted:
    """A prompt file as Prompty v2.

    Args:
        original: The file.

    Raises:
        FormatError: It has turns of tools, which Prompty v2 has not; the message has the line.
    """
    fields, notes = original.fields(), original.notes
    body = original.in_v2.body
    if original.prompty.dialect == "agentschema":
        body, tools = _without_agent_sections(original, body, notes)
        if tools:
            listed = fields.get("tools") or []
            if not isinstance(listed, list):
                raise FormatError(
                    f"{original.source.name}: tools are a mapping, beside those of the text; make them a list"
                )
            fields["tools"] = [*listed, *tools]
    if original.prompty.dialect in ("agentschema", "v1"):
        notes += [
            f"{line}: {found} shows nothing in v2: it stays text"
            for line, found in _media(original, original.parts.body)
        ]
    if original.prompty.dialect == "dotprompt":
        notes.append("the template is Handlebars still, which Prompty v2 knows only here")
    return Converted(original.rewritten(fields, body), tuple(notes))


def to_agentschema(original: Original) -> Converted:
    """A prompt file in the dialect of agent definitions.

    Args:
        original: The file.

    Raises:
        FormatError: A line that is text in it names a role there; the message has the line.
    """
    fields, notes = original.fields(), original.notes
    body = original.in_v2.body
    for match in role_lines(Scanned([body]), AGENT_ROLES):
        if match["role"].lower() not in ROLES:
            raise FormatError(
                f"{original.place(body, match.start())}: {match[0].strip()!r} is text in this file, and would "
                "begin a section of an agent definition; write more on the line"
            )
    made: dict[str, Json] = {}
    for name, value in fields.items():
        made[_RENAMED.get(name, name)] = {"properties": value} if name in _RENAMED else value
    notes += [f"{line}: {found} was text, and is shown there" for line, found in _media(original, original.parts.body)]
    return Converted(original.rewritten(made, body), tuple(notes))


def _media(original: Original, body: str) -> Iterator[tuple[str, str]]:
    """What Markdown shows in a body, with its line."""
    for match in _MEDIUM.finditer(body):
        label = match[1].strip()
        if label in MEDIA or attributes_in(label).get("type") in MEDIA or original.prompty.dialect == "v1":
            yield original.place(body, match.start()), match[0]


def _without_agent_sections(original: Original, body: str, notes: list[str]) -> tuple[str, list[JsonObject]]:
    """A body without the sections that only agent definitions have, and the tools that it named."""
    kept: list[str] = []
    tools: list[JsonObject] = []
    begin, role = 0, ""
    calls = False
    for match in role_lines(Scanned([body]), AGENT_ROLES):
        if calls and match[0].strip() == "function:":
            continue
        calls = attributes_in(match["attributes"] or "").get("type") == "tool_call"
        place = original.place(body, match.start())
        kept += _section(original, role, body[begin : match.start()], tools, notes)
        role, begin = match["role"].lower(), match.end()
        if role in ("tool", "function") or calls:
            raise FormatError(
                f"{place}: {match[0].strip()!r}: Prompty v2 has no turns of tools; make the conversation an input of "
                "the kind thread, and give it with them"
            )
        if role not in ("tools", "thread"):
            kept.append(match[0])
        elif match["attributes"]:
            notes.append(f"{place}: {match['attributes']} of {role} is left out: v2 has no such section")
    kept += _section(original, role, body[begin:], tools, notes)
    return "".join(kept), tools


def _section(original: Original, role: str, text: str, tools: list[JsonObject], notes: list[str]) -> list[str]:
    """What is kept of a section; its tools go to the others."""
    if role != "tools":
        return [text]
    if _OPENS.search(text):
        raise FormatError(
            f"{original.source.name}: the tools before the text have values in them, and those of Prompty v2 have "
            "none: write the tools out"
        )
    try:
        node = Reader(Source(text, f"{original.source.name}, tools")).read()
    except PromptFileError as error:
        raise FormatError(str(error)) from error
    items = cast("Json", [] if node is None else plain(node))
    for item in items if isinstance(items, list) else [items]:
        if not isinstance(item, dict):
            raise FormatError(f"{original.source.name}, tools: {item!r} is no tool; each of them is a mapping")
        renamed: JsonObject = {{"id": "name", "type": "kind"}.get(key, key): value for key, value in item.items()}
        if renamed.keys() != item.keys():
            notes.append(f"tools: {', '.join(item)} of {renamed.get('name')!r} is {', '.join(renamed)} in v2")
        tools.append(renamed)
    return []
