"""The time of the cache simulation, as a ratio to counting the tokens of the same calls once.

    python benchmarks/cache.py                   10,000 calls of about 5,000 tokens, in three shapes
    python benchmarks/cache.py --calls 1000      fewer

The exit status is 1 where a ratio is above 3, or where twice the calls take more than 2.6 times as long.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent)]

from support.vocabularies import CL100K, O200K, vocabulary_folder  # noqa: E402 - found on the path that is made above

os.environ["TIKTOKEN_CACHE_DIR"] = str(vocabulary_folder(CL100K, O200K))

from lazyprompt import TiktokenCounter  # noqa: E402 - the same
from lazyprompt.caching import simulate  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST, GROWTH = 3.0, 2.6
TURNS = 20
WORDS = (HERE.parent / "README.md").read_text(encoding="utf-8").split()


def text(rng: Random, words: int) -> str:
    """Some words."""
    return " ".join(rng.choices(WORDS, k=words))


def chats(calls: int, *, broken: bool = False) -> Iterator[dict[str, Any]]:
    """Chats that grow to about 10,000 tokens; broken ones have another system text in each call."""
    rng = Random(7)  # noqa: S311 - texts keep no secret
    for at in range(calls):
        if at % TURNS == 0:
            messages = [{"role": "system", "content": text(rng, 300)}]
        messages = [*messages, {"role": "user", "content": text(rng, 130)}]
        head = {"role": "system", "content": f"{at} {messages[0]['content']}"} if broken else messages[0]
        yield {"messages": [head, *messages[1:]]}
        messages.append({"role": "assistant", "content": text(rng, 90)})


def flat(calls: int) -> Iterator[str]:
    """The same chats as flat text."""
    for call in chats(calls):
        yield "".join(f"<|{each['role']}|>\n{each['content']}\n" for each in call["messages"])


def seconds(work: Callable[[], object]) -> float:
    """The time of the processor that work takes: other programs do not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> int:
    """Measure, and print a line for each shape."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    most: int = parser.parse_args().calls
    counter = TiktokenCounter("o200k_base")
    shapes: dict[str, Callable[[int], Iterator[Any]]] = {
        "growing chats": chats,
        "each call broken": lambda calls: chats(calls, broken=True),
        "flat text": flat,
    }
    failed = False
    for name, make in shapes.items():
        given = [*make(most)]
        tokens = 0

        def encode(given: list[Any] = given) -> None:
            nonlocal tokens
            tokens = sum(
                counter.count_text(each) if isinstance(each, str) else counter.count(each["messages"]) for each in given
            )

        encoded = seconds(encode)
        half = seconds(partial(simulate, given[: most // 2], "openai", counter))
        whole = seconds(partial(simulate, given, "openai", counter))
        ratio, growth = whole / encoded, whole / half
        failed |= ratio > MOST or growth > GROWTH
        sys.stdout.write(
            f"{name}: {most:,} calls of {tokens // most:,} tokens: encoded {encoded:.1f} s, simulated {whole:.1f} s, "
            f"{ratio:.2f} times; twice the calls {growth:.2f} times\n"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
