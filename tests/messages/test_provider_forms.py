"""Histories in the forms of providers and other libraries are read as messages."""

from base64 import b64encode
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from formatters.helpers import openai_call, openai_calling, turn
from lazyprompt import Base64Source, ChatFormatter, ChatPrompter, HistoryError, Msg, URLSource, messages_from
from lazyprompt.messages.msg import (
    Block,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    VideoBlock,
)
from lazyprompt.messages.parse import parse_with_sources
from support.providers.types import sdk

PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
MARK = {"type": "ephemeral"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def document(**source: str) -> dict[str, Any]:
    return {"type": "document", "source": source}


ANTHROPIC: list[dict[str, Any]] = [
    turn(
        "user",
        text("Weather?", cache_control=MARK),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        document(type="url", url="https://example.org/a.pdf") | {"title": "Map"},
        document(type="text", media_type="text/plain", data="Rain."),
    ),
    turn(
        "assistant",
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        text("I look.", citations=None),
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
    ),
    turn(
        "user",
        {"type": "tool_result", "tool_use_id": "t1", "content": [text("Sun.")]},
        {"type": "tool_result", "tool_use_id": "t2", "content": "no city", "is_error": True},
        text("And tomorrow?"),
    ),
]
USER_BLOCKS: list[Block] = [
    TextBlock("Weather?"),
    ImageBlock(Base64Source("image/png", PNG)),
    FileBlock(URLSource("https://example.org/a.pdf"), filename="Map"),
    FileBlock(Base64Source("text/plain", b64encode(b"Rain.").decode())),
]
ASSISTANT_BLOCKS: list[Block] = [
    ThinkingBlock("Hm.", "sig"),
    ThinkingBlock(redacted="b3BhcXVl", provider="anthropic"),
    TextBlock("I look."),
    ToolUseBlock("t1", "weather", {"city": "Rome"}),
    ToolUseBlock("t2", "weather"),
]
RESULTS = [ToolResultBlock("t1", output=[TextBlock("Sun.")]), ToolResultBlock("t2", output="no city", is_error=True)]
ANTHROPIC_READ = [
    Msg("user", USER_BLOCKS, "user", metadata={"part_fields": {"content[0]": {"cache_control": MARK}}}),
    Msg("assistant", ASSISTANT_BLOCKS, "assistant"),
    Msg("tool", RESULTS, "tool"),
    Msg("user", [TextBlock("And tomorrow?")], "user"),
]

GEMINI: list[dict[str, Any]] = [
    turn(
        "user",
        {"text": "Weather?"},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"file_data": {"file_uri": "gs://b/a.mp4", "mime_type": "video/mp4"}},
        key="parts",
    ),
    turn(
        "model",
        {"text": "Hm.", "thought": True},
        {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "c2ln"},
        {"function_call": {"id": "x", "name": "now"}},
        key="parts",
    ),
    turn(
        "user",
        {"function_response": {"id": "x", "name": "now", "response": {"error": "no clock"}}},
        {"functionResponse": {"name": "weather", "response": {"sky": "blue"}}},
        {"text": "So?"},
        key="parts",
    ),
]
PICTURE = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}
WRITTEN = {"type": "output_text", "text": "I look.", "annotations": []}
RESPONSES: list[dict[str, Any]] = [
    {"type": "message", **turn("user", {"type": "input_text", "text": "Weather?"}, PICTURE)},
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gA"},
    {"type": "message", "id": "msg", "status": "completed", **turn("assistant", WRITTEN)},
    {"type": "function_call", "call_id": "a", "id": "fc", "name": "weather", "arguments": '{"city": "Rome"}'},
    {"type": "function_call", "call_id": "b", "name": "now", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "Sun."},
    {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "Noon."}]},
    {"role": "user", "content": "And tomorrow?"},
]


def test_anthropic_messages_are_read() -> None:
    given = deepcopy(ANTHROPIC)
    assert messages_from(given) == ANTHROPIC_READ
    assert given == ANTHROPIC


