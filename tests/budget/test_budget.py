"""Budgets: settings, policies, protected messages, reports."""

import json
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from budget.helpers import CHARS, Form, Greedy, Json, Roles, chat, exactly, function_call, msg
from lazyprompt import (
    Budget,
    BudgetError,
    CharTokenCounter,
    ChatFormatter,
    ChatPrompter,
    HistoryError,
    Msg,
    OnlineChatModule,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TrainableModule,
    URLSource,
    VideoBlock,
    messages_from,
)
from lazyprompt.budget.units import SlotValue


class Framed(CharTokenCounter):
    """Adds one token for the whole list of messages."""

    def count(self, messages: Any, tools: Any = None) -> int:
        return 1 + super().count(messages, tools)


def contents(messages: Sequence[Form]) -> list[Any]:
    return [message["content"] for message in messages]


# Settings


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"max_tokens": 0}, "max_tokens must be a whole number of tokens, at least 1, not 0"),
        ({"max_tokens": 1.5}, r"max_tokens must be .*, not 1\.5"),
        ({"max_tokens": True}, "max_tokens must be .*, not True"),
        ({"max_tokens": 9, "reserve": 9}, "reserve=9 must be less than max_tokens=9"),
        ({"max_tokens": 9, "reserve": -1}, "reserve must be .*, not -1"),
        (
            {"max_tokens": 9, "policy": "newest"},
            "unknown policy 'newest'.*expected one of oldest, priority, cache, or a f",
        ),
        ({"max_tokens": 9, "policy": "chache"}, r"did you mean 'cache'\?"),
        ({"max_tokens": 9, "cut": "start"}, "cut must be 'end', 'middle' or None, not 'start'"),
        ({"max_tokens": 9, "priority": {}}, "priority= requires policy='priority'"),
        ({"max_tokens": 9, "low_water": 0}, "low_water must be a fraction above 0 and at most 1, not 0"),
        ({"max_tokens": 9, "low_water": 1.1}, "low_water must be a fraction above 0 and at most 1, not 1.1"),
        ({"max_tokens": 9, "counter": len}, r"method count\(messages, tools\), which builtin_function_or_method lacks"),
        ({"max_tokens": None, "slots": {"a": 0}}, r"slots\['a'\] must be .*, not 0"),
        ({"max_tokens": 9, "summary_tokens": 0}, "summary_tokens must be .*, not 0"),
    ],
)
def test_invalid_budget_settings_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(BudgetError, match=match):
        Budget(**settings)


def test_the_repr_of_a_budget_shows_its_settings() -> None:
    assert repr(Budget(9, CHARS, reserve=1)) == "Budget(9, CharTokenCounter, 'oldest', reserve=1)"
    assert "a summarizer" in repr(Budget(9, policy=lambda _: ""))


@pytest.mark.parametrize("bad", ["text", msg("user", "x"), Msg("user", "x", "user"), [1], ["text"], [None]])
def test_values_that_are_not_a_list_of_messages_are_refused(bad: Any) -> None:
    with pytest.raises(HistoryError, match="must be a list of Msg or message dicts|must be a pair"):
        Budget(40, CHARS).fit(bad)


def test_a_budget_without_a_limit_only_counts() -> None:
    kept, report = Budget(None, CHARS).fit([msg("system", "s"), *chat(9)])
    assert kept == [msg("system", "s"), *chat(9)]
    assert str(report) == "91 tokens: nothing changed"
    assert report.max_tokens is None


# Dropped messages


def test_oldest_messages_are_dropped_and_system_and_newest_user_turn_are_kept() -> None:
    system, messages = msg("system", "s" * 10), chat(9)
    kept, report = exactly(45, CHARS).fit([system, *messages])
    assert kept == [system, *messages[6:]]
    assert report.dropped == (1, 2, 3, 4, 5, 6)
    assert str(report) == "100 → 40 of 45 tokens: 6 dropped (the oldest go first)"
    assert exactly(1_000, CHARS).fit(messages)[0] == messages
    assert str(exactly(1_000, CHARS).fit(messages)[1]) == "90 of 1,000 tokens: nothing changed"


