"""The command ``lazyprompt check``, run by itself, and the definition of its hook."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from lazyprompt._cli_check import check_command

HOOKS = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"
WRONG = "system:\nBe kind.\nuser:\n{{ a | lowr }}\n"
DOUBTFUL = "system:\nBe kind.\nasistant:\nHi.\n"
RIGHT = "system:\nBe kind.\nuser:\nHi.\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.prompty").write_text(WRONG, encoding="utf-8")
    Path("doubtful.prompty").write_text(DOUBTFUL, encoding="utf-8")
    Path("right.prompty").write_text(RIGHT, encoding="utf-8")


def ran(*argv: str) -> Result:
    return CliRunner().invoke(check_command, argv)


def test_nothing_found() -> None:
    result = ran("right.prompty")
    assert (result.exit_code, result.output) == (0, "nothing found in 1 file\n")


def test_plain() -> None:
    result = ran("wrong.prompty", "doubtful.prompty")
    assert result.exit_code == 1
    assert result.output == (
        "wrong.prompty:4:8: LP052 there is no filter 'lowr' (did you mean 'lower'?); take one that Jinja has\n"
        "    {{ a | lowr }}\n"
        "           ^\n"
        "doubtful.prompty:3:1: LP030 'asistant' is no role (did you mean 'assistant'?): the line is text, and begins "
        "no section; write assistant:\n"
        "1 error, 1 warning in 2 files\n"
    )


def test_json() -> None:
    result = ran("wrong.prompty", "--format", "json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.output)
    assert list(finding) == ["code", "severity", "message", "file", "line", "column", "advice", "excerpt"]
    assert (finding["code"], finding["line"], finding["column"]) == ("LP052", 4, 8)
    assert json.loads(ran("right.prompty", "--format", "json").output) == []


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (("doubtful.prompty",), 0),
        (("doubtful.prompty", "--strict"), 1),
        (("doubtful.prompty", "--strict", "--ignore", "LP03"), 0),
        (("wrong.prompty", "--select", "LP030,lp031"), 0),
        (("wrong.prompty", "--select", "LP05"), 1),
        (("wrong.prompty", "--select", "LP05", "--ignore", "LP052"), 0),
        (("no.prompty",), 2),
        ((), 2),
        (("wrong.prompty", "--select", "LP9999"), 2),
        (("wrong.prompty", "--ignore", ""), 2),
        (("notes.txt",), 2),
    ],
)
def test_exit_status(argv: tuple[str, ...], status: int) -> None:
    Path("notes.txt").write_text("x", encoding="utf-8")
    result = CliRunner().invoke(check_command, argv, standalone_mode=True)
    assert (2 if status == 2 and result.exit_code else result.exit_code) == status
    # Wrong use is an error of click, which the command line ends with status 2.
    assert (result.exit_code != 0) is (status != 0)


def test_directories_are_gone_through() -> None:
    Path("a/.git").mkdir(parents=True)
    for name in ("a/x.prompty", "a/.git/y.prompty", "a/z.txt"):
        Path(name).write_text(DOUBTFUL, encoding="utf-8")
    Path("a/compose.yaml").write_text("services: {web: {image: x}}\n", encoding="utf-8")
    Path("a/broken.yaml").write_text("a: [", encoding="utf-8")
    Path("a/qa.yaml").write_text("instruction: 7\n", encoding="utf-8")
    result = ran("a", "--format", "json")
    assert [(Path(each["file"]).name, each["code"]) for each in json.loads(result.output)] == [
        ("qa.yaml", "LP001"),
        ("x.prompty", "LP030"),
    ]


def test_a_file_that_is_named_twice_is_checked_once() -> None:
    assert ran("wrong.prompty", ".", "wrong.prompty").output.count("LP052") == 1


def test_control_characters_are_shown_and_not_obeyed() -> None:
    Path("e.prompty").write_text("user:\n{{ a | lowr }} \x1b[2J\n", encoding="utf-8")
    assert "\x1b" not in ran("e.prompty").output


def test_the_caret_of_a_long_line_with_wide_letters() -> None:
    Path("w.prompty").write_text(f"user:\n{'字' * 200}{{{{ a | lowr }}}}\n", encoding="utf-8")
    _, line, caret, _ = ran("w.prompty").output.splitlines()
    assert line[: (caret.index("^") - 4 - 6) // 2 + 4 + 6].endswith("{{ a |")
    assert len(line) <= 110


def test_the_hook() -> None:
    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert (hook["id"], hook["entry"], hook["language"]) == ("lazyprompt-check", "lazyprompt check", "python")
    names = {"a.prompty": True, "b/c.prompt": True, "a.promptyx": False, "prompt.txt": False, "prompt": False}
    assert {name: re.search(hook["files"], name) is not None for name in names} == names
