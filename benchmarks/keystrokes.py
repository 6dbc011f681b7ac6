"""How long it takes in the studio until what was typed is seen: from the key to the frame that shows it.

    python benchmarks/keystrokes.py            a table
    python benchmarks/keystrokes.py --check    fails where a median is above its target
    python benchmarks/keystrokes.py --check --slack 3    for a machine that others use as well

A real browser (Debian's chromium) opens the page of a real ``lazyprompt studio``; keys are typed into the middle of
100 kB, and the view stands at the place that they change. The time is taken in the browser: it begins with the event
of the key, and ends once the frame is painted in which the text of the view has what was typed. Beside it stands the
editor alone, a plain text area with the same text.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import sync_playwright

from studio.helpers import Screen, serve_studio
from support.browser import ARGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# The greatest median, but for the last row.
LIMIT_MS = 100.0
ALONE = "a text area alone, with the same text"
KEYS = 40
SIGNS = 100_000
LINE = "A line of a long prompt, number {number}: what to do, what to leave alone, and how to say so.\n"
TEXT = "".join(LINE.format(number=number) for number in range(SIGNS // len(LINE.format(number=1000)) + 1))
FILE = """---
name: long
inputs: [{{name: value, kind: string, default: none}}]
---
system:
{body}

user:
{{{{value}}}}
"""

# What is typed goes up by one each time, so that the view has it once, and only once it is new.
_WATCH = """({ area: selector, view: shown }) => {
  const area = document.querySelector(selector);
  const view = shown && document.querySelector(shown);
  window.times = [];
  const painted = (start) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => times.push(performance.now() - start);
    channel.port2.postMessage(0);
  });
  area.addEventListener("keydown", (event) => { window.pressed = event.timeStamp; }, { capture: true });
  area.addEventListener("input", () => {
    const start = window.pressed;
    if (!view) return painted(start);
    const wanted = "@".repeat(window.typed += 1);
    const observer = new MutationObserver(() => {
      if (!view.textContent.includes(wanted)) return;
      observer.disconnect();
      painted(start);
    });
    observer.observe(view, { childList: true, subtree: true, characterData: true });
  }, { capture: true });
  window.typed = 0;
  const middle = area.value.indexOf("\\n", area.value.length / 2) + 1;
  area.focus();
  area.setSelectionRange(middle, middle);
  const line = area.value.slice(middle, area.value.indexOf("\\n", middle));
  const chunk = view && [...view.children].find((each) => each.textContent.includes(line));
  chunk?.scrollIntoView({ block: "center" });
}"""
_COUNT = "count => window.times.length >= count"


def typed(page: Page, area: str, view: str | None) -> list[float]:
    """Type into a text area.

    Args:
        page: The page.
        area: The text area, as a selector.
        view: What is to show it; None where that is the text area itself.

    Returns:
        From key to frame, each in milliseconds.
    """
    page.evaluate(_WATCH, {"area": area, "view": view})
    for count in range(1, KEYS + 1):
        page.keyboard.press("@")
        page.wait_for_function(_COUNT, arg=count)
        page.wait_for_timeout(50)  # as fast as nobody types
    return [float(each) for each in page.evaluate("window.times")]


def rows(browser: Browser, folder: Path) -> dict[str, list[float]]:
    """Return the milliseconds of each key, by the place where it is typed.

    Args:
        browser: The browser.
        folder: A directory for the prompt files.
    """
    (folder / "template.prompty").write_text(FILE.format(body=TEXT), encoding="utf-8")
    (folder / "value.prompty").write_text(FILE.format(body="Be kind."), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_content('<textarea id="alone" spellcheck="false" style="width: 30rem; height: 30rem"></textarea>')
    page.fill("#alone", TEXT)
    alone = typed(page, "#alone", None)
    with serve_studio(folder) as address:
        screen = Screen(page, address)
        screen.open("template.prompty")
        template = typed(page, "#template", "#made")
        page.close()
        screen = Screen(page := browser.new_page(viewport={"width": 1280, "height": 800}), address)
        screen.open("value.prompty")
        screen.give("value", TEXT)
        value = typed(page, "#inputs [name=value]", "#made")
    return {"a template of 100 kB": template, "an input of 100 kB": value, ALONE: alone}


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail where a median is above its target")
    parser.add_argument("--slack", type=float, default=1.0, help="so many times the target will do")
    options = parser.parse_args()
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=[*ARGS])
        measured = rows(browser, Path(folder))
        browser.close()
    print(f"{KEYS} keys each, from the key to the frame; load of the machine {os.getloadavg()[0]:.1f}")
    missed: list[str] = []
    for what, times in measured.items():
        middle, late = median(times), quantiles(times, n=20)[-1]
        print(f"{what:38} median {middle:6.1f} ms   95 % {late:6.1f} ms")
        if what != ALONE and middle > LIMIT_MS * options.slack:
            missed.append(what)
    if options.check and missed:
        print(f"too slow: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
