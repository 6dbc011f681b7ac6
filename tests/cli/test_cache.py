"""The command ``lazyprompt cache``: its tables, its JSON and its exit statuses."""

import json
import re
from pathlib import Path

import pytest

from cli.helpers import Ran, Run, fault
from lazyprompt.caching import RULES, Break
from lazyprompt.caching.report import CachedCall, CacheReport
from lazyprompt.cli.cache import _PROVIDERS, _report_lines  # _PROVIDERS copies the names: importing RULES is slow


@pytest.fixture(autouse=True)
def _call_log(tmp_path: Path) -> None:
    """Write a log of two chats with two calls each; in the second chat the time in the system text changes."""

    def line(chat: str, clock: str, *texts: str) -> str:
        system = {"role": "system", "content": f"It is {clock}.\n{'s' * 3000}"}
        roles = ("user", "assistant") * len(texts)
        turns = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        return json.dumps({"payload": {"messages": [system, *turns]}, "conversation": chat})

    lines = [
        line("a", "10:00", "u" * 100),
        line("a", "10:00", "u" * 100, "v" * 100, "w" * 100),
        line("b", "10:05", "x" * 100),
        line("b", "10:06", "x" * 100, "y" * 100, "z" * 100),
    ]
    (tmp_path / "calls.jsonl").write_text("\n".join(lines), encoding="utf-8")


def test_table_shows_hit_rate_lost_tokens_and_the_cache_break(run: Run) -> None:
    rules = RULES["openai"]
    same = "s" * 37
    expected = f"""\
openai: 4 calls, 12,852 tokens, 3,072 read from the cache, hit rate 23.9%

SLOT     LOST  BREAKS
system  3,072       1

call 3, message 0, system, line 1: 3,072 tokens lost
  before: It is 10:05. {same}
  after:  It is 10:06. {same}
  Pin the date or time for the whole conversation, or put it after the history.

rules of {rules.date}, from {rules.source}
"""
    notes = "".join(f"note: {each}\n" for each in rules.unknown)
    ran = run("cache", "calls.jsonl", "--provider", "openai", "--counter", "chars")
    assert ran == Ran(0, (expected + notes).encode(), "")


@pytest.mark.parametrize(
    ("number", "rest"),
    [(1, []), (10, []), (11, ["and 1 more (--json lists all)"]), (1011, ["and 1,001 more (--json lists all)"])],
)
def test_table_shows_the_ten_breaks_that_lost_the_most_tokens(number: int, rest: list[str]) -> None:
    breaks = tuple(Break(at, None, None, 2, "a", "b ", at + 1, "Fix it.", at) for at in range(number))
    lines = _report_lines(CacheReport(RULES["vllm"], (CachedCall(9000, 0),), breaks), "approximate")
    expected = [
        line
        for at in reversed(range(max(0, number - 10), number))
        for line in (
            f"call {at}, line 2: {at + 1:,} tokens lost{f', {at:,} signed thinking blocks invalid' if at else ''}",
            "  before: a",
            "  after:  b",
            "  Fix it.",
        )
    ]
    assert lines[0] == "vllm: 1 call, about 9,000 tokens, 0 read from the cache, hit rate 0.0%"
    assert lines[3].split() == ["message", "None", f"{sum(range(number + 1)):,}", f"{number:,}"]
    assert lines[5:-2] == [*expected, *rest]
    assert lines[-2:] == ["", f"rules of {RULES['vllm'].date}, from {RULES['vllm'].source}"]


def test_each_provider_with_cache_rules_is_a_choice_of_the_option() -> None:
    assert [*_PROVIDERS] == [*RULES]


def test_exit_status_is_1_below_the_minimum_hit_rate(run: Run) -> None:
    options = ("cache", "calls.jsonl", "--provider", "openai", "--counter", "chars", "--min-hit-rate")
    assert run(*options, "0.2").status == 0
    assert run(*options, "0.3").status == 1
    Path("once.jsonl").write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n', encoding="utf-8")
    assert run("cache", "once.jsonl", "--provider", "openai", "--min-hit-rate", "0").status == 0


def test_model_option_applies_to_calls_without_a_model(run: Run) -> None:
    call = {"messages": [{"role": "user", "content": "Hi"}]}
    Path("models.jsonl").write_text(f"{json.dumps(call)}\n{json.dumps(call | {'model': 'named'})}\n", encoding="utf-8")
    ran = run("cache", "models.jsonl", "--provider", "anthropic", "--model", "given", "--json")
    assert re.findall(r"cached tokens of (\S+) are unknown", str(ran.json["notes"])) == ["given", "named"]


def test_calls_are_read_from_standard_input(run: Run) -> None:
    ran = run("cache", "-", "--provider", "vllm", stdin=Path("calls.jsonl").read_bytes())
    assert ran.out.decode().startswith("vllm: 4 calls, about ")
    assert fault(run("cache", "-", "--provider", "vllm", stdin=b"\xff")).startswith("FILE: ")


def test_json_has_lost_tokens_by_slot_and_cached_tokens_by_call(run: Run) -> None:
    ran = run("cache", "calls.jsonl", "--provider", "llama.cpp", "--counter", "chars", "--json")
    report = json.loads(ran.out)
    assert report["slots"] == {"system": 3103}
    assert [call["read"] for call in report["calls"]] == [0, 3113, 10, 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.jsonl", "--provider", "openai"), "FILE: none.jsonl: No such file"),
        (("calls.jsonl",), "--provider"),
        (("empty.jsonl", "--provider", "openai"), "FILE: empty.jsonl contains no calls"),
        (("strings.jsonl", "--provider", "openai"), "FILE: call 0: message 0 must be an object, not str"),
    ],
)
def test_usage_error_names_the_option(run: Run, arguments: tuple[str, ...], message: str) -> None:
    Path("empty.jsonl").write_text("\n", encoding="utf-8")
    Path("strings.jsonl").write_text('{"messages": ["Hi"]}\n', encoding="utf-8")
    ran = run("cache", *arguments)
    assert ran.status == 2
    assert message in ran.err
