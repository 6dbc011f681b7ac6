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
