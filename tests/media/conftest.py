"""A directory and a site for media."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.media import Site, serve_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serve_site(Site())
