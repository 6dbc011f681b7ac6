"""Repairs of a formatter: tool exchanges, ids, names, empty texts, system text, first and last turns."""

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formatters.helpers import (
    BYE,
    HI,
    IMAGE,
    KINDS,
    PHOTO,
    WITH_TOOLS,
    answering,
    call,
    calling,
    formatters_of,
    openai_call,
    openai_calling,
    result,
)
from formatters.payloads import called, dump, judged, places, reported, roles, texts
from lazyprompt import ChatFormatter, FormatError, Msg
from lazyprompt._base.roles import Role
from lazyprompt.formatters._repair import AFTER_RESULTS, FIRST_TURN, LAST_TURN
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.messages.msg import AudioBlock, Base64Source, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import NO_RESULT, fitted, openai_dicts
from support.conversations import PNG, WAV

NO_EMPTY = ("anthropic", "gemini", "moonshot", "ollama-generate", "mistral")
USER_FIRST = ("anthropic", "gemini", "dashscope", "dashscope-multimodal", "deepseek", "vllm")
USER_LAST = ("gemini", "dashscope", "dashscope-multimodal", "deepseek", "mistral")
NEEDS_USER = (*USER_FIRST, "zhipu", "ollama-generate", "mistral")
ONE_SYSTEM = (*USER_FIRST, "ollama-generate", "mistral")
# Mistral only accepts ids of nine characters.
KEEPS_IDS = [name for name in WITH_TOOLS if name != "mistral"]


@formatters_of(WITH_TOOLS)
@pytest.mark.parametrize(
    "messages",
    [
        [answering(result("c1", "42"))],
        [answering(result("c1", "42")), calling(call("c1"))],
        [calling(call("c2")), Msg("Ann", [result("c2"), result("c1")], "user")],
        [{"role": "tool", "tool_call_id": "c1", "content": "42"}],
    ],
    ids=["no call", "call after the result", "another call", "dict"],
)
def test_tool_result_without_a_call_is_an_error(kind: type[ChatFormatter], provider: str, messages: list[Any]) -> None:
    error = r"^messages\[[12]\]\.content\[[01]\] is the result of the call 'c1', but no earlier"
    with pytest.raises(FormatError, match=error):
        kind(provider).format(HI, *messages)


@formatters_of(WITH_TOOLS)
@pytest.mark.parametrize("role", ["tool", "system"])
def test_second_tool_result_of_a_call_is_an_error(kind: type[ChatFormatter], provider: str, role: Role) -> None:
    second = Msg("s", [result("c1", "43")], role)
    with pytest.raises(FormatError, match=r"^messages\[3\]\.content\[0\] is a second result for the call 'c1'"):
        kind(provider).format(HI, calling(call("c1")), answering(result("c1", "42")), second)


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool"])
@pytest.mark.parametrize("kind", KINDS)
def test_tool_call_in_a_message_of_another_role_is_an_error(kind: type[ChatFormatter], role: Role) -> None:
    with pytest.raises(FormatError, match=r"^messages\[1\] calls the tool 'f', but its role is "):
        kind("openai").format(HI, Msg("Ann", [call("c1")], role))


@formatters_of(WITH_TOOLS)
def test_missing_tool_result_is_added(kind: type[ChatFormatter], provider: str) -> None:
    payload = judged(kind(provider), HI, calling(call("c1"), call("c2")), BYE, calling(call("c3")))
    assert dump(payload).count(NO_RESULT) == 3
    assert reported(payload, "tool_result", "added") == ["messages[1]", "messages[1]", "messages[3]"]
    payload = judged(kind(provider), HI, calling(call("c1"), call("c2")), answering(result("c2", "§2")), BYE)
    first, second = places(dump(payload), NO_RESULT, "§2")
    assert first < second
    assert reported(payload, "tool_result", "added") == ["messages[1]"]


@formatters_of(WITH_TOOLS)
@pytest.mark.parametrize("role", ["tool", "system", "developer", "user", "assistant"])
def test_tool_results_are_accepted_from_any_role(kind: type[ChatFormatter], provider: str, role: Role) -> None:
    answers = result("c1", "§1"), result("c2", "§2")
    expected = judged(kind(provider), HI, calling(call("c1"), call("c2")), answering(*answers), BYE)
    for messages in ([Msg("tool", answers, role)], [Msg("tool", [answer], role) for answer in answers]):
        assert judged(kind(provider), HI, calling(call("c1"), call("c2")), *messages, BYE) == expected


