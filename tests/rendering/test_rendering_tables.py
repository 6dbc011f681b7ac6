"""The tables of `lazyprompt/rendering` equal those in `tests/golden/facts`, so that no change is accidental."""

from support.facts import assert_current


def test_tables_match_the_recorded_facts() -> None:
    assert_current("rendering")
