"""``lazyprompt run --chat``: with piped lines, and interactively on a terminal."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.helpers import ERROR, TOOLS, Ran, Run, Terminal, fault, write
from cli.pseudo_terminal import CTRL_D, SECONDS, OnTerminal
from lazyprompt.cli import streams
from support.engines import eventually, find_processes, tiny_model
from support.model_server.server import Answer, Cut, ModelServer, Seen, Slow, Status
from support.paths import PROMPTS

# Ollama reports token counts and reasoning in streams, and requires no key.
SOURCE = "ollama"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    pytest.importorskip("ollama", reason="the ollama client is not installed with the lowest versions")
    with ModelServer() as server:
        yield server


@pytest.fixture
def chat(run: Run, server: ModelServer) -> Run:
    """Run a chat with the server on piped text."""

    def piped(text: str | bytes, *argv: str) -> Ran:
        return run("run", "--chat", *target(server), *argv, stdin=text.encode() if isinstance(text, str) else text)

    return piped


def target(server: ModelServer) -> list[str]:
    return ["--source", SOURCE, "--base-url", server.url(SOURCE), "--model", "m"]


def echo(seen: Seen) -> Answer:
    """Respond with the content of the last message."""
    messages = seen.payload["messages"]
    return Answer(f"<{messages[-1]['content']}>", prompt_tokens=10 * len(messages), completion_tokens=2)


def sent_messages(server: ModelServer, number: int = -1) -> list[tuple[str, Any]]:
    """Return the roles and contents of the messages of a request."""
    return [(message["role"], message.get("content")) for message in server.seen[number].payload["messages"]]


def test_each_input_line_is_a_user_turn(chat: Run, server: ModelServer) -> None:
    server.answer = echo
    assert chat("\ufeff你好\r\n\n  \nand?") == Ran(0, "<你好>\n<and?>\n".encode(), "")
    assert sent_messages(server) == [("user", "你好"), ("assistant", "<你好>"), ("user", "and?")]
    assert all(seen.streamed for seen in server.seen)


@pytest.mark.parametrize(
    ("text", "turns"), [("one\\\n\\\ntwo\nlast\\", ["one\n\ntwo", "last"]), ("//usr/bin", ["/usr/bin"]), ("", [])]
)
def test_backslash_continues_a_line_and_two_slashes_start_text_with_a_slash(
    chat: Run, server: ModelServer, text: str, turns: list[str]
) -> None:
    assert chat(text) == Ran(0, b"pong\n" * len(turns), "")
    assert [sent_messages(server, at)[-1] for at in range(len(server.seen))] == [("user", turn) for turn in turns]


def test_responses_are_written_unchanged_and_without_reasoning(chat: Run, server: ModelServer) -> None:
    server.answer = Answer("\x1b[2J一\n", thinking="hm", finish="length")
    cut = "lazyprompt: the response was truncated at the token limit; use a larger --max-tokens\n"
    assert chat("hi\nhi\n") == Ran(0, "\x1b[2J一\n\x1b[2J一\n".encode(), cut * 2)


def test_each_chat_turn_fills_a_slot_of_the_prompt_file(chat: Run, server: ModelServer) -> None:
    chat("谁？\n何时？\n", str(PROMPTS / "document_qa.yaml"), "--set", "document=文")
    assert [content for role, content in sent_messages(server) if role == "user"] == [
        "文档：\n文\n\n问题：谁？",
        "文档：\n文\n\n问题：何时？",
    ]


def test_chat_uses_the_instruction_and_history_options(chat: Run, server: ModelServer, tmp_path: Path) -> None:
    history = write(tmp_path / "h.json", [["one", "1"]])
    chat("two", "--instruction", "Answer as {role}.", "--set", "role=Ada", "--system", "", "--history", history)
    assert [content.strip() for _, content in sent_messages(server)] == ["Answer as Ada.", "one", "1", "two"]


def test_system_command_replaces_the_system_option(chat: Run, server: ModelServer) -> None:
    assert chat("a\n/system Be {kind}.\\\nReally.\nb\n", "--system", "Be brief.").out == b"pong\npong\n"
    assert sent_messages(server, 0)[0] == ("system", "Be brief.")
    assert sent_messages(server, 1)[0] == ("system", "Be {kind}.\nReally.")
    assert len(sent_messages(server, 1)) == 4


def test_tokens_command_shows_reported_and_estimated_counts(chat: Run, server: ModelServer) -> None:
    server.answer = echo
    lines = chat("/tokens\none\ntwo\n/tokens\n").out.decode().splitlines()
    assert lines == [
        "history: about 0 tokens in 0 messages",
        "<one>",
        "<two>",
        "last response: 30 tokens sent, 2 received",
        "2 responses: 40 tokens sent, 4 received",
        "history: about 25 tokens in 4 messages",
    ]


def test_saved_conversation_can_be_loaded_and_continued(chat: Run, server: ModelServer, tmp_path: Path) -> None:
    assert chat("one\n/save my chat.json\n").out == b"pong\n"
    assert json.loads((tmp_path / "my chat.json").read_text(encoding="utf-8"))["messages"]
    assert chat("/load my chat.json\ntwo\n/reset\nthree\n").out == b"pong\npong\n"
    assert sent_messages(server, 1) == [("user", "one"), ("assistant", "pong"), ("user", "two")]
    assert sent_messages(server, 2) == [("user", "three")]


def test_help_lists_the_commands_and_quit_ends_the_chat(chat: Run, server: ModelServer) -> None:
    *lines, _, last = chat("/help\n/tools\n/quit\nnever").out.decode().splitlines()
    names = ["/tokens", "/save", "/load", "/system", "/tools", "/reset", "/help", "/quit"]
    assert ([line.split()[0] for line in lines], last) == (names, "no tools are defined")
    assert not server.seen


def test_chat_reads_tool_results_from_the_next_lines(chat: Run, server: ModelServer, tmp_path: Path) -> None:
    answers = iter([Answer("so", calls=(("c1", "add", {"a": "中"}), ("c2", "add", {}))), Answer("it is 3"), Answer()])
    server.answer = lambda _: next(answers)
    tools = write(tmp_path / "t.json", TOOLS)
    ran = chat("/tools\nwhat is it?\n3\n/tokens\n\nthanks\n", "--tools", tools)
    lines = ran.out.decode().splitlines()
    assert lines[:4] == ["add", "so", 'add({"a": "中"})', "add({})"]
    assert lines[-2:] == ["it is 3", "pong"]
    assert sent_messages(server, 1)[-2:] == [("tool", "3"), ("tool", "")]
    assert sent_messages(server, 2)[-2:] == [("assistant", "it is 3"), ("user", "thanks")]
    assert server.seen[2].payload["tools"]


def test_first_line_is_the_result_of_a_pending_tool_call(chat: Run, server: ModelServer, tmp_path: Path) -> None:
    tool_call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}
    history = write(tmp_path / "h.json", [{"role": "user", "content": "go"}, tool_call])
    chat("3\n", "--system", "", "--instruction", "For {who}.", "--set", "who=Ada", "--history", history)
    assert [(content or "").strip() for _, content in sent_messages(server)] == ["For Ada.", "go", "", "3"]


@pytest.mark.parametrize("failure", [Status(404), Cut(2)])
def test_first_failed_turn_ends_a_piped_chat(chat: Run, server: ModelServer, failure: Status | Cut) -> None:
    server.answer = Answer("one two three")
    server.faults = [None, failure]
    ran = chat("a\nb\nc\n")
    assert ran.status == 1
    assert ran.err.startswith(f"{ERROR}--source: ollama: ")
    assert ran.err.count("\n") == 1
    assert len(server.seen) == 2
    assert ran.out.startswith(b"one two three\n")
    assert ran.out.endswith(b"\n")


@pytest.mark.parametrize(
    ("terminal", "stdin", "env", "interactive", "written"),
    [
        (True, Terminal(io.BytesIO()), {}, True, "\x1b[31m?\\u0007\x1b[0m"),
        (True, io.TextIOWrapper(io.BytesIO()), {}, False, "\x1b[31m?\\u0007\x1b[0m"),
        (True, None, {}, False, "\x1b[31m?\\u0007\x1b[0m"),
        (True, None, {"NO_COLOR": "1"}, False, "?\\u0007"),
        (True, None, {"TERM": "dumb"}, False, "?\\u0007"),
        (False, Terminal(io.BytesIO()), {}, False, "?\x07"),
    ],
)
def test_screen_is_interactive_if_input_and_output_are_terminals(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    terminal: bool,
    stdin: io.TextIOWrapper | None,
    env: dict[str, str],
    interactive: bool,
    written: str,
) -> None:
    for name, value in ({"NO_COLOR": "", "TERM": "xterm"} | env).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(streams, "goes_to_terminal", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", stdin)
    screen = streams.Screen()
    for text in ("", "\ud800\x07", "\n", "a\n", "b"):
        screen.write(text, "red" if "\x07" in text else "")
    screen.line("c")
    assert (screen.terminal, screen.interactive) == (terminal, interactive)
    assert capsys.readouterr().out == f"{written}\na\nb\nc\n"


def test_interrupt_ends_a_piped_chat(chat: Run, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lazyprompt.modules.chat.Chat.stream", interrupt)
    ran = chat("hi\n/tokens\n")
    assert (ran.status, ran.out, server.seen) == (130, b"", [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"/sav x", "/sav: unknown command (did you mean '/save'?); use /help to list the commands, or // to start"),
        (b"/", "/: unknown command; "),
        (b"/save", "/save: missing FILE; use /save FILE"),
        (b"/system ", "/system: missing TEXT; use /system TEXT"),
        (b"/quit now", "/quit: this command takes no argument"),
        (b"/save no/dir", "/save: no/dir: No such file or directory"),
        (b"/load no.json", "/load: no.json: No such file or directory"),
        (b"/load wrong.json", "/load: wrong.json is not a conversation saved by Chat.save"),
        (b"a\xff", "stdin: line contains byte 0xff"),
    ],
)
def test_wrong_line_of_a_piped_chat_is_a_usage_error(chat: Run, tmp_path: Path, line: bytes, message: str) -> None:
    write(tmp_path / "wrong.json", "[]")
    assert fault(chat(line + b"\nhi\n")).startswith(message)


@pytest.mark.slow
def test_chat_on_a_terminal_shows_reasoning_and_escapes_control_characters(server: ModelServer, tmp_path: Path) -> None:
    server.answer = Answer("\x1b[2Jpo\x07ng", thinking="\x1b[31mhm")
    with OnTerminal("run", "--chat", *target(server), folder=tmp_path) as shown:
        assert shown.until("> ") == "\x1b[2mm at ollama; /help lists the commands, Ctrl-D ends the chat\x1b[0m\n> "
        shown.type("hi\n")
        assert shown.until("> ").replace("\x1b[0m\x1b[2;3m", "") == (
            "hi\n\x1b[2;3m\\u001b[31mhm\x1b[0m\n\\u001b[2Jpo\\u0007ng\n> "
        )
        shown.type("a\\\n")
        assert shown.until("... ") == "a\\\n... "
        shown.type("b\n")
        shown.until("ng\n> ")
        shown.type(f"/save {tmp_path / 'x.json'}\n")
        shown.until("(4 messages saved to ")
        shown.type(f"/load {tmp_path / 'x.json'}\n")
        shown.until("(4 messages loaded from ")
        shown.until("> ")
        shown.type(CTRL_D)
        assert shown.ended() == (0, "\n")
    assert sent_messages(server)[-1] == ("user", "a\nb")


@pytest.mark.slow
@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_chat_without_colour_writes_no_escapes(server: ModelServer, tmp_path: Path, plain: dict[str, str]) -> None:
    server.answer = Answer("\x1b[2Jpong", thinking="hm", calls=(("c", "\x1b[1madd", {"a": "\x9b"}),))
    with OnTerminal("run", "--chat", *target(server), folder=tmp_path, **plain) as shown:
        shown.until("> ")
        shown.type("hi\n")
        text = shown.until("result of \\u001b[1madd> ")
        assert 'hm\n\\u001b[2Jpong\n\\u001b[1madd({"a": "\\u009b"})\n' in text
        assert "\x1b" not in text
        shown.type("/quit\n")
        assert shown.ended()[0] == 0


@pytest.mark.slow
def test_interrupt_stops_the_response_and_not_the_chat(server: ModelServer, tmp_path: Path) -> None:
    server.answer = Answer("word " * 1000)
    server.faults = [Slow(first=0.0, between=0.1)]
    with OnTerminal("run", "--chat", *target(server), folder=tmp_path, NO_COLOR="1") as shown:
        shown.until("> ")
        shown.type("go on\n")
        shown.until("word word")
        shown.interrupt("\n(stopped; the chat is unchanged)\n> ")
        server.wait_for(1, SECONDS)
        assert server.seen[0].client_left
        server.answer = Answer("pong")
        shown.type("ping\n")
        shown.until("\npong\n> ")
        shown.type("never sent")
        shown.until("never sent")
        shown.interrupt("\n(/quit or Ctrl-D ends the chat)\n> ")
        shown.type("more\\\n")
        shown.until("... ")
        shown.interrupt("\n(/quit or Ctrl-D ends the chat)\n> ")
        shown.type(CTRL_D)
        assert shown.ended()[0] == 0
    assert [sent_messages(server, at) for at in range(1, len(server.seen))] == [[("user", "ping")]]


@pytest.mark.slow
def test_interrupt_before_the_first_delta_stops_the_response(server: ModelServer, tmp_path: Path) -> None:
    server.faults = [Slow(first=SECONDS)]
    with OnTerminal("run", "--chat", *target(server), folder=tmp_path, NO_COLOR="1") as shown:
        shown.until("> ")
        shown.type("hi\n")
        assert eventually(lambda: server.seen)
        shown.interrupt("(stopped; the chat is unchanged)\n> ")
        shown.type(CTRL_D)
        assert shown.ended()[0] == 0


@pytest.mark.slow
def test_errors_do_not_end_an_interactive_chat(server: ModelServer, tmp_path: Path) -> None:
    server.answer = Answer("one two three")
    server.faults = [Status(404, "\x1b[31mgone"), Cut(2), None]
    with OnTerminal("run", "--chat", *target(server), folder=tmp_path) as shown:
        shown.until("> ")
        for keys, expected in (
            ("hi\n", "\x1b[31mollama: \\u001b[31mgone (HTTP 404); "),
            ("hi\n", "\x1b[31mollama: "),
            ("/sav\n", "\x1b[31m/sav: unknown command"),
            ("hi\n", "one two three\n"),
        ):
            shown.type(keys)
            shown.until(expected)
            shown.until("> ")
        shown.type("/quit\n")
        assert shown.ended()[0] == 0
    assert sent_messages(server) == [("user", "hi")]


@pytest.mark.slow
def test_engine_of_a_local_model_runs_until_the_chat_ends(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    argv = ("run", "--chat", "--model", str(model), "--max-tokens", "5", "--temperature", "0")
    with OnTerminal(*argv, folder=tmp_path, NO_COLOR="1") as shown:
        shown.until(f"{model} on llama.cpp; /help lists the commands, Ctrl-D ends the chat\n> ")
        assert find_processes(model)
        for _ in range(2):
            shown.type("hi\n")
            shown.until("\n> ")
        shown.type("/system Be brief.\n")
        shown.until("(system text changed)\n> ")
        shown.type("/tokens\n")
        assert "\n2 responses: " in shown.until("history: about ")
        shown.interrupt("(/quit or Ctrl-D ends the chat)\n> ")
        assert find_processes(model)
        shown.type(CTRL_D)
        assert shown.ended()[0] == 0
    assert not find_processes(model)


@pytest.mark.slow
def test_engine_of_a_local_model_ends_when_the_chat_is_killed(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    with OnTerminal("run", "--chat", "--model", str(model), folder=tmp_path) as shown:
        shown.until("> ")
        assert find_processes(model)
    assert eventually(lambda: not find_processes(model))
