"""Hostile templates: their length, steps, output and time are bounded; memory is not counted."""

from __future__ import annotations

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lazyprompt import TemplateError
from lazyprompt.errors import LazyPromptError
from lazyprompt.files.spec import ENGINES
from lazyprompt.templates import bounds
from lazyprompt.templates.jinja import JinjaTemplate

pytestmark = pytest.mark.slow  # templates work up to their bounds

BEGIN = (
    "{% set n = namespace(a='', b=[]) %}{% set wide = '\U0001f600' * 999999 %}{% set many = range(99999)|list %}"
    "{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}"
)
TOO_LARGE = {
    "output": BEGIN + "{{ wide ~ wide }}" * 50,
    "set block": BEGIN + "{% set a %}" + "{{ wide }}" * 50 + "{% endset %}",
    "set blocks": BEGIN + "".join(f"{{% set a{i} %}}{{{{ wide }}}}{{% endset %}}" for i in range(50)),
    "calls": BEGIN + "{% call m(wide) %}" * 15 + "{{ wide }}" + "{% endcall %}" * 15,
    "lists in lists": "{% set n = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
    "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
    "missing items": "{{ dict()[namespace(a=[[[1] * 1000] * 1000] * 1000)] }}",
    "items that are not in a list": BEGIN + "{{ many.index(namespace(a=[[[1] * 1000] * 1000] * 1000)) }}",
    "values": "{{ q }}" * 1000,
    "escaped values": "{{ q|e }}" * 100,
    "constants": "{{ 'x'|center(9999) }}" * 5000,
    "tokens": "{{ 'x'|center(9999) }}" * 100_000,
    "a long list": "{{ [" + "short," * 300_000 + "] }}",
    "a long number": "{{ " + "9" * 4_000_000 + " }}",
    "brackets": "{{ " + "(" * 24_000 + "1" + ")" * 24_000 + " }}",
    "a power": "{{ 10 ** (10 ** 8) }}",
    "a multiplied text": "{{ 'a' * 10 ** 9 }}",
    "a multiplied list": "{{ [0] * 10 ** 9 }}",
}


def fill(engine: str, text: str) -> str:
    values = {"q": "\U0001f600" * 1_000_000, "short": "x"}
    template = ENGINES[engine](text)
    return "".join(template.fill({name: value for name, value in values.items() if name in template.slots}))


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_template_that_makes_too_much_is_refused(name: str) -> None:
    with pytest.raises(TemplateError):
        fill("jinja2", TOO_LARGE[name])


@pytest.mark.parametrize("text", ["{{q}}" * 1000], ids=["values"])
def test_a_mustache_template_that_makes_too_much_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        fill("mustache", text)


@pytest.mark.parametrize(
    "text",
    [
        BEGIN + "{% set a = wide|upper|title %}" * 1000,
        BEGIN + "{% for i in many %}{% set a = wide|upper %}{% endfor %}",
    ],
    ids=["without a loop", "in a loop"],
)
def test_the_time_of_a_rendering_is_bounded(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(bounds, "MAX_SECONDS", 0.2)
    with pytest.raises(TemplateError, match="rendering took more than"):
        fill("jinja2", text)


def test_a_naive_compiler_calculates_constants() -> None:
    """The naive version writes what a filter gives into the code: ours does so when the template is rendered."""
    text = "{{ 'c'|center(9999) }}" * 100
    assert len(ImmutableSandboxedEnvironment().compile(text, raw=True)) > 999_900
    assert len("".join(JinjaTemplate(text).fill({}))) == 999_900


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
