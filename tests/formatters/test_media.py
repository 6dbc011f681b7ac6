import asyncio
import dataclasses
import os
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lazyprompt.errors import MediaError
from lazyprompt.formatters.media import (
    MediaResolver,
    check_url,
    checked_source,
    is_local,
    media_type_of,
    sniffed,
)
from lazyprompt.messages import Base64Source, URLSource

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
TEXTS = [
    b"",
    b"hello",
    b"BMW cars are fast, all of them",
    b"ID3 tags",
    b"\xff\xfeh\0i\0",
    b"<svg/>",
    b"RIFF\0\0\0\0XXXX",
]
PRIVATE = """127.0.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 127.1 127.0.0.1. 0 0x0 10.1.2.3 172.16.0.1 192.168.1.1
169.254.169.254 100.100.100.200 192.0.0.192 192.88.99.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 localhost
LOCALHOST localhost. foo.localhost localhost.localdomain [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1]
[fe80::1] [fc00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [2002:7f00:1::] [64:ff9b::10.0.0.1] [2001:db8::1]"""
MALFORMED = r"""http:// http:///x http:/127.0.0.1/ http:127.0.0.1 http://[::1 http://[::g]/ http://[fe80::1%25eth0]/
http://h:x/ http://h:0/ http://h:70000/ http://1.2.3.4.5/ http://1.2.3.256/ http://127.0.0.09/ http://127%2e0.0.1/
http://１２７.0.0.1/ http://127。0。0。1/ http://münchen.de/ http://[v1.a]/ http://[127.0.0.1]/ http://a@b@h/
http://a..b/ http://-h/ http://h_/x\y http://h.com\@127.0.0.1/ ftp://h/ a.png data:,"""
# A certificate for localhost that is good until 2099, and its key, which guards nothing.
KEY = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgfS+CIbmTLNFnvZqL2lyGILpZfDfEJ5PBA3CbVWgc55GhRANCAAR+vJlZ+FhJ"
    "b/QarSEjckdcj5Eq7lpqVU6arRCom4YilOTURHcwAsuvZSZ7AS/1T0tt0J0ZMj4VuysoKXXyaJCx"
)
CERTIFICATE = (
    "MIIBdTCCARqgAwIBAgIUVaANlyM7F5drPNpXA16rhGDjRTIwCgYIKoZIzj0EAwIwDDEKMAgGA1UEAwwBdDAgFw0yMDAxMDEwMDAwMDBaGA8y"
    "MDk5MTIzMTAwMDAwMFowDDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABH68mVn4WElv9BqtISNyR1yPkSruWmpVTpqt"
    "EKibhiKU5NREdzACy69lJnsBL/VPS23QnRkyPhW7KygpdfJokLGjWDBWMBQGA1UdEQQNMAuCCWxvY2FsaG9zdDAPBgNVHRMBAf8EBTADAQH/"
    "MA4GA1UdDwEB/wQEAwIChDAdBgNVHQ4EFgQUDft1Lz2841M7w/+utHvq83beWmQwCgYIKoZIzj0EAwIDSQAwRgIhAPaCzcuGQGA4GaECaWaU"
    "Qh8YPObpGS0y/d0pOkk4SDDSAiEA3ZVVfeLuFuMmi4hWYwxCvGJtcEf+4gphd1Kz5xMTqoM="
)


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
        """Clients that hang up are what is tested."""


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.seen.append({**self.headers, "target": self.path})
        for piece in self.server.answers[self.path.partition("?")[0]](self.connection):
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def served(site: Site) -> Iterator[Site]:
    thread = threading.Thread(target=site.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    yield from served(Site())


@pytest.fixture
def safe_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The same over TLS, as localhost."""
    made = Site()
    key = f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n"
    path = tmp_path / "certificate.pem"
    path.write_text(key + ssl.DER_cert_to_PEM_cert(b64decode(CERTIFICATE)), encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    made.url = f"https://localhost:{made.server_port}"
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    yield from served(made)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def dns(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let names lead to these addresses, one answer after the other; what was asked."""
    real, asked = socket.getaddrinfo, list[str]()

    def getaddrinfo(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host[0].isdigit() or ":" in host:
            return real(host, port, *args, **kwargs)
        asked.append(host)
        return [(0, 0, 0, "", (ip, port)) for ip in answers[len(asked) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


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


@pytest.mark.parametrize(("media_type", "head"), [(kind, head) for kind, heads in HEADS.items() for head in heads])
def test_bytes_tell_their_type(media_type: str, head: bytes) -> None:
    assert sniffed(head) == media_type


@pytest.mark.parametrize("head", TEXTS)
def test_texts_and_unknown_bytes_tell_none(head: bytes) -> None:
    assert sniffed(head) is None


LOCAL = "a.png ./a a/b ../x ~/a .hidden /etc/x file:///etc/x FILE:/x C:\\x C:/x a\\b 图.png what?.png 1:2/x"
NOT_LOCAL = "http://h/a.png HTTPS://h/x data:image/png;base64,AA== gs://b/a.png oss://b/a.png url_to_png1 a-b_c 图"


@pytest.mark.parametrize(("url", "local"), [(u, True) for u in LOCAL.split()] + [(u, False) for u in NOT_LOCAL.split()])
def test_local_is_what_looks_like_a_path(url: str, local: bool) -> None:  # noqa: FBT001 - pytest hands it in
    assert is_local(url) is local


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        ("a.JPG", "image/jpeg"),
        ("https://h/a/b.png?sig=1.gif#x.pdf", "image/png"),
        ("https://h/a?file=a.png", None),
        ("https://example.md", None),
        ("https://example.md?x.png", None),
        ("file:///a/b.mp3", "audio/mpeg"),
        ("what?.mp4", "video/mp4"),
        ("a.tar", None),
        ("a", None),
        ("gs://bucket/a.webm", "video/webm"),
        ("a.csv", "text/csv"),
    ],
)
def test_an_ending_tells_the_type(url: str, media_type: str | None) -> None:
    assert media_type_of(url) == media_type


@pytest.mark.parametrize(
    ("kind", "given", "data", "media_type"),
    [
        ("image", "image/jpg", JPEG, "image/jpeg"),
        ("image", "IMAGE/PNG; x=y", PNG, "image/png"),
        ("image", "image/png", JPEG, "image/jpeg"),
        ("image", "application/octet-stream", PNG, "image/png"),
        ("image", "image/png", b"hello", "image/png"),
        ("audio", "audio/x-wav", b"hello", "audio/wav"),
        ("audio", "audio/L16;rate=24000", b"hello", "audio/L16;rate=24000"),
        ("audio", "audio/x-m4a", MP4, "audio/mp4"),
        ("video", "video/mp4", HEADS["audio/mp4"][0], "video/mp4"),
        ("file", "application/x-pdf", b"%PDF-1.7", "application/pdf"),
        ("file", "application/octet-stream", PNG, "image/png"),
        ("file", "image/png", JPEG, "image/jpeg"),
        ("file", "audio/mp4", MP4, "audio/mp4"),
        ("file", "text/plain; charset=gbk", b"\xc4\xe3", "text/plain; charset=gbk"),
    ],
)
def test_a_source_gets_the_usual_name_of_its_true_type(kind: str, given: str, data: bytes, media_type: str) -> None:
    assert checked_source(source(given, data), kind, WHERE) == source(media_type, data)


def test_a_right_source_is_the_very_same() -> None:
    right = source("image/png", PNG)
    assert checked_source(right, "image", WHERE) is right


def test_base64_with_lines_or_of_the_urlsafe_alphabet_becomes_plain() -> None:
    assert checked_source(Base64Source("image/png", "-_-_\n  AA==\r\n"), "image", WHERE).data == "+/+/AA=="


@pytest.mark.parametrize(
    ("data", "told"),
    [("", "empty"), (" \n", "empty"), ("data:image/png;base64,AAAA", "data: URL"), ("AA*A", r"'\*' at index 2")]
    + [(data, "padding") for data in ("A", "AAA", "AA=A", "=AAA", "A===", "AAAA====")]
    + [("图图图图", "'图' at index 0")],
)
def test_no_base64_is_refused(data: str, told: str) -> None:
    with pytest.raises(MediaError, match=rf"^messages\[2\]\.content\[1\]: the data is .*{told}"):
        checked_source(Base64Source("image/png", data), "image", WHERE)


@pytest.mark.parametrize(
    ("kind", "given", "data"),
    [
        ("image", "image/png", b"%PDF-1.7"),
        ("image", "image/png", MP4),
        ("audio", "audio/wav", PNG),
        ("file", "application/pdf", PNG),
        ("video", "video/mp4", HEADS["audio/wav"][0]),
    ],
)
def test_bytes_of_another_kind_are_refused(kind: str, given: str, data: bytes) -> None:
    with pytest.raises(MediaError, match=rf"^messages\[2\].*declared as '{given}', but its bytes are "):
        checked_source(source(given, data), kind, WHERE)


@pytest.mark.parametrize("host", PRIVATE.split())
def test_a_private_host_is_passed_on_in_no_spelling(host: str) -> None:
    for hosts in ((), ("example.com", "*.example.com")):
        with pytest.raises(MediaError, match="is on a private host"):
            check_url(f"http://{host}:8000/a.png", WHERE, hosts)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "127.1", "[::ffff:127.0.0.1]", "[::1]", "localhost."])
