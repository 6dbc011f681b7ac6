import copy
import json
import pickle
import subprocess
import sys
import typing
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.messages.tools import ToolSet, function_schema
from messages.helpers import Level, fetch, now, search, tool, tools_error

# Tool sets


@pytest.mark.parametrize("tools", [None, [], (), iter(())])
def test_no_tools_give_an_empty_tool_set(tools: Any) -> None:
    none = ToolSet.of(tools)
    assert (none.names, none.json, none.copy(), len(none), bool(none)) == ((), "[]", [], 0, False)


def test_tool_set_has_names_json_text_and_dicts() -> None:
    given = [tool("now", description="现在"), tool("then")]
    tools = ToolSet.of(given)
    assert tools.names == ("now", "then")
    assert tools.json == json.dumps(given, ensure_ascii=False)
    assert isinstance(tools.json, JsonText)
    assert tools.copy() == list(tools) == given
    assert len(tools) == 2
    assert tools
    assert repr(tools) == "<ToolSet ['now', 'then']>"


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda tools: (each for each in tools)])
def test_tool_set_accepts_any_iterable(kind: Callable[[object], Any]) -> None:
    assert ToolSet.of(kind([tool("a"), tool("b")])).names == ("a", "b")


def test_functions_and_dicts_can_be_mixed_and_keep_their_order() -> None:
    tools = ToolSet.of([search, tool(), fetch])
    assert tools.names == ("search", "now", "fetch")
    assert tools.copy()[0] == function_schema(search)


def test_key_order_of_a_tool_dict_is_kept() -> None:
    given = {"function": {"parameters": {"b": 1, "a": 2}, "name": "x"}, "type": "function"}
    assert ToolSet.of([given]).json == json.dumps([given])


def test_mappings_and_subclasses_of_json_types_become_plain_json_types() -> None:
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


def test_tool_dicts_passed_to_a_tool_set_are_copied_and_not_changed() -> None:
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


def test_copied_tools_share_no_objects_even_if_the_originals_do() -> None:
    shared = {"type": "string"}
    tools = ToolSet.of([tool("x", parameters={"properties": {"a": shared, "b": shared}}), tool("y", parameters=shared)])
    first, second = typing.cast("list[Any]", tools.copy())
    first["function"]["parameters"]["properties"]["a"]["type"] = "null"
    assert first["function"]["parameters"]["properties"]["b"] == second["function"]["parameters"] == {"type": "string"}
    assert tools.copy()[1] == tool("y", parameters={"type": "string"})


def test_tool_dict_changed_between_calls_gives_a_new_tool_set() -> None:
    given = tool("a")
    assert ToolSet.of([given]).names == ("a",)
    typing.cast("Any", given)["function"]["name"] = "b"
    assert ToolSet.of([given]).names == ("b",)


def test_equal_tools_give_the_same_cached_tool_set() -> None:
    name = json.loads('"today"')  # not the same object as the literal, like a name read from a file
    tools = ToolSet.of([tool(name)])
    assert tools is ToolSet.of((tool("today"),)) is ToolSet.of(tools)


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1), (None, "null")])
def test_json_values_that_are_equal_in_python_are_cached_separately(pair: tuple[object, object]) -> None:
    texts = [ToolSet.of([tool("x", parameters={"default": each})]).json for each in pair]
    assert texts == [json.dumps([tool("x", parameters={"default": each})]) for each in pair]


def test_tool_sets_with_equal_content_are_equal_and_have_the_same_hash() -> None:
    one, same, other = ToolSet.of([tool("a")]), ToolSet(ToolSet.of([tool("a")]).json), ToolSet.of([tool("b")])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != typing.cast("object", [tool("a")])
    assert len({one, same, other}) == 2


@pytest.mark.parametrize("name", ["json", "names", "_packed", "new"])
def test_tool_set_is_immutable(name: str) -> None:
    tools = ToolSet.of([tool()])
    with pytest.raises((FrozenInstanceError, TypeError)):
        setattr(tools, name, ())
    assert not hasattr(tools, "__dict__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tool_set_can_be_pickled_and_copied(protocol: int) -> None:
    tools = ToolSet.of([search, tool("x", description="现在")])
    loaded = pickle.loads(pickle.dumps(tools, protocol))  # noqa: S301
    assert loaded == copy.copy(tools) == copy.deepcopy(tools) == tools
    assert (loaded.names, loaded.copy(), type(loaded.json)) == (tools.names, tools.copy(), JsonText)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3))
