from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import typing
from collections import OrderedDict
from dataclasses import FrozenInstanceError, dataclass
from enum import Enum, IntEnum
from functools import lru_cache, partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, Required

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002  # resolved from the hint

from lazyprompt._json import JsonText
from lazyprompt.errors import ToolsError
from lazyprompt.tools import ToolSet, function_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from nowhere import Unknown  # type: ignore[import-not-found]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Point(BaseModel):
    """A place on the map."""

    x: int
    title: str = Field("here", description="what stands there")


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


def search(query: str, limit: int = 10) -> str:
    """Search the web."""
    return f"{query}{limit}"


def now() -> str:
    return ""


async def fetch(url: str) -> str:
    """Fetch a page."""
    return url


def tool(name: str = "now", **function: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **function}}


def schema_of(function: Callable[..., object]) -> dict[str, Any]:
    schema = function_schema(function)["function"]
    assert isinstance(schema, dict)
    return typing.cast("dict[str, Any]", schema)


def properties(function: Callable[..., object]) -> dict[str, Any]:
    return typing.cast("dict[str, Any]", schema_of(function)["parameters"]["properties"])


def property_of(hint: object, default: object = ...) -> dict[str, Any]:
    """The schema of the parameter of a function with this hint."""

    def function(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return x

    function.__annotations__ = {"x": hint}
    function.__defaults__ = () if default is ... else (default,)
    return typing.cast("dict[str, Any]", properties(function)["x"])


def refused(tools: object) -> str:
    with pytest.raises(ToolsError) as caught:
        ToolSet.of(typing.cast("list[dict[str, object]]", tools))
    return str(caught.value)


# Sets of tools


@pytest.mark.parametrize("tools", [None, [], (), iter(())])
def test_no_tools_give_an_empty_set(tools: Any) -> None:
    none = ToolSet.of(tools)
    assert (none.names, none.json, none.copy(), len(none), bool(none)) == ((), "[]", [], 0, False)


def test_a_set_knows_names_and_text_and_dicts() -> None:
    given = [tool("now", description="现在"), tool("then")]
    tools = ToolSet.of(given)
    assert tools.names == ("now", "then")
    assert tools.json == json.dumps(given, ensure_ascii=False)
    assert isinstance(tools.json, JsonText)
    assert tools.copy() == list(tools) == given
    assert len(tools) == 2
    assert tools
    assert repr(tools) == "<ToolSet ['now', 'then']>"


def test_a_set_is_returned_itself() -> None:
    tools = ToolSet.of([tool()])
    assert ToolSet.of(tools) is tools


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda tools: (each for each in tools)])
def test_any_iterable_will_do(kind: Callable[[object], Any]) -> None:
    assert ToolSet.of(kind([tool("a"), tool("b")])).names == ("a", "b")


def test_functions_and_dicts_mix_in_order() -> None:
    tools = ToolSet.of([search, tool(), fetch])
    assert tools.names == ("search", "now", "fetch")
    assert tools.copy()[0] == function_schema(search)


def test_the_order_of_keys_is_kept() -> None:
    given = {"function": {"parameters": {"b": 1, "a": 2}, "name": "x"}, "type": "function"}
    assert ToolSet.of([given]).json == json.dumps([given])


def test_mappings_and_odd_but_valid_types_become_plain_json() -> None:
    class Text(str):
        __slots__ = ()

    odd = MappingProxyType(
        {"type": Text("function"), "function": OrderedDict(name=Text("x"), parameters={"enum": (Level.LOW, 2.5)})}
    )
    tools = ToolSet.of([odd])
    assert tools.copy() == [tool("x", parameters={"enum": [1, 2.5]})]
    parameters = typing.cast("Any", tools.copy()[0])["function"]["parameters"]
    assert [type(each) for each in parameters["enum"]] == [int, float]
    assert type(tools.names[0]) is str


def test_what_was_given_is_neither_changed_nor_kept() -> None:
    given = [tool("x", parameters={"type": "object", "properties": {"a": {"enum": [1]}}})]
    before = copy.deepcopy(given)
    tools = ToolSet.of(given)
    text = tools.json
    tools.copy()[0].clear()
    next(iter(tools)).clear()
    assert given == before
    typing.cast("Any", given)[0]["function"]["parameters"]["properties"]["a"]["enum"].append(2)
    assert tools.copy() == before
    assert tools.json == text


def test_copies_share_nothing_even_if_the_given_did() -> None:
    shared = {"type": "string"}
    tools = ToolSet.of([tool("x", parameters={"properties": {"a": shared, "b": shared}}), tool("y", parameters=shared)])
    first, second = typing.cast("list[Any]", tools.copy())
    first["function"]["parameters"]["properties"]["a"]["type"] = "null"
    assert first["function"]["parameters"]["properties"]["b"] == second["function"]["parameters"] == {"type": "string"}
    assert tools.copy()[1] == tool("y", parameters={"type": "string"})