def test_a_private_host_that_is_listed_is_passed_on(host: str) -> None:
    MediaResolver(hosts=["127.0.0.1", "::1", "LocalHost"]).check(f"http://{host}/a.png", WHERE)


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1]", "[64:ff9b::8.8.8.8]", "[2002:808:808::]", "a.b", "_x.b"])
def test_a_public_host_is_passed_on(host: str) -> None:
    check_url(f"https://{host}/a.png?x=@#f", WHERE)
    check_url(f"HTTPS://{host}:/", WHERE)


@pytest.mark.parametrize("url", [*MALFORMED.split(), "http://h/a b", "http://h/\n", " http://h/", ""])
def test_what_is_no_plain_web_address_is_not_passed_on(url: str) -> None:
    with pytest.raises(MediaError, match=r"^messages\[2\]\.content\[1\]: '"):
        check_url(url, WHERE)


@pytest.mark.parametrize(
    "url", ["https://u:SECRET@h/", "https://SECRET@h/", "https://u:SE/CRET@h:x/?SECRET", "s3:SECRET"]
)
def test_errors_do_not_tell_secrets(url: str) -> None:
    with pytest.raises(MediaError) as error:
        check_url(url, WHERE)
    assert "SECRET" not in str(error.value)
    assert fault(f"x.png?{'SECRET' * 99}", roots=["/etc"])
    assert len(fault(f"https://h/{'x' * 9999}")) < 500


