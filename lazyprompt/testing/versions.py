"""Another version of a directory: a revision of git, written to a temporary directory, or a directory itself."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


@contextmanager
def older_version(against: str, places: Sequence[Path]) -> Generator[Callable[[Path], Path]]:
    """Yield a function that finds the file of another version.

    Args:
        against: A directory, in which files lie as in the directory that is tested; or a revision of git.
        places: The directories or files that are tested.

    Raises:
        BatchError: It is neither, or git fails.
    """
    if Path(against).is_dir():
        bases = [place if place.is_dir() else place.parent for place in places]
        yield _finder(Path(against), bases)
        return
    top = Path(_git(["rev-parse", "--show-toplevel"], against))
    commit = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}"], against)
    with TemporaryDirectory(prefix="lazyprompt-") as directory:
        # An index of its own: that of the repository stays as it is.
        index, tree = Path(directory, "index"), Path(directory, "tree")
        _git(["read-tree", f"--index-output={index}", commit], against, index=Path(directory, "empty"))
        _git(["-C", str(top), "checkout-index", "--all", "--quiet", f"--prefix={tree}/"], against, index=index)
        yield _finder(tree, [top])


def _finder(root: Path, bases: Sequence[Path]) -> Callable[[Path], Path]:
    resolved = [base.resolve() for base in bases]

    def find(path: Path) -> Path:
        whole = path.parent.resolve() / path.name
        base = next((each for each in resolved if whole.is_relative_to(each)), None)
        if base is None:
            raise BatchError(f"{path} lies outside of {bases[0]}, so it has no other version")
        return root / whole.relative_to(base)

    return find


def _git(arguments: list[str], against: str, index: Path | None = None) -> str:
    environment = {**os.environ} | ({} if index is None else {"GIT_INDEX_FILE": str(index)})
    try:
        made = subprocess.run(["git", *arguments], capture_output=True, env=environment, check=False)  # noqa: S603, S607 - the user's git
    except OSError as error:
        raise BatchError(f"{against} is no directory, and git cannot be run: {error.strerror}") from error
    if made.returncode:
        why = made.stderr.decode(errors="replace").strip() or "it is no revision"
        raise BatchError(f"{against!r} is neither a directory nor a revision of git here: {why}")
    return made.stdout.decode().strip()
