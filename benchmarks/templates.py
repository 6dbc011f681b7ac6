"""The time of models' own chat templates, as shares of the time of transformers in the same process.

    python benchmarks/templates.py            a table
    python benchmarks/templates.py --check    exit with 1 if a share exceeds its limit
    python benchmarks/templates.py --write    keep the figures; then run docs/make_speed.py

The templates are those that the tests compare with; they are downloaded once. Timed against ``apply_chat_template``
(without tokenizing) are a plain chat of twenty turns, and the same with tools, a call and its result; without calls, or
with texts as parts, if a template asks for that. The texts are compared before.
"""

from __future__ import annotations

import argparse
import sys
import timeit
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from figures import committed, keep
from work import SYSTEM, TOOLS, TURNS, WORDS

from lazyprompt import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import deepseek, templates, tokenizer_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REPEATS = 5
SLICE_SECONDS = 0.03
# The greatest share of a template, and of the median of all.
SLOWEST, MIDDLE = 1.0, 2 / 3
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHAT: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
for question, answer in TURNS:
    CHAT += [{"role": "user", "content": question}, {"role": "assistant", "content": answer.strip()}]
CHAT = CHAT[:-1]
CALL = {"id": "call00001", "type": "function", "function": {"name": "tool_status", "arguments": {"order": "A-1"}}}
CALLING: list[dict[str, Any]] = [
    *CHAT,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00001", "name": "tool_status", "content": WORDS},
]
PARTS = [
    {**message, "content": [{"type": "text", "text": message["content"]}] if message["content"] else []}
    for message in CALLING
]
# The first form that a template accepts is timed.
FORMS = (CALLING, CHAT, PARTS, PARTS[: len(CHAT)])
KINDS = ("plain", "calls")


def measured(text: str, tokenizer: Any) -> dict[str, float]:  # noqa: ANN401 - transformers is not typed
    """Return the shares of a template, by the kind of chat; a kind that it refuses is missing."""
    ours = ChatTemplate.load(text, **SPECIAL)
    options = {"chat_template": text, "tokenize": False, "add_generation_prompt": True, **SPECIAL}

    def compared(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> float | None:
        return share(
            lambda: ours.render(messages, tools).text,
            lambda: tokenizer.apply_chat_template(messages, tools=tools, **options),
        )

    found = {
        "plain": compared(CHAT, None),
        "calls": next((each for form in FORMS if (each := compared(form, TOOLS)) is not None), None),
    }
    return {kind: each for kind, each in found.items() if each is not None}


def share(ours: Callable[[], str], theirs: Callable[[], str]) -> float | None:
    """Return the share of the time; None if either refuses the chat, or the texts differ or have no turns."""
    try:
        text = ours()
        if text != theirs() or "Monday" not in text:
            return None
    except (TemplateError, ImportError, ValueError, TypeError, LookupError, import_module("jinja2").TemplateError):
        return None
    numbers = [max(1, int(SLICE_SECONDS / timeit.timeit(call, number=1))) for call in (ours, theirs)]
    times = [
        [timeit.timeit(call, number=number) / number for call, number in zip((ours, theirs), numbers, strict=True)]
        for _ in range(REPEATS)
    ]
    mine, other = (min(column) for column in zip(*times, strict=True))
    return mine / other


def span(shares: Sequence[float]) -> dict[str, float]:
    """Return the range of several shares, with two digits."""
    low, middle, high = (float(f"{each:.2g}") for each in (min(shares), median(shares), max(shares)))
    return {"of": len(shares), "low": low, "median": middle, "high": high}


def slow(shares: Mapping[str, float], slack: float) -> bool:
    """Return whether a template exceeds its limit."""
    return any(each > SLOWEST * slack for each in shares.values())


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--slack", type=float, default=1.0, help="how many times its limit a share may be")
    parser.add_argument("names", nargs="*", help="the templates; all if none are named")
    asked = parser.parse_args()
    tokenizer, every = tokenizer_in(deepseek()), templates()
    rows = {name: measured(every[name], tokenizer) for name in asked.names or sorted(every)}
    print(f"{'template':28}" + "".join(f"{kind:>8}" for kind in KINDS))
    for name, shares in rows.items():
        print(f"{name:28}" + "".join(f"{shares[kind]:8.2f}" if kind in shares else f"{'-':>8}" for kind in KINDS))
    spans = {kind: span([shares[kind] for shares in rows.values() if kind in shares]) for kind in KINDS}
    print(spans)
    if asked.write:
        keep({**committed(), "templates": spans})
    # Other programs can make a template slow once, but not each time.
    late = [name for name, shares in rows.items() if slow(shares, asked.slack)]
    for _ in range(2):
        late = [name for name in late if slow(measured(every[name], tokenizer), asked.slack)]
    late += [f"the median of {kind}" for kind, each in spans.items() if each["median"] > MIDDLE * asked.slack]
    if asked.check and late:
        sys.exit(f"too slow: {late}")


if __name__ == "__main__":
    main()
