"""The tables of modules and clients are those in `tests/golden/facts`, so that a change is made on purpose."""

import pytest

from support.facts import assert_current


@pytest.mark.parametrize("folder", ["modules", "modules.clients"])
def test_the_tables_are_the_recorded_ones(folder: str) -> None:
    assert_current(folder)
