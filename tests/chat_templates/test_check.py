"""The report of ``ChatTemplate.check()``: templates with and without each property, and the text of the report."""

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lazyprompt.chat_templates.check import TemplateReport
from lazyprompt.chat_templates.template import ChatTemplate
from support.chat_judges import SPECIAL, templates

TURN = "<{{ m.role }}>{{ m.content }}</>"
PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"
PLAIN = f"{{{{ bos_token }}}}{{% for m in messages %}}{TURN}{{% endfor %}}{PROMPT}"
REFUSES = "{{ raise_exception('no') }}"


def loop(body: str) -> str:
    """A plain template with something before each turn."""
    return PLAIN.replace(TURN, f"{body}{TURN}")


def calls(shown: str) -> str:
    return PLAIN.replace("</>", f"{{% for c in m.tool_calls or [] %}}{shown}{{% endfor %}}</>")


NO_SYSTEM = loop("{{ raise_exception('no system') if m.role == 'system' }}")
ALTERNATES = loop("{{ raise_exception('twice') if not loop.first and m.role == messages[loop.index0 - 1].role }}")
TOOLS = "{{ tools|tojson if tools }}" + PLAIN
CALLS = calls("[{{ c.function.name }} {{ c.function.arguments|tojson }}]")
MOVES_TOOLS = CALLS.replace("<{{ m.role", "{{ tools|tojson if tools and loop.last }}<{{ m.role")
NAMES = calls("[{{ c.function.name }}]")
ITEMS = calls("{% for k, v in c.function.arguments.items() %}{{ c.function.name }}{{ k }}={{ v }}{% endfor %}")
JSON_ONLY = calls("{{ c.function.name ~ ' ' + c.function.arguments }}")
AS_IT_IS = calls(
    "{{ c.function.name }}{{ c.function.arguments if c.function.arguments is string else c.function.arguments|tojson }}"
)
NULL = PLAIN.replace("m.content", "(m.content or '')")
PARTS = PLAIN.replace("{{ m.content }}", "{% for p in m.content %}{{ p.text }}{% endfor %}")
NO_CALLS = loop("{{ raise_exception('no calls') if m.tool_calls }}")
THOUGHTS = loop("{{ '(' ~ m.reasoning_content ~ ')' if m.reasoning_content }}")
LAST_THOUGHT = loop("{{ '(' ~ m.reasoning_content ~ ')' if m.reasoning_content and loop.last }}")
OTHER_THOUGHTS = loop("{{ '(' ~ m.thinking ~ ')' if m.thinking }}")
COUNTED = "{{ messages|length }}" + PLAIN
OTHER_PROMPT = PLAIN.replace("<assistant>{%", "<ai>{%")
NO_PROMPT = PLAIN.replace(PROMPT, "")
NO_END = PLAIN.replace("</>", "{{ '\n' if not loop.last }}")
EOS = PLAIN.replace("</>", "{{ eos_token }}")
TWICE = "{{ bos_token }}" + PLAIN
CLOCK = "{{ strftime_now('%Y') }}" + PLAIN
FURTHER = "{{ style }}{{ 'x' if enable_thinking }}" + PLAIN
# The repr of a method shows the class of the text, which differs while origins are traced.
LOSES = PLAIN + "{{ (messages[0].content|attr('upper')|string)[:6] }}"

CHANGES = "later messages change earlier text:"
LAST_CHANGES = "thoughts before a user, thoughts before a result"
CHANGED = "new messages change the prompt: the template writes '{}' instead of '{}'"
COUNT_CHANGED = CHANGED.format("3<s><user>quaestio 0</><assistant>respon", "1<s><user>quaestio 0</><assistant>")
TOOLS_MOVED = CHANGED.format("<user>quaestio 0</><assistant>[look_arou", '[{"type": "function", "function": {"name')
UNTRACED = (
    "the origins of the rendered text can't be traced: the template renders different text while origins are traced"
)