@formatters_of(WITH_TOOLS)
def test_tool_results_are_moved_directly_after_their_calls(kind: type[ChatFormatter], provider: str) -> None:
    late = answering(result("c2", "§2")), HI, answering(result("c1", "§1"))
    payload = judged(kind(provider), HI, calling(call("c1"), call("c2")), *late, BYE)
    first, second = places(dump(payload), "§1", "§2")
    assert first < second
    assert reported(payload, "tool_result", "moved") == ["messages[4].content[0]"]


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_tool_results_of_plain_messages_are_put_in_call_order(provider: str) -> None:
    made = calling(call("c1"), call("c2"))
    answers = [Msg("tool", [ToolResultBlock(name, "f", f"§{name}§")], "tool") for name in ("c2", "c1")]
    dicts = openai_dicts((made, *answers))
    for messages in ([made, *answers], dicts):
        first, second = places(dump(judged(ChatFormatter(provider), HI, *messages)), "§c1§", "§c2§")
        assert first < second


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_interleaved_tool_exchanges_are_separated(provider: str) -> None:
    calls = calling(call("c1", q="§a")), calling(call("c2", q="§b"))
    payload = judged(ChatFormatter(provider), HI, *calls, answering(result("c2", "§2")), answering(result("c1", "§1")))
    found = places(dump(payload), "§a", "§1", "§b", "§2")
    assert found == sorted(found)


@formatters_of(KEEPS_IDS)
def test_reused_call_id_is_replaced(kind: type[ChatFormatter], provider: str) -> None:
    messages = [
        HI,
        calling(call("c1", q="§a"), call("c1", q="§b")),
        answering(result("c1", "§1"), result("c1", "§2")),
        calling(call("c1", q="§c")),
        answering(result("c1", "§3")),
        calling(call("c1_2")),
    ]
    payload = judged(kind(provider), *messages)
    # The first result belongs to the first call.
    found = places(dump(payload), "§a", "§b", "§1", "§2", "§c", "§3")
    assert found == sorted(found)
    assert reported(payload, "id", "changed") == ["messages[1]", "messages[3]", "messages[5]"]
    assert [dump(payload).count(f'"{name}"') for name in ("c1", "c1_2", "c1_3", "c1_2_2")] == [2, 2, 2, 2]


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_tool_result_belongs_to_the_last_call_of_its_id_after_other_messages(provider: str) -> None:
    """Servers number calls per response: a result was matched with a call of an earlier response."""
    first, second = calling(call("c1", q="§a")), calling(call("c1", q="§b"))
    one, two = result("c1", "§1"), result("c1", "§2")
    said = calling(TextBlock("wait")), Msg("Bot", "wait", "assistant"), BYE, Msg("Ann", [TextBlock("bye")], "user")
    for messages, order in (
        *(((first, between, second, answering(one)), ("§a", NO_RESULT, "§b", "§1")) for between in said),
        # Without a message between them, both calls wait, and results are matched in order.
        ((first, second, answering(one, two)), ("§a", "§1", "§b", "§2")),
        ((first, second, answering(one), answering(two)), ("§a", "§1", "§b", "§2")),
        # A result between them has the same effect.
        ((first, answering(one), second), ("§a", "§1", "§b", NO_RESULT)),
    ):
        found = places(dump(judged(ChatFormatter(provider), HI, *messages)), *order)
        assert found == sorted(found)


@pytest.mark.parametrize("provider", WITH_TOOLS)
@pytest.mark.parametrize(
    "content",
    ["§text§", [TextBlock("§text§")], [result("c2", "43"), TextBlock("§text§")]],
    ids=["text", "block", "behind a result"],
)
def test_text_beside_tool_results_becomes_a_user_turn(provider: str, content: Any) -> None:
    before = [HI, calling(call("c1"), call("c2")), answering(result("c1", "42"))]
    payload = judged(ChatFormatter(provider), *before, Msg("tool", content, "tool"))
    assert "§text§" in dump(payload)
    assert roles(payload)[-1] == "user"


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_unnamed_tool_result_gets_the_fitted_id_and_name_of_its_call(provider: str) -> None:
    made = calling(call("c" * 70, "a.b"), call("c2", "f"))
    named, unnamed = (
        judged(ChatFormatter(provider), HI, made, answering(result("c" * 70, name=tool), result("c2", name=other)))
        for tool, other in (("a.b", "f"), ("", ""))
    )
    assert named == unnamed
    assert named.report == unnamed.report


