"""Models' own chat templates: byte for byte what transformers renders, within limits of time and length."""

from datetime import datetime
from enum import IntEnum, StrEnum
from importlib import import_module
from typing import Any

import pytest

from lazyprompt.chat_templates import jinja as chat_jinja
from lazyprompt.chat_templates.jinja import ChatJinja, without_none
from lazyprompt.errors import FormatError, TemplateError
from lazyprompt.templates import bounds
from support.chat_judges import SPECIAL, TOOLS, USER, call, render_by_transformers, templates

CHAT: list[dict[str, Any]] = [USER]
NOW = datetime(2025, 2, 3, 4, 5, 6)  # noqa: DTZ001 - the local time, as templates get it


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give transformers the time that the templates here get."""

    class Clock:
        now = staticmethod(lambda: NOW)

    monkeypatch.setattr(import_module("transformers.utils.chat_template_utils"), "datetime", Clock)


def render_template(text: str, messages: list[dict[str, Any]] = CHAT, tools: Any = None, **options: Any) -> str:
    return ChatJinja(text, SPECIAL, NOW).render(messages, tools, **options)


def convert_messages(text: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with their tool calls in the form that the template accepts."""
    call_form = ChatJinja(text, SPECIAL, NOW).call_form
    return [call_form.convert(message) for message in messages]


