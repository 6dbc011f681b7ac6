"""Fetches URLs, checks every redirect target, and limits the size and duration of responses.

Modules that are slow to import (sockets, TLS, URL parsing) are imported on first use.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from threading import Lock, Thread, Timer
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._version import __version__
from lazyprompt.errors import MediaError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from ipaddress import IPv4Address, IPv6Address

    from urllib3.connection import HTTPConnection
    from urllib3.response import HTTPResponse


_PORTS = {"http": 80, "https": 443}
_HOPS = 5
_CHUNK = 65_536
# The characters that percent-encoding leaves unchanged.
_KEPT = "!#$%&'()*+,/:;=?@[]~"
_SHOWN = 200
# This URL pattern is stricter than providers' URL parsers, to reject URLs that two parsers could interpret differently.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<user>[^/?#@]*@)?(?P<host>\[[^\]/?#@]*\]|[^\[\]/?#@:]*)(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<path>(?:/[^?#]*)?)(?P<query>(?:\?[^#]*)?)(?:#.*)?",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
# Networks that some Python versions wrongly treat as public: cloud metadata and former 6to4 relay addresses.
_NOT_PUBLIC = ("192.0.0.0/24", "192.88.99.0/24")


class Address(NamedTuple):
    """The components of an http(s) URL, with a normalized host.

    Attributes:
        scheme: ``http`` or ``https``.
        host: The lower-case host name, or an IP address.
        literal: True if the host is an IP address.
        port: The port.
        target: The path and query of the URL.
    """

    scheme: str
    host: str
    literal: bool
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class Download(NamedTuple):
    """The content downloaded from a URL.

    Attributes:
        data: The bytes.
        media_type: The server's Content-Type.
        url: The URL after all redirects.
    """

    data: bytes
    media_type: str | None
    url: str


class Deadline:
    """A timer that shuts down a connection when the deadline passes, even while the connection waits for data."""

    def __init__(self, seconds: float) -> None:
        self._timer = Timer(seconds, self.stop)
        self._timer.daemon = True
        self._lock = Lock()
        self._end = monotonic() + seconds
        self._seconds = seconds
        self._sock: socket.socket | None = None
        self._stopped = False

    def __enter__(self) -> None:
        self._end = monotonic() + self._seconds
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @property
    def over(self) -> bool:
        """True if the deadline has passed or :meth:`stop` was called."""
        return self._stopped or monotonic() >= self._end

    def left(self) -> float:
        """Return the remaining time in seconds.

        Raises:
            TimeoutError: The deadline has passed or :meth:`stop` was called.
        """
        left = self._end - monotonic()
        if self._stopped or left <= 0:
            raise TimeoutError("the download was stopped or exceeded its time limit")
        return left

    def watch(self, sock: socket.socket | None) -> None:
        """Register the connection that is shut down when the deadline passes."""
        with self._lock:
            self._sock = sock
        self.left()

    def stop(self) -> None:
        """Shut down the connection immediately."""
        import socket  # noqa: PLC0415 - see the module docstring

        with self._lock:
            self._stopped = True
            # Bypass ``SSLSocket.shutdown``, which would race with the thread that reads the response. Ignore the error
            # that ``shutdown`` raises if the peer has already closed the connection.
            with suppress(OSError):
                if self._sock is not None:
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


class FetchLimits(NamedTuple):
    """The limits for fetching a URL, as set in :class:`lazyprompt.MediaResolver`.

    Attributes:
        hosts: The hosts that may be contacted.
        max_bytes: The maximum size of a response, in bytes.
        timeout: The time limit for the whole fetch, including redirects, in seconds.
    """

    hosts: Sequence[str]
    max_bytes: int
    timeout: float


def printable_url(url: str) -> str:
    """Shorten a URL for an error message, and remove its credentials and query, which may be secret."""
    found = _ADDRESS.fullmatch(url)
    if found:
        port = f":{found['port']}" if found["port"] else ""
        text = f"{found['scheme']}://{found['host']}{port}{found['path']}"
    elif (scheme := _SCHEME.match(url)) and scheme[1].lower() != "file":
        text = f"{scheme[0]}…"
    else:
        text = re.split("[?#]", url, maxsplit=1)[0]
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def url_error(where: str, url: str, reason: str) -> MediaError:
    """Create the exception for an invalid or unavailable URL."""
    return MediaError(f"{where}: {printable_url(url)} {reason}")


def scheme_of(url: str) -> str:
    """Return a URL's scheme in lower case, or an empty string if there is none, as for a Windows path (``C:``)."""
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


def checked_host(entry: object) -> str:
    """Normalize an entry of a resolver's ``hosts`` argument.

    Raises:
        MediaError: The entry is neither a host name, a wildcard for subdomains nor an IP address.
    """
    if isinstance(entry, str):
        name = entry.removeprefix("*.")
        found = _host(name)
        if found and not (found[1] and name != entry):
            return entry[: len(entry) - len(name)] + found[0]
    raise MediaError(
        f"hosts contains {entry!r}; expected host names ('example.com'), wildcards for subdomains ('*.example.com') "
        "or IP addresses ('127.0.0.1'), without scheme, port or path"
    )


