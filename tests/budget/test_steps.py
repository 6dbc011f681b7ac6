"""The steps in which a budget drops the oldest messages."""

import time

import pytest

from budget.helpers import chat
from lazyprompt import Budget, CharTokenCounter
from lazyprompt.budget.steps import last_step
from lazyprompt.budget.units import Unit


@pytest.mark.timing
def test_fit_time_is_linear_in_the_number_of_messages() -> None:
    """Each request was compared with all messages: 5,000 messages took 0.9 s, 1,000 took 0.05 s."""

    def least_seconds(count: int) -> float:
        messages, seconds = chat(count), []
        for _ in range(5):
            begun = time.process_time()
            Budget(5 * count, CharTokenCounter()).fit(messages)
            seconds.append(time.process_time() - begun)
        return min(seconds)

    assert least_seconds(4_000) / least_seconds(500) < 2 * 8


def singly(count: int) -> list[tuple[int, ...]]:
    return [(at,) for at in range(count)]


@pytest.mark.parametrize(
    ("units", "tokens", "roles", "beside", "newer", "limit", "expected"),
    [
        # A request at the limit drops nothing; a longer request is reduced to half the limit.
        ([], [2], "a", 3, 0, 4, ([], 0)),
        (singly(1), [4], "u", 3, 0, 4, ([], 0)),
        (singly(2), [3, 2], "au", 1, 2, 8, ([], 0)),
        (singly(1), [3], "u", 0, 2, 4, ([0], 1)),
        (singly(1), [20], "a", 3, 0, 8, ([0], 1)),
        (singly(2), [2, 1], "aa", 1, 2, 4, ([0], 2)),
        # Each earlier request has the messages before its response.
        (singly(1), [20, 4], "au", 0, 5, 4, ([0], 2)),
        (singly(2), [20, 1], "aa", 1, 0, 4, ([0], 1)),
        ([(1,)], [2, 3], "aa", 1, 0, 8, ([], 0)),
        ([(0, 1)], [20, 2], "aa", 3, 2, 6, ([0, 1], 2)),
        # A step reaches to the newest dropped message, and belongs to the first request that may be too long.
        (singly(8), [1, 20, 3, 20, 1, 20, 4, 3], "aauauaaa", 1, 0, 40, ([0, 1, 2, 3], 7)),
        (
            [(0,), (1,), (2, 4), (3,), (5, 7), (6,)],
            *([4, 20, 4, 2, 20, 3, 4, 3], "aaauuaaa", 0, 5, 20),
            ([0, 1, 2, 3, 4, 5, 6, 7], 8),
        ),
    ],
)
def test_the_latest_request_drops_what_earlier_requests_dropped(
    units: list[Unit],
    tokens: list[float],
    roles: str,
    beside: int,
    newer: int,
    limit: int,
    expected: tuple[object, ...],
) -> None:
    named = ["user" if role == "u" else "assistant" for role in roles]
    step = last_step(units, tokens, named, beside=beside, newer=newer, limit=limit, low=limit / 2)
    assert (sorted(step.dropped), step.since) == expected


def test_drop_reasons_name_low_water_and_a_kept_user_message() -> None:
    """The reason named neither low_water nor that a user message was kept before the dropped messages."""
    messages = [{"role": "system", "content": "s"}]
    for turn in range(2):
        messages.append({"role": "user", "content": f"question {turn}"})
        messages += [{"role": "assistant", "content": f"step {step}".ljust(20)} for step in range(4)]
    messages.append({"role": "user", "content": "And now?"})
    report = Budget(80, CharTokenCounter()).fit(messages)[1]
    oldest, after = "the oldest go first, down to low_water=0.5", "the oldest after a kept user message go first"
    found = [(each.role, each.reason) for each in report.messages]
    assert found == [
        ("system", ""),
        ("user", oldest),
        *[("assistant", oldest)] * 4,
        ("user", ""),
        *[("assistant", after)] * 2,
        *[("assistant", "")] * 2,
        ("user", ""),
    ]
    assert str(report) == f"189 → 59 of 80 tokens: 7 dropped ({oldest}, {after})"
    whole = Budget(80, CharTokenCounter(), low_water=1).fit(messages)[1]
    assert {each.reason for each in whole.messages} == {"", "the oldest go first"}
