"""What the studio's page shows of the example library, in a real browser, against what ``generate_prompt`` gives.

``python tests/studio/all_pages.py`` takes every file with every family and every provider, half an hour;
``python tests/studio/all_pages.py 50`` one of fifty. The tests take a share.
"""

from __future__ import annotations

import shutil
import sys
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from studio.all_looks import Case, cases, expected, inputs_of
from studio.helpers import PARAMS, Screen, library, served
from support.browser import ARGS

if TYPE_CHECKING:
    from collections.abc import Iterable


def shown(screen: Screen, case: Case) -> object:
    """What the page shows of a case, whose file is open, in the form in which its text is expected."""
    # Two choices, and one look for both.
    screen.page.evaluate("family => { document.querySelector('#family').value = family; }", case.model or "")
    screen.set("#form", case.form)
    if screen.page.locator("#seen.stale").count():
        return {"message": screen.text("#error bdi").strip(), "line": None, "column": None}
    return screen.made


def differing(screen: Screen, chosen: Iterable[Case]) -> list[Case]:
    """The cases of which the page shows something else than ``generate_prompt`` gives; those of a file side by side."""
    wrong: list[Case] = []
    for path, same in groupby(chosen, attrgetter("path")):
        screen.open(path)
        for name, value in inputs_of(path).items():
            screen.give(name, value)
        wrong += [case for case in same if shown(screen, case) != expected(case)]
    return wrong


def main(one_in: int) -> int:
    """Compare a share.

    Args:
        one_in: How large it is.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this command needs it

    chosen = [case for at, case in enumerate(cases()) if at % one_in == 0]
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=[*ARGS])
        with served(library(Path(folder)), *PARAMS) as address:
            wrong = differing(Screen(browser.new_page(), address), chosen)
        browser.close()
    sys.stdout.write("".join(f"not the same: {case}\n" for case in wrong))
    sys.stdout.write(f"{len(chosen)} prompts in a browser, {len(wrong)} not as generate_prompt has it\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
