"""How Jinja in a prompt file prints values other than text: not in Python syntax (True, None, 1.0)."""

import json
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import InstructionTemplate, Prompty

SCALARS_AND_TEXTS = [
    (True, "true"),
    (False, "false"),
    (None, ""),
    (1.0, "1"),
    (-0.0, "0"),
    (30, "30"),
    (2.5, "2.5"),
    (0.1 + 0.2, "0.30000000000000004"),
    (1e16, "1e+16"),
    ("True", "True"),
    ([True, 1.0, None], "[true, 1.0, null]"),
]


TEMPLATES = [
    *("<{{v}}>", "<{{ a.v }}>", "<{{ a['v'] }}>", "<{% if 1 %}{{ v }}{% endif %}>", "<{{ '' ~ v }}>"),
    *("{% set x %}<{{ v }}>{% endset %}{{ x }}", "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(v) }}"),
    *("{% for x in [v] %}<{{ x }}>{% endfor %}", "<{{ v | default('none') }}>"),
]


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        (template, value, text)
        for template in TEMPLATES
        for value, text in SCALARS_AND_TEXTS
        # Python formats a list that is an operand of ~.
        if not ("~" in template and isinstance(value, list))
    ],
)
def test_scalar_is_printed_without_python_syntax(template: str, value: object, text: str) -> None:
    assert Prompty.loads(template).render({"v": value, "a": {"v": value}}) == f"<{text}>"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        *(("v.t | string", "true"), ("v.t | upper", "TRUE"), ("v.n | upper", ""), ("v.n | trim", "")),
        *(("v.one | replace('1', 'x')", "x"), ("v.t | title", "True"), ("v.f | capitalize", "False")),
        *(("[v.t, v.one, v.n, 'a'] | join('|')", "true|1||a"), ("v.rows | join(',', attribute='ok')", "true,")),
        *(("v.one + 1", "2"), ("6 / 3", "2"), ("v.one == 1", "true"), ("v.n is none", "true")),
        *(("v.t and v.f", "false"), ("v.absent", ""), ("'%s' % 3", "3"), ("v.one | int", "1"), ("[1.0, 2] | sum", "3")),
    ],
)
def test_filters_and_operators_print_scalars_without_python_syntax(expression: str, text: str) -> None:
    values = {"t": True, "f": False, "n": None, "one": 1.0, "rows": [{"ok": True}, {"ok": None}]}
    assert Prompty.loads(f"{{{{ {expression} }}}}", undefined="empty").render({"v": values}) == text


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9), st.lists))
def test_printed_value_is_json_without_python_constants(value: object) -> None:
    text = Prompty.loads("{{ v }}").render({"v": value})
    assert not {"None", "True", "False"} & {*text.split(), text}
    # The printed text is JSON of the value.
    assert (json.loads(text) if text else None) == value


@pytest.mark.parametrize(
    "front",
    [
        "",
        "name: v2",
        "inputSchema: {properties: {v: {kind: boolean}}}",
        "sample: {v: true}",
        "inputs: {v: {type: boolean}}",
    ],
)
def test_scalar_is_printed_the_same_in_every_dialect(front: str) -> None:
    """A field that selects another dialect must not change how a value is printed."""
    prompt = Prompty.loads(f"---\n{front}\n---\nuser:\n{{{{v}}}}" if front else "user:\n{{v}}")
    assert prompt.messages({"v": True})[0].text == "true"
    copied: Prompty = pickle.loads(pickle.dumps(prompt))  # noqa: S301 - it was written here
    assert copied.messages({"v": True})[0].text == "true"


@pytest.mark.parametrize(("values", "text"), [({"v": True}, "True"), ({"v": 1.0}, "1.0")])
def test_instruction_template_prints_scalars_in_python_syntax(values: Mapping[str, object], text: str) -> None:
    assert InstructionTemplate("{{ v }}", syntax="jinja2").fill(values).system == text
    written = pickle.dumps(InstructionTemplate("{{ v ~ '' }}", syntax="jinja2"))
    copied: InstructionTemplate = pickle.loads(written)  # noqa: S301 - it was written here
    assert copied.fill(values).system == text