def test_a_dict_changed_between_calls_is_seen() -> None:
    given = tool("a")
    assert ToolSet.of([given]).names == ("a",)
    typing.cast("Any", given)["function"]["name"] = "b"
    assert ToolSet.of([given]).names == ("b",)


def test_equal_tools_are_remembered_by_content() -> None:
    name = json.loads('"today"')  # not the same object as the literal, as one read from a file
    assert ToolSet.of([tool(name)]) is ToolSet.of((tool("today"),))


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1), (None, "null")])
def test_values_that_python_calls_equal_stay_apart(pair: tuple[object, object]) -> None:
    texts = [ToolSet.of([tool("x", parameters={"default": each})]).json for each in pair]
    assert texts == [json.dumps([tool("x", parameters={"default": each})]) for each in pair]


def test_sets_are_equal_by_content_and_hash_alike() -> None:
    one, same, other = ToolSet.of([tool("a")]), ToolSet(ToolSet.of([tool("a")]).json), ToolSet.of([tool("b")])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != typing.cast("object", [tool("a")])
    assert len({one, same, other}) == 2


@pytest.mark.parametrize("name", ["json", "names", "_packed", "new"])
def test_a_set_cannot_be_changed(name: str) -> None:
    tools = ToolSet.of([tool()])
    with pytest.raises((FrozenInstanceError, TypeError)):
        setattr(tools, name, ())
    assert not hasattr(tools, "__dict__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_set_survives_pickle(protocol: int) -> None:
    tools = ToolSet.of([search, tool("x", description="现在")])
    loaded = pickle.loads(pickle.dumps(tools, protocol))  # noqa: S301
    assert loaded == tools
    assert (loaded.names, loaded.copy(), type(loaded.json)) == (tools.names, tools.copy(), JsonText)


def test_a_set_survives_copy() -> None:
    tools = ToolSet.of([tool()])
    assert copy.copy(tools) == copy.deepcopy(tools) == tools


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3))
def test_every_json_schema_comes_back_as_it_was(parameters: list[dict[str, object]]) -> None:
    given = [tool(f"t{index}", parameters=each) for index, each in enumerate(parameters)]
    tools = ToolSet.of(given)
    assert tools.copy() == given
    assert tools.json == json.dumps(given, ensure_ascii=False)
    assert json.loads(tools.json) == given


# A provider's own tools


def test_tools_of_other_types_pass_as_they_are() -> None:
    given: list[dict[str, object]] = [
        {"type": "web_search", "filters": {"domains": ["a.b"]}},
        {"type": "custom", "custom": {"name": "sql", "format": {"type": "text"}}},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp", "server_label": "a"},
        {"type": "mcp", "server_label": "b"},
        {"type": "odd", "name": "", "odd": "text"},
    ]
    tools = ToolSet.of(given)
    assert tools.copy() == given
    assert tools.names == ("web_search", "sql", "bash", "mcp", "mcp", "odd")


# Errors


@pytest.mark.parametrize("tools", ["search", b"search", tool(), {}, search, 5, {search}, frozenset({search})])
def test_tools_that_are_no_list_are_refused(tools: object) -> None:
    assert "in a list: tools=[...]" in refused(tools)


@pytest.mark.parametrize("wrong", [None, 5, "search", [], b"x", object()])
def test_an_item_that_is_no_tool_is_named(wrong: object) -> None:
    message = refused([tool(), wrong])
    assert message.startswith(f"tools[1] is the {type(wrong).__name__} ")
    assert "expected a dict" in message


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({}, 'write {"type": "function", "function": {"name": ...'),
        ({"name": "x", "parameters": {}}, 'wrap it as {"type": "function", "function": <this dict>}'),
        ({"name": "x", "input_schema": {}}, "Anthropic's form"),
        ({"function": {"name": "x"}}, '"type": "function" belongs beside "function"'),
        ({"type": ""}, "non-empty string"),
        ({"type": 5}, "non-empty string"),
    ],
)
def test_a_tool_without_a_type_is_told_the_right_form(wrong: dict[str, object], advice: str) -> None:
    message = refused([tool(), wrong])
    assert message.startswith('tools[1] has no "type"')
    assert advice in message


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"type": "function"}, "tools[0].function is None"),
        ({"type": "function", "function": "x"}, "tools[0].function is 'x'"),
        ({"type": "function", "name": "x", "parameters": {}}, "wrap it as"),
        ({"type": "function", "function": {}}, "tools[0].function.name is None"),
        (tool(""), "tools[0].function.name is ''"),
        (tool("x", description=5), "tools[0].function.description is 5"),
        (tool("x", parameters="{}"), "tools[0].function.parameters is '{}'"),
    ],
)
def test_a_function_dict_that_is_wrong_is_named_with_its_path(wrong: dict[str, object], path: str) -> None:
    assert path in refused([wrong])


