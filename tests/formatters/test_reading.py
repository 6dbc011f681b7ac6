"""What a formatter takes: messages in any form, and the same payload of each."""

import json
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.helpers import BYE, CALLING, HI, KINDS, openai_call, openai_calling
from formatters.payloads import called, dump, judged, places
from lazyprompt import ChatFormatter, FormatError, HistoryError, MultiAgentFormatter, ToolsError
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock
from support.conversations import JPEG, MP3, PDF, PNG
from support.paths import TESTS

PAIR = ["hi", "hello"]
HELLO = Msg("assistant", "hello", "assistant")


@pytest.mark.parametrize("provider", CALLING)
def test_media_in_dicts_are_media(provider: str) -> None:
    url = {"url": f"data:image/png;base64,{PNG}", "detail": "low"}
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": url},
        {"type": "input_audio", "input_audio": {"data": MP3, "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        # Blocks in the form of dicts may stand there too.
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
    ]
    payload = judged(ChatFormatter(provider), {"role": "user", "content": parts})
    text, media = dump(payload), ChatFormatter(provider).profile.media
    for kind, data in (("image", PNG), ("image", JPEG), ("audio", MP3)):
        assert (data in text) == (kind in media)
    if provider in ("openai", "openai-responses"):
        assert '"detail": "low"' in text


@pytest.mark.parametrize("provider", CALLING)
def test_a_call_without_an_id_gets_one_and_its_result_the_same(provider: str) -> None:
    use = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    made = {"role": "assistant", "content": None, "tool_calls": [use]}
    payload = judged(ChatFormatter(provider), HI, made, {"role": "tool", "content": "§1§"}, BYE)
    assert places(dump(payload), "§1§")
    ((call_id, name),) = called(payload)
    assert name == "f"
    assert dump(payload).count(f'"{call_id}"') == 2


@pytest.mark.parametrize("provider", CALLING)
def test_reasoning_of_a_dict_is_a_thought(provider: str) -> None:
    dicts = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok", "reasoning_content": "§hm§"}]
    thinks = Msg("assistant", [ThinkingBlock("§hm§"), TextBlock("ok")], "assistant")
    payload = judged(ChatFormatter(provider), *dicts, BYE)
    assert ("§hm§" in dump(payload)) == ("§hm§" in dump(judged(ChatFormatter(provider), HI, thinks, BYE)))
    assert ("§hm§" in dump(payload)) != any(entry.text == "§hm§" for entry in payload.report)


@pytest.mark.parametrize(
    "given",
    [
        [PAIR, BYE],
        [tuple(PAIR), BYE],
        [[PAIR, BYE]],
        [[PAIR], None, [None, [BYE]]],
        [Msg("user", "hi", "user"), HELLO, BYE],
        [[Msg("user", "hi", "user")], (HELLO, BYE)],
        [[PAIR], [{"role": "user", "name": "Ann", "content": "bye"}]],
    ],
)
@pytest.mark.parametrize("provider", ["deepseek", "anthropic", "ollama-generate"])
def test_pairs_none_and_lists_are_taken(provider: str, given: Any) -> None:
    for kind in KINDS:
        expected = judged(kind(provider), Msg("user", "hi", "user"), HELLO, BYE)
        assert judged(kind(provider), *given) == expected


NESTED: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([HI, BYE, HELLO, {"role": "user", "content": "so"}, PAIR, None]),
    lambda inner: st.lists(inner, min_size=1, max_size=3),
    max_leaves=8,
)


def flatten(item: Any) -> list[Any]:
    if item is None:
        return []
    return [item] if isinstance(item, Msg | dict) or item == PAIR else [one for each in item for one in flatten(each)]


@pytest.mark.slow
@given(NESTED)
def test_how_messages_are_nested_does_not_matter(nested: Any) -> None:
    flat = flatten(nested)
    if flat:
        assert ChatFormatter("anthropic").format(nested) == ChatFormatter("anthropic").format(*flat)


UNKNOWN_ROLES: tuple[Any, ...] = ("wizard", "User", "", None, 5)


