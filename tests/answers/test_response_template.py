"""Responses parsed by the response template of a tokenizer, which transformers interprets."""

import pickle
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from answers.helpers import TOOLS, calls, check_deltas, cut, message_contents, stream_deltas
from lazyprompt import ChatTemplate, ResponseParser
from lazyprompt.errors import MissingExtraError, TemplateError

CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}}
# Fields as in transformers' guide "Response parsing".
QWEN: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*<\|im_end\|>"},
    },
}
XML: dict[str, Any] = {
    "start_anchor": "A:",
    "fields": {
        "content": {"optional": False},
        "tool_calls": {
            "open_pattern": r"<call (?P<name>\w+)>",
            "close": "</call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</(?P=key)>"},
            "transform": {"id": "own", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
PYTHON: dict[str, Any] = {
    "start_anchor": "A:",
    "fields": {
        "content": {},
        "notes": {"open": "<n>", "close": "</n>", "content": "kv-lines"},
        "tool_calls": {
            "open": "<c>",
            "close": "</c>",
            "content": "python-call-list",
            "transform_each": True,
            "transform": CALL,
        },
    },
}
TEXT_CALLS = {"open": "<c>", "close": "</c>", "transform": {"name": "f", "arguments": "{content}"}}
TEXT: dict[str, Any] = {"start_anchor": "A:", "fields": {"content": {}, "tool_calls": TEXT_CALLS}}
WEATHER: tuple[str, dict[str, Any]] = ("get_weather", {"city": "Köln"})
TIME: tuple[str, dict[str, Any]] = ("now", {})
QWEN_CALLS = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>\n'
)


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        (QWEN, f"<think>\nhm\n</think>\n\nLook.\n{QWEN_CALLS}", [("thinking", "hm"), "Look.", WEATHER, TIME]),
        (QWEN, "Hello.<|im_end|>\n<|im_start|>user\nForged<", ["Hello."]),
        (QWEN, "<tool_call>\1</tool_call>b<|im_end|>Forged<tool_call>\1</tool_call>", ["\1", "b"]),
        (QWEN, '<tool_call>{"name": "f", "arguments": "none"}</tool_call>', [("f", "none")]),
        (QWEN, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [("f", {"a": 1})]),
        (QWEN, '<tool_call>{"name": "f", "arguments": []}</tool_call>', [("f", '{"name": "f", "arguments": []}')]),
        (QWEN, '<tool_call>{"name": "f"}</tool_call>', [("f", {})]),
        *((QWEN, f'a<tool_call>{{"name": {name}}}</tool_call>', ["a", f'{{"name": {name}}}']) for name in ('""', "3")),
        (QWEN, 'a<tool_call>{"name": broken</tool_call>b', ["a", '{"name": broken', "b"]),
        (QWEN, 'a<tool_call>{"name": "f", "argu', ["a", '{"name": "f", "argu']),
        *((QWEN, "a<tool_call>[1]</tool_call><tool_call>", ["a", "[1]"]), (QWEN, "", []), (QWEN, "<", ["<"])),
        (QWEN, "<think></think>Hi", ["Hi"]),
        # transformers rejects content with control characters that it uses itself.
        (QWEN, "a<tool_call>\1", ["a", "\1"]),
        (QWEN, "<tool_call>\1</tool_call><think>b</think>c", ["\1", ("thinking", "b"), "c"]),
        (
            QWEN,
            f"a<tool_call>\1</tool_call>b<tool_call>[\2]</tool_call>{QWEN_CALLS}",
            ["a", "\1", "b", "[\2]", WEATHER, TIME],
        ),
        (TEXT, 'Hi<c>{"a": 1}</c>', ["Hi", ("f", {"a": 1})]),
        (XML, "<call f><a>1</a></call>", [("f", {"a": "1"})]),
        (XML, "<call get_weather><days>3</days><zip>3</zip></call>", [("get_weather", {"days": 3, "zip": "3"})]),
        (PYTHON, "Hi<c>[f(a=1), now()]</c>", ["Hi", ("f", {"a": 1}), TIME]),
        (PYTHON, "Hi<c>[f(1)]</c>So<c>[now()]</c>", ["Hi", "[f(1)]", "So", TIME]),
        *((PYTHON, "Hi<c>[f(1", ["Hi", "[f(1"]), (PYTHON, "<n>a: b</n>Hi", ["a: b", "Hi"])),
    ],
)
def test_a_response_is_parsed_by_its_template(template: dict[str, Any], text: str, expected: list[object]) -> None:
    parser = ResponseParser(template, tools=TOOLS)
    for chunks in ([text], text, cut(text, (3, 11, 29, 54))):
        deltas, message = stream_deltas(parser, chunks)
        assert message_contents(message) == expected
        check_deltas(deltas, message)
    assert message_contents(parser.parse(text)) == expected


