"""Recorded renders of models' own chat templates, with which quick tests compare.

The templates carry their models' licences, so they are not part of this repository. The file
``tests/golden/template_renders.json`` holds what each of them rendered, with its package, version and name, and the
messages and variables it was given. A slow test renders all of it again. When a test needs a new one, record again::

    python tests/support/record_renders.py
"""

import json
from functools import lru_cache
from typing import Any, TypeAlias, TypedDict

from support.paths import GOLDEN

FILE = GOLDEN / "template_renders.json"
Key: TypeAlias = tuple[str, str, str]
"""The package and the name of a template, and the JSON of what it is given."""


class Render(TypedDict):
    """One recorded render.

    Attributes:
        package: The package that carries the template, as :data:`support.real_templates.PACKAGES` names it.
        version: The package and its version, as its index knows it.
        template: The template's name in the package.
        given: The index in ``inputs`` of what it was given.
        text: The text it rendered.
    """

    package: str
    version: str
    template: str
    given: int
    text: str


def recorded_render(package: str, template: str, given: dict[str, Any]) -> str:
    """Return the recorded result of `support.real_templates.render`; raise a KeyError if there is none."""
    key = package, template, json.dumps(given, ensure_ascii=False)
    if key not in _texts():
        raise KeyError(f"{package} {template}: not recorded; run python tests/support/record_renders.py: {key[2]}")
    return _texts()[key]


@lru_cache(maxsize=1)
def read_renders() -> tuple[list[dict[str, Any]], list[Render]]:
    """Return the recorded inputs and renders."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return content["inputs"], content["renders"]


@lru_cache(maxsize=1)
def _texts() -> dict[Key, str]:
    inputs, renders = read_renders()
    keys = [json.dumps(given, ensure_ascii=False) for given in inputs]
    return {(each["package"], each["template"], keys[each["given"]]): each["text"] for each in renders}


def write_renders(found: dict[Key, tuple[str, str]]) -> None:
    """Write the recorded renders.

    Args:
        found: By its key, the package's version and the text of each.
    """
    inputs = sorted({given for _, _, given in found})
    renders = [
        {"package": package, "version": version, "template": template, "given": inputs.index(given), "text": text}
        for (package, template, given), (version, text) in sorted(found.items())
    ]
    lines = {
        name: ",\n".join(json.dumps(each, ensure_ascii=False) for each in items)
        for name, items in (("inputs", map(json.loads, inputs)), ("renders", renders))
    }
    FILE.write_text(
        f'{{"inputs": [\n{lines["inputs"]}\n],\n"renders": [\n{lines["renders"]}\n]}}\n', encoding="utf-8", newline="\n"
    )
