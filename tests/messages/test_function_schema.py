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
    title: NotRequired[Base]


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
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
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
def test_type_hints_become_json_schema(hint: object, schema: dict[str, object]) -> None:
    assert property_of(hint) == schema


POINT = {
    "type": "object",
    "description": "A place on the map.",
    "properties": {
        "x": {"type": "integer"},
        "title": {"type": "string", "default": "here", "description": "what stands there"},
    },
    "required": ["x"],
}


def test_pydantic_model_schema_is_inlined_and_keeps_a_property_called_title() -> None:
    assert property_of(Point) == POINT
    assert property_of(list[Point]) == {"type": "array", "items": POINT}


def test_dataclass_schema_is_inlined() -> None:
    color = {"type": "string", "enum": ["red", "blue"], "default": "red"}
    assert property_of(Line) == {
        "type": "object",
        "properties": {"start": POINT, "color": color, "weird": {}},
        "required": ["start"],
    }


def test_typed_dict_schema_keeps_required_keys_and_field_constraints() -> None:
    schema = property_of(Address)
    assert schema["description"] == "Where one lives."
    assert schema["required"] == ["city", "country"]
    assert schema["properties"]["zip_code"] == {"type": "string", "minLength": 5}
    assert "title" in schema["properties"]


@pytest.mark.parametrize("hint", [Annotated[Address, "d"], Address | None, list[Address], dict[str, Optional[Address]]])  # noqa: UP045
def test_typed_dict_schema_is_inlined_in_other_hints(hint: object) -> None:
    assert '"zip_code"' in json.dumps(property_of(hint))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads it there")
def test_recursive_typed_dict_is_refused_before_python_3_12() -> None:
    with pytest.raises(ToolsError, match=r"typing_extensions\.TypedDict"):
        property_of(Tree)


def test_recursive_model_stays_a_definition() -> None:
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


def test_mutually_recursive_models_stay_definitions() -> None:
    def turn(left: Left) -> None: ...

    parameters = schema_of(turn)["parameters"]
    assert list(parameters["$defs"]) == ["Left", "Right"]
    assert parameters["$defs"]["Right"]["properties"] == {"left": {"$ref": "#/$defs/Left"}, "point": POINT}


def test_function_schema_does_not_change_the_models_in_the_hints() -> None:
    before = Node.model_json_schema()
    property_of(Annotated[Node, Field(description="changed")])
    assert Node.model_json_schema() == before
    assert property_of(Node) == {"$ref": "#/$defs/Node"}


def test_tagged_union_schema_is_inlined_without_references() -> None:
    schema = property_of(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert list(schema) == ["oneOf"]
    assert "$defs" not in json.dumps(schema)


def test_schema_keywords_inside_example_const_and_default_data_are_kept() -> None:
    data = {"title": "x", "discriminator": "y"}
    extra = typing.cast("Any", {"const": data})
    schema = property_of(
        Annotated[dict[str, str], Field(examples=[data], json_schema_extra=extra)], data | {"$ref": "z"}
    )
    assert (schema["examples"], schema["const"], schema["default"]) == ([data], data, data | {"$ref": "z"})


def test_parameter_names_that_collide_with_pydantic_or_schema_keywords_are_accepted() -> None:
    def odd(
        title: str, schema: int, model_config: int, _hidden: int, json: int, self: int, properties: int
    ) -> None: ...

    names = ["title", "schema", "model_config", "_hidden", "json", "self", "properties"]
    assert list(properties(odd)) == names
    assert schema_of(odd)["parameters"]["required"] == names
    assert all(set(each) == {"type"} for each in properties(odd).values())


def test_parameter_with_skip_json_schema_is_left_out() -> None:
    def answer(text: str, context: SkipJsonSchema[int]) -> None: ...

    assert schema_of(answer)["parameters"]["required"] == ["text"]
    assert list(properties(answer)) == ["text"]


def test_unresolvable_return_hint_is_ignored() -> None:
    def make(x: int) -> Unknown: ...

    assert properties(make) == {"x": {"type": "integer"}}


def test_unresolvable_parameter_hint_is_refused_with_the_parameter_name() -> None:
    def make(x: int, y: list[Unknown]) -> None: ...

    assert tools_error([make]).endswith(
        "make(): the type hint 'list[Unknown]' of parameter 'y' cannot be resolved (name 'Unknown' is not defined); "
        "define or import the type at module level, outside TYPE_CHECKING"
    )


@pytest.mark.parametrize("hint", [Shop, 5, Annotated[str, Field(pattern="(")], "list[", typing.Callable[[], int]])
def test_hint_without_a_json_schema_is_refused_with_the_parameter_name(hint: object) -> None:
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
def test_default_value_is_written_in_its_json_form(default: object, form: object) -> None:
    assert property_of(Any, default) == {"default": form}


@pytest.mark.parametrize("default", [object(), float("nan"), "\ud800", b"\xff", int, search])
def test_default_value_without_a_json_form_is_left_out(default: object) -> None:
    def make(x: Any = default) -> None: ...

    assert schema_of(make)["parameters"] == {"type": "object", "properties": {"x": {}}}


def test_default_value_makes_a_parameter_optional() -> None:
    def make(a: int, b: int = 1, *, c: int, d: int = 2) -> None: ...

    assert schema_of(make)["parameters"]["required"] == ["a", "c"]


def test_pydantic_field_as_a_parameter_default_gives_description_and_default_value() -> None:
    def make(a: int = Field(description="A", ge=1), b: int = Field(5, description="B")) -> None: ...

    assert schema_of(make)["parameters"]["required"] == ["a"]
    assert properties(make) == {
        "a": {"type": "integer", "description": "A", "minimum": 1},
        "b": {"type": "integer", "description": "B", "default": 5},
    }


def test_default_inside_an_annotated_hint_does_not_make_a_parameter_optional() -> None:
    def make(a: Annotated[int, Field(default=3)]) -> None: ...

    assert schema_of(make)["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
    }


def test_choices_in_a_docstring_become_an_enum() -> None:
    """The choices stayed in the description only, where no provider enforces them."""

    def switch(color: str) -> None:
        """Switch the lamp.

        Args:
            color: The color. (choices: ["red", "warm white"])
        """

    assert properties(switch)["color"] == {
        "type": "string",
        "description": "The color.",
        "enum": ["red", "warm white"],
    }


@pytest.mark.parametrize("written", ["red, blue", '{"red": 1}', '["red"'])
def test_docstring_choices_that_are_no_json_list_are_refused(written: str) -> None:
    def switch(lamp: str, color: str) -> None: ...

    switch.__doc__ = f"Switch.\n\nArgs:\n    lamp: One. (choices: [1]\n    color: The color. (choices: {written})\n"
    message = tools_error([switch])
    assert f'the choices of parameter \'color\' must be a JSON list such as ["red", "blue"], not {written!r}' in message