@pytest.mark.parametrize("wrong", ["hi", 5, 5.0, b"hi", object(), {1, 2}, ["a", "b", "c"], [["a"]], [5], [[HI], "x"]])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_message_is_named(kind: type[ChatFormatter], wrong: Any) -> None:
    with pytest.raises(
        FormatError,
        match=r"has type (str|int|float|bytes|object|set); expected Msg objects, message dicts from any provider",
    ):
        kind("openai").format(HI, wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "messages[1] has no 'role'"),
        ({"content": "x"}, "messages[1] has no 'role'"),
        *(({"role": role, "content": "x"}, f"messages[1] has the unknown role {role!r}") for role in UNKNOWN_ROLES),
        ({"role": "user", "content": [{"type": "text", "txt": "x"}]}, ""),
        ({"role": "user"}, "messages[1] must contain 'content' or 'tool_calls'"),
        ({"role": "user", "content": 5}, "messages[1].content must be a list, not int"),
        ({"role": "user", "content": [5]}, "messages[1].content[0] must be a block such as"),
        ({"role": "user", "content": [{"type": 5}]}, "messages[1].content[0] has the unknown type 5"),
        ({"role": "user", "content": "hi", "name": 5}, "messages[1].name must be a string, not int"),
        ({"role": "user", "content": "\ud800"}, "messages[1]"),
        ({"role": "assistant", "tool_calls": "f"}, "messages[1].tool_calls must be a list, not str"),
        ({"role": "assistant", "content": None, "tool_calls": [5]}, "messages[1].tool_calls[0] must be a dict"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[1].tool_calls[0].function must be a dict"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[1].tool_calls[0].function has no name"),
        ({"role": "tool", "content": "42"}, "messages[1] is a tool result without 'tool_call_id'"),
    ],
)
def test_a_dict_that_is_no_message_says_where_and_why(wrong: Any, told: str) -> None:
    for kind in KINDS:
        # Behind a dict as well, where the plain dicts of OpenAI are read at once.
        for before in (HI, {"role": "user", "content": "hi"}):
            with pytest.raises(HistoryError) as error:
                kind("openai").format(before, wrong)
            assert str(error.value).startswith(told)


@pytest.mark.parametrize("provider", ["nobody", "", "OpenAI", "opena"])
def test_an_unknown_provider_names_the_known(provider: str) -> None:
    for kind in KINDS:
        with pytest.raises(
            FormatError, match=r"is unknown.*; expected one of openai, openai-responses, anthropic, gemini"
        ):
            kind(provider)


@pytest.mark.parametrize("provider", CALLING)
def test_tools_are_taken_in_any_form(provider: str) -> None:
    def weather(city: str) -> str:
        """Whether it rains.

        Args:
            city: Where.
        """
        return city

    where = {"city": {"type": "string", "description": "Where."}}
    schema = {"type": "object", "properties": where, "required": ["city"]}
    function = {"name": "weather", "description": "Whether it rains.", "parameters": schema}
    form = {"type": "function", "function": function}
    payload = judged(ChatFormatter(provider), HI, tools=[form])
    assert judged(ChatFormatter(provider), HI, tools=[weather]) == payload
    nothing: tuple[Any, ...] = (None, [], ())
    for none in nothing:
        assert "tools" not in judged(ChatFormatter(provider), HI, tools=none)


def test_tools_that_have_no_place_are_reported_or_refused() -> None:
    form = {"type": "function", "function": {"name": "f"}}
    payload = judged(ChatFormatter("ollama-generate"), HI, tools=[form])
    assert [(entry.where, entry.text) for entry in payload.report if entry.kind == "tools"] == [("tools", "f")]
    with pytest.raises(FormatError, match="^the payload would lose content: .*ollama-generate does not support tools"):
        ChatFormatter("ollama-generate", strict=True).format(HI, tools=[form])
    with pytest.raises(FormatError, match=r"tools\[1\] is named '天气', but anthropic only accepts names that match"):
        ChatFormatter("anthropic").format(HI, tools=[form, {"type": "function", "function": {"name": "天气"}}])
    with pytest.raises(FormatError, match=r"tools\[0\] has the type 'web_search', but Gemini only accepts functions"):
        ChatFormatter("gemini").format(HI, tools=[{"type": "web_search"}])
    with pytest.raises(ToolsError):
        ChatFormatter("openai").format(HI, tools=[form, form])
    own = {"type": "web_search_20250305", "name": "web_search"}
    assert ChatFormatter("anthropic").format(HI, tools=[own])["tools"] == [own]


