"""OpenAI's tokens: counts from the cookbook and the guide, and messages and tools in every format."""

import copy
import json
import pickle
from base64 import b64encode
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt.errors import ApproximateCountWarning, FormatError, TokenizerError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import Base64Source, ImageBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.tokens import vocabulary
from lazyprompt.tokens.openai import TiktokenCounter
from support.vocabularies import CL100K, O200K, vocabulary_folder

# OpenAI's cookbook, "How to count tokens with tiktoken": its messages and tools, and the counts that it prints, which
# are those of the API.
JARGON: list[dict[str, Any]] = [
    {
        "role": "system",
        "content": "You are a helpful, pattern-following assistant that translates corporate jargon into plain "
        "English.",
    },
    {"role": "system", "name": "example_user", "content": "New synergies will help drive top-line growth."},
    {"role": "system", "name": "example_assistant", "content": "Things working well together will increase revenue."},
    {
        "role": "system",
        "name": "example_user",
        "content": "Let's circle back when we have more bandwidth to touch base on opportunities for increased "
        "leverage.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Let's talk later when we're less busy about how to do better.",
    },
    {
        "role": "user",
        "content": "This late pivot means we don't have time to boil the ocean for the client deliverable.",
    },
]
WEATHER = [
    {"role": "system", "content": "You are a helpful assistant that can answer to questions about the weather."},
    {"role": "user", "content": "What's the weather like in San Francisco?"},
]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
        "unit": {
            "type": "string",
            "description": "The unit of temperature to return",
            "enum": ["celsius", "fahrenheit"],
        },
    },
    "required": ["location"],
}
DESCRIPTION = "Get the current weather in a given location"
DECLARED = {"name": "get_current_weather", "description": DESCRIPTION}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {**DECLARED, "parameters": SCHEMA}}]

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x04\0\x08\x02\0\0\0" + bytes(40)
SQUARE = f"data:image/png;base64,{b64encode(PNG).decode()}"
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "é"}'}}
CALL_JSON = json.dumps(CALL, ensure_ascii=False)


@pytest.fixture(autouse=True)
def _vocabularies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # o200k_base, of newer models, is downloaded.
    names = (CL100K, O200K) if request.node.get_closest_marker("slow") else (CL100K,)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder(*names)))


def count_encoded(text: str, name: str = "o200k_base") -> int:
    return len(vocabulary.encoding_for(name).encode_ordinary(text))


def added_count(model: str, *messages: Any) -> int:
    """The tokens that messages add to an empty list."""
    counter = TiktokenCounter(model)
    return counter.count(messages) - counter.count([])


def picture(url: str, **more: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **more}}]}


def picture_count(model: str, url: str = SQUARE, **more: str) -> int:
    """The tokens of an image without those of its message."""
    return added_count(model, picture(url, **more)) - added_count(model, {"role": "user", "content": ""})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "messages", "with_tools"),
    [
        *((model, 129, 105) for model in ("gpt-3.5-turbo", "gpt-4-0613", "cl100k_base")),
        *((model, 124, 101) for model in ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-5", "o3", "o4-mini", "o200k_base")),
        *((model, 124, 101) for model in ("gpt-5.4-mini", "gpt-oss-120b")),
    ],
)
def test_token_counts_equal_those_of_openais_cookbook(model: str, messages: int, with_tools: int) -> None:
    counter = TiktokenCounter(model)
    assert counter.count(JARGON) == messages
    assert counter.count(WEATHER, TOOLS) == with_tools


