from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from cli.helpers import Ran, Terminal
from lazyprompt.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run the command line in this process; without ``stdin`` it sits at a terminal."""
    monkeypatch.chdir(tmp_path)

    def run_main(*argv: str, stdin: bytes | None = None) -> Ran:
        kind = Terminal if stdin is None else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(stdin or b"")))
        status = main(list(argv))
        out, err = capsysbinary.readouterr()
        return Ran(status, out, err.decode())

    return run_main