ANSWERS = [msg("assistant", f"{at}" * 10) for at in range(4)]
LOOP = [msg("user", "question".ljust(10)), *(msg("assistant", f"{at}".ljust(10)) for at in range(9))]
HALF: dict[str, Any] = {"type": "tool_result", "tool_use_id": "1", "content": "r"}
AND_THIS = TextBlock("and this")
BESIDE: list[Any] = [
    {"role": "user", "content": [HALF, {"type": "text", "text": "and this"}]},
    Msg("user", [ToolResultBlock("1", "f", "r"), AND_THIS], "user"),
    {"role": "user", "content": [HALF]},
]
INTERRUPTED: list[Any] = [
    Msg("a", [ToolUseBlock("1", "f")], "assistant"),
    Msg("user", "hurry up", "user"),
    Msg("tool", [ToolResultBlock("1", "f", "r" * 50)], "tool"),
]
KEPT: dict[str, tuple[Budget, list[Any], list[int]]] = {
    "newest user turn before a long tool loop": (exactly(30, CHARS), LOOP, [0, 8, 9]),
    "last message without user turns": (Budget(10, CHARS), ANSWERS, [3]),
    "start_on without user turns": (Budget(100, CHARS, start_on="user"), ANSWERS, [0, 1, 2, 3]),
    "start_on without user turns over the limit": (exactly(25, CHARS, start_on="user"), ANSWERS, [2, 3]),
    "reserve": (exactly(45, CHARS, reserve=20), chat(9), [7, 8]),
    "orphaned result beside a text": (Budget(900, CHARS), BESIDE, [0, 1]),
    "user turn between a call and its result": (Budget(45, CHARS), INTERRUPTED, [1]),
    "protected indices": (exactly(55, CHARS, protect=[0, 2]), chat(9), [0, 2, 6, 7, 8]),
    "protected role": (Budget(55, CHARS, protect="assistant"), chat(9), [1, 3, 5, 7, 8]),
    "low_water 0.9": (Budget(100, CHARS, "cache", low_water=0.9), chat(11), [*range(2, 11)]),
    "low_water 0.5": (Budget(100, CHARS, "cache", low_water=0.5), chat(11), [*range(6, 11)]),
    "low_water 0.1": (Budget(100, CHARS, "cache", low_water=0.1), chat(11), [9, 10]),
}


@pytest.mark.parametrize(("budget", "messages", "left"), KEPT.values(), ids=KEPT)
def test_expected_messages_are_kept(budget: Budget, messages: list[Any], left: list[int]) -> None:
    assert budget.fit(messages)[0] == [messages[at] for at in left]


def test_tools_are_counted() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    kept, report = exactly(150, CHARS).fit(chat(9), tools)
    cost = CHARS.count([], tools)
    assert len(kept) == (150 - cost) // 10
    assert report.slots["tools"] == (cost, cost)
    with pytest.raises(BudgetError, match=rf"never dropped have {cost + 10:,} tokens \(.*tools {cost}\)"):
        exactly(cost, CHARS).fit(chat(9), tools)


@pytest.mark.parametrize(("counter", "more", "missing"), [(CHARS, "", 17), (Framed(), ", fixed text 1", 18)])
def test_protected_parts_over_the_limit_are_an_error_with_token_counts(counter: Any, more: str, missing: int) -> None:
    messages = [msg("system", "s" * 20), msg("user", "b" * 9, name="Bob"), *chat(3), msg("user", "u" * 30)]
    parts = "system text 20, protected messages 12, newest user turn 30"
    with pytest.raises(BudgetError) as caught:
        Budget(45, counter, protect={"Bob"}).fit(messages)
    assert str(caught.value) == (
        f"the parts that are never dropped have {45 + missing} tokens ({parts}{more}), and the limit is 45: "
        f"{missing} tokens are missing; raise the limit or shorten the text, or pass cut= to cut the newest turn"
    )


