import pickle
import time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates import jinja
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.slots import Opaque, Value


def parts(text: str, **values: Any) -> list[str]:
    """Fill a template after converting the values to plain data, and return its parts."""
    data = {name: JinjaTemplate.coerce(value, name) for name, value in values.items()}
    return list(JinjaTemplate(text).fill(data))


@pytest.mark.parametrize(
    ("text", "expected", "names"),
    [
        ("Say {{ a }} to {{ b }}!\n", ["Say ", "hi", " to ", "Bob", "!\n"], ["a", "b"]),
        ("{{ a }}{{ d.名 }}", ["", "hi", "", "1", ""], ["a", "d.名"]),
        ("{ {{ a }} }}", ["{ ", "hi", " }}"], ["a"]),
        ("plain", ["plain"], []),
        ("", [""], []),
        ("{{ a }}{# a #}", ["", "hi", ""], None),
        ("{{ a }}{% raw %}{{ b }}{% endraw %}", ["", "hi", "{{ b }}"], None),
        ("{{ a }}\r\n", ["", "hi", "\n"], None),
        ("{{ a }}\n\n", ["", "hi", "\n\n"], ["a"]),
        ("{{ true }}{{ none }}", ["TrueNone"], None),
        ("{{ _p }}{{ d._p }}{{ d.not }}", ["", "4", "", "2", "", "3", ""], None),
        ("{{ a }}{{ a }}{{ a }}", ["", "hi", "", "hi", "", "hi", ""], None),
    ],
)
def test_odd_parts_of_a_filled_template_are_its_values(
    text: str, expected: list[str], names: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jinja, "MAX_NAMES", 2)
    assert parts(text, a="hi", b="Bob", d={"名": 1, "_p": 2, "not": 3}, _p=4) == expected
    # A template of only names and literal text has an outline with the index of each value.
    outline = JinjaTemplate(text).outline
    assert (outline is None) == (names is None)
    if outline is not None and names is not None:
        values = [(str(2 * at + 1), name) for at, name in enumerate(names)]
        assert [(part, part.source) for part in outline[1::2] if isinstance(part, Value)] == values
        assert [*outline[::2]] == expected[::2]


def test_a_constant_expression_is_merged_into_the_literal_text() -> None:
    assert parts("a{{ 'b' }}{{ 3 - 1 }}c{{ 'd' + 'e' }}{{ 'f' ~ 1 }}") == ["ab2cdef1"]


@pytest.mark.parametrize(
    "text",
    [
        "[{{ x }}]",
        "[{{ x|upper|lower }}]",
        "[{{ x ~ '' }}]",
        "[{{ x + '' }}]",
        "[{{ '' + x + y }}]",
        "[{{ x + ('' + '') }}]",
        "[{{ x|trim }}]",
        "[{{ x.strip() }}]",
        "[{{ {'k': {'l': x}}['k'].l }}]",
        "[{{ (x ~ x)[:2] }}]",
        "[{% if x %}{{ x }}{% endif %}]",
        "[{% for item in [x] %}{{ item }}{% endfor %}]",
        "[{% for item in [x] recursive %}{{ item }}{% endfor %}]",
        "[{% for item in [[x]] recursive %}{{ loop(item) if item is not string else item }}{% endfor %}]",
        "[{% set y %}{{ x }}{% endset %}{{ y }}]",
        "[{% set y = x %}{{ y }}]",
        "[{% filter lower %}{{ x }}{% endfilter %}]",
        "[{% macro m(y) %}{{ y }}{% endmacro %}{{ m(x) }}]",
        "[{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ x }}{% endcall %}]",
        "[{% with y = x %}{{ y }}{% endwith %}]",
        "[{% block b %}{{ x }}{% endblock %}]",
        "[{{ x|safe }}]",
        "[{{ x|e }}]",
        "[{{ [x]|join }}]",
        "[{{ '%s'|format(x) }}]",
        "[{{ '{}'.format(x) }}]",
        "[{{ {'k': x}.k }}]",
        "[{{ x or y }}]",
        "[{% set z %}{% filter lower %}{{ x }}{% endfilter %}{% endset %}{{ z }}]",
        "[{% macro m() %}{% filter lower %}{{ x }}{% endfilter %}{% endmacro %}{{ m() }}]",
    ],
)
def test_a_value_is_an_odd_part_after_any_expression_or_statement(text: str) -> None:
    found = parts(text, x="ev", y="")
    assert "ev" not in "".join(found[0::2])
    assert "".join(found) == "[ev]"
    assert found[0].startswith("[")
    assert found[-1].endswith("]")


