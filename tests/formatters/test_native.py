"""Native messages: sent back to their provider unchanged, and as blocks to other providers."""

import pickle
from typing import Any

import pytest

from formatters.helpers import openai_call, openai_calling, turn
from lazyprompt import Base64Source, ChatFormatter, ChatPrompter, FileBlock, Msg, messages_from
from lazyprompt.errors import FormatError, MediaError
from support.providers.judges import parts

HI = {"role": "user", "content": "hi"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "search_result", "title": "T", "source": "u", "content": []}
MARK, GO_ON = {"type": "ephemeral"}, {"type": "text", "text": "Go on."}
ANTHROPIC: list[dict[str, Any]] = [
    HI,
    turn(
        "assistant",
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "I look.", "citations": [{"type": "page_location", "cited_text": "x"}]},
        SEARCH,
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
        {"type": "text", "text": "And now?"},
    ),
    turn("user", {"type": "tool_result", "tool_use_id": "t1", "content": [FOUND], "cache_control": MARK}, GO_ON),
]
RESPONSES: list[dict[str, Any]] = [
    HI,
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text} for text in "ab"]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e"},
    {"type": "message", "id": "msg_1", "status": "completed", "phase": "commentary"}
    | turn("assistant", {"type": "output_text", "text": "Hot.", "annotations": [{"type": "url_citation"}]}),
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "sh", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.txt"},
    {"type": "function_call", "id": "fc_1", "call_id": "c2", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c2", "output": "1"},
]
GEMINI: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "hi"}]},
    parts(
        "model",
        {"text": "Hm.", "thought": True},
        {"executable_code": {"language": "PYTHON", "code": "1"}},
        {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}, "thought_signature": "QQ=="},
        {"function_call": {"name": "f", "args": {"camelCase": 1}}, "thought_signature": "QQ=="},
    ),
    parts("user", {"function_response": {"name": "f", "response": {"rows": [1]}}}),
]
OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "file", "file": {"file_id": "f1"}}]},
    {"role": "assistant", "content": "x", "annotations": [{"type": "url_citation"}], "audio": {"id": "a1"}},
    HI,
    openai_calling(
        {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}},
        openai_call("d", "g", '{"a":1}', extra_content={"google": {"thought_signature": "s"}}),
    ),
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "tool", "tool_call_id": "d", "content": "2"},
]
CHATS = {
    "anthropic": ("messages", ANTHROPIC),
    "openai-responses": ("input", RESPONSES),
    "gemini": ("contents", GEMINI),
    "openai": ("messages", OPENAI),
}
each_chat = pytest.mark.parametrize("provider", CHATS)


@each_chat
def test_native_messages_are_sent_back_unchanged(provider: str) -> None:
    key, chat = CHATS[provider]
    payload = ChatFormatter(provider, strict=True).format(*chat)
    assert (payload[key], payload.report) == (chat, ())


@each_chat
def test_prompter_sends_native_messages_unchanged(provider: str) -> None:
    key, chat = CHATS[provider]
    payload: Any = ChatPrompter(system="").generate_prompt("Bye.", chat, format=provider)
    assert payload[key][: len(chat) - 1] == chat[:-1]
    # Providers with alternating turns get consecutive user messages as one turn.
    assert str(chat[-1].get("output", chat[-1].get("content", chat[-1].get("parts"))))[1:-1] in str(payload[key][-2:])


@each_chat
def test_payload_shares_no_objects_with_native_messages(provider: str) -> None:
    key, chat = CHATS[provider]
    formatter, messages = ChatFormatter(provider), messages_from(chat)
    formatter.format(messages)[key][1].clear()
    assert formatter.format(messages)[key] == chat


@each_chat
def test_native_form_survives_pickling_and_is_dropped_by_evolve(provider: str) -> None:
    key, chat = CHATS[provider]
    messages: list[Msg] = pickle.loads(pickle.dumps(messages_from(chat)))  # noqa: S301 - our own
    assert ChatFormatter(provider).format(messages)[key] == chat
    (own, *_) = (message for message in messages if message.native)
    assert own.native is not None
    assert own.native.provider == provider
    assert own.evolve(role=own.role).native is None
    assert own.evolve(role=own.role) == own


def test_other_provider_gets_the_blocks_of_native_messages_and_a_report_of_losses() -> None:
    payload = ChatFormatter("openai").format(*ANTHROPIC)
    assert payload["messages"][1:] == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}, {"type": "text", "text": "And now?"}],
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": ""},
        {"role": "user", "content": "Go on."},
    ]
    assert [(entry.where, entry.kind) for entry in payload.report] == [
        ("messages[1].content[0]", "thinking"),
        ("messages[1].content[1].citations", "metadata"),
        ("messages[1].content[2]", "server_tool_use"),
        ("messages[1].content[3]", "web_search_tool_result"),
        ("messages[1].content[4].caller", "metadata"),
        ("messages[2].content[0].content[0]", "search_result"),
        ("messages[2].content[0].cache_control", "cache"),
    ]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "openai"])
