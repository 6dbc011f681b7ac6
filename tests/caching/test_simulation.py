"""The rules of each provider, one by one: tokens read and written, lifetimes, prices."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from caching.test_breaks import Words
from lazyprompt import ApproximateTokenCounter, CharTokenCounter, ChatFormatter, ChatPrompter, FormatError, Msg
from lazyprompt.caching import RULES, PromptCall, rules_for, simulate
from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

CHARS = CharTokenCounter()


def said(role: str, length: int, letter: str = "x") -> dict[str, Any]:
    """A message of so many characters."""
    return {"role": role, "content": letter * length}


def chat(*lengths: int) -> list[dict[str, Any]]:
    """A chat whose messages have these lengths: system, user, assistant, user, ..."""
    roles = ["system", *("user", "assistant") * len(lengths)]
    return [said(role, length, role[0]) for role, length in zip(roles, lengths, strict=False)]


def marked(text: str, ttl: str | None = None) -> dict[str, Any]:
    """A block with a breakpoint."""
    mark = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return {"type": "text", "text": text, "cache_control": mark}


def counts(calls: list[object], rules: str, **changes: object) -> list[tuple[int, int, int]]:
    """The tokens read, written and uncached of each call; a token is a character."""
    report = simulate(calls, replace(rules_for(rules), **changes), CHARS)  # type: ignore[arg-type]
    return [(call.read, call.written, call.uncached) for call in report.calls]


def test_openai_caches_from_1024_tokens_on_in_steps_of_128() -> None:
    calls: list[object] = [
        {"messages": chat(1000)},
        {"messages": chat(1000, 30)},
        {"messages": chat(1000, 30, 200, 50)},
    ]
    assert counts(calls, "openai") == [(0, 0, 1000), (0, 1024, 6), (1024, 256, 0)]


def asked(*letters: str, marks: bool = False, **fields: Any) -> dict[str, Any]:
    """A payload for GPT-5.6: a system text, and turns of the user with answers between them."""
    system: dict[str, Any] = {"role": "system", "content": "s" * 1500}
    if marks:
        block = {"type": "text", "text": "s" * 1500, "prompt_cache_breakpoint": {"mode": "explicit"}}
        system["content"] = [block]
    turns = [[said("user", 500, each), said("assistant", 300, each)] for each in letters]
    return {"model": "gpt-5.6", "messages": [system, *[each for turn in turns for each in turn][:-1]], **fields}


def test_gpt_5_6_writes_behind_the_newest_message_of_the_user_and_reads_at_earlier_ones() -> None:
    calls: list[object] = [asked("a"), asked("a", "b"), asked("c"), asked("a", "d")]
    assert counts(calls, "openai") == [(0, 2000, 0), (2000, 800, 0), (0, 2000, 0), (2000, 800, 0)]
    assert counts([asked("a", marks=True), asked("c", marks=True)], "openai") == [(0, 2000, 0), (1500, 500, 0)]


def test_gpt_5_6_caches_marked_blocks_alone_where_the_payload_says_so() -> None:
    explicit: dict[str, Any] = {"prompt_cache_options": {"mode": "explicit"}}
    calls: list[object] = [asked("a", marks=True, **explicit), asked("a", "b", marks=True, **explicit)]
    assert counts(calls, "openai") == [(0, 1500, 500), (1500, 0, 1300)]
    assert counts([asked("a", **explicit)], "openai") == [(0, 0, 2000)]


def test_models_of_openai_have_their_own_steps_lifetimes_and_prices() -> None:
    def at(model: str, *times: float) -> list[object]:
        return [PromptCall({"model": model, "messages": chat(2500, 300)}, time=time) for time in times]

    assert [read for read, *_ in counts(at("gpt-5.5", 0, 1200, 4000), "openai")] == [0, 2048, 0]
    assert [read for read, *_ in counts(at("gpt-5.6-sol", 0, 1800, 3600, 5401), "openai")] == [0, 2800, 2800, 0]
    assert [read for read, *_ in counts(at("gpt-4o", 0, 200, 1400), "openai")] == [0, 2688, 0]
    report = simulate(at("gpt-5.6-sol", 0, 60), "openai", CHARS, {"gpt-5.6-sol": {"input": 4.0}})
    assert report.cost == pytest.approx(2800 * 4.0 * (1.25 + 0.1) / 1e6)
    mixed = simulate([*at("gpt-4o", 0), *at("gpt-5.6", 1)], "openai", CHARS)
    assert any("5 to 10 minutes" in note for note in mixed.notes)
    assert any("longer than 30 minutes" in note for note in mixed.notes)


@pytest.mark.parametrize(
    ("model", "least", "read_price"),
    [
        ("claude-opus-5-5", 512, 0.05),
        ("claude-sonnet-5-5", 512, 0.05),
        ("claude-fable-5-1", 512, 0.025),
        ("claude-opus-5", 512, 0.1),
        ("claude-sonnet-5", 1024, 0.1),
        ("claude-opus-4-8", 1024, 0.1),
        ("claude-opus-4-7", 2048, 0.1),
        ("anthropic/claude-opus-4.6", 4096, 0.1),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", 4096, 0.1),
        ("claude-opus-4-20250514", 1024, 0.1),
        ("claude-sonnet-4-6", 1024, 0.1),
        ("claude-3-5-haiku-20241022", 2048, 0.1),
        ("claude-3-7-sonnet-latest", 1024, 0.1),
    ],
)
def test_least_lengths_and_prices_of_models_of_anthropic(model: str, least: int, read_price: float) -> None:
    rules = rules_for("anthropic")
    assert rules.knows(model)
    assert (rules.least_for(model), rules.read_price_for(model)) == (least, read_price)


def test_consecutive_results_of_tools_count_as_one_block() -> None:
    def payload(kind: str, *, marked_last: bool) -> dict[str, Any]:
        more = [{"type": kind, "tool_use_id": f"{at}", "text": "r"} for at in range(30)]
        last = marked("?") if marked_last else {"type": "text", "text": "?"}
        content = [{"type": "text", "text": "x" * 2000}, *more, last]
        return {"model": "claude-sonnet-5", "messages": [{"role": "user", "content": content}]}

    def first(kind: str) -> dict[str, Any]:
        given = payload(kind, marked_last=False)
        given["messages"][0]["content"] = [marked("x" * 2000)]
        return given

    for kind, is_found in (("tool_result", True), ("text", False)):
        _, (read, *_) = counts([first(kind), payload(kind, marked_last=True)], "anthropic")
        assert (read == 2000) is is_found


def test_vllm_caches_blocks_and_computes_the_last_token_again() -> None:
    calls: list[object] = [
        {"messages": chat(100)},
        {"messages": chat(100)},
        {"messages": chat(96)},
        {"messages": chat(96)},
    ]
    assert counts(calls, "vllm") == [(0, 96, 4), (96, 0, 4), (80, 16, 0), (80, 16, 0)]


def test_llama_cpp_reads_up_to_the_first_differing_token() -> None:
    assert counts(["abcdef", "abcxyz", "abcdef"], "llama.cpp") == [(0, 6, 0), (3, 3, 0), (5, 1, 0)]


def test_a_reply_is_in_the_cache_of_servers_that_keep_it() -> None:
    first = PromptCall({"messages": chat(10, 10)}, reply="a" * 30)
    second = {"messages": chat(10, 10, 30, 5)}
    assert counts([first, second], "llama.cpp")[1] == (50, 5, 0)
    assert counts([first, second], "openai", least=(), step=1)[1] == (20, 35, 0)


def test_deepseek_reads_whole_units_and_makes_one_of_a_shared_beginning() -> None:
    """Its guide: A+B, then A+C reads nothing, and then A+D reads A."""
    calls: list[object] = [{"messages": [said("system", 500), said("user", 40, letter)]} for letter in "bcd"]
    assert counts(calls, "deepseek") == [(0, 540, 0), (0, 540, 0), (500, 40, 0)]


def test_deepseek_has_a_unit_behind_the_reply_too() -> None:
    first = PromptCall({"messages": chat(10, 10)}, reply="a" * 30)
    longer: list[object] = [first, {"messages": chat(10, 10, 30, 5)}]
    assert counts(longer, "deepseek") == [(0, 20, 0), (50, 5, 0)]
    assert counts([first, {"messages": chat(10, 10, 20, 5)}], "deepseek") == [(0, 20, 0), (20, 25, 0)]


def anthropic(*marks: int, length: int) -> dict[str, Any]:
    """A payload of blocks of 100 characters, some with breakpoints."""
    blocks = [marked("x" * 100) if at in marks else {"type": "text", "text": "x" * 100} for at in range(length)]
    return {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": blocks}]}


def test_anthropic_reads_what_ended_at_an_earlier_breakpoint() -> None:
    calls: list[object] = [anthropic(11, length=13), anthropic(11, length=20), anthropic(11, 19, length=21)]
    assert counts(calls, "anthropic") == [(0, 1200, 100), (1200, 0, 800), (1200, 800, 100)]


def test_anthropic_looks_back_20_blocks_from_a_breakpoint() -> None:
    first = anthropic(11, length=12)
    assert counts([first, anthropic(30, length=31)], "anthropic")[1] == (1200, 1900, 0)
    assert counts([first, anthropic(31, length=32)], "anthropic")[1] == (0, 3200, 0)


def test_anthropic_caches_nothing_below_the_least_length_of_the_model() -> None:
    call = anthropic(29, length=30)
    assert counts([call], "anthropic") == [(0, 3000, 0)]
    assert counts([{**call, "model": "claude-haiku-4-5"}], "anthropic") == [(0, 0, 3000)]
    notes = simulate([{**call, "model": "new"}], "anthropic", CHARS).notes
    assert "4,096 are assumed" in notes[0]
    assert notes[1] == "1 call shorter than the shortest text that is cached"
    (note,) = simulate([anthropic(length=30)] * 2, "anthropic", CHARS).notes
    assert note.startswith("2 calls without a breakpoint, so that nothing is cached")


def test_automatic_caching_of_anthropic_marks_the_last_block() -> None:
    call = {**anthropic(length=30), "cache_control": {"type": "ephemeral"}}
    assert counts([call, call], "anthropic") == [(0, 3000, 0), (3000, 0, 0)]


def test_a_lifetime_begins_again_with_each_use() -> None:
    def at(*times: float) -> list[object]:
        return [PromptCall({"messages": chat(2000)}, time=time) for time in times]

    def marks_at(ttl: str, *times: float) -> list[object]:
        payload = {"messages": [{"role": "user", "content": [marked("x" * 5000, ttl)]}]}
        return [PromptCall(payload, time=time) for time in times]

    assert [read for read, *_ in counts(at(0, 200, 400, 701), "openai")] == [0, 1920, 1920, 0]
    assert [read for read, *_ in counts(marks_at("5m", 0, 200, 400, 701), "anthropic")] == [0, 5000, 5000, 0]
    assert [read for read, *_ in counts(marks_at("1h", 0, 3000, 6000, 9601), "anthropic")] == [0, 5000, 5000, 0]


def test_prices_of_writes_and_reads_are_parts_of_the_price_of_input() -> None:
    blocks = [marked("x" * 2000, "1h"), marked("x" * 3000), {"type": "text", "text": "x" * 1000}]
    payload = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": blocks}]}
    report = simulate([payload, payload], "anthropic", CHARS, {"input": 3.0})
    assert report.cost_without == pytest.approx(2 * 6000 * 3.0 / 1e6)
    first = 2000 * 2.0 + 3000 * 1.25 + 1000
    assert report.cost == pytest.approx((first + 5000 * 0.1 + 1000) * 3.0 / 1e6)


def test_prices_may_be_given_by_model_and_wrong_ones_are_refused() -> None:
    payload = {"model": "gpt-x", "messages": chat(2048)}
    report = simulate([payload, payload], "openai", CHARS, {"gpt-x": {"input": 2.0, "read": 0.5}})
    assert report.cost == pytest.approx((2048 * 2.0 + 2048 * 0.5) / 1e6)
    for wrong in ({"input": 2.0}, {"read": 1.0}, {"other": {"input": 2.0, "read": 1.0}}, {"input": "2", "read": 1.0}):
        with pytest.raises(FormatError, match="price"):
            simulate([payload], "openai", CHARS, wrong)  # type: ignore[arg-type]


def test_what_is_unknown_is_said() -> None:
    for name in RULES:
        report = simulate(["a prompt"], name, CHARS)
        assert report.rules.date
        assert report.rules.source.startswith("https://")
        assert report.notes[: len(report.rules.unknown)] == report.rules.unknown
    with pytest.raises(FormatError, match="did you mean 'openai'"):
        simulate([], "opennai", CHARS)
    with pytest.raises(FormatError, match="not a int"):
        simulate([3], "openai", CHARS)


def test_a_first_call_is_no_break_and_neither_is_another_last_question() -> None:
    system = said("system", 3000)
    named = [PromptCall({"messages": [system, said("user", 500, letter)]}, conversation=letter) for letter in "abc"]
    unnamed = [{"messages": [system, said("user", 500, letter)]} for letter in "abc"]
    assert simulate(named, "openai", CHARS).breaks == simulate(unnamed, "openai", CHARS).breaks == ()


def test_secrets_are_masked() -> None:
    def call(key: str) -> PromptCall:
        return PromptCall(
            {"messages": [said("system", 50), {"role": "user", "content": f"key {key} ok"}]}, conversation="a"
        )

    keys = ["sk-ant-" + letter * 30 + "1" for letter in "ab"]
    (found,) = simulate(map(call, keys), "llama.cpp", CHARS).breaks
    assert found.before == found.after == "key sk-" + "x" * 35 + " ok"


def test_a_prompter_gets_the_breakpoints_of_the_rules() -> None:
    prompter = ChatPrompter({"system": "Answer from {document}", "user": "{question}"}, system="")
    values = {"document": "d" * 5000, "question": "Why?"}
    answer = [["Why?", "a" * 2000]]
    calls = [
        PromptCall(prompter, values, model="claude-sonnet-4-5"),
        PromptCall(prompter, values, answer, model="claude-sonnet-4-5"),
        PromptCall(prompter, {**values, "document": "e" * 5000}, answer, model="claude-sonnet-4-5"),
    ]
    report = simulate(calls, "anthropic", CHARS)
    assert [(call.read, call.written) for call in report.calls] == [(0, 5012), (5012, 2004), (0, 7016)]
    assert [(each.slot, each.message, each.lost) for each in report.breaks] == [("document", None, 7016)]


def test_a_break_behind_a_shared_beginning_asks_for_a_breakpoint_before_it() -> None:
    def payload(document: str) -> dict[str, Any]:
        return {
            "system": [{"type": "text", "text": "s" * 5000}, marked(document * 1000)],
            "messages": chat(1, 9, 9)[1:],
        }

    calls = [PromptCall(payload(letter), conversation="a", model="claude-sonnet-4-5") for letter in "ab"]
    (found,) = simulate(calls, "anthropic", CHARS).breaks
    assert (found.message, found.slot, found.lost) == (None, "system", 6000)
    assert "Put a breakpoint before the change: 5,000 shared tokens were not read." in found.advice


def test_flat_prompts_tell_their_slots() -> None:
    prompter = ChatPrompter("Facts:\n{facts}\nDone.", system="")
    history = [["hi", "ho"]]
    rendered = [prompter.render({"facts": facts, "input": "?"}, history) for facts in ("a b c", "a b c d")]
    (found,) = simulate(rendered, "llama.cpp", Words()).breaks
    assert (found.message, found.slot, found.line) == (None, "facts", 2)
    assert found.before.startswith("a b c\nDone.")
    assert found.after.startswith("a b c d\nDone.")


def test_counts_of_a_payload_are_the_counters_own() -> None:
    payload = ChatFormatter("anthropic", cache=("tools", "system")).format(
        [said("system", 40), said("user", 30)],
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
    in_system = (2, None, "system") if "messages" not in payloads[0] or "system" in payloads[0] else (2, 0, None)
    assert found == [in_system, *([(3, None, "tools")] if takes_tools else [])]


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        ({"input": {"messages": [said("user", 7)]}, "parameters": {"seed": 1}}, [7]),
        ({"contents": [{"parts": [{"text": "x" * 9}]}], "config": {"system_instruction": "y" * 5}}, [5, 9]),
        ({"prompt": "x" * 9, "system": "y" * 5}, [5, 9]),
        ({"messages": None}, []),
        ({"messages": []}, []),
        ({"messages": [{"role": "assistant", "content": None}]}, [0]),
        ({"input": "x" * 4, "instructions": "y" * 3}, [3, 4]),
    ],
)
def test_what_clients_and_interfaces_put_around_messages_is_read(payload: dict[str, Any], texts: list[int]) -> None:
    messages = [{"role": "user", "content": "x" * length} for length in texts]
    (call,) = simulate([payload], "vllm", CHARS).calls
    assert call.total == CHARS.count(messages)


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({"prompt": [1, 2, 3]}, "call 1: message 0 is a int, not an object"),
        ({"messages": "x", "tools": ["find"]}, "call 1: tool 0 is a str, not an object"),
        ({"question": "Hi"}, "call 1: a call is a payload with one of messages"),
        ({"messages": 7}, "call 1: message 0 is a int"),
    ],
)
def test_what_is_no_call_is_an_error_with_its_index(payload: dict[str, Any], fault: str) -> None:
    with pytest.raises(FormatError, match=fault):
        simulate(["x", payload], "vllm", CHARS)


def test_calls_out_of_the_order_of_time_do_not_shorten_a_lifetime() -> None:
    calls: list[object] = [PromptCall({"messages": chat(2000)}, time=time) for time in (1000, 900, 1250, 800, 1540)]
    assert [read for read, *_ in counts(calls, "openai")] == [0, 1920, 1920, 1920, 1920]
    payload = {"model": "claude-sonnet-5", "messages": [{"role": "user", "content": [marked("x" * 5000)]}]}
    again = [PromptCall(payload, time=time) for time in (1000, 900, 1250)]
    assert [read for read, *_ in counts([*again], "anthropic")] == [0, 5000, 5000]


@pytest.mark.slow
def test_memory_is_bounded_by_the_conversations_that_are_open() -> None:
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

    # 30 conversations are open at a time, and what is closed is forgotten after at most 1,000 calls.
    assert peak(4000) < 1.5 * peak(2000)
