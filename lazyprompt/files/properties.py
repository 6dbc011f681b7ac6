"""Properties: the inputs and outputs of a prompt, and the parameters of its tools, each of a kind; and values of them.

The kinds and their JSON Schema are those of Prompty v2 (its specification, sections 2.5, 2.9 and 7.1).
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from lazyprompt._base.secret import SecretText
from lazyprompt.errors import LazyPromptError, SlotError, did_you_mean
from lazyprompt.files.yaml_nodes import Node, SourceText, Value, plain
from lazyprompt.media.resolver import sniff_type
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import (
    AudioBlock,
    Base64Source,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.slots import Opaque

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject


SCALARS: Final[Mapping[str, str]] = {"string": "string", "integer": "integer", "float": "number", "boolean": "boolean"}
"""The kinds of plain values, and their names in JSON Schema."""

RICH: Final = ("thread", "image", "file", "audio")
"""The kinds of values that have no text."""

KINDS_OF_PROPERTY: Final = (*SCALARS, "array", "object", "union", *RICH)
"""All kinds."""

FIELDS_OF_PROPERTY: Final = (
    *("name", "description", "required", "nullable", "kind", "default", "example", "enumValues", "items"),
    *("properties", "oneOf", "anyOf"),
)
"""The fields of a property."""

ALSO_CALLED: Final[Mapping[str, str]] = {"number": "float"}
"""Kinds by other names, as JSON Schema has them."""


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_HasName)
_ReadOne: TypeAlias = "Callable[[SourceText, Node, str, str], Named]"
_OF_VALUE: dict[type, str] = {bool: "boolean", int: "integer", float: "float", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Property:
    """An input, an output, a parameter of a tool, or a part of one.

    Args:
        name: Its name; ``""`` for the items of an array and the choices of a union.
        kind: One of :data:`KINDS_OF_PROPERTY`.
        description: Its description.
        required: True if it must be given.
        default: The value where none is given; None is no default. Not to be changed: see :meth:`own_default`.
        example: An example, never used as a value.
        enum_values: The values that it may have; none are all.
        nullable: True if it may be null.
        items: The items of an array.
        properties: The properties of an object.
        choices: The choices of a union.
        one_of: True if just one of the choices fits, and not several: it is written as ``oneOf``, else ``anyOf``.
    """

    name: str
    kind: str = "string"
    description: str | None = None
    required: bool = False
    default: Json = None
    example: Json = None
    enum_values: tuple[Json, ...] = ()
    nullable: bool = False
    items: Property | None = None
    properties: tuple[Property, ...] = field(default=())
    choices: tuple[Property, ...] = field(default=())
    one_of: bool = False

    @property
    def is_needed(self) -> bool:
        """True if it must be given, and has no default."""
        return self.required and self.default is None

    def own_default(self) -> Json:
        """Return a copy of the default."""
        return deepcopy(self.default) if isinstance(self.default, (list, dict)) else self.default

    def to_dict(self) -> JsonObject:
        """Return the property as a front matter has it."""
        made: dict[str, Json | None] = {
            "name": self.name or None,
            "kind": self.kind,
            "description": self.description,
            "required": self.required or None,
            "default": self.own_default(),
            "example": deepcopy(self.example),
            "enumValues": [*self.enum_values] or None,
            "nullable": self.nullable or None,
            "items": None if self.items is None else self.items.to_dict(),
            "properties": [each.to_dict() for each in self.properties] or None,
            "oneOf" if self.one_of else "anyOf": [each.to_dict() for each in self.choices] or None,
        }
        return {name: value for name, value in made.items() if value is not None}

    def schema(self, *, strict: bool = False) -> JsonObject:
        """Return the property as a JSON Schema.

        Args:
            strict: True if it keeps the rules of strict schemas: everything is required, and may be null where it is
                not; nothing else may be there.
        """
        made = self._bare_schema(strict=strict)
        if self.enum_values:
            made["enum"] = [*self.enum_values]
        if self.nullable or (strict and not self.required and self.name):
            # Null is let in wherever the schema lists what may be.
            kind, choices, enum = made.get("type"), made.get("anyOf"), made.get("enum")
            if isinstance(kind, str):
                made["type"] = [kind, "null"]
            if isinstance(choices, list):
                choices.append({"type": "null"})
            if isinstance(enum, list) and None not in enum:
                enum.append(None)
        if self.description:
            made["description"] = self.description
        return made

    def _bare_schema(self, *, strict: bool) -> JsonObject:
        if self.kind == "array":
            items: JsonObject = {"type": "string"} if self.items is None else self.items.schema(strict=strict)
            return {"type": "array", "items": items}
        if self.kind == "object" and (self.properties or strict):
            return schema_of(self.properties, strict=strict)  # where it is strict, one without properties must say so
        if self.kind == "union":
            # One without choices may be anything. oneOf is anyOf here: not every provider knows it in a schema.
            return {"anyOf": [each.schema(strict=strict) for each in self.choices]} if self.choices else {}
        return {"type": SCALARS.get(self.kind, "object" if self.kind == "object" else "string")}


def schema_of(properties: tuple[Property, ...], *, strict: bool = False) -> JsonObject:
    """Return the JSON Schema of an object with some properties.

    Args:
        properties: The properties.
        strict: As of :meth:`Property.schema`.
    """
    shown: JsonObject = {each.name: each.schema(strict=strict) for each in properties}
    made: JsonObject = {"type": "object", "properties": shown}
    required: list[Json] = [each.name for each in properties if each.required or strict]
    if required:
        made["required"] = required
    if strict:
        made["additionalProperties"] = False
    return made


def read_named(
    source: SourceText, node: Node, where: str, read: _ReadOne[Named], of_name: _ReadOne[Named]
) -> list[Named]:
    """Read a list of mappings with names, or a mapping by names.

    Args:
        source: The file.
        node: The list or mapping.
        where: Its name in errors.
        read: Reads an item of the list, given its name in errors and no name.
        of_name: Reads an item of the mapping, given its name in errors and its name.

    Raises:
        PromptFileError: It is neither, an item has no name, or two have the same.
    """
    if node.value is None:
        return []
    if isinstance(node.value, dict):
        return [of_name(source, item, f"{where}.{name}", name) for name, item in node.value.items()]
    if not isinstance(node.value, list):
        raise source.wrong_kind(node, f"{where} are", "; they are a list, or a mapping by their names")
    found: dict[str, Named] = {}
    for index, item in enumerate(node.value):
        made = read(source, item, f"{where}[{index}]", "")
        if not made.name:
            raise source.fault_at(item.at, f"{where}[{index}] has no name")
        if made.name in found:
            raise source.fault_at(item.at, f"{where}[{index}]: there is a second one of the name {made.name!r}")
        found[made.name] = made
    return [*found.values()]


def read_properties(source: SourceText, node: Node | None, where: str) -> tuple[Property, ...]:
    """Read properties; none where nothing is written; see :func:`read_named`."""
    return () if node is None else tuple(read_named(source, node, where, _property, _of_name))


def _property(source: SourceText, node: Node, where: str, name: str) -> Property:
    if not isinstance(node.value, dict):
        raise source.wrong_kind(node, f"{where} is", "; a property is a mapping")
    fields = node.value
    for key, item in fields.items():
        if key not in FIELDS_OF_PROPERTY:
            known = f"{did_you_mean(key, FIELDS_OF_PROPERTY)}; a property has {', '.join(FIELDS_OF_PROPERTY)}"
            raise source.fault_at(item.key_at, f"{where} has the field {key!r}{known}")
    kind = source.text_of(fields.get("kind"), f"{where}.kind") or "string"
    kind = ALSO_CALLED.get(kind, kind)
    if kind not in KINDS_OF_PROPERTY:
        known = f"{did_you_mean(kind, KINDS_OF_PROPERTY)}; the kinds are {', '.join(KINDS_OF_PROPERTY)}"
        raise source.fault_at(fields["kind"].at, f"{where}.kind is {kind!r}{known}")
    enum, items = fields.get("enumValues"), fields.get("items")
    own_name = source.text_of(fields.get("name"), f"{where}.name")
    return Property(
        name or own_name or "",
        kind,
        source.text_of(fields.get("description"), f"{where}.description"),
        source.flag_of(fields.get("required"), f"{where}.required") or False,
        _default(kind, fields.get("default")),
        plain(fields.get("example")),
        () if enum is None else tuple(map(plain, source.list_of(enum, f"{where}.enumValues"))),
        source.flag_of(fields.get("nullable"), f"{where}.nullable") or False,
        None if items is None else _kind_or_property(source, items, f"{where}.items"),
        read_properties(source, fields.get("properties"), f"{where}.properties"),
        _choices(source, fields, where),
        one_of="oneOf" in fields,
    )


def _default(kind: str, node: Node | None) -> Json:
    """Return a default; an empty mapping for a thread, as some files have it, is one without messages."""
    value = plain(node)
    return [] if kind == "thread" and value == {} else value


def _of_name(source: SourceText, node: Node, where: str, name: str) -> Property:
    """Read a property under its name: a mapping with fields of one, or a value, which is its default."""
    if isinstance(node.value, dict) and node.value and node.value.keys() <= set(FIELDS_OF_PROPERTY):
        return _property(source, node, where, name)
    return Property(name, kind_of(node.value), default=plain(node))


def kind_of(value: Value) -> str:
    """Return the kind of a property that a value has."""
    return _OF_VALUE.get(type(value), "string")


def _kind_or_property(source: SourceText, node: Node, where: str) -> Property:
    """Read a property without a name; its kind alone will do."""
    if isinstance(node.value, str):
        node = Node({"kind": node}, node.at, node.key_at)
    return _property(source, node, where, "")


def _choices(source: SourceText, fields: Mapping[str, Node], where: str) -> tuple[Property, ...]:
    """Read the choices of a union: a list, or a mapping by names that tell them apart."""
    if "oneOf" in fields and "anyOf" in fields:
        what = f"{where} has oneOf and anyOf; take out oneOf, or anyOf if never more than one choice fits"
        raise source.fault_at(fields["anyOf"].key_at, what)
    name = "oneOf" if "oneOf" in fields else "anyOf"
    node = fields.get(name)
    if node is None or isinstance(node.value, dict):
        return read_properties(source, node, f"{where}.{name}")
    if not isinstance(node.value, list):
        raise source.wrong_kind(node, f"{where}.{name} is", ", and must be a list of the choices")
    return tuple(_kind_or_property(source, item, f"{where}.{name}[{at}]") for at, item in enumerate(node.value))


MediaBlock: TypeAlias = ImageBlock | AudioBlock | FileBlock | VideoBlock

MEDIA: Final[Mapping[str, type[MediaBlock]]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "file": FileBlock,
    "video": VideoBlock,
}
"""The blocks of media, by their names."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
}
_SHOWN = 60
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++={0,2}+\s*+")
# As much of it as tells what it is.
_HEAD = 120


