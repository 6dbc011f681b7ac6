"""Conversion of the example library to each dialect: the same messages and tools, or a note on the difference."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lazyprompt.errors import FormatError
from lazyprompt.files.prompty import Prompty, convert
from support.paths import LIBRARY, library_inputs

INPUTS: dict[str, Any] = library_inputs()
PARAMS = {"judge": "gpt-4o", "deployment": "qwen-plus"}
PROMPTS = {path: Prompty.load(LIBRARY / path, params=PARAMS) for path in INPUTS if path.endswith(".prompty")}

# Only agentschema has tool turns.
REFUSED_IN_V2 = {
    "agent/account-info.prompty",
    "code/pair-programmer.zh.prompty",
    "health/appointment.pt.prompty",
    "sql/ask-database.prompty",
}


def render_prompt(prompt: Prompty, path: str) -> Any:
    """The neutral payload of a prompt, with its thread passed as the history, whose name differs by dialect."""
    inputs = INPUTS[path]
    threads = {each.name for each in PROMPTS[path].inputs if each.kind == "thread"}
    history = next((inputs[name] for name in threads if name in inputs), None)
    values = {name: value for name, value in inputs.items() if name not in threads}
    return prompt.generate_prompt(values, history, format="neutral")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["v2", "agentschema"])
def test_converted_file_has_the_same_messages_and_tools(to: str) -> None:
    refused: dict[str, str] = {}
    for path, prompt in PROMPTS.items():
        try:
            made = convert(prompt, to)
        except FormatError as error:
            refused[path] = str(error)
            continue
        there = Prompty.loads(made.text, (LIBRARY / path).parent, PARAMS)
        assert there.dialect == to, path
        got, wanted = render_prompt(there, path), render_prompt(prompt, path)
        # The messages differ where a note says that v2 lacks something.
        has_loss = (path, to) == ("vision/quality-inspection.de.prompty", "v2")
        assert any(re.match("19:1: quality of .* is dropped", note) for note in made.notes) is has_loss, path
        assert (got["messages"] == wanted["messages"]) is not has_loss, path
        assert got.get("tools") == wanted.get("tools") or any("tool" in note for note in made.notes), path
    assert {*refused} == (REFUSED_IN_V2 if to == "v2" else set())
    assert len(PROMPTS) - len(refused) > 50
    for why in refused.values():
        assert re.search(r":\d+:\d+: ", why)


# Single rules

AGENT = """---
name: a
inputSchema:
  properties:
    - {name: photo, kind: string, required: true}
    - {name: both, kind: string}
