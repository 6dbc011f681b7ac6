"""Rendering with origins: the text equals a plain rendering, and untrusted text never becomes template text."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.chat_templates.controls import controls_of
from lazyprompt.chat_templates.dialect import ChatEnvironment, TracingEnvironment
from lazyprompt.chat_templates.jinja import ChatJinja
from lazyprompt.chat_templates.traced import TextOrigin, parts_of, trace
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.errors import TemplateError
from lazyprompt.messages.prompt import MARKERS
from lazyprompt.safety.policy import NEUTRALIZE

# The untrusted texts are in Cyrillic letters, which no template here contains, so that they are found in the output.
CHAT = [{"role": "user", "content": "жд\nшя"}, {"role": "assistant", "content": "  ФЫ <юя> "}]
TOOLS = [{"имя": "чч"}]


def render_traced(text: str, chat: list[dict[str, Any]] | None = None, *, traced: bool = True) -> str:
    """The text that a template renders, with the origins if ``traced``."""
    messages = CHAT if chat is None else chat
    given: dict[str, object] = {"tools": [*TOOLS], "documents": None, "add_generation_prompt": False}
    if not traced:
        return ChatJinja(text).run(messages, given)
    known = [
        {
            name: value if name == "role" else trace(value, TextOrigin(message["role"], at))
            for name, value in message.items()
        }
        for at, message in enumerate(messages)
    ]
    return ChatJinja(text).run(known, given | {"tools": trace(TOOLS, TextOrigin("tools"))}, traced=True)


def untrusted_letters(text: str) -> str:
    """Untrusted letters in the text that a rendering trusts; none if its note says that it could not trace."""
    given: dict[str, object] = {"tools": [*TOOLS], "documents": None, "add_generation_prompt": False}
    template = ChatJinja(text)
    traces = Rendering(template, given, controls_of(template, frozenset()), NEUTRALIZE).traced(CHAT)
    assert traces.text == template.run(CHAT, given | {"tools": [*TOOLS]})
    own = "" if traces.note else "".join(traces.parts[::2])
    return "".join(re.findall(r"[\u0400-\u04ff]", own))


def mark_untrusted(text: str) -> str:
    """A text in which untrusted pieces are quoted, after the first letter of their slot."""
    pieces: list[tuple[str, str]] = []
    for part, origin in zip(*parts_of(text), strict=True):
        slot = "" if origin.trusted else origin.slot[0]
        if part and pieces and pieces[-1][0] == slot:
            pieces[-1] = (slot, pieces[-1][1] + part)
        elif part:
            pieces.append((slot, part))
    return "".join(f"«{slot}:{piece}»" if slot else piece for slot, piece in pieces)


def own_words(text: str) -> str:
    """The trusted part of a text."""
    return "".join(part for part, origin in zip(*parts_of(text), strict=True) if origin.trusted)


PYTHON = "«u:{'role': 'user', 'content': 'жд\\nшя'}»«a:[{'role': 'assistant', 'content': '  ФЫ <юя> '}]»"
# Templates, and their output. If an operation cannot be followed, all of its result is untrusted.
WRITTEN = [
    ("{{ messages[0].content }}", "«u:жд\nшя»"),
    ("[{{ messages[0].content }}]{{ messages[1]['content'] }}", "[«u:жд\nшя»]«a:  ФЫ <юя> »"),
    ("{{ messages[0].content|trim }}{{ messages[1].content|trim }}", "«u:жд\nшя»«a:ФЫ <юя>»"),
    ("{{ messages[1].content.strip() }}.{{ messages[1].content.lstrip(' Ф') }}.", "«a:ФЫ <юя>».«a:Ы <юя> »."),
    ("{{ messages[1].content.rstrip(' >') }}.", "«a:  ФЫ <юя»."),
    ("{{ '<' + messages[1].content.strip() + '>' }}", "<«a:ФЫ <юя>»>"),
    ("{{ '<' ~ messages[0].content ~ '>' ~ 1 ~ none }}", "<«u:жд\nшя»>1None"),
    ("{{ messages[0].content * 2 }}{{ 2 * messages[0].content }}", "«u:жд\nшяжд\nшяжд\nшяжд\nшя»"),
    ("{{ '%s|%s' % (messages[0].content, 'x') }}", "«u:жд\nшя|x»"),
    ("{{ '%s|%s'|format(messages[0].content, 'x') }}", "«u:жд\nшя|x»"),
    ("{{ '{}|{a}'.format(messages[0].content, a='x') }}", "«u:жд\nшя|x»"),
    ("{{ '{a}'.format_map({'a': messages[0].content}) }}", "«u:жд\nшя»"),
    ("{{ messages[0].content[1:] }}{{ messages[0].content[-1] }}{{ messages[0].content[::-1] }}", "«u:д\nшяяяш\nдж»"),
    ("{{ messages[0].content[:2] + 'x' }}", "«u:жд»x"),
    ("{% for sign in messages[0].content %}{{ loop.index }}{{ sign }}{% endfor %}", "1«u:ж»2«u:д»3«u:\n»4«u:ш»5«u:я»"),
    (
        "{% for line in messages[0].content.splitlines() %}> {{ line }}{{ ';' if not loop.last }}{% endfor %}",
        "> «u:жд»;> «u:шя»",
    ),
    ("{% for word in messages[1].content.split() %}{{ word }},{% endfor %}", "«a:ФЫ»,«a:<юя>»,"),
    ("{{ messages[1].content.split('<')[0] }}|{{ messages[1].content.split('>')[-1] }}|", "«a:  ФЫ »|«a: »|"),
    ("{{ messages[1].content.rsplit(' ', 1)[0] }}", "«a:  ФЫ <юя>»"),
    ("{{ messages[1].content.partition('<')[2] }}|", "«a:юя> »|"),
    ("{{ messages[1].content.rpartition('<') | first }}", "«a:  ФЫ »"),
    (
        "{{ messages[1].content|replace('<юя>', 'x') }}{{ messages[1].content.replace(' ', '', 1) }}",
        "«a:  ФЫ x  ФЫ <юя> »",
    ),
    ("{{ 'a-b'|replace('-', messages[0].content) }}", "«u:aжд\nшяb»"),
    ("{{ messages[1].content.removeprefix('  ').removesuffix(' ') }}", "«a:ФЫ <юя>»"),
    ("{{ messages[0].content|upper }}{{ messages[1].content|lower }}", "«u:ЖД\nШЯ»«a:  фы <юя> »"),
    ("{{ messages[0].content|title }}{{ messages[0].content|capitalize }}", "«u:Жд\nШяЖд\nшя»"),
    ("{{ messages[0].content.upper() }}{{ messages[0].content.swapcase() }}", "«u:ЖД\nШЯЖД\nШЯ»"),
    ("{{ messages[0].content.casefold() }}", "«u:жд\nшя»"),
    ("{{ messages[0].content|default('x') }}{{ missing|default(messages[0].content) }}", "«u:жд\nшяжд\nшя»"),
    ("{{ missing or messages[0].content }}", "«u:жд\nшя»"),
    ("{{ messages[0].content|first }}{{ messages[0].content|last }}{{ messages|first|attr('x') }}", "«u:жя»"),
    ("{{ messages[0].content|list }}{{ messages[0].content|string }}", "«u:['ж', 'д', '\\n', 'ш', 'я']жд\nшя»"),
    ("{{ messages[0].content|length }}", "5"),
    ("{{ messages[0].content|safe }}{{ '<b>'|safe }}", "«u:жд\nшя»<b>"),
    ("{{ (messages[0].content|safe) ~ '<b>'|safe }}", "«u:жд\nшя»<b>"),
    ("{{ messages[0].content|reverse }}{{ messages[0].content|sort|join }}", "«u:яш\nдж\nджшя»"),
    ("{{ messages[0].content|unique|join('-') }}", "«u:ж»-«u:д»-«u:\n»-«u:ш»-«u:я»"),
    ("{{ messages[0].content|center(9) }}{{ messages[0].content.ljust(7, '.') }}", "«u:  жд\nшя  жд\nшя..»"),
    ("{{ messages[0].content.expandtabs(2) }}", "«u:жд\nшя»"),
    ("{{ messages[0].content|wordwrap(2) }}{{ messages[0].content|truncate(4, true, '..', 0) }}", "«u:жд\nшяжд».."),
    ("{{ messages[0].content|indent(2, true, true) }}", "«u:  жд\n  шя»"),
    ("{{ messages[0].content|striptags }}{{ messages[0].content|urlencode }}", "«u:жд шя%D0%B6%D0%B4%0A%D1%88%D1%8F»"),
    ("{{ messages[0].content|pprint }}", "«u:'жд\\nшя'»"),
    ("{{ messages[0].content|tojson }}{{ 'x'|tojson }}{{ {'a': 1}|tojson }}", '«u:"жд\\nшя"»"x"{"a": 1}'),
    (
        "{{ messages[0]|tojson(indent=1) }}{{ tools|tojson }}",
        '«u:{\n "role": "user",\n "content": "жд\\nшя"\n}»«t:[{"имя": "чч"}]»',
    ),
    ("{{ messages[0]|tojson|safe }}", '«u:{"role": "user", "content": "жд\\nшя"}»'),
    ("{{ messages[0]|string }}{{ [messages[1]] }}", PYTHON),
    ("{{ messages|map(attribute='content')|join(', ') }}", "«u:жд\nшя», «a:  ФЫ <юя> »"),
    ("{{ messages|map(attribute='content')|map('trim')|list|last }}", "«a:ФЫ <юя>»"),
    (
        "{{ messages|map('tojson')|join('\\n') }}",
        '«u:{"role": "user", "content": "жд\\nшя"}»\n«a:{"role": "assistant", "content": "  ФЫ <юя> "}»',
    ),
    ("{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join }}", "«u:жд\nшя»"),
    ("{{ messages|rejectattr('role', 'equalto', 'user')|map(attribute='content')|first }}", "«a:  ФЫ <юя> »"),
    ("{{ [messages[0].content, 'x', '']|select|join('+') }}", "«u:жд\nшя»+x"),
    ("{{ [messages[0].content, 'x']|reject('equalto', 'x')|list }}", "«u:['жд\\nшя']»"),
    ("{{ ', '.join([messages[0].content, 'x', messages[1].content]) }}", "«u:жд\nшя», x, «a:  ФЫ <юя> »"),
    ("{{ messages[0].content.join('ab') }}", "a«u:жд\nшя»b"),
    (
        "{{ ['a', 'b']|join(messages[0].content) }}{{ ['a', 'b']|join(d=messages[0].content) }}",
        "a«u:жд\nшя»ba«u:жд\nшя»b",
    ),
    ("{{ (messages[0].content, 1, 'x')|join('-') }}", "«u:жд\nшя»-1-x"),
    ("{% for key, value in messages[0].items() %}{{ key }}={{ value }};{% endfor %}", "role=user;content=«u:жд\nшя»;"),
    ("{% for key, value in messages[0]|items %}{{ key }}={{ value }};{% endfor %}", "role=user;content=«u:жд\nшя»;"),
    ("{% for key, value in tools[0]|dictsort %}{{ key }}={{ value }};{% endfor %}", "«t:имя»=«t:чч»;"),
    ("{% for key in tools[0] %}{{ key }}{{ tools[0][key] }}{% endfor %}", "«t:имячч»"),
    (
        "{% for group in messages|groupby('role') %}{{ group.grouper }}:{{ group.list[0].content }}{% endfor %}",
        "assistant:«a:  ФЫ <юя> »user:«u:жд\nшя»",
    ),
    ("{{ messages|map(attribute='content')|batch(1)|list|first }}", "«u:['жд\\nшя']»"),
    ("{{ dict(a=messages[0].content).a }}{{ dict(a=messages[0].content) }}", "«u:жд\nшя{'a': 'жд\\nшя'}»"),
    ("{{ dict.fromkeys([messages[0].content]) }}", "«u:{'жд\\nшя': None}»"),
    (
        "{% set n = namespace(a='') %}{% for m in messages %}{% set n.a = n.a ~ m.content %}{% endfor %}[{{ n.a }}]",
        "[«u:жд\nшя»«a:  ФЫ <юя> »]",
    ),
    ("{% set x = messages[0].content %}{{ x }}", "«u:жд\nшя»"),
    ("{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}{{ x|length }}{{ x[1:] }}", "<«u:жд\nшя»>7«u:жд\nшя»>"),
    ("{% set x | upper %}a{{ messages[0].content }}{% endset %}{{ x }}", "A«u:ЖД\nШЯ»"),
    ("{% macro m(x, y='b') %}({{ x }}{{ y }}){% endmacro %}{{ m(messages[0].content) }}", "(«u:жд\nшя»b)"),
    ("{% macro m(x, y='b') %}({{ x }}{{ y }}){% endmacro %}{{ m('c', messages[1].content) }}", "(c«a:  ФЫ <юя> »)"),
    (
        "{% macro m() %}[{{ caller(messages[0].content) }}]{% endmacro %}{% call(x) m() %}<{{ x }}>{% endcall %}",
        "[<«u:жд\nшя»>]",
    ),
    ("{% macro m(x) %}{{ x.split('\\n')[0] + '.' }}{% endmacro %}{{ m(messages[0].content)|upper }}", "«u:ЖД»."),
    ("{% filter upper %}a{{ messages[0].content }}b{% endfilter %}", "A«u:ЖД\nШЯ»B"),
    ("{% filter trim %} a {{ messages[1].content }}{% endfilter %}", "a «a:  ФЫ <юя>»"),
    ("{% generation %}{{ messages[1].content }}</s>{% endgeneration %}", "«a:  ФЫ <юя> »</s>"),
    ("{% if 'юя' in messages[1].content %}x{{ messages[1].content.find('<') }}{% endif %}", "x5"),
    ("{{ 'x' if messages[1].content.startswith('  ') and not messages[1].content.endswith('x') }}", "x"),
    ("{{ messages[0].content is string }}{{ messages[0].content is mapping }}", "TrueFalse"),
    ("{{ messages[0].content == 'жд\\nшя' }}{{ messages[0].content is iterable }}", "TrueTrue"),
    ("{{ messages[0].content if messages[0].content else 'x' }}", "«u:жд\nшя»"),
    ("{{ 'x' if messages[0].content in messages[1].content else 'y' }}", "y"),
    ("{{ cycler(messages[0].content).next() }}", "«u:жд\nшя»"),
    ("{% set j = joiner(messages[0].content) %}{{ j() }}{{ j() }}", "«u:жд\nшя»"),
    ("{% for i in [1, 2] %}{{ loop.cycle(messages[0].content, 'b') }}{% endfor %}", "«u:жд\nшя»b"),
    ("{{ messages[0].content|max }}{{ messages|map(attribute='content')|max }}", "«u:яжд\nшя»"),
    ("{{ messages|map(attribute='content')|min }}", "«a:  ФЫ <юя> »"),
    ("{{ [messages[0].content] + ['x'] }}{{ ([messages[0].content] + ['x'])|last }}", "«u:['жд\\nшя', 'x']»x"),
    ("{{ messages[0].content|attr('upper')() }}{{ messages[0].get('content') }}", "«u:ЖД\nШЯжд\nшя»"),
    ("{{ messages[0].get('x', messages[1].content) }}", "«a:  ФЫ <юя> »"),
    ("{{ messages[0].content.split()|map('upper')|join(' ') }}", "«u:ЖД» «u:ШЯ»"),
    ("{{ messages[-1].content.split('</think>')[-1].lstrip('\\n') }}", "«a:  ФЫ <юя> »"),
    ("{{ tools[0].get('имя')|tojson(ensure_ascii=true) }}", '«t:"\\u0447\\u0447"»'),
    (
        "{% for a in [[messages[0].content]] recursive %}{{ loop(a) if loop.depth == 1 else a }}{% endfor %}",
        "«u:жд\nшя»",
    ),
]


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_rendered_text_keeps_the_origin_of_its_message_or_template(text: str, expected: str) -> None:
    made = render_traced(text)
    assert made == render_traced(text, traced=False)
    assert mark_untrusted(made) == expected


CONTENTS = st.text("жшЯß <>\n\t\u3000", max_size=8)


@given(st.sampled_from([text for text, _ in WRITTEN]), CONTENTS, CONTENTS)
def test_traced_rendering_equals_plain_rendering_for_random_contents(text: str, asked: str, answered: str) -> None:
    chat = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    made = render_traced(text, chat)
    assert made == render_traced(text, chat, traced=False)
    assert not {*own_words(made).lower()} & {*"жшяß"}


@pytest.mark.parametrize(
    "text",
    [
        # Lines after the first were trusted.
        "{{ messages[0].content|indent(2) }}",
        "{{ messages|tojson(indent=2)|indent(2) }}",
        "{% filter indent(2) %}a{{ messages[0].content }}{% endfilter %}",
        "{% set x | indent(2) %}a{{ messages[0].content }}{% endset %}{{ x }}",
        # A value inserted into template text that came out of a block was trusted.
        "{% set x %}[y]{% endset %}{{ x.replace('y', messages[0].content) }}",
        "{% set x %}[y]{% endset %}{{ x|replace('y', messages[0].content) }}",
        "{% filter replace('y', messages[0].content) %}[y]{% endfilter %}",
        "{% macro m() %}[y]{% endmacro %}{{ m().replace('y', messages[0].content) }}",
        "{{ messages[0].content.encode().decode() }}",
        "{{ ('<b>'|safe) + messages[0].content }}",
        "{{ '<b>'|safe ~ messages[0].content }}",
        "{{ {'a': messages[0].content}|xmlattr }}",
        # Values rendered by their repr were trusted.
        "{{ messages[0].values() }}",
        "{{ messages[0].items() }}",
        "{{ tools[0].keys() }}",
        "{{ namespace(a=messages[0].content) }}",
        "{{ [namespace(a=messages[0].content)] }}",
        "{{ '%s' % namespace(a=messages[0].content) }}",
        "{{ messages[0].values() ~ '' }}",
        "{{ messages[0].values()|string }}",
        "{{ messages|groupby('role') }}",
        "{{ strftime_now(messages[0].content) }}",
    ],
)
def test_untrusted_text_never_becomes_template_text(text: str) -> None:
    assert untrusted_letters(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        # An iterator without untrusted text was consumed twice.
        "{{ messages|map(attribute='role')|join(',') }}",
        "{{ ['x', '']|select|join('+') }}",
        # The items became text before their attributes were looked up, so that nothing was rendered.
        "{{ messages|join(', ', attribute='content') }}",
        "{{ messages|join(d=', ', attribute='content') }}",
        # Jinja's sandbox builds the result with the class of the format string.
        "{% set x %}<{}>{% endset %}{{ x.format(messages[0].content) }}",
        "{% set x %}<{a}>{% endset %}{{ x.format_map({'a': messages[0].content}) }}",
    ],
)
def test_text_operations_give_the_same_text_with_tracing(text: str) -> None:
    assert render_traced(text) == render_traced(text, traced=False)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a<' + messages[0].content|tojson|safe }}",
        "{{ messages[1].content|e }}",
        "{{ messages[1].content|forceescape }}",
        "{{ (messages[1].content|safe) + '<' }}",
    ],
)
def test_html_escaped_untrusted_text_never_becomes_template_text(text: str) -> None:
    assert "&lt;" in render_traced(text, traced=False)
    assert untrusted_letters(text) == ""


def test_tojson_of_untrusted_data_is_marked_as_json() -> None:
    parts, origins = parts_of(render_traced("{{ tools|tojson }} {{ messages[0].content }} {{ [1]|tojson }}"))
    assert [(type(part), origin.json) for part, origin in zip(parts, origins, strict=True) if part.strip()] == [
        (JsonText, True),
        (str, False),
        (str, False),
    ]


def test_slice_of_json_stays_marked_as_json() -> None:
    _, origins = parts_of(render_traced("{{ (tools|tojson)[1:-1] }}|{{ (tools|tojson).strip('[') }}"))
    assert [origin.json for origin in origins] == [False, True, False, True, False]


def test_generation_block_marks_its_text_and_keeps_the_origins() -> None:
    made = render_traced(
        "a{% generation %}{{ messages[1].content }}<{% generation %}/{% endgeneration %}s>{% endgeneration %}b"
    )
    parts, origins = parts_of(made)
    assert [(str(part), origin.slot) for part, origin in zip(parts, origins, strict=True) if origin.generated] == [
        ("  ФЫ <юя> ", "assistant"),
        ("</s>", MARKERS),
    ]
    assert [part for part, origin in zip(parts, origins, strict=True) if part and not origin.generated] == ["a", "b"]


def test_origins_distinguish_messages_of_the_same_role() -> None:
    made = render_traced("{% for m in messages %}{{ m.content }}{% endfor %}", [CHAT[0], CHAT[1], CHAT[0]])
    assert [origin.message for part, origin in zip(*parts_of(made), strict=True) if part] == [0, 1, 2]


def test_text_made_of_several_messages_has_no_message_index() -> None:
    _, origins = parts_of(render_traced("{{ messages|tojson }}"))
    assert [origin.message for origin in origins if not origin.trusted] == [None]


def test_length_limit_applies_to_traced_text() -> None:
    text = "{% set n = namespace(x=messages[0].content) %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
    with pytest.raises(TemplateError, match="a value would become longer than"):
        render_traced(text)


def test_plain_and_tracing_environments_define_the_same_names() -> None:
    plain, tracing = ChatEnvironment(), TracingEnvironment()
    assert plain.filters.keys() == tracing.filters.keys()
    assert plain.tests.keys() == tracing.tests.keys()
    assert plain.globals.keys() == tracing.globals.keys()


# The arguments of each filter that needs some; results that are iterators become lists.
FILTERS = {
    "attr": "('x')",
    "batch": "(2)|list",
    "groupby": "(0)",
    "indent": "(2)",
    "items": "|list",
    "map": "('string')|list",
    "reject": "('none')|list",
    "rejectattr": "('x')|list",
    "replace": "('ж', 'x')",
    "reverse": "|list",
    "select": "('string')|list",
    "selectattr": "('x')|list",
    "slice": "(2)|list",
    "unique": "|list",
}
VALUES = ("messages[0].content", "messages[1].content|list", "messages[0]", "tools", "['x']", "[3.5]", "3.5")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in ChatEnvironment().filters if name.isidentifier()))
def test_no_filter_makes_untrusted_text_trusted(name: str) -> None:
    texts = [f"{{{{ {value}|{name}{FILTERS.get(name, '')} }}}}" for value in VALUES]
    work = [text for text in texts if ChatJinja(text).try_render(CHAT, tools=[*TOOLS]) is not None]
    assert work
    assert {text: untrusted_letters(text) for text in work} == dict.fromkeys(work, "")


# The arguments of each method that needs some.
METHODS = {
    "center": "9",
    "count": "'ж'",
    "endswith": "'x'",
    "find": "'ж'",
    "format_map": "{}",
    "index": "'ж'",
    "join": "['x', 'y']",
    "ljust": "9",
    "partition": "'д'",
    "removeprefix": "'ж'",
    "removesuffix": "'я'",
    "replace": "'ж', 'x'",
    "rfind": "'ж'",
    "rindex": "'ж'",
    "rjust": "9",
    "rpartition": "'д'",
    "startswith": "'x'",
    "zfill": "9",
}
NOT_FOR_TEMPLATES = {"encode", "maketrans", "translate"}


@pytest.mark.parametrize("name", sorted(name for name in dir(str) if name[0] != "_" and name not in NOT_FOR_TEMPLATES))
def test_no_str_method_makes_untrusted_text_trusted(name: str) -> None:
    assert untrusted_letters(f"{{{{ messages[0].content.{name}({METHODS.get(name, '')}) }}}}") == ""