def test_a_fixed_count_over_the_limit_is_an_error_without_messages() -> None:
    with pytest.raises(BudgetError, match=r"have 500 tokens \(no messages\), .* raise the limit or shorten the text$"):
        Budget(9, Greedy(), cut="end").fit([])


def test_kept_messages_share_nothing_with_the_passed_messages() -> None:
    messages = [
        msg("user", "a"),
        msg("assistant", "", tool_calls=[function_call()]),
        msg("tool", "r", tool_call_id="1"),
    ]
    messages.append({"role": "user", "content": [TextBlock("x")]})
    before = json.dumps(messages, default=str)
    kept, _ = Budget(900, CHARS).fit(messages)
    assert kept == messages
    kept[1]["tool_calls"][0]["id"] = "2"
    kept[3]["content"].append(1)
    for message in kept:
        message["role"] = "x"
    assert json.dumps(messages, default=str) == before


def test_tool_results_without_their_call_are_dropped() -> None:
    orphan = msg("tool", "r", tool_call_id="9")
    kept, report = Budget(900, CHARS).fit([orphan, *chat(3)])
    assert kept == chat(3)
    assert str(report) == "31 → 30 of 900 tokens: 1 dropped (a result without its call)"


USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
RESULTS = (
    {"type": "tool_result", "id": "1", "name": "f", "output": "r" * 50},
    {"type": "tool_result", "tool_use_id": "1", "content": "r" * 50},
)


# In the OpenAI format, in dicts of blocks, in blocks, and in a Msg with the role system.
@pytest.mark.parametrize(
    "exchange",
    [
        [msg("assistant", "", tool_calls=[function_call()]), msg("tool", "r" * 50, tool_call_id="1")],
        [msg("assistant", "", tool_calls=[function_call()]), msg("tool", "r" * 50)],
        *([msg("assistant", [USE]), msg("user", [result])] for result in RESULTS),
        [
            {"role": "assistant", "content": [ToolUseBlock("1", "f")]},
            {"role": "tool", "content": [ToolResultBlock("1", "f", "r" * 50)]},
        ],
        [Msg("a", [ToolUseBlock("1", "f")], "assistant"), Msg("s", [ToolResultBlock("1", "f", "r" * 50)], "system")],
        [Msg("a", [ToolUseBlock("1", "f"), ToolResultBlock("1", "f", "r" * 50)], "assistant")],
    ],
)
def test_a_tool_call_and_its_results_are_dropped_together(exchange: list[Any]) -> None:
    kept, report = exactly(45, CHARS).fit([*exchange, *chat(3)])
    assert kept == chat(3)
    assert report.dropped == tuple(range(len(exchange)))
    # The newest user turn before the exchange is kept.
    assert exactly(45, CHARS).fit([*chat(3), *exchange])[0] == chat(3)[2:]


def test_media_are_counted() -> None:
    class Media(CharTokenCounter):
        def count(self, messages: Any, tools: Any = None) -> int:
            from lazyprompt.tokens.counter import content_of, forms  # noqa: PLC0415 - only here

            return super().count(messages, tools) + 100 * sum(len(content_of(form)[1]) for form in forms(messages))

    video = Msg("user", [TextBlock("see"), VideoBlock(URLSource("https://x/v.mp4"))], "user")
    kept, report = Budget(120, Media()).fit([video, *(Msg("user", "x" * 10, "user") for _ in range(3))])
    assert report.dropped == (0,)
    assert report.messages[0].before == 107, "the name is sent and counted, too"
    assert len(kept) == 3


# Priorities


