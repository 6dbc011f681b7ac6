import io
import sys
from pathlib import Path

import pytest

from cli.helpers import Ran, Run, Terminal
from lazyprompt.cli.main import main
from support.batch_runs import wait_for_no_disk


@pytest.fixture(autouse=True)
def _no_disk_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_no_disk(monkeypatch)


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process; without ``stdin``, the standard input is a terminal."""
    monkeypatch.chdir(tmp_path)

    def run_main(*argv: str, stdin: bytes | None = None) -> Ran:
        kind = Terminal if stdin is None else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(stdin or b"")))
        status = main(list(argv))
        out, err = capsysbinary.readouterr()
        return Ran(status, out, err.decode())

    return run_main
