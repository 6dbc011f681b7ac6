"""Fills a disk under a batch run, makes a little room each time, and compares what comes of it with a clean run.

``sudo python tests/batch/soak_full_disk.py`` mounts a disk in memory for it (tmpfs), which only root can. The disk
begins with no room at all. ``tests/cli/test_batch.py`` does the same with a limit of how large files may be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from batch.soak_kills import DONE_WITH_REJECTS, outputs, started, write_data

ROWS = 30_000
STOPPED = 1
# What the system says, and what SQLite does.
FULL = ("No space left on device", "database or disk is full", "disk I/O error")


def mount(disk: Path, *options: str) -> None:
    """Mount a disk in memory, or change how large it is."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(disk)], check=True)  # noqa: S603, S607 - the system's own


def full(directory: Path, disk: Path, workers: int) -> list[str]:
    """Run until all is done, with some more room each time; what was said each time."""
    told: list[str] = []
    kilobytes = 4
    while True:
        mount(disk, "remount", f"size={kilobytes}k")
        run = started(directory, "disk/out.jsonl", workers, 0.1)
        _, said = run.communicate(timeout=600)
        if run.returncode == DONE_WITH_REJECTS:
            return told
        first, second = said.decode().splitlines()
        if (
            run.returncode != STOPPED
            or not any(reason in first for reason in FULL)
            or "go on with: lazyprompt" not in second
        ):
            raise SystemExit(f"exit status {run.returncode}: {said.decode()}")
        told.append(first)
        kilobytes += max(4, kilobytes // 2)


def main() -> None:
    """Do it, and print what was done."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        disk = directory / "disk"
        disk.mkdir()
        write_data(directory, ROWS)
        started(directory, "clean.jsonl", 1, 1.0).communicate(timeout=600)
        clean = outputs(directory, "clean")
        for workers in (1, 2):
            mount(disk, "size=4k")
            try:
                told = full(directory, disk, workers)
                if outputs(disk, "out") != clean:
                    raise SystemExit("the output differs from that of a clean run")
            finally:
                subprocess.run(["umount", str(disk)], check=True)  # noqa: S603, S607 - as above
            print(f"{workers} process(es): stopped {len(told)} times, then byte for byte as a clean run. Said were:")  # noqa: T201 - it says what it did
            print(*(f"  {each}" for each in (told[0], told[-1])), sep="\n")  # noqa: T201 - as above


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2]))
    main()
