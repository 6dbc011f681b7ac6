"""Damaged files of rows: each row is written or rejected, and every line of the file is in one of both."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa  # type: ignore[import-untyped]  # it has none
import pytest
from pyarrow import compute, parquet

from lazyprompt import ChatPrompter
from lazyprompt.batch.plan import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob, run_batch
from lazyprompt.errors import BatchError

PLAN = RowPlan.of(ChatPrompter({"system": "Be {style}.", "user": "{question}"}), "openai")
# Each field has such a mark.
MARK = re.compile(rb"m\d{4}m")
COUNT = 12


def rows(random: Random) -> list[dict[str, str]]:
    ends = ("", ' "so"', " é中", ", x", "'s", ' 5"')
    return [{"style": f"m{at:02}00m", "question": f"m{at:02}01m{random.choice(ends)}"} for at in range(COUNT)]


def as_jsonl(random: Random) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows(random))


def as_csv(random: Random) -> bytes:
    end = random.choice(["\n", "\r\n"])
    lines = ["style,question"]
    for at, row in enumerate(rows(random)):
        text = row["question"] + (f"\nm{at:02}02m\nm{at:02}03m" if random.random() < 0.3 else "")
        quoted = '"' + text.replace('"', '""') + '"' if random.random() < 0.6 or set(text) & set('",\n') else text
        lines.append(f"{row['style']},{quoted}")
    return (end.join(lines) + end).encode()


def as_parquet(random: Random) -> bytes:
    file = io.BytesIO()
    found = rows(random)
    texts = [row["question"].encode() + random.choice([b"", b"", b"", b"\xff"]) for row in found]
    odd = compute.CastOptions(target_type=pa.string(), allow_invalid_utf8=True)
    columns = {
        "style": [row["style"] if random.random() < 0.9 else None for row in found],
        random.choice(["question"] * 9 + ["q"]): compute.cast(pa.array(texts, pa.binary()), options=odd),
    }
    table = pa.table(columns)
    parquet.write_table(table, file, row_group_size=5, write_page_checksum=True, use_dictionary=random.random() < 0.5)
    return file.getvalue()


def cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def without_a_piece(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + data[at + random.randrange(1, 20) :]


def put_in(*pieces: bytes) -> Callable[[bytes, Random], bytes]:
    def damage(data: bytes, random: Random) -> bytes:
        at = random.randrange(len(data))
        return data[:at] + random.choice(pieces) + data[at + random.randrange(2) :]

    return damage


def keep_bytes(data: bytes, _: Random) -> bytes:
    return data


def change_byte(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


IN_TEXT = (
    cut,
    without_a_piece,
    put_in(b'"', b'""', b"'", b'\n"', b',"', b'"\n'),
    put_in(b"\xff", b"\xe9", b"\xc3", b"\xb0\xa1", b"\x00", b"\xef\xbb\xbf"),
    put_in(b"\n", b"\r", b"\r\n\r\n", b",", b",,", b"{", b"}", b"\\", b"  "),
    lambda data, _: data.replace(b"style", b"styel"),
    lambda data, random: data.replace(b"question", b"q", random.randrange(1, 3)),
    lambda data, _: data.decode("utf-8", "replace").encode("utf-16"),
    lambda data, _: data.decode("utf-8", "replace").encode("latin-1", "replace"),
)
IN_PARQUET = (keep_bytes, keep_bytes, change_byte, change_byte, change_byte, cut, without_a_piece)
KINDS = {"jsonl": as_jsonl, "csv": as_csv, "parquet": as_parquet}


def as_read(line: str) -> bytes:
    """The columns of a JSON line, as damage may add or repeat keys; other lines unchanged."""
    try:
        row = json.loads(line)
        return f"{row['style']} {row['question']}".encode()
    except (ValueError, KeyError, TypeError):
        return line.encode(errors="surrogateescape")


def check(directory: Path, kind: str, seed: int) -> bool:
    """Run over a damaged file; return False if it was refused as a whole."""
    random = Random(seed)  # noqa: S311 - it keeps no secret
    data = KINDS[kind](random)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        data = random.choice(IN_PARQUET if kind == "parquet" else IN_TEXT)(data or b"x", random)
    path = directory / f"rows.{kind}"
    path.write_bytes(data)
    output, bad = directory / "out.jsonl", directory / "bad.jsonl"
    try:
        outcome = run_batch(BatchJob(row_file(path), PLAN, output, rejects=bad), restart=True)
    except BatchError as error:
        assert str(error).count("\n") == 0, seed  # noqa: PT017 - one of two ends
        assert not output.exists(), seed
        return False
    written = [json.loads(line) for line in output.read_bytes().splitlines()]
    rejects = [json.loads(line) for line in bad.read_bytes().splitlines()]
    assert (outcome.written, outcome.rejected) == (len(written), len(rejects)), seed
    numbers = [int(each["custom_id"][4:]) for each in written] + [each["row"] for each in rejects]
    assert sorted(numbers) == [*range(1, outcome.read + 1)], seed
    texts = [json.dumps(each, ensure_ascii=False).encode(errors="replace") for each in written]
    if kind == "parquet":
        assert outcome.read == COUNT, seed
        assert all(f"m{int(each['custom_id'][4:]) - 1:02}01m" in json.dumps(each) for each in written), seed
    else:
        lines = io.StringIO(data.decode("utf-8-sig", "surrogateescape"), newline="" if kind == "csv" else "\n")
        raw = [*lines]
        for each in rejects:
            first, last = each["lines"]
            assert each["text"] == "".join(raw[first - 1 : last]).rstrip("\r\n"), (seed, each)
            texts.append(each["text"].encode(errors="surrogateescape"))
        assert sorted(MARK.findall(b"".join(map(as_read, raw)))) == sorted(MARK.findall(b"\n".join(texts))), seed
    output.unlink()
    bad.unlink()
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "seeds", [range(15), pytest.param(range(15, 350), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_every_row_of_a_damaged_file_is_written_or_rejected(tmp_path: Path, kind: str, seeds: range) -> None:
    """Rows were lost without an error, and the command ended with 0."""
    done = sum(check(tmp_path, kind, seed) for seed in seeds)
    assert done > len(seeds) // (8 if kind == "parquet" else 3)
