"""A conversation continued with another provider: foreign reasoning, signatures and ids, and the way back."""

from typing import Any

import pytest

from formatters.helpers import BYE, HI, WITH_TOOLS, answering, call, calling, openai_call, openai_calling, result, turn
from formatters.payloads import called, dump, judged, places, reported, texts
from lazyprompt import ChatFormatter, Msg, TextBlock, ThinkingBlock, ToolUseBlock
from lazyprompt.formatters.providers import PROVIDERS
from support.providers.types import sdk

QUESTION = Msg("Ann", "Is it raining?", "user")
LONG_ID = "call_" + "a" * 60 + "|fc_1"
CITY = '{"city": "§city§"}'
SUMMARY = [{"type": "summary_text", "text": "§thought§"}]
GEMINI_PARTS = [
    {"text": "§thought§", "thought": True},
    {"text": "§text§", "thoughtSignature": "c2ln"},
    {"functionCall": {"name": "weather", "args": {"city": "§city§"}}, "thoughtSignature": "c2lo"},
    {"functionCall": {"name": "weather", "args": {}}},
]
DEEPSEEK_CALLS = openai_call("call_0", "weather", CITY), openai_call("call_1", "weather")
DEEPSEEK = openai_calling(*DEEPSEEK_CALLS, content="§text§", reasoning_content="§thought§")
ANSWERS: dict[str, Any] = {
    "anthropic": turn(
        "assistant",
        {"type": "thinking", "thinking": "§thought§", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "§text§"},
        {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "§city§"}},
        {"type": "tool_use", "id": "toolu_02", "name": "weather", "input": {}},
    ),
    "openai-responses": {
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": "c2ln"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "§text§"}]},
            {"type": "function_call", "call_id": LONG_ID, "name": "weather", "arguments": CITY},
            {"type": "function_call", "call_id": LONG_ID[:-1] + "2", "name": "weather", "arguments": "{}"},
        ]
    },
    "gemini": {"candidates": [{"content": {"role": "model", "parts": GEMINI_PARTS}}]},
    "deepseek": {"choices": [{"message": DEEPSEEK}]},
}
MOVES = [pytest.param(home, to, id=f"{home}-to-{to}") for home in ANSWERS for to in WITH_TOOLS if home != to]
TEXT_THINKERS = ("deepseek", "moonshot", "zhipu", "ollama")


def answered_calls(home: str) -> list[Msg]:
    """A question, a response with two calls, and their results."""
    message = ChatFormatter(home).parse(ANSWERS[home])
    uses = [block for block in message.blocks if isinstance(block, ToolUseBlock)]
    assert len(uses) == 2
    return [QUESTION, message, answering(*(result(use.id, f"§{at}§", name=use.name) for at, use in enumerate(uses)))]


@pytest.mark.parametrize(("home", "to"), MOVES)
def test_other_provider_gets_the_text_calls_and_results_of_a_parsed_response(home: str, to: str) -> None:
    payload = judged(ChatFormatter(to), *answered_calls(home), BYE)
    found = places(dump(payload), "§text§", "§city§", "§0§", "§1§")
    assert found == sorted(found)
    made = called(payload)
    assert [name for _, name in made] == ["weather", "weather"]
    assert len({call_id for call_id, _ in made}) == 2
    # Each id is there twice: with its call, and with its result.
    assert [dump(payload).count(f'"{call_id}"') for call_id, _ in made] == [2, 2]


@pytest.mark.parametrize(("home", "to"), MOVES)
def test_foreign_reasoning_and_signatures_are_left_out_and_reported(home: str, to: str) -> None:
    payload = judged(ChatFormatter(to), *answered_calls(home))
    text = dump(payload)
    assert "c2ln" not in text
    assert "c2lo" not in text
    assert "b3BhcXVl" not in text
    assert ("§thought§" in text) == (to in TEXT_THINKERS)
    reported_texts = [entry.text for entry in payload.report if entry.kind == "thinking"]
    assert ("§thought§" in reported_texts) == (to not in TEXT_THINKERS)
    signed = ["messages[1].content[1]", "messages[1].content[2]"] if home == "gemini" else []
    assert reported(payload, "signature") == signed
    # Dropped reasoning and signatures are not reported as losses.
    assert ChatFormatter(to, strict=True).format(*answered_calls(home)) == payload


@pytest.mark.parametrize("home", ANSWERS)
def test_own_reasoning_is_sent_back_unchanged(home: str) -> None:
    payload = judged(ChatFormatter(home), *answered_calls(home), BYE)
    text = dump(payload)
    assert "§thought§" in text
    if home == "anthropic":
        assert payload["messages"][1]["content"] == ANSWERS[home]["content"]
    if home == "openai-responses":
        assert payload["input"][1] == ANSWERS[home]["output"][0]
    if home == "gemini":
        parts = payload["contents"][1]["parts"]
        assert [part.get("thought_signature") for part in parts] == [None, "c2ln", "c2lo", None]
    if home == "deepseek":
        assert payload["messages"][1] == ANSWERS[home]["choices"][0]["message"]


