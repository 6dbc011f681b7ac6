"""Rows of every table and file format have the same lines; an invalid row is a fault, and the next row is read."""

import csv
import errno
import io
import json
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # its types are in another package
import pyarrow as pa  # type: ignore[import-untyped]  # it has none
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from lazyprompt import ChatPrompter
from lazyprompt.batch import rows as row_files
from lazyprompt.batch.render import RowPlan, rows_of
from lazyprompt.batch.rows import fingerprint, read_rows, row_file
from lazyprompt.errors import BatchError, MissingExtraError
from lazyprompt.prompters.rows import RowFault
from support.missing import needs

PLAN = RowPlan.of(ChatPrompter({"system": "Be {style}.", "user": "{question}\n"}), "openai-batch", model="m")
COLUMNS = ("style", "question", "note")
TEXTS = st.text(max_size=12) | st.sampled_from(["a\r\nb", 'say "no"', "中文,\n", "\u2028\u2029\x85", " ", "<|im_end|>"])
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, TEXTS)), max_size=6)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in COLUMNS}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(columns_of(rows), schema=pa.schema([(name, pa.string()) for name in COLUMNS]))


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(columns_of(rows), columns=list(COLUMNS))


class OnlyAStream:
    """An object whose only method is that of Arrow streams."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyIterRows:
    """The used parts of a polars DataFrame, as CI has no polars."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.columns = list(COLUMNS)

    def iter_rows(self, *, named: bool) -> Iterator[dict[str, Any]]:
        assert named
        return iter(self._rows)


SOURCES: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "list": lambda rows: rows,
    "generator": lambda rows: (row for row in rows),
    "columns": columns_of,
    "table": table_of,
    "batch": lambda rows: pa.RecordBatch.from_pydict(columns_of(rows), schema=table_of(rows).schema),
    "batches": lambda rows: table_of(rows).to_batches(max_chunksize=2),
    "reader": lambda rows: table_of(rows).to_reader(2),
    "stream": lambda rows: OnlyAStream(table_of(rows)),
    "pandas": frame_of,
    "series": lambda rows: dict(frame_of(rows)),
    "polars": OnlyIterRows,
}


