"""A run that asks a model, killed again and again: no answer is lost, and none is paid for twice.

``python tests/batch/soak_calls.py --kills 50`` does so at length.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.batch_calls import Clocked, all_answered, lines, rows
from support.batch_runs import answered
from support.client_scenes import KEY
from support.model_server.server import Slow

_RUN = """
import sys
from pathlib import Path
from lazyprompt import ChatPrompter, OnlineChatModule
from lazyprompt.batch.calls import CallJob, call_batch
from lazyprompt.batch.rates import Rates
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob

path, source, url, at_once = Path(sys.argv[1]), *sys.argv[2:]
plan = RowPlan.of(ChatPrompter("Answer in {language}."))
job = BatchJob(row_file(path), plan, path.with_name("out.jsonl"))
module = OnlineChatModule(source, model="m", base_url=url, api_key=sys.stdin.read())
call_batch(CallJob(job, module, Rates(int(at_once))))
"""


class Counts(NamedTuple):
    """What came of it.

    Attributes:
        kills: How often it was killed while it ran.
        twice: How many rows were asked more than once.
        most: How many of them there were at most for one kill.
    """

    kills: int
    twice: int
    most: int


def killed_again_and_again(
    directory: Path,
    *,
    kills: int,
    count: int,
    source: str = "openai",
    at_once: int = 4,
    seed: int = 0,
    slow: float = 0.02,
) -> Counts:
    """Run over rows, and kill the run at random moments until it comes to its end.

    Args:
        directory: An empty directory.
        kills: How often to kill it at most.
        count: How many rows there are.
        source: The source.
        at_once: How many rows are asked at once.
        seed: What the moments depend on.
        slow: How many seconds the server takes for an answer.

    Raises:
        AssertionError: A row was lost or doubled, or was asked again though its answer was there.
    """
    random = Random(seed)  # noqa: S311 - no secret
    path = rows(directory, count)
    done = killed = most = 0
    with Clocked(lambda _: Slow(first=slow * random.random())) as server:
        command = [sys.executable, "-c", _RUN, str(path), source, server.url(source), str(at_once)]
        while True:
            before = len(server.came)
            had = _answered(directory)
            run = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - our own
            assert run.stdin is not None
            run.stdin.write(KEY.encode())
            run.stdin.close()
            if killed < kills:
                # A kill for each share of the rows, and the last ones wherever the run is by then.
                left = count - done
                more = random.randint(1, max(1, min(left - 1, 2 * left // (kills - killed))))
                while run.poll() is None and len(server.came) < before + more:
                    time.sleep(0.001)
                time.sleep(random.random() * slow)
                run.kill()
            killed += run.wait() != 0
            asked = {int(said) for said in server.said[before:]}
            assert not asked & had, f"asked again though the answer was there: {sorted(asked & had)}"
            if run.returncode == 0:
                break
            assert run.returncode == -9, run.returncode
            lost = asked - _answered(directory)
            assert len(lost) <= at_once, lost
            most = max(most, len(lost))
            done = len(had | asked)
            if (directory / "out.jsonl").exists() and not (directory / "out.jsonl.run").exists():
                break
    assert all_answered(directory / "out.jsonl", count)
    assert {each.name for each in directory.iterdir()} <= {"data.jsonl", "out.jsonl"}
    twice = len(server.came) - count
    assert twice <= killed * at_once
    return Counts(killed, twice, most)


def _answered(directory: Path) -> set[int]:
    """The rows whose answers are on the disk."""
    output = directory / "out.jsonl"
    # At the end they stand in the output alone.
    return answered(output) or ({line["row"] for line in lines(output)} if output.exists() else set())


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
