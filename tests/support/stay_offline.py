"""Keeps quick tests and their subprocesses offline. Slow tests may download packages."""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import mkstemp

import pytest

_FOLDER = Path(__file__).parent / "offline"
if str(_FOLDER) not in sys.path:
    sys.path.insert(0, str(_FOLDER))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_FOLDER), os.environ.get("PYTHONPATH"))))
    sys.modules.pop("sitecustomize", None)
VARIABLE: str = import_module("sitecustomize").VARIABLE

LOG = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the process offline from now on, as collecting tests needs no download either."""
    number, path = mkstemp(prefix="offline-", suffix=".txt")
    os.close(number)
    config.stash[LOG] = Path(path)
    os.environ[VARIABLE] = path


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the log."""
    os.environ.pop(VARIABLE, None)
    config.stash[LOG].unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let slow tests download."""
    if item.get_closest_marker("slow") is None:
        return (yield)
    path = os.environ.pop(VARIABLE)
    try:
        return (yield)
    finally:
        os.environ[VARIABLE] = path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test that tried to use the network."""
    yield
    log = item.config.stash[LOG]
    if tried := log.read_text(encoding="utf-8"):
        log.write_text("", encoding="utf-8")
        pytest.fail(tried, pytrace=False)
