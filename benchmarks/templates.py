"""The speed of models' own chat templates, as ratios to the same rendering elsewhere in the same process.

    python benchmarks/templates.py            a table
    python benchmarks/templates.py --json     the same as JSON
    python benchmarks/templates.py --check    fails where a ratio misses its target
    python benchmarks/templates.py --write    keeps the figures that docs/make_speed.py writes to its page

The templates are those that the tests compare with; they are downloaded once. Two things are measured against
transformers' ``apply_chat_template`` (without tokenizing):

- a plain chat of twenty turns;
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
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recorded import Span, Templates, record, recorded, span

from lazyprompt import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import deepseek, templates, tokenizer_in

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5
SLICE_SECONDS = 0.03
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# The largest share of transformers' time, of each template and as the median of all.
LIMIT, MIDDLE = 1.0, 2 / 3
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
        plain: The time of a plain chat as a share of that of transformers; None if the template refuses it, or is one
            to train with.
        calling: The same of a chat with tools; None if the template shows none.
    """

    template: str
    plain: float | None
    calling: float | None

    def misses(self, slack: float) -> bool:
        """Whether a ratio misses its target, or where that is known to be missed, the limit in its place."""
        return any(share is not None and share > LIMIT * slack for share in self[1:])


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
        # Templates to train with write the same plain chats as those that they were made of, mostly.
        None if name.endswith("_training") else compared(CHAT, None),
        calling,
    )


def ratio(ours: Callable[[], str], theirs: Callable[[], str]) -> float | None:
    """Our time as a share of theirs; None where either refuses, or their texts are not the same or have no turns."""
    try:
        text = ours()
        if text != theirs() or "Monday" not in text:
            return None
    except (TemplateError, ImportError, ValueError, TypeError, LookupError, import_module("jinja2").TemplateError):
        return None
    mine, other = quickest(ours, theirs)
    return mine / other


def summary(rows: list[Row]) -> Templates:
    """What docs/reference/speed.md shows of the rows."""
    return {"plain": _span(rows, "plain"), "calls": _span(rows, "calling")}


def _span(rows: list[Row], kind: str) -> Span:
    shares: list[float] = [share for row in rows if (share := getattr(row, kind)) is not None]
    return span(shares, LIMIT, sum(each > LIMIT for each in shares))


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
        print(f"{'share of time':32} {'plain':>6} {'tools':>6}")
        for row in rows:
            cells = ["-" if share is None else f"{share:.2f}" for share in (row.plain, row.calling)]
            print(f"{row.template:32} {cells[0]:>6} {cells[1]:>6}")
    if asked.write:
        record({**recorded(), "templates": summary(rows)})
    if asked.check:
        late = [row.template for row in rows if row.misses(asked.slack)]
        # Another program on the machine makes a row late; a row that is slow is late each time.
        for _ in range(2):
            late = [name for name in late if measured(name, templates()[name], tokenizer).misses(asked.slack)]
        if late:
            sys.exit(f"too slow: {late}")
        made = summary(rows)
        middle = max(made["plain"]["median"], made["calls"]["median"])
        if middle > MIDDLE * asked.slack:
            sys.exit(f"the median is {middle:.2f} of transformers' time, not {MIDDLE:.2f} or less")


if __name__ == "__main__":
    main()
