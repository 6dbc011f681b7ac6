"""Write docs/reference/families.md from the tables of families, and from the tests that prove them.

python docs/make_families.py
"""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import NamedTuple

from lazyprompt import Markers
from lazyprompt.rendering.family_names import BEYOND

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
HEAD = """# Model families: chat markup for local models

Pass a model's name, repository or path as `model=`. lazyprompt finds its family and renders the text that the
family's own chat template makes of the same messages, byte for byte:

```python
from lazyprompt import ChatPrompter, Markers

prompter = ChatPrompter("Be brief.", system="")
print(prompter.generate_prompt("Why?", model="google/gemma-2-9b-it"))
mine = Markers(soh="<user>\\n", eoh="</user>\\n", soa="<bot>\\n", exact=True)
print(prompter.with_markers(mine).generate_prompt("Why?"))
```

```text
<bos><start_of_turn>user
Be brief.



Why?<end_of_turn>
<start_of_turn>model

Be brief.

<user>
Why?</user>
<bot>

```

If the history begins with a system message, and the prompter has no system text and no instruction, that message is
the system text. If both have one, the history's is written as a second system turn. Families without system turns get
one text, with an empty line between the two. Text of the history is never trusted.

A name without a family is an error, never a guess. Three chat templates contain special cases that markers cannot
express; lazyprompt does not reproduce them: QwQ's line breaks before earlier answers and before tools without system
text, Llama 2's trimming between system text and first user message, and Kimi K2's line break after its own system
text.

## The families

- *Proven by*: the templates that a test renders and compares (for Vicuna and Baichuan 2, FastChat's code). A family
  without proof resembles another one.
- *System text*: its place, if not a turn of its own. *its own*: the family has a default text. *left out*: the
  template's default, which mostly contains the date, is omitted.
- *Tools, own form*: tools, calls and results have the family's form. Else calls are written as Hermes does, and
  [`ChatTemplate`](chat-templates.md) renders the template's own form.

| family | proven by | system text | tools | stop |
|---|---|---|---|---|
"""
BEYOND_HEAD = """
## Models that need their chat template

Markers cannot express these templates, so the names are an error. Use `ChatTemplate.load("models/gpt-oss-20b")`.

| models | why |
|---|---|
"""
PACKAGES_HEAD = """
## Packages of templates

The tests fetch the templates from these packages:

"""
PLACES = {"turn": "", "first_user": "in the first user turn", "last_user": "in the last user turn"}


class Proof(NamedTuple):
    """A family's proof, as the tests name it."""

    package: str
    template: str
    left_out: bool


def proofs() -> dict[str, list[Proof]]:
    """What the tests render for each family: the first arguments of each ``Real(...)``."""
    tree = ast.parse((TESTS / "rendering" / "test_families.py").read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            targets = [target.id for target in statement.targets[0].elts if isinstance(target, ast.Name)]
            names |= dict(zip(targets, ast.literal_eval(statement.value), strict=True))
    found: dict[str, list[Proof]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Real":
            family, package, template = (
                names.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
                for value in node.args[:3]
            )
            proof = Proof(str(package), str(template), any(word.arg == "own_text" for word in node.keywords))
            if family and proof not in found.setdefault(str(family), []):
                found[str(family)].append(proof)
    return found


def by_package(proven: list[Proof]) -> dict[str, list[str]]:
    """The templates of each package, by its name without its scope."""
    found: dict[str, list[str]] = {}
    for proof in proven:
        found.setdefault(proof.package.rpartition("/")[2], []).append(f"`{proof.template}`")
    return found


def page() -> str:
    """The whole page."""
    known = proofs()
    lines: list[str] = []
    for name in Markers.families():
        markers, proven = Markers.for_model(name), known.get(name, [])
        left_out = not markers.system and any(proof.left_out for proof in proven)
        own = markers.tool_join is not None
        cells = (
            name,
            "; ".join(f"{', '.join(templates)} ({package})" for package, templates in by_package(proven).items()),
            ", ".join(
                filter(None, [PLACES[markers.system_place], "its own" * bool(markers.system), "left out" * left_out])
            ),
            "own form" * own,
            " ".join(f"`{stop}`" for stop in markers.stop).replace("|", "\\|"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    beyond = [f"| {models} | {why} |" for models, (_, why) in BEYOND.items()]
    carriers = runpy.run_path(str(TESTS / "support" / "real_templates.py"))
    packages = [
        f"- {wanted}" for wanted in (*(row.wanted for row in carriers["PACKAGES"].values()), carriers["FASTCHAT"])
    ]
    tables = (HEAD, *lines, BEYOND_HEAD, *beyond, PACKAGES_HEAD, *packages)
    return "\n".join(part.removesuffix("\n") for part in tables) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "reference" / "families.md").write_text(page(), encoding="utf-8")
