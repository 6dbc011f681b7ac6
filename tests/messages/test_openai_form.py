import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import Base64Source, Msg, ToolUseBlock, URLSource, VideoBlock
from lazyprompt.errors import FormatError, HistoryError
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import AudioBlock, FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.messages.openai_form import IDS, NAMES, OpenAIWriter, fitted, openai_dicts
from lazyprompt.messages.read_openai import read_openai

PNG = "data:image/png;base64,aGVsbG8="
PDF = "data:application/pdf;base64,aGVsbG8="


def read_message(form: Any) -> Msg:
    return read_openai(form, "here", OpenCalls())


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}} | more


OFFICIAL: dict[str, Any] = {
    "system": {"role": "system", "content": "Be brief."},
    "developer": {"role": "developer", "content": "Be brief."},
    "user": {"role": "user", "content": "你好 😀"},
    "user with a name": {"role": "user", "name": "Bob", "content": "hi"},
    "empty text": {"role": "user", "content": ""},
    "assistant": {"role": "assistant", "name": "Friday", "content": "hi"},
    "parts": {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "mp3"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
            {"type": "text", "text": "and answer"},
        ],
    },
    "calls": {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("f", '{"city": "北京", "n": 1.5}', id="1"), call("g", "{}", id="2")],
    },
    "text and a call": {"role": "assistant", "content": "wait", "tool_calls": [call("f", "{}", id="1")]},
    "result": {"role": "tool", "tool_call_id": "1", "content": "42"},
    "result with a name": {"role": "tool", "tool_call_id": "1", "content": "42", "name": "f"},
    "result of parts": {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    },
    "weight of training data": {"role": "assistant", "content": "hi", "weight": 0},
    "further keys": {"role": "user", "content": "hi", "cache_control": {"type": "ephemeral"}, "flag": False},
    "further keys of a result": {"role": "tool", "tool_call_id": "1", "content": "", "cache_control": {"a": [1]}},
}


@pytest.mark.parametrize("form", OFFICIAL.values(), ids=OFFICIAL)
def test_openai_message_round_trips_unchanged(form: Any) -> None:
    before = copy.deepcopy(form)
    message = read_message(form)
    assert openai_dicts([message]) == [before]
    assert form == before


@given(st.sampled_from(["system", "user", "assistant"]), st.text(), st.text())
def test_openai_message_with_any_text_and_name_round_trips_unchanged(role: Any, name: str, content: str) -> None:
    form = {"role": role, "content": content} | ({"name": name} if name not in ("", role) else {})
    assert openai_dicts([read_message(form)]) == [form]


def test_message_shares_no_objects_with_the_dict_read_or_written() -> None:
    form = copy.deepcopy(OFFICIAL["further keys of a result"])
    message = read_message(form)
    form["cache_control"]["a"].append(2)
    written: Any = openai_dicts([message])
    written[0]["cache_control"]["a"].append(3)
    assert openai_dicts([message]) == [OFFICIAL["further keys of a result"]]


def test_tool_call_becomes_a_block_with_its_arguments_parsed_as_a_dict() -> None:
    message = read_message(OFFICIAL["calls"])
    assert message.content == (ToolUseBlock("1", "f", {"city": "北京", "n": 1.5}), ToolUseBlock("2", "g", {}))
    assert message.name == "assistant"


@pytest.mark.parametrize("content", [None, "", []])
def test_null_or_empty_content_of_messages_and_tool_results_is_read_as_empty(content: Any) -> None:
    """A client's ``model_dump()`` contains nulls, which raised an error or became the tool result "null"."""
    assert read_message({"role": "assistant", "content": content, "tool_calls": None}).blocks == ()
    assert read_message({"role": "tool", "tool_call_id": "1", "content": content}).blocks == (ToolResultBlock("1"),)


BROKEN = ["{", "[" * 100_000, "[1]", "Paris", '{"a": NaN}', '{"a": "\\ud800"}']
OBJECTS: list[object] = [{"a": 1}, '{"a": 1}', '{"a":1}', ' {"a": 1}\n']
NOTHING: list[object] = [None, "", {}]


@pytest.mark.parametrize(
    ("arguments", "block"),
    [
        *((given, ToolUseBlock("1", "f", {"a": 1})) for given in OBJECTS),
        *((given, ToolUseBlock("1", "f")) for given in NOTHING),
        *((given, ToolUseBlock("1", "f", raw_input=given)) for given in BROKEN),
        ([1, 2], ToolUseBlock("1", "f", raw_input="[1, 2]")),
    ],
)
def test_tool_call_arguments_are_parsed_or_kept_as_raw_text(arguments: object, block: ToolUseBlock) -> None:
    message = read_message({"role": "assistant", "tool_calls": [call("f", arguments, id="1")]})
    assert message.content == (block,)
    (form,) = openai_dicts([message])
    assert form["content"] is None
    if arguments in OBJECTS:
        assert form["tool_calls"] == [call("f", '{"a": 1}', id="1")]


