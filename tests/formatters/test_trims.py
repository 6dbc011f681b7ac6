"""Token limits: the oldest messages are dropped first; system text and the newest message are kept."""

import asyncio
import json
import pickle
from collections.abc import Mapping, Sequence
from math import log2
from typing import Any, ClassVar, cast

import pytest

from formatters.helpers import (
    BYE,
    HI,
    IMAGE,
    KINDS,
    PHOTO,
    WITH_IMAGES,
    WITH_TOOLS,
    Characters,
    answering,
    call,
    calling,
    formatters_of,
    result,
)
from formatters.payloads import called, dump, judged, places
from lazyprompt import Budget, BudgetError, CharTokenCounter, ChatFormatter, FormatError, Msg
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.openai_form import openai_dicts
from support.conversations import JPEG, PNG

SYSTEM = Msg("s", "§system§", "system")
TOOLS = [{"type": "function", "function": {"name": "f", "description": "x" * 900}}]


def chat(count: int, length: int = 90) -> list[Msg]:
    """Messages of both sides in turn, each marked with its number."""
    return [
        Msg(*(("Bot", f"§{at}§{'x' * length}", "assistant") if at % 2 else ("Ann", f"§{at}§{'x' * length}", "user")))
        for at in range(count)
    ]


def kept_messages(payload: object, messages: Sequence[Msg]) -> list[int]:
    """Which of the marked messages are in a payload."""
    text = json.dumps(payload, ensure_ascii=False)
    return [at for at in range(len(messages)) if f"§{at}§" in text]


@pytest.mark.slow
@formatters_of(PROVIDERS)
@pytest.mark.parametrize("limit", [700, 1_500, 3_000, 99_999])
def test_token_limit_keeps_the_newest_messages_that_fit(kind: type[ChatFormatter], provider: str, limit: int) -> None:
    messages = chat(21)
    formatter = kind(provider, token_counter=Characters(), max_tokens=limit)
    found = kept_messages(judged(formatter, SYSTEM, *messages), messages)
    assert found == list(range(21 - len(found), 21))
    counted = [_count(kind(provider).format(SYSTEM, *messages[at:])) for at in range(21)]
    fits = [at for at, count in enumerate(counted) if count <= limit]
    assert found[0] == fits[0]


