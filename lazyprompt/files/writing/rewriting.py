"""Change fields of a prompt file: the rest of its text stays as it is written, with comments and references.

ruamel.yaml writes the lines of a changed field anew. If fields have no lines of their own, as within braces or if one
is an alias of another, it writes all of the YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar, cast

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, PlainScalarString

from lazyprompt._base.json import checked
from lazyprompt._base.secret import SecretText
from lazyprompt.errors import PromptFileError, did_you_mean
from lazyprompt.files.prompt_source import name_of
from lazyprompt.files.properties import Property, read_properties
from lazyprompt.files.spec import FIELDS
from lazyprompt.files.yaml_nodes import Node, Reader, Source, is_text, plain, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.prompt_source import PromptSource
    from lazyprompt.files.yaml_nodes import Parts

    AnyPrompty = TypeVar("AnyPrompty", bound=PromptSource)


# Lines are broken where their writer breaks them.
_WIDTH: Final = 1_000_000
_BREAK: Final = re.compile(r"\r\n|\r")
_LISTED: Final = re.compile(r"^( *)[^\s#-][^\n]*:[^\S\n]*\n( *)- ", re.MULTILINE)
_NESTED: Final = re.compile(r"^( *)[^\s#-][^\n]*:[^\S\n]*\n( +)[^\s#-]", re.MULTILINE)
# What lines behind a | can say; all else goes into quotes.
_LINE: Final = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*"
_BLOCK: Final = re.compile(rf"(?=[^\s])(?:{_LINE}(?<! )\n)+(?:{_LINE}(?<! ))?(?<!\n\n)")
# What ruamel.yaml writes as a break of lines, outside of double quotes; and what begins a key for some readers.
_ESCAPED: Final = re.compile("[\x85\u2028\u2029?]")
_NAME: Final = "name"
# That of the reader: the one in Python refuses what that one takes, as {a: b?, c: d}.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Field(NamedTuple):
    """A field as it stands in a file.

    Attributes:
        raw: The value as it is written.
        seen: The value with all references resolved.
    """

    raw: Node
    seen: Node


def edited(
    text: str, at: int, fields: Mapping[str, Field], changes: Mapping[str, Json], safe: Callable[[str], str] = str
) -> str:
    """Change fields of a mapping.

    Args:
        text: The YAML.
        at: Its begin in the text that the places of the fields refer to.
        fields: Its fields.
        changes: The new values of fields; None removes one.
        safe: Replaces secrets in a new text.

    Returns:
        The YAML with the changes. A reference stays one if its value is not changed.

    Raises:
        PromptFileError: A change would write out the value of a reference.
    """
    wanted = {
        name: new
        for name, new in changes.items()
        if (not _same(plain(fields[name].seen), new) if name in fields else new is not None)
    }
    if not wanted:
        return text
    writer = _Writer(text, safe)
    pieces = _pieces(text, at, fields)
    if pieces is None:
        return writer.rewritten(text, fields, wanted)
    for name, new in wanted.items():
        place = next((index for index, piece in enumerate(pieces) if piece[0] == name), None)
        if place is None:
            pieces.insert(_place(name, pieces), (name, writer.rewritten("", fields, {name: new})))
        elif new is None:
            del pieces[place]
        else:
            pieces[place] = (name, writer.rewritten(pieces[place][1], fields, {name: new}))
    return "".join(lines for _, lines in pieces)


def written(value: JsonObject) -> str:
    """Render a mapping as YAML; ``""`` if it is empty."""
    return _Writer("", str).rewritten("", {}, value)


def _pieces(text: str, at: int, fields: Mapping[str, Field]) -> list[tuple[str | None, str]] | None:
    """Divide YAML into the lines of each field, with its name, and the lines between them.

    None if a field does not begin a line of its own, or holds a value that another refers to.
    """
    if any(getattr(event, "anchor", None) for event in yaml.parse(text, Loader=_LOADER)):
        return None
    keys = [field.raw.key_at - at for field in fields.values()]
    begins = [max(text.rfind("\n", 0, key), text.rfind("\r", 0, key)) + 1 for key in keys]
    indents = {text[begin:key] for begin, key in zip(begins, keys, strict=True)}
    if len(indents) > 1 or "".join(indents).strip(" "):
        return None
    if not begins:
        return [(None, text)]
    column = len(indents.pop())
    found: list[tuple[str | None, str]] = [(None, text[: begins[0]])]
    for name, begin, end in zip(fields, begins, [*begins[1:], len(text)], strict=True):
        lines = text[begin:end].splitlines(keepends=True)
        kept = len(lines)
        while kept > 1 and _is_between(lines[kept - 1], column):
            kept -= 1
        found += [(name, "".join(lines[:kept])), (None, "".join(lines[kept:]))]
    return found


def _is_between(line: str, column: int) -> bool:
    """Return True for a line that belongs to no field: blank, or a comment as far to the left as the fields."""
    bare = line.lstrip()
    return not bare or (bare.startswith("#") and len(line) - len(bare) <= column)


def _place(name: str, pieces: list[tuple[str | None, str]]) -> int:
    """Return the place of a new field: behind the last one that goes before it by custom."""
    order = FIELDS.index(name) if name in FIELDS else len(FIELDS)
    before = [index for index, (own, _) in enumerate(pieces) if own and own in FIELDS[:order]]
    return max(before, default=-1 if any(own for own, _ in pieces) else len(pieces) - 1) + 1


class _AsWritten(VersionedResolver):
    """Takes each scalar for text, so that it is written as it was: it knows other numbers than prompt files."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:  # noqa: ANN401 - ruamel.yaml's own
        own: Any = super()
        return own.resolve(kind, "text" if kind is ScalarNode else value, implicit)


