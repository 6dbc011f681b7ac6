"""Prompters named by their place in Python: ``module:name``, or ``path/to/file.py:name``."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from lazyprompt.cli.errors import WrongUseError
from lazyprompt.errors import did_you_mean
from lazyprompt.prompters.prompter import Prompter

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

    from lazyprompt.cli.prompts import Opened

_NAME = r"[^\W\d]\w*"
_REFERENCE = re.compile(rf"(?P<module>{_NAME}(?:\.{_NAME})*|.+\.py):(?P<name>{_NAME}(?:\.{_NAME})*)")
_WHERE = "PROMPT_FILE"


def is_reference(text: str) -> bool:
    """Return True if a text names something in Python, and no file."""
    return _REFERENCE.fullmatch(text) is not None and not Path(text).exists()


def prompter_at(reference: str) -> Opened:
    """Import the prompter that a reference names, which runs the code of its module.

    Args:
        reference: ``module:name``, found as ``python -m module`` would find it, or ``path/to/file.py:name``; the name
            is that of a prompter, of a Prompty, or of a function without arguments that gives one.

    Returns:
        The prompter, and the prompt file that it is from.

    Raises:
        WrongUseError: There is none; or the code failed.
    """
    match = _REFERENCE.fullmatch(reference)
    place, name = (match["module"], match["name"]) if match else (reference, "")
    with _user_code(place):
        found: object = _import(place)
    module = found
    for step in name.split("."):
        if not hasattr(found, step):
            names = sorted(key for key, value in vars(module).items() if _is_prompt(value))
            there = f"; prompters there are {', '.join(names)}" if names else ""
            raise WrongUseError(_WHERE, f"{place} has no {name!r}{did_you_mean(name, names)}{there}")
        found = getattr(found, step)
    if not _is_prompt(found) and callable(found):
        with _user_code(reference):
            found = found()
    if isinstance(found, Prompter):
        return found, None
    from lazyprompt.files.prompty import Prompty  # noqa: PLC0415 - jinja2 and yaml cost 30 ms

    if isinstance(found, Prompty):
        return found.prompter, found
    raise WrongUseError(
        _WHERE,
        f"{reference} is a {type(found).__name__}; name a prompter, a Prompty, or a function without arguments that "
        "gives one",
    )


def _is_prompt(value: object) -> bool:
    return isinstance(value, Prompter) or type(value).__name__ == "Prompty"


def _import(place: str) -> ModuleType:
    """Import a module; as with ``python``, modules beside it can be imported too."""
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return import_module(place)
    path = Path(place).resolve()
    # A name that no module has which it may import.
    spec = spec_from_file_location(f"lazyprompt_inspected_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    sys.path.insert(0, str(path.parent))
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _user_code(what: str) -> Generator[None]:
    """Run code of the user: its output goes to the standard error, and its errors become wrong use."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise WrongUseError(_WHERE, f"{what}: {type(error).__name__}: {error}{_line_of(error)}") from error


def _line_of(error: BaseException) -> str:
    """Name the line of the user's code that raised an error, if there is one."""
    if isinstance(error, SyntaxError):
        return ""  # its message has the line
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    last = frames[-1] if frames else None
    if last is None or last.filename == __file__:
        return ""
    return f" ({Path(last.filename).name}, line {last.lineno})"
