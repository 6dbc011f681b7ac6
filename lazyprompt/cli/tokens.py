"""The ``lazyprompt tokens`` command, which counts the tokens in a prompt by slot and by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

import click
from rich.cells import cell_len, set_cell_size

from lazyprompt._base.characters import visible
from lazyprompt.budget.budget import Budget
from lazyprompt.budget.report import Tokens, TrimReport
from lazyprompt.cli.options import (
    Options,
    budget_option,
    counter_option,
    env_option,
    find_other_option,
    json_option,
    prompt_options,
    text_option,
    token_counter,
)
from lazyprompt.cli.prompts import PromptRequest, read_prompt
from lazyprompt.cli.streams import WrongUseError, blaming, table, write_json, write_lines
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import profile_of
from lazyprompt.messages.history import History
from lazyprompt.tokens.counter import Form, content_of, forms
from lazyprompt.tokens.media import media_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt


# The names of rows in the token report that are not slots.
_NO_SLOTS = ("tools", "framing")
# The maximum width of a message excerpt on a terminal.
_BEGINNING = 60
# The maximum number of characters to read from each text for an excerpt.
_LOOKED_AT = 1_000


class _Row(NamedTuple):
    """A message's role, an excerpt of its text, and its token counts before and, with a budget, after trimming."""

    role: str
    text: str
    tokens: tuple[int, ...]


@click.command("tokens")
@prompt_options
@env_option
@counter_option
@click.option("--bpe-file", metavar="FILE", help="A vocabulary file for tiktoken, if its cache lacks it.")
@budget_option
@text_option("--download", metavar="NAME", help="Download tiktoken's vocabulary for a model or encoding.")
@json_option
def command(
    *, counter: str, bpe_file: str | None, download: str | None, as_json: bool, **options: Unpack[Options]
) -> None:
    r"""Count the tokens of a prompt, by slot and by message.

    Specify the prompt as in lazyprompt render. The counts of the slots, of the tools and of the framing around them
    (such as roles and markers) add up to the total. For flat text, the messages listed are those in the history.

    \b
    Examples:
      lazyprompt tokens qa.yaml --set document=@report.txt --set question='Who?'
      lazyprompt tokens --input Hi --format openai --counter tiktoken:gpt-4o
      lazyprompt tokens --input Hi --history chat.json --max-tokens 4000
      lazyprompt tokens --download o200k_base
    """
    if download is not None:
        from lazyprompt.tokens.download import download_vocabulary

        if other := find_other_option("download"):
            raise WrongUseError("--download", f"this option cannot be combined with others; remove {other}")
        with blaming("--download"):
            path = download_vocabulary(download)
        return write_lines([visible(str(path))])
    budget = Budget(options["max_tokens"], token_counter(counter, bpe_file))
    request = read_prompt(options, "count")
    with request.blaming():
        prompter = request.prompter.with_budget(budget)
        prompt, report = prompter.fit(*request.call, format=request.form, model=request.model)
        rows = _rows(request, budget, prompt, report)
        if as_json:
            return write_json(_as_dict(counter, request.form, report, rows))
        return write_lines(_lines(counter, request.form, report, rows))


def _rows(
    request: PromptRequest, budget: Budget, prompt: str | OpenAIPrompt | Payload, report: TrimReport
) -> list[_Row]:
    """Return a row for each message in a payload; for flat text, return a row for each message in the history."""
    if not isinstance(prompt, str):
        sent, _ = countable(prompt, profile_of(request.form))
        return [
            _Row(str(message.get("role") or message.get("type") or ""), _beginning(message), (budget.share(message),))
            for message in sent
        ]
    given, history, tools, _ = request.call
    messages = request.prompter.fill(given, history, tools).history.messages
    # A budget never drops a prompter's own history, unless the history comes from a .prompty file.
    first = 0 if request.file is not None else len(messages) - len(History.of(history).messages)
    gone = {first + at for at in report.dropped}
    rows: list[_Row] = []
    for at, message in enumerate(messages):
        share = budget.share(message)
        after = () if budget.limit is None else (0 if at in gone else share,)
        rows.append(_Row(message.role, _beginning(message), (share, *after)))
    return rows


def _beginning(message: Msg | Form) -> str:
    """Return a one-line excerpt of a message: the kinds of its media, then the beginning of its text."""
    words: list[str] = []
    for form in forms([message]):
        texts, media = content_of({key: value for key, value in form.items() if key != "name"})
        words += [f"[{medium.kind}]" for part in media for medium in media_in(part)]
        words += [word for text in texts for word in text[:_LOOKED_AT].split()]
    line = " ".join(words)
    return line if cell_len(line) <= _BEGINNING else f"{set_cell_size(line, _BEGINNING - 1).rstrip()}…"


def _as_dict(counter: str, form: str, report: TrimReport, rows: Sequence[_Row]) -> dict[str, object]:
    """Return the counts as a JSON-serializable dict, which includes the counts after trimming if there is a budget."""
    messages = [
        {"index": at, "role": row.role, "text": row.text, **dict(zip(("tokens", "after"), row.tokens, strict=False))}
        for at, row in enumerate(rows)
    ]
    is_approximate = counter == "approximate"
    found = {
        "counter": counter,
        "approximate": is_approximate,
        "format": form,
        **_sums(report, 0),
        "messages": messages,
    }
    return found if report.max_tokens is None else found | {"after": _sums(report, 1), "report": report.as_dict()}


def _sums(report: TrimReport, side: int) -> dict[str, object]:
    """Return the total token count and its components, before trimming (side 0) or after trimming (side 1)."""
    slots = {slot: tokens[side] for slot, tokens in report.slots.items()}
    others = {name: slots.pop(name, 0) for name in _NO_SLOTS}
    return {"total": (report.before, report.after)[side], "slots": slots, **others}


def _lines(counter: str, form: str, report: TrimReport, rows: Sequence[_Row]) -> list[str]:
    """Return the report as lines of text."""
    about = "about " if counter == "approximate" else ""
    unit = "characters" if counter == "chars" else "tokens"
    numbers = ("TOKENS",) if report.max_tokens is None else ("BEFORE", "AFTER")
    slots = dict(report.slots)
    ends = {name: slots.pop(name) for name in _NO_SLOTS if name in slots}
    ends["total"] = Tokens(report.before, report.after)
    counts = [("SLOT", *numbers, "SHARE")]
    for name, tokens in (slots | ends).items():
        counts.append((name, *_cells(tokens[: len(numbers)]), f"{tokens.after / (report.after or 1):.0%}"))
    lines = table(counts, {1, 2, 3})
    end = len(lines) - len(ends)
    messages: list[str] = []
    if rows:
        columns = numbers if len(rows[0].tokens) == len(numbers) else ("TOKENS",)
        cells = [("#", "ROLE", *columns, "TEXT")]
        for at, row in enumerate(rows):
            cells.append((f"{at}", visible(row.role), *_cells(row.tokens), visible(row.text)))
        messages = [*table(cells, {0, *range(2, 2 + len(columns))}), ""]
    heading = f"{form}: {about}{report.before:,} {unit} ({visible(counter)})"
    last = [] if report.max_tokens is None else ["", str(report)]
    return [heading, "", *lines[:end], "", *messages, *lines[end:], *last]


def _cells(counts: Sequence[int]) -> list[str]:
    return [f"{count:,}" for count in counts]
