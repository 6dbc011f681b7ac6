import copy
import json
import pickle
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import ChatFormatter, messages_from
from lazyprompt._base.roles import LANGCHAIN_WORDS
from lazyprompt.errors import HistoryError, MediaError
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.messages.msg import ImageBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from lazyprompt.messages.openai_form import openai_dicts


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": name}} | more]}


def turns(*texts: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 9, texts, strict=False)]


PAIRS = [["你好", "hi"], ("how", "so")]
FORMS: dict[str, Any] = {
    "pairs": PAIRS,
    "plain dicts": turns("你好", "hi", "how", "so"),
    "messages": messages_from(PAIRS),  # type: ignore[arg-type]
    "a mixture": [PAIRS[0], Msg("user", "how", "user"), {"role": "assistant", "content": "so"}],
    "a tuple": tuple(PAIRS),
    "dicts with a further key": [turn | {"refusal": None} for turn in turns("你好", "hi", "how", "so")],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_input_form_gives_the_same_history(form: Any) -> None:
    before = copy.deepcopy(form)
    history = History.of(form)
    assert history == History.of(PAIRS)  # type: ignore[arg-type]
    assert hash(history) == hash(History.of(PAIRS))  # type: ignore[arg-type]
    expected = [("user", "你好"), ("assistant", "hi"), ("user", "how"), ("assistant", "so")]
    assert [(message.role, message.content) for message in messages_from(form)] == expected
    assert openai_dicts(history.messages) == turns("你好", "hi", "how", "so")
    assert form == before


# A tuple that begins with the name of a role is a LangChain message.
QUESTIONS = st.text(min_size=1).filter(lambda text: text not in LANGCHAIN_WORDS)


@pytest.mark.slow
@given(st.lists(st.tuples(QUESTIONS, st.text())))
def test_question_answer_pairs_round_trip_through_the_history(pairs: list[tuple[str, str]]) -> None:
    history = History.of(pairs)
    texts = [message.text for message in history.messages]
    assert list(zip(texts[::2], texts[1::2], strict=True)) == pairs
    assert [turn["content"] for turn in openai_dicts(history.messages)] == [text for pair in pairs for text in pair]
    assert History.of(openai_dicts(history.messages)) == history
    assert History.of(history.messages) == history


@pytest.mark.parametrize("nothing", ["", None])
@pytest.mark.parametrize("pair", [list, tuple])
def test_pair_with_an_empty_question_becomes_an_assistant_message_only(pair: Any, nothing: Any) -> None:
    """A prompter silently left out the empty user message, a formatter sent it."""
    assert History.of([pair((nothing, "Hello!")), ["Hi", "So?"]]).messages == (
        Msg("assistant", "Hello!", "assistant"),
        Msg("user", "Hi", "user"),
        Msg("assistant", "So?", "assistant"),
    )


@pytest.mark.parametrize("nothing", [None, [], (), EMPTY_HISTORY])
def test_none_and_empty_sources_give_the_empty_history(nothing: Any) -> None:
    history = History.of(nothing)
    assert history is EMPTY_HISTORY
    assert not history
    assert history.messages == ()
    assert openai_dicts(history.messages) == []
    assert not history.awaits_answer


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_history_can_be_pickled_and_copied(form: Any) -> None:
    history = History.of(form)
    for twin in (pickle.loads(pickle.dumps(history)), copy.deepcopy(history)):  # noqa: S301 - our own bytes
        assert twin == history
        assert openai_dicts(twin.messages) == openai_dicts(history.messages)
    assert not hasattr(history, "__dict__")


def test_history_shares_no_objects_with_its_source_or_its_output() -> None:
    given: Any = [
        ["a", "b"],
        call("f", id="1"),
        {"role": "tool", "tool_call_id": "1", "content": "x", "k": {"v": [1]}},
    ]
    history = History.of(given)
    expected = json.dumps(openai_dicts(history.messages))
    given[0][1] = "changed"
    given[1]["tool_calls"].clear()
    given[2]["k"]["v"].append(2)
    out: Any = openai_dicts(history.messages)
    out[2]["tool_calls"][0]["function"]["name"] = "changed"
    out[3]["k"]["v"].append(3)
    assert json.dumps(openai_dicts(history.messages)) == expected


def test_histories_are_concatenated_with_plus() -> None:
    pairs, more, messages = History.of([("a", "b")]), History.of([("c", "d")]), History.of([Msg("Bob", "e", "user")])
    assert (pairs + EMPTY_HISTORY is History.of(pairs) is pairs, pairs.awaits_answer) == (True, False)
    assert EMPTY_HISTORY + pairs is pairs
    assert [message.text for message in (pairs + more).messages] == ["a", "b", "c", "d"]
    assert [message.content for message in (pairs + messages).messages] == ["a", "b", "e"]
    assert [message.content for message in (messages + pairs).messages] == ["e", "a", "b"]


def test_history_is_unequal_to_other_histories_and_to_plain_lists() -> None:
    assert History.of([("a", "b")]) != History.of([("a", "c")])
    thing: object = [("a", "b")]
    assert History.of([("a", "b")]) != thing


def test_repr_of_a_history_shows_its_messages() -> None:
    assert repr(History.of([("a", "b")])) == (
        f"History([{Msg('user', 'a', 'user')!r}, {Msg('assistant', 'b', 'assistant')!r}])"
    )


@pytest.mark.parametrize(
    ("last", "waits"),
    [
        *((["a", "b"], False), ({"role": "user", "content": "a"}, True)),
        ({"role": "tool", "tool_call_id": "1", "content": "x"}, True),
        (Msg("system", (ToolResultBlock("1", "f", "x"),), "system"), True),
        ({"role": "system", "content": "a"}, False),
        (Msg("Friday", (TextBlock("a"), ToolUseBlock("1", "f")), "assistant"), False),
    ],
)
def test_awaits_answer_depends_on_the_last_message(last: Any, waits: bool) -> None:  # noqa: FBT001 - a parameter
    assert History.of([["a", "b"], call("f", id="1"), last]).awaits_answer is waits


def result_ids(history: Any) -> list[str]:
    return [b.id for message in messages_from(history) for b in message.blocks if isinstance(b, ToolResultBlock)]


def test_tool_result_without_an_id_answers_the_oldest_open_call() -> None:
    two = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}, {"function": {"name": "g"}}]}
    given = [two, {"role": "tool", "content": "1"}, call("h", id="c"), *[{"role": "tool", "content": "2"}] * 2]
    assert result_ids(given) == ["a", "call_without_id_1", "c"]


