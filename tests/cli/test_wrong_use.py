import errno
import os
import sys
from pathlib import Path

import click
import pytest

from cli.helpers import ERROR, QA, TOOLS, Run, fault, write
from lazyprompt import ChatPrompter, errors
from lazyprompt.cli.main import main
from lazyprompt.cli.prompts import PromptRequest
from lazyprompt.cli.streams import WrongUseError, file_text
from support.paths import PROMPTS

ALPACA = ("--type", "alpaca", "--instruction", "x")
ASSISTANT = (str(PROMPTS / "assistant.yaml"), "--set", "today=x", "--input", "y")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["redner"], "COMMAND: unknown command 'redner' (did you mean 'render'?); expected one of batch, cache, "),
        (["--modle"], "--modle: No such option"),
        (["render", "--modle", "x"], "--modle: No such option"),
        (["render", "--set"], "--set: Option '--set' requires an argument."),
        (["render", "--json=1"], "--json: "),
        (["convert"], "FILE: Missing argument 'FILE'."),
        (["convert", "x.prompty"], "--to: Missing option '--to'. Choose from: v2, agentschema"),
        (["check-template"], "PATH: Missing argument 'PATH'."),
        (["render", "a", "b"], "render: Got unexpected extra argument (b)"),
        (["render", "--type", "x"], "--type: unknown value 'x'; expected one of chat, alpaca"),
        (
            ["render", "--format", "gemni"],
            "--format: unknown value 'gemni' (did you mean 'gemini'?); expected one of flat, ",
        ),
        (["render", "--safety", "x"], "--safety: unknown value 'x'; expected one of neutralize, raise, off"),
        (["render", "--color", "x"], "--color: unknown value 'x'; expected one of auto, always, never"),
        (["list", "families", "x"], "families: Got unexpected extra argument (x)"),
        (["render"], "PROMPT_FILE: nothing to render; add a prompt file, --instruction or --input"),
        (["render", *QA], "--set: no value for 'question', 'context'; the slots are 'question', 'context'"),
        (["render", *QA, "--set", "question=x"], "--set: no value for 'context'; the slots are 'question', 'context'"),
        (
            ["render", *QA, "--set", "question=x", "--set", "contxt=y"],
            "--set: no value for 'context'; no slot named 'contxt' (did you mean 'context'?); the slots are",
        ),
        (["render", *QA, "--input", "x"], "--input: the input is a single str, but the template has 2 slots; "),
        (["render", "--type", "alpaca", "--input", "x"], "--input: no slot for the input; "),
        (["render", "--input", "x", "--set", "a"], "--set: expected NAME=VALUE, not 'a'"),
        (["render", "--input", "x", "--set", "=a"], "--set: expected NAME=VALUE, not '=a'"),
        (["render", "--set", "a=1", "--set", "a=2"], "--set: 'a' is set twice"),
        (["render", "--set", "input=1", "--input", "2"], "--input: --set also sets a value for 'input'; "),
        (["render", "--set", "a=@no.txt"], "--set: no.txt: No such file or directory (for text that starts with @"),
        (["render", "--set", "a=@"], "--set: the file name is empty (for text"),
        (["render", "--input", "@."], "--input: .: the path is a directory, not a regular file"),
        (["render", "--input", "@a\0b"], "--input: a\\u0000b: "),
        (["render", "--input", "x", "--history", "no.json"], "--history: no.json: No such file or directory"),
        (["render", "--input", "x", "--tools", "no.json"], "--tools: no.json: No such file or directory"),
        (["render", "no.yaml"], "PROMPT_FILE: no.yaml:1:1: file not found"),
        (["render", "--extra-key", "a"], "--extra-key: extra_keys requires an instruction"),
        (
            ["render", "--instruction", "x", "--extra-key", "a b"],
            "--extra-key: extra_keys[0] must contain only letters",
        ),
        (["render", "--input", "x", "--model", "no-such"], "--model: no model family is known for 'no-such'"),
        (
            ["render", "--input", "x", "--model", "qwen25", "--format", "openai"],
            "--model: no model family is known for 'qwen25' (did you mean 'q",
        ),
        (["render", "--input", "x", "--color", "always", "--json"], "--color: only flat text has colour"),
        (["render", "--input", "x", "--color", "always", "--format", "openai"], "--color: only flat text has colour"),
        (["render", "--input", "x", "-o", "no/dir"], "--output: no/dir: No such file or directory"),
        (["render", "--input", "x", "-o", "."], "--output: .: Is a directory"),
        (["render", "--input", "x", "-o", "a\0b"], "--output: a\\u0000b: "),
        (["render", "--input", "\udcff"], "--input: the text is not valid UTF-8"),
        (["render", "--instruction", "\udcff"], "--instruction: the text is not valid UTF-8"),
        (["render", "--extra-key", "\udcff"], "--extra-key: the text is not valid UTF-8"),
        (["render", "--set", "a=1", "--set", "b=\udcff"], "--set: the text is not valid UTF-8"),
        (["render", "--input", "x", "--label", "\udcff"], "--label: the text is not valid UTF-8"),
        (["render", "--input", "x", "--system", "\udcff"], "--system: the text is not valid UTF-8"),
        (["render", *ALPACA, "--history", "h.json"], "--history: the Alpaca format has no turns"),
        (["render", *ASSISTANT, "--tools", "t.json"], "--tools: this prompter was created with the tools get_weather"),
        # Messages of several lines are joined to one, and their control characters are escaped.
        (
            ["render", "p.yaml"],
            (
                "PROMPT_FILE: p.yaml:2:15: mapping values are not allowed in this context; put text that contains ': ' "
                "in quotes, or after a |; instruction: a: b\n"
            ),
        ),
        (["render", "a\n\x1b[31m\rb"], "PROMPT_FILE: a; \\u001b[31m; b:1:1: "),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_usage_error_is_one_line(run: Run, tmp_path: Path, argv: list[str], message: str) -> None:
    write(tmp_path / "h.json", [["a", "b"]])
    write(tmp_path / "t.json", TOOLS)
    write(tmp_path / "p.yaml", "type: chat\ninstruction: a: b\n")
    assert f"{fault(run(*argv))}\n".startswith(message)


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--history", "{", "x.json: not valid JSON: Expecting property name"),
        ("--history", "{}", "x.json: must contain a JSON list, not an object"),
        ("--history", "null", "x.json: must contain a JSON list, not null"),
        ("--history", '"x"', "x.json: must contain a JSON list, not a string"),
        ("--history", "[" * 100_000, "x.json: not valid JSON: "),
        ("--history", "9" * 5000, "x.json: not valid JSON: "),
        ("--history", '[["a", "b"], ["c"]]', "history[1] contains 1 items; "),
        ("--history", '[["a", "\\ud800"]]', "history[0]"),
        ("--tools", "5", "x.json: must contain a JSON list, not a number"),
        ("--tools", "true", "x.json: must contain a JSON list, not a boolean"),
        ("--tools", '[{"type": "function"}]', "tools[0]"),
    ],
)
def test_wrong_json_file_is_a_usage_error(run: Run, tmp_path: Path, option: str, content: str, message: str) -> None:
    write(tmp_path / "x.json", content)
    assert fault(run("render", "--input", "x", option, "x.json")).startswith(f"{option}: {message}")