def test_gemini_contents_are_read_with_camel_case_and_snake_case_keys() -> None:
    made = "call_without_id_0"
    asked = TextBlock("Weather?"), USER_BLOCKS[1], VideoBlock(URLSource("gs://b/a.mp4", "video/mp4"))
    calls = ToolUseBlock(made, "weather", {"city": "Rome"}, signature="c2ln"), ToolUseBlock("x", "now")
    failed = ToolResultBlock("x", "now", "no clock", is_error=True)
    results = failed, ToolResultBlock(made, "weather", '{"sky": "blue"}')
    assert messages_from(GEMINI) == [
        Msg("user", asked, "user"),
        Msg("assistant", [ThinkingBlock("Hm.", provider="gemini"), *calls], "assistant"),
        Msg("tool", results, "tool"),
        Msg("user", "So?", "user"),
    ]


def test_native_gemini_parts_are_kept_with_snake_case_keys() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    called = {"functionCall": {"name": "f", "args": {"aB": 1}}, "thoughtSignature": "c2ln"}
    result = {"functionResponse": {"name": "f", "response": {"output": "o"}, "parts": [picture]}}
    contents = [
        turn("user", {"text": "a"}, key="parts"),
        turn("user", {"text": "a", "partMetadata": {"x": 1}}, key="parts"),
        turn("model", called, {"executableCode": {"code": "1"}}, key="parts"),
        {"parts": [result, "So?"]},
    ]
    read, written = messages_from(contents), {"inline_data": {"mime_type": "image/png", "data": PNG}}
    output: list[Block] = [TextBlock("o"), ImageBlock(Base64Source("image/png", PNG))]
    assert read[3].blocks == (ToolResultBlock("call_without_id_0", "f", output),)
    assert [message.native.provider for message in read if message.native] == ["gemini"] * 4
    assert [message.native and message.native.data for message in read] == [
        None,
        [{"text": "a", "part_metadata": {"x": 1}}],
        [
            {"function_call": {"name": "f", "args": {"aB": 1}}, "thought_signature": "c2ln"},
            {"executable_code": {"code": "1"}},
        ],
        [{"function_response": {"name": "f", "response": {"output": "o"}, "parts": [written]}}],
        [{"text": "So?"}],
    ]


def test_responses_api_items_of_one_response_become_one_message() -> None:
    reasoning = ThinkingBlock("Hm.", "gA", id="rs", provider="openai-responses")
    calls = ToolUseBlock("a", "weather", {"city": "Rome"}), ToolUseBlock("b", "now")
    assert messages_from(RESPONSES) == [
        Msg("user", [TextBlock("Weather?"), ImageBlock(URLSource("https://example.org/a.png"))], "user"),
        Msg("assistant", [reasoning, TextBlock("I look."), *calls], "assistant"),
        Msg("tool", [ToolResultBlock("a", output="Sun."), ToolResultBlock("b", output=[TextBlock("Noon.")])], "tool"),
        Msg("user", "And tomorrow?", "user"),
    ]


def test_responses_api_items_of_unknown_types_are_kept_in_the_metadata_and_native_form() -> None:
    searches: list[dict[str, Any]] = [{"type": "search_call", "a": n} for n in (1, 2)]
    results: list[dict[str, Any]] = [{"type": "b_output", "b": n} for n in (1, 2)]
    items = [*searches, {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}, *results]
    call, result = messages_from(items)
    assert call == Msg("assistant", [ToolUseBlock("a", "f")], "assistant", metadata=call.metadata)
    assert call.metadata == {"part_fields": {"item": searches[0], "item (item 2)": searches[1]}}
    assert result == Msg(
        "tool", [], "tool", metadata={"part_fields": {"item": results[0], "item (item 2)": results[1]}}
    )
    assert (call.native, result.native) == (("openai-responses", items[:3]), ("openai-responses", results))
    given = [["a", "b"], Msg("user", "c", "user"), *items, ["d", "e"]]
    parsed = parse_with_sources(given)
    assert (parsed.firsts, parsed.has_forms, len(parsed.messages)) == ([0, 0, 1, 2, 5, 7, 7], True, 7)
    spans = [(each.start, each.stop) for each in parsed.sources(8)]
    assert spans == [(0, 1), (0, 1), (1, 2), (2, 5), (5, 7), (7, 8), (7, 8)]
    assert not parse_with_sources([["a", "b"], Msg("user", "c", "user")]).has_forms


def test_two_responses_api_messages_in_a_row_stay_two_messages() -> None:
    answer = {"type": "message", "role": "assistant", "content": "Hi."}
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    first, second = messages_from([answer, answer, call, reasoning, call])
    kinds = [[block.type for block in message.blocks] for message in (first, second)]
    assert kinds == [["text"], ["text", "tool_use", "thinking", "tool_use"]]
    assert first.native == ("openai-responses", [answer])
    assert second.native == ("openai-responses", [answer, call, reasoning, call])