class Thread(list[dict[str, str]], Opaque):
    """A thread in a template: a list of messages to loop over, and the messages that stand in its place.

    Args:
        name: The input.
        messages: The messages.
        left_out: The parts of its section that no message has a place for.
    """

    __slots__ = ("left_out", "messages", "name")

    def __init__(self, name: str, messages: Sequence[Msg], left_out: tuple[str, ...] = ()) -> None:
        super().__init__({"role": each.role, "name": each.name, "content": each.text} for each in messages)
        self.name, self.messages, self.left_out = name, tuple(messages), left_out


@dataclass(frozen=True, slots=True)
class MediaInput(Opaque):
    """A picture, sound, video or file in a template.

    Args:
        name: The input.
        block: The block that stands in its place.
    """

    name: str
    block: MediaBlock


def checked_inputs(inputs: Mapping[str, object], declared: Sequence[Property]) -> dict[str, object]:
    """Return the inputs of a prompt, with defaults where nothing is given.

    Args:
        inputs: The given ones, which stay as they are; those that are not declared are let through.
        declared: The declared ones.

    Raises:
        SlotError: A required one is missing, or a value is not of its kind; all faults are listed.
    """
    given: dict[str, object] = dict(inputs)
    faults: list[str] = []
    for each in declared:
        value = given.get(each.name)
        if value is None and not (each.nullable and each.name in given):
            given.pop(each.name, None)
            if each.default is not None:
                given[each.name] = each.own_default()
            elif each.required:
                near = did_you_mean(each.name, [name for name in given if all(name != one.name for one in declared)])
                faults.append(f"Missing required input: {each.name}{near}")
        else:
            faults += _misfits(value, each, each.name)
    if faults:
        raise SlotError("; ".join(faults))
    return given


