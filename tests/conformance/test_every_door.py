"""A malformed history at each entry point: for each target, all send the same valid payload and report each repair.

1,000 histories; ``--hypothesis-profile=deep`` has 20,000.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import settings

from lazyprompt import (
    ChatFormatter,
    ChatPrompter,
    ChatTemplate,
    FormatError,
    HistoryError,
    LazyPromptError,
    Msg,
    OnlineChatModule,
    Prompty,
    TrainableModule,
    messages_from,
)
from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.batch.plan import RowPlan
from support.conversations import lines_by_role
from support.rough_histories import RoughHistory, rough_history

pytestmark = pytest.mark.slow  # thousands of prompts for each entry point

CONVERSATIONS = max(1_000, 20 * settings().max_examples)
TARGETS = ("openai", "openai-responses", "anthropic", "gemini", "ollama", "mistral", "deepseek", "vllm")
SYSTEM = "Be kind."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
PROMPTER = ChatPrompter(system=SYSTEM, tools=TOOLS)
FILE = f"""---
name: chat
inputs:
  past: {{kind: thread}}
  question: {{kind: string, default: ""}}
tools:
- name: get_weather
  kind: function
  description: The weather.
  parameters:
    city: {{kind: string, required: true}}
---
system:
{SYSTEM}

{{{{past}}}}
"""
ASKING_FILE, WAITING_FILE = Prompty.loads(FILE + "\nuser:\n{{question}}\n"), Prompty.loads(FILE)
CHAT_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}
{% else %}{% for part in message.content or [] %}{{ part.text if part.type == 'text' else '(' + part.type + ')' }}
{% endfor %}{% endif %}{% for call in message.tool_calls or [] -%}
<tool_call>{{ call.function.name }} {{ call.function.arguments | tojson }}</tool_call>
{% endfor %}<|im_end|>
{% endfor %}{% for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEMPLATE = ChatTemplate.load(CHAT_TEMPLATE)
LOCAL_MODULE = TrainableModule("m", url="http://127.0.0.1:1", chat_template=CHAT_TEMPLATE).prompt(PROMPTER)
# The keys of a payload that contain the conversation.
KEYS = ("system", "instructions", "system_instruction", "messages", "contents", "input", "tools")

Payload: TypeAlias = Mapping[str, Any]


def conversation(history: RoughHistory) -> list[Any]:
    """All messages of a prompt, for entry points that accept only messages."""
    asked = [{"role": "user", "content": history.input}] if history.input else []
    return [{"role": "system", "content": SYSTEM}, *history.items, *asked]


def in_file(history: RoughHistory) -> tuple[Prompty, dict[str, Any]]:
    """The prompt file for a history, and its inputs but for the history."""
    return (WAITING_FILE, {}) if history.input is None else (ASKING_FILE, {"question": history.input})


def from_formatter(target: str, history: RoughHistory) -> Payload:
    return ChatFormatter(target).format(conversation(history), tools=TOOLS)


def from_prompter(target: str, history: RoughHistory) -> Payload:
    made = PROMPTER.generate_prompt(history.input, history.items, format=target)
    if target == "openai":
        assert PROMPTER.generate_prompt(history.input, history.items, return_dict=True) == made
    assert isinstance(made, dict)
    return made


def from_module(target: str, history: RoughHistory) -> Payload:
    return module(target).payload(history.input, history.items)


@cache
def module(target: str) -> OnlineChatModule:
    return OnlineChatModule(target, model="m", api_key="k").prompt(PROMPTER)


def from_row(target: str, history: RoughHistory) -> Payload:
    asked = {} if history.input is None else {"input": history.input}
    line = RowPlan.of(PROMPTER, target, strict=False).line(1, {"history": history.items, **asked})
    payload: Payload = json.loads(line)["payload"]
    return payload


def from_file(target: str, history: RoughHistory) -> Payload:
    file, inputs = in_file(history)
    made = file.generate_prompt({**inputs, "past": history.items}, format=target)
    assert made == file.generate_prompt(inputs, history.items, format=target)
    assert isinstance(made, dict)
    return made


def from_request(target: str, history: RoughHistory) -> Payload:
    file, inputs = in_file(history)
    payload = file.request({**inputs, "past": history.items}, provider=target)
    # Prompty's specification writes system text as instructions.
    if "instructions" in payload:
        payload["input"] = [{"role": "developer", "content": payload.pop("instructions")}, *payload["input"]]
    return payload


ENTRY_POINTS: dict[str, Callable[[str, RoughHistory], Payload]] = {
    "formatter": from_formatter,
    "prompter": from_prompter,
    "module": from_module,
    "row": from_row,
    "file": from_file,
    "request": from_request,
}


def payload_or_error(entry_point: str, target: str, history: RoughHistory) -> Payload | type[LazyPromptError]:
    """The payload, or the type of the error."""
    try:
        return ENTRY_POINTS[entry_point](target, history)
    except LazyPromptError as error:
        return type(error)


def comparable_outcome(outcome: Payload | type[LazyPromptError]) -> object:
    """The compared part of an outcome: messages and tools, without a module's parameters, or the type of an error."""
    return {key: unified(outcome[key]) for key in KEYS if key in outcome} if isinstance(outcome, Mapping) else outcome


