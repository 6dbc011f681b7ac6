"""Write docs/families.md from the table of families, and from the tests that prove them.

python docs/make_families.py
"""

from __future__ import annotations

import ast
from pathlib import Path

from lazyprompt import Markers

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "text" / "test_families.py"
HEAD = """# Model families

`model="qwen2.5"`, `with_markers("Qwen/Qwen2.5-7B-Instruct")` and `--model` find a model's family by its name, its
repository or the path of its file. The flat text is then what the family's own chat template makes of the messages of
`format="openai"`, byte for byte, for plain chats and chats of several turns. A name that no family fits is an error,
never a guess.

A family is *proven* where a test renders the model's real template and compares; the others are written from model
cards and published sources. *Tools: own form* means that the description of tools has the family's own words; else
tools are described in the general form and calls are written as Hermes does. A chat template itself will be the
answer for what no marker can say.

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

| family | proven | system text | tools | stop |
|---|---|---|---|---|
"""
PLACES = {"turn": "own turn", "first_user": "in the first user turn", "last_user": "in the last user turn"}


def proven() -> set[str]:
    """The families that the tests render against a real template: the first argument of each ``Real(...)``."""
    calls = [node for node in ast.walk(ast.parse(TESTS.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id == "Real"
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    }


def page() -> str:
    """The whole page."""
    known = proven()
    lines: list[str] = []
    for name in Markers.families():
        markers = Markers.for_model(name)
        cells = (
            name,
            "yes" if name in known else "",
            PLACES[markers.system_place] + (", brings one" if markers.system else ""),
            "own form" if markers.tool_join is not None else "",
            " ".join(f"`{stop}`" for stop in markers.stop),
        )
        lines.append(f"| {' | '.join(cells)} |".replace("|>", "\\|>").replace("<|", "<\\|"))
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "families.md").write_text(page(), encoding="utf-8")
