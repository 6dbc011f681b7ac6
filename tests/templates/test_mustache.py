import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates.bounds import MAX_OUTPUT
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.mustache import MAX_DEPTH, MAX_TAGS, MustacheTemplate
from lazyprompt.templates.slots import JsonValue, Opaque, Value

if TYPE_CHECKING:
    from lazyprompt.templates.slots import SlotSyntax


class Picture(Opaque):
    __slots__ = ()


FALSY: list[Any] = [False, None, "", []]
TRUTHY: list[Any] = [True, 0, 0.0, "a", {}, {"a": 1}, [0]]


def parts(text: str, *, lenient: bool = False, **values: Any) -> list[str]:
    """Fill a template after converting the values to plain data, and return its parts."""
    data = {name: MustacheTemplate.coerce(value, name) for name, value in values.items()}
    return list(MustacheTemplate(text, lenient=lenient).fill(data))


def filled(text: str, **values: Any) -> str:
    return "".join(parts(text, lenient=True, **values))


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("", {}, [""]),
        ("plain { } }} text\n", {}, ["plain { } }} text\n"]),
        ("Say {{a}} to {{ b }}!\n", {"a": "hi", "b": "Bob"}, ["Say ", "hi", " to ", "Bob", "!\n"]),
        ("{{a}}{{{a}}}{{&a}}{{& a }}", {"a": '<&">'}, ["", '<&">', "", '<&">', "", '<&">', "", '<&">', ""]),
        ("{{a}} {{b}} {{c}}", {"a": True, "b": 1.5, "c": None}, ["", "True", " ", "1.5", " ", "", ""]),
        ("{{d}}", {"d": {"城": [None, True]}}, ["", '{"城": [null, true]}', ""]),
        ("{{u.name}}", {"u": {"name": "Bob"}}, ["", "Bob", ""]),
        ("{{l.1.a}}{{l.000000001.a}}", {"l": [0, {"a": "x"}]}, ["", "x", "", "x", ""]),
        ("a{{! gone }}b{{!\n}}c", {}, ["abc"]),
        ("{{#l}}-{{.}};{{/l}}", {"l": ["a", 2]}, ["-", "a", ";-", "2", ";"]),
    ],
)
def test_literal_text_and_values_alternate_in_the_parts(text: str, values: dict[str, Any], expected: list[str]) -> None:
    found = parts(text, **values)
    assert found == expected
    assert all(isinstance(part, Value) for part in found[1::2])


SECTIONS: list[tuple[str, dict[str, Any], str]] = [
    # Which values are false: 0 and the empty dict are not.
    *(("{{#x}}yes{{/x}}{{^x}}no{{/x}}", {"x": x}, "no") for x in FALSY),
    ("{{#x}}yes{{/x}}{{^x}}no{{/x}}", {}, "no"),
    *(("{{#x}}yes{{/x}}{{^x}}no{{/x}}", {"x": x}, "yes") for x in TRUTHY),
    # A name is looked up in the innermost dict first, then in the outer ones.
    ("{{#a}}{{x}}{{y}}{{/a}}", {"a": {"x": 1}, "x": 2, "y": 3}, "13"),
    ("{{#a}}{{#b}}{{#c}}{{x}}{{y}}{{z}}{{/c}}{{/b}}{{/a}}", {"a": {"x": 1, "b": {"y": 2, "c": {"z": 3}}}}, "123"),
    ("{{#l}}{{n}}{{#m}}{{n}}{{.}}{{/m}},{{/l}}", {"l": [{"n": 1, "m": ["a"]}, {"n": 2, "m": []}]}, "11a,2,"),
    ("{{#l}}({{#.}}{{.}}{{/.}}){{/l}}", {"l": [[1, 2], [3]]}, "(12)(3)"),
    ("{{#s}}[{{.}}]{{/s}}", {"s": "text"}, "[text]"),
    ("{{#a.b.c}}{{x}}{{/a.b.c}}", {"a": {"b": {"c": {"x": "here"}}}}, "here"),
    ("{{^a.b.c}}none{{/a.b.c}}", {"a": {}}, "none"),
    # Only the first part of a name is looked up in outer dicts; the rest is looked up in its value.
    ("[{{#a}}{{b.c}}{{/a}}]", {"a": {"b": {}}, "b": {"c": "wrong"}}, "[]"),
    ("[{{a.b.c}}]", {"a": {"b": 1}}, "[]"),
    # The same section twice, nested in itself, and inverted.
    ("{{#x}}a{{/x}}b{{#x}}c{{/x}}", {"x": True}, "abc"),
    ("{{#x}}a{{#x}}b{{/x}}c{{/x}}", {"x": False}, ""),
    ("{{^x}}a{{^x}}b{{/x}}c{{/x}}", {"x": False}, "abc"),
    # Delimiters.
    ("{{=<% %>=}}<%a%> {{a}}<%={{ }}=%> {{a}}", {"a": 1}, "1 {{a}} 1"),
    ("{{= | | =}}|a| |#a|x|/a|", {"a": 1}, "1 x"),
    ("{{#x}}{{=| |=}}|a||/x||a|", {"a": 1, "x": True}, "11"),
    ("{{=@ @=}}@{a}@@&a@", {"a": "<"}, "<<"),
    # White space inside a tag is ignored, white space around it is text.
    (" {{ # x }} {{ a }} {{ / x }} ", {"a": 1, "x": True}, "  1  "),
]


