"""The studio's access to prompt files: it lists, reads and saves them without overwriting another program's changes.

A file is identified by its path below the root, such as ``support/refund@1.2.0.prompty``. The module
:mod:`lazyprompt.files.library.names` defines the syntax of file names. Symbolic links are resolved before a path is
checked.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt._base.files import locked, write_whole
from lazyprompt.errors import PromptFileError, PromptFileMissingError
from lazyprompt.files.library.names import SUFFIXES, directories, entry_of, is_test
from lazyprompt.files.references import read_resolved
from lazyprompt.files.yaml_nodes import MAX_BYTES, TOO_LARGE, decode_file

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FILES: Final = 2000
"""The maximum number of prompt files that the page can list."""

_MOST_DIRECTORIES: Final = 4000
# Matches characters that are not allowed in a file name: separators, NUL and lone surrogates.
_ODD: Final = re.compile("[\\\\:\0\ud800-\udfff]")


class WorkspaceFile(NamedTuple):
    """A prompt file in a workspace.

    Attributes:
        path: The path relative to the workspace root, with forward slashes.
        key: The prompt's key, or the path if the file name is invalid.
        lang: The language; ``""`` for the default language.
        version: The version; None if the file name contains no version.
    """

    path: str
    key: str
    lang: str
    version: str | None


class Content(NamedTuple):
    """The content of a file.

    Attributes:
        text: The text, with its original line endings and byte order mark.
        hash: The SHA-256 hash of the file's bytes.
    """

    text: str
    hash: str


class SaveConflict(NamedTuple):
    """The reason why a file was not saved: another program has changed it or is saving it.

    Attributes:
        why: The message for the user.
        now: The file's current content; None if the file does not exist.
    """

    why: str
    now: Content | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A directory of prompt files, or a single file.

    Args:
        root: The directory, or the directory that contains the single file.
        only: The name of the single file; None if all files in the directory belong to the workspace.
    """

    root: Path
    only: str | None = None

    @classmethod
    def of(cls, place: Path) -> Workspace:
        """Open a directory or a prompt file as a workspace.

        Args:
            place: The prompt file, or the directory that contains the prompt files.

        Raises:
            PromptFileMissingError: The directory or file does not exist.
            PromptFileError: The file is not a prompt file, or the directory contains too many files.
        """
        if place.is_dir():
            made = cls(Path(os.path.realpath(place)))
            made.files()
            return made
        real = Path(os.path.realpath(place))
        if not real.exists():
            raise PromptFileMissingError(f"{place}: no such directory or file")
        if real.suffix.lower() not in SUFFIXES or not real.is_file():
            raise PromptFileError(
                f"{place}: not a prompt file; expected a name that ends with {', '.join(SUFFIXES)}, or a directory of "
                "such files"
            )
        return cls(real.parent, real.name)

    def files(self) -> tuple[WorkspaceFile, ...]:
        """Return the prompt files, sorted by path, omitting links to files outside the workspace.

        Raises:
            PromptFileError: There are too many files or directories.
        """
        if self.only is not None:
            return (self._describe("", self.only),)
        found: list[WorkspaceFile] = []
        for number, directory in enumerate(directories(self.root)):
            found += self._scan(directory)
            if len(found) > MOST_FILES or number > _MOST_DIRECTORIES:
                raise PromptFileError(
                    f"{self.root}: more than {MOST_FILES} prompt files or {_MOST_DIRECTORIES} directories; open a "
                    "library directory or a single file"
                )
        return tuple(sorted(found))

    def _scan(self, directory: str) -> Iterator[WorkspaceFile]:
        try:
            entries = [*os.scandir(self.root / directory)]
        except OSError as error:  # the directory was deleted or is not readable
            raise PromptFileError(f"{self.root / directory}: cannot be read: {error.strerror or error}") from error
        for each in entries:
            if _is_prompt(each.name) and each.is_file() and self._leads_within(f"{directory}{each.name}"):
                yield self._describe(directory, each.name)

    def _leads_within(self, path: str) -> bool:
        return Path(os.path.realpath(self.root / path)).is_relative_to(self.root)

    def _describe(self, directory: str, name: str) -> WorkspaceFile:
        path = f"{directory}{name}"
        try:
            entry = entry_of(name, directory, self.root)
        except PromptFileError:
            # A library rejects a file name with an invalid version, but the studio lists the file.
            entry = None
        if entry is None:
            return WorkspaceFile(path, path, "", None)
        return WorkspaceFile(path, entry.key, entry.lang, str(entry.version) if entry.version else None)

    def place(self, path: str) -> Path:
        """Return the full path of a file.

        Args:
            path: The file's path relative to the workspace root.

        Returns:
            The full path, which may be a link; the file may not exist yet.

        Raises:
            PromptFileMissingError: The path is outside the workspace or does not name a prompt file.
        """
        *within, name = path.split("/")
        named = name == self.only and not within if self.only is not None else _is_prompt(name)
        if not named or not all(map(_is_plain, within)) or not self._leads_within(path):
            raise PromptFileMissingError(f"{path!r} is not a prompt file in this workspace")
        return self.root / path

    def read(self, path: str) -> Content:
        """Read a file.

        Args:
            path: The file's path relative to the workspace root.

        Raises:
            PromptFileMissingError: The file does not exist, or :meth:`place` rejects the path.
            PromptFileError: The file cannot be read, is too large, or is not UTF-8.
        """
        place = self.place(path)
        try:
            # Resolve links before reading, so that links created later are not followed.
            data = read_resolved(Path(os.path.realpath(place)))
        except FileNotFoundError as error:
            raise PromptFileMissingError(f"{path}: no such file") from error
        except OSError as error:
            raise PromptFileError(f"{path}:1:1: cannot be read: {error.strerror or error}") from error
        return Content(decode_file(data, path), _hash(data))

    def save(self, path: str, text: str, known: str | None) -> Content | SaveConflict:
        """Write a file unless it has changed since it was read.

        Args:
            path: The file's path relative to the workspace root.
            text: The new text, which is written without converting its line endings.
            known: The hash of the content that was last read; None for a new file.

        Returns:
            The new content, or the conflict that prevented saving.

        Raises:
            PromptFileMissingError: :meth:`place` rejects the path.
            PromptFileError: The text is too large, or the existing file cannot be read.
            OSError: The file cannot be written.
        """
        place = Path(os.path.realpath(self.place(path)))
        data = text.encode()
        if len(data) > MAX_BYTES:
            raise PromptFileError(f"{path}:1:1: {TOO_LARGE}")
        try:
            if known is None:
                place.parent.mkdir(parents=True, exist_ok=True)
            with locked(place.with_name(f".{_hash(place.name.encode())[:16]}.lock")):
                now = self._now(path)
                if (now.hash if now else None) != known:
                    return SaveConflict(_describe_change(path, now), now)
                if now is not None and not os.access(place, os.W_OK):
                    raise PermissionError(errno.EACCES, "the file is read-only", path)
                write_whole(place, data)
        except BlockingIOError:
            return SaveConflict(f"{path} is being saved by another program; save again", self._now(path))
        return Content(text, _hash(data))

    def _now(self, path: str) -> Content | None:
        try:
            return self.read(path)
        except PromptFileMissingError:
            return None


def _is_plain(name: str) -> bool:
    """Return True if a prompt library accepts this name and the page can display it."""
    return bool(name) and not name.startswith((".", "_")) and _ODD.search(name) is None


def _is_prompt(name: str) -> bool:
    return _is_plain(name) and Path(name).suffix.lower() in SUFFIXES and not is_test(name)


def _describe_change(path: str, now: Content | None) -> str:
    if now is None:
        return f"{path} no longer exists; save again to create it"
    return f"{path} has changed on disk since it was opened"


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()
