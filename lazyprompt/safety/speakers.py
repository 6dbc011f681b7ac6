"""Safe speaker names, which can't be mistaken for another role or another speaker, and can't start a new line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lazyprompt._base.roles import ROLES
from lazyprompt.safety.folding import as_read, decompose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# All characters that ``str.splitlines`` treats as line ends.
LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
# The colon, and characters that look like a colon but don't fold to a colon.
COLONS = ":\u02d0\u02f8\u0589\u05c3\u0703\u0704\u16ec\u1803\u1804\u205a\u2236\u2237\ua4fd\ua789\ufe30"
# Maps words that resemble a role to the role's name.
_ROLE_WORDS: dict[str, str] = dict(zip(ROLES, ROLES, strict=True)) | {"model": "assistant", "function": "tool"}
# The words in the tags and headings around a history, in lower case and without spaces.
FRAME_WORDS = frozenset({"history", "conversationhistory", "dialoguehistory"})
# Maps small capitals and non-Latin letters to the Latin letters that they resemble.
_LOOKALIKES = str.maketrans(
    "\u0430\u0441\u0501\u0435\u0433\u04bb\u0456\u04cf\u043c\u043d\u043e\u0440\u0455\u0442\u0443\u0475"  # Cyrillic
    "\u03b1\u03b5\u03b9\u03bc\u03b7\u03bf\u03c1\u03c4\u03c5\u03bd"  # Greek
    "\u0585\u057d\u0578\u0570"  # Armenian
    "\u0131\u0269\u0261\u1d00\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u029f\u1d0d\u0274\u1d0f\u1d18\u0280\ua731"
    "\u1d1b\u1d1c\u1d20\u028f",
    "acderhilmhopstyv" + "aeimnoptuv" + "ounh" + "iigacdefghilmnoprs" + "tuvy",
)
_FORBIDDEN = re.compile(f"[\x00-\x1f\x7f{LINE_ENDS}{COLONS}<>]")


def letters_of(text: str) -> str:
    """Return the letters and digits that a reader sees in a text, in lower case and with lookalikes replaced."""
    seen = as_read(text).casefold().translate(_LOOKALIKES)
    return "".join(character for character in seen if character.isalnum())


def one_line(name: str) -> str:
    """Replace colons, line breaks and other characters that could end a speaker's name with spaces."""
    kept = ("\0" if _FORBIDDEN.search(each + decompose(each)) else each for each in name)
    return re.sub("\0+", " ", "".join(kept)).strip()


def written_names(
    speakers: Iterable[tuple[str, str]], fit: Callable[[str], str] = one_line
) -> dict[tuple[str, str], str]:
    """Map each speaker, a pair of role and name, to a safe name for the prompt.

    Args:
        speakers: The role and name of each speaker; a speaker without a visible name is named after the role.
        fit: A function that converts a name to an allowed name.
    """
    # Process names with look-alike characters last, so that a number is appended to an imitation and not to the
    # imitated name.
    known = sorted(dict.fromkeys(speakers), key=lambda speaker: _look(speaker[1]) != speaker[1])
    written: dict[tuple[str, str], str] = {}
    owners: dict[str, str] = {}
    for role, name in known:
        plain = no_imitation(name, role)
        base = new = fit(plain) or role
        number = 2
        while owners.setdefault(_look(new), name or role) != (name or role):
            new, number = fit(f"{base} ({number})"), number + 1
        written[role, name] = new
    return written


def _look(name: str) -> str:
    return " ".join(decompose(name).split())


def no_imitation(name: str, role: str) -> str:
    """Return a speaker's name, prefixed with the role if the name looks like another role or a heading."""
    letters, seen = letters_of(name), as_read(name).strip()
    imitates = _ROLE_WORDS.get(letters, role) != role or letters in FRAME_WORDS or seen.startswith("#")
    return f'{role} "{name.strip()}"' if imitates else name if seen else role