@pytest.mark.parametrize(
    ("limit", "left"), [(50, [0, 1, 2, 3, 4]), (40, [0, 2, 3, 4]), (30, [0, 2, 4]), (20, [0, 4]), (10, [4])]
)
def test_the_lowest_priority_is_dropped_first_and_the_older_of_equals(limit: int, left: list[int]) -> None:
    messages = [msg("user", f"{at}" * 10, priority=number) for at, number in enumerate([3, 1, 2, 1, 0])]
    bare = [msg("user", f"{at}" * 10) for at in range(5)]
    kept, report = exactly(limit, CHARS, "priority").fit(messages)
    assert kept == [messages[at] for at in left], "the newest turn is kept in any case"
    assert (len(left) == 5) or str(report).endswith("dropped (the lowest priority goes first)")
    by_index = exactly(limit, CHARS, "priority", priority=dict(enumerate([3, 1, 2, 1, 0])))
    assert by_index.fit(bare)[0] == [bare[at] for at in left]


def test_priorities_can_be_set_by_name_role_or_function() -> None:
    messages = [
        Msg("Bob", "b" * 10, "user"),
        Msg("Ann", "a" * 10, "user"),
        Msg("bot", "c" * 10, "assistant"),
        Msg("Ann", "d" * 10, "user", metadata={"priority": 7}),
        Msg("user", "e" * 10, "user"),
    ]
    first = exactly(40, CHARS, "priority", priority={"Ann": -1, "assistant": -2})
    assert first.fit(messages)[1].dropped == (1, 2)
    assert exactly(40, CHARS, "priority", priority=lambda each: len(each.name)).fit(messages)[1].dropped == (0, 1)
    assert exactly(40, CHARS, "priority").fit(messages)[1].dropped == (0, 1)
    assert exactly(40, CHARS, "priority", priority={"Ann": -1}, protect={"Ann"}).fit(messages)[1].dropped == (0, 2)


def test_a_tool_exchange_has_the_highest_priority_of_its_messages() -> None:
    messages: list[Any] = [
        Msg("a", [ToolUseBlock("1", "f")], "assistant"),
        Msg("t", [ToolResultBlock("1", "f", "r" * 10)], "tool", metadata={"priority": 5}),
        *(Msg("user", f"{at}" * 10, "user") for at in range(5)),
    ]
    least = exactly(None, CHARS).fit(messages)[1].before - 14
    assert exactly(least, CHARS, "priority").fit(messages)[1].dropped == (2,)


# Values of slots


def documents() -> list[SlotValue]:
    return Budget(None, CHARS, order={"docs": sorted}).list_items("docs", ["c" * 10, "a" * 10, "b" * 10])


def test_list_items_are_dropped_by_rank() -> None:
    docs = documents()
    assert [item[2:] for item in docs] == [(0, 0), (1, None), (2, 1)]
    limits = {30: set[int](), 29: {0}, 20: {0}, 19: {0, 2}, 10: {0, 2}}
    assert {most: Budget(None, CHARS, slots={"docs": most}).over_limit(docs) for most in limits} == limits
    assert Budget(9, CHARS).over_limit(docs) == set()
    with pytest.raises(BudgetError, match=r"limited to 9 tokens, but its most .* has 10 tokens \(1 too many\)"):
        Budget(None, CHARS, slots={"docs": 9}).over_limit(docs)


FEWER: dict[str, Any] = {"policy": "priority", "priority": {"notes": -1}}


