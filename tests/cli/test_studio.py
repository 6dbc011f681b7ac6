"""The studio as a process of its own, at a port of this machine."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import current_thread
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from cli.helpers import Ran, Run, fault
from lazyprompt.errors import install_command
from support.missing import needs

needs("starlette", "uvicorn")

TEXT = "---\nname: x\ninputs:\n  who: {kind: string, required: true}\n---\nsystem:\nGreet {{who}}.\n"
studio: Any = import_module("lazyprompt.cli.studio")


class Studio(NamedTuple):
    process: subprocess.Popen[str]
    base: str
    token: str

    def ask(self, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(f"{self.base}{path}", data, headers), timeout=20) as answer:  # noqa: S310 - our own server
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()


@contextmanager
def run_studio(*argv: str, **env: str) -> Generator[Studio]:
    command = [sys.executable, "-m", "lazyprompt", "studio", *argv]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    ) as process:
        try:
            if process.stdout is None:
                pytest.fail("no pipe")
            found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]{43})\n", process.stdout.readline())
            assert found, process.communicate(timeout=20)
            yield Studio(process, found[1], found[2])
        finally:
            process.kill()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "x.prompty").write_text(TEXT)
    return tmp_path


@pytest.mark.slow
def test_studio_serves_only_requests_with_its_token_until_interrupted(root: Path) -> None:
    with run_studio(str(root), "--no-browser", "--port", "0") as server:
        headers = {"X-Studio-Token": server.token}
        assert server.ask(f"/?token={server.token}")[0] == 200
        for path in ("/", "/?token=guessed", "/api/workspace"):
            assert server.ask(path)[0] == 403
        assert server.ask("/api/workspace", **headers)[0] == 200
        assert server.ask("/api/workspace", **headers, Host="evil.example")[0] == 403
        assert server.ask("/api/workspace", **headers, Origin="http://evil.example")[0] == 403
        look = {"path": "x.prompty", "text": TEXT, "inputs": {"who": "Ann"}}
        status, body = server.ask("/api/look", look, **headers)
        assert (status, "Greet Ann." in json.loads(body)["look"]["text"]) == (200, True)
        with urlopen(f"{server.base}/static/index.html", timeout=20) as answer:  # noqa: S310 - our own server
            assert not {"server", "date"} & {name.lower() for name in answer.headers}
        server.process.send_signal(signal.SIGINT)
        out, err = server.process.communicate(timeout=20)
        assert server.process.returncode == 0
        assert out == ""
        # No request is logged: its address would contain the token.
        assert err == f"{root}; press Ctrl-C to stop\n"


@pytest.mark.slow
def test_interrupt_ends_the_studio_during_an_incomplete_request(root: Path) -> None:
    # By default, the server waits for the rest of the request.
    with run_studio(str(root / "x.prompty"), "--no-browser", "--port", "0") as server:
        host, _, port = server.base.removeprefix("http://").partition(":")
        lines = (f"Host: {host}:{port}", f"X-Studio-Token: {server.token}", "Content-Length: 9", "", "")
        head = "\r\n".join(("POST /api/look HTTP/1.1", *lines))
        with socket.create_connection((host, int(port))) as held:
            held.sendall(head.encode())
            assert server.ask("/api/workspace", **{"X-Studio-Token": server.token})[0] == 200
            server.process.send_signal(signal.SIGINT)
            server.process.communicate(timeout=20)
            assert server.process.returncode == 0


@pytest.mark.slow
def test_browser_is_opened_with_a_ticket_instead_of_the_token(root: Path, tmp_path: Path) -> None:
    # Other users of a machine can see the arguments of a browser's process.
    seen = tmp_path / "seen"
    browser = tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    with run_studio(str(root), "--port", "0", BROWSER=f"{browser} %s") as server:
        while not seen.exists():
            assert server.process.poll() is None
        address = seen.read_text().strip()
        assert server.token not in address
        assert address.startswith(f"{server.base}/?ticket=")
        assert server.ask(address.removeprefix(server.base))[0] == 200  # by way of the token
        assert server.ask(address.removeprefix(server.base))[0] == 403


def test_wrong_directory_or_port_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    assert fault(run("studio", "nowhere")).startswith("DIR: nowhere: no such directory or file")
    (tmp_path / "a.txt").touch()
    assert fault(run("studio", "a.txt")).startswith("DIR: a.txt: not a prompt file")
    assert fault(run("studio", "--port", "70000")).startswith("--port: ")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        message = fault(run("studio", "--no-browser", "--port", str(port)))
        assert message == f"--port: {port}: Address already in use; omit this option to use a free port"


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_missing_package_error_names_install_command(run: Run, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    def spec(name: str) -> object:
        return None if name == package else object()

    monkeypatch.setattr(studio, "find_spec", spec)
    expected = f"the {package} package is not installed; install it with: {install_command('studio')}"
    assert fault(run("studio")) == f"studio: {expected}"


class Started(NamedTuple):
    ran: Ran
    hosts: list[str]
    opened: Queue[tuple[str, bool]]
    """The opened addresses, each with whether a daemon thread opened it."""


@pytest.fixture
def start(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Started]:
    """Run the command in this process, with a server that ends at once."""
    hosts, opened = list[str](), Queue[tuple[str, bool]]()
    monkeypatch.setattr(studio, "_serve", lambda _, listener: hosts.append(listener.getsockname()[0]))
    monkeypatch.setattr(studio.webbrowser, "open", lambda url: opened.put((url, current_thread().daemon)))
    return lambda *argv: Started(run("studio", *argv), hosts, opened)


def test_address_is_printed_and_opened_before_the_server_starts(start: Callable[..., Started], root: Path) -> None:
    ran, hosts, opened = start(str(root), "--port", "0")
    printed = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=[\w-]{43}\n", ran.out.decode())
    assert printed
    assert (ran.status, ran.err, hosts) == (0, f"{root}; press Ctrl-C to stop\n", ["127.0.0.1"])
    address, is_daemon = opened.get(timeout=5)
    assert re.fullmatch(re.escape(printed[1]) + r"/\?ticket=[\w-]{43}", address)
    assert is_daemon
    start(str(root), "--port", "0", "--no-browser")
    assert opened.empty()


@pytest.mark.parametrize("is_used", [False, True])
def test_another_port_is_chosen_if_the_default_port_is_in_use(
    start: Callable[..., Started], root: Path, monkeypatch: pytest.MonkeyPatch, *, is_used: bool
) -> None:
    ports: list[int] = []

    def create_server(address: tuple[str, int]) -> Any:
        ports.append(address[1])
        if is_used and address[1]:
            raise OSError(errno.EADDRINUSE, "in use")
        return nullcontext(SimpleNamespace(getsockname=lambda: (address[0], address[1] or 5000)))

    monkeypatch.setattr(studio, "socket", SimpleNamespace(create_server=create_server))
    ran = start(str(root), "--no-browser").ran
    assert ports == ([7317, 0] if is_used else [7317])
    assert ran.out.decode().startswith(f"http://127.0.0.1:{5000 if is_used else 7317}/?token=")
    note = "port 7317 is in use, so another port was chosen; " if is_used else ""
    assert ran.err == f"{note}{root}; press Ctrl-C to stop\n"


def test_server_sends_no_identifying_headers_and_logs_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn  # noqa: PLC0415 - it may be missing

    ran: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        uvicorn, "Server", lambda config: SimpleNamespace(run=lambda sockets: ran.append((config, sockets)))
    )
    with socket.socket() as listener:
        vars(studio)["_serve"](None, listener)
        ((config, sockets),) = ran
        assert sockets == [listener]
    quiet = ("access_log", "date_header", "server_header", "proxy_headers")
    assert [getattr(config, name) for name in quiet] == [False] * 4
    assert (config.log_level, config.lifespan, config.ws, config.http) == ("warning", "off", "none", "h11")
    assert (config.loop, config.timeout_graceful_shutdown) == ("asyncio", 1)
