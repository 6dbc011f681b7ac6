"""The models that the documents call: providers simulated by a local server, and tiny models in files."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import pytest

from support.model_server.server import Answer, ModelServer, Seen
from support.tiny_model import CHATML, write_model

# The answers to the last text of a conversation: the user's, or the result of a tool.
_SAID: Final = {
    "When do you open?": "At nine.",
    "几点开门？": "九点。",
    "What is the capital of France?": "La capitale de la France est Paris.",
    "And of Italy?": "La capitale de l'Italie est Rome.",
    "Name a city of Peru.": '{"name": "Cusco", "country": "Peru"}',
    "Rain in Rome.": "It rains in Rome.",
    "When does the library open?": "The library opens at 9:30.",
    "Is it open on Sunday?": "It is closed on Sunday.",
    "Emma: shelf B3, in": "Yes, Emma is in, on shelf B3.",
    "图书馆几点开门？": "图书馆 9:30 开门。",
    "周日开门吗？": "周日不开门。",
    "《围城》：B3 架，在馆": "在的，《围城》在 B3 架。",
    "Hello!": "Hello! How can I help you?",
    "I paid twice for order A-17!": '{"topic": "payment", "urgent": true}',
    "My name is Ada.": "Hello, Ada.",
    "What is my name?": "Your name is Ada.",
    "What is on this picture?": "A black dot.",
    "10:00 to 16:00": "Yes: Emma is on shelf B3, and we are open from 10:00 to 16:00.",
    "Do you lend films?": "Yes, for a week.",
    "not allowed": "I am not allowed to delete it.",
}
# The calls in answer to a question, or to the result of another call, where there are tools.
_CALLS: Final[dict[str, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "What is the weather in Rome?": (("weather", {"city": "Rome"}),),
    "Is Emma in?": (("find_book", {"title": "Emma"}),),
    "《围城》在馆吗？": (("find_book", {"title": "围城"}),),
    "Can I pick up Emmma on Saturday?": (("find_book", {"title": "Emmma"}),),
    "no book 'Emmma'; the books are Emma": (("find_book", {"title": "Emma"}), ("opening_hours", {"day": "saturday"})),
    "Delete the account of Ada.": (("delete_account", {"reader": "Ada"}),),
}
# The variables of a key and an address, as the official clients read them.
_ENVIRONMENT: Final = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
}


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message of any provider's form."""
    content = message.get("content", message.get("parts"))
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _answer(seen: Seen) -> Answer:
    last = _text((seen.body.get("messages") or seen.body["contents"])[-1])
    if "tools" in seen.body and last in _CALLS:
        calls = ((f"call_{at}", name, arguments) for at, (name, arguments) in enumerate(_CALLS[last], 1))
        return Answer("", calls=(*calls,), finish="tool_calls")
    return Answer(_SAID.get(last, "Gern."), prompt_tokens=31, completion_tokens=9)


def write_speaker(path: Path, says: str) -> Path:
    """Write a model that says one thing, whatever it is asked: each token determines the next one.

    No character may appear in it twice: a model of one layer that attends to no other token sees only the last one.
    """
    write_model(path, {"default": CHATML})
    reader = gguf.GGUFReader(path, "r+")
    reader.fields["qwen2.context_length"].parts[-1][0] = 8192
    weights = {tensor.name: tensor.data for tensor in reader.tensors}
    for name, values in weights.items():
        if name != "token_embd.weight":
            values[:] = 1 if name.endswith("norm.weight") else 0
    vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
    # Behind the line end of `<|im_start|>assistant`, which the tokenizer writes as this sign.
    spoken = [vocabulary.index(token) for token in ("\N{LATIN CAPITAL LETTER C WITH DOT ABOVE}", *says, "<|im_end|>")]
    known, said = weights["token_embd.weight"], weights["output.weight"]
    for token, following in pairwise(spoken):
        said[following] = 10 * known[token] / np.linalg.norm(known[token])
    return path


@contextmanager
def models_at_hand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ModelServer]:
    """Models that are found by the environment, and by files in the working directory.

    ``model.gguf`` has random weights, ``small.gguf`` says when the library of the tutorial opens.
    """
    write_model(folder / "model.gguf", {"default": CHATML})
    write_speaker(folder / "small.gguf", "9:30")
    with ModelServer() as server:
        server.answer = _answer
        for provider, (key, address) in _ENVIRONMENT.items():
            monkeypatch.setenv(key, "a-key-of-a-test")
            monkeypatch.setenv(address, server.url(provider))
        monkeypatch.chdir(folder)
        yield server