@given(st.text())
def test_jinja_syntax_in_a_value_is_not_evaluated(value: str) -> None:
    hostile = value + "{{ y }}{% raw %}{x}"
    assert parts("[{{ x }}]", x=hostile) == ["[", hostile, "]"]


def test_loops_and_conditions_are_rendered() -> None:
    text = "{% for m in ms if m.on %}{{ loop.index }}. {{ m.name }}\n{% else %}none{% endfor %}"
    assert "".join(parts(text, ms=[{"on": True, "name": "a"}, {"on": False}, {"on": True, "name": "b"}])) == (
        "1. a\n2. b\n"
    )
    assert parts(text, ms=[]) == ["none"]


def test_a_dict_or_list_value_becomes_json_text() -> None:
    found = parts("{{ d }} {{ t }}", d={"城": [None, True]}, t=("a",))
    assert found == ["", '{"城": [null, true]}', " ", '["a"]', ""]
    assert [isinstance(part, JsonText) for part in found] == [False, True, False, True, False]
    assert not isinstance(parts("{{ s }}", s="[1]")[1], JsonText)


def test_scalars_keep_their_type_in_tests_and_arithmetic() -> None:
    assert "".join(parts("{{ n + 1 }} {{ f * 2 }} {{ b and 'yes' }} {{ z is none }}", n=1, f=1.5, b=True, z=None)) == (
        "2 3.0 yes True"
    )


def test_slots_are_the_variables_looked_up_by_the_template_in_order() -> None:
    text = "{{ b }} {{ a.x }} {% for i in c %}{{ i }}{% endfor %}{% set d = 1 %}{{ d }}{{ range(1) }}"
    template = JinjaTemplate(text)
    assert template.slots == ("b", "a", "c")
    assert template.literals[0] == " "
    assert template.text == text


def test_all_parts_have_the_origin_of_the_template() -> None:
    template = JinjaTemplate("a {{ x }}", "user")
    assert template.origins(template.fill({"x": "1"})) == ("user", "user", "user")
    assert JinjaTemplate("a").origins(["a"]) == ("instruction",)


def test_a_template_can_be_pickled() -> None:
    template = JinjaTemplate("a {{ x }}", "user")
    twin = pickle.loads(pickle.dumps(template))  # noqa: S301 - our own bytes
    assert (twin.text, twin.slots, twin.literals) == (template.text, template.slots, template.literals)
    found = twin.fill({"x": "1"})
    assert found == ["a ", "1", ""]
    assert twin.origins(found) == ("user",) * 3
    assert not hasattr(template, "__dict__")


def test_values_are_copied_to_plain_data() -> None:
    value = {"a": [1]}
    copy: Any = JinjaTemplate.coerce(value, "x")
    assert copy == value
    assert copy is not value
    assert copy["a"] is not value["a"]
    assert type(JinjaTemplate.coerce(MappingProxyType({}), "x")) is dict


@pytest.mark.parametrize("value", ["\ud800", b"x", {"a"}, float("nan"), [float("inf")], {1: 2}, {"k": object()}])
def test_error_for_a_value_that_is_not_plain_data_names_its_slot(value: object) -> None:
    with pytest.raises(SlotError, match=r"^the value of slot 'x'"):
        JinjaTemplate.coerce(value, "x")


