import json
from pathlib import Path
from typing import Any

import pytest

from cli.helpers import Ran, Run, fault, write
from lazyprompt.chat_templates.template import ChatTemplate
from support.missing import needs

PLAIN = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOOLS = "{{ tools|tojson if tools }}" + PLAIN
CONFIG = {"bos_token": "<s>", "eos_token": "</s>"}
SEVERAL = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": TOOLS}]
TOKEN = {"id": 0, "content": "<s>", "special": True}
FLAGS = {"normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
ADDS_BOS = {
    "version": "1.0",
    "added_tokens": [TOKEN | FLAGS],
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, TEXT],
        "pair": [TEXT, TEXT],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
    },
    "model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1}, "unk_token": "a"},
}


def findings(ran: Ran) -> dict[str, dict[str, Any]]:
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count(b"\n") == 1
    return {finding["name"]: finding for finding in json.loads(ran.out)}


def test_report_lists_the_findings_of_the_template_check(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "chat.jinja", PLAIN)
    ran = run("check-template", path)
    assert (ran.status, ran.err) == (0, "")
    bos = "<s>"
    template = ChatTemplate.load(path, bos_token=bos)
    assert ran.out.decode() == f"{template.check()}\n"
    assert b"\nstop token trained            yes  '</>'\n" in ran.out


def test_json_lists_each_finding_with_its_detail(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "chat.jinja", PLAIN)
    found = findings(run("check-template", path, "--json"))
    assert [*found] == [finding.name for finding in ChatTemplate.load(path).check().findings]
    assert found["system text supported"] == {"name": "system text supported", "holds": True, "detail": ""}
    assert found["tools supported"] == {"name": "tools supported", "holds": False, "detail": "they are dropped"}
    assert found["double beginning of text"]["holds"] is None


@pytest.mark.parametrize("file", ["", "tokenizer_config.json"])
def test_double_beginning_of_text_is_found_with_the_tokenizer(run: Run, tmp_path: Path, file: str) -> None:
    needs("tokenizers")
    write(tmp_path / "tokenizer_config.json", CONFIG | {"chat_template": PLAIN})
    argv = ("check-template", str(tmp_path / file), "--json")
    assert findings(run(*argv))["double beginning of text"]["holds"] is None
    write(tmp_path / "tokenizer.json", ADDS_BOS)
    assert findings(run(*argv))["double beginning of text"] == {
        "name": "double beginning of text",
        "holds": True,
        "detail": "the tokenizer adds another: encode without adding special tokens",
    }
    write(tmp_path / "tokenizer.json", ADDS_BOS | {"post_processor": None})
    assert findings(run(*argv))["double beginning of text"]["holds"] is False


@pytest.mark.parametrize(("argv", "holds"), [((), False), (("--name=default",), False), (("--name=tool_use",), True)])
def test_name_option_selects_a_template(run: Run, tmp_path: Path, argv: tuple[str, ...], *, holds: bool) -> None:
    write(tmp_path / "tokenizer_config.json", CONFIG | {"chat_template": SEVERAL})
    assert findings(run("check-template", str(tmp_path), "--json", *argv))["tools supported"]["holds"] is holds


@pytest.mark.parametrize("value", ["", "[T]"])
@pytest.mark.parametrize(("name", "default"), CONFIG.items())
def test_special_token_has_a_default_and_an_option(
    run: Run, tmp_path: Path, name: str, default: str, value: str
) -> None:
    path = write(tmp_path / "chat.jinja", PLAIN.replace("</>", f"{{{{ {name} }}}}"))
    argv = [f"--{name.replace('_', '-')}", value] if value else []
    found = findings(run("check-template", path, "--json", *argv))
    assert found["stop token trained"]["detail"] == repr(value or default)


@pytest.mark.parametrize(
    ("files", "argv", "message"),
    [
        ({}, ("nowhere",), "nowhere does not exist; pass a tokenizer's directory"),
        ({"t.jinja": "\n{% if %}"}, ("t.jinja",), "the chat template, line 2: "),
        (
            {"tokenizer_config.json": {"chat_template": SEVERAL}},
            (".", "--name", "tooluse"),
            "'tooluse' (did you mean 'tool_use'?); available templates: 'default', 'tool_use'; set name=",
        ),
        ({"t.jinja": PLAIN, "tokenizer.json": "{"}, ("t.jinja",), "the tokenizers package cannot read "),
        ({"model.gguf": "no"}, ("model.gguf",), "model.gguf is not a valid GGUF file"),
    ],
)
def test_path_without_a_valid_template_is_a_usage_error(
    run: Run, tmp_path: Path, files: dict[str, object], argv: tuple[str, ...], message: str
) -> None:
    needs("gguf", "tokenizers")
    for name, content in files.items():
        write(tmp_path / name, content)
    found = fault(run("check-template", *argv))
    assert found.startswith("PATH: ")
    assert message in found


@pytest.mark.parametrize("argv", [("a", "b"), ("a", "--nope")])
def test_wrong_arguments_are_usage_errors(run: Run, argv: tuple[str, ...]) -> None:
    assert fault(run("check-template", *argv))