@pytest.mark.parametrize(
    ("message", "native"),
    [
        ({"role": "assistant", "content": "Hi."}, {"role": "assistant", "content": "Hi."}),
        ({"role": "assistant", "tool_calls": [{"id": "b", "function": {"name": "g"}}]}, None),
    ],
    ids=["text", "call"],
)
def test_responses_api_items_after_a_chat_message_of_text_keep_the_native_form(message: Any, native: Any) -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}
    (read,) = messages_from([message, call])
    assert [block.type for block in read.blocks] == ["text" if native else "tool_use", "tool_use"]
    assert read.native == (native and ("openai-responses", [native, call]))


def test_sdk_client_objects_are_read_like_their_dicts() -> None:
    types = sdk("google.genai.types")
    contents = [types.Content.model_validate(content) for content in GEMINI]
    assert messages_from(contents) == messages_from(GEMINI)
    responses = sdk("openai.types.responses")
    reasoning = responses.ResponseReasoningItem.model_validate(RESPONSES[1])
    message = responses.ResponseOutputMessage.model_validate(RESPONSES[2])
    call = responses.ResponseFunctionToolCall.model_validate(RESPONSES[3])
    assert messages_from([*RESPONSES[:1], reasoning, message, call, *RESPONSES[4:]]) == messages_from(RESPONSES)
    form = openai_calling(openai_call("1"), content="Hi.")
    answer = sdk("openai.types.chat").ChatCompletionMessage.model_validate(form)
    assert messages_from([answer]) == [Msg("assistant", [TextBlock("Hi."), ToolUseBlock("1", "f")], "assistant")]
    head = {"id": "msg", "type": "message", "model": "claude", "stop_reason": "tool_use"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = sdk("anthropic.types").Message.model_validate({**head, "usage": usage, **ANTHROPIC[1]})
    for form in (whole, {"role": "assistant", "content": whole.content}):
        assert messages_from([form]) == ANTHROPIC_READ[1:2]


def test_langchain_messages_are_recognized_by_their_attributes() -> None:
    call = {"name": "f", "args": {"a": 1}, "id": "1", "type": "tool_call"}
    broken = {"name": "f", "args": "{", "id": "2", "error": "no JSON"}
    given: list[Any] = [
        SimpleNamespace(type="system", content="Be brief."),
        SimpleNamespace(type="human", content=["Look: ", {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}]),
        SimpleNamespace(type="ai", content="", tool_calls=[call], invalid_tool_calls=[broken], additional_kwargs={}),
        SimpleNamespace(type="tool", content="42", tool_call_id="1", name="f", status="error"),
        SimpleNamespace(type="AIMessageChunk", content=[{"type": "tool_use", "id": "1", "name": "f", "input": {}}],
                        tool_calls=[call | {"args": {}}]),
        {"type": "human", "data": {"content": "Hi", "name": "Bob"}},
    ]  # fmt: skip
    assert messages_from(given) == [
        Msg("system", "Be brief.", "system"),
        Msg("user", [TextBlock("Look: "), ImageBlock(URLSource("https://a.b/c.png"))], "user"),
        Msg("assistant", [ToolUseBlock("1", "f", {"a": 1}), ToolUseBlock("2", "f", raw_input="{")], "assistant"),
        Msg("tool", [ToolResultBlock("1", "f", "42", is_error=True)], "tool"),
        Msg("assistant", [ToolUseBlock("1", "f")], "assistant"),
        Msg("Bob", "Hi", "user"),
    ]


def test_langchain_bookkeeping_fields_of_a_response_are_left_out_of_the_metadata() -> None:
    keys = "id example response_metadata usage_metadata artifact tool_call_chunks chunk_position tool_call_id status"
    account = dict.fromkeys(keys.split(), "kept")
    kwargs = {"refusal": "No.", "reasoning_content": "Hm.", "more": 2, "empty": ""}
    (read,) = messages_from([{"type": "ai", "content": "Hi", "own": 1, **account, "additional_kwargs": kwargs}])
    blocks: list[Block] = [ThinkingBlock("Hm."), TextBlock("Hi")]
    assert read == Msg("assistant", blocks, "assistant", metadata={"own": 1, "more": 2})


def test_langchain_texts_in_responses_api_form_become_native_items() -> None:
    content = [{**text("Hi", id="m", index=0), "phase": "final"}, {"type": "refusal", "refusal": "No."}]
    form = {"type": "ai", "content": content, "response_metadata": {"output_version": "responses/v1"}}
    (read,) = messages_from([form])
    assert read == Msg("assistant", [TextBlock("Hi"), TextBlock("No.")], "assistant", metadata={"phase": "final"})
    head = {"type": "message", "role": "assistant"}
    assert read.native == (
        "openai-responses",
        [
            {**head, "content": [{"type": "output_text", "text": "Hi"}], "id": "m", "phase": "final"},
            {**head, "content": [{"type": "refusal", "refusal": "No."}]},
        ],
    )


def test_langchain_role_and_text_tuples_are_read_as_messages() -> None:
    given: list[Any] = [("system", "Be brief."), ("human", "Hi"), ("ai", "Hello"), ("user", [text("So?")])]
    read = [(message.role, message.text) for message in messages_from(given)]
    assert read == [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "So?")]


