"""The command ``lazyprompt cache``: its tables, its JSON and its exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.helpers import Ran

    Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chats of two calls each; in the second one the time of the system text changes."""
    monkeypatch.chdir(tmp_path)

    def line(chat: str, clock: str, *said: str) -> str:
        system = {"role": "system", "content": f"It is {clock}.\n{'s' * 3000}"}
        roles = ("user", "assistant") * len(said)
        turns = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
        return json.dumps({"payload": {"messages": [system, *turns]}, "conversation": chat})

    lines = [
        line("a", "10:00", "u" * 100),
        line("a", "10:00", "u" * 100, "v" * 100, "w" * 100),
        line("b", "10:05", "x" * 100),
        line("b", "10:06", "x" * 100, "y" * 100, "z" * 100),
    ]
    Path("calls.jsonl").write_text("\n".join(lines), encoding="utf-8")


def test_the_table(run: Run) -> None:
    ran = run("cache", "calls.jsonl", "--provider", "openai", "--counter", "chars")
    assert ran.status == 0
    lines = ran.out.decode().splitlines()
    assert lines[0] == "openai: 4 calls, 12,852 tokens, 3,072 read from the cache, hit rate 23.9%"
    assert "SLOT     LOST  BREAKS" in lines
    at = lines.index("call 3, message 0, system, line 1: 3,072 tokens lost")
    assert lines[at + 1].startswith("  before: It is 10:05. sss")
    assert lines[at + 2].startswith("  after:  It is 10:06. sss")
    assert lines[at + 3].startswith("  Pin the date or time")


def test_the_exit_status_is_1_below_the_limit(run: Run) -> None:
    options = ("cache", "calls.jsonl", "--provider", "openai", "--counter", "chars", "--min-hit-rate")
    assert run(*options, "0.2").status == 0
    assert run(*options, "0.3").status == 1


def test_the_standard_input(run: Run) -> None:
    ran = run("cache", "-", "--provider", "vllm", stdin=Path("calls.jsonl").read_bytes())
    assert ran.out.decode().startswith("vllm: 4 calls, about ")


def test_json(run: Run) -> None:
    ran = run("cache", "calls.jsonl", "--provider", "llama.cpp", "--counter", "chars", "--json")
    report = json.loads(ran.out)
    assert report["slots"] == {"system": 3103}
    assert [call["read"] for call in report["calls"]] == [0, 3113, 10, 10]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("none.jsonl", "--provider", "openai"), "FILE: none.jsonl: No such file"),
        (("calls.jsonl",), "--provider"),
        (("empty.jsonl", "--provider", "openai"), "FILE: empty.jsonl contains no calls"),
        (("strings.jsonl", "--provider", "openai"), "FILE: call 0: message 0 must be an object, not str"),
    ],
)
def test_wrong_use_names_the_option(run: Run, arguments: tuple[str, ...], fault: str) -> None:
    Path("empty.jsonl").write_text("\n", encoding="utf-8")
    Path("strings.jsonl").write_text('{"messages": ["Hi"]}\n', encoding="utf-8")
    ran = run("cache", *arguments)
    assert ran.status == 2
    assert fault in ran.err
