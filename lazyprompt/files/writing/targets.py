"""The forms that prompt files are written in, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.writing.conversion import Converted, Original
from lazyprompt.files.writing.to_dialects import to_agentschema, to_v2
from lazyprompt.files.writing.to_dotprompt import to_dotprompt
from lazyprompt.files.writing.to_langchain import to_langchain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.files.prompt_source import PromptSource

TARGETS: Final[Mapping[str, Callable[[Original], Converted]]] = {
    "v2": to_v2,
    "agentschema": to_agentschema,
    "dotprompt": to_dotprompt,
    "langchain-json": to_langchain,
}
"""The forms, by their names."""


def converted(prompty: PromptSource, to: str) -> Converted:
    """Write a prompt file in another form; see :func:`lazyprompt.convert`.

    Raises:
        FormatError: There is no such form; or the template says what it has no words for: the message names the line.
    """
    if to not in TARGETS:
        raise FormatError(f"there is no form {to!r}{did_you_mean(to, TARGETS)}; there are {', '.join(TARGETS)}")
    if to == prompty.dialect:
        return Converted(prompty.text)
    return TARGETS[to](Original(prompty))


def converted_whole(prompty: PromptSource, to: str) -> str:
    """The text of :func:`lazyprompt.convert`, where the form says all of it.

    Args:
        prompty: The prompt file.
        to: The form.

    Raises:
        FormatError: As of :func:`lazyprompt.convert`; or the form cannot say all of it. What was read otherwise than it
            is written does not count: :attr:`Prompty.notes` tells of that.
    """
    made = converted(prompty, to)
    read = {*map(str, prompty.notes)}
    if lost := [note for note in made.notes if note not in read]:
        raise FormatError(f"{to} cannot say all of it, and convert() gives the rest: {'; '.join(lost)}")
    return made.text
