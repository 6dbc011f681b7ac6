"""A file in pieces: put together again they are the rows of the file, wherever it is cut."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from batch.clusters import job
from lazyprompt.batch import shards
from lazyprompt.batch.ray_engine import ShardLines, run_on_ray, unpacked
from lazyprompt.batch.rows import RowFile, read_rows, row_file
from lazyprompt.batch.shards import Shard, rows_of_shard, shards_of
from lazyprompt.batch.workers import Work
from lazyprompt.errors import BatchError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path

    from lazyprompt.batch.row import Row
    from lazyprompt.prompters.rows import RowFault


def lines_file(folder: Path, count: int = 40, end: str = "\n") -> RowFile:
    """Rows with a mark of UTF-8 before them, empty lines between and behind them, and some that are none."""
    text = "\ufeff"
    for at in range(count):
        text += json.dumps({"at": at, "text": "ü" * (at % 7)}, ensure_ascii=False) + "\n"
        text += "{broken\n" if at % 9 == 0 else "\n \r\n" if at % 4 == 0 else ""
    path = folder / "rows.jsonl"
    path.write_bytes((text.rstrip("\n") + end).encode())
    return row_file(path)


def csv_file(folder: Path) -> RowFile:
    path = folder / "rows.csv"
    path.write_text("at,text\n" + "".join(f'{at},"a\n{at}"\n\n' for at in range(30)), encoding="utf-8")
    return row_file(path)


def parquet_file(folder: Path) -> RowFile:
    table = import_module("pyarrow").table({"at": [*range(30)]})
    import_module("pyarrow.parquet").write_table(table, folder / "rows.parquet", row_group_size=7)
    return row_file(folder / "rows.parquet")


def together(file: RowFile, start: int, limit: int | None) -> list[tuple[int, Row | RowFault]]:
    return [row for shard in shards_of(file, start=start, limit=limit) for row in rows_of_shard(file, shard)]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_lines_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, end: str) -> None:
    monkeypatch.setattr(shards, "_ROWS", size)
    file = lines_file(tmp_path, end=end)
    rows = [*read_rows(file)]
    for start in (0, 1, 13, len(rows) - 1, len(rows), len(rows) + 5):
        for limit in (None, 1, 14, len(rows), len(rows) + 1):
            assert together(file, start, limit) == rows[start:limit]
    found = [*shards_of(file)]
    assert len(found) == -(-len(rows) // size)
    assert [shard.before for shard in found[1:]] == [shard.last for shard in found[:-1]]


def test_lines_by_their_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_BYTES", 100)
    file = lines_file(tmp_path)
    assert together(file, 3, None) == [*read_rows(file)][3:]
    assert len([*shards_of(file)]) > 10


@pytest.mark.parametrize("made", [csv_file, parquet_file])
def test_other_files_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    monkeypatch.setattr(shards, "_ROWS", 4)
    file = made(tmp_path)
    rows = [*read_rows(file)]
    for start, limit in ((0, None), (5, None), (29, None), (30, None), (0, 9), (5, 9), (9, 5)):
        assert together(file, start, limit) == rows[start:limit]
    # Each of them is read from the beginning, so there are not many.
    monkeypatch.setattr(shards, "_ROWS", 1)
    monkeypatch.setattr(shards, "_MOST_OTHERS", 3)
    assert [*shards_of(file)] == [Shard(0, 10), Shard(10, 20), Shard(20, 30)]


def test_empty_lines_before_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n \n" + b'{"at": 0}\n')
    assert [*shards_of(row_file(path))] == [Shard(0, 1, 2, 3)]
    assert together(row_file(path), 0, None) == [(1, {"at": 0})]


def test_a_file_without_rows_has_no_shards(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n \n")
    assert [*shards_of(row_file(path))] == []


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match=r"rows\.jsonl is not there"):
        shards_of(row_file(tmp_path / "rows.jsonl"))


def test_a_file_that_another_machine_has_not(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match=r"rows\.jsonl cannot be read: No such file"):
        next(rows_of_shard(RowFile(tmp_path / "rows.jsonl", "jsonl"), Shard(0, 5)))


def test_a_file_that_has_become_shorter(tmp_path: Path) -> None:
    file = lines_file(tmp_path, 4, end="\n")
    (last,) = shards_of(file)
    file.path.write_bytes(b'{"at": 0}\n')
    with pytest.raises(BatchError, match=r"ends with row 1; it had 5 when the run began"):
        list(rows_of_shard(file, last))


@pytest.mark.parametrize("chosen", [None, frozenset({2, 60})])
def test_an_actor_makes_what_one_process_makes(tmp_path: Path, chosen: frozenset[int] | None) -> None:
    asked = job(tmp_path, 120, "actor")
    work = Work(asked.plan, skip=True)
    found = [*shards_of(asked.rows)]
    tables = ShardLines(work, asked.rows, chosen)(import_module("pyarrow").Table.from_pylist([found[0]._asdict()]))
    made = [each for table in tables for each in unpacked(table)]
    expected = work.made([row for row in read_rows(asked.rows) if chosen is None or row[0] in chosen])
    assert [line for each in made for line in each.lines] == expected.lines
    assert [line for each in made for line in each.rejects] == expected.rejects
    assert made[-1].number == expected.number


def test_ray_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"lazyprompt\[ray\]\""):
        run_on_ray(job(tmp_path, 3, "none"))
    assert not (tmp_path / "none.jsonl.state").exists()
