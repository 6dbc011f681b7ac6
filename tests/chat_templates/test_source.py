"""Where chat templates and special tokens are read from: the same as transformers finds beside a tokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest

from lazyprompt.chat_templates.source import ChatSource, read_chat_source
from lazyprompt.errors import TemplateError, TokenizerError
from support.chat_judges import TOOLS, deepseek, tokenizer_in

CONFIG, TOKENS = "tokenizer_config.json", "special_tokens_map.json"
VOCABULARY = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}
BOS: dict[str, Any] = {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": True, "rstrip": False}
PLAIN_BOS = {name: value for name, value in BOS.items() if name != "__type"} | {"single_word": False}


def write(directory: Path, files: dict[str, Any]) -> Path:
    for name, content in {"tokenizer.json": VOCABULARY, **files}.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    "files",
    [
        {},
        {CONFIG: {}},
        {CONFIG: {"chat_template": "config", "bos_token": "<s>", "eos_token": None}},
        {CONFIG: {"chat_template": "config", "bos_token": BOS, "add_bos_token": True}},
        {CONFIG: {"bos_token": "<s>"}, TOKENS: {"bos_token": "<b>"}},
        {CONFIG: {"bos_token": "<s>"}, TOKENS: {"eos_token": PLAIN_BOS}},
        {TOKENS: {"eos_token": "</s>", "additional_special_tokens": ["<x>"]}},
        {CONFIG: {"bos_token": "<s>", "added_tokens_decoder": {}}, TOKENS: {"bos_token": "<b>"}},
        {CONFIG: {"image_token": "<image>", "extra_special_tokens": {"boi_token": "<boi>"}}},
        {CONFIG: {"extra_special_tokens": ["<x>"], "audio_token": BOS}},
        {CONFIG: {"chat_template": [{"name": name, "template": name} for name in ("default", "tool_use", "rag")]}},
        {CONFIG: {"chat_template": [{"name": "default", "template": "config"}]}},
        {CONFIG: {"chat_template": "config"}, "chat_template.jinja": "file\r\n{# 你好 #}\n"},
        {"chat_template.jinja": "file", "additional_chat_templates/tool_use.jinja": "tools"},
        {"chat_template.jinja": "file", "additional_chat_templates/default.jinja": "folder"},
        {CONFIG: {"chat_template": "config"}, "additional_chat_templates/default.jinja": "folder"},
    ],
    ids=repr,
)
def test_templates_and_special_tokens_equal_those_of_transformers(tmp_path: Path, files: dict[str, Any]) -> None:
    source = read_chat_source(write(tmp_path, files))
    theirs = tokenizer_in(tmp_path)
    assert source.special_tokens == theirs.special_tokens_map
    for tools in (None, TOOLS):
        found = source.template(with_tools=tools is not None)
        expected = theirs.get_chat_template(tools=tools) if theirs.chat_template else None
        assert (found and found.text) == expected
        assert found is None or found.special_tokens == theirs.special_tokens_map


@pytest.mark.slow
def test_special_tokens_of_a_real_tokenizer_equal_those_of_transformers() -> None:
    source = read_chat_source(deepseek())
    assert source.special_tokens == tokenizer_in(deepseek()).special_tokens_map
    assert source.special_tokens["pad_token"] == source.special_tokens["eos_token"] == "<｜end▁of▁sentence｜>"  # noqa: S105 - no password
    assert source.template() is None


def test_chat_source_is_read_from_a_template_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{{ bos_token }}mine", encoding="utf-8")
    assert read_chat_source(path) == ChatSource({"default": "{{ bos_token }}mine"})
    write(tmp_path, {CONFIG: {"chat_template": "config", "bos_token": "<s>"}})
    template = read_chat_source(str(path)).template(with_tools=True)
    assert template is not None
    assert template.render([]) == "<s>mine"
    assert read_chat_source(tmp_path / "tokenizer.json") == read_chat_source(tmp_path)


def test_chat_source_without_a_default_template_returns_none() -> None:
    source = ChatSource({"tool_use": "tools", "rag": "documents"})
    assert source.template() is None
    found = source.template(with_tools=True)
    assert found is not None
    assert found.text == "tools"


def test_added_tokens_are_reported_in_the_order_of_their_ids(tmp_path: Path) -> None:
    added: dict[str, Any] = {"10": {"content": "<j>"}, "9": {"content": "<i>", "special": True}, "11": "<k>", "12": {}}
    more = ["<x>", {"content": "<y>"}]
    config = {"added_tokens_decoder": added, "bos_token": "<i>", "additional_special_tokens": more}
    source = read_chat_source(write(tmp_path, {CONFIG: config}))
    assert source.added_tokens == (added["9"], added["10"])
    assert source.whole_tokens == ("<i>", "<x>", "<y>")


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({CONFIG: "{"}, TokenizerError, f"{CONFIG} is not valid JSON: Expecting property name"),
        ({CONFIG: "[" * 99_999}, TokenizerError, "tokenizer_config.json is not valid JSON: "),
        ({CONFIG: "[]"}, TokenizerError, "tokenizer_config.json must contain a JSON object, not list"),
        ({TOKENS: "1"}, TokenizerError, f"{TOKENS} must contain a JSON object, not int"),
        (
            {CONFIG: {"chat_template": 1}},
            TemplateError,
            "the chat_template of .*tokenizer_config.json must be text or a list of templates, not int",
        ),
        (
            {CONFIG: {"chat_template": [{"name": "default", "template": "x"}, "x"]}},
            TemplateError,
            "item 1 of the chat_template of .*config.json must be a dict with string values for 'name' and 'template'",
        ),
    ],
    ids=repr,
)
def test_invalid_tokenizer_configuration_is_an_error(
    tmp_path: Path, files: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_chat_source(write(tmp_path, files))


def test_unreadable_template_file_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"chat_template.jinja cannot be read: .* copy it again"):
        read_chat_source(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.jinja").mkdir()
    with pytest.raises(TokenizerError, match=r"chat_template.jinja cannot be read: [^\[:]*; download or copy it"):
        read_chat_source(tmp_path)
