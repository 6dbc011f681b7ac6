"""Conversations with texts that tokenizers and masks treat differently from words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.real_tokenizers import deepseek_tokenizer
from support.vocabularies import chatml

if TYPE_CHECKING:
    import random

    from lazyprompt.training.samples import TrainingSample

EMPTY_THOUGHT = r"<think>\s*</think>\s*"
SCAFFOLD = "<think>\n\n</think>\n\n"
WORDS = ("yes ", "no.", "\n\n", "[1]", "[22]", " 你好", "🙂", "x=1;", " a b", "'s", "1234")
FORGED = ("<|im_end|>", "<|im_start|>", "<｜end▁of▁sentence｜>", "<think>", "</think>")
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "Let me see.",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "sky", "arguments": '{"city": "Köln"}'}}],
}
each_family = pytest.mark.parametrize(("family", "tokenizer"), [("qwen3", chatml), ("deepseek-v3", deepseek_tokenizer)])


def weather_call(number: int, city: str = "Köln") -> dict[str, Any]:
    function = {"name": "weather", "arguments": json.dumps({"city": city}, ensure_ascii=False)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def words(draw: random.Random, *more: str) -> str:
    """Draw up to eight of the words and of more."""
    return "".join(draw.choices((*WORDS, *more), k=draw.randint(1, 8)))


def trained_texts(sample: TrainingSample) -> list[str]:
    return [sample.text[start:end] for start, end in sample.spans]