def test_agentscope_msg_is_recognized_by_its_attributes() -> None:
    def foreign(name: str, content: Any, role: str) -> Any:
        more = {"metadata": None, "timestamp": "2026-01-01", "id": "abc"}
        return SimpleNamespace(name=name, content=content, role=role, **more)

    blocks = [{"type": "tool_result", "id": "1", "name": "f", "output": [text("42")]}]
    given: list[Any] = [
        foreign("Bob", "hi", "user"),
        foreign("Friday", [{"type": "tool_use", "id": "1", "name": "f", "input": {}}], "assistant"),
        foreign("system", blocks, "system"),
    ]
    expected = [
        Msg("Bob", "hi", "user"),
        Msg("Friday", [ToolUseBlock("1", "f")], "assistant"),
        Msg("system", [ToolResultBlock("1", "f", [TextBlock("42")])], "system"),
    ]
    assert messages_from(given) == expected
    assert messages_from([vars(message) for message in given]) == expected


MIXTURE: list[Any] = [
    ["Hello", "Hi."],
    *ANTHROPIC,
    {"role": "assistant", "content": "Rain."},
    *GEMINI,
    {"role": "model", "parts": ["Good."]},
    *RESPONSES,
    {"role": "assistant", "content": "Wind."},
    SimpleNamespace(type="human", content="Thanks"),
    ("ai", "You are welcome."),
    Msg("user", "Bye", "user"),
]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openai-responses", "ollama"])
def test_history_of_mixed_forms_is_formatted_for_every_provider(provider: str) -> None:
    formatter = ChatFormatter(provider)
    payload = formatter.format(MIXTURE)
    formatter.validate(payload)
    for words in ("Hello", "Weather?", "Sun.", "no city", "no clock", "Noon.", "Wind.", "You are welcome.", "Bye"):
        assert words in str(payload), words
    assert payload == formatter.format(*MIXTURE)


@pytest.mark.parametrize("history", [ANTHROPIC, GEMINI, RESPONSES, [("human", "Weather?"), ("ai", "Sun.")]])
def test_chat_prompter_accepts_histories_of_all_forms(history: Any) -> None:
    prompter = ChatPrompter("Help.")
    assert prompter.generate_prompt("Why?", history, format="anthropic") == prompter.generate_prompt(
        "Why?", messages_from(history), format="anthropic"
    )
    assert "Weather?" in str(prompter.generate_prompt("Why?", history, format="gemini"))
    assert "Weather?" not in prompter.generate_prompt("Why?", history[1:], model="qwen2.5")
    assert ChatPrompter("Help.", history=history).generate_prompt("Why?", format="anthropic")["messages"]


