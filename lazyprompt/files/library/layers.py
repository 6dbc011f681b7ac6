"""The layers of a library: directories, packages, and archives that hold packages; and a cache of what is read there.

A file is identified by its time, its size and its number on the disk; so is each other file that was read or looked for
on the way.
"""

from __future__ import annotations

import os
import time
import weakref
import zlib
from importlib.machinery import ModuleSpec, PathFinder
from importlib.resources import files
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar
from zipfile import BadZipFile

from lazyprompt.errors import PromptFileError, PromptFileMissingError
from lazyprompt.files.yaml_nodes import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from importlib.resources.abc import Traversable

    LayerLike: TypeAlias = str | os.PathLike[str] | Traversable


Stamp: TypeAlias = tuple[int, int, int] | None
Made = TypeVar("Made")

# A file that was written this short a time ago may be written once more within one tick of the disk's clock.
_UNSETTLED_NS: Final = 50_000_000


def stamp_of(path: str) -> Stamp:
    """Return the identity of a file or directory; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Trace:
    """The files and variables that were looked at while something was made."""

    def __init__(self) -> None:
        self.files: dict[str, Stamp] = {}
        self.variables: dict[str, str | None] = {}

    def file(self, path: Path | str) -> None:
        """Note a file, before it is read."""
        name = str(path)
        if name not in self.files:
            self.files[name] = stamp_of(name)

    def variable(self, name: str, value: str | None) -> None:
        """Note a variable of the environment."""
        self.variables[name] = value

    def __getstate__(self) -> dict[str, object]:
        # A prompt that travels takes no variables of the environment with it.
        return {"files": {}, "variables": {}}


class _State(NamedTuple):
    files: tuple[tuple[str, Stamp], ...]
    variables: tuple[tuple[str, str | None], ...]

    def holds(self) -> bool:
        """Return True if no file and no variable has changed."""
        if self.variables and any(os.environ.get(name) != value for name, value in self.variables):
            return False
        for name, stamp in self.files:  # noqa: SIM110 - all() takes as long as the look at the disk
            if stamp_of(name) != stamp:
                return False
        return True


class FileCache(Generic[Made]):
    """A cache of objects that are made of files; many threads may use it.

    Args:
        most: The most objects that are kept; the oldest goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, tuple[Made, _State]] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[Trace], Made]) -> Made:
        """Return the object of a key, made anew where a file has changed.

        Args:
            key: The key.
            make: Makes the object, and notes each file in the trace before it reads it.
        """
        kept = self._kept.get(key)
        if kept is not None and kept[1].holds():
            return kept[0]
        trace = Trace()
        made = make(trace)
        state = _State(tuple(trace.files.items()), tuple(trace.variables.items()))
        settled = time.time_ns() - _UNSETTLED_NS
        if all(stamp is None or stamp[0] < settled for _, stamp in state.files):
            with self._lock:
                self._kept.pop(key, None)
                self._kept[key] = made, state
                while len(self._kept) > self._most:
                    del self._kept[next(iter(self._kept))]
        return made


MAX_FILES: Final = 10_000
"""The most files that a package in an archive may hold."""

MAX_TOTAL: Final = 100_000_000
"""The most bytes that these may have, all in all."""

_MAX_DEPTH = 20


class Layers:
    """The directories that the files of a library lie in.

    Args:
        given: Directories, names of packages, or values of ``importlib.resources.files``; the first goes first.

    Attributes:
        paths: The directories. A package in an archive is copied to one of its own, which goes with this.

    Raises:
        PromptFileError: One of them is none of these, or too large.
    """

    def __init__(self, given: Iterable[LayerLike]) -> None:
        self.paths: tuple[Path, ...] = tuple(path for each in given for path in self._paths(each))

    def _paths(self, given: LayerLike) -> list[Path]:
        if isinstance(given, str) and not Path(given).is_dir() and all(map(str.isidentifier, given.split("."))):
            return self._package(given)
        if isinstance(given, (str, os.PathLike)):
            path = Path(given)
            if not path.is_dir():
                what = f"{path}: a library is a directory or a package, and this is"
                if path.exists():
                    raise PromptFileError(f"{what} a file; see Prompty.load")
                raise PromptFileMissingError(f"{what} not there")
            return [path]
        return self._resource(given)

    def _package(self, name: str) -> list[Path]:
        """Return the directories of a package: where it is a namespace, there may be several."""
        missing = f"{name}: there is no such directory, and"
        try:
            spec = _spec_of(name)
        except (ImportError, ValueError) as error:
            raise PromptFileMissingError(f"{missing} no such package: {error}") from error
        if spec is None or spec.submodule_search_locations is None:
            what = "no such package" if spec is None else "the module of that name is no package"
            raise PromptFileMissingError(f"{missing} {what}")
        found = [Path(each) for each in spec.submodule_search_locations if Path(each).is_dir()]
        if found:
            return found
        # A module that is made and not executed; its name would have it imported.
        return self._resource(files(module_from_spec(spec)))

    def _resource(self, given: Traversable) -> list[Path]:
        if not given.is_dir():
            raise PromptFileMissingError(f"{given}: a library is a directory or a package, and this is neither")
        children = [*given.iterdir()]
        parents = dict.fromkeys(each.parent for each in children if isinstance(each, Path))
        if parents:
            return [*parents]
        copy = mkdtemp(prefix="lazyprompt-")
        remove = weakref.finalize(self, rmtree, copy, ignore_errors=True)
        try:
            _copy(given, Path(copy), 0, [MAX_FILES, MAX_TOTAL])
        except BaseException:
            # The error refers to this object, too.
            remove()
            raise
        return [Path(copy)]


def _spec_of(name: str) -> ModuleSpec | None:
    """Find a package without importing the packages above it: no code of it is run."""
    top, *below = name.split(".")
    spec = find_spec(top)
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # By its last name: of a full one, a namespace looks for its parents among the imported modules.
        spec = PathFinder.find_spec(part, spec.submodule_search_locations)
    return spec


def _copy(given: Traversable, into: Path, depth: int, left: list[int]) -> None:
    """Copy files out of an archive, within bounds."""
    for each in given.iterdir():
        left[0] -= 1
        if left[0] < 0 or depth > _MAX_DEPTH:
            raise PromptFileError(f"{given}: a package that lies in an archive holds at most {MAX_FILES} files")
        name = each.name
        # An archive may have members of any name.
        if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
            raise PromptFileError(f"{given}: a member is called {name!r}, which is no name of a file; pack it anew")
        path = into / name
        try:
            size = _extract(each, path)
        except (OSError, EOFError, RuntimeError, ValueError, BadZipFile, zlib.error) as error:
            raise PromptFileError(f"{given}: {name!r} cannot be taken out of the archive: {error}") from error
        if size is None:
            _copy(each, path, depth + 1, left)
            continue
        left[1] -= size
        if left[1] < 0:
            raise PromptFileError(f"{given}: a package that lies in an archive holds at most {MAX_TOTAL} bytes")


def _extract(member: Traversable, path: Path) -> int | None:
    """Take one member out of an archive; return its size as far as it was read, or None for a directory."""
    if member.is_dir():
        path.mkdir()
        return None
    with member.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) <= MAX_BYTES:  # A larger one is no prompt, nor anything that one can refer to.
        with path.open("xb") as made:
            made.write(data)
    return len(data)
