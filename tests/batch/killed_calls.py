"""A run that asks a model, killed again and again: no answer is lost, and none is paid for twice."""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from support.batch_calls import Clocked, all_answered, lines, rows
from support.batch_runs import answered
from support.client_scenes import KEY
from support.model_server.server import Slow

if TYPE_CHECKING:
    from pathlib import Path

# How many rows are asked at once, and how many seconds the server takes for an answer.
_AT_ONCE, _SLOW = 4, 0.02
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
    source: str,
    seed: int,
) -> Counts:
    """Run over rows, and kill the run at random moments until it comes to its end.

    Args:
        directory: An empty directory.
        kills: How often to kill it at most.
        count: How many rows there are.
        source: The source.
        seed: What the moments depend on.

    Raises:
        AssertionError: A row was lost or doubled, or was asked again though its answer was there.
    """
    random = Random(seed)  # noqa: S311 - no secret
    path = rows(directory, count)
    done = killed = most = 0
    with Clocked(lambda _: Slow(first=_SLOW * random.random())) as server:
        command = [sys.executable, "-c", _RUN, str(path), source, server.url(source), str(_AT_ONCE)]
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
                time.sleep(random.random() * _SLOW)
                run.kill()
            killed += run.wait() != 0
            asked = {int(said) for said in server.said[before:]}
            assert not asked & had, f"asked again though the answer was there: {sorted(asked & had)}"
            if run.returncode == 0:
                break
            assert run.returncode == -9, run.returncode
            lost = asked - _answered(directory)
            assert len(lost) <= _AT_ONCE, lost
            most = max(most, len(lost))
            done = len(had | asked)
            if (directory / "out.jsonl").exists() and not (directory / "out.jsonl.run").exists():
                break
    assert all_answered(directory / "out.jsonl", count)
    assert {each.name for each in directory.iterdir()} <= {"data.jsonl", "out.jsonl"}
    twice = len(server.came) - count
    assert twice <= killed * _AT_ONCE
    return Counts(killed, twice, most)


def _answered(directory: Path) -> set[int]:
    """The rows whose answers are on the disk."""
    output = directory / "out.jsonl"
    # At the end they stand in the output alone.
    return answered(output) or ({line["row"] for line in lines(output)} if output.exists() else set())
