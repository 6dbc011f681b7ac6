"""What holds for all tests of runs over rows."""

import os

import pytest


@pytest.fixture(autouse=True)
def _disk_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here, and syncing costs milliseconds each time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
