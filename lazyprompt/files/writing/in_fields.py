"""What other dialects say in their text, and Prompty v2 in its front matter: tools, threads and media.

Tools before the text become tools of the front matter, a section of a thread is its slot alone, and a medium in
Markdown becomes an input. All lines stay where they are, so that whoever reads on names those of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.dialects.agent_schema import AGENT_ROLES, medium_named
from lazyprompt.files.dialects.prompty_v1 import V1_ROLES
from lazyprompt.files.dialects.translation import Note, Translated, written
from lazyprompt.files.properties import FIELDS_OF_PROPERTY, RICH
from lazyprompt.files.roles import attributes_in, role_lines
from lazyprompt.files.scanned import Scanned
from lazyprompt.files.yaml_nodes import Node, Reader

if TYPE_CHECKING:
    from collections.abc import Collection

    from lazyprompt._base.json import Json
    from lazyprompt.files.writing.original import OriginalText

MEDIUM: Final = re.compile(r"!\[([^\[\]\n]*)\]\(([^()\n]*)\)")
"""A medium in Markdown: what stands in the brackets, and the address, which may be a slot."""

_ROLES: Final = {"agentschema": AGENT_ROLES, "v1": V1_ROLES}
_SLOT: Final = re.compile(r"\{\{-?\s*([^\W\d]\w*)\s*-?\}\}")
_TAG: Final = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_RENAMED: Final = {"id": "name", "type": "kind"}


def in_fields(original: OriginalText) -> Translated:
    """A file whose text is said by fields where Prompty v2 does so.

    Args:
        original: The file.

    Raises:
        FormatError: It has turns of tools, which Prompty v2 has not, or its tools are none; the message has the place.
    """
    given, dialect = original.in_v2, original.prompty.dialect
    if dialect not in _ROLES:
        return given
    making = _Making(original)
    body = making.with_inputs(making.without_sections(given.body))
    return Translated(making.fields, body, tuple(sorted(making.notes)))


def medium_in(match: re.Match[str], dialect: str) -> tuple[str, dict[str, Json]] | None:
    """Of which kind a medium is, and what else is said of it; None where Markdown is text.

    Args:
        match: A match of :data:`MEDIUM`.
        dialect: The dialect of the file: in the first version all are pictures.
    """
    if dialect == "v1":
        return ("image", {}) if match[2].strip() else None
    return medium_named(match[1].strip())


class _Making:
    """The fields that are made, and the notes on them."""

    def __init__(self, original: OriginalText) -> None:
        self._original = original
        self._dialect = original.prompty.dialect
        self.fields = dict(original.in_v2.fields)
        self.notes = list(original.in_v2.notes)
        self._place = next(iter(self.fields.values()), Node(None, 0, 0))

    def _note(self, body: str, at: int, text: str) -> None:
        self.notes.append(Note(*self._original.place(body, at), text))

    def without_sections(self, body: str) -> str:
        """A body without the sections that Prompty v2 has not."""
        matches = [*role_lines(Scanned([body]), _ROLES[self._dialect])]
        ends = [match.start() for match in matches[1:]] + [len(body)]
        kept = [body[: matches[0].start()] if matches else body]
        for match, end in zip(matches, ends, strict=False):
            line, role = match[0], match["role"].lower()
            if role == "thread" and not _TAG.search(body, match.end(), end):
                raise self._original.fault(
                    body,
                    match.start(),
                    f"{line.strip()!r}: Prompty v2 has no section for the history; declare an input of the kind thread "
                    "and write its slot",
                )
            if role in ("tool", "function") or attributes_in(match["attributes"] or "").get("type") == "tool_call":
                raise self._original.fault(
                    body,
                    match.start(),
                    f"{line.strip()!r}: Prompty v2 has no turns of tools; make the conversation an input of the kind "
                    "thread, and give it with them",
                )
            gone = {"tools": body[match.start() : end], "thread": line}.get(role, "")
            if gone and match["attributes"]:
                self._note(body, match.start(), f"{match['attributes']} of {role} is left out: v2 has no such section")
            if role == "tools":
                self._take_tools(body, match.start(), match.end(), end)
            kept += ("\n" * gone.count("\n"), body[match.start() + len(gone) : end])
        return "".join(kept)

    def _take_tools(self, body: str, line: int, begin: int, end: int) -> None:
        """Put the tools of a section to those of the front matter."""
        if _TAG.search(body, begin, end):
            self._note(body, line, "these tools are left out: in those of v2 there are no values; write them out")
            return
        source, own = self._original.source, self._original.offset
        try:
            node = Reader(source, own(body, begin), own(body, end)).read()
        except PromptFileError as error:
            raise FormatError(str(error)) from error
        listed = self.fields.get("tools")
        made = [] if listed is None else listed.value
        found = [] if node is None else node.value
        if not isinstance(made, list) or not isinstance(found, list):
            raise self._original.fault(body, line, "tools of the text, and those beside them, are lists of tools")
        tools = [*made]
        for item in found:
            if not isinstance(item.value, dict):
                raise self._original.fault(body, line, f"{item.value!r} is no tool; each of them is a mapping")
            renamed = {_RENAMED.get(key, key): value for key, value in item.value.items()}
            tools.append(item._replace(value=renamed))
            if renamed.keys() != item.value.keys():
                self._note(body, line, f"{', '.join(item.value)} of a tool are {', '.join(renamed)} in v2")
        self.fields["tools"] = written(tools, listed or self._place)

    def with_inputs(self, body: str) -> str:
        """A body with slots where media were; the inputs for them are put to the fields."""
        found = [(match, medium) for match in MEDIUM.finditer(body) if (medium := medium_in(match, self._dialect))]
        names = [slot[1] for match, _ in found if (slot := _SLOT.fullmatch(match[2].strip()))]
        uses = Counter(re.findall(r"\w+", " ".join(_TAG.findall(body))))
        # One that is used otherwise too, in a loop or as text, would be another value there.
        slots = {name for name, times in Counter(names).items() if uses[name] == times}
        kept: list[str] = []
        end = 0
        for match, (kind, attributes) in found:
            name = self._input(kind, match[2].strip(), slots, uses)
            if name is None:
                self._note(body, match.start(), f"{match[0]} shows nothing in v2: it stays text")
                continue
            for key in attributes:
                self._note(body, match.start(), f"{key} of {match[0]} is left out: an input has no such field")
            kept += (body[end : match.start()], f"{{{{ {name} }}}}")
            end = match.end()
        return "".join((*kept, body[end:]))

    def _input(self, kind: str, address: str, slots: Collection[str], used: Collection[str]) -> str | None:
        """The input that shows a medium; None where none can."""
        slot = _SLOT.fullmatch(address)
        if kind not in RICH or (slot[1] not in slots if slot else "{" in address or not address):
            return None
        fields = {"kind": written(kind, self._place)}
        if slot:
            name = slot[1]
        else:
            fields["default"] = written(address, self._place)
            free = (f"{kind}{number}" if number > 1 else kind for number in count(1))
            taken = {*used, *self._names()}
            name = next(each for each in free if each not in taken)
        self.fields["inputs"] = _with_input(self.fields.get("inputs"), name, fields, self._place)
        return name

    def _names(self) -> set[str]:
        """The names of the inputs."""
        given = self.fields.get("inputs", self._place).value
        if isinstance(given, list):
            named = [item.value.get("name") for item in given if isinstance(item.value, dict)]
            return {str(name.value) for name in named if name is not None}
        return set(given) if isinstance(given, dict) else set()


def _with_input(inputs: Node | None, name: str, fields: dict[str, Node], place: Node) -> Node:
    """Inputs, as a list or by their names, with one more, or with other fields of one."""
    given = None if inputs is None else inputs.value
    if isinstance(given, list):
        called = {"name": written(name, place)}
        items = [
            item._replace(value={**item.value, **fields})
            if isinstance(item.value, dict) and "name" in item.value and item.value["name"].value == name
            else item
            for item in given
        ]
        return written(items if items != given else [*given, written({**called, **fields}, place)], inputs or place)
    by_name = given if isinstance(given, dict) else {}
    own = by_name.get(name)
    told = {} if own is None or own.value is None else {"default": own}
    if own is not None and isinstance(own.value, dict) and own.value.keys() <= {*FIELDS_OF_PROPERTY}:
        told = own.value
    return written({**by_name, name: written({**told, **fields}, own or place)}, inputs or place)
