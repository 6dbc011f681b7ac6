"""Tools, tool calls and tool results in the formats of model families: parts of which every second is untrusted."""

import json
from typing import Any

import pytest

from lazyprompt import ToolResultBlock, ToolUseBlock
from lazyprompt.rendering.tool_form import ArgumentFormat, CallIds, ToolForm, call_parts, result_parts, tool_run

PROPERTIES = {
    "a": {"type": "string", "description": " x "},
    "b": {"type": "object", "enum": ["u", 1], "x-y z$": {"k": 1}},
    "c": {"items": {}, "enum": [], "required": ["r"]},
}
FUNCTION = {
    "name": "f",
    "description": " d ",
    "parameters": {"properties": PROPERTIES, "required": ["a"]},
    "return": {"type": "string"},
}
BARE: Any = {"name": "g"}
TOOL: Any = {"type": "function", "function": FUNCTION}
XML = """
<function>
<name>f</name>
<description>d</description>
<parameters>
<parameter>
<name>a</name>
<type>string</type>
<description>x</description>
</parameter>
<parameter>
<name>b</name>
<type>object</type>
<enum>[`u`, 1]</enum>
<x_y_z>{"k": 1}</x_y_z>
</parameter>
<parameter>
<name>c</name>
<items>{}</items>
<required>[`r`]</required>
</parameter>
<required>[`a`]</required>
</parameters>
<return>{"type": "string"}</return>
</function>"""
BARE_XML = "\n<function>\n<name>g</name>\n<description></description>\n<parameters>\n</parameters>\n</function>"
ARGS = "    Args:\n    - a (str) [必填]:  x \n    - b (Any) [选填]: \n    - c (Any) [选填]: \n"


@pytest.mark.parametrize(
    ("form", "full", "bare"),
    [
        ("json", json.dumps(TOOL), '{"name": "g"}'),
        ("indented", json.dumps(TOOL, indent=4), '{\n    "name": "g"\n}'),
        ("function", json.dumps(FUNCTION), '{"name": "g"}'),
        ("xml", XML, BARE_XML),
        (
            "python",
            f'\n\nFunction:\ndef f(a: str,b: Any,c: Any):\n    """\n    d\n\n{ARGS}\n    """',
            '\n\nFunction:\ndef g():\n    """\n    \n\n    """',
        ),
    ],
)
def test_tool_description_is_written_in_each_format(form: Any, full: str, bare: str) -> None:
    for tool, text in ((TOOL, full), (BARE, bare)):
        parts = tool_run(tool, form)
        assert "".join(parts) == text
        assert not any(word in "".join(parts[::2]) for word in ('"g"', "g(", "x_y_z", "`u`", '"k"'))


VALUES: dict[str, Any] = {"t": "it's\n\\", "n": None, "l": ["a"], "o": {"k": True}}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("json", ["it's\n\\", "null", '["a"]', '{"k": true}']),
        ("python", ["it's\n\\", "None", "['a']", "{'k': True}"]),
        ("mixed", ["it's\n\\", "None", '["a"]', '{"k": true}']),
        ("quoted", [r"'it\'s\n\\'", "None", '["a"]', '{"k": true}']),
        ("raw_quoted", ["'it's\n\\'", "None", "['a']", '{"k": true}']),
    ],
)
def test_tool_call_arguments_are_written_in_each_format(form: ArgumentFormat, expected: list[str]) -> None:
    made = ToolForm(argument="<{key}={value}>", argument_join=";", argument_format=form)
    parts = call_parts(ToolUseBlock("c", 'f"', VALUES), made, "[{name}({arguments})#{id}]", "c1")
    assert parts[1::2] == ['f"', *(each for pair in zip(VALUES, expected, strict=True) for each in pair), "c1"]
    assert parts[::2] == ["[", "(<", "=", ">;<", "=", ">;<", "=", ">;<", "=", ">)#", "]"]


def test_tool_call_arguments_without_a_pattern_are_one_json_object() -> None:
    parts = call_parts(ToolUseBlock("c", 'f"', {"a": [1]}), ToolForm(), "{name}{arguments}", "c1")
    assert parts == ["", r"f\"", "", '{"a": [1]}', ""]


@pytest.mark.parametrize(("as_json", "text"), [(False, 'a"'), (True, r'"a\""')])
def test_tool_result_is_written_as_text_or_json(*, as_json: bool, text: str) -> None:
    form = ToolForm(result="<{id}>{content}", json_results=as_json)
    assert result_parts('a"', form, "c1") == ["<", "c1", ">", text, ""]


def test_python_tool_has_python_types_and_xml_tool_omits_an_invalid_required_list() -> None:
    kinds = {"string": "str", "number": "int", "integer": "int", "boolean": "bool", "array": "list"}
    kinds |= dict.fromkeys(("object", "null"), "Any")
    properties = {f"{kind}s": {"type": kind, "description": "d"} for kind in kinds}
    tool: Any = {"name": "f", "parameters": {"properties": properties, "required": "nulls"}}
    args = "".join(f"\n    - {kind}s ({name}) [选填]: d" for kind, name in kinds.items())
    head = ",".join(f"{kind}s: {name}" for kind, name in kinds.items())
    text = f'\n\nFunction:\ndef f({head}):\n    """\n    \n\n    Args:{args}\n\n    """'
    assert "".join(tool_run(tool, "python")) == text
    assert "required" not in "".join(tool_run(tool, "xml"))


def test_call_ids_number_the_calls_and_match_their_results() -> None:
    ids = CallIds(ToolForm(call_id="{name}:{number}"), 2)
    assert [ids.add(ToolUseBlock(call_id, name, {})) for call_id, name in (("x", "f"), ("y", "g"))] == ["f:2", "g:3"]
    assert [ids.find(ToolResultBlock(call_id, "h", "1")) for call_id in ("x", "y", "z")] == ["f:2", "g:3", "h:4"]
    own = CallIds(ToolForm())
    assert (own.add(ToolUseBlock("x", "f", {})), own.find(ToolResultBlock("z", "f", "1"))) == ("x", "z")


def test_literals_of_a_tool_form_are_the_fixed_texts_of_its_patterns() -> None:
    texts = {"call": "<{name}>", "call_id": "c{number}", "argument": "a{key}=", "result": "r{content}"}
    separators = {"header": "h", "text_end": "e", "call_join": "j", "argument_join": "k"}
    literals = ToolForm(turn="t{calls}", **texts, **separators).literals  # type: ignore[arg-type]  # all are texts
    assert literals == ("t", "", "<", ">", "c", "", "a", "=", "r", "", "h", "e", "j", "k")