def test_any_json_in_tool_parameters_round_trips_unchanged(parameters: list[dict[str, object]]) -> None:
    given = [tool(f"t{index}", parameters=each) for index, each in enumerate(parameters)]
    tools = ToolSet.of(given)
    assert tools.copy() == given
    assert tools.json == json.dumps(given, ensure_ascii=False)
    assert json.loads(tools.json) == given


# Tools in other forms

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
NEEDS_CITY = tool("weather", description="Tells it.", parameters=SCHEMA | {"required": ["city"]})
SAME = {"name": "weather", "description": "Tells it."}
FULL = SCHEMA | {"required": ["city"]}
FORMS: dict[str, dict[str, object]] = {
    # LazyLLM's manual shows this form: every provider ignored it, or refused it.
    "required beside the parameters": tool(**SAME, parameters=SCHEMA, required=["city"]),
    "required beside the function": tool(**SAME, parameters=SCHEMA) | {"required": ["city"]},
    "required in both places": tool(**SAME, parameters=FULL, required=["city"]),
    "properties and no parameters": tool(**SAME, properties=SCHEMA["properties"], required=["city"]),
    "empty parameters": tool(**SAME, parameters={}, properties=SCHEMA["properties"], required=["city"]),
    "a schema by another name": tool(**SAME, input_schema=FULL),
    "Responses": {"type": "function", **SAME, "parameters": FULL},
    "Anthropic": {**SAME, "input_schema": FULL},
    "Anthropic with its type": {"type": "custom", **SAME, "input_schema": FULL},
    "MCP": {**SAME, "inputSchema": FULL},
    "Gemini": {"functionDeclarations": [{**SAME, "parametersJsonSchema": FULL}]},
    "Gemini's client": {"function_declarations": [{**SAME, "parameters_json_schema": FULL}]},
    "Gemini's declaration, and OpenAI's legacy functions": {**SAME, "parameters": FULL},
}


@pytest.mark.parametrize("given", FORMS.values(), ids=FORMS)
def test_tool_in_the_form_of_each_provider_is_read(given: dict[str, object]) -> None:
    before = copy.deepcopy(given)
    assert ToolSet.of([given]).copy() == [NEEDS_CITY]
    assert given == before


def test_schema_keys_are_moved_into_the_parameters_and_other_keys_are_kept() -> None:
    strict = tool("x", strict=True, parameters={"type": "object", "additionalProperties": False})
    assert ToolSet.of([tool("x", strict=True, additionalProperties=False)]).copy() == [strict]
    assert ToolSet.of([tool("x") | {"strict": True, "additionalProperties": False}]).copy() == [strict]
    assert ToolSet.of([tool("x", required=[])]).copy() == [tool("x", parameters={})]
    moved: Any = ToolSet.of([tool("x", parameters={}, description="d", required=["a"])]).copy()[0]["function"]
    assert list(moved) == ["name", "description", "parameters"]
    mark: dict[str, object] = {"cache_control": {"type": "ephemeral"}}
    assert ToolSet.of([{"name": "x", "input_schema": SCHEMA} | mark]).copy() == [tool("x", parameters=SCHEMA) | mark]


def test_each_gemini_function_declaration_becomes_a_tool() -> None:
    declared = {"functionDeclarations": [{"name": "a"}, {"name": "b", "parameters": SCHEMA}]}
    described = {"name": "now", "description": "d"}
    assert ToolSet.of([described, declared]).copy() == [tool(**described), tool("a"), tool("b", parameters=SCHEMA)]
    assert "tools[0] and tools[1] are both named 'now'; use unique names" in tools_error(
        [tool("now"), {"functionDeclarations": [{"name": "now"}]}]
    )
    assert "tools[0].functionDeclarations[1].function.name must be a name" in tools_error(
        [{"functionDeclarations": [{"name": "a"}, {}]}]
    )


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (tool("x", parameters=FULL, required=["town"]), "contains two different values for 'required'"),
        (tool("x", parameters=FULL, input_schema=SCHEMA), "contains several schemas: 'parameters', 'input_schema'"),
        ({"functionDeclarations": [], "googleSearch": {}}, "expected a dict with only 'functionDeclarations'"),
        ({"functionDeclarations": ["x"]}, "expected a dict with only 'functionDeclarations', which must be a list"),
    ],
)
def test_ambiguous_tool_is_refused(wrong: dict[str, object], error: str) -> None:
    assert error in tools_error([wrong])


