"""The prompt files that the studio works on: found, read, and saved where nobody else has changed them.

A file is known by its path below the root, as ``support/refund@1.2.0.prompty``; which names prompts have is said in
:mod:`lazyprompt.files.library.names`. Symbolic links are followed first: what counts is where a file is.
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
"""How many prompt files a page can list."""

_MOST_DIRECTORIES: Final = 4000
# Signs of paths on other systems, and what stands for bytes that are no UTF-8.
_ODD: Final = re.compile("[\\\\:\0\ud800-\udfff]")


class Listed(NamedTuple):
    """A prompt file of a workspace.

    Attributes:
        path: Its path below the root, with slashes.
        key: Its key; its path where its name is wrong.
        lang: Its language; ``""`` for the default.
        version: Its version; None where its name has none.
    """

    path: str
    key: str
    lang: str
    version: str | None


class Content(NamedTuple):
    """Content of a file.

    Attributes:
        text: Its text, with its newlines and its byte order mark.
        hash: The SHA-256 of its bytes.
    """

    text: str
    hash: str


class Changed(NamedTuple):
    """Reason why a file was not saved: it is not the one that was read.

    Attributes:
        why: What to tell the user.
        now: What it holds now; None where there is no such file.
    """

    why: str
    now: Content | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A directory of prompt files, or one of them.

    Args:
        root: The directory.
        only: The name of the only file; None for all in the directory.
    """

    root: Path
    only: str | None = None

    @classmethod
    def of(cls, place: Path) -> Workspace:
        """The workspace of a directory or a prompt file.

        Args:
            place: Where it is.

        Raises:
            PromptFileMissingError: There is nothing.
            PromptFileError: It is a file that is no prompt's, or a directory with too much in it.
        """
        if place.is_dir():
            made = cls(Path(os.path.realpath(place)))
            made.files()
            return made
        real = Path(os.path.realpath(place))
        if not real.exists():
            raise PromptFileMissingError(f"{place}: there is no such directory or file")
        if real.suffix.lower() not in SUFFIXES or not real.is_file():
            raise PromptFileError(
                f"{place}: this is no prompt file; the names of these end with {', '.join(SUFFIXES)}, and a directory "
                "of them can be given as well"
            )
        return cls(real.parent, real.name)

    def files(self) -> tuple[Listed, ...]:
        """All prompt files that are there now, by the alphabet; those that lie elsewhere are left out.

        Raises:
            PromptFileError: There are too many.
        """
        if self.only is not None:
            return (self._listed("", self.only),)
        found: list[Listed] = []
        for number, directory in enumerate(directories(self.root)):
            found += self._found(directory)
            if len(found) > MOST_FILES or number > _MOST_DIRECTORIES:
                raise PromptFileError(
                    f"{self.root}: more than {MOST_FILES} prompt files or {_MOST_DIRECTORIES} directories; give the "
                    "directory of a library, or one file"
                )
        return tuple(sorted(found))

    def _found(self, directory: str) -> Iterator[Listed]:
        try:
            entries = [*os.scandir(self.root / directory)]
        except OSError as error:  # it has gone since it was listed, or is not for us
            raise PromptFileError(f"{self.root / directory}: cannot be read: {error.strerror or error}") from error
        for each in entries:
            if _is_prompt(each.name) and each.is_file() and self._leads_within(f"{directory}{each.name}"):
                yield self._listed(directory, each.name)

    def _leads_within(self, path: str) -> bool:
        return Path(os.path.realpath(self.root / path)).is_relative_to(self.root)

    def _listed(self, directory: str, name: str) -> Listed:
        path = f"{directory}{name}"
        try:
            entry = entry_of(name, directory, self.root)
        except PromptFileError:
            # Its version is none: a library refuses it, here it can be read all the same.
            entry = None
        if entry is None:
            return Listed(path, path, "", None)
        return Listed(path, entry.key, entry.lang, str(entry.version) if entry.version else None)

    def place(self, path: str) -> Path:
        """Return the path of a file.

        Args:
            path: Its path below the root.

        Returns:
            The path, with the root before it; it may be a link, and there may be nothing.

        Raises:
            PromptFileMissingError: It leads out of the workspace, or is no prompt's.
        """
        *within, name = path.split("/")
        named = name == self.only and not within if self.only is not None else _is_prompt(name)
        if not named or not all(map(_is_plain, within)) or not self._leads_within(path):
            raise PromptFileMissingError(f"{path!r} is no prompt file of this workspace")
        return self.root / path

    def read(self, path: str) -> Content:
        """Read a file.

        Args:
            path: Its path below the root.

        Raises:
            PromptFileMissingError: As of :meth:`place`; or there is no such file.
            PromptFileError: It cannot be read, is too large or no UTF-8.
        """
        place = self.place(path)
        try:
            # A link that is made from here on is not followed.
            data = read_resolved(Path(os.path.realpath(place)))
        except FileNotFoundError as error:
            raise PromptFileMissingError(f"{path}: there is no such file") from error
        except OSError as error:
            raise PromptFileError(f"{path}:1:1: cannot be read: {error.strerror or error}") from error
        return Content(decode_file(data, path), _hash(data))

    def save(self, path: str, text: str, known: str | None) -> Content | Changed:
        """Write a file, if it is still what was read.

        Args:
            path: Its path below the root.
            text: What it is to hold, to the byte.
            known: The hash of what was read; None where there was no file.

        Returns:
            What it holds now; or why it was not written.

        Raises:
            PromptFileMissingError: As of :meth:`place`.
            PromptFileError: The text is too large, or the file that is there cannot be read.
            OSError: The disk does not take it.
        """
        place = Path(os.path.realpath(self.place(path)))
        data = text.encode()
        if len(data) > MAX_BYTES:
            raise PromptFileError(f"{path}:1:1: {TOO_LARGE}")
        try:
            # A file that is new may be the first of its directory.
            if known is None:
                place.parent.mkdir(parents=True, exist_ok=True)
            with locked(place.with_name(f".{_hash(place.name.encode())[:16]}.lock")):
                now = self._now(path)
                if (now.hash if now else None) != known:
                    return Changed(_what_happened(path, now), now)
                if now is not None and not os.access(place, os.W_OK):
                    raise PermissionError(errno.EACCES, "it may only be read", path)
                write_whole(place, data)
        except BlockingIOError:
            return Changed(f"{path} is being saved by another program just now; save again", self._now(path))
        return Content(text, _hash(data))

    def _now(self, path: str) -> Content | None:
        try:
            return self.read(path)
        except PromptFileMissingError:
            return None


def _is_plain(name: str) -> bool:
    """Return True if a library looks at a name, and a page can show it."""
    return bool(name) and not name.startswith((".", "_")) and _ODD.search(name) is None


def _is_prompt(name: str) -> bool:
    return _is_plain(name) and Path(name).suffix.lower() in SUFFIXES and not is_test(name)


def _what_happened(path: str, now: Content | None) -> str:
    if now is None:
        return f"{path} is no longer there; save again to write it anew"
    return f"{path} was changed on the disk since it was read here"


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()
