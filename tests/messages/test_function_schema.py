from __future__ import annotations

import json
import sys
import typing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, Required

import pytest
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002  # resolved from the hint

from lazyprompt.errors import ToolsError
from messages.helpers import Level, Point, Shop, properties, schema_of, search, tools_error

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Left(BaseModel):
    right: Right | None = None


class Right(BaseModel):
    left: Left
    point: Point


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@dataclass
class Line:
    start: Point
    color: Color = Color.RED
    weird: object = object()


class Base(typing.TypedDict):
    city: str


class Address(Base, total=False):
    """Where one lives."""

    zip_code: Annotated[str, Field(min_length=5)]
    country: Required[str]
    title: NotRequired[str]


class Tree(typing.TypedDict):
    trees: list[Tree]


def property_of(hint: object, default: object = ...) -> dict[str, Any]:
    """The schema of the parameter of a function with this hint."""

    def function(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return x

    function.__annotations__ = {"x": hint}
    function.__defaults__ = () if default is ... else (default,)
    return typing.cast("dict[str, Any]", properties(function)["x"])


# Hints of functions


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        *((str, {"type": "string"}), (bool, {"type": "boolean"}), (float, {"type": "number"}), (Any, {}), (object, {})),
        *((None, {"type": "null"}), (list[int], {"type": "array", "items": {"type": "integer"}})),
        (list, {"type": "array", "items": {}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        *((Literal["a", 1], {"enum": ["a", 1]}), (Color, {"type": "string", "enum": ["red", "blue"]})),
        (Literal[Color.RED], {"type": "string", "const": "red"}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        ("int | str", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (list["Color"], {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}),
        (
            Annotated[int, Field(ge=1, description="how many")],
            {"type": "integer", "minimum": 1, "description": "how many"},
        ),
        (Annotated[str, "the city"], {"type": "string", "description": "the city"}),
        (Annotated[str, "text", Field(description="field")], {"type": "string", "description": "field"}),
        (Annotated[str, Field(title="T", alias="other")], {"type": "string"}),
    ],
)
def test_hints_become_json_schema(hint: object, schema: dict[str, object]) -> None:
    assert property_of(hint) == schema


def test_a_pair_has_two_schemas() -> None:
    assert property_of(tuple[int, str])["prefixItems"] == [{"type": "integer"}, {"type": "string"}]


POINT = {
    "type": "object",
    "description": "A place on the map.",
    "properties": {
        "x": {"type": "integer"},
        "title": {"type": "string", "default": "here", "description": "what stands there"},
    },
    "required": ["x"],
}


def test_a_model_stands_in_place_with_its_property_called_title() -> None:
    assert property_of(Point) == POINT
    assert property_of(list[Point]) == {"type": "array", "items": POINT}


def test_a_dataclass_stands_in_place() -> None:
    color = {"type": "string", "enum": ["red", "blue"], "default": "red"}
    assert property_of(Line) == {
        "type": "object",
        "properties": {"start": POINT, "color": color, "weird": {}},
        "required": ["start"],
    }


def test_a_typed_dict_keeps_what_is_required() -> None:
    schema = property_of(Address)
    assert schema["description"] == "Where one lives."
    assert schema["required"] == ["city", "country"]
    assert schema["properties"]["zip_code"] == {"type": "string", "minLength": 5}
    assert "title" in schema["properties"]
    for hint in (Annotated[Address, "d"], Address | None, list[Address], dict[str, Optional[Address]]):  # noqa: UP045
        assert '"zip_code"' in json.dumps(property_of(hint))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads it there")
def test_a_typed_dict_that_holds_itself_is_refused_before_python_312() -> None:
    with pytest.raises(ToolsError, match=r"typing_extensions\.TypedDict"):
        property_of(Tree)


def test_a_type_that_holds_itself_stays_a_definition() -> None:
    def grow(node: Annotated[Node, "where"], other: Node, point: Point) -> None: ...

    parameters = schema_of(grow)["parameters"]
    assert parameters["properties"]["node"] == {"$ref": "#/$defs/Node", "description": "where"}
    assert parameters["properties"]["other"] == {"$ref": "#/$defs/Node"}
    assert parameters["properties"]["point"] == POINT
    children = {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []}
    assert parameters["$defs"] == {
        "Node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "children": children},
            "required": ["value"],
        }
    }


def test_types_that_hold_each_other_stay_definitions() -> None:
    def turn(left: Left) -> None: ...

    parameters = schema_of(turn)["parameters"]
    assert list(parameters["$defs"]) == ["Left", "Right"]
    assert parameters["$defs"]["Right"]["properties"] == {"left": {"$ref": "#/$defs/Left"}, "point": POINT}


def test_describing_a_function_leaves_its_models_as_they_were() -> None:
    before = Node.model_json_schema()
    property_of(Annotated[Node, Field(description="changed")])
    assert Node.model_json_schema() == before
    assert property_of(Node) == {"$ref": "#/$defs/Node"}


def test_a_tagged_union_points_nowhere() -> None:
    schema = property_of(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert list(schema) == ["oneOf"]
    assert "$defs" not in json.dumps(schema)


def test_data_called_title_is_kept() -> None:
    data = {"title": "x", "discriminator": "y"}
    extra = typing.cast("Any", {"const": data})
    schema = property_of(
        Annotated[dict[str, str], Field(examples=[data], json_schema_extra=extra)], data | {"$ref": "z"}
    )
    assert (schema["examples"], schema["const"], schema["default"]) == ([data], data, data | {"$ref": "z"})


def test_a_parameter_may_have_any_name() -> None:
    def odd(
        title: str, schema: int, model_config: int, _hidden: int, json: int, self: int, properties: int
    ) -> None: ...

    names = ["title", "schema", "model_config", "_hidden", "json", "self", "properties"]
    assert list(properties(odd)) == names
    assert schema_of(odd)["parameters"]["required"] == names
    assert all(set(each) == {"type"} for each in properties(odd).values())


def test_a_hidden_parameter_is_hidden() -> None:
    def answer(text: str, context: SkipJsonSchema[int]) -> None: ...

    assert schema_of(answer)["parameters"]["required"] == ["text"]
    assert list(properties(answer)) == ["text"]


def test_the_return_hint_is_not_looked_at() -> None:
    def make(x: int) -> Unknown: ...

    assert properties(make) == {"x": {"type": "integer"}}


def test_a_hint_that_cannot_be_resolved_is_named() -> None:
    def make(x: int, y: list[Unknown]) -> None: ...

    message = tools_error([make])
    assert "make()" in message
    assert "'list[Unknown]' of parameter 'y'" in message
    assert "TYPE_CHECKING" in message


@pytest.mark.parametrize("hint", [Shop, 5, Annotated[str, Field(pattern="(")], "list[", typing.Callable[[], int]])
def test_a_hint_without_a_schema_is_named(hint: object) -> None:
    def make(a: int, x: int, b: int) -> None: ...

    make.__annotations__["x"] = hint
    message = tools_error([make])
    assert "make()" in message
    assert "parameter x " in message or "parameter 'x' " in message


# Defaults of functions


@pytest.mark.parametrize(
    ("default", "form"),
    [
        *((None, None), ("x", "x"), (Color.BLUE, "blue"), (Level.LOW, 1), ((1, 2), [1, 2]), ({"b", "a"}, ["a", "b"])),
        *((Point(x=1, title="here"), {"x": 1, "title": "here"}), ({"a": [Color.RED]}, {"a": ["red"]})),
    ],
)
def test_a_default_is_shown_in_its_json_form(default: object, form: object) -> None:
    assert property_of(Any, default) == {"default": form}


@pytest.mark.parametrize("default", [object(), float("nan"), "\ud800", b"\xff", int, search])
def test_a_default_without_a_json_form_is_left_out(default: object) -> None:
    def make(x: Any = default) -> None: ...

    assert schema_of(make)["parameters"] == {"type": "object", "properties": {"x": {}}}


def test_a_default_makes_a_parameter_optional() -> None:
    def make(a: int, b: int = 1, *, c: int, d: int = 2) -> None: ...

    assert schema_of(make)["parameters"]["required"] == ["a", "c"]


def test_a_field_may_stand_as_the_default() -> None:
    def make(a: int = Field(description="A", ge=1), b: int = Field(5, description="B")) -> None: ...

    assert schema_of(make)["parameters"]["required"] == ["a"]
    assert properties(make) == {
        "a": {"type": "integer", "description": "A", "minimum": 1},
        "b": {"type": "integer", "description": "B", "default": 5},
    }


def test_only_the_signature_says_what_is_optional() -> None:
    def make(a: Annotated[int, Field(default=3)]) -> None: ...

    assert schema_of(make)["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
    }


class Lamp:
    def switch(self, color: str) -> None:
        """Switch the lamp.

        Args:
            color: The color. (choices: ["red", "warm white"])
        """

    @classmethod
    def make(cls, watts: int) -> None:
        """Make a lamp."""


@pytest.mark.parametrize("method", [Lamp.switch, Lamp().switch, Lamp.make, Lamp.__dict__["make"].__func__])
def test_the_instance_is_no_parameter(method: Any) -> None:
    """A method given through its class offered the model a required `self`."""
    assert not {"self", "cls"} & properties(method).keys()


def test_choices_of_a_docstring_make_an_enum() -> None:
    """They were left in the description, where no provider holds a model to them."""
    assert properties(Lamp.switch)["color"] == {
        "type": "string",
        "description": "The color.",
        "enum": ["red", "warm white"],
    }


@pytest.mark.parametrize("written", ["red, blue", '{"red": 1}', '["red"'])
def test_choices_are_a_json_list(written: str) -> None:
    def switch(color: str) -> None: ...

    switch.__doc__ = f"Switch the lamp.\n\nArgs:\n    color: The color. (choices: {written})\n"
    message = tools_error([switch])
    assert f'the choices of parameter \'color\' must be a JSON list such as ["red", "blue"], not {written!r}' in message
