"""The search for the fewest units to drop: correct, and with few counts."""

from itertools import accumulate
from math import log2

from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt.budget.search import find_fewest

SIZES = st.lists(st.integers(0, 500), max_size=60)


@given(sizes=SIZES, target=st.integers(-10, 9_000), rest=st.integers(0, 400))
def test_find_fewest_agrees_with_a_linear_search(sizes: list[int], target: int, rest: int) -> None:
    full = sum(sizes) + rest
    gone = [0, *accumulate(sizes)]
    best = next((count for count, less in enumerate(gone) if full - less <= target), None)
    assert find_fewest(len(sizes), lambda count: full - gone[count], target) == best


@example(costs=[0, 0], target=-1)
@given(costs=st.lists(st.integers(-50, 500), min_size=1, max_size=60), target=st.integers(-10, 500))
def test_find_fewest_returns_a_fitting_count_for_non_monotonic_costs(costs: list[int], target: int) -> None:
    found = find_fewest(len(costs) - 1, costs.__getitem__, target)
    assert found is None or costs[found] <= target
    if found is None:
        assert costs[-1] > target


def test_find_fewest_needs_a_logarithmic_number_of_counts() -> None:
    counted: list[int] = []

    def cost(at: int) -> int:
        counted.append(at)
        return 1_000 if at < 7_777 else 0

    assert find_fewest(10_000, cost, 500) == 7_777
    assert len(counted) <= log2(10_000) + 1
