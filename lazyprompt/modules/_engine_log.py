"""What an engine's log and exit code tell of its end."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LINES = 15  # of the log, that an error quotes
_BYTES = 65_536


class _Cause(NamedTuple):
    """What a line of a log tells, and what to do then."""

    pattern: re.Pattern[str]
    advice: str


def _cause(pattern: str, advice: str) -> _Cause:
    return _Cause(re.compile(pattern, re.IGNORECASE), advice)


# What llama.cpp, PyTorch, CUDA, vLLM, uvicorn, argparse, click and clap write; the first that fits counts.
_CAUSES: Final = (
    _cause(
        r"address already in use|couldn't bind",
        "somebody else took the port; give another one, or none for any that is free",
    ),
    _cause(r"is no GGUF file", "give it a GGUF file; a download may have been an error page or a Git LFS pointer"),
    _cause(r"cannot read the model", "give it the path of a GGUF file"),
    _cause(r"not within the file bounds|corrupted or incomplete|SafetensorError", "the file is cut off; get it again"),
    _cause(r"unknown model architecture|architectures? .* not supported", "a newer version of the engine may know it"),
    _cause(
        r"out of memory|OutOfMemory|bad_alloc|cannot allocate memory|failed to allocate|unable to allocate"
        r"|no available memory for the cache blocks|KV cache is needed, which is larger",
        "it needs more memory than there is; take a smaller model or quantisation, or a shorter context",
    ),
    _cause(r"No module named|Missing dependencies|is not installed", "something is not installed; {install}"),
    _cause(
        r"unrecognized arguments|no such option|unexpected argument|unknown flag|has no option|does not take",
        "it does not know an option, or not with that value",
    ),
)
_KILLED: Final = "the system may have killed it for want of memory; take a smaller model or a shorter context"


def how(code: int | None) -> str:
    """How a process ended.

    Args:
        code: Its exit code as a shell or :mod:`subprocess` has it: a signal's number is behind 128, or negative. None
            where only whoever started it is told.

    Returns:
        As the end of a sentence about it.
    """
    if code is None:
        return "has ended"
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    return f"ended by itself with exit code {code}"


def advice(lines: Iterable[str], code: int | None, install: str) -> str:
    """What to do.

    Args:
        lines: The last lines of the log.
        code: The exit code, where it ended by itself.
        install: How the engine is installed.

    Returns:
        The advice; empty where nothing is known.
    """
    text = "\n".join(lines)
    known = next((cause.advice for cause in _CAUSES if cause.pattern.search(text)), "")
    return known.format(install=install) or (_KILLED if code == 128 + signal.SIGKILL else "")


def tail(log: Path, offset: int) -> list[str]:
    """The last lines of a log that say something.

    Args:
        log: The log.
        offset: Where in it what counts begins, in bytes.

    Returns:
        The lines; of one that a progress bar wrote again and again, what was last to be seen.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(offset, file.seek(0, os.SEEK_END) - _BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return [f"{log} is there no more"]
    lines = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in lines if line][-_LINES:]
