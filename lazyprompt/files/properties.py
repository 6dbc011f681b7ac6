"""Properties: what a prompt takes and gives, and the parameters of its tools, each of a kind.

The kinds and their JSON Schema are those of Prompty v2 (its specification, sections 2.5, 2.9 and 7.1).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from lazyprompt.errors import did_you_mean
from lazyprompt.files.yaml_nodes import KINDS, Node, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.yaml_nodes import Source

SCALARS: Final[Mapping[str, str]] = {"string": "string", "integer": "integer", "float": "number", "boolean": "boolean"}
"""The kinds of plain values, and what JSON Schema calls them."""

RICH: Final = ("thread", "image", "file", "audio")
"""The kinds of what has no text."""

KINDS_OF_PROPERTY: Final = (*SCALARS, "array", "object", "union", *RICH)
"""All kinds."""

_TEXTS = ("name", "description")
_FLAGS = ("required", "nullable")
FIELDS_OF_PROPERTY: Final = (
    *(*_TEXTS, *_FLAGS, "kind", "default", "example", "enumValues", "items", "properties", "oneOf", "anyOf"),
)
"""The fields of a property."""

ALSO_CALLED: Final[Mapping[str, str]] = {"number": "float"}
"""Kinds by other names, as JSON Schema has them."""

_OF_VALUE = {bool: "boolean", int: "integer", float: "float", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Property:
    """An input, an output, a parameter of a tool, or a part of one.

    Args:
        name: Its name; ``""`` for the items of an array and the choices of a union.
        kind: One of :data:`KINDS_OF_PROPERTY`.
        description: What it is.
        required: Whether it must be given.
        default: What it is where it is not given; None is no default. Not to be changed: see :meth:`own_default`.
        example: What it may be like; never used as a value.
        enum_values: The values that it may have; none are all.
        nullable: Whether it may be null.
        items: What an array holds.
        properties: What an object holds.
        choices: What a union may be.
        one_of: Whether just one of the choices fits, and not several: it is written as ``oneOf``, else ``anyOf``.
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

    def own_default(self) -> Json:
        """The default, which whoever gets it may change."""
        return deepcopy(self.default) if isinstance(self.default, (list, dict)) else self.default

    def to_dict(self) -> JsonObject:
        """The property as a front matter says it."""
        told: dict[str, Json | None] = {
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
        return {name: value for name, value in told.items() if value is not None}

    def schema(self, *, strict: bool = False) -> JsonObject:
        """The property as a JSON Schema.

        Args:
            strict: Whether it keeps the rules of strict schemas: everything is required, and may be null where it is
                not; nothing else may be there.
        """
        made = self._bare_schema(strict=strict)
        if self.enum_values:
            made["enum"] = [*self.enum_values]
        if self.nullable or (strict and not self.required and self.name):
            _let_be_null(made)
        if self.description:
            made["description"] = self.description
        return made

    def _bare_schema(self, *, strict: bool) -> JsonObject:
        if self.kind == "array":
            items: JsonObject = {"type": "string"} if self.items is None else self.items.schema(strict=strict)
            return {"type": "array", "items": items}
        if self.kind == "object":
            # In a strict schema, an object without properties must say so.
            return schema_of(self.properties, strict=strict) if self.properties or strict else {"type": "object"}
        if self.kind == "union":
            # One without choices may be anything. oneOf is anyOf here: not every provider knows it in a schema.
            return {"anyOf": [each.schema(strict=strict) for each in self.choices]} if self.choices else {}
        return {"type": SCALARS.get(self.kind, "string")}


def _let_be_null(schema: JsonObject) -> None:
    """Let null be a value of a schema, in all the ways in which it says what may be one."""
    kind, choices, enum = schema.get("type"), schema.get("anyOf"), schema.get("enum")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
    if isinstance(choices, list):
        schema["anyOf"] = [*choices, {"type": "null"}]
    if isinstance(enum, list) and None not in enum:
        schema["enum"] = [*enum, None]


def schema_of(properties: tuple[Property, ...], *, strict: bool = False) -> JsonObject:
    """The JSON Schema of an object with some properties.

    Args:
        properties: The properties.
        strict: As of :meth:`Property.schema`.
    """
    made: JsonObject = {
        "type": "object",
        "properties": {each.name: each.schema(strict=strict) for each in properties},
    }
    required: list[Json] = [each.name for each in properties if each.required or strict]
    if required:
        made["required"] = required
    if strict:
        made["additionalProperties"] = False
    return made


class PropertyReader:
    """Reads properties out of a front matter.

    Args:
        source: The file.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def listed(self, node: Node, where: str) -> tuple[Property, ...]:
        """Properties as a list of mappings with names, or as a mapping by names.

        Args:
            node: What is written.
            where: How errors call it.

        Raises:
            PromptFileError: It is neither, or two have one name.
        """
        found: dict[str, Property] = {}
        if isinstance(node.value, dict):
            return tuple(self._of_name(name, item, f"{where}.{name}") for name, item in node.value.items())
        if node.value is None:
            return ()
        if not isinstance(node.value, list):
            what = f"{where} are {KINDS[type(node.value)]}; they are a list, or a mapping by their names"
            raise self._source.pointed(node.at, what)
        for index, item in enumerate(node.value):
            made = self.one(item, f"{where}[{index}]")
            if not made.name:
                raise self._source.pointed(item.at, f"{where}[{index}] has no name")
            if made.name in found:
                raise self._source.pointed(
                    item.at, f"{where}[{index}]: there is a second one of the name {made.name!r}"
                )
            found[made.name] = made
        return tuple(found.values())

    def one(self, node: Node, where: str, name: str = "") -> Property:
        """A property that is written as a mapping.

        Args:
            node: What is written.
            where: How errors call it.
            name: Its name, where that stands before it.

        Raises:
            PromptFileError: It is no property.
        """
        if not isinstance(node.value, dict):
            raise self._source.pointed(node.at, f"{where} is {KINDS[type(node.value)]}; a property is a mapping")
        fields = node.value
        for key, item in fields.items():
            if key not in FIELDS_OF_PROPERTY:
                known = f"a property has {', '.join(FIELDS_OF_PROPERTY)}"
                what = f"{where} has the field {key!r}{did_you_mean(key, FIELDS_OF_PROPERTY)}; {known}"
                raise self._source.pointed(item.key_at, what)
        kind = self._text(fields.get("kind"), f"{where}.kind") or "string"
        kind = ALSO_CALLED.get(kind, kind)
        if kind not in KINDS_OF_PROPERTY:
            known = f"{did_you_mean(kind, KINDS_OF_PROPERTY)}; the kinds are {', '.join(KINDS_OF_PROPERTY)}"
            raise self._source.pointed(fields["kind"].at, f"{where}.kind is {kind!r}{known}")
        texts = {key: self._text(fields.get(key), f"{where}.{key}") for key in _TEXTS}
        flags = {key: self._flag(fields.get(key), f"{where}.{key}") for key in _FLAGS}
        enum = fields.get("enumValues")
        return Property(
            name or texts["name"] or "",
            kind,
            texts["description"],
            flags["required"],
            _json(fields.get("default")),
            _json(fields.get("example")),
            () if enum is None else tuple(cast("list[Json]", self._list(enum, f"{where}.enumValues"))),
            flags["nullable"],
            self._items(fields.get("items"), f"{where}.items"),
            self.listed(fields["properties"], f"{where}.properties") if "properties" in fields else (),
            self._choices(fields, where),
            one_of="oneOf" in fields,
        )

    def _of_name(self, name: str, node: Node, where: str) -> Property:
        """A property under its name: a mapping with fields of one, or a value, which is its default."""
        if isinstance(node.value, dict) and node.value and node.value.keys() <= set(FIELDS_OF_PROPERTY):
            return self.one(node, where, name)
        if node.value is None:
            return Property(name)
        kind = "string" if isinstance(node.value, str) else _OF_VALUE[type(node.value)]
        return Property(name, kind, default=_json(node))

    def _items(self, node: Node | None, where: str) -> Property | None:
        if node is None:
            return None
        if isinstance(node.value, str):  # the kind alone
            node = Node({"kind": node}, node.at, node.key_at)
        return self.one(node, where)

    def _choices(self, fields: Mapping[str, Node], where: str) -> tuple[Property, ...]:
        """What a union may be: a list, or a mapping by names that tell the choices apart."""
        if "oneOf" in fields and "anyOf" in fields:
            what = f"{where} has oneOf and anyOf; take out oneOf, or anyOf if never more than one choice fits"
            raise self._source.pointed(fields["anyOf"].key_at, what)
        name = "oneOf" if "oneOf" in fields else "anyOf"
        node = fields.get(name)
        if node is None:
            return ()
        if isinstance(node.value, dict):
            return self.listed(node, f"{where}.{name}")
        if not isinstance(node.value, list):
            what = f"{where}.{name} is {KINDS[type(node.value)]}, and must be a list of the choices"
            raise self._source.pointed(node.at, what)
        return tuple(
            self._items(item, f"{where}.{name}[{index}]") or Property("") for index, item in enumerate(node.value)
        )

    def _text(self, node: Node | None, where: str) -> str | None:
        if node is None or node.value is None:
            return None
        if not isinstance(node.value, str):
            raise self._source.pointed(node.at, f"{where} is {KINDS[type(node.value)]}, and must be text")
        return node.value

    def _flag(self, node: Node | None, where: str) -> bool:
        if node is None or node.value is None:
            return False
        if not isinstance(node.value, bool):
            raise self._source.pointed(node.at, f"{where} is true or false, not {KINDS[type(node.value)]}")
        return node.value

    def _list(self, node: Node, where: str) -> list[Any]:
        if not isinstance(node.value, list):
            raise self._source.pointed(node.at, f"{where} is {KINDS[type(node.value)]}, and must be a list")
        return [plain(item) for item in node.value]


def _json(node: Node | None) -> Json:
    return None if node is None else cast("Json", plain(node))
