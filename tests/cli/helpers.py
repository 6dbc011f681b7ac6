from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

QA = ("--instruction", "Answer {question} from {context}.")
ERROR = "lazyprompt: error: "
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]


class Ran(NamedTuple):
    status: int
    out: bytes
    err: str

    @property
    def json(self) -> dict[str, list[dict[str, object]]]:
        assert (self.status, self.err) == (0, "")
        value: dict[str, list[dict[str, object]]] = json.loads(self.out)
        return value


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def fault(ran: Ran) -> str:
    """The message of wrong use, after looking at all that wrong use promises."""
    assert ran.status == 2
    assert ran.out == b""
    assert ran.err.startswith(ERROR)
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    return ran.err.removeprefix(ERROR).removesuffix("\n")


def write(path: Path, value: object) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return str(path)
