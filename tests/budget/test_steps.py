"""The steps in which a budget drops the oldest messages."""

from __future__ import annotations

import time

import pytest

from budget.helpers import talk
from lazyprompt import Budget, CharTokenCounter


@pytest.mark.timing
def test_the_time_grows_with_the_number_of_messages() -> None:
    """Each request of the conversation was compared with all messages: 5,000 of them took 0.9 s, 1,000 took 0.05 s."""

    def least_seconds(count: int) -> float:
        messages, seconds = talk(count), []
        for _ in range(5):
            begun = time.process_time()
            Budget(5 * count, CharTokenCounter()).fit(messages)
            seconds.append(time.process_time() - begun)
        return min(seconds)

    assert least_seconds(4_000) / least_seconds(500) < 2 * 8


def test_the_reason_says_how_far_and_that_a_question_stayed() -> None:
    """Messages newer than a kept question had the reason of the oldest, and so had those that low_water takes."""
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
