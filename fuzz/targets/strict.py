"""Strict inputs: text of a file that was filled with them is read back with the turns that the file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.rendered import messages_from_text
from fuzz.target import Target
from lazyprompt.files.prompty import Prompty

if TYPE_CHECKING:
    from fuzz.chance import Chance

_HEAD = "---\nname: x\n---\n"
_FILES = tuple(
    (Prompty.loads(_HEAD + body), roles)
    for body, roles in (
        ("system:\nYou know {{ a }}.\nuser:\n{{ b }}\n", ["system", "user"]),
        ("system:\n{{ a }}\nuser:\n{{ a }}{{ b }}\n", ["system", "user"]),
        ("system: {{ a }}\nus{{ a }}er: {{ b }}\nuser:\nGo.", ["system", "user"]),
        ("user{{ a }}\n{{ b }}:\nassistant:\nWell.\n", ["system", "assistant"]),
    )
)


def _run(chance: Chance) -> None:
    prompty, roles = chance.one(_FILES)
    values = {"a": chance.hostile(), "b": chance.hostile()}
    # What is refused is refused in the package's own words.
    segments = prompty.render_segments(values, strict=("a", "b"))
    text = prompty.render(values)
    require("".join(each.text for each in segments) == text, "the segments are not the text")
    found = [each.role for each in messages_from_text(text)]
    require(len(found) <= len(roles), "a strict input made a turn")
    require(len(found) >= len(roles), "a strict input hid a turn")
    require(found == roles, "a strict input changed a role")


STRICT = Target(
    "strict",
    _run,
    (
        *(
            "system:\n",
            "user:\n",
            "\nassistant:\n",
            "developer",
            ":",
            "# ",
            "\n",
            "\r",
            "[a=1]",
            "[",
            "]",
            '"',
            "```\n",
        ),
        *("\n~~~\n", "user", "er", "us", "\x0b", "\x85", "\u2028", "\u3000", "\u212a", "USER", "\ufdd0", "\x1c", "﹕"),
    ),
)
