"""Files written whole: whoever reads one sees what it held before, or all that it holds now."""

from __future__ import annotations

import os
from shutil import copymode
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step; a process that ends within it leaves the old file, and one with a hidden name.

    Args:
        path: The file, made where there is none. Of a link it is the file that the link leads to; one that is there
            keeps its mode. A device or a pipe is written to, never replaced.
        data: Its bytes.

    Raises:
        OSError: It cannot be written; then it is as it was.
        ValueError: The path has a NUL character.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    temporary = path.with_name(f".lazyprompt-{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            if path.exists():  # before there is anything to be read in it
                copymode(path, temporary)
            file.write(data)
            file.flush()
            # Or else a machine that fails may have the new name on its disk, and nothing below it.
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