def test_only_listed_hosts_are_passed_on() -> None:
    resolver = MediaResolver(hosts=["Example.com", "*.example.org"])
    for host in ("example.com", "EXAMPLE.COM.", "a.example.org", "a.b.example.org"):
        resolver.check(f"https://{host}/", WHERE)
    for host in ("a.example.com", "example.org", "badexample.org", "example.com.evil.net", "8.8.8.8"):
        with pytest.raises(MediaError, match="hosts= of the media resolver does not list"):
            resolver.check(f"https://{host}/", WHERE)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"roots": "/tmp"}, "roots is a str; give a list of roots"),  # noqa: S108 - nothing is put there
        ({"roots": [""]}, "roots has '', which is no directory"),
        ({"roots": ["/no/such"]}, "roots has '/no/such', which is no directory"),
        ({"roots": [__file__]}, "which is no directory"),
        ({"roots": [5]}, "roots has 5"),
        ({"hosts": "example.com"}, "hosts is a str"),
        *(
            ({"hosts": [host]}, "hosts has ")
            for host in ("http://h", "h:80", "h/x", "", "*", "*.", "*.1.2.3", "h h", "[::1]", 5)
        ),
        *(({"max_bytes": size}, "max_bytes is ") for size in (0, -1, 1.5, True, "5")),
        *(({"timeout": size}, "timeout is ") for size in (0, -1, float("nan"), float("inf"), True, "5", None)),
    ],
)
def test_a_resolver_refuses_wrong_arguments(fields: Any, told: str) -> None:
    with pytest.raises(MediaError, match=told):
        MediaResolver(**fields)


