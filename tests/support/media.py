"""Bytes of all kinds of media, and a local server of them, for the tests of media."""

from __future__ import annotations

from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt.errors import MediaError
from lazyprompt.media.resolver import MediaResolver
from lazyprompt.messages.msg import Base64Source, URLSource
from support.serving import Serving

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

WHERE = "messages[2].content[1]"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
JPEG = b"\xff\xd8\xff\xe0" + bytes(60)
MP4 = b"\0\0\0\x18ftypisom" + bytes(60)
HEADS = {
    "image/png": [PNG],
    "image/jpeg": [JPEG],
    "image/gif": [b"GIF89a..", b"GIF87a.."],
    "image/webp": [b"RIFF\x10\0\0\0WEBPVP8 "],
    "image/bmp": [b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0" + bytes(40)],
    "image/tiff": [b"II*\0\x08", b"MM\0*\0"],
    "image/heic": [b"\0\0\0\x18ftypheic", b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic"],
    "image/avif": [b"\0\0\0\x18ftypavif", b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif"],
    "image/heif": [b"\0\0\0\x18ftypmif1\0\0\0\0mif1"],
    "audio/wav": [b"RIFF\x10\0\0\0WAVEfmt ", b"RF64\x10\0\0\0WAVEds64"],
    "audio/mpeg": [b"ID3\x04\0\0", b"\xff\xfb\x90\x64", b"\xff\xf3\x40\xc4"],
    "audio/flac": [b"fLaC\0\0\0\x22"],
    "audio/aac": [b"\xff\xf1\x50\x80", b"\xff\xf9\x50\x80"],
    "audio/aiff": [b"FORM\0\0\0\0AIFF", b"FORM\0\0\0\0AIFC"],
    "audio/ogg": [b"OggS\0\x02" + bytes(22) + b"OpusHead"],
    "video/ogg": [b"OggS\0\x02" + bytes(23) + b"\x80theora"],
    "audio/mp4": [b"\0\0\0\x18ftypM4A "],
    "video/mp4": [MP4, b"\0\0\0\x18ftypmp42"],
    "video/quicktime": [b"\0\0\0\x18ftypqt  "],
    "video/3gpp": [b"\0\0\0\x18ftyp3gp5"],
    "video/webm": [b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm"],
    "video/x-matroska": [b"\x1aE\xdf\xa3\xa3B\x86\x81\x01B\x82\x88matroska"],
    "video/x-msvideo": [b"RIFF\x10\0\0\0AVI LIST"],
    "video/mpeg": [b"\0\0\x01\xba", b"\0\0\x01\xb3"],
    "video/x-flv": [b"FLV\x01"],
    "application/pdf": [b"%PDF-1.7", b"\xef\xbb\xbf\r\n%PDF-1.4"],
}


class Site(ThreadingHTTPServer):
    """A server on the loopback whose answers are raw bytes, in pieces where they are a list or a generator."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Callable[[socket.socket], Iterable[bytes]]] = {}
        self.seen: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def gives(self, path: str, body: bytes = PNG, status: str = "200 OK", **headers: object) -> str:
        told = {"Content-Length": len(body), **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value is not None)
        self.answers[path] = lambda _: [f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body]
        return self.url + path

    def does(self, path: str, answer: Callable[[socket.socket], Iterable[bytes]]) -> str:
        self.answers[path] = answer
        return self.url + path

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up, which the tests intend."""


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.seen.append({**self.headers, "target": self.path})
        for piece in self.server.answers[self.path.partition("?")[0]](self.connection):
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def serve_site(site: Site) -> Iterator[Site]:
    with Serving(site):
        yield site


def load(url: str | Path, media_type: str | None = None, **fields: Any) -> Base64Source:
    fields = {"hosts": ["127.0.0.1", "localhost"], **fields}
    return MediaResolver(**fields).load(URLSource(str(url), media_type), WHERE)


def fault(url: str | Path, media_type: str | None = None, **fields: Any) -> str:
    with pytest.raises(MediaError) as error:
        load(url, media_type, **fields)
    assert str(error.value).startswith(WHERE)
    assert "SECRET" not in str(error.value)
    return str(error.value)


def source(media_type: str, data: bytes) -> Base64Source:
    return Base64Source(media_type, b64encode(data).decode())
