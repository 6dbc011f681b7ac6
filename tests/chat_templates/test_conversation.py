"""Messages and tools of any form, as the dicts that a chat template knows."""

import copy
from typing import Any

import pytest

from lazyprompt import (
    Base64Source,
    ChatFormatter,
    ChatPrompter,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    messages_from,
)
from lazyprompt.chat_templates.conversation import TAG, tag_last_message, template_dicts, texts_of, tool_dicts
from lazyprompt.chat_templates.jinja import ChatJinja
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.chat_templates.traced import parts_of
from lazyprompt.errors import HistoryError, MediaError, TemplateError, ToolsError
from lazyprompt.messages.parse import parse_messages
from lazyprompt.messages.tools import ToolSet
from support.chat_judges import SPECIAL, TOOLS, USER, call, render_by_transformers, result, templates

TEXTS = ChatJinja("{% for m in messages %}{{ m.content }}{% endfor %}")
PARTS = ChatJinja("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}")
BOTH = ChatJinja("{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}")


def dicts_from(messages: Any, template: ChatJinja) -> list[dict[str, Any]]:
    return template_dicts(parse_messages(messages, "messages"), template)


PICTURE = ImageBlock(source=Base64Source(media_type="image/png", data="iVBORw0KGgo="))


def test_unknown_message_keys_are_kept_for_the_template() -> None:
    given: list[Any] = [
        {"role": "user", "content": "Hi", "name": "ann", "spell": {"a": [1]}, "cached": False},
        {"role": "assistant", "content": "Hello", "thinking": "Hm."},
        {"role": "tool", "tool_call_id": "c1", "name": "now", "content": "3"},
    ]
    expected = [given[0], given[1] | {"reasoning_content": "Hm."}, given[2]]
    assert dicts_from(given, TEXTS) == dicts_from(tuple(given), TEXTS) == expected


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({}, r"messages\[0\] has no 'role'"),
        ({"content": "Hi"}, r"messages\[0\] has no 'role'"),
        ({"role": "wizard", "content": "Hi"}, r"messages\[0\] has the unknown role 'wizard'"),
        ({"role": "user"}, r"messages\[0\] must contain 'content' or 'tool_calls'"),
    ],
)
def test_message_with_a_missing_or_invalid_role_or_content_is_refused(message: Any, reason: str) -> None:
    """``render`` passed invalid dicts on to the template, which rendered half a turn."""
    with pytest.raises(HistoryError, match=f"^{reason}"):
        ChatTemplate.load(TEXTS.text).render([message])


def test_message_dicts_are_normalized_before_rendering() -> None:
    """Broken arguments, signed reasoning and names equal to roles were passed to the template unchanged."""
    broken = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": '}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    given: list[Any] = [
        {"role": "user", "name": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [broken], "thinking_blocks": [thought]},
    ]
    function = {"name": "add", "arguments": {"raw_input": '{"a": '}}
    assert dicts_from(given, TEXTS) == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            "reasoning_content": "Hm.",
            "thinking": "Hm.",
        },
    ]


def test_null_fields_and_empty_reasoning_are_removed() -> None:
    """A template that reads ``tool_calls`` failed on the null that ``model_dump()`` writes."""
    dumped: Any = [{"role": "assistant", "content": "Hi", "tool_calls": None, "audio": None, "reasoning_content": ""}]
    assert dicts_from(dumped, TEXTS) == [{"role": "assistant", "content": "Hi"}]


@pytest.mark.parametrize(
    ("part", "written"),
    [
        ({"type": "image"}, {"type": "image"}),
        ({"type": "image", "url": "http://a/b.png"}, {"type": "image", "url": "http://a/b.png"}),
        ({"type": "image", "image": "http://a/b.png"}, {"type": "image", "url": "http://a/b.png"}),
        ({"type": "image", "path": "b.png"}, {"type": "image", "url": "b.png"}),
        ({"type": "image_url", "image_url": {"url": "http://a/b.png"}}, {"type": "image", "url": "http://a/b.png"}),
        ({"type": "video", "video": "b.mp4"}, {"type": "video", "url": "b.mp4"}),
        ({"type": "audio"}, {"type": "audio"}),
    ],
)
def test_media_parts_of_any_form_become_parts_that_templates_know(part: Any, written: Any) -> None:
    """A template for images did not render ``image_url`` parts; transformers passes ``image`` parts."""
    text = {"type": "text", "text": "a"}
    (made,) = dicts_from([{"role": "user", "content": [text, part]}], BOTH)
    assert made == {"role": "user", "content": [text, written]}


def test_image_part_without_data_is_refused_in_a_provider_format() -> None:
    history: list[Any] = [{"role": "user", "content": [{"type": "image"}]}]
    with pytest.raises(MediaError, match=r"has neither a URL nor base64 data; add one of them"):
        ChatFormatter("openai").format(history)


