import pytest

from support.caches import BOUNDS, CONSTANTS, ONE_CALL, all_caches, lasting_caches, owner

MAX_SIZE = 1_024


@pytest.mark.slow
def test_each_function_cache_has_a_size_limit() -> None:
    # A vocabulary once was kept for each path that it was ever read from: 100 MB each.
    functions = [each for each in all_caches() if each.kind == "function"]
    assert len(functions) > 30
    without = [each.place for each in functions if each.bound is None or each.bound > MAX_SIZE]
    assert not without, "give lru_cache a maxsize: one kept value for each input fills the memory"


@pytest.mark.slow
def test_each_other_lasting_cache_has_a_documented_limit() -> None:
    unknown = [each.place for each in lasting_caches() if each.kind != "function" and each.place not in BOUNDS]
    assert not unknown, (
        "this is kept and may grow: bound it and say so in BOUNDS of tests/support/caches.py, "
        "or name its class in ONE_CALL there, if its objects go with a call"
    )


def test_lists_of_known_caches_name_only_existing_caches() -> None:
    places = {each.place for each in all_caches()}
    assert not (BOUNDS.keys() | CONSTANTS) - places
    assert not ONE_CALL - {owner(each) for each in all_caches() if each.kind == "object"}