def _count(payload: Mapping[str, Any]) -> int:
    """What `Characters` counts for a payload."""
    system = [
        {"role": "system", "content": payload[key]}
        for key in ("system", "instructions", "system_instruction")
        if key in payload
    ]
    key = next(key for key in ("messages", "contents", "input", "prompt") if key in payload)
    items = [{"role": "user", "content": payload[key]}] if key == "prompt" else payload[key]
    return Characters().count([*system, *items], payload.get("tools"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_token_limit_keeps_system_text_and_the_newest_message(provider: str) -> None:
    systems = SYSTEM, Msg("s", "§developer§", "developer")
    payload = judged(ChatFormatter(provider, token_counter=Characters(), max_tokens=400), *systems, *chat(41), BYE)
    assert places(dump(payload), "§system§", "§developer§", "bye")
    assert len(kept_messages(payload, chat(41))) < 4


@formatters_of(PROVIDERS)
@pytest.mark.parametrize(
    "messages",
    [
        [Msg("s", "x" * 400, "system"), *chat(9)],
        [*chat(8), Msg("Ann", "x" * 400, "user")],
        [Msg("Ann", "x" * 400, "user")],
    ],
    ids=["system text", "last message", "only message"],
)
def test_message_over_the_token_limit_is_an_error(
    kind: type[ChatFormatter], provider: str, messages: list[Msg]
) -> None:
    formatter = kind(provider, token_counter=Characters(), max_tokens=300)
    error = r"never dropped have [\d,]{3,5} tokens \(.+\), and the limit is 300: .* missing; raise"
    with pytest.raises(BudgetError, match=error):
        formatter.format(*messages)


@pytest.mark.slow
@formatters_of(WITH_TOOLS)
def test_call_and_its_results_are_kept_or_dropped_together(kind: type[ChatFormatter], provider: str) -> None:
    messages: list[Msg] = []
    for number in range(12):
        ids = [f"c{number}_{at}" for at in range(number % 3 + 1)]
        messages += [HI, calling(*(call(one, q="x" * 40) for one in ids))]
        messages += [answering(result(one, "x" * 60)) for one in ids] if number % 2 else [answering(*map(result, ids))]
    sizes = set()
    for limit in range(900, 9_000, 450):
        payload = judged(kind(provider, token_counter=Characters(), max_tokens=limit), *messages, BYE)
        made = [name for name, _ in called(payload)]
        assert all(dump(payload).count(f'"{name}"') == 2 for name in made)
        sizes.add(len(made))
    assert len(sizes) > 3


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_newest_tool_exchange_is_kept_complete(provider: str) -> None:
    exchange = calling(call("c1", q="§a§")), answering(result("c1", "§b§"))
    payload = judged(ChatFormatter(provider, token_counter=Characters(), max_tokens=600), *chat(30), HI, *exchange)
    assert places(dump(payload), "§a§", "§b§")
    assert len(kept_messages(payload, chat(30))) < 5


@pytest.mark.parametrize("count", [64, 512, 4_096])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_number_of_token_counts_is_logarithmic_in_the_number_of_messages(provider: str, count: int) -> None:
    counter = Characters()
    ChatFormatter(provider, token_counter=counter, max_tokens=2_000).format(*chat(count))
    assert 2 <= counter.asked <= log2(count) + 5


def test_conversation_within_the_token_limit_is_counted_once() -> None:
    counter = Characters()
    formatter = ChatFormatter("openai", token_counter=counter, max_tokens=99_999)
    assert formatter.format(*chat(9)) == ChatFormatter("openai").format(*chat(9))
    tried = counter.asked - 1
    assert tried == 4, "a counter that does not say whether it adds up is tried, but once"
    formatter.format(*chat(9))
    assert counter.asked == tried + 2


def test_additive_counter_counts_each_message_once() -> None:
    class Adding(CharTokenCounter):
        asked: ClassVar[list[object]] = []

        def count(self, messages: Any, tools: Any = None) -> int:
            self.asked.extend(messages)
            return super().count(messages, tools)

    formatter = ChatFormatter("openai", token_counter=Adding(), max_tokens=999)
    for turn in range(3):
        payload = formatter.format(*chat(40 + 2 * turn))
        assert payload.trim is not None
        assert payload.trim.dropped
        assert len(Adding.asked) == 40 + 2 * turn


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_tools_count_towards_the_token_limit(provider: str) -> None:
    messages = chat(21)
    formatter = ChatFormatter(provider, token_counter=Characters(), max_tokens=2_500)
    without, with_tools = (judged(formatter, *messages, tools=tools) for tools in (None, TOOLS))
    assert 0 < len(kept_messages(with_tools, messages)) < len(kept_messages(without, messages)) - 3


@pytest.mark.parametrize("kind", KINDS)
def test_message_dicts_are_trimmed_like_msg_objects(kind: type[ChatFormatter]) -> None:
    exchange = calling(call("c1")), answering(result("c1", "x" * 200))
    messages = [SYSTEM, *chat(8), *exchange, *chat(8)]
    dicts = openai_dicts(messages)
    for limit in range(700, 3_500, 300):
        formatter = kind("openai", token_counter=Characters(), max_tokens=limit)
        assert judged(formatter, *dicts) == judged(formatter, *messages)


@pytest.mark.parametrize("settings", [{"max_tokens": 5}, {"token_counter": Characters()}])
@pytest.mark.parametrize("kind", KINDS)
def test_max_tokens_and_token_counter_require_each_other(kind: type[ChatFormatter], settings: Any) -> None:
    with pytest.raises(FormatError, match="max_tokens and token_counter require each other"):
        kind("openai", **settings)


def test_budget_trims_the_payload() -> None:
    messages = chat(10)
    formatter = ChatFormatter("openai", budget=Budget(2_000, Characters(), reserve=300))
    payload = judged(formatter, *messages, tools=TOOLS)
    assert payload.trim is not None
    assert payload.trim.after <= 1_700 < payload.trim.before
    assert payload == ChatFormatter("openai").format(*messages[len(payload.trim.dropped) :], tools=TOOLS)
    assert pickle.loads(pickle.dumps(payload)).trim.as_dict() == payload.trim.as_dict()  # noqa: S301 - our own
    assert ChatFormatter("openai").format(*messages).trim is None


def test_budget_together_with_max_tokens_is_an_error() -> None:
    with pytest.raises(FormatError, match="budget already sets the limit and counter"):
        ChatFormatter("openai", budget=Budget(100), max_tokens=100, token_counter=Characters())


@pytest.mark.asyncio
@pytest.mark.parametrize("provider", WITH_TOOLS)
async def test_budget_summarizes_with_an_async_summarizer_and_cuts_long_messages(provider: str) -> None:
    async def summarizer(messages: list[Any]) -> str:
        await asyncio.sleep(0)
        return f"{len(messages)} messages"

    formatter = ChatFormatter(provider, budget=Budget(1_500, CharTokenCounter(), summarizer))
    payload = await formatter.aformat(SYSTEM, *chat(41), HI)
    formatter.validate(payload)
    assert payload.trim is not None
    assert payload.trim.summarized
    assert f"Summary of the earlier conversation: {len(payload.trim.summarized)} messages" in dump(payload)
    with pytest.raises(BudgetError, match="use afit, or the formatter's aformat"):
        ChatFormatter(provider, budget=Budget(1_500, CharTokenCounter(), summarizer)).format(SYSTEM, *chat(41), HI)

    cutting = ChatFormatter(provider, budget=Budget(300, CharTokenCounter(), cut="middle"))
    payload = judged(cutting, SYSTEM, Msg("Ann", "§a§ " + "x. " * 900 + "§b§", "user"))
    assert places(dump(payload), "§system§", "§a§", "[…]", "§b§")


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "ollama-generate"])
def test_counter_that_modifies_its_messages_does_not_change_the_payload(provider: str) -> None:
    """Counting removed the system message from the list that was sent."""

    class Popping(Characters):
        def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:
            cast("list[object]", messages).pop(0)
            return super().count(messages, tools)

    system = Msg("system", "Be brief.", "system")
    limited = ChatFormatter(provider, token_counter=Popping(), max_tokens=9_999)
    assert limited.format(system, HI) == ChatFormatter(provider).format(system, HI)


