"""Argument values without types, and values in the syntax of Python or Gemma."""

import ast
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.helpers import TOOLS, calls, message_contents
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.answers.values import gemma_object, literal, python_calls


def tool(schema: dict[str, Any], **root: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": schema}, **root}
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


NULLABLE = {"type": "integer", "nullable": True}
UNION = {"anyOf": [{"oneOf": [{"type": "array"}]}, {"allOf": [{"type": "null"}]}]}
POINT = {"$ref": "#/$defs/Point"}
DEFINED = {"$defs": {"Point": {"type": "object"}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "integer"}]}}}


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        *(({"type": "string"}, "50667", "50667"), ({"type": "string"}, "null", "null")),
        *(({"type": "string"}, " x ", " x "), ({"type": "integer"}, "7", 7), ({"type": "integer"}, " -7\n", -7)),
        *(({"type": "integer"}, "3.0", 3), ({"type": "integer"}, "3.5", "3.5")),
        *(({"type": "integer"}, "1_000", "1_000"), ({"type": "integer"}, "9" * 5000, "9" * 5000)),
        *(({"type": "number"}, "7", 7), ({"type": "number"}, "1.50", 1.5), ({"type": "number"}, "1e3", 1000.0)),
        *(({"type": "number"}, "1e999", "1e999"), ({"type": "number"}, "nan", "nan")),
        *(({"type": "boolean"}, "true", True), ({"type": "boolean"}, "False", False)),
        *(({"type": "boolean"}, "yes", "yes"), ({"type": "null"}, "None", None)),
        *(({"type": ["string", "null"]}, "null", None), ({"type": ["string", "integer"]}, "7", "7")),
        *(({"type": ["integer", "boolean"]}, "true", True), (NULLABLE, "null", None), (NULLABLE, "7", 7)),
        *((UNION, "[1]", [1]), (UNION, "null", None), ({"type": "array"}, "['a', True]", ["a", True])),
        *(({"type": "array"}, '{"a": 1}', '{"a": 1}'), ({"type": "object"}, '{"x": [null]}', {"x": [None]})),
        *(({"type": "object"}, "[" * 90_000, "[" * 90_000), (POINT, '{"x": 1}', {"x": 1})),
        ({"$ref": "#/$defs/Loop"}, "7", 7),
        ({"$ref": "#/$defs/None"}, "7", "7"),
        *(({}, "7", "7"), (True, "7", "7"), ({"type": "null"}, "nothing", "nothing")),
    ],
)
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("qwen-xml", "<tool_call>\n<function=f>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>"),
        ("glm-4.5", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"),
    ],
)
def test_a_parameter_has_the_type_of_its_schema(form: str, text: str, schema: Any, written: str, value: object) -> None:
    parser = ResponseParser(form, tools=[tool(schema, **DEFINED)])
    (call,) = calls(parser.parse(text.replace("{}", written)))
    # The type is compared because 1 == True in Python.
    assert (call.input, type(call.input["a"])) == ({"a": value}, type(value))


FLAT = {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("tools", "value"),
    [*((tools, "7") for tools in (None, ["f"], [tool({})], [{"name": "f"}], TOOLS)), ([FLAT], 7)],
)
def test_parameters_without_a_type_are_text(tools: Any, value: object) -> None:
    text = "<tool_call><function=f><parameter=a>7</parameter><parameter=b>[1]</parameter></function></tool_call>"
    assert message_contents(ResponseParser("qwen-xml", tools=tools).parse(text)) == [("f", {"a": value, "b": "[1]"})]


def test_python_functions_are_accepted_as_tools() -> None:
    def f(a: int, b: str) -> None:
        """Do nothing."""

    text = "<tool_call><function=f><parameter=a>7</parameter><parameter=b>7</parameter></function></tool_call>"
    assert message_contents(ResponseParser("qwen-xml", tools=[f, "g"]).parse(text)) == [("f", {"a": 7, "b": "7"})]
    assert message_contents(ResponseParser("llama", tools=[f, "g"]).parse("[g()]")) == [("g", {})]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *(("llama", '{"name": "f", "parameters": {}}'), ("llama", "[f(a=1)]"), ("pythonic", "[f(a=1)]")),
        ("glm-4", 'f\n{"a": 1}'),
    ],
)
@pytest.mark.parametrize(("tools", "known"), [(None, True), (["f"], True), (["g"], False), ([], False)])
def test_unmarked_calls_are_parsed_only_for_known_tools(form: str, text: str, tools: Any, *, known: bool) -> None:
    message = ResponseParser(form, tools=tools).parse(text)
    assert (bool(calls(message)), message.content == text) == (known, not known)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
