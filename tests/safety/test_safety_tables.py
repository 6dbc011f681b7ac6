"""The tables of `lazyprompt/safety` equal those in `tests/golden/facts`, so that no change is accidental."""

from support.facts import assert_current


def test_safety_tables_equal_the_recorded_tables() -> None:
    assert_current("safety")
