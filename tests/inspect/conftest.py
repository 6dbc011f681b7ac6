"""A browser for the views of notebooks, and a terminal that nothing in the environment changes."""

from __future__ import annotations

import pytest

from support.browser import browser, page, watch

__all__ = ["browser", "page", "watch"]  # pytest looks for fixtures here


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
