"""Breakpoints of Anthropic and OpenAI in random conversations, judged by an oracle that keeps a dict of prefixes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt import CharTokenCounter
from lazyprompt.caching import PromptCall, simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

Texts = list[tuple[str, str]]


class Oracle:
    """A cache of whole prefixes, each with the time until which it lives."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.until: dict[tuple[tuple[str, str], ...], float] = {}

    def seen(self, texts: Texts, looked_at: Iterable[int], marks: dict[int, float], now: float) -> tuple[int, int, int]:
        """Return the characters read, written and uncached; marks are the ends of prefixes, with their lifetimes."""

        def length(end: int) -> int:
            return sum(len(text) for _, text in texts[:end])

        def keep(end: int, lifetime: float) -> None:
            prefix = tuple(texts[:end])
            self.until[prefix] = max(self.until.get(prefix, 0), now + lifetime)

        hit = max((end for end in looked_at if self.until.get(tuple(texts[:end]), -1) >= now), default=0)
        if hit:
            keep(hit, next((marks[end] for end in sorted(marks) if end >= hit), max(marks.values(), default=0)))
        read = last = length(hit)
        for end in sorted(marks):
            if length(end) >= self.least:
                keep(end, marks[end])
                last = max(last, length(end))
        return read, last - read, length(len(texts)) - last


def grown(rng: Random, texts: Texts, roles: tuple[str, ...]) -> Texts:
    """Let a conversation grow, and change or trim it now and then."""
    for _ in range(rng.choice([1, 2, 3, 15, 25])):
        texts.append((rng.choice(roles), rng.choice("xyz") * rng.choice([40, 100, 300])))
    if rng.random() < 0.2:
        at = rng.randrange(len(texts))
        texts[at] = texts[at][0], "q" * 50
    if rng.random() > 0.9:
        del texts[1 : len(texts) // 2 + 1]
    return texts


def block(text: str, mark: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "text", "text": text, **(mark or {})}


def check(calls: list[PromptCall], rules: str, expected: list[tuple[int, int, int]]) -> None:
    found = simulate(calls, rules, CharTokenCounter()).calls
    assert [(call.read, call.written, call.uncached) for call in found] == expected


@pytest.mark.parametrize("seed", range(40))
def test_anthropic_reads_and_writes_what_an_oracle_does(seed: int) -> None:
    rng, now, oracle = Random(seed), 0, Oracle(512)  # noqa: S311 - texts keep no secret
    chats: dict[str, Texts] = {}
    calls: list[PromptCall] = []
    expected: list[tuple[int, int, int]] = []
    lifetimes = {"5m": 300, "1h": 3600}
    for _ in range(rng.randint(5, 25)):
        now += rng.choice([1, 30, 200, 290, 310, 1000, 3500])
        texts = grown(rng, chats.setdefault(rng.choice("ab"), []), ("user",))
        places = sorted(rng.sample(range(len(texts)), min(len(texts), rng.randint(0, 4))))
        ttls = dict(zip(places, sorted(rng.choice(["1h", "5m"]) for _ in places), strict=True))
        marks = {at: {"cache_control": {"type": "ephemeral", "ttl": ttl}} for at, ttl in ttls.items()}
        content = [block(text, marks.get(at)) for at, (_, text) in enumerate(texts)]
        payload = {"model": "claude-opus-5", "messages": [{"role": "user", "content": content}]}
        calls.append(PromptCall(payload, time=now))
        looked_at = {end for at in places for end in range(at + 1, max(at + 1 - 20, 0), -1)}
        expected.append(oracle.seen(texts, looked_at, {at + 1: lifetimes[ttl] for at, ttl in ttls.items()}, now))
    check(calls, "anthropic", expected)


@pytest.mark.parametrize("seed", range(40))
def test_gpt_6_reads_and_writes_what_an_oracle_does(seed: int) -> None:
    rng, now, oracle = Random(seed), 0, Oracle(1024)  # noqa: S311 - as above
    chats: dict[str, Texts] = {}
    calls: list[PromptCall] = []
    expected: list[tuple[int, int, int]] = []
    for _ in range(rng.randint(5, 25)):
        now += rng.choice([1, 300, 1700, 1900])
        system = [("system", "s" * rng.choice([300, 900]))]
        texts = grown(rng, chats.setdefault(rng.choice("ab"), system), ("user", "assistant"))
        places = sorted(rng.sample(range(len(texts)), min(len(texts), rng.choice([0, 0, 1, 2]))))
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
        messages = [
            {"role": role, "content": [block(text, mark)] if at in places else text}
            for at, (role, text) in enumerate(texts)
        ]
        is_explicit = rng.random() < 0.2
        options = {"prompt_cache_options": {"mode": "explicit"}} if is_explicit else {}
        calls.append(PromptCall({"model": "gpt-6-sol", "messages": messages, **options}, time=now))
        marks = {at + 1 for at in places}
        looked_at = {*marks}
        if not is_explicit:
            ends = [1, *(at + 1 for at, (role, _) in enumerate(texts) if role == "user")]
            looked_at |= {1, *ends[-21:]}
            marks.add(ends[-1])
        expected.append(oracle.seen(texts, looked_at, dict.fromkeys(marks, 1800), now))
    check(calls, "openai", expected)