@pytest.mark.parametrize(
    ("settings", "fixed", "left", "stays"),
    [
        ({}, [], {60: [1, 2, 3, 4, 5, 6], 50: [2, 3, 4, 5, 6], 49: [2, 3, 5, 6], 39: [2, 3, 5]}, "notes 10, docs 10"),
        ({}, [0], {60: [0, 2, 3, 4, 5, 6], 50: [0, 2, 3, 5, 6], 40: [0, 2, 3, 5]}, "notes 10, docs 10"),
        (FEWER, [], {60: [0, 1, 2, 4, 5, 6], 50: [1, 2, 4, 5, 6]}, "docs 10"),
        ({**FEWER, "protect": "notes"}, [], {60: [1, 2, 3, 4, 5, 6]}, "notes 10, docs 10"),
        ({"protect": "docs"}, [], {50: [2, 3, 4, 5, 6]}, "notes 10, docs 30"),
        ({"policy": lambda _: "short"}, [0, 1], {60: [0, 1, 2, 3, 5, 6], 50: [0, 1, 2, 3, 5]}, "notes 10, docs 10"),
    ],
)
def test_messages_list_items_and_slot_values_are_dropped_in_the_expected_order(
    settings: dict[str, Any], fixed: list[int], left: dict[int, list[int]], stays: str
) -> None:
    items: list[Any] = [*messages_from(chat(3)), SlotValue("notes", "n" * 10), *documents()]

    def fitted(limit: int) -> list[int]:
        found = exactly(limit, CHARS, **settings).fitted(items, lambda kept, _: 10 * len(kept), fixed=fixed)
        assert [each.role for each in found.report.messages] == ["user", "assistant", "user", *["slot"] * 4]
        assert found.report.dropped == (*({*range(7)} - {*found.kept}),)
        return found.kept

    assert {limit: fitted(limit) for limit in left} == left
    protected = f"protected messages {10 * len(fixed)}, " if fixed else ""
    message = rf"tokens \({protected}newest user turn 10, {stays}\), .* missing, or the list 'docs' would be empty;"
    with pytest.raises(BudgetError, match=message):
        fitted(9)


# Caches


@pytest.mark.slow
def test_the_kept_prefix_is_stable_for_many_turns() -> None:
    budget = Budget(1_000, CHARS, "cache")
    system = msg("system", "s" * 50)
    starts: list[str] = []
    for turn in range(1, 400):
        kept, report = budget.fit([system, *chat(2 * turn + 1)])
        assert CHARS.count(kept) <= 1_000
        starts.append(kept[1]["content"])
        assert report.before == 50 + 10 * (2 * turn + 1)
    cuts = [at for at in range(1, len(starts)) if starts[at] != starts[at - 1]]
    distances = {later - earlier for earlier, later in pairwise(cuts)}
    assert len(cuts) == 14
    assert distances == {26}, "half of the limit, in turns of two messages"
    # A new budget drops the same messages, as no state is needed.
    assert Budget(1_000, CHARS, "cache").fit([system, *chat(799)])[0] == kept


def test_ends_prefix_reports_a_change_of_the_dropped_messages() -> None:
    reports = [Budget(100, CHARS).fit(chat(2 * turn + 1))[1] for turn in range(20)]
    changes = [old.dropped != new.dropped for old, new in pairwise(reports)]
    assert [report.ends_prefix for report in reports[1:]] == changes


@pytest.mark.slow
def test_the_kept_prefix_is_stable_with_a_non_additive_counter() -> None:
    starts = [Budget(1_000, Json(), "cache").fit(chat(2 * turn + 1))[0][0]["content"] for turn in range(1, 100)]
    changes = sum(one != other for one, other in pairwise(starts))
    assert 1 <= changes <= 30


# Long texts


def test_the_oldest_kept_message_is_cut_instead_of_dropped() -> None:
    messages = [msg("user", "old " * 5), msg("assistant", "One sentence. " * 20), msg("user", "new")]
    kept, report = Budget(103, CHARS, cut="end").fit(messages)
    assert contents(kept) == ["One sentence. " * 6 + "[…]", "new"]
    assert (report.dropped, report.cut) == ((0,), (1,))
    assert "1 cut (longer than the " in str(report)
    assert (report.messages[1].before, report.messages[1].after) == (280, 87)


@pytest.mark.parametrize(
    ("room", "cut", "left"), [(32, "end", ["x" * 28 + " […]", "new"]), (31, "end", ["new"]), (97, None, ["new"])]
)
def test_a_message_is_cut_to_at_least_32_tokens_or_dropped(room: int, cut: Any, left: list[str]) -> None:
    messages = [msg("assistant", "x" * 200), msg("user", "new")]
    assert contents(exactly(room + 3, CHARS, cut=cut).fit(messages)[0]) == left