def test_tool_result_with_an_id_answers_the_call_with_that_id() -> None:
    given = [call("f", id="a"), call("g", id="b"), {"role": "tool", "tool_call_id": "a", "content": "1"}]
    assert result_ids([*given, {"role": "tool", "content": "2"}]) == ["a", "b"]


def test_tool_result_block_in_a_message_or_a_pair_answers_its_call() -> None:
    calls = call("f", id="a"), call("g", id="b"), call("h", id="c")
    answered = [Msg("system", (ToolResultBlock("a", "f", "1"),), "system"), ([ToolResultBlock("b", "g", "2")], "fine")]
    assert result_ids([*calls, *answered, {"role": "tool", "content": "3"}]) == ["a", "b", "c"]


def test_tool_result_without_an_open_call_is_refused() -> None:
    answered = [call("f", id="a"), {"role": "tool", "tool_call_id": "a", "content": "1"}]
    with pytest.raises(HistoryError, match=r"^history\[2\] is a tool result without 'tool_call_id', and no call is"):
        messages_from([*answered, {"role": "tool", "content": "2"}])


def test_pair_may_contain_content_blocks() -> None:
    picture = ImageBlock(URLSource("https://example.org/a.png"))
    user, assistant = messages_from([([{"type": "text", "text": "look"}, picture], "nice")])  # type: ignore[list-item]
    assert user == Msg("user", (TextBlock("look"), picture), "user")
    assert assistant == Msg("assistant", "nice", "assistant")


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (["a", "b", "c"], "contains 3 items; a pair must be [question, answer]"),
        *((["a"], "contains 1 items; a pair must be"), ([], "contains 0 items; a pair must be")),
        (["a", None], ": the assistant content of the pair must be a string or a list of blocks, not NoneType"),
        ([5, "b"], ": the user content of the pair must be a string or a list of blocks, not int"),
        (["a", {"role": "x"}], ": the assistant content of the pair must be a string or a list of blocks, not dict"),
        (["a", [5]], ".content[0] must be a block such as TextBlock or {'type': 'text', ...}, not int"),
        ("ab", "must be a pair [question, answer], a message dict"),
        (5, "must be a pair [question, answer], a message dict"),
        *((None, "must be a pair [question, answer], a message dict"), ({}, "has no 'role'")),
        ({"role": "user"}, "must contain 'content' or 'tool_calls'"),
        ({"role": "robot", "content": "x"}, "has the unknown role 'robot'"),
        ({"role": "user", "content": [{"type": "text"}]}, ": invalid fields for TextBlock (type)"),
        ({"role": "user", "content": [{"type": "text", "text": "\ud800"}]}, ": the text of a TextBlock has a lone"),
        (["a", "\ud800"], ": the message from 'assistant' has a lone surrogate"),
        ({"role": "user", "content": "\ud800"}, ": the message from 'user' has a lone surrogate"),
        ({"role": "assistant", "content": "\udc00"}, ": the message from 'assistant' has a lone surrogate"),
        ({"role": "assistant", "content": 5}, ".content must be a list, not int"),
    ],
)
@pytest.mark.parametrize("before", [[], [("a", "b")] * 3, [Msg("user", "a", "user")], turns("a"), turns("a", "b", "c")])
def test_malformed_history_item_is_refused_with_its_index(item: Any, error: str, before: list[Any]) -> None:
    with pytest.raises(HistoryError) as caught:
        History.of([*before, item])
    assert str(caught.value).startswith(f"history[{len(before)}]{' ' if error[0] not in ':.' else ''}{error}")


