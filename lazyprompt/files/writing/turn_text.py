"""Functions that write the turns of a prompt file, with special characters escaped.

A special character is written as a variable that the template sets. The value of a variable can't begin a section or a
code fence, and line breaks in the value are not stripped.
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
# Matches lines that may begin a section; escaping too many lines is harmless.
_ROLE_LINE: Final = re.compile(
    rf"^([^\S\n]*+(?:#[^\S\n]*+)?(?:{'|'.join(AGENT_ROLES)}|{PLACE})[^\n]*?)(:)(?=[^\S\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE: Final = re.compile(r"^([^\S\n]*)([`~])(?=\2\2)", re.MULTILINE)
# Matches characters that are special in Jinja or not allowed in a prompt file.
_SPECIAL: Final = re.compile(r"\{(?=[{%#\r\0]|\Z)|[\r\0]")
_REFERENCE: Final = re.compile(r"\$\{(?:env|file|params):", re.IGNORECASE)


class InputSlot(NamedTuple):
    """A slot for an input."""

    name: str


class EscapedCharacter(NamedTuple):
    """A special character that is written as a variable."""

    character: str


class Code(NamedTuple):
    """Jinja code that is written unchanged."""

    text: str


TurnPiece: TypeAlias = "str | InputSlot | EscapedCharacter | Code"


def turn(role: str, runs: Iterable[Sequence[TurnPiece]]) -> list[TurnPiece]:
    """Return the pieces that make up a turn.

    Args:
        role: The role, followed by its attributes.
        runs: The sequences of text, slots and code that form the turn's content. The text must already be escaped with
            :func:`safe`.
    """
    return [Code(f"{role}:\n"), *(piece for run in runs for piece in run), Code("\n")]


def safe(pieces: Sequence[TurnPiece]) -> list[TurnPiece]:
    """Join adjacent text, and escape characters with a special meaning in a prompt file."""
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
    """Return True if no dialect finds a role line or an unclosed code fence in the pieces of a turn."""
    parts = [piece if isinstance(piece, str) else Value("", getattr(piece, "name", "")) for piece in pieces]
    filled = Scanned(parts)
    if any(any(role_lines(filled, AGENT_ROLES, fenced=fenced)) for fenced in (False, True)):
        return False
    # To detect an unclosed code fence, append a role line, which a parser treats as text inside a fence.
    ends = (sign * max(3, filled.text.count(sign)) for sign in "`~")
    return all(sections([*parts, f"\nuser:\n\n{end}\n"])[-1].role == "user" for end in ends)


def _without_lines(pieces: Sequence[TurnPiece]) -> list[TurnPiece]:
    """Escape each line that may begin a section or a fence."""
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
    """Escape a line break at the start or end of a turn's literal text, which the prompt file parser would strip.

    Input slots before and after the turn's literal text are ignored, because a slot can render as empty text.
    """
    found = [*pieces]
    own = [index for index, piece in enumerate(found) if not isinstance(piece, InputSlot)]
    if not own:
        return found
    # Escape the turn's last line break before its first, because escaping the first inserts a piece and shifts the
    # index of the last piece.
    if isinstance(last := found[own[-1]], str) and last.endswith("\n"):
        found[own[-1] : own[-1] + 1] = [last[:-1], EscapedCharacter("\n")]
    if isinstance(first := found[own[0]], str) and first.startswith("\n"):
        found[own[0] : own[0] + 1] = [EscapedCharacter("\n"), first[1:]]
    return [piece for piece in found if piece]


def body_of(turns: Sequence[Sequence[TurnPiece]], slots: Sequence[str]) -> str:
    """Render turns as a template."""
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
    """Append underscores to a name until no string in ``taken`` contains the name."""
    texts = [*taken]
    while any(name in text for text in texts):
        name += "_"
    return name


def is_input(name: str) -> bool:
    """Return True if a name is a valid Jinja variable name and can therefore be an input's name."""
    try:
        return JinjaTemplate(f"{{{{ {name} }}}}").slots == (name,)
    except TemplateError:
        return False


def check_references(value: Json, where: str) -> None:
    """Raise an error if text contains a reference that a prompt file would resolve.

    Args:
        value: The value to check.
        where: The field's name in error messages.

    Raises:
        FormatError: A string in the value contains a reference, such as ``${env:NAME}``.
    """
    if isinstance(value, str) and (found := _REFERENCE.search(value)):
        raise FormatError(
            f"{where} contains {found[0]}…, which would be resolved as a reference when the prompt file is loaded; "
            "change or remove this text"
        )
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_references(item, where)
