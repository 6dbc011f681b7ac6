"""The database that a batch run has left, damaged: it is refused with one line, or the run goes on as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.judge import require
from fuzz.sandbox import encoded, scratch
from fuzz.target import Target
from lazyprompt.batch.database import Line
from lazyprompt.batch.forms import FileLimits
from lazyprompt.batch.journal import Journal, RunFiles
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from fuzz.chance import Chance

_ASKED: Any = {"the input": "sha256:" + "0" * 64, "--limit": None}
_DONE = b"1\n2\n"
_ROWS = 3
_REJECT = b'{"row": 3}\n'


def _journal() -> Journal:
    folder = scratch("journals")
    return Journal(RunFiles(folder / "out.jsonl", folder / "rejects.jsonl"), _ASKED, FileLimits(), seconds=1000)


def _run(chance: Chance) -> None:
    folder = scratch("journals")
    for left in folder.iterdir():
        left.unlink()
    with _journal() as begun:
        begun.add(_ROWS, _DONE.splitlines(keepends=True), [Line(_ROWS, _REJECT, rejected=True)])
    database, part = folder / "out.jsonl.run", folder / "out.jsonl.part"
    before = database.read_bytes()
    database.write_bytes(_damaged(before, chance))
    try:
        with _journal() as journal:
            # An empty file is a run that has not begun: its part is then somebody else's, which is refused.
            require(journal.state.number == _ROWS, "a run was begun anew, and not refused")
            journal.add(_ROWS + 1, [b"4\n"])
            output, rejects = journal.finish()[0], folder / "rejects.jsonl"
    except BatchError as error:
        require("\n" not in str(error), f"the error has several lines: {error}")
        require(
            not part.exists() or part.read_bytes().startswith(_DONE), "a run that is refused has changed its output"
        )
        return
    require(output.read_bytes() == _DONE + b"4\n", "a line was added or lost")
    require(rejects.read_bytes() == _REJECT, "a rejected row was added or lost")


def _damaged(content: bytes, chance: Chance) -> bytes:
    at = chance.number(len(content) + 1)
    text = encoded(chance.text())
    return chance.one((text, content[:at], content[:at] + text + content[at + len(text) :]))


JOURNALS = Target(
    "journals",
    _run,
    (
        "null",
        "{}",
        "\n",
        "\0",
        "SQLite format 3\0",
        "CREATE TABLE run",
        "row",
        "1" * 5000,
        "\ufeff",
        "\r",
        "sha256:",
        "done",
    ),
)
