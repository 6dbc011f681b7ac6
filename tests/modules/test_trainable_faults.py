"""Local engines that a module starts and stops, and their faults."""

import asyncio
import copy
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import CallRecord, ChatPrompter, Secret, TrainableModule
from lazyprompt.errors import EngineError, ModuleError
from lazyprompt.modules.process import EngineProcess
from modules.local_models import WORDS, call_error
from modules.online_scenes import WAYS, ask_by
from support.engines import QUICK as LITTLE
from support.engines import eventually, find_processes, is_free, script_engine

pytestmark = pytest.mark.slow  # engines

QUICK: dict[str, Any] = {**LITTLE}
GREEDY: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0, "extra_body": {"grammar": WORDS}}


def local(model: Path, **more: Any) -> TrainableModule:
    return TrainableModule(model, **{**GREEDY, "retries": 0, **more})


def port_of(module: TrainableModule) -> int:
    return int(module.url.rpartition(":")[2])


def test_engine_runs_until_the_with_block_ends(model: Path) -> None:
    module = local(model)
    assert module.status() == "stopped"
    assert repr(module) == f"TrainableModule({str(model)!r}, engine='llama.cpp', stopped)"
    with module.start(**QUICK) as same:
        assert same is module
        assert module.status() == "running"
        port, answer = port_of(module), module("hi")
        assert module.start() is module
        assert port_of(module) == port
        assert answer.startswith("so ")
    assert module.status() == "stopped"
    assert is_free(port)
    module.stop()
    module.close()
    assert not find_processes(model)


def test_engine_can_be_started_again_on_another_port(model: Path) -> None:
    module = local(model)
    with module.start(**QUICK):
        first = port_of(module)
        answer = module("hi")
    with module.start(**QUICK, port=_another(first)):
        assert port_of(module) != first
        assert module("hi") == answer
        assert list(module.stream("hi"))
    assert call_error(lambda: module("hi")).kind == ""


def _another(port: int) -> int:
    return next(number for number in range(port + 1, port + 100) if is_free(number))


