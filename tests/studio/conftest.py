"""The example library in a studio, and its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from studio.helpers import Screen, library, serve_studio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with serve_studio(place) as found:
        yield found


@pytest.fixture
def screen(page: Page, address: str) -> Screen:
    return Screen(page, address)
