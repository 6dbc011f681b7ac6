"""The tables of `lazyprompt/batch` equal those in `tests/golden/facts`, so that no change is made by accident."""

from support.facts import assert_current


def test_tables_match_the_recorded_facts() -> None:
    assert_current("batch")
