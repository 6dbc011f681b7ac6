"""The speed of trimming, its growth, and what it leaves to a provider's cache.

    python benchmarks/trim.py            tables, beside langchain-core's trim_messages where that is installed
    python benchmarks/trim.py --check    exit with 1 where a target is missed

The floor is one pass by hand from the newest message backwards, which counts only what it keeps. All count with the
same vocabulary, o200k_base; results are compared before they are timed.
"""

from __future__ import annotations

import argparse
import random
import sys
import timeit
from importlib import import_module, metadata
from importlib.util import find_spec
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt import Budget, TiktokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from vocabularies import vocabulary_folder

COUNTS = (100, 1_000, 5_000)
COLD_TARGET, KNOWN_TARGET, GROWTH_TARGET, SHARE_TARGET = 2.0, 0.3, 1.1, 0.9
REPEATS = 9
TEXT = """
the order was sent on Monday and should arrive by Friday unless depot is closed for holiday a customer asked about price
address status lines history please look up number again thank you very much
"""
WORDS = TEXT.split()
Messages = list[dict[str, str]]


def conversation(count: int, words: int = 40) -> Messages:
    """So many messages, system text first."""
    dice = random.Random(count)  # noqa: S311 - the same in every run
    messages = [{"role": "system", "content": "You are a helpful clerk of a mail-order house."}]
    for number in range(count - 1):
        text = " ".join(dice.choices(WORDS, k=words))
        messages.append({"role": "assistant" if number % 2 else "user", "content": text})
    return messages


class Times(NamedTuple):
    """Milliseconds for so many messages."""

    messages: int
    floor: float
    cold: float
    known: float
    langchain: float | None


def least(work: Callable[[], object], number: int) -> float:
    """The least milliseconds that some work took."""
    return min(timeit.repeat(work, number=number, repeat=REPEATS)) / number * 1_000


def measured(count: int, counter: TiktokenCounter) -> Times:
    """The times for a conversation that has to lose half of its tokens."""
    messages = conversation(count)
    most = counter.count(messages) // 2
    size = counter.count_text
    roles = {role: size(role) for role in ("system", "user", "assistant")}

    def floor() -> Messages:
        kept: Messages = []
        spent = 3 + 3 + roles["system"] + size(messages[0]["content"])
        for message in reversed(messages[1:]):
            spent += 3 + roles[message["role"]] + size(message["content"])
            if spent > most:
                break
            kept.append(message)
        return [messages[0], *reversed(kept)]

    budget = Budget(most, counter)
    if budget.fit(messages)[0] != floor():
        raise SystemExit(f"{count} messages: contender and floor give different results")
    number = max(1, 2_000 // count)
    return Times(
        count,
        least(floor, number),
        least(lambda: Budget(most, counter).fit(messages), number),
        least(lambda: budget.fit(messages), number),
        langchain(messages, most, counter, len(floor())),
    )


def langchain(messages: Messages, most: int, counter: TiktokenCounter, kept: int) -> float | None:
    """What langchain-core takes for the same, its message objects made before; ``None`` where it is not installed."""
    if find_spec("langchain_core") is None:
        return None
    peer: Any = import_module("langchain_core.messages")  # no type checker need have it either
    given = peer.convert_to_messages(messages)
    size = counter.count_text

    def count(part: list[Any]) -> int:
        return 3 + sum(4 + size(each.content) for each in part)

    def trim() -> list[object]:
        kept: list[object] = peer.trim_messages(
            given, max_tokens=most, token_counter=count, strategy="last", include_system=True
        )
        return kept

    if len(trim()) != kept:
        raise SystemExit(f"langchain-core keeps {len(trim())} messages, and the floor {kept}")
    return least(trim, 1)


def unchanged(policy: str, counter: TiktokenCounter, turns: int = 200, most: int = 8_000) -> float:
    """The share of tokens in a prefix that is the same as in the turn before, over a chat of so many turns."""
    messages = conversation(1 + 2 * turns, words=80)
    budget = Budget(most, counter, policy)  # type: ignore[arg-type]  # one of two
    same = sent = 0
    before: Messages = []
    for turn in range(turns):
        now, _ = budget.fit(messages[: 2 * turn + 2])
        prefix = 0
        for one, other in zip(before, now, strict=False):
            if one != other:
                break
            prefix += 1
        if turn:
            same += counter.count(now[:prefix])
            sent += counter.count(now)
        before = now
    return same / sent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--slack", type=float, default=1.0, help="with --check: how many times a target is allowed")
    options = parser.parse_args()
    file = vocabulary_folder() / "fb374d419588a4632f3f557e76b4b70aebbca790"
    counter = TiktokenCounter("o200k_base", bpe_file=file)
    found = [measured(count, counter) for count in COUNTS]
    peer = f"langchain-core {metadata.version('langchain-core')}" if found[-1].langchain else "langchain-core: not here"
    print(f"{'messages':>8} {'floor ms':>9} {'cold':>7} {'known':>7}   {peer}")
    for times in found:
        other = f"{times.langchain / times.floor:.2f}x" if times.langchain else "-"
        ratios = "".join(f"{each / times.floor:>7.2f}x" for each in (times.cold, times.known))
        print(f"{times.messages:>8} {times.floor:>9.3f}{ratios}   {other}")
    growths = {
        name: log(getattr(found[-1], name) / getattr(found[-2], name)) / log(COUNTS[-1] / COUNTS[-2])
        for name in ("cold", "known")
    }
    print(f"growth from {COUNTS[-2]} to {COUNTS[-1]}: " + ", ".join(f"{k} {v:.2f}" for k, v in growths.items()))
    shares = {policy: unchanged(policy, counter) for policy in ("cache", "oldest")}
    print("unchanged prefix over 200 turns: " + ", ".join(f"{k} {v:.1%}" for k, v in shares.items()))
    last, slack = found[-1], options.slack
    missed = (
        last.cold / last.floor > COLD_TARGET * slack
        or last.known / last.floor > KNOWN_TARGET * slack
        or max(growths.values()) > GROWTH_TARGET * slack
        or shares["cache"] < SHARE_TARGET
    )
    if missed and options.check:
        raise SystemExit("a target is missed")


if __name__ == "__main__":
    main()
