"""Where things lie in the repository, and what a block of code in its pages looks like."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
LIBRARY = EXAMPLES / "library"
PROMPTS = EXAMPLES / "prompts"
# Printed examples of other libraries' documents, which lie beside the repository only where it is built.
SPECIFICATIONS = ROOT.parent / "shared" / "cases"
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
