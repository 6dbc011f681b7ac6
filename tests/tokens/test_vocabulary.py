"""Vocabularies: found in tiktoken's cache, and downloaded only on request, within limits."""

import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import copy
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
import tiktoken
import tiktoken.load
import tiktoken_ext.openai_public as recipes  # type: ignore[import-untyped]  # it has no types
import trustme
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from lazyprompt.errors import TokenizerError
from lazyprompt.tokens import vocabulary
from lazyprompt.tokens.download import download_vocabulary
from lazyprompt.tokens.vocabulary import check_vocabulary, encoding_for, vocabularies_here
from support.media import Site, serve_site
from support.serving import Serving
from support.vocabularies import O200K, vocabulary_folder

HOST = "openaipublic.blob.core.windows.net"
PATH = "/encodings/cl100k_base.tiktoken"
KEY = hashlib.sha1(f"https://{HOST}{PATH}".encode()).hexdigest()  # noqa: S324 - so tiktoken names its files
TEXT = "Hello, wörld! 你好 <|endoftext|> \t\n 12345"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies of this machine, and no encoding loaded by tiktoken or an earlier test."""
    for name in (*PROXIES, "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    vocabulary._encoding.cache_clear()  # noqa: SLF001 - what a test before has read


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of tiktoken."""
    path = tmp_path / "cache"
    path.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(path))
    return path


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with cl100k_base and o200k_base."""
    path = vocabulary_folder(KEY, O200K)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(path))
    return path


def fault(name: Any, bpe_file: Any = None) -> str:
    """The error that both functions raise for a vocabulary that is not available."""
    with pytest.raises(TokenizerError) as checked:
        check_vocabulary(name, bpe_file)
    with pytest.raises(TokenizerError) as found:
        encoding_for(name, bpe_file)
    assert str(checked.value) == str(found.value)
    return str(found.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "o200k_harmony"])
def test_an_encoding_equals_the_encoding_of_tiktoken(name: str, full: Path) -> None:
    check_vocabulary(name)
    ours = encoding_for(name)
    assert tiktoken.registry.ENCODINGS == {}
    theirs = tiktoken.get_encoding(name)
    assert ours is not theirs
    assert ours.name == theirs.name == name
    assert ours.encode(TEXT, allowed_special="all") == theirs.encode(TEXT, allowed_special="all")
    assert (ours.n_vocab, ours.special_tokens_set) == (theirs.n_vocab, theirs.special_tokens_set)
    assert encoding_for(name) is theirs
    assert full.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("full")
def test_a_model_has_the_encoding_assigned_by_tiktoken() -> None:
    assert encoding_for("gpt-4o-mini-2024-07-18") is encoding_for("o200k_base")
    assert encoding_for("gpt-4").name == "cl100k_base"


@pytest.mark.slow
def test_loading_an_encoding_does_not_modify_tiktoken(full: Path) -> None:
    before = (dict(vars(recipes)), dict(vars(tiktoken.load)))
    encoding_for("o200k_harmony")
    assert (dict(vars(recipes)), dict(vars(tiktoken.load))) == before
    assert recipes.load_tiktoken_bpe is tiktoken.load.load_tiktoken_bpe
    assert {path.name for path in full.iterdir() if len(path.name) == 40} >= {KEY, O200K}


@pytest.mark.slow
def test_threads_share_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder()))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(encoding_for("cl100k_base"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [*map(id, found)] == [id(found[0])] * 8


@pytest.mark.slow
def test_a_vocabulary_file_is_read_without_copying_it_to_the_cache(folder: Path, tmp_path: Path) -> None:
    path = copy(vocabulary_folder() / KEY, tmp_path / "a.tiktoken")
    for bpe_file in (path, str(path)):
        check_vocabulary("gpt-4", bpe_file)
        assert encoding_for("gpt-4", bpe_file).encode("hello world") == [15339, 1917]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"IQ== 0\nIg== 1\n", "its 14 bytes have the SHA-256 "),
        (b"IQ== 0\nIg== 1\n", "though its 2 lines are tokens with their ranks"),
        (b"IQ== 0\n<html>\n", "and line 2 is not a token with its rank (b'<html>')"),
        (b"IQ== 0\n\nIg==", "and line 3 is not a token with its rank (b'Ig==')"),
        (b"<" * 61, f"and line 1 is not a token with its rank (b'{'<' * 60}')"),
        (b"", "its 0 bytes"),
    ],
)
def test_a_file_that_is_not_the_vocabulary_is_refused(folder: Path, tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_bytes(content)
    message = fault("cl100k_base", path)
    assert message.startswith(f"{path} differs from the file at https://{HOST}{PATH}: its ")
    assert error in message
    assert message.endswith("pass the correct file, or download it with `lazyprompt tokens --download cl100k_base`")
    assert list(folder.iterdir()) == []


def test_a_vocabulary_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert fault("gpt-4", tmp_path / "none").startswith(f"{tmp_path / 'none'} cannot be read (No such file or dir")
    assert "cannot be read (the path is a directory, not a regular file)" in fault("gpt-4", tmp_path)


def test_a_damaged_cache_file_is_refused_and_not_changed(folder: Path) -> None:
    """tiktoken would delete it and download it again."""
    whole = (vocabulary_folder() / KEY).read_bytes()
    (folder / KEY).write_bytes(whole[:-20])
    message = fault("cl100k_base")
    assert message.startswith(f"{folder / KEY} differs from the file at ")
    assert (folder / KEY).read_bytes() == whole[:-20]


def test_error_for_a_missing_vocabulary_lists_all_remedies(folder: Path) -> None:
    message = fault("gpt-4")
    assert message == (
        f"the vocabulary cl100k_base is not on this machine: {KEY} (https://{HOST}{PATH}) is not in {folder} "
        "(TIKTOKEN_CACHE_DIR). Pass its file with bpe_file=..., set TIKTOKEN_CACHE_DIR to a folder that contains it, "
        "download it with `lazyprompt tokens --download cl100k_base`, or allow approximate counts with "
        'missing="approximate"'
    )


def test_the_cache_folder_is_the_one_of_tiktoken(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(other))
    assert f"is not in {folder} (TIKTOKEN_CACHE_DIR)" in fault("gpt-4")
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    assert f"is not in {other} (DATA_GYM_CACHE_DIR)" in fault("gpt-4")
    monkeypatch.delenv("DATA_GYM_CACHE_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert f"is not in {tmp_path / 'data-gym-cache'}, tiktoken's cache folder" in fault("gpt-4")
    (tmp_path / "data-gym-cache").mkdir()
    copy(vocabulary_folder() / KEY, tmp_path / "data-gym-cache")
    check_vocabulary("gpt-4")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert "TIKTOKEN_CACHE_DIR is empty, which disables tiktoken's cache" in fault("gpt-4")
    with pytest.raises(TokenizerError, match="cannot be stored: .* is empty, .*; set TIKTOKEN_CACHE_DIR to a folder$"):
        download_vocabulary("gpt-4")


@pytest.mark.parametrize("name", ["gpt4o", "o200k", "GPT-4o", "", "claude-sonnet-4", None])
def test_error_for_an_unknown_model_or_encoding_suggests_the_nearest_name(name: Any) -> None:
    message = fault(name)
    assert f"does not support {name!r}" in message
    assert ("did you mean" in message) is (name in {"gpt4o", "o200k", "GPT-4o"})
    assert "gpt2, r50k_base, " in message.partition("expected an encoding (")[2]


# A small vocabulary in the form of gpt2's: the 256 bytes, and one merge.
LETTERS = [chr(at) for at in range(256) if chr(at).isprintable() and at != 32]
LETTERS += [chr(256 + at) for at in range(256 - len(LETTERS))]
TOKENS = {sign: at for at, sign in enumerate([*LETTERS, "hi"])} | {"<|endoftext|>": 257}
SMALL = {"https://a/vocab.bpe": b"#version: 0.2\nh i\n", "https://a/encoder.json": json.dumps(TOKENS).encode()}
HASHES = tuple(hashlib.sha256(content).hexdigest() for content in SMALL.values())


def small_gpt2(hashes: tuple[str, ...] = HASHES) -> Any:
    ranks = data_gym_to_mergeable_bpe_ranks(
        vocab_bpe_file="https://a/vocab.bpe",
        encoder_json_file="https://a/encoder.json",
        vocab_bpe_hash=hashes[0],
        encoder_json_hash=hashes[1],
    )
    return {"name": "small", "pat_str": ".+", "mergeable_ranks": ranks, "special_tokens": {"<|endoftext|>": 257}}


def constructors_of_tiktoken() -> dict[str, Any]:
    assert tiktoken.list_encoding_names()
    return tiktoken.registry.ENCODING_CONSTRUCTORS or {}


def test_an_encoding_of_two_files_needs_both(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "vocab.bpe) is not in" in fault("gpt2")
    assert "is a single file, but gpt2 consists of 2 files; put them all" in fault("gpt2", tmp_path / "vocab.bpe")
    for constructors in (constructors_of_tiktoken(), recipes.ENCODING_CONSTRUCTORS):
        monkeypatch.setitem(constructors, "small", small_gpt2)
    for url, content in SMALL.items():
        assert f"({url}) is not in {folder}" in fault("small")
        path = folder / hashlib.sha1(url.encode()).hexdigest()  # noqa: S324 - as above
        path.write_bytes(content)
    path.write_bytes(b"other")
    error = "differs from the file at https://a/encoder.json: its 5 bytes have the SHA-256 d9298a10d1b0…, not "
    assert f"{error}{HASHES[1][:12]}…; pass" in fault("small")
    path.write_bytes(content)
    assert encoding_for("small").encode("hi!") == [256, 0]
    assert download_vocabulary("small") == folder / hashlib.sha1(b"https://a/vocab.bpe").hexdigest()  # noqa: S324 - as above


def test_encodings_of_tiktoken_plugins_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(constructors_of_tiktoken(), "plug-in", lambda: sys.exit("it was asked"))
    assert fault("plug-in").startswith("the encoding 'plug-in' is not defined like tiktoken's built-in encodings, so ")


OFFLINE = """
import sys, time, warnings
from lazyprompt.errors import TokenizerError
from lazyprompt.tokens.openai import TiktokenCounter
from lazyprompt.tokens.download import download_vocabulary
from lazyprompt.tokens.vocabulary import check_vocabulary, encoding_for

