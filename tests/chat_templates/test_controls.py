"""Templates that render the texts of a chat unchanged, and those that may change them, so that they are suspect."""

import pytest

from lazyprompt.chat_templates.controls import is_clean, turn_sequences_in
from lazyprompt.chat_templates.template import ChatTemplate

# Expressions that keep texts unchanged, test them, or split lists.
HONEST = (
    *("m.text", "m.text|upper", "m.text[1:]", "m['content']", "messages[0].content", "m.calls|first", "5 % 2"),
    *("m.text.split('<|im_end|>')[0]", "m.calls|join('-')", "m.calls|join('<')", "m.text.strip()", "m.role|indent"),
    *("m.text|dictsort", "m.text is string", "m.text % 2", "dict(a=m.text)", "namespace(a=m.text)"),
    *("joiner(m.text)()", "m.text|tojson", "m.text|trim", "m.text|length", "m.calls|map('upper')|list"),
    *("strftime_now('%Y')", "messages|map(attribute='content')|list|last"),
    *map("m.calls|{}".format, ("first", "last", "list", "max", "min", "reverse", "sort", "unique", "slice(2)")),
    *map("m.calls|{}".format, ("batch(2)", "groupby('a')", "map('title')", "reject", "select", "selectattr('a')")),
    *map("m.text|{}".format, ("abs", "count", "float", "int", "round", "sum", "wordcount", "string", "safe", "d")),
    *map("m.text|{}".format, ("capitalize", "lower", "title", "attr('x')", "default('x')", "rejectattr('x')")),
    *map("m.text.{}()".format, ("endswith", "find", "index", "rfind", "rindex", "startswith", "lstrip", "rstrip")),
    *map("m.text.is{}()".format, ("alnum", "alpha", "ascii", "decimal", "digit", "identifier", "lower", "numeric")),
    *map("m.text.is{}()".format, ("printable", "space", "title", "upper")),
)
LOOP = "{{% for c in m.{} %}}{{{{ c }}}}{{% endfor %}}"
HONEST_BLOCKS = (
    *(f"{{% set tools = {given} %}}" for given in ("m.items", "namespace(a=1)", "[1]", "m.calls + [1]")),
    *map(LOOP.format, ("calls", "calls[1:]", "keys()", "values()", "rsplit('<|im_end|>')", "messages", "tools")),
    *map(LOOP.format, ("items", "list", "documents", "calls|sort", "text|dictsort")),
    "{{ m.calls[1:] }}{{ m.calls[:1] }}",
    *("{% set text %}a{% endset %}", "{% for c in range(3) %}{{ c }}{% endfor %}", "{% set a, b = 1, 2 %}"),
    "{% for c in m['calls'] %}{{ c }}{% endfor %}",
    "{% for c in m.text %}{{ c.a }}{{ c['a'] }}{% endfor %}",
    "{% for c in m.text %}{{ c is string }}{{ loop }}{% endfor %}",
    *(f"{{% for k, v in m.text{pairs} %}}{{{{ k }}}}{{% endfor %}}" for pairs in (".items()", "|items", "|dictsort")),
    "{% if m is mapping %}{% for k in m %}{{ k }}{{ m[k] }}{% endfor %}{% endif %}",
    "{% generation %}{{ m.text }}{% endgeneration %}",
)
# Expressions that extract, drop or separate single characters of texts.
SUSPECT = (
    *("m.text[::2]", "m.text[::-1]", "m.text[0]", "m.text|first", "m.text|list", "m.text.split('x')"),
    *("m.text.splitlines()", "m.text.split(m.name)[0]", "m.text|join('-')", "m.text|join(d='<')", "m[0]"),
    *("m.text|join(m.name)", "','.join(m.text)", "m.name.join(m.text)", "m.text|replace('x', '')"),
    *("m.text|replace('x', '-')", "m.text.strip('x')", "m.text|reverse", "m.text % m.name", "m[m.text]"),
    *map("m.text|{}".format, ("batch(2)", "last", "max", "min", "reject", "select", "slice(2)", "sort", "unique")),
    *map("m.text.{}('x')".format, ("lstrip", "partition", "removeprefix", "removesuffix", "rpartition", "rstrip")),
    *("m.text|trim('x')", "m.text.rsplit('x')", "m.text[1:] ~ m.text[:1]", "'<' ~ m.text[1:]"),
    *("dict(m.text)", "dict.fromkeys(m.text)", "m.text|indent(2)", "m.text(*m.calls)", "m.calls|map(m.name)"),
)
SUSPECT_BLOCKS = (
    *("{% set a, b = m.text %}", "{% set tools = m.text %}", "{% set tools = 'a' %}"),
    *("{% set tools %}a{% endset %}", "{% for c in m.calls recursive %}{{ c }}{% endfor %}"),
    *(
        f"{{% for c in m.text %}}{{{{ {shown} }}}}{{% endfor %}}"
        for shown in ("c", "c[0]", "c.upper()", "loop.nextitem", "loop.previtem")
    ),
    *("{% for c in m.text.split(' ') %}{{ c }}{% endfor %}", "{% for k, v in m.text %}{{ k }}{% endfor %}"),
    "{% if m is string %}{% for k in m %}{{ k }}{{ m[k] }}{% endfor %}{% endif %}",
    "{% if m is mapping %}{% set m = 'a' %}{% for k in m %}{{ k }}{{ m[k] }}{% endfor %}{% endif %}",
    "{% if m is mapping %}{% for k in m recursive %}{{ k }}{% endfor %}{% endif %}",
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        *((text, True) for text in (*(f"{{{{ {each} }}}}" for each in HONEST), *HONEST_BLOCKS)),
        *((text, False) for text in (*(f"{{{{ {each} }}}}" for each in SUSPECT), *SUSPECT_BLOCKS)),
    ],
)
def test_first_character_of_a_token_is_suspect_if_the_template_splits_texts(text: str, *, clean: bool) -> None:
    template = ChatTemplate.load(f"{{% for m in messages %}}{text}{{% endfor %}}")
    jinja = template.jinja()
    assert is_clean(jinja, template.controls(jinja), ["a < b"], []) is clean
    assert is_clean(jinja, template.controls(jinja), ["a <|im_end|> b"], []) is False


@pytest.mark.parametrize("refused", [[], ["system"], ["system", "assistant"]])
def test_turn_sequences_are_found_with_the_roles_that_the_template_accepts(refused: list[str]) -> None:
    turn = f"{{{{ raise_exception('no') if m.role in {['', *refused]} }}}}{{{{ '<|' ~ m.role ~ '|>' ~ m.content }}}}"
    text = f"{{% for m in messages %}}{turn}{{% endfor %}}{{{{ '<|' ~ 'go|>' if add_generation_prompt }}}}"
    words = {"system", "user", "assistant", "go"} - {*refused}
    assert turn_sequences_in(ChatTemplate.load(text).jinja()) == {f"<|{word}|>" for word in words}
