"""The sandbox renders as Jinja's own, as long as a template stays within the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment, StrictUndefined, Undefined, pass_environment
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment, unsafe

from lazyprompt.templates import bounds, sandbox
from lazyprompt.templates.sandbox import BoundedEnvironment, globals_of_one_rendering, within_bounds

if TYPE_CHECKING:
    from collections.abc import Callable


class Thing:
    @unsafe
    def delete(self) -> str:
        return "deleted"

    @pass_environment
    def is_boxed(self, environment: Environment) -> bool:
        return environment.sandboxed


DATA: dict[str, Any] = {
    # Keys that are also names of attributes, or look like them.
    "d": {"a": "A", "b": {"c": [1, {"d": "e"}]}, "items": "I", "get": 0, "x y": 2, 1: "one", None: 3, "_p": 4},
    "e": {"__class__": 5, "format": "F", "n": None, "l": [], "strip": " s "},
    "l": [{"a": 1}, {"a": 2, "b": 3}, "s", None, 2.5, True],
    "t": ("x", ("y",)),
    "s": " a{}b%s ",
    "n": 7,
    "z": None,
    "f": "{0.a} {1[a]} {x}",
    "raw": "{0.__class__}".format,
    "thing": Thing(),
}
OPTIONS: dict[str, Any] = {"trim_blocks": True, "extensions": ["jinja2.ext.loopcontrols"]}
STEPS = 10_000
BOTH = [Undefined, StrictUndefined]


def plain(text: str, undefined: type[Undefined] = Undefined) -> str:
    """Render with Jinja's sandbox; its error if there is one.

    Its optimizer evaluates constants while it compiles, and fails at some that are never rendered.
    """
    try:
        environment = ImmutableSandboxedEnvironment(undefined=undefined, optimized=False, **OPTIONS)
        return environment.from_string(text).render(DATA)
    except Exception as error:  # noqa: BLE001 - whatever Jinja and Python raise
        return error_text(error)


def render_bounded(text: str, undefined: type[Undefined] = Undefined) -> str:
    """Render with our sandbox; its error if there is one."""
    try:
        return rendered(text, undefined=undefined, **DATA)
    except Exception as error:  # noqa: BLE001 - whatever Jinja and Python raise
        return error_text(error)


def error_text(error: Exception) -> str:
    # The position of a syntax error in the generated code does not matter.
    return type(error).__name__ + ("" if isinstance(error, SyntaxError) else f": {error}")


def rendered(text: str, steps: int = STEPS, environment: BoundedEnvironment | None = None, **data: Any) -> str:
    ours = environment or BoundedEnvironment(**OPTIONS | {"undefined": data.pop("undefined", Undefined)})
    template = ours.from_string(within_bounds(ours.parse(text)))
    return ours.concat(template.root_render_func(template.new_context({**globals_of_one_rendering(steps), **data})))


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit in seconds, so that the tests do not depend on the speed of the machine."""
    monkeypatch.setattr(bounds, "MAX_SECONDS", 1e9)


