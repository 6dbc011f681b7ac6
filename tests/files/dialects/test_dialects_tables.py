"""The tables of `lazyprompt/files/dialects` are those in `tests/golden/facts`, so that a change is made on purpose."""

from support.facts import assert_current


def test_dialect_tables_match_the_golden_file() -> None:
    assert_current("files.dialects")
