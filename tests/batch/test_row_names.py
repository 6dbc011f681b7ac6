"""Names of rows: a response is matched to its row by name, so names must be unique."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import ChatPrompter
from lazyprompt.batch.plan import RowPlan
from lazyprompt.batch.render import render_batch
from lazyprompt.batch.rows import read_rows, row_file
from lazyprompt.batch.run import BatchJob, run_batch
from lazyprompt.errors import BatchError
from lazyprompt.prompters.rows import Columns, RowFault


def write_rows(base: Path, *ids: object, end: str = "jsonl") -> Path:
    path = base / f"rows.{end}"
    rows: list[dict[str, Any]] = [
        {"question": "q", "document": "d", **({} if each is None else {"id": each})} for each in ids
    ]
    if end == "csv":
        path.write_text("question,document,id\n" + "".join(f"q,d,{each}\n" for each in ids))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_job(rows: Path, *, form: str) -> BatchJob:
    plan = RowPlan.of(
        ChatPrompter("Answer {question} from {document}."), form, model="gpt-5-mini" if form == "openai-batch" else None
    )
    return BatchJob(row_file(rows), plan, rows.with_name("out.jsonl"))


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        # The response of the first row was also used for the second row.
        (("row-2", None), "row 1 has the id 'row-2', which is the default for row 2"),
        ((None, "row-1"), "row 2 has the id 'row-1', which is the default for row 1"),
        ((None, "a", "b", "row-1"), "row 4 has the id 'row-1', which is the default for row 1"),
        (("a", "b", "a"), "rows 1 and 3 have the same id: 'a'"),
        ((1, "1"), "rows 1 and 2 have the same id: '1'"),
        (("row-2", "row-2"), "rows 1 and 2 have the same id: 'row-2'"),
    ],
)
def test_rows_with_equal_names_are_refused_before_the_run(tmp_path: Path, ids: tuple[object, ...], reason: str) -> None:
    job = make_job(write_rows(tmp_path, *ids), form="openai-batch")
    with pytest.raises(BatchError, match=reason):
        run_batch(job)
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]
    # Rows that are passed directly were not checked.
    rows = [row for _, row in read_rows(job.rows) if not isinstance(row, RowFault)]
    found = [*render_batch(job.plan.prompter, rows, format="openai-batch", model="m", on_error="return")]
    assert [reason in each.reason for each in found if isinstance(each, RowFault)] == [True]


@pytest.mark.parametrize(
    "ids",
    [
        ("row-2", "row-1"),
        ("row-3", None),
        ("row-02", None, "row-0", "row-", "row-x", "row-2x"),
        (None, None),
        ("row-1", None),
        ("\u00e4", "a\u0308"),
    ],
)
def test_rows_with_different_names_are_accepted(tmp_path: Path, ids: tuple[object, ...]) -> None:
    run_batch(make_job(write_rows(tmp_path, *ids), form="openai-batch"))
    found = [json.loads(line)["custom_id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [f"row-{number}" if each is None else each for number, each in enumerate(ids, 1)]


def test_only_rows_with_an_invalid_name_or_invalid_json_are_rejected(tmp_path: Path) -> None:
    path = write_rows(tmp_path, "a", "\ud800", "b", "c")
    path.write_text(path.read_text().replace('"id": "b"', "id"))
    outcome = run_batch(replace(make_job(path, form="openai-batch"), rejects=tmp_path / "bad.jsonl"))
    assert (outcome.written, outcome.rejected) == (2, 2)
    found = [json.loads(line)["custom_id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == ["a", "c"]


@pytest.mark.parametrize(("column", "written"), [("id", "\\u0069d"), ("ключ", "ключ")])
def test_duplicate_names_are_found_if_the_column_name_is_escaped(tmp_path: Path, column: str, written: str) -> None:
    path = write_rows(tmp_path, "a", "a")
    path.write_text(path.read_text().replace('"id"', f'"{written}"'))
    job = make_job(path, form="openai-batch")
    plan = RowPlan.of(job.plan.prompter, "openai-batch", model="m", columns=Columns(id=column))
    with pytest.raises(BatchError, match=f"rows 1 and 2 have the same {column}: 'a'"):
        run_batch(replace(job, plan=plan))


def test_duplicate_names_in_csv_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match="rows 1 and 2 have the same id: 'row-2'"):
        run_batch(make_job(write_rows(tmp_path, "row-2", "row-2", end="csv"), form="openai-batch"))


def test_a_format_without_row_names_accepts_duplicate_ids(tmp_path: Path) -> None:
    rows = write_rows(tmp_path, "a", "a")
    rows.write_text(rows.read_text().replace('"id"', '"label": "x", "id"'))
    run_batch(make_job(rows, form="train-openai"))