@given(VALUES)
def test_literals_are_parsed_as_by_python(value: object) -> None:
    assert literal(repr(value)) == value
    assert literal(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        *("1_000", "+1", "-.5", "1.", "1e3", "(1, 2)", "(1,)", "(1)", "()", "[1, 2,]", "{'a': 1,}", "'a' 'b'", "''"),
        *(r"'\x41\u0041\U00000041\101\0\n\t\\\'\"'", r'r"\n\d"', r"'\ud83d'", "'''a\n'b''c'''", '"""a"b"""'),
        *("'\\\n'", '""', "{'a': ('b', [])}", "'''a''' \"b\"", f"[{'(),' * 201}]", "[" * 200 + "1," + "]" * 200),
    ],
)  # fmt: skip
def test_other_spellings_of_literals_are_parsed_as_by_python(text: str) -> None:
    def lists(value: Any) -> Any:
        """A value with lists for tuples."""
        if isinstance(value, dict):
            return {key: lists(item) for key, item in value.items()}
        return [lists(item) for item in value] if isinstance(value, tuple | list) else value

    assert literal(text) == lists(ast.literal_eval(text))


def test_an_unknown_escape_in_a_literal_is_kept() -> None:
    assert literal(r"'C:\dir\p'") == "C:\\dir\\p"
    assert literal(r"'\U0fffffff'") == r"\U0fffffff"
    assert literal('\u3000"\\/"') == "/"  # JSON after a space that is not JSON whitespace


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1 2", "[1", "1]", "{1: 2 3}", "{[]: 1}", "f'{x}'", "b'x'", "'a", "'a\n'", "1 + 1", "1j"),
        *("1, 2", "1x", "...", "__import__('os')", "[x for x in y]", "{'a'}", "lambda: 1", "not 1", "-'a'"),
        *("[" * 90_000, "-" * 90_000 + "1"),
        "9" * 5000,
    ],
)
def test_text_that_is_not_a_literal_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is not shown to users
        literal(text)


def test_a_literal_is_evaluated_again_after_a_system_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SystemError of CPython 3.11 (python/cpython#106905) came out of the parser, in one of thousands of runs."""
    evaluate, collisions = ast.literal_eval, [SystemError()] * 3

    def collide(text: str) -> object:
        if collisions:
            raise collisions.pop()
        return evaluate(text)

    monkeypatch.setattr(ast, "literal_eval", collide)
    assert literal("{'a': True}") == {"a": True}
    collisions += [SystemError()] * 4
    with pytest.raises(SystemError):
        literal("{'a': True}")


def test_python_calls_are_parsed() -> None:
    assert python_calls("[a.b-c(x=1, y='z',), d()]") == [("a.b-c", "x=1, y='z',", {"x": 1, "y": "z"}), ("d", "", {})]
    assert python_calls("f(x=1)") == [("f", "x=1", {"x": 1})]
    assert python_calls("[f(1), g(x=h('(')), k(x=1 + 1)]") == [
        *(("f", "1", None), ("g", "x=h('(')", None), ("k", "x=1 + 1", None))
    ]


@pytest.mark.parametrize("wrong", ["", "[]", "[f]", "f", "[f()", "f())", "f(a=(1)", "[f() g()]", "[1]"])
def test_text_that_is_not_python_calls_raises_value_error(wrong: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is not shown to users
        python_calls(wrong)


def test_gemma_objects_are_parsed() -> None:
    text = '{a:<|"|>x"\'{,}<|"|>,<|"|>b c<|"|>:[1,-2.5,true,null,None],1:{},d:plain}'
    assert gemma_object(text) == {"a": "x\"'{,}", "b c": [1, -2.5, True, None, None], "1": {}, "d": "plain"}
    assert gemma_object('{true:<|"|>true<|"|>,a:"x\\"y"}') == {"true": "true", "a": 'x"y'}


@pytest.mark.parametrize("wrong", ["", "[]", "{a}", "{a:}", '{a:<|"|>x}', "{a:b c}"])
def test_text_that_is_not_a_gemma_object_is_none(wrong: str) -> None:
    assert gemma_object(wrong) is None


def test_calls_with_numbers_too_large_for_json_keep_raw_arguments() -> None:
    assert math.isinf(literal("1e999"))  # type: ignore[arg-type]
    assert message_contents(ResponseParser("pythonic", tools=["f"]).parse("[f(a=1e999)]")) == [("f", "a=1e999")]
