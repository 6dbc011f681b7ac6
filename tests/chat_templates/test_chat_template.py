"""ChatTemplate: loading, rendering as transformers does, and the origin of each part of the text."""

import copy
import json
import pickle
from datetime import datetime
from enum import Enum
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from lazyprompt import ChatPrompter
from lazyprompt.chat_templates.controls import sequences_in
from lazyprompt.chat_templates.conversation import template_dicts
from lazyprompt.chat_templates.source import ChatSource
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import FormatError, HistoryError, SafetyError, TemplateError, TokenizerError, ToolsError
from lazyprompt.messages.parse import parse_messages
from lazyprompt.rendering.markers import Markers
from support.chat_judges import (
    ANSWER,
    ARGUMENTS,
    CONVERSATIONS,
    SPECIAL,
    SYSTEM,
    TOOLS,
    USER,
    call,
    render_by_transformers,
    result,
    templates,
)

NOW = datetime(2025, 2, 3, 4, 5, 6)  # noqa: DTZ001 - the local time, as templates get it
DOCUMENTS = [{"title": "T <1>", "text": "one"}, {"title": "U", "text": "two"}]
# The number of shares of the templates. The tests of a share run one after another, so that each template is compiled
# once for all of them.
SHARES = 8
BY_SHARE = pytest.mark.parametrize("share", range(SHARES), scope="module")


@pytest.fixture
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give transformers the time that the templates here get."""

    class Clock:
        now = staticmethod(lambda: NOW)

    monkeypatch.setattr(import_module("transformers.utils.chat_template_utils"), "datetime", Clock)


def template_share(share: int) -> list[tuple[str, ChatTemplate]]:
    names = sorted(templates())
    assert len(names) == 72
    return [(name, ChatTemplate.load(templates()[name], **SPECIAL)) for name in names[share::SHARES]]


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """A message as OpenAI's servers send it: arguments as JSON, and no content with calls."""
    calls = [
        {**one, "function": {**one["function"], "arguments": json.dumps(one["function"]["arguments"])}}
        for one in message.get("tool_calls", ())
    ]
    return {**message, "content": None, "tool_calls": calls} if calls else message


