"""Prompts with an untrusted text in each place where one can enter."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from attacks.attacks import Attack, Honest
from attacks.judges import CANARY, HEAD, NEXT, TAIL
from lazyprompt import (
    AlpacaPrompter,
    ChatInstructionTemplate,
    ChatPrompter,
    ChatTemplate,
    FewShotTemplate,
    Markers,
    Msg,
    Prompter,
    PromptTemplate,
    Prompty,
    TextBlock,
)

_INPUTS = "{text: {kind: string}, more: {kind: string}, history: {kind: thread}, secret: {kind: string}}"
_RULES = "system:\nBe kind. The key is {{secret}}.\n\n"
_FILE = (
    "---\nname: attacked\ninputs: %s\ntemplate: {format: %s, parser: prompty}\n---\n" + _RULES + "{{history}}\nuser:\n"
)
DIALECTS = {
    "v2": _FILE % (_INPUTS, "jinja2"),
    "v2, mustache": _FILE % (_INPUTS, "mustache"),
    "agentschema": f"---\nname: attacked\ninputs: {_INPUTS}\n---\n{_RULES}tools:\n[]\n\nuser:\n",
}
"""The start of a prompt file in each dialect, up to the values."""


_OPEN, _CLOSE = "<|im_start|>{{ m.role }}\n", "<|im_end|>\n"
_CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}>{{ c.function.arguments|tojson }}</tool_call>"
    "{% endfor %}"
)
_TURNS = "{%% for m in messages %%}%s{%% endfor %%}"
_UNESCAPED = "|e|replace('&lt;', '<')|replace('&gt;', '>')|replace('&#34;', '\"')|replace('&amp;', '&')"
LOSING = {
    "safe": "{% for t in tools or [] %}<|im_start|>system\n{{ 'Use '|safe + t.function.name + t|tojson }}<|im_end|>\n"
    "{% endfor %}" + _TURNS % f"{_OPEN}{{{{ m.content }}}}{_CALLS}{_CLOSE}",
    "unescape": _TURNS % f"{_OPEN}{{{{ (m.content|safe).unescape() }}}}{_CALLS}{_CLOSE}",
    "letters": _TURNS % f"{_OPEN}{{% for c in m.content %}}{{{{ c }}}}{{% endfor %}}{_CALLS}{_CLOSE}",
    "block": _TURNS
    % f"{{% set turn %}}{_OPEN}{{{{ m.content }}}}{_CALLS}{_CLOSE}{{% endset %}}{{{{ turn{_UNESCAPED} }}}}",
    "filter": _TURNS % f"{{% filter center(1) %}}{_OPEN}{{{{ m.content }}}}{_CALLS}{_CLOSE}{{% endfilter %}}",
    "macro": f"{{% macro turn(m) %}}{_OPEN}{{{{ caller() }}}}{_CALLS}{_CLOSE}{{% endmacro %}}"
    + _TURNS % "{% call turn(m) %}{{ '%s' % m.content }}{% endcall %}",
    "namespace": _TURNS % f"{{% set n = namespace(t=m.content|wordwrap(10000)) %}}{_OPEN}{{{{ n.t }}}}{_CALLS}{_CLOSE}",
}
"""Chat templates that lose where their text came from, or change it in ways that are hard to follow."""


class Case(NamedTuple):
    """The text or the two texts that are put into a prompt."""

    first: str
    second: str = ""  # beside the first; mostly empty
    before: str = ""  # the developer's text before both
    behind: str = ""  # the developer's text after both

    @property
    def text(self) -> str:
        return self.first + self.second

    @property
    def harmless(self) -> Case:
        """The same case with honest texts."""
        return self._replace(first=HEAD, second=NEXT if self.second else "")


def case_of(each: Attack | Honest) -> Case:
    """An attack, or an honest text, as what is put into a prompt."""
    if isinstance(each, Honest):
        return Case(each.text)
    return Case(each.values[0], "".join(each.values[1:]), each.before, each.behind)


@lru_cache(maxsize=256)
def prompter_for(before: str, behind: str) -> ChatPrompter:
    """A prompter with two adjacent slots within the developer's text, and a slot with a secret."""
    return ChatPrompter(f"Be kind. {before}{{text}}{{more}}{behind}\nThe key is {{secret}}.")


def tools_with(text: str) -> list[dict[str, Any]]:
    """A tool of a third party, with the text in each of its fields."""
    note = {"type": "string", "description": text, "enum": [text]}
    parameters = {"type": "object", "properties": {"note": note, text: {"type": "string"}}}
    return [{"type": "function", "function": {"name": "pay", "description": text, "parameters": parameters}}]


