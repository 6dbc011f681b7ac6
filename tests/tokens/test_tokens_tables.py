"""The tables of `lazyprompt/tokens` are those in `tests/golden/facts`, so that a change is made on purpose."""

from support.facts import assert_current


def test_tables_of_the_tokens_package_equal_the_recorded_facts() -> None:
    assert_current("tokens")
