"""Engines as processes: they start, explain failures, and leave no process or file behind."""

import gc
import os
import pty
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path

import openai
import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, MissingExtraError
from lazyprompt.modules import process as engines
from lazyprompt.modules.engines import ENGINES
from lazyprompt.modules.process import EngineProcess, advice, how, tail
from support.engines import (
    QUICK,
    SECONDS,
    SILENT,
    cycles,
    eventually,
    find_processes,
    is_free,
    next_line,
    python,
    script_engine,
    spawn,
)
from support.paths import TESTS
from support.serving import Serving

pytestmark = pytest.mark.slow  # engines


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary logs."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def llama(model: Path, **more: object) -> EngineProcess:
    return EngineProcess("llama.cpp", model, options=QUICK | more)


def port_of(engine: EngineProcess) -> int:
    return int(engine.url.rpartition(":")[2])


def server_of(model: Path) -> int:
    """The process that serves a model, started by its guard."""
    return max(find_processes(model))


def answer(engine: EngineProcess) -> str:
    with openai.OpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0, timeout=SECONDS) as client:
        return client.completions.create(model="m", prompt="hi", max_tokens=4, temperature=0).choices[0].text


class Healthy(BaseHTTPRequestHandler):
    """Another server whose health check succeeds."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def test_engine_starts_responds_and_stops(model: Path, temporary: Path) -> None:
    engine = llama(model)
    assert engine.status() == "stopped"
    assert engine.start() is engine
    assert (engine.status(), engine.why()) == ("running", "")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", engine.url)
    assert f"{model} is served at {engine.url}" in engine.log.read_text()
    assert engine.log.stat().st_mode & 0o777 == 0o600
    assert answer(engine)
    port = port_of(engine)
    engine.stop()
    assert (engine.status(), engine.why()) == ("stopped", "")
    assert (find_processes(model), is_free(port), list(temporary.iterdir())) == ([], True, [])
    engine.stop()
    assert engine.status() == "stopped"


def test_exception_in_the_with_block_stops_the_engine(model: Path) -> None:
    seen = []

    def use(engine: EngineProcess) -> None:
        with engine:
            seen.append(engine.status())
            raise ZeroDivisionError

    engine = llama(model)
    with pytest.raises(ZeroDivisionError):
        use(engine)
    assert (seen, engine.status(), find_processes(model)) == (["running"], "stopped", [])


def test_garbage_collected_engine_is_stopped(model: Path, temporary: Path) -> None:
    engine = llama(model).start()
    assert find_processes(model)
    del engine
    gc.collect()
    assert (find_processes(model), list(temporary.iterdir())) == ([], [])


@pytest.mark.parametrize("name", ["url", "log"])
def test_url_and_log_of_a_stopped_engine_raise_an_error(name: str) -> None:
    with pytest.raises(EngineError, match=r"llama.cpp is not running; call start\(\) first"):
        getattr(EngineProcess("llama.cpp", "m.gguf"), name)


def test_repr_shows_engine_model_and_status() -> None:
    engine = EngineProcess("llama-cpp", "~/m.gguf", options={"api_keys": Secret("sk-1")})
    assert repr(engine) == f"EngineProcess('llama.cpp', '{Path.home()}/m.gguf', status='stopped')"


def test_log_file_of_the_caller_is_appended_to_and_kept(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("before\n")
    engine = EngineProcess("llama.cpp", model, options=QUICK, log=log)
    for _ in range(2):
        with engine:
            assert engine.log == log
    lines = log.read_text().splitlines()
    assert lines[0] == "before"
    assert sum("is served at" in line for line in lines) == 2
    engine = EngineProcess("llama.cpp", tmp_path / "none.gguf", log=log)
    with pytest.raises(EngineError) as caught:
        engine.start()
    assert "before" not in str(caught.value)  # only the lines of this engine


def test_log_file_that_cannot_be_written_is_an_error(model: Path) -> None:
    with pytest.raises(EngineError, match="cannot write the log file /no/such/folder/log: No such file or directory"):
        EngineProcess("llama.cpp", model, log="/no/such/folder/log").start()


def test_port_of_the_caller_is_used_and_a_port_in_use_is_an_error(model: Path) -> None:
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        port = at.getsockname()[1]
    with EngineProcess("llama.cpp", model, options=QUICK, port=port) as engine:
        assert port_of(engine) == port
        second = EngineProcess("llama.cpp", model, port=port)
        with pytest.raises(EngineError, match=f"port {port} on 127.0.0.1 is in use; pass another port, or omit port="):
            second.start()
        assert second.status() == "stopped"
        assert answer(engine)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_invalid_port_is_rejected(port: int) -> None:
    with pytest.raises(EngineError, match=f"port must be a number from 1 to 65535, not {port}"):
        EngineProcess("llama.cpp", "m.gguf", port=port)


def test_another_port_is_used_if_the_free_port_is_taken_before_the_start(
    model: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Serving(server := HTTPServer(("127.0.0.1", 0), Healthy)):
        taken = server.server_port
        ports, looks = iter([taken]), iter([True])
        free_port = engines._free_port  # noqa: SLF001 - it reports a port as free too early
        monkeypatch.setattr(engines, "_free_port", lambda: next(ports, None) or free_port())
        monkeypatch.setattr(engines, "_is_free", lambda port: next(looks, None) or is_free(port))
        with llama(model) as engine:
            assert port_of(engine) != taken
            assert answer(engine)
        assert list(temporary.iterdir()) == []


def test_health_of_another_process_on_the_port_is_ignored(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Serving(server := HTTPServer(("127.0.0.1", 0), Healthy)):
        monkeypatch.setattr(engines, "_is_free", lambda _: True)
        engine = EngineProcess(script_engine("raise SystemExit('no')"), model, port=server.server_port)
        with pytest.raises(EngineError, match="exited with code 1"):
            engine.start()


def test_engine_that_is_not_installed_is_an_error_with_install_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="vllm is not installed: no program vllm; pip install vllm"):
        EngineProcess("vllm", "m").start()
    monkeypatch.setattr("lazyprompt.modules.engines.find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"no package xllamacpp; pip install .+\[local\]"):
        EngineProcess("llama.cpp", "m.gguf").start()


@pytest.mark.parametrize("name", ["sglang", "ollama", "other"])
def test_engine_without_a_start_command_is_rejected(name: str) -> None:
    with pytest.raises(EngineError, match=f"can start llama.cpp and vLLM, not {name}; start it manually"):
        EngineProcess(name, "m")


def test_missing_psutil_is_an_error_that_names_the_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # stops engines that earlier tests dropped
    monkeypatch.delitem(sys.modules, "lazyprompt.modules.guard", raising=False)
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(MissingExtraError, match=r"the psutil package .*pip install .+\[local\]"):
        llama(model).start()


def test_invalid_gguf_file_is_an_error_with_advice_command_and_log(tmp_path: Path, temporary: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_text("<html>")
    engine = llama(bad, seed=3)
    with pytest.raises(EngineError) as caught:
        engine.start()
    first, command, log, *lines = str(caught.value).splitlines()
    assert first == (
        f"llama.cpp with model {bad} exited with code 1: pass a GGUF file;"
        " the download may be an error page or a Git LFS pointer"
    )
    assert re.fullmatch(rf"command: \S+python\S* -P \S+llamacpp_server.py --model {bad} .* --seed 3", command)
    kept = next(temporary.iterdir())
    assert log == f"end of the log {kept}:"
    assert lines == [f"    llamacpp_server: {bad} is not a GGUF file: it begins with b'<htm' instead of b'GGUF'"]
    assert engine.status() == "died"
    assert engine.why() == str(caught.value)
    engine.stop()
    assert (engine.status(), engine.why(), kept.exists()) == ("stopped", "", True)


@pytest.mark.parametrize("options", [{"n_bach": 3}, {"n_batch": "many"}])
def test_option_rejected_by_the_engine_is_an_error(model: Path, options: dict[str, object]) -> None:
    with pytest.raises(EngineError, match="the engine does not support an option or its value"):
        llama(model, **options).start()


def test_option_that_lazyprompt_sets_is_rejected(model: Path, temporary: Path) -> None:
    with pytest.raises(EngineError, match="lazyprompt already sets the option port of llama.cpp"):
        llama(model, port=3).start()
    assert list(temporary.iterdir()) == []


def test_error_of_an_engine_that_exits_at_start_has_the_last_log_lines(model: Path) -> None:
    dies = script_engine(
        "import sys\nfor line in range(100): print('line', line)\nprint('part 1', end='\\rpart 2\\n\\n'); sys.exit(3)"
    )
    engine = EngineProcess(dies, model)
    with pytest.raises(EngineError, match="script with model .* exited with code 3") as caught:
        engine.start()
    lines = str(caught.value).partition("\nend of the log ")[2].partition("\n")[2].splitlines()
    assert lines == [*(f"    line {number}" for number in range(86, 100)), "    part 2"]


@pytest.mark.parametrize(("code", "shown"), [("pass", "(empty)"), ("print('loading')", "loading")])
def test_error_of_an_engine_killed_at_start_has_its_whole_output(
    model: Path, monkeypatch: pytest.MonkeyPatch, code: str, shown: str
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    killed = script_engine(f"import os\n{code}\nos.kill(os.getpid(), 9)")
    with pytest.raises(
        EngineError, match="was terminated by SIGKILL: the system may have run out of memory and killed the engine"
    ) as e:
        EngineProcess(killed, model).start()
    assert str(e.value).endswith(f"\n    {shown}")


def test_engine_that_is_not_ready_within_the_timeout_is_ended(model: Path, temporary: Path) -> None:
    engine = EngineProcess(script_engine(SILENT), model, timeout=0.5)
    with pytest.raises(EngineError, match=r"was not ready within timeout=0.5 seconds") as caught:
        engine.start()
    assert str(caught.value).endswith("    loading")
    assert (find_processes(model), engine.status()) == ([], "stopped")
    assert len(list(temporary.iterdir())) == 1
    assert str(next(temporary.iterdir())) in str(caught.value)


def test_engine_is_not_ready_while_its_health_status_is_503(model: Path) -> None:
    busy = script_engine(
        """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
