"""A run that is killed on the way, for a moment; ``soak_calls.py`` is the long way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batch_call_kills import killed_again_and_again

if TYPE_CHECKING:
    from pathlib import Path


def test_a_killed_run_asks_no_row_again_that_was_answered(tmp_path: Path) -> None:
    # Ollama's client is the one that is imported soonest.
    counts = killed_again_and_again(tmp_path, kills=1, count=40, source="ollama", seed=3)
    assert counts.kills == 1
    assert counts.most <= 4
