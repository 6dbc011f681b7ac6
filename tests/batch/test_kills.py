"""Runs of the command line that are killed with kill -9 and gone on with: a share of soak_kills.py."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt.cli.main import main

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("soak_kills", Path(__file__).with_name("soak_kills.py"))
    if spec is None or spec.loader is None:
        pytest.fail("no soak")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "soak_kills", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="what a run has started is read from /proc")
def test_killed_runs_go_on_to_the_same_bytes(
    soak: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    soak.write_data(tmp_path, 3000)
    monkeypatch.chdir(tmp_path)
    assert main(soak.arguments("clean.jsonl")) == 3
    assert "2,996 rows, 4 rejected" in capsys.readouterr().err
    done = soak.soak(tmp_path, 3, [1, 2, 1], 0.01, seed=2)
    assert (done.kills, done.passes >= 1) == (3, True)
