"""A file from an address, by way of the system's proxies: bounded in bytes and in time, however slowly it comes."""

from __future__ import annotations

from contextlib import closing
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from lazyprompt._base.files import write_whole
from lazyprompt._version import __version__
from lazyprompt.errors import TokenizerError

if TYPE_CHECKING:
    from pathlib import Path

    from urllib3 import PoolManager

# Little at a time: a server that drips is left after one of these.
_CHUNK: Final = 4_096
_SHOWN: Final = 200


def downloaded(url: str, most: int, timeout: float, ways_out: str) -> bytes:
    """What is at an address.

    Args:
        url: The address.
        most: The limit of its size, in bytes.
        timeout: How many seconds all of it may take.
        ways_out: What an error says can be done instead.

    Returns:
        The bytes.

    Raises:
        TokenizerError: It did not come: not in time, not whole, too large, or not at all.
    """
    answers: list[bytes | str] = []
    late = Event()
    # A name server and a proxy know no deadline, so they are asked beside, and left to themselves where they are late.
    asking = Thread(target=lambda: answers.append(_asked(url, most, timeout, late)), daemon=True)
    asking.start()
    asking.join(timeout)
    late.set()
    answer = answers[0] if answers else f"it did not come within {timeout:g} s; give a longer timeout="
    if isinstance(answer, str):
        raise TokenizerError(f"{url} cannot be downloaded: {answer}; {ways_out}")
    return answer


def write_file(path: Path, content: bytes) -> None:
    """Write a file, all of it or none.

    Args:
        path: The file; its folder is made where there is none.
        content: Its bytes.

    Raises:
        TokenizerError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise TokenizerError(
            f"what was downloaded cannot be written to {path} ({error.strerror or error}); set TIKTOKEN_CACHE_DIR to a "
            "folder that can be written to"
        ) from error


def _asked(url: str, most: int, timeout: float, late: Event) -> bytes | str:
    """The bytes, or what went wrong."""
    from http.client import HTTPException  # noqa: PLC0415 - only a download needs it

    import urllib3  # noqa: PLC0415 - only a download needs it

    end = monotonic() + timeout
    headers = {"User-Agent": f"lazyprompt/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
    try:
        with (
            _pool(url, timeout) as pool,
            closing(
                pool.request("GET", url, headers=headers, preload_content=False, redirect=False, retries=False)
            ) as response,
        ):
            if response.status != 200:  # noqa: PLR2004 - HTTP's OK
                return f"it is answered with status {response.status}"
            chunks: list[bytes] = []
            size = 0
            while chunk := response.read(_CHUNK):
                size += len(chunk)
                if size > most:
                    return f"it has more than {most} bytes"
                if late.is_set() or monotonic() > end:
                    return f"it did not come within {timeout:g} s"
                chunks.append(chunk)
            return b"".join(chunks)
    except (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError) as error:
        return str(error)[:_SHOWN] or type(error).__name__


def _pool(url: str, timeout: float) -> PoolManager:
    """Connections to a host, through the proxy that the environment or the system names for it."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    from urllib3 import PoolManager, ProxyManager, make_headers  # noqa: PLC0415

    address = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address.hostname or ""):
        return PoolManager(timeout=timeout)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    told = urlsplit(proxy)
    secret = f"{unquote(told.username)}:{unquote(told.password or '')}" if told.username else None
    return ProxyManager(proxy, timeout=timeout, proxy_headers=make_headers(proxy_basic_auth=secret))
