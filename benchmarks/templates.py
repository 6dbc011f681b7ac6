"""The speed of models' own chat templates, as ratios to the same rendering elsewhere in the same process.

    python benchmarks/templates.py            a table
    python benchmarks/templates.py --json     the same as JSON
    python benchmarks/templates.py --check    fails where a ratio misses its target
    python benchmarks/templates.py --write    keeps the figures that docs/make_speed.py writes to its page

The templates are those that the tests compare with; they are downloaded once. Two things are measured against
transformers' ``apply_chat_template`` (without tokenizing):

- a plain chat of twenty turns, which is laid out in the template's frame, without running it;
- the same chat with tools, calls and results; without calls, or with texts as parts, where a template asks for that.

The texts are compared before.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recorded import Templates, record, recorded, span

from lazyprompt import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import deepseek, templates, tokenizer_in

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5
SLICE_SECONDS = 0.03
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# For plain chats; for those with tools, of each template and in the middle of all.
FASTER, SLOWER, MIDDLE = 20.0, 1.0, 0.5
# Templates that do no more than put markers around each message: to render one takes little more time than it takes to
# copy the messages and to look at their texts.
MISSED = {"lfm2": 12.0, "llama3": 14.0, "llama3_1": 13.0, "phi3": 10.0, "phi3_5": 10.0}
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
PARTS = [
    {**message, "content": [{"type": "text", "text": message["content"]}] if message["content"] else []}
    for message in CALLING
]
# With calls and without; the first form that a template takes is measured.
FORMS = (CALLING, CHAT, PARTS, PARTS[: len(CHAT)])
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
        plain: How many times faster a plain chat is than with transformers; None where the template refuses it, or is
            one to train with.
        calling: The time of a chat with tools, as a share of that of transformers; None where it shows none.
    """

    template: str
    framed: bool
    plain: float | None
    calling: float | None

    def misses(self, slack: float) -> bool:
        """Whether a ratio misses its target, or where that is known to be missed, the limit in its place."""
        faster = MISSED.get(self.template, FASTER)
        late = self.framed and self.plain is not None and self.plain * slack < faster
        return late or (self.calling is not None and self.calling > SLOWER * slack)


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

    def compared(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> float | None:
        return ratio(
            lambda: ours.render(messages, tools).text,
            lambda: tokenizer.apply_chat_template(
                messages, tools=tools, chat_template=text, tokenize=False, add_generation_prompt=True, **SPECIAL
            ),
        )

    calling = next((found for form in FORMS if (found := compared(form, TOOLS)) is not None), None)
    return Row(
        name,
        ours.check()["plain chats without the template"].holds is True,
        # Templates to train with write the same plain chats as those that they were made of, mostly.
        None if name.endswith("_training") else compared(CHAT, None),
        None if calling is None else 1 / calling,
    )


def ratio(ours: Callable[[], str], theirs: Callable[[], str]) -> float | None:
    """How many times faster ours is; None where either refuses, or their texts are not the same or have no turns."""
    try:
        text = ours()
        if text != theirs() or "Monday" not in text:
            return None
    except (TemplateError, ImportError, ValueError, TypeError, LookupError, import_module("jinja2").TemplateError):
        return None
    mine, other = quickest(ours, theirs)
    return other / mine


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
        if name in asked.names or not asked.names
    ]
    if asked.json:
        print(json.dumps([row._asdict() for row in rows]))
    else:
        print(f"{'template':28} {'frame':6} {'plain: times faster':>20} {'tools: share of time':>22}")
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
        middle = median(row.calling for row in rows if row.calling is not None)
        if middle > MIDDLE * asked.slack:
            sys.exit(f"chats with tools take {middle:.2f} of the time of transformers, not {MIDDLE} or less")


if __name__ == "__main__":
    main()
