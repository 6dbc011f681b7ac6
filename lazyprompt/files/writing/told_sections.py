"""The sections of a template that was said in another syntax, found before it is filled.

They are found as in a filled template: in its own text, each value one sign. What begins or ends a block is nothing
there.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import FormatError
from lazyprompt.files.roles import attributes_in, role_lines
from lazyprompt.files.scanned import PLACE, Scanned
from lazyprompt.files.writing.portable import Shown, Tag
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lazyprompt._base.json import Json
    from lazyprompt.files.writing.portable import Piece

# What is around the text of a section and no part of it.
_BREAKS: Final = "\n"


class Told(NamedTuple):
    """A section.

    Attributes:
        role: Its role; ``""`` for what stands before the first line that names one.
        attributes: What the line says beside it.
        pieces: What stands below, without line breaks of its own around it.
        lead: Tags between it and the section before.
        line: The line of the template that names the role.
    """

    role: str
    attributes: dict[str, Json]
    pieces: tuple[Piece, ...]
    lead: tuple[Tag, ...] = ()
    line: int = 1


def told_sections(pieces: Sequence[Piece], roles: Sequence[str], target: str) -> list[Told]:
    """Take a template apart by its roles.

    Args:
        pieces: The template.
        roles: The names of roles.
        target: How errors call the other form.

    Raises:
        FormatError: A value stands in the place of a role or in its attributes, or a block divides such a line.
    """
    filled = Scanned([each for each in map(_scanned, pieces) if each is not None])
    placed = _Placed(pieces)
    found: list[Told] = []
    role, attributes, begin, at = "", dict[str, "Json"](), 0, 1
    lead: tuple[Tag, ...] = ()
    for match in role_lines(filled, roles):
        if PLACE in match[0] or placed.divides(match.start(), match.end()):
            line = match[0].strip().replace(PLACE, "{{…}}")
            raise FormatError(
                f"line {placed.line(match.start())} of the template: {line!r}: {target} takes a role as it is written, "
                "with no value or block in it"
            )
        inside, opened = placed.between(begin, match.start())
        if role or lead or not filled.is_blank(begin, match.start()):
            found.append(Told(role, attributes, stripped(inside), lead, at))
            inside = ()
        # What stands before the first section, and says nothing, may still open a block.
        lead = (*(each for each in inside if isinstance(each, Tag)), *opened)
        role, attributes, begin = match["role"].lower(), attributes_in(match["attributes"] or ""), match.end()
        at = placed.line(match.start())
    inside, opened = placed.between(begin, len(filled.text))
    found.append(Told(role, attributes, stripped((*inside, *opened)), lead, at))
    return found


class _Placed:
    """Pieces with their places in the text that is searched."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        lengths = [len(_scanned(piece) or "") if isinstance(piece, str) else _width(piece) for piece in pieces]
        self._pieces = list(zip([0, *accumulate(lengths)], pieces, strict=False))

    def divides(self, begin: int, end: int) -> bool:
        """Whether a block begins or ends between two places."""
        return any(begin < at < end for at, each in self._pieces if isinstance(each, Tag))

    def line(self, place: int) -> int:
        """The line of the template that a place is in."""
        line = 1
        for at, piece in self._pieces:
            if at > place:
                break
            # What ends a block has the line where it began.
            line = line + piece[: place - at].count("\n") if isinstance(piece, str) else max(line, piece.line)
        return line

    def between(self, begin: int, end: int) -> tuple[tuple[Piece, ...], tuple[Tag, ...]]:
        """The pieces between two places; and the tags at the end of it, from the first that begins a block."""
        found: list[Piece] = []
        opened: list[Tag] = []
        for at, piece in self._pieces:
            if isinstance(piece, Tag):
                if begin <= at < end or (at == end and piece.ends and not opened and begin <= at):
                    found.append(piece)
                elif at == end:
                    opened.append(piece)
            elif isinstance(piece, Shown):
                if begin <= at < end:
                    found.append(piece)
            elif part := piece[max(begin - at, 0) : max(end - at, 0)]:
                found.append(part)
        return tuple(found), tuple(opened)


def _width(piece: Shown | Tag) -> int:
    return 0 if isinstance(piece, Tag) else 1


def _scanned(piece: Piece) -> str | None:
    """A piece as a part of a filled template; None where it is nothing there."""
    if isinstance(piece, Tag):
        return None
    return piece if isinstance(piece, str) else Value(piece.text, piece.path)


def runs(pieces: Sequence[Piece], threads: Collection[str]) -> Iterator[tuple[tuple[Piece, ...], Shown | None]]:
    """What a section says, divided by its threads.

    Args:
        pieces: What stands in it.
        threads: The names of the inputs that are threads.

    Yields:
        What stands before each thread, and the thread; then what stands behind the last one, if it says anything.
    """
    run: list[Piece] = []
    before: str | None = _BREAKS
    for piece in pieces:
        if isinstance(piece, Shown) and piece.name in threads:
            yield stripped(run, before, None), piece
            run, before = [], None
        else:
            run.append(piece)
    rest = stripped(run, before)
    if before or rest:
        yield rest, None


def stripped(pieces: Sequence[Piece], before: str | None = _BREAKS, behind: str | None = _BREAKS) -> tuple[Piece, ...]:
    """Pieces without the template's own white space around them; what is in a block stays as it is.

    Args:
        pieces: The pieces.
        before: The signs that are taken away at the beginning: line breaks; beside a thread all white space, None.
        behind: The same of the end.
    """
    found = [piece for piece in pieces if piece]
    while found and isinstance(first := found[0], str):
        found[0] = first.lstrip(before)
        if found[0]:
            break
        del found[0]
    while found and isinstance(last := found[-1], str):
        found[-1] = last.rstrip(behind)
        if found[-1]:
            break
        del found[-1]
    return tuple(found)