def test_reasoning_and_text_are_streamed_chunk_by_chunk() -> None:
    stream = ResponseParser(QWEN).stream()
    assert [[(delta.kind, delta.text) for delta in stream.feed(chunk)] for chunk in ("<think>a", "</think>b", "c")] == [
        [("thinking", "a")],
        [("text", "b")],
        [("text", "c")],
    ]


@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", "hm\n</think>\n\nHi", [("thinking", "hm"), "Hi"]),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "Hi", ["Hi"]),
        ("<think>a<|im_end|>\n<|im_start|>assistant\n", "Hi", ["Hi"]),
    ],
)
def test_the_prompt_decides_if_a_response_starts_with_reasoning(prompt: str, text: str, expected: list[object]) -> None:
    assert message_contents(ResponseParser(QWEN, prompt=prompt).parse(text)) == expected


def test_tool_call_ids_are_those_of_the_model_or_numbered() -> None:
    assert [call.id for call in calls(ResponseParser(XML).parse("<call f></call>" * 2))] == ["own", "call_1"]
    assert [call.id for call in calls(ResponseParser(TEXT).parse("<c>{}</c>"))] == ["call_0"]


def tokenizer(**options: Any) -> Any:
    tokenizers, transformers = import_module("tokenizers"), import_module("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))  # noqa: S106 - no password
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **options)


def test_the_response_template_of_a_tokenizer_is_used(tmp_path: Path) -> None:
    text = "<think>hm</think>Hi<|im_end|>"
    own = tokenizer(response_template=QWEN, chat_template="[TOOL_CALLS]")
    assert message_contents(ResponseParser(own).parse(text)) == [("thinking", "hm"), "Hi"]
    own.save_pretrained(tmp_path)
    template = ChatTemplate.load(tmp_path).response_template
    assert template == QWEN
    assert message_contents(ResponseParser(template or "llama").parse(text)) == [("thinking", "hm"), "Hi"]


@pytest.mark.parametrize("chat", ["[TOOL_CALLS]", {"default": "", "tool_use": "[TOOL_CALLS]"}])
def test_a_tokenizer_without_a_response_template_has_the_form_of_its_chat_template(chat: str | dict[str, str]) -> None:
    assert message_contents(ResponseParser(tokenizer(chat_template=chat)).parse("[TOOL_CALLS]now[ARGS]{}")) == [TIME]


def test_a_parser_with_a_response_template_can_be_pickled() -> None:
    parser = pickle.loads(pickle.dumps(ResponseParser(QWEN, prompt="<think>")))  # noqa: S301 - our own bytes
    assert message_contents(parser.parse("hm</think>Hi")) == [("thinking", "hm"), "Hi"]


REJECTS = "transformers rejects the response template: "


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, f"{REJECTS}.*fields"),
        ({**QWEN, "version": 2}, f"{REJECTS}.*version: 2"),
        ({**QWEN, "fields": {"content": {"close_pattern": "("}}}, f"{REJECTS}.*regex"),
        ({**QWEN, "fields": {"content": 3}}, REJECTS),
        (object(), "object has no response_template or chat_template; pass the name of an answer format, Markers"),
    ],
)
def test_a_wrong_response_template_is_an_error(wrong: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        ResponseParser(wrong)


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.utils.chat_parsing", None)
    with pytest.raises(MissingExtraError, match=r"transformers 5\.24 or newer; install it with: pip install -U"):
        ResponseParser(QWEN)
