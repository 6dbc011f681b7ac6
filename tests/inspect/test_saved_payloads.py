import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyprompt import CharTokenCounter, ChatPrompter
from lazyprompt.errors import FormatError
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.inspect.look import CallArguments, Look, look
from lazyprompt.inspect.saved import saved_look

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
# Providers with identical payloads: the first of them is recognized.
LIKE = dict.fromkeys(
    ("deepseek", "zhipu", "litellm", "moonshot", "xai", "vllm", "mistral", "dashscope", "ollama"), "openai"
) | {"dashscope-multimodal": "dashscope"}


def look_at_saved(value: object, **options: Any) -> Look:
    return saved_look(json.dumps(value, ensure_ascii=False), **options)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_provider_of_a_saved_prompter_payload_is_recognized(provider: str) -> None:
    history = None if provider == "ollama-generate" else [["a", "b"]]
    tools = None if provider == "ollama-generate" else [TOOL]
    made = look(ChatPrompter("Say"), CallArguments("Hi", history, tools), form=provider, counter=CharTokenCounter())
    seen = look_at_saved(made.sent, counter=CharTokenCounter())
    assert seen.form == LIKE.get(provider, provider)
    assert seen.sent == made.sent
    assert seen.total == made.total == sum(slot.tokens for slot in seen.slots)
    assert (seen.cautions, seen.segments, seen.marks, seen.trim) == ((), (), (), None)
    assert look_at_saved(made.sent, form=provider).form == provider


def test_slots_of_a_saved_payload_are_its_messages_and_tools() -> None:
    tool = {"type": "function", "function": {"name": "count", "description": "Zählt. " * 200}}
    seen = look_at_saved({"messages": CHAT, "tools": [tool, TOOL]}, title="x.json")
    assert [slot.name for slot in seen.slots] == ["messages[0] (system)", "messages[1] (user)", "tools", "framing"]
    tools = f"{json.dumps(tool, ensure_ascii=False)}\n{json.dumps(TOOL)}"
    assert [slot.text for slot in seen.slots] == ["Be brief.", "Hi", tools, ""]
    # No caution about the cache: it is unknown which texts are the same in every call.
    assert (seen.title, seen.cautions) == ("x.json", ())


def test_saved_message_with_more_than_text_is_shown_as_json() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "谁"}]}
    seen = look_at_saved({"input": [asked, call]}, form="openai-responses")
    assert [slot.name for slot in seen.slots] == ["input[0] (user)", "input[1] (function_call)", "framing"]
    texts = [json.dumps(each, ensure_ascii=False, indent=2) for each in (asked, call)]
    assert [slot.text for slot in seen.slots] == [*texts, ""]


@pytest.mark.parametrize(
    ("value", "provider", "names"),
    [
        (CHAT, "openai", ["messages[0] (system)", "messages[1] (user)"]),
        ([{"role": "user", "parts": [{"text": "Hi"}]}], "gemini", ["contents[0] (user)"]),
        ([{"parts": [{"text": "Hi"}]}], "gemini", ["contents[0]"]),
        ({"system": "S", "messages": CHAT[1:]}, "anthropic", ["system", "messages[0] (user)"]),
        ({"input": "Hi", "instructions": "S"}, "openai-responses", ["instructions", "input"]),
        ({"input": [{"type": "message", "role": "user", "content": "Hi"}]}, "openai-responses", ["input[0] (user)"]),
        ({"prompt": "Hi", "model": "m"}, "ollama-generate", ["prompt"]),
        (
            {"systemInstruction": {"parts": [{"text": "S"}]}, "contents": [{"role": "user", "parts": [{"text": "a"}]}]},
            "gemini",
            ["system_instruction", "contents[0] (user)"],
        ),
    ],
)
def test_provider_of_a_saved_payload_is_recognized_by_its_keys(value: object, provider: str, names: list[str]) -> None:
    seen = look_at_saved(value)
    assert (seen.form, [slot.name for slot in seen.slots]) == (provider, [*names, "framing"])
    assert all(slot.tokens > 0 for slot in seen.slots)
    assert all(slot.text in ("Hi", "S", "Be brief.", "") or "parts" in slot.text for slot in seen.slots)


REQUEST = {"model": "gpt-4o", "messages": CHAT}


