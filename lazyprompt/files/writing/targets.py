"""The forms that prompt files are written in; here as Prompty v2, and in the dialect of agent definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.dialects.agent_schema import AGENT_ROLES
from lazyprompt.files.dialects.translation import Note
from lazyprompt.files.roles import ROLES, Scanned, role_lines
from lazyprompt.files.writing.conversion import MEDIUM, Converted, Original, medium_in, told
from lazyprompt.files.writing.langchain import to_langchain
from lazyprompt.files.writing.to_dotprompt import to_dotprompt

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.files.prompt_source import PromptSource


_RENAMED: Final = {"inputs": "inputSchema", "outputs": "outputSchema"}
_HANDLEBARS: Final = "the template is Handlebars still, which {} knows only here"


def to_v2(original: Original) -> Converted:
    """A prompt file as Prompty v2.

    Args:
        original: The file.

    Raises:
        FormatError: It has turns of tools, which Prompty v2 has not; the message has the line.
    """
    made = original.as_v2
    # Blank lines are left where the tools before the text were.
    body = made.body if made.body == original.parts.body else made.body.lstrip("\n")
    return _converted(original, told(made.fields), body, made.notes, "Prompty v2")


def to_agentschema(original: Original) -> Converted:
    """A prompt file in the dialect of agent definitions.

    Args:
        original: The file.

    Raises:
        FormatError: A line that is text in it names a role there; the message has the line.
    """
    given, dialect = original.in_v2, original.prompty.dialect
    body = given.body
    notes = list(given.notes)
    # What the tool gave back is a turn in the first version too.
    known = (*ROLES, "function") if dialect == "v1" else ROLES
    for match in role_lines(Scanned([body]), AGENT_ROLES):
        if match["role"].lower() not in known:
            raise original.fault(
                body,
                match.start(),
                f"{match[0].strip()!r} is text in this file, and would begin a section of an agent definition; write "
                "more on the line",
            )
    if dialect == "v1":
        body = MEDIUM.sub(_as_picture, body)
    else:
        notes += [
            Note(*original.place(body, match.start()), f"{match[0]} was text, and is shown there")
            for match in MEDIUM.finditer(body)
            if medium_in(match, "agentschema")
        ]
    fields: dict[str, Json] = {
        _RENAMED.get(name, name): {"properties": value} if name in _RENAMED else value
        for name, value in told(given.fields).items()
    }
    return _converted(original, fields, body, notes, "an agent definition")


def _as_picture(match: re.Match[str]) -> str:
    """A picture of the first version, which has any words in its brackets."""
    return f"![image]({match[2]})" if medium_in(match, "v1") else match[0]


def _converted(original: Original, fields: dict[str, Json], body: str, notes: Iterable[Note], form: str) -> Converted:
    said = [str(note) for note in notes]
    if original.prompty.dialect == "dotprompt":
        said.append(_HANDLEBARS.format(form))
    return Converted(original.rewritten(fields, body), tuple(said))


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
