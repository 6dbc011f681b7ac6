"""What holds for all tests of runs over rows."""

import pytest

from support.batch_runs import wait_for_no_disk


@pytest.fixture(autouse=True)
def _disk_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_no_disk(monkeypatch)