# A provider's own tools


def test_built_in_tools_of_providers_are_passed_through_unchanged() -> None:
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
    assert "tools must be a list of dicts and functions, as in tools=[...], not " in tools_error(tools)


@pytest.mark.parametrize("wrong", [None, 5, "search", [], b"x", object()])
def test_item_that_is_no_tool_is_refused_with_its_type(wrong: object) -> None:
    message = tools_error([tool(), wrong])
    assert message.startswith("tools[1] must be a dict")
    assert f"or a function, not {type(wrong).__name__} " in message


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({}, 'write {"type": "function", "function": {"name": ...'),
        ({"name": "x", "params": {}}, 'write {"type": "function", "function": <this dict>}'),
        ({"function": {"name": "x"}}, 'add "type": "function" next to "function"'),
        *(({"type": ""}, "non-empty string"), ({"type": 5}, "non-empty string")),
    ],
)
def test_error_for_a_tool_without_a_type_shows_the_expected_form(wrong: dict[str, object], advice: str) -> None:
    message = tools_error([tool(), wrong])
    assert message.startswith('tools[1] must contain "type"')
    assert advice in message


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"type": "function"}, "tools[0].function must be a dict, not None"),
        ({"type": "function", "function": "x"}, "tools[0].function must be a dict, not 'x'"),
        ({"type": "function", "parameters": {}}, "tools[0].function must be a dict, not None"),
        ({"type": "function", "function": {}}, "tools[0].function.name must be a name without spaces, "),
        (tool(""), "quotes, < or >, not ''"),
        (tool("x", description=5), "tools[0].function.description must be a string or omitted, not 5"),
        (tool("x", parameters="{}"), "parameters must be a dict with a JSON Schema or omitted, not '{}'"),
    ],
)
def test_malformed_function_dict_is_refused_with_its_path(wrong: dict[str, object], path: str) -> None:
    assert path in tools_error([wrong])


@pytest.mark.parametrize(
    "name", ["a b", "a\n", "\t", "a\x00", "a<b", "a>", 'a"', "a'", "a`", "a\u200b", "a\u2028", " "]
)
def test_tool_name_with_whitespace_quotes_or_angle_brackets_is_refused(name: str) -> None:
    assert "tools[0].function.name must be a name without spaces, " in tools_error([tool(name)])


@pytest.mark.parametrize("name", ["a", "get-weather", "mcp.server/tool:x", "天气", "a" * 200, "a_1"])
def test_tool_name_with_letters_digits_and_harmless_punctuation_is_accepted(name: str) -> None:
    assert ToolSet.of([tool(name)]).names == (name,)


def test_null_description_and_parameters_of_a_tool_are_accepted() -> None:
    given = tool("x", description=None, parameters=None)
    assert ToolSet.of([given]).copy() == [given]


@pytest.mark.parametrize("tools", [[tool("a"), tool("b"), tool("a")], [search, now, search]])
def test_duplicate_tool_names_are_refused(tools: list[Any]) -> None:
    assert tools_error(tools).startswith("tools[0] and tools[2] are both named ")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        *(({1}, "a"), (b"x", "a"), (bytearray(b"x"), "a"), (1j, "a"), (object(), "a"), (search, "a")),
        *((float("nan"), "a"), ([0, float("inf")], "a[1]"), ({"b": ({1},)}, "a.b[0]"), ({1: 2}, "a")),
        *(({"b": "\ud800"}, "a.b"), ({"\udfff": 1}, "a"), (..., "a")),
    ],
)
def test_tool_parameters_that_are_not_json_are_refused_with_their_path(value: object, path: str) -> None:
    assert f"tools[1].function.parameters.{path} " in tools_error([tool(), tool("x", parameters={"a": value})])


def test_tool_with_recursive_parameters_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["again"] = loop
    assert "nested deeper" in tools_error([tool("x", parameters=loop)])


def test_malformed_tool_raises_the_same_error_on_every_call() -> None:
    wrong = [tool("x", parameters={"a": float("nan")})]
    assert tools_error(wrong) == tools_error(wrong)


# The module


@pytest.mark.slow
def test_same_functions_give_the_same_json_in_every_process() -> None:
    code = (
        "from lazyprompt.messages.tools import ToolSet\n"
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