@pytest.mark.slow
def test_an_empty_message_list_has_three_tokens_and_an_empty_text_none() -> None:
    counter = TiktokenCounter("gpt-4o")
    assert counter.count([]) == counter.count([], []) == counter.count((), None) == 3
    assert counter.count_text("") == 0
    assert counter.count_text("hello world") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "texts", "more"),
    [
        ({"role": "user", "content": "hello"}, ["user", "hello"], 3),
        ({"role": "user", "content": "<|endoftext|>"}, ["user", "<|endoftext|>"], 3),
        ({"role": "user", "content": "\ud800"}, ["user", "\ufffd"], 3),
        ({"role": "critic", "content": "hello"}, ["critic", "hello"], 3),
        ({"role": "user", "name": "Bob", "content": "hello"}, ["user", "Bob", "hello"], 4),
        *(({"role": "assistant", "content": None}, ["assistant"], 3), ({"role": "assistant"}, ["assistant"], 3)),
        *(({"content": "hello"}, ["hello"], 3), ({"role": ["user"], "content": "hello"}, ["hello"], 3)),
        ({"role": "user", "content": [{"type": "text", "text": "a b"}, {"text": "c"}]}, ["user", "a b", "c"], 3),
        ({"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "42"}, ["tool", "call_1", "f", "42"], 4),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, ["assistant", f"[{CALL_JSON}]"], 3),
        ({"role": "assistant", "content": None, "function_call": CALL}, ["assistant", CALL_JSON], 3),
        ({"role": "assistant", "content": None, "refusal": "No."}, ["assistant", "No."], 3),
        ({"role": "assistant", "content": "a", "reasoning_content": "hm"}, ["assistant", "a", "hm"], 3),
        (
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            ["function_call", "1", "f", "{}"],
            4,
        ),
        ({"role": "model", "parts": [{"text": "hello"}]}, ["model", "hello"], 3),
    ],
)
def test_every_field_of_a_message_is_counted(message: dict[str, Any], texts: list[str], more: int) -> None:
    before = copy.deepcopy(message)
    assert added_count("gpt-4o", message) == sum(map(count_encoded, texts)) + more
    assert added_count("gpt-4o", message, message) == 2 * added_count("gpt-4o", message)
    assert message == before


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(max_size=30)), max_size=8))
def test_the_token_count_of_plain_messages_follows_the_formula(pairs: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": content} for role, content in pairs]
    expected = 3 + sum(3 + count_encoded(role) + count_encoded(content) for role, content in pairs)
    counter = TiktokenCounter("gpt-4o")
    assert counter.count(messages) == expected
    # The same messages with a field that disables the fast path.
    assert counter.count([{**message, "refusal": None} for message in messages]) == expected
    assert TiktokenCounter.additive


CONVERSATION = (
    Msg("system", "Be brief.", "system"),
    Msg("user", [TextBlock("abc"), ImageBlock(Base64Source("image/png", b64encode(PNG).decode()))], "user"),
    Msg("assistant", [ToolUseBlock("call_1", "f", {"a": 1})], "assistant"),
    Msg("tool", [ToolResultBlock("call_1", "f", "42")], "tool"),
    Msg("assistant", "Done.", "assistant"),
)


@pytest.mark.slow
def test_the_token_count_of_a_msg_equals_that_of_its_openai_format() -> None:
    counter = TiktokenCounter("gpt-4o")
    assert counter.count(CONVERSATION) == counter.count(openai_dicts(CONVERSATION))


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "dashscope", "ollama", "openai-responses"])
def test_token_counts_are_similar_in_the_format_of_every_provider(provider: str) -> None:
    formatter = ChatFormatter(provider)
    messages = formatter.format(*CONVERSATION[1:])[formatter.profile.form.messages_key]
    assert 765 + 40 <= TiktokenCounter("gpt-4o").count(messages) <= 765 + 90


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "auto", "low", "unknown"),
    [
        *(("gpt-4o", 765, 85, 1445), ("gpt-4o-2024-08-06", 765, 85, 1445), ("chatgpt-4o-latest", 765, 85, 1445)),
        *(("gpt-4-turbo", 765, 85, 1445), ("gpt-4.5-preview", 765, 85, 1445), ("gpt-4.1", 765, 85, 1445)),
        *(("gpt-4o-mini", 25_501, 2833, 48_169), ("ft:gpt-4o-mini-2024-07-18:us::1", 25_501, 2833, 48_169)),
        *(("gpt-4.1-mini", 1659, 1659, 9954), ("gpt-4.1-nano", 2520, 2520, 3779), ("o1", 675, 75, 1275)),
        *(("o1-pro", 675, 75, 1275), ("o3", 675, 75, 1275), ("o4-mini", 1762, 1762, 2642), ("gpt-5", 630, 70, 1190)),
        *(("gpt-5-chat-latest", 630, 70, 1190), ("gpt-5.1", 630, 70, 1190), ("gpt-5-mini", 1229, 1229, 1844)),
        *(("gpt-5-nano-2025-08-07", 1536, 1536, 2304), ("gpt-5.2", 1229, 1229, 7373), ("gpt-5.4", 1229, 1229, 3000)),
        *(("gpt-5.5", 1229, 308, 12_000), ("gpt-5.6-sol", 1229, 308, 12_000), ("cl100k_base", 765, 85, 1445)),
    ],
)
def test_image_tokens_of_each_model_equal_those_of_openais_guide(model: str, auto: int, low: int, unknown: int) -> None:
    """An image of 1024 x 1024 px, and one at a URL."""
    assert picture_count(model) == picture_count(model, detail="auto") == picture_count(model, detail="high") == auto
    assert picture_count(model, detail="low") == low
    assert picture_count(model, "https://example.com/a.png") == unknown