@pytest.mark.parametrize("text", ["", " ", "hi"])
def test_dashscope_gets_text_in_one_shape(text: str) -> None:
    """An empty text was a list of parts, any other a string."""
    assert judged(ChatFormatter("dashscope"), Msg("Ann", text, "user"))["messages"][0]["content"] == text


WITHOUT_ASSERTS = """
from lazyprompt import ChatFormatter, LazyPromptError, Msg
from lazyprompt.formatters.providers import PROVIDERS
wrong = [
    lambda: Msg("Ann", 5, "user"),
    lambda: Msg("Ann", "hi", "friend"),
    lambda: Msg("Ann", [{"type": "text"}], "user"),
    lambda: ChatFormatter("nobody"),
    lambda: ChatFormatter("openai").format(),
    lambda: ChatFormatter("openai").format({"role": "nobody", "content": "hi"}),
    *(lambda p=p: ChatFormatter(p).validate({"messages": []}) for p in PROVIDERS),
]
for act in wrong:
    try:
        act()
    except LazyPromptError:
        print("refused")
print(len(wrong))
"""


@pytest.mark.slow
def test_mistakes_are_errors_without_asserts_too() -> None:
    """Messages were checked by assert statements, which python -O leaves out."""
    done = subprocess.run([sys.executable, "-O", "-c", WITHOUT_ASSERTS], check=True, capture_output=True, text=True)  # noqa: S603 - our own code
    *refused, count = done.stdout.split()
    assert refused == ["refused"] * int(count)


SAME = """
from random import Random
from support.conversations import Maker
from lazyprompt import ChatFormatter, MultiAgentFormatter
from lazyprompt.formatters.providers import PROVIDERS
for kind in (ChatFormatter, MultiAgentFormatter):
    for provider in PROVIDERS:
        for seed in (1, 2, 3, 5):
            payload = kind(provider).format(*Maker(Random(seed)).conversation())
            print(payload, payload.report)
"""


@pytest.mark.slow
def test_the_same_conversation_is_the_same_bytes_in_every_process() -> None:
    """Media had random names, so that no prompt could be cached."""
    command, settings = [sys.executable, "-c", SAME], [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("0", "1")]
    outputs = {
        subprocess.run(command, check=True, capture_output=True, cwd=TESTS, env=env).stdout  # noqa: S603 - our own code
        for env in settings
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


@pytest.mark.parametrize("arguments", [r'{"city": "\u4f60"}', '{"a": "你"}', " {} ", "", '{"a": {"b": [null, 1.5e3]}}'])
def test_unusual_arguments_arrive(arguments: str) -> None:
    made = openai_calling(openai_call("c1", "f", arguments))
    payload = judged(ChatFormatter("anthropic"), {"role": "user", "content": "hi"}, made)
    assert payload["messages"][1]["content"][0]["input"] == json.loads(arguments or "{}")


def test_calls_without_ids_in_dicts_keep_their_results() -> None:
    # Both results went to the first call, and the second was "a second result".
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    results: list[dict[str, object]] = [{"role": "tool", "content": name} for name in ("A", "B")]
    made = {"role": "assistant", "content": None, "tool_calls": calls}
    payload = judged(ChatFormatter("openai"), HI, made, *results)
    told = [(message["tool_call_id"], message["content"]) for message in payload["messages"][2:]]
    assert told == list(zip([call_id for call_id, _ in called(payload)], ("A", "B"), strict=True))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_formatters_and_payloads_can_be_pickled(provider: str) -> None:
    for formatter in (ChatFormatter(provider), MultiAgentFormatter(provider, history_style="conversation")):
        payload = formatter.format(HELLO)
        again = pickle.loads(pickle.dumps((formatter, payload)))  # noqa: S301 - our own bytes
        assert again[0].format(HELLO) == again[1] == payload
        assert again[1].report == payload.report
        again[0].validate(payload)
