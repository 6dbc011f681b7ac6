"""Jinja templates of all three kinds stay within their sandbox and their limits.

Related tests: tests/templates/test_jinja.py and test_sandbox.py (single limits),
tests/chat_templates/test_jinja_dialect.py (the chat templates of models).
"""

import re
import sys
from collections.abc import Callable
from typing import Any

import jinja2
import pytest

from lazyprompt import ChatTemplate, InstructionTemplate, Prompty
from lazyprompt.errors import LazyPromptError
from lazyprompt.files.spec import ENGINES
from lazyprompt.templates import bounds
from lazyprompt.templates.jinja import JinjaTemplate
from support.memory import peak_of

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "x"}]


def render_instruction(text: str, messages: list[dict[str, Any]] | None = None) -> str:
    values = {"messages": messages or MESSAGES} if "messages" in text else {}
    made = InstructionTemplate(f"{text}{{{{ q }}}}", syntax="jinja2").fill({"q": "x", **values})
    return made.system + made.user


def render_prompt_file(text: str, messages: list[dict[str, Any]] | None = None) -> str:
    return Prompty.loads(f"{text}{{{{ q }}}}").render({"q": "x", "messages": messages or MESSAGES})


def render_chat_template(text: str, messages: list[dict[str, Any]] | None = None) -> str:
    made = ChatTemplate.load(f"{text}{{{{ messages[0].content }}}}", q="<|q|>")
    return made.render(messages or MESSAGES).text


WAYS = pytest.mark.parametrize(
    "way", [render_instruction, render_prompt_file, render_chat_template], ids=lambda way: way.__name__
)


def naive(text: str, messages: list[dict[str, Any]] | None = None) -> str:
    """Render a template in Jinja's default environment."""
    made = jinja2.Environment(extensions=["jinja2.ext.do"])  # noqa: S701 - that is the naive version
    return made.from_string(text).render(q="x", messages=messages or MESSAGES)


# In plain Jinja, each of these yields what a template should not get: a class, a module, the environment, a file.
ESCAPES = [
    # Chains of attributes.
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ().__class__.__bases__[0].__subclasses__()|length }}",
    "{{ messages.__class__.__base__ }}",
    "{{ (1).__class__ }}",
    "{{ true.__class__ }}",
    "{{ {}.__class__.fromkeys }}",
    "{{ messages.append.__self__.__class__ }}",
    "{{ ''.join.__self__.__class__ }}",
    # Items that are attributes.
    "{{ ''['__class__'] }}",
    "{{ ''['__cla' ~ 'ss__'] }}",
    "{{ ''['__cla' + 'ss__']['__mro__'] }}",
    "{{ ''['\\x5f\\x5fclass\\x5f\\x5f'] }}",
    "{% set a = '__class__' %}{{ ''[a] }}",
    "{{ messages[0]['__class__'] }}",
    # The filter attr, and filters that take the name of an attribute.
    "{{ ''|attr('__class__') }}",
    "{{ ''|attr('__cla' ~ 'ss__')|attr('__mro__') }}",
    "{{ ''|attr(['__class', '__']|join) }}",
    "{{ ''|attr('%s%s'|format('__class', '__')) }}",
    "{{ ''|attr('__SSALC__'|lower|replace('ssalc', 'class')) }}",
    "{{ ['']|map(attribute='__class__')|list }}",
    "{{ ['']|map('attr', '__class__')|list }}",
    "{{ ['']|groupby('__class__') }}",
    "{{ ['', 'a']|sort(attribute='__class__.__name__') }}",
    "{{ ['']|selectattr('__class__.__mro__')|list and ['']|map(attribute='__class__.__mro__')|list }}",
    "{{ ['']|join(attribute='__class__') }}",
    "{{ ['']|unique(attribute='__class__')|list and ['']|map(attribute='__hash__')|list }}",
    # Formats.
    "{{ '{0.__class__}'.format(q) }}",
    "{{ '{0.__class__.__mro__}'.format(q) }}",
    "{{ '{x.__class__}'.format(x=q) }}",
    "{{ '{x.__class__}'.format_map({'x': q}) }}",
    "{% set f = '{0.__class__}'.format %}{{ f(q) }}",
    "{{ ('{0.__class__}'|attr('format'))(q) }}",
    "{{ ''.format.__self__.__class__ }}",
    "{{ ['{0.__class__}'.format]|map('string')|list and ['{0.__class__}'.format][0](q) }}",
    # Globals that Jinja provides to all templates.
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ joiner.__init__.__globals__.os.popen }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].environ }}",
    "{{ lipsum.__globals__.__builtins__.open }}",
    "{{ range.__class__ }}",
    "{{ dict.__mro__ }}",
    "{{ dict.__base__.__subclasses__()|length }}",
    "{{ self.__init__.__globals__.__builtins__ }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ self._TemplateReference__context.eval_ctx }}",
    "{% macro m() %}{% endmacro %}{{ m.__globals__ or m._func.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m._environment }}",
    "{% for i in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{% for i in [1] %}{{ loop._iterator.__class__ }}{% endfor %}",
    "{% set n = namespace(a=1) %}{{ n._Namespace__attrs }}",
    "{{ nothing.__class__ or nothing.__init__.__globals__ }}",
    "{{ (nothing|default(cycler)).__init__.__globals__ }}",
    # Frames, code and generators.
    "{{ (messages|map('string')).gi_frame }}",
    "{{ (messages|map('string')).gi_code }}",
    "{{ (messages|map('string')).gi_frame.f_globals }}",
    "{{ (messages|select).gi_frame.f_builtins }}",
    # Changes of the values that are passed in.
    "{% do messages.clear() %}{{ 'done' }}",
    "{% set _ = messages.append(1) %}{{ 'done' }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ messages[0].setdefault('a', 1) }}",
]


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("text", ESCAPES)
def test_jinja_template_cannot_escape_its_sandbox(text: str, way: Callable[..., str]) -> None:
    """The naive version, ``Environment().from_string(text).render()``, yields what each of them asks for."""
    shown = naive(text, [{"role": "user", "content": "x"}])
    assert re.search("[<[(]|done|None|user|system|1|frozen|[0-9]", shown)
    messages = [{"role": "user", "content": "x"}]
    try:
        rendered = way(text, messages)
    except LazyPromptError as error:
        assert re.search("unsafe|no attribute|no value|ndefined|tag 'do'", str(error))  # noqa: PT017 - chat templates may render it
    else:
        # Where undefined values render as empty text, forbidden attributes are undefined.
        assert re.fullmatch(r"(\[(\(?Undefined(, \[''\]\))?)\])?x", rendered)
    assert messages == [{"role": "user", "content": "x"}]


