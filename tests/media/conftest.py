"""A directory and a local server for media."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.media import Site, serve_site


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serve_site(Site())
