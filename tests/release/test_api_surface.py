"""The public API is what `tests/golden/api.txt` says: a change of it is made on purpose, and told."""

from difflib import unified_diff
from runpy import run_path

from support.paths import GOLDEN, TESTS


def test_the_public_api_is_the_one_that_is_written_down() -> None:
    kept = (GOLDEN / "api.txt").read_text(encoding="utf-8")
    found: str = run_path(str(TESTS / "release" / "api.py"))["page"]()
    change = "\n".join(unified_diff(kept.splitlines(), found.splitlines(), "api.txt", "lazyprompt", n=0, lineterm=""))
    assert not change, (
        f"the public API has changed:\n{change}\n"
        "If it is meant: python tests/release/api.py > tests/golden/api.txt, and tell it in CHANGELOG.md."
    )
