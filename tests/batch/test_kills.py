"""Runs that are killed with kill -9 and continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch import killed_runs
from batch.killed_calls import killed_again_and_again
from lazyprompt.cli.main import main

pytestmark = pytest.mark.slow  # runs that are killed


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="what a run has started is read from /proc")
def test_killed_runs_go_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_runs.write_data(tmp_path, 3000)
    monkeypatch.chdir(tmp_path)
    assert main(killed_runs.arguments("clean.jsonl")) == 3
    assert "2,996 rows, 4 rejected" in capsys.readouterr().err
    done = killed_runs.kill_runs(tmp_path, 3, [1, 2, 1], 0.01, seed=2)
    assert (done.kills, done.passes >= 1) == (3, True)


def test_a_killed_run_asks_no_row_again_that_was_answered(tmp_path: Path) -> None:
    # Ollama's client is the one that is imported soonest.
    counts = killed_again_and_again(tmp_path, kills=1, count=40, source="ollama", seed=3)
    assert counts.kills == 1
    assert counts.most <= 4