def difference(text: str, messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> str:
    """How our text or refusal differs from that of transformers; empty if it does not."""
    theirs, reason = render_by_transformers(text, convert_messages(text, messages), tools=tools, **SPECIAL, **options)
    try:
        ours = render_template(text, messages, tools, **options)
    except TemplateError as error:
        return "" if theirs is None and reason in str(error) else f"{reason or theirs!r}, but ours: {error}"
    return "" if ours == theirs else f"{reason or theirs!r}, but ours: {ours!r}"


@pytest.mark.parametrize(
    "text",
    [
        # The line break after a block, and that at the end, are removed.
        "{% if true %}\n  a\n  {% endif %}\n  {%- if 1 %} b{% endif +%}\n\n",
        # Undefined values are rendered as empty text, None as its name.
        "[{{ missing }}{{ messages[0].missing }}{{ none }}{{ tools }}{{ true }}{{ 1.0 }}{{ documents }}]",
        "{{ missing.more }}",
        "{{ missing() }}",
        "{{ tools is none }}{{ tools is defined }}{{ documents is defined }}{{ enable_thinking is defined }}",
        # Values are rendered by their repr.
        "{{ messages }}{{ messages[0] }}{{ ('a', 1) }}{{ {'b': none} }}{{ {'a': 1}.items() }}{{ range(3) }}",
        "{{ messages|tojson }}{{ messages|tojson(indent=2) }}{{ messages|tojson(ensure_ascii=True) }}",
        "{{ {'b': '<&>', 'a': 1}|tojson(separators=(',', ':'), sort_keys=True) }}{{ missing|tojson }}",
        "{{ {'b': '<&>', 'a': 1}|tojson(true, '--') }}",
        "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages[0].role + eos_token }}",
        # Loops.
        "{% for i in [1, 2, 5] %}{% if i == 2 %}{% continue %}{% elif i > 2 %}{% break %}{% endif %}x{% endfor %}",
        "{% for i in 'ab' %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ loop.nextitem }}{% endfor %}",
        "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}={{ v }}{{ ',' if not loop.last }}{% endfor %}",
        "{% for a in [1, [2, [3]]] recursive %}{{ loop(a) if a is iterable else a }}{{ loop.depth }}{% endfor %}",
        "{% for a in missing %}x{% else %}none{% endfor %}",
        "{% for a in none %}x{% endfor %}",
        "{% for a in 'ab' if a != 'a' %}{{ a }}{{ loop.changed(a) }}{% endfor %}",
        # A generation block has a scope of its own.
        "{% set a = 1 %}{% generation %}{{ a }}{% set a = 2 %}{{ a }}\n{% endgeneration %}{{ a }}",
        "{% for m in messages %}{%- generation -%} {{ m.content }} {{ loop.index }} {%- endgeneration -%}{% endfor %}",
        "{% generation %}{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}a{% endgeneration %}",
        "{% generation %}{% for i in [1, 2] if i %}{% continue %}{{ i }}{% endfor %}{% endgeneration %}",
        "{% macro m(a) %}{% generation %}{{ varargs }}{{ kwargs }}{% endgeneration %}{% endmacro %}{{ m(1, 2, b=3) }}",
        "{% macro m() %}{% generation %}{{ caller() }}{% endgeneration %}{% endmacro %}{% call m() %}a{% endcall %}",
        # Macros may have parameters of any name.
        "{% macro m(function, context) %}{{ function }}{{ context }}{% endmacro %}{{ m(context=1, function=2) }}",
        "{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m('a') %}{{ y }}{{ bos_token }}{% endcall %}",
        "{% filter upper %}a{{ bos_token }}{% endfilter %}{% set x %}{{ eos_token }}b{% endset %}{{ x|length }}",
        "{% set ns = namespace(a=1, self=2) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.self }}{{ ns }}{{ ns.b }}",
        "{% set ns = namespace() %}{% set ns._a = 1 %}",
        "{{ namespace(__class__=1) }}",
        "{{ dict(a=1) }}{{ dict([('b', 2)]) }}{{ dict.fromkeys(['c']) }}{{ dict.mro is defined }}",
        # Text.
        "{{ '<b>'|safe + '<i>' }}{{ '<b>'|safe ~ '<i>' }}{{ '<'|e }}{{ ('<'|e).split(';') }}",
        "{{ 'a,b'.split(',')[-1] }}{{ ' x '.strip() }}{{ 'abc'[::-1] }}{{ 'a'.upper() }}{{ 'x'.find('y', 20000) }}",
        "{{ '%s %05d' % ('a', 20000) }}{{ '%d'|format(20000) }}{{ '{} {a:>5}'.format(20000, a='{x}') }}{{ 'a' * 3 }}",
        "{{ 'Call 5551234 %s, 100%%' % 'x' }}{{ '%(name12345)s' % {'name12345': 1} }}{{ '{{12345}}'.format() }}",
        "{{ 'x' * 20000 }}{{ ('ab ' * 9000)|truncate(20000)|length }}{{ 'a\nb'|indent(2) }}{{ 'a1'|join('-') }}",
        "{{ ','.join(['a', 'b']) }}{{ messages|map(attribute='role')|join(',') }}{{ [1, 2]|map('string')|list }}",
        "{{ [[1], [2]]|sum(start=[]) }}{{ [1, 2]|sum }}{{ messages|selectattr('role', 'equalto', 'user')|list }}",
        "{{ messages[0] is mapping }}{{ 'a' is string }}{{ [] is iterable }}{{ messages|length }}{{ x|default('x') }}",
        "{{ messages[0].items() is defined }}{{ messages[0].get('content', 'x') }}{{ messages[-1]['nope'] is none }}",
        # Errors.
        "{{ raise_exception('no: ' ~ messages[0].role) }}",
        "{{ raise_exception({'a': 1}) }}",
        "{{ messages[0].content + none }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ messages.__class__.__mro__ }}",
        "{% include 'x' %}",
        "{{ 1 / 0 }}",
        "{{ strftime_now('%d %b %Y %H:%M') }}",
    ],
)
def test_jinja_dialect_renders_as_transformers(text: str) -> None:
    assert difference(text, CHAT) == ""


def test_variables_and_documents_are_passed_to_the_template() -> None:
    text = "{{ bos_token }}{{ documents[0].title }}{{ a }}{{ tools|length }}{{ range }}"
    given: dict[str, Any] = {"documents": [{"title": "T", "text": "x"}], "a": [1, (2,)], "bos_token": "!", "range": 3}
    assert render_template(text, CHAT, TOOLS, **given) == "!T[1, (2,)]23"
    assert render_by_transformers(text, CHAT, tools=TOOLS, **SPECIAL | given) == ("!T[1, (2,)]23", "")


def test_template_time_without_a_now_argument_is_the_current_time() -> None:
    before = datetime.now().strftime("%Y-%m-%d")  # noqa: DTZ005 - the local time
    assert ChatJinja("{{ strftime_now('%Y-%m-%d') }}").render(CHAT) >= before


@pytest.mark.parametrize(("arguments", "written"), [('{"b":  1}', '{"b":  1}'), ({"b": "ö"}, '{"b": "ö"}')])
def test_template_that_fails_with_dict_arguments_gets_json_arguments(arguments: object, written: str) -> None:
    text = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'call: ' + c.function.arguments }}"
        "{{ c.function.name }}"
        "{{ raise_exception('no b') if 'b' not in c.function.arguments and 'at' not in c.function.arguments }}"
        "{% endfor %}{% endfor %}"
    )
    called = {"role": "assistant", "tool_calls": [call(1, arguments)]}
    assert render_template(text, [called]) == f"call: {written}get_weather"
    with pytest.raises(TemplateError, match="rejects the messages: no b"):
        render_template(text, [{"role": "assistant", "tool_calls": [call(1, {})]}])


