"""The newcomer's path: an empty machine, and nothing but what README.md and the tour say, in their order.

    python tests/release/newcomer.py [FOLDER]

The folder is a clean clone, or an unpacked sdist; without one, this repository is cloned. The environment is empty but
for a fresh virtual environment of Python, an empty home, and the way to the package registry (pip's settings, proxies).
What a page names where it is needed is then there, and nothing else:

- its command lines are run; the one that installs ``[dev]`` and tests is left to ``.ci/run``, which reads it too;
- ``pip install`` with extras of lazyprompt, within a paragraph;
- a variable ``..._API_KEY`` that a paragraph names is set, and a provider of ours answers;
- a GGUF file that a paragraph names by its name, ``model.gguf``, is there.

Python blocks go one after another into one session, and must print what stands below them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.docs_models import models_at_hand
from support.paths import Block, blocks

ROOT = Path(__file__).parents[2]
_PAGES = ("README.md", "docs/guide/tour.md")
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_INSTALL = re.compile(r"`(python -m pip install [^`]*\[[^`]*)`")
_KEY = re.compile(r"`(\w+)_API_KEY`")
_FILE = re.compile(r"`([\w-]+\.gguf)`")
_REGISTRY = re.compile(r"PIP_.*|\w+_PROXY|\w+_proxy|SSL_CERT_(FILE|DIR)")
# A session of Python: a block a line in, what it printed and the error that it ended with a line out.
_SESSION = """\
import contextlib, io, json, sys, traceback
answers, names = sys.stdout, {"__name__": "__main__"}
for given in sys.stdin:
    code, printed, error_text = json.loads(given), io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "page", "exec"), names)
    except BaseException as error:
        places = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == "page"]
        place = f"{code.splitlines()[places[-1] - 1]}\\n" if places else ""
        error_text = place + "".join(traceback.format_exception_only(error))
    print(json.dumps([printed.getvalue(), error_text]), file=answers, flush=True)
"""


class TrippedError(Exception):
    """What a newcomer trips over."""


class Machine:
    """An empty machine with a checkout.

    Args:
        work: An empty folder.
        checkout: The checkout.
    """

    def __init__(self, work: Path, checkout: Path) -> None:
        home = work / "home"
        home.mkdir()
        subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)  # noqa: S603 - Python's own
        self.checkout = checkout
        self.env = {name: value for name, value in os.environ.items() if _REGISTRY.fullmatch(name)}
        self.env |= {"PATH": f"{work / 'venv' / 'bin'}:/usr/bin:/bin", "HOME": str(home)}
        self._python: subprocess.Popen[str] | None = None

    def run(self, command: str) -> str:
        """Run a command line in the checkout; what it writes."""
        done = subprocess.run(  # noqa: S602 - the page's own commands
            command,
            shell=True,
            check=False,
            cwd=self.checkout,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            raise TrippedError(f"{command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def type(self, code: str) -> str:
        """Go on with the session of Python; what it prints."""
        if self._python is None:
            # Variables that are named later are set in this session too: see `set`.
            command = [str(Path(self.env["PATH"].split(":")[0]) / "python"), "-c", _SESSION]
            self._python = subprocess.Popen(  # noqa: S603 - ours
                command, cwd=self.checkout, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        into, out = cast("IO[str]", self._python.stdin), cast("IO[str]", self._python.stdout)
        into.write(json.dumps(code) + "\n")
        into.flush()
        answer = out.readline()
        if not answer:
            raise TrippedError("Python itself ended")
        printed, error_text = json.loads(answer)
        if error_text:
            raise TrippedError(error_text)
        return str(printed)

    def set(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self.env[name] = value
        self.type(f"import os\nos.environ[{name!r}] = {value!r}")

    def close(self) -> None:
        """End the session."""
        if self._python is not None:
            self._python.communicate()


def walk(machine: Machine, models: Path) -> None:
    """Go the whole way.

    Raises:
        TrippedError: Something does not work; the message begins with the page and the line.
    """
    for page in _PAGES:
        found = blocks(machine.checkout / page)
        for step, after in zip(found, [*found[1:], None], strict=True):
            begun = time.monotonic()
            try:
                _prepare(machine, step.before, models)
                _take(machine, step, after)
            except TrippedError as error:
                raise TrippedError(f"{page}:{step.line}: {error}") from error
            if step.language != "text":
                sys.stdout.write(f"{page}:{step.line}: {step.language}, {time.monotonic() - begun:.1f} s\n")
                sys.stdout.flush()


def _prepare(machine: Machine, text: str, models: Path) -> None:
    """What a paragraph names is there from now on."""
    for command in _INSTALL.findall(text):
        machine.run(command)
    for provider in _KEY.findall(text):
        for name in (f"{provider}_API_KEY", f"{provider}_BASE_URL"):
            machine.set(name, os.environ[name])
    for name in _FILE.findall(text):
        shutil.copy(models / name, machine.checkout / name)


def _take(machine: Machine, step: Block, after: Block | None) -> None:
    if step.language == "bash" and "[dev]" not in step.code:
        machine.run(f"set -e\n{step.code}")
    elif step.language == "console":
        for command, expected in _COMMAND.findall(step.code):
            _compare(machine.run(command), expected)
    elif step.language == "python":
        shown = after.code if after is not None and after.language == "text" and not after.before.strip() else ""
        _compare(machine.type(step.code), shown)


def _compare(printed: str, shown: str) -> None:
    if printed.rstrip("\n") != shown.rstrip("\n"):
        raise TrippedError(f"it prints\n{printed}\nand the page shows\n{shown}")


def main() -> None:
    """Go the way, and say where it ends if it does."""
    begun = time.monotonic()
    with TemporaryDirectory(prefix="lazyprompt-newcomer-") as folder, pytest.MonkeyPatch.context() as patch:
        work, models = Path(folder, "work"), Path(folder, "models")
        work.mkdir()
        models.mkdir()
        given = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
        if given is None:
            subprocess.run(["git", "clone", "--quiet", ROOT, work / "checkout"], check=True)  # noqa: S603, S607 - git
        else:
            shutil.copytree(given, work / "checkout")
        with models_at_hand(models, patch):
            machine = Machine(work, work / "checkout")
            try:
                walk(machine, models)
            except TrippedError as error:
                sys.exit(f"a newcomer trips at {error}")
            finally:
                machine.close()
    sys.stdout.write(f"the newcomer's path: {time.monotonic() - begun:.0f} s\n")


if __name__ == "__main__":
    main()
