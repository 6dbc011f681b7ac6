"""The first calls of a process: one thread imports packages and makes clients, while others wait or call."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from textwrap import dedent
from threading import Barrier, Lock
from typing import Any

import pytest

from modules.online_scenes import ASKED, FEW, Counted, module, run_in_loop
from support.missing import needs
from support.model_server.server import ModelServer

# Without an address, a request fails with the kind "connection": nobody listens there.
ASK = """
    def ask(source, base_url="http://127.0.0.1:9/v1"):
        model = OnlineChatModule(source, model="m", api_key="k", base_url=base_url, retries=0)
        try:
            model("hi")
        except ModuleError as error:
            assert error.kind == "connection", error
"""
HALF_IMPORTED = """
    import sys
    from importlib import import_module
    from importlib.abc import MetaPathFinder
    from threading import Event, Thread, current_thread
    from lazyprompt import ModuleError, OnlineChatModule

    source, package, url = sys.argv[1:]
    half, asked = Event(), Event()

    class Halt(MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name.startswith(f"{package}.") and current_thread() is importing:
                half.set()
                asked.wait()

    importing = Thread(target=lambda: (import_module(package), half.set()))
    ask(source, url)
    sys.meta_path.insert(0, Halt())
    importing.start()
    half.wait()
    try:
        ask(source, url)
    finally:
        asked.set()
"""
IMPORTED = """
    import sys
    from lazyprompt import ModuleError, OnlineChatModule
    from lazyprompt.modules.clients._base import OfficialClient

    before, make = set(), OfficialClient.client

    def made(client, loop=None):
        official = make(client, loop)
        before.update(sys.modules)
        return official

    OfficialClient.client = made
    ask(sys.argv[1])
    sys.exit(", ".join(sys.modules.keys() - before) or None)
"""
FORKED = """
    import os, sys, time
    from threading import Event, Thread
    import openai
    from lazyprompt import ModuleError, OnlineChatModule

    making, make = Event(), openai.OpenAI

    def slowly(**given):
        making.set()
        time.sleep(0.2)
        return make(**given)

    openai.OpenAI = slowly
    Thread(target=ask, args=["openai"]).start()
    making.wait()
    child = os.fork()
    ask("ollama")
    if not child:
        os._exit(0)
    until = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, 9)
    sys.exit(not ended[0] or ended[1])
"""


def run(script: str, *arguments: str) -> None:
    """Run a script in a new process."""
    imports, _, rest = dedent(script).partition("\n\n")
    command = [sys.executable, "-c", "\n".join((imports, dedent(ASK), rest)), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this Python, and a script from above
    assert not ended.returncode, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_request_works_while_another_thread_imports_the_client_package(server: ModelServer, package: str) -> None:
    """Some clients look in ``sys.modules`` for a package that another thread may just be importing."""
    needs("openai", package)
    run(HALF_IMPORTED, "openai", package, server.url("openai"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "package"), [("openai", "openai"), ("gemini", "google.genai"), ("ollama", "ollama")]
)
def test_request_imports_no_module_after_the_client_is_made(source: str, package: str) -> None:
    needs(package)
    run(IMPORTED, source)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork; CI runs it on Linux")
def test_process_forked_while_a_client_is_made_can_make_its_own_client() -> None:
    needs("openai")
    run(FORKED)


def test_one_client_is_made_at_a_time(server: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, making, most = Lock(), [0], [0]

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **given: Any) -> Any:
            with lock:
                making[0] += 1
                most[0] = max(most[0], making[0])
            time.sleep(0.02)
            with lock:
                making[0] -= 1
            return make(*arguments, **given)

        return made

    for package, name in (("openai", "OpenAI"), ("anthropic", "Anthropic"), ("google.genai", "Client")):
        sdk = import_module(package)
        monkeypatch.setattr(sdk, name, counted(getattr(sdk, name)))
    models, begin = [module(server, source) for source in FEW], Barrier(8)

    def ask(number: int) -> str:
        begin.wait()
        return str(models[number % 4](ASKED))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {"pong"}
    assert most == [1]


@pytest.mark.parametrize("source", FEW)
def test_client_can_be_made_while_another_client_streams(server: ModelServer, source: str) -> None:
    with module(server, "openai").stream(ASKED) as stream, ThreadPoolExecutor(1) as pool:
        assert next(iter(stream))
        assert pool.submit(module(server, source), ASKED).result(timeout=60) == "pong"


class Jobs(ThreadPoolExecutor):
    """The executor of an event loop, which counts its jobs."""

    asked = 0

    def submit(self, *job: Any, **more: Any) -> Any:
        self.asked += 1
        return super().submit(*job, **more)


@pytest.mark.slow
@pytest.mark.parametrize("source", FEW)
def test_first_calls_of_an_event_loop_use_few_executor_threads(server: ModelServer, source: str) -> None:
    model, jobs = module(server, source), Jobs()

    async def burst() -> set[str]:
        asyncio.get_running_loop().set_default_executor(jobs)
        return {str(reply) for reply in await asyncio.gather(*(model.acall(ASKED) for _ in range(200)))}

    assert run_in_loop(model, burst()) == {"pong"}
    assert jobs.asked <= 10