class _Writer:
    """Writes values in the style of the YAML around them: its line breaks and indentation.

    Args:
        text: The YAML.
        safe: Replaces secrets in a text.
    """

    def __init__(self, text: str, safe: Callable[[str], str]) -> None:
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._safe = safe
        self._yaml: Any = YAML()  # its own hints are incomplete
        self._yaml.Resolver = _AsWritten
        self._yaml.preserve_quotes = True
        self._yaml.width = _WIDTH
        plain_text = _BREAK.sub("\n", text)
        listed, nested = _LISTED.search(plain_text), _NESTED.search(plain_text)
        offset = len(listed[2]) - len(listed[1]) if listed else 2
        mapping = max(len(nested[2]) - len(nested[1]), 2) if nested else 2
        self._yaml.indent(mapping=mapping, sequence=offset + 2, offset=offset)

    def rewritten(self, text: str, fields: Mapping[str, Field], changes: Mapping[str, Json]) -> str:
        """Return YAML with fields changed, in the line breaks of the file."""
        lines = _BREAK.sub("\n", text)
        indent = " " * (len(lines) - len(lines.lstrip(" ")))
        try:
            tree: Any = self._yaml.load(re.sub(f"^{indent}", "", lines, flags=re.MULTILINE) if indent else lines)
        except YAMLError as error:
            fault = " ".join(str(error).split())
            raise PromptFileError(
                f"{', '.join(changes)}: the YAML that stands there can be read, but not changed: {fault}; put texts "
                "with signs in them into quotes"
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

    def _changed(self, tree: Any, field: Field, new: Json) -> Any:  # noqa: ANN401 - ruamel.yaml's own values
        """Return the tree of a changed value: unchanged parts stay in it, with their comments."""
        seen = plain(field.seen)
        if _same(seen, new):
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
        if isinstance(raw, str) and isinstance(value, dict | list) and _texts(seen) & _texts(new):
            raise PromptFileError(
                f"{raw} is left as it is: what it leads to is not written out; change it there, or give a value that "
                "has nothing of it"
            )
        return self._new(new)

    def _change_items(self, tree: Any, items: list[Field], new: list[Json]) -> None:  # noqa: ANN401 - as above
        """Change a list: items with names are those of the same names; others, those at the same places."""
        names, wanted = _paired([plain(item.seen) for item in items], new)
        by_name = dict(zip(names, items, strict=True))
        for index in reversed(range(len(items))):
            if names[index] not in wanted:
                del tree[index]
        for index, (name, value) in enumerate(zip(wanted, new, strict=True)):
            if name in by_name:
                tree[index] = self._changed(tree[index], by_name[name], value)
            else:
                tree.insert(index, self._new(value))

    def _new(self, value: Json) -> Any:  # noqa: ANN401 - as above
        """Return the tree of a new value."""
        if isinstance(value, str):
            text = self._safe(value)
            return LiteralScalarString(text) if _BLOCK.fullmatch(text) else _key(text)
        if isinstance(value, list):
            return [self._new(item) for item in value]
        if isinstance(value, dict):
            return {_key(key): self._new(item) for key, item in value.items()}
        # The resolver takes all for text, and so this is no text in quotes.
        return PlainScalarString(json.dumps(value))


def _key(text: str) -> Any:  # noqa: ANN401 - as above
    """Return text in one line, as keys are: in quotes if some reader would take it for something else without."""
    # A text that is no more than text would get the quotes of the one before it.
    return PlainScalarString(text) if is_text(text) and not _is_odd(text) else DoubleQuotedScalarString(text)


def _is_odd(text: str) -> bool:
    """Return True if other readers take a text without quotes for a date, a boolean or a key."""
    readings = yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ())
    return _ESCAPED.search(text) is not None or any(pattern.match(text) for _, pattern in readings)


