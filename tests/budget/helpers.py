"""Conversations and token counters for tests of budgets, and a slow, simple implementation of budgets."""

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
    """A budget that drops no more than necessary: its ``low_water`` is 1."""
    return Budget(*args, **{"low_water": 1, **settings})


def msg(role: str, text: Any, **fields: Any) -> Form:
    """A message in the OpenAI format."""
    return {"role": role, "content": text, **fields}


def chat(count: int, length: int = 10) -> list[Form]:
    """Alternating, numbered messages of user and assistant, each of ``length`` characters."""
    return [msg("assistant" if at % 2 else "user", f"{at:03}".ljust(length, "x")) for at in range(count)]


class Json:
    """Counts the characters of the JSON list: more than the sum of the messages, due to separators."""

    def count(self, messages: Sequence[Any], tools: object = None) -> int:
        return len(json.dumps([*messages], ensure_ascii=False)) + (len(json.dumps(tools)) if tools else 0)

    def count_text(self, text: str) -> int:
        return len(text)


class Quarters:
    """Counts four characters as one token, rounded down."""

    def count(self, messages: Sequence[Any], tools: object = None) -> int:
        return CharTokenCounter().count(messages) // 4 + (len(json.dumps(tools)) if tools else 0)

    def count_text(self, text: str) -> int:
        return len(text) // 4


class Roles(CharTokenCounter):
    """Counts the characters of roles, too."""

    def count(self, messages: Sequence[Any], tools: Any = None) -> int:
        return super().count(messages, tools) + sum(len(each.get("role", "")) for each in messages)


class Greedy(CharTokenCounter):
    """Adds a large fixed count."""

    def count(self, messages: Sequence[Any], tools: Any = None) -> int:
        return 500 + super().count(messages, tools)


class Square:
    """Grows with the square of the length, and fails for an empty list."""

    def count(self, messages: Sequence[Any], tools: object = None) -> int:
        if not messages:
            raise IndexError("no message")
        return (CharTokenCounter().count(messages) + (len(json.dumps(tools)) if tools else 0)) ** 2 // 100

    def count_text(self, text: str) -> int:
        return len(text)


COUNTERS: dict[str, Callable[[], TokenCounter]] = {
    "tiktoken": lambda: TiktokenCounter("o200k_base", vocabulary_folder(O200K) / O200K),
    "approximate": ApproximateTokenCounter,
    "characters": CharTokenCounter,
    "json": Json,
    "quarters": Quarters,
    "greedy": Greedy,
    "square": Square,
}


def function_call(call_id: str = "1") -> Form:
    """A tool call of the function ``f``, as in an OpenAI message."""
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


@st.composite
def conversations(draw: st.DrawFn, *, ids: int = 1_000) -> list[Form]:
    """A conversation in OpenAI dicts: each call has its results, sometimes with a message between them.

    Ids are repeated after the given number, as by some providers.
    """
    messages: list[Form] = []
    if draw(st.booleans()):
        messages.append({"role": draw(st.sampled_from(["system", "developer"])), "content": draw(WORDS)})
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "assistant", "exchange", "chat"]))
        if kind == "exchange":
            calls = [f"c{(number * 3 + at) % ids}" for at in range(draw(st.integers(1, 3)))]
            messages.append(msg("assistant", None, tool_calls=[function_call(each) for each in calls]))
            results = [{"role": "tool", "tool_call_id": each, "content": draw(WORDS)} for each in calls]
            between = draw(st.integers(0, len(results)))
            if draw(st.booleans()):
                results.insert(between, {"role": "user", "content": draw(WORDS)})
            messages += results
        elif kind == "chat":
            messages += [{"role": "user", "content": draw(WORDS)}, {"role": "assistant", "content": draw(WORDS)}]
        else:
            messages.append({"role": kind, "content": draw(WORDS)})
    return messages


def msgs(messages: list[Form]) -> list[Msg]:
    return messages_from(messages)


def units(messages: Sequence[Form]) -> list[list[int]]:
    """The indices of messages that belong together: calls and their results."""
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
    """Indices that are never dropped: system text, and the newest user turn (or else the last unit)."""
    kept = {at for at, message in enumerate(messages) if message["role"] in ("system", "developer")}
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    last = units(messages)[-1] if messages else []
    return kept | ({users[-1]} if users else set(last))


def exhaustive_search(
    messages: list[Form], order: list[list[int]], count: Callable[[list[Form]], int], limit: int
) -> list[Form] | None:
    """The messages without the fewest units in the given order, or `None` if they never fit."""
    for gone in range(len(order) + 1):
        lost = {at for unit in order[:gone] for at in unit}
        left = [message for at, message in enumerate(messages) if at not in lost]
        if count(left) <= limit:
            return left
    return None