@formatters_of(WITH_IMAGES)
def test_trimming_keeps_each_tool_image_once_and_changes_no_input(kind: type[ChatFormatter], provider: str) -> None:
    """Each round of trimming added the images of results to the caller's list again."""
    messages = [Msg("Ann", "x" * 9_000, "user")]
    for number, picture in enumerate((IMAGE, PHOTO)):
        messages += [HI, calling(call(f"c{number}")), answering(result(f"c{number}", picture))]
    messages.append(BYE)
    before = list(messages)
    payload = judged(kind(provider, token_counter=Characters(), max_tokens=4_000), *messages)
    assert messages == before
    assert "x" * 9_000 not in dump(payload)
    assert [dump(payload).count(each) for each in (PNG, JPEG)] == [1, 1]


def test_trimming_drops_an_unanswered_call_and_is_reported() -> None:
    # Nothing after an unanswered call could be dropped, and dropping was not reported.
    class Spoiling(Characters):
        """Empties the list of tools, which was once the list of the payload."""

        def count(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> int:
            count = super().count(messages, tools)
            if isinstance(tools, list):
                tools.clear()
            return count

    formatter = ChatFormatter("openai", token_counter=Spoiling(), max_tokens=1_300)
    answer = Msg("Bot", "Hello", "assistant")
    payload = formatter.format(calling(call("1")), Msg("user", "x" * 500, "user"), answer, HI, tools=TOOLS)
    assert [message["content"] for message in payload["messages"]] == ["Hello", "hi"]
    assert any("the budget dropped" in entry.reason for entry in payload.report)
    assert payload["tools"] == TOOLS
