from __future__ import annotations

import errno
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import pytest

from lazyprompt import AlpacaPrompter, ChatPrompter, Markers, __version__
from lazyprompt.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[1] / "examples" / "prompts"
QA = ("--instruction", "Answer {question} from {context}.")
ERROR = "lazyprompt: error: "
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]


class Ran(NamedTuple):
    status: int
    out: bytes
    err: str

    @property
    def json(self) -> dict[str, list[dict[str, object]]]:
        assert (self.status, self.err) == (0, "")
        value: dict[str, list[dict[str, object]]] = json.loads(self.out)
        return value


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run the command line in this process; without ``stdin`` it sits at a terminal."""
    monkeypatch.chdir(tmp_path)

    def run_main(*argv: str, stdin: bytes | None = None) -> Ran:
        kind = Terminal if stdin is None else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(stdin or b"")))
        status = main(list(argv))
        out, err = capsysbinary.readouterr()
        return Ran(status, out, err.decode())

    return run_main


def fault(ran: Ran) -> str:
    """The message of wrong use, after looking at all that wrong use promises."""
    assert ran.status == 2
    assert ran.out == b""
    assert ran.err.startswith(ERROR)
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    return ran.err.removeprefix(ERROR).removesuffix("\n")


def write(path: Path, value: object) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return str(path)


# --- From options ------------------------------------------------------------------------------------------------


def test_slots_and_input(run: Callable[..., Ran]) -> None:
    ran = run("render", *QA, "--set", "question=who", "--set", "context=a=b", "--input", "hi")
    expected = ChatPrompter(QA[1]).generate_prompt({"question": "who", "context": "a=b", "input": "hi"})
    assert ran == Ran(0, expected.encode(), "")


def test_input_fills_the_only_slot(run: Callable[..., Ran]) -> None:
    assert b"Say hi." in run("render", "--instruction", "Say {x}.", "--input", "hi").out


def test_type_alpaca(run: Callable[..., Ran]) -> None:
    ran = run("render", "--type", "alpaca", "--instruction", "Add {a}", "--set", "a=1")
    assert ran == Ran(0, AlpacaPrompter("Add {a}").generate_prompt("1").encode(), "")


def test_user_instruction(run: Callable[..., Ran]) -> None:
    both = run("render", "--instruction", "S", "--user-instruction", "U", "--format", "openai", "--system", "").json
    assert both["messages"] == [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    alone = run("render", "--user-instruction", "U{x}", "--input", "1", "--format", "openai", "--system", "").json
    assert alone["messages"] == [{"role": "user", "content": "U1"}]


def test_extra_keys(run: Callable[..., Ran]) -> None:
    ran = run("render", "--instruction", "x", "--extra-key", "a", "--extra-key", "b", "--set", "a=1", "--set", "b=2")
    assert ran.out.decode() == ChatPrompter("x", extra_keys=["a", "b"]).generate_prompt({"a": "1", "b": "2"})


def test_system_history_tools_label_model(run: Callable[..., Ran], tmp_path: Path) -> None:
    history = write(tmp_path / "h.json", [["问", "答"]])
    tools = write(tmp_path / "t.json", TOOLS)
    options = ["--system", "S", "--history", history, "--tools", tools, "--label", "L", "--model", "qwen2.5"]
    expected = ChatPrompter(system="S").generate_prompt("hi", [["问", "答"]], TOOLS, "L", model="qwen2.5")
    assert run("render", "--input", "hi", *options).out.decode() == expected


def test_empty_system(run: Callable[..., Ran]) -> None:
    assert b"LazyLLM" in run("render", "--input", "hi").out
    assert b"LazyLLM" not in run("render", "--input", "hi", "--system", "").out


def test_history_alone_is_enough(run: Callable[..., Ran], tmp_path: Path) -> None:
    history = write(tmp_path / "h.json", [{"role": "user", "content": "hi"}])
    assert run("render", "--history", history, "--format", "openai", "--system", "").json == {
        "messages": [{"role": "user", "content": "hi"}]
    }


def test_safety(run: Callable[..., Ran]) -> None:
    given = ("render", "--input", "<|im_end|>", "--model", "qwen2.5")
    assert b"<\\|im_end|>" in run(*given).out
    assert b"\n<|im_end|><|im_end|>" in run(*given, "--safety", "off").out
    message = fault(run(*given, "--safety", "raise"))
    assert message.startswith("--safety: 'input' holds the control sequence '<|im_end|>'; ")


# --- Values ------------------------------------------------------------------------------------------------------


def test_value_from_a_file_is_exact(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes("a\r\n中\n\n".encode())
    ran = run("render", "--instruction", "[{x}]", "--set", "x=@v.txt")
    assert "[a\r\n中\n\n]".encode() in ran.out
    assert "\na\r\n中\n\n\n".encode() in run("render", "--input", "@v.txt").out


def test_value_from_a_file_with_a_byte_order_mark(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(b"\xef\xbb\xbfa")
    assert b"[a]" in run("render", "--instruction", "[{x}]", "--set", "x=@v.txt").out


def test_value_from_the_standard_input(run: Callable[..., Ran]) -> None:
    ran = run("render", "--instruction", "[{x}]", "--set", "x=@-", stdin=b'{"a": 1}\n')
    assert b'[{"a": 1}\n]' in ran.out
    assert b"\nhi\n\n" in run("render", "--input", "@-", stdin=b"hi\n").out


def test_literal_at(run: Callable[..., Ran]) -> None:
    assert b"[@x]" in run("render", "--instruction", "[{x}]", "--set", "x=@@x").out
    assert b"[@@x]" in run("render", "--instruction", "[{x}]", "--input", "@@@x").out


# --- What is piped in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b"hi\n", "hi"),
        (b"hi\n\n", "hi\n"),
        (b"hi", "hi"),
        (b"\n", ""),
        (b"[1]\n", "[1]"),
        (b"5", "5"),
        (b"{not json}", "{not json}"),
        (b'{"input": "a\\nb"}\n', "a\nb"),
        ("\ufeff中\r\n".encode(), "中\r"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_piped_text(run: Callable[..., Ran], stdin: bytes, said: str) -> None:
    made = run("render", "--system", "", "--format", "openai", stdin=stdin).json
    assert made == {"messages": [{"role": "user", "content": said}]}


def test_piped_object_fills_the_slots(run: Callable[..., Ran]) -> None:
    given = {"question": "谁", "context": [1, {"a": None}]}
    ran = run("render", *QA, stdin=json.dumps(given).encode())
    assert ran.out.decode() == ChatPrompter(QA[1]).generate_prompt(given)


def test_empty_pipe_is_no_input(run: Callable[..., Ran]) -> None:
    assert fault(run("render", *QA, stdin=b"")).startswith("--set: no value for 'question', 'context'; ")
    assert run("render", "--instruction", "x", stdin=b"").out == ChatPrompter("x").generate_prompt().encode()


def test_pipe_is_not_read_beside_values(run: Callable[..., Ran]) -> None:
    assert b"piped" not in run("render", "--input", "hi", stdin=b"piped").out
    assert b"piped" not in run("render", "--instruction", "{x}", "--set", "x=1", stdin=b"piped").out


def test_pipe_is_not_read_where_nothing_could_take_it(run: Callable[..., Ran]) -> None:
    ran = run("render", "--type", "alpaca", "--instruction", "x", stdin=b"\xff")
    assert ran == Ran(0, AlpacaPrompter("x").generate_prompt().encode(), "")


def test_process_without_a_standard_input(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    run("--version")
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["render", "--instruction", "x"]) == 0
    assert main(["render", "--input", "@-"]) == 0


# --- From a prompt file ------------------------------------------------------------------------------------------


def test_prompt_file(run: Callable[..., Ran]) -> None:
    ran = run("render", str(EXAMPLES / "document_qa.yaml"), "--set", "document=合同", "--set", "question=谁？")
    text = ran.out.decode()
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("文档：\n合同\n\n问题：谁？<|im_end|>\n<|im_start|>assistant\n")


def test_prompt_file_with_examples(run: Callable[..., Ran]) -> None:
    made = run("render", str(EXAMPLES / "translate.yaml"), "--format", "openai", stdin=b"Save {x}?\n").json
    said = [turn["content"] for turn in made["messages"]]
    assert said[1:3] == ["Are you sure you want to delete {file_name}?", "确定要删除 {file_name} 吗？"]
    assert said[-1] == "Save {x}?"
    assert "such as {name} and" in str(said[0])


def test_prompt_file_with_tools(run: Callable[..., Ran]) -> None:
    given = ("--set", "today=2026-11-20", "--input", "明天北京冷吗？", "--format", "openai")
    made = run("render", str(EXAMPLES / "assistant.yaml"), *given).json
    assert [turn["role"] for turn in made["messages"]] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert made["tools"][0]["type"] == "function"


def test_options_that_override_a_prompt_file(run: Callable[..., Ran], tmp_path: Path) -> None:
    file = write(tmp_path / "p.yaml", "instruction: x\nsystem: old\nmodel: chatml\nhistory: [[a, b]]")
    history = write(tmp_path / "h.json", [["c", "d"]])
    tools = write(tmp_path / "t.json", TOOLS)
    options = ["--system", "new", "--model", "qwen2.5", "--history", history, "--tools", tools]
    prompter = ChatPrompter("x", system="new", history=[["a", "b"], ["c", "d"]]).with_markers("qwen2.5")
    assert run("render", file, *options, "--input", "hi").out.decode() == prompter.generate_prompt("hi", tools=TOOLS)


@pytest.mark.parametrize(
    "option", [("--instruction", ""), ("--user-instruction", "u"), ("--type", "chat"), ("--extra-key", "k")]
)
def test_options_that_a_prompt_file_leaves_no_room_for(run: Callable[..., Ran], option: tuple[str, str]) -> None:
    message = fault(run("render", str(EXAMPLES / "translate.yaml"), *option))
    assert message == f"{option[0]}: the prompt file says that; give one of the two"


# --- What comes out ----------------------------------------------------------------------------------------------


def test_json_of_flat_text(run: Callable[..., Ran]) -> None:
    ran = run("render", "--instruction", "答{q}", "--input", "谁", "--json")
    rendered = ChatPrompter("答{q}").render("谁")
    assert ran.out.count(b"\n") == 1
    assert "谁".encode() in ran.out
    assert ran.json == {
        "text": rendered.text,
        "segments": [{"text": text, "slot": slot, "trusted": trusted} for text, slot, trusted in rendered.segments],
    }


def test_openai(run: Callable[..., Ran]) -> None:
    ran = run("render", "--system", "", "--input", "谁", "--format", "openai")
    assert ran.out.decode() == (
        '{\n  "messages": [\n    {\n      "role": "user",\n      "content": "谁"\n    }\n  ]\n}\n'
    )
    ran = run("render", "--system", "", "--input", "谁", "--format", "openai", "--json")
    assert ran.out.decode() == '{"messages":[{"role":"user","content":"谁"}]}\n'


def test_plain_text_has_no_newline_of_its_own(run: Callable[..., Ran]) -> None:
    ran = run("render", "--type", "alpaca", "--user-instruction", "x\r\n\x1b[0m", "--label", "end")
    assert ran.out.endswith(b"end")
    assert b"x\r\n\x1b[0m" in ran.out


def test_color_always(run: Callable[..., Ran]) -> None:
    ran = run("render", "--input", "hi", "--color", "always")
    assert b"\x1b[4;33mhi\x1b[0m" in ran.out
    assert "── ".encode() in ran.out


def test_output_file(run: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    old = os.umask(0o027)
    try:
        assert run("render", "--input", "中\r\n", "-o", str(path)) == Ran(0, b"", "")
    finally:
        os.umask(old)
    assert path.read_bytes() == ChatPrompter().generate_prompt("中\r\n").encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_output_file_is_replaced_in_one_step(run: Callable[..., Ran], tmp_path: Path) -> None:
    path, link = tmp_path / "out.txt", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o604)
    link.symlink_to(path)
    with path.open() as before:
        assert run("render", "--input", "new", "--output", str(link)).status == 0
        assert before.read() == "old"
    assert b"new" in path.read_bytes()
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_failed_output_leaves_the_old_file(
    run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(self), str(target))

    monkeypatch.setattr(Path, "replace", full)
    assert fault(run("render", "--input", "x", "-o", str(path))) == f"--output: {path}: No space left on device"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_output_to_a_pipe_writes_into_it(run: Callable[..., Ran], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert run("render", "--input", "x", "-o", str(pipe)).status == 0
    reader.join(10)
    assert read == [ChatPrompter().generate_prompt("x").encode()]
    assert pipe.is_fifo()


# --- The other commands ------------------------------------------------------------------------------------------


def test_version(run: Callable[..., Ran]) -> None:
    assert run("--version") == Ran(0, f"lazyprompt {__version__}\n".encode(), "")


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
def test_help(run: Callable[..., Ran], argv: tuple[str, ...]) -> None:
    ran = run(*argv)
    assert (ran.status, ran.err) == (0, "")
    assert b"render" in ran.out
    assert b"families" in ran.out


def test_help_of_render_has_examples_as_they_are_typed(run: Callable[..., Ran]) -> None:
    out = run("render", "-h").out.decode()
    assert "\n    cat report.txt | lazyprompt render summary.yaml --format openai\n" in out
    assert "\b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_families(run: Callable[..., Ran]) -> None:
    header, *rows = run("families").out.decode().splitlines()
    assert header.split() == ["NAME", "SYSTEM", "STOP"]
    assert [row.split()[0] for row in rows] == list(Markers.families())
    (row,) = [row for row in rows if row.startswith("qwen2.5 ")]
    assert row.split() == ["qwen2.5", "yes", '"<|im_end|>"']
    assert {row.index(row.split()[1], len(row.split()[0])) for row in rows} == {header.index("SYSTEM")}


def test_families_as_json(run: Callable[..., Ran]) -> None:
    ran = run("families", "--json")
    listed = json.loads(ran.out)
    assert ran.out.count(b"\n") == 1
    (row,) = [row for row in listed if row["name"] == "qwen2.5"]
    markers = Markers.for_model("qwen2.5")
    assert row["soh"] == markers.soh
    assert row["stop"] == list(markers.stop)
    assert set(row) == {"name", *Markers.__dataclass_fields__}


# --- Wrong use ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["redner"], "COMMAND: No such command 'redner'."),
        (["--modle"], "--modle: No such option"),
        (["render", "--modle", "x"], "--modle: No such option"),
        (["render", "--set"], "--set: Option '--set' requires an argument."),
        (["render", "--json=1"], "--json: "),
        (["render", "a", "b"], "render: Got unexpected extra argument (b)"),
        (["render", "--type", "x"], "--type: 'x' is not one of 'chat', 'alpaca'."),
        (["render", "--format", "x"], "--format: 'x' is not one of "),
        (["render", "--safety", "x"], "--safety: 'x' is not one of "),
        (["render", "--color", "x"], "--color: 'x' is not one of "),
        (["families", "x"], "families: Got unexpected extra argument (x)"),
        (["render"], "PROMPT_FILE: nothing to render; give a prompt file, --instruction or --input"),
        (["render", *QA], "--set: no value for 'question', 'context'; the slots are 'question', 'context'"),
        (
            ["render", *QA, "--set", "question=x"],
            "--set: no value for 'context'; the slots are 'question', 'context'",
        ),
        (
            ["render", *QA, "--set", "question=x", "--set", "contxt=y"],
            "--set: no value for 'context'; no slot named 'contxt' (did you mean 'context'?); the slots are",
        ),
        (["render", *QA, "--input", "x"], "--input: the input is one str, but there are 2 slots; "),
        (["render", "--type", "alpaca", "--input", "x"], "--input: the input has no slot to go to; "),
        (["render", "--input", "x", "--set", "a"], "--set: 'a' is not of the form name=value"),
        (["render", "--input", "x", "--set", "=a"], "--set: '=a' is not of the form name=value"),
        (["render", "--set", "a=1", "--set", "a=2"], "--set: 'a' is given twice"),
        (["render", "--set", "input=1", "--input", "2"], "--input: --set gives a value for 'input' too; "),
        (["render", "--set", "a=@no.txt"], "--set: no.txt: No such file or directory (a text that begins with @ is"),
        (["render", "--set", "a=@"], "--set: the name of the file is empty (a text"),
        (["render", "--input", "@."], "--input: .: Is a directory"),
        (["render", "--input", "@a\0b"], "--input: a\\u0000b: embedded null byte"),
        (["render", "--input", "x", "--history", "no.json"], "--history: no.json: No such file or directory"),
        (["render", "--input", "x", "--tools", "no.json"], "--tools: no.json: No such file or directory"),
        (["render", "no.yaml"], "PROMPT_FILE: no.yaml:1:1: cannot be read: No such file or directory"),
        (["render", "--extra-key", "a"], "--extra-key: extra_keys need an instruction"),
        (["render", "--instruction", "x", "--extra-key", "a b"], "--extra-key: extra_keys[0] is 'a b'; "),
        (["render", "--input", "x", "--model", "no-such"], "--model: no model family is known for 'no-such'"),
        (["render", "--input", "x", "--safety", "off", "--format", "openai"], "--safety: only flat text"),
        (["render", "--input", "x", "--color", "always", "--json"], "--color: only flat text has colour"),
        (["render", "--input", "x", "--color", "always", "--format", "openai"], "--color: only flat text has colour"),
        (["render", "--input", "x", "-o", "no/dir"], "--output: no/dir: No such file or directory"),
        (["render", "--input", "x", "-o", "."], "--output: .: Is a directory"),
        (["render", "--input", "x", "-o", "a\0b"], "--output: a\\u0000b: "),
        (["render", "--input", "\udcff"], "--input: the text is not UTF-8"),
        (["render", "--instruction", "\udcff"], "--instruction: the text is not UTF-8"),
        (["render", "--extra-key", "\udcff"], "--extra-key: the text is not UTF-8"),
        (["render", "--set", "a=1", "--set", "b=\udcff"], "--set: the text is not UTF-8"),
        (["render", "--input", "x", "--label", "\udcff"], "--label: the text is not UTF-8"),
        (["render", "--input", "x", "--system", "\udcff"], "--system: the text is not UTF-8"),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line(run: Callable[..., Ran], argv: list[str], message: str) -> None:
    assert fault(run(*argv)).startswith(message)


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--history", "{", "x.json: not JSON: Expecting property name"),
        ("--history", "{}", "x.json: must hold a JSON list, but holds an object"),
        ("--history", "null", "x.json: must hold a JSON list, but holds null"),
        ("--history", '"x"', "x.json: must hold a JSON list, but holds a string"),
        ("--history", "[" * 100_000, "x.json: not JSON: "),
        ("--history", "9" * 5000, "x.json: not JSON: "),
        ("--history", '[["a", "b"], ["c"]]', "history[1] has 1 items; "),
        ("--history", '[["a", "\\ud800"]]', "history[0]"),
        ("--tools", "5", "x.json: must hold a JSON list, but holds a number"),
        ("--tools", "true", "x.json: must hold a JSON list, but holds a boolean"),
        ("--tools", '[{"type": "function"}]', "tools[0]"),
    ],
)
def test_wrong_json(run: Callable[..., Ran], tmp_path: Path, option: str, content: str, message: str) -> None:
    write(tmp_path / "x.json", content)
    assert fault(run("render", "--input", "x", option, "x.json")).startswith(f"{option}: {message}")


def test_wrong_bytes_in_files(run: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"ab\xff")
    assert fault(run("render", "--input", "@x")) == "--input: x: byte 0xff at 2 is not UTF-8"
    assert fault(run("render", "--input", "x", "--tools", "x")) == "--tools: x: byte 0xff at 2 is not UTF-8"
    assert fault(run("render", stdin=b"ab\xff")) == "stdin: the standard input: byte 0xff at 2 is not UTF-8"


def test_history_for_alpaca(run: Callable[..., Ran], tmp_path: Path) -> None:
    write(tmp_path / "h.json", [["a", "b"]])
    message = fault(run("render", "--type", "alpaca", "--instruction", "x", "--history", "h.json"))
    assert message.startswith("--history: the Alpaca form has no turns")


def test_tools_given_twice(run: Callable[..., Ran], tmp_path: Path) -> None:
    write(tmp_path / "t.json", TOOLS)
    message = fault(
        run("render", str(EXAMPLES / "assistant.yaml"), "--set", "today=x", "--input", "y", "--tools", "t.json")
    )
    assert message.startswith("--tools: this prompter has the tools get_weather")


def test_standard_input_read_twice(run: Callable[..., Ran]) -> None:
    message = fault(run("render", *QA, "--set", "question=@-", "--set", "context=@-", stdin=b"x"))
    assert message == "--set: the standard input was read already, by --set"


def test_piped_object_with_wrong_names(run: Callable[..., Ran]) -> None:
    message = fault(run("render", *QA, stdin=b'{"question": 1, "contxt": 2}'))
    assert message.startswith("stdin: no value for 'context'; no slot named 'contxt' (did you mean 'context'?); ")
    assert message.endswith("; --set name=value gives one slot its value")


def test_prompt_file_error_is_joined_to_one_line(run: Callable[..., Ran], tmp_path: Path) -> None:
    write(tmp_path / "p.yaml", "type: chat\ninstruction: a: b\n")
    message = fault(run("render", "p.yaml"))
    assert message.startswith("PROMPT_FILE: p.yaml:2:15: mapping values are not allowed")
    assert message.endswith("; instruction: a: b")


def test_errors_cannot_speak_to_the_terminal(run: Callable[..., Ran]) -> None:
    assert fault(run("render", "a\n\x1b[31m\rb")).startswith("PROMPT_FILE: a; \\u001b[31m; b:1:1: ")


def test_long_wrong_setting_is_shortened(run: Callable[..., Ran]) -> None:
    assert len(fault(run("render", "--set", "x" * 10_000))) < 100


def test_interrupt_is_130(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lazyprompt.cli.json_list", interrupted)
    assert run("render", "--input", "x").status == 130


def test_closed_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["render", "--input", "x"]) == 2
    assert capsys.readouterr().err == f"{ERROR}stdout: {os.strerror(errno.EBADF)}\n"


def test_faults_of_the_program_are_not_hidden(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ChatPrompter, "render", broken)
    with pytest.raises(ZeroDivisionError):
        run("render", "--input", "x")


def test_click_errors_without_an_option_name_the_command(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise click.ClickException("no")

    monkeypatch.setattr("lazyprompt.cli.json_list", refuse)
    assert fault(run("render", "--input", "x")) == "COMMAND: no"


# --- As a process ------------------------------------------------------------------------------------------------


def process(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "lazyprompt", *argv],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


def test_process_renders_what_is_piped_in() -> None:
    ran = process("render", "--model", "qwen2.5", "--system", "", stdin="你好\r\n".encode())
    assert ran == Ran(0, "<|im_start|>user\n你好\r<|im_end|>\n<|im_start|>assistant\n".encode(), "")


def test_process_writes_utf8_in_every_locale() -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    assert "你好".encode() in process("render", stdin="你好".encode(), env=env).out
    env_error = process("render", "--input", "@你好", env={**env, "PYTHONUTF8": "1"})
    assert fault(env_error).startswith("--input: ")


def test_process_with_wrong_use() -> None:
    assert fault(process("render", *QA)).startswith("--set: no value for 'question', 'context'; ")
    assert fault(process("render", "--typ")).startswith("--typ: No such option")


def test_standard_input_that_cannot_be_read(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as written:
        done = subprocess.run(
            [sys.executable, "-m", "lazyprompt", "render"], stdin=written, capture_output=True, check=False, timeout=60
        )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"{ERROR}stdin: the standard input: ")
    assert done.stderr.count(b"\n") == 1
    assert b"None" not in done.stderr


def test_console_script_is_the_same() -> None:
    script = Path(sys.executable).with_name("lazyprompt")
    if not script.exists():
        pytest.skip("the package is not installed")
    done = subprocess.run([script, "--version"], capture_output=True, check=True, timeout=60)  # noqa: S603
    assert done.stdout.decode() == f"lazyprompt {__version__}\n"


def test_rich_and_yaml_are_not_imported_for_plain_text() -> None:
    code = (
        "import sys; from lazyprompt.cli import main; main(['render', '--input', 'x']); "
        "sys.exit(', '.join({'rich', 'yaml', 'jinja2', 'pydantic', 'tiktoken'} & sys.modules.keys()) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("argv", [["render", "--input", "x" * 100], ["render", "--help"]])
def test_reader_that_goes_away_ends_it_quietly(argv: list[str]) -> None:
    command = [sys.executable, "-m", "lazyprompt", *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:  # noqa: S603
        if running.stdout is None or running.stderr is None:
            pytest.fail("no pipes")
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) in {1, 141}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("argv", [["render", "--input", "x"], ["render", "--help"], ["families"]])
def test_full_disk_is_one_line(argv: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "lazyprompt", *argv], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr.decode()) == (2, f"{ERROR}stdout: No space left on device\n")


def test_interrupt_ends_it_quietly() -> None:
    # The program says on a pipe of its own when it has come to reading, so that no interrupt hits its start.
    code = (
        "import sys, lazyprompt._cli_io as io; from lazyprompt.cli import main; read = io.Stdin.read\n"
        "def told(self, reader):\n"
        "    print('reading', flush=True)\n"
        "    return read(self, reader)\n"
        "io.Stdin.read = told; sys.exit(main(['render']))"
    )
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        if running.stdout is None or running.stderr is None:
            pytest.fail("no pipes")
        assert running.stdout.readline() == b"reading\n"
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr.read().strip() == b""


def on_terminal(*argv: str, **env: str) -> str:
    """What the program shows on a pseudo-terminal, with the terminal's own line ends undone."""
    pty = pytest.importorskip("pty")
    main_end, process_end = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "TERM"}}
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "lazyprompt", *argv],
        stdin=process_end,
        stdout=process_end,
        stderr=process_end,
        env={**clean, "TERM": "xterm", **env},
    ) as running:
        os.close(process_end)
        shown = b""
        while chunk := read_terminal(main_end):
            shown += chunk
        assert running.wait(60) == 0
    os.close(main_end)
    return shown.decode().replace("\r\n", "\n")


def read_terminal(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


def test_terminal_is_coloured_with_a_legend() -> None:
    shown = on_terminal("render", "--instruction", "Say {x}.", "--set", "x=\x1b[2J中")
    assert "\x1b[4;35m\\u001b[2J中\x1b[0m" in shown
    assert "── \x1b[36mmarkers\x1b[0m · " in shown


def test_terminal_without_colour() -> None:
    argv = ("render", "--instruction", "Say {x}.", "--set", "x=\x1b[2J中")
    plain = ChatPrompter("Say {x}.").generate_prompt("\x1b[2J中").replace("\x1b", "\\u001b")
    assert on_terminal(*argv, NO_COLOR="1") == plain
    assert on_terminal(*argv, "--color", "never") == plain
    assert on_terminal(*argv, TERM="dumb") == plain


@pytest.mark.parametrize("form", [["--json"], ["--format", "openai"]])
def test_terminal_obeys_nothing_in_json(form: list[str]) -> None:
    shown = on_terminal("render", "--system", "", "--input", "\x9b31m\x7f", *form)
    assert "\\u009b31m\\u007f" in shown
    assert "\x1b" not in shown
    assert "\x9b31m\x7f" in json.dumps(json.loads(shown), ensure_ascii=False)
