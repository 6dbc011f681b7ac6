"""Every prompt of the example library in every dialect: it loads there and says the same, or a note tells what not."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.prompty import Prompty, convert
from support.paths import LIBRARY, library_inputs

INPUTS: dict[str, Any] = library_inputs()
PARAMS = {"judge": "gpt-4o", "deployment": "qwen-plus"}
PROMPTS = {path: Prompty.load(LIBRARY / path, params=PARAMS) for path in INPUTS if path.endswith(".prompty")}

# Turns of tools are in agent definitions alone.
REFUSED_IN_V2 = {
    "agent/account-info.prompty",
    "code/pair-programmer.zh.prompty",
    "health/appointment.pt.prompty",
    "sql/ask-database.prompty",
}


def render_prompt(prompt: Prompty, path: str) -> Any:
    """What a prompt says, with its threads as the history: that has a name in every form."""
    inputs = INPUTS[path]
    threads = {each.name for each in PROMPTS[path].inputs if each.kind == "thread"}
    history = next((inputs[name] for name in threads if name in inputs), None)
    values = {name: value for name, value in inputs.items() if name not in threads}
    return prompt.generate_prompt(values, history, format="neutral")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["v2", "agentschema"])
def test_files_say_the_same_in_another_dialect(to: str) -> None:
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


def test_media_of_the_text_are_inputs_in_v2() -> None:
    # They became text, and where the address was a slot no note said so.
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


def test_pictures_of_the_first_version_are_shown_in_every_dialect() -> None:
    prompt = Prompty.loads(f"{V1}user:\n![a cat]({{{{ u }}}}) {{{{ q }}}} ![](b.png)")
    for to in ("v2", "agentschema"):
        made = convert(prompt, to)
        assert Prompty.loads(made.text).messages() == prompt.messages()
        assert made.notes == tuple(map(str, prompt.notes))
    assert "![image]({{ u }}) {{ q }} ![image](b.png)" in prompt.dumps("agentschema")


def test_every_reader_of_yaml_takes_a_text_for_text() -> None:
    # Without quotes other readers took it for a date, for true, or for a key that has no end.
    text = Prompty.loads(f"{V1}user:\n{{{{ q }}}}").dumps("v2")
    inputs = yaml.load(text.split("---")[1], yaml.SafeLoader)["inputs"]
    assert [each["default"] for each in inputs.values()] == ["https://e/a.png", "2026-03-02", "yes", "Where to?"]
    flow = "---\nsample: {q: hi}\ninputs: {q: {type: string, sample: 'Do you send abroad?'}}\n---\n{{ q }}"
    assert yaml.load(Prompty.loads(flow).dumps("v2").split("---")[1], yaml.SafeLoader)


def test_what_a_function_gave_back_has_no_place() -> None:
    # In v2 it was text of the turn before it.
    prompt = Prompty.loads("---\nsample: {}\n---\nuser:\nhi\nfunction[tool_call_id=1]:\n42")
    with pytest.raises(
        FormatError, match=r":6:1: 'function\[tool_call_id=1\]:': Prompty v2 doesn't support tool turns"
    ):
        convert(prompt, "v2")
    assert Prompty.loads(prompt.dumps("agentschema")).messages() == prompt.messages()


def test_tools_of_the_text() -> None:
    text = "---\ntools: [{name: t, kind: mcp}]\n---\nsystem:\nhi\ntools:\n- id: x\n  type: bing\nuser:\nyou"
    made = convert(Prompty.loads(text.replace("\n", "\r\n")), "v2")
    tools = "[{name: t, kind: mcp}, {name: x, kind: bing}]"
    wanted = f"---\ntools: {tools}\n---\nsystem:\nhi\n\n\n\nuser:\nyou"
    assert made.text == wanted.replace("\n", "\r\n")
    assert made.notes == ("6:1: id, type of a tool become name, kind in v2",)
    made = convert(Prompty.loads(text.replace("bing", "{{ t }}")), "v2")
    assert "6:1: these tools are dropped" in made.notes[0]
    for broken, place in (("- id: [x", "8:1"), ("- x", "6:1")):
        prompt = Prompty.loads(text.replace("- id: x\n  type: bing", broken))
        with pytest.raises(FormatError, match=rf":{place}: "):
            convert(prompt, "v2")


def test_samples_of_a_file_bring_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LP_SAMPLE", "sk-very-secret-3")
    (tmp_path / "s.json").write_text('{"q": "hi"}')
    (tmp_path / "t.json").write_text('{"q": "${env:LP_SAMPLE}"}')
    for written in ("s.json", "${file:s.json}"):
        made = convert(Prompty.loads(f"---\nsample: {written}\n---\n{{{{ q }}}}", tmp_path, dialect="v1"), "v2")
        assert Prompty.loads(made.text).inputs[0].default == "hi"
    prompt = Prompty.loads("---\nsample: t.json\n---\n{{ q }}", tmp_path)
    assert prompt.messages()[0].text == "sk-very-secret-3"
    with pytest.raises(FormatError, match="so that no secret is written"):
        convert(prompt, "v2")


def test_a_union_keeps_its_word() -> None:
    # anyOf became oneOf whenever a file was changed.
    for word in ("anyOf", "oneOf"):
        text = (
            f"---\ninputs: [{{name: u, kind: union, {word}: [{{kind: string}}, {{kind: integer}}]}}]\n---\n{{{{ u }}}}"
        )
        prompt = Prompty.loads(text)
        assert prompt.to_dict()["inputs"] == [
            {"name": "u", "kind": "union", word: [{"kind": "string"}, {"kind": "integer"}]}
        ]
        assert prompt.inputs[0].schema() == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
        optional = [{"type": "string"}, {"type": "integer"}, {"type": "null"}]
        assert prompt.inputs[0].schema(strict=True) == {"anyOf": optional}
        named = text.replace("[{kind: string}, {kind: integer}]", "{a: {kind: string}, b: {kind: integer}}")
        assert Prompty.loads(named).inputs[0].schema() == prompt.inputs[0].schema()
    with pytest.raises(PromptFileError, match=r"2:44: inputs\[0\] has both oneOf and anyOf; remove one"):
        Prompty.loads("---\ninputs: [{name: u, kind: union, oneOf: [], anyOf: []}]\n---\n{{ u }}")
    with pytest.raises(PromptFileError, match=r"inputs\[0\].anyOf must be a list of choices, not text"):
        Prompty.loads("---\ninputs: [{name: u, kind: union, anyOf: string}]\n---\n{{ u }}")
