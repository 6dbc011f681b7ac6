"""Batch runs over files of rows: chosen rows, order, stops, and resuming."""

import json
import os
import signal
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from budget.helpers import Roles
from lazyprompt.batch import rows as reading
from lazyprompt.batch.database import BatchStoppedError, Line
from lazyprompt.batch.forms import FileLimits, LineCounter
from lazyprompt.batch.ray_engine import run_on_ray
from lazyprompt.batch.rows import Choice, Kind, RawRow, Row, RowFile, read_rows
from lazyprompt.batch.run import BatchJob, ChunkResult, Progress, Work, in_order, run_batch
from lazyprompt.errors import BatchError, MissingExtraError
from lazyprompt.tokens.counter import CharTokenCounter
from support.batch_runs import Deadly, SmallPlan, files_left, job_of, rows_file, saved_state

if TYPE_CHECKING:
    from lazyprompt.batch.render import RowPlan

SPLIT = FileLimits(requests=400)


def numbers(data: bytes) -> list[int]:
    return [int(line.partition(b":")[0]) for line in data.splitlines()]


def stop_after(chunks: int) -> Callable[[], str | None]:
    """A callback that stops the run after a number of chunks."""
    answers = iter([None] * (chunks - 1))
    return lambda: next(answers, "enough")


def test_valid_rows_are_written_and_invalid_rows_are_rejected(tmp_path: Path) -> None:
    outcome = run_batch(job_of(rows_file(tmp_path, 1000, bad=100), SPLIT, rejects="bad.jsonl"))
    assert (outcome.written, outcome.rejected, outcome.tokens) == (980, 20, None)
    assert [path.name for path in outcome.outputs] == [f"out-{index:05}.jsonl" for index in (1, 2, 3)]
    written = b"".join(path.read_bytes() for path in outcome.outputs)
    assert numbers(written) == [number for number in range(1, 1001) if number % 100 > 1]
    rejects = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [each["row"] for each in rejects] == sorted([*range(1, 1001, 100), *range(100, 1001, 100)])
    own = {"reason": "there is no column 'x'", "text": '{"y": 1}', "data": {"y": 1}}
    assert rejects[0] == {"row": 1, "lines": [1, 1], **own}
    assert (rejects[1]["lines"], rejects[1]["text"], rejects[1]["data"]) == ([100, 100], "{oops", None)
    assert "not valid JSON" in rejects[1]["reason"]


def test_a_run_resumed_several_times_writes_the_same_bytes(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 1500, bad=30)
    run_batch(job_of(rows, SPLIT, output="clean.jsonl", rejects="clean.bad"))
    job = job_of(rows, SPLIT, rejects="out.bad")
    # It stops after 16 rows, 500 more, 16 more, and so on.
    for stops in range(4):
        with pytest.raises(BatchStoppedError, match=r"^row [\d,]+ was the last: enough$"):
            run_batch(job, stopped=stop_after(1 + stops % 2))
    run_batch(job)
    found = files_left(tmp_path)
    for name in [name for name in found if name.startswith("clean")]:
        assert found.pop(name) == found.pop(name.replace("clean", "out"))
    assert found == {}


def test_an_invalid_row_stops_the_run_and_can_be_rejected_on_resume(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 300, bad=100)
    rows.path.write_text(rows.path.read_text().replace('{"y": 1}\n', '{"x": 1}\n'))
    with pytest.raises(BatchStoppedError, match=r"^row 100: line 100: not valid JSON: .*") as caught:
        run_batch(job_of(rows))
    assert caught.value.fault is not None
    assert caught.value.fault.number == 100
    # The same again, as the row is still invalid.
    with pytest.raises(BatchStoppedError, match="^row 100: "):
        run_batch(job_of(rows))
    outcome = run_batch(job_of(rows, rejects="bad.jsonl"))
    assert (outcome.written, outcome.rejected) == (295, 5)
    assert len(numbers((tmp_path / "out.jsonl").read_bytes())) == 295


@pytest.mark.slow
def test_resuming_with_other_settings_or_input_is_refused(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 100)
    with pytest.raises(BatchStoppedError):
        run_batch(job_of(rows), stopped=stop_after(1))
    with pytest.raises(BatchError, match='--model was "small", now "big"; --limit was not set, now 50; use --rest'):
        run_batch(job_of(rows, model="big", choice=Choice(50)))
    # A new counter has not counted the finished rows.
    with pytest.raises(BatchError, match='--tokens was not set, now "chars"'):
        run_batch(replace(job_of(rows), counter=LineCounter("chars", CharTokenCounter())))
    # The number of processes may differ.
    with pytest.raises(BatchStoppedError):
        run_batch(job_of(rows, workers=2), stopped=stop_after(1))
    rows.path.write_text(rows.path.read_text() + "{}\n")
    with pytest.raises(BatchError, match="the input has changed; use --restart to start over"):
        run_batch(job_of(rows))
    assert run_batch(job_of(rows, rejects="bad.jsonl"), restart=True).written == 100


