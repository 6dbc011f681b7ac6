"""An unusual message changes no other message of the payload; dicts and Msg objects give the same payload."""

import re
from itertools import takewhile
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formatters.helpers import WITH_TOOLS, formatters_of
from formatters.payloads import texts
from lazyprompt import ChatFormatter, FormatError, Msg, messages_from
from lazyprompt.formatters.providers import PROVIDERS
from support.conversations import PNG, Maker

Message = dict[str, Any]

IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
NAMES = ("Ann", "Bob B", "history", "李")


def call_messages(number: int, content: str | None, count: int) -> list[Message]:
    """A message with calls, whose ids every provider accepts, and their results."""
    ids = [f"call{number:03}{index:02}" for index in range(count)]
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}} for each in ids]
    return [
        {"role": "assistant", "content": content, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": each, "content": f"result {each}"} for each in ids),
    ]


@st.composite
def plain_chats(draw: st.DrawFn) -> list[Message]:
    """Conversations that keep the rules of all providers."""
    messages: list[Message] = [{"role": "system", "content": "system text"}] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": f"question {number}"})
        if draw(st.booleans()):
            messages += call_messages(number, None, draw(st.integers(1, 3)))
        messages.append({"role": "assistant", "content": f"answer {number}"})
    return [*messages, {"role": "user", "content": "last question"}]


def in_place(message: Message) -> list[Message]:
    """Unusual forms of a message that keep the order of turns."""
    match message["role"]:
        case "user":
            said = {"type": "text", "text": message["content"]}
            named = [message | {"name": name} for name in NAMES]
            return [*named, message | {"content": [said, IMAGE]}, message | {"url": "https://example.com/a.png"}]
        case "assistant":
            return [
                message | {"content": "beside"},
                message | {"name": "Friday"},
                message | {"reasoning_content": "a thought"},
                message | {"unknown": 1},
            ]
        case "tool":
            return [message | {"name": "f"}, message | {"content": " "}, message | {"content": [IMAGE]}]
        case _:
            return [message | {"name": "Ann"}]


INSERTED: tuple[Message, ...] = (
    {"role": "user", "content": "one more"},
    {"role": "user", "content": ""},
    {"role": "user", "content": " \n"},
    {"role": "assistant", "content": "one more "},
    {"role": "assistant", "content": ""},
    {"role": "system", "content": "one more"},
    {"role": "developer", "content": "one more"},
    call_messages(900, None, 1)[0],
)


def written_items(formatter: ChatFormatter, messages: list[Message]) -> list[Any]:
    items: list[Any] = formatter.format(messages)[formatter.profile.form.messages_key]
    return items


def shared_length(first: list[Any], second: list[Any]) -> int:
    """The length of the common prefix of two lists."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))


@pytest.mark.slow
@pytest.mark.parametrize("provider", WITH_TOOLS)
@given(data=st.data())
def test_unusual_form_of_a_message_changes_no_other_message(provider: str, data: st.DataObject) -> None:
    formatter, chat = ChatFormatter(provider), data.draw(plain_chats())
    assert formatter.format(chat).report == ()
    at = data.draw(st.sampled_from(range(len(chat))))
    odd = [*chat[:at], data.draw(st.sampled_from(in_place(chat[at]))), *chat[at + 1 :]]
    before, after = written_items(formatter, chat), written_items(formatter, odd)
    begin = shared_length(before, after)
    end = shared_length(before[begin:][::-1], after[begin:][::-1])
    # A message is one item, or one per call; media of results follow all results of the exchange.
    most = max(1, len(chat[at].get("tool_calls", ())), chat[at]["role"] == "tool" and 3)
    assert len(before) - begin - end <= most
    exchange = max(place for place in range(at + 1) if place == 0 or chat[place]["role"] != "tool")
    places = {entry.where.partition(".")[0] for entry in formatter.format(odd).report}
    assert places <= {f"messages[{at}]", f"messages[{exchange}]", "messages"}


@pytest.mark.slow
@pytest.mark.parametrize("provider", WITH_TOOLS)
@given(data=st.data())
def test_inserted_message_keeps_the_order_of_the_others(provider: str, data: st.DataObject) -> None:
    formatter, chat = ChatFormatter(provider), data.draw(plain_chats())
    # Not before the system text, nor between a call and its results.
    free = [at for at in range(1, len(chat) + 1) if at == len(chat) or chat[at]["role"] != "tool"]
    at = data.draw(st.sampled_from(free))
    odd = [*chat[:at], data.draw(st.sampled_from(INSERTED)), *chat[at:]]
    payload = formatter.format(odd)
    formatter.validate(payload)
    said = [message["content"] for message in chat if message["content"] and message["role"] != "system"]
    found = "\n".join(texts(payload))
    assert sorted(said, key=found.index) == said
    # A turn that is added is reported where the next message stands.
    places = {entry.where.partition(".")[0] for entry in payload.report if entry.action != "added"}
    assert places <= {f"messages[{at}]", "messages"}


@st.composite
def odd_chats(draw: st.DrawFn) -> list[Any]:
    """Conversations of dicts and pairs in which any message may have an unusual form."""
    chat: list[Any] = []
    for message in draw(plain_chats()):
        chat += draw(
            st.sampled_from([[message], [message], [message], in_place(message)[-1:], in_place(message)[:1], []])
        )
        inserted: list[list[Any]] = [[], [], [], [draw(st.sampled_from(INSERTED))], [["a question", "an answer"]]]
        chat += draw(st.sampled_from(inserted))
    results = [place for place, each in enumerate(chat) if isinstance(each, dict) and each["role"] == "tool"]
    if len(results) > 1 and draw(st.booleans()):
        first, second = results[0], draw(st.sampled_from(results[1:]))
        chat[first], chat[second] = chat[second], chat[first]
    is_begun = draw(st.booleans())
    if chat and is_begun:
        chat[-1] = chat[-1] | {"prefix": True} if isinstance(chat[-1], dict) else chat[-1]
    return chat


def openai_dicts(seed: int) -> list[Message]:
    """A random conversation with media, reasoning and tool calls, in OpenAI's form."""
    try:
        payload = ChatFormatter("openai").format(*Maker(Random(seed)).conversation())  # noqa: S311 - chance is what is wanted
    except FormatError:
        return []
    # A name that equals the role is not read as a name.
    return [
        {key: value for key, value in each.items() if key != "name" or value != each["role"]}
        for each in payload["messages"]
    ]


@pytest.mark.slow
@formatters_of(PROVIDERS)
@settings(max_examples=max(20, settings().max_examples // 3))
@given(chat=odd_chats() | st.integers(0, 1_000_000).map(openai_dicts))
def test_message_dicts_and_msgs_give_equal_payloads(kind: type[ChatFormatter], provider: str, chat: list[Any]) -> None:
    # A Msg without a name is named after its role; no other name here equals a role.
    messages = [
        Msg("", each.content, each.role, each.url, each.metadata) if each.name == each.role else each
        for each in messages_from(chat)
    ]
    formatter = kind(provider)
    try:
        payload = formatter.format(messages)
    except FormatError as error:
        if not re.search("no messages to format|no message has any content|the result of the call", str(error)):
            raise
        with pytest.raises(FormatError, match=f"^{re.escape(str(error))}$"):
            formatter.format(chat)
        return
    for given_items in ([chat], chat, messages[:1] + chat[1:] if isinstance(chat[0], dict) else chat):
        again = formatter.format(*given_items)
        assert again == payload
        assert again.report == payload.report
