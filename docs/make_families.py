"""Write docs/reference/families.md from the tables of families and their tests.

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

Pass the name, repository or path of a local model as `model=`. lazyprompt looks up its family and renders the prompt
byte for byte like the family's chat template. For a model without a known family, define `Markers`, the strings
before and after each message:

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

An unknown name raises a `TemplateError`; the family is never guessed.

## System messages in the history

A system message at the start of the history becomes the system text if the prompter has neither a system text nor an
instruction. Otherwise, the message becomes a second system turn; in families without system turns, the two texts are
joined with an empty line. Text from the history is never trusted.

## Supported families

- *tested with*: the chat templates that the tests render and compare, from the
  [packages below](#sources-of-the-templates).
  The format of a family without an entry is inferred from a similar family.
- *system text*: the position of the system text, if not a separate turn. *its own* means that the family has a default
  text, which `from_messages` omits; *left out* means that lazyprompt omits the template's default, which usually
  contains the date.
- *tools*: *own form* means that tools, calls and results match the template; *calls* means that only calls and results
  match. All other families use the [general form](#families-with-the-general-form-for-tools).
- *stop*: the strings at which generation ends.

Some templates have special cases that lazyprompt does not reproduce:

- QwQ's line breaks before earlier answers and before tools without system text, Llama 2's trimming between system text
  and first user message, and Kimi K2's line break after its own system text.
- Llama 3 rejects two calls in one message and drops the message's text. lazyprompt writes the text and all calls on
  separate lines.
- Mistral drops the text of messages with calls, rejects ids unless they have nine letters or digits, and omits the
  system text while results await an answer. lazyprompt keeps all three, and escapes tool descriptions as JSON.
- DeepSeek V3 and R1 lose markers in a second round of calls. lazyprompt writes every round like the first.

| family | tested with | system text | tools | stop |
|---|---|---|---|---|
"""
GENERAL_HEAD = """
## Families with the general form for tools

Tools are described as JSON under a header; calls and results use the Hermes format. A `ToolFormWarning` reports this
when a prompt has tools. [`ChatTemplate`](chat-templates.md) renders tools in the model's own format.

| families | why |
|---|---|
"""
BEYOND_HEAD = """
## Models that need their chat template

Markers can't express the templates of these models, so their names raise an error. Load the template instead:
`ChatTemplate.load("models/gpt-oss-20b")`.

| models | reason |
|---|---|
"""
PACKAGES_HEAD = """
## Sources of the templates

"""
PLACES = {"turn": "", "first_user": "in the first user turn", "last_user": "in the last user turn"}


class Proof(NamedTuple):
    """A chat template that the tests compare with a family.

    Attributes:
        template: Its name.
        left_out: True if the family omits the template's default system text.
    """

    template: str
    left_out: bool


def proofs() -> dict[str, list[Proof]]:
    """Return what the tests render for each family: the first arguments of each ``Real(...)``."""
    tree = ast.parse((TESTS / "rendering" / "test_families.py").read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            targets = [target.id for target in statement.targets[0].elts if isinstance(target, ast.Name)]
            names |= dict(zip(targets, ast.literal_eval(statement.value), strict=True))
    found: dict[str, list[Proof]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Real":
            family, _, template = (
                names.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
                for value in node.args[:3]
            )
            proof = Proof(str(template), any(word.arg == "own_text" for word in node.keywords))
            if family and proof not in found.setdefault(str(family), []):
                found[str(family)].append(proof)
    return found


def page() -> str:
    """Return the page."""
    known = proofs()
    lines: list[str] = []
    general: dict[str, list[str]] = {}
    for name in Markers.families():
        markers, proven = Markers.for_model(name), known.get(name, [])
        left_out = not markers.system and any(proof.left_out for proof in proven)
        form = markers.tool_form
        own = "own form" if not form.note else "calls" if form.call else ""
        if form.note:
            general.setdefault(form.note, []).append(name)
        cells = (
            name,
            ", ".join(f"`{proof.template}`" for proof in proven),
            ", ".join(
                filter(None, [PLACES[markers.system_place], "its own" * bool(markers.system), "left out" * left_out])
            ),
            own,
            " ".join(f"`{stop}`" for stop in markers.stop).replace("|", "\\|"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    reasons = [f"| {', '.join(names)} | {note} |" for note, names in general.items()]
    beyond = [f"| {models} | {why} |" for models, (_, why) in BEYOND.items()]
    carriers = runpy.run_path(str(TESTS / "support" / "real_templates.py"))
    packages = [
        f"- {wanted}" for wanted in (*(row.wanted for row in carriers["PACKAGES"].values()), carriers["FASTCHAT"])
    ]
    tables = (HEAD, *lines, GENERAL_HEAD, *reasons, BEYOND_HEAD, *beyond, PACKAGES_HEAD, *packages)
    return "\n".join(part.removesuffix("\n") for part in tables) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "reference" / "families.md").write_text(page(), encoding="utf-8")