@pytest.mark.parametrize(("text", "values", "expected"), SECTIONS)
def test_sections_names_and_delimiters_follow_the_mustache_specification(
    text: str, values: dict[str, Any], expected: str
) -> None:
    assert filled(text, **values) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n{{#x}}\nb\n{{/x}}\nc\n", "a\nb\nc\n"),
        ("a\r\n{{#x}}\r\nb\r\n{{/x}}\r\nc", "a\r\nb\r\nc"),
        ("  {{#x}} \t\nb\n\t{{/x}}", "b\n"),
        ("a\n  {{! c }}", "a\n"),
        ("{{! c\n\nd }}\na", "a"),
        ("a\n {{=| |=}}\n|x|", "a\nTrue"),
        ("a\n{{^y}}\nb\n{{/y}}\n", "a\nb\n"),
        ("{{#x}}\n{{#x}}\nb\n{{/x}}\n{{/x}}\n", "b\n"),
        # Kept lines: a value, a text or a second tag is on the line.
        ("{{x}}\n", "True\n"),
        (" {{! c }} a\n", "  a\n"),
        ("{{#x}}{{/x}}\na", "\na"),
        ("{{#x}} b\n{{/x}}c", " b\nc"),
        ("{{x}} {{! c }}\n", "True \n"),
    ],
)
def test_a_line_with_only_a_tag_is_removed_with_its_line_break(text: str, expected: str) -> None:
    assert filled(text, x=True, y=False) == expected


def test_filled_values_have_the_names_of_their_tags() -> None:
    picture = Picture()
    template = MustacheTemplate("{{a}}{{ u.name }}{{#l}}{{.}}{{/l}}{{p}}{{u}}")
    found = template.fill({"a": "1", "u": {"name": "B"}, "l": ["x"], "p": picture})
    values = [part for part in found if isinstance(part, Value)]
    assert [(value, value.source) for value in values] == [
        ("1", "a"),
        ("B", "u.name"),
        ("x", "."),
        ("", "p"),
        ('{"name": "B"}', "u"),
    ]
    assert [value.held for value in values] == [None, None, None, picture, None]
    assert isinstance(values[4], JsonValue)
    assert isinstance(values[4], JsonText)


