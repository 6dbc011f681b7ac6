"""All targets, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuzz.targets.answers import ANSWERS
from fuzz.targets.cases import CASES
from fuzz.targets.chat import CHAT
from fuzz.targets.formatters import FORMATTERS
from fuzz.targets.from_text import FROM_TEXT
from fuzz.targets.journals import JOURNALS
from fuzz.targets.lossy import LOSSY
from fuzz.targets.prompter import PROMPTER
from fuzz.targets.prompty import PROMPTY
from fuzz.targets.references import REFERENCES
from fuzz.targets.roles import ROLES
from fuzz.targets.served import SERVED
from fuzz.targets.slots import SLOTS
from fuzz.targets.strict import STRICT
from fuzz.targets.templates import JINJA, MUSTACHE
from fuzz.targets.tokenizers import TOKENIZERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    each.name: each
    for each in (
        *(SLOTS, ROLES, FROM_TEXT, STRICT, REFERENCES, PROMPTY, CASES, JINJA, MUSTACHE),
        *(ANSWERS, SERVED, FORMATTERS, CHAT, LOSSY, PROMPTER, JOURNALS, TOKENIZERS),
    )
}
"""The targets."""