def took(call):
    began = time.monotonic()
    try:
        return call(), time.monotonic() - began
    except TokenizerError as error:
        return str(error), time.monotonic() - began

warnings.simplefilter("ignore")
messages = [{"role": "user", "content": "hello"}, {"role": "user", "name": "Bob", "content": [{"type": "image"}]}]
for name in ("gpt-4o", "cl100k_base", "gpt2"):
    for call in (encoding_for, check_vocabulary, TiktokenCounter):
        text, seconds = took(lambda: call(name))
        assert seconds < 20, seconds
        assert "lazyprompt tokens --download" in text and "bpe_file=" in text and "TIKTOKEN_CACHE_DIR" in text, text
    counter, seconds = took(lambda: TiktokenCounter(name, missing="approximate"))
    assert seconds < 20, seconds
    for call in (lambda: counter.count(messages), lambda: counter.count_text("hello")):
        counted, seconds = took(call)
        assert seconds < 20, seconds
        assert counted > 0
text, seconds = took(lambda: download_vocabulary("gpt-4", timeout=1))
assert seconds < 20, seconds
print(text)
"""


def run(code: str, **environment: str) -> str:
    """What our code prints in a process of its own, without the proxies of this one."""
    kept = {name: value for name, value in os.environ.items() if name not in PROXIES}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own code
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "closed"])
def test_no_function_hangs_behind_an_unresponsive_or_closed_proxy(folder: Path, silent: bool) -> None:  # noqa: FBT001 - a parameter
    """tiktoken would wait forever for an unresponsive proxy."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not silent:
            server.close()
        message = run(OFFLINE, HTTPS_PROXY=proxy, TIKTOKEN_CACHE_DIR=str(folder))
    assert f"https://{HOST}{PATH} cannot be downloaded: " in message
    assert f"check HTTPS_PROXY, or put the file at {folder / KEY} manually" in message
    assert silent or "proxy" in message.partition("check HTTPS_PROXY")[0]
    assert list(folder.iterdir()) == []


