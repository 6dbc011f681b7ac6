"""Functions that edit a prompt file's fields, and keep all other text as written, including comments and references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, cast

import yaml

from lazyprompt._base.json import Json, JsonObject, checked, is_mapping
from lazyprompt._base.secret import SecretText
from lazyprompt.errors import PromptFileError, did_you_mean
from lazyprompt.files.loaded_prompty import LoadedPrompty, name_of
from lazyprompt.files.properties import Property, read_properties
from lazyprompt.files.spec import FIELDS
from lazyprompt.files.yaml_nodes import Field, Node, Parts, SourceText, YamlReader, is_same, plain, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt.files.writing.yaml_writer import YamlWriter

    AnyPrompty = TypeVar("AnyPrompty", bound=LoadedPrompty)


# Use YamlReader's loader, because PyYAML's pure-Python loader rejects some YAML that libyaml accepts: {a: b?, c: d}.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def edit_fields(
    text: str, at: int, fields: Mapping[str, Field], changes: Mapping[str, Json], safe: Callable[[str], str] = str
) -> str:
    """Change fields in a YAML mapping.

    Args:
        text: The text of the YAML mapping.
        at: The index in the file at which the YAML starts. Positions in ``fields`` are counted from the start of the
            file.
        fields: The current fields, by field name.
        changes: The fields' new values, keyed by field name; None removes a field.
        safe: The function that replaces secrets in new text with references.

    Returns:
        The changed YAML. References whose values are unchanged are kept.

    Raises:
        PromptFileError: A change would write the value of a reference to the file.
        MissingExtraError: ruamel.yaml isn't installed.
    """
    wanted = {
        name: new
        for name, new in changes.items()
        if (not is_same(plain(fields[name].seen), new) if name in fields else new is not None)
    }
    if not wanted:
        return text
    writer = _writer(text, safe)
    pieces = _pieces(text, at, fields)
    if pieces is None:
        return writer.rewrite(text, fields, wanted)
    indent = next((lines[: len(lines) - len(lines.lstrip(" "))] for own, lines in pieces if own), "")
    for name, new in wanted.items():
        place = next((index for index, piece in enumerate(pieces) if piece[0] == name), None)
        if place is None:
            pieces.insert(_place(name, pieces), (name, writer.rewrite(indent, fields, {name: new})))
        elif new is None:
            del pieces[place]
        else:
            pieces[place] = (name, writer.rewrite(pieces[place][1], fields, {name: new}))
    return "".join(lines for _, lines in pieces)


def dump_yaml(value: JsonObject) -> str:
    """Render a mapping as YAML; an empty mapping is rendered as ``""``.

    Raises:
        MissingExtraError: ruamel.yaml isn't installed.
    """
    return _writer("", str).rewrite("", {}, value)


def _writer(text: str, safe: Callable[[str], str]) -> YamlWriter:
    from lazyprompt.files.writing.yaml_writer import YamlWriter  # noqa: PLC0415 - it needs an extra

    return YamlWriter(text, safe)


def _pieces(text: str, at: int, fields: Mapping[str, Field]) -> list[tuple[str | None, str]] | None:
    """Split YAML into (name, lines) pairs: one for each field, and one with the name None for lines between fields.

    Return None if a field doesn't begin on its own line, or if the YAML has anchors or is a mapping in braces.
    """
    events = [*yaml.parse(text, Loader=_LOADER)]
    # The third event is the start of the mapping, after those of the stream and the document.
    in_braces = any(getattr(event, "flow_style", False) for event in events[2:3])
    if in_braces or any(getattr(event, "anchor", None) for event in events):
        return None
    keys = [field.raw.key_at - at for field in fields.values()]
    begins = [max(text.rfind("\n", 0, key), text.rfind("\r", 0, key)) + 1 for key in keys]
    indents = {text[begin:key] for begin, key in zip(begins, keys, strict=True)}
    if "".join(indents).strip(" "):
        return None
    if not begins:
        return [(None, text)]
    column = len(indents.pop())
    found: list[tuple[str | None, str]] = [(None, text[: begins[0]])]
    for name, begin, end in zip(fields, begins, [*begins[1:], len(text)], strict=True):
        lines = text[begin:end].splitlines(keepends=True)
        kept = len(lines)
        while _is_between(lines[kept - 1], column):
            kept -= 1
        found += [(name, "".join(lines[:kept])), (None, "".join(lines[kept:]))]
    return found


def _is_between(line: str, column: int) -> bool:
    """Return True if a line is blank, or is a comment that isn't indented deeper than the fields."""
    bare = line.lstrip()
    return not bare or (bare.startswith("#") and len(line) - len(bare) <= column)