@pytest.mark.parametrize(
    ("history", "error"),
    [
        ([("placeholder", "{history}")], "history[0] is a LangChain ('placeholder', ...) tuple; replace it with"),
        ([("tool", "42")], "history[0] is a LangChain tuple for a tool result, which requires the id of its call"),
        ([("Hi", "Hello"), ("ai", "AI is …")], "history[1] begins with 'ai', which can be a question or the role"),
        ([["human", "Hi"], ["ai", "Hello"]], "history[0] begins with 'human', which can be a question or the role"),
        ([{"role": "user", "content": "a", "parts": []}], "history[0] could be a Gemini content or a message with"),
        ([{"type": "message", "role": "user", "parts": []}], "history[0] could be a Gemini content or a Responses"),
        ([{"role": "robot", "parts": []}], "history[0] has the role 'robot'; the role of a Gemini Content"),
        ([{"role": ["user"], "parts": []}], "history[0] has the role ['user']; the role of a Gemini Content"),
        ([{"type": ["human"], "content": "a"}], "history[0] has no 'role'; an OpenAI message must be"),
        ([{"type": {}, "role": "user"}], "history[0] must contain 'content' or 'tool_calls'"),
        ([{"type": "text", "text": "hi"}], "history[0] has no 'role'; an OpenAI message must be"),
        ([{"type": "function_call", "call_id": "a"}], "history[0].name is missing or empty"),
        ([{"type": "custom_tool_call", "call_id": "a"}], "history[0].name is missing or empty"),
        ([{"type": "custom_tool_call", "name": "f", "call_id": 3}], "history[0].call_id must be a string, not int"),
        ([{"type": "custom_tool_call", "name": "f", "input": 3}], "history[0].input must be a string, not int"),
        ([{"type": "function_call_output", "call_id": "a", "name": 4}], "history[0].name must be a string, not int"),
        ([{"type": "function_call_output", "call_id": "a", "output": 4}], "history[0].output must be a list, not int"),
        ([{"type": "reasoning", "content": 5}], "history[0].content must be a list, not int"),
        ([{"type": "reasoning", "summary": [{"text": 5}]}], "history[0].summary[0].text must be a string, not int"),
    ],
)  # fmt: skip
def test_ambiguous_or_malformed_history_item_is_refused(history: Any, error: str) -> None:
    with pytest.raises(HistoryError) as caught:
        messages_from(history)
    assert str(caught.value).startswith(error)


def test_question_equal_to_a_role_name_is_read_as_a_question() -> None:
    # In a chat of question-answer lists, a user may write just "system".
    history = [["Hi", "Hello"], ["system", "A system is …"], ["placeholder", "?"]]
    assert [message.role for message in messages_from(history)] == ["user", "assistant"] * 3


def test_additional_part_fields_are_kept_in_the_metadata_and_left_out_of_the_openai_form() -> None:
    message = messages_from(ANTHROPIC)[0]
    assert message.metadata == {"part_fields": {"content[0]": {"cache_control": MARK}}}
    part = {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "https://a.b"}]}
    (read,) = messages_from([{"type": "message", "role": "assistant", "content": [part]}])
    assert read.metadata == {"part_fields": {"content[0]": {"annotations": part["annotations"]}}}
    assert "annotations" not in str(ChatPrompter().generate_prompt("b", [read], return_dict=True))
    item = {"type": "function_call_output", "output": "1"}  # without its call
    assert messages_from([item]) == [Msg("tool", (), "tool", metadata={"part_fields": {"item": item}})]


def test_failed_tool_result_is_marked_for_anthropic_and_gemini_and_reported_for_openai() -> None:
    call = Msg("assistant", [ToolUseBlock("1", "f")], "assistant")
    result = Msg("tool", [ToolResultBlock("1", "f", "no", is_error=True)], "tool")
    made = {name: ChatFormatter(name).format(("a", "b"), call, result) for name in ("anthropic", "gemini", "openai")}
    assert made["anthropic"]["messages"][-1]["content"][0]["is_error"] is True
    assert made["gemini"]["contents"][-1]["parts"][0]["function_response"]["response"] == {"error": "no"}
    assert [entry.kind for entry in made["openai"].report] == ["tool_result"]


def test_user_text_beside_a_tool_result_after_responses_api_items_stays_in_a_user_message() -> None:
    """The user's text was put into the message of the tool result."""
    history: list[dict[str, Any]] = [
        *({"type": "function_call", "call_id": call, "name": "f", "arguments": "{}"} for call in "ab"),
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        turn("user", {"type": "tool_result", "tool_use_id": "b", "content": "2"}, text("Go on.")),
    ]
    calls, results, user = messages_from(history)
    assert (calls.role, len(calls.blocks)) == ("assistant", 2)
    assert (results.role, [block.text for block in results.blocks]) == ("tool", ["1", "2"])  # type: ignore[union-attr]  # results have text
    assert (user.role, user.text) == ("user", "Go on.")
