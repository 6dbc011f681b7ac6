"""The layers of a library (directories, packages, packages in archives), and a cache for values read from files.

To detect changes, the cache compares the modification time, size and inode of every file that was read or searched for.
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

# A file modified less than this many nanoseconds ago could change again without a new modification time.
_UNSETTLED_NS: Final = 50_000_000


def stamp_of(path: str) -> Stamp:
    """Return the modification time, size and inode of a path, or None if the path doesn't exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Trace:
    """The files and environment variables that a cached value depends on."""

    def __init__(self) -> None:
        self.files: dict[str, Stamp] = {}
        self.variables: dict[str, str | None] = {}

    def file(self, path: Path | str) -> None:
        """Record the current state of a file before the file is read."""
        name = str(path)
        if name not in self.files:
            self.files[name] = stamp_of(name)

    def variable(self, name: str, value: str | None) -> None:
        """Record the value of an environment variable."""
        self.variables[name] = value

    def __getstate__(self) -> dict[str, object]:
        # Don't pickle the values of environment variables, which may be secret.
        return {"files": {}, "variables": {}}


class _State(NamedTuple):
    files: tuple[tuple[str, Stamp], ...]
    variables: tuple[tuple[str, str | None], ...]

    def is_current(self) -> bool:
        """Return True if no recorded file and no recorded environment variable has changed."""
        if self.variables and any(os.environ.get(name) != value for name, value in self.variables):
            return False
        for name, stamp in self.files:  # noqa: SIM110 - all() costs as much as os.stat
            if stamp_of(name) != stamp:
                return False
        return True


class FileCache(Generic[Made]):
    """A thread-safe cache for values created from files.

    Args:
        most: The maximum number of cached values; the oldest value is dropped first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, tuple[Made, _State]] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[Trace], Made]) -> Made:
        """Return the cached value for a key, or create the value if it is missing or out of date.

        Args:
            key: The key of the value.
            make: The function that creates the value. Before reading a file, the function must record the file in the
                :class:`Trace` that it receives.
        """
        kept = self._kept.get(key)
        if kept is not None and kept[1].is_current():
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
"""The maximum number of files in a package in an archive."""

MAX_TOTAL: Final = 100_000_000
"""The maximum total size of a package in an archive, in bytes."""

_MAX_DEPTH = 20


class Layers:
    """The directories that contain a library's files.

    Args:
        given: Directories, package names, or results of ``importlib.resources.files``, highest priority first.

    Attributes:
        paths: The directories, highest priority first. A package in an archive is copied to a temporary directory,
            which is deleted with this object.

    Raises:
        PromptFileError: A layer is not a directory or package, or is too large.
    """

    def __init__(self, given: Iterable[LayerLike]) -> None:
        self.paths: tuple[Path, ...] = tuple(path for each in given for path in self._paths(each))

    def _paths(self, given: LayerLike) -> list[Path]:
        if isinstance(given, str) and not Path(given).is_dir() and all(map(str.isidentifier, given.split("."))):
            return self._package(given)
        if isinstance(given, (str, os.PathLike)):
            path = Path(given)
            if not path.is_dir():
                what = f"{path}: a library must be a directory or a package"
                if path.exists():
                    raise PromptFileError(f"{what}, not a file; for files, use Prompty.load")
                raise PromptFileMissingError(f"{what}, but the path does not exist")
            return [path]
        return self._resource(given)

    def _package(self, name: str) -> list[Path]:
        """Return the directories of a package; a namespace package can have several directories."""
        try:
            spec = _spec_of(name)
        except (ImportError, ValueError) as error:
            raise PromptFileMissingError(f"{name}: no such directory, and no such package: {error}") from error
        if spec is None or spec.submodule_search_locations is None:
            what = "no such package" if spec is None else "the module with this name is not a package"
            raise PromptFileMissingError(f"{name}: no such directory, and {what}")
        found = [Path(each) for each in spec.submodule_search_locations if Path(each).is_dir()]
        if found:
            return found
        # Pass a module that was not executed, because files(name) would import the package.
        return self._resource(files(module_from_spec(spec)))

    def _resource(self, given: Traversable) -> list[Path]:
        if not given.is_dir():
            raise PromptFileMissingError(f"{given}: a library must be a directory or a package")
        children = [*given.iterdir()]
        parents = dict.fromkeys(each.parent for each in children if isinstance(each, Path))
        if parents:
            return [*parents]
        copy = mkdtemp(prefix="lazyprompt-")
        remove = weakref.finalize(self, rmtree, copy, ignore_errors=True)
        try:
            _copy(given, Path(copy), 0, [MAX_FILES, MAX_TOTAL])
        except BaseException:
            # The exception's traceback keeps ``self`` alive, which delays the finalizer, so delete the temporary copy
            # explicitly.
            remove()
            raise
        return [Path(copy)]


def _spec_of(name: str) -> ModuleSpec | None:
    """Find a package without importing its parents or running its code."""
    top, *below = name.split(".")
    spec = find_spec(top)
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # Pass only the last component of the package's name, because a full name would require the parent namespace
        # package in ``sys.modules``.
        spec = PathFinder.find_spec(part, spec.submodule_search_locations)
    return spec


def _copy(given: Traversable, into: Path, depth: int, left: list[int]) -> None:
    """Extract the files of an archive, up to a maximum number of files and a maximum total size in bytes."""
    for each in given.iterdir():
        left[0] -= 1
        if left[0] < 0 or depth > _MAX_DEPTH:
            raise PromptFileError(f"{given}: a package in an archive can contain at most {MAX_FILES} files")
        name = each.name
        # An archive member can have any name, so reject names that point outside the target directory.
        if name in ("", "..") or "\0" in name or Path(name).name != name:
            raise PromptFileError(f"{given}: the archive member {name!r} is not a valid file name")
        path = into / name
        try:
            size = _extract(each, path)
        except (OSError, EOFError, RuntimeError, ValueError, BadZipFile, zlib.error) as error:
            raise PromptFileError(f"{given}: cannot extract {name!r} from the archive: {error}") from error
        if size is None:
            _copy(each, path, depth + 1, left)
            continue
        left[1] -= size
        if left[1] < 0:
            raise PromptFileError(f"{given}: a package in an archive can contain at most {MAX_TOTAL} bytes")


def _extract(member: Traversable, path: Path) -> int | None:
    """Extract an archive member, and return the number of bytes read or None for a directory."""
    if member.is_dir():
        path.mkdir()
        return None
    with member.open("rb") as file, path.open("xb") as made:
        # Extract one byte more than the size limit of a prompt file, so that loading a larger file reports its size.
        return made.write(file.read(MAX_BYTES + 1))