COSTS = [
    "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3,
    "{{ range(10 ** 12)|sum }}",
    "{{ 'x' * 10 ** 10 }}",
    "{{ [0] * 10 ** 10 }}",
    "{{ ((9 ** 64) ** 64) ** 64 }}",
    "{{ 2 ** 99999 }}",
    "{{ 'x'|center(10 ** 10) }}",
    "{{ '%010000000000d'|format(1) }}",
    "{{ '{:>10000000000}'.format(1) }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "{% set n = namespace(a=['x']) %}{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}",
    "{% set n = namespace(a=2) %}{% for i in range(99) %}{% set n.a = n.a * n.a %}{% endfor %}",
    "{% set n = namespace(a={}) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
    "{% set a %}{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endset %}{{ a }}",
    "{% macro m() %}{% for i in range(99999) %}{{ q * 99999 }}{% endfor %}{% endmacro %}{{ m() }}",
    "{{ ['x' * 99999] * 99999 }}",
    "{{ ('x' * 99999)|replace('x', 'x' * 99999) }}",
    "{{ (('a,' * 99999).split(',')|join('x' * 9999)) }}",
    "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{{ range(99999)|map('string')|map('center', 9999)|join }}",
    "{{ [1]|slice(10 ** 9)|list }}",
    "{{ [1]|batch(10 ** 9, 'x')|list }}",
    "{{ ('x' * 99999)|wordwrap(1, wrapstring='y' * 9999) }}",
    "{{ ('x\n' * 99999)|indent(9999) }}",
    "".join(f"{{% set a{i} %}}{{{{ q * 999999 }}}}{{% endset %}}" for i in range(50)),
    "{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}" + "{% call m(q * 999999) %}" * 25 + "{% endcall %}" * 25,
    "{% set a = [] %}{% set b = [] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60 + "{{ a == b }}",
    "{{ dict()[namespace(a=[[[1] * 1000] * 1000] * 1000)] }}",
    "{{ (range(99999)|list).index(namespace(a=[[[1] * 1000] * 1000] * 1000)) }}",
    "{% set wide = q * 999999 %}" + "{{ wide|e }}" * 100,
    "{{ 'x'|center(9999) }}" * 5000,
    "{{ 'x'|center(9999) }}" * 100_000,
    "{{ [" + "q," * 300_000 + "] }}",
    "{{ " + "9" * 4_000_000 + " }}",
    "{{ " + "(" * 24_000 + "1" + ")" * 24_000 + " }}",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", COSTS)
def test_costly_jinja_template_is_stopped(text: str) -> None:
    """The naive version of these is not run: the first one would loop 10 ** 15 times."""
    with pytest.raises(LazyPromptError, match="Jinja"):
        render_prompt_file(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["{% set a = wide|upper|title %}" * 1000, "{% for i in range(99999) %}{% set a = wide|upper %}{% endfor %}"],
    ids=["without a loop", "in a loop"],
)
def test_jinja_rendering_is_stopped_at_its_time_limit(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(bounds, "MAX_SECONDS", 0.2)
    with pytest.raises(LazyPromptError, match="rendering took more than"):
        render_prompt_file("{% set wide = '\U0001f600' * 999999 %}" + text)


@pytest.mark.parametrize("engine", ENGINES)
def test_template_of_more_than_5_million_characters_is_refused(engine: str) -> None:
    with pytest.raises(LazyPromptError, match="the template is longer than 5000000 characters"):
        ENGINES[engine]("x" * 5_000_001)


@pytest.mark.slow
def test_ordinary_jinja_templates_of_megabytes_are_rendered() -> None:
    rows = [{"name": f"row {i}", "text": "some words " * 9} for i in range(4000)]
    text = (
        "{% set n = namespace(all=[]) %}{% for row in rows if row.name %}{% set n.all = n.all + [row.name|upper] %}"
        "{{ loop.index }}. {{ row.name ~ ': ' ~ row.text|trim|replace('words', 'signs') }}\n{% endfor %}"
        "{{ n.all|length }}"
    )
    long = "some words " * 300_000
    assert "".join(JinjaTemplate(text).fill({"rows": rows})).endswith("4000")
    cut = JinjaTemplate("{% set a %}{{ q|trim }}{% endset %}{{ a ~ '!' }}").fill({"q": long})
    assert "".join(cut) == long.strip() + "!"
    assert "".join(JinjaTemplate(long + "{{ q|upper }}").fill({"q": "x"})) == long + "X"


def test_jinja_set_block_is_limited_while_it_is_rendered() -> None:
    """The naive version counts the text when the block ends. So did ours, with 10 GB in memory by then."""
    pieces = ["x" * 99_999 for _ in range(1000)]
    assert sum(map(sys.getsizeof, pieces)) > 90_000_000

    def render() -> None:
        with pytest.raises(LazyPromptError, match="a value would become longer than 20000000"):
            render_prompt_file("{% set a %}{% for i in range(999) %}{{ q * 99999 }}{% endfor %}{% endset %}")

    assert peak_of(render) < 40_000_000


@pytest.mark.slow
def test_values_that_a_jinja_template_discards_do_not_count() -> None:
    """A naive limit adds up all intermediate values: a text that grows, or an unchanged result of a filter."""
    loop = "{% for i in range(3000) %}"
    growing = f"{{% set n = namespace(s='') %}}{loop}{{% set n.s = n.s ~ 'x' * 99 %}}{{% endfor %}}{{{{ n.s|length }}}}"
    assert render_prompt_file(growing) == "297000x"
    same = f"{{% set t = 'x' * 99999 %}}{loop}{{% set u = [t|trim, '%s'|format(t)] %}}{{% endfor %}}{{{{ t|length }}}}"
    assert render_prompt_file(same) == "99999x"
    lists = (
        "{% set t = ('x' * 2999 ~ 'y') * 300 %}{% for i in range(400) %}{% set u = (t ~ i).split('y') %}{% endfor %}"
    )
    assert render_prompt_file(lists) == "x"


@WAYS
def test_jinja_code_in_a_template_variable_is_not_evaluated(way: Callable[[str], str]) -> None:
    """The naive version inserts the value into the text of the template, and so evaluates it."""
    value = "{{ 7 * 191 }}{% for i in [1] %}!{% endfor %}"
    assert naive("You said: " + value) == "You said: 1337!"
    assert way(f"{{% set a = {value!r} %}}{{{{ a }}}}") == value + "x"


def test_jinja_code_in_user_input_is_not_evaluated() -> None:
    value = "{{ cycler.__init__.__globals__ }}"
    assert "__globals__" not in naive("{{ q }}")
    assert "<module 'os'" in naive(value.replace("__globals__", "__globals__.os"))
    assert Prompty.loads("user:\n{{ q }}").messages({"q": value})[0].text == value
    assert InstructionTemplate("{{ input }}", syntax="jinja2").fill(value).system == value
    shown = ChatTemplate.load("{{ messages[0].content }}").render([{"role": "user", "content": value}])
    assert shown.text == value