@pytest.mark.parametrize("policy", ["oldest", lambda _: "y" * 200])
@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_text_that_costs_more_within_a_message_is_cut_until_all_fits(policy: Any, more: int) -> None:
    class Dear(CharTokenCounter):
        """Counts the cut mark higher in a message."""

        def count(self, messages: Any, tools: Any = None) -> int:
            return super().count(messages, tools) + more * sum("[…]" in str(each) for each in messages)

    budget = Budget(100, Dear(), policy, cut="end", low_water=0.999, summary_tokens=60)
    kept, report = budget.fit([msg("assistant", "x" * 200), *chat(4)])
    assert (len(kept), report.failure) == (5, None)
    assert "[…]" in kept[0]["content"]
    assert Dear().count(kept) == 100, "no more is cut than necessary"


def test_a_long_tool_result_is_cut_and_kept_with_its_call() -> None:
    messages: list[Any] = [
        Msg("user", "What is in the log?", "user"),
        Msg("a", [ToolUseBlock("1", "f")], "assistant"),
        Msg("t", [ToolResultBlock("1", "f", [TextBlock("A line.\n" * 900)])], "tool"),
    ]
    kept, report = Budget(300, CHARS, cut="middle").fit(messages)
    assert [message.role for message in kept] == ["user", "assistant", "tool"]
    assert report.cut == (2,)
    assert "[…]" in str(kept[2])
    assert CHARS.count(kept) <= 300


def test_the_newest_turn_is_cut_instead_of_raising_an_error() -> None:
    messages = [msg("system", "s" * 10), *chat(4), msg("user", [{"type": "text", "text": "A b. " * 100}])]
    kept, report = Budget(60, CHARS, cut="middle").fit(messages)
    left = "A b. " * 5 + "[…] " + "A b. " * 4
    assert kept == [messages[0], msg("user", [{"type": "text", "text": left}])]
    assert report.cut == (5,)
    # Of two texts, the longer one is cut.
    texts = [{"type": "text", "text": text} for text in ("x" * 40, "y" * 60)]
    cut = {"type": "text", "text": "y" * 46 + " […]"}
    assert Budget(90, CHARS, cut="end").fit([msg("user", texts)])[0] == [msg("user", [texts[0], cut])]
    with pytest.raises(BudgetError, match="and the limit is 9: 501 tokens are missing; raise"):
        Budget(9, CHARS, cut="middle").fit(messages)


# Counting


class Recorder:
    """Counts words, and records the counted contents."""

    counted: ClassVar[list[str]] = []

    def count(self, messages: Any, _: Any = None) -> int:
        self.counted.extend(message["content"] for message in messages)
        return 3 + sum(len(message["content"].split()) for message in messages)

    def count_text(self, text: str) -> int:
        return len(text.split())


def test_each_message_is_counted_once_across_turns() -> None:
    Recorder.counted.clear()
    budget = exactly(53, Recorder())
    for turn in range(3):
        kept, _ = budget.fit([msg("user", f"{at} two three four five") for at in range(100 + turn)])
        assert len(kept) == 10
    counted = [text for text in Recorder.counted if text.endswith("five")]
    assert len(counted) == len(set(counted)) == 13, "the kept messages, one more, and one for each later turn"


def test_a_counter_without_count_text_is_accepted() -> None:
    class Bare:
        def count(self, messages: Any, tools: Any = None) -> int:
            return 3 + Roles().count(messages, tools)

    kept, _ = Budget(60, Bare(), cut="end").fit([*chat(4), msg("user", "A b. " * 100)])
    assert contents(kept) == ["A b. " * 10 + "[…]"]
    assert Budget(60, Bare()).count_text("four") == 4 + len("user")


def test_a_counter_that_does_not_return_an_int_is_refused() -> None:
    class Awaited:
        async def count(self, messages: Any) -> int:
            return len(messages)

    class Texts:
        def count(self, messages: Any) -> str:
            return f"{len(messages)}"

    with pytest.raises(BudgetError, match="Texts.count must be sync and return an int, not str"):
        Budget(9, Texts()).fit(chat(3))  # type: ignore[arg-type]
    with (
        pytest.warns(RuntimeWarning, match="was never awaited"),
        pytest.raises(BudgetError, match="Awaited.count must be sync and return an int, not coroutine"),
    ):
        Budget(9, Awaited()).fit(chat(3))  # type: ignore[arg-type]