def test_an_opaque_value_is_true_in_a_section() -> None:
    picture = Picture()
    found = MustacheTemplate("{{#p}}[{{.}}]{{/p}}{{^p}}none{{/p}}").fill({"p": picture})
    assert found == ["[", "", "]"]
    assert isinstance(found[1], Value)
    assert found[1].held is picture


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a\n{{nme}}", r"Mustache, line 2: no value for 'nme' \(did you mean 'name'\?\); pass a value"),
        ("{{user.nme}}", r"line 1: no value for 'user.nme' \(did you mean 'name'\?\)"),
        ("{{usr.name}}", r"line 1: no value for 'usr.name' \(did you mean 'user'\?\)"),
        ("{{#user}}\n{{nme}}{{/user}}", r"line 2: no value for 'nme' \(did you mean 'name'\?\)"),
        ("{{name.x}}", "line 1: no value for 'name.x'; pass a value, or wrap the tag in a section"),
        ("{{name.__class__}}", "line 1: no value for 'name.__class__'"),
        ("{{user.items}}", "line 1: no value for 'user.items'"),
        ("{{name.0}}", "line 1: no value for 'name.0'"),
        ("{{l.1}}{{l.2}}", "line 1: no value for 'l.2'"),
        ("{{l.²}}", "line 1: no value for 'l.²'"),
        *((f"{{{{l.{index}}}}}", f"line 1: no value for 'l.{index}'") for index in ("-1", "0000000001")),
    ],
)
def test_an_unknown_name_is_an_error_or_empty_in_a_lenient_template(text: str, error: str) -> None:
    values: dict[str, Any] = {"name": "N", "user": {"name": "B"}, "l": [1, 2]}
    with pytest.raises(SlotError, match=error):
        parts(text, **values)
    found = parts(text, lenient=True, **values)
    assert found[-2] == ""
    assert isinstance(found[-2], Value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a\n{{b", "line 2: a tag is never closed; write }} after it"),
        ("{{{b}}", "line 1: a tag is never closed; write }}} after it"),
        ("{{=<% %>}}", "line 1: a tag is never closed; write =}} after it"),
        ("{{! b", "line 1: a tag is never closed"),
        ("\n{{#a}}\n\n{{#b}}\n", "line 4: {{#b}} is never closed; add {{/b}} where it ends"),
        ("{{#a}}\n{{^b}}\n\n{{/a}}", "line 4: {{/a}} does not match the open tag {{^b}} on line 2; write {{/b}} first"),
        ("\n\n{{/a}}", "line 3: {{/a}} has no matching opening tag"),
        ("{{}}", "line 1: invalid name ''"),
        ("{{#if x}}a{{/if}}", "line 1: invalid name 'if x'; a name can't contain spaces"),
        ("{{a..b}}", "line 1: invalid name 'a..b'"),
        ("{{.a}}", "line 1: invalid name '.a'"),
        ('{{"a": 1}}', "set other delimiters before them, such as {{=<% %>=}}"),
        ("{{=<%=}}", "line 1: invalid delimiters '<%'; expected two"),
        ("{{=a b c=}}", "line 1: invalid delimiters 'a b c'"),
        ("{{> p}}", "line 1: partials"),
        ("{{<p}}{{/p}}", "line 1: inheritance"),
        ("{{$p}}{{/p}}", "line 1: blocks"),
        ("{{! a\n}}\n{{! b\n\n}}{{/c}}", "line 5: {{/c}} has no matching opening tag"),
        ("{{#a}}{{/a}}" * (MAX_TAGS + 1), f"line 1: the template has more than {MAX_TAGS} tags and text segments"),
        ("{{#a}}" * (MAX_DEPTH + 1), "line 1: sections are nested more than 100 levels deep"),
    ],
)
def test_error_for_an_invalid_template_names_the_line(text: str, error: str) -> None:
    with pytest.raises(TemplateError) as caught:
        MustacheTemplate(text)
    assert str(caught.value).startswith("Mustache, line ")
    assert error in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_template_that_is_not_valid_text_is_refused() -> None:
    with pytest.raises(TemplateError, match="the template must be a string, not bytes"):
        MustacheTemplate(b"x")  # type: ignore[arg-type]
    with pytest.raises(TemplateError, match="lone surrogate"):
        MustacheTemplate("\ud800")


def test_a_function_as_a_value_is_refused() -> None:
    with pytest.raises(TemplateError, match="Mustache: the value of 'f' is a function"):
        MustacheTemplate("{{#f}}x{{/f}}").fill({"f": print})


@pytest.mark.slow
def test_deeply_nested_sections_are_rendered() -> None:
    """Python allows 20 nested loops, so deeper sections become functions that need the outer variables."""
    deep = MAX_DEPTH // 2
    text = "{{#a}}-{{^n}}{{b}}" * deep + "{{c}}{{.}}" + "{{/n}}{{/a}}" * deep
    assert filled(text, a=["x"], b=1, c=2) == "-1" * deep + "2x"


def test_slots_are_the_top_level_names_in_order() -> None:
    text = "{{b}}{{#a.x}}{{name}}{{b}}{{/a.x}}{{^c}}{{d.e}}{{/c}}{{b}}{{.}}{{#l}}{{.}}{{^m}}{{n}}{{/m}}{{/l}}"
    template = MustacheTemplate(text)
    assert template.slots == ("b", "a", "c", "d", "l")
    assert template.text == text


def test_literals_are_the_text_outside_the_tags() -> None:
    assert MustacheTemplate("a {{b}} c\n{{#d}}\ne{{/d}}{{! f }}").literals == ("a ", " c\n", "e")


def test_a_mustache_template_has_the_interface_of_the_other_slot_syntaxes() -> None:
    kind: type[SlotSyntax] = MustacheTemplate
    template = kind("a {{x}}", "user")
    assert template.origins(template.fill({"x": "1"})) == ("user", "user", "user")
    value = {"a": (1, None)}
    assert MustacheTemplate.coerce(value, "x") == JinjaTemplate.coerce(value, "x") == {"a": [1, None]}
    assert not hasattr(template, "__dict__")