@pytest.mark.parametrize(
    "name", ["a b", "a\n", "\t", "a\x00", "a<b", "a>", 'a"', "a'", "a`", "a\u200b", "a\u2028", " "]
)
def test_a_name_that_could_break_out_is_refused(name: str) -> None:
    assert "tools[0].function.name is " in refused([tool(name)])


@pytest.mark.parametrize("name", ["a", "get-weather", "mcp.server/tool:x", "天气", "a" * 200, "a_1"])
def test_other_names_are_taken(name: str) -> None:
    assert ToolSet.of([tool(name)]).names == (name,)


def test_null_stands_for_a_part_left_out() -> None:
    given = tool("x", description=None, parameters=None)
    assert ToolSet.of([given]).copy() == [given]


@pytest.mark.parametrize("tools", [[tool("a"), tool("b"), tool("a")], [search, now, search]])
def test_a_name_given_twice_is_refused(tools: list[Any]) -> None:
    message = refused(tools)
    assert message.startswith("tools[2] is named ")
    assert "tools[0]" in message


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({1}, "a"),
        (b"x", "a"),
        (bytearray(b"x"), "a"),
        (1j, "a"),
        (object(), "a"),
        (search, "a"),
        (float("nan"), "a"),
        ([0, float("inf")], "a[1]"),
        ({"b": ({1},)}, "a.b[0]"),
        ({1: 2}, "a"),
        ({"b": "\ud800"}, "a.b"),
        ({"\udfff": 1}, "a"),
        (..., "a"),
    ],
)
def test_values_that_are_no_json_are_named_with_their_path(value: object, path: str) -> None:
    assert f"tools[1].function.parameters.{path} " in refused([tool(), tool("x", parameters={"a": value})])


def test_a_tool_that_holds_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["again"] = loop
    assert "nested deeper" in refused([tool("x", parameters=loop)])


def test_a_mistake_is_found_on_every_call() -> None:
    wrong = [tool("x", parameters={"a": float("nan")})]
    assert refused(wrong) == refused(wrong)


# Functions as a whole


def test_a_function_becomes_a_tool() -> None:
    assert function_schema(search) == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the web.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
                "required": ["query"],
            },
        },
    }


def test_a_function_without_parameters_or_docstring_has_neither() -> None:
    assert schema_of(now) == {"name": "now", "parameters": {"type": "object", "properties": {}}}


def test_each_call_gives_a_new_dict() -> None:
    function_schema(search).clear()
    properties(search)["query"]["type"] = "null"
    assert properties(search)["query"] == {"type": "string"}


def test_an_async_function_is_a_tool() -> None:
    assert schema_of(fetch)["parameters"]["required"] == ["url"]


class Shop:
    def buy(self, item: str) -> None:
        """Buy it."""

    @classmethod
    def open(cls, hour: int) -> None: ...

    @staticmethod
    def close(hour: int) -> None: ...

    def __call__(self, item: str) -> None: ...


class Hashless(Shop):
    __hash__ = None  # type: ignore[assignment]


def test_methods_lose_what_they_are_bound_to() -> None:
    assert schema_of(Shop().buy)["name"] == "buy"
    assert schema_of(Shop().buy)["description"] == "Buy it."
    assert list(properties(Shop().buy)) == ["item"]
    assert list(properties(Shop().open)) == list(properties(Shop.open)) == ["hour"]
    assert list(properties(Shop.close)) == ["hour"]


