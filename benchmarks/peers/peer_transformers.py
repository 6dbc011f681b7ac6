"""transformers: a chat template, rendered as text."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import drive
from work import SYSTEM, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

tokenizers: Any = import_module("tokenizers")
transformers: Any = import_module("transformers")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer() -> Any:
    """Return a tokenizer with an empty vocabulary: nothing is tokenized."""
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x"))  # noqa: S106 - no password
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bare)


def chat(system: str) -> list[dict[str, str]]:
    """Return twenty turns and a question."""
    messages = [{"role": "system", "content": system}]
    for one, other in TURNS:
        messages += [{"role": "user", "content": one}, {"role": "assistant", "content": other}]
    return [*messages, {"role": "user", "content": "And now?"}]


def chatml() -> Callable[[], object]:
    """Prepare twenty turns in ChatML."""
    made, messages = tokenizer(), chat(f"{SYSTEM}\nBe brief.\n\n")
    return lambda: made.apply_chat_template(messages, chat_template=CHATML, tokenize=False, add_generation_prompt=True)


if __name__ == "__main__":
    drive("transformers", {"chatml": chatml})
