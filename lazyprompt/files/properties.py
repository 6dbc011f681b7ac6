"""Properties (inputs, outputs and tool parameters), their kinds, and the validation of their values.

The kinds and their JSON Schemas follow the Prompty v2 specification, sections 2.5, 2.9 and 7.1.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from lazyprompt._base.json import is_dict, is_list, is_mapping, is_sequence
from lazyprompt._base.secret import SecretText
from lazyprompt.errors import LazyPromptError, SlotError, did_you_mean
from lazyprompt.files.yaml_nodes import Node, SourceText, Value, plain
from lazyprompt.media.resolver import sniff_type
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
from lazyprompt.messages.parse import parse_messages
from lazyprompt.templates.slots import Opaque

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject


SCALARS: Final[Mapping[str, str]] = {"string": "string", "integer": "integer", "float": "number", "boolean": "boolean"}
"""The scalar kinds, with their types in JSON Schema."""

RICH: Final = ("thread", "image", "file", "audio")
"""The kinds whose values aren't text: threads and media."""

KINDS_OF_PROPERTY: Final = (*SCALARS, "array", "object", "union", *RICH)
"""All kinds."""

FIELDS_OF_PROPERTY: Final = (
    *("name", "description", "required", "nullable", "kind", "default", "example", "enumValues", "items"),
    *("properties", "oneOf", "anyOf"),
)
"""The fields of a property."""

