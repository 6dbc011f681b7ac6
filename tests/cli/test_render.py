import errno
import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from cli.helpers import QA, TOOLS, Ran, Run, fault, write
from lazyprompt import AlpacaPrompter, ChatPrompter, Prompter
from lazyprompt.cli.main import main
from support.paths import PROMPTS
from support.windows import PERMISSIONS


@pytest.mark.parametrize(
    ("argv", "prompter", "values"),
    [
        (
            (*QA, "--set", "question=who", "--set", "context=a=b", "--input", "hi"),
            ChatPrompter(QA[1]),
            {"question": "who", "context": "a=b", "input": "hi"},
        ),
        (("--instruction", "Say {input}.", "--input", "hi"), ChatPrompter("Say {input}."), "hi"),
        (("--type", "alpaca", "--instruction", "Add {a}", "--set", "a=1"), AlpacaPrompter("Add {a}"), "1"),
        (
            ("--instruction", "x", "--extra-key", "a", "--extra-key", "b", "--set", "a=1", "--set", "b=2"),
            ChatPrompter("x", extra_keys=["a", "b"]),
            {"a": "1", "b": "2"},
        ),
    ],
)
def test_set_and_input_options_fill_slots(run: Run, argv: tuple[str, ...], prompter: Prompter, values: object) -> None:
    assert run("render", *argv) == Ran(0, prompter.generate_prompt(values).encode(), "")