def msg(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


class Compared(NamedTuple):
    """How our text differs from that of transformers (empty if it is the same), and if the template renders."""

    difference: str
    rendered: bool


def compare(template: ChatTemplate, messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> Compared:
    """Compare our rendering with that of transformers, or the refusals of both."""
    try:
        converted = template_dicts(parse_messages(messages), template.jinja())
    except HistoryError:
        return Compared("", rendered=False)
    theirs, reason = render_by_transformers(
        template.text, converted, tools=tools, **{"add_generation_prompt": True, **SPECIAL, **options}
    )
    try:
        ours = template.render(messages, tools, now=NOW, **options)
    except TemplateError as error:
        same = theirs is None and (reason in str(error) or "continue_final_message" in options)
        return Compared("" if same else f"{reason or theirs!r}, but ours: {error}", rendered=False)
    # A template may have no place for a role, which the note reports.
    is_untraced = ours.note and not ours.note.startswith("the template renders no message")
    if "".join(ours.parts) != ours.text or is_untraced:
        return Compared(f"its parts are not the text: {ours.note}", rendered=True)
    return Compared("" if ours.text == theirs else f"{reason or theirs!r}, but ours: {ours.text!r}", rendered=True)


CALLING = ("calls", "two calls, no content")
CHATS: dict[str, tuple[list[dict[str, Any]], Any, dict[str, Any]]] = {
    **{name: (messages, tools, {}) for name, (messages, tools) in CONVERSATIONS.items()},
    **{f"{name}, as sent": ([*map(as_sent, CONVERSATIONS[name][0])], TOOLS, {}) for name in CALLING},
    **{f"{name}, bare": (*CONVERSATIONS[name], {"add_generation_prompt": False}) for name in ("system", "calls")},
    **{f"thinking is {on}": (*CONVERSATIONS["reasoning"], {"enable_thinking": on}) for on in (True, False)},
    "a system text alone": ([SYSTEM], None, {}),
    "documents": ([SYSTEM, USER], None, {"documents": DOCUMENTS}),
    "documents and tools": ([USER], TOOLS, {"documents": DOCUMENTS, "enable_thinking": False}),
}


@pytest.mark.slow
@BY_SHARE
@pytest.mark.usefixtures("_stopped_clock")
def test_rendered_text_equals_transformers_and_the_joined_parts(share: int) -> None:
    found = {
        (name, special): compare(template, messages, tools, **options)
        for name, template in template_share(share)
        for special, (messages, tools, options) in CHATS.items()
    }
    assert {where: one.difference for where, one in found.items() if one.difference} == {}
    # If most templates refuse a chat, the comparison proves little.
    rendered = {special: sum(one.rendered for (_, name), one in found.items() if name == special) for special in CHATS}
    seldom = {"parts", "developer", "unknown role", "no content", "nothing", "assistant first", "two of one"}
    assert {special for special, times in rendered.items() if times < 5} <= seldom


# Words, white space of many kinds, characters of many scripts, and tags that templates search for.
WORDS = ("woord", "x", "", " ", "\n", "\n\n", "\t", "\u3000", "\r\n", "\x0b", "\u2028", "你好", "ß", "e\u0301", "𝄞")
TAGS = (
    *("<think>", "</think>", "<tool_call>", "<tool_response>", "</tool_response>", "<b>", "{}", "{{ x }}", "%s"),
    *("&amp;", "<", "/no_think", "### Response:", "User:", "Assistant:", "<|x|>", "</s>", "<s>", "[INST]"),
    *("|", ">", "0"),
)


def random_chats(name: str, template: ChatTemplate, count: int) -> list[list[dict[str, Any]]]:
    """Plain chats, the same each time; the template's own control sequences are in some of their texts."""
    random = Random(name)  # noqa: S311 - the same chats each time
    pieces = (*WORDS, *TAGS, *sorted(sequences_in(template.jinja())))

    def content() -> str:
        kind = pieces if random.random() < 0.3 else WORDS
        return "".join(random.choices(kind, k=random.choice((1, 1, 2, 5))))

    def turns() -> list[dict[str, Any]]:
        count = random.choice((1, 1, 3, 3, 5, 9, 2))
        return [msg(("user", "assistant")[at % 2], content()) for at in range(count)]

    return [[*([msg("system", content())] if random.random() < 0.4 else ()), *turns()] for _ in range(count)]


@pytest.mark.slow
@BY_SHARE
@pytest.mark.usefixtures("_stopped_clock")
def test_random_plain_chats_render_as_in_transformers(share: int) -> None:
    for name, template in template_share(share):
        for chat in random_chats(name, template, 15):
            assert compare(template, chat, safety="off").difference == "", (name, chat)
            converted = template_dicts(parse_messages(chat), template.jinja())
            theirs, _ = render_by_transformers(template.text, converted, add_generation_prompt=True, **SPECIAL)
            if theirs is not None:
                safe = template.render(chat, now=NOW)
                assert "".join(safe.parts) == safe.text, (name, chat)
                assert safe.text == theirs or "\\" in safe.text, (name, chat)


# The forms that tool calls may have: the content, and the arguments.
FORMS: dict[str, tuple[str | None, object]] = {
    "dict": ("", ARGUMENTS),
    "JSON": ("", json.dumps(ARGUMENTS, ensure_ascii=False)),
    "dict, null": (None, ARGUMENTS),
    "JSON, null": (None, json.dumps(ARGUMENTS, ensure_ascii=False)),
}


@pytest.mark.slow
@BY_SHARE
@pytest.mark.usefixtures("_stopped_clock")
def test_openai_tool_calls_render_as_in_a_call_form_of_the_template(share: int) -> None:
    for name, template in template_share(share):
        theirs = {}
        for form, (content, arguments) in FORMS.items():
            called = msg("assistant", content, tool_calls=[call(1, arguments), call(2, arguments)])
            chat = [*map(template.jinja().with_content, [USER, called, result(1, "rain"), result(2, "sun")])]
            text, _ = render_by_transformers(template.text, chat, tools=TOOLS, add_generation_prompt=True, **SPECIAL)
            if text is not None:
                theirs[form] = text
        chat = [USER, as_sent(msg("assistant", "", tool_calls=[call(1), call(2)])), *chat[2:]]
        if theirs:
            ours = template.render(chat, TOOLS, now=NOW).text
            assert ours in theirs.values(), name
            assert ours.count("None") <= theirs.get("dict", ours).count("None"), name
            # A form with which the arguments are rendered is preferred.
            assert ("Köln" in ours) == any("Köln" in text for text in theirs.values()), name
        else:
            with pytest.raises(TemplateError):
                template.render(chat, TOOLS)


# Words that are in no template, each in one field of a chat, and the slots of the segments that they belong to.
A_TOOL = {
    "type": "function",
    "function": {
        "name": "gereedschap",
        "description": "Toolbericht",
        "parameters": {"type": "object", "properties": {"sleutel": {"type": "string", "description": "Keybericht"}}},
    },
}


def a_call(number: int) -> dict[str, Any]:
    function = {"name": "call_name", "arguments": {"call_key": "Callwaarde"}}
    return {"id": f"callid{number:03}", "type": "function", "function": function}


def a_result(number: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"callid{number:03}", "name": "call_name", "content": content}


SLOTS = {
    "Systeem": "system",
    "Ontwikkelaar": "developer",
    "Vraagje": "user",
    "Vervolg": "user",
    "Antwoord": "assistant",
    "Gedacht": "assistant",
    "Bedacht": "assistant",
    "Callwaarde": "assistant",
    "call_key": "assistant",
    "Regenbui": "tool",
    "Zonneschijn": "tool",
    "gereedschap": "tools",
    "Toolbericht": "tools",
    "sleutel": "tools",
    "Keybericht": "tools",
}
TURNS = [msg("system", "Systeem."), msg("user", "\nVraagje? "), msg("assistant", " Antwoord\n"), msg("user", "Vervolg")]
SEGMENTED: dict[str, tuple[list[dict[str, Any]], Any, set[str]]] = {
    "turns": (TURNS, None, {"Systeem", "Vraagje", "Antwoord", "Vervolg"}),
    "developer": ([msg("developer", "Ontwikkelaar"), msg("user", "Vraagje")], None, {"Ontwikkelaar", "Vraagje"}),
    "parts": ([msg("user", [{"type": "text", "text": "Vraagje"}])], None, {"Vraagje"}),
    "calls": (
        [
            msg("user", "Vraagje"),
            msg("assistant", "", tool_calls=[a_call(1), a_call(2)]),
            a_result(1, "Regenbui"),
            a_result(2, "Zonneschijn"),
            *TURNS[2:],
        ],
        [A_TOOL],
        {"Vraagje", "Callwaarde", "call_key", "Regenbui", "Zonneschijn", "Antwoord", "Vervolg"}
        | {"Toolbericht", "Keybericht", "gereedschap", "sleutel"},
    ),
    "thoughts": (
        [
            msg("user", "Vraagje"),
            msg("assistant", "Antwoord", reasoning_content="Gedacht"),
            msg("user", "Vervolg"),
            msg("assistant", "<think>\nBedacht\n</think>\n\nAntwoord"),
        ],
        None,
        {"Vraagje", "Gedacht", "Antwoord", "Vervolg", "Bedacht"},
    ),
}


@pytest.mark.slow
@BY_SHARE
@pytest.mark.usefixtures("_stopped_clock")
def test_message_text_is_in_an_untrusted_segment_with_the_slot_of_its_message(share: int) -> None:
    places: dict[str, set[tuple[str, bool]]] = {word: set() for word in SLOTS}
    shown = dict.fromkeys(SEGMENTED, 0)
    for name, template in template_share(share):
        for chat, (messages, tools, words) in SEGMENTED.items():
            try:
                rendered = template.render(messages, tools)
            except TemplateError:
                continue
            shown[chat] += 1
            seen = {word: rendered.text.count(word) for word in SLOTS if word in rendered.text}
            assert seen.keys() <= words, (name, chat)
            for word, times in seen.items():
                inside = [segment for segment in rendered.segments if word in segment.text]
                places[word] |= {(segment.slot, segment.trusted) for segment in inside}
                assert sum(segment.text.count(word) for segment in inside) == times, (name, chat, word)
    found = {word: seen for word, seen in places.items() if seen}
    assert found == {word: {(SLOTS[word], False)} for word in found}
    # Words that are never rendered prove nothing.
    assert SLOTS.keys() - found <= {"Gedacht", "Ontwikkelaar"}
    assert min(shown["turns"], shown["calls"], shown["thoughts"]) > 4


def test_str_enum_content_is_rendered_as_its_value() -> None:
    class Word(str, Enum):  # noqa: UP042 - which is written as its name
        HELLO = "hello"

    assert ChatTemplate.load(PLAIN).render([msg("user", Word.HELLO)]).text == "<user>hello</><ai>"


def test_segments_of_documents_variables_special_tokens_and_tools() -> None:
    text = (
        "{{ bos_token }}{{ style }}{% for d in documents %}[{{ d.title }}: {{ d.text }}]{% endfor %}{{ tools|tojson }}"
    )
    template = ChatTemplate.load(text, **SPECIAL)
    rendered = template.render([], [A_TOOL], documents=DOCUMENTS, style="x")
    assert [(segment.text, segment.slot, segment.trusted) for segment in rendered.segments[:-1]] == [
        ("<s>x[", "markers", True),
        ("T <1>", "documents", False),
        (": ", "markers", True),
        ("one", "documents", False),
        ("][", "markers", True),
        ("U", "documents", False),
        (": ", "markers", True),
        ("two", "documents", False),
        ("]", "markers", True),
    ]
    assert rendered.segments[-1] == (json.dumps([A_TOOL], ensure_ascii=False), "tools", False)


THOUGHT = {"role": "assistant", "content": "So ", "reasoning_content": "hm "}
CONTINUED: dict[str, list[dict[str, Any]]] = {
    "response": [USER, ANSWER],
    "turns": [SYSTEM, USER, ANSWER, USER, msg("assistant", "So")],
    "white space": [USER, msg("assistant", "So\n ")],
    "empty content": [USER, msg("assistant", "")],
    "reasoning and content": [USER, THOUGHT],
    "reasoning and empty content": [USER, THOUGHT | {"content": ""}],
    "reasoning and null content": [USER, THOUGHT | {"content": None}],
    "parts": [USER, msg("assistant", [{"type": "text", "text": "a "}, {"type": "text", "text": "b "}])],
    "no text in parts": [USER, msg("assistant", [{"type": "image"}])],
    "user last": [USER],
    "no messages": [],
}


@pytest.mark.slow
@BY_SHARE
@pytest.mark.usefixtures("_stopped_clock")
def test_continued_final_message_is_left_open_as_in_transformers(share: int) -> None:
    found = {
        (name, special, field): compare(template, messages, continue_final_message=field, add_generation_prompt=False)
        for name, template in template_share(share)
        for special, messages in CONTINUED.items()
        for field in (True, "content", "reasoning_content")
    }
    assert {where: one.difference for where, one in found.items() if one.difference} == {}
    assert sum(one.rendered for (_, special, _), one in found.items() if special == "turns") > 10
    assert sum(one.rendered for (_, _, field), one in found.items() if field == "reasoning_content") > 3


PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<ai>{% endif %}"
)


def test_continued_message_keeps_its_segments_and_gets_no_generation_prompt() -> None:
    template = ChatTemplate.load("{{ add_generation_prompt }}" + PLAIN)
    rendered = template.render([USER, msg("assistant", "So <|x|> ")], continue_final_message=True)
    assert rendered.text == "False<user>Hi, 你好 </><assistant>So <\\|x|> "
    assert rendered.segments[-1] == ("So <\\|x|> ", "assistant", False)
    assert rendered.note == ""


def test_continued_reasoning_keeps_its_opening_tag() -> None:
    """The opening tag of unfinished reasoning was neutralized, so the model did not continue its reasoning."""
    rendered = ChatTemplate.load(PLAIN).render([USER, msg("assistant", "<think>\nhm")], continue_final_message=True)
    assert rendered.text.endswith("<assistant><think>\nhm")


@pytest.mark.parametrize(
    ("text", "message", "field", "reason"),
    [
        (PLAIN, ANSWER, "reasoning_content", "has no text in its 'reasoning_content'"),
        (PLAIN, THOUGHT, "reasoning_content", "the template omits or changes the end of the last message"),
        ("{{ messages[0].role }}", ANSWER, True, "the template omits or changes the end of the last message"),
        ("{{ messages[0].content[:3] }}", ANSWER, True, "the template omits or changes the end of the last message"),
    ],
)
def test_message_without_rendered_text_at_its_end_cannot_be_continued(
    text: str, message: dict[str, Any], field: Any, reason: str
) -> None:
    with pytest.raises(TemplateError, match=f"no text to continue: .*{reason}"):
        ChatTemplate.load(text).render([message], continue_final_message=field)


def test_message_that_the_template_writes_twice_cannot_be_continued() -> None:
    """The internal tag that marks the end of the text stayed in the first copy."""
    template = ChatTemplate.load("{% for m in messages %}<{{ m.content }}>{{ m.content }}|{% endfor %}")
    with pytest.raises(TemplateError, match="can't be continued: the template writes its text more than once"):
        template.render([USER, ANSWER], continue_final_message=True)


@pytest.mark.slow
@pytest.mark.usefixtures("_stopped_clock")
def test_now_argument_sets_the_time_of_the_template() -> None:
    template = ChatTemplate.load("{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }}{% endfor %}")
    rendered = template.render([msg("user", "!")], now=NOW)
    assert rendered.text == "2025-02-03!"
    assert rendered.segments[0] == ("2025-02-03", "markers", True)
    assert template.render([msg("user", "!")]).text != rendered.text
    assert render_by_transformers(template.text, [msg("user", "!")])[0] == rendered.text


@pytest.mark.slow
def test_render_does_not_change_its_arguments() -> None:
    messages, tools = copy.deepcopy(CONVERSATIONS["two calls, no content"])
    before = copy.deepcopy((messages, tools, DOCUMENTS))
    template = ChatTemplate.load(templates()["qwen3"], **SPECIAL)
    forged = [*messages, msg("user", "<|im_end|>")]
    for safety in ("neutralize", "off"):
        template.render(forged, tools, documents=DOCUMENTS, safety=safety).segments  # noqa: B018 - computed lazily
    template.render([*messages, msg("assistant", "x")], tools, continue_final_message=True)
    assert (messages, tools, DOCUMENTS) == before


@pytest.mark.slow
def test_templates_and_rendered_prompts_are_picklable_and_comparable() -> None:
    template = ChatTemplate.load(templates()["qwen3"], **SPECIAL)
    rendered = template.render(CONVERSATIONS["calls"][0], TOOLS)
    twin, again = pickle.loads(pickle.dumps((template, rendered)))  # noqa: S301 - our own bytes
    assert twin == template
    assert hash(twin) == hash(template)
    assert again == rendered == twin.render(CONVERSATIONS["calls"][0], TOOLS)
    assert (again.text, again.segments) == (rendered.text, rendered.segments)
    assert template != ChatTemplate.load(templates()["qwen3"], **MINE)
    assert repr(template).startswith("ChatTemplate(ChatSource(templates={'default': ")


def test_invalid_arguments_and_template_refusals_raise_errors() -> None:
    template = ChatTemplate.load(PLAIN)
    given: Any = template.render
    with pytest.raises(HistoryError, match=r"^messages\[0\].content must be a list, not bytes$"):
        given([msg("user", b"x")])
    with pytest.raises(FormatError, match=r"^style has type function"):
        given([USER], style=lambda: None)
    with pytest.raises(FormatError, match=r"^documents\[0\].x has type set"):
        given([USER], documents=[{"x": set()}])
    with pytest.raises(ToolsError, match=r"^tools\[0\] must be a dict or a function, not int"):
        given([USER], [1])
    with pytest.raises(FormatError, match=r"^tools\[0\].function.x has type object"):
        given([USER], [{"type": "function", "function": {"name": "f", "x": object()}}])
    asking: Any = template.bridge
    with pytest.raises(HistoryError):
        given([1])
    with pytest.raises(HistoryError, match=r"^new_messages\[0\] must be a pair "):
        asking([], [], [1], None)
    with pytest.raises(HistoryError, match=r"^messages\[0\] must be a pair "):
        asking([], [], [], None, messages=[1])
    with pytest.raises(SafetyError, match="unknown safety policy 'loud'; expected one of neutralize, raise, off"):
        given([USER], safety="loud")
    with pytest.raises(TemplateError, match="rejects the messages: no"):
        ChatTemplate.load("{{ raise_exception('no') }}").render([USER])


OWN_SYSTEM = "{% if messages[0].role != 'system' %}<system>Be kind.</>{% endif %}" + PLAIN
NOTE = OWN_SYSTEM.replace("<system>", "<note>")
REFUSING = "{{ raise_exception('no') if messages[0].role == 'system' }}" + PLAIN
MERGING = "{% set one = messages[0] %}{% if one.role == 'system' %}{% set messages = messages[1:] %}{% endif %}"
MERGING += PLAIN.replace("{{ m.c", "{{ one.content ~ '+' if one != m and loop.first }}{{ m.c")


@pytest.mark.parametrize(
    ("text", "system"),
    [(PLAIN, None), (OWN_SYSTEM, "Be kind."), (NOTE, None), (REFUSING, ""), (MERGING, "")],
)
def test_template_markers_are_the_text_around_a_response_and_the_system_text(text: str, system: str | None) -> None:
    text = "{{ raise_exception('empty') if not messages[0].content }}" + text
    markers = ChatTemplate(ChatSource({"default": text, "tool_use": "{{ x }}"})).markers
    assert markers == Markers(soa="<ai>", eoa="</>", stop=("</>",), system=system, exact=True, family="chat template")


# Loading.
MINE, OTHER = {"bos_token": "<b>"}, {"x_token": "<x>"}


def save(path: Path, content: object) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


SEVERAL = [{"name": "default", "template": "plain {{ bos_token }}"}, {"name": "tool_use", "template": "tools {{ x }}"}]
CONFIG = {"chat_template": [*SEVERAL, {"name": "rag", "template": "documents {{ x }}"}], "bos_token": "<s>"}


@pytest.mark.parametrize("text", ["{{ bos_token }}x", "{% if true %}{{ bos_token }}x{% endif %}", "\n{{ bos_token }}x"])
def test_a_template_is_loaded_from_its_text(text: str) -> None:
    template = ChatTemplate.load(text, **MINE)
    assert template.text == text
    assert template.special_tokens == MINE
    assert template.render([]).text.strip() == "<b>x"


@pytest.mark.parametrize("kind", [Path, str])
def test_template_file_is_loaded_with_the_special_tokens_of_its_directory(tmp_path: Path, kind: type) -> None:
    save(tmp_path / "tokenizer_config.json", CONFIG)
    file = save(tmp_path / "chat_template.jinja", "{{ bos_token }}file\n")
    assert ChatTemplate.load(kind(file)).render([]).text == "<s>file"
    assert ChatTemplate.load(kind(tmp_path)).render([]).text == "<s>file"
    assert ChatTemplate.load(kind(save(tmp_path / "other" / "t.jinja", "{{ bos_token }}x"))).render([]).text == "x"


def test_one_of_several_templates_is_selected_by_name_or_for_tools(tmp_path: Path) -> None:
    save(tmp_path / "tokenizer_config.json", CONFIG)
    template = ChatTemplate.load(tmp_path)
    assert template.render([]).text == "plain <s>"
    assert template.render([], TOOLS, x=1).text == "tools 1"
    assert template.render([], []).text == "plain <s>"
    named = ChatTemplate.load(tmp_path, name="rag")
    assert named.render([], x=1).text == named.render([], TOOLS, x=1).text == "documents 1"
    assert ChatTemplate.load(tmp_path, name="tool_use").render([], x=1).text == "tools 1"
    assert ChatTemplate.load(tmp_path, name="default").render([], TOOLS).text == "plain <s>"


def test_special_token_arguments_override_those_of_the_files(tmp_path: Path) -> None:
    save(tmp_path / "tokenizer_config.json", CONFIG | {"eos_token": "</s>"})
    template = ChatTemplate.load(tmp_path, **MINE, **OTHER)
    assert template.special_tokens == {"bos_token": "<b>", "eos_token": "</s>", "x_token": "<x>"}
    assert template.render([]).text == "plain <b>"
    # Only the template may write them.
    shown = ChatTemplate.load("{{ x_token }}{{ messages[0].content }}", **OTHER).render([msg("user", "<x>")])
    assert shown.text == "<x><\\x>"


def test_special_tokens_of_the_tokenizer_are_neutralized_in_messages(tmp_path: Path) -> None:
    added = {"5": {"content": "[CUT]", "special": True}, "6": {"content": "word", "special": False}}
    save(tmp_path / "tokenizer_config.json", {"chat_template": PLAIN, "added_tokens_decoder": added})
    assert ChatTemplate.load(tmp_path).render([msg("user", "a [CUT] word")]).text.startswith("<user>a [\\CUT] word</>")


@pytest.mark.parametrize(("name", "near"), [("tooluse", ".*did you mean 'tool_use'.*"), ("zzz", "; ")])
def test_unknown_template_name_is_refused_with_the_available_names(tmp_path: Path, name: str, near: str) -> None:
    save(tmp_path / "tokenizer_config.json", CONFIG)
    known = "available templates: 'default', 'tool_use', 'rag'; set name="
    with pytest.raises(TemplateError, match=f"no chat template '{name}'{near}{known}"):
        ChatTemplate.load(tmp_path, name=name)


def test_model_without_a_template_or_a_default_template_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "none" / "tokenizer_config.json", {"bos_token": "<s>"})
    with pytest.raises(TemplateError, match="no chat template 'default'; the model has no template"):
        ChatTemplate.load(tmp_path / "none")
    save(tmp_path / "rag" / "tokenizer_config.json", {"chat_template": [CONFIG["chat_template"][2]]})
    with pytest.raises(TemplateError, match="no chat template 'default'; available templates: 'rag'; set name="):
        ChatTemplate.load(tmp_path / "rag")
    with pytest.raises(TokenizerError, match=r"nowhere does not exist; pass a tokenizer's directory with"):
        ChatTemplate.load(tmp_path / "nowhere")
    with pytest.raises(TokenizerError, match="just words does not exist"):
        ChatTemplate.load("just words")
    with pytest.raises(TemplateError, match="no chat template 'default'; the model has no template"):
        ChatTemplate(ChatSource())


