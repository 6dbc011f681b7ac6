"""The difference of two prompts of a library: inputs, outputs, tools, settings and sections of the template."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from lazyprompt._base.difference import Change, Part, State, compare
from lazyprompt._base.frozen import read_only
from lazyprompt._base.secret import shown
from lazyprompt.files.dialects.dialects import dialect_named
from lazyprompt.files.roles import sections
from lazyprompt.files.yaml_nodes import SourceText, YamlReader, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.prompt_file import PromptFile
    from lazyprompt.files.prompty import Prompty

_SIGNS: Final[Mapping[State, str]] = {"added": "+", "removed": "-", "changed": "~"}
_NAMED: Final = ("inputs", "outputs", "tools")
GROUPS: Final = (*_NAMED, "settings", "sections")
"""The kinds of parts that a diff compares."""
Outline: TypeAlias = "Mapping[str, Sequence[Part]]"
"""The parts of a prompt, by their kind."""
# It may hold keys: a diff shows that it differs, but not how.
_HIDDEN = "model.connection"


@read_only
@dataclass(frozen=True, slots=True)
class PromptDiff:
    """The differences of two prompts; true where there are any.

    Args:
        a: The name of the one.
        b: The name of the other.
        inputs: Their inputs.
        outputs: Their outputs.
        tools: Their tools.
        settings: Name, model, options and all other fields.
        sections: The sections of their templates.
    """

    a: str
    b: str
    inputs: tuple[Change, ...] = ()
    outputs: tuple[Change, ...] = ()
    tools: tuple[Change, ...] = ()
    settings: tuple[Change, ...] = ()
    sections: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return any(changes for _, changes in self._groups())

    def to_dict(self) -> JsonObject:
        """Return the differences as JSON: of each change ``name``, ``state`` and ``lines``."""
        groups: JsonObject = {
            group: [{"name": each.name, "state": each.state, "lines": [*each.lines]} for each in changes]
            for group, changes in self._groups()
        }
        return {"a": self.a, "b": self.b, **groups}

    def _groups(self) -> list[tuple[str, tuple[Change, ...]]]:
        return [(group, cast("tuple[Change, ...]", getattr(self, group))) for group in GROUPS]

    def __str__(self) -> str:
        if not self:
            return f"{self.a} and {self.b} say the same"
        lines = [f"{self.a} → {self.b}"]
        for group, changes in self._groups():
            lines += [group] if changes else []
            for each in changes:
                lines += [f"  {_SIGNS[each.state]} {each.name}", *(f"      {line}".rstrip() for line in each.lines)]
        return "\n".join(lines)


def diff_of(a: str, b: str, before: Outline, after: Outline) -> PromptDiff:
    """Compare two prompts.

    Args:
        a: The name of the first prompt.
        b: The name of the second prompt.
        before: The parts of the first prompt.
        after: The parts of the second prompt.
    """
    found = {group: compare(before[group], after[group]) for group in GROUPS}
    found["settings"] = tuple(
        each._replace(before="", after="") if f"{each.name}.".startswith(f"{_HIDDEN}.") else each
        for each in found["settings"]
    )
    return PromptDiff(a, b, **found)


def _flatten(value: Mapping[str, Json], before: str = "") -> dict[str, Json]:
    """Return a mapping with paths as its names; lists stay whole."""
    found: dict[str, Json] = {}
    for name, item in value.items():
        path = f"{before}{name}"
        found |= _flatten(item, f"{path}.") if isinstance(item, dict) and item else {path: item}
    return found


def _named_part(item: JsonObject) -> Part:
    """Return an input, an output or a tool, with a line for each field."""
    fields = (f"{key}: {_to_text(value)}" for key, value in _flatten(item).items() if key != "name")
    return Part(str(item["name"]), "\n".join(fields))


def _settings(fields: Mapping[str, Json]) -> list[Part]:
    return [Part(name, _to_text(value)) for name, value in _flatten(fields).items()]


def _to_text(value: Json) -> str:
    return "none" if value is None else json.dumps(shown(value), ensure_ascii=False)


def outline_of(prompt: Prompty) -> Outline:
    """Return the parts of a prompt that a diff compares."""
    fields = prompt.to_dict()
    named = {word: [*map(_named_part, cast("list[JsonObject]", fields.pop(word, None) or []))] for word in _NAMED}
    fields.pop("instructions", None)
    fields.pop("kind", None)
    return {**named, "settings": _settings({"dialect": prompt.dialect, **fields}), "sections": _parts(prompt)}


def _parts(prompt: Prompty) -> list[Part]:
    """Return the sections of a template as it is written."""
    return [
        Part(
            (each.role or "text") + (json.dumps(shown(each.attributes), ensure_ascii=False) if each.attributes else ""),
            "".join(each.parts).strip("\n"),
        )
        for each in sections([prompt.instructions], dialect_named(prompt.dialect).roles)
    ]


def yaml_fields(text: str, name: str) -> JsonObject:
    """Return the fields of a YAML prompt file."""
    return cast("JsonObject", plain(YamlReader(SourceText(text, name)).read()) or {})


_TEXTS: Final = ("instruction", "system")


def outline_of_yaml(text: str, name: str, prompt: PromptFile) -> Outline:
    """Return the parts of a YAML prompt file that a diff compares: its texts are sections, its slots inputs.

    Args:
        text: Its text.
        name: Its name in errors.
        prompt: The file as it was read.

    Raises:
        PromptFileError: It is wrong.
    """
    fields = yaml_fields(text, name)
    texts = _flatten({name: fields.pop(name) for name in _TEXTS if name in fields})
    return {
        "inputs": [Part(name, "") for name in prompt.prompter.slots],
        "outputs": [],
        "tools": [],
        "settings": _settings({"dialect": "yaml", **fields}),
        "sections": [Part(name, str(text).strip("\n")) for name, text in texts.items()],
    }
