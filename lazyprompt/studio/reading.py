"""The text of an editor as a prompter, read as its file would be."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt._base.secret import SecretText
from lazyprompt.errors import FormatError
from lazyprompt.files.library.names import YAML_SUFFIXES
from lazyprompt.files.library.prompt_diff import outline_of, outline_of_yaml
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.properties import Property
from lazyprompt.files.references import References
from lazyprompt.files.targets import target_of
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.prompters.kinds import ChatPrompter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.library.layers import Trace
    from lazyprompt.files.library.prompt_diff import Outline
    from lazyprompt.prompters.prompter import Prompter

_EMPTY: Final[Mapping[str, Json]] = {"string": "", "array": [], "object": {}, "thread": []}


class Draft(NamedTuple):
    """A text that was read.

    Attributes:
        file: What it was read as.
        prompter: Its prompter.
        inputs: What it takes: what it declares, and what its template names besides.
    """

    file: Prompty | PromptFile
    prompter: Prompter
    inputs: tuple[Property, ...]

    @property
    def form(self) -> tuple[str | None, str | None]:
        """The form of the file's own provider, and its model there; None and None where it names no provider."""
        model = self.file.model if isinstance(self.file, Prompty) else {}
        provider, api, name = (_unsecret(model.get(key)) for key in ("provider", "apiType", "id"))
        if not isinstance(provider, str):
            return None, None
        try:
            form = target_of(provider, api if isinstance(api, str) else None).profile
        except FormatError:
            form = provider
        return (form, str(name or "") or None) if form in PROVIDERS else (None, None)

    def outline(self, text: str, name: str) -> Outline:
        """Return the parts of it that are compared.

        Args:
            text: The text.
            name: How errors call it.
        """
        return outline_of(self.file) if isinstance(self.file, Prompty) else outline_of_yaml(text, name, self.file)


def read_draft(place: Path, path: str, text: str, references: References, trace: Trace) -> Draft:
    """Read a text as its file would be read.

    Args:
        place: The file, which need not hold that text.
        path: Its path in the workspace, for errors.
        text: The text.
        references: The directories and values that files may refer to.
        trace: Notes the files that the text includes.

    Raises:
        PromptFileError: The text is no prompt file.
    """
    if place.suffix.lower() in YAML_SUFFIXES:
        file = PromptFile.loads(text, path)
        return Draft(file, file.prompter, _slots_of(file.prompter))
    near = References(place.parent, references.roots, references.params, layers=references.layers, trace=trace)
    prompt = Prompty.of_file(Path(path), near, text=text)
    inputs = {each.name: each for each in prompt.inputs}
    for name in prompt.slots:
        inputs.setdefault(name, Property(name, required=True))
    return Draft(prompt, prompt.prompter, tuple(inputs.values()))


def _slots_of(prompter: Prompter) -> tuple[Property, ...]:
    """The slots of a prompter, and what the user says."""
    slots = {name: Property(name, required=True) for name in prompter.slots}
    if isinstance(prompter, ChatPrompter):
        slots.setdefault("input", Property("input"))
    return tuple(slots.values())


def describe_input(each: Property) -> JsonObject:
    """Return an input's description for the page.

    Args:
        each: The input.

    Returns:
        ``name``, ``kind``, ``required``, ``default``, ``sample``, ``description`` and ``enum``. Of what comes from the
        environment it has the reference, as the file is written.
    """
    return {
        "name": each.name,
        "kind": each.kind,
        "required": each.required,
        "default": _unsecret(each.default),
        "sample": _unsecret(each.example),
        "description": each.description,
        "enum": [*each.enum_values],
    }


def first_values(inputs: tuple[Property, ...]) -> JsonObject:
    """The values that a page begins with: of each input its sample, or its default; else an empty one where it must be.

    Args:
        inputs: The inputs.

    Returns:
        The values by their names. What comes from the environment is left out: it stays what it is where nothing is
        given.
    """
    values: JsonObject = {}
    for each in inputs:
        value = next((one for one in (each.example, each.default) if one is not None), _empty(each))
        if value is not None and not _has_secret(value):
            values[each.name] = value
    return values


def _empty(each: Property) -> Json:
    """Return the first value for an input of which nothing is known."""
    if not each.required:
        return None
    return each.enum_values[0] if each.enum_values else deepcopy(_EMPTY.get(each.kind))


def _has_secret(value: Json) -> bool:
    return json.dumps(value) != json.dumps(_unsecret(value))


def _unsecret(value: Json) -> Json:
    """A value with references in the place of secrets."""
    if isinstance(value, list):
        return [*map(_unsecret, value)]
    if isinstance(value, dict):
        return {name: _unsecret(item) for name, item in value.items()}
    return value.reference if isinstance(value, SecretText) else cast("Json", value)