---
user:
![image]({{ photo }}) and ![file](https://e/a.pdf)
![type="image", quality="low"](https://e/b.png)
{{ both }}: ![image]({{ both }}) ![image](https://e/{{ both }}) ![video](https://e/c.mp4) ![type=x](e/d)
"""


def test_media_links_of_agentschema_become_inputs_in_v2() -> None:
    # Media links became text, without a note if the URL was a slot.
    made = convert(Prompty.loads(AGENT, name="a"), "v2")
    there = Prompty.loads(made.text)
    assert there.dialect == "v2"
    assert [(each.name, each.kind, each.default, each.required) for each in there.inputs] == [
        ("photo", "image", None, True),
        ("both", "string", None, False),
        ("file", "file", "https://e/a.pdf", False),
        ("image", "image", "https://e/b.png", False),
    ]
    assert there.instructions.splitlines() == [
        "user:",
        "{{ photo }} and {{ file }}",
        "{{ image }}",
        "{{ both }}: ![image]({{ both }}) ![image](https://e/{{ both }}) ![video](https://e/c.mp4) ![type=x](e/d)",
    ]
    assert made.notes == (
        '10:1: quality of ![type="image", quality="low"](https://e/b.png) is dropped: inputs have no such field',
        "11:13: ![image]({{ both }}) has no equivalent in v2: it stays text",
        "11:34: ![image](https://e/{{ both }}) has no equivalent in v2: it stays text",
        "11:65: ![video](https://e/c.mp4) has no equivalent in v2: it stays text",
    )


V1 = "---\nname: n\nsample: {u: 'https://e/a.png', day: '2026-03-02', ok: 'yes', q: Where to?}\n---\n"


@pytest.mark.parametrize("to", ["v2", "agentschema"])
def test_v1_images_are_converted_to_the_other_dialects(to: str) -> None:
    prompt = Prompty.loads(f"{V1}user:\n![a cat]({{{{ u }}}}) {{{{ q }}}} ![](b.png)")
    made = convert(prompt, to)
    assert Prompty.loads(made.text).messages() == prompt.messages()
    assert made.notes == tuple(map(str, prompt.notes))
    assert "![image]({{ u }}) {{ q }} ![image](b.png)" in prompt.dumps("agentschema")


def test_text_is_quoted_for_other_yaml_readers() -> None:
    # Without quotes, other YAML readers took the text for a date, true, or a key.
    text = Prompty.loads(f"{V1}user:\n{{{{ q }}}}").dumps("v2")
    inputs = yaml.load(text.split("---")[1], yaml.SafeLoader)["inputs"]
    assert [each["default"] for each in inputs.values()] == ["https://e/a.png", "2026-03-02", "yes", "Where to?"]
    flow = "---\nsample: {q: hi}\ninputs: {q: {type: string, sample: 'Do you send abroad?'}}\n---\n{{ q }}"
    assert yaml.load(Prompty.loads(flow).dumps("v2").split("---")[1], yaml.SafeLoader)


V1_TURN, FUNCTION = "---\nsample: {}\n---\nuser:\nhi", "function[tool_call_id=1]:"


@pytest.mark.parametrize(
    ("before", "line", "number"),
    [("system:\nhi", "tool[id=1]:", 3), ("system:\nhi", 'assistant[type="tool_call"]:', 3), (V1_TURN, FUNCTION, 6)],
)
def test_tool_turn_is_refused_in_v2(before: str, line: str, number: int) -> None:
    # In v2 the section became text of the preceding turn.
    with pytest.raises(
        FormatError, match=f":{number}:1: {re.escape(repr(line))}: Prompty v2 doesn't support tool turns"
    ):
        convert(Prompty.loads(f"{before}\n{line}\n42"), "v2")


def test_function_section_of_v1_is_kept_in_agentschema() -> None:
    prompt = Prompty.loads(f"{V1_TURN}\n{FUNCTION}\n42")
    assert Prompty.loads(prompt.dumps("agentschema")).messages() == prompt.messages()


WITH_TOOLS = "---\ntools: [{name: t, kind: mcp}]\n---\nsystem:\nhi\ntools:\n- id: x\n  type: bing\nuser:\nyou"


def test_tools_section_becomes_the_tools_field_in_v2() -> None:
    made = convert(Prompty.loads(WITH_TOOLS.replace("\n", "\r\n")), "v2")
    tools = "[{name: t, kind: mcp}, {name: x, kind: bing}]"
    wanted = f"---\ntools: {tools}\n---\nsystem:\nhi\n\n\n\nuser:\nyou"
    assert made.text == wanted.replace("\n", "\r\n")
    assert made.notes == ("6:1: id, type of a tool become name, kind in v2",)
    made = convert(Prompty.loads(WITH_TOOLS.replace("bing", "{{ t }}")), "v2")
    assert "6:1: these tools are dropped" in made.notes[0]


@pytest.mark.parametrize(("tools", "place"), [("- id: [x", "8:1"), ("- x", "6:1")])
def test_conversion_of_an_invalid_tools_section_is_an_error(tools: str, place: str) -> None:
    prompt = Prompty.loads(WITH_TOOLS.replace("- id: x\n  type: bing", tools))
    with pytest.raises(FormatError, match=rf":{place}: "):
        convert(prompt, "v2")


@pytest.mark.parametrize("reference", ["s.json", "${file:s.json}"])
def test_sample_file_becomes_the_defaults_of_the_inputs(tmp_path: Path, reference: str) -> None:
    (tmp_path / "s.json").write_text('{"q": "hi"}')
    made = convert(Prompty.loads(f"---\nsample: {reference}\n---\n{{{{ q }}}}", tmp_path, dialect="v1"), "v2")
    assert Prompty.loads(made.text).inputs[0].default == "hi"


def test_sample_with_environment_value_is_not_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LP_SAMPLE", "sk-very-secret-3")
    (tmp_path / "t.json").write_text('{"q": "${env:LP_SAMPLE}"}')
    prompt = Prompty.loads("---\nsample: t.json\n---\n{{ q }}", tmp_path)
    assert prompt.messages()[0].text == "sk-very-secret-3"
    with pytest.raises(FormatError, match="so that no secret is written"):
        convert(prompt, "v2")


@pytest.mark.parametrize("field", ["anyOf", "oneOf"])
def test_union_keeps_the_spelling_any_of_or_one_of(field: str) -> None:
    # Changing a file replaced anyOf by oneOf.
    choices = [{"kind": "string"}, {"kind": "integer"}]
    text = f"---\ninputs: [{{name: u, kind: union, {field}: [{{kind: string}}, {{kind: integer}}]}}]\n---\n{{{{ u }}}}"
    prompt = Prompty.loads(text)
    assert prompt.to_dict()["inputs"] == [{"name": "u", "kind": "union", field: choices}]
    types = [{"type": "string"}, {"type": "integer"}]
    assert prompt.inputs[0].schema() == {"anyOf": types}
    assert prompt.inputs[0].schema(strict=True) == {"anyOf": [*types, {"type": "null"}]}
    named = text.replace("[{kind: string}, {kind: integer}]", "{a: {kind: string}, b: {kind: integer}}")
    assert Prompty.loads(named).inputs[0].schema() == prompt.inputs[0].schema()
