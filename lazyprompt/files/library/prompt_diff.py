"""The differences between two prompts in a library: inputs, outputs, tools, settings and sections."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

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
_NOT_SETTINGS: Final = (*_NAMED, "instructions", "kind")
GROUPS: Final = (*_NAMED, "settings", "sections")
"""The groups of parts that a diff compares."""
Outline: TypeAlias = "Mapping[str, Sequence[Part]]"
"""The parts of a prompt, by group."""
# Connection settings may contain API keys, so a diff omits their values.
_HIDDEN = "model.connection"


@read_only
@dataclass(frozen=True, slots=True)
class PromptDiff:
    """The differences between two prompts. A diff is falsy if the prompts are equal.

    Args:
        a: The name of the first prompt.
        b: The name of the second prompt.
        inputs: The inputs that changed.
        outputs: The outputs that changed.
        tools: The tools that changed.
        settings: The changes to all other fields, such as the name, the model and the model options.
        sections: The template sections that changed.
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
        """Return the differences as a JSON-serializable dict; each change has ``name``, ``state`` and ``lines``."""
        groups: JsonObject = {
            group: [{"name": each.name, "state": each.state, "lines": [*each.lines]} for each in changes]
            for group, changes in self._groups()
        }
        return {"a": self.a, "b": self.b, **groups}

    def _groups(self) -> list[tuple[str, tuple[Change, ...]]]:
        return [
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("tools", self.tools),
            ("settings", self.settings),
            ("sections", self.sections),
        ]

    def __str__(self) -> str:
        if not self:
            return f"{self.a} and {self.b} are equal"
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
    """Flatten nested mappings to dotted names, and leave lists unchanged."""
    found: dict[str, Json] = {}
    for name, item in value.items():
        path = f"{before}{name}"
        found |= _flatten(item, f"{path}.") if isinstance(item, dict) and item else {path: item}
    return found


def _named_part(item: JsonObject) -> Part:
    """Convert an input, output or tool to a :class:`Part` of a diff, with one line of text per field."""
    fields = (f"{key}: {_to_text(value)}" for key, value in _flatten(item).items() if key != "name")
    return Part(str(item["name"]), "\n".join(fields))


def _settings(fields: Mapping[str, Json]) -> list[Part]:
    return [Part(name, _to_text(value)) for name, value in _flatten(fields).items()]


def _to_text(value: Json) -> str:
    return "none" if value is None else json.dumps(shown(value), ensure_ascii=False)


def outline_of(prompt: Prompty) -> Outline:
    """Return the parts of a prompt that a diff compares."""
    fields = {name: value for name, value in prompt.to_dict().items() if name not in _NOT_SETTINGS}
    return {
        "inputs": [_named_part(each.to_dict()) for each in prompt.inputs],
        "outputs": [_named_part(each.to_dict()) for each in prompt.outputs],
        "tools": [_named_part(each.to_dict()) for each in prompt.tools],
        "settings": _settings({"dialect": prompt.dialect, **fields}),
        "sections": _parts(prompt),
    }


def _parts(prompt: Prompty) -> list[Part]:
    """Return the sections of the unfilled template."""
    return [
        Part(
            (each.role or "text") + (json.dumps(shown(each.attributes), ensure_ascii=False) if each.attributes else ""),
            "".join(each.parts).strip("\n"),
        )
        for each in sections([prompt.instructions], dialect_named(prompt.dialect).roles)
    ]


def yaml_fields(text: str, name: str) -> JsonObject:
    """Return the fields of a YAML prompt file."""
    node = YamlReader(SourceText(text, name)).read()
    return {} if node is None else {field: plain(item) for field, item in node.fields.items()}


_TEXTS: Final = ("instruction", "system")


def outline_of_yaml(text: str, name: str, prompt: PromptFile) -> Outline:
    """Return the parts of a YAML prompt file for a diff: its texts as sections, and its slots as inputs.

    Args:
        text: The text of the file.
        name: The file's name in error messages.
        prompt: The loaded prompt file.

    Raises:
        PromptFileError: The file is invalid.
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
