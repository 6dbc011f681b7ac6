"""Servers, modules and model files for the tests of modules.

Imports that need the package gguf are inside the fixtures that use them, so that other tests run without it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from modules.online_scenes import Counted, close_all
from modules.talks import KINDS, Module, module_of
from support.model_server.server import Answer, ModelServer


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Counted]:
    """A server that validates the requests, and gives the response ``ANSWER`` of the test file if it has one."""
    with Counted(getattr(request.module, "ANSWER", None)) as made:
        yield made
        close_all()


@pytest.fixture(scope="module")
def started() -> Iterator[ModelServer]:
    """A server for all tests of a file."""
    with ModelServer(judges=False) as made:
        yield made


@pytest.fixture
def lenient(started: ModelServer) -> ModelServer:
    """A server that accepts every request, reset for each test."""
    started.seen.clear()
    started.faults = []
    started.answer = Answer()
    return started


@pytest.fixture(params=KINDS)
def module(request: pytest.FixtureRequest, lenient: ModelServer) -> Iterator[Module]:
    """A module of each kind that calls the lenient server."""
    made = module_of(request.param, lenient)
    yield made
    made.close()


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    """A model; checks that no process of it is left running."""
    from support.engines import eventually, find_processes, tiny_model  # noqa: PLC0415 - see above

    made = tiny_model(tmp_path)
    yield made
    assert eventually(lambda: not find_processes(made))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A GGUF file with a template, whose name belongs to no family."""
    from support.tiny_model import CHATML, write_model  # noqa: PLC0415 - see above

    return write_model(tmp_path / "nobody.gguf", {"default": CHATML}, weights=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory of weights, as transformers writes it."""
    from modules.local_models import MAKES  # noqa: PLC0415 - see above

    llama = MAKES["llama"]
    made = tmp_path / "weights"
    made.mkdir()
    (made / "config.json").write_text("{}")
    config = {"chat_template": llama.template, "bos_token": llama.bos, "eos_token": llama.eos}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    llama.tokenizer().save(str(made / "tokenizer.json"))
    return made
