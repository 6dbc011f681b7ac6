"""Simulates parts of Windows on other systems: its paths, and the abilities that it lacks."""

import ntpath
import os
import sys

import pytest

PERMISSIONS = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
"""A mark of tests that read the mode of a file."""


def resolving_as_windows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Split paths as Windows does, and return a list to which all resolved paths are added."""
    asked: list[str] = []
    resolve = os.path.realpath

    def resolved(path: str | os.PathLike[str]) -> str:
        asked.append(os.fspath(path))
        return resolve(path)

    for name in ("splitdrive", "normcase"):
        monkeypatch.setattr(os.path, name, getattr(ntpath, name))
    monkeypatch.setattr(os.path, "realpath", resolved)
    return asked