@pytest.mark.parametrize(
    "around",
    [
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": REQUEST},
        {"id": "1", "payload": REQUEST},
        {"model": "gpt-4o", "input": {"messages": CHAT}, "parameters": {}},
        {"key": "1", "request": REQUEST},
        {"custom_id": "1", "params": REQUEST},
    ],
)
def test_saved_payload_is_found_inside_a_batch_row(around: object) -> None:
    seen = look_at_saved(around)
    assert (seen.form, seen.model, seen.window) == ("openai", "gpt-4o", 128_000)
    assert seen.sent == REQUEST


def test_invalid_tools_of_a_saved_request_are_reported_and_not_counted() -> None:
    request = {**REQUEST, "tools": [3], "input": {"messages": []}}
    seen = look_at_saved(request, form="openai")
    assert (seen.sent, seen.slots) == (request, look_at_saved(REQUEST).slots)
    assert [str(each) for each in seen.cautions] == [
        "tools[0]: openai would reject this: it is the int 3; use a JSON object"
    ]


def test_window_of_a_saved_payload_is_the_argument_or_that_of_the_model() -> None:
    assert look_at_saved(CHAT).window is None
    assert look_at_saved(CHAT, window=9).window == 9
    assert look_at_saved(CHAT, model="claude-opus-4-5").window == 200_000
    assert [str(caution) for caution in look_at_saved(CHAT, window=16).cautions] == [
        "15 tokens are 94 % of the context window (16), which must also fit the response"
    ]


def test_invisible_characters_of_a_saved_payload_give_a_caution() -> None:
    seen = look_at_saved([{"role": "user", "content": [{"type": "text", "text": "a\x1b\u202e"}]}])
    assert [str(caution) for caution in seen.cautions] == [
        "messages[0] (user): 2 invisible character(s): U+001B, U+202E"
    ]


def test_saved_payload_that_its_provider_would_reject_gives_a_caution() -> None:
    seen = look_at_saved(CHAT, form="anthropic")
    assert [(caution.kind, caution.values["where"]) for caution in seen.cautions] == [("refused", "messages[0]")]
    assert "anthropic would reject this" in str(seen.cautions[0])


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("", None, "the saved payload is not valid JSON: Expecting value: line 1 column 1"),
        ('{"a" 1}', None, "line 1 column 6"),
        ("3", None, "a JSON object or a list of messages, not a number"),
        ("0.5", None, "not a number"),
        ("true", None, "not a boolean"),
        ("null", None, "not null"),
        ('"x"', None, "not a string"),
        ("{}", None, "the payload doesn't follow the rules of any known provider; set the provider with --format NAME"),
        ("[]", None, "the payload doesn't follow the rules of any known provider"),
        ('{"messages": [3]}', None, "the payload doesn't follow the rules of any known provider"),
        ("[" * 100_000, None, "nested too deep"),
        # Payloads that the named provider cannot have.
        ("{}", "openai", "a payload for openai must contain its messages in 'messages', but the key is missing"),
        ('{"contents": [1]}', "gemini", "in 'contents', but the key contains no messages"),
        ('{"messages": "Hi"}', "openai", "in 'messages', but the key contains no messages"),
        (json.dumps(CHAT), "ollama-generate", "in 'prompt', but the key contains no messages"),
        (json.dumps(CHAT), "opnai", "did you mean 'openai'"),
    ],
)
def test_invalid_saved_payload_is_refused(text: str, form: str | None, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        saved_look(text, form=form)
    assert message in str(caught.value)


KEYS = st.sampled_from(
    [
        *("messages", "content", "role", "parts", "text", "type"),
        *("tools", "system", "input", "contents", "prompt", "body", "model"),
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["user", "tool", "text", "\x1b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(value=VALUES, form=st.sampled_from([None, "openai", "anthropic", "gemini", "openai-responses"]))
def test_random_json_is_shown_or_refused_as_a_saved_payload(value: Any, form: str | None) -> None:
    try:
        seen = look_at_saved(value, form=form)
    except FormatError as error:
        if not str(error).startswith(("the payload doesn't follow", "a payload for", "a saved payload must be")):
            raise
        return
    assert sum(slot.tokens for slot in seen.slots) == seen.total