class Loading(BaseHTTPRequestHandler):
    seen = 0
    def do_GET(self):
        Loading.seen += 1
        self.send_response(200 if Loading.seen > 3 else 503)
        self.send_header("content-length", "0")
        self.end_headers()
HTTPServer((sys.argv[2], int(sys.argv[3])), Loading).serve_forever()
"""
    )
    with EngineProcess(busy, model) as engine:
        assert engine.log.read_text().count("GET /health") == 4


def test_secret_options_are_masked_in_error_log_and_repr(model: Path) -> None:
    tells = script_engine("import sys\nprint(*sys.argv, sep='\\n')\nraise SystemExit(1)")
    options = {"api_key": Secret("sk-it's one"), "more": ["a", Secret("sk-2")]}
    engine = EngineProcess(tells, model, options=options)
    with pytest.raises(EngineError) as caught:
        engine.start()
    for shown in (str(caught.value), repr(engine), engine.why()):
        assert "sk-" not in shown
        assert "one" not in shown.partition("command: ")[2]
    assert "--api-key '***' --more a '***'\n" in str(caught.value)
    assert str(caught.value).endswith("    --api-key\n    ***\n    --more\n    a\n    ***")


def test_killed_engine_has_the_status_died_and_can_be_started_again(model: Path, temporary: Path) -> None:
    engine = llama(model).start()
    port = port_of(engine)
    os.kill(server_of(model), signal.SIGKILL)
    with pytest.raises(openai.APIConnectionError):
        answer(engine)
    assert engine.why(wait=SECONDS).startswith(f"llama.cpp with model {model} was terminated by SIGKILL: the system")
    assert (engine.status(), is_free(port), find_processes(model)) == ("died", True, [])
    assert len(list(temporary.iterdir())) == 1
    engine.start()  # another time
    assert answer(engine)
    engine.stop()
    assert engine.status() == "stopped"
    assert len(list(temporary.iterdir())) == 1  # of the one that died


def test_killed_guard_leaves_no_process(model: Path) -> None:
    engine = llama(model).start()
    os.kill(min(find_processes(model)), signal.SIGKILL)
    assert eventually(lambda: engine.status() == "died")
    assert find_processes(model) == []
    assert "was terminated by SIGKILL" in engine.why()
    engine.stop()


def test_why_waits_for_the_passed_time_while_the_engine_runs(model: Path) -> None:
    with llama(model) as engine:
        before = time.monotonic()
        assert engine.why(wait=0.2) == ""
        assert time.monotonic() - before >= 0.2


def test_engine_can_be_stopped_while_starting(model: Path, temporary: Path) -> None:
    engine = EngineProcess(script_engine(SILENT), model)
    with ThreadPoolExecutor() as threads:
        started = threads.submit(engine.start)
        assert eventually(lambda: engine.status() == "starting" and len(find_processes(model)) == 2)
        engine.stop()
        with pytest.raises(EngineError, match="script was stopped before it was ready"):
            started.result(SECONDS)
    assert (engine.status(), find_processes(model), list(temporary.iterdir())) == ("stopped", [], [])


def test_threads_that_start_together_share_one_process(model: Path) -> None:
    engine = llama(model)
    together = threading.Barrier(8)

    def use(number: int) -> str:
        together.wait()
        engine.start()
        url = engine.url
        together.wait()
        if number % 2:
            engine.stop()
            assert find_processes(model) == []
        return url

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(use, range(8)))) == 1
    assert engine.status() == "stopped"


def test_threads_that_start_and_stop_in_any_order_leave_no_process(model: Path) -> None:
    engine, errors = llama(model), list[str]()

    def use(number: int) -> None:
        for _ in range(4):
            if number % 2:
                engine.stop()
            else:
                try:
                    engine.start()
                except EngineError as error:
                    errors.append(str(error))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(4)))
    assert all("was stopped before it was ready" in error for error in errors)
    assert engine.start().status() == "running"
    engine.stop()
    assert (engine.status(), find_processes(model)) == ("stopped", [])


def test_five_starts_and_stops_leave_nothing_behind(model: Path) -> None:
    assert cycles(model, 5) == 0


# A program that starts an engine; each test appends what it does next.
PROGRAM = """
import os, signal, sys, time
from lazyprompt.modules.process import EngineProcess
engine = EngineProcess("llama.cpp", sys.argv[1], options=dict(context=64, threads=1)).start()
print(engine.url, flush=True)
"""


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("os._exit(4)", 4),
        *((f"os.kill(os.getpid(), {number})\ntime.sleep(1000)", -number) for number in (2, 9, 15)),
        ("if os.fork() == 0: sys.exit()\nos.wait(); print(engine.status(), flush=True)", 0),
        ("if os.fork() == 0: print(engine.stop(), engine.status(), flush=True)\nelse: os.wait()", 0),
    ],
)
def test_engine_ends_with_the_program(model: Path, temporary: Path, then: str, code: int) -> None:
    with spawn(python("-c", PROGRAM + then, str(model))) as program:
        port = int(next_line(program).rpartition(":")[2])
        output, _ = program.communicate(timeout=SECONDS)
    assert program.returncode == code
    assert eventually(lambda: not find_processes(model) and is_free(port))
    if "fork" in then:
        assert output.endswith(b"running\n")  # the end of a fork, or stop() in a fork, does not stop the engine
    assert eventually(lambda: list(temporary.iterdir()) == [])  # the log stayed if the program was killed


STARTING = """
import sys
sys.path.insert(0, sys.argv[2])
from support.engines import SILENT, script_engine
from lazyprompt.modules.process import EngineProcess
EngineProcess(script_engine(SILENT), sys.argv[1]).start()
"""


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_starting_engine_ends_with_the_program_and_only_the_log_of_the_caller_stays(
    model: Path, tmp_path: Path, temporary: Path, number: signal.Signals, *, own: bool
) -> None:
    text = STARTING.replace("sys.argv[1])", "sys.argv[1], log=sys.argv[3])") if own else STARTING
    folder = tmp_path if own else temporary
    with spawn(python("-c", text, str(model), str(TESTS), str(tmp_path / "engine.log"))) as program:
        assert eventually(lambda: any(log.read_text() == "loading\n" for log in folder.glob("*.log")))
        program.send_signal(number)
        _, errors = program.communicate(timeout=SECONDS)
    assert program.returncode == -number
    assert eventually(lambda: not find_processes(model))
    assert eventually(lambda: list(temporary.iterdir()) == [])
    assert [log.read_text() for log in tmp_path.glob("*.log")] == ["loading\n"] * own
    if number == signal.SIGINT:
        assert errors.rstrip().endswith(b"KeyboardInterrupt")


def test_ctrl_c_at_a_terminal_ends_a_starting_engine_after_its_loading_message(model: Path, temporary: Path) -> None:
    ours, theirs = pty.openpty()
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        with closing(os.fdopen(theirs, "wb")) as other:
            ends = dict.fromkeys(("stdin", "stdout", "stderr"), other)
            text = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{STARTING}"
            program = spawn(
                python("-c", text, str(model), str(TESTS)),
                **ends,
                start_new_session=True,
                env=os.environ | {"TERM": "xterm", "COLUMNS": "400"},
            )
        with program:
            while b"is loading" not in shown:
                shown += terminal.read(4096)
            assert eventually(lambda: any(log.read_text() == "loading\n" for log in temporary.glob("*.log")))
            os.write(terminal.fileno(), b"\x03")
            try:
                while more := terminal.read(4096):
                    shown += more
            except OSError:  # it has ended, and the terminal with it
                pass
            assert program.wait(SECONDS) == -signal.SIGINT
    assert f"script is loading {model}; log file: {temporary}/lazyprompt-script-".encode() in shown
    assert b"KeyboardInterrupt" in shown
    assert (find_processes(model), list(temporary.iterdir())) == ([], [])


class Terminal(StringIO):
    """Standard error that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_loading_message_is_shown_at_a_terminal(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal always has 80 columns
    with llama(model) as engine:
        # The terminal width that rich detects decides how much of the line is shown.
        shown, line = terminal.getvalue(), f"llama.cpp is loading {model}; log file: {engine.log}"
        assert line[:40] in shown


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("OSError: [Errno 98] Address already in use", "another process uses the port"),
        ("srv  start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1", "another process uses the port"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "the model needs more memory than is"),
        ("llama_init_from_model: failed to initialize the context: std::bad_alloc", "the model needs more memory"),
        ("ValueError: No available memory for the cache blocks.", "the model needs more memory than is"),
        ("error loading model: unknown model architecture: 'qwen9'", "a newer version of the engine may support it"),
        ("ValueError: Model architectures ['X'] are not supported for now.", "a newer version of the engine"),
        ("ModuleNotFoundError: No module named 'x'", "a dependency is not installed; pip install x"),
        ("vllm: error: unrecognized arguments: --max-model-length", "the engine does not support an option"),
        ("llamacpp_server: cannot read the model m: Is a directory", "pass the path of a GGUF file"),
        ("tensor 'a' data is not within the file bounds, model is corrupted or incomplete", "the file is truncated; d"),
        ("all is well", ""),
    ],
)
def test_known_error_lines_of_engines_give_advice(line: str, hint: str) -> None:
    assert advice(["before", line, "behind"], 1, "pip install x").startswith(hint)
    assert advice(["all is well"], 137, "").startswith("the system may have run out of memory and killed the engine")


