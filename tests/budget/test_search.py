"""The search for how much has to go: right, and with few counts."""

from __future__ import annotations

from itertools import accumulate
from math import log2
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt.budget.search import fewest


# A whole that costs nothing divided by zero, where the target was below it.
@example(costs=[0, 0], target=-1)
@given(costs=st.lists(st.integers(-50, 500), min_size=1, max_size=60), target=st.integers(-10, 500))
def test_it_ends_with_what_fits_also_where_cost_jumps_about(costs: list[int], target: int) -> None:
    found = fewest([1] * (len(costs) - 1), costs.__getitem__, target, costs[0])
    assert found is None or costs[found] <= target
    if found is None:
        assert costs[-1] > target


@pytest.mark.parametrize("count", [100, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_it_asks_seldom(count: int, share: float, noise: float) -> None:
    dice = Random(count)  # noqa: S311 - the same in every run
    sizes = [dice.randint(1, 200) for _ in range(count)]
    weights = [int(size * 4 * (1 + noise * (dice.random() - 0.5))) for size in sizes]
    gone, asked = [0, *accumulate(sizes)], []

    def cost(at: int) -> int:
        asked.append(at)
        return gone[-1] - gone[at]

    fewest(weights, cost, int(gone[-1] * share), gone[-1])
    assert len(asked) <= 8


def test_it_asks_a_logarithm_of_times_where_weights_say_nothing() -> None:
    asked: list[int] = []

    def cost(at: int) -> int:
        asked.append(at)
        return 1_000 if at < 7_777 else 0

    assert fewest([1] * 10_000, cost, 500, 1_000) == 7_777
    assert len(asked) <= 2 * log2(10_000) + 10