ALSO_CALLED: Final[Mapping[str, str]] = {"number": "float"}
"""Alternative names for kinds, from JSON Schema."""


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_HasName)
_ReadOne: TypeAlias = "Callable[[SourceText, Node, str, str], Named]"
_OF_VALUE: dict[type, str] = {bool: "boolean", int: "integer", float: "float", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Property:
    """An input, an output or a tool parameter, or a property nested in one.

    Args:
        name: The property's name, or ``""`` for the items of an array and the choices of a union.
        kind: The property's kind, one of :data:`KINDS_OF_PROPERTY`.
        description: The property's description.
        required: True if a value is required.
        default: The default value, or None if the property has no default. Don't modify the default;
            :meth:`own_default` returns a copy.
        example: An example value, which is never used as input.
        enum_values: The allowed values. If empty, all values are allowed.
        nullable: True if the value may be null.
        items: The property that describes the items of an array.
        properties: The properties of an object.
        choices: The choices of a union.
        one_of: True if a value must match exactly one choice (``oneOf``), False if it may match several (``anyOf``).
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
        """True if a value is required and there is no default."""
        return self.required and self.default is None

    def own_default(self) -> Json:
        """Return a copy of the default."""
        return deepcopy(self.default) if isinstance(self.default, (list, dict)) else self.default

    def to_dict(self) -> JsonObject:
        """Return the property in the format of the front matter."""
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
            strict: True for a strict schema, which requires every property, makes optional properties nullable and
                forbids additional properties.
        """
        made = self._bare_schema(strict=strict)
        if self.enum_values:
            made["enum"] = [*self.enum_values]
        if self.nullable or (strict and not self.required and self.name):
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
            # A strict schema must contain ``properties``, even if the object has none.
            return schema_of(self.properties, strict=strict)
        if self.kind == "union":
            # A union without choices accepts any value. Use anyOf, because some providers don't support oneOf.
            return {"anyOf": [each.schema(strict=strict) for each in self.choices]} if self.choices else {}
        return {"type": SCALARS.get(self.kind, "object" if self.kind == "object" else "string")}


def schema_of(properties: tuple[Property, ...], *, strict: bool = False) -> JsonObject:
    """Return the JSON Schema for an object with the given properties.

    Args:
        properties: The properties of the object.
        strict: True for a strict schema; see :meth:`Property.schema`.
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
    """Parse a list of named items, or a mapping of names to items.

    Args:
        source: The file that contains the items.
        node: The list or mapping.
        where: The field's name in error messages.
        read: The parser for list items, called with the file, the item, the item's name in errors, and ``""``.
        of_name: The parser for mapping items, called with the file, the item, the item's name in errors, and the key.

    Raises:
        PromptFileError: The node isn't a list or mapping, an item has no name, or two items have the same name.
    """
    if node.value is None:
        return []
    if isinstance(node.value, dict):
        return [of_name(source, item, f"{where}.{name}", name) for name, item in node.value.items()]
    if not isinstance(node.value, list):
        raise source.wrong_kind(node, f"{where} must be a list or a mapping keyed by name")
    found: dict[str, Named] = {}
    for index, item in enumerate(node.value):
        made = read(source, item, f"{where}[{index}]", "")
        if not made.name:
            raise source.fault_at(item.at, f"{where}[{index}] has no name")
        if made.name in found:
            raise source.fault_at(item.at, f"{where}[{index}]: duplicate name {made.name!r}")
        found[made.name] = made
    return [*found.values()]


def read_properties(source: SourceText, node: Node | None, where: str) -> tuple[Property, ...]:
    """Parse properties, or return ``()`` if the node is missing; see :func:`read_named`."""
    return () if node is None else tuple(read_named(source, node, where, _property, _of_name))


def _property(source: SourceText, node: Node, where: str, name: str) -> Property:
    if not isinstance(node.value, dict):
        raise source.wrong_kind(node, f"{where} must be a mapping")
    fields = node.value
    for key, item in fields.items():
        if key not in FIELDS_OF_PROPERTY:
            known = f"{did_you_mean(key, FIELDS_OF_PROPERTY)}; its fields are {', '.join(FIELDS_OF_PROPERTY)}"
            raise source.fault_at(item.key_at, f"{where} has an unknown field {key!r}{known}")
    kind = source.text_of(fields.get("kind"), f"{where}.kind") or "string"
    kind = ALSO_CALLED.get(kind, kind)
    if kind not in KINDS_OF_PROPERTY:
        known = f"{did_you_mean(kind, KINDS_OF_PROPERTY)}; the kinds are {', '.join(KINDS_OF_PROPERTY)}"
        raise source.fault_at(fields["kind"].at, f"{where} has an unknown kind {kind!r}{known}")
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
    """Return a property's default. In some files, the default of a thread is ``{}``, which becomes an empty list."""
    value = plain(node)
    return [] if kind == "thread" and value == {} else value


def _of_name(source: SourceText, node: Node, where: str, name: str) -> Property:
    """Parse a named property, written as a mapping of property fields or as only its default value."""
    if isinstance(node.value, dict) and node.value and node.value.keys() <= set(FIELDS_OF_PROPERTY):
        return _property(source, node, where, name)
    return Property(name, kind_of(node.value), default=plain(node))


def kind_of(value: Value) -> str:
    """Return the kind of a value."""
    return _OF_VALUE.get(type(value), "string")


def _kind_or_property(source: SourceText, node: Node, where: str) -> Property:
    """Parse an unnamed property, written as a mapping or as only its kind."""
    if isinstance(node.value, str):
        node = Node({"kind": node}, node.at, node.key_at)
    return _property(source, node, where, "")


def _choices(source: SourceText, fields: Mapping[str, Node], where: str) -> tuple[Property, ...]:
    """Parse the choices of a union from a list, or from a mapping by name."""
    if "oneOf" in fields and "anyOf" in fields:
        what = f"{where} has both oneOf and anyOf; remove one of them"
        raise source.fault_at(fields["anyOf"].key_at, what)
    name = "oneOf" if "oneOf" in fields else "anyOf"
    node = fields.get(name)
    if node is None or isinstance(node.value, dict):
        return read_properties(source, node, f"{where}.{name}")
    if not isinstance(node.value, list):
        raise source.wrong_kind(node, f"{where}.{name} must be a list of choices")
    return tuple(_kind_or_property(source, item, f"{where}.{name}[{at}]") for at, item in enumerate(node.value))


MediaBlock: TypeAlias = ImageBlock | AudioBlock | FileBlock | VideoBlock

MEDIA: Final[Mapping[str, type[MediaBlock]]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "file": FileBlock,
    "video": VideoBlock,
}
"""The media blocks by kind."""

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
_HEAD = 120


class Thread(list[dict[str, str]], Opaque):
    """The value of a ``thread`` input, as a list for templates; in the prompt, the thread's messages replace the list.

    Args:
        name: The name of the input.
        messages: The messages of the thread.
        left_out: Descriptions of the attributes and texts of a ``thread`` section that messages can't represent; the
            report lists them.
    """

    __slots__ = ("left_out", "messages", "name")

    def __init__(self, name: str, messages: Sequence[Msg], left_out: tuple[str, ...] = ()) -> None:
        super().__init__({"role": each.role, "name": each.name, "content": each.text} for each in messages)
        self.name, self.messages, self.left_out = name, tuple(messages), left_out


@dataclass(frozen=True, slots=True)
class MediaInput(Opaque):
    """A media input in a template.

    Args:
        name: The name of the input.
        block: The image, audio, video or file block that replaces the input in the prompt.
    """

    name: str
    block: MediaBlock


def checked_inputs(inputs: Mapping[str, object], declared: Sequence[Property]) -> dict[str, object]:
    """Validate the inputs of a prompt and add defaults.

    Args:
        inputs: The inputs to validate; undeclared inputs aren't checked.
        declared: The declared inputs.

    Raises:
        SlotError: A required input is missing, or a value doesn't match its input's kind; the message lists all errors.
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
    """Convert a thread or a media input to its placeholder in a template.

    Args:
        name: The name of the input.
        kind: The kind of the input, one of :data:`RICH`.
        value: The value, which :func:`checked_inputs` has already validated.

    Raises:
        LazyPromptError: A message or a media input is invalid.
    """
    if isinstance(value, MediaBlock):
        return MediaInput(name, value)
    source = _source_of(value, kind) if isinstance(value, str) else value
    if isinstance(source, URLSource | Base64Source):
        return MediaInput(name, MEDIA[kind](source))
    try:
        return Thread(name, thread_messages(value if is_sequence(value) else ()))
    except LazyPromptError as error:
        raise type(error)(f"input {name}: {error}") from error


def thread_messages(thread: Iterable[object]) -> list[Msg]:
    """Parse the messages of a thread; roles may be capitalized, and parts may use Prompty's neutral format."""
    return parse_messages([_with_plain_role(message) for message in thread])


def _with_plain_role(message: object) -> object:
    """Return a message with its role in lower case and content parts in Prompty's neutral format as blocks."""
    if not is_dict(message):
        return message
    role, content = message.get("role"), message.get("content")
    changed: dict[str, object] = {"role": role.lower()} if isinstance(role, str) else {}
    if is_list(content):
        changed["content"] = [*map(_part_of_value, content)]
    return message | changed


def _part_of_value(part: object) -> object:
    """Convert a part in Prompty's neutral format, ``{"kind": "text", "value": "Hi"}``, to a block."""
    if not is_dict(part):
        return part
    kind, value = part.get("kind"), part.get("value")
    if not isinstance(kind, str) or not isinstance(value, str):
        return part
    if kind == "text":
        return TextBlock(value)
    return MEDIA[kind](_source_of(value, kind)) if kind in MEDIA else part


def _source_of(text: str, kind: str) -> URLSource | Base64Source:
    """Convert text to a media source: a URL, a ``data:`` URL, or base64 whose first bytes identify the media type."""
    data = "".join(text.split()) if _BASE64.fullmatch(text) else ""
    media_type = (sniff_type(a2b_base64(data[:_HEAD])) or "") if data and len(data) % 4 == 0 else ""
    fits = media_type if kind == "file" else media_type.startswith(f"{kind}/")
    return Base64Source(media_type, data) if fits else source_of(text)


def _misfits(value: object, declared: Property, where: str) -> Iterator[str]:
    """Yield a message for each error in a value."""
    kind = declared.kind
    if value is None and declared.nullable:
        return
    if kind == "union":
        if declared.choices and all([*_misfits(value, each, where)] for each in declared.choices):
            kinds = ", ".join(each.kind for each in declared.choices)
            yield f"{where} is {_excerpt(value)}, but must be one of: {kinds}"
    elif kind in RICH:
        yield from _rich_misfits(value, kind, where)
    elif not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "float")):
        yield f"{where} is {_excerpt(value)}, but must be of kind {kind}"
    else:
        is_hidden = isinstance(value, SecretText) and value.is_hidden
        if declared.enum_values and value not in declared.enum_values and not is_hidden:
            yield f"{where} is {_excerpt(value)}, but must be one of {', '.join(map(repr, declared.enum_values))}"
        if not isinstance(value, str):
            yield from _misfits_within(value, declared, where)


def _rich_misfits(value: object, kind: str, where: str) -> Iterator[str]:
    if kind == "thread":
        if not isinstance(value, list | tuple):
            yield f"{where} is {_excerpt(value)}, but must be a thread (a list of messages)"
    elif isinstance(value, bytes):
        made = MEDIA[kind].__name__
        yield f"{where} is bytes; pass {made}(Base64Source(media_type, data)) or {made}.from_file(path)"
    elif not isinstance(value, (str, URLSource, Base64Source, MediaBlock)) or value == "":
        yield f"{where} is {_excerpt(value)}, but must be of kind {kind}: a URL, a source or a block"


def _misfits_within(value: object, declared: Property, where: str) -> Iterator[str]:
    """Yield a message for each error in the items of an array or the properties of an object."""
    if declared.items is not None and is_sequence(value):
        for index, item in enumerate(value):
            yield from _misfits(item, declared.items, f"{where}[{index}]")
    if is_mapping(value):
        for each in declared.properties:
            if each.name in value:
                yield from _misfits(value[each.name], each, f"{where}.{each.name}")
            elif each.required:
                yield f"Missing required input: {where}.{each.name}"


def _excerpt(value: object) -> str:
    text = repr(value)
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