LONE = "lone \ud800"


@pytest.mark.parametrize("place", ["name", "content", "id", "function", "arguments", "beside calls", "result", "tool"])
def test_lone_surrogate_is_refused_in_every_field_of_a_message_dict(place: str) -> None:
    """The name of a message with tool calls was accepted with a lone surrogate."""
    function = {"name": "f", "arguments": "{}"}
    call: dict[str, Any] = {"id": "c1", "type": "function", "function": function}
    calling: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    result: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    broken = {
        "name": {"role": "user", "name": LONE, "content": "x"},
        "content": {"role": "user", "name": "Bob", "content": LONE},
        "id": {**calling, "tool_calls": [{**call, "id": LONE}]},
        "function": {**calling, "tool_calls": [{**call, "function": {**function, "name": LONE}}]},
        "arguments": {**calling, "tool_calls": [{**call, "function": {**function, "arguments": f'{{"a": "{LONE}"}}'}}]},
        "beside calls": {**calling, "name": LONE},
        "result": {**result, "tool_call_id": LONE},
        "tool": {**result, "name": LONE},
    }[place]
    with pytest.raises(HistoryError, match=r"^history\[0\].* has a lone surrogate"):
        History.of([broken])


@pytest.mark.parametrize("form", [turns("a", "b", "c"), turns("a", "b")[::-1], turns("a", "b") + turns("c", "d")[::-1]])
def test_message_dicts_with_roles_in_any_order_are_read(form: Any) -> None:
    assert openai_dicts(History.of(form).messages) == form


def test_message_dicts_mixed_with_other_forms_are_read() -> None:
    mixed: list[Any] = [*turns("a", "b"), ["c", "d"], Msg("user", "e", "user")]
    assert [message.content for message in messages_from(mixed)] == ["a", "b", "c", "d", "e"]


def test_malformed_media_source_is_refused_with_the_index_of_its_message() -> None:
    bad = {"role": "user", "content": [{"type": "image", "source": {"type": "ftp"}}]}
    with pytest.raises(MediaError, match=r"^history\[1\]: unknown source type 'ftp'"):
        History.of([("a", "b"), bad])


@pytest.mark.parametrize("given", ["ab", {"role": "user"}, 5, iter([("a", "b")]), {("a", "b")}])
def test_history_that_is_no_list_is_refused(given: Any) -> None:
    with pytest.raises(HistoryError, match=f"^a history must be a list, not {type(given).__name__}; each"):
        History.of(given)


@pytest.mark.parametrize("read", [messages_from, ChatFormatter("openai").format])
def test_defaultdict_message_is_not_changed(read: Any) -> None:
    """Reading looked up the missing content, which added it to the caller's dict."""
    given = defaultdict(str, role="assistant", tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
    before = copy.deepcopy(given)
    read([{"role": "user", "content": "a"}, given, {"role": "tool", "tool_call_id": "c", "content": "b"}])
    assert given == before