def test_exit_codes_and_signals_are_described() -> None:
    ends = {128: "exited with code 128", 129: "was terminated by SIGHUP", -15: "was terminated by SIGTERM"}
    ends |= {3: "exited with code 3", 137: "was terminated by SIGKILL", 255: "exited with code 255"}
    assert {code: how(code) for code in ends} == ends
    assert how(None) == "has exited"


def test_tail_reads_the_last_lines_of_any_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log, 0) == [f"{log} no longer exists"]
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert tail(log, 0) == [f"line {number}" for number in range(85, 100)]
    log.write_bytes(b"old\n" + b"x" * 100_000 + b"\n\xff 1%\r 2%\r\n\n\nlast")
    assert tail(log, 4) == ["x" * (65_536 - 17), " 2%", "last"]
    assert tail(log, log.stat().st_size) == []


def test_vllm_is_started_with_the_command_of_the_engine_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script stands for vLLM: it checks the command line and serves /health."""
    program = tmp_path / "vllm"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1 $2 $3 $4 $5" = "serve m --host 127.0.0.1 --port" ] && cd {tmp_path} && touch health\n'
        f'exec {python()[0]} -m http.server --bind 127.0.0.1 "$6"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with EngineProcess(ENGINES["vllm"], "m") as process:
        assert process.status() == "running"