def rich_value(name: str, kind: str, value: object) -> Thread | MediaInput:
    """Return an input that is a thread or a medium as what holds its place in a template.

    Raises:
        LazyPromptError: It is none.
    """
    if kind == "thread":
        try:
            return Thread(name, messages_from(cast("Any", thread_items(cast("list[object]", value)))))
        except LazyPromptError as error:
            raise type(error)(f"input {name}: {error}") from error
    if isinstance(value, MediaBlock):
        return MediaInput(name, value)
    source = value if isinstance(value, (URLSource, Base64Source)) else _source_of(cast("str", value), kind)
    return MediaInput(name, MEDIA[kind](source))


def thread_items(value: Iterable[object]) -> list[object]:
    """Return the messages of a thread in the words of a history: roles in small letters, no neutral parts."""
    return [_with_plain_role(message) for message in value]


def _with_plain_role(message: object) -> object:
    """Return a message whose role is written in small letters: in a prompt file, ``Assistant:`` is a role too."""
    if not isinstance(message, dict):
        return message
    fields = cast("dict[str, object]", message)
    role, content = fields.get("role"), fields.get("content")
    changed: dict[str, object] = {"role": role.lower()} if isinstance(role, str) else {}
    if isinstance(content, list):
        changed["content"] = [*map(_part_of_value, cast("list[object]", content))]
    return fields | changed


