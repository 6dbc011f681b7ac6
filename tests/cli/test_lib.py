import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.helpers import Run, fault
from lazyprompt.cli.main import commands

FIRST = """---
name: r
model: {id: m, connection: {apiKey: sesame}}
inputs: {q: hi}
---
system:
{% include "tone.md" %}
user:
{{ q }}
"""


def lib_output(*argv: str) -> str:
    # The group is run too: click keeps the help option of a command's first run, which without the group has no -h.
    return CliRunner().invoke(commands, ["lib", *argv], catch_exceptions=False, standalone_mode=False).stdout


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s").mkdir()
    (tmp_path / "tone.md").write_text("Be kind.\n")
    (tmp_path / "s" / "refund@1.0.0.prompty").write_text(FIRST)
    (tmp_path / "s" / "refund@2.0.0.prompty").write_text(FIRST.replace("user:", "Be brief.\nuser:"))
    (tmp_path / "s" / "refund.zh-CN.prompty").write_text("user:\n你好\n", encoding="utf-8")
    (tmp_path / "ask.yaml").write_text("\ufeffinstruction: Answer {question}.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_shows_keys_with_languages_and_versions(prompts: Path) -> None:
    table = "KEY       LANGUAGES  VERSIONS\nask       -          -\ns/refund  - zh-CN    - 1.0.0 2.0.0\n"
    assert lib_output("list") == lib_output("list", str(prompts)) == table
    found: list[dict[str, Any]] = json.loads(lib_output("list", "--json"))
    at = str(prompts / "s" / "refund")
    refund = {"key": "s/refund", "layer": str(prompts), "lang": ""}
    assert lib_output("list", str(prompts), "--json") == lib_output("list", "--dir", str(prompts), "--json")
    ask = {"key": "ask", "lang": "", "version": None, "path": "ask.yaml", "layer": "."}
    assert found[0] == {"key": "ask", "files": [ask]}
    assert json.loads(lib_output("list", str(prompts), "--json"))[1] == {
        "key": "s/refund",
        "files": [
            *({**refund, "version": each, "path": f"{at}@{each}.prompty"} for each in ("1.0.0", "2.0.0")),
            {**refund, "lang": "zh-CN", "version": None, "path": f"{at}.zh-CN.prompty"},
        ],
    }


def test_show_prints_metadata_and_the_resolved_template(prompts: Path) -> None:
    text = lib_output("show", "s/refund", "--version", "1.x", "--dir", str(prompts))
    found = json.loads(lib_output("show", "s/refund", "--version", "1.0.0", "--json"))
    facts = {
        "key": "s/refund",
        "version": "1.0.0",
        "path": str(prompts / "s" / "refund@1.0.0.prompty"),
        "layer": str(prompts),
        "hash": found["hash"],
        "dialect": "v2",
        "kind": "prompt",
        "name": "r",
        "model": '{"id":"m"}',
        "inputs": '[{"name":"q","kind":"string","default":"hi"}]',
    }
    template = "system:\nBe kind.\nuser:\n{{ q }}\n"
    assert text == "".join(f"{name}: {value}\n" for name, value in facts.items()) + f"\n{template}"
    assert [*found] == ["key", "lang", *[*facts][1:], "template"]
    assert (found["lang"], found["model"], found["template"]) == ("", {"id": "m"}, template)
    assert json.loads(lib_output("show", "s/refund", "--lang", "zh_cn", "--json"))["template"] == "user:\n你好\n"
    yaml = json.loads(lib_output("show", "ask", "--json"))
    assert (yaml["inputs"], yaml["template"]) == (["question"], "instruction: Answer {question}.\n")


@pytest.mark.usefixtures("prompts")
def test_diff_shows_the_changed_sections_of_two_versions() -> None:
    lines = lib_output("diff", "s/refund", "1.0.0", "^2").splitlines()
    assert lines[:3] == ["s/refund@1.0.0 → s/refund@2.0.0", "sections", "  ~ system"]
    assert lines[-1] == "      +Be brief."
    assert json.loads(lib_output("diff", "s/refund", "1.0.0", "2.0.0", "--json"))["sections"][0]["state"] == "changed"
    assert lib_output("diff", "s/refund", "1.0.0", "1.0.0") == "s/refund@1.0.0 and s/refund@1.0.0 are equal\n"


def test_layer_and_param_options_are_applied(prompts: Path) -> None:
    team = prompts / "team"
    team.mkdir()
    (team / "tone.md").write_text("Be stern.")
    (team / "p.prompty").write_text("---\nmodel: ${params:model}\n---\nHi")
    assert "Be stern." in lib_output("show", "s/refund", "--layer", "team")
    assert '"id":"m1"' in lib_output("show", "p", "--layer", "team", "--param", "model=m1")


def test_root_option_allows_references_outside_the_library(prompts: Path) -> None:
    (prompts / "s" / "p.prompty").write_text("---\ndescription: ${file:../tone.md}\n---\nHi")
    assert "Be kind." in lib_output("show", "p", "--dir", "s", "--root", ".")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("list", "nowhere"), "DIR: nowhere: no such directory, and no such package"),
        (("list", "--layer", "nowhere"), "DIR: nowhere: no such directory, and no such package"),
        (("show", "refund"), "KEY: no prompt 'refund' (did you mean 's/refund'?)"),
        (("show", "s/refund", "--dir", "./no/where"), "--dir: no/where: a library must be a directory or a package"),
        (("show", "s/refund", "--version", "x.y"), "KEY: invalid version or range 'x.y'"),
        (("show", "s/refund", "--param", "model"), "--param: expected NAME=VALUE, not 'model'"),
        (("diff", "s/refund", "1", "2", "--dir", "no"), "--dir: no: no such directory, and no such package"),
        (("diff", "s/refund", "1.0.0", "9"), "KEY: no version '9' of the prompt 's/refund'; available"),
        (("show",), "KEY: Missing argument 'KEY'."),  # the message was only "key: "
        (("diff", "s/refund", "1.0.0"), "B: Missing argument 'B'."),
        (("shwo",), "lib: unknown command 'shwo' (did you mean 'show'?); expected one of diff, list, show"),
        (("show", "s/refund.zh-CN.prompty"), "KEY: no prompt 's/refund.zh-CN.prompty' (did you mean 's/ref"),
        (("show", "broken"), "KEY: broken.prompty:3:1: "),
        (("diff", "broken", "1", "2"), "KEY: no version '1' of the prompt 'broken'; its file has no version"),
        (("show", "s/refund", "--lang", "french!"), "KEY: invalid language 'french!'; "),
    ],
)
def test_usage_error_is_one_line(run: Run, prompts: Path, argv: tuple[str, ...], message: str) -> None:
    (prompts / "broken.prompty").write_text("---\nname: {\n---\nHi")
    assert fault(run("lib", *argv)).startswith(message)


def test_broken_file_does_not_hide_other_prompts(run: Run, prompts: Path) -> None:
    (prompts / "broken.prompty").write_text("---\nname: {\n---\nHi")
    assert b"broken    " in run("lib", "list").out
    assert run("lib", "show", "ask").status == 0
