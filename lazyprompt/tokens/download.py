"""Verified downloads of tiktoken's vocabularies, with limits on size and time."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPException
from threading import Event, Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import PoolManager, ProxyManager, make_headers
from urllib3.exceptions import HTTPError

from lazyprompt._base.files import read_regular, write_whole
from lazyprompt._version import __version__
from lazyprompt.errors import TokenizerError
from lazyprompt.tokens.vocabulary import MOST_BYTES, cache_folder, cached_at, encoding_name, fault_of, files_of

if TYPE_CHECKING:
    from pathlib import Path

# The number of bytes per read, which is small because a download can be abandoned only between two reads.
_CHUNK: Final = 4_096
_SHOWN: Final = 200


def download_vocabulary(encoding_or_model: str, timeout: float = 30.0) -> Path:
    """Download a vocabulary into tiktoken's cache folder.

    The download uses the system's proxies (``HTTPS_PROXY``, ``NO_PROXY``) and verifies certificates
    (``SSL_CERT_FILE``). The SHA-256 hash of the content must match the hash in tiktoken's source code.

    Args:
        encoding_or_model: The name of an encoding or of a model.
        timeout: The maximum number of seconds for each file.

    Returns:
        The path of the vocabulary file; for gpt2, the first of two files.

    Raises:
        TokenizerError: The encoding or model is unknown, the download fails, the downloaded file is not the vocabulary,
            or the file can't be written. A failed download leaves no partial file.
    """
    name = encoding_name(encoding_or_model)
    folder, variable = cache_folder()
    if folder is None:
        raise TokenizerError(
            f"the vocabulary {name} cannot be stored: {variable} is empty, which disables tiktoken's cache; "
            f"set {variable} to a folder"
        )
    paths = [cached_at(folder, file) for file in files_of(name)]
    for file, path in zip(files_of(name), paths, strict=True):
        if path.is_file() and not fault_of(file, read_regular(path, MOST_BYTES)):
            continue
        content = _downloaded(file.url, timeout, f"check HTTPS_PROXY, or put the file at {path} manually")
        if fault := fault_of(file, content):
            raise TokenizerError(
                f"the file from {file.url} is not the vocabulary {name}: {fault}; a proxy may have replaced the file; "
                f"put the file at {path} manually"
            )
        write_file(path, content)
    return paths[0]


def _downloaded(url: str, timeout: float, remedy: str) -> bytes:
    """Download a file through the system's proxies, with limits on size and time."""
    answers: list[bytes | str] = []
    late = Event()
    # Download in a thread that is abandoned after the timeout, because DNS and proxies have no timeout.
    asking = Thread(target=lambda: answers.append(_asked(url, timeout, late)), daemon=True)
    asking.start()
    asking.join(timeout)
    late.set()
    answer = answers[0] if answers else f"the download took longer than {timeout:g} s; pass a longer timeout="
    if isinstance(answer, str):
        raise TokenizerError(f"{url} cannot be downloaded: {answer}; {remedy}")
    return answer


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, after creating its folder if necessary."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise TokenizerError(
            f"the vocabulary cannot be written to {path} ({error.strerror or error}); set TIKTOKEN_CACHE_DIR to a "
            "writable folder"
        ) from error


def _asked(url: str, timeout: float, late: Event) -> bytes | str:
    """Return the downloaded bytes, or an error message."""
    headers = {"User-Agent": f"lazyprompt/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
    try:
        with (
            _pool(url, timeout) as pool,
            closing(
                pool.request("GET", url, headers=headers, preload_content=False, redirect=False, retries=False)
            ) as response,
        ):
            if response.status != 200:  # noqa: PLR2004 - HTTP's OK
                return f"the server responded with status {response.status}"
            chunks: list[bytes] = []
            size = 0
            while chunk := response.read(_CHUNK):
                size += len(chunk)
                if size > MOST_BYTES:
                    return f"the file is larger than {MOST_BYTES} bytes"
                if late.is_set():  # the caller has timed out
                    return ""
                chunks.append(chunk)
            return b"".join(chunks)
    except (HTTPError, HTTPException, OSError, ValueError) as error:
        return str(error)[:_SHOWN] or type(error).__name__


def _pool(url: str, timeout: float) -> PoolManager:
    """Return a connection pool for a URL, using the system's proxy if one is set."""
    address = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address.hostname or ""):
        return PoolManager(timeout=timeout)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    proxied = urlsplit(proxy)
    secret = f"{unquote(proxied.username)}:{unquote(proxied.password or '')}" if proxied.username else None
    return ProxyManager(proxy, timeout=timeout, proxy_headers=make_headers(proxy_basic_auth=secret))
