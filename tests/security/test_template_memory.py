"""Templates that are hostile without loops: the memory of compiling and rendering them stays under half a gigabyte."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from hypothesis import settings
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lazyprompt import TemplateError
from lazyprompt.errors import LazyPromptError
from lazyprompt.files.spec import ENGINES
from lazyprompt.templates.bounds import MAX_SECONDS
from lazyprompt.templates.jinja import JinjaTemplate
from support.paths import ROOT

pytestmark = pytest.mark.slow  # processes with bounded memory

MEASURE = """
import re, sys
from pathlib import Path
from lazyprompt.errors import LazyPromptError
from lazyprompt.files.spec import ENGINES
from lazyprompt.templates import bounds

bounds.MAX_SECONDS = float(sys.argv[1])

def most():
    # Not ru_maxrss: that begins with what the process had that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

values = {"q": "\\U0001f600" * 1_000_000, "short": "x", "rows": list(range(1000))}
before, refused = most(), 0
for text in sys.stdin.read().split("\\0"):
    engine, _, text = text.partition(":")
    try:
        template = ENGINES[engine](text)
        template.fill({name: value for name, value in values.items() if name in template.slots})
    except LazyPromptError:
        refused += 1
print(refused, (most() - before) // 1000)
"""
# Loops that hold little go on until their time is over: with --hypothesis-profile=deep, all of it.
SECONDS = MAX_SECONDS if settings().max_examples >= settings.get_profile("deep").max_examples else MAX_SECONDS / 5
BEGIN = (
    "{% set n = namespace(a='', b=[]) %}{% set big = 'x' * 999999 %}{% set wide = '\U0001f600' * 999999 %}"
    "{% set amp = '&\U0001f600\n' * 333333 %}{% set mark = '%s\U0001f600<'|safe %}{% set many = range(99999)|list %}"
    "{% macro m(x) %}{{ x }}{{ caller() if caller }}{% endmacro %}"
    "{% macro rec(k, x) %}{% set y = x ~ k %}{{ rec(k - 1, y) if k }}{{ y }}{% endmacro %}"
)
# The templates of a share have one process, whose memory is that of the worst of them.
SHARES = 6
WRITTEN_OUT = {
    "variables": "".join(f"{{% set a{i} = wide ~ big %}}" for i in range(500)),
    "lists": "".join(f"{{% set a{i} = [wide * 1, big + big] %}}" for i in range(500)),
    "one list": f"{{% set a = [{'wide ~ big,' * 500}] %}}",
    "one dict": "{% set a = {" + ",".join(f"{i}: big ~ wide" for i in range(500)) + "} %}",
    "multiplied": "".join(f"{{% set a{i} = '\U0001f600' * 999999 %}}" for i in range(500)),
    "formatted": "".join(f"{{% set a{i} = '%9999s' * 99 % ((1,) * 99) %}}" for i in range(500)),
    "format method": "".join(f"{{% set a{i} = ('{{:>9999}}' * 99).format(*many) %}}" for i in range(400)),
    "output": "{{ big ~ wide }}" * 500,
    "set block": "{% set a %}" + "{{ wide }}" * 500 + "{% endset %}",
    "set blocks": "".join(f"{{% set a{i} %}}{{{{ wide }}}}{{% endset %}}" for i in range(500)),
    "macros": "".join(f"{{% set a{i} = m(m(m(wide))) %}}" for i in range(400)),
    "calls": "{% call m(wide) %}" * 15 + "{{ wide }}" + "{% endcall %}" * 15,
    "recursive macro": "{{ rec(200, wide) }}",
    "filters": "".join(
        f"{{% set a{i}{name} = wide|{call} %}}"
        for i in range(200)
        for name, call in enumerate(
            ("upper", "e", "tojson", "urlencode", "center(9999)", "wordwrap(1)", "replace('x', 'y')")
        )
    ),
    "batches": "".join(f"{{% set a{i} = many|batch(2)|list %}}" for i in range(400)),
    "slices": "".join(f"{{% set a{i} = [big[1:], many[1:], (many, many)] %}}" for i in range(400)),
    "escaped": "{% set a = (mark * 4) % (wide ~ amp, amp ~ wide, amp ~ amp ~ amp, amp) %}",
    "escaped by +": "{% set a = mark + amp + amp + amp + amp %}" * 50,
    "items": "".join(f"{{% set a{i} = dict(a=wide ~ {i}).items()|list %}}" for i in range(400)),
    "namespaces": "".join(f"{{% set a{i} = namespace(a=wide ~ {i}) %}}" for i in range(400)),
    "slices that are begun": "".join(f"{{% set a{i} = many|slice(9) %}}{{% set x = a{i}|first %}}" for i in range(500)),
    "macros in a chain": "{% macro f(y) %}{% macro g() %}{{ y }}{% endmacro %}{% set n.b = g %}{% endmacro %}"
    + "{% for i in many %}{{ f(n.b) }}{% endfor %}" * 3,
    "loops": "{% for i in many %}{% for j in [i] %}{% set n.b = [n.b, loop] %}{% endfor %}{% endfor %}" * 2,
    "numbers": "{% set k = 0 - 2 ** 64 ** 2 * 64 ** 64 %}"
    + "{% for i in many %}{% set n.b = [n.b, (k * k * k)|abs] %}{% endfor %}" * 9,
    "lists in lists": "{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
    "{{ n.a == n.b }}",
    "missing items": "{{ dict()[namespace(a=[[[1] * 1000] * 1000] * 1000)] }}",
    "items that are not in a list": "{{ many.index(namespace(a=[[[1] * 1000] * 1000] * 1000)) }}",
    "pprint": "{{ ('\n' * 999999 ~ '\n' * 999999 ~ '\n' * 999999)|pprint }}",
    "unprintable": "{% set k = '\\U000e0001' * 999999 %}{{ [k, k, k, k, k, k, k, wide]|string|length }}",
    "joined by escaping": "{{ mark.join([amp] * 19) }}",
    "blocks": "{% block b %}{% for i in many %}{{ i }}{{ i }}{{ i }}{% endfor %}{% endblock %}" + "{{ self.b() }}" * 99,
}


def peak(templates: list[str]) -> tuple[int, int]:
    """Return the number of templates that are refused, and the megabytes that the process grows."""
    run = subprocess.run(  # noqa: S603 - our own script, in a process of its own because memory is measured
        [sys.executable, "-X", "utf8", "-W", "ignore", "-c", MEASURE, str(SECONDS)],
        cwd=ROOT,
        input="\0".join(templates),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=300,
    )
    refused, grown = map(int, run.stdout.split())
    return refused, grown


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc to ask")


def test_a_naive_compiler_calculates_constants() -> None:
    """The naive version writes what a filter gives into the code: ours does so when the template is rendered."""
    text = "{{ 'c'|center(9999) }}" * 100
    assert len(ImmutableSandboxedEnvironment().compile(text, raw=True)) > 999_900
    assert len("".join(JinjaTemplate(text).fill({}))) == 999_900


@LINUX
@pytest.mark.parametrize("share", range(SHARES))
def test_values_that_are_written_out_are_bounded(share: int) -> None:
    """They were not counted while no loop went round: 1.6 to 3.5 GB."""
    names = sorted(WRITTEN_OUT)[share::SHARES]
    refused, grown = peak([f"jinja2:{BEGIN}{WRITTEN_OUT[name]}" for name in names])
    assert (refused, grown < 500) == (len(names), True), names


@LINUX
@pytest.mark.parametrize(
    "text",
    [
        "jinja2:" + "{{ q }}" * 1000,
        "jinja2:" + "{{ q|e }}" * 9000,
        "jinja2:" + "{{ 'x'|center(9999) }}" * 5000,
        "jinja2:" + "{{ 'x'|center(9999) }}" * 100_000,
        "jinja2:{{ [" + "short," * 300_000 + "] }}",
        "jinja2:{{ " + "9" * 4_000_000 + " }}",
        "jinja2:{{ " + "(" * 24_000 + "1" + ")" * 24_000 + " }}",
        "jinja2:{{ 10 ** (10 ** 8) }}",
        "jinja2:{{ 'a' * 10 ** 9 }}{{ [0] * 10 ** 9 }}",
        "mustache:" + "{{q}}" * 1000,
    ],
    ids=lambda text: text[:25],
)
def test_compiling_and_short_tags_written_out_are_bounded(text: str) -> None:
    """Thousands of ``{{ q }}`` were all in the memory before they were counted: 4 GB; constants were code: 1.4 GB."""
    refused, grown = peak([text])
    assert refused
    assert grown < 500


FILTERS = (
    "upper",
    "e",
    "list",
    "join(',')",
    "tojson",
    "center(9999)",
    "replace('x', 'yy')",
    "batch(2)|list",
    "title",
    "trim",
)


def expression(random: Random, depth: int) -> str:
    """Return an expression of big values at random."""
    if not depth:
        return random.choice(("big", "wide", "amp", "mark", "q", "many", "n.a", "'x'"))
    one, two = expression(random, depth - 1), expression(random, depth - 1)
    return random.choice(
        (
            *(
                f"({one} ~ {two})",
                f"({one} + {two})",
                f"({one} * 3)",
                f"[{one}, {two}]",
                f"({one}, {two})",
                f"{one}[1:]",
            ),
            *(f"('%s%s' % ({one}, {two}))", f"'{{}}{{}}'.format({one}, {two})", f"dict(a={one}, b={two})", f"m({one})"),
            *(
                f"({one}|string|{random.choice(FILTERS)})",
                f"([{one}]|map('string')|list)",
                f"({one}|string).split('x')",
            ),
        )
    )


def statements(random: Random, depth: int, number: int = 1) -> str:
    """Return statements at random, many of them written out."""
    made, name = expression(random, random.randint(1, 2)), f"v{number}"
    if not depth:
        return "".join(f"{{% set {name}x{i} = {made} %}}" for i in range(random.choice((1, 30, 300))))
    body = "".join(statements(random, depth - 1, 10 * number + i) for i in range(random.randint(1, 2)))
    return random.choice(
        (
            *(
                f"{{{{ {made} }}}}{body}",
                f"{{% set n.a = {made} %}}{body}",
                f"{{% set {name} %}}{body}{{% endset %}}{{{{ {name} }}}}",
            ),
            *(
                f"{{% for i in range(99) %}}{body}{{% set n.b = [n.b, {made}] %}}{{% endfor %}}",
                f"{{{{ rec(99, {made}) }}}}{body}",
            ),
            *(
                f"{{% call m({made}) %}}{body}{{% endcall %}}",
                f"{{% filter upper %}}{body}{{{{ {made} }}}}{{% endfilter %}}",
            ),
        )
    )


@LINUX
def test_random_hostile_templates_are_bounded() -> None:
    """Each seed writes another template: operators, filters, calls, blocks and loops with big values."""
    randoms = map(Random, range(8))
    texts = [f"jinja2:{BEGIN}{statements(random, 2)}" for random in randoms]
    refused, grown = peak(texts)
    assert refused
    assert grown < 500


@pytest.mark.parametrize("engine", ENGINES)
def test_a_template_is_bounded_in_length(engine: str) -> None:
    with pytest.raises(TemplateError, match="the template is longer than 5000000 characters"):
        ENGINES[engine]("x" * 5_000_001)


def test_honest_templates_of_megabytes_and_thousands_of_rows_are_rendered() -> None:
    rows = [{"name": f"row {i}", "text": "some words " * 9} for i in range(4000)]
    text = (
        "{% set n = namespace(all=[]) %}{% for row in rows if row.name %}{% set n.all = n.all + [row.name|upper] %}"
        "{{ loop.index }}. {{ row.name ~ ': ' ~ row.text|trim|replace('words', 'signs') }}\n{% endfor %}"
        "{{ n.all|length }}"
    )
    shown = "".join(JinjaTemplate(text).fill({"rows": rows}))
    assert shown.endswith("4000")
    long = "some words " * 300_000
    assert (
        "".join(JinjaTemplate("{% set a %}{{ q|trim }}{% endset %}{{ a ~ '!' }}").fill({"q": long}))
        == long.strip() + "!"
    )
    assert "".join(JinjaTemplate(long + "{{ q|upper }}").fill({"q": "x"})) == long + "X"


@pytest.mark.parametrize("name", ["_meter", "_size"])
def test_a_template_does_not_reach_what_counts(name: str) -> None:
    with pytest.raises(LazyPromptError):
        JinjaTemplate(f"{{% set b = 'x' * 9999 %}}{{{{ b.{name} }}}}").fill({})