def as_jsonl(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\r\n" for row in rows), newline="")


def as_csv(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)


def as_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    parquet.write_table(table_of(rows), path, row_group_size=2)


FILES = {"jsonl": as_jsonl, "csv": as_csv, "parquet": as_parquet}


def lines(rows: object) -> list[bytes]:
    return [PLAN.line(number, row) for number, row in enumerate(rows_of(rows), 1)]


def read_all(path: Path, start: int = 0) -> list[Any]:
    return list(read_rows(path, start=start))


# Fewer examples: tables are a hundred times slower than rows.
@pytest.mark.slow
@settings(max_examples=settings().max_examples // 4)
@given(ROWS)
def test_every_kind_of_table_gives_the_same_lines(rows: list[dict[str, Any]]) -> None:
    expected = [PLAN.rendered_line(number, row) for number, row in enumerate(rows, 1)]
    before = json.dumps(rows)
    for name, source in SOURCES.items():
        assert lines(source(rows)) == expected, name
    assert json.dumps(rows) == before


@pytest.mark.slow
def test_polars_gives_the_same_lines() -> None:
    polars = needs("polars")
    rows = [{"style": "a\r\nb", "question": "中文", "note": ""}, {"style": "\u2028", "question": " ", "note": "<s>"}]
    assert lines(polars.DataFrame(rows)) == lines(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
@given(rows=ROWS, start=st.integers(0, 7))
def test_every_file_format_gives_the_same_rows_from_any_start(
    tmp_path_factory: pytest.TempPathFactory, kind: str, rows: list[dict[str, Any]], start: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"rows.{kind}"
    FILES[kind](rows, path)
    assert read_all(path, start) == list(enumerate(rows, 1))[start:]


def test_missing_values_are_none_in_every_table() -> None:
    names = pd.array(["a", None], dtype="string")
    frame = pd.DataFrame(
        {"a": [1.5, float("nan")], "b": ["x", None], "c": names, "d": pd.to_datetime(["2026-01-01", None])}
    )
    last = list(rows_of(frame))[1]
    assert last == dict.fromkeys("abcd")
    table = pa.table({"a": [1, None]})
    assert list(rows_of(table)) == list(rows_of(OnlyAStream(table))) == [{"a": 1}, {"a": None}]


def test_data_frame_values_become_python_objects() -> None:
    frame = pd.DataFrame({"n": [1, 2], "history": [[["Hi", "Hello"]], None]})
    frame["history"] = [pd.Series([["Hi", "Hello"]]).to_numpy(), None]
    first = next(rows_of(frame))
    assert first == {"n": 1, "history": [["Hi", "Hello"]]}
    assert type(first["n"]) is int


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("data.jsonl", "rows must be mappings, .*, not str; read a file with"),
        (7, "rows must be an iterable of mappings, .*, not int"),
        ({"a": "text"}, "column 'a' must be a list .*, not str.*a single row in a list"),
        ({"a": [1], "b": [1, 2]}, "columns must have equal length, but 'a' has 1, 'b' has 2"),
        ({1: [1]}, "column names must be text, not 1 of type int"),
        ([{"a": 1}, pa.RecordBatch.from_pydict({"a": [1, 2]}), ["b"]], "row 4 must be a mapping .*, not list"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns named 'a'"),
        *(
            (kind.from_arrays([pa.array([1][:count])] * 2, names=["a", "a"]), "two columns named 'a'")
            for kind, count in ((pa.Table, 1), (pa.Table, 0), (pa.RecordBatch, 1))
        ),
    ],
)
def test_values_that_are_not_rows_are_refused(rows: object, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        list(rows_of(rows))


# Invalid lines, and the reasons of their faults.
BROKEN = {
    b'{"a": 1': "line 1: not valid JSON: .* at column 8",
    b"[1]": "line 1: the line contains a value of type list; expected a JSON object",
    b'"text"': "line 1: the line contains a value of type str",
    b'{"a": NaN}': "line 1: NaN is not valid JSON; write null",
    b'{"a": [-Infinity]}': "line 1: -Infinity is not valid JSON",
    b'{"a": "\xff"}': "line 1: not valid UTF-8: byte 0xff at index 7",
    b'{"a": 1' + b"0" * 5000 + b"}": "line 1: contains an integer with more than 4,300 digits",
    b'{"a": ' + b"[" * 100_000: "line 1: nested too deeply",
}


@pytest.mark.parametrize(("line", "reason"), BROKEN.items(), ids=range(len(BROKEN)))
def test_an_invalid_json_line_is_a_fault_and_the_next_row_is_read(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line + b'\n\n  \n{"a": 2}')
    (number, fault), last = read_all(path)
    assert re.match(reason, fault.reason), fault.reason
    assert (number, fault) == (1, RowFault(1, fault.reason, (1, 1), line.decode(errors="surrogateescape")))
    assert last == (2, {"a": 2})


def test_empty_lines_have_no_row_number_but_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\n\nno')
    assert read_all(path)[:2] == [(1, {"a": 1}), (2, {"a": 2})]
    assert read_all(path, 2)[0][1].lines == (5, 5)


def test_integers_beyond_64_bits_are_read_exactly(tmp_path: Path) -> None:
    """The fast JSON parser read an id as a float: 1e+30."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"id": 1000000000000000000000000000001, "a": [12345678901234567890123]}\n{"a": 18446744073709551616}'
    )
    assert read_all(path) == [
        (1, {"id": 1000000000000000000000000000001, "a": [12345678901234567890123]}),
        (2, {"a": 18446744073709551616}),
    ]


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
            max_leaves=4,
        ),
        max_size=3,
    )
)
def test_json_rows_are_read_as_by_python(tmp_path_factory: pytest.TempPathFactory, row: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text(json.dumps(row))
    ((_, found),) = read_all(path)
    assert repr(found) == repr(json.loads(json.dumps(row)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty; its first line must contain the column names"),
        (b",\n1,2\n", "rows.csv:1: no column has a name"),
        (b"a,b,a\n1,2,3\n", "rows.csv:1: column 3 has the same name as an earlier column, 'a'"),
        (b"\xff,b\n1,2\n", "rows.csv:1: the header is not valid UTF-8"),
        (b'"a"b,c\n', "rows.csv:1: the header cannot be read"),
    ],
)
def test_an_invalid_csv_header_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(text)
    with pytest.raises(BatchError, match=message):
        read_all(path)


def test_invalid_csv_records_are_faults(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\n1,"x\ny"\n\n1,2,"\n3"\n"1"2,3\n\xff,4\n5,6\n"7')
    assert [row for _, row in read_all(path)] == [
        {"a": "1", "b": "x\ny"},
        RowFault(2, "line 5: the row has 3 fields, but the header has 2", (5, 6), '1,2,"\n3"'),
        RowFault(3, "line 7: not valid CSV: ',' expected after '\"'", (7, 7), '"1"2,3'),
        RowFault(4, "line 8: not valid UTF-8", (8, 8), "\udcff,4"),
        {"a": "5", "b": "6"},
        RowFault(6, "line 10: not valid CSV: unexpected end of data", (10, 10), '"7'),
    ]


@pytest.mark.parametrize("most", [row_files.MAX_RECORD, 6], ids=["end", "bound"])
def test_an_unclosed_csv_quote_affects_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Five rows became one rejected row, whose data was reported as empty."""
    monkeypatch.setattr(row_files, "MAX_RECORD", most)
    path = tmp_path / "rows.csv"
    path.write_text('a\n1234567\n"2\n3\n4\n5\n')
    found = [row for _, row in read_all(path)]
    assert [row for row in found if not isinstance(row, RowFault)] == [{"a": each} for each in ("1234567", *"345")]
    why = "unexpected end of data, 3 lines later" if most > 6 else "no closing quote within 6 characters, 2 lines later"
    reason = f"line 3: not valid CSV: a quote that opens here is not closed ({why})"
    assert found[1] == RowFault(2, reason, (3, 3), '"2')


def test_a_long_csv_field_is_read_without_changing_the_global_field_limit(tmp_path: Path) -> None:
    """The limit of Python is 128 KiB; documents may be longer."""
    path = tmp_path / "rows.csv"
    path.write_text("a\n" + "x" * 300_000 + "\ny\n")
    rows = read_rows(path)
    assert len(str(dict(next(rows)[1])["a"])) == 300_000  # type: ignore[arg-type]
    with pytest.raises(csv.Error, match="field larger"):
        next(csv.reader(io.StringIO("x" * 300_000)))


def test_a_json_array_is_read_from_any_start(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'\xef\xbb\xbf[{"a": 1}, ["\xc3\xa9", null], {}]')
    reason = 'item 2 has type list; expected a JSON object such as {"question": "..."}'
    rows = [(1, {"a": 1}), (2, RowFault(2, reason, text='["é", null]')), (3, {})]
    for start in range(5):
        assert read_all(path, start) == rows[start:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1}', "must contain a JSON array or JSON Lines, not dict"),
        (b"[1,", "is not valid JSON: Expecting value: line 1 column 4"),
        (b"[NaN]", "is not valid JSON: NaN is not valid JSON; write null or a string"),
        (b'["\xff"]', "is not valid JSON: 'utf-8' codec can't decode byte 0xff in position 2"),
        (b"[" * 100_000, "is not valid JSON: "),
        (b"[" + b" " * 99_999 + b"]", "exceeds 100,000 bytes, the limit for a JSON array; use JSON Lines"),
    ],
    ids=["object", "end", "constant", "bytes", "depth", "size"],
)
def test_a_file_that_is_not_a_json_array_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, message: str
) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(text)
    monkeypatch.setattr(row_files, "MAX_ARRAY", 100_000)
    with pytest.raises(BatchError, match=f"rows.json {message}") as error:
        read_all(path)
    assert error.value.setting == "rows"


def test_the_kind_of_a_row_file_is_known_by_its_extension(tmp_path: Path) -> None:
    endings = ("jsonl", "NDJSON", "json", "csv", "parquet", "pq")
    assert [row_file(f"a/b.{end}").kind for end in endings] == ["jsonl", "jsonl", "json", "csv", "parquet", "parquet"]
    assert row_file("a.txt", "csv").kind == "csv"
    with pytest.raises(BatchError, match=r"unknown extension '.jsonn' \(did you mean '.json'\?\)"):
        row_file("a.jsonn")
    with pytest.raises(BatchError, match="unknown kind 'xml'"):
        row_file("a.txt", "xml")  # type: ignore[arg-type]
    with pytest.raises(BatchError, match="does not exist"):
        read_rows(tmp_path / "none.csv")
    with pytest.raises(BatchError, match="start must be .*, not -1"):
        read_rows(tmp_path / "none.csv", start=-1)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BatchError, match="is not a regular file"):
        read_rows(tmp_path / "folder.csv")
    (tmp_path / "none.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(BatchError, match="none.parquet cannot be read"):
        read_all(tmp_path / "none.parquet")


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_an_unreadable_file_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    path.touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("lazyprompt.batch.rows.open_regular", refuse)
    with pytest.raises(BatchError, match=f"rows.{kind} cannot be read: Permission denied"):
        read_all(path)


def test_parquet_without_pyarrow_names_the_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    as_parquet([], path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install .+\[batch\]"):
        read_all(path)


def test_parquet_columns_with_the_same_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(BatchError, match="two columns named 'a'"):
        read_all(path)


def test_row_groups_before_the_start_are_skipped() -> None:
    assert row_files.groups_from([2, 3, 4], 0) == (0, [0, 1, 2])
    assert row_files.groups_from([2, 3, 4], 2) == (2, [1, 2])
    assert row_files.groups_from([2, 3, 4], 4) == (2, [1, 2])
    assert row_files.groups_from([2, 3, 4], 9) == (9, [])


def measure_peak(path: Path) -> int:
    """The peak memory in bytes while the rows of a file are read."""
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_rows(path)) == 5000
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_reading_a_file_needs_memory_for_a_few_rows_only(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    FILES[kind]([dict.fromkeys(COLUMNS, "x" * 300)] * 5000, path)
    # Other threads and imports count too, so the minimum of three is taken.
    assert min(measure_peak(path) for _ in range(3)) < 500_000
    assert path.stat().st_size > 4_000_000


def test_a_fingerprint_depends_on_the_file_contents(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_bytes(b"a\n1\n")
    second.write_bytes(b"a\n1\n")
    assert fingerprint(first) == fingerprint(row_file(second)) == fingerprint(str(first))
    assert fingerprint(first).startswith("sha256:")
    second.write_bytes(b"a\n2\n")
    assert fingerprint(first) != fingerprint(second)
    with pytest.raises(BatchError, match="none.csv cannot be read: No such file"):
        fingerprint(tmp_path / "none.csv")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_line_longer_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file of one very long line filled the memory."""
    monkeypatch.setattr(row_files, "MAX_LINE", 100)
    path = tmp_path / name
    path.write_text("a\n" + "x" * 100_000, encoding="utf-8")
    with pytest.raises(
        BatchError, match=rf"{name}:2: line exceeds 100 bytes .*; check that each row is on a separate line"
    ):
        read_all(path)
