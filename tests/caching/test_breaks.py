"""Cache breaks of generated conversations, compared with an oracle over tokens that does not use the package."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, takewhile
from typing import Any, ClassVar, NamedTuple

import pytest

from lazyprompt import ChatPrompter
from lazyprompt.caching import PromptCall, rules_for, simulate

INSTRUCTION = {"system": "Answer from:\n{document}\nIt is {clock}.\nBe short.", "user": "Question: {question}"}
SYSTEM = "You help."
PROMPTER = ChatPrompter(INSTRUCTION, system=SYSTEM)
TOKEN = re.compile(r"\s|\w+|[^\w\s]")
KINDS = ("clock", "tools", "trim", "edit", "space", "document")


class Words:
    """A counter whose tokens are words, punctuation marks and single spaces."""

    additive: ClassVar[bool] = True

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        texts = [*(message["content"] for message in messages), *map(json.dumps, tools or ())]
        return len(texts) + sum(map(self.count_text, texts))

    def count_text(self, text: str) -> int:
        return len(TOKEN.findall(text))


class Sent(NamedTuple):
    """A call of a conversation, and the place where it was broken on purpose: message and slot."""

    conversation: str
    values: dict[str, str]
    history: list[dict[str, str]]
    tools: list[dict[str, Any]]
    broken: tuple[int | None, str] | None

    def payload(self) -> dict[str, Any]:
        """What is sent, written by hand."""
        system = INSTRUCTION["system"].format(**self.values)
        asked = INSTRUCTION["user"].format(**self.values)
        messages = [{"role": "system", "content": f"{SYSTEM}\n{system}"}, *self.history]
        return {"messages": [*messages, {"role": "user", "content": asked}], "tools": self.tools}

    def tokens(self) -> list[tuple[object, str]]:
        """The tokens, each with its place: the index of its message, None for tools."""
        payload = self.payload()
        texts: list[tuple[object, str, str]] = [(None, "tool", json.dumps(tool)) for tool in payload["tools"]]
        texts += [(at, each["role"], each["content"]) for at, each in enumerate(payload["messages"])]
        return [(at, token) for at, role, text in texts for token in (f"<{role}>", *TOKEN.findall(text))]


@dataclass
class Conversation:
    """A growing chat in which some calls break the cache."""

    name: str
    random: random.Random
    values: dict[str, str] = field(default_factory=dict[str, str])
    history: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    orders: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])

    def words(self, count: int) -> str:
        return " ".join(f"{self.random.choice('abcdefgh')}{self.random.randrange(9999)}" for _ in range(count))

    def calls(self) -> Iterator[Sent]:
        rng = self.random
        tools = [self.tool(name) for name in ("find", "read", "write")]
        self.orders.append([*tools])
        self.values = {"document": self.words(30), "clock": self.clock(), "question": ""}
        turns = rng.randint(7, 11)
        broken_at = set(rng.sample(range(3, turns), rng.randint(1, 4 if turns < 8 else 5)))
        for turn in range(turns):
            broken = self.broken(tools) if turn in broken_at else None
            self.values["question"] = self.words(6)
            yield Sent(self.name, {**self.values}, [*self.history], [*tools], broken)
            self.history.append({"role": "user", "content": INSTRUCTION["user"].format(**self.values)})
            self.history.append({"role": "assistant", "content": f"{self.words(8)}\n{self.words(4)}"})

    def tool(self, name: str) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
        function = {"name": f"{name}_{self.name}", "description": self.words(4), "parameters": parameters}
        return {"type": "function", "function": function}

    def clock(self) -> str:
        return f"{self.random.randrange(24):02}:{self.random.randrange(60):02}"

    def broken(self, tools: list[dict[str, Any]]) -> tuple[int | None, str]:
        """Break the cache in one way, and return the place."""
        rng = self.random
        kind = rng.choice([each for each in KINDS if each != "trim" or len(self.history) > 4])
        if kind in ("clock", "document"):
            before = self.values[kind]
            changed = {"clock": self.clock(), "document": rng.choice((self.words(30), f"{before} more", before[:-9]))}
            self.values[kind] = changed[kind] if changed[kind] != before else f"{before}!"
            return 0, kind
        if kind == "tools":
            # An order that was sent before would hit the earlier cache entry.
            orders = [order for order in permutations(tools) if [*order] not in self.orders]
            tools[:] = rng.choice(orders)
            self.orders.append([*tools])
            return None, "tools"
        if kind == "trim":
            del self.history[: 2 * rng.randint(1, len(self.history) // 2 - 1)]
            return 1, "history"
        # The last answer has not been sent yet.
        at = rng.randrange(len(self.history) - 1)
        text = self.history[at]["content"]
        cut = rng.choice([found.start() for found in re.finditer(" ", text)])
        changed_text = f"{text[:cut]} {text[cut:]}" if kind == "space" else f"{text[:cut]} edited{text[cut:]}"
        self.history[at] = {**self.history[at], "content": changed_text}
        return at + 1, "history"


def interleave(conversations: Sequence[Conversation], rng: random.Random) -> list[Sent]:
    """The calls of several conversations, in a random order that keeps that of each."""
    queues = [list(each.calls()) for each in conversations]
    calls: list[Sent] = []
    while queues := [queue for queue in queues if queue]:
        calls.append(rng.choice(queues).pop(0))
    return calls


class Seen(NamedTuple):
    """What the oracle finds in a call: the cached tokens, and the message of a break with the lost tokens."""

    read: int
    message: object
    lost: int


def judge(calls: Sequence[Sent], step: int, *, named: bool) -> list[Seen]:
    """Compare each call with all earlier ones, token by token."""
    tokens = [call.tokens() for call in calls]
    found: list[Seen] = []
    for at, call in enumerate(calls):
        best, own_best, compared = 0, -1, -1
        for before in range(at):
            pairs = zip(tokens[before], tokens[at], strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            best = max(best, shared)
            if shared >= own_best and (not named or calls[before].conversation == call.conversation):
                own_best, compared = shared, before
        read = best // step * step
        lost = 0
        if call.history and compared >= 0 and own_best < len(tokens[compared]):
            lost = min(len(tokens[compared]) // step * step, len(tokens[at])) - read
        found.append(Seen(read, tokens[at][own_best][0] if lost > 0 else "none", max(lost, 0)))
    return found


def generate_calls(seed: int, conversations: int) -> list[Sent]:
    rng = random.Random(seed)  # noqa: S311 - conversations keep no secret
    seeds = range(seed * 1000, seed * 1000 + conversations)
    found = [Conversation(f"c{each}", random.Random(each)) for each in seeds]  # noqa: S311 - as above
    return interleave(found, rng)


def check(seed: int, *, named: bool, payloads: bool, step: int) -> None:
    calls = generate_calls(seed, 10)
    rules = replace(rules_for("openai"), least=(), step=step)
    given = [
        PromptCall(
            call.payload() if payloads else PROMPTER,
            None if payloads else call.values,
            None if payloads else call.history,
            None if payloads else call.tools,
            conversation=call.conversation if named else None,
        )
        for call in calls
    ]
    report = simulate(given, rules, Words())
    expected = judge(calls, step, named=named)
    assert [call.read for call in report.calls] == [seen.read for seen in expected]
    assert [call.total for call in report.calls] == [len(call.tokens()) for call in calls]
    breaks = {each.call: each for each in report.breaks}
    assert [*breaks] == [at for at, seen in enumerate(expected) if seen.lost]
    assert [each.message for each in report.breaks] == [expected[at].message for at in breaks]
    if named:
        assert [each.lost for each in report.breaks] == [expected[at].lost for at in breaks]
    if step == 1:
        seeded = {
            at: (place, slot if slot == "tools" or not payloads else "system" if place == 0 else None)
            for at, call in enumerate(calls)
            if call.broken is not None
            for place, slot in [call.broken]
        }
        assert {at: (each.message, each.slot) for at, each in breaks.items()} == seeded


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 16])
@pytest.mark.parametrize("payloads", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_reported_cache_breaks_equal_those_of_the_oracle(*, named: bool, payloads: bool, step: int) -> None:
    check(0, named=named, payloads=payloads, step=step)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 51))
def test_cache_breaks_of_500_conversations_equal_those_of_the_oracle(seed: int) -> None:
    check(seed, named=seed % 2 == 0, payloads=seed % 5 == 0, step=1)
