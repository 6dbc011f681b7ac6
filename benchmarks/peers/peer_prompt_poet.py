"""Prompt Poet: a template of YAML and Jinja2 as its README shows it, and with the escape that its examples use."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import Case, Entry, Message, drive
from work import PROMPT_FILE, QUESTION, prompt_path

if TYPE_CHECKING:
    from collections.abc import Callable

Prompt: Any = import_module("prompt_poet").Prompt
TEMPLATE = """
- name: system instructions
  role: system
  content: |
    Be kind. The key is {{ secret }}.

- name: user query
  role: user
  content: |
    {{ username }}: BEFORE{{ text }}{{ more }}BEHIND
"""
# The system text of the prompt file, in its own form.
SYSTEM = PROMPT_FILE.partition("system:\n")[2].partition("\n\nuser:")[0].replace("\n", "\n    ")
FILE = (
    f"- name: system\n  role: system\n  content: |-\n    {SYSTEM}\n"
    "- name: user\n  role: user\n  content: {{question}}\n"
)


def file() -> Callable[[], object]:
    """Prepare its form of the prompt file; the file is read and filled each time."""
    path = str(prompt_path("order-help.yml.j2", FILE))
    given = {"firstName": "Jane", "lastName": "Doe", **QUESTION}
    return lambda: Prompt(template_path=path, template_data=given).messages


def prompt(case: Case, *, escapes: bool) -> list[Message]:
    """Put the values into a template."""
    template = TEMPLATE
    for name in ("text", "more") if escapes else ():
        template = template.replace(f"{{{{ {name} }}}}", f"{{{{ escape_special_characters({name}) }}}}")
    # The developer's own lines stay in their block.
    before, behind = (text.replace("\n", "\n    ") for text in (case.before, case.behind))
    made = Prompt(
        raw_template=template.replace("BEFORE", before).replace("BEHIND", behind),
        template_data={**case.slots, "username": "Ada"},
    )
    return [(str(each["role"]), str(each["content"]), 0) for each in made.messages]


if __name__ == "__main__":
    drive(
        "prompt-poet",
        {"file": file},
        [
            Entry("Prompt, as in its README", "", partial(prompt, escapes=False)),
            Entry("Prompt, escape_special_characters", "", partial(prompt, escapes=True)),
        ],
    )