def test_a_resolver_is_a_value(root: Path) -> None:
    resolver = MediaResolver([root, str(root)], ["A.b", "127.1", "*.C.d"], 5, 1)
    assert (resolver.roots, resolver.hosts) == ((str(root.resolve()),) * 2, ("a.b", "127.0.0.1", "*.c.d"))
    for twin in (pickle.loads(pickle.dumps(resolver)), dataclasses.replace(resolver)):  # noqa: S301 - our bytes
        assert twin == resolver
        assert hash(twin) == hash(resolver)
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolver.max_bytes = 6  # type: ignore[misc]


def test_importing_it_brings_no_network() -> None:
    code = (
        "import sys, lazyprompt.formatters.media; print([m for m in ('urllib3', 'socket', 'ssl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603 - our own code
    assert done.stdout.strip() == b"[]"


def test_a_file_in_a_root_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "below").mkdir()
    path = root / "below" / "a b%20#ü.png"
    path.write_bytes(PNG)
    (root / "link.png").symlink_to(path)
    monkeypatch.chdir(root)
    escaped = f"{root}/below/a%20b%2520%23%C3%BC.png"
    for url in (
        path,
        "below/a b%20#ü.png",
        "./link.png",
        f"file://{escaped}",
        f"file://LOCALHOST{escaped}",
        f"file:{escaped}",
    ):
        assert load(url, roots=[root]) == source("image/png", PNG)
    assert load(path, roots=["/", root]) == source("image/png", PNG)


def test_a_file_outside_of_the_roots_is_not_read(root: Path, tmp_path: Path) -> None:
    for name in ("root2", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(PNG)
    (root / "link.png").symlink_to(tmp_path / "secret" / "a.png")
    (root / "dir").symlink_to(tmp_path / "secret")
    (root / "zero.png").symlink_to("/dev/zero")
    outside: list[str | Path] = [
        "/etc/hostname",
        "file:///etc/hostname",
        "~/a.png",
        f"file://{root}/%2E%2E/secret/a.png",
    ]
    outside += [root / "link.png", root / "dir" / "a.png", root / "zero.png", root, tmp_path / "root2" / "a.png"]
    # Whether such a file is there cannot be found out either.
    for url in (*outside, "/no/such.png"):
        assert f"does not lie in {root}; add its directory to roots=" in fault(url, roots=[root])
        assert "allow its directory with MediaResolver(roots=[...])" in fault(url)


@pytest.mark.parametrize(
    "url", ["file://host/etc/x", "file:a.png", "file:", "file:///a?b", "file:///a#b", "file://etc/x"]
)
def test_a_file_url_of_another_machine_or_form_is_refused(url: str) -> None:
    assert "is no file of this machine" in fault(url, roots=["/"])


@pytest.mark.parametrize("url", ["url_to_png1", "data:image/png;base64,SECRET", "gs://b/a.png", "s3://SECRET/x", ""])
def test_what_is_neither_a_path_nor_an_address_is_not_loaded(url: str) -> None:
    assert "is neither a path nor an http(s) address" in fault(url, roots=["/"])


def test_only_regular_files_are_read(root: Path) -> None:
    os.mkfifo(root / "fifo.png")
    (root / "dir.png").mkdir()
    for path in (root / "fifo.png", root / "dir.png"):
        assert "is no regular file" in fault(path, roots=[root])
    assert "is no regular file" in fault("/dev/zero", roots=["/dev"])
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(root / "s.png"))
        assert "cannot be read" in fault(root / "s.png", roots=[root])