QUESTIONS: dict[str, list[tuple[str, bool | None, str]]] = {
    "system text supported": [
        (PLAIN, True, ""),
        (NO_SYSTEM, False, "the chat template rejects the messages: no system"),
        (loop("{% if m.role == 'system' %}{% continue %}{% endif %}"), False, "it is dropped"),
        (PARTS, True, ""),
    ],
    "alternation required": [(PLAIN, False, ""), (ALTERNATES, True, "the chat template rejects the messages: twice")],
    "tools supported": [
        (TOOLS, True, ""),
        (PLAIN, False, "they are dropped"),
        ("{{ raise_exception('no tools') if tools }}" + PLAIN, False, "it rejects tools"),
    ],
    "tool calls supported": [
        (CALLS, True, ""),
        (JSON_ONLY, True, ""),
        (NAMES, False, "dropped: its arguments"),
        (PLAIN, False, "dropped: the call, its arguments"),
        (NO_CALLS, False, "the chat template rejects the messages: no calls"),
        ("{% if not tools %}{{ raise_exception('no tools') }}{% endif %}" + CALLS, True, ""),
    ],
    "string arguments accepted": [
        (AS_IT_IS, True, ""),
        (JSON_ONLY, True, "it accepts nothing else; lazyprompt passes JSON"),
        (CALLS, False, "it writes them differently from dicts; lazyprompt passes dicts"),
        (ITEMS, False, "it fails with them; lazyprompt passes dicts"),
        (NO_CALLS, False, "it accepts no calls"),
        (PLAIN, None, "calls are dropped"),
    ],
    "null content accepted": [(NULL, True, ""), (PLAIN, False, "lazyprompt passes empty text")],
    "text contents shown": [
        (PLAIN, True, ""),
        (PARTS, False, "only parts; lazyprompt passes texts as parts"),
        (REFUSES, False, ""),
    ],
    "content parts shown": [(PARTS, True, ""), (PLAIN, False, "")],
    "thoughts shown": [
        (THOUGHTS, True, "in the last turn and earlier turns"),
        (LAST_THOUGHT, True, "in the last turn"),
        (OTHER_THOUGHTS, True, "in the last turn and earlier turns"),
        (PLAIN, False, ""),
    ],
    "prefix-preserving over turns": [
        (PLAIN, True, ""),
        (EOS, True, ""),
        (PLAIN + "{{ eos_token }}", True, ""),
        (COUNTED, False, f"{CHANGES} plain turns, a call and its result, {LAST_CHANGES}"),
        (LAST_THOUGHT, False, f"{CHANGES} {LAST_CHANGES}"),
    ],
    "generation prompt consistent": [
        (PLAIN, True, ""),
        (OTHER_PROMPT, False, "an answer in a chat begins differently from the generation prompt"),
        (NO_PROMPT, True, "there is none: the prompt is the same without it"),
        (REFUSES, None, "it rejects a short chat"),
    ],
    "stop token trained": [
        (EOS, True, "'</s>'"),
        (PLAIN, True, "'</>', but the tokenizer's end of text is '</s>'"),
        (NO_END, False, "no text ends an answer, so training does not teach the model to stop"),
        # If it cannot be determined, the finding is None.
        (LOSES, None, UNTRACED),
        (REFUSES, None, "the chat template rejects the messages: no"),
    ],
    "double beginning of text": [
        (TWICE, True, "the template writes the token twice"),
        (PLAIN.replace("{{ bos_token }}", ""), False, "the template does not write the token"),
        (PLAIN, None, "the template writes the token: encode without adding special tokens"),
        (REFUSES, None, "there is no known beginning-of-text token"),
    ],
    "asks for the time": [(CLOCK, True, "pass now= to get the same text every day"), (PLAIN, False, "")],
    "further variables": [
        (FURTHER, True, "enable_thinking, style"),
        (PLAIN, False, ""),
        ("{% set style = 1 %}{{ style }}" + PLAIN, False, ""),
    ],
    "origins kept": [(PLAIN, True, ""), (LOSES, False, UNTRACED)],
    "bridged to a user's turn": [
        *((PLAIN, True, ""), (MOVES_TOOLS, True, "")),
        (COUNTED, False, COUNT_CHANGED),
    ],
    "bridged to results of calls": [
        *((CALLS, True, ""), (PLAIN, False, "the template does not render tool calls")),
        (MOVES_TOOLS, False, TOOLS_MOVED),
    ],
}
CASES = [(name, *case) for name, cases in QUESTIONS.items() for case in cases]