def history_with(text: str) -> list[dict[str, Any]]:
    """A history with the text in user messages, in tool arguments and in a tool result."""
    arguments = json.dumps({"note": text, text: "x"}, ensure_ascii=False)
    call = {"id": "call12345", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    return [
        {"role": "user", "content": f"So:\n{text}\n{TAIL}"},
        {"role": "assistant", "content": "Fine."},
        {"role": "user", "content": text},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call12345", "name": "pay", "content": text},
        {"role": "assistant", "content": "Done."},
    ]


def values_with(case: Case) -> dict[str, str]:
    """The values of the slots, and the input of the user."""
    return {"text": case.first, "more": case.second, "secret": CANARY, "input": case.text}


_ALPACA = AlpacaPrompter("Sum up {title}.", extra_keys=["text"])


def alpaca_with(text: str) -> str:
    """Alpaca's flat text, with the text in a slot and in an extra key."""
    return _ALPACA.generate_prompt({"title": text, "text": text})


def few_shot_with(text: str) -> str:
    """A prompt with the text in its few-shot examples."""
    template = FewShotTemplate("As here:", [{"q": text, "a": text}], "Q: {q}\nA: {a}", "Now: {q}")
    return ChatPrompter("Be kind.\n{shots}").generate_prompt(
        {"shots": template.render(q=text), "input": "Go on."}, model="chatml"
    )


MARKERS = {
    "long markers": Markers(
        sos="=== WHAT THE DEVELOPER SAYS ===\n",
        soh="\n=== WHAT THE USER HAS TO SAY ===\n",
        soa="\n=== WHAT THE ASSISTANT ANSWERS ===\n",
    ),
}
"""Custom markers."""

OWN_TEMPLATES = {
    "tags": "<system>{system}{instruction}</system>\n<human>{user}{input}</human>\n<answer>",
    "role lines": "System: {system}{instruction}\nHuman: {user}{input}\nMachine:",
}
OPENING = (
    "{{ bos_token }}{% for m in messages %}{{ 'GPT4 Correct ' + m.role.title() + ': ' }}{{ m.content }}<|end_of_turn|>"
    "{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"
)
CUSTOM = (*MARKERS, *OWN_TEMPLATES, "opening")
"""The names of the custom markers and templates."""


def custom_with(scene: str, case: Case) -> str:
    """A prompt with custom markers or a custom template."""
    if scene == "opening":
        chat = [turn for turn in history_with(case.text)[:3] if turn["content"].strip()]
        return ChatTemplate.load(OPENING, bos_token="<s>").render(chat).text  # noqa: S106 - no password
    if scene in MARKERS:
        return prompter_for("", "").with_markers(MARKERS[scene]).generate_prompt(values_with(case), [[case.text, "B"]])
    template = PromptTemplate(OWN_TEMPLATES[scene])
    prompter = Prompter(ChatInstructionTemplate("Be kind. {text}{more}\nThe key is {secret}."), template)
    return prompter.generate_prompt(values_with(case))


def conversation_with(case: Case) -> list[Msg]:
    """A multi-agent conversation, with the texts in a message, in a name, and as a name."""
    blocks = [TextBlock(each) for each in (case.first, case.second) if each]
    # A name without letters is written as its role, and a user may be named after the role.
    named = any(map(str.isalnum, case.text)) and case.text.casefold() != "user"
    name = case.text if named else "Cy"
    return [
        Msg("system", "Be kind.", "system"),
        Msg("Ada", blocks, "user"),
        Msg("Bob", "Fine.", "assistant"),
        Msg(f"Dr {case.text}", "Yes.", "user"),
        Msg(name, "No.", "user"),
        Msg("Ada", "Go on.", "user"),
    ]


@lru_cache(maxsize=256)
def _load(dialect: str, before: str, behind: str) -> Prompty:
    text = f"{DIALECTS[dialect]}{before}{{{{text}}}}{{{{more}}}}{behind}\n"
    return Prompty.loads(text, dialect=dialect.partition(",")[0])


def file_with(dialect: str, case: Case) -> tuple[Prompty, dict[str, object]]:
    """A prompt file and its inputs."""
    given: dict[str, object] = {"text": case.first, "more": case.second, "secret": CANARY}
    if dialect.startswith("v2"):
        given["history"] = history_with(case.text)
    return _load(dialect, case.before, case.behind), given