def test_a_template_can_be_pickled() -> None:
    template = MustacheTemplate("a {{x}}{{y}}", "user", lenient=True)
    twin = pickle.loads(pickle.dumps(template))  # noqa: S301 - our own bytes
    assert (twin.text, twin.slots, twin.literals) == (template.text, template.slots, template.literals)
    assert twin.fill({"x": "1"}) == ["a ", "1", "", "", ""]
    assert twin.origins([""]) == ("user",)


@given(st.text().filter(lambda text: "{{" not in text))
def test_text_without_tags_is_not_changed(text: str) -> None:
    assert MustacheTemplate(text).fill({}) == [text]


@pytest.mark.slow
@given(st.text(alphabet="{}#/^!=&>x. \n\\") | st.text())
def test_mustache_syntax_in_a_value_is_not_evaluated(value: str) -> None:
    hostile = value + "{{y}}{{/l}}{{=<% %>=}}"
    text = "[{{x}}]\n{{#l}}\n({{.}}{{x}}){{/l}}{{#d}}{{k}}{{/d}}"
    found = MustacheTemplate(text).fill({"x": hostile, "l": [hostile], "d": {"k": hostile}, "y": "never"})
    assert found == ["[", hostile, "]\n(", hostile, "", hostile, ")", hostile, ""]


@given(st.text(alphabet="{}#/^!=&>ab. \n<%$"))
def test_any_text_is_a_valid_template_or_a_template_error(text: str) -> None:
    try:
        template = MustacheTemplate(text, lenient=True)
    except TemplateError as error:
        reason = str(error)
        assert ("{{" in text, reason[:15]) == (True, "Mustache, line ")
        return
    found = template.fill({"a": {"b": ["x"]}, "b": "y"})
    assert len(found) % 2 == 1
    assert not any(isinstance(part, Value) for part in found[0::2])
    assert all(isinstance(part, Value) for part in found[1::2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{#l}}{{#l}}{{/l}}{{/l}}", "the loops and calls took more than 1000000 steps"),
        ("{{x}}" * 2001, f"the output is longer than {MAX_OUTPUT} characters"),
        ("{{#l}}{{x}}{{/l}}", f"the output is longer than {MAX_OUTPUT} characters"),
        ("{{#l}}" + "a" * 10_000 + "{{/l}}", f"the output is longer than {MAX_OUTPUT} characters"),
        ("{{#l}}" + "{{^l}}{{/l}}a{{e}}" * 1000 + "{{/l}}", "the template writes more than 400000 literal texts"),
        ("{{j}}", "a value would become longer than 20000000 characters"),
    ],
)
def test_excessive_time_or_memory_use_is_refused(text: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A lower limit, which is reached in time with coverage on a busy machine.
    monkeypatch.setattr("lazyprompt.templates.jinja.MAX_PIECES", 400_000)
    one = ["x" * 1_000_000]
    values = {"l": [0] * 3000, "x": "x" * 10_000, "e": "", "j": [one] * 30}
    with pytest.raises(TemplateError, match=f"^Mustache: {error}"):
        MustacheTemplate(text).fill(values)


# Each would take minutes if the time were quadratic in the length.
@pytest.mark.timing
@pytest.mark.parametrize(
    "text",
    [
        "{{" * 500_000,
        "{{a}}" * 100_000,
        "{{#a}}{{/a}}" * 50_000,
        (" " * 9 + "{{! c }}") * 50_000,
        " " * 1_000_000 + "{{! c }}" + " " * 1_000_000 + "x",
        "{{" + " " * 1_000_000,
        "{{" + "a." * 500_000 + "a}}",
        "{{=| |=}}|={{ }}=|" * 50_000,
        "\n" * 1_000_000 + "{{a}}",
        "{{! a }}\n" * 100_000,
    ],
)
def test_parsing_and_filling_time_is_linear_in_the_text_length(text: str) -> None:
    before = time.process_time()
    try:
        MustacheTemplate(text, lenient=True).fill({"a": "v"})
    except TemplateError:
        assert "{{" in text
    assert time.process_time() - before < 5


@pytest.mark.timing
def test_literal_text_in_a_loop_takes_linear_time() -> None:
    # Adding text piece by piece took 11 seconds for half as many iterations.
    before = time.process_time()
    assert len(MustacheTemplate("{{#l}}0123456789{{/l}}").fill({"l": [0] * 800_000})[0]) == 8_000_000
    assert time.process_time() - before < 5
