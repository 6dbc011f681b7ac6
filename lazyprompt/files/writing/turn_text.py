"""Turns of a prompt file, written so that their text means nothing to the file.

A value begins no section, opens no fence and keeps its line breaks. So a character that would mean something is written
as the value of a variable, which the file sets itself.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lazyprompt.errors import FormatError, TemplateError
from lazyprompt.files.dialects.agentschema import AGENT_ROLES
from lazyprompt.files.roles import PLACE, Scanned, role_lines, sections
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import Json


_NAMES: Final = {"\n": "newline", ":": "colon", "`": "tick", "~": "tilde"}
# The begin of a section or a fence, in text that has one: rather too much than too little.
_ROLE_LINE: Final = re.compile(
    rf"^([^\S\n]*+(?:#[^\S\n]*+)?(?:{'|'.join(AGENT_ROLES)}|{PLACE})[^\n]*?)(:)(?=[^\S\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE: Final = re.compile(r"^([^\S\n]*)([`~])(?=\2\2)", re.MULTILINE)
# Characters that Jinja would read, and those that YAML or a file cannot hold.
_SPECIAL: Final = re.compile(r"\{(?=[{%#\r\0]|\Z)|[\r\0]")
_REFERENCE: Final = re.compile(r"\$\{(?:env|file|params):", re.IGNORECASE)


class InputSlot(NamedTuple):
    """The place of an input."""

    name: str


class EscapedCharacter(NamedTuple):
    """A character that is written as a value."""

    character: str


class Code(NamedTuple):
    """Jinja, as it is."""

    text: str


TurnPiece: TypeAlias = "str | InputSlot | EscapedCharacter | Code"


def turn(role: str, runs: Iterable[Sequence[TurnPiece]]) -> list[TurnPiece]:
    """Return the pieces of a turn.

    Args:
        role: Its role, with attributes.
        runs: Its text, made by :func:`safe`.
    """
    return [Code(f"{role}:\n"), *(piece for run in runs for piece in run), Code("\n")]


def safe(pieces: Sequence[TurnPiece]) -> list[TurnPiece]:
    """Join text and slots; characters that would mean something to a file become values."""
    joined: list[TurnPiece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece:
            joined.append(piece)
    if not _is_one_section(joined):
        joined = _without_lines(joined)
    return _with_edges(joined)


def _is_one_section(pieces: Sequence[TurnPiece]) -> bool:
    """Return True if no dialect finds a role in the pieces, or a fence that stays open."""
    parts = [piece if isinstance(piece, str) else Value("", getattr(piece, "name", "")) for piece in pieces]
    filled = Scanned(parts)
    if any(any(role_lines(filled, AGENT_ROLES, fenced=fenced)) for fenced in (False, True)):
        return False
    # A fence that is open would hide the role behind it, if another one closed it.
    ends = (sign * max(3, filled.text.count(sign)) for sign in "`~")
    return all(sections([*parts, f"\nuser:\n\n{end}\n"])[-1].role == "user" for end in ends)


def _without_lines(pieces: Sequence[TurnPiece]) -> list[TurnPiece]:
    """Return pieces in which no line begins a section or a fence."""
    text = "".join(piece.replace(PLACE, " ") if isinstance(piece, str) else PLACE for piece in pieces)
    places = {match.start(2) for pattern in (_ROLE_LINE, _FENCE) for match in pattern.finditer(text)}
    found: list[TurnPiece] = []
    at = 0
    for piece in pieces:
        if not isinstance(piece, str):
            found.append(piece)
            at += 1
            continue
        begin = 0
        for place in sorted(place - at for place in places if at <= place < at + len(piece)):
            found += (piece[begin:place], EscapedCharacter(piece[place]))
            begin = place + 1
        found.append(piece[begin:])
        at += len(piece)
    return [piece for piece in found if piece]


def _with_edges(pieces: Sequence[TurnPiece]) -> list[TurnPiece]:
    """Return pieces whose first and last line break are values, also beside empty slots: a file drops its own."""
    found = [*pieces]
    own = [index for index, piece in enumerate(found) if not isinstance(piece, InputSlot)]
    if not own:
        return found
    # The last one first: its index stays, whatever becomes of the first.
    if isinstance(last := found[own[-1]], str) and last.endswith("\n"):
        found[own[-1] : own[-1] + 1] = [last[:-1], EscapedCharacter("\n")]
    if isinstance(first := found[own[0]], str) and first.startswith("\n"):
        found[own[0] : own[0] + 1] = [EscapedCharacter("\n"), first[1:]]
    return [piece for piece in found if piece]


def body_of(turns: Sequence[Sequence[TurnPiece]], slots: Sequence[str]) -> str:
    """Return the template."""
    pieces = [piece for turn in turns for piece in turn]
    taken = (*slots, *(piece.text for piece in pieces if isinstance(piece, Code)))
    names = {sign: free_name(name, taken) for sign, name in _NAMES.items()}
    used = dict.fromkeys(piece.character for piece in pieces if isinstance(piece, EscapedCharacter))
    setting = "".join(f"{{% set {names[sign]} = {json.dumps(sign)} %}}\n" for sign in used)
    return setting + "\n".join("".join(_written(piece, names) for piece in turn) for turn in turns if turn)


def _written(piece: TurnPiece, names: Mapping[str, str]) -> str:
    if isinstance(piece, str):
        return _SPECIAL.sub(lambda special: f"{{{{ {json.dumps(special[0])} }}}}", piece)
    if isinstance(piece, Code):
        return piece.text
    return f"{{{{ {names[piece.character] if isinstance(piece, EscapedCharacter) else piece.name} }}}}"


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that is in none of the texts."""
    texts = [*taken]
    while any(name in text for text in texts):
        name += "_"
    return name


def is_input(name: str) -> bool:
    """Return True if a name can be that of an input: Jinja has no other meaning for it."""
    try:
        return JinjaTemplate(f"{{{{ {name} }}}}").slots == (name,)
    except TemplateError:
        return False


def check_references(value: Json, where: str) -> None:
    """Refuse text that a front matter would take for a reference.

    Args:
        value: The value of a field.
        where: Its name in errors.

    Raises:
        FormatError: A text in it is a reference.
    """
    if isinstance(value, str) and (found := _REFERENCE.search(value)):
        raise FormatError(f"{where} has the text {found[0]}…, which a prompt file would look up; write it otherwise")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_references(item, where)