def test_signed_thinking_blocks_of_a_dict_are_read_as_anthropic_reasoning() -> None:
    """Signed thinking blocks were kept in a response, but lost in a history."""
    signed = {**THINKING, "signature": "c2ln"}, {"type": "redacted_thinking", "data": "ZGF0YQ=="}
    message = read_message(ASSISTANT | {"reasoning_content": "Hm.", "thinking_blocks": [*signed]})
    assert message.blocks == (
        ThinkingBlock("Hm.", "c2ln", provider="anthropic"),
        ThinkingBlock(redacted="ZGF0YQ==", provider="anthropic"),
        TextBlock("a"),
    )
    assert message.metadata == {}


@pytest.mark.parametrize(("name", "speaker"), [("user", ""), (None, ""), ("", ""), ("Bob", "Bob")])
def test_name_that_is_empty_or_equal_to_the_role_is_not_read_as_a_speaker(name: str | None, speaker: str) -> None:
    assert read_message({"role": "user", "name": name, "content": "hi"}).speaker == speaker


def test_tool_calls_without_an_id_get_ids_numbered_through_the_history() -> None:
    """The id was made of the position in the list, so that a system message in front changed the id."""
    history: list[Any] = [["a", "b"], {"role": "assistant", "tool_calls": [call("f", {}), call("g", {}, id=None)]}]
    calls = [block for message in messages_from(history) for block in message.blocks if isinstance(block, ToolUseBlock)]
    assert [block.id for block in calls] == ["call_without_id_0", "call_without_id_1"]


def test_null_fields_of_an_assistant_message_are_ignored() -> None:
    nothing: dict[str, Any] = {"tool_calls": None, "refusal": None, "annotations": []}
    assert read_message({"role": "assistant", "content": "hi"} | nothing) == Msg("assistant", "hi", "assistant")


@pytest.mark.parametrize("content", [{"r": [True]}, [1, {"a": 2}], 5])
def test_tool_result_content_of_json_data_becomes_json_text(content: object) -> None:
    (block,) = read_message({"role": "tool", "tool_call_id": "1", "content": content}).blocks
    assert isinstance(block, ToolResultBlock)
    assert json.loads(block.text) == content


def test_message_with_several_tool_results_becomes_one_dict_per_result() -> None:
    results = ToolResultBlock("1", "f", "a"), ToolResultBlock("2", "g", [TextBlock("b")]), ToolResultBlock("3", "", [])
    assert openai_dicts([Msg("system", (*results, TextBlock("go on")), "user")]) == [
        {"role": "tool", "tool_call_id": "1", "content": "a", "name": "f"},
        {"role": "tool", "tool_call_id": "2", "content": "b", "name": "g"},
        {"role": "tool", "tool_call_id": "3", "content": ""},
        {"role": "user", "name": "system", "content": "go on"},
    ]


def test_tool_call_is_written_before_its_result_and_reasoning_only_under_a_configured_key() -> None:
    reasoning = ThinkingBlock("a"), ThinkingBlock("b")
    blocks = *reasoning, ToolResultBlock("1", "f", "42"), ToolUseBlock("1", "f", raw_input="{"), TextBlock("So.")
    calling = {"role": "assistant", "content": "So.", "tool_calls": [call("f", '{"raw_input": "{"}', id="1")]}
    result = {"role": "tool", "tool_call_id": "1", "content": "42"}
    message, alone = Msg("assistant", blocks, "assistant"), Msg("assistant", reasoning, "assistant")
    assert openai_dicts([message, alone]) == [calling, result | {"name": "f"}, {"role": "assistant", "content": ""}]
    thinking = {"reasoning_content": "a\nb"}
    assert openai_dicts([message, alone], OpenAIWriter(thinking="reasoning_content")) == [
        calling | thinking,
        result,
        {"role": "assistant", "content": ""} | thinking,
    ]


def test_url_of_a_message_becomes_an_image_part() -> None:
    message = read_message({"role": "user", "content": "look", "url": "https://example.org/a.png"})
    assert message.url == "https://example.org/a.png"
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    assert openai_dicts([message]) == [{"role": "user", "content": parts}]


def test_metadata_does_not_override_role_name_content_and_tool_calls() -> None:
    metadata: Any = {"role": "system", "content": "forged", "name": "forged", "tool_calls": [], "extra": 1}
    assert openai_dicts([Msg("Bob", "hi", "user", metadata=metadata)]) == [
        {"role": "user", "name": "Bob", "content": "hi", "extra": 1}
    ]


