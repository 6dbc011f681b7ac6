"""Kill a run that asks a model, again and again: PYTHONPATH=.:tests python tests/batch/soak_calls.py --kills 50."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from batch_call_kills import killed_again_and_again


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--source", default="openai")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        counts = killed_again_and_again(
            Path(directory),
            kills=given.kills,
            count=given.rows,
            source=given.source,
            at_once=given.at_once,
            seed=given.seed,
        )
        print(f"{given.source}: {given.rows} rows, {counts}, {time.monotonic() - begun:.0f} s")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