@pytest.mark.parametrize("choice", [Choice(), Choice(70), Choice(70, 9)])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_limit_and_sample_choose_rows_in_every_file_format(tmp_path: Path, choice: Choice, kind: Kind) -> None:
    path = tmp_path / f"data.{kind}"
    if kind == "csv":
        path.write_text("x\n" + "".join(f"{number}\n" for number in range(1, 101)))
    else:
        path.write_text("\n" + "".join(f'{{"x": "{number}"}}\n \n' for number in range(1, 101)))
    rows = [*choice.rows(RowFile(path, kind))]
    assert len(rows) == {None: 100, 70: 70}[choice.limit] if choice.sample is None else len(rows) == 9
    assert all(row == {"x": str(number)} for number, row in rows)
    assert rows[3:] == [*choice.rows(RowFile(path, kind), rows[2][0])]
    assert [*choice.rows(RowFile(path, kind), rows[-1][0])] == []
    assert reading.estimate_rows(RowFile(path, kind)) == (100 if kind == "csv" else 201)
    assert [reading.estimate_rows(RowFile(path, kind)) for kind in ("parquet", "json")] == [None, None]


@pytest.mark.parametrize("choice", [Choice(None, 40, 7), Choice(200, 40, 7)])
def test_a_sample_is_ordered_reproducible_and_resumable(tmp_path: Path, choice: Choice) -> None:
    rows = rows_file(tmp_path, 400)
    run_batch(job_of(rows, choice=choice))
    found = numbers((tmp_path / "out.jsonl").read_bytes())
    assert len(found) == 40
    assert found == sorted(set(found))
    assert found[-1] <= (choice.limit or 400)
    # Python guarantees a stable random generator, so the sample is stable too.
    assert found[:5] == ([4, 7, 9, 11, 12] if choice.limit is None else found[:5])
    with pytest.raises(BatchStoppedError):
        run_batch(job_of(rows, output="again.jsonl", choice=choice), stopped=stop_after(1))
    run_batch(job_of(rows, output="again.jsonl", choice=choice))
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    run_batch(job_of(rows, output="other.jsonl", choice=Choice(choice.limit, 40, 8)))
    assert numbers((tmp_path / "other.jsonl").read_bytes()) != found


def test_a_sample_may_exceed_the_rows_and_is_uniform(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 30)
    run_batch(job_of(rows, choice=Choice(None, 99)))
    assert numbers((tmp_path / "out.jsonl").read_bytes()) == [*range(1, 31)]
    counted = Counter(each for seed in range(2000) for each in reading._draw_sample(10, 3, seed))  # noqa: SLF001 - 2,000 runs
    assert sum(counted.values()) == 6000
    assert all(540 < counted[number] < 660 for number in range(1, 11))


def test_a_line_longer_than_the_file_limit_is_rejected(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 7)
    outcome = run_batch(job_of(rows, FileLimits(bytes=100, line_bytes=7), rejects="bad.jsonl"))
    assert (outcome.written, outcome.rejected) == (5, 2)
    assert b"line is too large: 9 bytes; the limit is 7" in (tmp_path / "bad.jsonl").read_bytes()


def test_tokens_are_counted_across_resumed_runs(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 40)
    rows.path.write_text("".join(f'{{"x": {{"prompt": "abc{number}"}}}}\n' for number in range(10, 50)))

    class Json(SmallPlan):
        def line(self, number: int, row: Row) -> bytes:
            return json.dumps({"id": str(number), **cast("Row", row["x"])}).encode() + b"\n"

    job = BatchJob(rows, cast("RowPlan", Json()), tmp_path / "out.jsonl", counter=LineCounter("c", CharTokenCounter()))
    with pytest.raises(BatchStoppedError):
        run_batch(job, stopped=stop_after(1))
    assert run_batch(job).tokens == 40 * 5


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ({"id": "12345", "prompt": "abc"}, 3),
        ({"custom_id": "1", "payload": {"messages": [{"role": "user", "content": "abc"}]}}, 7),
        ({"custom_id": "1", "payload": {"input": {"messages": [{"role": "user", "content": "abc"}]}}}, 7),
        ({"custom_id": "1", "params": {"system": "parts", "messages": [{"role": "user", "content": "c"}]}}, 16),
        ({"custom_id": "1", "params": {"system": [{"type": "text", "text": "ab"}], "messages": []}}, 8),
        ({"key": "1", "request": {"system_instruction": {"parts": [{"text": "ab"}]}, "contents": []}}, 2),
        ({"key": "1", "request": {"contents": [{"role": "user", "parts": [{"text": "abc"}]}]}}, 7),
        ({"custom_id": "1", "body": {"model": "m", "instructions": "ab", "input": "c"}}, 13),
        ({"key": "1", "request": {"contents": ["ab", "c"]}}, 11),
        ({"custom_id": "1", "body": {"messages": [{"role": "user", "content": "abc"}], "tools": [{"name": "f"}]}}, 20),
        ({"payload": {"input": {"messages": [{"role": "user", "content": "a"}]}, "parameters": {"tools": [{}]}}}, 7),
        ({"instruction": "ab", "input": "", "output": "c", "system": "", "history": []}, 3),
        ({"prompt": ["ab"], "completion": "c"}, 7),
    ],
)
def test_tokens_of_a_line_are_counted_in_every_format(line: dict[str, object], count: int) -> None:
    assert LineCounter("roles", Roles())(json.dumps(line).encode()) == count


