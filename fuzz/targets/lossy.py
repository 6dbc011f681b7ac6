"""Chat templates that lose where their text came from: no more control sequences than of harmless texts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.target import Target
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import SafetyError, TemplateError

if TYPE_CHECKING:
    from fuzz.chance import Chance

# Expressions of a value ``v``: most of them lose its origin, or change it.
_CHANGES = (
    *("v", "v|safe", "v|e", "('<b>'|safe) + v", "v + (' '|safe)", "(v|safe).unescape()", "v|upper|lower", "v|reverse"),
    *("v|replace('x', '')", "v.replace('.', '<')", "v['replace']('x', '')", "[v]|map('replace', 'x', '')|join"),
    *("v|list|join", "v[::-1]", "v[:1] ~ v[2:]", "v|center(99)", "v|indent", "v|wordwrap(9)", "v|format", "'%s' % v"),
    *("'{}>'.format(v)", "v.encode().decode()", "v|tojson", "[v]|string", "v|urlencode", "v.swapcase().swapcase()"),
    *("'%c' % 60 ~ v", "v|select('ne', 'x')|join", "v.split('x')|join", "v|pprint"),
    *("namespace(a=v).a", "dict(a=v).a", "v|trim", "v ~ v", "v * 2", "v|striptags", "(v|attr('upper')|string)[:6] ~ v"),
)
# How a template shows a value.
_SHOWN = (
    "{{ VALUE }}",
    "{% set w %}{{ VALUE }}{% endset %}{{ w|safe }}",
    "{% macro f(w) %}{{ w }}{% endmacro %}{{ f(VALUE) }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{{ VALUE }}{% endcall %}",
    "{% filter indent %}{{ VALUE }}<|im_end|>{% endfilter %}",
    "{% for c in VALUE|string %}{% if c != 'x' %}{{ c }}{% endif %}{% endfor %}",
)
# The template's own text before a value and behind it.
_AROUND = (("", ""), ("<|im_", ""), ("", ">"), ("<|", "|>"), ("<", "im_end|>"), ("<|im_end|>", "<|im_start|>"))
_SEQUENCES = ("<|im_start|>", "<|im_end|>")
_VALUE = re.compile(r"\bv\b")


@lru_cache(maxsize=256)
def _template(first: str, second: str, shown: str, before: str, behind: str) -> ChatTemplate:
    value = _VALUE.sub("m.content", _VALUE.sub(lambda _: f"({first})", second))
    turn = f"<|im_start|>{before}{shown.replace('VALUE', f'({value})')}{behind}<|im_end|>"
    return ChatTemplate.load(f"{{% for m in messages %}}{turn}{{% endfor %}}")


def _run(chance: Chance) -> None:
    """Any template of these, with any texts."""
    around = chance.one(_AROUND)
    template = _template(chance.one(_CHANGES), chance.one(_CHANGES), chance.one(_SHOWN), *around)
    texts = [chance.hostile() for _ in range(1 + chance.number(2))]
    try:
        # Texts in which no piece of a sequence is, of the same length.
        calm = template.jinja().render(_chat([re.sub(r"\S", "q", text) for text in texts]))
    except TemplateError:
        return
    due = [calm.count(each) for each in _SEQUENCES]
    for safety in ("neutralize", "raise", "off"):
        try:
            made = template.render(_chat(texts), safety=safety)
        except SafetyError:
            require(safety != "off", "what is to be left is refused")
            continue
        require(made.text == "".join(each.text for each in made.segments), "the segments are not the text")
        trusted = "\0".join(each.text for each in made.segments if each.trusted)
        for sequence, times in zip(_SEQUENCES, due, strict=True):
            require(trusted.count(sequence) <= times, f"a text made a trusted {sequence}")
            require(safety == "off" or made.text.count(sequence) == times, f"a text forged {sequence}")


def _chat(texts: list[str]) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


LOSSY = Target(
    "lossy",
    _run,
    (
        *("<|im_end", "|im_end|>", "<|im_", "im_", "end", "|>", "<|", "x", ".", "&lt;", "&gt;", "%3C", "\\u003c"),
        *(
            "<b>",
            "</b>",
            "<!--",
            "-->",
            "%s",
            "%",
            "{}",
            "{0}",
            "<x|im_end|>",
            "<|im_endx|>",
            ">|dne_mi|<",
            "<|IM_END|>",
        ),
    ),
    # Its templates have bounds of their own.
    seconds=10,
)
