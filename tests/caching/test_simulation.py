"""The rules of each provider: least length, step and lifetime; and the payloads that are read."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from caching.test_breaks import Words
from lazyprompt import ApproximateTokenCounter, CharTokenCounter, ChatFormatter, ChatPrompter, Rendered
from lazyprompt.caching import RULES, Break, PromptCall, rules_for, simulate
from lazyprompt.errors import FormatError
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import Msg

CHARS = CharTokenCounter()
LONG = [f"head\n{'a' * 40}{sign}{'b' * 200}\nend" for sign in "xy"]
PAIRS = [["Hi", "Ho"], ["a", "b"]]
CHANGED = "An earlier message was changed: send earlier messages as they were, and add new ones at the end."
TRIMMED = "The history was trimmed: trim it rarely and by much, with Budget(policy='cache') and a lower low_water."
LAST = "Keep this text the same in every call, or move the changing part after the history."
MOVED = "Move the slot {!r} after the history, into the user's last message."
MARKED: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "x" * 5000, **mark}]}
    for mark in ({"cache_control": {"type": "ephemeral"}}, {})
]


def message(role: str, length: int, letter: str = "x") -> dict[str, Any]:
    """A message of so many characters."""
    return {"role": role, "content": letter * length}


def chat(*lengths: int) -> list[dict[str, Any]]:
    """A chat whose messages have these lengths: system, user, assistant, user, ..."""
    roles = ["system", *("user", "assistant") * len(lengths)]
    return [message(role, length, role[0]) for role, length in zip(roles, lengths, strict=False)]


def chat_payload(*texts: str) -> dict[str, Any]:
    """The payload of a chat with these texts: user, assistant, user, ..."""
    return {"messages": [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]}


def reads(calls: list[object], rules: str) -> list[int]:
    """The tokens read by each call; a token is a character."""
    return [call.read for call in simulate(calls, rules, CHARS).calls]


def at(model: str, length: int, *times: float) -> list[object]:
    """The same prompt at several times."""
    return [PromptCall({"model": model, "messages": chat(length, 300)}, time=time) for time in times]


@pytest.mark.parametrize(
    ("rules", "calls", "expected"),
    [
        ("openai", [{"messages": chat(*each)} for each in ((1000,), (1000, 30), (1000, 30, 200, 50))], [0, 0, 1024]),
        ("openai", at("gpt-4o", 2500, 0, 200, 1400), [0, 2688, 0]),
        ("openai", at("gpt-5.5", 2500, 0, 1200, 4000), [0, 2048, 0]),
        ("openai", at("gpt-5.6-sol", 2500, 0, 1800, 3600, 5401), [0, 2800, 2800, 0]),
        ("anthropic", at("claude-sonnet-4-5", 3000, 0, 200, 400, 701), [0, 3300, 3300, 0]),
        ("anthropic", at("claude-haiku-4-5", 3000, 0, 200), [0, 0]),
        ("vllm", [{"messages": chat(100)}, {"messages": chat(100)}, {"messages": chat(95)}], [0, 96, 80]),
        ("llama.cpp", ["abcdef", "abcxyz", "abcdef"], [0, 3, 6]),
        *(("llama.cpp", ["abx", "ab\x1d"], [0, 2]), ("deepseek", ["", ""], [0, 0])),
        ("deepseek", [{"messages": [message("system", 500), message("user", 40, each)]} for each in "bc"], [0, 500]),
        # A cache breakpoint is not part of the text.
        ("anthropic", [{"model": "claude-sonnet-5", "messages": [each]} for each in MARKED], [0, 5000]),
        # A lifetime begins again with each use, and calls out of the order of time do not shorten it.
        ("openai", at("gpt-4o", 1700, 0, 200, 400, 701), [0, 1920, 1920, 0]),
        ("openai", at("gpt-4o", 1700, 1000, 900, 1250, 800, 1540), [0, 1920, 1920, 1920, 1920]),
    ],
)
def test_cached_tokens_follow_the_rules_of_the_provider(rules: str, calls: list[object], expected: list[int]) -> None:
    assert reads(calls, rules) == expected


def test_error_for_an_unknown_provider_lists_the_known_providers() -> None:
    known = ", ".join(RULES)
    with pytest.raises(FormatError) as refused:
        simulate([], "antropic", CHARS)
    error = f"no cache rules for 'antropic' (did you mean 'anthropic'?); expected one of {known}, or CacheRules"
    assert str(refused.value) == error


def test_notes_of_a_simulation_cover_each_model() -> None:
    mixed = simulate([*at("gpt-4o", 2500, 0), *at("gpt-5.6", 2500, 1)], "openai", CHARS)
    assert any("5 to 10 minutes" in note for note in mixed.notes)
    assert any("longer than 30 minutes" in note for note in mixed.notes)
    short = "shorter than the shortest text that is cached"
    guess = "the fewest cached tokens of {} are unknown; 4,096 are assumed"
    calls = [{"model": "new", "messages": chat(3000)}, {"messages": chat(4096)}, {"messages": chat(4095)}]
    known = rules_for("anthropic").unknown
    for count, notes in (
        (3, (*known, guess.format("new"), guess.format("an unnamed model"), f"2 calls {short}")),
        (1, (*known, guess.format("new"), f"1 call {short}")),
    ):
        assert simulate(calls[:count], "anthropic", CHARS).notes == notes
    assert simulate(at("claude-opus-5", 512, 0), "anthropic", CHARS).notes == known


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-opus-5-5", 512),
        ("claude-sonnet-5-5", 512),
        ("claude-fable-5-1", 512),
        ("claude-opus-5", 512),
        ("claude-sonnet-5", 1024),
        ("claude-opus-4-8", 1024),
        ("claude-opus-4-7", 2048),
        ("anthropic/claude-opus-4.6", 4096),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", 4096),
        ("claude-opus-4-20250514", 1024),
        ("claude-sonnet-4-6", 1024),
        ("claude-3-5-haiku-20241022", 2048),
        ("claude-3-7-sonnet-latest", 1024),
    ],
)
def test_the_shortest_cached_length_of_each_anthropic_model_is_known(model: str, least: int) -> None:
    rules = rules_for("anthropic")
    assert rules.knows(model)
    assert rules.least_for(model) == least


def test_a_prompter_is_rendered_in_the_format_of_the_provider() -> None:
    prompter = ChatPrompter({"system": "Answer from {document}", "user": "{question}"}, system="")
    values = {"document": "d" * 5000, "question": "Why?"}
    answer = [["Why?", "a" * 2000]]
    calls = [
        PromptCall(prompter, values, model="claude-sonnet-4-5"),
        PromptCall(prompter, values, answer, model="claude-sonnet-4-5"),
        PromptCall(prompter, {**values, "document": "e" * 5000}, answer, model="claude-sonnet-4-5"),
    ]
    report = simulate(calls, "anthropic", CHARS)
    assert [(call.total, call.read) for call in report.calls] == [(5016, 0), (7020, 5016), (7020, 0)]
    assert [(each.slot, each.message, each.lost) for each in report.breaks] == [("document", None, 7020)]


@pytest.mark.parametrize(
    ("texts", "total", "shared"),
    # A separator in a text does not hide the tokens that it shares; a word of which a part is shared is not shared.
    [
        *((("abc", "abc\x1ddef"), 4, 2), (("a bc", "a bd"), 4, 3), (("a b", "a bd"), 4, 3), (("a b", "a b d"), 6, 4)),
        *((("a bd", "a b"), 4, 3), (("a b", "c"), 2, 1), (("a b|c", "a d|c"), 6, 3)),
    ],
)
def test_only_whole_tokens_are_shared(texts: tuple[str, ...], total: int, shared: int) -> None:
    calls = [{"messages": [{"role": "user", "content": each} for each in text.split("|")]} for text in texts]
    report = simulate(calls, replace(rules_for("openai"), least=(), step=1), Words())
    assert report.calls[1] == (total, shared, shared, 0, None)


def test_token_counts_by_the_rules_of_openai_do_not_depend_on_the_model() -> None:
    calls = [PromptCall(ChatPrompter("Help."), "Hi", model=model) for model in (None, "qwen2.5", "a-model-of-ours")]
    assert len({call.total for call in simulate(calls, "openai", CHARS).calls}) == 1


@pytest.mark.parametrize("provider", RULES)
def test_notes_of_a_report_list_the_unknown_rules_of_the_provider(provider: str) -> None:
    report = simulate(["a prompt"], provider, CHARS)
    assert report.rules.date
    assert report.rules.source.startswith("https://")
    assert report.notes[: len(report.rules.unknown)] == report.rules.unknown


def test_a_first_call_or_a_changed_last_question_is_not_a_break() -> None:
    system = message("system", 3000)
    named = [PromptCall({"messages": [system, message("user", 500, letter)]}, conversation=letter) for letter in "abc"]
    unnamed = [{"messages": [system, message("user", 500, letter)]} for letter in "abc"]
    assert simulate(named, "openai", CHARS).breaks == simulate(unnamed, "openai", CHARS).breaks == ()
    calls = [PromptCall(text, conversation=name) for text, name in (("ab one", "a"), ("ab two", "b"), ("ab two!", "a"))]
    report = simulate(calls, "llama.cpp", CHARS)
    assert report.calls == ((6, 0, 0, None, "a"), (6, 3, 0, None, "b"), (7, 6, 3, 0, "a"))


@pytest.mark.parametrize(
    ("calls", "place", "texts", "lost", "advice"),
    [
        (
            [{"model": model, "messages": chat(4, 4)} for model in ("one", "two")],
            (None, "model", 1),
            ("one", "two"),
            8,
            "Send the same model in every call of a conversation.",
        ),
        (
            [{"response_format": {"type": kind}, "messages": chat(4, 4)} for kind in ("text", "json")],
            (None, "response_format", 1),
            ('{"type": "text"}', '{"type": "json"}'),
            14,
            "Send the same response format in every call of a conversation.",
        ),
        (LONG, (None, None, 2), ("a" * 30 + "x" + "b" * 49, "a" * 30 + "y" + "b" * 49), 205, LAST),
        ([chat_payload("aaaa", "b"), chat_payload("xaaa", "b", "c")], (0, None, 1), ("aaaa", "xaaa"), 5, LAST),
        ([chat_payload("aaaa", "b"), chat_payload("aaaa", "c", "d")], (1, None, 1), ("b", "c"), 1, CHANGED),
        ([chat_payload("aaaa", "b", "c"), chat_payload("aaaa", "c", "d")], (1, None, 1), ("b", "c"), 2, TRIMMED),
        (
            [f"One\ntwo{space}x" for space in (" ", "  ")],
            (None, None, 2),
            ("two x", "two  x"),
            1,
            "Only white space differs: write the text the same way in every call.",
        ),
        (
            [f"One\ntwo {date}." for date in ("1/2/26", "1/3/26")],
            (None, None, 2),
            ("two 1/2/26.", "two 1/3/26."),
            5,
            "Pin the date or time for the whole conversation, or put it after the history.",
        ),
        (
            [
                Rendered(["Use ", "x and y"], ["instruction", "a"]),
                Rendered(["Use ", "x", " and ", "z"], ["instruction", "a", "instruction", "b"]),
            ],
            (None, "a", 1),
            ("Use x and y", "Use x and z"),
            1,
            MOVED.format("a"),
        ),
        ([Rendered([text, "x"], ["a", "b"]) for text in "AB"], (None, "a", 1), ("Ax", "Bx"), 2, MOVED.format("a")),
    ],
)
def test_a_break_is_reported_with_its_place_its_texts_and_advice(
    calls: list[object], place: tuple[int | None, str | None, int], texts: tuple[str, str], lost: int, advice: str
) -> None:
    named = [PromptCall(call, conversation="a") for call in calls]
    assert simulate(named, "llama.cpp", CHARS).breaks == (Break(1, *place, *texts, lost, advice),)


@pytest.mark.parametrize(
    ("doc", "asked", "history", "expected"),
    [
        ("two", "Why?", PAIRS, (5, "doc", 1, "Read one.Why?", "Read two.Why?", 8, MOVED.format("doc"))),
        ("one", "Who?", PAIRS, (5, "input", 1, "Read one.Why?", "Read one.Who?", 2, LAST)),
        ("one", "Why?", PAIRS[1:], (1, "history", 1, "Hi", "a", 15, TRIMMED)),
        ("one", "Why?", [["Hi", "Hu"], *PAIRS], (2, "history", 1, "Ho", "Hu", 16, CHANGED)),
    ],
)
def test_a_break_of_a_prompter_names_the_slot(
    doc: str, asked: str, history: list[list[str]], expected: tuple[Any, ...]
) -> None:
    prompter = ChatPrompter({"system": "Be brief.", "user": "Read {doc}."}, system="")
    given = (({"doc": "one", "input": "Why?"}, PAIRS), ({"doc": doc, "input": asked}, history))
    calls = [PromptCall(prompter, *each, conversation="a") for each in given]
    (found,) = simulate(calls, replace(rules_for("openai"), least=(), step=1), CHARS).breaks
    assert found == Break(1, *expected)


def test_secrets_in_the_texts_of_a_break_are_masked() -> None:
    def call(key: str) -> PromptCall:
        asked = {"role": "user", "content": f"key {key} ok"}
        return PromptCall({"messages": [message("system", 50), asked]}, conversation="a")

    keys = ["sk-ant-" + letter * 30 + "1" for letter in "ab"]
    (found,) = simulate(map(call, keys), "llama.cpp", CHARS).breaks
    assert found.before == found.after == "key sk-" + "x" * 35 + " ok"
    # The header of a private key may stand long before what changed.
    keys = ["-----BEGIN PRIVATE KEY-----\n" + "A" * 1200 + letter * 40 for letter in "BC"]
    (found,) = simulate(map(call, keys), "llama.cpp", CHARS).breaks
    assert found.before == found.after == "x" * 70 + " xx"


def test_the_total_of_a_payload_equals_the_count_of_the_token_counter() -> None:
    payload = ChatFormatter("anthropic", cache=("tools", "system")).format(
        [message("system", 40), message("user", 30)],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
    )
    counter = ApproximateTokenCounter()
    (call,) = simulate([payload], "anthropic", counter).calls
    system = {"role": "system", "content": payload["system"]}
    assert call.total == counter.count(
        [system, *payload["messages"]], [{"name": "f", "input_schema": payload["tools"][0]["input_schema"]}]
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_payloads_of_all_providers_are_read(provider: str) -> None:
    """Four calls: one, a longer one, one with another system text, and one with another tool."""
    counter = ApproximateTokenCounter()
    formatter = ChatFormatter(provider)
    tools: list[dict[str, Any]] = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("find", "read")
    ]
    asked = [Msg("system", "You help. " * 90, "system"), Msg("user", "Where is it?", "user")]
    longer = [*asked, Msg("assistant", "In the house.", "assistant"), Msg("user", "Thanks", "user")]
    changed = [Msg("system", "You HELP. " + "You help. " * 89, "system"), *longer[1:]]
    takes_tools = formatter.profile.calls_tools
    given = ((asked, tools), (longer, tools), (changed, tools), (changed, tools[::-1]))
    payloads = [formatter.format(messages, tools=used if takes_tools else None) for messages, used in given]
    calls = [PromptCall(payload, conversation="a") for payload in payloads]
    report = simulate(calls, "vllm", counter)
    assert all(call.total > 220 for call in report.calls)
    assert report.calls[1].read >= 220
    found = [(each.call, each.message, each.slot) for each in report.breaks]
    is_apart = {"system", "system_instruction", "prompt"} & payloads[0].keys()
    in_system = (2, None if is_apart else 0, "system")
    assert found == [in_system, *([(3, None, "tools")] if takes_tools else [])]


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        ({"input": {"messages": [message("user", 7)]}, "parameters": {"seed": 1}}, [7]),
        ({"contents": [{"parts": [{"text": "x" * 9}]}], "config": {"system_instruction": "y" * 5}}, [5, 9]),
        *(({"prompt": "x" * 9}, [9]), ({"prompt": "x" * 9, "system": "y" * 5}, [5, 9])),
        ({"messages": None}, []),
        ({"messages": []}, []),
        ({"messages": [{"role": "assistant", "content": None}]}, [0]),
        ({"input": "x" * 4, "instructions": "y" * 3}, [3, 4]),
    ],
)
def test_payloads_with_client_fields_around_the_messages_are_read(payload: dict[str, Any], texts: list[int]) -> None:
    messages = [{"role": "user", "content": "x" * length} for length in texts]
    (call,) = simulate([payload], "vllm", CHARS).calls
    assert call.total == CHARS.count(messages)


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({"prompt": [1, 2, 3]}, "call 1: message 0 must be an object, not int"),
        ({"messages": "x", "tools": ["find"]}, "call 1: tool 0 must be an object, not str"),
        ({"question": "Hi"}, "call 1: a call must be a payload with one of the keys messages"),
        ({"messages": 7}, "call 1: message 0 must be an object, not int"),
        (3, "call 1: .*, not int"),
    ],
)
def test_error_for_an_invalid_call_names_its_index(payload: object, fault: str) -> None:
    with pytest.raises(FormatError, match=fault):
        simulate(["x", payload], "vllm", CHARS)


@pytest.mark.slow
def test_memory_is_bounded_by_the_number_of_open_conversations() -> None:
    def calls(number: int) -> Iterator[PromptCall]:
        for at in range(number):
            text = f"{at} " + "x" * 20_000
            yield PromptCall({"messages": [{"role": "user", "content": text}]}, time=at * 10.0, conversation=f"{at}")

    def peak(number: int) -> int:
        tracemalloc.start()
        simulate(calls(number), "openai", CHARS)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    # 30 conversations are open at a time, and closed ones are removed after at most 1,000 calls.
    assert peak(4000) < 1.5 * peak(2000)
