"""A site that media are loaded from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.media import Site, serve_site

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serve_site(Site())
