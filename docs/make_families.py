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
HEAD = """# Model families

`model="qwen2.5"`, `with_markers("Qwen/Qwen2.5-7B-Instruct")` and `--model` find a model's family by its name, its
repository or the path of its file: by the exact name of a family, else by the pattern that fits the most of the model's
name. The flat text is then what the family's own chat template makes of the messages of `format="openai"`, byte for
byte, for plain chats and chats of several turns, with a system text or without, whatever white space the texts have.
A name that no family fits is an error, never a guess.

Three templates have a whim that no marker speaks of, and the flat text is without it: QwQ's drops line breaks before an
answer of the past, and puts two before tools that no system text stands before; Llama 2's drops white space between the
system text and what the user says first; Kimi K2's puts a line break behind its own system text, and behind no other.

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

## The families

*Proven by*: the model's own template, which a test renders and compares, and the package the test fetches it from; for
Vicuna and Baichuan 2, which have no template, FastChat's code. A family without proof is as another, but for its system
text, which is from the model's card.

*System text*: where it goes, and whether the family brings one for prompters that set none. Where the template's own is
*left out*, it mostly holds the date of the day: give a system text, or let `ChatTemplate` render the template itself.

*Tools, own form*: the description of tools, calls and results have the family's own words. Else tools are described in
the general form and calls are written as Hermes does; what the template itself makes of tools, `ChatTemplate` renders.

| family | proven by | system text | tools | stop |
|---|---|---|---|---|
"""
BEYOND_HEAD = """
## Templates that markers cannot follow

Of these models the name is known, and asking for it is an error that says why. Their templates are rendered by
`ChatTemplate`, which takes the tokenizer's directory or the GGUF file: `ChatTemplate.load("models/gpt-oss-20b")`.

| models | why |
|---|---|
"""
PACKAGES_HEAD = """
## The packages

The templates carry their models' licences, so this repository has none of them. The tests fetch these packages once:

"""
PLACES = {"turn": "own turn", "first_user": "in the first user turn", "last_user": "in the last user turn"}


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
            "; ".join(f"{', '.join(templates)} in {package}" for package, templates in by_package(proven).items()),
            PLACES[markers.system_place] + (", brings one" * bool(markers.system)) + (", its own left out" * left_out),
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
