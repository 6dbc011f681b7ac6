"""The same lines from every engine as from one process: python tests/batch/soak_ray.py [ENGINE ...] [--rows N].

Engines: ray, ray-driver, ray-map, datasets, daft, spark; without a name, all. The first three work on 100,000 rows,
the others on 10,000. With ``ray`` and ``ray-map`` a worker is killed on the way, with ``ray-driver`` the whole run,
again and again, and it is started anew. The exit status is 1 if a line differs. ``--speed`` measures instead what a
row costs in one process, in two and on Ray, and what of that the writing process of Ray does.

    python -m pip install 'ray[data]>=2.60' datasets daft pyspark pandas pyarrow
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import batch.clusters as scene
from lazyprompt.batch.adapters import columns_map, daft_lines, spark_lines
from lazyprompt.batch.ray_engine import run_on_ray
from lazyprompt.batch.run import run_batch
from support.batch_runs import saved

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.batch.run import Outcome

PARALLEL = 2
KILLS = 4


def package(name: str) -> Any:
    """An engine; it has no types, or is not there where they are checked."""
    return import_module(name)


def start_ray() -> Any:
    """A small cluster of this process's own."""
    ray = package("ray")
    ray.init(
        num_cpus=PARALLEL,
        include_dashboard=False,
        object_store_memory=256 * 2**20,
        log_to_driver=False,
        logging_level="error",
    )
    return ray


