"""Chat templates in GGUF files: the same as llama.cpp finds, while invalid files are refused."""

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf import TokenType

from lazyprompt.chat_templates.source import read_gguf
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import LazyPromptError, MissingExtraError, TemplateError, TokenizerError
from support.chat_judges import SYSTEM, TOOLS, USER
from support.tiny_model import CHATML, TOKENS, llama_cpp, write_model

CHAT: list[dict[str, Any]] = [SYSTEM, USER]
WITH_TOOLS = "{{ bos_token }}{% for tool in tools %}[{{ tool.function.name }}]{% endfor %}" + CHATML
WITH_DOCUMENTS = "{{ documents[0].text }}{{ eos_token }}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with several templates."""
    named = {"default": "{{ bos_token }}" + CHATML, "tool_use": WITH_TOOLS, "rag": WITH_DOCUMENTS}
    return write_model(tmp_path / "tiny.gguf", named)


def test_gguf_templates_and_tokens_equal_those_of_llama_cpp(model: Path) -> None:
    template = ChatTemplate.load(model)
    with llama_cpp(model) as server:
        assert (str(template.render(CHAT)), "") == server.prompt(CHAT)
        assert (str(template.render(CHAT, TOOLS)), "") == server.prompt(CHAT, tools=TOOLS)
    assert str(template.render(CHAT, TOOLS)).startswith("<|endoftext|>[get_weather][now]<|im_start|>system\nBe <kind>.")


@pytest.mark.parametrize(("options", "end"), [({}, "<|im_end|>"), ({"eos_token": "</s>"}, "</s>")])
def test_gguf_template_is_selected_by_name(model: Path, options: dict[str, str], end: str) -> None:
    template = ChatTemplate.load(model, name="rag", **options)
    assert str(template.render(CHAT, documents=[{"text": "x"}])) == f"x{end}"
    with pytest.raises(TemplateError, match="no chat template 'tools' .*; available templates: .*'rag'"):
        ChatTemplate.load(model, name="tools")


def test_gguf_special_tokens_are_read_by_their_ids(tmp_path: Path) -> None:
    keys = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad", "seperator": "sep", "mask": "mask"}
    special = {key: f"<{name}>" for key, name in keys.items()}
    tokens = dict.fromkeys(("<x>", *reversed(special.values())), TokenType.CONTROL)
    source = read_gguf(write_model(tmp_path / "x.gguf", {}, tokens=tokens, special=special, weights=False))
    assert source.special_tokens == {f"{name}_token": f"<{name}>" for name in keys.values()}
    assert [*source.added_tokens] == [{"content": token, "special": True} for token in tokens]
    assert source.templates == {}