def test_files_that_cannot_be_read_say_why(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "loop.png").symlink_to(root / "loop.png")
    assert "cannot be read: Too many levels of symbolic links" in fault(root / "loop.png", roots=[root])
    assert "cannot be read: No such file or directory" in fault(root / "none.png", roots=[root])
    assert "cannot be read: Not a directory" in fault(f"{__file__}/a.png", roots=["/"])
    assert "cannot be read: File name too long" in fault(root / ("x" * 300 + ".png"), roots=[root])
    assert "has a null byte" in fault("a\0.png", roots=[root])
    assert "has a null byte" in fault("file:///a%00.png", roots=[root])
    monkeypatch.setattr(os, "supports_dir_fd", set())
    assert "this system cannot open files in steps" in fault(root / "none.png", roots=[root])


def test_a_link_put_there_after_the_path_was_resolved_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.parent / "a.png").write_bytes(PNG)
    (root / "dir").symlink_to(root.parent)
    (root / "a.png").symlink_to(root.parent / "a.png")
    resolver = MediaResolver(roots=[root])
    monkeypatch.setattr(os.path, "realpath", str)
    for path in (root / "dir" / "a.png", root / "a.png"):
        with pytest.raises(MediaError, match="cannot be read"):
            resolver.load(URLSource(str(path)), WHERE)


def test_the_size_of_a_file_is_bounded(root: Path) -> None:
    path = root / "a.png"
    path.write_bytes(PNG)
    assert load(path, roots=[root], max_bytes=len(PNG)).media_type == "image/png"
    assert "has 68 bytes; max_bytes= of the media resolver allows 67" in fault(path, roots=[root], max_bytes=67)
    os.truncate(path, 5 << 30)
    assert "has 5368709120 bytes" in fault(path, roots=[root])
    if sys.platform == "linux":
        assert "grew while it was read" in fault("/proc/self/status", roots=["/proc"])


def test_reading_leaves_nothing_open(root: Path) -> None:
    (root / "below").mkdir()
    (root / "below" / "a.txt").write_bytes(PNG)
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(50):
        fault(root / "below" / "a.txt", roots=[root])
        fault(root / "below" / "none" / "a.txt", roots=[root])
    # Other threads of this process open and close some too.
    assert len(list(Path("/dev/fd").iterdir())) < before + 50


@pytest.mark.parametrize(
    ("name", "data", "declared", "told"),
    [
        ("a.png", b"root:x:0:0", None, "is 'image/png' by its ending, but its bytes are none"),
        ("a.txt", b"root:x:0:0", "image/png", "is 'image/png' by its media_type, but its bytes are none"),
        ("a.png", b"hello", "text/plain", "is 'image/png' by its ending"),
        ("a.png", JPEG, None, "is 'image/png' by its ending, but its bytes are image/jpeg"),
        ("a.jpg", JPEG, "image/png", "is 'image/png' by its media_type, but its bytes are image/jpeg"),
        ("a.txt", PNG, None, "is 'text/plain' by its ending, but its bytes are image/png"),
        ("a.pdf", b"PK\3\4", None, "its bytes are none"),
        ("a.svg", b"<svg/>", None, "its bytes are none"),
        ("./a", b"hello", None, "tells no type"),
        ("a.txt", b"\xff\xfeh\0i\0", None, "is no text in UTF-8"),
        ("a.json", b"{}\0", None, "is no text in UTF-8"),
        ("a.png", b"", None, "is empty"),
        ("a.txt", b"", None, "is empty"),
    ],
)
def test_a_type_that_lies_is_refused(root: Path, name: str, data: bytes, declared: str | None, told: str) -> None:
    (root / name).write_bytes(data)
    assert told in fault(root / name, declared, roots=[root])


@pytest.mark.parametrize(
    ("name", "data", "declared", "media_type"),
    [
        ("a", PNG, None, "image/png"),
        ("a.bin", PNG, "application/octet-stream", "image/png"),
        ("a.jpg", JPEG, "image/jpg", "image/jpeg"),
        ("a.md", "# 你好".encode(), None, "text/markdown"),
        ("a.log", b"hello", "text/plain; charset=utf-8", "text/plain"),
        ("a.json", b"{}", None, "application/json"),
        ("a.mp4", MP4, "audio/mp4", "audio/mp4"),
        ("a.m4a", MP4, None, "audio/mp4"),
    ],
)
def test_a_file_gets_the_type_of_its_bytes(
    root: Path, name: str, data: bytes, declared: str | None, media_type: str
) -> None:
    (root / name).write_bytes(data)
    assert load(root / name, declared, roots=[root]) == source(media_type, data)


