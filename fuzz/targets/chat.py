"""Models' own chat templates: as many turns as messages, whatever these say."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fuzz.conversations import TOOLS, conversation
from fuzz.judge import CANARY, chatml_turns, require
from fuzz.target import Target
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import LazyPromptError

if TYPE_CHECKING:
    from fuzz.chance import Chance

_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CALLING = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}\n<tool_call>\n"
    '{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content.strip() }} [/INST]"
    "{% elif m.role == 'system' %}<<SYS>>\n{{ m.content }}\n<</SYS>>\n\n{% else %} {{ m.content }} {{ eos_token }}"
    "{% endif %}{% endfor %}"
)
_THINKING = (
    "{% for m in messages %}{% set content = m.content or '' %}{% if m.role == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
_TEMPLATES = (_CHATML, _CALLING, _LLAMA, _THINKING)
_OF_CHATML = (_CHATML, _CALLING)
_MARKERS = ("<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<s>", "</s>", "<tool_call>")


_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@cache
def _template(text: str) -> ChatTemplate:
    return ChatTemplate.load(text, **_TOKENS)


def _run(chance: Chance) -> None:
    if chance.number(5) == 1:
        _anything(chance)
        return
    template = _template(chance.one(_TEMPLATES))
    messages, quiet = conversation(chance, media=False)
    tools = TOOLS if chance.flag() else None
    prompted = chance.flag()
    before = repr(messages)
    rendered = template.render(messages, tools, prompted)
    text = rendered.text
    require(repr(messages) == before, "what was given was changed")
    require(text == "".join(each.text for each in rendered.segments), "the segments are not the text")
    require(not any(CANARY in each.text for each in rendered.segments if each.trusted), "a message's text is trusted")
    try:
        other = template.render(quiet, tools, prompted).text
    except LazyPromptError as error:
        require(holds=False, what=f"harmless texts are refused: {error}")
        return
    for marker in _MARKERS:
        if marker in template.text or marker in ("<s>", "</s>"):
            require(text.count(marker) == other.count(marker), f"a text forged {marker}")
    if template.text in _OF_CHATML:
        roles = [each["role"] for each in messages]
        if tools and template.text == _CALLING:
            roles = ["system", *roles]
        require([role for role, _ in chatml_turns(text)] == roles, "the turns are others than the messages")


def _anything(chance: Chance) -> None:
    """Any text as a template."""
    template = ChatTemplate.load("{{ '' }}" + chance.text())
    messages, _ = conversation(chance, media=False)
    rendered = template.render(messages, TOOLS if chance.flag() else None, chance.flag())
    require(rendered.text == "".join(each.text for each in rendered.segments), "the segments are not the text")


CHAT = Target(
    "chat",
    _run,
    (
        *("{% for m in messages %}", "{% endfor %}", "{{ m.role }}", "{{ m.content }}", "{{ m['content'] }}", "|trim"),
        *("{% if m.role == 'user' %}", "{% elif ", "{% else %}", "{% endif %}", "{{ bos_token }}", "{{ eos_token }}"),
        *("{{ tools | tojson }}", "{% if tools %}", "loop.first", "loop.last", "{% set ns = namespace(a=1) %}"),
        *("{% if add_generation_prompt %}", "raise_exception('x')", "strftime_now('%Y')", "messages[1:]", "|tojson"),
        *(
            "{% generation %}",
            "{% endgeneration %}",
            "m.tool_calls",
            "{% macro f(x) %}",
            "{% endmacro %}",
            " is string",
        ),
        *(".split('</think>')", ".strip()", "[-1]", "|length", "|join(', ')", "|items", "{%- ", " -%}", "{% break %}"),
    ),
    # Its templates have bounds of their own.
    seconds=10,
)
