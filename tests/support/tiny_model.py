"""A tiny model with random weights in a GGUF file, as the package gguf writes it, and llama.cpp, which serves it.

It is a Qwen 2 of one layer, which llama.cpp loads in a hundredth of a second.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import gguf
import numpy as np
import urllib3
from gguf import TokenType
from tokenizers.pre_tokenizers import ByteLevel

from support.missing import needs

WIDTH, INNER, HEADS, CONTEXT = 32, 32, 2, 512
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The tokens after those of the bytes, and the names of some of them in the file.
TOKENS: dict[str, TokenType] = {
    "<|endoftext|>": TokenType.CONTROL,
    "<|im_start|>": TokenType.CONTROL,
    "<|im_end|>": TokenType.CONTROL,
}
SPECIAL = {"bos": "<|endoftext|>", "eos": "<|im_end|>"}


def write_model(
    path: Path,
    templates: Mapping[str, str],
    *,
    tokens: Mapping[str, TokenType] = TOKENS,
    special: Mapping[str, str] = SPECIAL,
    order: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
    weights: bool = True,
    context: int = CONTEXT,
) -> Path:
    """Write a model; ``default`` names the usual chat template. Without weights it cannot be served."""
    writer = gguf.GGUFWriter(path, "qwen2", endianess=order)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    kinds = dict.fromkeys(sorted(ByteLevel.alphabet()), TokenType.NORMAL) | dict(tokens)
    numbers = {token: number for number, token in enumerate(kinds)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*kinds])
    writer.add_token_types([*kinds.values()])
    writer.add_token_merges(["a b"])
    for name, token in special.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", numbers[token])
    # Otherwise llama.cpp removes it from the prompt, and adds it before the ids.
    writer.add_add_bos_token(False)  # noqa: FBT003 - gguf's own
    if templates:
        writer.add_chat_template([{"name": name, "template": text} for name, text in templates.items()])
    for name, shape in _shapes(len(kinds)).items() if weights else ():
        writer.add_tensor(name, np.random.default_rng(7).standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The weights of the model."""
    shapes: dict[str, tuple[int, ...]] = {
        f"attn_{name}": (WIDTH, WIDTH)[:dimensions]
        for letter in "qkv"
        for name, dimensions in ((f"{letter}.weight", 2), (f"{letter}.bias", 1))
    }
    shapes |= {f"ffn_{name}.weight": (INNER, WIDTH) for name in ("gate", "up")}
    shapes |= {"ffn_down.weight": (WIDTH, INNER), "attn_output.weight": (WIDTH, WIDTH)}
    shapes |= {f"{name}_norm.weight": (WIDTH,) for name in ("attn", "ffn")}
    outer: dict[str, tuple[int, ...]] = {f"{name}.weight": (vocabulary, WIDTH) for name in ("token_embd", "output")}
    return {f"blk.0.{name}": shape for name, shape in shapes.items()} | outer | {"output_norm.weight": (WIDTH,)}


class LlamaCpp:
    """llama.cpp's server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def post(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """The status and the answer to a request."""
        with urllib3.PoolManager() as pool:
            response = pool.request("POST", self.address + path, json=body, retries=False)
        return response.status, response.json()

    def prompt(self, messages: list[dict[str, Any]], **body: Any) -> tuple[str | None, str]:
        """The prompt that the model would receive, or None and the reason."""
        status, answer = self.post("/apply-template", messages=messages, **body)
        return (answer["prompt"], "") if status == 200 else (None, answer["error"]["message"])

    def tokens(self, text: str) -> list[int]:
        """The ids of a prompt, in which each text that looks like a special token becomes one."""
        answer = self.post("/tokenize", content=text, add_special=False, parse_special=True)[1]
        return [int(token) for token in answer["tokens"]]


# Serves a model until it is killed, or its input ends.
_SERVE = """
import os, sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.chat_template, params.n_ctx = sys.argv[1], sys.argv[2], int(sys.argv[3])
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_parallel, params.cpuparams.n_threads, params.n_threads_http = 1, 1, 1
params.use_jinja, params.offline, params.warmup, params.fit_params = True, True, False, False
params.verbosity = -1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""


@contextmanager
def llama_cpp(model: Path, template: str = "") -> Iterator[LlamaCpp]:
    """Serve a model while a test needs it."""
    # In a separate process, which can be killed: in this process, the shutdown of the server could block forever.
    command = [sys.executable, "-c", _SERVE, str(model), template, str(CONTEXT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            address = cast("IO[str]", process.stdout).readline().strip()
            if not address:
                needs("xllamacpp")
                raise RuntimeError(f"llama.cpp does not serve {model}")
            yield LlamaCpp(address)
        finally:
            process.kill()
