"""The ``lazyprompt cache`` command, which simulates a prompt cache for the calls in a log."""

from __future__ import annotations

from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING

import click

from lazyprompt._base.characters import visible
from lazyprompt.cli.choices import OneOf
from lazyprompt.cli.options import (
    counter_option,
    json_option,
    token_counter,
)
from lazyprompt.cli.streams import Stdin, WrongUseError, blaming, table, write_json, write_lines

if TYPE_CHECKING:
    from lazyprompt.caching.report import Break, CacheReport


_BELOW = 1
# The provider names are repeated here, because importing the cache rules takes 100 ms.
_PROVIDERS = ("openai", "anthropic", "gemini", "deepseek", "vllm", "llama.cpp")
# The maximum number of cache breaks in the table.
_SHOWN = 10
# The maximum length of an excerpt in the table.
_WIDTH = 50


@click.command("cache")
@click.argument("file")
@click.option("--provider", type=OneOf(_PROVIDERS), required=True, help="The provider whose cache is simulated.")
@click.option("--min-hit-rate", type=click.FloatRange(0, 1), metavar="RATE", help="Exit with status 1 below this rate.")
@click.option("--model", metavar="NAME", help="The model for calls that name none.")
@counter_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    *,
    file: str,
    provider: str,
    min_hit_rate: float | None,
    model: str | None,
    counter: str,
    as_json: bool,
) -> None:
    r"""Show what a prompt cache saves, and what breaks it.

    FILE contains one JSON object per line: a line from lazyprompt's CallLog, a payload, a line of a batch file, or a
    span in OpenTelemetry's GenAI conventions. Use - for standard input. The most expensive slots are listed first. The
    exit status is 1 if the hit rate is below --min-hit-rate, so that CI can reject a change that lowers the hit rate.

    \b
    Examples:
      lazyprompt cache calls.jsonl --provider openai
      lazyprompt cache calls.jsonl --provider openai --min-hit-rate 0.8 --counter tiktoken:gpt-4o
    """
    from lazyprompt.caching.logs import read_calls
    from lazyprompt.caching.simulation import simulate

    with blaming("FILE", file):
        lines = StringIO(Stdin().read("FILE")) if file == "-" else file
        calls = (call._replace(model=call.model or model) for call in read_calls(lines))
        report = simulate(calls, provider, token_counter(counter))
    if not report.calls:
        raise WrongUseError("FILE", f"{file} contains no calls")
    if as_json:
        write_json(report.as_dict())
    else:
        write_lines(_report_lines(report, counter))
    if min_hit_rate is not None and report.hit_rate < min_hit_rate:
        context.exit(_BELOW)


def _report_lines(report: CacheReport, counter: str) -> list[str]:
    """Return the report as lines of text."""
    rules = report.rules
    about = "about " if counter == "approximate" else ""
    calls = f"{len(report.calls):,} call{'s' if len(report.calls) > 1 else ''}"
    tokens = f"{about}{report.total:,} tokens, {report.read:,} read from the cache"
    lines = [f"{rules.name}: {calls}, {tokens}, hit rate {report.hit_rate:.1%}"]
    if report.breaks:
        lines += ["", *_slot_table(report), "", *_breaks(report)]
    lines += ["", f"rules of {rules.date}, from {rules.source}", *(f"note: {each}" for each in report.notes)]
    return lines


def _slot_table(report: CacheReport) -> list[str]:
    counts: dict[str, int] = {}
    for each in report.breaks:
        counts[each.where] = counts.get(each.where, 0) + 1
    rows = [("SLOT", "LOST", "BREAKS")]
    rows += [(visible(slot), f"{lost:,}", f"{counts[slot]:,}") for slot, lost in report.slots.items()]
    return table(rows, {1, 2})


def _breaks(report: CacheReport) -> list[str]:
    """Describe the most expensive cache breaks: position, text before and after the change, and advice."""
    worst = sorted(report.breaks, key=lambda each: -each.lost)
    lines = [line for each in islice(worst, _SHOWN) for line in _break(each)]
    more = len(worst) - _SHOWN
    return [*lines, f"and {more:,} more (--json lists all)"] if more > 0 else lines


def _break(found: Break) -> list[str]:
    message = "" if found.message is None else f", message {found.message}"
    slot = "" if found.slot is None else f", {visible(found.slot)}"
    void = f", {found.thoughts:,} signed thinking blocks invalid" if found.thoughts else ""
    before, after = (visible(text.replace("\n", " "))[:_WIDTH].rstrip() for text in (found.before, found.after))
    return [
        f"call {found.call}{message}{slot}, line {found.line}: {found.lost:,} tokens lost{void}",
        f"  before: {before}",
        f"  after:  {after}",
        f"  {found.advice}",
    ]
