"""Conversion of prompt files to Prompty v2, with references kept as written.

Tools in the body move to the front matter, a thread section becomes a slot, and a media link becomes an input. Removed
lines are left blank, so that line numbers in errors match the original file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.dialects.agentschema import AGENT_ROLES, medium_named
from lazyprompt.files.dialects.dialects import dialect_named
from lazyprompt.files.dialects.prompty_v1 import V1_ROLES
from lazyprompt.files.loaded_prompty import LoadedPrompty, name_of
from lazyprompt.files.properties import FIELDS_OF_PROPERTY, RICH
from lazyprompt.files.roles import Scanned, attributes_in, role_lines
from lazyprompt.files.spec import DialectFile, Note, Translated
from lazyprompt.files.writing.rewriting import assemble
from lazyprompt.files.yaml_nodes import Field, Node, Parts, SourceText, YamlReader, split, to_node

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lazyprompt._base.json import Json


MEDIUM: Final = re.compile(r"!\[([^\[\]\n]*)\]\(([^()\n]*)\)")
"""A Markdown media link with its label and its URL, which may be a slot."""

_ROLES: Final = {"agentschema": AGENT_ROLES, "v1": V1_ROLES}
_SLOT: Final = re.compile(r"\{\{-?\s*([^\W\d]\w*)\s*-?\}\}")
_TAG: Final = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_RENAMED: Final = {"id": "name", "type": "kind"}


class Converted(NamedTuple):
    """A converted prompt file.

    Attributes:
        text: The text in the new dialect.
        notes: Descriptions of the parts that the dialect can't express or expresses differently.
    """

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Original:
    """A prompt file to convert.

    Args:
        prompty: The file to convert.
    """

    prompty: LoadedPrompty

    @cached_property
    def source(self) -> SourceText:
        """The file's text."""
        return SourceText(self.prompty.text, name_of(self.prompty))

    @cached_property
    def parts(self) -> Parts:
        """The front matter with unresolved references, and the body."""
        return split(self.source)

    @cached_property
    def in_v2(self) -> Translated:
        """The prompt file with its front matter translated to Prompty v2 and the sections of its body unchanged.

        Raises:
            FormatError: The translation requires the value of a reference, such as ``${env:NAME}``, that is not
                resolved.
        """
        # Don't resolve environment variables, because their values would be written to the converted file.
        references = replace(self.prompty.references, environment={})
        reading = DialectFile(self.source, dict(self.parts.fields or {}), self.parts.body, references)
        try:
            return dialect_named(self.prompty.dialect).read(reading)
        except PromptFileError as error:
            raise FormatError(
                f"{error}\nTo convert this file, replace that reference with its value: references are not resolved, "
                "so that no secret is written"
            ) from error

    def place(self, body: str, at: int) -> tuple[int, int]:
        """Convert an index in the body to a line and column in the file.

        Edits must not have changed the number of lines in the body.
        """
        line = self.source.place(self.parts.body_at)[0] + body.count("\n", 0, at)
        return line, at - body.rfind("\n", 0, at)

    def fault(self, body: str, at: int, what: str) -> FormatError:
        """Create an error that states the line and column of an index in the body; see :meth:`place`."""
        line, column = self.place(body, at)
        return FormatError(f"{self.source.name}:{line}:{column}: {what}")

    def offset(self, body: str, at: int) -> int:
        """Convert an index in the body to an index in the file, which may have CRLF line endings."""
        return self.parts.body_at + at + (body.count("\n", 0, at) if "\r\n" in self.source.text else 0)

    def rewrite(self, fields: Mapping[str, Json], body: str) -> str:
        """Return the file's text with new fields and a new body; unchanged parts are kept as written.

        Args:
            fields: All fields of the new front matter, by name.
            body: The new body, with LF line endings.
        """
        raw = self.parts.fields or {}
        gone: dict[str, Json] = {name: None for name in raw if name not in fields}
        own = {name: Field(node, node) for name, node in raw.items()}
        if body == self.parts.body:
            body = self.source.text[self.parts.body_at :]
        elif "\r\n" in self.source.text:
            body = body.replace("\n", "\r\n")
        return assemble(self.source, self.parts, own, {**fields, **gone}, body)

    @cached_property
    def as_v2(self) -> Translated:
        """The front matter and body in Prompty v2.

        Raises:
            FormatError: The file contains tool turns, which Prompty v2 doesn't support, or invalid tools. The message
                contains the position.
        """
        making = _V2Conversion(self)
        body = making.with_inputs(making.without_sections(self.in_v2.body))
        return Translated(making.fields, body, tuple(sorted(making.notes)))


def medium_in(match: re.Match[str], dialect: str) -> tuple[str, dict[str, Json]] | None:
    """Return the kind and attributes of a Markdown media link, or None if the link stays text.

    Args:
        match: A match of the pattern :data:`MEDIUM`, whose groups are the link's label and address.
        dialect: The prompt file's dialect; in Prompty v1 files, every media link is an image.
    """
    if dialect == "v1":
        return ("image", {}) if match[2].strip() else None
    return medium_named(match[1].strip())