def _place(name: str, pieces: list[tuple[str | None, str]]) -> int:
    """Return the index in ``pieces`` where a new field belongs according to the conventional field order."""
    order = FIELDS.index(name) if name in FIELDS else len(FIELDS)
    before = [index for index, (own, _) in enumerate(pieces) if own and own in FIELDS[:order]]
    return max(before, default=-1 if any(own for own, _ in pieces) else 0) + 1


class Changes(TypedDict, total=False):
    """The new values of the fields to change; None removes a field."""

    name: str | None
    description: str | None
    model: str | Mapping[str, object] | None
    inputs: Iterable[Property | Mapping[str, object]] | Mapping[str, object] | None
    metadata: Mapping[str, object] | None
    instructions: str


_NO_METADATA: Final = (*FIELDS, "inputSchema", "outputSchema")
_SCHEMA: Final = "inputSchema"
_KNOWN: Final = tuple(Changes.__annotations__)
# Shorter secrets, such as numbers, can occur in other text by chance, so don't replace them.
_SECRET: Final = 8


def rewrite_fields(prompty: LoadedPrompty, changes: Changes) -> str:
    """Return a prompt file's text with the given fields changed.

    Args:
        prompty: The prompt file.
        changes: The fields' new values, keyed by field name; None removes a field.

    Returns:
        The prompt file's changed text. To check the changes, load this text and pass the loaded prompt file to
        :func:`checked_copy`.

    Raises:
        TypeError: A field is unknown.
        PromptFileError: A value isn't valid JSON or has the wrong type.
    """
    for name in changes:
        if name not in _KNOWN:
            raise TypeError(
                f"with_fields() can't change {name!r}{did_you_mean(name, _KNOWN)}; expected one of {', '.join(_KNOWN)}"
            )
    source = SourceText(prompty.text, name_of(prompty))
    if prompty.dialect == "v1":
        raise PromptFileError(
            f"{source.name}: Prompty v1 files can't be changed; convert the file to v2 first, with dumps('v2') or "
            "lazyprompt convert"
        )
    parts = split(source)
    raw = parts.fields or {}
    fields = {name: Field(node, prompty.seen[name]) for name, node in raw.items()}
    wanted: dict[str, Json] = {}
    for name, make in _MAKERS.items():
        if name in changes:
            wanted |= make(changes[name], fields)  # type: ignore[literal-required]  # name is a key of Changes
    body = source.text[parts.body_at :]
    if "instructions" in changes:
        text = changes["instructions"]
        if not parts.body and "instructions" in raw:
            wanted["instructions"] = text
        else:
            body = text.replace("\n", "\r\n") if "\r\n" in source.text else text
    return prompty.text[: len(prompty.text) - len(source.text)] + assemble(source, parts, fields, wanted, body)


def checked_copy(made: AnyPrompty, changes: Changes) -> AnyPrompty:
    """Check that a changed prompt has the requested values, and return the prompt.

    Args:
        made: The prompt loaded from the changed text.
        changes: The new values that were passed to :func:`rewrite_fields`, by field name.

    Raises:
        PromptFileError: The dialect can't express a requested value, so the field has a different value.
    """
    got = made.to_dict()
    raw = split(SourceText(made.text, "")).fields or {}
    for name in changes:
        wanted = _canonical(name, changes[name])  # type: ignore[literal-required]  # as above
        own = {key: plain(node) for key, node in raw.items() if key in (name, _SCHEMA) or key not in FIELDS}
        # A reference's value may have changed and must not appear in an error, so skip references.
        if got.get(name) != wanted and "${" not in str(own):
            what = f"{name} can't be set to {wanted!r} in the dialect {made.dialect}; it would be {got.get(name)!r}"
            raise PromptFileError(f"{name_of(made)}: {what}")
    return made


