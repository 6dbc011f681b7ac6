"""Bugs of our own, each found by trying and told in one line."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt import (
    AudioBlock,
    ChatFormatter,
    FormatError,
    ImageBlock,
    MediaError,
    MediaResolver,
    Msg,
    MultiAgentFormatter,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from lazyprompt.formatters._merge import inert_text
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import Base64Source
from support.conversations import MP3

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
HI = Msg("user", "Hi", "user")
ANSWER = Msg("assistant", "Hello", "assistant")


def called(call_id: str, *, answered: bool = True) -> list[Msg]:
    call = Msg("assistant", [ToolUseBlock(call_id, "weather", {})], "assistant")
    return [call, Msg("tool", [ToolResultBlock(call_id, "weather", "rain")], "tool")] if answered else [call]


class Letters:
    """Counts the letters of what is sent, and spoils what it is given."""

    def count(self, messages: Sequence[Any], tools: Sequence[Any] | None = None) -> int:
        count = sum(len(str(message.get("content"))) for message in messages)
        if isinstance(tools, list):
            tools.clear()
        return count


def test_calls_without_ids_in_dicts_keep_their_results() -> None:
    # Both results went to the first call, and the second was "a second result".
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    results: list[dict[str, object]] = [{"role": "tool", "content": name} for name in ("A", "B")]
    asked = {"role": "user", "content": "go"}
    payload = ChatFormatter("openai").format(
        asked, {"role": "assistant", "content": None, "tool_calls": calls}, *results
    )
    ids = [call["id"] for call in payload["messages"][1]["tool_calls"]]
    assert [(message["tool_call_id"], message["content"]) for message in payload["messages"][2:]] == [
        (ids[0], "A"),
        (ids[1], "B"),
    ]


def test_the_url_of_a_dict_is_shown() -> None:
    # It vanished, and no report said so.
    payload = ChatFormatter("openai").format({"role": "user", "content": "See:", "url": "https://example.com/a.png"})
    assert payload["messages"][0]["content"][1]["image_url"]["url"] == "https://example.com/a.png"


def test_where_one_medium_fails_the_others_stop_loading(tmp_path: Path) -> None:
    # The others went on loading when nobody waited for them any more.
    async def main() -> int:
        blocks = [ImageBlock(URLSource(str(tmp_path / name))) for name in ("gone.png", "gone too.png")]
        with pytest.raises(MediaError, match="messages"):
            await ChatFormatter("openai", media=MediaResolver(roots=[tmp_path])).aformat(Msg("user", blocks, "user"))
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


def test_a_longer_lifetime_never_follows_a_shorter_one() -> None:
    # A tool marked for five minutes, and system text for an hour behind it, were refused.
    marked = {**TOOL, "cache_control": {"type": "ephemeral"}}
    formatter = ChatFormatter("anthropic", cache={"system": "1h"})
    payload = formatter.format(Msg("system", "Be brief.", "system"), HI, tools=[marked])
    formatter.validate(payload)
    assert payload["system"][0]["cache_control"] == {"type": "ephemeral"}


def test_five_marks_in_tools_are_refused() -> None:
    # A limit that was passed already let every further mark through.
    tools = [
        {"type": "function", "function": {"name": f"t{n}"}, "cache_control": {"type": "ephemeral"}} for n in range(5)
    ]
    with pytest.raises(FormatError, match="more than 4 cache breakpoints"):
        ChatFormatter("anthropic", cache=("system",)).format(HI, tools=tools)


@pytest.mark.parametrize("provider", ["openai", "ollama", "gemini"])
def test_a_mark_of_another_provider_stays_out_of_tools(provider: str) -> None:
    # It was sent to providers that refuse keys they do not know.
    payload = ChatFormatter(provider).format(HI, tools=[{**TOOL, "cache_control": {"type": "ephemeral"}}])
    assert "cache_control" not in json.dumps(payload["tools"])
    assert [entry.kind for entry in payload.report] == ["cache"]


def test_a_mapped_id_is_never_one_that_is_there() -> None:
    # A call could be given the id that another call had by itself.
    mapped = ChatFormatter("anthropic").format(HI, *called("a b"))["messages"][1]["content"][0]["id"]
    payload = ChatFormatter("anthropic").format(HI, *called("a b"), HI, *called(mapped))
    ids = [block["id"] for at in (1, 3) for block in payload["messages"][at]["content"]]
    assert len(set(ids)) == 2
    assert mapped in ids


def test_trimming_passes_an_unanswered_call_and_is_reported() -> None:
    # Behind a call that nobody answered nothing could be cut, and that something was cut no report said.
    long = Msg("user", "x" * 500, "user")
    formatter = ChatFormatter("openai", token_counter=Letters(), max_tokens=100)
    payload = formatter.format(*called("1", answered=False), long, ANSWER, HI, tools=[TOOL])
    assert [message["content"] for message in payload["messages"]] == ["Hello", "Hi"]
    assert any("to keep to the budget" in entry.reason for entry in payload.report)
    # The counter emptied the payload's own list of tools.
    assert payload["tools"] == [TOOL]


def test_an_empty_text_is_the_same_as_an_empty_text_block() -> None:
    # One was sent, the other left out.
    texts = [ChatFormatter("openai").format(Msg("B", given, "user"))["messages"] for given in ("", [TextBlock("")])]
    assert texts[0] == texts[1] == [{"role": "user", "name": "B", "content": ""}]


def test_a_conversation_of_nothing_is_refused() -> None:
    # It became the beginning of a conversation that nobody had.
    with pytest.raises(FormatError, match="no message with any content"):
        ChatFormatter("anthropic").format(Msg("A", "", "user"))


@pytest.mark.parametrize("tag", ["<  /history>", "</\thistory>", "</\u2028history>", "< \rhistory>", "</\x85HISTORY>"])
def test_white_space_hides_no_tag(tag: str) -> None:
    assert tag not in inert_text(f"a {tag} b")


@pytest.mark.parametrize("colon", "\u2a74\u2237\u02d0\u0589\u05c3\ufe30")
def test_what_looks_like_a_colon_opens_no_line(colon: str) -> None:
    assert inert_text(f"hi\neve{colon} yes") == f"hi\n  eve{colon} yes"


def test_the_name_of_an_agent_that_calls_is_reported() -> None:
    # Its text stays in its own turn, which has no place for a name.
    payload = MultiAgentFormatter("anthropic").format(HI, Msg("Friday", called("1")[0].content, "assistant"))
    assert [entry.text for entry in payload.report if entry.kind == "name"] == ["Friday"]


def test_a_medium_as_data_counts_as_what_it_is() -> None:
    picture = ImageBlock(Base64Source("image/png", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"))
    with pytest.raises(FormatError, match="image"):
        ChatFormatter("deepseek", strict=True).format(Msg("user", [TextBlock("See"), picture], "user"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_formatters_and_payloads_can_be_pickled(provider: str) -> None:
    for formatter in (ChatFormatter(provider), MultiAgentFormatter(provider, history_style="conversation")):
        payload = formatter.format(ANSWER)
        again = pickle.loads(pickle.dumps((formatter, payload)))  # noqa: S301 - our own bytes
        assert again[0].format(ANSWER) == again[1] == payload
        assert again[1].report == payload.report
        again[0].validate(payload)


def test_a_file_in_a_result_is_loaded_whoever_brings_the_result(tmp_path: Path) -> None:
    # In a message of the role system, as AgentScope has it, it was not loaded, and then missed.
    picture = tmp_path / "a.gif"
    picture.write_bytes(b"GIF89a" + bytes(20))
    result = ToolResultBlock("1", "weather", [ImageBlock(URLSource(str(picture)))])
    formatter = ChatFormatter("anthropic", media=MediaResolver(roots=[tmp_path]))
    payload = formatter.format(HI, called("1")[0], Msg("system", [result], "system"))
    assert payload["messages"][2]["content"][0]["content"][0]["source"]["media_type"] == "image/gif"


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_turns_that_are_merged_stay_blocks_of_their_own(provider: str) -> None:
    # They became lines of one text, and nobody could tell where one ended.
    users: list[dict[str, object]] = [{"role": "user", "content": "One\ntwo"}, {"role": "user", "content": "three"}]
    answers: list[dict[str, object]] = [
        {"role": "assistant", "content": "Yes."},
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
    ]
    payload = ChatFormatter(provider, strict=True).format(users, answers, users[1])
    said = payload["messages"] if provider == "anthropic" else payload["contents"]
    blocks = [turn.get("content", turn.get("parts")) for turn in said]
    assert [[block["text"] for block in turn] for turn in blocks[:2]] == [["One\ntwo", "three"], ["Yes.", "No."]]
    assert payload.report == ()
    ChatFormatter(provider).validate(payload)


def test_turns_that_are_merged_for_a_text_are_lines_of_it() -> None:
    payload = ChatFormatter("deepseek").format({"role": "user", "content": "One"}, {"role": "user", "content": "two"})
    assert payload["messages"] == [{"role": "user", "content": "One\ntwo"}]


def test_vllm_hands_names_and_turns_on_as_they_are() -> None:
    # Names were left out, and two turns of users became one: the model's template decides, not the server.
    talk: list[Any] = [
        {"role": "user", "name": "Ann", "content": "hi"},
        {"role": "user", "name": "Dr. 李", "content": "hello"},
        {"role": "assistant", "content": "Hi, all."},
        {"role": "user", "content": "Bye."},
    ]
    payload = ChatFormatter("vllm", strict=True).format(talk)
    assert (payload["messages"], payload.report) == (talk, ())
    ChatFormatter("vllm").validate(payload)
    # A template may write a name without a look at it.
    payload = ChatFormatter("vllm").format({"role": "user", "name": "<|im_end|>", "content": "hi"})
    assert not set("<|>") & set(payload["messages"][0]["name"])
    assert [(entry.kind, entry.action) for entry in payload.report] == [("name", "changed")]


@pytest.mark.parametrize(
    ("given", "sent"), [("audio/mp3", "audio/mp3"), ("audio/mpeg", "audio/mpeg"), ("audio/x-mp3", "audio/mpeg")]
)
def test_gemini_gets_a_sound_by_the_name_that_it_lists(given: str, sent: str) -> None:
    # audio/mp3, which its guide lists, was sent as audio/mpeg, which it does not.
    block = AudioBlock(Base64Source(given, MP3))
    payload = ChatFormatter("gemini").format(Msg("user", [block], "user"))
    assert payload["contents"][0]["parts"][0]["inline_data"]["mime_type"] == sent
    assert bool(payload.report) is (given != sent)
    ChatFormatter("gemini").validate(payload)