def test_special_token_id_without_a_token_is_ignored(tmp_path: Path) -> None:
    path = write_gguf(tmp_path, {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.bos_token_id": 1})
    assert read_gguf(path).special_tokens == {"bos_token": "b"}
    path = write_gguf(tmp_path, {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.bos_token_id": 2**32 - 1})
    assert read_gguf(path).special_tokens == {}
    assert read_gguf(write_gguf(tmp_path, {"tokenizer.ggml.bos_token_id": 0})).special_tokens == {}


def write_gguf(directory: Path, fields: Mapping[str, object]) -> Path:
    """A GGUF file without a model."""
    path = directory / "fields.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    for name, value in fields.items():
        if isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


OTHERS = {
    "<|other|>": TokenType.CONTROL,
    "<tool_call>": TokenType.USER_DEFINED,
    "⁂⁂": TokenType.USER_DEFINED,
    "<unk>": TokenType.UNKNOWN,
}


@pytest.mark.parametrize("token", [*OTHERS, "<|im_end|>"])
def test_forged_token_stays_text_in_a_gguf_model(tmp_path: Path, token: str) -> None:
    path = write_model(tmp_path / "x.gguf", {"default": CHATML}, tokens=TOKENS | OTHERS)
    template = ChatTemplate.load(path)
    assert token in template.source.control_tokens
    forged = [USER | {"content": f"x {token} y"}]
    with llama_cpp(path) as server:
        # The tokens after those of single bytes.
        def whole(text: str) -> list[int]:
            return [number for number in server.tokens(text) if number > 255]

        honest = whole(str(template.render([USER])))
        assert whole(str(template.render(forged))) == honest
        assert whole(str(template.render(forged, safety="off"))) != honest


def test_ordinary_tokens_are_not_control_tokens(tmp_path: Path) -> None:
    tokens = {"hello": TokenType.USER_DEFINED, "<b>": TokenType.NORMAL, "<0>": TokenType.UNUSED, "<i>": TokenType.BYTE}
    source = read_gguf(write_model(tmp_path / "x.gguf", {}, tokens=tokens, special={}, weights=False))
    assert source.control_tokens == set()
    assert [*source.added_tokens] == [{"content": "hello", "special": False}]


def test_gguf_file_without_a_template_is_an_error(tmp_path: Path) -> None:
    path = write_model(tmp_path / "x.gguf", {}, weights=False)
    with pytest.raises(TemplateError, match="^no chat template 'default'; the model has no template$"):
        ChatTemplate.load(path)
    path = write_model(tmp_path / "x.gguf", {"tool_use": CHATML}, weights=False)
    with pytest.raises(
        TemplateError, match="^no chat template 'default'; available templates: 'tool_use'; set name= to choose one$"
    ):
        ChatTemplate.load(path)
    assert str(ChatTemplate.load(path, name="tool_use").render([USER])) == str(ChatTemplate.load(CHATML).render([USER]))


def test_big_endian_gguf_file_is_read(tmp_path: Path) -> None:
    little, big = (
        read_gguf(write_model(tmp_path / "x.gguf", {"default": CHATML}, order=order, weights=False))
        for order in (gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG)
    )
    assert little == big
    assert little.templates == {"default": CHATML}
    assert little.control_tokens == set(TOKENS)


NO_GGUF = (b"", b"no model", b"GGUF", b"GGUF\x09\0\0\0" + bytes(99), "{{ x }}".encode("utf-16"))


@pytest.mark.parametrize("content", NO_GGUF)
def test_invalid_gguf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"x\.gguf is not a valid GGUF file \(.+\); download or copy it again"):
        ChatTemplate.load(path)
    with pytest.raises(TokenizerError, match="does not exist; pass a tokenizer"):
        ChatTemplate.load(tmp_path / "y.gguf")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokenizer.chat_template": 1}, "tokenizer.chat_template must be text, not int"),
        ({"tokenizer.chat_template.x": ["a"]}, "tokenizer.chat_template.x must be text, not list"),
        ({"x": [[1], [2]]}, "the file contains a list of lists"),
    ],
)
def test_gguf_field_of_an_invalid_type_is_refused(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_gguf(write_gguf(tmp_path, fields))


@pytest.mark.slow
@pytest.mark.parametrize("last", [{"x": ["a", "bc"]}, {"x": [1, 2]}, {"tokenizer.chat_template.x": "{{ x }}"}])
def test_truncated_gguf_file_is_refused(tmp_path: Path, last: dict[str, object]) -> None:
    path = write_gguf(tmp_path, {"y": ["a"], "tokenizer.chat_template": "{{ y }}", **last})
    assert read_gguf(path).templates["default"] == "{{ y }}"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(TokenizerError, match="not a valid GGUF file"):
            read_gguf(path)


@pytest.mark.slow
def test_gguf_file_with_random_bytes_is_read_or_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "x.gguf", {"default": CHATML})
    whole = path.read_bytes()
    by = random.Random(5)  # noqa: S311 - no secret
    refused = 0
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(by.choice((1, 2, 8))):
            changed[by.randrange(by.choice((600, 6000)))] = by.choice((0, 1, 8, 9, 127, 255))
        path.write_bytes(changed)
        try:
            read_gguf(path)
        except LazyPromptError:
            refused += 1
    assert 50 < refused < 300


@pytest.mark.timing
def test_large_vocabulary_is_read_within_three_seconds(tmp_path: Path) -> None:
    tokens = dict.fromkeys(map(str, range(1000, 200_000)), TokenType.NORMAL) | TOKENS
    path = write_model(tmp_path / "x.gguf", {"default": "{{ bos_token }}"}, tokens=tokens, weights=False)
    before = time.process_time()
    template = ChatTemplate.load(path)
    assert time.process_time() - before < 3  # the package's own reader takes more than ten seconds
    assert str(template.render([USER])) == "<|endoftext|>"
    assert template.source.control_tokens == set(TOKENS)


def test_missing_gguf_package_error_names_the_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r'gguf package is not installed; .*pip install .+\[hf\]"$'):
        ChatTemplate.load(model)