class _V2Conversion:
    """The conversion of one file to Prompty v2, with the new fields and the notes."""

    def __init__(self, original: Original) -> None:
        self._original = original
        self._dialect = original.prompty.dialect
        self.fields = dict(original.in_v2.fields)
        self.notes = list(original.in_v2.notes)
        self._place = next(iter(self.fields.values()), Node(None, 0, 0))

    def _note(self, body: str, at: int, text: str) -> None:
        self.notes.append(Note(*self._original.place(body, at), text))

    def without_sections(self, body: str) -> str:
        """Return the body without the sections that Prompty v2 doesn't support."""
        matches = [*role_lines(Scanned([body]), _ROLES[self._dialect])]
        ends = [match.start() for match in matches[1:]] + [len(body)]
        kept = [body[: matches[0].start()] if matches else body]
        for match, end in zip(matches, ends, strict=False):
            begin, line, role, attributes = match.start(), match[0], match["role"].lower(), match["attributes"] or ""
            fault = ""
            if role == "thread" and not _TAG.search(body, match.end(), end):
                fault = "history sections; declare an input of kind thread and use its slot"
            elif role in ("tool", "function") or attributes_in(attributes).get("type") == "tool_call":
                fault = "tool turns; make the conversation an input of kind thread, and pass the tool turns in it"
            if fault:
                raise self._original.fault(body, begin, f"{line.strip()!r}: Prompty v2 doesn't support {fault}")
            gone = {"tools": body[begin:end], "thread": line}.get(role, "")
            if gone and attributes:
                self._note(body, begin, f"{attributes} of {role} is dropped: v2 has no such section")
            if role == "tools":
                self._take_tools(body, begin, match.end(), end)
            kept += ("\n" * gone.count("\n"), body[begin + len(gone) : end])
        return "".join(kept)

    def _take_tools(self, body: str, line: int, begin: int, end: int) -> None:
        """Move the tools in a section to the front matter."""
        if _TAG.search(body, begin, end):
            self._note(body, line, "these tools are dropped: tools in v2 can't contain values; write the values out")
            return
        source, own = self._original.source, self._original.offset
        try:
            node = YamlReader(source, own(body, begin), own(body, end)).read()
        except PromptFileError as error:
            raise FormatError(str(error)) from error
        listed = self.fields.get("tools")
        made = [] if listed is None else listed.value
        found = [] if node is None else node.value
        if not isinstance(made, list) or not isinstance(found, list):
            what = "the tools in the text and the tools in the front matter must both be lists"
            raise self._original.fault(body, line, what)
        tools = [*made]
        for item in found:
            if not isinstance(item.value, dict):
                raise self._original.fault(body, line, f"a tool must be a mapping, not {item.value!r}")
            renamed = {_RENAMED.get(key, key): value for key, value in item.value.items()}
            tools.append(item._replace(value=renamed))
            if renamed.keys() != item.value.keys():
                self._note(body, line, f"{', '.join(item.value)} of a tool become {', '.join(renamed)} in v2")
        self.fields["tools"] = to_node(tools, listed or self._place)

    def with_inputs(self, body: str) -> str:
        """Replace media links in the body with slots, and add an input for each slot."""
        found = [(match, medium) for match in MEDIUM.finditer(body) if (medium := medium_in(match, self._dialect))]
        names = [slot[1] for match, _ in found if (slot := _SLOT.fullmatch(match[2].strip()))]
        uses = Counter(re.findall(r"\w+", " ".join(_TAG.findall(body))))
        # A slot can't become a media input if a loop or other text also uses the slot.
        slots = {name for name, times in Counter(names).items() if uses[name] == times}
        kept: list[str] = []
        end = 0
        for match, (kind, attributes) in found:
            name = self._input(kind, match[2].strip(), slots, uses)
            if name is None:
                self._note(body, match.start(), f"{match[0]} has no equivalent in v2: it stays text")
                continue
            for key in attributes:
                self._note(body, match.start(), f"{key} of {match[0]} is dropped: inputs have no such field")
            kept += (body[end : match.start()], f"{{{{ {name} }}}}")
            end = match.end()
        return "".join((*kept, body[end:]))

    def _input(self, kind: str, address: str, slots: Collection[str], used: Collection[str]) -> str | None:
        """Add an input for a media link and return the input's name, or None if the link can't become an input."""
        slot = _SLOT.fullmatch(address)
        if kind not in RICH or (slot[1] not in slots if slot else "{" in address or not address):
            return None
        fields = {"kind": to_node(kind, self._place)}
        if slot:
            name = slot[1]
        else:
            fields["default"] = to_node(address, self._place)
            free = (f"{kind}{number}" if number > 1 else kind for number in count(1))
            taken = {*used, *dict(self.fields["inputs"].named if "inputs" in self.fields else ())}
            name = next(each for each in free if each not in taken)
        self.fields["inputs"] = _with_input(self.fields.get("inputs"), name, fields, self._place)
        return name


def _with_input(inputs: Node | None, name: str, fields: dict[str, Node], place: Node) -> Node:
    """Return the inputs with one input added or changed; a list stays a list, and a mapping stays a mapping."""
    given = None if inputs is None else inputs.value
    if isinstance(given, list):
        items = [
            item._replace(value={**item.value, **fields})
            if isinstance(item.value, dict) and "name" in item.value and item.value["name"].value == name
            else item
            for item in given
        ]
        if items == given:
            items.append(to_node({"name": to_node(name, place), **fields}, place))
        return to_node(items, inputs or place)
    by_name = given if isinstance(given, dict) else {}
    own = by_name.get(name)
    old = {} if own is None or own.value is None else {"default": own}
    if own is not None and isinstance(own.value, dict) and own.value.keys() <= {*FIELDS_OF_PROPERTY}:
        old = own.value
    return to_node({**by_name, name: to_node({**old, **fields}, own or place)}, inputs or place)
