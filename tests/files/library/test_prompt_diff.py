import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.difference import Change
from lazyprompt.files.library.library import PromptLibrary
from lazyprompt.files.library.prompt_diff import PromptDiff, diff_of, outline_of
from lazyprompt.files.prompty import Prompty

BEFORE = """---
name: refund
model: {id: small, options: {temperature: 0.2, seed: 1}, connection: {apiKey: sesame}, connections: null}
inputs:
  order: {kind: string}
  name: {kind: string}
tools:
  - {name: find, description: Finds.}
  - {name: old}
---
system:
You are kind.
Be brief.
user:
{{ order }} of {{ name }}
"""
AFTER = """---
name: refund
model: {id: small, options: {temperature: 0.7, topP: 1}, connection: {apiKey: mellon}, connections: 2}
inputs:
  order: {kind: integer, required: true}
  locale: {kind: string, default: en}
tools:
  - {name: find, description: Finds 订单.}
  - {name: new}
---
system:
You are kind.
Be thorough.
assistant[name="小雨"]:
Hello.
user:
{{ order }} of {{ name }}
"""
SHOWN = """\
a → b
inputs
  ~ order
      @@ -1 +1,2 @@
      -kind: "string"
      +kind: "integer"
      +required: true
  - name
      @@ -1 +0,0 @@
      -kind: "string"
  + locale
      @@ -0,0 +1,2 @@
      +kind: "string"
      +default: "en"
tools
  ~ find
      @@ -1,2 +1,2 @@
       kind: "function"
      -description: "Finds."
      +description: "Finds 订单."
  - old
      @@ -1 +0,0 @@
      -kind: "function"
  + new
      @@ -0,0 +1 @@
      +kind: "function"
settings
  ~ model.options.temperature
      @@ -1 +1 @@
      -0.2
      +0.7
  - model.options.seed
      @@ -1 +0,0 @@
      -1
  ~ model.connection.apiKey
  ~ model.connections
      @@ -1 +1 @@
      -none
      +2
  + model.options.topP
      @@ -0,0 +1 @@
      +1
sections
  ~ system
      @@ -1,2 +1,2 @@
       You are kind.
      -Be brief.
      +Be thorough.
  + assistant{"name": "小雨"}
      @@ -0,0 +1 @@
      +Hello."""


def diff(before: str, after: str) -> PromptDiff:
    return diff_of("a", "b", *(outline_of(Prompty.loads(text)) for text in (before, after)))


def test_diff_lists_changed_inputs_tools_settings_and_sections() -> None:
    found = diff(BEFORE, AFTER)
    assert str(found) == SHOWN
    made = found.to_dict()
    assert [*made] == ["a", "b", "inputs", "outputs", "tools", "settings", "sections"]
    shown = {"name": 'assistant{"name": "小雨"}', "state": "added", "lines": ["@@ -0,0 +1 @@", "+Hello."]}
    assert json.loads(json.dumps(made))["sections"][1] == shown
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes
    assert "mellon" not in json.dumps(made)


def test_diff_of_equal_prompts_is_empty() -> None:
    found = diff(BEFORE, BEFORE.replace("\n", "\r\n"))
    assert not found
    assert str(found) == "a and b are equal"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("user:\na\nassistant:\nb", "user:\nz\nassistant:\ny\nuser:\na\nassistant:\nb", "added user, added assistant"),
        ("user:\na\nassistant:\nb\nuser:\nc", "user:\nA\nuser:\nC", "changed user, removed assistant, changed user"),
        ('user[name="a"]:\nx', "user:\nx", 'removed user{"name": "a"}, added user'),
    ],
)
def test_sections_are_matched_in_order_by_role_and_attributes(before: str, after: str, expected: str) -> None:
    assert ", ".join(f"{each.state} {each.name}" for each in diff(before, after).sections) == expected


def test_diff_of_yaml_prompt_files_lists_slots_settings_and_sections(tmp_path: Path) -> None:
    (tmp_path / "a@1.yaml").write_text("system: Kind.\ninstruction: Answer {question}.\n")
    (tmp_path / "a@2.yaml").write_text("system: Kind.\ninstruction: |\n  Answer {q}.\n  Do.\nmodel: qwen2.5\n")
    (tmp_path / "a@3.prompty").write_text("system:\nKind.")
    library = PromptLibrary(tmp_path)
    assert str(library.diff("a", "1", "2")) == (
        "a@1.0.0 → a@2.0.0\ninputs\n  - question\n  + q\nsettings\n  + model\n      @@ -0,0 +1 @@\n"
        '      +"qwen2.5"\nsections\n  ~ instruction\n      @@ -1 +1,2 @@\n      -Answer {question}.\n'
        "      +Answer {q}.\n      +Do."
    )
    assert library.diff("a", "1", "3").settings == (Change("dialect", "changed", '"yaml"', '"v2"'),)


TEMPLATES = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system"]), st.sampled_from(["a", "b", "c"])), max_size=6
).map(lambda turns: "".join(f"{role}:\n{text}\n" for role, text in turns) or "user:\na\n")


@given(TEMPLATES, TEMPLATES)
def test_diff_is_empty_only_for_equal_templates_in_both_directions(before: str, after: str) -> None:
    there, back = diff(before, after), diff(after, before)
    assert bool(there) == bool(back) == (before != after)
    balance = sum({"added": 1, "removed": -1, "changed": 0}[each.state] for each in there.sections)
    assert balance == after.count(":") - before.count(":")