def test_invalid_utf8_in_files_and_pipes_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"ab\xff")
    assert fault(run("render", "--input", "@x")) == "--input: x: byte 0xff at offset 2 is not UTF-8"
    assert fault(run("render", "--input", "x", "--tools", "x")) == "--tools: x: byte 0xff at offset 2 is not UTF-8"
    assert fault(run("render", stdin=b"ab\xff")) == "stdin: standard input: byte 0xff at offset 2 is not UTF-8"


def test_reading_standard_input_twice_is_a_usage_error(run: Run) -> None:
    message = fault(run("render", *QA, "--set", "question=@-", "--set", "context=@-", stdin=b"x"))
    assert message == "--set: standard input was already read for --set"


def test_piped_object_with_unknown_slot_names_is_a_usage_error(run: Run) -> None:
    message = fault(run("render", *QA, stdin=b'{"question": 1, "contxt": 2}'))
    assert message.startswith("stdin: no value for 'context'; no slot named 'contxt' (did you mean 'context'?); ")
    assert message.endswith("; use --set name=value to set one slot")


def test_long_wrong_value_is_shortened_in_the_message(run: Run) -> None:
    assert len(fault(run("render", "--set", "x" * 10_000))) < 100


def test_interrupt_ends_with_status_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lazyprompt.cli.prompts.json_list", interrupted)
    assert run("render", "--input", "x").status == 130


def test_closed_stdout_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["render", "--input", "x"]) == 2
    assert capsys.readouterr().err == f"{ERROR}stdout: {os.strerror(errno.EBADF)}\n"


def test_unexpected_exceptions_are_not_caught(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ChatPrompter, "render", broken)
    with pytest.raises(ZeroDivisionError):
        run("render", "--input", "x")


def test_click_errors_without_an_option_name_the_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise click.ClickException("no")

    monkeypatch.setattr("lazyprompt.cli.prompts.json_list", refuse)
    assert fault(run("render", "--input", "x")) == "COMMAND: no"


@pytest.mark.parametrize(
    ("error", "option"),
    [
        (errors.HistoryError("no"), "--history"),
        (errors.ToolsError("no"), "--tools"),
        (errors.SafetyError("no"), "--safety"),
        (errors.FormatError("no"), "--format"),
        (errors.BudgetError("no"), "--max-tokens"),
        (errors.TokenizerError("no"), "--counter"),
        (errors.SlotError("no"), "--set"),
        (errors.missing_extra("a", "b"), "--counter"),
    ],
)
def test_error_of_the_library_names_the_option(error: Exception, option: str) -> None:
    with pytest.raises(WrongUseError) as caught, PromptRequest(ChatPrompter("")).blaming():
        raise error
    assert caught.value.where == option


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has both names")
@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_file_descriptor_path_is_read_as_a_file(folder: str) -> None:
    source, sink = os.pipe()
    os.write(sink, b"[1]")
    os.close(sink)
    try:
        assert file_text("--tools", f"{folder}/{source}") == "[1]"
    finally:
        os.close(source)
