"""Media by URL: every redirect is checked, every response is limited in bytes and in time."""

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme

from lazyprompt.errors import MediaError
from lazyprompt.media.fetch import Deadline
from lazyprompt.media.resolver import MediaResolver
from lazyprompt.messages.msg import URLSource
from support.media import JPEG, PNG, WHERE, Site, fault, load, serve_site, source


@pytest.fixture
def safe_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site over TLS, as localhost."""
    made = Site()
    authority = trustme.CA()
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    made.url = f"https://localhost:{made.server_port}"
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    yield from serve_site(made)


def dns(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Resolve host names to these addresses, one lookup after the other; return the names looked up."""
    real, asked = socket.getaddrinfo, list[str]()

    def getaddrinfo(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host[0].isdigit() or ":" in host:
            return real(host, port, *args, **kwargs)
        asked.append(host)
        return [(0, 0, 0, "", (ip, port)) for ip in answers[len(asked) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_media_url_is_fetched(site: Site) -> None:
    url = site.gives("/a.png", Content_Type="image/png")
    assert load(f"{url}?sig=ü#x", "image/png") == source("image/png", PNG)
    assert load(url.replace("127.0.0.1", "2130706433")) == source("image/png", PNG)
    assert load(f"{site.gives('/').removesuffix('/')}?size=1") == source("image/png", PNG)
    asked = site.seen[0]
    assert [each["target"] for each in site.seen] == ["/a.png?sig=%C3%BC", "/a.png", "/?size=1"]
    assert asked["Host"] == f"127.0.0.1:{site.server_port}"
    assert asked["Accept-Encoding"] == "identity"


def test_proxy_environment_variables_are_ignored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert load(site.gives("/a")).media_type == "image/png"


def test_response_bodies_of_each_http_framing_are_read(site: Site) -> None:
    assert load(site.gives("/a", Content_Length=None)).media_type == "image/png"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(PNG), PNG)
    url = site.gives("/b", chunked, Content_Length=None, Transfer_Encoding="chunked")
    assert load(url) == source("image/png", PNG)
    assert "cannot be fetched" in fault(site.gives("/c", PNG, Content_Length=999))
    assert "cannot be fetched" in fault(
        site.gives("/d", chunked[:20], Content_Length=None, Transfer_Encoding="chunked")
    )


@pytest.mark.parametrize("hosts", [(), ("example.com",), ("*.0.0.example",)])
def test_unlisted_host_is_not_contacted(site: Site, hosts: tuple[str, ...]) -> None:
    url = site.gives("/a.png?SECRET")
    assert "is not allowed; add the host with MediaResolver(hosts=['...'])" in fault(url, hosts=hosts)
    assert "contains credentials" in fault(url.replace("//", "//SECRET@"))
    assert site.seen == []


@pytest.mark.parametrize("size", [101, 10**30])
def test_response_body_larger_than_max_bytes_is_refused(site: Site, size: int) -> None:
    assert "exceeds the 100 bytes" in fault(site.gives("/a", PNG, Content_Length=size), max_bytes=100)
    body = PNG + bytes(100)
    assert "exceeds the 100 bytes" in fault(site.gives("/b", body, Content_Length=None), max_bytes=100)
    assert "exceeds the 100 bytes" in fault(site.gives("/c", body), max_bytes=100)
    for length in (len(PNG), None):
        url = site.gives("/d", PNG, Content_Length=length)
        assert load(url, max_bytes=len(PNG)) == source("image/png", PNG)
        assert "exceeds the 67 bytes" in fault(url, max_bytes=67)


@pytest.mark.parametrize(
    "status", ["404 Not Found", "206 Partial Content", "500 Oops", "304 Not Modified", "302 Found"]
)
def test_http_status_other_than_200_is_refused(site: Site, status: str) -> None:
    assert f"returned status {status[:3]}" in fault(site.gives("/a?SECRET".partition("?")[0], status=status))


def test_malformed_http_responses_are_refused(site: Site) -> None:
    for number, answer in enumerate([b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: 1\r\n" * 999 + b"\r\n"]):
        assert "cannot be fetched: " in fault(site.does(f"/{number}", lambda _, answer=answer: [answer]))  # type: ignore[misc]
    assert "with encoding 'gzip, gzip, gzip, gz'; pass" in fault(site.gives("/z", Content_Encoding="GZIP, " * 4))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert "cannot be fetched: " in fault(f"http://127.0.0.1:{free.getsockname()[1]}/?SECRET")


@pytest.mark.parametrize(
    ("name", "data", "header", "media_type"),
    [
        ("/a.jpg", PNG, "image/png", "image/png"),
        ("/a.jpg", PNG, "image/jpeg", "is declared as 'image/jpeg' by its Content-Type, but the content is image/png"),
        ("/a.jpg", PNG, None, "is declared as 'image/jpeg' by its ending"),
        ("/a.jpg", PNG, "application/octet-stream", "is declared as 'image/jpeg' by its ending"),
        ("/a.png", b"<html>", "text/html", "text/html"),
        ("/a.png", b"<html>", "image/png", "the content is not"),
        ("/a.md", b"# hi", "text/plain; charset=utf-8", "text/plain"),
        ("/a.md", b"# hi", None, "text/markdown"),
        ("/a", b"hi", None, "has an unknown type"),
    ],
)
def test_wrong_content_type_is_refused(site: Site, name: str, data: bytes, header: str | None, media_type: str) -> None:
    url = site.gives(name, data, Content_Type=header)
    if " " in media_type:
        assert media_type in fault(url)
    else:
        assert load(url) == source(media_type, data)


def test_at_most_five_redirects_are_followed(site: Site) -> None:
    site.gives("/ü 5.png".replace("ü ", "%C3%BC%20"))
    for number in range(5):
        onward = "/ü 5.png" if number == 4 else f"{number + 1}?x=1"
        site.gives(f"/{number}", b"", f"{(301, 302, 303, 307, 308)[number]} Moved", Location=onward)
    assert load(f"{site.url}/0").media_type == "image/png"
    site.gives("/before", b"", "302 Found", Location="/0")
    error = fault(f"{site.url}/before?SECRET")
    assert "has more than 5 redirects" in error
    assert error.startswith(f"{WHERE}, redirected from '{site.url}/4'")


@pytest.mark.parametrize(
    "onward", ["http://10.0.0.1/", "http://localhost:1/", "file:///etc/hostname", "//example.com/x"]
)
def test_a_redirect_to_a_forbidden_host_is_not_followed(site: Site, onward: str) -> None:
    url = site.gives("/a?SECRET".partition("?")[0], b"", "302 Found", Location=onward)
    assert f"{WHERE}, redirected from '{url}': " in fault(f"{url}?SECRET", hosts=["127.0.0.1"])


@pytest.mark.parametrize("onward", ["http://[", "http:\\\\127.0.0.1\\", "http://u:SECRET@127.0.0.1/"])
def test_a_malformed_redirect_is_refused(site: Site, onward: str) -> None:
    assert fault(site.gives("/a", b"", "302 Found", Location=onward))


@pytest.mark.parametrize("ip", ["10.0.0.5", "127.0.0.1", "::1", "::ffff:169.254.169.254", "fe80::1%lo"])
def test_host_with_a_private_address_is_not_contacted(ip: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    url = site.gives("/a.png").replace("127.0.0.1", "media.example.com")
    asked, shown = dns(monkeypatch, ["93.184.216.34", ip]), ip.removeprefix("::ffff:")
    error = f"is on a host with the private IP address {shown}; to allow it, add {shown} to hosts="
    assert error in fault(url, hosts=["*.example.com"])
    assert asked == ["media.example.com"]
    dns(monkeypatch, ["10.0.0.5"])
    assert "private IP address 10.0.0.5" in fault(url.replace("media.example.com", "localhost"))
    assert site.seen == []


def test_host_with_a_listed_private_address_is_contacted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, ["127.0.0.1"])
    url = site.gives("/a.png").replace("127.0.0.1", "media.example.com")
    assert load(url, hosts=["media.example.com", "127.0.0.1"]).media_type == "image/png"
    assert site.seen[0]["Host"] == f"media.example.com:{site.server_port}"


def test_host_name_is_resolved_only_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dns(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
    assert load(site.gives("/a.png").replace("127.0.0.1", "localhost")).media_type == "image/png"
    assert asked == ["localhost"]


def test_next_address_of_a_host_is_tried_after_a_failed_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    dns(monkeypatch, ["127.0.0.2", "127.0.0.1"], [])
    url = site.gives("/a.png").replace("127.0.0.1", "localhost")
    assert load(url).media_type == "image/png"
    assert "the host has no IP address" in fault(url)


def test_unknown_host_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert "cannot be fetched: [Errno -2] Name or service not known" in fault("http://localhost/?SECRET")


def test_tls_certificate_is_verified_for_the_host_name(safe_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    url = safe_site.gives("/a.png")
    assert load(url).media_type == "image/png"
    port = safe_site.server_port
    assert "certificate verify failed" in fault(f"https://127.0.0.1:{port}/a.png")
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "certificate verify failed" in fault(url)


def test_a_redirect_from_https_to_http_is_not_followed(safe_site: Site) -> None:
    url = safe_site.gives("/a", b"", "302 Found", Location="http://127.0.0.1/?SECRET")
    assert "redirects from https to http ('http://127.0.0.1/')" in fault(url)


def drips(start: bytes) -> Callable[[socket.socket], Iterator[bytes]]:
    def drip(_: socket.socket) -> Iterator[bytes]:
        yield start
        for _number in range(600):
            time.sleep(0.05)
            yield b"x"

    return drip


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\n\r\n" + PNG,
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",
    ],
)
def test_slow_response_is_ended_by_the_timeout(site: Site, start: bytes) -> None:
    began = time.monotonic()
    error = fault(site.does("/a.png", drips(start)), timeout=0.3)
    assert "was not fetched within 0.3 s; increase timeout= of the media resolver" in error
    assert time.monotonic() - began < 15


@pytest.mark.slow
def test_slow_tls_response_is_ended_by_the_timeout(safe_site: Site) -> None:
    assert "was not fetched within" in fault(safe_site.does("/a", drips(b"HTTP/1.1 200 OK\r\nX: ")), timeout=0.5)


@pytest.mark.slow
def test_silent_server_or_dns_lookup_is_ended_by_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "was not fetched within" in fault(f"http://127.0.0.1:{port}/", timeout=0.2)
        began = time.monotonic()
        assert "127.0.0.1" in fault(f"https://127.0.0.1:{port}/", timeout=0.2)
        assert time.monotonic() - began < 15
    done, threads = threading.Event(), list[threading.Thread]()

    def getaddrinfo(*_: object, **__: object) -> list[Any]:
        threads.append(threading.current_thread())
        done.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert "was not fetched within" in fault("http://localhost/", timeout=0.2)
    done.set()
    # A lookup that hangs must not keep the interpreter from its end.
    assert [thread.daemon for thread in threads] == [True]


def test_stopped_deadline_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.media.fetch.monotonic", lambda: 5.0)
    deadline = Deadline(60)
    assert (deadline.over, deadline.left()) == (False, 60)
    deadline.stop()
    for ended in (deadline, Deadline(0)):
        assert ended.over
        with pytest.raises(TimeoutError, match="the download was stopped or exceeded its time limit"):
            ended.watch(None)


@pytest.mark.asyncio
async def test_slow_server_does_not_block_the_event_loop(site: Site) -> None:
    free = threading.Event()

    def slow(_: socket.socket) -> Iterator[bytes]:
        # A blocked event loop could not set it.
        if free.wait(20):
            yield b"HTTP/1.1 200 OK\r\n\r\n" + PNG

    resolver = MediaResolver(hosts=["127.0.0.1"], timeout=30)
    loads = [resolver.aload(URLSource(site.does(f"/{number}", slow)), WHERE) for number in range(3)]
    tasks = [asyncio.create_task(each) for each in loads]
    await asyncio.sleep(0.05)
    free.set()
    assert await asyncio.gather(*tasks) == [source("image/png", PNG)] * 3


@pytest.mark.asyncio
async def test_file_is_loaded_by_aload(root: Path) -> None:
    (root / "a.png").write_bytes(PNG)
    resolver = MediaResolver(roots=[root])
    assert await resolver.aload(URLSource(str(root / "a.png")), WHERE) == source("image/png", PNG)
    with pytest.raises(MediaError, match="is not in"):
        await resolver.aload(URLSource("/etc/hostname.png"), WHERE)


def test_media_resolver_can_be_shared_by_threads(site: Site, root: Path) -> None:
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
from lazyprompt.media.resolver import MediaResolver
from lazyprompt.messages.msg import URLSource

def ask():
    start.wait()
    try:
        MediaResolver(hosts=["127.0.0.1"]).load(URLSource("http://127.0.0.1:9/"), "here")
    except MediaError as error:
        errors.append(error)

sys.setswitchinterval(1e-5)
start, errors = Barrier(8), []
threads = [Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(errors))
"""


@pytest.mark.slow
@pytest.mark.parametrize("_", range(4))
def test_first_loads_of_a_process_can_run_in_many_threads(_: int) -> None:
    """Threads that imported urllib3 at the same time saw partially imported modules."""
    done = subprocess.run([sys.executable, "-c", RACE], check=True, capture_output=True)  # noqa: S603 - our own code
    assert done.stdout.strip() == b"8"
    assert done.stderr == b""
