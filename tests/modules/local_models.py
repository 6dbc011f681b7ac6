"""Helpers for tests of local models: small models with our own templates, and engines that serve them."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import gguf
import openai
import pytest
from gguf import TokenType
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from lazyprompt import TrainableModule
from lazyprompt.errors import EngineError
from lazyprompt.modules.process import EngineProcess
from support.engines import QUICK
from support.tiny_model import CHATML, TOKENS, LlamaCpp, write_model

# A grammar that makes a model with random weights write readable text.
WORDS = 'root ::= "so " [a-z]{6} " then " [a-z]{6}'


class Make(NamedTuple):
    """The template and special tokens of a small model."""

    template: str
    tokens: tuple[str, ...]  # its control tokens
    bos: str  # the one that begins a text
    eos: str  # the one that ends an answer

    @property
    def vocabulary(self) -> dict[str, TokenType]:
        """The control tokens, and a token that is merged from two letters."""
        return {**dict.fromkeys(self.tokens, TokenType.CONTROL), "ab": TokenType.NORMAL}

    def write(self, path: Path, *, add_bos: bool = False, template: bool = True) -> Path:
        """Write a model whose file says whether a BOS goes before each text, and may hold the template."""
        writes = gguf.GGUFWriter.add_add_bos_token

        def add(writer: gguf.GGUFWriter, _: object) -> None:
            writes(writer, add_bos)

        with patch.object(gguf.GGUFWriter, "add_add_bos_token", add):
            return write_model(
                path,
                {"default": self.template} if template else {},
                tokens=self.vocabulary,
                special={"bos": self.bos, "eos": self.eos},
            )

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model, by the tokenizers package instead of llama.cpp."""
        names = [*sorted(ByteLevel.alphabet()), *self.vocabulary]
        numbers = {name: number for number, name in enumerate(names)}
        made = Tokenizer(BPE(numbers, [("a", "b")]))
        made.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
        made.decoder = ByteLevelDecoder()
        made.add_special_tokens([*self.tokens])
        return made

    def special_ids(self) -> set[int]:
        """The ids of its control tokens."""
        return {self.tokenizer().encode(token).ids[0] for token in self.tokens}


MAKES: Mapping[str, Make] = {
    "chatml": Make(CHATML, tuple(TOKENS), "<|endoftext|>", "<|im_end|>"),
    "llama": Make(
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        *("<|begin_of_text|>", "<|eot_id|>"),
    ),
    "mistral": Make(
        "{{ bos_token }}{% if messages[0].role == 'system' %}[SYSTEM_PROMPT]{{ messages[0].content }}[/SYSTEM_PROMPT]"
        "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
        "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}",
        ("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        *("<s>", "</s>"),
    ),
}
NOWHERE = "http://127.0.0.1:9"
LLAMA = MAKES["llama"]
CHATML_HI = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
LLAMA_HI = "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"


def local_module(model: Any = "", /, **given: Any) -> TrainableModule:
    """A module without a running engine: it renders, and sends nothing."""
    return TrainableModule(model, **{"url": NOWHERE, **given})


@contextmanager
def served(model: Path, **options: object) -> Generator[EngineProcess]:
    """Serve a model with llama.cpp."""
    with EngineProcess("llama.cpp", model, options=QUICK | {"parallel": 1, "context": 2048} | options) as process:
        yield process


def posted(url: str, path: str, **body: Any) -> dict[str, Any]:
    """The response of llama.cpp at a path."""
    status, said = LlamaCpp(url).post(path, **body)
    assert status == 200, said
    return said


def received_prompt(url: str, prompt: object) -> str:
    """A prompt as llama.cpp received it, with control tokens as text."""
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        said: Any = client.post("/completion", cast_to=object, body=body)
    return str(said["prompt"])


def call_error(call: Callable[[], object]) -> EngineError:
    """The error that a call raises."""
    with pytest.raises(EngineError) as caught:
        call()
    return caught.value
