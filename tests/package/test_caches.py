from pathlib import Path
from textwrap import dedent

from support.caches import BOUNDS, CONSTANTS, ONE_CALL, Kept, kept, lasting, owner

MOST = 1_024


def found_in(tmp_path: Path, text: str) -> tuple[Kept, ...]:
    (tmp_path / "some.py").write_text(dedent(text), encoding="utf-8")
    return kept(tmp_path)


def test_each_function_that_remembers_has_a_bound() -> None:
    # A vocabulary once was kept for each path that it was ever read from: 100 MB each.
    functions = [each for each in kept() if each.kind == "function"]
    assert len(functions) > 30
    without = [each.place for each in functions if each.bound is None or each.bound > MOST]
    assert not without, "give lru_cache a maxsize: what is kept for each input there is fills the memory"


def test_whatever_else_lasts_has_a_bound_that_is_written_down() -> None:
    unknown = [each.place for each in lasting() if each.kind != "function" and each.place not in BOUNDS]
    assert not unknown, (
        "this is kept and may grow: bound it and say so in BOUNDS of tests/support/caches.py, "
        "or name its class in ONE_CALL there, if its objects go with a call"
    )


def test_the_lists_hold_nothing_that_is_gone() -> None:
    places = {each.place for each in kept()}
    assert not (BOUNDS.keys() | CONSTANTS) - places
    assert not ONE_CALL - {owner(each) for each in kept() if each.kind == "object"}


def test_functions_are_found_with_their_bounds(tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        """
        import functools
        from functools import cache, lru_cache
        MOST = 7
        @cache
        def a(x): ...
        @functools.cache
        def b(): ...
        @lru_cache
        def c(x): ...
        @lru_cache(maxsize=None)
        def d(x): ...
        @functools.lru_cache(None)
        def e(x): ...
        @lru_cache(maxsize=MOST)
        def f(x): ...
        g = lru_cache(maxsize=3)(len)
        class C:
            @lru_cache(maxsize=5)
            def h(self): ...
        def i():
            j = cache(len)
        """,
    )
    bounds = {"a": None, "b": 1, "c": 128, "d": None, "e": None, "f": 7, "g": 3, "h": 5}
    assert {each.place.partition(":")[2]: each.bound for each in found} == bounds


def test_containers_that_grow_are_found(tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        """
        from dataclasses import dataclass, field
        KNOWN = {}
        NAMES: list[str] = []
        FULL = {"a": 1}
        class C:
            def __init__(self):
                self.one: dict[str, int] = {}
                self.two = set()
                self.three = {}
                self.four = []
                self.one["built"] = self.three["built"] = 1
            def use(self, x):
                self.one[x] = 1
                self.two.add(x)
                self.four.append(x)
                return self.three[x]
        @dataclass
        class D:
            kept: dict[str, int] = field(default_factory=dict[str, int])
            def use(self, x):
                return self.kept.setdefault(x, 1)
        """,
    )
    assert {each.place.partition(":")[2]: each.kind for each in found} == {
        "KNOWN": "module",
        "NAMES": "module",
        "C.one": "object",
        "C.two": "object",
        "D.kept": "object",
    }