@pytest.mark.parametrize(
    ("condition", "content", "shown", "alone"),
    [
        (
            *("is not string", "{{ m.content }}", "<user>Be calm.\n\n\n\nHi<assistant>Hello<user>Go."),
            "<user>Be calm.\n\n<assistant>Hello",
        ),
        (
            *("is string", "{% for p in m.content %}({{ p.type }} {{ p.text }}){% endfor %}"),
            "<user>(text Be calm.\n\n\n\n)(text Hi)<assistant>(text Hello)<user>(text Go.)",
            "<user>(text Be calm.\n\n)<assistant>(text Hello)",
        ),
    ],
)
def test_refused_system_text_is_put_before_the_first_user_text(
    condition: str, content: str, shown: str, alone: str
) -> None:
    """A template that fails on text contents, since it knows only parts, counted as one that accepts a system text."""
    refuses = f"{{{{ raise_exception('no') if m.role == 'system' or m.content {condition} }}}}"
    template = f"{{% for m in messages %}}{refuses}<{{{{ m.role }}}}>{content}{{% endfor %}}"
    prompter = ChatPrompter("Be {kind}.", system="").with_chat_template(ChatTemplate.load(template))
    assert prompter.generate_prompt({"kind": "calm", "input": "Go."}, [("Hi", "Hello")]) == shown
    answered: list[Any] = [{"role": "assistant", "content": "Hello"}]
    assert prompter.generate_prompt({"kind": "calm"}, answered) == alone


PAIRS: list[Any] = [("Hi", "Hello"), ["More", "Yes"]]


def test_pairs_and_msg_objects_become_dicts_with_their_roles() -> None:
    expected: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "Yes"},
    ]
    assert dicts_from(PAIRS, TEXTS) == expected
    messages = [Msg("", one["content"], one["role"]) for one in expected]
    assert dicts_from(messages, TEXTS) == expected
    assert dicts_from([Msg("ann", "Hi", "user")], TEXTS) == [expected[0] | {"name": "ann"}]
    assert dicts_from([PAIRS[0], {"role": "user", "content": "More"}, messages[3]], TEXTS) == expected


A, B = ({"type": "text", "text": text} for text in "ab")
BLOCKS, CALLED = [TextBlock("a"), TextBlock("b")], ToolUseBlock("c1", "add", {"a": 1})


@pytest.mark.parametrize(
    ("template", "given", "content"),
    [
        *((TEXTS, BLOCKS, "a\nb"), (PARTS, BLOCKS, [A, B]), (TEXTS, "a", "a"), (PARTS, "a", [A]), (BOTH, "a", "a")),
        *((TEXTS, [CALLED], ""), (BOTH, [CALLED], ""), (PARTS, [CALLED], [A | {"text": ""}])),
    ],
)
def test_content_gets_the_form_that_the_template_renders(template: ChatJinja, given: Any, content: object) -> None:
    (made,) = dicts_from([Msg("", given, "assistant")], template)
    assert made["content"] == content


@pytest.mark.parametrize("template", [TEXTS, PARTS, BOTH])
def test_image_block_stays_a_content_part(template: ChatJinja) -> None:
    (made,) = dicts_from([Msg("", [TextBlock(text="a"), PICTURE], "user")], template)
    assert [part["type"] for part in made["content"]] == ["text", "image"]


def test_tool_calls_and_results_become_openai_messages() -> None:
    answered = ToolResultBlock(id="c1", name="add", output="3")
    made = dicts_from([Msg("", [TextBlock(text="So"), CALLED], "assistant"), Msg("", [answered], "system")], TEXTS)
    calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
    assert made[0] == {"role": "assistant", "content": "So", "tool_calls": calls}
    assert made[1:] == [{"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"}]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "glm4moe", "gptoss", "deepseekv3", "lfm2_2_5"])
def test_msg_objects_render_as_the_equal_dicts(name: str) -> None:
    blocks = [ToolUseBlock(id="call_0001", name="get_weather", input={"city": "Köln"})]
    messages: list[Any] = [
        Msg("", "Hi", "user"),
        Msg("", blocks, "assistant"),
        Msg("", [ToolResultBlock(id="call_0001", name="get_weather", output="rain")], "system"),
        Msg("", "Fine", "assistant"),
        ("More", "Yes"),
        {"role": "user", "content": "?"},
    ]
    dicts: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call(1, {"city": "Köln"})]},
        result(1, "rain"),
        {"role": "assistant", "content": "Fine"},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "?"},
    ]
    template = ChatTemplate.load(templates()[name], **SPECIAL)
    ours = template.render(messages, TOOLS)
    assert ours.text == template.render(dicts, TOOLS).text
    converted = [template.jinja().call_form.convert(message) for message in dicts]
    theirs, _ = render_by_transformers(template.text, converted, tools=TOOLS, add_generation_prompt=True, **SPECIAL)
    assert ours.text == theirs


@pytest.mark.slow
def test_reasoning_is_passed_under_the_keys_that_templates_know() -> None:
    thoughtful = Msg("", [ThinkingBlock("Hm."), ThinkingBlock("So."), TextBlock("Yes")], "assistant")
    (made,) = dicts_from([thoughtful], TEXTS)
    thought = "Hm.\nSo."
    assert made == {"role": "assistant", "content": "Yes", "reasoning_content": thought, "thinking": thought}
    for name in ("qwen3", "gptoss"):
        template = ChatTemplate.load(templates()[name], **SPECIAL)
        made_text = template.render([Msg("", "Hi", "user"), thoughtful], add_generation_prompt=False).text
        assert "Hm.\nSo." in made_text, name
    known = {"role": "assistant", "content": "Yes", "reasoning_content": "Hm.\nSo."}
    template = ChatTemplate.load(templates()["qwen3"], **SPECIAL)
    assert template.render([USER, known]).text == template.render([Msg("", USER["content"], "user"), thoughtful]).text