def test_progress_counts_all_runs_and_the_rate_only_this_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 400, 4))
    monkeypatch.setattr("lazyprompt.batch.run.monotonic", lambda: next(clock))
    monkeypatch.setattr(LineCounter, "__call__", lambda *_: 2)
    rows = rows_file(tmp_path, 300, bad=100)
    job = job_of(rows, rejects="bad.jsonl")
    reports: list[Progress] = []
    assert run_batch(job, progress=reports.append).rate == 300 / 16
    assert reports == [Progress(16, 300, 1, 4.0, None, 71.0), Progress(300, 300, 6, 37.5, None, 0.0)]
    # Rows and tokens of earlier runs count for progress, but not for the rate.
    job = replace(job, output=tmp_path / "b.jsonl", counter=LineCounter("c", CharTokenCounter()), choice=Choice(208))
    with pytest.raises(BatchStoppedError):
        run_batch(job, stopped=stop_after(1))
    reports.clear()
    outcome = run_batch(job, progress=reports.append)
    assert reports == [Progress(32, 208, 1, 4.0, 62, 44.0), Progress(208, 208, 5, 24.0, 406, 0.0)]
    assert (outcome.rate, outcome.tokens, outcome.read) == (12.0, 406, 208)
    rows.path.write_text('{"x": "no line end"}')
    run_batch(job_of(rows), progress=reports.append)
    assert reports[-1] == Progress(1, 1, 0, 0.25, None, 0.0)


def test_chunks_are_sized_for_half_a_megabyte_of_lines(tmp_path: Path) -> None:
    sizes: list[int] = []

    def engine(_: Work, chunks: Iterable[Sequence[RawRow]], workers: int) -> Iterator[ChunkResult]:
        lengths = iter([100_000, 600_000, -200_000, 2_000, 1_000])
        for chunk in chunks:
            sizes.append(len(chunk))
            length = next(lengths, workers)
            lines, reject = [b"x" * length] * len(chunk), Line(chunk[0].number, b"x" * -length, rejected=True)
            yield ChunkResult(chunk[-1].number, *((lines, []) if length > 0 else ([], [reject])))

    run_batch(job_of(rows_file(tmp_path, 1000), rejects="bad.jsonl"), engine=engine)
    assert sizes == [16, 5, 1, 2, 262, 500, 214]


def test_results_are_ordered_with_two_pending_chunks_per_process() -> None:
    events: list[str] = []

    def submit(chunk: Sequence[RawRow]) -> Callable[[], ChunkResult]:
        number = chunk[0].number
        events.append(f"submit {number}")

        def result() -> ChunkResult:
            events.append(f"wait {number}")
            return ChunkResult(number, [], [])

        return result

    results = in_order(submit, ([RawRow(number, {})] for number in range(1, 6)), 2)
    assert [result.number for result in results] == [1, 2, 3, 4, 5]
    first = [f"submit {number}" for number in (1, 2, 3, 4)]
    assert events == [*first, "wait 1", "submit 5", "wait 2", "wait 3", "wait 4", "wait 5"]


