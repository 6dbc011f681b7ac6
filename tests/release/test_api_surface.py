"""The public API matches `tests/golden/api.txt`, so that each change of it is deliberate and in the changelog."""

from difflib import unified_diff
from runpy import run_path

from support.paths import GOLDEN, TESTS


def test_public_api_matches_the_golden_file() -> None:
    kept = (GOLDEN / "api.txt").read_text(encoding="utf-8")
    found: str = run_path(str(TESTS / "release" / "api.py"))["page"]()
    change = "\n".join(unified_diff(kept.splitlines(), found.splitlines(), "api.txt", "lazyprompt", n=0, lineterm=""))
    assert not change, (
        f"the public API has changed:\n{change}\n"
        "If it is meant: python tests/release/api.py > tests/golden/api.txt, and describe it in CHANGELOG.md."
    )
