"""A prompt file with fields changed: all else in its text stays as it is written, references too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, cast

from lazyprompt._base.json import checked
from lazyprompt.errors import PromptFileError, did_you_mean
from lazyprompt.files.front_matter import split
from lazyprompt.files.prompt_source import name_of
from lazyprompt.files.properties import Property, PropertyReader
from lazyprompt.files.spec import FIELDS
from lazyprompt.files.writing.yaml_edit import Field, edited, written
from lazyprompt.files.yaml_nodes import Node, Reader, Source, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.front_matter import Parts
    from lazyprompt.files.prompt_source import PromptSource

    AnyPrompty = TypeVar("AnyPrompty", bound=PromptSource)


class Changes(TypedDict, total=False):
    """Which fields are changed, and to what; None takes one out."""

    name: str | None
    description: str | None
    model: str | Mapping[str, object] | None
    inputs: Iterable[Property | Mapping[str, object]] | Mapping[str, object] | None
    metadata: Mapping[str, object] | None
    instructions: str


_NO_METADATA: Final = (*FIELDS, "inputSchema", "outputSchema")
_OF_V2: Final = ("v2", "agentschema")
_SAID_OTHERWISE: Final = ("model", "inputs", "metadata")
_SCHEMA: Final = "inputSchema"
_KNOWN: Final = tuple(Changes.__annotations__)
# Of what a shorter value is, such as a number, nobody can say that it is the same one.
_SECRET: Final = 8


def rewritten(prompty: PromptSource, changes: Changes) -> str:
    """The text of a prompt file with fields changed.

    Args:
        prompty: The prompt file.
        changes: The fields.

    Returns:
        The text; what it says was not looked at yet: see :func:`checked_copy`.

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
    foreign = [name for name in changes if name in _SAID_OTHERWISE and prompty.dialect not in _OF_V2]
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
    """A changed prompt, if it says what was asked for.

    Args:
        made: The prompt, read from its changed text.
        changes: What was changed.

    Raises:
        PromptFileError: It says something else: its dialect has no such field, or no way to write such a value.
    """
    got = made.to_dict()
    raw = split(Source(made.text, "")).fields or {}
    for name in changes:
        wanted = _canonical(name, changes[name])  # type: ignore[literal-required]  # as above
        own = {key: plain(node) for key, node in raw.items() if key in (name, _SCHEMA) or key not in FIELDS}
        # What a reference leads to is another value, may be another by now, and is told nobody.
        if got.get(name) != wanted and "${" not in str(own):
            what = f"{name} cannot be changed so in this file, of the dialect {made.dialect}: it would say"
            raise PromptFileError(f"{name_of(made)}: {what} {got.get(name)!r}, not {wanted!r}")
    return made


def put_together(
    source: Source, parts: Parts, fields: Mapping[str, Field], wanted: Mapping[str, Json], body: str
) -> str:
    """A file with fields and body changed.

    Args:
        source: The file.
        parts: The same, taken apart.
        fields: Its fields.
        wanted: What fields are to be; None takes one out.
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
    """What is known from the environment, with the references to it; the longest first."""
    found = {
        seen: raw
        for field in fields.values()
        for raw, seen in _texts(field.raw, field.seen)
        if "${env:" in raw.lower() and len(seen) >= _SECRET and seen not in raw
    }
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def _texts(raw: Node, seen: Node) -> Iterator[tuple[str, str]]:
    """Each text as it is written and as it was read."""
    if isinstance(raw.value, str) and isinstance(seen.value, str):
        yield raw.value, seen.value
    elif isinstance(raw.value, dict) and isinstance(seen.value, dict):
        for key, node in raw.value.items():
            yield from _texts(node, seen.value[key])
    elif isinstance(raw.value, list) and isinstance(seen.value, list):
        for pair in zip(raw.value, seen.value, strict=True):
            yield from _texts(*pair)


def _text(name: str) -> Callable[[object, Mapping[str, Field]], dict[str, Json]]:
    return lambda value, _: {name: _json(value, name)}


def _model(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    made = _json(value, "model")
    old = fields.get("model")
    if old is not None and isinstance(old.raw.value, str) and isinstance(made, dict) and made.keys() == {"id"}:
        made = made["id"]
    return {"model": made}


def _metadata(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    """Metadata; what stands beside the known fields is among it, and stays there."""
    given = cast("JsonObject", _json(value, "metadata") or {})
    own = fields["metadata"].seen.value if "metadata" in fields else None
    beside = [name for name in fields if name not in _NO_METADATA and not (isinstance(own, dict) and name in own)]
    rest: JsonObject = {name: item for name, item in given.items() if name not in beside}
    return {"metadata": rest or None, **{name: given.get(name) for name in beside}}


def _inputs(value: object, fields: Mapping[str, Field]) -> dict[str, Json]:
    """Inputs, written as the file writes them; those that stay the same are as they stand there."""
    schema = fields[_SCHEMA].seen.value if _SCHEMA in fields else None
    within = isinstance(schema, dict) and "properties" in schema
    node = schema["properties"] if isinstance(schema, dict) and within else None
    if node is None and "inputs" in fields:
        node = fields["inputs"].seen
    made = None if value is None else _listed(value, node)
    if not isinstance(schema, dict) or not within:
        return {"inputs": made or None}
    rest = {name: cast("Json", plain(item)) for name, item in schema.items() if name != "properties"}
    return {_SCHEMA: {**rest, "properties": made or []}}


def _listed(value: object, node: Node | None) -> Json:
    old: dict[str, tuple[Property, Json]] = {}
    if node is not None and node.value is not None:
        reader = PropertyReader(Source("", "inputs"))
        items = node.value.values() if isinstance(node.value, dict) else cast("list[Node]", node.value)
        for each, item in zip(reader.listed(node, "inputs"), items, strict=True):
            old[each.name] = each, cast("Json", plain(item))
    mapped = node is not None and isinstance(node.value, dict)
    found: dict[str, Json] = {}
    for each in _properties(value):
        same = each.name in old and old[each.name][0] == each
        told = each.to_dict()
        if mapped:
            del told["name"]
        found[each.name] = old[each.name][1] if same else told
    return found if mapped else [*found.values()]


def _properties(value: object) -> tuple[Property, ...]:
    """Inputs as they were given, read as those of a file are."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        given = cast("Mapping[str, object]", value)
        told: object = {key: item.to_dict() if isinstance(item, Property) else item for key, item in given.items()}
    else:
        items = cast("Iterable[object]", value)
        told = [item.to_dict() if isinstance(item, Property) else item for item in items]
    source = Source(written({"inputs": checked(told, "inputs", PromptFileError)}), "inputs")
    read = Reader(source).read()
    return PropertyReader(source).listed(cast("dict[str, Node]", cast("Node", read).value)["inputs"], "inputs")


_MAKERS: Final[Mapping[str, Callable[[object, Mapping[str, Field]], dict[str, Json]]]] = {
    "name": _text("name"),
    "description": _text("description"),
    "model": _model,
    "inputs": _inputs,
    "metadata": _metadata,
}


def _canonical(name: str, value: object) -> Json:
    """A value as :meth:`Prompty.to_dict` says it."""
    if value is None:
        return None
    if name == "model" and isinstance(value, str):
        return {"id": value}
    if name == "inputs":
        return [each.to_dict() for each in _properties(value)] or None
    return _json(value, name) or None if name == "metadata" else _json(value, name)


def _json(value: object, name: str) -> Json:
    return checked(value, name, PromptFileError)
