"""A limit of tokens: the oldest go first, a call with its results; system text and the newest stay."""

import asyncio
import json
import pickle
from collections.abc import Mapping, Sequence
from math import log2
from typing import Any, ClassVar, cast

import pytest

from formatters.helpers import (
    BYE,
    CALLING,
    HI,
    IMAGE,
    KINDS,
    PHOTO,
    SEES,
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


def talk(count: int, length: int = 90) -> list[Msg]:
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
def test_as_many_of_the_newest_as_fit_stay(kind: type[ChatFormatter], provider: str, limit: int) -> None:
    messages = talk(21)
    formatter = kind(provider, token_counter=Characters(), max_tokens=limit)
    found = kept_messages(judged(formatter, SYSTEM, *messages), messages)
    assert found == list(range(21 - len(found), 21))
    assert found
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
def test_system_text_and_the_newest_stay(provider: str) -> None:
    systems = SYSTEM, Msg("s", "§developer§", "developer")
    payload = judged(ChatFormatter(provider, token_counter=Characters(), max_tokens=400), *systems, *talk(41), BYE)
    assert places(dump(payload), "§system§", "§developer§", "bye")
    assert kept_messages(payload, talk(41)) == [] or len(kept_messages(payload, talk(41))) < 4


@formatters_of(PROVIDERS)
def test_what_must_stay_and_does_not_fit_is_an_error(kind: type[ChatFormatter], provider: str) -> None:
    formatter = kind(provider, token_counter=Characters(), max_tokens=300)
    for messages in (
        [Msg("s", "x" * 400, "system"), *talk(9)],
        [*talk(8), Msg("Ann", "x" * 400, "user")],
        [Msg("Ann", "x" * 400, "user")],
    ):
        with pytest.raises(
            BudgetError, match=r"never dropped have [\d,]{3,5} tokens \(.+\), and the limit is 300: .* missing; raise"
        ):
            formatter.format(*messages)


@pytest.mark.slow
@formatters_of(CALLING)
def test_a_call_and_its_results_stay_or_go_together(kind: type[ChatFormatter], provider: str) -> None:
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


@pytest.mark.parametrize("provider", CALLING)
def test_the_newest_exchange_stays_whole(provider: str) -> None:
    exchange = calling(call("c1", q="§a§")), answering(result("c1", "§b§"))
    payload = judged(ChatFormatter(provider, token_counter=Characters(), max_tokens=600), *talk(30), HI, *exchange)
    assert places(dump(payload), "§a§", "§b§")
    assert len(kept_messages(payload, talk(30))) < 5


@pytest.mark.parametrize("count", [64, 512, 4_096])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_counter_is_asked_a_logarithm_of_times(provider: str, count: int) -> None:
    counter = Characters()
    ChatFormatter(provider, token_counter=counter, max_tokens=2_000).format(*talk(count))
    assert 2 <= counter.asked <= log2(count) + 5


def test_what_fits_is_counted_once() -> None:
    counter = Characters()
    formatter = ChatFormatter("openai", token_counter=counter, max_tokens=99_999)
    assert formatter.format(*talk(9)) == ChatFormatter("openai").format(*talk(9))
    tried = counter.asked - 1
    assert tried == 4, "a counter that does not say whether it adds up is tried, but once"
    formatter.format(*talk(9))
    assert counter.asked == tried + 2


def test_a_counter_that_adds_up_is_asked_for_each_message_once() -> None:
    class Adding(CharTokenCounter):
        asked: ClassVar[list[object]] = []

        def count(self, messages: Any, tools: Any = None) -> int:
            self.asked.extend(messages)
            return super().count(messages, tools)

    formatter = ChatFormatter("openai", token_counter=Adding(), max_tokens=999)
    for turn in range(3):
        payload = formatter.format(*talk(40 + 2 * turn))
        assert payload.trim is not None
        assert payload.trim.dropped
        assert len(Adding.asked) == 40 + 2 * turn


@pytest.mark.parametrize("provider", CALLING)
def test_tools_are_counted(provider: str) -> None:
    messages = talk(21)
    formatter = ChatFormatter(provider, token_counter=Characters(), max_tokens=2_500)
    without, with_tools = (judged(formatter, *messages, tools=tools) for tools in (None, TOOLS))
    assert 0 < len(kept_messages(with_tools, messages)) < len(kept_messages(without, messages)) - 3


@pytest.mark.parametrize("kind", KINDS)
def test_dicts_are_trimmed_as_messages_are(kind: type[ChatFormatter]) -> None:
    exchange = calling(call("c1")), answering(result("c1", "x" * 200))
    messages = [SYSTEM, *talk(8), *exchange, *talk(8)]
    dicts = openai_dicts(messages)
    for limit in range(700, 3_500, 300):
        formatter = kind("openai", token_counter=Characters(), max_tokens=limit)
        assert judged(formatter, *dicts) == judged(formatter, *messages)


def test_a_limit_and_its_counter_go_together() -> None:
    wrong: list[dict[str, Any]] = [{"max_tokens": 5}, {"token_counter": Characters()}]
    for settings in wrong:
        for kind in KINDS:
            with pytest.raises(FormatError, match="max_tokens and token_counter require each other"):
                kind("openai", **settings)


def test_a_budget_trims_what_is_sent() -> None:
    messages = talk(10)
    formatter = ChatFormatter("openai", budget=Budget(2_000, Characters(), reserve=300))
    payload = judged(formatter, *messages, tools=TOOLS)
    assert payload.trim is not None
    assert payload.trim.after <= 1_700 < payload.trim.before
    assert payload == ChatFormatter("openai").format(*messages[len(payload.trim.dropped) :], tools=TOOLS)
    assert pickle.loads(pickle.dumps(payload)).trim.as_dict() == payload.trim.as_dict()  # noqa: S301 - our own
    assert ChatFormatter("openai").format(*messages).trim is None


def test_a_budget_has_its_own_limit() -> None:
    with pytest.raises(FormatError, match="budget already sets the limit and counter"):
        ChatFormatter("openai", budget=Budget(100), max_tokens=100, token_counter=Characters())


@pytest.mark.asyncio
@pytest.mark.parametrize("provider", CALLING)
async def test_a_budget_cuts_and_sums_up_also_on_an_event_loop(provider: str) -> None:
    async def summarizer(messages: list[Any]) -> str:
        await asyncio.sleep(0)
        return f"{len(messages)} messages"

    formatter = ChatFormatter(provider, budget=Budget(1_500, CharTokenCounter(), summarizer))
    payload = await formatter.aformat(SYSTEM, *talk(41), HI)
    formatter.validate(payload)
    assert payload.trim is not None
    assert payload.trim.summarized
    assert f"Summary of the earlier conversation: {len(payload.trim.summarized)} messages" in dump(payload)
    with pytest.raises(BudgetError, match="use afit, or the formatter's aformat"):
        ChatFormatter(provider, budget=Budget(1_500, CharTokenCounter(), summarizer)).format(SYSTEM, *talk(41), HI)

    cutting = ChatFormatter(provider, budget=Budget(300, CharTokenCounter(), cut="middle"))
    payload = judged(cutting, SYSTEM, Msg("Ann", "§a§ " + "x. " * 900 + "§b§", "user"))
    assert places(dump(payload), "§system§", "§a§", "[…]", "§b§")


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "ollama-generate"])
def test_a_counter_that_takes_the_system_text_from_its_list_leaves_the_payload_whole(provider: str) -> None:
    """Counting popped the system message off the very list that was sent."""

    class Popping(Characters):
        def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:
            cast("list[object]", messages).pop(0)
            return super().count(messages, tools)

    system = Msg("system", "Be brief.", "system")
    limited = ChatFormatter(provider, token_counter=Popping(), max_tokens=9_999)
    assert limited.format(system, HI) == ChatFormatter(provider).format(system, HI)


@formatters_of(SEES)
def test_trimming_shows_a_tools_picture_once_and_changes_no_input(kind: type[ChatFormatter], provider: str) -> None:
    """Each round of trimming put the pictures of results into the caller's list once more."""
    messages = [Msg("Ann", "x" * 9_000, "user")]
    for number, picture in enumerate((IMAGE, PHOTO)):
        messages += [HI, calling(call(f"c{number}")), answering(result(f"c{number}", picture))]
    messages.append(BYE)
    before = list(messages)
    payload = judged(kind(provider, token_counter=Characters(), max_tokens=4_000), *messages)
    assert messages == before
    assert "x" * 9_000 not in dump(payload)
    assert [dump(payload).count(each) for each in (PNG, JPEG)] == [1, 1]


def test_trimming_passes_an_unanswered_call_and_is_reported() -> None:
    # Behind a call that nobody answered nothing could be cut, and that something was cut no report said.
    class Spoiling(Characters):
        """Empties the list of tools that it is given: the payload's own once."""

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
