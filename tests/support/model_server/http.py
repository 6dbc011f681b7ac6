"""The HTTP side of the model server: it sends scripted responses, and notices when a client disconnects."""

import selectors
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias, cast

from support.serving import Serving

# Not select, which accepts at most 1,024 files, except on Windows, which has nothing else.
_SELECTOR = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Script(NamedTuple):
    """What is to be sent.

    Attributes:
        status: The HTTP status; 0 is no answer at all.
        media_type: The content type.
        frames: The body in one piece, or the events of a stream, which may have no end.
        chunked: Whether it is a stream.
        lost: What is sent of the rest, or would have been, when the connection is lost; None: it is not.
        headers: Further headers.
        first: Seconds before anything is sent.
        between: Seconds before each event but the first.
    """

    status: int
    media_type: str = ""
    frames: Iterable[bytes] = ()
    chunked: bool = False
    lost: bytes | None = None
    headers: Mapping[str, str] | None = None
    first: float = 0.0
    between: float = 0.0


# Given the path, the headers (their names in lower case) and the body of a request: what is sent, and whom to tell
# when that is over, and whether the client left before.
Reply: TypeAlias = Callable[[str, dict[str, str], bytes], tuple[Script, Callable[[bool], None]]]


class ScriptServer(ThreadingHTTPServer):
    """Plays the scripts that ``reply`` gives, each connection in a thread of its own.

    ``errors`` are those of its threads.
    """

    daemon_threads = False  # so that server_close waits for them, and no socket is left open
    request_queue_size = 1024

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = reply
        self.errors: list[Exception] = []
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature of the library
        if isinstance(error := sys.exception(), Exception):
            self.errors.append(error)

    def server_close(self) -> None:
        for connection in self._open.copy():  # idle connections, on which nothing more will come
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed already
                continue
        super().server_close()


class _LeftError(Exception):
    """The client closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # between two requests
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        length = int(self.headers["content-length"] or 0)
        content = self.rfile.read(length)
        if len(content) == length:
            self._answer(content)
        else:  # it left before it sent a request
            self.close_connection = True

    def _answer(self, content: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        script, over = cast("ScriptServer", self.server).reply(self.path, headers, content)
        left = False
        try:
            self._play(script)
        except (_LeftError, ConnectionError):
            left = self.close_connection = True
        finally:
            over(left)

    def _play(self, script: Script) -> None:
        self._wait(script.first)
        if not script.status:
            self.close_connection = True
            return
        self.wfile.write(_head(script))
        for at, frame in enumerate(script.frames):
            self._wait(script.between if at else 0.0)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame) if script.chunked else frame)
        if script.lost is not None:
            self.close_connection = True
            self.wfile.write(b"%x\r\n%b" % (2 * len(script.lost), script.lost) if script.chunked else b"")
        elif script.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _wait(self, seconds: float) -> None:
        """Wait, unless the client leaves."""
        if not seconds:
            return
        with _SELECTOR() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            if selector.select(seconds) and not self.connection.recv(1, socket.MSG_PEEK):
                raise _LeftError

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""


def _head(script: Script) -> bytes:
    if script.chunked:
        framing = {"transfer-encoding": "chunked"}
    else:
        framing = {"content-length": str(sum(map(len, (*script.frames, script.lost or b""))))}
    fields = {"content-type": script.media_type, **framing, **(script.headers or {})}
    lines = [f"HTTP/1.1 {script.status} {responses.get(script.status, 'Unknown')}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in fields.items()), "", ""]).encode()


@contextmanager
def odd_server(body: bytes, media_type: str = "application/json", status: int = 200) -> Iterator[str]:
    """Serve one response for any request, for responses that no server should send.

    Yields:
        The URL of the server.
    """
    server = ScriptServer(lambda *_: (Script(status, media_type, (body,)), lambda _: None))
    with Serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
    assert server.errors == []
