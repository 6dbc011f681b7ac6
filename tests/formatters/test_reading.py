"""Input of formatters: messages in any form give the same payload."""

import json
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.helpers import BYE, HI, KINDS, WITH_TOOLS, openai_call, openai_calling
from formatters.payloads import called, dump, judged, places
from lazyprompt import ChatFormatter, FormatError, HistoryError, MultiAgentFormatter, ToolsError
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock
from support.conversations import JPEG, MP3, PDF, PNG
from support.paths import TESTS

PAIR = ["hi", "hello"]
HELLO = Msg("assistant", "hello", "assistant")


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_media_parts_of_message_dicts_are_sent_as_media(provider: str) -> None:
    url = {"url": f"data:image/png;base64,{PNG}", "detail": "low"}
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": url},
        {"type": "input_audio", "input_audio": {"data": MP3, "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        # Blocks as dicts are accepted too.
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
    ]
    payload = judged(ChatFormatter(provider), {"role": "user", "content": parts})
    text, media = dump(payload), ChatFormatter(provider).profile.media
    for kind, data in (("image", PNG), ("image", JPEG), ("audio", MP3)):
        assert (data in text) == (kind in media)
    if provider in ("openai", "openai-responses"):
        assert '"detail": "low"' in text


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_call_without_an_id_gets_the_same_id_as_its_result(provider: str) -> None:
    use = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    made = {"role": "assistant", "content": None, "tool_calls": [use]}
    payload = judged(ChatFormatter(provider), HI, made, {"role": "tool", "content": "§1§"}, BYE)
    assert places(dump(payload), "§1§")
    ((call_id, name),) = called(payload)
    assert name == "f"
    assert dump(payload).count(f'"{call_id}"') == 2


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_reasoning_content_of_a_message_dict_is_sent_as_reasoning(provider: str) -> None:
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
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_none_and_nested_lists_are_accepted(kind: type[ChatFormatter], provider: str, given: Any) -> None:
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
def test_nesting_of_message_lists_does_not_change_the_payload(nested: Any) -> None:
    flat = flatten(nested)
    if flat:
        assert ChatFormatter("anthropic").format(nested) == ChatFormatter("anthropic").format(*flat)


UNKNOWN_ROLES: tuple[Any, ...] = ("wizard", "User", "", None, 5)


@pytest.mark.parametrize("wrong", ["hi", 5, 5.0, b"hi", object(), {1, 2}, ["a", "b", "c"], [["a"]], [5], [[HI], "x"]])
@pytest.mark.parametrize("kind", KINDS)
def test_invalid_message_error_names_its_type(kind: type[ChatFormatter], wrong: Any) -> None:
    with pytest.raises(
        FormatError,
        match=r"has type (str|int|float|bytes|object|set); expected Msg objects, message dicts from any provider",
    ):
        kind("openai").format(HI, wrong)


@pytest.mark.parametrize(
    ("wrong", "reason"),
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
@pytest.mark.parametrize("kind", KINDS)
# Plain OpenAI dicts are read by a faster path.
@pytest.mark.parametrize("before", [HI, {"role": "user", "content": "hi"}], ids=["msg", "dict"])
def test_invalid_message_dict_error_has_the_place_and_reason(kind: Any, before: Any, wrong: Any, reason: str) -> None:
    with pytest.raises(HistoryError) as error:
        kind("openai").format(before, wrong)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize("provider", ["nobody", "", "OpenAI", "opena"])
@pytest.mark.parametrize("kind", KINDS)
def test_unknown_provider_error_lists_the_known_providers(kind: type[ChatFormatter], provider: str) -> None:
    with pytest.raises(FormatError, match=r"is unknown.*; expected one of openai, openai-responses, anthropic, gemini"):
        kind(provider)


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_tools_are_accepted_as_dicts_and_as_functions(provider: str) -> None:
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


def test_unsupported_tools_are_reported_or_refused() -> None:
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
def test_dashscope_text_content_is_always_a_string(text: str) -> None:
    """An empty text became a list of parts, any other text a string."""
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
def test_invalid_input_is_refused_when_python_skips_asserts() -> None:
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
def test_payload_is_identical_in_every_process() -> None:
    """Media had random names, so no prompt could be cached."""
    command, settings = [sys.executable, "-c", SAME], [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("0", "1")]
    outputs = {
        subprocess.run(command, check=True, capture_output=True, cwd=TESTS, env=env).stdout  # noqa: S603 - our own code
        for env in settings
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


@pytest.mark.parametrize("arguments", [r'{"city": "\u4f60"}', '{"a": "你"}', " {} ", "", '{"a": {"b": [null, 1.5e3]}}'])
def test_unusual_json_arguments_are_sent_as_an_object(arguments: str) -> None:
    made = openai_calling(openai_call("c1", "f", arguments))
    payload = judged(ChatFormatter("anthropic"), {"role": "user", "content": "hi"}, made)
    assert payload["messages"][1]["content"][0]["input"] == json.loads(arguments or "{}")


def test_calls_without_ids_are_matched_with_their_results_in_order() -> None:
    # Both results were matched with the first call, and the second was refused as "a second result".
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    results: list[dict[str, object]] = [{"role": "tool", "content": name} for name in ("A", "B")]
    made = {"role": "assistant", "content": None, "tool_calls": calls}
    payload = judged(ChatFormatter("openai"), HI, made, *results)
    reason = [(message["tool_call_id"], message["content"]) for message in payload["messages"][2:]]
    assert reason == list(zip([call_id for call_id, _ in called(payload)], ("A", "B"), strict=True))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_formatters_and_payloads_can_be_pickled(provider: str) -> None:
    for formatter in (ChatFormatter(provider), MultiAgentFormatter(provider, history_style="conversation")):
        payload = formatter.format(HELLO)
        again = pickle.loads(pickle.dumps((formatter, payload)))  # noqa: S301 - our own bytes
        assert again[0].format(HELLO) == again[1] == payload
        assert again[1].report == payload.report
        again[0].validate(payload)
