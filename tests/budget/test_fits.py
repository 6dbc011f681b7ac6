"""Properties of budgets for every conversation, policy and counter."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, reject, settings
from hypothesis import strategies as st

from budget.helpers import COUNTERS, Form, Greedy, conversations, exhaustive_search, msgs, protected_indices, units
from lazyprompt import Budget, BudgetError, ChatFormatter, FormatError
from lazyprompt.budget.budget import Policy
from lazyprompt.messages.openai_form import openai_dicts
from support.conversations import Maker

TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "what it does", "parameters": {"type": "object"}}}
]


def shortly(messages: list[Any]) -> str:
    return f"{len(messages)} messages"


def fail(_: list[Any]) -> str:
    raise OSError("no connection")


POLICIES: dict[str, Policy] = {
    "oldest": "oldest",
    "priority": "priority",
    "cache": "cache",
    "summarize": shortly,
    "failing": fail,
}
LIMITS = st.integers(1, 900)


def count_sent(counter: Any, messages: list[Any], tools: Any = None) -> int:
    """The count of messages as a formatter sends them."""
    payload = ChatFormatter("openai").format(*messages) if messages else {"messages": []}
    return int(counter.count(payload["messages"], tools))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiktoken", "approximate", "characters"])
@pytest.mark.parametrize("form", ["dicts", "msgs", "read"])
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(ids=5), limit=LIMITS, cut=st.sampled_from([None, "end"]), seed=st.integers(0, 99_999))
def test_formatted_messages_stay_within_the_limit(
    kind: str, form: str, messages: list[Form], limit: int, cut: Any, seed: int
) -> None:
    """All that a formatter adds is counted: names, repeated ids, media of results, results of open calls."""
    counter = COUNTERS[kind]()
    forms: dict[str, Any] = {"dicts": messages, "msgs": msgs(messages), "read": Maker(Random(seed)).conversation()}  # noqa: S311 - no secret
    items: list[Any] = forms[form]
    try:
        kept, report = Budget(limit * (5 if form == "read" else 1), counter, cut=cut).fit(items)
        count = count_sent(counter, kept)
    except (BudgetError, FormatError):
        reject()
    assert count <= (report.max_tokens or 0)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(), limit=LIMITS, as_msg=st.booleans(), policy=st.sampled_from(list(POLICIES)))
def test_kept_messages_begin_with_a_user_turn(messages: list[Form], limit: int, policy: str, *, as_msg: bool) -> None:
    counter = COUNTERS["characters"]()
    items: list[Any] = msgs(messages) if as_msg else messages
    try:
        kept, report = Budget(limit, counter, POLICIES[policy], start_on="user").fit(items)
    except BudgetError:
        reject()
    forms = openai_dicts(kept) if as_msg else kept
    turns = [form["role"] for form in forms if form["role"] not in ("system", "developer")]
    assert not turns or turns[0] == "user" or all(message["role"] != "user" for message in messages)
    assert count_sent(counter, kept) <= limit
    by_age = Budget(limit, counter, POLICIES[policy]).fit(items)[1]
    extra = {*report.dropped} - {*by_age.dropped}
    assert all(report.messages[at].reason == "before the first user turn" for at in extra)
    for unit in units(messages):
        assert extra.isdisjoint(unit) or {*report.dropped, *report.summarized}.issuperset(unit)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", COUNTERS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(messages=conversations(), limit=LIMITS, with_tools=st.booleans(), as_msg=st.booleans())
@example(messages=[], limit=1, with_tools=False, as_msg=False)
@example(messages=[], limit=1, with_tools=True, as_msg=True)
def test_fit_agrees_with_exhaustive_search(
    policy: str, kind: str, *, with_tools: bool, as_msg: bool, messages: list[Form], limit: int
) -> None:
    if kind == "square" and not messages:
        return
    counter, tools = COUNTERS[kind](), TOOLS if with_tools else None
    numbers = {at: (at * 7) % 5 for at in range(len(messages))}
    # With the policy "cache", messages are dropped in steps here; with "oldest", as few as possible.
    low_water = 1 if policy == "oldest" else 0.5
    numbered: Any = numbers if policy == "priority" else None
    budget = Budget(limit, counter, POLICIES[policy], priority=numbered, low_water=low_water)
    items: list[Any] = msgs(messages) if as_msg else messages
    before = deepcopy(items)
    keeps = protected_indices(messages)
    order = [unit for unit in units(messages) if keeps.isdisjoint(unit)]
    if policy == "priority":
        order.sort(key=lambda unit: max(numbers[at] for at in unit))

    def count(left: list[Form]) -> int:
        return count_sent(counter, msgs(left) if as_msg else left, tools)

    best = exhaustive_search(messages, order, count, limit)
    if best is None:
        with pytest.raises(BudgetError, match="the parts that are never dropped have"):
            budget.fit(items, tools)
        return
    kept, report = budget.fit(items, tools)
    assert items == before
    found = openai_dicts(kept) if as_msg else kept
    assert not found or count_sent(counter, kept, tools) <= limit
    if policy in ("oldest", "priority"):
        assert found == best, "no unit more is dropped than necessary"
    if policy == "failing":
        assert found == best
        assert (report.failure is not None) == (len(best) < len(messages))
    _check(messages, found, report, keeps)


def _check(messages: list[Form], found: list[Form], report: Any, keeps: set[int]) -> None:
    gone = {*report.dropped, *report.summarized}
    stays = [message for at, message in enumerate(messages) if at not in gone]
    turns = [message for message in found if "Summary of the earlier conversation" not in str(message["content"])]
    assert turns == stays, "in the original order"
    assert len(found) - len(turns) == bool(report.summarized)
    assert keeps.isdisjoint(gone)
    for unit in units(messages):
        assert gone.isdisjoint(unit) or gone.issuperset(unit), "a call and its results are dropped together"
    assert not found or found[0]["role"] != "tool"
    # The counts of the report add up.
    assert sum(tokens.before for tokens in report.slots.values()) == report.before
    assert sum(tokens.after for tokens in report.slots.values()) == report.after
    assert report.after <= report.max_tokens or not found
    assert [each.index for each in report.messages] == [*range(len(messages))]
    assert {each.index for each in report.messages if each.fate != "kept"} == gone
    assert all(each.after == (0 if each.index in gone else each.before) for each in report.messages)
    assert bool(report) == bool(gone)
    assert str(report)


@given(messages=conversations(), limit=st.integers(1, 499))
def test_a_counter_with_a_large_fixed_count_ends_in_an_error(messages: list[Form], limit: int) -> None:
    with pytest.raises(BudgetError, match="the parts that are never dropped have"):
        Budget(limit, Greedy()).fit(messages)


@pytest.mark.slow
@given(messages=conversations(), limit=LIMITS, seed=st.randoms())
def test_fit_terminates_with_any_counter(messages: list[Form], limit: int, seed: Any) -> None:
    class Wild:
        """Returns random counts."""

        counts = 0

        def count(self, *_: object) -> int:
            self.counts += 1
            return int(seed.randint(-100, 1_000))

        def count_text(self, _: str) -> int:
            return int(seed.randint(-100, 1_000))

    counter = Wild()
    for policy in POLICIES.values():
        try:
            Budget(limit, counter, policy, cut="end").fit(messages)
        except BudgetError as error:
            assert str(error).startswith("the parts that are never dropped have")  # noqa: PT017 - one of two ends
    assert counter.counts < 1_000


@given(messages=conversations(), limit=st.integers(20, 400), cut=st.sampled_from(["end", "middle"]))
def test_conversations_with_cut_texts_fit(messages: list[Form], limit: int, cut: Any) -> None:
    counter = COUNTERS["characters"]()
    messages = [*messages, {"role": "user", "content": "One sentence. Another one! 第三句。\nA line\n" * 20}]
    least = counter.count(
        [messages[at] for at in sorted(protected_indices(messages)) if messages[at]["role"] != "user"]
    )
    assume(least + 10 <= limit)
    kept, report = Budget(limit, counter, cut=cut).fit(messages)
    assert counter.count(kept) <= limit
    assert all(message["content"] not in ("", "[…]") for message in kept if message["role"] != "assistant")
    assert len(messages) - 1 in report.cut or counter.count([messages[-1]]) + least <= limit
    assert sum(tokens.after for tokens in report.slots.values()) == report.after