def test_an_address_is_fetched(site: Site) -> None:
    url = site.gives("/a.png", Content_Type="image/png")
    assert load(f"{url}?sig=ü#x", "image/png") == source("image/png", PNG)
    assert load(url.replace("127.0.0.1", "2130706433")) == source("image/png", PNG)
    (asked, _) = site.seen
    assert asked["target"] == "/a.png?sig=%C3%BC"
    assert asked["Host"] == f"127.0.0.1:{site.server_port}"
    assert asked["Accept-Encoding"] == "identity"


def test_proxies_of_the_environment_are_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert load(site.gives("/a")).media_type == "image/png"


def test_bodies_of_each_framing_are_read(site: Site) -> None:
    assert load(site.gives("/a", Content_Length=None)).media_type == "image/png"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(PNG), PNG)
    url = site.gives("/b", chunked, Content_Length=None, Transfer_Encoding="chunked")
    assert load(url) == source("image/png", PNG)
    assert "cannot be fetched" in fault(site.gives("/c", PNG, Content_Length=999))
    assert "cannot be fetched" in fault(
        site.gives("/d", chunked[:20], Content_Length=None, Transfer_Encoding="chunked")
    )


def test_a_host_that_is_not_listed_is_not_asked(site: Site) -> None:
    url = site.gives("/a.png?SECRET")
    for hosts in ((), ("example.com",), ("*.0.0.example",)):
        assert "may not be asked; allow it with MediaResolver(hosts=['...'])" in fault(url, hosts=hosts)
    assert "has credentials" in fault(url.replace("//", "//SECRET@"))
    assert site.seen == []


@pytest.mark.parametrize("size", [101, 10**30])
def test_too_large_a_body_is_refused(site: Site, size: int) -> None:
    assert "more than the 100 bytes" in fault(site.gives("/a", PNG, Content_Length=size), max_bytes=100)
    body = PNG + bytes(100)
    assert "more than the 100 bytes" in fault(site.gives("/b", body, Content_Length=None), max_bytes=100)
    assert "more than the 100 bytes" in fault(site.gives("/c", body), max_bytes=100)


@pytest.mark.parametrize(
    "status", ["404 Not Found", "206 Partial Content", "500 Oops", "304 Not Modified", "302 Found"]
)
def test_an_answer_without_content_is_refused(site: Site, status: str) -> None:
    assert f"is answered with status {status[:3]}" in fault(site.gives("/a?SECRET".partition("?")[0], status=status))