@pytest.mark.parametrize(("home", "to"), [(home, to) for home in ANSWERS for to in ANSWERS if home != to])
def test_switching_to_another_provider_and_back_loses_nothing(home: str, to: str) -> None:
    first, between = answered_calls(home), answered_calls(to)
    payload = judged(ChatFormatter(home), *first, *between, BYE)
    alone = judged(ChatFormatter(home), *first, BYE)
    key = next(iter(set(payload) & {"messages", "contents", "input"}))
    # The first part is the same as without the foreign part.
    assert payload[key][:2] == alone[key][:2]
    assert reported(payload, "thinking") != reported(alone, "thinking") or home == "deepseek"
    assert dump(payload).count("§city§") == 2
    made = [call_id for call_id, _ in called(payload)]
    assert len(set(made)) == 4


def test_long_call_ids_are_shortened_to_distinct_ids() -> None:
    payload = judged(ChatFormatter("openai"), *answered_calls("openai-responses"))
    assert all(len(call_id) <= 40 for call_id, _ in called(payload))
    assert reported(payload, "id", "changed") == ["messages[1]", "messages[1]"]
    assert {entry.text for entry in payload.report if entry.kind == "id"} == {LONG_ID, LONG_ID[:-1] + "2"}


@pytest.mark.parametrize("to", WITH_TOOLS)
def test_generated_call_ids_of_two_responses_are_distinct(to: str) -> None:
    first = answered_calls("gemini")
    payload = judged(ChatFormatter(to), *first, *first, BYE)
    assert len({call_id for call_id, _ in called(payload)}) == 4
    twice = reported(payload, "id", "changed")
    assert twice[:2] == ["messages[4]", "messages[4]"]
    assert len(twice) == (6 if to == "mistral" else 2)  # its ids have nine characters


@pytest.mark.parametrize("model", ["gemini-3-pro", "models/gemini-3-flash", "gemini-3.1-pro-preview", "gemini-10"])
def test_gemini_3_gets_a_placeholder_signature_for_a_foreign_tool_call(model: str) -> None:
    formatter = ChatFormatter("gemini", model=model)
    payload = formatter.format(*answered_calls("anthropic"), calling(call("c3")), answering(result("c3")))
    formatter.validate(payload)
    # The placeholder is URL-safe base64, which the client accepts and `strictly` does not.
    contents = [sdk("google.genai.types").Content.model_validate(turn) for turn in payload["contents"]]
    wire = [turn.model_dump(mode="json", exclude_none=True) for turn in contents]
    signed = [[part.get("thought_signature") for part in turn["parts"]] for turn in wire if turn["role"] == "model"]
    unsigned = "skip_thought_signature_validator"
    assert signed == [[None, unsigned, None], [unsigned]]


def test_gemini_3_gets_its_own_signatures_back() -> None:
    contents = judged(ChatFormatter("gemini", model="gemini-3-pro"), *answered_calls("gemini"))["contents"]
    assert [part.get("thought_signature") for part in contents[1]["parts"]] == [None, "c2ln", "c2lo", None]


@pytest.mark.parametrize("model", [None, "gemini-2.5-pro", "gemini-1.5-flash", "my-gemini-3"])
def test_older_gemini_models_get_no_placeholder_signature(model: str | None) -> None:
    payload = judged(ChatFormatter("gemini", model=model), HI, calling(call("c1")), answering(result("c1")))
    assert "thought_signature" not in dump(payload)


@pytest.mark.parametrize("to", WITH_TOOLS)
def test_redacted_foreign_reasoning_is_left_out(to: str) -> None:
    opaque = ThinkingBlock(redacted="b3BhcXVl", provider="nobody")
    unknown = ThinkingBlock("§thought§", "c2ln", provider="nobody")
    payload = judged(ChatFormatter(to), HI, calling(opaque, unknown, TextBlock("ok")), BYE)
    assert "b3BhcXVl" not in dump(payload)
    assert len(reported(payload, "thinking")) == (1 if to in TEXT_THINKERS else 2)


@pytest.mark.parametrize("to", WITH_TOOLS)
def test_reasoning_in_a_user_message_is_left_out(to: str) -> None:
    payload = judged(ChatFormatter(to), Msg("Ann", [ThinkingBlock("§thought§", "c2ln"), TextBlock("hi")], "user"))
    assert "§thought§" not in dump(payload)
    assert reported(payload, "thinking") == ["messages[0].content[0]"]


@pytest.mark.parametrize("to", WITH_TOOLS)
def test_reasoning_and_calls_inside_a_tool_result_are_left_out(to: str) -> None:
    inner = result("c1", "§text§", ThinkingBlock("§thought§"), call("c2", q="§call§"), result("c3", "§result§"))
    payload = judged(ChatFormatter(to), HI, calling(call("c1")), answering(inner))
    assert [mark in dump(payload) for mark in ("§text§", "§thought§", "§call§", "§result§")] == [True] + [False] * 3
    for at, kind in enumerate(("thinking", "tool_use", "tool_result"), 1):
        assert reported(payload, kind) == [f"messages[2].content[0].output[{at}]"]
    assert "§result§" in [entry.text for entry in payload.report]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_reasoning_is_never_sent_as_plain_text(provider: str) -> None:
    """One provider got the reasoning as plain text."""
    payload = judged(ChatFormatter(provider), HI, calling(ThinkingBlock("§secret§"), TextBlock("ok")), BYE)
    assert "ok" in "".join(texts(payload))
    assert "§secret§" not in "".join(texts(payload))
    # It is either sent as reasoning or reported.
    assert ("§secret§" in dump(payload)) != bool(reported(payload, "thinking"))
