import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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


Run = Callable[..., Ran]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def fault(ran: Ran) -> str:
    """Return the message of a usage error, after checking its status and its form."""
    assert ran.status == 2
    assert ran.out == b""
    assert ran.err.startswith(ERROR)
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    return ran.err.removeprefix(ERROR).removesuffix("\n")


def write(path: Path, value: object) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return str(path)


def run_without(modules: str, *argv: str) -> bytes:
    """Run the command line in a process, check that it imports none of some modules, and return its output."""
    code = (
        f"import sys; from lazyprompt.cli.main import main; main({[*argv]!r}); "
        f"sys.exit(', '.join({{*{modules.split()!r}}} & sys.modules.keys()) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)  # noqa: S603 - our own program
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout
