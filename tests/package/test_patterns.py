"""Regular expressions that every supported Python matches alike."""

from __future__ import annotations

import re
from pathlib import Path

import lazyprompt

PACKAGE = Path(lazyprompt.__file__).parent
_POSSESSIVE_GROUP = re.compile(r"(?<!\()\)(?:[*+?]|\{[0-9,]+\})\+")


def test_no_group_is_repeated_possessively() -> None:
    """Python 3.11.0 to 3.11.4 match ``(?:a|b)*+`` wrongly (CPython issue 106052): `{% include %}` was not found."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _POSSESSIVE_GROUP.search(line)
    ]
    assert found == []
