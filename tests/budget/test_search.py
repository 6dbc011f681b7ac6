"""The search for how much has to go: right, and with few counts."""

from itertools import accumulate
from math import log2

from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt.budget.search import find_fewest

SIZES = st.lists(st.integers(0, 500), max_size=60)


@given(sizes=SIZES, target=st.integers(-10, 9_000), rest=st.integers(0, 400))
def test_it_finds_what_looking_at_all_finds(sizes: list[int], target: int, rest: int) -> None:
    full = sum(sizes) + rest
    gone = [0, *accumulate(sizes)]
    best = next((count for count, less in enumerate(gone) if full - less <= target), None)
    assert find_fewest(len(sizes), lambda count: full - gone[count], target) == best


@example(costs=[0, 0], target=-1)
@given(costs=st.lists(st.integers(-50, 500), min_size=1, max_size=60), target=st.integers(-10, 500))
def test_it_ends_with_what_fits_also_where_cost_jumps_about(costs: list[int], target: int) -> None:
    found = find_fewest(len(costs) - 1, costs.__getitem__, target)
    assert found is None or costs[found] <= target
    if found is None:
        assert costs[-1] > target


def test_it_asks_a_logarithm_of_times() -> None:
    asked: list[int] = []

    def cost(at: int) -> int:
        asked.append(at)
        return 1_000 if at < 7_777 else 0

    assert find_fewest(10_000, cost, 500) == 7_777
    assert len(asked) <= log2(10_000) + 1
