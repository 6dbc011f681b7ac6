"""YAML in a filled template: its structure is the template's own, and values are text within it, whatever they hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from lazyprompt.errors import PromptFileError
from lazyprompt.files.yaml_nodes import Reader, Source, plain
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json


def slotted_yaml(parts: Sequence[str], name: str) -> Json:
    """Read YAML.

    Args:
        parts: The template's own text, and values.
        name: How errors call it.

    Returns:
        What it says. A value is text in its place: it adds no key, no item and no line.

    Raises:
        PromptFileError: It is no YAML, or a value stands in the place of a key.
    """
    own = "".join(part for part in parts if not isinstance(part, Value))
    # A word that is not in the text stands for each value, and is text wherever it stands.
    word = "slot"
    while word in own:
        word += "s"
    values: dict[str, str] = {}
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, Value):
            sign = f"{word}{len(values)}x"
            values[sign] = part
            pieces.append(sign)
        else:
            pieces.append(part)
    node = Reader(Source("".join(pieces), name)).read()
    read = None if node is None else cast("Json", plain(node))
    return _filled(read, re.compile(rf"{word}\d+x"), values, name)


def _filled(value: Json, sign: re.Pattern[str], values: Mapping[str, str], name: str) -> Json:
    if isinstance(value, str):
        return sign.sub(lambda match: values[match[0]], value)
    if isinstance(value, list):
        return [_filled(item, sign, values, name) for item in value]
    if isinstance(value, dict):
        for key in value:
            if sign.search(key):
                raise PromptFileError(f"{name}: a value stands in the place of a key; keys are the template's own")
        return {key: _filled(item, sign, values, name) for key, item in value.items()}
    return value