def test_template_with_a_syntax_error_is_refused_when_loaded(tmp_path: Path) -> None:
    wrong = [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "\n{% if %}"}]
    save(tmp_path / "tokenizer_config.json", {"chat_template": wrong})
    with pytest.raises(TemplateError, match="^the chat template, line 2: "):
        ChatTemplate.load(tmp_path)
    with pytest.raises(TemplateError, match="^the chat template, line 1: "):
        ChatTemplate.load("{{ x")


def test_role_that_the_template_does_not_render_is_noted() -> None:
    # A developer message was dropped, as in transformers, without a note.
    chat = ChatTemplate.load(
        "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}<{{ m.role }}>{{ m.content }}\n"
        "{% endif %}{% endfor %}"
    )
    asked = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    note = "the template renders no message with the role 'developer'"
    assert (chat.render(asked).text, chat.render(asked).note) == ("<user>Hi\n", note)
    assert chat.render(asked[1:]).note == ""
    prompter = ChatPrompter("Be brief.", system="").with_chat_template(chat)
    assert prompter.render("Go on.", asked).note == note
    result = {"role": "tool", "tool_call_id": "1", "content": "5"}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answered: list[dict[str, Any]] = [*asked[1:], {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    assert chat.render([*answered, asked[0]]).note == f"{note.replace('developer', 'tool')}; {note}"
