"""The package on systems that are not POSIX."""

import os
import subprocess
import sys

import pytest

from lazyprompt.errors import EngineError
from lazyprompt.modules.process import EngineProcess
from support.paths import PACKAGE

# A simulated Windows: its platform, without the names that Python lacks there. Other packages are imported before.
AS_WINDOWS = """
import importlib, os, pkgutil, select, signal, sys, types
import lazyprompt

names = [each.name for each in pkgutil.walk_packages(lazyprompt.__path__, "lazyprompt.") if "__main__" not in each.name]
for name in names:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] == "lazyprompt"]:
    del sys.modules[name]
lacks = {
    os: "fork getsid killpg mkfifo posix_spawnp register_at_fork setsid set_blocking waitstatus_to_exitcode WNOHANG "
    "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH POSIX_SPAWN_OPEN",
    signal: "pause pthread_sigmask setitimer SIGALRM SIGCHLD SIGHUP SIGKILL SIGUSR1",
    select: "epoll kqueue poll",
}
for module, lacking in lacks.items():
    for name in lacking.split():
        if hasattr(module, name):
            delattr(module, name)
sys.modules |= dict.fromkeys(("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "termios", "tty"))
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
sys.platform = "win32"
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.slow
def test_each_module_can_be_imported_without_posix_only_names() -> None:
    """A module needed a signal of POSIX when it was imported, and so did each module that imports it."""
    files = [each for each in PACKAGE.rglob("*.py") if each.name != "__main__.py"]
    done = subprocess.run([sys.executable, "-c", AS_WINDOWS], check=True, capture_output=True, text=True)  # noqa: S603 - our own
    assert int(done.stdout) == len(files) - 1, "all but the package itself"


def test_starting_an_engine_without_posix_raises_an_error_with_a_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineProcess("llamacpp", "model.gguf")
    monkeypatch.setattr(os, "name", "another")
    with pytest.raises(EngineError, match=r"only on POSIX systems; start the engine manually and pass its url="):
        engine.start()
    assert engine.status() == "stopped"
