"""The same weights on llama.cpp and on transformers, which share no code: python tests/modules/soak_transformers.py.

Both are started by a TrainableModule and asked the same. Equal greedy text and equal numbers of tokens prove what each
engine was given. It needs ``pip install torch "transformers[serving]"``, which is why it is no test of the suite.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gguf import GGUFReader

from lazyprompt import AlpacaPrompter, ChatPrompter, TrainableModule
from modules.local_models import MAKES
from support.tiny_model import CONTEXT, HEADS, INNER, WIDTH

if TYPE_CHECKING:
    from modules.local_models import Make

# What llama.cpp calls the parts of a model, and transformers.
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.0.attn_norm": "model.layers.0.input_layernorm",
    "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
    "blk.0.attn_output": "model.layers.0.self_attn.o_proj",
    **{f"blk.0.attn_{letter}": f"model.layers.0.self_attn.{letter}_proj" for letter in "qkv"},
    **{f"blk.0.ffn_{name}": f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")},
}
_HISTORY = [["Is it raining?", "No: the sun is out."], ["Und in Köln? 雨 🌧️", "Ja."]]
_CALLS: tuple[tuple[Any, ...], ...] = (
    (ChatPrompter("Answer in {lang}."), {"lang": "Dutch", "input": "And ab  tomorrow?\n\n  中文 🙂 "}, _HISTORY),
    (ChatPrompter(system=""), "ping", None),
    (AlpacaPrompter("Translate {text}."), {"text": "a fish"}, None),
)
_SAID: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0}


def save(make: Make, weights: Path, folder: Path) -> None:
    """Write the model of a GGUF file as transformers reads it.

    Args:
        make: What it is made like.
        weights: The file.
        folder: Where to.
    """
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    state: dict[str, Any] = {}
    for tensor in GGUFReader(weights).tensors:
        name, _, kind = tensor.name.rpartition(".")
        state[f"{_NAMES[name]}.{kind}"] = torch.tensor(tensor.data)
    tokenizer = make.tokenizer()
    config = transformers.Qwen2Config(
        vocab_size=len(state["lm_head.weight"]),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.token_to_id(make.eos),
        bos_token_id=tokenizer.token_to_id(make.bos),
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    model.load_state_dict(state, strict=True)
    model.save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=make.bos, eos_token=make.eos)
    fast.chat_template = make.template
    fast.save_pretrained(folder)


def answers(module: TrainableModule, **options: Any) -> list[tuple[str, object]]:
    """What a model says to all calls, whole and streamed, with the tokens that its engine counted."""
    found: list[tuple[str, object]] = []
    with module.start(timeout=300.0, **options):
        for prompter, given, history in _CALLS:
            reply = module.prompt(prompter)(given, history)
            streamed = "".join(module.stream(given, history))
            # Streams of transformers leave out half a character at the end.
            found += [(str(reply), dict(reply.usage or {})), (streamed.rstrip("\ufffd"), None)]
    return found


def main() -> int:
    """Ask both engines.

    Returns:
        The exit code: 0 if they say the same.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    different = 0
    for name, make in MAKES.items():
        with TemporaryDirectory() as given:
            folder = Path(given)
            (folder / "hub").mkdir()  # transformers' server looks there
            os.environ["HF_HOME"] = given
            weights = make.write(folder / "tiny.gguf")
            save(make, weights, folder / "model")
            theirs = answers(TrainableModule(folder / "model", engine="transformers", **_SAID), device="cpu")
            ours = answers(TrainableModule(weights, **_SAID), context=CONTEXT)
        different += ours != theirs
        print(f"{name}: {'the same' if ours == theirs else f'{ours} on llama.cpp, {theirs} on transformers'}")  # noqa: T201 - a program
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