class Proxy(ThreadingTCPServer):
    """A local proxy that connects every tunnel to one server."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.port = port
        self.asked: list[str] = []
        self.url = f"127.0.0.1:{self.server_address[1]}"


class Tunnel(StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        lines = list(iter(self.rfile.readline, b"\r\n"))
        self.server.asked.append(b"".join(lines).decode())
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with closing(socket.create_connection(("127.0.0.1", self.server.port))) as inner:
            back = threading.Thread(target=pump, args=(inner, self.connection), daemon=True)
            back.start()
            pump(self.connection, inner)
            back.join()


def pump(here: socket.socket, there: socket.socket) -> None:
    try:
        while data := here.recv(65_536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
    except OSError:
        """One side has closed the connection."""


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def site(authority: trustme.CA, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server under the name of OpenAI's, with a certificate that this process trusts."""
    made = Site()
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    made.socket = context.wrap_socket(made.socket, server_side=True, do_handshake_on_connect=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    assert folder.exists()
    yield from serve_site(made)


@pytest.fixture
def proxy(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    made = Proxy(site.server_port)
    monkeypatch.setenv("HTTPS_PROXY", f"http://{made.url}")
    with Serving(made):
        yield made


DOWNLOAD = """
import tiktoken
from lazyprompt.tokens.download import download_vocabulary
from lazyprompt.tokens.vocabulary import check_vocabulary, encoding_for
print(download_vocabulary("gpt-4"))
check_vocabulary("gpt-4")
assert tiktoken.get_encoding("cl100k_base").encode("hello world") == [15339, 1917]
"""


@pytest.mark.slow
def test_a_vocabulary_is_downloaded_through_a_proxy(site: Site, proxy: Proxy, folder: Path) -> None:
    whole = (vocabulary_folder() / KEY).read_bytes()
    site.gives(PATH, whole)
    deeper = folder / "made" / "here"
    message = run(DOWNLOAD, HTTPS_PROXY=f"http://me:p%40ss@{proxy.url}", TIKTOKEN_CACHE_DIR=str(deeper))
    assert message == f"{deeper / KEY}\n"
    assert [path.name for path in deeper.iterdir()] == [KEY]
    (asked,) = proxy.asked
    assert asked.startswith(f"CONNECT {HOST}:443 HTTP/1.")
    assert "roxy-" in asked
    assert "bWU6cEBzcw==" in asked
    # An existing file is not downloaded again.
    assert run(DOWNLOAD, TIKTOKEN_CACHE_DIR=str(deeper), HTTPS_PROXY="http://127.0.0.1:1") == message


@pytest.mark.usefixtures("site")
def test_a_damaged_vocabulary_is_downloaded_again(site: Site, proxy: Proxy, folder: Path, monkeypatch: Any) -> None:
    whole = (vocabulary_folder() / KEY).read_bytes()
    site.gives(PATH, whole)
    (folder / KEY).write_bytes(b"damaged")
    assert vocabularies_here() == []
    # A proxy may be named without a scheme.
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("all_proxy", proxy.url)
    assert download_vocabulary("cl100k_base") == folder / KEY
    assert vocabularies_here() == ["cl100k_base"]
    assert (folder / KEY).read_bytes() == whole
    assert [path.name for path in folder.iterdir()] == [KEY]
    (seen,) = site.seen
    assert (seen["target"], seen["Accept-Encoding"], seen["Connection"]) == (PATH, "identity", "close")
    assert seen["User-Agent"].startswith("lazyprompt/")


def sends_body_slowly(_: socket.socket) -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"
    for _number in range(600):
        time.sleep(0.05)
        yield b"x"


def sends_headers_slowly(_: socket.socket) -> Iterable[bytes]:
    for _number in range(600):
        time.sleep(0.05)
        yield b"HTTP/1.1 200 OK\r\nX: " if _number == 0 else b"x"


def sends_nothing(_: socket.socket) -> Iterable[bytes]:
    time.sleep(2)
    return []


def sends_endless_data(_: socket.socket) -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    yield from [bytes(1_000_000)] * 40


TOO_LONG = "the download took longer than 0.5 s; pass a longer timeout="
NO_VOCABULARY = "is not the vocabulary cl100k_base:"


@pytest.mark.slow
@pytest.mark.usefixtures("proxy")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        *((slow, TOO_LONG) for slow in (sends_body_slowly, sends_headers_slowly, sends_nothing)),
        (lambda _: [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"], "the server responded with status 404"),
        (lambda _: [b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"], "status 302"),
        (lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nIQ== 0"], "IncompleteRead"),
        (lambda _: [b"SSH-2.0\r\n"], "cannot be downloaded: "),
        (lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"], f"{NO_VOCABULARY} its 6 bytes"),
        (lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], f"{NO_VOCABULARY} its 0 bytes"),
    ],
)
def test_a_failed_download_leaves_no_file(site: Site, folder: Path, answer: Any, error: str) -> None:
    site.does(PATH, answer)
    slow = "took longer" in error
    began = time.monotonic()
    with pytest.raises(TokenizerError) as caught:
        download_vocabulary("gpt-4", timeout=0.5 if slow else 20)
    assert time.monotonic() - began < 15  # much less than the response would last
    assert error in str(caught.value)
    assert str(caught.value).endswith(f"put the file at {folder / KEY} manually")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("proxy")
def test_a_download_of_endless_data_is_stopped(site: Site, folder: Path) -> None:
    site.does(PATH, sends_endless_data)
    with pytest.raises(TokenizerError, match="the file is larger than 33554432 bytes"):
        download_vocabulary("gpt-4")
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("proxy")
@pytest.mark.parametrize(
    ("size", "error"), [(5_000, f"{NO_VOCABULARY} its 5000 bytes"), (5_001, "larger than 5000 bytes")]
)
def test_too_large_downloads_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch, size: int, error: str) -> None:
    monkeypatch.setattr("lazyprompt.tokens.download.MOST_BYTES", 5_000)
    site.gives(PATH, bytes(size))
    with pytest.raises(TokenizerError, match=error):
        download_vocabulary("gpt-4")


@pytest.mark.usefixtures("proxy")
def test_a_certificate_of_an_unknown_authority_is_refused(
    site: Site, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.gives(PATH, (vocabulary_folder() / KEY).read_bytes())
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other.pem"))
    with pytest.raises(TokenizerError, match="certificate verify failed"):
        download_vocabulary("gpt-4")
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("site")
def test_hosts_in_no_proxy_are_contacted_directly(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", ".windows.net")
    names: list[str] = []

    def getaddrinfo(host: str, *_: object, **__: object) -> Any:
        names.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(TokenizerError, match="Name or service not known|resolve"):
        download_vocabulary("gpt-4")
    assert (names, proxy.asked) == ([HOST], [])


@pytest.mark.parametrize("proxy", ["ftp://127.0.0.1:9", "http://[", "socks5://127.0.0.1:9"])
def test_an_invalid_proxy_address_is_reported(proxy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(TokenizerError, match="cannot be downloaded: .*; check HTTPS_PROXY"):
        download_vocabulary("gpt-4")
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("proxy")
def test_an_unwritable_cache_folder_is_reported(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.gives(PATH, (vocabulary_folder() / KEY).read_bytes())
    (folder / "file").touch()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder / "file"))
    error = r"cannot be written to .* \(\w+( \w+)*\); set TIKTOKEN_CACHE_DIR to a writable folder$"
    with pytest.raises(TokenizerError, match=error):
        download_vocabulary("gpt-4")
    assert [path.name for path in folder.iterdir()] == ["file"]