NULL_BESIDE_JSON = (
    "{% for m in messages if m.content is none %}{% for c in m.tool_calls if c.function.arguments is string %}"
    "{{ c.function.name }}{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[]"),
        ("{% for m in messages %}[{{ m.content | tojson }}]{% endfor %}", '[""]'),
        ("{% for m in messages %}[{{ m.content | trim | length + m.content | length }}]{% endfor %}", "[0]"),
        ("{% for m in messages %}[{{ 'none' if m.content is none else 'text' }}]{% endfor %}", "[none]"),
        # A template that shows a call without content only if its arguments are JSON.
        (NULL_BESIDE_JSON, "get_weather"),
    ],
)
def test_null_content_is_never_rendered_as_none(text: str, shown: str) -> None:
    assert render_template(text, [{"role": "assistant", "content": None, "tool_calls": [call(1)]}]) == shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "{}"),
        ('{"a": 1}', "{'a': 1}"),
        ("[1]", "[1]"),
        ("not json", "not json"),
        ('{"a": ' + "1" * 5000 + "}", '{"a": ' + "1" * 5000 + "}"),
        ("[" * 99_999, "[" * 99_999),
        (None, "None"),
    ],
    ids=repr,
)
def test_arguments_that_are_not_a_json_object_are_not_parsed(arguments: object, shown: str) -> None:
    text = "{{ messages[0].tool_calls[0].function.arguments }}"
    assert render_template(text, [{"role": "assistant", "tool_calls": [call(1, arguments)]}]) == shown


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        *((calls, str(calls)) for calls in (None, "x", ["x"], [{"name": "f"}], {"a": 1})),
        ([{"name": "f", "arguments": "{}"}], "[{'name': 'f', 'arguments': {}}]"),
    ],
)
def test_tool_calls_of_other_shapes_are_passed_to_the_template(calls: object, shown: str) -> None:
    assert render_template("{{ messages[0].tool_calls }}", [{"role": "assistant", "tool_calls": calls}]) == shown


def test_without_none_removes_null_fields() -> None:
    assert without_none([{"role": "user", "content": None, "x": 0}, {}]) == [{"role": "user", "x": 0}, {}]


class Role(StrEnum):
    USER = "user"


class Level(IntEnum):
    ONE = 1


class Weight(float):
    pass


def test_subclass_values_are_rendered_as_plain_data() -> None:
    data: dict[Any, Any] = {"role": Role.USER, "level": Level.ONE, "weight": Weight(1.5), "pair": (1, [None]), 1: "one"}
    assert render_template("{{ messages[0] }}", [data]) == (
        "{'role': 'user', 'level': 1, 'weight': 1.5, 'pair': (1, [None]), 1: 'one'}"
    )


