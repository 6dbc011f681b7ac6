"""The tables of `lazyprompt/rendering` are those in `tests/golden/facts`, so that a change is made on purpose."""

from support.facts import assert_current


def test_the_tables_are_the_recorded_ones() -> None:
    assert_current("rendering")