@pytest.mark.slow
@pytest.mark.parametrize("provider", WITH_TOOLS)
@settings(max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), min_size=1, max_size=5, unique=True))
def test_random_call_ids_and_tool_names_are_fitted_to_the_provider(provider: str, names: list[str]) -> None:
    # Without safety, which would neutralize control sequences first.
    formatter = ChatFormatter(provider, safety="off")
    calls = [call(name, name) for name in names]
    messages = HI, calling(*calls), answering(*(result(name, f"§{at}§", name=name) for at, name in enumerate(names)))
    payload = judged(formatter, *messages)
    assert judged(formatter, *messages) == payload
    made, profile = called(payload), formatter.profile
    assert len({call_id for call_id, _ in made}) == len({name for _, name in made}) == len(names)
    for name, (new_id, new_name) in zip(names, made, strict=True):
        assert profile.ids.fullmatch(new_id)
        assert profile.tool_names.fullmatch(new_name)
        # Valid ids and names are unchanged; the others are reported.
        assert (new_id == name) == bool(profile.ids.fullmatch(name))
        assert (new_name == name) == bool(profile.tool_names.fullmatch(name))
    changed = sorted(entry.text for entry in payload.report if entry.action == "changed")
    assert changed == sorted(name for name, new in zip(names, made, strict=True) for one in new if one != name)
    found = places(dump(payload), *(f"§{at}§" for at in range(len(names))))
    assert found == sorted(found)


@formatters_of(WITH_TOOLS)
def test_each_fitted_call_id_and_tool_name_is_reported(kind: type[ChatFormatter], provider: str) -> None:
    made, profile = calling(call("c" * 70, "f"), call("c2", "a.b"), call("c" * 71, "a b")), profile_of(provider)
    results = [result(block.id, name=block.name) for block in made.blocks if isinstance(block, ToolUseBlock)]
    payload = judged(kind(provider), HI, made, answering(*results))
    changed = [(entry.kind, entry.text) for entry in payload.report if entry.action == "changed"]
    calls = [(each.id, each.name) for each in results]
    assert changed == [
        (what, given)
        for call_id, name in calls
        for what, given, pattern in (("id", call_id, profile.ids), ("name", name, profile.tool_names))
        if not pattern.fullmatch(given)
    ]
    assert {entry.where for entry in payload.report if entry.action == "changed"} <= {"messages[1]"}


def test_call_ids_with_equal_hashes_are_distinguished() -> None:
    first, second = "call_5616", "call_202104"  # their hashes are the same
    made = calling(call(first), call(second))
    payload = judged(ChatFormatter("mistral"), HI, made, answering(result(first, "§1"), result(second, "§2")))
    (one, _), (other, _) = called(payload)
    assert one != other
    assert [each.get("tool_call_id") for each in payload["messages"][-2:]] == [one, other]


def test_name_of_a_tool_message_is_not_fitted_as_a_speaker_name() -> None:
    messages = HI, calling(call("c1")), Msg("the weather!", [result("c1", "42")], "tool"), Msg("Jo Doe", "bye", "user")
    assert reported(judged(ChatFormatter("openai"), *messages), "name", "changed") == ["messages[3].name"]


