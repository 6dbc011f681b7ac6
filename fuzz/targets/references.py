"""References of a front matter: they lead to files inside, and to nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.sandbox import OUTSIDE, directory
from fuzz.target import Target
from lazyprompt.files.includes import expand_includes
from lazyprompt.files.references import References
from lazyprompt.files.yaml_nodes import SourceText, YamlReader, plain

if TYPE_CHECKING:
    from fuzz.chance import Chance


def _run(chance: Chance) -> None:
    text = chance.text()
    base = directory()
    roots = (base / "sub",) if chance.flag() else ()
    references = References(base, roots, {"a": chance.json(), "b": "${file:../secret.txt}"}, {"A": chance.text()})
    if chance.flag():
        _path(references, text)
        return
    source = SourceText(text, "<fuzz>")
    if chance.flag():
        engine = chance.one(("jinja2", "mustache"))
        require(OUTSIDE not in expand_includes(text, engine, references, source, 0).text, "a file outside was included")
        return
    read = YamlReader(source).read()
    if read is None or not isinstance(read.value, dict):
        return
    before = plain(read)
    found = {name: plain(node) for name, node in references.resolve(read.value, source).items()}
    require(OUTSIDE not in repr(found), "a file outside was read")
    require(plain(read) == before, "what was read was changed")
    if "${" not in text:
        require(found == before, "a text without references was changed")


def _path(references: References, given: str) -> None:
    """A path on its own: a ValueError is how it says no."""
    try:
        path = references.path_of(given)
    except ValueError:
        return
    base = directory().resolve()
    require(path.is_relative_to(base), f"{given!r} leads out, to {path}")
    require(os.path.realpath(path) == str(path), f"{given!r} leads on over a link, to {path}")


REFERENCES = Target(
    "references",
    _run,
    (
        *(
            "a: ${file:tone.md}",
            "b: ${file:more.yaml}",
            "${file:more.json}",
            "${file:round.yaml}",
            "${env:A}",
            "${env:",
        ),
        *("${params:a}", "${params:b}", "${file:../secret.txt}", "../", "/", "..", "sub/user.md", "link.txt", "up/"),
        *("itself", "./", "//", "secret.txt", "../in-beside/secret.txt", "a: &x [1]\n", "b: *x\n", "\n", "  ", "- "),
        *('{% include "tone.md" %}', '{% include "../secret.txt" %}', "{{> tone}}", "{{>sub/user}}", "%2e%2e/", "\\"),
    ),
)