def test_value_that_is_not_plain_data_is_refused_with_its_path() -> None:
    with pytest.raises(FormatError, match=r"^messages\[1\].content\[0\].x has type bytes, which is not a JSON value$"):
        render_template("", [USER, {"content": [{"x": b"a"}]}])
    with pytest.raises(FormatError, match=r"^tools\[0\] has type function"):
        render_template("", CHAT, [lambda: None])
    with pytest.raises(FormatError, match=r"^now has type datetime"):
        render_template("", now=NOW)
    with pytest.raises(FormatError, match=r"^messages\[0\] must be a dict, not str$"):
        render_template("", ["Hi"])  # type: ignore[list-item]
    endless: list[Any] = []
    for _ in range(2):  # the list contains itself once, then twice
        endless.append(endless)
        with pytest.raises(FormatError, match="nested deeper than 200 levels, or contains itself"):
            render_template("", [{"content": endless}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{{ b", "the chat template, line 2: unexpected end of template"),
        ("\n\n{{ x|nothing }}", "the chat template, line 3: No filter named 'nothing'"),
        ("{% generation %}", "the chat template, line 1: Unexpected end of template"),
        (
            "\n{% autoescape true %}{% endautoescape %}",
            "the chat template, line 2: remove autoescape; a prompt is not HTML",
        ),
        ("{{ x(a=1, a=2) }}", "the chat template cannot be compiled: "),
        (f"{{{{ {'(' * 9999}1{')' * 9999} }}}}", "the chat template cannot be compiled: "),
        ("\ud800", "the chat template has a lone surrogate"),
        (None, "the chat template must be text, not NoneType"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_invalid_template_is_refused_when_compiled(text: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=f"^{message}"):
        ChatJinja(text)


@pytest.mark.parametrize(
    ("tag", "message"), [("break", "'break' outside loop"), ("continue", "'continue' not properly in")]
)
def test_break_or_continue_out_of_a_generation_block_is_refused(tag: str, message: str) -> None:
    text = f"{{% for m in messages %}}{{% generation %}}a{{% {tag} %}}{{% endgeneration %}}b{{% endfor %}}"
    assert message in render_by_transformers(text, CHAT)[1]
    with pytest.raises(TemplateError, match=f"^the chat template cannot be compiled: {message}"):
        ChatJinja(text)


def test_special_token_that_is_not_text_is_refused() -> None:
    with pytest.raises(TemplateError, match="the bos_token of the chat template must be text, not int"):
        ChatJinja("", {"bos_token": 1})  # type: ignore[dict-item]
    without: Any = {"bos_token": None}
    assert ChatJinja("[{{ bos_token }}]", without).render(CHAT) == "[]"


def test_template_error_names_its_line() -> None:
    text = "{% macro m(x) %}\n{{ x.a.b }}\n{% endmacro %}\n\n{{ m({}) }}"
    with pytest.raises(TemplateError, match=r"^the chat template fails in line 2: 'dict object' has no attribute 'a'$"):
        render_template(text)
    with pytest.raises(TemplateError, match=r"in line 1: raise_exception\(\) missing 1 required positional argument"):
        render_template("{{ raise_exception() }}")
    with pytest.raises(TemplateError, match=r"^the chat template fails: a value would become longer than 20000000"):
        render_template("{% set x = 'x' * 1000000 %}{% for i in range(21) %}{{ x }}{% endfor %}")
    with pytest.raises(TemplateError, match=r"^the chat template rejects the messages: no system\.$"):
        render_template("\n{{ raise_exception('no system.') }}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [("qwen2_5", True, False), ("llama3_1", True, False), ("qwen3_vl", True, True), ("smolvlm", False, True)],
)
def test_template_renders_text_content_or_content_parts(name: str, text: bool, parts: bool) -> None:  # noqa: FBT001 - a table
    template = ChatJinja(templates()[name], SPECIAL)
    assert (template.shows_text, template.shows_parts) == (text, parts)


def test_template_that_refuses_renders_neither_text_nor_parts() -> None:
    template = ChatJinja("{{ raise_exception('') }}")
    assert (template.shows_text, template.shows_parts) == (False, False)


_LAUGHS = "{% set a = [1] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 %}"
_MORE = r"range\(\) returned more than"
_TOO_LONG = "a value would become longer than"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", _MORE),
        (
            "{% set l = range(3000)|list %}{% for a in l %}{% for b in l %}x{% endfor %}{% endfor %}",
            "the loops and calls took",
        ),
        ("{{ range(10 ** 20) }}", "Python int too large"),
        ("{{ range(10 ** 9) }}", r"range\(\) returned more than 100000 numbers at once"),
        ("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "maximum recursion depth exceeded"),
        ("{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "maximum recursion depth exceeded"),
        ("{{ range(99999)|map('string')|map('center', 9999)|list }}", _TOO_LONG),
        (_LAUGHS + "{{ c }}", _TOO_LONG),
        (_LAUGHS + "{{ c|tojson }}", _TOO_LONG),
        (_LAUGHS + "{{ c ~ '' }}", _TOO_LONG),
        (_LAUGHS + "{{ c|string }}", _TOO_LONG),
        (_LAUGHS + "{{ {'a': c}.values() }}", _TOO_LONG),
        (_LAUGHS + "{{ namespace(a=c) }}", _TOO_LONG),
        (_LAUGHS + "{{ '%s' % c }}", _TOO_LONG),
        ("{{ (['x' * 1000000] * 1000000)|join }}", _TOO_LONG),
        ("{{ ''.join(['x' * 1000000] * 1000000) }}", _TOO_LONG),
        ("{{ ([[1] * 1000] * 1000)|sum(start=[]) }}", _TOO_LONG),
        ("{{ ([1] * 1000000)|tojson(indent=10000) }}", _TOO_LONG),
        ("{{ [1, 2]|tojson(separators=('x' * 1000000, 'x' * 10000000)) }}", _TOO_LONG),
        (
            "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x %}{{ n.x }}{{ n.x }}{%endset%}{% endfor %}",
            _TOO_LONG,
        ),
        ("{{ '%(a(b))999999999d' % {'a(b)': 1} }}", "'%' does not support mapping keys that contain parentheses"),
        ("{{ '%999999999d' % 1 }}", "% accepts only widths up to 10000"),
        ("{{ '{:{}}'.format(1, '999999999') }}", "format does not support nested replacement fields"),
        ("{{ '{:{w}}'.format_map({'w': 999999999}) }}", "format does not support nested replacement fields"),
        ("{{ ('{0}' * 100000).format('x' * 1000000) }}", _TOO_LONG),
        ("{{ ('%s' * 100000) % (('x' * 1000000,) * 100000) }}", _TOO_LONG),
        ("{{ 'x'.encode() * 10 ** 10 }}", _TOO_LONG),
        ("{{ 'x'.encode().center(10 ** 10) }}", "the method center is not available in templates"),
        ("{{ ('\\t' * 1000000).expandtabs(10000) }}", _TOO_LONG),
        ("{{ ('\\n' * 1000000)|indent(10000) }}", _TOO_LONG),
        ("{{ ('x ' * 100000)|wordwrap(1, wrapstring='y' * 1000000) }}", _TOO_LONG),
        ("{{ 'x'|center(10 ** 9) }}", "center accepts only numbers up to 10000"),
        ("{{ strftime_now('%' * 99999) }}", _TOO_LONG),
        ("{{ ((((9 ** 64) ** 64) ** 64) ** 64) ** 64 }}", r"the result of '\*\*' would have"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ ''|attr('__class__')|attr('__mro__') }}{{ x.y }}", ""),
        ("{{ '{0.__class__.__mro__}'.format('') }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ namespace.__init__.__globals__ }}", "access to attribute '__init__' of 'type' object is unsafe"),
        ("{{ raise_exception.__globals__.x }}", "access to attribute '__globals__' of 'function' object is unsafe"),
        ("{{ strftime_now.__self__.x }}", "access to attribute '__self__' of 'method' object is unsafe"),
        ("{{ dict.__class__.__base__ }}", "access to attribute '__class__' of '_Dict' object is unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "access to attribute '__init__' of 'type' object is unsafe"),
        ("{{ self.__init__.__globals__ }}", "access to attribute '__init__' of 'TemplateReference' object is unsafe"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
    ],
    ids=lambda value: value[:50],
)
def test_hostile_template_is_stopped_with_an_error(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=f"^the chat template fails in line 1: .*{message}"):
        render_template(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% set x = 'x' * 1000000 %}{% for i in range(90000) %}{% if x[1:] == x %}{% endif %}{% endfor %}",
        "{% set x = range(9000)|list %}{% for i in x %}{% set y = x|sort %}{% endfor %}",
    ],
)
def test_template_with_slow_steps_is_stopped_by_the_time_limit(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(bounds, "MAX_SECONDS", 0.2)
    with pytest.raises(TemplateError, match="rendering took more than 0.2 seconds of CPU time"):
        render_template(text)


@pytest.mark.slow
def test_nested_loops_over_all_messages_are_allowed() -> None:
    text = "{% for a in messages %}{% for i in range(messages|length) %}{% endfor %}{% endfor %}done"
    assert render_template(text, [USER] * 1500) == "done"


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in x recursive %}{{ loop(x) if loop.depth == 1 }}{% endfor %}",
        "{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}",
        "{% for a in x %}{{ x|map('string')|list|length }}{% endfor %}",
        "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(20) }}",
    ],
)
def test_loops_calls_and_maps_share_one_step_limit(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(chat_jinja, "MAX_STEPS", 1000)
    monkeypatch.setattr(bounds, "MAX_SECONDS", 1000)
    with pytest.raises(TemplateError, match="the loops and calls took more than 1001 steps in one rendering"):
        render_template(text, x=list(range(40)))