def unified(value: object) -> object:
    """A value in a common form: prompt files write Anthropic's texts as lists, and omit ``strict`` if it is false."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    items: list[Any] = value if isinstance(value, list) else [value]
    return [{key: item[key] for key in item if key != "strict"} | normalized_content(item) for item in items]


def normalized_content(item: dict[str, Any]) -> dict[str, object]:
    return {"content": unified(item["content"])} if isinstance(item.get("content"), str) else {}


class Faults(NamedTuple):
    """The seeds of the histories for which an entry point does something wrong.

    Attributes:
        differing: It sends something else than the formatter.
        refused: The target refuses what it sends.
        unreported: It sends other lines than were passed, or lines that cannot be read back, without a report.
    """

    differing: tuple[int, ...]
    refused: tuple[int, ...]
    unreported: tuple[int, ...]


def faults(entry_point: str, target: str) -> Faults:
    differing, refused, unreported = list[int](), list[int](), list[int]()
    formatter = ChatFormatter(target)
    expected = sent_by_formatter(target)
    for seed, history in enumerate(histories()):
        made = payload_or_error(entry_point, target, history)
        report = getattr(made, "report", ())
        if any("but Prompty sends them" in entry.reason for entry in report):
            # A prompt file's request to OpenAI names a file by its address, as Prompty's specification does.
            continue
        if comparable_outcome(made) != expected[seed]:
            differing.append(seed)
        if not isinstance(made, Mapping):
            continue
        try:
            formatter.validate({key: made[key] for key in KEYS if key in made})
        except FormatError:
            refused.append(seed)
        # A row has no report; a request without a model says so.
        is_silent = entry_point != "row" and all(entry.kind == "model" for entry in report)
        if is_silent and has_changed(target, made, lines_given()[seed]):
            unreported.append(seed)
    return Faults(tuple(differing), tuple(refused), tuple(unreported))


@cache
def histories() -> list[RoughHistory]:
    """All histories, made once for all entry points and targets of a process."""
    return [rough_history(seed) for seed in range(CONVERSATIONS)]


@cache
def sent_by_formatter(target: str) -> list[object]:
    """The formatter's outcome for each history, with which each entry point is compared."""
    sent = [comparable_outcome(payload_or_error("formatter", target, history)) for history in histories()]
    assert sum(isinstance(each, dict) for each in sent) > 0.8 * len(sent), "most histories are not sent at all"
    return sent


@cache
def lines_given() -> list[list[tuple[str, str]] | None]:
    """The lines of each history; None where it cannot be read, so that no entry point sends it."""
    return [spoken_lines(conversation(history)) for history in histories()]


def spoken_lines(items: list[Any]) -> list[tuple[str, str]] | None:
    try:
        return spoken(messages_from(items))
    except LazyPromptError:
        return None


def has_changed(target: str, payload: Payload, given: list[tuple[str, str]] | None) -> bool:
    """Return True if the messages of a payload do not have the lines that were passed, each in its role."""
    try:
        sent = messages_from(payload[ChatFormatter(target).profile.form.messages_key])
    except HistoryError:
        return True
    return spoken(sent) != given


def spoken(messages: Iterable[Msg]) -> list[tuple[str, str]]:
    """The lines of all roles but the developer's, whose texts some targets have elsewhere."""
    return [line for line in lines_by_role(messages) if line[0] not in SYSTEM_ROLES]


@pytest.mark.parametrize(
    ("target", "entry_point"),
    [
        (target, entry_point)
        for target in TARGETS
        for entry_point in ENTRY_POINTS
        if (target, entry_point) != ("openai-responses", "module")  # no module has that form
    ],
)
def test_each_entry_point_sends_the_same_payload_as_the_formatter(target: str, entry_point: str) -> None:
    assert faults(entry_point, target) == Faults((), (), ())


def render_with_template(history: RoughHistory) -> str:
    return TEMPLATE.render(conversation(history), TOOLS).text


def render_with_prompter(history: RoughHistory) -> str:
    return PROMPTER.generate_prompt(history.input, history.items, chat_template=TEMPLATE)


def render_with_module(history: RoughHistory) -> str:
    text: str = LOCAL_MODULE.payload(history.input, history.items)["prompt"]
    return text


def render_with_file(history: RoughHistory) -> str:
    file, inputs = in_file(history)
    return file.generate_prompt({**inputs, "past": history.items}, chat_template=TEMPLATE)


@pytest.mark.parametrize("entry_point", [render_with_module, render_with_file, render_with_template])
def test_chat_template_renders_the_same_text_at_each_entry_point(entry_point: Callable[[RoughHistory], str]) -> None:
    def text(entry_point: Callable[[RoughHistory], str], history: RoughHistory) -> str | type[LazyPromptError]:
        try:
            return entry_point(history)
        except LazyPromptError as error:
            return type(error)

    expected = [text(render_with_prompter, each) for each in histories()]
    assert sum(isinstance(each, str) for each in expected) > 0.8 * len(expected)
    assert [at for at, each in enumerate(histories()) if text(entry_point, each) != expected[at]] == []
