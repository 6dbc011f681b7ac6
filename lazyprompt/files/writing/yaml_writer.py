"""YAML editing in the style of the surrounding lines.

ruamel.yaml rewrites the lines of changed fields. The whole YAML is rewritten if fields share a line, as in
flow mappings, or if the YAML contains aliases.
"""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

from lazyprompt.errors import PromptFileError, missing_extra
from lazyprompt.files.yaml_nodes import Field, is_same, is_text, plain

try:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.resolver import VersionedResolver
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, PlainScalarString
except ImportError as error:
    raise missing_extra("ruamel.yaml", "edit") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt._base.json import Json

# A large line width prevents wrapping.
_WIDTH: Final = 1_000_000
_BREAK: Final = re.compile(r"\r\n|\r")
_LISTED: Final = re.compile(r"^( *)[^\s#-][^\n]*:[^\S\n]*\n( *)- ", re.MULTILINE)
_NESTED: Final = re.compile(r"^( *)[^\s#-][^\n]*:[^\S\n]*\n( +)[^\s#-]", re.MULTILINE)
# Matches text that a literal block (|) can express; other text requires quotes.
_LINE: Final = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*"
_BLOCK: Final = re.compile(rf"(?=[^\s])(?:{_LINE}(?<! )\n)+(?:{_LINE}(?<! ))?(?<!\n\n)")
# These characters require double quotes: ruamel.yaml turns most into line breaks, and "?" can begin a key.
_ESCAPED: Final = re.compile("[\x85\u2028\u2029?]")
_NAME: Final = "name"
# The type hints of ruamel.yaml nodes are incomplete.
_Tree: TypeAlias = Any


class _AsWritten(VersionedResolver):
    """A resolver that treats all scalars as text, because prompt files and YAML 1.2 define numbers differently."""

    def resolve(self, kind: object, value: object, implicit: object) -> object:
        own: Any = super()
        return own.resolve(kind, "text" if kind is ScalarNode else value, implicit)