def _part_of_value(part: object) -> object:
    """Return a part; one of Prompty's neutral form, ``{"kind": "text", "value": "Hi"}``, as the block that it is."""
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, object]", part)
    kind, value = fields.get("kind"), fields.get("value")
    if kind == "text" and isinstance(value, str):
        return TextBlock(value)
    is_medium = isinstance(kind, str) and kind in MEDIA and isinstance(value, str)
    return MEDIA[str(kind)](_source_of(str(value), str(kind))) if is_medium else fields


def _source_of(text: str, kind: str) -> URLSource | Base64Source:
    """Return the source of a text: an address, a ``data:`` address, or base64 whose first bytes tell what it is."""
    data = "".join(text.split()) if _BASE64.fullmatch(text) else ""
    media_type = (sniff_type(a2b_base64(data[:_HEAD])) or "") if data and len(data) % 4 == 0 else ""
    fits = media_type if kind == "file" else media_type.startswith(f"{kind}/")
    return Base64Source(media_type, data) if fits else source_of(text)


def _misfits(value: object, declared: Property, where: str) -> Iterator[str]:
    """Find the faults of a value."""
    kind = declared.kind
    if value is None and declared.nullable:
        return
    if kind == "union":
        if declared.choices and all([*_misfits(value, each, where)] for each in declared.choices):
            kinds = ", ".join(each.kind for each in declared.choices)
            yield f"{where} is {_excerpt(value)}, and must be one of: {kinds}"
    elif kind in RICH:
        yield from _rich_misfits(value, kind, where)
    elif not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "float")):
        yield f"{where} is {_excerpt(value)}, and must be of the kind {kind}"
    else:
        is_hidden = isinstance(value, SecretText) and value.is_hidden
        if declared.enum_values and value not in declared.enum_values and not is_hidden:
            yield f"{where} is {_excerpt(value)}, and must be one of {', '.join(map(repr, declared.enum_values))}"
        if not isinstance(value, str):
            yield from _misfits_within(value, declared, where)


def _rich_misfits(value: object, kind: str, where: str) -> Iterator[str]:
    if kind == "thread":
        if not isinstance(value, list | tuple):
            yield f"{where} is {_excerpt(value)}, and must be a thread: a list of messages"
    elif isinstance(value, bytes):
        made = MEDIA[kind].__name__
        yield f"{where} is bytes; give a {made}(Base64Source(media_type, data)), or {made}.from_file(path)"
    elif not isinstance(value, (str, URLSource, Base64Source, MediaBlock)) or value == "":
        yield f"{where} is {_excerpt(value)}, and must be of the kind {kind}: an address, a source or a block"


def _misfits_within(value: object, declared: Property, where: str) -> Iterator[str]:
    """Find the faults of the items of an array, or the properties of an object."""
    if declared.items is not None and isinstance(value, list | tuple):
        for index, item in enumerate(cast("Sequence[object]", value)):
            yield from _misfits(item, declared.items, f"{where}[{index}]")
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        for each in declared.properties:
            if each.name in fields:
                yield from _misfits(fields[each.name], each, f"{where}.{each.name}")
            elif each.required:
                yield f"Missing required input: {where}.{each.name}"


def _excerpt(value: object) -> str:
    text = repr(value)
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
