"""Budgets that summarize dropped messages."""

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from budget.helpers import CHARS, Form, Json, chat, msg
from lazyprompt import Budget, BudgetError, Msg


def shortly(messages: list[Form]) -> str:
    return f"{len(messages)} messages"


class Summarizer:
    """Records the messages of each call."""

    def __init__(self) -> None:
        self.given: list[list[Form]] = []

    def __call__(self, messages: list[Form]) -> str:
        self.given.append(messages)
        return f"part {len(self.given)}"


PREFIX = "Summary of the earlier conversation: "


def test_a_summary_replaces_the_dropped_messages() -> None:
    made = Summarizer()
    system, messages = msg("system", "s" * 10), chat(30)
    kept, report = Budget(200, CHARS, made, summary_tokens=60).fit([system, *messages])
    assert kept == [system, msg("user", f"{PREFIX}part 1"), *messages[-len(kept) + 2 :]]
    assert made.given == [messages[: len(report.summarized)]]
    assert report.slots["summary"] == (0, len(PREFIX) + 6)
    assert report.after == CHARS.count(kept)
    assert "summarized (replaced by a summary)" in str(report)
    assert [each.fate for each in report.messages][:3] == ["kept", "summarized", "summarized"]
    as_msg, _ = Budget(200, CHARS, lambda _: "short", summary_tokens=60).fit(
        [Msg(each["role"], each["content"], each["role"]) for each in messages]
    )
    assert as_msg[0] == Msg("user", f"{PREFIX}short", "user")


def test_a_summary_is_made_once_and_extended_in_later_turns() -> None:
    made = Summarizer()
    budget = Budget(300, CHARS, made, summary_tokens=60)
    for turn in range(10, 60):
        kept, _ = budget.fit(chat(2 * turn + 1))
        assert CHARS.count(kept) <= 300
        assert kept[0]["content"].startswith(PREFIX) or turn < 15
    assert len(made.given) < 12
    assert all(given[0]["content"] == f"{PREFIX}part {at}" for at, given in enumerate(made.given) if at)
    # Together, the summarized messages are the beginning of the conversation.
    whole = [message for at, given in enumerate(made.given) for message in given[bool(at) :]]
    assert whole == chat(200)[: len(whole)]


@pytest.mark.parametrize(
    ("summarizer", "why"),
    [
        (lambda _: str(1 / 0), "the summarizer failed with ZeroDivisionError: division by zero"),
        (lambda _: None, "the summarizer returned a value of type NoneType; it must return the summary as a string"),
        (lambda _: " \n", "the summarizer returned an empty string"),
        (lambda _: "\ud800", "the summary has a lone surrogate"),
    ],
)
def test_oldest_messages_are_dropped_if_the_summarizer_fails(summarizer: Any, why: str) -> None:
    kept, report = Budget(100, CHARS, summarizer, summary_tokens=60).fit(chat(30))
    assert kept == Budget(100, CHARS, low_water=1).fit(chat(30))[0]
    assert report.failure is not None
    assert why in report.failure
    assert why in str(report)


def test_a_summary_that_does_not_fit_is_omitted() -> None:
    kept, report = Budget(100, CHARS, lambda _: "x", summary_tokens=len(PREFIX)).fit(chat(30))
    assert kept == chat(30)[20:]
    assert report.failure == f"no summary: a summary of at most {len(PREFIX)} tokens does not fit"


def test_a_long_summary_is_cut() -> None:
    kept, report = Budget(200, CHARS, lambda _: "A sentence. " * 99, summary_tokens=80).fit(chat(30))
    # Only one step is dropped.
    assert (kept[1:], report.summarized) == (chat(30)[20:], tuple(range(20)))
    assert kept[0]["content"] == f"{PREFIX}A sentence. A sentence. A sentence. […]"[: len(PREFIX) + 43]
    assert CHARS.count(kept) <= 200


def test_a_summary_that_costs_more_within_a_message_is_cut_further() -> None:
    class Dear(Json):
        """Counts the content of a message ten times."""

        additive = False

        def count(self, messages: Sequence[Any], tools: object = None) -> int:
            return super().count(messages, tools) + 9 * sum(len(each["content"]) for each in messages[:1])

    kept, report = Budget(2_000, Dear(), lambda _: "A sentence. " * 99, summary_tokens=1_000).fit(chat(200))
    assert report.summarized
    assert Dear().count(kept) <= 2_000
    assert kept[0]["content"].startswith(f"{PREFIX}A sentence. ")
    assert kept[0]["content"].endswith("[…]")


def test_the_pickle_of_a_budget_contains_no_remembered_summaries() -> None:
    budget = Budget(200, CHARS, shortly, summary_tokens=60)
    before = len(pickle.dumps(budget))
    budget.fit(chat(300))
    assert len(pickle.dumps(budget)) == before
    assert pickle.loads(pickle.dumps(budget)).fit(chat(30))[0] == budget.fit(chat(30))[0]  # noqa: S301 - our own


def test_only_the_latest_summaries_are_remembered() -> None:
    made = Summarizer()
    budget = Budget(200, CHARS, made, summary_tokens=60)
    for number in range(70):
        budget.fit([msg("user", f"conversation {number}"), *chat(30)])
    assert len(made.given) == 70
    for number, calls in ((69, 70), (0, 71)):
        budget.fit([msg("user", f"conversation {number}"), *chat(30)])
        assert len(made.given) == calls


async def slow(messages: list[Form]) -> str:
    await asyncio.sleep(0)
    return f"{len(messages)} messages"


async def broken(_: list[Form]) -> str:
    await asyncio.sleep(0)
    raise OSError("no connection")


def test_an_async_summarizer_is_accepted() -> None:
    kept, report = Budget(200, CHARS, slow, summary_tokens=60).fit(chat(30))
    assert kept[0]["content"] == f"{PREFIX}{len(report.summarized)} messages"
    assert asyncio.run(Budget(200, CHARS, slow, summary_tokens=60).afit(chat(30)))[0] == kept
    _, report = Budget(200, CHARS, broken, summary_tokens=60).fit(chat(30))
    assert "the summarizer failed with OSError: no connection" in str(report)


@pytest.mark.asyncio
async def test_an_async_summarizer_on_an_event_loop_requires_afit() -> None:
    with pytest.raises(BudgetError, match="use afit, or the formatter's aformat"):
        Budget(200, CHARS, slow, summary_tokens=60).fit(chat(30))
    kept, report = await Budget(200, CHARS, slow, summary_tokens=60).afit(chat(30))
    assert kept[0]["content"].endswith(" messages")
    _, report = await Budget(200, CHARS, broken, summary_tokens=60).afit(chat(30))
    assert "no connection" in str(report)
    assert (await Budget(200, CHARS, low_water=1).afit(chat(30)))[0] == chat(30)[10:]