A_PART = {"type": "text", "text": "a"}
ANNOTATED = {"type": "output_text", "text": "a", "annotations": [{"n": 1}]}
THINKING = {"type": "thinking", "thinking": "Hm."}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "a"}
# Messages, each with the native form that is sent back to its provider unchanged.
NATIVE: list[tuple[dict[str, Any], tuple[str, Any] | None]] = [
    (ASSISTANT | {"phase": "final"}, None),
    (
        ASSISTANT | {"content": [ANNOTATED], "name": None},
        ("openai-responses", [{"role": "assistant", "content": [ANNOTATED]}]),
    ),
    (
        ASSISTANT | {"audio": {"id": "x", "data": "eA==", "transcript": "a"}, "more": 1},
        ("openai", ASSISTANT | {"audio": {"id": "x"}}),
    ),
    (ASSISTANT | {"refusal": "No.", "annotations": [], "more": 1}, ("openai", ASSISTANT | {"refusal": "No."})),
    (ASSISTANT | {"annotations": [{"n": 1}]}, ("openai", ASSISTANT | {"annotations": [{"n": 1}]})),
    *(
        (message, ("openai", message))
        for message in (
            ASSISTANT | {"content": [{**A_PART, "prompt_cache_breakpoint": {"mode": "explicit"}}]},
            ASSISTANT | {"tool_calls": [call("f", '{"a":1}', id="1")]},
            ASSISTANT | {"tool_calls": [call("f", '{"a": 1}', id="1", extra=1)]},
        )
    ),
    *(
        (message, ("anthropic", message["content"]))
        for message in (
            {"role": "user", "content": [{**A_PART, "cache_control": {"type": "ephemeral"}}]},
            ASSISTANT | {"content": [{**THINKING, "signature": "c2ln"}, A_PART]},
        )
    ),
    (ASSISTANT | {"content": [THINKING, {**A_PART, "cache_control": {"type": "ephemeral"}}]}, None),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}, None),
]


@pytest.mark.parametrize(("form", "native"), NATIVE)
def test_native_form_is_kept_for_fields_that_blocks_cannot_hold(form: Any, native: tuple[str, Any] | None) -> None:
    assert read_message(form).native == native


@pytest.mark.parametrize(
    ("form", "blocks"),
    [
        (ASSISTANT | {"thinking": "Hm."}, (ThinkingBlock("Hm."), TextBlock("a"))),
        (
            ASSISTANT | {"reasoning_content": "Hm.", "tool_calls": [call("f", {}, id="1")]},
            (ThinkingBlock("Hm."), TextBlock("a"), ToolUseBlock("1", "f")),
        ),
        (ASSISTANT | {"reasoning": "Hm."}, (ThinkingBlock("Hm."), TextBlock("a"))),
        (ASSISTANT | {"reasoning": {"effort": "low"}}, (TextBlock("a"),)),
        ({"role": "tool", "tool_call_id": "1", "tool_name": "f", "content": "a"}, (ToolResultBlock("1", "f", "a"),)),
        ({"role": "user", "tool_name": "f", "content": "a"}, (TextBlock("a"),)),
        ({"role": "user", "content": "", "images": ["UklG"]}, (ImageBlock(Base64Source("image/webp", "UklG")),)),
        (
            {"role": "user", "content": "a", "images": ["/9j/eA==", "R0lG", "iVBO", "https://example.org/a"]},
            (
                TextBlock("a"),
                ImageBlock(Base64Source("image/jpeg", "/9j/eA==")),
                ImageBlock(Base64Source("image/gif", "R0lG")),
                ImageBlock(Base64Source("image/png", "iVBO")),
                ImageBlock(URLSource("https://example.org/a")),
            ),
        ),
    ],
)
def test_fields_of_ollama_and_vllm_are_read(form: Any, blocks: tuple[Any, ...]) -> None:
    assert read_message(form).blocks == blocks


@pytest.mark.parametrize("part", [{"type": "text", "text": "a"}, TextBlock("a")])
def test_content_parts_may_be_dicts_or_blocks(part: object) -> None:
    assert read_message({"role": "user", "content": [part]}).content == (TextBlock("a"),)


def test_base64_data_urls_become_base64_sources() -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in (PNG, "data:image/png,raw", "a,b;base64")]
    parts.append({"type": "input_audio", "input_audio": {"data": "eA=="}})
    assert read_message({"role": "user", "content": parts}).content == (
        ImageBlock(Base64Source("image/png", "aGVsbG8=")),
        ImageBlock(URLSource("data:image/png,raw")),
        ImageBlock(URLSource("a,b;base64")),
        AudioBlock(Base64Source("audio/wav", "eA==")),
    )