@pytest.mark.parametrize("name", ["assistant", "developer", "model", "system", "tool"])
def test_speaker_name_that_is_a_role_gets_the_real_role_as_prefix(name: str) -> None:
    payload = judged(ChatFormatter("openai"), Msg(name, "hi", "user"))
    assert payload["messages"][0]["name"].startswith(f"user__{name}_")
    assert reported(payload, "name", "changed") == ["messages[0].name"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_fitting_a_name_gives_a_valid_name_and_is_idempotent(name: str) -> None:
    for profile in map(profile_of, PROVIDERS):
        for pattern, length in ((profile.ids, profile.id_length), (profile.tool_names, 64)):
            new = fitted(name, pattern, length)
            assert pattern.fullmatch(new)
            assert fitted(new, pattern, length) == new
            assert (new == name) == bool(pattern.fullmatch(name))


def test_fitted_name_is_derived_from_the_name() -> None:
    names = profile_of("openai").tool_names
    assert fitted("weather.now", names) == "weather_now_bae29a46"
    assert fitted("天气", names).startswith("x_")
    assert len({fitted(name, names) for name in ("a.b", "a b", "a:b", "a_b", "天气", "天氣", "a" * 65, "a" * 66)}) == 8


@pytest.mark.parametrize("provider", PROVIDERS)
def test_blank_texts_are_left_out_for_providers_that_refuse_them(provider: str) -> None:
    blank = [Msg("Ann", text, "user") for text in ("", " ", "\n\t ")]
    listed = [Msg("Ann", [TextBlock(" \n"), TextBlock("")], "user"), Msg("Bot", [TextBlock("")], "assistant")]
    payload = judged(ChatFormatter(provider), HI, *blank, Msg("Ann", [], "user"), BYE)
    assert reported(payload, "message") == [f"messages[{at}]" for at in range(1 if provider in NO_EMPTY else 4, 5)]
    if provider in NO_EMPTY:
        payload = judged(ChatFormatter(provider), HI, *blank, *listed, BYE)
        assert reported(payload, "message") == [f"messages[{at}]" for at in range(1, 6)]
        assert [entry.text for entry in payload.report if entry.kind == "text"] == [" ", "\n\t ", " \n"]


@formatters_of(PROVIDERS)
@pytest.mark.parametrize("arguments", [(), (None,), ([],), (None, [[], None])])
def test_conversation_without_messages_is_an_error(kind: type[ChatFormatter], provider: str, arguments: Any) -> None:
    with pytest.raises(FormatError, match="no messages to format; pass at least one"):
        kind(provider).format(*arguments)


@pytest.mark.parametrize("provider", NO_EMPTY)
def test_conversation_of_blank_messages_is_an_error_for_providers_that_refuse_blank_text(provider: str) -> None:
    with pytest.raises(FormatError, match="no message has any content; pass at least one"):
        ChatFormatter(provider).format(Msg("user", "", "user"), Msg("user", " \n", "user"))


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name not in NO_EMPTY])
def test_joined_empty_turns_stay_empty(provider: str) -> None:
    payload = judged(ChatFormatter(provider), Msg("user", "", "user"), Msg("user", "", "user"))
    assert {*texts(payload)} == {""}


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_joining_turns_leaves_the_other_turns_unchanged(provider: str) -> None:
    reply = Msg("Bot", "hello", "assistant")
    (key, plain), (_, joined) = (
        [*judged(ChatFormatter(provider), *given, reply, BYE).items()][-1] for given in ([HI], [HI, HI])
    )
    assert key in ("messages", "contents", "input")
    assert joined[-2:] == plain[-2:]


@formatters_of(PROVIDERS)
def test_system_text_is_placed_where_the_provider_accepts_it(kind: type[ChatFormatter], provider: str) -> None:
    systems = [Msg("s", f"§{at}§", cast("Role", role)) for at, role in enumerate(("system", "developer", "system"))]
    payload = judged(kind(provider), systems[0], systems[1], HI, systems[2], BYE)
    spoke = [role for role in roles(payload) if role in ("system", "developer")]
    found = places(dump(payload), *(message.text for message in systems))
    assert found == sorted(found)
    moved = ["messages[3]"]
    # One system turn for providers with one, and for merged histories.
    expected = (1, moved) if provider in ONE_SYSTEM or kind is not ChatFormatter else (3, [])
    if provider == "anthropic" and kind is ChatFormatter:
        expected = 2, moved
    assert (len(spoke), reported(payload, "text", "moved")) == expected
    if len(spoke) == 1:
        assert "§0§\\n\\n§1§\\n\\n§2§" in dump(payload)


