"""A run on a real cluster of Ray, on this machine: the bytes of one process, whoever is killed."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batch.clusters import Killer, alone, by_id, expected_lines, job, make_prompter, plan, read_written, rows
from lazyprompt.batch.database import BatchStoppedError
from lazyprompt.batch.ray_engine import run_on_ray
from lazyprompt.batch.rows import Choice
from lazyprompt.batch.run import run_batch
from support.batch_runs import saved_state
from support.missing import needs

# Ray's own code, and what it imports, warn of each other's versions.
# Ray looks for the address at which machines of a cloud answer.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
ray: Any = needs("ray")

COUNT = 4000


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=256 * 2**20, log_to_driver=False, logging_level="error"
    )
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_the_same_bytes_as_of_one_process_with_a_worker_killed(tmp_path: Path) -> None:
    asked = job(tmp_path, COUNT, "ray")
    killer = Killer(500)
    assert read_written(run_on_ray(asked, progress=killer), asked) == alone(tmp_path, COUNT)
    assert killer.killed is not None


@pytest.mark.usefixtures("cluster")
def test_lines_keep_their_order_though_the_first_chunk_is_the_last_to_be_done(tmp_path: Path) -> None:
    def slow(given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
        if given["question"].startswith("Why 3?"):
            time.sleep(6)
        return given, history, tools, label

    asked = job(tmp_path, 1500, "slow")
    hooked = replace(asked, plan=replace(plan(), prompter=make_prompter().pre_hook(slow)))
    assert read_written(run_on_ray(hooked), asked) == alone(tmp_path, 1500)


@pytest.mark.usefixtures("cluster")
def test_a_sample_that_goes_on_wherever_it_was_begun(tmp_path: Path) -> None:
    asked = replace(job(tmp_path, COUNT, "sample"), choice=Choice(limit=3000, sample=900, seed=4))
    for run in (run_batch, run_on_ray):
        with pytest.raises(BatchStoppedError, match="the last: enough"):
            run(asked, stopped=lambda: "enough", seconds=0)
    other = replace(job(tmp_path, COUNT, "other"), choice=asked.choice)
    assert read_written(run_on_ray(asked), asked) == read_written(run_batch(other), other)


@pytest.mark.usefixtures("cluster")
def test_a_row_without_a_line_ends_it(tmp_path: Path) -> None:
    asked = replace(job(tmp_path, 50, "stop"), rejects=None)
    with pytest.raises(BatchStoppedError, match=r"^row 2: line 3: not valid JSON"):
        run_on_ray(asked)


@pytest.mark.usefixtures("cluster")
def test_what_no_row_is_to_blame_for_is_told_in_a_line(tmp_path: Path) -> None:
    # A function of this module would be looked for in the worker, which knows nothing of tests.
    def broken(given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
        if given["question"].startswith("Why 7?"):
            raise TypeError("no such luck")
        return given, history, tools, label

    asked = job(tmp_path, 50, "broken")
    wrong = replace(plan(), prompter=make_prompter().pre_hook(broken))
    with pytest.raises(BatchStoppedError, match=r"no row is finished: Ray stopped the run: TypeError: no such luck$"):
        run_on_ray(replace(asked, plan=wrong))


@pytest.mark.usefixtures("cluster")
def test_a_table_in_pieces() -> None:
    data = ray.data.from_items(rows(200), override_num_blocks=4)
    made = data.map_batches(**make_prompter().ray_map(format="openai-batch", model="gpt-5-mini"))
    assert by_id(made.take_all()) == expected_lines(200)


def test_a_cluster_that_is_not_there_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It was said of the standard output, which is what the command line knows of errors of the system.
    def init(**_: object) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 192.0.2.9:6379")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(BatchStoppedError, match="no row is finished: cannot connect to a Ray cluster: Failed"):
        run_on_ray(job(tmp_path, 5, "nowhere"))


def test_a_command_that_is_told_to_end_says_how_to_go_on(tmp_path: Path) -> None:
    # Ray's own handler of SIGTERM wrote a trace, and the command ended in the middle.
    (tmp_path / "ask.yaml").write_text('type: chat\ninstruction: "Answer in {language}: {question}"\n')
    rows_file = job(tmp_path, 60_000, "unused").rows.path
    command = [sys.executable, "-m", "lazyprompt", "batch", "ask.yaml", str(rows_file), "-o", "out.jsonl"]
    environment = {**os.environ, "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(256 * 2**20)}
    run = subprocess.Popen(  # noqa: S603 - our own
        [*command, "--on-error", "skip", "--engine", "ray"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
    )
    while run.poll() is None and not saved_state(tmp_path / "out.jsonl").get("number"):
        time.sleep(0.02)
    run.terminate()
    said = run.communicate()[1].decode()
    assert "was the last: terminated by SIGTERM" in said
    assert run.returncode == 1


def test_what_travels_to_a_worker_is_small(tmp_path: Path) -> None:
    assert len(pickle.dumps(job(tmp_path, 1, "small"))) < 4000
