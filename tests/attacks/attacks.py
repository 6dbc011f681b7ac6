"""The corpus: texts that try to forge structure of a prompt, and honest texts that must stay unchanged.

The fields are explained at the top of each JSON file.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

Forged: TypeAlias = Literal[
    "turn", "role", "slot", "tool", "special", "header", "history", "speaker", "section", "template", "screen"
]
FORGED: tuple[Forged, ...] = get_args(Forged)

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Attack:
    """A text that tries to forge structure of a prompt."""

    id: str  # its group, and what is special about it
    group: str
    forges: Forged
    values: tuple[str, ...]  # to put side by side: mostly one, two where the text is split
    before: str = ""  # the developer's text before the values
    behind: str = ""  # the developer's text after the values
    place: str = ""  # the model family or custom format that it was written for; empty for any

    @property
    def text(self) -> str:
        """The values as one."""
        return "".join(self.values)


@dataclass(frozen=True, slots=True)
class Honest:
    """An ordinary text, which must stay unchanged."""

    id: str  # its kind, and what is special about it
    kind: str
    text: str


@lru_cache(maxsize=1)
def attacks() -> tuple[Attack, ...]:
    """The attacks, in the order of the file."""
    return tuple(map(_attack, _read("corpus.json", "attacks")))


@lru_cache(maxsize=1)
def honest() -> tuple[Honest, ...]:
    """The honest texts, in the order of the file."""
    return tuple(Honest(**each) for each in _read("honest.json", "texts"))


def _read(name: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((_HERE / name).read_text(encoding="utf-8"))[key]
    return found


def _attack(fields: dict[str, Any]) -> Attack:
    before, _, behind = fields.get("template", "{value}").partition("{value}")
    kind = fields["id"], fields["group"], fields["forges"]
    return Attack(*kind, _values(fields), before, behind, fields.get("in", ""))


def _values(fields: dict[str, Any]) -> tuple[str, ...]:
    if "parts" in fields:
        return tuple(fields["parts"])
    if "repeat" in fields:
        return ("".join(piece * times for piece, times in fields["repeat"]),)
    return (fields["value"] if "template" in fields else fields["text"],)