def check_url(url: str, where: str, hosts: Sequence[str] = ()) -> None:
    """Check that a URL may be sent to a provider, without fetching it.

    Args:
        url: The URL.
        where: The location of the URL to show in error messages, such as ``messages[2].content[1]``.
        hosts: The allowed hosts, as in :class:`lazyprompt.MediaResolver`. An empty list allows all
            public hosts.

    Raises:
        MediaError: The URL is not http(s), contains credentials, or refers to a private or unlisted host.
    """
    address = _address(url, where)
    if address.host in hosts:
        return
    if address.literal:
        outward = _public(_ip(address.host))
    else:
        outward = address.host != "localhost" and not address.host.endswith((".localhost", ".localdomain"))
    if not outward:
        raise url_error(
            where, url, "is on a private host; pass the content itself or allow it with MediaResolver(hosts=[...])"
        )
    if hosts and not _listed(address.host, hosts):
        raise url_error(where, url, "is on a host that is not allowed; add the host to hosts= of the media resolver")


def fetch(url: str, where: str, rules: FetchLimits, deadline: Deadline) -> Download:
    """Fetch the content at a URL.

    Raises:
        MediaError: A host is not allowed, or the content can't be fetched within the limits.
    """
    from http.client import HTTPException  # noqa: PLC0415 - see the module docstring

    # Import the package before its submodules, because concurrent imports could see a partially initialized module.
    import urllib3  # noqa: PLC0415

    place = where
    with deadline:
        for _ in range(_HOPS + 1):
            address = _address(url, place)
            if not _listed(address.host, rules.hosts):
                raise url_error(
                    place, url, "is on a host that is not allowed; add the host with MediaResolver(hosts=['...'])"
                )
            try:
                answer = _request(address, url, place, rules, deadline)
            except (urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
                late = f"was not fetched within {rules.timeout:g} s; increase timeout= of the media resolver"
                fault = f"cannot be fetched: {str(error)[:_SHOWN] or type(error).__name__}; check the URL"
                raise url_error(place, url, late if deadline.over else fault) from error
            if isinstance(answer, Download):
                return answer
            if address.scheme == "https" and scheme_of(answer) == "http":
                raise url_error(
                    place,
                    url,
                    f"redirects from https to http ({printable_url(answer)}); pass a URL that uses only https",
                )
            place = f"{where}, redirected from {printable_url(url)}"
            url = answer
    raise url_error(place, url, f"has more than {_HOPS} redirects; pass the final URL")


def _address(url: str, where: str) -> Address:
    scheme = scheme_of(url)
    if scheme not in _PORTS:
        raise url_error(where, url, "is not an http(s) URL; pass an http(s) URL, or the content as a Base64Source")
    found = _ADDRESS.fullmatch(url)
    if _UNSAFE.search(url):
        raise url_error(where, url, "contains a space, a control character or a backslash; percent-encode it")
    if not found:
        raise url_error(where, url, "is malformed; expected a URL such as 'https://host/path'")
    if found["user"]:
        raise url_error(where, url, "contains credentials; pass a URL without credentials, or the content itself")
    port = int(found["port"] or _PORTS[scheme])
    given = found["host"]
    host = _host(given[1:-1] if ":" in given else given)  # only a host in brackets can contain a colon
    if not host or not 0 < port < 65_536:  # noqa: PLR2004 - ports have 16 bits
        raise url_error(where, url, "has an invalid host or port; use ASCII names (xn--...) and standard IP addresses")
    target = (found["path"] or "/") + found["query"]
    if not target.isascii():
        from urllib.parse import quote  # noqa: PLC0415 - see the module docstring

        target = quote(target, safe=_KEPT)
    return Address(scheme, *host, port, target)


def _redirect_target(url: str, location: str, where: str) -> str:
    """Return the absolute URL of a redirect target."""
    from urllib.parse import quote, urljoin  # noqa: PLC0415

    try:
        return urljoin(url, quote(location.strip().encode("latin-1"), safe=_KEPT))
    except ValueError as error:
        raise url_error(where, url, f"redirects to a malformed URL ({error}); pass the final URL") from error


def _host(given: str) -> tuple[str, bool] | None:
    """Return the normalized host and whether it is an IP address, or None for an invalid host."""
    host = given.lower().removesuffix(".")
    if _UNSAFE.search(host):
        return None
    if ":" in host:
        from ipaddress import IPv6Address  # noqa: PLC0415

        try:
            ip = IPv6Address(host)
        except ValueError:
            return None
        # Reject zone ids, because they refer to the network interfaces of a single machine.
        return None if ip.scope_id else (str(ip.ipv4_mapped or ip), True)
    if _NUMERIC.fullmatch(host):
        from socket import inet_aton, inet_ntoa  # noqa: PLC0415

        try:
            return inet_ntoa(inet_aton(host)), True
        except OSError:
            return None
    return (host, False) if _NAME.fullmatch(host) else None


def _listed(host: str, hosts: Sequence[str]) -> bool:
    return host in hosts or any(entry.startswith("*.") and host.endswith(entry[1:]) for entry in hosts)


def _ip(text: str) -> IPv4Address | IPv6Address:
    from ipaddress import ip_address  # noqa: PLC0415

    ip = ip_address(text)
    return (ip.version == 6 and ip.ipv4_mapped) or ip  # noqa: PLR2004 - IPv6


def _public(ip: IPv4Address | IPv6Address) -> bool:
    """Return True if an IP address is public. For an IPv6 address, check any IPv4 address that it embeds."""
    from ipaddress import IPv4Address, ip_network  # noqa: PLC0415

    if isinstance(ip, IPv4Address):
        odd = any(ip in ip_network(network) for network in _NOT_PUBLIC)
        return ip.is_global and not (odd or ip.is_multicast or ip.is_reserved)
    if ip.sixtofour:
        return _public(ip.sixtofour)
    if ip in ip_network("64:ff9b::/96"):
        return _public(IPv4Address(ip.packed[-4:]))
    return ip in ip_network("2000::/3") and ip.is_global


def _resolve(address: Address, url: str, where: str, rules: FetchLimits, deadline: Deadline) -> list[str]:
    """Return a host's IP addresses after checking that each is public or allowed."""
    if address.literal:
        return [address.host]
    answers: list[list[str] | OSError] = []

    def ask() -> None:
        import socket  # noqa: PLC0415

        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            answers.append(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except OSError as error:
            answers.append(error)

    # Run the DNS lookup in a thread that is abandoned at the deadline, because a lookup has no timeout.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(deadline.left())
    answer = answers[0] if answers else TimeoutError("the DNS lookup timed out")
    if isinstance(answer, OSError):
        raise answer
    for text in answer:
        ip = _ip(text)
        # Allow ``localhost`` to resolve to a loopback address, because the caller has already checked the host name.
        own = str(ip) in rules.hosts or (address.host == "localhost" and ip.is_loopback)
        if not own and not _public(ip):
            raise url_error(
                where, url, f"is on a host with the private IP address {ip}; to allow it, add {ip} to hosts="
            )
    return answer


def _connect(address: Address, ips: list[str], deadline: Deadline) -> HTTPConnection:
    """Connect to one of the checked IP addresses, so that a second DNS lookup can't return a different address."""
    from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    failure: Exception = OSError("the host has no IP address")
    for index, ip in enumerate(ips):
        share = deadline.left() / (len(ips) - index)
        connection: HTTPConnection
        if address.scheme == "https":
            # Halve the timeout, because it applies to the TCP connection and again to the TLS handshake.
            connection = HTTPSConnection(ip, address.port, timeout=share / 2, server_hostname=address.host)
        else:
            connection = HTTPConnection(ip, address.port, timeout=share)
        try:
            connection.connect()
        except (HTTPError, OSError) as error:
            connection.close()
            failure = error
        else:
            connection.timeout = deadline.left()
            return connection
    raise failure


def _request(address: Address, url: str, where: str, rules: FetchLimits, deadline: Deadline) -> Download | str:
    """Send a request, and return the response's content or redirect target."""
    ips = _resolve(address, url, where, rules, deadline)
    headers = {
        "Host": address.authority,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "User-Agent": f"lazyprompt/{__version__}",
    }
    with closing(_connect(address, ips, deadline)) as connection:
        deadline.watch(connection.sock)
        connection.request("GET", address.target, headers=headers, preload_content=False, decode_content=False)
        with closing(connection.getresponse()) as response:
            return _read_response(response, url, where, rules, deadline)


def _read_response(
    response: HTTPResponse, url: str, where: str, rules: FetchLimits, deadline: Deadline
) -> Download | str:
    location = response.headers.get("Location")
    if response.status in {301, 302, 303, 307, 308} and location:
        return _redirect_target(url, location, where)
    if response.status != 200:  # noqa: PLR2004 - HTTP's OK
        raise url_error(where, url, f"returned status {response.status} instead of content; check the URL")
    coding = response.headers.get("Content-Encoding", "identity").lower()
    if coding != "identity":
        raise url_error(where, url, f"returned content with encoding {coding[:20]!r}; pass the content itself")
    too_much = f"exceeds the {rules.max_bytes} bytes that max_bytes= of the media resolver allows"
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length[:20]) > rules.max_bytes:
        raise url_error(where, url, too_much)
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read(_CHUNK):
        deadline.left()
        size += len(chunk)
        if size > rules.max_bytes:
            raise url_error(where, url, too_much)
        chunks.append(chunk)
    # Check the deadline: without a Content-Length, a response that was cut off at the deadline looks complete.
    deadline.left()
    return Download(b"".join(chunks), response.headers.get("Content-Type"), url)