class YamlWriter:
    """A YAML writer that uses the line breaks and indentation of a prompt file's front matter.

    Args:
        text: The front matter to copy the style from, or ``""`` for the default style.
        safe: The function that replaces secrets in text with references.
    """

    def __init__(self, text: str, safe: Callable[[str], str]) -> None:
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._safe = safe
        self._yaml: Any = YAML()
        self._yaml.Resolver = _AsWritten
        self._yaml.preserve_quotes = True
        self._yaml.width = _WIDTH
        plain_text = _BREAK.sub("\n", text)
        listed, nested = _LISTED.search(plain_text), _NESTED.search(plain_text)
        offset = len(listed[2]) - len(listed[1]) if listed else 2
        mapping = max(len(nested[2]) - len(nested[1]), 2) if nested else 2
        self._yaml.indent(mapping=mapping, sequence=offset + 2, offset=offset)

    def rewrite(self, text: str, fields: Mapping[str, Field], changes: Mapping[str, Json]) -> str:
        """Return YAML with changed fields, using the line breaks of the file."""
        lines = _BREAK.sub("\n", text)
        indent = " " * (len(lines) - len(lines.lstrip(" ")))
        try:
            tree: _Tree = self._yaml.load(re.sub(f"^{indent}", "", lines, flags=re.MULTILINE) if indent else lines)
        except YAMLError as error:
            fault = " ".join(str(error).split())
            raise PromptFileError(
                f"{', '.join(changes)}: this YAML can be read but not changed: {fault}; put text with special "
                "characters in quotes"
            ) from error
        tree = {} if tree is None else _without_gaps(tree)
        for name, new in changes.items():
            if new is None:
                tree.pop(name, None)
            else:
                tree[name] = self._changed(tree[name], fields[name], new) if name in fields else self._new(new)
        if not tree:
            return ""
        out = StringIO()
        self._yaml.dump(tree, out)
        return re.sub(r"^(?=[^\n])", indent, out.getvalue(), flags=re.MULTILINE).replace("\n", self._break)

    def _changed(self, tree: _Tree, field: Field, new: Json) -> _Tree:
        """Return the node for a changed value; unchanged items inside the value keep their comments."""
        seen = plain(field.seen)
        if is_same(seen, new):
            return tree
        raw, value = field.raw.value, field.seen.value
        if isinstance(raw, dict) and isinstance(value, dict) and isinstance(new, dict):
            for key in [key for key in tree if key not in new]:
                del tree[key]
            for key, item in new.items():
                known = key in raw
                tree[key if known else _key(key)] = (
                    self._changed(tree[key], Field(raw[key], value[key]), item) if known else self._new(item)
                )
            return tree
        if isinstance(raw, list) and isinstance(value, list) and isinstance(new, list):
            self._change_items(tree, [Field(*pair) for pair in zip(raw, value, strict=True)], new)
            return tree
        if isinstance(raw, str) and isinstance(value, dict | list) and _texts_in(seen) & _texts_in(new):
            raise PromptFileError(
                f"{raw} can only be replaced as a whole, because strings must not be copied from the referenced file; "
                "edit that file, or set a value that contains none of its strings"
            )
        return self._new(new)

    def _change_items(self, tree: _Tree, items: list[Field], new: list[Json]) -> None:
        """Update a YAML list to equal a new list, pairing the items of both lists by name or by index."""
        names, wanted = _pair_items([plain(item.seen) for item in items], new)
        by_name = dict(zip(names, items, strict=True))
        for index in reversed(range(len(items))):
            if names[index] not in wanted:
                del tree[index]
        for index, (name, value) in enumerate(zip(wanted, new, strict=True)):
            if name in by_name:
                tree[index] = self._changed(tree[index], by_name[name], value)
            else:
                tree.insert(index, self._new(value))

    def _new(self, value: Json) -> _Tree:
        """Return the node for a new value."""
        if isinstance(value, str):
            text = self._safe(value)
            return LiteralScalarString(text) if _BLOCK.fullmatch(text) else _key(text)
        if isinstance(value, list):
            return [self._new(item) for item in value]
        if isinstance(value, dict):
            return {_key(key): self._new(item) for key, item in value.items()}
        # The resolver treats every scalar as text, so convert numbers, booleans and null to unquoted scalars here.
        return PlainScalarString(json.dumps(value))


def _key(text: str) -> _Tree:
    """Return a one-line scalar, in quotes if a parser could read the text as another type."""
    # ruamel.yaml writes a plain str with the quotes of the scalar that it replaces, so use explicit scalar classes.
    return PlainScalarString(text) if is_text(text) and not _is_odd(text) else DoubleQuotedScalarString(text)


def _is_odd(text: str) -> bool:
    """Return True if another YAML parser could read the unquoted text as a date, a boolean or a key."""
    readings = yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ())
    return _ESCAPED.search(text) is not None or any(pattern.match(text) for _, pattern in readings)


def _without_gaps(tree: _Tree) -> _Tree:
    """Replace empty values with null, because they would become empty text in flow mappings."""
    items: Any = tree.items() if hasattr(tree, "items") else enumerate(tree)
    for key, item in items:
        if isinstance(item, dict | list):
            _without_gaps(item)
        elif type(item) is str and not item:
            tree[key] = "null"
    return tree


def _pair_items(old: Sequence[Json], new: Sequence[Json]) -> tuple[Sequence[str | int], Sequence[str | int]]:
    """Return the keys of the old list items and of the new list items; items with equal keys form a pair.

    The keys are the items' names if the names are unique and the names in both lists have the same order, or else the
    items' indexes.
    """
    names, wanted = ([item.get(_NAME) if isinstance(item, dict) else None for item in each] for each in (old, new))
    own, asked = ([name for name in each if isinstance(name, str)] for each in (names, wanted))
    named = len({*own}) == len(names) and len({*asked}) == len(wanted)
    if named and [each for each in own if each in asked] == [each for each in asked if each in own]:
        return own, asked
    return [*range(len(old))], [*range(len(new))]


def _texts_in(value: Json) -> set[str]:
    """Return all strings in a value."""
    if isinstance(value, str):
        return {value}
    within: Iterable[Json] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set[str]().union(*map(_texts_in, within))