def _without_gaps(tree: Any) -> Any:  # noqa: ANN401 - as above
    """Write null for empty values: within braces nothing would be an empty text."""
    items: Any = tree.items() if hasattr(tree, "items") else enumerate(tree)
    for key, item in items:
        if isinstance(item, dict | list):
            _without_gaps(item)
        elif type(item) is str and not item:
            tree[key] = "null"
    return tree


def _paired(old: Sequence[Json], new: Sequence[Json]) -> tuple[Sequence[str | int], Sequence[str | int]]:
    """Name old and new items: by their names if each has one, in one order; else by their places."""
    names, wanted = ([item.get(_NAME) if isinstance(item, dict) else None for item in each] for each in (old, new))
    own, asked = ([name for name in each if isinstance(name, str)] for each in (names, wanted))
    named = len({*own}) == len(names) and len({*asked}) == len(wanted)
    if named and [each for each in own if each in asked] == [each for each in asked if each in own]:
        return own, asked
    return [*range(len(old))], [*range(len(new))]


def _same(old: object, new: object) -> bool:
    """Return True if two values are the same in JSON, to which true is no 1."""
    return old == new and json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _texts(value: Json) -> set[str]:
    """Return all texts in a value."""
    if isinstance(value, str):
        return {value}
    within: Iterable[Json] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set[str]().union(*map(_texts, within))


class Changes(TypedDict, total=False):
    """The fields to change, with their new values; None removes one."""

    name: str | None
    description: str | None
    model: str | Mapping[str, object] | None
    inputs: Iterable[Property | Mapping[str, object]] | Mapping[str, object] | None
    metadata: Mapping[str, object] | None
    instructions: str


_NO_METADATA: Final = (*FIELDS, "inputSchema", "outputSchema")
_OF_V2: Final = ("v2", "agentschema")
_DIFFERS: Final = ("model", "inputs", "metadata")
_SCHEMA: Final = "inputSchema"
_KNOWN: Final = tuple(Changes.__annotations__)
# Of what a shorter value is, such as a number, nobody can say that it is the same one.
_SECRET: Final = 8


def rewritten(prompty: PromptSource, changes: Changes) -> str:
    """Return the text of a prompt file with fields changed.

    Args:
        prompty: The prompt file.
        changes: The fields.

    Returns:
        The text, which :func:`checked_copy` checks once it is read.

    Raises:
        TypeError: There is no such field.
        PromptFileError: A value is no JSON, or of the wrong kind.
    """
    for name in changes:
        if name not in _KNOWN:
            raise TypeError(
                f"with_fields has no field {name!r}{did_you_mean(name, _KNOWN)}; it has {', '.join(_KNOWN)}"
            )
    source = Source(prompty.text, name_of(prompty))
    foreign = [name for name in changes if name in _DIFFERS and prompty.dialect not in _OF_V2]
    if foreign:
        raise PromptFileError(
            f"{source.name}: {foreign[0]} is said otherwise in this file, of the dialect {prompty.dialect}; write it "
            "as Prompty v2 first, with dumps('v2') or lazyprompt convert"
        )
    parts = split(source)
    raw = parts.fields or {}
    fields = {name: Field(node, prompty.seen[name]) for name, node in raw.items()}
    wanted: dict[str, Json] = {}
    for name, make in _MAKERS.items():
        if name in changes:
            wanted |= make(changes[name], fields)  # type: ignore[literal-required]  # the names are those of Changes
    body = source.text[parts.body_at :]
    if "instructions" in changes:
        text = changes["instructions"]
        if not parts.body and "instructions" in raw:
            wanted["instructions"] = text
        else:
            body = text.replace("\n", "\r\n") if "\r\n" in source.text else text
    return prompty.text[: len(prompty.text) - len(source.text)] + put_together(source, parts, fields, wanted, body)


def checked_copy(made: AnyPrompty, changes: Changes) -> AnyPrompty:
    """Return a changed prompt, if it has the fields that were asked for.

    Args:
        made: The prompt, read from its changed text.
        changes: What was changed.

    Raises:
        PromptFileError: It has others: its dialect has no such field, or no way to write such a value.
    """
    got = made.to_dict()
    raw = split(Source(made.text, "")).fields or {}
    for name in changes:
        wanted = _canonical(name, changes[name])  # type: ignore[literal-required]  # as above
        own = {key: plain(node) for key, node in raw.items() if key in (name, _SCHEMA) or key not in FIELDS}
        # The value of a reference may be another by now, and is not shown.
        if got.get(name) != wanted and "${" not in str(own):
            what = f"{name} cannot be changed so in this file, of the dialect {made.dialect}: it would say"
            raise PromptFileError(f"{name_of(made)}: {what} {got.get(name)!r}, not {wanted!r}")
    return made


