"""Runs on a real Ray cluster on this machine write the bytes of one process, even if a worker is killed."""

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

from batch.clusters import Killer, by_id, expected_lines, job, make_prompter, plan, read_written, rows, run_locally
from lazyprompt.batch.database import BatchStoppedError
from lazyprompt.batch.ray_engine import run_on_ray
from lazyprompt.batch.rows import Choice
from lazyprompt.batch.run import run_batch
from support.batch_runs import saved_state
from support.missing import needs

# Ray and its imports warn of each other's versions. Ray looks for the metadata server of a cloud.
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
def test_ray_writes_the_bytes_of_one_process_despite_a_killed_worker(tmp_path: Path) -> None:
    ray_job = job(tmp_path, COUNT, "ray")
    killer = Killer(500)
    assert read_written(run_on_ray(ray_job, progress=killer), ray_job) == run_locally(tmp_path, COUNT)
    assert killer.killed is not None


@pytest.mark.usefixtures("cluster")
def test_lines_are_in_row_order_if_the_first_chunk_finishes_last(tmp_path: Path) -> None:
    def slow(given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
        if given["question"].startswith("Why 3?"):
            time.sleep(6)
        return given, history, tools, label

    ray_job = job(tmp_path, 1500, "slow")
    hooked = replace(ray_job, plan=replace(plan(), prompter=make_prompter().pre_hook(slow)))
    assert read_written(run_on_ray(hooked), ray_job) == run_locally(tmp_path, 1500)


@pytest.mark.usefixtures("cluster")
def test_a_sample_can_be_resumed_by_either_engine(tmp_path: Path) -> None:
    ray_job = replace(job(tmp_path, COUNT, "sample"), choice=Choice(limit=3000, sample=900, seed=4))
    for run in (run_batch, run_on_ray):
        with pytest.raises(BatchStoppedError, match="the last: enough"):
            run(ray_job, stopped=lambda: "enough", seconds=0)
    other = replace(job(tmp_path, COUNT, "other"), choice=ray_job.choice)
    assert read_written(run_on_ray(ray_job), ray_job) == read_written(run_batch(other), other)


@pytest.mark.usefixtures("cluster")
def test_an_invalid_row_stops_a_ray_run(tmp_path: Path) -> None:
    ray_job = replace(job(tmp_path, 50, "stop"), rejects=None)
    with pytest.raises(BatchStoppedError, match=r"^row 2: line 3: not valid JSON"):
        run_on_ray(ray_job)


@pytest.mark.usefixtures("cluster")
def test_an_unexpected_error_on_ray_is_reported_in_one_line(tmp_path: Path) -> None:
    # A local function is pickled by value; workers cannot import the tests.
    def broken(given: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
        if given["question"].startswith("Why 7?"):
            raise TypeError("no such luck")
        return given, history, tools, label

    ray_job = job(tmp_path, 50, "broken")
    wrong = replace(plan(), prompter=make_prompter().pre_hook(broken))
    with pytest.raises(BatchStoppedError, match=r"no row is finished: Ray stopped the run: TypeError: no such luck$"):
        run_on_ray(replace(ray_job, plan=wrong))


@pytest.mark.usefixtures("cluster")
def test_a_ray_dataset_of_several_blocks_is_rendered() -> None:
    data = ray.data.from_items(rows(200), override_num_blocks=4)
    made = data.map_batches(**make_prompter().ray_map(format="openai-batch", model="gpt-5-mini"))
    assert by_id(made.take_all()) == expected_lines(200)


def test_an_unreachable_ray_cluster_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command line reported it as an error of the standard output, as it does for every OSError.
    def init(**_: object) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 192.0.2.9:6379")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(BatchStoppedError, match="no row is finished: cannot connect to a Ray cluster: Failed"):
        run_on_ray(job(tmp_path, 5, "nowhere"))


def test_a_ray_command_ended_by_sigterm_reports_its_last_row(tmp_path: Path) -> None:
    # Ray's handler of SIGTERM wrote a traceback, and the command ended at once.
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
    stderr = run.communicate()[1].decode()
    assert "was the last: terminated by SIGTERM" in stderr
    assert run.returncode == 1


def test_the_pickled_job_for_a_worker_is_small(tmp_path: Path) -> None:
    assert len(pickle.dumps(job(tmp_path, 1, "small"))) < 4000