@pytest.mark.parametrize(
    "text", ["{{ d.update({'a': 1}) }}", "{{ l.append(1) }}", "{{ d.pop('k') }}", "{% set d.k = 1 %}"]
)
def test_a_template_that_modifies_its_values_is_refused(text: str) -> None:
    with pytest.raises((TemplateError, SlotError)):
        parts(text, x="1", d={"k": 1}, l=[1])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ range(100001)|list }}", r"range\(\) returned more than 100000 numbers"),
        ("{% for i in range(400) %}{% for j in range(400) %}{% endfor %}{% endfor %}", r"range\(\) returned more"),
        ("{{ 'x' * 1000001 }}", "a value would become longer than 1000000 characters or items"),
        ("{{ 'x'|center(10001) }}", "center accepts only numbers up to 10000"),
        ("{{ 'x'.center(10 ** 15) }}", "center accepts only numbers up to 10000"),
        ("{{ '%99999d' % 1 }}", "% accepts only widths up to 10000"),
        ("{{ '%99999d'|format(1) }}", "format accepts only widths up to 10000"),
        ("{{ '{:99999}'.format(1) }}", "format accepts only widths up to 10000"),
        # Other types are converted to text first; arguments are positional or by name.
        ("{{ (x * 1000)|replace('a', ['b' * 1001]) }}", "a value would become longer than 1000000"),
        ("{{ (x * 1000)|replace(new='b' * 1001, old='a') }}", "a value would become longer than 1000000"),
        ("{{ range(100000)|join(attribute='real', d=x * 1000) }}", "a value would become longer than 1000000"),
        ("{{ [namespace(a=[[[x] * 1000] * 1000] * 1000)]|string }}", "a value would become longer than 20000000"),
        # A method may be looked up in any way.
        ("{{ x['center'](10001) }}", "center accepts only numbers up to 10000"),
        ("{{ (x|attr('center'))(10001) }}", "center accepts only numbers up to 10000"),
        ("{% set f = x.center %}{{ f(10001) }}", "center accepts only numbers up to 10000"),
        ("{% set n = namespace(f='{:99999}'.format) %}{{ n.f(1) }}", "format accepts only widths up to 10000"),
        (
            "{% set n = namespace(x=x.encode() * 999999) %}{% for i in x * 9 %}{% set n.x = n.x + n.x %}{% endfor %}",
            "a value would become longer than 20000000",
        ),
        (
            "{% set y = x * 999999 %}{% set z %}{% for i in range(30) %}{{ y }}{% endfor %}{% endset %}",
            "a value would become longer than 20000000",
        ),
        ("{{ [[[x] * 1000] * 1000] * 1000 }}", "a value would become longer than 20000000"),
        (
            "{% set l = range(3000)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
            "the loops and calls took more than 1000000 steps",
        ),
        ("{{ 2 ** 65 }}", r"the exponent of '\*\*' must not exceed 64"),
    ],
)
def test_excessive_time_or_memory_use_is_refused(text: str, error: str) -> None:
    with pytest.raises(TemplateError, match=f"^Jinja: {error}"):
        parts(text, l=[1, 2], x="a")


def test_values_at_the_limits_of_the_sandbox_are_accepted() -> None:
    assert "".join(parts("{{ range(100000)|length }} {{ ('x' * 1000000)|length }} {{ 2 ** 64 }} {{ 3 * 4 }}")) == (
        f"100000 1000000 {2**64} 12"
    )
    assert "".join(parts("{{ 2 * 0.5 }} {{ [1] * 2 }} {{ -1 * 'x' }} {{ 2 ** -1 }}")) == "1.0 [1, 1]  0.5"


def test_the_limit_of_range_applies_to_each_rendering() -> None:
    template = JinjaTemplate("{{ range(n)|length }}")
    for _ in range(3):
        assert "".join(template.fill({"n": 60_000})) == "60000"