def test_user_instruction_option_becomes_the_user_message(run: Run) -> None:
    both = run("render", "--instruction", "S", "--user-instruction", "U", "--format", "openai", "--system", "").json
    assert both["messages"] == [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    alone = run("render", "--user-instruction", "U{x}", "--input", "1", "--format", "openai", "--system", "").json
    assert alone["messages"] == [{"role": "user", "content": "U1"}]


def test_system_history_tools_label_and_model_options_are_applied(run: Run, tmp_path: Path) -> None:
    history = write(tmp_path / "h.json", [["问", "答"]])
    tools = write(tmp_path / "t.json", TOOLS)
    options = ["--system", "S", "--history", history, "--tools", tools, "--label", "L", "--model", "qwen2.5"]
    expected = ChatPrompter(system="S").generate_prompt("hi", [["问", "答"]], TOOLS, "L", model="qwen2.5")
    assert run("render", "--input", "hi", *options).out.decode() == expected


def test_history_is_rendered_without_an_input(run: Run, tmp_path: Path) -> None:
    history = write(tmp_path / "h.json", [{"role": "user", "content": "hi"}])
    assert run("render", "--history", history, "--format", "openai", "--system", "").json == {
        "messages": [{"role": "user", "content": "hi"}]
    }


def test_safety_option_neutralizes_or_keeps_control_sequences(run: Run) -> None:
    argv = ("render", "--input", "<|im_end|>", "--model", "qwen2.5")
    assert b"<\\|im_end|>" in run(*argv).out
    assert b"\n<|im_end|><|im_end|>" in run(*argv, "--safety", "off").out
    assert b"<\\\\|im_end|>" in run(*argv, "--format", "vllm").out


@pytest.mark.parametrize("form", ["flat", "vllm", "gemini"])
def test_safety_raise_refuses_control_sequences(run: Run, form: str) -> None:
    message = fault(run("render", "--input", "<|im_end|>", "--model=qwen2.5", "--safety=raise", "--format", form))
    assert message.startswith("--safety: 'input' contains the control sequence '<|im_end|>'; ")


def test_value_from_a_file_is_exact_without_its_byte_order_mark(run: Run, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes("a\r\n中\n\n".encode())
    ran = run("render", "--instruction", "[{x}]", "--set", "x=@v.txt")
    assert "[a\r\n中\n\n]".encode() in ran.out
    assert "\na\r\n中\n\n\n".encode() in run("render", "--input", "@v.txt").out
    # Without its byte order mark.
    (tmp_path / "v.txt").write_bytes(b"\xef\xbb\xbfa")
    assert b"[a]" in run("render", "--instruction", "[{x}]", "--set", "x=@v.txt").out


def test_value_is_read_from_standard_input(run: Run) -> None:
    ran = run("render", "--instruction", "[{x}]", "--set", "x=@-", stdin=b'{"a": 1}\n')
    assert b'[{"a": 1}\n]' in ran.out
    assert b"\nhi\n\n" in run("render", "--input", "@-", stdin=b"hi\n").out


def test_doubled_at_sign_is_a_literal_at_sign(run: Run) -> None:
    assert b"[@x]" in run("render", "--instruction", "[{x}]", "--set", "x=@@x").out
    assert b"[@@x]" in run("render", "--instruction", "[{input}]", "--input", "@@@x").out


@pytest.mark.parametrize(
    ("stdin", "content"),
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
def test_piped_text_is_the_user_message_without_its_final_newline(run: Run, stdin: bytes, content: str) -> None:
    payload = run("render", "--system", "", "--format", "openai", stdin=stdin).json
    assert payload == {"messages": [{"role": "user", "content": content}] if content else []}


def test_piped_object_fills_the_slots(run: Run) -> None:
    values = {"question": "谁", "context": [1, {"a": None}]}
    ran = run("render", *QA, stdin=json.dumps(values).encode())
    assert ran.out.decode() == ChatPrompter(QA[1]).generate_prompt(values)


def test_empty_pipe_is_not_an_input(run: Run) -> None:
    assert fault(run("render", *QA, stdin=b"")).startswith("--set: no value for 'question', 'context'; ")
    assert run("render", "--instruction", "x", stdin=b"").out == ChatPrompter("x").generate_prompt().encode()


def test_pipe_is_not_read_if_values_are_set(run: Run) -> None:
    assert run("render", "--input", "hi", stdin=b"piped").out.decode() == ChatPrompter().generate_prompt("hi")
    ran = run("render", "--instruction", "{x}", "--set", "x=1", stdin=b"piped")
    assert ran.out.decode() == ChatPrompter("{x}").generate_prompt({"x": "1"})


def test_pipe_is_not_read_by_a_prompt_without_an_input(run: Run) -> None:
    ran = run("render", "--type", "alpaca", "--instruction", "x", stdin=b"\xff")
    assert ran == Ran(0, AlpacaPrompter("x").generate_prompt().encode(), "")


def test_render_works_without_a_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("--version")
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["render", "--instruction", "x"]) == 0
    assert main(["render", "--input", "@-"]) == 0


def test_prompt_file_is_rendered_with_the_set_options(run: Run) -> None:
    ran = run("render", str(PROMPTS / "document_qa.yaml"), "--set", "document=合同", "--set", "question=谁？")
    text = ran.out.decode()
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("文档：\n合同\n\n问题：谁？<|im_end|>\n<|im_start|>assistant\n")


def test_options_override_or_extend_a_prompt_file(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "p.yaml", "instruction: x\nsystem: old\nmodel: chatml\nhistory: [[a, b]]")
    history = write(tmp_path / "h.json", [["c", "d"]])
    tools = write(tmp_path / "t.json", TOOLS)
    options = ["--system", "new", "--model", "qwen2.5", "--history", history, "--tools", tools]
    prompter = ChatPrompter("x", system="new", history=[["a", "b"], ["c", "d"]]).with_markers("qwen2.5")
    assert run("render", file, *options, "--input", "hi").out.decode() == prompter.generate_prompt("hi", tools=TOOLS)


@pytest.mark.parametrize(
    "option", [("--instruction", ""), ("--user-instruction", "u"), ("--type", "chat"), ("--extra-key", "k")]
)
def test_options_that_conflict_with_a_prompt_file_are_usage_errors(run: Run, option: tuple[str, str]) -> None:
    message = fault(run("render", str(PROMPTS / "translate.yaml"), *option))
    assert message == f"{option[0]}: the prompt file defines this value; pass either the option or the file"


def test_json_of_flat_text_has_text_and_segments(run: Run) -> None:
    ran = run("render", "--instruction", "答{input}", "--input", "谁", "--json")
    rendered = ChatPrompter("答{input}").render("谁")
    assert ran.out.count(b"\n") == 1
    assert "谁".encode() in ran.out
    assert ran.json == {
        "text": rendered.text,
        "segments": [{"text": text, "slot": slot, "trusted": trusted} for text, slot, trusted in rendered.segments],
    }


def test_openai_payload_is_indented_and_compact_with_the_json_option(run: Run) -> None:
    argv = ("render", "--system", "", "--input", "谁", "--format", "openai")
    indented = '{\n  "messages": [\n    {\n      "role": "user",\n      "content": "谁"\n    }\n  ]\n}\n'
    assert run(*argv).out.decode() == indented
    assert run(*argv, "--json").out.decode() == '{"messages":[{"role":"user","content":"谁"}]}\n'


def test_plain_text_is_written_without_an_added_newline(run: Run) -> None:
    ran = run("render", "--type", "alpaca", "--user-instruction", "x\r\n\x1b[0m", "--label", "end")
    assert ran.out.endswith(b"end")
    assert b"x\r\n\x1b[0m" in ran.out


def test_color_always_colours_piped_output_and_adds_the_legend(run: Run) -> None:
    ran = run("render", "--input", "hi", "--color", "always")
    assert b"\x1b[4;33mhi\x1b[0m" in ran.out
    assert "── ".encode() in ran.out


@PERMISSIONS
def test_output_file_has_the_exact_text_and_permissions_by_umask(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    old = os.umask(0o027)
    try:
        assert run("render", "--input", "中\r\n", "-o", str(path)) == Ran(0, b"", "")
    finally:
        os.umask(old)
    assert path.read_bytes() == ChatPrompter().generate_prompt("中\r\n").encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


@PERMISSIONS
def test_output_file_is_replaced_atomically_and_keeps_its_permissions(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    path.chmod(0o604)
    with path.open() as before:
        assert run("render", "--input", "new", "--output", str(path)).status == 0
        assert before.read() == "old"
    assert b"new" in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_failed_output_leaves_the_old_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(self), str(target))

    monkeypatch.setattr(Path, "replace", full)
    assert fault(run("render", "--input", "x", "-o", str(path))) == f"--output: {path}: No space left on device"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_output_to_a_named_pipe_is_written_into_the_pipe(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert run("render", "--input", "x", "-o", str(pipe)).status == 0
    reader.join(10)
    assert read == [ChatPrompter().generate_prompt("x").encode()]
    assert pipe.is_fifo()


def test_gemini_payload_is_rendered(run: Run) -> None:
    argv = ("--instruction", "Greet.", "--system", "", "--input", "Hi", "--format", "gemini", "--model", "gemini-3-pro")
    assert json.loads(run("render", *argv, "--json").out) == {
        "system_instruction": "Greet.\n\n",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }
