"""transformers: a chat template, applied as text."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driven import Does, drive
from work import SYSTEM, TOOLS, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

tokenizers: Any = import_module("tokenizers")
transformers: Any = import_module("transformers")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The layout of the documents; what its tojson writes is what json.dumps does.
OWN = (
    "{{ '<|start_system|>' + messages[0].content + '### Function-call Tools. \n\n' + (tools | tojson) + "
    "'\n\n<|end_system|>\n\n' }}{% for message in messages[1:-1] %}"
    "{{ ('<|Human|>:' if message.role == 'user' else '<|Assistant|>:') + message.content }}{% endfor %}"
    "{{ '\n<|Human|>:\n' + messages[-1].content + '\n<|Assistant|>:\n' }}"
)


def tokenizer() -> Any:
    """A tokenizer without a vocabulary: nothing is tokenized."""
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x"))  # noqa: S106 - no password
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bare)


def chat(system: str) -> list[dict[str, str]]:
    """Twenty turns and a question."""
    messages = [{"role": "system", "content": system}]
    for one, other in TURNS:
        messages += [{"role": "user", "content": one}, {"role": "assistant", "content": other}]
    return [*messages, {"role": "user", "content": "And now?"}]


def chatml() -> Callable[[], object]:
    """Twenty turns in ChatML."""
    made, messages = tokenizer(), chat(f"{SYSTEM}\nBe brief.\n\n")
    return lambda: made.apply_chat_template(messages, chat_template=CHATML, tokenize=False, add_generation_prompt=True)


def flat() -> Callable[[], object]:
    """Twenty turns and tools in the layout of the documents, from a template written for it."""
    made, messages = tokenizer(), chat(f"{SYSTEM}Be brief.\n\n")
    return lambda: made.apply_chat_template(messages, tools=TOOLS, chat_template=OWN, tokenize=False)


if __name__ == "__main__":
    drive(
        "transformers",
        [Does("chatml", chatml), Does("flat", flat)],
        "it lays messages out, and no more: no slots, payloads, trimming or files; nothing is neutralised",
    )
