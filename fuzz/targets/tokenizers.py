"""Directories of tokenizers: whatever is in their files, it is read or refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fuzz.judge import require
from fuzz.sandbox import encoded, scratch
from fuzz.target import Target
from lazyprompt.chat_templates.source import read_chat_source
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.chat_templates.token_counter import HuggingFaceTokenCounter
from lazyprompt.errors import LazyPromptError

if TYPE_CHECKING:
    from pathlib import Path

    from fuzz.chance import Chance

_CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_CONFIG: dict[str, Any] = {
    "added_tokens_decoder": {"2": {"content": "<|im_end|>", "special": True, "lstrip": False}},
    "bos_token": "<s>",
    "eos_token": {"content": "</s>", "special": True},
    "extra_special_tokens": {"image_token": "<image>"},
    "additional_special_tokens": ["<|im_start|>"],
    "chat_template": [{"name": "default", "template": _CHATML}, {"name": "tool_use", "template": _CHATML}],
}
_TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": 2, "content": "<|im_end|>", "special": True}],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1}, "unk_token": "?"},
}
_MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b <|im_end|>"}]


def _run(chance: Chance) -> None:
    contents = {
        "tokenizer_config.json": _json(chance, _CONFIG),
        "tokenizer.json": _json(chance, _TOKENIZER),
        "special_tokens_map.json": _json(chance, _CONFIG) if chance.flag() else None,
        "chat_template.jinja": encoded(chance.text()) if chance.flag() else None,
        "additional_chat_templates/tool_use.jinja": encoded(chance.text()) if chance.flag() else None,
    }
    for name, content in contents.items():
        path = scratch("tokenizers") / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    for use in (_count, _render):
        try:
            use(scratch("tokenizers"))
        except LazyPromptError as error:
            require(str(error), "an error says nothing")


def _json(chance: Chance, given: dict[str, Any]) -> bytes:
    """The content of a file: as it should be, with fields of other kinds, or any text."""
    if chance.number(4) == 1:
        return encoded(chance.text())
    fields = dict(given)
    for _ in range(chance.number(3)):
        name = chance.one([*fields])
        if isinstance(fields[name], dict) and chance.flag():
            fields[name] = fields[name] | {chance.one([*fields[name], "x"]): chance.json()}
        else:
            fields[name] = chance.json()
    return json.dumps(fields).encode()


def _count(directory: Path) -> None:
    counter = HuggingFaceTokenCounter(directory)
    require(counter.count_text("a a") >= 0, "fewer tokens than none")
    require(counter.count(_MESSAGES) >= 0, "fewer tokens than none")


def _render(directory: Path) -> None:
    source = read_chat_source(directory)
    require("" not in source.control_tokens, "a token is empty")
    rendered = ChatTemplate.load(directory).render(_MESSAGES)
    require(rendered.text == "".join(each.text for each in rendered.segments), "the segments are not the text")


TOKENIZERS = Target(
    "tokenizers",
    _run,
    (
        *(
            '{"chat_template": "',
            '{"chat_template": [',
            '{"name": "default", "template": "x"}',
            "{}",
            "[]",
            "null",
            "1",
        ),
        *(
            '"added_tokens_decoder": {"0": ',
            '{"content": "<s>"}',
            '"special": true',
            '"bos_token": "<s>"',
            "1e999",
            "NaN",
        ),
        *("{% for m in messages %}", "{{ m.content }}", "{% endfor %}", "{{ bos_token }}", '"type": "BPE"', "[" * 2000),
        *('"merges": []', '"vocab": {}', '"type": "Sequence"', '"type": "Precompiled"', "\ufeff", "\0", "\\ud800"),
    ),
    # Its templates have bounds of their own.
    seconds=10,
)
