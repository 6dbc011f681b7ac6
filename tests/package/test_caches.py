import pytest

from support.caches import BOUNDS, CONSTANTS, ONE_CALL, all_caches, lasting_caches, owner

MOST = 1_024


@pytest.mark.slow
def test_each_function_that_remembers_has_a_bound() -> None:
    # A vocabulary once was kept for each path that it was ever read from: 100 MB each.
    functions = [each for each in all_caches() if each.kind == "function"]
    assert len(functions) > 30
    without = [each.place for each in functions if each.bound is None or each.bound > MOST]
    assert not without, "give lru_cache a maxsize: what is kept for each input there is fills the memory"


@pytest.mark.slow
def test_whatever_else_lasts_has_a_bound_that_is_written_down() -> None:
    unknown = [each.place for each in lasting_caches() if each.kind != "function" and each.place not in BOUNDS]
    assert not unknown, (
        "this is kept and may grow: bound it and say so in BOUNDS of tests/support/caches.py, "
        "or name its class in ONE_CALL there, if its objects go with a call"
    )


def test_the_lists_hold_nothing_that_is_gone() -> None:
    places = {each.place for each in all_caches()}
    assert not (BOUNDS.keys() | CONSTANTS) - places
    assert not ONE_CALL - {owner(each) for each in all_caches() if each.kind == "object"}