def assemble(
    source: SourceText, parts: Parts, fields: Mapping[str, Field], wanted: Mapping[str, Json], body: str
) -> str:
    """Return the text of a file with changed fields and a new body.

    Args:
        source: The file to change.
        parts: The front matter and body of the file.
        fields: The current fields, by field name.
        wanted: The new values, by field name; None removes a field.
        body: The new body.
    """
    begin, end = parts.yaml_at
    secrets = _secrets(fields)

    def safe(text: str) -> str:
        for secret, reference in secrets.items():
            text = text.replace(secret, reference)
        return text

    front = edit_fields(source.text[begin:end], begin, fields, wanted, safe)
    if parts.fields is not None:
        return source.text[:begin] + front + source.text[end : parts.body_at] + body
    # Add empty front matter if a parser would otherwise read the body as front matter.
    needed = front or split(SourceText(body, source.name)).fields is not None
    return f"---\n{front}---\n{body}" if needed else body


def _secrets(fields: Mapping[str, Field]) -> dict[str, str]:
    """Map each secret from an environment variable to its reference, longest secrets first."""
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
    """Return the field changes that set the metadata; unknown top-level fields of the file stay at the top level."""
    checked_value = _json(value, "metadata")
    given = checked_value if isinstance(checked_value, dict) else {}
    own = fields["metadata"].seen.value if "metadata" in fields else None
    beside = [name for name in fields if name not in _NO_METADATA and not (isinstance(own, dict) and name in own)]
    rest: JsonObject = {name: item for name, item in given.items() if name not in beside}
    return {"metadata": rest or None, **{name: given.get(name) for name in beside}}


def _inputs(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    """Return the field changes that set the inputs: as a mapping if the file contains a mapping, or else as a list."""
    schema = fields[_SCHEMA].seen.value if _SCHEMA in fields else None
    within = schema if isinstance(schema, dict) and "properties" in schema else None
    node = within["properties"] if within else fields["inputs"].seen if "inputs" in fields else None
    made = _listed(value, node)
    if within is None:
        return {"inputs": made or None}
    return {_SCHEMA: {**{name: plain(item) for name, item in within.items()}, "properties": made or []}}


def _listed(value: object, node: Node | None) -> Json:
    old: dict[str, tuple[Property, Json]] = {}
    if node is not None and node.value is not None:
        for each, item in zip(read_properties(SourceText("", "inputs"), node, "inputs"), node.parts, strict=True):
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
    """Parse new inputs in the same way as the inputs in a file."""
    if value is None:
        return ()
    if is_mapping(value):
        given: object = {key: item.to_dict() if isinstance(item, Property) else item for key, item in value.items()}
    else:
        listed = cast("Iterable[object]", value)
        given = [item.to_dict() if isinstance(item, Property) else item for item in listed]
    source = SourceText(dump_yaml({"inputs": checked(given, "inputs", PromptFileError)}), "inputs")
    return read_properties(source, source.mapping_of(YamlReader(source).read(), "inputs")["inputs"], "inputs")


_MAKERS: Final[Mapping[str, Callable[[object, Mapping[str, Field]], dict[str, Json]]]] = {
    "name": lambda value, _: {"name": _json(value, "name")},
    "description": lambda value, _: {"description": _json(value, "description")},
    "model": _model,
    "inputs": _inputs,
    "metadata": _metadata,
}


def _canonical(name: str, value: object) -> Json:
    """Convert a new value to the format of :meth:`Prompty.to_dict`."""
    if value is None:
        return None
    if name == "model" and isinstance(value, str):
        return {"id": value}
    if name == "inputs":
        return [each.to_dict() for each in _properties(value)] or None
    return _json(value, name) or None if name == "metadata" else _json(value, name)


def _json(value: object, name: str) -> Json:
    return checked(value, name, PromptFileError)
