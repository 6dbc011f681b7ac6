"""A call as one text: its parts with their tokens, and the slots that they come from."""

from typing import Any

import pytest

from budget.helpers import Roles
from lazyprompt import CharTokenCounter, ChatPrompter, Prompty
from lazyprompt.caching import PromptCall, rules_for
from lazyprompt.caching.reading import CallText, call_of, read_call
from lazyprompt.modules.telemetry import CallRecord

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
PAYLOAD: dict[str, Any] = {
    "model": "m",
    "response_format": {"type": "json"},
    "system": [{"type": "text", "text": "Be kind."}],
    "tools": [{"name": "f", "cache_control": {"type": "ephemeral"}}, {"name": "g"}],
    "messages": [
        {"role": "user", "content": [{"text": "See"}, "this", {"type": "image", "cache_control": {}}], "name": "Ann"},
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "ho"}, {"type": "thinking"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"type": "function_call_output", "output": "r"},
        {"role": "user", "parts": [{"text": "Hm"}, {"inline_data": {}}]},
        {"role": "user", "content": "So?", "cache_control": {"type": "ephemeral"}},
    ],
}


def read_prompt(prompt: object, rules: str, *given: Any) -> CallText:
    return read_call(PromptCall(prompt, *given), rules_for(rules), CharTokenCounter())


def test_a_payload_is_split_into_parts_with_tokens_and_slots() -> None:
    call = read_prompt(PAYLOAD, "vllm")
    parts = [
        (call.text[part.start : part.begin], call.text[part.begin : part.end], part.message, part.slot, part.tokens())
        for part in call.parts
    ]
    assert parts == [
        ("\x1emodel\x1f", "m\x1d", None, "model", 0),
        ("\x1eresponse_format\x1f", '{"type": "json"}\x1d', None, "response_format", 16),
        ("\x1etool\x1f", '{"name": "f"}\x1d', None, "tools", 13),
        ("\x1etool\x1f", '{"name": "g"}\x1d', None, "tools", 13),
        ("\x1esystem\x1f", "Be kind.\x1d", None, "system", 8),
        ("\x1euser\x1f", "See\x1d", 0, None, 6),
        ("\x1e\x1f", "this\x1d", 0, None, 4),
        ("\x1e\x1f", '{"type": "image"}\x1f{"name": "Ann"}\x1d', 0, None, 0),
        ("\x1eassistant\x1f", '{"type": "thinking", "thinking": "hm", "signature": "s"}\x1d', 1, None, 2),
        ("\x1e\x1f", "ho\x1d", 1, None, 2),
        ("\x1e\x1f", '{"type": "thinking"}\x1d', 1, None, 20),
        ("\x1eassistant\x1f", '\x1f{"tool_calls": [{"id": "1"}]}\x1d', 2, None, 13),
        ("\x1efunction_call_output\x1f", '\x1f{"type": "function_call_output", "output": "r"}\x1d', 3, None, 1),
        ("\x1euser\x1f", "Hm\x1d", 4, None, 2),
        ("\x1e\x1f", '{"inline_data": {}}\x1d', 4, None, 0),
        ("\x1euser\x1f", "So?\x1d", 5, None, 3),
    ]
    assert [part.message for part in call.parts if part.is_signed] == [1]
    assert (call.messages, call.model, call.overhead, call.slots) == (6, "m", 0, [])
    assert call.text[call.past :].startswith("\x1euser\x1fHm\x1d")
    ends = [part.end for part in call.parts]
    assert [call.count_signed_after(index) for index in (0, ends[8] - 1, ends[8])] == [1, 1, 0]
    assert [call.part_at(index) for index in (0, ends[0] - 1, ends[0])] == [*call.parts[:1] * 2, call.parts[1]]


def test_tokens_of_a_role_are_counted_once_per_message() -> None:
    call = read_call(PromptCall(PAYLOAD), rules_for("vllm"), Roles())
    assert [part.tokens() for part in call.parts] == [0, 16, 13, 13, 14, 10, 4, 0, 11, 2, 20, 22, 1, 6, 0, 7]
    assert read_prompt("ab", "vllm").text == "\x1emodel\x1f\x1d\x1e\x1fab"


SENT = [
    *("model:\x1emodel\x1f\x1d\x1esystem\x1f", "system:S", "instruction:\n", "instruction:In ", "a:A\x1d"),
    *("history:\x1euser\x1fHi\x1d", "history:\x1eassistant\x1fHo\x1d\x1euser\x1f", "user:Q: ", "b:B", "input:now\x1d"),
]
FLAT = [
    *("markers:<|start_system|>", "system:S", "instruction:In ", "a:A", "markers:<|end_system|>\n\n"),
    *("markers:<|Human|>:", "history:Hi", "markers:<|Assistant|>:", "history:Ho"),
    *("markers:\n", "markers:<|Human|>:\n", "user:Q: ", "b:B", "input:now", "markers:\n", "markers:<|Assistant|>:\n"),
]


@pytest.mark.parametrize(("rules", "slots", "last"), [("openai", SENT, "\x1euser"), ("llama.cpp", FLAT, "\n<|Human|>")])
def test_the_slots_of_a_prompter_are_found_in_its_text(rules: str, slots: list[str], last: str) -> None:
    prompter = ChatPrompter({"system": "In {a}", "user": "Q: {b}"}, system="S")
    call = read_prompt(prompter, rules, {"a": "A", "b": "B", "input": "now"}, [["Hi", "Ho"]])
    starts = [start for start, _ in call.slots]
    texts = [call.text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    assert [f"{slot}:{text}" for (_, slot), text in zip(call.slots, texts, strict=True)] == slots
    assert call.past == call.text.rindex(last)


def test_call_records_and_prompt_files_are_read_as_calls() -> None:
    record = CallRecord("openai", "gpt-x", PAYLOAD, {}, None, None, 1.0, streamed=False)
    assert call_of(record) == PromptCall(PAYLOAD, model="gpt-x")
    file = Prompty.loads("---\ninputs: {a: {kind: string}}\n---\nuser:\nSee {{a}}.\n")
    calls = [read_prompt(prompt, "openai", {"a": "A"}) for prompt in (file, file.prompter)]
    slots = [(0, "model"), (14, "user"), (18, "a"), (19, "user")]
    assert [(call.text, call.slots) for call in calls] == [("\x1emodel\x1f\x1d\x1euser\x1fSee A.\x1d", slots)] * 2