def test_lost_native_item_is_reported(provider: str) -> None:
    report = [str(entry) for entry in ChatFormatter(provider).format(*RESPONSES).report]
    assert "messages[1].item (web_search_call) left out: only the provider that sent it supports it" in report
    with pytest.raises(FormatError, match="web_search_call"):
        ChatFormatter(provider, strict=True).format(*RESPONSES)


def test_native_message_changed_by_a_rule_is_sent_as_blocks_and_reported() -> None:
    first: Any = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "new": 1}]}
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]}
    # The id is used again, so the second call needs another.
    payload = ChatFormatter("anthropic").format(HI, first, answer, first, answer)
    assert payload["messages"][1] == first
    assert payload["messages"][3]["content"] == [{"type": "tool_use", "id": "t_2", "name": "f", "input": {}}]
    assert [*map(str, payload.report)] == [
        "messages[3] (id) changed: the id 't' is already used; replaced by 't_2'",
        "messages[3] (native) changed: a rule changes it, so its blocks are sent instead",
        "messages[3].content[0].new (metadata) left out: content blocks do not support this field",
    ]


def test_unsigned_native_reasoning_is_not_sent_to_anthropic() -> None:
    unsigned = turn("assistant", {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "a"})
    payload = ChatFormatter("anthropic").format(HI, unsigned)
    assert payload["messages"][1]["content"] == [{"type": "text", "text": "a"}]
    assert [entry.kind for entry in payload.report] == ["thinking"]


def test_joined_native_gemini_messages_are_sent_as_blocks() -> None:
    """The reasoning of the second message reached the form, which cannot write it."""
    turn: Any = {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Hot."}]}
    payload = ChatFormatter("gemini").format({"role": "user", "parts": [{"text": "hi"}]}, turn, turn)
    assert payload["contents"][1] == {"role": "model", "parts": [{"text": "Hot."}, {"text": "Hot."}]}
    assert [(entry.where, entry.kind) for entry in payload.report] == [
        ("messages[1].content[0]", "thinking"),
        ("messages[2].content[0]", "thinking"),
        # Gemini requires a user turn last.
        ("messages", "message"),
        ("messages[1]", "native"),
        ("messages[2]", "native"),
    ]


def test_native_response_with_another_name_is_sent_back_unchanged() -> None:
    """Only responses named "assistant" kept their native form."""
    formatter, said = ChatFormatter("anthropic"), [SEARCH, {"type": "text", "text": "Hot."}]
    answer = formatter.parse({"content": said}, name="Ann")
    assert answer.name == "Ann"
    assert formatter.format(HI, answer)["messages"][1]["content"] == said


def test_arguments_are_sent_back_to_openai_as_the_model_wrote_them() -> None:
    """The arguments were serialized again with spaces, so the provider's prompt cache missed the rest."""
    message = openai_calling(openai_call("c1", "find", '{"q":"a","n":[1,2]}'))
    formatter = ChatFormatter("openai")
    for said in (message, formatter.parse({"choices": [{"message": message}]})):
        payload = formatter.format(HI, said, {"role": "tool", "tool_call_id": "c1", "content": "1"})
        assert payload["messages"][1] == message
        assert payload.report == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "find"}},
        {"type": "text", "text": "Be brief.", "cache_control": MARK},
    ],
)
def test_late_native_system_message_is_sent_back_to_anthropic(part: dict[str, Any]) -> None:
    """Tools added in mid-conversation were left out, and breakpoints were lost."""
    messages: list[Any] = [HI, turn("system", part), {"role": "assistant", "content": "b"}, HI]
    payload = ChatFormatter("anthropic", strict=True).format(*messages)
    assert payload["messages"] == messages
    assert payload.report == ()


def test_plain_text_file_is_sent_to_anthropic_as_text() -> None:
    """Plain text files were left out."""
    text = FileBlock(Base64Source("text/plain", "R3LDvMOfZQ=="))
    payload = ChatFormatter("anthropic").format(Msg("Ann", [text], "user"))
    source = {"type": "text", "media_type": "text/plain", "data": "Grüße"}
    assert payload["messages"][0]["content"] == [{"type": "document", "source": source}]
    with pytest.raises(MediaError, match="text/plain file is not UTF-8"):
        ChatFormatter("anthropic").format(Msg("Ann", [FileBlock(Base64Source("text/plain", "/w=="))], "user"))


def test_media_in_a_native_gemini_tool_result_stay_in_the_result() -> None:
    """Gemini 3 accepts media within results, but they were moved to a user turn."""
    call = parts("model", {"function_call": {"name": "draw", "args": {}, "id": "c1"}})
    picture = {"inline_data": {"mime_type": "image/png", "data": "eA=="}}
    response = {"name": "draw", "response": {"output": "done"}, "id": "c1", "parts": [picture]}
    contents = [parts("user", {"text": "?"}), call, parts("user", {"function_response": response})]
    payload = ChatFormatter("gemini").format(*contents)
    assert payload["contents"] == contents
    assert payload.report == ()
