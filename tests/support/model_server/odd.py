"""A server that gives one answer, whatever it is asked: for what no server should say."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.model_server.http import Script, ScriptServer
from support.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def odd_server(body: bytes, media_type: str = "application/json", status: int = 200) -> Iterator[str]:
    """The URL of the server while the context lasts."""
    server = ScriptServer(lambda *_: (Script(status, media_type, (body,)), lambda _: None))
    with Serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
    assert server.errors == []
