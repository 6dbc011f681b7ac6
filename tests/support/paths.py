"""Where things lie in the repository, and what a block of code in its pages looks like."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lazyprompt"
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
LIBRARY = EXAMPLES / "library"
PROMPTS = EXAMPLES / "prompts"
# Printed examples of other libraries' documents, which lie beside the repository only where it is built.
SPECIFICATIONS = ROOT.parent / "shared" / "cases"
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def library_inputs() -> dict[str, Any]:
    """The inputs of each prompt of the example library, by its path, as its file of cases has them."""
    found: dict[str, Any] = {}
    for path in sorted(LIBRARY.rglob("*.test.yaml")):
        stem = path.relative_to(LIBRARY).as_posix().removesuffix(".test.yaml")
        name = next(stem + end for end in (".prompty", ".prompt", ".yaml") if (LIBRARY / (stem + end)).exists())
        found[name] = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"][0]["inputs"]
    return found
