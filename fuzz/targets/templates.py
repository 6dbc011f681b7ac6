"""Jinja and Mustache: developer's templates and users' values, within bounds, apart from each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from fuzz.judge import CANARY, calm, require
from fuzz.target import Target
from lazyprompt.templates.bounds import MAX_OUTPUT
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.mustache import MustacheTemplate

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuzz.chance import Chance

    Template: TypeAlias = JinjaTemplate | MustacheTemplate
    Parser: TypeAlias = Callable[..., Template]


def _run(parse: Parser, fixed: tuple[str, ...], chance: Chance) -> None:
    """Any template with any values."""
    text = chance.one(("", *fixed)) or chance.text().replace(CANARY, "")
    template = parse(text, lenient=chance.flag())
    values = {name: template.coerce(_value(chance), name) for name in template.slots}
    parts = template.fill(values)
    own = "".join(parts[::2])
    require(sum(map(len, parts)) <= MAX_OUTPUT, "the output is out of bounds")
    require(CANARY not in own, "a value is taken for the template's own text")
    if template.outline is not None:
        require(own == "".join(template.outline[::2]), "a value changed the template's own text")
        require(len(parts) == len(template.outline), "a value changed the number of parts")
    if all(isinstance(value, str) for value in values.values()):
        quiet = template.fill({name: calm(str(value)) for name, value in values.items()})
        if text in fixed:
            require(own == "".join(quiet[::2]), "a value changed the text of a template that only shows it")


def _value(chance: Chance) -> object:
    """A value that can be found again."""
    return CANARY + chance.hostile() if chance.flag() else chance.json(3)


_JINJA = (
    *("Hello {{ a }}!", "{{ a }}{{ b }}", "{% if a %}yes {{ a|trim }}{% endif %}", "{{ a ~ b }} and {{ a|upper }}"),
    *("{% set c = a %}{{ c }}", "system:\n{{ a }}\nuser:\n{{ b|default('x') }}"),
)
_MUSTACHE = ("Hello {{a}}!", "{{{a}}}{{&b}}", "{{#a}}yes {{.}}{{/a}}{{^a}}no{{/a}}", "system:\n{{a}}\nuser:\n{{b}}")

JINJA = Target(
    "jinja",
    partial(_run, JinjaTemplate, _JINJA),
    (
        *(
            "{{ a }}",
            "{{ a.b }}",
            "{{ a[0] }}",
            "{% if a %}",
            "{% else %}",
            "{% endif %}",
            "{% endfor %}",
            "{% endset %}",
        ),
        *(
            "{% for x in a %}",
            "{% for x in range(9) %}",
            "{{ loop.index }}",
            "{% set b = a %}",
            "{% set b %}",
            "{# a #}",
        ),
        *("{% macro f(x) %}", "{% endmacro %}", "{{ f(a) }}", "{% call f(1) %}", "{% endcall %}", "{% filter upper %}"),
        *(
            "{% endfilter %}",
            "{% raw %}",
            "{% endraw %}",
            "|join",
            "|replace('a', a)",
            "|length",
            "|tojson",
            "|default",
        ),
        *("|sort", "|map('upper')", "|list", "|center(99)", "|indent", "|wordwrap(1)", "|batch(3)", "|format(a)", "|e"),
        *("|string", "|first", "|groupby('a')", "|sum", "|unique", "|safe", "|striptags", "|truncate(3)", "|urlize"),
        *(" ~ ", " * ", " ** ", " + ", " % ", "99999", "1e9", "'a'", "[1, 2]", "{'a': 1}", ".format(", ".__class__"),
        *("namespace()", "cycler(1, 2)", "joiner()", "dict(a=1)", "lipsum(5)", "-%}", "{%-", "is defined", "x.split()"),
    ),
    # What its bounds are.
    seconds=10,
)
MUSTACHE = Target(
    "mustache",
    partial(_run, MustacheTemplate, _MUSTACHE),
    (
        *("{{a}}", "{{{a}}}", "{{&a}}", "{{#a}}", "{{/a}}", "{{^a}}", "{{.}}", "{{a.b}}", "{{! a }}", "{{=<% %>=}}"),
        *("<%a%>", "{{>a}}", "{{<a}}", "{{$a}}", "\n{{#a}}\n", "\n{{/a}}\n"),
    ),
    seconds=10,
)
