"""The ids of a chat that grows to 60 turns, beside transformers' ``apply_chat_template(tokenize=True)``.

    python benchmarks/token_ids.py            the times
    python benchmarks/token_ids.py --check    exit with 1 if the share exceeds its limit
    python benchmarks/token_ids.py --write    keep the figures; then run docs/make_speed.py

Each turn renders and encodes the whole chat, with DeepSeek's tokenizer and chat template, in one process; every run
begins with an empty cache. The ids are compared before.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from figures import committed, keep

from lazyprompt import TokenCache
from support.chat_judges import deepseek, templates, tokenizer_in
from support.real_tokenizers import template_of

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 60
RUNS = 5
LIMIT = 1 / 3
SPECIAL = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
_TEXT = """
order sent Monday arrive Friday unless depot closed holiday refund 12 345 café 你好 parcel, invoice. customer's account
number is (A-17) status:
"""
WORDS = _TEXT.split()


def chats() -> list[list[dict[str, str]]]:
    """Return a chat at each of its turns."""
    chance = Random(0)  # noqa: S311 - words

    def message(role: str, number: int) -> dict[str, str]:
        return {"role": role, "content": " ".join(chance.choices(WORDS, k=number))}

    chat = [message("system", 60)]
    grown: list[list[dict[str, str]]] = []
    for _ in range(TURNS):
        chat = [*chat, message("user", 60)]
        grown.append(chat)
        chat = [*chat, message("assistant", 100)]
    return grown


def measure() -> dict[str, float]:
    """Measure the median share of some rounds."""
    tokenizer: Any = tokenizer_in(deepseek())
    text, ours, grown = templates()["deepseekv3"], template_of("deepseek"), chats()

    def transformers() -> list[list[int]]:
        options = {"tokenize": True, "add_generation_prompt": True, "return_dict": False, **SPECIAL}
        return [tokenizer.apply_chat_template(chat, chat_template=text, **options) for chat in grown]

    def without() -> list[list[int]]:
        return [ours.render(chat).encode(tokenizer) for chat in grown]

    def cached() -> list[list[int]]:
        cache = TokenCache(tokenizer)
        return [ours.render(chat).encode(cache) for chat in grown]

    expected = transformers()
    if not expected == without() == cached():
        sys.exit("the ids differ")
    # In turn, each beside the other two: a noisy machine disturbs all.
    rounds = [[timed(call) for call in (transformers, without, cached)] for _ in range(RUNS)]
    plain, kept = (median(times[at] / times[0] for times in rounds) for at in (1, 2))
    return {"tokens": sum(map(len, expected)), "without": float(f"{plain:.2g}"), "cached": float(f"{kept:.2g}")}


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    begun = perf_counter()
    call()
    return perf_counter() - begun


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--slack", type=float, default=1.0, help="how many times its limit the share may be")
    asked = parser.parse_args()
    found = measure()
    print(f"{TURNS} turns, {found['tokens']:,} tokens; as a share of transformers' time:")
    print(f"  without a cache {found['without']:.2f}, with one {found['cached']:.2f} (at most {LIMIT:.2f})")
    if asked.write:
        keep({**committed(), "token_ids": found})
    # Another program on the machine makes it late; what is slow is late each time.
    if asked.check and all(each["cached"] > LIMIT * asked.slack for each in (found, measure())):
        sys.exit("too slow")


if __name__ == "__main__":
    main()
