"""YAML changed field by field: what is not changed stays as it is written, with its comments and in its place.

A field that is changed is written anew, and only there the layout is ruamel.yaml's. Where fields cannot be told apart
by their lines, as within braces or where one is an alias of another, all of the YAML is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.files.yaml_nodes import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._json import Json
    from lazyprompt.files.yaml_nodes import Node

# Lines are broken where their writer breaks them.
_WIDTH: Final = 1_000_000
_LIST_INDENT = re.compile(r"^( *)(?:- )?[^\s#][^\n]*:[^\S\n]*\n( *)- ", re.MULTILINE)
_MAP_INDENT = re.compile(r"^( *)[^\s#-][^\n]*:[^\S\n]*\n( +)[^\s#-]", re.MULTILINE)
# What a block of lines (``|``) can say; all else goes into quotes.
_BLOCK = re.compile(r"(?![ \n])(?:[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\n]*(?<![ ])\n)+[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")
_NAME: Final = "name"


class Field(NamedTuple):
    """A field as it stands in a file.

    Attributes:
        raw: What is written.
        seen: The same with all references looked up.
    """

    raw: Node
    seen: Node


def edited(
    text: str, at: int, fields: Mapping[str, Field], changes: Mapping[str, Json], safe: Callable[[str], str] = str
) -> str:
    """Change fields of a mapping.

    Args:
        text: The YAML.
        at: Where it begins in the text that the places of the nodes are in.
        fields: Its fields.
        changes: What the fields are to be; None takes a field out.
        safe: What a new text is written as.

    Returns:
        The YAML with the changes. A reference stays one where what it led to is not changed.

    Raises:
        PromptFileError: A change would write out what a reference leads to.
    """
    wanted = {name: new for name, new in changes.items() if name not in fields or plain(fields[name].seen) != new}
    wanted = {name: new for name, new in wanted.items() if new is not None or name in fields}
    if not wanted:
        return text
    broken = text.replace("\r\n", "\n") != text
    if not _has_own_lines(text, at, fields):
        made = _rewritten(text.replace("\r\n", "\n"), fields, wanted, safe)
        return made.replace("\n", "\r\n") if broken else made
    for name, new in wanted.items():
        begin, end = _lines_of(text, at, fields, name)
        lines = _rewritten(_aligned(text[begin:end].replace("\r\n", "\n")), fields, {name: new}, safe)
        indent = " " * _column(text, at, fields)
        lines = "".join(indent + line if line.strip() else line for line in lines.splitlines(keepends=True))
        if begin and not text[:begin].endswith(("\n", "\r")):
            lines = f"\n{lines}"
        text, moved = text[:begin] + (lines.replace("\n", "\r\n") if broken else lines) + text[end:], end
        grown = len(text) - moved - (len(text) - begin - len(lines.replace("\n", "\r\n") if broken else lines))
        fields = _moved(fields, at + moved, grown, gone=name if new is None else None)
    return text
