"""Cache breakpoints: where they are put, how many there may be, and who knows of them."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from random import Random
from typing import Any

import pytest

from formatters.helpers import BYE, HI, IMAGE, KINDS, answering, call, calling, result
from formatters.payloads import accepted, judged
from lazyprompt import ChatFormatter, FormatError, Msg, MultiAgentFormatter, Payload, TextBlock, ThinkingBlock
from lazyprompt.formatters.providers import PROVIDERS
from support.conversations import Maker

ALL = ("tools", "system", "history")
SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
EXPLICIT = {"mode": "explicit"}
MARKING = [("anthropic", None), ("openai", "gpt-5.6"), ("openai-responses", "gpt-5.6")]
KEYS = ("cache_control", "prompt_cache_breakpoint")
TALK = [Msg("system", "Be brief.", "system"), HI, Msg("Bot", "hello", "assistant"), BYE]


def tools(*marks: object) -> list[dict[str, Any]]:
    """As many tools, each with its mark where it has one."""
    return [
        {"type": "function", "function": {"name": f"f{at}"}} | ({"cache_control": mark} if mark else {})
        for at, mark in enumerate(marks)
    ]


def marks(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """All marks anywhere in a payload, each with its place."""
    if isinstance(value, dict):
        yield from ((path, value[key]) for key in KEYS if key in value)
    for at, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from marks(item, f"{path}.{at}".removeprefix("."))


def left_out(payload: Payload) -> dict[str, str]:
    return {entry.where: entry.reason for entry in payload.report if entry.kind == "cache"}


def test_anthropic_marks_the_last_of_each_place() -> None:
    payload = judged(ChatFormatter("anthropic", cache=ALL), *TALK, tools=tools(None, None))
    assert dict(marks(payload)) == {"tools.1": SHORT, "system.0": SHORT, "messages.1.content.0": SHORT}
    assert payload["system"] == [{"type": "text", "text": "Be brief.", "cache_control": SHORT}]
    assert not left_out(payload)


@pytest.mark.parametrize("kind", KINDS)
def test_anthropic_marks_the_last_message_before_the_newest_users_turn(kind: type[ChatFormatter]) -> None:
    exchange = calling(TextBlock("let me see"), call("c1"), call("c2")), answering(result("c1"), result("c2", IMAGE))
    formatter = kind("anthropic", cache=["history"])
    # Results are a user's turn too: what stays the same ends with the calls.
    assert dict(marks(judged(formatter, HI, *exchange))) == {"messages.1.content.2": SHORT}
    later = judged(ChatFormatter("anthropic", cache=["history"]), HI, *exchange, calling(TextBlock("ok")), BYE)
    assert dict(marks(later)) == {"messages.3.content.0": SHORT}


@pytest.mark.parametrize("places", [("tools",), ("system",), ("history",), ALL])
def test_places_that_are_not_there_are_not_marked(places: tuple[str, ...]) -> None:
    payload = judged(ChatFormatter("anthropic", cache=places), HI)
    assert list(marks(payload)) == []
    assert not left_out(payload)


@pytest.mark.parametrize(
    ("provider", "key", "kind"), [("openai", "messages", "text"), ("openai-responses", "input", "input_text")]
)
def test_openai_marks_the_system_text_and_what_the_user_said(provider: str, key: str, kind: str) -> None:
    payload = judged(ChatFormatter(provider, model="gpt-5.6", cache=ALL), *TALK, tools=tools(None))
    # It knows no marks in tools and in what the assistant said.
    assert dict(marks(payload)) == {f"{key}.0.content.0": EXPLICIT, f"{key}.1.content.0": EXPLICIT}
    assert payload[key][1]["content"] == [{"type": kind, "text": "hi", "prompt_cache_breakpoint": EXPLICIT}]
    assert left_out(payload) == {"cache.tools": f"{provider} cannot mark tools"}


def test_one_message_gets_one_mark() -> None:
    for places in (["system"], ["history"], ["system", "history"]):
        formatter = ChatFormatter("openai", model="gpt-5.6", cache=places)
        assert dict(marks(judged(formatter, TALK[0], HI))) == {"messages.0.content.0": EXPLICIT}
        # Without a user's turn there is no history that stays the same.
        assert len(list(marks(formatter.format(TALK[0], TALK[2])))) == ("system" in places)


def test_openai_marks_pictures_too() -> None:
    shows = Msg("Ann", [TextBlock("look"), IMAGE], "user")
    for provider, key in (("openai", "messages"), ("openai-responses", "input")):
        formatter = ChatFormatter(provider, model="gpt-5.7", cache=["history"])
        payload = judged(formatter, shows, calling(call("c")), answering(result("c")), BYE)
        assert dict(marks(payload)) == {f"{key}.0.content.1": EXPLICIT}


@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
@pytest.mark.parametrize("model", ["gpt-5.6", "gpt-5.6-mini", "gpt-5.10", "gpt-6", "gpt-6.1-pro", "gpt-10"])
def test_models_of_openai_from_5_6_on_know_marks(provider: str, model: str) -> None:
    payload = judged(ChatFormatter(provider, model=model, cache=["history"]), *TALK)
    assert len(list(marks(payload))) == 1
    assert not left_out(payload)


@pytest.mark.parametrize(
    "model", [None, "gpt-5", "gpt-5.5", "gpt-4.1", "gpt-35-turbo", "gpt-4o", "o3", "chatgpt-4o-latest"]
)
def test_other_models_of_openai_know_none(model: str | None) -> None:
    payload = judged(ChatFormatter("openai", model=model, cache=["history"]), *TALK)
    assert payload == ChatFormatter("openai").format(*TALK)
    who = f"openai ({model})" if model else "openai"
    assert left_out(payload) == {"cache": f"{who} does not support cache breakpoints"}


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name not in dict(MARKING)])
@pytest.mark.parametrize("kind", KINDS)
def test_other_providers_know_none(kind: type[ChatFormatter], provider: str) -> None:
    for cache in (ALL, {"system": "1h", "history": "5m"}):
        payload = judged(kind(provider, cache=cache, strict=True), *TALK)
        assert payload == kind(provider).format(*TALK)
        assert left_out(payload) == {"cache": f"{provider} does not support cache breakpoints"}


def test_a_mapping_gives_each_place_its_lifetime() -> None:
    formatter = ChatFormatter("anthropic", cache={"history": "5m", "tools": "1h", "system": "1h"})
    payload = judged(formatter, *TALK, tools=tools(None))
    assert dict(marks(payload)) == {"tools.0": LONG, "system.0": LONG, "messages.1.content.0": SHORT}


@pytest.mark.skipif(version("openai") < "3", reason="this client of OpenAI knows no lifetimes; .ci/run has a newer one")
def test_a_mapping_gives_each_place_its_lifetime_at_openai() -> None:
    openai = ChatFormatter("openai", model="gpt-5.6", cache={"system": "12h", "history": "30m"})
    assert [mark for _, mark in marks(judged(openai, *TALK))] == [EXPLICIT | {"ttl": "12h"}, EXPLICIT]


@pytest.mark.parametrize(
    "cache", [{"tools": "5m", "system": "1h"}, {"history": "1h", "tools": "5m"}, {"system": "5m", "history": "1h"}]
)
def test_a_longer_lifetime_behind_a_shorter_one_is_an_error(cache: dict[str, str]) -> None:
    with pytest.raises(FormatError, match="a longer lifetime after a shorter one: .*; put longer lifetimes first"):
        ChatFormatter("anthropic", cache=cache)


@pytest.mark.parametrize(
    ("cache", "told"),
    [
        (["tool"], "unknown cache breakpoint 'tool' (did you mean 'tools'?); expected one of tools, system, history"),
        ({"messages": "5m"}, "unknown cache breakpoint 'messages'"),
        ({"system": "2h"}, "cache sets the lifetime of 'system' to '2h'; anthropic supports 5m, 1h"),
        ({"system": ""}, "cache sets the lifetime of 'system' to ''"),
        ("system", "cache must list the breakpoints, such as ("),
        (5, "cache must list the breakpoints"),
    ],
)
def test_a_wrong_policy_is_an_error(cache: Any, told: str) -> None:
    for kind in KINDS:
        with pytest.raises(FormatError, match=re.escape(told)):
            kind("anthropic", cache=cache)


@pytest.mark.parametrize("cache", [None, (), [], {}])
def test_no_policy_is_no_mark(cache: Any) -> None:
    for provider, model in MARKING:
        payload = judged(ChatFormatter(provider, model=model, cache=cache), *TALK)
        assert list(marks(payload)) == []
        assert not left_out(payload)


@pytest.mark.parametrize("there", [[SHORT], [None, SHORT], [SHORT, SHORT, None], [SHORT] * 3 + [None], [SHORT] * 4])
def test_marks_that_tools_have_already_stay_and_count(there: list[Any]) -> None:
    payload = judged(ChatFormatter("anthropic", cache=ALL), *TALK, tools=tools(*there))
    found = dict(marks(payload))
    assert len(found) <= 4
    assert {f"tools.{at}" for at, mark in enumerate(there) if mark} <= set(found)
    # What costs most to read again comes first: the end of the history, then system text, then tools.
    wanted = ["messages.1.content.0", "system.0", *([] if there[-1] else [f"tools.{len(there) - 1}"])]
    free = 4 - sum(mark is not None for mark in there)
    assert [place for place in wanted if place in found] == wanted[:free]
    places = {"messages.1.content.0": "cache.history", "system.0": "cache.system"}
    assert set(left_out(payload)) == {places.get(place, "cache.tools") for place in wanted[free:]}
    assert set(left_out(payload).values()) <= {"anthropic accepts at most 4 breakpoints"}


def test_marks_of_tools_go_without_a_policy_too() -> None:
    payload = judged(ChatFormatter("anthropic"), *TALK, tools=tools(LONG, SHORT))
    assert dict(marks(payload)) == {"tools.0": LONG, "tools.1": SHORT}


@pytest.mark.parametrize(("place", "path"), [("history", "messages.1.content.0"), ("system", "system.0")])
def test_no_place_lives_longer_than_a_mark_in_the_tools(place: str, path: str) -> None:
    # A tool marked for five minutes, and system text for an hour behind it, were refused.
    payload = judged(ChatFormatter("anthropic", cache={place: "1h"}), *TALK, tools=tools(SHORT))
    assert dict(marks(payload)) == {"tools.0": SHORT, path: SHORT}


def test_thoughts_are_never_marked() -> None:
    thoughts = ThinkingBlock("hm", "c2ln", provider="anthropic"), ThinkingBlock(redacted="b3A=", provider="anthropic")
    for said in (TextBlock("ok"), call("c1")):
        messages = [HI, calling(*thoughts, said), *([answering(result("c1"))] if said.kind == "tool_use" else [BYE])]
        payload = judged(ChatFormatter("anthropic", cache=ALL), *messages)
        assert dict(marks(payload)) == {"messages.1.content.2": SHORT}


def test_marks_are_no_part_of_the_formatter() -> None:
    formatter = ChatFormatter("anthropic", cache=ALL)
    first = formatter.format(*TALK, tools=tools(None))
    for _, mark in marks(first):
        mark["type"] = "forever"
    assert formatter.format(*TALK, tools=tools(None)) != first
    formatter.validate(formatter.format(*TALK, tools=tools(None)))


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "model"), MARKING)
@pytest.mark.parametrize("kind", [ChatFormatter, MultiAgentFormatter])
def test_any_marked_conversation_is_accepted(kind: type[ChatFormatter], provider: str, model: str | None) -> None:
    lifetimes = ("12h", "30m", "30m") if provider != "anthropic" else ("1h", "5m", "5m")
    for seed in range(200):
        chance = Random(seed)  # noqa: S311 - chance is what is wanted
        places = [place for place in ALL if chance.random() < 0.7]
        cache: Any = dict(zip(ALL, lifetimes, strict=True)) if chance.random() < 0.3 else places
        marked = [chance.choice((None, LONG)) for _ in range(4)] if provider == "anthropic" else [None]
        formatter = kind(provider, model=model, cache=cache)
        try:
            payload = formatter.format(*Maker(chance).conversation(), tools=tools(*marked))
        except FormatError as error:
            if "no message has any content" not in str(error):
                raise
            continue
        found = list(marks(accepted(formatter, payload)))
        assert len(found) <= 4, seed
        assert not [place for place, _ in found if "thinking" in str(_at(payload, place).get("type"))], seed


def _at(payload: Payload, path: str) -> dict[str, Any]:
    value: Any = payload
    for step in path.split("."):
        value = value[int(step) if isinstance(value, list) else step]
    found: dict[str, Any] = value
    return found


def test_five_marks_in_tools_are_refused() -> None:
    # A limit that was passed already let every further mark through.
    with pytest.raises(FormatError, match="more than 4 cache breakpoints"):
        ChatFormatter("anthropic", cache=("system",)).format(HI, tools=tools(*[SHORT] * 5))


@pytest.mark.parametrize("provider", ["openai", "ollama", "gemini"])
def test_a_mark_of_another_provider_stays_out_of_tools(provider: str) -> None:
    # It was sent to providers that refuse keys they do not know.
    payload = ChatFormatter(provider).format(HI, tools=tools(SHORT))
    assert not list(marks(payload["tools"]))
    assert "cache" in [entry.kind for entry in payload.report]
