"""Media URLs lead neither a media resolver nor a provider to a forbidden address.

Related tests: tests/media/test_media_http.py (redirects, a second answer of the DNS, credentials, bodies
that are too large or too slow, TLS), test_media_types.py (malformed addresses), tests/formatters/test_media_pass.py.
"""

import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from lazyprompt import ChatFormatter, ImageBlock, MediaResolver, Msg, URLSource
from lazyprompt.errors import LazyPromptError, MediaError
from support.media import PNG, WHERE, Site, fault, load, serve_site
from support.memory import peak_of


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serve_site(Site())


def naive_check(url: str) -> bool:
    """Return whether a URL may be fetched, by a simple comparison with known private names."""
    host = urlsplit(url).hostname or ""
    return host not in {"localhost", "127.0.0.1", "::1", "169.254.169.254"} and not host.startswith(("10.", "192.168."))


# Private hosts in many notations.
PRIVATE = {
    "loopback": (
        *("2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "127.0.0.1."),
        *("127.255.255.254", "0", "0.0.0.0:80", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
        *("[0:0:0:0:0:ffff:7f00:0001]", "[::]", "[0000::1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
        *("LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain"),
    ),
    "private networks": (
        *("[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "172.16.0.1", "172.31.255.255"),
        *("100.64.0.1", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
    ),
    "metadata of clouds": (
        *("169.254.0.1", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]"),
    ),
}


@pytest.mark.parametrize("host", [host for hosts in PRIVATE.values() for host in hosts])
def test_private_host_is_refused_under_each_of_its_names(host: str) -> None:
    """The naive version compares with the names that it knows, and allows nearly all of these."""
    url = f"http://{host}/"
    assert naive_check(url) or host in {"LOCALHOST", "[0000::1]"}
    with pytest.raises(MediaError, match=rf"^{WHERE.replace('[', '.').replace(']', '.')}: .*is on a private host"):
        MediaResolver().check(url, WHERE)
    assert "is not allowed" in fault(url, hosts=["example.com"])
    with pytest.raises(LazyPromptError, match="private host"):
        ChatFormatter("openai", media=MediaResolver()).format(Msg("u", [ImageBlock(URLSource(url))], "user"))


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1\\@example.com/", "http://example.com\\@127.0.0.1/", "http://example.com@127.0.0.1/"),
        *("http://example.com:80@127.0.0.1/", "http://127.0.0.1#@example.com/", "http://127.0.0.1?@example.com/"),
        *("http://127.0.0.1:80\t@example.com/", "http://exa\nmple.com/", "http:// example.com/"),
        *("http://example.com\0.127.0.0.1/", "http://[::1%25lo]/", "http://[::1]example.com/"),
        *("http://[example.com]/", "http://example.com:80:81/", "http://:80/", "//example.com/a.png"),
        *("http://ⓔxample.com/", "http://0x7f.0x0.0x0.0x1.example.0x1/", "http://" + "a." * 200 + "com/"),
    ],
)
@pytest.mark.parametrize("use", [lambda url: MediaResolver().check(url, WHERE), lambda url: load(url, hosts=["*.com"])])
def test_url_that_parsers_read_differently_is_refused(url: str, use: Callable[[str], object]) -> None:
    """The naive version asks one parser for the host, and the parser of its client finds another host."""
    # To a browser, the first of these is on 127.0.0.1.
    assert naive_check("http://127.0.0.1\\@example.com/")
    with pytest.raises(MediaError) as caught:
        use(url)
    assert str(caught.value).startswith(WHERE)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/hostname", "FILE:///etc/hostname", "gopher://127.0.0.1:6379/_x", "data:image/png;base64,AA=="),
        *("unix:/var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/"),
    ],
)
def test_url_with_another_scheme_than_http_is_refused(url: str) -> None:
    """The naive version ``urlopen(url)`` reads files too."""
    if url.startswith("file"):
        assert urlopen(url).read()  # noqa: S310 - that is the naive version
    with pytest.raises(MediaError, match="is not an http"):
        MediaResolver().check(url, WHERE)
    with pytest.raises(MediaError):
        load(url, hosts=["example.com", "127.0.0.1"])


def test_host_name_is_resolved_once_per_fetch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive version resolves the name to check it, and its client resolves it again, to a private address."""
    url = site.gives("/a.png").replace("127.0.0.1", "rebind.example.com")
    real, answers = socket.getaddrinfo, iter(["93.184.216.34", "127.0.0.1"] * 2)

    def getaddrinfo(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host != "rebind.example.com":
            return real(host, port, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    judged = socket.getaddrinfo("rebind.example.com", 80)[0][4][0]
    assert judged == "93.184.216.34"
    assert urlopen(url, timeout=5).read() == PNG  # noqa: S310 - that is the naive version
    (seen,) = site.seen
    assert seen["Host"].startswith("rebind.example.com")
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> None:
        asked.append(address)
        raise OSError("a test opens no connection")

    monkeypatch.setattr("urllib3.util.connection.create_connection", connect)
    assert "cannot be fetched" in fault(url, hosts=["*.example.com"])
    assert {host for host, _ in asked} == {"93.184.216.34"}
    assert next(answers) == "127.0.0.1", "the name was resolved more than once"
    assert len(site.seen) == 1


def test_each_redirect_target_is_checked(site: Site) -> None:
    """The naive version checks the first URL only, and follows each redirect."""
    inner = site.gives("/secret.png")
    outer = site.gives("/a", b"", "302 Found", Location=inner.replace("127.0.0.1", "2130706433"))
    assert urlopen(outer, timeout=5).read() == PNG  # noqa: S310 - that is the naive version
    url = outer.replace("127.0.0.1", "localhost")
    del site.seen[:]
    assert "is on a host that is not allowed" in fault(url, hosts=["localhost"])
    assert [each["target"] for each in site.seen] == ["/a"]


def test_endless_media_body_does_not_fill_the_memory(site: Site) -> None:
    """The naive version reads the whole body: here it would be 400 MB."""

    def endless(_: socket.socket) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n" + PNG
        for _number in range(400):
            yield bytes(1_000_000)

    url = site.does("/a.png", endless)
    with urlopen(url, timeout=5) as answer:  # noqa: S310 - that is the naive version
        assert len(answer.read(5_000_000)) == 5_000_000
    messages: list[str] = []
    assert peak_of(lambda: messages.append(fault(url, max_bytes=1_000_000))) < 20_000_000
    assert "exceeds the 1000000 bytes" in messages[0]


@pytest.mark.parametrize("form", ["http://{}", "http://user:SECRET@{}", "ftp://{}", "data:text/plain,SECRET"])
def test_error_messages_hide_secrets_in_urls(site: Site, form: str) -> None:
    """The naive version puts the whole URL with its key into the error message, and so into the logs."""
    url = site.gives("/a", status="403 Forbidden") + "?key=SECRET#SECRET"
    fault(form.format(url.removeprefix("http://")))  # which checks that the message does not contain SECRET
