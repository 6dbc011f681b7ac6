"""What is known of a run that has not ended: its files, and how far it has come."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.files import read_regular
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.prompters.rows import RowFault

ANEW = "--restart begins anew"
"""What to do where a run cannot be gone on with."""

_VERSION = 2
_MOST = 16_777_216
_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("version", "number", "written", "rejected", "tokens", "lines", "rejects"), (int,)),
    "asked": (dict,),
    "rejects_to": (str, type(None)),
    "files": (list,),
    "done": (bool,),
}
_HASH = re.compile(r"(sha256:)?[0-9a-f]{32,}")


class BatchStoppedError(BatchError):
    """A run came to a halt before its end; what it has done is kept, and the same command goes on with it.

    Args:
        message: Where, and why.
        fault: The row that has no line, where that is why.
    """

    def __init__(self, message: str, fault: RowFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class State:
    """How far a run has come.

    Args:
        asked: What the run was asked for, by the names that messages use; only one that is asked for the same goes on
            with it.
        rejects_to: The file of rejects; None where a row without a line ends the run.
        number: The number of the last row that is done.
        written: How many rows have a line.
        rejected: How many have none.
        tokens: How many tokens the lines have, where they are counted.
        files: The bytes of each output file.
        lines: The lines of the last of them.
        rejects: The bytes of the file of rejects.
        done: Whether nothing is left but to give the files their names.
    """

    asked: JsonObject = field(default_factory=dict[str, "Json"])
    rejects_to: str | None = None
    number: int = 0
    written: int = 0
    rejected: int = 0
    tokens: int = 0
    files: tuple[int, ...] = (0,)
    lines: int = 0
    rejects: int = 0
    done: bool = False

    @property
    def rows(self) -> int:
        """How many rows are done."""
        return self.written + self.rejected

    def to_json(self) -> bytes:
        """Return the content of the state's file; its checksum shows any damage."""
        held: JsonObject = {"version": _VERSION, **asdict(self), "files": [*self.files]}
        return json.dumps({**held, "checksum": _checksum(held)}, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Files:
    """The names of the files of a run.

    Args:
        output: The output.
        rejects: The file of rejects; None where a row without a line ends the run.
    """

    output: Path
    rejects: Path | None = None

    @property
    def state(self) -> Path:
        """The state."""
        return beside(self.output, ".state")

    def part(self, index: int) -> Path:
        """What the output file of an index is called before the end: nobody knows yet whether there are several."""
        return part_of(self._numbered(index) if index else self.output)

    def finals(self, count: int) -> list[Path]:
        """What ``count`` output files are called at the end."""
        return [self.output] if count == 1 else [self._numbered(index) for index in range(count)]

    def left_over(self, count: int) -> list[Path]:
        """The output files of earlier runs that are there beside ``count`` new ones."""
        new = {*self.finals(count)}
        found = [*self._found(""), *([self.output] if self.output.exists() else [])]
        return sorted(path for path in found if path not in new)

    def parts_beyond(self, count: int) -> list[Path]:
        """The parts behind the first ``count``."""
        known = {self.part(index) for index in range(count)}
        return [path for path in self._found(".part") if path not in known]

    def _numbered(self, index: int) -> Path:
        return self.output.with_name(f"{self.output.stem}-{index + 1:05}{self.output.suffix}")

    def _found(self, ending: str) -> list[Path]:
        """The files with numbers that are there."""
        form = re.compile(rf"{re.escape(self.output.stem)}-\d{{5,}}{re.escape(self.output.suffix + ending)}")
        return [path for path in self.output.parent.iterdir() if form.fullmatch(path.name)]


def beside(path: Path, ending: str) -> Path:
    """The file whose name has an ending more."""
    return path.with_name(path.name + ending)


def part_of(path: Path) -> Path:
    """What a file is called while it is written."""
    return beside(path, ".part")


def check_free(path: Path) -> None:
    """Check that a part that will be emptied holds nothing yet: no state says that a run has written it.

    Raises:
        BatchError: It does.
    """
    if path.is_file() and path.stat().st_size:
        raise BatchError(f"{path} is there, and no run is known to have left it; move it away, or {ANEW}")


def read_state(files: Files, asked: State) -> State | None:
    """The state of a run that was begun.

    Args:
        files: The names of its files.
        asked: A new state, of what is asked for now.

    Returns:
        The state, or None where no run was begun.

    Raises:
        BatchError: It was asked for something else, which the message tells; or the file is no state.
    """
    try:
        begun = _parsed(read_regular(files.state, _MOST))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BatchError(f"{files.state} cannot be read: {error.strerror}; {ANEW}") from error
    except (ValueError, RecursionError) as error:
        raise BatchError(f"{files.state} is not the state of a run ({error}); {ANEW}") from error
    changed = [*_changes(begun.asked, asked.asked)]
    if begun.rejects_to != asked.rejects_to:
        # As long as no row was rejected it is all the same what would have been done with one.
        if begun.rejected or begun.done:
            changed += _changes({"--rejects": begun.rejects_to}, {"--rejects": asked.rejects_to})
        elif begun.rejects_to is not None:
            _remove_empty(part_of(Path(begun.rejects_to)))
        if asked.rejects_to is not None:
            check_free(part_of(Path(asked.rejects_to)))
        begun = replace(begun, rejects_to=asked.rejects_to, rejects=0)
    if changed:
        raise BatchError(
            f"{files.output}: the run that was begun was asked for something else: {'; '.join(changed)}; {ANEW}"
        )
    return begun


def _parsed(data: bytes) -> State:
    """Parse the content of a state's file."""
    found: Json = json.loads(data)
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise BatchError("it is not written by this version of lazyprompt")
    if found.pop("checksum", None) != _checksum(found):
        raise BatchError("it was damaged: its checksum is another one")
    check_fields(found, _FIELDS)
    del found["version"]
    return State(**cast("Any", found | {"files": (*cast("list[int]", found["files"]),)}))


def check_fields(found: Json, kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Check the fields of an object.

    Args:
        found: The object.
        kinds: The types that each field may have; none for any type.

    Raises:
        BatchError: It is not an object, or a field is missing, unknown, or of another type.
    """
    fields = found if isinstance(found, dict) else {}
    wrong = kinds.keys() ^ fields.keys()
    wrong |= {name for name, value in fields.items() if (types := kinds.get(name)) and type(value) not in types}
    if wrong:
        names = ", ".join(repr(name)[:40] for name in sorted(wrong)[:3])
        raise BatchError(f"missing, unknown, or of a wrong type: {names}")


def _checksum(held: JsonObject) -> int:
    return zlib.crc32(json.dumps(held).encode())


def _remove_empty(path: Path) -> None:
    """Remove a file if nothing is in it: what somebody else may have written stays."""
    with suppress(FileNotFoundError):
        if not path.lstat().st_size:
            path.unlink()


def _changes(old: JsonObject, new: JsonObject) -> Iterator[str]:
    """What differs between what two runs were asked for."""
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if all(isinstance(value, str) and _HASH.fullmatch(value) for value in (before, after)):
            yield f"{name} has changed"
        else:
            yield f"{name} was {_shown(before)}, and is {_shown(after)}"


def _shown(value: Json) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)