def test_partials_lose_what_they_bind() -> None:
    def move(x: int, y: int, *, z: int, speed: int = 1) -> None:
        """Move there."""

    assert list(properties(partial(move, 1))) == ["y", "z", "speed"]
    bound = schema_of(partial(partial(move, z=1), 1, speed=3))
    assert bound["name"] == "move"
    assert bound["description"] == "Move there."
    assert bound["parameters"] == {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"]}
    assert list(properties(partial(Shop().buy, "x"))) == []


def test_wrapped_functions_show_what_they_wrap() -> None:
    @wraps(search)
    def wrapper(*args: object, **kwargs: object) -> object:
        return args, kwargs

    assert function_schema(wrapper) == function_schema(lru_cache(search)) == function_schema(search)


def test_a_builtin_with_a_signature_is_a_tool() -> None:
    assert properties(len) == {"obj": {}}


@pytest.mark.parametrize("wrong", [Shop, int, Shop(), Hashless(), Point, partial(int, "5"), max])
def test_other_callables_are_refused_with_advice(wrong: Callable[..., object]) -> None:
    message = refused([tool(), wrong])
    assert message.startswith("tools[1]: ")
    assert "write a `def`" in message
    with pytest.raises(ToolsError):
        function_schema(wrong)


def test_a_lambda_has_no_name_to_call_it_by() -> None:
    assert "'<lambda>'" in refused([lambda x: x])


def test_stars_are_refused_by_name() -> None:
    def many(first: int, *others: int) -> None: ...

    def options(first: int, **others: int) -> None: ...

    assert "takes *others," in refused([many])
    assert "takes **others," in refused([options])
    assert "takes **others," in refused([partial(options, x=1)])


# Hints of functions


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (Any, {}),
        (object, {}),
        (None, {"type": "null"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array", "items": {}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
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

    message = refused([make])
    assert "make()" in message
    assert "'list[Unknown]' of parameter 'y'" in message
    assert "TYPE_CHECKING" in message


@pytest.mark.parametrize("hint", [Shop, 5, Annotated[str, Field(pattern="(")], "list[", typing.Callable[[], int]])
def test_a_hint_without_a_schema_is_named(hint: object) -> None:
    def make(a: int, x: int, b: int) -> None: ...

    make.__annotations__["x"] = hint
    message = refused([make])
    assert "make()" in message
    assert "parameter x " in message or "parameter 'x' " in message


# Defaults of functions


@pytest.mark.parametrize(
    ("default", "form"),
    [
        (None, None),
        ("x", "x"),
        (Color.BLUE, "blue"),
        (Level.LOW, 1),
        ((1, 2), [1, 2]),
        ({"b", "a"}, ["a", "b"]),
        (Point(x=1, title="here"), {"x": 1, "title": "here"}),
        ({"a": [Color.RED]}, {"a": ["red"]}),
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


# Docstrings of functions


def google(query, limit=3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Search the web.

    Looks far
    and wide.

    Args:
        query (str): What to find,
            in words.
        limit: How many: at most 5.

    Returns:
        What was found.

    Raises:
        ValueError: Nothing was.
    """
    return query, limit


def numpy(query, limit=3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Search the web.

    Looks far
    and wide.

    Parameters
    ----------
    query : str
        What to find,
        in words.
    limit : int, optional
        How many: at most 5.

    Returns
    -------
    str
        What was found.
    """
    return query, limit


def rest(query, limit=3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Search the web.

    Looks far
    and wide.

    :param query: What to find,
        in words.
    :param int limit: How many: at most 5.
    :returns: What was found.
    """
    return query, limit


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_docstrings_of_each_style_are_read(function: Callable[..., object]) -> None:
    schema = schema_of(function)
    assert schema["description"] == "Search the web.\n\nLooks far\nand wide."
    assert schema["parameters"]["properties"] == {
        "query": {"description": "What to find,\nin words."},
        "limit": {"description": "How many: at most 5.", "default": 3},
    }


def test_parameters_described_together_share_the_text() -> None:
    def move(x: int, y: int) -> None:
        """Move.

        Parameters
        ----------
        x, y : int
            Where to.
        """

    assert [each["description"] for each in properties(move).values()] == ["Where to.", "Where to."]


def test_a_hint_says_more_than_a_docstring_and_that_more_than_a_class() -> None:
    def move(a: Annotated[int, Field(description="field")], b: Annotated[int, "text"], c: Point, d: Point) -> None:
        """Move.

        Args:
            a: doc
            b: doc
            c: doc
        """

    told = [each["description"] for each in properties(move).values()]
    assert told == ["field", "text", "doc", "A place on the map."]


@pytest.mark.parametrize("text", ["Search: a thing.\n\n:broken", "Search.\n\nArgs:\n    no colon here", "   \n", ""])
def test_no_docstring_is_too_broken(text: str) -> None:
    def make(a: int) -> None: ...

    make.__doc__ = text
    schema = schema_of(make)
    assert schema["parameters"]["properties"] == {"a": {"type": "integer"}}
    assert schema.get("description", "none").strip() != ""


# The module


def test_importing_the_module_imports_nothing_heavy() -> None:
    code = "import sys, lazyprompt.tools as t; t.ToolSet.of([{'type': 'x'}]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()  # noqa: S603
    assert "lazyprompt.tools" in loaded
    assert not {"pydantic", "pydantic_core", "docstring_parser", "typing_extensions"} & set(loaded)


def test_the_same_functions_give_the_same_bytes_in_every_process() -> None:
    code = (
        "from lazyprompt.tools import ToolSet\n"
        "def f(a: set[str] = {'x', 'y', 'z'}, b: 'int | None' = None): 'Do.'\n"
        "print(ToolSet.of([f]).json)"
    )
    runs = {
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1
