"""``lazyprompt run``: one response, from a server that imitates each source, and from llama.cpp."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.helpers import ERROR, TOOLS, Ran, Run, fault, run_without, write
from cli.pseudo_terminal import OnTerminal
from lazyprompt.modules.sources import SOURCES
from support.engines import eventually, find_processes, tiny_model
from support.model_server.server import Answer, Cut, Malformed, ModelServer, Status
from support.paths import PROMPTS

KEY = "sk-a-secret-that-never-shows"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    pytest.importorskip("openai", reason="the openai client is not installed with the lowest versions")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ModelServer() as server:
        yield server


def target(server: ModelServer, source: str = "openai") -> list[str]:
    return ["--source", source, "--base-url", server.url(source), "--model", "m"]


def error_message(ran: Ran) -> str:
    """Return the message of a run without a response."""
    assert ran.status == 1
    assert ran.err.startswith(ERROR)
    assert ran.err.count("\n") == 1
    assert KEY not in ran.err
    return ran.err.removeprefix(ERROR).removesuffix("\n")


@pytest.mark.parametrize("stream", [[], ["--stream"], ["--no-stream"]])
@pytest.mark.parametrize(
    "source", [pytest.param(name, marks=[pytest.mark.slow] * (name != "openai")) for name in sorted(SOURCES)]
)
def test_response_of_each_source_is_written_unchanged(
    run: Run, server: ModelServer, monkeypatch: pytest.MonkeyPatch, source: str, stream: list[str]
) -> None:
    for name in SOURCES[source].keys:
        monkeypatch.setenv(name, f"{KEY}.x")
    server.answer = Answer("一、\x1b[2J 🎈\n")
    assert run("run", *target(server, source), "--input", "hi", *stream) == Ran(0, server.answer.text.encode(), "")
    assert server.seen[0].streamed is (stream == ["--stream"])


@pytest.mark.parametrize(
    "prompt",
    [
        ("--input", "hi"),
        ("--instruction", "Answer {question}.", "--user-instruction", "Now.", "--set", "question=who", "--system", ""),
        (str(PROMPTS / "assistant.yaml"), "--set", "today=2026-11-20", "--input", "明天北京冷吗？"),
        ("--input", "hi", "--history", "h.json", "--tools", "t.json"),
        ("--type", "alpaca", "--instruction", "Add {a}.", "--extra-key", "b", "--set", "a=1", "--set", "b=2"),
    ],
)
def test_run_sends_the_rendered_payload(run: Run, server: ModelServer, tmp_path: Path, prompt: tuple[str, ...]) -> None:
    write(tmp_path / "h.json", [["a", "b"]])
    write(tmp_path / "t.json", TOOLS)
    assert run("run", *target(server), *prompt).status == 0
    assert server.seen[0].payload == run("render", *prompt, "--format", "openai").json


def test_piped_text_is_the_input(run: Run, server: ModelServer) -> None:
    assert run("run", *target(server), "--system", "", stdin=b"hi\n").out == b"pong"
    assert server.seen[0].payload["messages"] == [{"role": "user", "content": "hi"}]


def test_parameters_are_sent_only_if_set(run: Run, server: ModelServer) -> None:
    run("run", *target(server), "--input", "hi", "--max-tokens", "7", "--temperature", "0.5")
    run("run", *target(server), "--input", "hi")
    full, minimal = (seen.body for seen in server.seen)
    assert (full["model"], full["temperature"]) == ("m", 0.5)
    assert 7 in full.values()
    assert set(minimal) == {"model", "messages"}


def test_json_has_text_reasoning_tool_calls_usage_finish_and_model(run: Run, server: ModelServer) -> None:
    server.answer = Answer("so", thinking="hm", calls=(("c1", "add", {"a": "中"}),), prompt_tokens=7)
    ran = run("run", *target(server, "ollama"), "--input", "hi", "--json")
    assert ran.out.count(b"\n") == 1
    found = ran.json
    assert found == {
        "text": "so",
        "thinking": "hm",
        "tool_calls": [{"id": found["tool_calls"][0]["id"], "name": "add", "input": {"a": "中"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
        "finish": "tool_calls",
        "model": "m",
    }


def test_tool_calls_and_truncation_are_reported_on_standard_error(run: Run, server: ModelServer) -> None:
    server.answer = Answer("", calls=(("c1", "add", {}), ("c2", "s\x1bub", {})))
    calls = "lazyprompt: the model calls add, s\\u001bub; --json prints the arguments\n"
    assert run("run", *target(server), "--input", "hi") == Ran(0, b"", calls)
    server.answer = Answer("on and", finish="length")
    cut = "lazyprompt: the response was truncated at the token limit; use a larger --max-tokens\n"
    assert run("run", *target(server), "--input", "hi") == Ran(0, b"on and", cut)


@pytest.mark.slow
def test_terminal_gets_a_streamed_response_with_escaped_control_characters(server: ModelServer, tmp_path: Path) -> None:
    server.answer = Answer("\x1b[2Jab\x9b31m\r")
    with OnTerminal("run", *target(server), "--input", "hi", folder=tmp_path) as shown:
        assert shown.ended() == (0, "\\u001b[2Jab\\u009b31m\\u000d\n")
    assert server.seen[0].streamed
    with OnTerminal("run", *target(server), "--input", "hi", "--json", folder=tmp_path) as shown:
        status, text = shown.ended()
    assert status == 0
    assert json.loads(text)["text"] == "\x1b[2Jab\x9b31m\r"
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


@pytest.mark.slow
def test_piped_run_imports_no_heavy_packages(server: ModelServer) -> None:
    assert run_without("yaml jinja2 tiktoken readline anthropic", "run", *target(server), "--input", "x") == b"pong"


@pytest.mark.parametrize("stream", ["--stream", "--no-stream", "--json"])
@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Status(401, f"{KEY} is wrong"), r"--source: openai: \*\*\* is wrong \(HTTP 401\); .*key"),
        (Status(404), r"--source: openai: .*\(HTTP 404\); "),
        (Malformed(page=True), r"--source: openai: "),
        (Answer("no", finish="refusal"), r"--source: the model refused to answer"),
        (Answer(""), r"--source: the model's response is empty"),
    ],
)
def test_failed_response_is_one_line_with_status_1(
    run: Run, server: ModelServer, failure: Status | Malformed | Answer, message: str, stream: str
) -> None:
    if isinstance(failure, Answer):
        server.answer = failure
    else:
        server.faults = [failure]
    ran = run("run", *target(server), "--input", "hi", stream)
    assert re.match(message, error_message(ran))
    assert ran.out in (b"", b"no" if stream == "--stream" else b"")


def test_text_before_a_cut_of_the_stream_is_written(run: Run, server: ModelServer) -> None:
    server.answer = Answer("one two three four")
    server.faults = [Cut(3)]
    ran = run("run", *target(server), "--input", "hi", "--stream")
    assert error_message(ran).startswith("--source: openai: ")
    assert ran.out
    assert server.answer.text.encode().startswith(ran.out)


@pytest.mark.slow
def test_unreachable_server_is_an_error_of_the_model_option(run: Run) -> None:
    argv = ("run", "--model", "qwen2.5:0.5b", "--url", "http://127.0.0.1:9", "--input", "hi", "--max-tokens", "1")
    assert error_message(run(*argv)).startswith("--model: ollama: ")


def test_missing_client_package_is_reported_with_the_install_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    message = error_message(run("run", "--source", "anthropic", "--input", "hi"))
    assert message.startswith("--source: the anthropic package is not installed; install it with: pip install")


@pytest.mark.slow
def test_engine_that_does_not_start_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    model.write_bytes(model.read_bytes()[:3000])
    ran = run("run", "--model", str(model), "--input", "hi")
    assert ran.status in {1, 2}  # depends on who reads the broken file first, this process or the engine
    assert ran.err.startswith(f"{ERROR}--model: ")
    assert ran.err.count("\n") == 1
    assert not find_processes(model)


@pytest.mark.parametrize("prompt", [["--chat"], ["--input", "hi"]])
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--source: no model is set; use --source, or --model for a local model"),
        (["--source", "opnai"], "--source: unknown source 'opnai' (did you mean 'openai'?); expected one of openai, "),
        (["--source", "openai"], "--source: openai requires an API key: set OPENAI_API_KEY in the "),
        (["--source", "ollama"], "--source: ollama has no default model; pass model="),
        (["--source", "openai", "--url", "http://x"], "--url: this option is for local models; remove --source"),
        (["--source", "openai", "--engine", "vllm"], "--engine: this option is for local models; remove --source"),
        (["--base-url", "http://x", "--model", "m"], "--base-url: this option requires --source; for a running engine"),
        (["--model", "no.gguf"], "--model: file not found: no.gguf"),
        (["--model", "a/b", "--engine", "vlm"], "--engine: unknown engine 'vlm' (did you mean 'vllm'?)"),
        (
            ["--model", "a/no-such-family", "--engine", "vllm"],
            "--model: the prompt format of 'a/no-such-family' is unknown",
        ),
        (["--source", "openai", "--max-tokens", "0"], "--max-tokens: 0 is not in the range x>=1."),
        (["--source", "openai", "--api-key", KEY], "--api-key: No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_error_is_one_line_without_the_key(
    run: Run, monkeypatch: pytest.MonkeyPatch, prompt: list[str], argv: list[str], message: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    reported = fault(run("run", *argv, *prompt))
    assert reported.startswith(message)
    assert KEY not in reported


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "PROMPT_FILE: nothing to run; add a prompt file, --instruction or --input"),
        (
            ["--instruction", "{a} {b}", "--input", "x"],
            "--input: the input is a single str, but the template has 2 slots",
        ),
        (["--instruction", "{a}", "--set", "b=1"], "--set: no value for 'a'; no slot named 'b'"),
        (["--input", "x", "--json", "--stream"], "--stream: JSON cannot be streamed; remove --json"),
        (["--chat", "--input", "x"], "--input: this option does not apply to a chat; remove --chat"),
        (["--chat", "--json"], "--json: this option does not apply to a chat; remove --chat"),
        (["--chat", "--no-stream"], "--stream: this option does not apply to a chat; remove --chat"),
        (["--chat", "--type", "alpaca"], "--type: the Alpaca format doesn't support chats; set the type to chat"),
        (["--chat", "p.yaml"], "PROMPT_FILE: the Alpaca format doesn't support chats; set the type to chat"),
        (["--chat", "--history", "h.json"], "--history: history[0]"),
        (["--chat", "--instruction", "{a} {b}"], "--set: no value for 'a', 'b'; the slots are 'a', 'b'"),
        (["--chat", "--instruction", "{a}", "--set", "b=1"], "--set: no value for 'a'; no slot named 'b'"),
        (["--input", "x", "--tools", "t.json"], "--tools: t.json: must contain a JSON list, not an object"),
        (["--input", "x", "--history", "h.json"], "--history: history[0]"),
    ],
)
def test_wrong_prompt_is_a_usage_error_before_any_request(
    run: Run, server: ModelServer, tmp_path: Path, argv: list[str], message: str
) -> None:
    write(tmp_path / "t.json", {})
    write(tmp_path / "h.json", [5])
    write(tmp_path / "p.yaml", "type: alpaca\ninstruction: x\n")
    assert fault(run("run", *target(server), *argv)).startswith(message)
    assert not server.seen


@pytest.mark.slow
def test_local_model_is_started_called_and_ended(run: Run, tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    argv = ("run", "--model", str(model), "--input", "hi", "--max-tokens", "9", "--temperature", "0")
    found = run(*argv, "--json").json
    assert found["usage"]["completion_tokens"] <= 9  # type: ignore[call-overload]
    assert found["text"]
    whole, streamed = run(*argv), run(*argv, "--stream")
    assert (whole.status, streamed.status) == (0, 0)
    assert whole.out == streamed.out == str(found["text"]).encode()
    assert not find_processes(model)


@pytest.mark.slow
def test_interrupt_of_a_chat_ends_its_engine(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    # With random sampling, one response in sixty was empty, which ends the chat with an error.
    options = ["--max-tokens", "3", "--temperature", "0"]
    command = [sys.executable, "-m", "lazyprompt", "run", "--chat", "--model", str(model), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "PYTHONUTF8": "1"}, **pipes) as chat:  # type: ignore[call-overload]  # noqa: S603 - our own program
        assert eventually(lambda: len(find_processes(model)) > 1)
        chat.stdin.write(b"hi\n")
        chat.stdin.flush()
        assert chat.stdout.readline()  # now the chat waits for the next line
        chat.send_signal(signal.SIGINT)
        assert chat.wait(60) == 130
        assert b"Error" not in chat.stderr.read()
    assert eventually(lambda: not find_processes(model))