@cache
def check(text: str) -> TemplateReport:
    return ChatTemplate.load(text, **SPECIAL).check()


@pytest.mark.parametrize(("name", "text", "holds", "detail"), CASES)
def test_template_check_reports_each_finding_with_its_detail(
    name: str,
    text: str,
    holds: bool | None,  # noqa: FBT001 - a table
    detail: str,
) -> None:
    found = check(text)[name]
    assert (found.name, found.holds, found.detail) == (name, holds, detail)


def test_template_report_contains_all_findings() -> None:
    report = check(PLAIN)
    assert [finding.name for finding in report.findings] == list(QUESTIONS)
    assert {name for name, cases in QUESTIONS.items() if len({holds for _, holds, _ in cases}) < 2} == set()
    with pytest.raises(KeyError, match="is it good"):
        report["is it good"]


def adding_tokenizer(directory: Path, token: str | None) -> Any:
    """A tokenizer that puts the token before each text, if there is a token."""
    added = {"id": 0, "content": "<s>", "special": True, "normalized": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    template = (
        None
        if token is None
        else {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [0], "tokens": [token]}},
        }
    )
    file = directory / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1}, "unk_token": "a"}
    file.write_text(
        json.dumps({"version": "1.0", "added_tokens": [added | flags], "post_processor": template, "model": model})
    )
    return import_module("tokenizers").Tokenizer.from_file(str(file))


@pytest.mark.parametrize(
    ("text", "token", "holds", "detail"),
    [
        (PLAIN, "<s>", True, "the tokenizer adds another: encode without adding special tokens"),
        (PLAIN, None, False, ""),
        (NO_PROMPT.replace("{{ bos_token }}", ""), "<s>", False, "the template does not write the token"),
        (TWICE, None, True, "the template writes the token twice"),
    ],
)
def test_template_check_with_a_tokenizer_detects_a_double_beginning_of_text(
    tmp_path: Path,
    text: str,
    token: str | None,
    holds: bool,  # noqa: FBT001 - a table
    detail: str,
) -> None:
    tokenizer = adding_tokenizer(tmp_path, token)
    found = ChatTemplate.load(text, **SPECIAL).check(tokenizer)["double beginning of text"]
    assert (found.holds, found.detail) == (holds, detail)


def test_template_check_with_tools_checks_the_template_for_tools(tmp_path: Path) -> None:
    several = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": TOOLS}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    template = ChatTemplate.load(tmp_path)
    assert not template.check()["tools supported"].holds
    assert template.check(tools=True)["tools supported"].holds


REPORT = """\
system text supported         no   the chat template rejects the messages: no system
alternation required          no
tools supported               no   they are dropped
tool calls supported          no   dropped: the call, its arguments
string arguments accepted     -    calls are dropped
null content accepted         no   lazyprompt passes empty text
text contents shown           yes
content parts shown           no
thoughts shown                no
prefix-preserving over turns  yes
generation prompt consistent  yes
stop token trained            yes  '</>', but the tokenizer's end of text is '</s>'
double beginning of text      -    the template writes the token: encode without adding special tokens
asks for the time             no
further variables             no
origins kept                  yes
bridged to a user's turn      yes
bridged to results of calls   no   the template does not render tool calls"""


def test_template_report_as_text_has_a_line_for_each_finding() -> None:
    assert str(check(NO_SYSTEM)) == REPORT


# Known properties of real templates, some of them from the models' cards.
KNOWN = {
    "qwen3": {"tools supported": True, "thoughts shown": True, "system text supported": True},
    "gemma": {"system text supported": False, "alternation required": True, "tools supported": False},
    "gptoss": {"asks for the time": True, "thoughts shown": True, "tool calls supported": True},
    "smolvlm": {"text contents shown": False, "content parts shown": True, "system text supported": True},
    "llama3_2": {"asks for the time": True, "tool calls supported": True},
    "deepseekv3": {"tool calls supported": True, "thoughts shown": False},
    "phi3": {"tools supported": False, "alternation required": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_template_check_finds_known_properties_of_a_real_template(name: str) -> None:
    report = ChatTemplate.load(templates()[name], **SPECIAL).check()
    assert {question: report[question].holds for question in KNOWN[name]} == KNOWN[name]
