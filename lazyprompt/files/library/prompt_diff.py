"""The differences of two prompts: inputs, tools, settings and sections by their names, and lines within sections."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher, unified_diff
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast

from lazyprompt._base.frozen import read_only
from lazyprompt.files.dialects.dialects import dialect_named
from lazyprompt.files.roles import sections
from lazyprompt.files.yaml_nodes import Reader, Source, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.prompt_file import PromptFile
    from lazyprompt.files.prompty import Prompty

How: TypeAlias = Literal["added", "removed", "changed"]
_SIGNS: Final[Mapping[How, str]] = {"added": "+", "removed": "-", "changed": "~"}
_NAMED: Final = ("inputs", "outputs", "tools")
_CONTEXT = 2
# Keys may stand here: a diff says that they differ, and not how.
_HIDDEN = "model.connection"


class Part(NamedTuple):
    """A section of a template.

    Attributes:
        name: Its role, with its attributes.
        text: The text.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The parts of a prompt that a diff compares.

    Args:
        named: Inputs, outputs and tools, by these words and their names.
        settings: All other fields, by their paths.
        parts: The sections of its template.
    """

    named: Mapping[str, Mapping[str, JsonObject]]
    settings: Mapping[str, Json]
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that differs.

    Args:
        how: ``added``, ``removed`` or ``changed``.
        name: Its name.
        details: The differences, line by line.
    """

    how: How
    name: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"  {_SIGNS[self.how]} {self.name}", *(f"      {line}".rstrip() for line in self.details)])


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
        """Return the differences as JSON."""
        return cast("JsonObject", json.loads(json.dumps(asdict(self))))

    def _groups(self) -> list[tuple[str, tuple[Change, ...]]]:
        names = (*_NAMED, "settings", "sections")
        return [(name, cast("tuple[Change, ...]", getattr(self, name))) for name in names]

    def __str__(self) -> str:
        if not self:
            return f"{self.a} and {self.b} say the same"
        groups = ["\n".join([name, *map(str, changes)]) for name, changes in self._groups() if changes]
        return "\n".join([f"{self.a} → {self.b}", *groups])


def compared(a: str, b: str, before: Outline, behind: Outline) -> PromptDiff:
    """Return the differences of two prompts.

    Args:
        a: The name of the one.
        b: The name of the other.
        before: The one.
        behind: The other.
    """
    named = {word: tuple(_named_changes(before.named.get(word, {}), behind.named.get(word, {}))) for word in _NAMED}
    settings, parts = _setting_changes(before.settings, behind.settings), _part_changes(before.parts, behind.parts)
    return PromptDiff(a, b, **named, settings=tuple(settings), sections=tuple(parts))


def _named_changes(before: Mapping[str, JsonObject], behind: Mapping[str, JsonObject]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *behind)):
        old, new = _flat(before.get(name, {})), _flat(behind.get(name, {}))
        if not new:
            yield Change("removed", name)
        elif not old:
            yield Change("added", name, tuple(f"{key}: {_shown(value)}" for key, value in new.items() if key != "name"))
        elif old != new:
            differ = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            lines = [f"{key}: {_shown(old.get(key))} → {_shown(new.get(key))}" for key in differ]
            yield Change("changed", name, tuple(lines))


def _setting_changes(before: Mapping[str, Json], behind: Mapping[str, Json]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *behind)):
        how: How = "added" if name not in before else "removed" if name not in behind else "changed"
        if how != "changed" or before[name] != behind[name]:
            hidden = name == _HIDDEN or name.startswith(f"{_HIDDEN}.")
            values = [
                f"{sign} {_shown(given[name])}" for sign, given in (("-", before), ("+", behind)) if name in given
            ]
            yield Change(how, name, () if hidden else tuple(values))


def _part_changes(before: Sequence[Part], behind: Sequence[Part]) -> Iterator[Change]:
    """Find the differences of sections: equal ones are found first, those between them go by their names."""
    for tag, i, j, k, m in SequenceMatcher(None, before, behind, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        new = [*behind[k:m]]
        for old in before[i:j]:
            its = next((each for each in new if each.name == old.name), None)
            if its is None:
                yield Change("removed", old.name, tuple(_lines(old.text, "")))
                continue
            # Those before it have no counterpart in what is left.
            at = new.index(its)
            yield from (Change("added", each.name, tuple(_lines("", each.text))) for each in new[:at])
            del new[: at + 1]
            if its.text != old.text:
                yield Change("changed", old.name, tuple(_lines(old.text, its.text)))
        yield from (Change("added", each.name, tuple(_lines("", each.text))) for each in new)


def _lines(old: str, new: str) -> list[str]:
    """Return a diff of two texts without its head."""
    return [*unified_diff(old.split("\n") if old else [], new.split("\n") if new else [], lineterm="", n=_CONTEXT)][2:]


def _flat(value: Mapping[str, Json], before: str = "") -> dict[str, Json]:
    """Return a mapping with paths as its names; lists stay whole."""
    found: dict[str, Json] = {}
    for name, item in value.items():
        path = f"{before}{name}"
        found |= _flat(item, f"{path}.") if isinstance(item, dict) and item else {path: item}
    return found


def _shown(value: Json) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def outline_of(prompt: Prompty) -> Outline:
    """Return the parts of a prompt that a diff compares."""
    fields = prompt.to_dict()
    found = {word: cast("list[JsonObject]", fields.pop(word, None) or []) for word in _NAMED}
    named = {word: {str(each["name"]): each for each in items} for word, items in found.items()}
    fields.pop("instructions", None)
    fields.pop("kind", None)
    return Outline(named, {"dialect": prompt.dialect, **_flat(fields)}, _parts(prompt))


def _parts(prompt: Prompty) -> list[Part]:
    """Return the sections of a template as it is written."""
    return [
        Part(
            (each.role or "text") + (json.dumps(each.attributes, ensure_ascii=False) if each.attributes else ""),
            "".join(each.parts).strip("\n"),
        )
        for each in sections([prompt.instructions], dialect_named(prompt.dialect).roles)
    ]


def yaml_fields(text: str, name: str) -> JsonObject:
    """Return the fields of a YAML prompt file."""
    return cast("JsonObject", plain(Reader(Source(text, name)).read()) or {})


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
    inputs: dict[str, JsonObject] = {name: {"name": name} for name in prompt.prompter.slots}
    texts = _flat({name: fields.pop(name) for name in _TEXTS if name in fields})
    parts = [Part(name, str(text).strip("\n")) for name, text in texts.items()]
    return Outline({"inputs": inputs}, {"dialect": "yaml", **_flat(fields)}, parts)
