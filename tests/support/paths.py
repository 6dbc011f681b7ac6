"""Paths in the repository, and the code blocks of its pages."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lazyprompt"
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
LIBRARY = EXAMPLES / "library"
PROMPTS = EXAMPLES / "prompts"
# Printed examples of other libraries' documents, which are not part of the repository.
SPECIFICATIONS = ROOT.parent / "shared" / "cases"
# libyaml's where there is one: it is ten times as fast.
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code of a page.

    Attributes:
        language: Its language.
        title: Its title; None if it has none.
        code: Its text.
        line: The line of the page where it begins.
        end: The line where it ends.
        before: The text between it and the block before.
    """

    language: str
    title: str | None
    code: str
    line: int
    end: int
    before: str

    @property
    def is_file(self) -> bool:
        """Whether its title is the name of a file."""
        return self.title is not None and Path(self.title).suffix[1:].isalpha()


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    at = 0
    for match in FENCE.finditer(text):
        first, last = (text.count("\n", 0, place) + 1 for place in match.span())
        found.append(Block(match[1], match[2], match[3], first, last, text[at : match.start()]))
        at = match.end()
    return found


def library_inputs() -> dict[str, Any]:
    """The inputs of each prompt of the example library, by its path, as its file of cases has them."""
    found: dict[str, Any] = {}
    for path in sorted(LIBRARY.rglob("*.test.yaml")):
        stem = path.relative_to(LIBRARY).as_posix().removesuffix(".test.yaml")
        name = next(stem + end for end in (".prompty", ".yaml") if (LIBRARY / (stem + end)).exists())
        cases = yaml.load(path.read_text(encoding="utf-8"), SAFE_LOADER)["cases"]  # noqa: S506 - it is a safe one
        found[name] = cases[0]["inputs"]
    return found
