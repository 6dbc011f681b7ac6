"""The models that the documents talk to: providers played by a server of our own, and a tiny model in a file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from model_server import Answer, ModelServer
from tiny_model import CHATML, write_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from model_server import Seen

_SAID = {
    "When do you open?": "At nine.",
    "几点开门？": "九点。",
    "What is the capital of France?": "La capitale de la France est Paris.",
    "And of Italy?": "La capitale de l'Italie est Rome.",
    "Name a city of Peru.": '{"name": "Cusco", "country": "Peru"}',
}


def _answer(seen: Seen) -> Answer:
    last = seen.body["messages"][-1]
    if last["role"] == "tool":
        return Answer("It rains in Rome.")
    if "tools" in seen.body:
        return Answer("", calls=(("call_1", "weather", {"city": "Rome"}),), finish="tool_calls")
    return Answer(_SAID.get(last["content"], "Gern."), prompt_tokens=31, completion_tokens=9)


@contextmanager
def models_at_hand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Models that are found by the environment, and by a file ``model.gguf`` in the working directory.

    Args:
        folder: The directory to work in.
        monkeypatch: What sets the environment.

    Yields:
        The server.
    """
    write_model(folder / "model.gguf", {"default": CHATML})
    with ModelServer() as server:
        server.answer = _answer
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-a-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url("openai"))
        monkeypatch.chdir(folder)
        yield server
