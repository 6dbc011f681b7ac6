"""The studio in a separate process, and its page as a user operates it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING
from urllib.parse import quote

from support.paths import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

PARAMS = {"judge": "gpt-5.4", "deployment": "qwen-plus"}
_SECONDS = 30

# Sets a control as a user does, without the time that Playwright takes to find it on the screen.
_SET = """([selector, value]) => {
  const control = document.querySelector(selector);
  if (control.type === "checkbox" || control.type === "radio") control.checked = value;
  else control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
  control.dispatchEvent(new Event("change", { bubbles: true }));
}"""
_IDLE = """() => document.querySelector("#seen").getAttribute("aria-busy") === "false" """


@contextmanager
def serve_studio(place: Path) -> Iterator[str]:
    """Serve the studio over a directory or a file, and yield the address of its page."""
    params = [part for name, value in PARAMS.items() for part in ("--param", f"{name}={value}")]
    command = [sys.executable, "-m", "lazyprompt", "studio", str(place), "--no-browser", "--port", "0", *params]
    with TemporaryFile("w+") as stderr_file:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr_file, text=True) as process:  # noqa: S603 - ours
            try:
                assert process.stdout
                yield process.stdout.readline().strip()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(_SECONDS)
        stderr_file.seek(0)
        assert "Traceback" not in (log := stderr_file.read()), log


def library(place: Path) -> Path:
    """A copy of the example library."""
    return Path(shutil.copytree(LIBRARY, place / "library"))


class Screen:
    """The page of a studio at an address, in a browser's page."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address

    def open(self, path: str) -> None:
        """Open a file, and wait until it is shown."""
        self.page.goto(f"{self.address}#{quote(path, safe='')}")
        self.opened(path)

    def opened(self, path: str) -> None:
        """Wait until a file is shown."""
        self.page.locator("#where", has_text=path).wait_for()
        self.idle()

    def idle(self) -> None:
        """Wait until all typed text is rendered."""
        self.page.wait_for_function(_IDLE)

    def checked(self) -> None:
        """Wait until the findings are those of the text in the editor."""
        self.page.locator("#findings[aria-busy=false]").wait_for(state="attached")

    def says(self, what: str) -> None:
        """Wait for a status message, for example that a file is saved."""
        self.page.locator("#status", has_text=what).wait_for()

    def set(self, selector: str, value: str) -> None:
        """Set a control as a user does, and wait until the result is shown."""
        self.page.evaluate(_SET, [selector, value])
        self.idle()

    def choose(self, selector: str, value: str) -> None:
        """Choose one of a list."""
        self.page.select_option(selector, value)
        self.idle()

    def tick(self, selector: str, *, on: bool) -> None:
        """Tick a box, or choose one of several."""
        self.page.evaluate(_SET, [selector, on])
        self.idle()

    def give(self, name: str, value: object) -> None:
        """Give an input a value."""
        selector = f"#inputs [name={json.dumps(name, ensure_ascii=False)}]"
        field = self.page.locator(selector).evaluate("node => node.closest('.field').className").split()[-1]
        if field == "check":
            self.tick(selector, on=bool(value))
        else:
            as_json = field in ("json", "choice") or not isinstance(value, str)
            self.set(selector, json.dumps(value, ensure_ascii=False) if as_json else str(value))

    def mode(self, name: str) -> None:
        """Choose the mode of the page: ``look``, ``trim``, ``attack`` or ``diff``."""
        self.tick(f"#modes [value={name}]", on=True)

    def text(self, selector: str) -> str:
        """All text of an element, to the byte."""
        return str(self.page.evaluate("selector => document.querySelector(selector).textContent", selector))

    @property
    def made(self) -> str:
        """The rendered prompt that the page shows."""
        return self.text("#made")

    @property
    def template(self) -> str:
        return str(self.page.input_value("#template"))


@contextmanager
def open_studio(page: Page, place: Path) -> Iterator[Screen]:
    """Serve the studio, and leave its page before the server ends, because a late request would be refused."""
    with serve_studio(place) as address:
        yield Screen(page, address)
        page.goto("about:blank")