@pytest.mark.parametrize("setting", ["output", "rejects"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data.jsonl", "data.jsonl is the input, which cannot be overwritten; use another name"),
        *((name, f"{name} is not a regular file; a resumable run requires one") for name in ("sub", "fifo")),
        ("no/out.jsonl", r"no/out.jsonl: directory \S+/no does not exist"),
        ("data.link", r"the file is a link; pass its target, \S+/data.jsonl, or remove the link"),
    ],
)
def test_unwritable_files_are_refused_before_the_run(tmp_path: Path, name: str, message: str, setting: str) -> None:
    rows = rows_file(tmp_path, 3)
    (tmp_path / "sub").mkdir()
    (tmp_path / "data.link").symlink_to(rows.path)
    os.mkfifo(tmp_path / "fifo")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BatchError, match=f"{message}$") as error:
        run_batch(job_of(rows, output=name) if setting == "output" else job_of(rows, rejects=name))
    assert error.value.setting == setting
    assert sorted(tmp_path.iterdir()) == before
    assert len(rows.path.read_text().splitlines()) == 3


def test_the_same_path_for_output_and_rejects_is_refused(tmp_path: Path) -> None:
    message = "out.jsonl cannot be both the output and the rejects file; use two different names$"
    with pytest.raises(BatchError, match=message) as error:
        run_batch(job_of(rows_file(tmp_path, 3), rejects="out.jsonl"))
    assert error.value.setting == "rejects"


def test_a_file_without_rows_gives_an_empty_output(tmp_path: Path) -> None:
    outcome = run_batch(job_of(rows_file(tmp_path, 0)))
    assert (outcome.written, outcome.outputs) == (0, [tmp_path / "out.jsonl"])
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_rows_with_values_that_are_not_json_can_be_rejected() -> None:
    work = Work(cast("RowPlan", SmallPlan()), skip=True)
    odd: Any = {"y": "\ud800中", "z": float("nan"), "w": Path("a")}
    given = ({"y": "\ud800中"}, odd, {"w": Path("a")})
    made = work.render([RawRow(number, row) for number, row in enumerate(given, 1)])
    rejects = [json.loads(reject.line) for reject in made.rejects]
    assert [each["data"] for each in rejects] == [{"y": "\ud800中"}, str(odd), {"w": "a"}]
    assert all("中".encode() in reject.line for reject in made.rejects[:2])


@pytest.mark.slow
def test_a_run_with_a_killed_worker_process_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    rows = rows_file(tmp_path, 2000, bad=300)
    run_batch(job_of(rows, SPLIT, output="clean.jsonl", rejects="clean.bad"))
    job = job_of(rows, SPLIT, rejects="out.bad", workers=2)
    deadly = cast("RowPlan", Deadly(SPLIT, {"--model": "small"}, 1555, os.getpid()))
    with pytest.raises(BatchStoppedError, match=r"^row .* was the last: a worker process was killed"):
        run_batch(replace(job, plan=deadly))
    assert (tmp_path / "out.jsonl.run").exists()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())  # Ctrl-C is not blocked any more
    run_batch(job)
    found = files_left(tmp_path)
    for name in [name for name in found if name.startswith("clean")]:
        assert found.pop(name) == found.pop(name.replace("clean", "out"))
    assert found == {}


def test_a_missing_ray_names_the_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install .+\[ray\]"):
        run_on_ray(job_of(rows_file(tmp_path, 3)))
    assert files_left(tmp_path) == {}


def test_a_plan_that_cannot_be_pickled_is_refused_for_several_workers(tmp_path: Path) -> None:
    class Local(SmallPlan):
        """A local class, which cannot be pickled."""

    job = replace(job_of(rows_file(tmp_path, 3), workers=2), plan=cast("RowPlan", Local()))
    with pytest.raises(BatchError, match=r"the prompter cannot be sent to other processes \(.*\); use one worker"):
        run_batch(job)
    assert run_batch(replace(job, workers=1)).written == 3


def test_an_unexpected_error_is_raised_and_finished_rows_are_saved(tmp_path: Path) -> None:
    class Wrong(SmallPlan):
        def line(self, number: int, row: Row) -> bytes:
            return super().line(number, row) if number < 100 else b"" + cast("bytes", number / 0)

    rows = rows_file(tmp_path, 200)
    with pytest.raises(ZeroDivisionError):
        run_batch(replace(job_of(rows), plan=cast("RowPlan", Wrong(settings={"--model": "small"}))), seconds=1000)
    assert saved_state(tmp_path / "out.jsonl")["number"] > 0
    assert run_batch(job_of(rows)).written == 200


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path: Path) -> None:
    peaks: list[int] = []
    for count in (400, 4000):
        path = tmp_path / f"{count}.jsonl"
        path.write_text(f'{{"x": "{"x" * 2000}"}}\n' * count)
        job = replace(job_of(RowFile(path, "jsonl")), output=tmp_path / f"{count}.out")
        tracemalloc.start()
        run_batch(job)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sum(1 for _ in read_rows(path)) == 4000
    assert peaks[1] < peaks[0] * 1.5, peaks
