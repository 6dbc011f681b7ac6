"""Which files of a directory are prompts."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import PromptFileError
from lazyprompt.files.check.subject import YAML_FILES
from lazyprompt.files.prompt_file import TYPES
from lazyprompt.files.yaml_nodes import text_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# How much alike two names are of which one is a typing error.
_ALIKE = 0.85
SUFFIXES: Final = (".prompty", ".prompt", *YAML_FILES)
"""What the names of prompt files end with."""

# Fields that a YAML file has that is meant as a prompt; any other file is left alone.
_OF_PROMPTS = ("instruction", "extra_keys", "examples")
_TOP_FIELD = re.compile(r"""^[{ ]?["']?(\w+)["']?\s*:(?:\s*["']?(\w+))?""", re.MULTILINE)


def prompt_files(directory: Path) -> Iterator[Path]:
    """The prompt files below a directory, in the order of their paths.

    Args:
        directory: The directory. Hidden files and directories in it are passed over, and so are YAML files that are no
            prompts.
    """
    for path in sorted(directory.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if hidden or path.suffix.lower() not in SUFFIXES or not path.is_file():
            continue
        if path.suffix.lower() not in YAML_FILES or _is_prompt(path):
            yield path


def _is_prompt(path: Path) -> bool:
    """Return True if a YAML file is meant as a prompt, by its fields, also where they are misspelt or it is broken."""
    try:
        fields = _TOP_FIELD.findall(text_of_file(str(path)))
    except PromptFileError:
        return False
    return any(
        (name == "type" and value in TYPES) or get_close_matches(name, _OF_PROMPTS, 1, _ALIKE) for name, value in fields
    )
