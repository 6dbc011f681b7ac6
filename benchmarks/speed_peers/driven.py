"""Runs in the environment of a peer: does the rows it can do, compared with the floor before they are timed.

Out goes one JSON object: the peer's version, its rows by their keys, why it has no others, and the harmless
differences that were let pass.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from figures import PeerFigures, ratios
from floors import WORK, dumps, run_python
from speed import Ready, compared, row_of, timed
from work import MODEL, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from figures import Ratios


class Does(NamedTuple):
    """A row that a peer can do.

    Attributes:
        key: The key of the row.
        make: Gets the peer ready, which is not timed, and gives back what is.
        tidy: Takes harmless differences away, for the comparison; its time does not count.
        note: What these are.
    """

    key: str
    make: Callable[[], Callable[[], object]]
    tidy: Callable[[Any], object] | None = None
    note: str = ""


def batch_lines(body: Callable[[dict[str, str]], Mapping[str, object]]) -> Callable[[], bytes]:
    """The lines of an OpenAI Batch file, with the JSON writer of the floor.

    Args:
        body: Makes the messages of a row, as ``{"messages": [...]}``.
    """
    write = dumps()
    head = {"method": "POST", "url": "/v1/chat/completions"}
    return lambda: b"".join(
        write({"custom_id": f"row-{number}", **head, "body": {"model": MODEL, **body(row)}}) + b"\n"
        for number, row in enumerate(ROWS, 1)
    )


def drive(name: str, does: Sequence[Does], cannot: str) -> None:
    """Do all rows, and write what came of them to the standard output.

    Args:
        name: The peer's name.
        does: What it can do.
        cannot: Why it does nothing else.
    """
    # Some peers write to the standard output, which is ours.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    ready: dict[str, Ready] = {}
    rows: dict[str, Ratios] = {}
    refused = {"": cannot}
    works = {work.key: work for work in WORK}
    statement = partial(run_python, sys.argv[1])
    for one in (*does, Does("import", lambda: statement)):
        try:
            ready[one.key] = compared(row_of(works[one.key], one.make(), one.tidy))
        except Exception as error:  # noqa: BLE001 - peers raise whatever they like, and the table says so
            refused[one.key] = f"{works[one.key].name}: {type(error).__name__}: {error}"[:300]
    for key, result in zip(ready, timed([*ready.values()]), strict=True):
        rows[key] = ratios(result)
    notes = {one.key: one.note for one in does if one.note}
    json.dump(PeerFigures(version=metadata.version(name), rows=rows, cannot=refused, notes=notes), out)
    out.close()
