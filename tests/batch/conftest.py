"""Fixtures for all tests of batch runs."""

import pytest

from support.batch_runs import wait_for_no_disk


@pytest.fixture(autouse=True)
def _no_disk_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_no_disk(monkeypatch)