def test_start_passes_options_and_log_to_the_engine(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with local(model).start(context=256, threads=1, log=log) as module, pytest.raises(EngineError, match="256 tokens"):
        module("long " * 100)
    assert str(model) in log.read_text()


def test_call_before_start_is_an_error(model: Path) -> None:
    module = local(model)
    for call in (
        lambda: module("hi"),
        lambda: module.stream("hi"),
        lambda: module.astream("hi"),
        lambda: asyncio.run(module.acall("hi")),
        lambda: module.url,
        lambda: module.chat()("hi"),
    ):
        assert "call start() or pass the url=" in str(call_error(call))
    module.stop()
    assert module.payload("hi")["prompt"] == module.render("hi").text


def test_start_of_a_module_with_a_url_has_no_effect(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    # start() with a url raised an error, but programs for LazyLLM call it always.
    module = TrainableModule(model, url="http://127.0.0.1:9/v1/")
    assert (module.url, module.status()) == ("http://127.0.0.1:9", "running")
    with caplog.at_level("INFO", "lazyprompt"):
        assert module.start() is module
    assert caplog.messages == ["start() has no effect: the engine at 'http://127.0.0.1:9' is managed elsewhere"]
    with module as same:
        assert same is module
    module.stop()
    assert "starting an engine requires a model" in str(call_error(TrainableModule(engine="vllm").start))
    assert "start it manually and pass its url=" in str(call_error(TrainableModule(model, engine="other").start))


def test_copied_module_has_the_same_settings_and_its_own_engine(model: Path) -> None:
    prompter = ChatPrompter("Answer in {lang}.")
    with local(model).prompt(prompter, history=[["a", "b"]]).start(**QUICK) as module:
        call = {"lang": "Dutch", "input": "hi"}
        for made in (copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301 - our own
            assert made.status() == "stopped"
            assert made.payload(call) == module.payload(call)
            made.stop()
        assert module.status() == "running"
        with copy.copy(module).start(**QUICK) as other:
            assert other.url != module.url
            assert other(call) == module(call)
        assert module(call)
        there = pickle.loads(pickle.dumps(TrainableModule(model, url=module.url, **GREEDY).prompt(prompter)))  # noqa: S301 - our own
        assert there(call).startswith("so ")
        there.close()


def test_module_with_a_key_cannot_be_pickled() -> None:
    module = TrainableModule("org/m", url="http://127.0.0.1:9", markers="chatml", api_key=Secret("sk-secret"))
    with pytest.raises(TypeError, match="a secret can.t be pickled"):
        pickle.dumps(module)


@pytest.mark.parametrize("way", WAYS)
def test_error_of_an_engine_killed_during_a_call_has_the_signal_and_the_log(model: Path, way: str) -> None:
    records: list[CallRecord] = []
    module = local(model, hooks=[records.append])
    with module.start(**QUICK), ThreadPoolExecutor(1) as pool:
        pid = max(find_processes(model))  # not its guard, which was there before
        os.kill(pid, signal.SIGSTOP)
        asked = pool.submit(call_error, lambda: ask_by(way, module, "hi"))
        assert eventually(lambda: _is_connected(port_of(module)))
        os.kill(pid, signal.SIGKILL)
        error = asked.result()
        assert error.kind in ("connection", "cut")
        assert "was terminated by SIGKILL" in str(error)
        assert "is served at" in str(error)  # the log's last line
        assert [record.error for record in records] == [error]
        assert module.status() == "died"
        # Later calls fail too.
        error = call_error(lambda: ask_by(way, module, "hi"))
        assert (error.kind, "was terminated by SIGKILL" in str(error)) == ("connection", True)
        assert module.start(**QUICK).status() == "running"
        assert ask_by(way, module, "hi").startswith("so ")


def _is_connected(port: int) -> bool:
    """Whether somebody is connected to a port: proc_net(5), where 01 is an established connection."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return any(one[3] == "01" and int(one[2].partition(":")[2], 16) == port for one in lines)


# An engine that sends two words of a response, and then dies or waits.
TALKING = """
import http.server, os, signal, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        self.send_response(200); self.send_header('content-type', 'text/event-stream'); self.end_headers()
        for word in ('so', ' far'):
            self.wfile.write(('data: {"choices": [{"index": 0, "text": "%s"}]}\\n\\n' % word).encode())
        if WAITS: time.sleep(1000)
        print('CUDA out of memory', flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    def log_message(self, *_): pass
http.server.HTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
"""


def test_text_received_before_the_engine_died_is_in_the_error(model: Path) -> None:
    module = local(model)
    module.engine = script_engine(TALKING.replace("WAITS", "False"))._replace(name="other")
    with module.start():
        stream = module.stream("hi")
        pieces: list[str] = []
        error = call_error(lambda: pieces.extend(stream))
        assert error.kind == "cut"
        assert str(error.partial) == "so far"
        assert "was terminated by SIGKILL: the model needs more memory than is available" in str(error)
        assert "CUDA out of memory" in str(error)
        with pytest.raises(ModuleError, match="not complete yet"):
            _ = stream.reply


def test_stopping_the_engine_ends_running_calls(model: Path) -> None:
    module = local(model)
    module.engine = script_engine(TALKING.replace("WAITS", "True"))._replace(name="other")
    stream = module.start().stream("hi")
    assert next(iter(stream)) == "so"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call_error, lambda: list(stream))
        module.stop()
        assert asked.result().kind == "cut"
    assert str(asked.result().partial) == "so far"


def test_prompt_longer_than_the_context_window_is_an_overflow(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with local(model).start(**QUICK) as module:
        # The engine runs, so the module does not wait for its end.
        monkeypatch.setattr(EngineProcess, "why", None)
        for call in (lambda: module("long " * 400), lambda: list(module.stream("long " * 400))):
            error = call_error(call)
            assert (error.kind, error.status) == ("overflow", 400)
            assert "set a budget" in str(error)
        assert module("hi").startswith("so ")


def test_response_cut_off_by_the_context_window_has_the_finish_reason_length(model: Path) -> None:
    with local(model, max_tokens=5000, extra_body=None).start(context=256, threads=1) as module:
        reply = module("hi")
        assert reply.finish == "length"
        assert reply.usage is not None
        assert reply.usage["total_tokens"] <= 256
