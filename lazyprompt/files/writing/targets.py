"""Conversion of prompt files to Prompty v2 and to agent definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.dialects.agentschema import AGENT_ROLES
from lazyprompt.files.roles import ROLES, Scanned, role_lines
from lazyprompt.files.spec import Note, Translated
from lazyprompt.files.writing.conversion import MEDIUM, Converted, Original, medium_in
from lazyprompt.files.yaml_nodes import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.files.loaded_prompty import LoadedPrompty

_RENAMED: Final = {"inputs": "inputSchema", "outputs": "outputSchema"}


def write_dialect(prompty: LoadedPrompty, to: str) -> Converted:
    """Convert a prompt file to another dialect; see :func:`lazyprompt.convert`.

    Raises:
        FormatError: The dialect is unknown or can't express the file.
    """
    if to not in TARGETS:
        raise FormatError(f"cannot convert to {to!r}{did_you_mean(to, TARGETS)}; expected one of {', '.join(TARGETS)}")
    if to == prompty.dialect:
        return Converted(prompty.text)
    return TARGETS[to](Original(prompty))


def _to_v2(original: Original) -> Converted:
    made = original.as_v2
    # Remove the blank lines that replaced ``tools`` sections at the start of the body.
    body = made.body if made.body == original.parts.body else made.body.lstrip("\n")
    return _rewrite(original, _values(made), body, made.notes)


def _to_agentschema(original: Original) -> Converted:
    given, dialect = original.in_v2, original.prompty.dialect
    body = given.body
    notes = [*given.notes]
    # In Prompty v1, sections with the role ``function`` contain tool results.
    known = (*ROLES, "function") if dialect == "v1" else ROLES
    for match in role_lines(Scanned([body]), AGENT_ROLES):
        if match["role"].lower() not in known:
            what = (
                f"{match[0].strip()!r} is text in this file, but would begin a section in an agent definition; add "
                "other text to the line"
            )
            raise original.fault(body, match.start(), what)
    if dialect == "v1":
        # Agent definitions require the label ``image`` for an image, but Prompty v1 allows any label.
        body = MEDIUM.sub(lambda match: f"![image]({match[2]})" if medium_in(match, "v1") else match[0], body)
    else:
        notes += [
            Note(*original.place(body, match.start()), f"{match[0]} was text, and becomes a medium")
            for match in MEDIUM.finditer(body)
            if medium_in(match, "agentschema")
        ]
    fields = _values(given)
    renamed: dict[str, Json] = {
        _RENAMED.get(name, name): {"properties": fields[name]} if name in _RENAMED else fields[name] for name in fields
    }
    return _rewrite(original, renamed, body, notes)


def _values(given: Translated) -> dict[str, Json]:
    return {name: plain(node) for name, node in given.fields.items()}


def _rewrite(original: Original, fields: dict[str, Json], body: str, notes: Iterable[Note]) -> Converted:
    return Converted(original.rewrite(fields, body), tuple(map(str, notes)))


TARGETS: Final[Mapping[str, Callable[[Original], Converted]]] = {
    "v2": _to_v2,
    "agentschema": _to_agentschema,
}
"""The functions that convert a file, by dialect."""