@pytest.mark.parametrize(("provider", "known"), [("openai", True), ("litellm", True), ("xai", False), ("zhipu", False)])
def test_developer_role_becomes_system_for_providers_without_it(provider: str, known: bool) -> None:  # noqa: FBT001 - pytest hands it in
    payload = judged(ChatFormatter(provider), Msg("s", "Be brief.", "developer"), HI)
    assert payload["messages"][0]["role"] == ("developer" if known else "system")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_system_text_alone_becomes_a_user_turn_for_providers_that_need_one(provider: str) -> None:
    payload = judged(ChatFormatter(provider), Msg("s", "Be brief.", "system"))
    assert reported(payload, "text", "moved") == (["messages[0]"] if provider in NEEDS_USER else [])
    assert roles(payload) == ["user" if provider in NEEDS_USER else "system"]
    if provider in NEEDS_USER:
        assert payload == judged(ChatFormatter(provider), {"role": "user", "content": "Be brief."}), "no name either"


def test_joined_system_texts_keep_the_first_name() -> None:
    systems = [Msg("Ann", "Be brief.", "system"), Msg("Bob", "Be kind.", "developer")]
    turn = judged(ChatFormatter("vllm"), *systems, HI)["messages"][0]
    assert turn == {"role": "system", "name": "Ann", "content": "Be brief.\n\nBe kind."}


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "ollama-generate"])
def test_user_turns_are_added_first_and_last_for_providers_that_need_them(provider: str) -> None:
    system, hello = Msg("s", "Be brief.", "system"), Msg("Bot", "hello", "assistant")
    payload = judged(ChatFormatter(provider), system, hello)
    text, put = dump(payload), [FIRST_TURN] * (provider in NEEDS_USER) + [LAST_TURN] * (provider in USER_LAST)
    assert [turn for turn in (FIRST_TURN, LAST_TURN) if turn in text] == put
    # Added turns are reported.
    assert reported(payload, "message", "added") == ["messages"] * len(put)
    for messages in ([system, HI, hello, BYE], [HI, hello, HI], [HI]):
        text = dump(judged(ChatFormatter(provider), *messages))
        assert FIRST_TURN not in text
        assert LAST_TURN not in text


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_assistant_turn_is_added_between_tool_results_and_user_for_mistral_only(provider: str) -> None:
    payload = judged(ChatFormatter(provider), HI, calling(call("c1")), answering(result("c1", "42")), BYE)
    assert (AFTER_RESULTS in dump(payload)) == (provider == "mistral")
    assert reported(payload, "message", "added") == (["messages[3]"] if provider == "mistral" else [])


def test_media_of_tool_results_become_a_user_message_after_all_results() -> None:
    first, second = result("c1", IMAGE, "§1", PHOTO), result("c2", IMAGE, name="g")
    payload = judged(ChatFormatter("openai"), HI, calling(call("c1"), call("c2", "g")), answering(first, second), BYE)
    _, _, *results, shown, _ = payload["messages"]
    assert [each["content"] for each in results] == ["§1", "(image: in the next message)"]
    texts = [part.get("text") for part in shown["content"]]
    assert texts == ["(image from the tool f)", None, "(image from the tool f)", None, "(image from the tool g)", None]
    assert reported(payload, "tool_result", "moved") == ["messages[1]"]


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_joined_assistant_turns_keep_the_order_of_their_texts(provider: str) -> None:
    thought = ThinkingBlock("hm", "c2ln", provider="anthropic")
    answers = calling(TextBlock("§1")), calling(thought, TextBlock("§2"), call("c1"))
    payload = judged(ChatFormatter(provider), HI, Msg("Ann", [IMAGE], "user"), *answers)
    first, second = places(dump(payload), "§1", "§2")
    assert first < second
    assert (PNG in dump(payload)) == (provider != "deepseek")


@pytest.mark.parametrize("end", [" ", "\n", "\t \r\n", "\u00a0"])
def test_trailing_white_space_of_a_last_assistant_message_is_stripped_for_anthropic(end: str) -> None:
    for content in ("It is" + end, [TextBlock("It is" + end)], [TextBlock("It is"), TextBlock(end)]):
        payload = judged(ChatFormatter("anthropic"), HI, Msg("Bot", content, "assistant"))
        assert json.dumps(payload["messages"][-1]["content"]).count('"It is"') == 1
        assert [entry.text for entry in payload.report if entry.kind == "text"] in (["It is" + end], [end])
    # Only the last of several texts is stripped.
    blocks = [TextBlock(f"First{end}"), TextBlock("Then"), TextBlock(f"it is{end}")]
    payload = judged(ChatFormatter("anthropic"), HI, Msg("Bot", blocks, "assistant"))
    assert [part["text"] for part in payload["messages"][-1]["content"]] == [f"First{end}", "Then", "it is"]
    # Before another message, and for other providers, the text is unchanged.
    unfinished = Msg("Bot", f"It is{end}", "assistant")
    for provider, messages in (("anthropic", [HI, unfinished, BYE]), ("openai", [HI, unfinished])):
        assert judged(ChatFormatter(provider), *messages)["messages"][1]["content"] == f"It is{end}"


