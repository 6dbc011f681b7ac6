"""A directory with files that a prompt may refer to, and one beside it that none may reach."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

OUTSIDE = "canary-outside"
"""What stands in every file outside."""

_FILES = {
    "in/tone.md": "Be kind, {{ name }}.\n",
    "in/more.yaml": "a: 1\nb: ${file:tone.md}\nc: [1, 2]\n",
    "in/more.json": '{"a": {"b": "${env:A:x}"}}',
    "in/round.yaml": "a: ${file:round.yaml}\n",
    "in/sub/user.md": "user:\n{{ name }}\n",
    "secret.txt": OUTSIDE,
    "in-beside/secret.txt": OUTSIDE,
}


@cache
def directory() -> Path:
    """The directory that a prompt file lies in; what is around it is taken away when the process ends."""
    around = Path(mkdtemp(prefix="lazyprompt-fuzz-"))
    atexit.register(rmtree, around, ignore_errors=True)
    for name, text in _FILES.items():
        path = around / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for link, target in (("in/link.txt", "../secret.txt"), ("in/up", ".."), ("in/itself", "itself")):
        (around / link).symlink_to(target)
    return around / "in"


@cache
def scratch(name: str) -> Path:
    """Make an empty directory for a target, removed when the process ends; in memory if the system has such a place."""
    memory = Path("/dev/shm")  # noqa: S108 - the directory in it is new, and nobody else's
    made = Path(mkdtemp(prefix=f"lazyprompt-fuzz-{name}-", dir=memory if memory.is_dir() else None))
    atexit.register(rmtree, made, ignore_errors=True)
    return made


def encoded(text: str) -> bytes:
    """The bytes of a text, of half a surrogate pair too."""
    return text.encode("utf-8", "surrogatepass")