@pytest.mark.parametrize(
    ("limit", "text", "error"),
    [
        ("OUTPUT", "{% for i in x %}ab{% endfor %}", "the output is longer than 10 characters"),
        ("OUTPUT", "abc{{ x }}de", "the output is longer than 10 characters"),
        ("PIECES", "{% for i in x %}b{{ i }}{% endfor %}", "the template writes more than 10 literal texts and values"),
    ],
)
def test_output_beyond_the_limit_is_refused(limit: str, text: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja, f"MAX_{limit}", 10)
    assert len("".join(parts(text, x="xxxxx"))) == 10
    with pytest.raises(TemplateError, match=f"^Jinja: {error}$"):
        parts(text, x="xxxxxx")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ missing }}", "no value for 'missing'; the slots are 'missing'"),
        ("{{ d.missing }}", "'dict object' has no attribute 'missing'; the slots are 'd'"),
        ("{{ d.missing.more }}", "'dict object' has no attribute 'missing'"),
        ("{% for i in missing %}{% endfor %}", "no value for 'missing'"),
        ("{% if missing %}{% endif %}", "no value for 'missing'"),
        ("{{ lipsum() }}", "no value for 'lipsum'"),
    ],
)
def test_an_undefined_variable_or_attribute_is_an_error(text: str, error: str) -> None:
    with pytest.raises(SlotError, match=f"^Jinja: {error}"):
        parts(text, d={})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ '{a}'.format(b=1) }}", "KeyError 'a'"),
        ("{{ '{}'.format() }}", "IndexError"),
        ("{{ 'a'.index('b') }}", "substring not found"),
        ("{{ [1]|map('nothing')|list }}", "No filter named 'nothing'"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "maximum recursion depth"),
        ("{{ x() }}", "'str' object is not callable"),
        ("{{ 1.0 ** 'a' }}", "unsupported operand"),
    ],
)
def test_an_error_while_rendering_becomes_a_template_error(text: str, error: str) -> None:
    with pytest.raises(TemplateError, match=f"^Jinja: {error}"):
        parts(text, x="1")


def test_an_expression_that_is_not_valid_text_is_refused() -> None:
    with pytest.raises(SlotError, match="lone surrogate"):
        parts(r"{{ '\ud800' }}")
    with pytest.raises(SlotError, match="must be text, not bytes; decode"):
        parts("{{ x.encode() }}", x="a")


OTHER_FILE = 'a template cannot load other templates; in a prompt file, use {% include "shared/tone.md" %}'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a\n{{ b", "line 2: unexpected end of template, expected 'end of print statement'."),
        ("\n\n{{ x|nothing }}", "line 3: unknown filter 'nothing' (did you mean 'string'?)"),
        # Inside an if, Jinja looks the filter up only when it renders the branch.
        ("{% if a %}{{ a | lowr }}{% endif %}", "line 1: unknown filter 'lowr' (did you mean 'lower'?)"),
        ("{% if a is defind %}x{% endif %}", "line 1: unknown test 'defind' (did you mean 'defined'?)"),
        ("{{ [1, 2]|random }}", "line 1: unknown filter 'random'"),
        ("{% nothing %}", "line 1: Encountered unknown tag 'nothing'."),
        (
            "\n{% autoescape true %}{{ x }}{% endautoescape %}",
            "line 2: remove autoescape, because a prompt is not HTML",
        ),
        ("\n{% include 'x' %}", f"line 2: {OTHER_FILE}"),
        *((f"{{% {tag} %}}", f"line 1: {OTHER_FILE}") for tag in ("import 'x' as y", "from x import y", "extends 'x'")),
        ("{{{ a }}}", "line 1: expected token ':', got '}'"),
    ],
)
def test_error_for_invalid_syntax_names_the_line(text: str, error: str) -> None:
    with pytest.raises(TemplateError) as caught:
        JinjaTemplate(text)
    assert str(caught.value) == f"Jinja, {error}"


@pytest.mark.parametrize(
    "text", ["{{ x(a=1, a=2) }}", f"{{{{ {'(' * 9999}1{')' * 9999} }}}}", f"{{{{ {'1' * 4999} }}}}"], ids=len
)
def test_a_template_that_python_cannot_compile_is_a_template_error(text: str) -> None:
    with pytest.raises(TemplateError, match=r"^Jinja cannot compile the template: "):
        JinjaTemplate(text)


@pytest.mark.parametrize("text", [None, 5, b"a"])
def test_a_template_that_is_not_a_string_is_refused(text: Any) -> None:
    with pytest.raises(TemplateError, match=f"^the template must be a string, not {type(text).__name__}$"):
        JinjaTemplate(text)


def test_a_template_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"^the template has a lone surrogate"):
        JinjaTemplate("\ud800")


