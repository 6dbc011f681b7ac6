"""The speed of models' own chat templates, as ratios to the same rendering elsewhere in the same process.

    python benchmarks/templates.py            a table
    python benchmarks/templates.py --json     the same as JSON
    python benchmarks/templates.py --check    fails where a ratio misses its target
    python benchmarks/templates.py --write    keeps the figures that docs/make_speed.py writes to its page

The templates are those that the tests compare with; they are downloaded once. Two things are measured:

- a plain chat of twenty turns, against transformers' ``apply_chat_template`` (without tokenizing): such chats are laid
  out in the template's frame, without running it;
- the same chat with tools, calls and results, against the plain call of Jinja's sandbox that transformers makes.

The texts are compared before.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recorded import Templates, record, recorded, span

from lazyprompt import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import deepseek, templates, tokenizer_in

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 7
SLICE_SECONDS = 0.03
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# For plain chats, and for all others.
FASTER, SLOWER = 20.0, 1.0
# Templates that do no more than put markers around each message, and leave tools and calls out: to render one takes
# little more time than it takes to copy the messages and to look at their texts.
MISSED = {
    "lfm2": (12.0, 1.3),
    "llama3_1": (18.0, 1.0),
    "phi3": (12.0, 3.8),
    "phi3_5": (12.0, 3.8),
}
WORDS = "the order was sent on Monday and should arrive by Friday unless the depot is closed for the holiday "
CHAT: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
for turn in range(20):
    CHAT += [
        {"role": "user", "content": f"{turn}: {WORDS * 3}"[:280]},
        {"role": "assistant", "content": f"Answer {turn}. {WORDS * 3}"[:280].strip()},
    ]
CHAT = CHAT[:-1]
CALL = {"id": "call00001", "type": "function", "function": {"name": "tool_status", "arguments": {"order": "A-1"}}}
CALLING: list[dict[str, Any]] = [
    *CHAT,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00001", "name": "tool_status", "content": WORDS},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{name}",
            "description": f"Look up {name} of an order.",
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "string", "description": "The number of the order."}},
                "required": ["order"],
            },
        },
    }
    for name in ("status", "address", "price", "customer", "history")
]


class Row(NamedTuple):
    """A measured template.

    Attributes:
        template: Its name.
        framed: Whether plain chats of it are laid out without it.
        plain: How many times faster a plain chat is than with transformers; None where the template refuses it.
        calling: The time of a chat with calls, as a share of Jinja's plain sandbox; None where it refuses that.
    """

    template: str
    framed: bool
    plain: float | None
    calling: float | None

    def misses(self, slack: float) -> bool:
        """Whether a ratio misses its target, or where that is known to be missed, the limit in its place."""
        faster, slower = MISSED.get(self.template, (FASTER, SLOWER))
        late = self.framed and self.plain is not None and self.plain * slack < faster
        return late or (self.calling is not None and self.calling > slower * slack)


def quickest(*calls: Callable[[], object]) -> list[float]:
    """The shortest time of each call; they are timed in turn, so that a noisy machine disturbs all."""
    numbers = [max(1, int(SLICE_SECONDS / timeit.timeit(call, number=1))) for call in calls]
    times = [
        [timeit.timeit(call, number=number) / number for call, number in zip(calls, numbers, strict=True)]
        for _ in range(REPEATS)
    ]
    return [min(column) for column in zip(*times, strict=True)]


def measured(name: str, text: str, tokenizer: Any) -> Row:  # noqa: ANN401 - transformers is not typed
    """The ratios of one template."""
    ours = ChatTemplate.load(text, **SPECIAL)
    judge: Any = import_module("transformers.utils.chat_template_utils")
    sandboxed: Any = judge._compile_jinja_template(text)  # noqa: SLF001 - the call to compare with

    def theirs() -> object:
        return tokenizer.apply_chat_template(
            CHAT, chat_template=text, tokenize=False, add_generation_prompt=True, **SPECIAL
        )

    def plain() -> object:
        return ours.render(CHAT).text

    def jinja() -> object:
        return sandboxed.render(messages=CALLING, tools=TOOLS, documents=None, add_generation_prompt=True, **SPECIAL)

    def calling() -> object:
        return ours.render(CALLING, TOOLS).text

    return Row(
        name,
        ours.check()["plain chats without the template"].holds is True,
        ratio(plain, theirs),
        inverse(ratio(calling, jinja)),
    )


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float | None:
    """How many times faster ours is; None where either refuses, or their texts are not the same."""
    try:
        if ours() != theirs():
            return None
    except (TemplateError, ImportError, ValueError, TypeError, LookupError, import_module("jinja2").TemplateError):
        return None
    mine, other = quickest(ours, theirs)
    return other / mine


def inverse(number: float | None) -> float | None:
    """One by a number."""
    return None if number is None else 1 / number


def summary(rows: list[Row]) -> Templates:
    """What docs/reference/speed.md shows of the rows."""
    plain = [row.plain for row in rows if row.framed and row.plain is not None]
    calls = [row.calling for row in rows if row.calling is not None]
    return {
        "plain": span(plain, FASTER, sum(each < FASTER for each in plain)),
        "calls": span(calls, SLOWER, sum(each > SLOWER for each in calls)),
    }


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures that docs/reference/speed.md shows")
    parser.add_argument("--slack", type=float, default=1.0, help="how far over its target a ratio may be")
    parser.add_argument("names", nargs="*", help="the templates; all where none are named")
    asked = parser.parse_args()
    tokenizer = tokenizer_in(deepseek())
    rows = [
        measured(name, text, tokenizer)
        for name, text in sorted(templates().items())
        if name in asked.names or (not asked.names and not name.endswith("_training"))
    ]
    if asked.json:
        print(json.dumps([row._asdict() for row in rows]))
    else:
        print(f"{'template':28} {'frame':6} {'plain: times faster':>20} {'calls: share of Jinja':>22}")
        for row in rows:
            cells = (
                "-" if row.plain is None else f"{row.plain:.1f}",
                "-" if row.calling is None else f"{row.calling:.2f}",
            )
            print(f"{row.template:28} {'yes' if row.framed else 'no':6} {cells[0]:>20} {cells[1]:>22}")
    if asked.write:
        record({**recorded(), "templates": summary(rows)})
    if asked.check:
        late = [row.template for row in rows if row.misses(asked.slack)]
        # Another program on the machine makes a row late; a row that is slow is late each time.
        for _ in range(2):
            late = [name for name in late if measured(name, templates()[name], tokenizer).misses(asked.slack)]
        if late:
            sys.exit(f"too slow: {late}")


if __name__ == "__main__":
    main()
