"""Record renders of models' own chat templates: run the tests that need them, and write the file that they read.

python tests/support/record_renders.py
"""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from support import recorded_renders  # noqa: E402 - found on the path that is set above
from support.real_templates import render, version_of  # noqa: E402 - the same


def main() -> int:
    """Return 0, or pytest's exit status if a test fails; nothing is written then."""
    found: dict[recorded_renders.Key, tuple[str, str]] = {}

    def record(package: str, template: str, given: dict[str, Any]) -> str:
        text = render(package, template, given)
        found[package, template, json.dumps(given, ensure_ascii=False)] = version_of(package), text
        return text

    with patch.object(recorded_renders, "recorded_render", record):
        # Downloads, which quick tests may not do, happen here.
        failed = pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", str(TESTS / "rendering")], plugins=[Online()])
    if not failed:
        recorded_renders.write_renders(found)
        print(f"{len(found)} renders")  # noqa: T201 - the result
    return int(failed)


class Online:
    """Lets every test download."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Forget that quick tests stay offline."""
        import os  # noqa: PLC0415 - only here

        os.environ.pop("LAZYPROMPT_TESTS_OFFLINE", None)


if __name__ == "__main__":
    sys.exit(main())