@pytest.mark.parametrize("field", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_of_a_dict_is_kept_beside_messages_of_other_forms(field: str) -> None:
    given: list[Any] = [{"role": "assistant", "content": "Yes", field: "Hm."}, Msg("", "Hi", "user")]
    made = ChatTemplate.load("{{ messages[0].reasoning_content }}|{{ messages[1].content }}").render(given)
    assert made.text == "Hm.|Hi"


@pytest.mark.parametrize("wrong", [[1], [("a",)], [None], "Hi", None, [("a", "b", "c")]], ids=repr)
def test_invalid_messages_are_refused(wrong: Any) -> None:
    with pytest.raises(HistoryError):
        dicts_from(wrong, TEXTS)


@pytest.mark.parametrize("template", [TEXTS, PARTS])
def test_template_dicts_does_not_change_the_messages(template: ChatJinja) -> None:
    given: list[Any] = [Msg("", [TextBlock("a")], "user"), {"role": "user", "content": [{"type": "text", "text": "a"}]}]
    before = copy.deepcopy(given)
    dicts_from(given, template)[1]["content"] = "changed"
    assert given == before
    assert messages_from(given) == messages_from(before)


def add(a: int, b: int = 1) -> int:
    """Add numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def test_tools_are_accepted_as_dicts_functions_and_tool_sets() -> None:
    made = tool_dicts([TOOLS[0], add])
    assert made is not None
    assert made[0] is TOOLS[0]
    assert made[1]["function"]["name"] == "add"
    assert made[1]["function"]["description"] == "Add numbers."
    assert made[1]["function"]["parameters"]["required"] == ["a"]
    assert tool_dicts(ToolSet.of([add])) == [made[1]]
    assert tool_dicts(None) is None
    assert tool_dicts([]) == []


def test_function_tool_renders_as_in_transformers() -> None:
    template = ChatTemplate.load("{{ tools|map(attribute='function')|map(attribute='name')|join(',') }}")
    theirs, _ = render_by_transformers(template.text, [], tools=[add, TOOLS[1]])
    assert template.render([], [add, TOOLS[1]]).text == theirs == "add,now"


@pytest.mark.parametrize(("wrong", "kind"), [(1, "int"), ("add", "str"), (None, "NoneType")])
def test_invalid_tool_is_refused_with_its_index(wrong: Any, kind: str) -> None:
    with pytest.raises(ToolsError, match=rf"^tools\[1\] must be a dict or a function, not {kind}$"):
        tool_dicts([TOOLS[0], wrong])


SAID = {"role": "assistant", "content": "So", "reasoning_content": "Hm", "thinking": "Hm", "reasoning": "other"}


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("content", {"content"}),
        # Reasoning is the same under both of its keys.
        ("reasoning_content", {"reasoning_content", "thinking"}),
        ("thinking", {"reasoning_content", "thinking"}),
        ("reasoning", {"reasoning"}),
    ],
)
def test_continued_text_is_tagged_at_its_end(field: str, changed: set[str]) -> None:
    before = copy.deepcopy(SAID)
    first, last = tag_last_message([USER, SAID], field)
    assert first is USER
    assert [(each.slot, each.message) for each in parts_of(last[field])[1] if not each.trusted] == [("assistant", 1)]
    assert last == {name: f"{text}{TAG}" if name in changed else text for name, text in before.items()}
    assert before == SAID


def test_last_text_part_of_a_continued_message_is_tagged() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]
    (made,) = tag_last_message([{"role": "assistant", "content": parts}], "content")
    assert made["content"] == [parts[0], {"type": "text", "text": f"b{TAG}"}, parts[2]]
    assert parts[1]["text"] == "b"
    origins = parts_of(made["content"][1]["text"])[1]
    assert [(each.slot, each.message) for each in origins if not each.trusted] == [("assistant", 0)]


def test_texts_of_a_chat_exclude_roles_and_part_types() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image", "url": "b"}]
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi", "name": "ann"},
        {"role": "user", "content": parts, "spell": {"c": [1, "d"]}},
        {"role": "assistant", "content": None},
    ]
    assert sorted(texts_of(chat)) == ["Hi", "a", "ann", "b", "c", "d", "name", "spell"]


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ([], "there are no messages"),
        *(
            ([SAID, {"content": given}], "the last message has no text in its 'content'")
            for given in (3, None, [], [{"type": "image"}, "x", {"text": 3}])
        ),
        ([{"role": "assistant"}], "the last message has no text in its 'content'"),
    ],
)
def test_chat_without_text_in_its_last_message_cannot_be_continued(chat: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(TemplateError, match=f"^no text to continue: {reason}$"):
        tag_last_message(chat, "content")