@pytest.mark.parametrize(
    ("media_type", "written"),
    [("audio/mpeg", "mp3"), ("audio/x-wav", "wav"), ("audio/wav", "wav"), ("audio/ogg", "ogg")],
)
def test_audio_format_is_written_with_the_openai_name(media_type: str, written: str) -> None:
    form: Any = openai_dicts([Msg("user", (AudioBlock(Base64Source(media_type, "eA==")),), "user")])
    assert form[0]["content"][0]["input_audio"] == {"data": "eA==", "format": written}


@pytest.mark.parametrize(
    ("text", "pattern", "length", "written"),
    [
        *((same, NAMES, 64, same) for same in ("a-b_C1", "a" * 64)),
        *(("a" * 65, NAMES, 64, "a" * 55 + "_d16dd28e"), ("天气", NAMES, 64, "x_62fb53f1")),
        (" a.b:c-d(e)é_", NAMES, 64, "a_b_c-d_e_15d2c3a0"),
        *(("c" * 40, IDS, 40, "c" * 40), ("c" * 41, IDS, 40, "c" * 31 + "_391d06c7"), ("a\n", IDS, 40, "a_1f8a44f7")),
        ("call_1", re.compile("[a-zA-Z0-9]{9}"), 9, "ef35225de"),
    ],
)
def test_name_or_id_is_fitted_to_the_pattern_and_length(text: str, pattern: Any, length: int, written: str) -> None:
    assert fitted(text, pattern, length) == written


@pytest.mark.parametrize(
    "block", [VideoBlock(URLSource("u")), AudioBlock(URLSource("u")), FileBlock(URLSource("u"))], ids=lambda b: b.type
)
def test_block_that_the_openai_format_does_not_support_is_an_error(block: Any) -> None:
    with pytest.raises(FormatError, match=f"^the OpenAI format does not support (this )?{block.type} block"):
        openai_dicts([Msg("user", (TextBlock("see"), block), "user")])


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"content": "x"}, "here has no 'role'"),
        ({"role": "asistant", "content": "x"}, r"here has the unknown role 'asistant' .*did you mean 'assistant'\?"),
        ({"role": ["user"], "content": "x"}, r"here has the unknown role \['user'\]"),
        ({"role": "user"}, "here must contain 'content' or 'tool_calls'"),
        ({"role": "user", "content": 5}, r"here\.content must be a list, not int"),
        ({"role": "user", "content": {"text": "x"}}, r"here\.content must be a list, not dict"),
        ({"role": "user", "content": "x", "name": 5}, r"here\.name must be a string, not int"),
        ({"role": "user", "content": "x", "url": 5}, r"here\.url must be a string, not int"),
        ({"role": "user", "content": "x", "reasoning_content": 5}, r"here\.reasoning_content must be a string"),
        ({"role": "user", "content": "x", "more": {1}}, r"here\.more has type set, which is not a JSON"),
        ({"role": "assistant", "tool_calls": "f"}, r"here\.tool_calls must be a list, not str"),
        ({"role": "assistant", "tool_calls": ["f"]}, r"here\.tool_calls\[0\] must be a dict, not str"),
        ({"role": "assistant", "tool_calls": [{}]}, r"here\.tool_calls\[0\]\.function must be a dict, not NoneType"),
        ({"role": "assistant", "tool_calls": [call("", {})]}, r"here\.tool_calls\[0\]\.function has no name"),
        ({"role": "assistant", "tool_calls": [call("f", {"a": float("nan")})]}, r"f\.input\.a is nan"),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f", "input": 5}}]},
            r"here\.tool_calls\[0\]\.custom\.input must be a string, not int",
        ),
        ({"role": "assistant", "tool_calls": [call("f", {}, id=5)]}, r"here\.tool_calls\[0\]\.id must be a string"),
        ({"role": "tool", "content": "x"}, "here is a tool result without 'tool_call_id', and no call is waiting"),
        ({"role": "tool", "content": "x", "tool_call_id": 5}, r"here\.tool_call_id must be a string, not int"),
        ({"role": "tool", "content": {1}, "tool_call_id": "1"}, r"here\.content has type set, which is not a JSON"),
        ({"role": "user", "content": ["x"]}, r"here\.content\[0\] must be a block such as .*, not str"),
        ({"role": "user", "content": [{"type": ["text"]}]}, r"here\.content\[0\] has the unknown type \['text'\]"),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, r"here\..*file must contain 'file_data' or"),
    ],
)
def test_malformed_openai_message_is_refused_with_the_path_of_the_field(form: Any, error: str) -> None:
    before = repr(form)
    with pytest.raises(HistoryError, match=f"^{error}"):
        read_message(form)
    assert repr(form) == before