@pytest.mark.slow
@pytest.mark.parametrize("url", [SQUARE, "https://example.com/a.png"], ids=["known size", "unknown size"])
def test_images_have_the_maximum_tokens_for_an_unknown_model(url: str) -> None:
    known = ("gpt-4o", "gpt-4.1-mini", "gpt-4.1-nano", "o4-mini", "gpt-5", "gpt-5.5")
    assert picture_count("o200k_base", url) == max(picture_count(model, url) for model in known)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "", "images": [b64encode(PNG).decode()]}, 765),
        ({"role": "user", "content": [{"type": "input_image", "image_url": SQUARE, "detail": "low"}]}, 85),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A" * 10_668}}]}, 64),
        ({"role": "user", "content": [{"type": "video"}]}, 60 * 295),
        ({"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a b c"}}]}, 3),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}, 30_000),
    ],
)
def test_media_in_other_formats_are_counted(message: dict[str, Any], expected: int) -> None:
    assert added_count("gpt-4o", message) == added_count("gpt-4o", {"role": "user", "content": ""}) + expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", **DECLARED, "parameters": SCHEMA, "strict": False}],
        [{**DECLARED, "input_schema": SCHEMA}],
        [{"function_declarations": [{**DECLARED, "parameters": SCHEMA}]}],
        [{"functionDeclarations": [{**DECLARED, "parametersJsonSchema": SCHEMA}]}],
        ({"type": "function", "function": {**DECLARED, "description": f"{DESCRIPTION}.", "parameters": SCHEMA}},),
    ],
)
def test_tools_in_every_format_have_the_same_token_count(tools: Any) -> None:
    before = copy.deepcopy(tools)
    assert TiktokenCounter("gpt-4o").count(WEATHER, tools) == 101
    assert tools == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "frames", "texts"),
    [
        *((None, 0, []), ({}, 0, [])),
        ({"type": "object", "properties": {}, "required": [], "additionalProperties": False}, 0, []),
        ({"properties": {"a": {}}}, 6, ["a::"]),
        ({"properties": {"a": {"type": "string", "description": "b."}, "c": True}}, 9, ["a:string:b", "c:true"]),
        ({"properties": {"a": {"type": ["string", "null"]}}}, 6, ['a:["string", "null"]:']),
        ({"properties": {"a": {"enum": [1, "x", None]}}}, 6 - 3 + 9, ["a::", "1", "x", "null"]),
        ({"properties": {"a": {"type": "object", "properties": {"b": {}}}}}, 12, ["a:object:", "b::"]),
        ({"properties": {"a": {"type": "array", "items": {"properties": {"b": {}}}}}}, 12, ["a:array:", "b::"]),
        ({"properties": {"a": {"minimum": 3}}}, 6, ["a::", '{"minimum": 3}']),
        ({"$defs": {"b": {"type": "string"}}}, 0, ['{"$defs": {"b": {"type": "string"}}}']),
    ],
)
def test_the_token_count_of_tool_parameters_follows_the_formula(parameters: Any, frames: int, texts: list[str]) -> None:
    counted = TiktokenCounter("gpt-4o").count([], [{"name": "f", "parameters": parameters}])
    assert counted == 3 + 12 + 7 + count_encoded("f:") + frames + sum(map(count_encoded, texts))


@pytest.mark.slow
@pytest.mark.parametrize(
    "tool", [{"google_search": {}}, {"type": "web_search"}, {"name": 3}, {"name": "f", "parameters": [1]}]
)
def test_tools_that_are_not_functions_are_counted_as_json(tool: dict[str, Any]) -> None:
    assert TiktokenCounter("gpt-4o").count([], [tool]) == 3 + 12 + 7 + count_encoded(json.dumps(tool))


@pytest.mark.slow
@pytest.mark.parametrize("bad", [object(), {"a": {1, 2}}, float("nan"), b"x"])
def test_messages_and_tools_that_are_not_json_are_refused(bad: Any) -> None:
    counter = TiktokenCounter("gpt-4o")
    with pytest.raises(FormatError):
        counter.count([], [{"name": "f", "parameters": {"properties": {"a": bad}}}])
    with pytest.raises(FormatError):
        counter.count([{"role": "assistant", "tool_calls": [bad]}])
    with pytest.raises(FormatError):
        counter.count([{"role": "assistant", "content": None, "function_call": bad}])


