"""Runs in the environment of a peer: times its rows, or hands it attacks and writes down the prompts that it makes.

    peer_NAME.py speed IMPORTS    prints the figures of its rows as JSON
    peer_NAME.py attacks          reads cases from standard input, prints [entry, layout, case, prompt] line by line

A prompt is a list of messages, each ``[role, text, extras]``; or a text with the reason for which the peer refused the
case; or null if the entry does not take it. lazyprompt is not installed here, unless it is driven itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from figures import PeerFigures, ratios
from floors import WORK, dumps, run_python
from speed import compared, row_of, timed
from work import MODEL, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from speed import Row

Message: TypeAlias = tuple[str, str, int]
# Prepares a row, which is not timed, and returns the function that is.
Speed: TypeAlias = "Mapping[str, Callable[[], Callable[[], object]]]"

# The value of the slot named secret, which no other slot holds.
CANARY = "CANARY-5309"
# The longest time for one case.
SECONDS = 10


class Case(NamedTuple):
    """The values to put side by side, and the developer's own text around them."""

    values: list[str]
    before: str
    behind: str

    @property
    def text(self) -> str:
        """The values as one."""
        return "".join(self.values)

    @property
    def slots(self) -> dict[str, str]:
        """The values of three slots: text, more and secret."""
        return {"text": self.values[0], "more": "".join(self.values[1:]), "secret": CANARY}


class Entry(NamedTuple):
    """A way to put a user's text into a prompt.

    Attributes:
        name: Its name in the table.
        layout: The layout of the flat text; ``""`` for messages.
        make: Makes the prompt.
        slots: True if the developer may write around the values; else cases with such text are left out.
    """

    name: str
    layout: str
    make: Callable[[Case], list[Message]]
    slots: bool = True


class _TooLongError(Exception):
    """A peer took too long."""


def drive(name: str, speed: Speed, attacks: Sequence[Entry] = ()) -> None:
    """Do what the command line says.

    Args:
        name: The peer's name.
        speed: Its rows by their keys.
        attacks: Its entries.
    """
    # Some peers write to the standard output.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if sys.argv[1] == "speed":
        json.dump(_figures(name, speed, sys.argv[2]), out)
    else:
        out.writelines(json.dumps(line) + "\n" for line in _attacked(attacks))
    out.close()


def batch_lines(body: Callable[[dict[str, str]], Mapping[str, object]]) -> Callable[[], bytes]:
    """Return a function that makes the lines of an OpenAI Batch file, with the JSON writer of the floor.

    Args:
        body: Makes the messages of a row, as ``{"messages": [...]}``.
    """
    write = dumps()
    head = {"method": "POST", "url": "/v1/chat/completions"}
    return lambda: b"".join(
        write({"custom_id": f"row-{number}", **head, "body": {"model": MODEL, **body(row)}}) + b"\n"
        for number, row in enumerate(ROWS, 1)
    )


def _figures(name: str, speed: Speed, imports: str) -> PeerFigures:
    works = {work.key: work for work in WORK}
    statement = partial(run_python, imports)
    ready: dict[str, Row] = {}
    failed: list[str] = []
    makers: Speed = {**speed, "import": lambda: statement}
    for key, make in makers.items():
        try:
            ready[key] = compared(row_of(works[key], make(), texts_only=True))
        except Exception as error:  # noqa: BLE001 - peers raise errors of any kind
            failed.append(f"{works[key].name}: {type(error).__name__}: {error}"[:300])
    rows = {key: ratios(result) for key, result in zip(ready, timed([*ready.values()]), strict=True)}
    return PeerFigures(version=metadata.version(name), rows=rows, failed=failed)


def _attacked(entries: Sequence[Entry]) -> Iterator[tuple[str, str, int, list[Message] | str | None]]:
    os.environ["LAZYPROMPT_ATTACK"] = CANARY
    Path("secret.txt").write_text(CANARY, encoding="utf-8")
    signal.signal(signal.SIGALRM, _stop)
    cases = [Case(**each) for each in json.load(sys.stdin)]
    for entry in entries:
        for at, case in enumerate(cases):
            yield entry.name, entry.layout, at, _prompt(entry, case)


def _prompt(entry: Entry, case: Case) -> list[Message] | str | None:
    if not entry.slots and (case.before or case.behind):
        return None
    signal.alarm(SECONDS)
    try:
        return entry.make(case)
    except Exception as error:  # noqa: BLE001 - peers raise errors of any kind; the table counts them
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.alarm(0)


def _stop(*_: object) -> None:
    raise _TooLongError(f"no prompt after {SECONDS} s")
