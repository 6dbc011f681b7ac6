"""Conversations and counters to try budgets with, and what a budget should do, written the slow and plain way."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from lazyprompt import ApproximateTokenCounter, Budget, CharTokenCounter, TiktokenCounter, TokenCounter, messages_from
from lazyprompt.messages.msg import Msg
from support.vocabularies import O200K, vocabulary_folder

Form = dict[str, Any]
WORDS = st.text("ab 你\n.", min_size=1, max_size=40)


CHARS = CharTokenCounter()


def exactly(*args: Any, **settings: Any) -> Budget:
    """A budget that lets no more go than must."""
    return Budget(*args, **{"low_water": 1, **settings})


def msg(role: str, text: Any, **fields: Any) -> Form:
    """A message in the OpenAI form."""
    return {"role": role, "content": text, **fields}


def talk(count: int, length: int = 10) -> list[Form]:
    """Messages of the user and the assistant in turn, numbered, each of so many signs."""
    return [msg("assistant" if at % 2 else "user", f"{at:03}".ljust(length, "x")) for at in range(count)]


class Json:
    """Counts the signs of all as JSON: more than the sum of the messages', for the signs between them."""

    def count(self, messages: Sequence[Any], tools: object = None) -> int:
        return len(json.dumps([*messages], ensure_ascii=False)) + (len(json.dumps(tools)) if tools else 0)

    def count_text(self, text: str) -> int:
        return len(text)


class Quarters:
    """Counts whole quarters of all signs: less than the sum of the messages'."""

    def count(self, messages: Sequence[Any], tools: object = None) -> int:
        return CharTokenCounter().count(messages) // 4 + (len(json.dumps(tools)) if tools else 0)

    def count_text(self, text: str) -> int:
        return len(text) // 4


class Roles(CharTokenCounter):
    """Counts the roles of messages, too."""

    def count(self, messages: Sequence[Any], tools: Any = None) -> int:
        return super().count(messages, tools) + sum(len(each.get("role", "")) for each in messages)


class Greedy(CharTokenCounter):
    """Counts much for nothing at all."""

    def count(self, messages: Sequence[Any], tools: Any = None) -> int:
        return 500 + super().count(messages, tools)


class Square:
    """Grows faster than what it counts, and knows no empty list."""

    def count(self, messages: Sequence[Any], tools: object = None) -> int:
        if not messages:
            raise IndexError("no message")
        return (CharTokenCounter().count(messages) + (len(json.dumps(tools)) if tools else 0)) ** 2 // 100

    def count_text(self, text: str) -> int:
        return len(text)


def _tiktoken() -> TokenCounter:
    return TiktokenCounter("o200k_base", vocabulary_folder(O200K) / O200K)


COUNTERS: dict[str, Callable[[], TokenCounter]] = {
    "tiktoken": _tiktoken,
    "approximate": ApproximateTokenCounter,
    "characters": CharTokenCounter,
    "json": Json,
    "quarters": Quarters,
    "greedy": Greedy,
    "square": Square,
}


def function_call(call_id: str = "1") -> Form:
    """A call of the function ``f``, as in an OpenAI message."""
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


@st.composite
def conversations(draw: st.DrawFn, *, ids: int = 1_000) -> list[Form]:
    """A conversation in OpenAI dicts: each call has its results, sometimes with a message between them.

    Ids are used again after so many, as some providers do.
    """
    messages: list[Form] = []
    if draw(st.booleans()):
        messages.append({"role": draw(st.sampled_from(["system", "developer"])), "content": draw(WORDS)})
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "assistant", "exchange", "talk"]))
        if kind == "exchange":
            calls = [f"c{(number * 3 + at) % ids}" for at in range(draw(st.integers(1, 3)))]
            messages.append(msg("assistant", None, tool_calls=[function_call(each) for each in calls]))
            results = [{"role": "tool", "tool_call_id": each, "content": draw(WORDS)} for each in calls]
            between = draw(st.integers(0, len(results)))
            if draw(st.booleans()):
                results.insert(between, {"role": "user", "content": draw(WORDS)})
            messages += results
        elif kind == "talk":
            messages += [{"role": "user", "content": draw(WORDS)}, {"role": "assistant", "content": draw(WORDS)}]
        else:
            messages.append({"role": kind, "content": draw(WORDS)})
    return messages


def msgs(messages: list[Form]) -> list[Msg]:
    return messages_from(messages)


def units(messages: Sequence[Form]) -> list[list[int]]:
    """Which messages go together, found by looking for each result's call."""
    found: list[list[int]] = []
    unit_of: dict[int, list[int]] = {}
    taken: set[tuple[int, str]] = set()
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            wanted = message["tool_call_id"]
            for place in range(at):
                ids = [call["id"] for call in messages[place].get("tool_calls", ())]
                if wanted in ids and (place, wanted) not in taken:
                    taken.add((place, wanted))
                    unit_of[place].append(at)
                    break
            continue
        unit_of[at] = [at]
        found.append(unit_of[at])
    return found


def protected_indices(messages: Sequence[Form]) -> set[int]:
    """What never goes: system text, and the newest turn of the user (or what was said last, where there is none)."""
    kept = {at for at, message in enumerate(messages) if message["role"] in ("system", "developer")}
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    last = units(messages)[-1] if messages else []
    return kept | ({users[-1]} if users else set(last))


def brute(
    messages: list[Form], order: list[list[int]], count: Callable[[list[Form]], int], limit: int
) -> list[Form] | None:
    """The messages without the fewest units of an order; `None` where even without all they do not fit."""
    for gone in range(len(order) + 1):
        lost = {at for unit in order[:gone] for at in unit}
        left = [message for at, message in enumerate(messages) if at not in lost]
        if count(left) <= limit:
            return left
    return None