@pytest.mark.slow
def test_the_vocabulary_is_loaded_on_first_use_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    read = vocabulary._encoding  # noqa: SLF001 - what is read
    read.cache_clear()
    counters = [TiktokenCounter(name) for name in ("gpt-4", "gpt-3.5-turbo", "cl100k_base")]
    assert read.cache_info().currsize == 0
    assert {counter.count_text("hello world") for counter in counters} == {2}
    assert read.cache_info().currsize == 1
    assert tiktoken.registry.ENCODINGS == {}


def test_an_encoding_already_loaded_by_tiktoken_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {"cl100k_base": vocabulary.encoding_for("cl100k_base")})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert TiktokenCounter("gpt-4").count(JARGON) == 129


def test_a_vocabulary_file_of_the_user_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = TiktokenCounter("gpt-4", vocabulary_folder() / CL100K)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert counter.count(JARGON) == 129
    assert pickle.loads(pickle.dumps(counter)).count(JARGON) == 129  # noqa: S301 - our own bytes


@pytest.mark.slow
def test_a_pickled_counter_does_not_contain_the_vocabulary() -> None:
    counter = TiktokenCounter("gpt-4o", missing="approximate")
    assert counter.count(JARGON) == 124
    pickled = pickle.dumps(counter)
    assert len(pickled) < 300
    for again in (pickle.loads(pickled), copy.copy(counter), copy.deepcopy(counter)):  # noqa: S301 - our own bytes
        assert (again.name, again.bpe_file, again.missing) == ("gpt-4o", None, "approximate")
        assert again.count(JARGON) == 124
        assert repr(again) == "TiktokenCounter('gpt-4o')"


def test_a_missing_vocabulary_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(TokenizerError, match='or allow approximate counts with missing="approximate"'):
        TiktokenCounter("gpt-4o")
    error = r"missing must be one of .*, not 'aproximate'.*did you mean 'approximate'"
    with pytest.raises(TokenizerError, match=error):
        TiktokenCounter("gpt-4o", missing="aproximate")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TokenizerError, match="cannot be read"):
        TiktokenCounter("gpt-4o", tmp_path / "none")
    with pytest.raises(TokenizerError, match="cannot be read"):
        TiktokenCounter("gpt-4o", tmp_path / "none", missing="approximate")


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-99"])
def test_tokens_are_counted_approximately_without_a_vocabulary_if_allowed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    from lazyprompt.tokens.approximate import ApproximateTokenCounter  # noqa: PLC0415 - the replacement

    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.warns(ApproximateCountWarning, match="tokens are counted approximately: ") as warned:
        counter = TiktokenCounter(name, missing="approximate")
    assert warned[0].filename == __file__
    about = ApproximateTokenCounter()
    assert counter.count(WEATHER, TOOLS) == about.count(WEATHER, TOOLS)
    assert counter.count_text("hello world") == about.count_text("hello world")
    assert counter.count(CONVERSATION) == about.count(CONVERSATION)
    assert len(recwarn) == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", [" " * 1_200_000, "a" * 1_200_000], ids=["spaces", "letters"])
def test_long_texts_of_one_repeated_character_are_counted(text: str) -> None:
    """A million spaces make tiktoken panic, which no ``except Exception`` catches."""
    counter = TiktokenCounter("gpt-4o")
    assert counter.count([{"role": "user", "content": text}]) == counter.count_text(text) + 7 > 9_000


@pytest.mark.slow
def test_the_count_of_a_long_text_equals_that_of_encoding_the_whole_text() -> None:
    text = "".join(f"Line {at}: some words, 你好 and <tags>  \n\n\t" for at in range(20_000))
    assert len(text) > 600_000
    assert TiktokenCounter("gpt-4o").count_text(text) == count_encoded(text)
    assert TiktokenCounter("gpt-4").count_text(text[1:]) == count_encoded(text[1:], "cl100k_base")
    unbroken = "x1" * 300_000
    assert 0 <= TiktokenCounter("gpt-4o").count_text(unbroken) - count_encoded(unbroken) <= 4


@pytest.mark.timing
def test_counting_messages_takes_less_than_8_times_the_encoding_time() -> None:
    """Counting a very short message takes a few times as long as encoding its text."""
    counter = TiktokenCounter("gpt-4")
    encode = vocabulary.encoding_for("gpt-4").encode_ordinary
    messages = [{"role": "user", "content": "hello there"}] * 1000
    counter.count(messages)

    def spent(call: Any) -> float:
        began = perf_counter()
        call()
        return perf_counter() - began

    floor = min(spent(lambda: [len(encode(message["content"])) for message in messages]) for _ in range(60))
    whole = min(spent(lambda: counter.count(messages)) for _ in range(60))
    assert whole < 8 * floor