_NAMES = st.sampled_from(
    ["a", "b", "a.b", "a.items", "b.c.d", "名", "a.0", "true", "loop", "range", "_x", "a._y", "not", "self.a"]
)
_PIECES = st.one_of(
    st.sampled_from(["x", "\n", " ", "{", "}", "}}", "{ {", "# ", "\r\n"]),
    st.builds("{{{{{}{}{}}}}}".format, st.sampled_from(["", " ", "\n"]), _NAMES, st.sampled_from(["", "  "])),
)
_DATA = st.dictionaries(
    st.sampled_from(["a", "b", "名"]),
    st.one_of(
        st.text(max_size=3),
        st.integers(),
        st.none(),
        st.lists(st.integers(), max_size=2),
        st.dictionaries(st.sampled_from(["b", "c", "items"]), st.text(max_size=2)),
    ),
)


@pytest.mark.slow
@given(st.lists(_PIECES).map("".join), _DATA, st.booleans())
def test_templates_of_only_names_render_as_if_compiled(text: str, values: dict[str, Any], lenient: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    """Templates that only name values are not compiled; the result is the same."""

    def outcome() -> object:
        try:
            made = JinjaTemplate(text, lenient=lenient)
            filled = made.fill(values)
        except (TemplateError, SlotError) as error:
            return type(error), str(error)
        return made.slots, "".join(made.literals), filled, [getattr(part, "source", None) for part in filled]

    fast = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja, "_only_names", lambda *_: None)
        assert outcome() == fast


def test_filled_values_have_the_names_of_their_variables() -> None:
    template = JinjaTemplate("{{ q }}{{ u.name }}{{ q|upper }}{% for m in h %}{{ m.role }}{% endfor %}")
    filled = template.fill({"q": "x", "u": {"name": "n"}, "h": [{"role": "r"}]})
    assert [part.source for part in filled[1::2] if isinstance(part, Value)] == ["q", "u.name", "", "m.role"]


def test_a_lenient_template_renders_undefined_variables_as_empty() -> None:
    text = "[{{ a }}{{ a ~ '' }}{{ b.c.d }}{% if e %}x{% endif %}{{ f|default('g') }}]"
    assert "".join(JinjaTemplate(text, lenient=True).fill({})) == "[g]"
    with pytest.raises(SlotError, match="no value for 'a'"):
        JinjaTemplate(text).fill({})


@pytest.mark.parametrize("text", ["a{{ p }}b", "a{% if p %}{{ p }}{% endif %}b"])
def test_an_opaque_value_is_an_empty_part_that_holds_the_object(text: str) -> None:
    class Picture(Opaque):
        pass

    picture = Picture()
    filled = JinjaTemplate(text).fill({"p": picture})
    assert filled == ["a", "", "b"]
    assert isinstance(filled[1], Value)
    assert filled[1].held is picture


@pytest.mark.timing
def test_literal_text_in_a_loop_takes_linear_time() -> None:
    begin = time.perf_counter()
    JinjaTemplate("{% for i in range(90000) %}0123456789{% endfor %}").fill({})
    assert time.perf_counter() - begin < 3


@pytest.mark.parametrize(
    "text",
    [
        *("{{ 'a' ~ 'b' }}", "{{ 'ab' }}", "{{ 'a' + 'b' }}", "{{ ' ab '|trim }}", "{{ 'ab' if 1 == 1 else x }}"),
        *("{% if x %}{{ ['a', 'b']|join }}{% endif %}", "{% for i in [1] %}{{ 'a' ~ 'b' }}{% endfor %}"),
    ],
)
def test_an_expression_of_constants_is_literal_text(text: str) -> None:
    """As a value it would be neutralized, which would change the developer's own text."""
    template = JinjaTemplate(text)
    parts = template.fill(dict.fromkeys(template.slots, "x"))
    if "else x" in text:
        assert [type(part).__name__ for part in parts] == ["str", "Value", "str"]
    else:
        assert parts == ["ab"]


@pytest.mark.parametrize(
    "text", ["{% set y = 'ab' %}{{ y }}", "{{ 'a' ~ x }}", "{{ 'ab'.strip() }}", "{{ x|d('ab') }}"]
)
def test_an_expression_with_a_lookup_or_call_is_a_value(text: str) -> None:
    parts = JinjaTemplate(text).fill({"x": "b"})
    assert [type(part).__name__ for part in parts] == ["str", "Value", "str"]