def test_answers_that_break_the_protocol_are_refused(site: Site) -> None:
    for number, answer in enumerate([b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: 1\r\n" * 999 + b"\r\n"]):
        assert "cannot be fetched: " in fault(site.does(f"/{number}", lambda _, answer=answer: [answer]))  # type: ignore[misc]
    assert "comes compressed ('gzip')" in fault(site.gives("/z", Content_Encoding="gzip"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert "cannot be fetched: " in fault(f"http://127.0.0.1:{free.getsockname()[1]}/?SECRET")


@pytest.mark.parametrize(
    ("name", "data", "header", "media_type"),
    [
        ("/a.jpg", PNG, "image/png", "image/png"),
        ("/a.jpg", PNG, "image/jpeg", "is 'image/jpeg' by its Content-Type, but its bytes are image/png"),
        ("/a.jpg", PNG, None, "is 'image/jpeg' by its ending"),
        ("/a.jpg", PNG, "application/octet-stream", "is 'image/jpeg' by its ending"),
        ("/a.png", b"<html>", "text/html", "text/html"),
        ("/a.png", b"<html>", "image/png", "its bytes are none"),
        ("/a.md", b"# hi", "text/plain; charset=utf-8", "text/plain"),
        ("/a.md", b"# hi", None, "text/markdown"),
        ("/a", b"hi", None, "tells no type"),
    ],
)
def test_a_content_type_must_be_true(site: Site, name: str, data: bytes, header: str | None, media_type: str) -> None:
    url = site.gives(name, data, Content_Type=header)
    if " " in media_type:
        assert media_type in fault(url)
    else:
        assert load(url) == source(media_type, data)


def test_redirects_are_followed_five_times(site: Site) -> None:
    site.gives("/ü 5.png".replace("ü ", "%C3%BC%20"))
    for number in range(5):
        onward = "/ü 5.png" if number == 4 else f"{number + 1}?x=1"
        site.gives(f"/{number}", b"", f"{(301, 302, 303, 307, 308)[number]} Moved", Location=onward)
    assert load(f"{site.url}/0").media_type == "image/png"
    site.gives("/before", b"", "302 Found", Location="/0")
    told = fault(f"{site.url}/before?SECRET")
    assert "is redirected on, after 5 redirects already" in told
    assert told.startswith(f"{WHERE}, redirected from '{site.url}/4'")


@pytest.mark.parametrize(
    "onward", ["http://10.0.0.1/", "http://localhost:1/", "file:///etc/hostname", "//example.com/x"]
)
def test_a_redirect_to_a_forbidden_host_is_not_followed(site: Site, onward: str) -> None:
    url = site.gives("/a?SECRET".partition("?")[0], b"", "302 Found", Location=onward)
    assert f"{WHERE}, redirected from '{url}': " in fault(f"{url}?SECRET", hosts=["127.0.0.1"])


@pytest.mark.parametrize("onward", ["http://[", "http:\\\\127.0.0.1\\", "http://u:SECRET@127.0.0.1/"])
def test_a_malformed_redirect_is_refused(site: Site, onward: str) -> None:
    assert fault(site.gives("/a", b"", "302 Found", Location=onward))


def test_a_name_that_leads_to_a_private_address_is_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    url = site.gives("/a.png").replace("127.0.0.1", "media.example.com")
    for ips in (["10.0.0.5"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:169.254.169.254"], ["fe80::1%lo"]):
        asked = dns(monkeypatch, ips)
        assert "is on a host with the private address" in fault(url, hosts=["*.example.com"])
        assert asked == ["media.example.com"]
    dns(monkeypatch, ["10.0.0.5"])
    assert "private address 10.0.0.5" in fault(url.replace("media.example.com", "localhost"))
    assert site.seen == []


def test_a_private_address_that_is_listed_too_is_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, ["127.0.0.1"])
    url = site.gives("/a.png").replace("127.0.0.1", "media.example.com")
    assert load(url, hosts=["media.example.com", "127.0.0.1"]).media_type == "image/png"
    assert site.seen[0]["Host"] == f"media.example.com:{site.server_port}"


def test_a_second_answer_of_the_dns_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dns(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
    assert load(site.gives("/a.png").replace("127.0.0.1", "localhost")).media_type == "image/png"
    assert asked == ["localhost"]


def test_the_next_address_of_a_host_is_tried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, ["127.0.0.2", "127.0.0.1"], [])
    url = site.gives("/a.png").replace("127.0.0.1", "localhost")
    assert load(url).media_type == "image/png"
    assert "its host has no address" in fault(url)


def test_a_name_that_is_not_found_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert "cannot be fetched: [Errno -2] Name or service not known" in fault("http://localhost/?SECRET")


def test_tls_is_verified_for_the_name_of_the_host(safe_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    url = safe_site.gives("/a.png")
    assert load(url).media_type == "image/png"
    port = safe_site.server_port
    assert "certificate verify failed" in fault(f"https://127.0.0.1:{port}/a.png")
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "certificate verify failed" in fault(url)


def test_a_redirect_from_https_to_http_is_not_followed(safe_site: Site) -> None:
    url = safe_site.gives("/a", b"", "302 Found", Location="http://127.0.0.1/?SECRET")
    assert "leads from https to http ('http://127.0.0.1/')" in fault(url)


def drips(start: bytes) -> Callable[[socket.socket], Iterator[bytes]]:
    def drip(_: socket.socket) -> Iterator[bytes]:
        yield start
        for _number in range(200):
            time.sleep(0.05)
            yield b"x"

    return drip


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\n\r\n" + PNG,
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",
    ],
)
def test_a_slow_drip_ends(site: Site, start: bytes) -> None:
    began = time.monotonic()
    told = fault(site.does("/a.png", drips(start)), timeout=0.3)
    assert "did not come within 0.3 s; give the media resolver a longer timeout=" in told
    assert time.monotonic() - began < 5


def test_a_slow_drip_over_tls_ends(safe_site: Site) -> None:
    assert "did not come within" in fault(safe_site.does("/a", drips(b"HTTP/1.1 200 OK\r\nX: ")), timeout=0.5)


def test_servers_and_resolvers_that_say_nothing_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "did not come within" in fault(f"http://127.0.0.1:{port}/", timeout=0.2)
        began = time.monotonic()
        assert "127.0.0.1" in fault(f"https://127.0.0.1:{port}/", timeout=0.2)
        assert time.monotonic() - began < 5
    done = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(20) and [])
    assert "did not come within" in fault("http://localhost/", timeout=0.2)
    done.set()


@pytest.mark.asyncio
async def test_the_event_loop_runs_on_while_a_server_is_slow(site: Site) -> None:
    free = threading.Event()

    def slow(_: socket.socket) -> Iterator[bytes]:
        # A loop that stood still could not set it.
        if free.wait(20):
            yield b"HTTP/1.1 200 OK\r\n\r\n" + PNG

    resolver = MediaResolver(hosts=["127.0.0.1"], timeout=30)
    loads = [resolver.aload(URLSource(site.does(f"/{number}", slow)), WHERE) for number in range(3)]
    tasks = [asyncio.create_task(each) for each in loads]
    await asyncio.sleep(0.05)
    free.set()
    assert await asyncio.gather(*tasks) == [source("image/png", PNG)] * 3


@pytest.mark.asyncio
async def test_a_file_is_read_beside_the_loop(root: Path) -> None:
    (root / "a.png").write_bytes(PNG)
    resolver = MediaResolver(roots=[root])
    assert await resolver.aload(URLSource(str(root / "a.png")), WHERE) == source("image/png", PNG)
    with pytest.raises(MediaError, match="does not lie in"):
        await resolver.aload(URLSource("/etc/hostname.png"), WHERE)


@pytest.mark.asyncio
async def test_a_load_that_is_cancelled_hangs_up_at_once(site: Site) -> None:
    asked, gone = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> Iterable[bytes]:
        asked.set()
        if connection.recv(1) == b"":
            gone.set()
        return []

    resolver = MediaResolver(hosts=["127.0.0.1"], timeout=600)
    task = asyncio.create_task(resolver.aload(URLSource(site.does("/a", wait)), WHERE))
    assert await asyncio.to_thread(asked.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gone.wait, 20)


def test_one_resolver_serves_many_threads(site: Site, root: Path) -> None:
    (root / "a.jpg").write_bytes(JPEG)
    sources = [URLSource(site.gives("/a.png")), URLSource(str(root / "a.jpg"))] * 20
    resolver = MediaResolver([root], ["127.0.0.1"])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(resolver.load, sources, [WHERE] * 40))
    assert found == [source("image/png", PNG), source("image/jpeg", JPEG)] * 20


RACE = """
import sys
from threading import Barrier, Thread
from lazyprompt.errors import MediaError
from lazyprompt.formatters.media import MediaResolver
from lazyprompt.messages import URLSource

def ask():
    start.wait()
    try:
        MediaResolver(hosts=["127.0.0.1"]).load(URLSource("http://127.0.0.1:9/"), "here")
    except MediaError as error:
        told.append(error)

sys.setswitchinterval(1e-5)
start, told = Barrier(8), []
threads = [Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(told))
"""


@pytest.mark.parametrize("_", range(4))
def test_the_first_loads_of_a_process_may_be_many_at_once(_: int) -> None:
    """Threads that imported the modules of urllib3 at the same time met them half made."""
    done = subprocess.run([sys.executable, "-c", RACE], check=True, capture_output=True)  # noqa: S603 - our own code
    assert done.stdout.strip() == b"8"
    assert done.stderr == b""
