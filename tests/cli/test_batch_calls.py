"""``lazyprompt batch --run``: the responses of a model to the rows of a file."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.helpers import Run, fault, write
from support.batch_calls import Clocked, all_answered, rows
from support.client_scenes import KEY
from support.missing import needs
from support.model_server.server import Slow

needs("openai")

COMMAND = ("batch", "qa.yaml", "data.jsonl", "-o", "out.jsonl")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    write(tmp_path / "qa.yaml", "type: chat\ninstruction: 'Answer in {language}.'\n")
    rows(tmp_path, 6)
    with Clocked() as server:
        yield server


def target(server: Clocked, source: str = "openai") -> list[str]:
    return ["--run", "--source", source, "--base-url", server.url(source), "--model", "m"]


def test_batch_run_writes_responses_and_reports_their_tokens(run: Run, server: Clocked, tmp_path: Path) -> None:
    ran = run(*COMMAND, *target(server), "--field", "max_completion_tokens=9", "--concurrency", "2")
    assert (ran.status, ran.out) == (0, b"")
    assert ran.err.startswith("lazyprompt: out.jsonl: 6 rows read, 6 written, 150 tokens, ")
    assert all_answered(tmp_path / "out.jsonl", 6)
    assert {seen.body["max_completion_tokens"] for seen in server.seen} == {9}
    again = fault(run(*COMMAND, *target(server)))
    assert again == "--output: out.jsonl already exists; use another output, or add --restart to send all rows again"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source", "openai"], "--source: this option applies only to model calls; add --run"),
        (["--rpm", "5"], "--rpm: this option applies only to model calls; add --run"),
        (["--concurrency", "2"], "--concurrency: this option applies only to model calls; add --run"),
        (["--run"], "--source: no model is set"),
        (["--run", "--source", "opanai"], "--source: unknown source 'opanai' (did you mean 'openai'?)"),
        (["--run", "--source", "openai", "--workers", "2"], "--workers: --run uses one process"),
        (
            ["--run", "--source", "openai", "--format", "openai"],
            "--format: --run always writes responses in the same format",
        ),
        (["--run", "--source", "openai", "--url", "http://x/v1"], "--url: this option is for local models"),
    ],
)
@pytest.mark.usefixtures("server")
def test_usage_error_names_the_option(run: Run, tmp_path: Path, options: list[str], message: str) -> None:
    assert fault(run(*COMMAND, *options)).startswith(message)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signal to one process; CI runs it on Linux")
def test_ctrl_c_awaits_pending_calls_and_prints_the_resume_command(server: Clocked, tmp_path: Path) -> None:
    server.misbehaves = lambda text: Slow(first=3 if int(text) > 2 else 0)
    command = [sys.executable, "-m", "lazyprompt", *COMMAND, *target(server, "ollama"), "--concurrency", "2"]
    started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own
    while len(server.came) < 4 and started.poll() is None:
        time.sleep(0.005)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=30)
    assert started.returncode == 1
    assert "stopped: interrupted by Ctrl-C; 4 rows have a response\n" in err
    assert "resume with: lazyprompt batch qa.yaml" in err
    server.misbehaves = lambda _: None
    done = subprocess.run(command, cwd=tmp_path, check=False)  # noqa: S603 - as above
    assert done.returncode == 0
    assert all_answered(tmp_path / "out.jsonl", 6)
    assert sorted(server.said) == ["1", "2", "3", "4", "5", "6"]
