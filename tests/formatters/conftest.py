"""A local server for media."""

from collections.abc import Iterator

import pytest

from support.media import Site, serve_site


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serve_site(Site())
