import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.helpers import ERROR, Ran, fault, run_without
from cli.pseudo_terminal import written_to_terminal
from lazyprompt import __version__


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


def test_process_renders_piped_text() -> None:
    ran = process("render", "--model", "qwen2.5", "--system", "", stdin="你好\r\n".encode())
    assert ran == Ran(0, "<|im_start|>user\n你好\r<|im_end|>\n<|im_start|>assistant\n".encode(), "")


def test_process_writes_utf8_in_every_locale() -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    assert "你好".encode() in process("render", stdin="你好".encode(), env=env).out
    env_error = process("render", "--input", "@你好", env={**env, "PYTHONUTF8": "1"})
    assert fault(env_error).startswith("--input: ")


def test_unreadable_standard_input_is_a_usage_error(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as written:
        done = subprocess.run(
            [sys.executable, "-m", "lazyprompt", "render"], stdin=written, capture_output=True, check=False, timeout=60
        )
    message = fault(Ran(done.returncode, done.stdout, done.stderr.decode()))
    assert message.startswith("stdin: standard input: ")
    assert "None" not in message


def test_console_script_prints_the_version() -> None:
    script = Path(sys.executable).with_name("lazyprompt")
    done = subprocess.run([script, "--version"], capture_output=True, check=True, timeout=60)  # noqa: S603
    assert done.stdout.decode() == f"lazyprompt {__version__}\n"


@pytest.mark.parametrize("argv", [["render", "--input", "x" * 100], ["render", "--help"]])
def test_closed_output_pipe_ends_the_program_without_an_error_message(argv: list[str]) -> None:
    command = [sys.executable, "-m", "lazyprompt", *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:  # noqa: S603
        if running.stdout is None or running.stderr is None:
            pytest.fail("no pipes")
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) in {1, 141}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it needs /dev/full, which the Linux of CI has")
@pytest.mark.parametrize("argv", [["render", "--input", "x"], ["render", "--help"], ["list", "families"]])
def test_full_disk_is_reported_in_one_line(argv: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "lazyprompt", *argv], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr.decode()) == (2, f"{ERROR}stdout: No space left on device\n")


@pytest.mark.slow
def test_interrupt_ends_the_program_without_an_error_message() -> None:
    # The program prints a line when it begins to read, so that the interrupt does not come before.
    code = (
        "import sys, lazyprompt.cli.streams as io; from lazyprompt.cli.main import main; read = io.Stdin.read\n"
        "def announced(self, reader):\n"
        "    print('reading', flush=True)\n"
        "    return read(self, reader)\n"
        "io.Stdin.read = announced; sys.exit(main(['render']))"
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


def test_rich_and_yaml_are_not_imported_for_plain_text() -> None:
    run_without("rich yaml jinja2 pydantic tiktoken", "render", "--input", "x")


def on_terminal(*argv: str) -> str:
    """Return the output of the program on a pseudo-terminal, with plain line ends."""
    written = written_to_terminal(["-m", "lazyprompt", *argv], {"TERM": "xterm"})
    return written.decode().replace("\r\n", "\n")


def test_output_on_a_terminal_is_coloured_with_a_legend() -> None:
    shown = on_terminal("render", "--instruction", "Say {x}.", "--set", "x=\x1b[2J中")
    assert "\x1b[4;7;35m\\u001b\x1b[0m\x1b[4;35m[2J中\x1b[0m" in shown
    assert "── \x1b[36mmarkers\x1b[0m · " in shown


@pytest.mark.parametrize("form", [["--json"], ["--format", "openai"]])
def test_json_on_a_terminal_escapes_control_characters(form: list[str]) -> None:
    shown = on_terminal("render", "--system", "", "--input", "\x9b31m\x7f", *form)
    assert "\\u009b31m\\u007f" in shown
    assert "\x1b" not in shown
    assert "\x9b31m\x7f" in json.dumps(json.loads(shown), ensure_ascii=False)
