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
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from figures import committed, keep
from speed import Row, timed
from work import SYSTEM, TOOLS, TURNS, WORDS

from lazyprompt import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import deepseek, templates, tokenizer_in

if TYPE_CHECKING:
    from collections.abc import Sequence

# The greatest share of a template, and of the median of all. The first aim is 1: Idefics 3 and SmolVLM, whose turns
# begin with words, take up to half as long again, because the edges of every text are compared with these words.
SLOWEST, MIDDLE = 1.6, 2 / 3
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


def rows(name: str, text: str, tokenizer: Any) -> list[Row]:  # noqa: ANN401 - transformers is not typed
    """Return the rows of a template, its floor being transformers; a kind of chat that it refuses has none."""
    ours = ChatTemplate.load(text, **SPECIAL)
    options = {"chat_template": text, "tokenize": False, "add_generation_prompt": True, **SPECIAL}

    def row(kind: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Row:
        return Row(
            name,
            lambda: ours.render(messages, tools).text,
            lambda: tokenizer.apply_chat_template(messages, tools=tools, **options),
            kind,
        )

    plain, calls = [row("plain", CHAT, None)], [row("calls", form, TOOLS) for form in FORMS]
    return [found for kind in (plain, calls) if (found := next(filter(same, kind), None)) is not None]


def same(row: Row) -> bool:
    """Return whether neither side refuses the chat, and the texts are the same and have its turns."""
    try:
        text = str(row.contender())
        return text == row.floor() and "Monday" in text
    except (TemplateError, ImportError, ValueError, TypeError, LookupError, import_module("jinja2").TemplateError):
        return False


def span(shares: Sequence[float]) -> dict[str, float]:
    """Return the range of several shares, with two digits."""
    low, middle, high = (float(f"{each:.2g}") for each in (min(shares), median(shares), max(shares)))
    return {"of": len(shares), "low": low, "median": middle, "high": high}


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--slack", type=float, default=1.0, help="how many times its limit a share may be")
    parser.add_argument("names", nargs="*", help="the templates; all if none are named")
    asked = parser.parse_args()
    tokenizer, every = tokenizer_in(deepseek()), templates()
    found = timed([row for name in asked.names or sorted(every) for row in rows(name, every[name], tokenizer)])
    for each in found:
        print(f"{each.row.name:28} {each.row.shape:6} {each.ratio:.2f}")
    spans = {kind: span([each.ratio for each in found if each.row.shape == kind]) for kind in ("plain", "calls")}
    print(spans)
    if asked.write:
        keep({**committed(), "templates": spans})
    # Other programs can make a template slow once, but not each time.
    late = found
    for _ in range(3):
        late = [each for each in late if each.ratio > SLOWEST * asked.slack]
        late = timed([each.row for each in late])
    wrong = [f"{each.row.name}, {each.row.shape}" for each in late if each.ratio > SLOWEST * asked.slack]
    wrong += [f"the median of {kind}" for kind, each in spans.items() if each["median"] > MIDDLE * asked.slack]
    if asked.check and wrong:
        sys.exit(f"too slow: {wrong}")


if __name__ == "__main__":
    main()
