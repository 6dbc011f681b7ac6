"""How hypothesis runs: without a clock, and in CI with the same examples each time. What the collector looks through.

``pytest --hypothesis-profile=deep`` tries many times as much, of random conversations and chats too.
"""

import gc
import os
import signal
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings

UNCOUNTED = pytest.StashKey[bool]()

pytest_plugins = ["support.missing", "support.stay_offline", "support.browser"]

settings.register_profile("dev", deadline=None, max_examples=25)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("deep", settings.get_profile("dev"), max_examples=1000)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell starts what runs in the background with interrupts ignored, and every process that a test starts would inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of each test function. Further cases run the same lines, in half the time where none are counted.
COUNTED_CASES = 6


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: 25,000 tests and the modules that they import all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the cases whose lines are not counted."""
    if config.pluginmanager.hasplugin("_cov"):
        cases = Counter[str]()
        for item in items:
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            item.stash[UNCOUNTED] = cases[name] > COUNTED_CASES


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count no lines of a further case. The mark ``no_cover`` would start tracing threads again."""
    tracer = sys.gettrace()
    if item.stash.get(UNCOUNTED, False):
        sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


# Helpers are no test modules, but their asserts are to show values all the same.
for helpers in ("cli.helpers", "messages.helpers", "modules.clients", "studio.helpers"):
    pytest.register_assert_rewrite(helpers)


if sys.platform == "win32":  # a test's text is in its file to the byte, as elsewhere
    Path.write_text.__defaults__ = ("utf-8", None, "\n")
    Path.read_text.__defaults__ = ("utf-8", *Path.read_text.__defaults__[1:])


@pytest.fixture(scope="session", autouse=True)
def _threads_untraced() -> None:
    """CPython 3.11 cannot trace two threads that begin at once; the lines that threads alone run are not counted."""
    threading.settrace(cast("Any", None))  # it takes None, as sys.settrace does


@pytest.fixture(scope="module", autouse=True)
def _spared_collector() -> None:
    """The collector looks through what a module of tests makes, not through all that is loaded: 0.4 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _authorities_read_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each client of a model reads whom to trust on the net, for 30 ms; here it talks plain HTTP, to servers of ours.

    Tests that do trust somebody have an authority of their own.
    """
    with pytest.MonkeyPatch.context() as patched:
        if not hasattr(request.module, "trustme"):
            patched.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns, whatever the environment says."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
