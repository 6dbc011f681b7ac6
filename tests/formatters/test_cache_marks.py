"""Cache breakpoints: where they are set, how many are accepted, and by which providers."""

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
from lazyprompt.messages.msg import Block
from support.conversations import Maker

ALL = ("tools", "system", "history")
SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
EXPLICIT = {"mode": "explicit"}
MARKING = [("anthropic", None), ("openai", "gpt-5.6"), ("openai-responses", "gpt-5.6")]
# The stable history of TALK ends with the turn before its newest user turn.
LAST = "messages.1.content.0"
LONGER_LATER = "cache has a longer lifetime after a shorter one: {}; put longer lifetimes first"
KEYS = ("cache_control", "prompt_cache_breakpoint")
TALK = [Msg("system", "Be brief.", "system"), HI, Msg("Bot", "hello", "assistant"), BYE]


def tools(*marks: object) -> list[dict[str, Any]]:
    """One tool per argument, each with its breakpoint, if any."""
    return [
        {"type": "function", "function": {"name": f"f{at}"}} | ({"cache_control": mark} if mark else {})
        for at, mark in enumerate(marks)
    ]


def marks(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """All breakpoints in a payload, each with its path."""
    if isinstance(value, dict):
        yield from ((path, value[key]) for key in KEYS if key in value)
    for at, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from marks(item, f"{path}.{at}".removeprefix("."))


def left_out(payload: Payload) -> dict[str, str]:
    return {entry.where: entry.reason for entry in payload.report if entry.kind == "cache"}


def test_anthropic_breakpoint_is_set_on_the_last_item_of_each_place() -> None:
    payload = judged(ChatFormatter("anthropic", cache=ALL), *TALK, tools=tools(None, None))
    assert dict(marks(payload)) == {"tools.1": SHORT, "system.0": SHORT, LAST: SHORT}
    assert payload["system"] == [{"type": "text", "text": "Be brief.", "cache_control": SHORT}]
    assert not left_out(payload)


@pytest.mark.parametrize("kind", KINDS)
def test_anthropic_history_breakpoint_is_set_before_the_newest_user_turn(kind: type[ChatFormatter]) -> None:
    exchange = calling(TextBlock("let me see"), call("c1"), call("c2")), answering(result("c1"), result("c2", IMAGE))
    formatter = kind("anthropic", cache=["history"])
    # Results are a user turn too, so the stable history ends with the calls.
    assert dict(marks(judged(formatter, HI, *exchange))) == {"messages.1.content.2": SHORT}
    later = judged(ChatFormatter("anthropic", cache=["history"]), HI, *exchange, calling(TextBlock("ok")), BYE)
    assert dict(marks(later)) == {"messages.3.content.0": SHORT}


@pytest.mark.parametrize("places", [("tools",), ("system",), ("history",), ALL])
def test_missing_tools_system_text_and_history_get_no_breakpoint(places: tuple[str, ...]) -> None:
    payload = judged(ChatFormatter("anthropic", cache=places), HI)
    assert list(marks(payload)) == []
    assert not left_out(payload)


@pytest.mark.parametrize(
    ("provider", "key", "kind"), [("openai", "messages", "text"), ("openai-responses", "input", "input_text")]
)
def test_openai_breakpoints_are_set_on_system_text_and_user_messages(provider: str, key: str, kind: str) -> None:
    payload = judged(ChatFormatter(provider, model="gpt-5.6", cache=ALL), *TALK, tools=tools(None))
    # OpenAI supports no breakpoints in tools and assistant messages.
    assert dict(marks(payload)) == {f"{key}.0.content.0": EXPLICIT, f"{key}.1.content.0": EXPLICIT}
    assert payload[key][1]["content"] == [{"type": kind, "text": "hi", "prompt_cache_breakpoint": EXPLICIT}]
    assert left_out(payload) == {"cache.tools": f"{provider} cannot mark tools"}


@pytest.mark.parametrize("places", [["system"], ["history"], ["system", "history"]])
def test_message_gets_at_most_one_breakpoint(places: list[str]) -> None:
    formatter = ChatFormatter("openai", model="gpt-5.6", cache=places)
    assert dict(marks(judged(formatter, TALK[0], HI))) == {"messages.0.content.0": EXPLICIT}
    # Without a user turn there is no stable history.
    assert len(list(marks(formatter.format(TALK[0], TALK[2])))) == ("system" in places)


@pytest.mark.parametrize(("provider", "key"), [("openai", "messages"), ("openai-responses", "input")])
def test_openai_breakpoint_is_set_on_an_image(provider: str, key: str) -> None:
    shows = Msg("Ann", [TextBlock("look"), IMAGE], "user")
    formatter = ChatFormatter(provider, model="gpt-5.7", cache=["history"])
    payload = judged(formatter, shows, calling(call("c")), answering(result("c")), BYE)
    assert dict(marks(payload)) == {f"{key}.0.content.1": EXPLICIT}


@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
@pytest.mark.parametrize("model", ["gpt-5.6", "gpt-5.6-mini", "gpt-5.10", "gpt-6", "gpt-6.1-pro", "gpt-10"])
def test_openai_models_from_gpt_5_6_on_support_breakpoints(provider: str, model: str) -> None:
    payload = judged(ChatFormatter(provider, model=model, cache=["history"]), *TALK)
    assert len(list(marks(payload))) == 1
    assert not left_out(payload)


@pytest.mark.parametrize(
    "model", [None, "gpt-5", "gpt-5.5", "gpt-4.1", "gpt-35-turbo", "gpt-4o", "o3", "chatgpt-4o-latest"]
)
def test_other_openai_models_support_no_breakpoints(model: str | None) -> None:
    payload = judged(ChatFormatter("openai", model=model, cache=["history"]), *TALK)
    assert payload == ChatFormatter("openai").format(*TALK)
    who = f"openai ({model})" if model else "openai"
    assert left_out(payload) == {"cache": f"{who} does not support cache breakpoints"}


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name not in dict(MARKING)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", [ALL, {"system": "1h", "history": "5m"}])
def test_other_providers_support_no_breakpoints(kind: type[ChatFormatter], provider: str, cache: Any) -> None:
    payload = judged(kind(provider, cache=cache, strict=True), *TALK)
    assert payload == kind(provider).format(*TALK)
    assert left_out(payload) == {"cache": f"{provider} does not support cache breakpoints"}


@pytest.mark.parametrize(
    ("cache", "there", "expected"),
    [
        ({"history": "5m", "tools": "1h", "system": "1h"}, [None], {"tools.0": LONG, "system.0": LONG, LAST: SHORT}),
        (None, [LONG, SHORT], {"tools.0": LONG, "tools.1": SHORT}),
        # Anthropic refused a five-minute breakpoint in a tool before a one-hour one in system text.
        ({"history": "1h"}, [SHORT], {"tools.0": SHORT, LAST: SHORT}),
        ({"system": "1h"}, [SHORT], {"tools.0": SHORT, "system.0": SHORT}),
    ],
)
def test_cache_mapping_and_breakpoints_in_tools_set_the_lifetimes(cache: Any, there: Any, expected: Any) -> None:
    assert dict(marks(judged(ChatFormatter("anthropic", cache=cache), *TALK, tools=tools(*there)))) == expected


@pytest.mark.skipif(version("openai") < "3", reason="this client of OpenAI knows no lifetimes; .ci/run has a newer one")
def test_cache_mapping_sets_the_lifetime_of_each_openai_breakpoint() -> None:
    openai = ChatFormatter("openai", model="gpt-5.6", cache={"system": "12h", "history": "30m"})
    assert [mark for _, mark in marks(judged(openai, *TALK))] == [EXPLICIT | {"ttl": "12h"}, EXPLICIT]


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (["tool"], "unknown cache breakpoint 'tool' (did you mean 'tools'?); expected one of tools, system, history"),
        ({"messages": "5m"}, "unknown cache breakpoint 'messages'"),
        ({"system": "2h"}, "cache sets the lifetime of 'system' to '2h'; anthropic supports 5m, 1h"),
        ({"system": ""}, "cache sets the lifetime of 'system' to ''"),
        ("system", "cache must list the breakpoints, such as ("),
        (5, "cache must list the breakpoints"),
        ({"tools": "5m", "system": "1h"}, LONGER_LATER.format({"tools": "5m", "system": "1h"})),
        ({"history": "1h", "tools": "5m"}, LONGER_LATER.format({"tools": "5m", "history": "1h"})),
        ({"system": "5m", "history": "1h"}, LONGER_LATER.format({"system": "5m", "history": "1h"})),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_invalid_cache_policy_is_an_error(kind: type[ChatFormatter], cache: Any, message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        kind("anthropic", cache=cache)


@pytest.mark.parametrize("cache", [None, (), [], {}])
@pytest.mark.parametrize(("provider", "model"), MARKING)
def test_empty_cache_policy_sets_no_breakpoint(provider: str, model: str | None, cache: Any) -> None:
    payload = judged(ChatFormatter(provider, model=model, cache=cache), *TALK)
    assert list(marks(payload)) == []
    assert not left_out(payload)


@pytest.mark.parametrize("there", [[SHORT], [None, SHORT], [SHORT, SHORT, None], [SHORT] * 3 + [None], [SHORT] * 4])
def test_breakpoints_already_in_tools_are_kept_and_count_towards_the_limit(there: list[Any]) -> None:
    payload = judged(ChatFormatter("anthropic", cache=ALL), *TALK, tools=tools(*there))
    found = dict(marks(payload))
    assert len(found) <= 4
    assert {f"tools.{at}" for at, mark in enumerate(there) if mark} <= set(found)
    # The most valuable breakpoints come first: history, then system text, then tools.
    wanted = [LAST, "system.0", *([] if there[-1] else [f"tools.{len(there) - 1}"])]
    free = 4 - sum(mark is not None for mark in there)
    assert [place for place in wanted if place in found] == wanted[:free]
    places = {LAST: "cache.history", "system.0": "cache.system"}
    assert set(left_out(payload)) == {places.get(place, "cache.tools") for place in wanted[free:]}
    assert set(left_out(payload).values()) <= {"anthropic accepts at most 4 breakpoints"}


@pytest.mark.parametrize("following", [TextBlock("ok"), call("c1")], ids=["text", "call"])
def test_reasoning_gets_no_breakpoint(following: Block) -> None:
    thoughts = ThinkingBlock("hm", "c2ln", provider="anthropic"), ThinkingBlock(redacted="b3A=", provider="anthropic")
    last = answering(result("c1")) if following.kind == "tool_use" else BYE
    payload = judged(ChatFormatter("anthropic", cache=ALL), HI, calling(*thoughts, following), last)
    assert dict(marks(payload)) == {"messages.1.content.2": SHORT}


def test_changing_a_breakpoint_of_a_payload_does_not_change_later_payloads() -> None:
    formatter = ChatFormatter("anthropic", cache=ALL)
    first = formatter.format(*TALK, tools=tools(None))
    for _, mark in marks(first):
        mark["type"] = "forever"
    assert formatter.format(*TALK, tools=tools(None)) != first
    formatter.validate(formatter.format(*TALK, tools=tools(None)))


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "model"), MARKING)
@pytest.mark.parametrize("kind", [ChatFormatter, MultiAgentFormatter])
def test_random_chat_with_breakpoints_is_accepted(kind: type[ChatFormatter], provider: str, model: str | None) -> None:
    lifetimes = ("12h", "30m", "30m") if provider != "anthropic" else ("1h", "5m", "5m")
    formatted = 0
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
        formatted += 1
        found = list(marks(accepted(formatter, payload)))
        assert len(found) <= 4, seed
        assert not [place for place, _ in found if "thinking" in str(_at(payload, place).get("type"))], seed
    assert formatted > 150


def _at(payload: Payload, path: str) -> dict[str, Any]:
    value: Any = payload
    for step in path.split("."):
        value = value[int(step) if isinstance(value, list) else step]
    found: dict[str, Any] = value
    return found


def test_five_breakpoints_in_tools_are_refused() -> None:
    # After the limit was exceeded, further breakpoints were accepted.
    with pytest.raises(FormatError, match="more than 4 cache breakpoints"):
        ChatFormatter("anthropic", cache=("system",)).format(HI, tools=tools(*[SHORT] * 5))


@pytest.mark.parametrize("provider", ["openai", "ollama", "gemini"])
def test_breakpoint_of_another_provider_is_left_out_of_tools(provider: str) -> None:
    # The breakpoint was sent to providers that refuse unknown keys.
    payload = ChatFormatter(provider).format(HI, tools=tools(SHORT))
    assert not list(marks(payload["tools"]))
    assert "cache" in [entry.kind for entry in payload.report]