VALUES = (
    # Items and attributes of dicts.
    ("d.a", "d['a']", "d.b.c[1].d", "d['b']['c'][1]['d']", "d.b['c']", "d.none", "d['none']", "d.none is defined"),
    ("d.items", "d['items']", "d['items'] ~ d.a", "d.items()", "d['keys']()|list", "d.get", "d['get']", "d.get('a')"),
    ("d.get('zz', 9)", "d.get()", "d.keys()|list", "d.values()|list|length", "d['x y']", "d[1]", "d[none]", "d[2]"),
    ("d['A'|lower]", "d[['a']]", "d[{}]", "d.none.more", "d['none'].more", "d['none']['more']", "d._p", "d['_p']"),
    ("d.__class__", "d['__class__']", "e.__class__", "e['__class__']", "e.format", "e.n", "e.n.more", "d.update"),
    ("d.update({})", "d.pop('a')", "d.clear()", "d.copy()", "{'a': 1}.a", "{'a': 1}['a']", "{'a': n}.a", "{}.a"),
    ("d|attr('a')", "d|attr('items')", "d|map('upper')|first", "d.a.b.c", "d.popitem", "d.setdefault('q', 1)"),
    # Of lists, texts and the rest.
    ("l[0].a", "l[-1]", "l[99]", "l[99].a", "l['a']", "l.a", "l.append(1)", "l.count(2.5)", "l.index('s')", "l[1:2]"),
    ("l[::-1]|length", "l['count'](2.5)", "l|map(attribute='a')|list", "l|selectattr('a')|list", "t[1][0]", "t.a"),
    ("s[1]", "s[-1]", "s[99]", "s[1:3]", "s['upper']()", "s['nothing']", "s.nothing", "s.nothing.more", "s['a'].b"),
    ("s.__class__", "s['__class__']", "s._x", "s.strip", "s.strip()", "s.strip(' a')", "s.startswith(' a', 1)"),
    ("s.split()", "s.split('{', 1)", "s.split(maxsplit=1)", "s.strip(1)", "s.upper().lower()", "s.nothing()"),
    ("s.replace('a', 'bb')", "s.replace('a')", "s.replace('', '-', 2)", "'-'.join(t)", "'-'.join(s)", "'-'.join(l)"),
    ("s.format(1)", "f.format(d, e, x=n)", "f.format(l[0], d, x='{}')", "f.format_map(d)", "f['format'](d, d, x=1)"),
    ("'{0.__class__}'.format(s)", "'%s' % s", "'%s %d' % (s, n)", "s % s", "'%(a)s' % d", "'%d' % s", "f|format"),
    ("n.real", "n.bit_length()", "n.a", "n['a']", "n[0]", "z.a", "z['a']", "z[0]", "none.strip()", "2.5.is_integer()"),
    # Undefined names.
    ("q", "q.a", "q['a']", "q()", "q.a()", "q + 'a'", "'a' + q", "q ~ 'a'", "q|trim", "q|upper", "[q]", "q.a + none"),
    # Sums.
    ("'a' + 'b'", "s + ('b' + 'c')", "('a' + 'b') + s", "s + s + s + s + s + s", "s + (s + s) + ('x' + (s + 'y'))"),
    ("n + 1", "1 + n", "n + n", "n + 1.5 + n", "l + l", "l + [1] + l + [2] + [3] + [4]", "t + t", "t + l", "s + n"),
    ("n + s", "none + s", "s + none + q.a.b", "'a' + none", "'a' + s|trim + 'b'", "s + d.a + e.format + 'x'"),
    ("[s + s]", "(s + s)|trim", "(s + s).strip() + '!'", "(n + n) * 2", "s + 'a' if n else s", "n - 1 + 2", "'a' + 1"),
    ("(s + s)[1:3]", "(s + s) == (s + s)", "(s + 'b') in (s + 'b' + s)", "{'a': s + s}['a']", "s|default(s + s)"),
    ("'<b>'|safe + '<i>'", "'<' + ('<b>'|safe)", "('<'|e) + '<'", "'<b>'|safe ~ '<i>'", "('<b>'|safe).strip()"),
    # Operators.
    ("s ~ n ~ l ~ none", "'a' ~ 'b'", "s * 2", "2 * s", "l * 0", "n * n", "n * 1.5", "s * -1", "s * s", "n ** 2"),
    ("n % 2", "n % 0", "7.5 % 2", "2 ** 0.5", "2 ** -1", "none % 1", "n // 2", "n / 0", "[1] * 2 + [3]"),
    # Filters.
    ("s|trim", "s|trim(' a')", "n|trim", "none|trim", "l|trim", "s|upper", "n|upper", "s|lower", "none|lower"),
    ("s|string", "n|string", "l|string", "s|trim|upper|string", "s|trim + s|upper", "q|string", "('<b>'|safe)|string"),
    ("s|replace('a', 'b')", "s|replace(new='b', old='a')", "n|replace(7, 8)", "l|replace('s', n)", "s|replace('a')"),
    ("l|join", "l|join('-')", "s|join('-')", "n|join", "range(3)|join(',')", "d|join(attribute='a', d='-')", "q|join"),
    ("l|map('string')|join(1)", "t|sum(start=())", "[[1], t|list]|sum(start=[])", "range(4)|sum", "l|first|tojson"),
    ("l|length", "s|capitalize", "s|title", "s|indent(2, true)", "s|center(12)", "'%s'|format(s)", "['%s']|format(1)"),
    # Calls.
    ("namespace(a=s).a", "namespace(a=s).b", "namespace(a=s)['a']", "namespace().items", "namespace(get=n).get"),
    ("namespace(a=1).__class__", "namespace(_a=1)._a", "namespace(a='{}'.format).a(n)", "namespace", "range(3)|list"),
    ("range(1, 9, 3)|list", "range('a')", "dict(a=1).a", "cycler(1, 2).next()", "joiner(',')()", "n()", "'a'()"),
    ("raw(n)", "namespace(a=raw).a(s)", "thing.delete()", "thing.is_boxed()", "self", "self.a", "loop", "loop.index"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("undefined", BOTH)
@pytest.mark.parametrize("values", VALUES)
def test_expressions_render_as_in_jinjas_sandbox(values: tuple[str, ...], undefined: type[Undefined]) -> None:
    # Printed directly, stored in a block, used as a condition.
    for text in ("[{{ %s }}]", "{%% set x %%}[{{ %s }}]{%% endset %%}{{ x }}", "{%% if %s %%}yes{%% endif %%}"):
        for value in values:
            # The text of methods and iterators has their address in memory.
            ours, theirs = (f(text % value, undefined).split(" at 0x")[0] for f in (render_bounded, plain))
            assert ours == theirs, text % value


@pytest.mark.parametrize(
    "text",
    [
        "{% for x in l %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% endfor %}",
        "{% for x in l %}{{ loop.previtem }}{{ loop.nextitem }},{{ loop.revindex0 }}{% endfor %}",
        "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{{ loop.depth0 }}{{ loop }}{% endfor %}",
        "{% for x in l %}{{ loop._iterable.x.y }}{% endfor %}",
        "{% for x in l %}{{ loop['index'] }}{{ loop.nothing }}{{ loop['nothing'] }}{{ loop() }}{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}={{ v }}{{ loop.revindex }}{% endfor %}",
        "{% for k in d %}{{ k }}{{ loop.length }}{% endfor %}{% for k in d.values() %}{{ k }}{% endfor %}",
        "{% for c in s %}{{ c }}{{ c.nothing }}{% endfor %}{% for i in range(70) %}{{ i }}{% endfor %}",
        "{% for x in l if x is string %}{{ x }}{{ loop.length }}{% else %}none{% endfor %}",
        "{% for x in [] %}{% else %}none{% endfor %}{% for x in q %}{% else %}none{% endfor %}",
        "{% for x in l|selectattr('a') %}{{ x.a }}{{ loop.length }}{% endfor %}",
        "{% for x in l %}{% if x is string %}{% continue %}{% elif loop.last %}{% break %}{% endif %}x{% endfor %}",
        "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}",
        "{% for x in [1, [2, [3]]] if x recursive %}{{ loop(x) if x is iterable else x }}{% else %}-{% endfor %}",
        "{% for x in l %}{% set y = x %}{% for x in t %}{{ x }}{{ y }}{{ loop.first }}{% endfor %}{% endfor %}{{ y }}",
        "{% macro m(x, y=2) %}{{ x.a }}{{ y + 1 }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(d) ~ m(d, 1, 2, z=3) }}",
        "{% macro m(x, y=2) %}{{ x['b'] }}{{ y }}{% endmacro %}{{ m(l[1], y=3) }}{{ m }}{{ m.name }}{{ m.arguments }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(y=2) }}",
        "{% macro m(x) %}{{ x.a }}{% endmacro %}{% for x in l %}{{ m(x) + m(x) ~ m(x) }}{% endfor %}",
        "{% macro m(x) %}[{{ caller(x + x) }}]{% endmacro %}{% call(y) m(s) %}{{ y + y }}{{ d.a }}{% endcall %}",
        "{% macro m() %}{% for x in l %}{{ loop.index }}{{ x.a }}{% endfor %}{% endmacro %}{{ m()|upper }}",
        "{% set ns = namespace(a=s, b=[]) %}{% set ns.a = ns.a + ns.a %}{% set ns.b = ns.b + [1] %}{{ ns.a }}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ [ns] }}",
        "{% with x = s + s, y = d.a %}{{ x + y }}{% endwith %}{% filter upper %}{{ s + s }}{% endfilter %}",
        "{% block b %}{{ s + s }}{{ d.a }}{% for x in t %}{{ x }}{% endfor %}{% endblock %}{{ self.b() + self.b() }}",
        "{% for x in l %}{% block b scoped %}{{ x.a }}{{ loop.index }}{% endblock %}{% endfor %}",
        "{% set x %}{{ s }}{% for x in l %}{{ x }}{% endfor %}{% endset %}{{ x + x }}{% set y = x ~ s %}{{ y }}",
        "a{{ 'b' + 'c' }}{{ 1 + 1 }}{{ 'd' ~ 1 }}e{{ 'f'|upper }}",
        "{% autoescape true %}{{ '<' }}{{ s + '<' }}{{ q }}{{ '<'|trim }}{{ l }}{{ d.a }}{% endautoescape %}{{ '<' }}",
        "{% macro m(x) %}{{ x }}<{% endmacro %}{% autoescape true %}{{ m('<') }}{% endautoescape %}{{ m('<') }}",
        "{% include 'x' %}",
        "{{ q.a",
    ],
)
@pytest.mark.parametrize("undefined", BOTH)
def test_templates_render_as_in_jinjas_sandbox(text: str, undefined: type[Undefined]) -> None:
    assert render_bounded(text, undefined).split(" at 0x")[0] == plain(text, undefined).split(" at 0x")[0]


NAMES = st.sampled_from(["a", "b", "c", "items", "get", "strip", "x", "format", "_p", "__class__", "keys", "upper"])
FORMS = st.sampled_from(
    [
        *("{0}.{2}", "{0}['{2}']", "{0}[0]", "{0}[-1]", "{0}[9]", "{0}[1:]", "{0}[::2]", "{0}[none]", "{0}.{2}({1})"),
        *("({0})", "({0} + {1})", "{0} + {1} + {0}", "({0} ~ {1})", "({0} == {1})", "({0} in {1})", "({0} and {1})"),
        *("({0} or {1})", "({0} if {1} else {0})", "[{0}, {1}]", "{0}.{2}()", "({0})|trim", "({0})|upper"),
        *("({0})|string", "({0})|first", "({0})|list", "({0})|length", "({0} is defined)", "({0} is mapping)"),
    ]
)
ATOMS = st.sampled_from([*DATA, "q", "'a'", "'{}'", "1", "none", "[]", "{'a': s}", "ns"])
EXPRESSIONS = st.recursive(ATOMS, lambda inner: st.builds(str.format, FORMS, inner, inner, NAMES))


# Python warns of ``True[1:]`` in the code that Jinja compiles; ours evaluates it when it renders.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@given(EXPRESSIONS, st.sampled_from(BOTH))
@settings(max_examples=200, deadline=None)
def test_random_expressions_render_as_in_jinjas_sandbox(value: str, undefined: type[Undefined]) -> None:
    text = "{% set ns = namespace(a=s, items=d) %}{{ " + value + " }}{% for i in " + value + " %}{{ i.a }}{% endfor %}"
    ours, theirs = render_bounded(text, undefined).split(" at 0x")[0], plain(text, undefined).split(" at 0x")[0]
    assert ours == theirs


# Ways to double a value, and ways to store it for the next of nine doublings, which are more than enough.
DOUBLED = {
    "+": "{v} + {v}",
    "+ in a chain": "{v}[:1] + {v} + {v}[:1] + {v} + {v}[:1]",
    "+ in brackets": "({v} + {v}) + ({v} + {v})",
    "~": "{v} ~ {v}",
    "~ of a list": "[{v}, {v}] ~ ''",
    "filter": "({v} + {v})|trim",
    "argument of a filter": "none|default({v} + {v}, true)",
    "format": "'%s%s' % ({v}, {v})",
    "format filter": "'%s%s'|format({v}, {v})",
    "format method": "'{{}}{{}}'.format({v}, {v})",
    "join filter": "[{v}, {v}]|join",
    "join method": "''.join([{v}, {v}])",
    "slice": "({v} + {v})[0:]",
    "item": "[{v} + {v}][0]",
    "value": "{{'a': {v} + {v}}}.a",
    "tuple": "({v} + {v},)[0]",
    "map": "([{v} ~ {v}]|map('trim')|list)[0]",
    "replace": "({v}|replace('x', 'xx'))",
    "replace method": "{v}.replace('x', 'xx')",
}
STORED = {
    "namespace": "{{% set n = namespace(v=start) %}}{{% for i in range(9) %}}{{% set n.v = {n} %}}{{% endfor %}}",
    "set": "{{% set v = start %}}" + "{{% set v = {v} %}}" * 9,
    "set block": "{{% set v = start %}}" + "{{% set v %}}{{{{ {v} }}}}{{% endset %}}" * 9,
    "with": "{{% with v = start %}}" + "{{% with v = {v} %}}" * 9 + "{{% endwith %}}" * 10,
    "for": "{{% for v in [start] %}}" + "{{% for v in [{v}] %}}" * 9 + "{{% endfor %}}" * 10,
    "macro": "{{% macro m(v, i) %}}{{{{ m({v}, i - 1) if i }}}}{{% endmacro %}}{{{{ m(start, 9)|length }}}}",
    "parameter": "{{% macro m(v, i, w={v}) %}}{{{{ m(w, i - 1) if i }}}}{{% endmacro %}}{{{{ m(start, 9) }}}}",
    "macro's text": "{{% set v = start %}}{{% macro m(v) %}}{{{{ {v} }}}}{{% endmacro %}}" + "{{% set v = m(v) %}}" * 9,
    "caller": "{{% macro m(i, v) %}}{{% if i %}}{{% call(v) m(i - 1, {v}) %}}{{{{ v }}}}{{% endcall %}}{{% endif %}}"
    "{{{{ caller(v) if caller }}}}{{% endmacro %}}{{{{ m(9, start) }}}}",
    "recursive loop": "{{% for v in [start] recursive %}}{{{{ loop([{v}]) if loop.depth < 10 }}}}{{% endfor %}}",
    "filter block": "{{% macro m(i, v) %}}{{% set w %}}{{% filter trim %}}{{{{ {v} }}}}{{% endfilter %}}{{% endset %}}"
    "{{{{ m(i - 1, w)|length if i }}}}{{% endmacro %}}{{{{ m(9, start) }}}}",
    "list": "{{% set l = [start] %}}{{% set n = namespace(v=l) %}}{{% for i in range(9) %}}{{% set v = n.v[0] %}}"
    "{{% set n.v = [{v}] %}}{{% endfor %}}",
}


@pytest.mark.slow
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("doubled", DOUBLED)
def test_a_value_that_is_doubled_repeatedly_is_refused(stored: str, doubled: str) -> None:
    name = DOUBLED[doubled]
    text = STORED[stored].format(v=name.format(v="v"), n=name.format(v="n.v"))
    with pytest.raises(SecurityError, match="a value would become longer than"):
        rendered(text, 100, start="x" * 4_000_000)


def test_the_size_of_a_long_sum_is_checked_every_few_operands() -> None:
    with pytest.raises(SecurityError, match="a value would become longer than"):
        rendered("{{ " + " + ".join(["x"] * 120) + " }}", x="x" * 10_000_000)
    with pytest.raises(SecurityError, match="a value would become longer than"):
        rendered("{{ x + x + x }}", x="x" * 10_000_000)
    environment = Marking()
    environment.seen = []
    assert rendered("{{ " + " + ".join(["x"] * 120) + " }}", environment=environment, x="ab") == "ab" * 120
    assert len(environment.seen) > 120 / 4 - 1


LOOPS = (
    "{% for a in x %}{% endfor %}",
    "{% for a in x if false %}{% endfor %}",
    "{% for a in x if false %}{{ loop.last }}{% else %}{% endfor %}",
    "{% for a in x recursive %}{% endfor %}",
    "{% for a in x %}{% continue %}{% endfor %}",
    "{% for a in x %}{% if true %}{% continue %}{% else %}{% endif %}{% endfor %}",
    "{% for a in [1] %}{% for b in x %}{% endfor %}{% endfor %}",
    "{% for a in [] %}{% else %}{% for b in x %}{% endfor %}{% endfor %}",
    "{% macro m() %}{% for a in x %}{% endfor %}{% endmacro %}{{ m() }}",
    "{% macro m(y=1) %}{% for a in x %}{% set y %}{% endset %}{% endfor %}{% endmacro %}{{ m() }}",
    "{% set y %}{% for a in x %}{% endfor %}{% endset %}",
    "{% filter trim %}{% for a in x %}{% endfor %}{% endfilter %}",
    "{% block b %}{% for a in x %}{% endfor %}{% endblock %}",
    "{% for c in [1] %}{% block b scoped %}{% for a in x %}{% endfor %}{% endblock %}{% endfor %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% for a in x %}{% endfor %}{% endcall %}",
    "{% set y = x|list %}{% for a in y[:1] recursive %}{{ loop(y) if loop.depth == 1 }}{% endfor %}",
    "{% set y = x|list %}{% for a in ['a'] if a == 'a' recursive %}{{ loop(y) }}{% endfor %}",
)
ITEMS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1] * 500,
    "tuple": lambda: (1,) * 500,
    "text": lambda: "x" * 500,
    "range": lambda: range(500),
    "dict": lambda: dict.fromkeys(range(500)),
    "values": lambda: dict.fromkeys(range(500)).values(),
    "iterator": lambda: iter([1] * 500),
    "generator": lambda: (one for one in [1] * 500),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("text", LOOPS)
def test_steps_of_every_kind_of_loop_are_limited(text: str, items: str) -> None:
    with pytest.raises(SecurityError, match="the loops and calls took more than 400 steps in one rendering"):
        rendered(text, 400, x=ITEMS[items]())
    rendered(text, 1100, x=ITEMS[items]())


@pytest.mark.parametrize(
    "text",
    [
        "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(20) }}",
        "{% macro m(n) %}{% for a in [1, 2] %}{{ m(n - 1) if n }}{% endfor %}{% endmacro %}{{ m(20) }}",
        "{% macro m(n) %}{{caller}}{% if n %}{% call m(n-1) %}{% endcall %}{{m(n-1)}}{% endif %}{% endmacro %}{{m(9)}}",
        "{% for a in x %}{{ 'a'.strip() }}{{ d.get('a') }}{% endfor %}",
        "{% for a in [1, 2] %}{{ x|map('string')|list|length }}{% endfor %}",
    ],
)
def test_steps_of_loops_calls_and_maps_are_summed(text: str) -> None:
    with pytest.raises(SecurityError, match=r"the loops and calls took more than \d+ steps in one rendering"):
        rendered(text, 700 if "map" not in text else 600, x=[1] * 400, d={})


class Marked(str):
    """A subclass of str whose operations return the subclass."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> Marked:
        return Marked(f"({str.__str__(self)}+{str.__str__(other)})")

    def __radd__(self, other: str) -> Marked:
        return Marked(f"({str.__str__(other)}+{str.__str__(self)})")

    def strip(self, chars: str | None = None, /) -> Marked:
        return Marked(f"strip{str.strip(self, chars)}")

    def __iter__(self) -> Any:
        return (Marked(f"<{letter}>") for letter in str.__str__(self))


class Marking(BoundedEnvironment):
    """Records the values that are written."""

    seen: list[object]

    def shown(self, value: object) -> str:
        self.seen.append(value)
        return super().shown(value)

    def summed(self, total: Any) -> Any:
        self.seen.append(total)
        return super().summed(total)


@pytest.mark.parametrize(
    ("text", "written", "kinds"),
    [
        ("{{ m }}", "m", [Marked]),
        ("{{ d.m }}{{ d['m'] }}{{ l[0] }}", "mmm", [Marked, Marked, Marked]),
        ("{{ 'a' + m + 'b' }}", "((a+m)+b)", []),
        ("{{ x + m }}{{ m + x }}", "(x+m)(m+x)", [Marked, Marked]),
        ("{% set y = 'a' + m %}{{ y }}", "(a+m)", [Marked, Marked]),
        ("{{ m.strip() }}{{ m['strip']() }}{{ m.upper() }}", "stripmstripmM", [Marked, Marked]),
        ("{{ m|trim }}{{ m|string }}{{ x|trim }}", "stripmmx", [Marked, Marked]),
        ("{% for c in m %}{{ c }}{% endfor %}{% for c in m %}{{ loop.length }}{{ c }}{% endfor %}", "<m>1<m>", None),
        ("{% set ns = namespace(a=m) %}{{ ns.a }}{% for c in [m] %}{{ loop.last }}{{ c }}{% endfor %}", "mTruem", None),
        ("{{ x }}{{ x|length }}{{ x ~ m }}{{ x ~ 1 }}{{ 1 }}", "x1xmx11", [int]),
        ("{% macro p(x) %}{{ x }}{{ x + 'a' }}{% endmacro %}{{ p(m) }}", "m(m+a)", [Marked, Marked]),
    ],
)
def test_str_subclasses_pass_through_the_hooks_of_the_environment(
    text: str, written: str, kinds: list[type] | None
) -> None:
    environment = Marking()
    environment.seen = []
    marked = Marked("m")
    assert rendered(text, environment=environment, m=marked, x="x", d={"m": marked}, l=[marked]) == written
    assert kinds is None or [type(one) for one in environment.seen] == kinds


def test_finalize_is_called_for_every_value() -> None:
    environment = BoundedEnvironment(finalize=lambda value: f"<{value}>")
    text = "a{{ 'b' }}{{ x }}{{ x + 'c' }}{{ x ~ 1 }}{% set y %}{{ x + x }}{% endset %}{{ y|trim }}"
    assert rendered(text, environment=environment, x="x") == "a<b><x><xc><x1><<xx>>"


def test_constant_expressions_are_not_evaluated_at_compile_time() -> None:
    """Jinja evaluates them: the code of 5000 short tags was a text of 50 million characters."""
    text = "a{{ 'b' }}{{ 'c'|center(9999) }}" * 100
    assert len(BoundedEnvironment().compile(text, raw=True)) < 30 * len(text) < 999_900 < len(rendered(text))


def test_globals_of_the_environment_are_available_in_every_template() -> None:
    environment = BoundedEnvironment()
    environment.globals["g"] = "G"
    template = environment.from_string("{{ g }}{{ h }}", globals={"h": "H"})
    assert template.render(globals_of_one_rendering()) == "GH"
    assert template.render(globals_of_one_rendering(), g=1) == "1H"


PRODUCT = "and the product of these numbers exceeds 6; use fewer variables or blocks"


@pytest.mark.parametrize(
    ("limit", "accepted", "text", "error"),
    [
        (("MAX_TEMPLATE", 11), "\nx" * 5 + "x", "\nx" * 6, "1: the template is longer than 11 characters"),
        (None, f"{{{{ 0x{'0' * 4999} }}}}", f"{{{{ 0x{'F' * 5000} }}}}", "1: a number has more than 5000 digits"),
        (None, f"{{{{ {'0' * 4000} }}}}", f"\n{{{{ {'1_' * 2500} }}}}", "1: a number has more than 5000 digits"),
        (
            ("MAX_TOKENS", 6),
            "{{ x }}" * 2,
            "{{ x }}\n" * 2,
            "2: the template has more than 6 tokens; split it, or loop over values",
        ),
        (("MAX_CODE", 999), "x" * 9, "x" * 999, "1: the template compiles to more than 999 characters of code"),
        (
            ("MAX_SCOPED", 6),
            "{% if a %}{% for b in a %}{% set a %}{% endset %}{% endfor %}{% endif %}",
            "\n{% macro a() %}{% with b=1, c=2 %}{% filter trim %}{% endfilter %}{% endwith %}{% endmacro %}{{ a }}",
            f"1: the template has 3 variables and 3 blocks, {PRODUCT}",
        ),
        (None, "{{ 1e308 }}", "\n{{ 1e309 }}", "2: a number in the template is too large for a float"),
    ],
)
def test_a_template_beyond_a_size_limit_is_refused(
    limit: tuple[str, int] | None, accepted: str, text: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit:
        monkeypatch.setattr(sandbox, *limit)
    rendered(accepted)
    with pytest.raises(TemplateSyntaxError) as caught:
        rendered(text)
    assert f"{caught.value.lineno}: {caught.value.message}" == error
