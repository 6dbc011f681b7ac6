"""A real browser for tests: Debian's chromium, driven by Playwright.

A page fails its test when it says anything on the console, throws, opens a dialog that nobody waits for, or asks for
anything that is not on this machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request

Answer: TypeAlias = Literal["accept", "dismiss"]

ARGS: Final = (
    "--no-sandbox",  # tests run as root in containers
    # Software rendering would take a fifth of the processor's time.
    "--disable-gpu",
    "--disable-software-rasterizer",
    # No host name is resolved, whatever a page tries.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_LOCAL: Final = frozenset({"127.0.0.1", "localhost"})
# They stay within the page.
_HARMLESS: Final = frozenset({"about", "data", "blob", "file"})


class Watch:
    """The events of a page that a test has to check."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._allowed: list[re.Pattern[str]] = []
        self._answers: list[Answer] = []

    def allow(self, pattern: str) -> None:
        """Allow lines of the console in which a pattern is found."""
        self._allowed.append(re.compile(pattern))

    def answer(self, answer: Answer) -> None:
        """Expect a dialog of the browser, and answer it."""
        self._answers.append(answer)

    def over(self, page: Page) -> None:
        """Watch a page."""
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("dialog", self._dialog)
        page.on("request", self._request)

    def unanswered(self) -> list[Answer]:
        """Expected dialogs that did not appear."""
        return self._answers

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(each.search(message.text) for each in self._allowed):
            self.faults.append(f"console: {message.text}")

    def _error(self, error: Error) -> None:
        self.faults.append(f"thrown: {error.message}\n{error.stack}")

    def _dialog(self, dialog: Dialog) -> None:
        if not self._answers:
            self.faults.append(f"dialog: {dialog.type}: {dialog.message}")
        if self._answers and self._answers.pop(0) == "accept":
            dialog.accept()
        else:
            dialog.dismiss()

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in _HARMLESS and address.hostname not in _LOCAL:
            self.faults.append(f"request: {request.url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module: 0.6 s.

    Not for the whole session: Playwright's loop counts as running for as long as it lives, and tests of pytest-asyncio
    start loops of their own.
    """
    program = shutil.which("chromium")
    if program is None and not os.environ.get("CI"):
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    assert program, "CI tests in a real browser: install chromium"
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - 0.2 s, and only where there is a browser

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=[*ARGS])
        yield running
        running.close()
    # Playwright ends, and leaves its loop as the one that runs.
    asyncio._set_running_loop(None)  # noqa: SLF001 - asyncio's own way for loops; there is no other


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def page(browser: Browser, watch: Watch) -> Iterator[Page]:
    """An empty page of a fresh profile; errors of the page fail the test at its end."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    # A busy machine is slow, which is not an error of the page.
    context.set_default_timeout(20_000)
    page = context.new_page()
    watch.over(page)
    yield page
    context.close()
    assert watch.faults == []
    assert watch.unanswered() == []
