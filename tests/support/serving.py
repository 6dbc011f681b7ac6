"""Runs a local server while a test needs it."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from socketserver import BaseServer


class Serving:
    """Serves from a thread, as a context manager.

    Args:
        server: The server, which has its port already.
    """

    def __init__(self, server: BaseServer) -> None:
        self._server = server
        self._thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
