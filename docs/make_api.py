"""Write docs/reference/api/index.md from the pages beside it, and from the docstrings of what they hold.

python docs/make_api.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import lazyprompt

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference" / "api"
NAME = re.compile(r"^::: lazyprompt\.(\w+)$", re.MULTILINE)
HEAD = """# API

Everything in `lazyprompt` by name: what it means, types, units, and the errors it raises. It is read out of the code.
"""


def order() -> list[Path]:
    """The pages in the order of the navigation."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [name for name in re.findall(r"\bapi/([\w-]+)\.md$", text, re.MULTILINE) if name != "index"]
    return [PAGES / f"{name}.md" for name in names]


def summary(name: str) -> str:
    """What a public name is, in a sentence: the first line of its docstring."""
    said = inspect.getdoc(getattr(lazyprompt, name)) if name != "__version__" else "The version of this package."
    first = (said or "").partition("\n")[0].replace("``", "`").replace("|", "\\|")
    return re.sub(r":\w+:(?=`)", "", first)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path in order():
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        parts.append(f"\n## [{title}]({path.name})\n")
        names: list[str] = NAME.findall(text)
        rows = [f"| [`{name}`]({path.name}#lazyprompt.{name}) | {summary(name)} |\n" for name in names]
        parts += ["\n| name | is |\n|---|---|\n", *rows] if rows else ["\nWhat rows in bulk are made with.\n"]
    return "".join(parts)


if __name__ == "__main__":
    (PAGES / "index.md").write_text(page(), encoding="utf-8")