def test_messages_that_differ_in_one_key_are_counted_separately() -> None:
    """Two dicts with equal contents had the same count, even if another key differed."""
    messages: list[Form] = [msg("user", "x") | {"name": "a" * 9}, msg("user", "x") | {"name": "b"}]
    budget = Budget(None, CHARS)
    assert budget.fit(messages)[1].before == CHARS.count(messages) == 12
    given: list[Any] = [*messages, *messages_from(messages), *(msg("user", text, own=object()) for text in ("x", "yy"))]
    assert [budget.share(each) for each in given] == [10, 2, 10, 2, 1, 2]
    turns: list[Any] = [msg("user", "x"), msg("assistant", "x")]
    assert Budget(None, Json()).share(msg("assistant", "ab", tool_calls=[function_call()])) == 81
    budget = Budget(None, Roles())
    assert [budget.share(each) for each in [*turns, *messages_from(turns)]] == [5, 10, 5, 10]
    empty = [msg("user", ""), msg("assistant", "")]
    for counter in (Greedy(), CHARS):
        assert Budget(None, counter).fit(empty)[1].before == counter.count(empty)


def test_a_report_is_json_and_can_be_pickled() -> None:
    report = exactly(45, CHARS).fit([msg("system", "s"), *chat(9)])[1]
    data: Any = report.as_dict()
    assert json.loads(json.dumps(data)) == data == pickle.loads(pickle.dumps(report)).as_dict()  # noqa: S301 - our own
    rows = [[*each.values()] for each in data.pop("messages")]
    roles = enumerate(("user", "assistant") * 4, 1)
    assert rows == [
        [0, "system", "system", "kept", "", 1, 1, None],
        *(
            [
                at,
                role,
                "history",
                *(("dropped", "the oldest go first", 10, 0) if at < 6 else ("kept", "", 10, 10)),
                None,
            ]
            for at, role in roles
        ),
        [9, "user", "input", "kept", "", 10, 10, None],
    ]
    slots = {"system": (1, 1), "history": (80, 30), "input": (10, 10)}
    assert data == {
        "max_tokens": 45,
        "before": 91,
        "after": 41,
        "lists": {},
        "void": [],
        "ends_prefix": True,
        "failure": None,
        "slots": {slot: {"before": before, "after": after} for slot, (before, after) in slots.items()},
    }
    assert repr(report) == "<TrimReport: 5 dropped (the oldest go first)>"


@pytest.mark.parametrize(
    ("give", "advice"),
    [
        (lambda: ChatPrompter(budget=2000), r"not 2000; use Budget\(2000\)"),  # type: ignore[arg-type]
        (lambda: ChatPrompter().with_budget("2000"), "dict of token limits by slot name, not '2000'"),  # type: ignore[arg-type]
        (lambda: ChatFormatter("openai", budget=2000), r"use Budget\(2000\)"),  # type: ignore[arg-type]
        (lambda: OnlineChatModule(budget=2000), r"use Budget\(2000\)"),  # type: ignore[arg-type]
        (lambda: TrainableModule("qwen", budget=2000), r"use Budget\(2000\)"),  # type: ignore[arg-type]
        (lambda: Budget(2000, "gpt-4o"), r"pass a counter, such as TiktokenCounter\('gpt-4o'\)"),  # type: ignore[arg-type]
        (lambda: Budget(2000, CharTokenCounter), r"pass an instance: CharTokenCounter\(...\)"),  # type: ignore[arg-type]
        (lambda: Budget(2000, 3), r"counter must have a method count\(messages, tools\), which int lacks"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_budget_or_counter_is_refused_with_advice(give: Callable[[], object], advice: str) -> None:
    """A number was accepted as a budget until the first prompt, and a str as a counter as it has `count`."""
    with pytest.raises(BudgetError, match=advice):
        give()