@pytest.mark.parametrize(
    "arguments", ['{"a": ', "[1]", '"x"', '{"a": NaN}', 5, '{"a": "\\ud83d"}', "{} x", "[" * 300 + "]" * 300]
)
@pytest.mark.parametrize("before", [HI, {"role": "user", "content": "hi"}], ids=["msg", "dict"])
def test_arguments_that_are_not_a_json_object_are_sent_as_raw_input_and_reported(before: Any, arguments: Any) -> None:
    """Such arguments were an error in a message dict, but not in a response."""
    exchange = openai_calling(openai_call("c1", "f", arguments)), {"role": "tool", "tool_call_id": "c1", "content": "?"}
    payload = judged(ChatFormatter("openai"), before, *exchange)
    (sent,) = payload["messages"][1]["tool_calls"]
    assert json.loads(sent["function"]["arguments"]) == {"raw_input": str(arguments)}
    assert [(entry.where, entry.kind, entry.action) for entry in payload.report] == [
        ("messages[1].content[0]", "tool_use", "changed")
    ]


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_call_and_result_in_one_message_are_put_in_order(provider: str) -> None:
    """The result was placed before the call, and the text between them after both."""
    message = calling(TextBlock("§1"), call("c1", q="§2"), TextBlock("§3"), result("c1", "§4"), TextBlock("§5"))
    payload = judged(ChatFormatter(provider), HI, message, BYE)
    # In OpenAI's chat form, calls are beside the content.
    in_order = provider in ("anthropic", "gemini", "openai-responses")
    found = places(dump(payload), *("§1 §2 §3 §4 §5" if in_order else "§1 §3 §2 §4 §5").split())
    assert found == sorted(found)


def test_text_before_a_tool_result_is_moved_after_it_and_reported() -> None:
    """The text was moved without a report."""
    answer = Msg("tool", [TextBlock("here:"), result("c1", "42")], "user")
    payload = judged(ChatFormatter("anthropic"), HI, calling(call("c1")), answer)
    assert [block["type"] for block in payload["messages"][-1]["content"]] == ["tool_result", "text"]
    assert reported(payload, "tool_result", "moved") == ["messages[2].content[1]"]


