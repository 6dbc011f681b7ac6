"""The tables of modules and clients equal those in `tests/golden/facts`, so that no change is accidental."""

import pytest

from support.facts import assert_current


@pytest.mark.parametrize("folder", ["modules", "modules.clients"])
def test_tables_match_the_recorded_facts(folder: str) -> None:
    assert_current(folder)
