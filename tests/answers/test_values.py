"""Values that are written without their types, or as another language writes them."""

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
    # A number is no truth value, though Python takes 1 for True.
    assert (call.input, type(call.input["a"])) == ({"a": value}, type(value))


def test_without_a_schema_parameters_are_the_text_that_was_written() -> None:
    text = "<tool_call><function=f><parameter=a>7</parameter><parameter=b>[1]</parameter></function></tool_call>"
    for tools in (None, ["f"], [tool({})], [{"name": "f"}], TOOLS):
        assert message_contents(ResponseParser("qwen-xml", tools=tools).parse(text)) == [("f", {"a": "7", "b": "[1]"})]
    flat = {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}
    assert message_contents(ResponseParser("qwen-xml", tools=[flat]).parse(text)) == [("f", {"a": 7, "b": "[1]"})]


def test_functions_are_tools() -> None:
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
def test_a_call_without_a_marker_counts_only_if_its_name_is_known(form: str, text: str) -> None:
    for tools, known in ((None, True), (["f"], True), (["g"], False), ([], False)):
        assert bool(calls(ResponseParser(form, tools=tools).parse(text))) is known
        assert (ResponseParser(form, tools=tools).parse(text).content == text) is not known


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
@given(VALUES)
def test_literals_are_read_as_python_reads_them(value: object) -> None:
    assert literal(repr(value)) == value
    assert literal(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        *("1_000", "+1", "-.5", "1.", "1e3", "(1, 2)", "(1,)", "(1)", "()", "[1, 2,]", "{'a': 1,}", "'a' 'b'", "''"),
        *(r"'\x41\u0041\U00000041\101\0\n\t\\\'\"'", r'r"\n"', "'''a\n'b''c'''", '"""a"b"""', "'\\\n'", '""'),
        *("{'a': ('b', [])}", "'''a''' \"b\"", f"[{'(),' * 201}]", "[" * 200 + "1," + "]" * 200),
    ],
)  # fmt: skip
def test_so_are_other_ways_to_write_them(text: str) -> None:
    def lists(value: Any) -> Any:
        """A value with lists for tuples."""
        if isinstance(value, dict):
            return {key: lists(item) for key, item in value.items()}
        return [lists(item) for item in value] if isinstance(value, tuple | list) else value

    assert literal(text) == lists(ast.literal_eval(text))


def test_an_escape_that_python_does_not_know_stays() -> None:
    assert literal(r"'C:\dir\p'") == "C:\\dir\\p"
    assert literal(r"'\U0fffffff'") == r"\U0fffffff"
    assert literal('\u3000"\\/"') == "/"  # it is JSON, with a blank before it that JSON does not know


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1 2", "[1", "1]", "{1: 2 3}", "{[]: 1}", "f'{x}'", "b'x'", "'a", "'a\n'", "1 + 1", "1j"),
        *("1, 2", "1x", "...", "__import__('os')", "[x for x in y]", "{'a'}", "lambda: 1", "not 1", "-'a'"),
        *("[" * 90_000, "-" * 90_000 + "1"),
        "9" * 5000,
    ],
)
def test_what_is_no_literal_is_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what it says is not for users
        literal(text)


def test_a_literal_is_evaluated_again_after_threads_collided(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_python_calls() -> None:
    assert python_calls("[a.b-c(x=1, y='z',), d()]") == [("a.b-c", "x=1, y='z',", {"x": 1, "y": "z"}), ("d", "", {})]
    assert python_calls("f(x=1)") == [("f", "x=1", {"x": 1})]
    assert python_calls("[f(1), g(x=h('(')), k(x=1 + 1)]") == [
        *(("f", "1", None), ("g", "x=h('(')", None), ("k", "x=1 + 1", None))
    ]
    for wrong in ("", "[]", "[f]", "f", "[f()", "f())", "f(a=(1)", "[f() g()]", "[1]"):
        with pytest.raises(ValueError):  # noqa: PT011 - what it says is not for users
            python_calls(wrong)


def test_gemma_objects() -> None:
    text = '{a:<|"|>x"\'{,}<|"|>,<|"|>b c<|"|>:[1,-2.5,true,null,None],1:{},d:plain}'
    assert gemma_object(text) == {"a": "x\"'{,}", "b c": [1, -2.5, True, None, None], "1": {}, "d": "plain"}
    assert gemma_object('{true:<|"|>true<|"|>,a:"x\\"y"}') == {"true": "true", "a": 'x"y'}
    for wrong in ("", "[]", "{a}", "{a:}", '{a:<|"|>x}', "{a:b c}"):
        assert gemma_object(wrong) is None


def test_numbers_that_json_cannot_hold_are_no_arguments() -> None:
    assert math.isinf(literal("1e999"))  # type: ignore[arg-type]
    assert message_contents(ResponseParser("pythonic", tools=["f"]).parse("[f(a=1e999)]")) == [("f", "a=1e999")]