def put_together(
    source: Source, parts: Parts, fields: Mapping[str, Field], wanted: Mapping[str, Json], body: str
) -> str:
    """Return a file with fields and body changed.

    Args:
        source: The file.
        parts: Its parts.
        fields: Its fields.
        wanted: The new values of fields; None removes one.
        body: Its body.
    """
    begin, end = parts.yaml_at
    secrets = _secrets(fields)

    def safe(text: str) -> str:
        for secret, reference in secrets.items():
            text = text.replace(secret, reference)
        return text

    front = edited(source.text[begin:end], begin, fields, wanted, safe)
    if parts.fields is not None:
        return source.text[:begin] + front + source.text[end : parts.body_at] + body
    # Without a front matter, a body that looks like one must not become one.
    needed = front or split(Source(body, source.name)).fields is not None
    return f"---\n{front}---\n{body}" if needed else body


def _secrets(fields: Mapping[str, Field]) -> dict[str, str]:
    """Return the texts from the environment, with the references to them; the longest first."""
    texts = [node.value for field in fields.values() for node in field.seen.within()]
    found = {text: text.reference for text in texts if isinstance(text, SecretText) and len(text) >= _SECRET}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def _model(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    made = _json(value, "model")
    old = fields.get("model")
    if old is not None and isinstance(old.raw.value, str) and isinstance(made, dict) and made.keys() == {"id"}:
        made = made["id"]
    return {"model": made}


def _metadata(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    """Return metadata, and the unknown fields that count as metadata, which stay beside the known ones."""
    given = cast("JsonObject", _json(value, "metadata") or {})
    own = fields["metadata"].seen.value if "metadata" in fields else None
    beside = [name for name in fields if name not in _NO_METADATA and not (isinstance(own, dict) and name in own)]
    rest: JsonObject = {name: item for name, item in given.items() if name not in beside}
    return {"metadata": rest or None, **{name: given.get(name) for name in beside}}


def _inputs(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    """Return inputs in the form that the file has; unchanged ones stay as they are written."""
    schema = fields[_SCHEMA].seen.value if _SCHEMA in fields else None
    within = isinstance(schema, dict) and "properties" in schema
    node = schema["properties"] if isinstance(schema, dict) and within else None
    if node is None and "inputs" in fields:
        node = fields["inputs"].seen
    made = None if value is None else _listed(value, node)
    if not isinstance(schema, dict) or not within:
        return {"inputs": made or None}
    rest = {name: plain(item) for name, item in schema.items() if name != "properties"}
    return {_SCHEMA: {**rest, "properties": made or []}}


def _listed(value: object, node: Node | None) -> Json:
    old: dict[str, tuple[Property, Json]] = {}
    if node is not None and node.value is not None:
        items = node.value.values() if isinstance(node.value, dict) else cast("list[Node]", node.value)
        for each, item in zip(read_properties(Source("", "inputs"), node, "inputs"), items, strict=True):
            old[each.name] = each, plain(item)
    mapped = node is not None and isinstance(node.value, dict)
    found: dict[str, Json] = {}
    for each in _properties(value):
        same = each.name in old and old[each.name][0] == each
        fields = each.to_dict()
        if mapped:
            del fields["name"]
        found[each.name] = old[each.name][1] if same else fields
    return found if mapped else [*found.values()]


def _properties(value: object) -> tuple[Property, ...]:
    """Read given inputs as those of a file."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        given: object = {key: item.to_dict() if isinstance(item, Property) else item for key, item in items}
    else:
        listed = cast("Iterable[object]", value)
        given = [item.to_dict() if isinstance(item, Property) else item for item in listed]
    source = Source(written({"inputs": checked(given, "inputs", PromptFileError)}), "inputs")
    return read_properties(source, source.mapping_of(Reader(source).read(), "inputs")["inputs"], "inputs")


_MAKERS: Final[Mapping[str, Callable[[object, Mapping[str, Field]], dict[str, Json]]]] = {
    "name": lambda value, _: {"name": _json(value, "name")},
    "description": lambda value, _: {"description": _json(value, "description")},
    "model": _model,
    "inputs": _inputs,
    "metadata": _metadata,
}


def _canonical(name: str, value: object) -> Json:
    """Return a value as :meth:`Prompty.to_dict` has it."""
    if value is None:
        return None
    if name == "model" and isinstance(value, str):
        return {"id": value}
    if name == "inputs":
        return [each.to_dict() for each in _properties(value)] or None
    return _json(value, name) or None if name == "metadata" else _json(value, name)


def _json(value: object, name: str) -> Json:
    return checked(value, name, PromptFileError)
