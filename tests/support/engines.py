"""Helpers for tests of engines: a model, the running processes, and engines made of scripts."""

import gc
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from lazyprompt.modules.engines import Engine
from lazyprompt.modules.process import EngineProcess
from support.tiny_model import CHATML, TOKENS, write_model

SECONDS = 60.0  # longer than anything takes, for a busy machine
QUICK = {"context": 512, "threads": 1, "parallel": 2}
BOS, EOS = "<|endoftext|>", "<|im_end|>"


def tiny_model(folder: Path) -> Path:
    """A GGUF file in a folder; its name shows on the command line of whoever serves it."""
    return write_model(folder / "tiny.gguf", {"default": CHATML})


def tokenizer() -> Tokenizer:
    """The tokenizer of the tiny model, by another library than llama.cpp."""
    letters = sorted(ByteLevel.alphabet())
    made = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = ByteLevelDecoder()
    made.add_special_tokens([*TOKENS])
    return made


def script_engine(script: str) -> Engine:
    """An engine that is a Python program: its arguments are the model, the host and the port."""
    program = ("{python}", "-c", script.replace("{", "{{").replace("}", "}}"), "{model}", "{host}", "{port}")
    return Engine(name="script", program=program, install="nothing to install", package="json")


# It never listens.
SILENT = "import time\nprint('loading', flush=True)\ntime.sleep(1000)"


def find_processes(needle: object) -> list[int]:
    """The processes that have a text on their command line, this one aside, and those that wait to be reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()  # empty where it waits to be reaped
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            if str(needle).encode() in line:
                found.append(int(entry.name))
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen at a port."""
    with socket.socket() as at:
        at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            at.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def eventually(condition: Callable[[], object]) -> bool:
    """Whether something becomes true before long."""
    until = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def cycles(model: Path, number: int) -> int:
    """Start an engine and stop it, again and again, asking it something each time.

    Args:
        model: A GGUF file.
        number: How often.

    Returns:
        How many processes, ports, logs and open files were left.
    """
    from openai import OpenAI  # noqa: PLC0415 - slow, and only here

    files = len(list(Path("/proc/self/fd").iterdir()))
    left = 0
    for cycle in range(number):
        with EngineProcess("llama.cpp", model, options=QUICK) as engine:
            log, port = engine.log, int(engine.url.rpartition(":")[2])
            with OpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0) as client:
                asked = client.completions.create(model="m", prompt="hi", max_tokens=2, temperature=0)
            if asked.usage is None or asked.usage.prompt_tokens != 2:
                raise RuntimeError(f"cycle {cycle}: {asked}")
        left += len(find_processes(model)) + (not is_free(port)) + log.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of others
        gc.collect()
    return left + max(0, len(list(Path("/proc/self/fd").iterdir())) - files)


def python(*arguments: str) -> list[str]:
    """A command that runs this Python."""
    return [sys.executable, *arguments]


def spawn(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """A process of ours, with pipes for what it reads and writes; nothing of it waits in a buffer."""
    more = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"bufsize": 0} | more
    return cast("subprocess.Popen[bytes]", subprocess.Popen(command, **more))  # noqa: S603 - the test's own


def next_line(process: subprocess.Popen[bytes]) -> str:
    """The next line that a process writes."""
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")