def run_ray(folder: Path, count: int) -> tuple[bool, float, str]:
    """A run on Ray, with a worker killed."""
    ray = start_ray()
    job = scene.job(folder, count, "ray")
    killer = scene.Killer(count // 4)
    begin = time.monotonic()
    outcome = run_on_ray(job, progress=killer)
    seconds = time.monotonic() - begin
    ray.shutdown()
    same = scene.written(outcome, job) == scene.alone(folder, count)
    return same and killer.killed is not None, seconds, f"worker {killer.killed} killed"


def run_ray_driver(folder: Path, count: int) -> tuple[bool, float, str]:
    """A run on Ray, killed and started anew."""
    job = scene.job(folder, count, "driver")
    moments = random.Random(9)  # noqa: S311 - moments to kill at, no secret
    kept: list[str] = []
    begin = time.monotonic()
    for kill in (*[True] * KILLS, False):
        before = _done(job.output)
        done = subprocess.Popen([sys.executable, __file__, "--one", str(folder), str(count)])  # noqa: S603 - itself
        if kill:
            # Somewhere in what is left, but for the first time, when Ray has only begun.
            until = before + moments.randrange(1 if not kept else count // 10, count // 5)
            while done.poll() is None and _done(job.output) < until:
                time.sleep(0.02)
            done.kill()
            kept.append("ended" if done.wait() == 0 else f"killed behind row {_done(job.output):,}")
        elif done.wait():
            return False, 0.0, "the last run failed"
    seconds = time.monotonic() - begin
    assert job.rejects is not None
    outputs = sorted(folder.glob("driver*.jsonl"))
    same = ([path.read_bytes() for path in outputs], job.rejects.read_bytes()) == scene.alone(folder, count)
    return same and kept[0] != "ended", seconds, ", ".join(kept)


def _done(output: Path) -> int:
    """How many rows are safe."""
    return int(saved(output).get("number", 0))


def run_one(folder: Path, count: int) -> None:
    """A run on Ray, to be killed."""
    start_ray()
    run_on_ray(scene.job(folder, count, "driver"), seconds=0.1)


def run_ray_map(_: Path, count: int) -> tuple[bool, float, str]:
    """``map_batches``, with a worker killed."""
    ray = start_ray()
    ray.data.DataContext.get_current().enable_progress_bars = False
    data = ray.data.from_items(scene.rows(count), override_num_blocks=100)
    begin = time.monotonic()
    made = data.map_batches(
        **scene.asking().ray_map(format="openai-batch", model="gpt-5-mini"),
        compute=ray.data.ActorPoolStrategy(size=PARALLEL),
        batch_size=500,
    )
    found: list[dict[str, Any]] = []
    killed = None
    for row in made.iter_rows():
        found.append(row)
        if killed is None:
            killed = scene.kill_a_worker()
    seconds = time.monotonic() - begin
    ray.shutdown()
    return scene.by_id(found) == scene.expected(count), seconds, f"worker {killed} killed"


def run_datasets(_: Path, count: int) -> tuple[bool, float, str]:
    """``map`` in two processes."""
    datasets = package("datasets")
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_list(scene.rows(count))
    begin = time.monotonic()
    made = data.map(columns_map(scene.plan()), batched=True, with_indices=True, num_proc=PARALLEL)
    return made["line"][:] == scene.expected(count), time.monotonic() - begin, f"num_proc={PARALLEL}"


def run_daft(_: Path, count: int) -> tuple[bool, float, str]:
    """A DataFrame of Daft, on its own runner."""
    daft = package("daft")
    frame = daft.from_pylist(scene.rows(count))
    begin = time.monotonic()
    found = daft_lines(scene.plan(), frame).select("id", "line").to_pylist()
    return scene.by_id(found) == scene.expected(count), time.monotonic() - begin, ""


def run_spark(_: Path, count: int) -> tuple[bool, float, str]:
    """A DataFrame of Spark, in two processes."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    # Spark 4.3 speaks of versions of pandas, of which nothing here depends.
    warnings.simplefilter("ignore", FutureWarning)
    spark = (
        package("pyspark.sql")
        .SparkSession.builder.master(f"local[{PARALLEL}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    kinds = "id string, question string, language long, history array<struct<role string, content string>>, beside long"
    frame = spark.createDataFrame(scene.rows(count), kinds).repartition(8)
    begin = time.monotonic()
    found = [row.asDict() for row in spark_lines(scene.plan(), frame).select("id", "line").collect()]
    seconds = time.monotonic() - begin
    spark.stop()
    return scene.by_id(found) == scene.expected(count), seconds, f"local[{PARALLEL}]"


def speed() -> None:
    """Measure rows that cost little, and rows that cost much."""
    ray = start_ray()
    ways: dict[str, tuple[Callable[..., Outcome], int]] = {
        "1 process": (run_batch, 1),
        f"{PARALLEL} processes": (run_batch, PARALLEL),
        f"Ray, {PARALLEL} tasks": (run_on_ray, PARALLEL),
    }
    for kind, plan, count in (("plain", scene.plan(), 300_000), ("costly", scene.costly_plan(), 20_000)):
        for name, (run, workers) in ways.items():
            with TemporaryDirectory() as folder:
                job = replace(
                    scene.job(Path(folder), count, "speed", talk=kind == "costly"), plan=plan, workers=workers
                )
                begin, used = time.monotonic(), time.process_time()
                run(job)
                seconds, own = time.monotonic() - begin, time.process_time() - used
            told = f"{seconds:6.1f} s  {count / seconds:>8,.0f} rows/s  this process {own:5.1f} s"
            print(f"{kind:7}  {name:14}  {count:>7,} rows  {told}")  # noqa: T201 - a program
    ray.shutdown()


ENGINES: dict[str, tuple[Callable[[Path, int], tuple[bool, float, str]], int]] = {
    "ray": (run_ray, 100_000),
    "ray-driver": (run_ray_driver, 100_000),
    "ray-map": (run_ray_map, 100_000),
    "datasets": (run_datasets, 10_000),
    "daft": (run_daft, 10_000),
    "spark": (run_spark, 10_000),
}


def main() -> int:
    """Run the engines that are asked for.

    Returns:
        The exit status: 0 if all lines are the same.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ENGINES))
    parser.add_argument("--rows", type=int, help="how many rows, in place of 100,000 and 10,000")
    parser.add_argument("--speed", action="store_true", help="measure what a row costs")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.speed:
        speed()
        return 0
    if given.one:
        run_one(Path(given.one[0]), int(given.one[1]))
        return 0
    wrong = 0
    for name in given.engines or ENGINES:
        run, usual = ENGINES[name]
        count = given.rows or usual
        with TemporaryDirectory() as folder:
            same, seconds, note = run(Path(folder), count)
        wrong += not same
        told = (
            f"{seconds:6.1f} s  {count / max(seconds, 1e-9):>8,.0f} rows/s  {'the same bytes' if same else 'DIFFERENT'}"
        )
        print(f"{name:10}  {count:>7,} rows  {told}  {note}")  # noqa: T201 - a program
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