def test_anthropic_gets_no_unsigned_reasoning_and_no_empty_texts_or_results() -> None:
    """They were sent, and Anthropic refused them."""
    thoughts = ThinkingBlock("mine"), ThinkingBlock("signed", "c2ln")
    said_nothing = answering(result("c1", "", AudioBlock(Base64Source("audio/wav", WAV))))
    payload = judged(
        ChatFormatter("anthropic"), HI, calling(*thoughts, TextBlock(""), TextBlock("ok"), call("c1")), said_nothing
    )
    _, answer, results = payload["messages"]
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use"]
    assert results["content"] == [{"type": "tool_result", "tool_use_id": "c1"}]
    assert reported(payload, "thinking") == ["messages[1].content[0]"]
    assert reported(payload, "audio") == ["messages[2].content[0].output[1]"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("roles", ["assistant", "assistant assistant user", "user user", "user assistant assistant"])
def test_consecutive_turns_and_a_leading_assistant_turn_are_repaired(provider: str, roles: str) -> None:
    """Turns did not alternate, and the first was not a user turn."""
    messages = [Msg(role, f"§{at}§", cast("Role", role)) for at, role in enumerate(roles.split())]
    payload = judged(ChatFormatter(provider), *messages)
    found = places(dump(payload), *(message.text for message in messages))
    assert found == sorted(found)


@pytest.mark.parametrize("provider", ["openai", "litellm", "xai"])
def test_speaker_names_are_fitted_to_the_provider(provider: str) -> None:
    """Names with spaces or non-ASCII letters were sent unchanged."""
    payload = judged(ChatFormatter(provider), Msg("Dr. 李", "hi", "user"), Msg("Dr. 王", "hello", "user"))
    assert len({message["name"] for message in payload["messages"]}) == 2
    assert reported(payload, "name", "changed") == ["messages[0].name", "messages[1].name"]


def test_deepseek_keeps_a_message_of_reasoning_alone() -> None:
    """A message with nothing but reasoning was dropped."""
    messages = judged(ChatFormatter("deepseek"), HI, calling(ThinkingBlock("hm")), BYE)["messages"]
    assert messages[1] == {"role": "assistant", "content": "", "reasoning_content": "hm"}


@formatters_of(PROVIDERS)
def test_conversation_that_breaks_many_rules_is_repaired(kind: type[ChatFormatter], provider: str) -> None:
    """Each provider had its own copy of the repairs, and a fault fixed in one remained in the others."""
    late = Msg("s", "two", "system"), Msg("Bot", "", "assistant"), answering(result("c1", "§1", IMAGE))
    first = Msg("Bot", [TextBlock("§0"), call("c1"), call("天气 1", "a.b:c"), ThinkingBlock("hm")], "assistant")
    payload = judged(kind(provider), first, *late, answering(result("天气 1", "§2", name="a.b:c")), HI, HI)
    found = places(dump(payload), "§0", *(() if provider == "ollama-generate" else ("§1", "§2")))
    assert found == sorted(found)


def test_mapped_call_id_does_not_clash_with_an_existing_id() -> None:
    # A call could get the id of another call.
    def exchange(call_id: str) -> list[Msg]:
        return [HI, calling(call(call_id)), answering(result(call_id))]

    ((mapped, _),) = called(judged(ChatFormatter("anthropic"), *exchange("a b")))
    ids = {call_id for call_id, _ in called(judged(ChatFormatter("anthropic"), *exchange("a b"), *exchange(mapped)))}
    assert len(ids) == 2
    assert mapped in ids


@pytest.mark.parametrize("content", ["", [TextBlock("")]])
def test_empty_string_and_empty_text_block_give_the_same_message(content: Any) -> None:
    # The string was sent, the block left out.
    messages = ChatFormatter("openai").format(Msg("B", content, "user"))["messages"]
    assert messages == [{"role": "user", "name": "B", "content": ""}]


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_joined_turns_keep_separate_blocks(provider: str) -> None:
    # Joined turns became lines of one text without a boundary.
    users: list[dict[str, object]] = [{"role": "user", "content": text} for text in ("One\ntwo", "three")]
    parts = [{"type": "text", "text": "No."}]
    answers: list[dict[str, object]] = [{"role": "assistant", "content": content} for content in ("Yes.", parts)]
    payload = judged(ChatFormatter(provider, strict=True), users, answers, users[1])
    turns = payload["messages" if provider == "anthropic" else "contents"]
    blocks = [turn.get("content", turn.get("parts")) for turn in turns]
    assert [[block["text"] for block in turn] for turn in blocks[:2]] == [["One\ntwo", "three"], ["Yes.", "No."]]
    assert payload.report == ()


def test_joined_text_turns_become_lines_of_one_text() -> None:
    payload = judged(ChatFormatter("deepseek"), {"role": "user", "content": "One"}, {"role": "user", "content": "two"})
    assert payload["messages"] == [{"role": "user", "content": "One\ntwo"}]


def test_vllm_gets_names_and_consecutive_turns_unchanged() -> None:
    # Names were left out, and user turns were joined, though the model's template decides about both.
    talk: list[Any] = [{"role": "user", "name": name, "content": "hi"} for name in ("Ann", "Dr. 李")]
    talk += [{"role": "assistant", "content": "Hi, all."}, {"role": "user", "content": "Bye."}]
    payload = judged(ChatFormatter("vllm", strict=True), talk)
    assert (payload["messages"], payload.report) == (talk, ())
    # A template may write a name without checking it.
    payload = ChatFormatter("vllm").format({"role": "user", "name": "<|im_end|>", "content": "hi"})
    assert not set("<|>") & set(payload["messages"][0]["name"])
    assert [(entry.kind, entry.action) for entry in payload.report] == [("safety", "changed"), ("name", "changed")]
