"""The tiny model in transformers, with the weights of its GGUF file: an engine that shares no code with llama.cpp."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gguf import GGUFReader
from tiny_model import CONTEXT, HEADS, INNER, WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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


def greedy(path: Path, prompt: Sequence[int], number: int, end: int) -> list[int]:
    """What the model says, each time what is likeliest.

    Args:
        path: The model's file.
        prompt: The ids of the prompt.
        number: How many tokens it may say.
        end: The token that ends the answer.

    Returns:
        The ids of what it says.
    """
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    weights: dict[str, Any] = {}
    for tensor in GGUFReader(path).tensors:
        name, _, kind = tensor.name.rpartition(".")
        weights[f"{_NAMES[name]}.{kind}"] = torch.tensor(tensor.data)
    config = transformers.Qwen2Config(
        vocab_size=len(weights["lm_head.weight"]),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    model.load_state_dict(weights, strict=True)
    ids = torch.tensor([list(prompt)])
    mask = torch.ones_like(ids)
    said = model.generate(
        ids, attention_mask=mask, max_new_tokens=number, do_sample=False, eos_token_id=end, pad_token_id=end
    )
    return [int(token) for token in said[0, len(prompt) :]]
