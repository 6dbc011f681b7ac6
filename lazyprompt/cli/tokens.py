"""The command ``lazyprompt tokens``: what a prompt costs, slot by slot and message by message."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import click
from click.core import ParameterSource
from rich.cells import cell_len, set_cell_size

from lazyprompt.budget.budget import Budget
from lazyprompt.budget.report import Tokens
from lazyprompt.cli.prompts import PromptOptions, asked_prompt
from lazyprompt.cli.streams import Output, WrongUseError, goes_to_terminal, json_text
from lazyprompt.errors import LazyPromptError, TokenizerError, did_you_mean
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import profile_of
from lazyprompt.history import History
from lazyprompt.inspect.signs import visible
from lazyprompt.tokens.media import media_in
from lazyprompt.tokens.said import forms, said

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lazyprompt.budget.report import TrimReport
    from lazyprompt.cli.prompts import Asked
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages import Msg
    from lazyprompt.prompt_maker import OpenAIPrompt
    from lazyprompt.tokens.counter import TokenCounter
    from lazyprompt.tokens.said import Form

# The counters: what stands behind the colon of each (nothing where there is no colon), and where it is.
_COUNTERS = {
    "approximate": ("", "tokens.approximate", "ApproximateTokenCounter"),
    "chars": ("", "tokens.counter", "CharTokenCounter"),
    "tiktoken": ("MODEL_OR_ENCODING", "tokens.openai", "TiktokenCounter"),
    "huggingface": ("PATH", "tokens.huggingface", "HuggingFaceTokenCounter"),
    "anthropic": ("MODEL", "formatters.counters", "AnthropicTokenCounter"),
    "gemini": ("MODEL", "formatters.counters", "GeminiTokenCounter"),
}
# What the report has beside the slots.
_BESIDE = ("tools", "framing")
# How wide the beginning of a message is on a terminal, and how much of its text is looked at for it.
_BEGINNING = 60
_LOOKED_AT = 1_000


class TokensOptions(PromptOptions):
    """What the options of the command give."""

    counter: str
    bpe_file: str | None
    max_tokens: int | None
    download: str | None
    as_json: bool


class Row(NamedTuple):
    """A message: who speaks, how it begins, and what it costs; where that is told, after a budget too."""

    role: str
    text: str
    tokens: tuple[int, ...]


def counted(options: TokensOptions) -> Output:
    """Count a prompt, or download a vocabulary.

    Args:
        options: The options of the command.

    Returns:
        The table, or the line of JSON.

    Raises:
        WrongUseError: An option is wrong, or the prompt cannot be counted.
    """
    if options["download"] is not None:
        return _downloaded(options["download"])
    budget = Budget(options["max_tokens"], counter_of(options["counter"], options["bpe_file"]))
    asked = asked_prompt(options, "count")
    with asked.blaming():
        prompt, report = asked.prompter.with_budget(budget).fit(*asked.call, format=asked.form, model=asked.model)
        rows = _rows(asked, budget, prompt, report)
        if options["as_json"]:
            return Output(json_text(_as_dict(options, report, rows), terminal=goes_to_terminal(None)))
        return Output("".join(f"{line}\n" for line in _lines(options, report, rows)))


def _downloaded(name: str) -> Output:
    """Download a vocabulary: the line says where it went."""
    from lazyprompt.tokens.vocabulary import download_vocabulary  # noqa: PLC0415 - only a download needs it

    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name != "download":
            raise WrongUseError("--download", f"it stands alone; leave out {max(parameter.opts, key=len)}")
    try:
        return Output(f"{visible(str(download_vocabulary(name)))}\n")
    except LazyPromptError as error:
        raise WrongUseError("--download", str(error)) from error


def counter_of(asked: str, bpe_file: str | None) -> TokenCounter:
    """The counter of an option ``NAME[:ARGUMENT]``."""
    name, colon, argument = asked.partition(":")
    if name not in _COUNTERS:
        known = ", ".join(f"{each}:{behind[0]}" if behind[0] else each for each, behind in _COUNTERS.items())
        raise WrongUseError("--counter", f"{name!r} is no counter{did_you_mean(name, _COUNTERS)}; known are {known}")
    needed, module, kind = _COUNTERS[name]
    if needed and not argument:
        raise WrongUseError("--counter", f"{name} needs to know of what; give {name}:{needed}")
    if colon and not needed:
        raise WrongUseError("--counter", f"{name} takes nothing behind a colon; give {name}")
    if bpe_file is not None and name != "tiktoken":
        raise WrongUseError("--bpe-file", "only tiktoken reads it; give --counter tiktoken:MODEL_OR_ENCODING with it")
    given = [argument, bpe_file] if name == "tiktoken" else [argument] if needed else []
    try:
        # Only the one that is asked for is imported.
        made: TokenCounter = getattr(import_module(f"lazyprompt.{module}"), kind)(*given)
    except LazyPromptError as error:
        raise WrongUseError("--counter" if bpe_file is None else "--bpe-file", str(error)) from error
    return _Asking(made) if name in ("anthropic", "gemini") else made


class _Asking:
    """A counter that asks a provider, the errors of whose client are this package's."""

    additive: ClassVar[bool] = False

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        return self._told(lambda: self._counter.count(messages, tools))

    def count_text(self, text: str) -> int:
        return self._told(lambda: self._counter.count_text(text))

    @staticmethod
    def _told(ask: Callable[[], int]) -> int:
        try:
            return ask()
        except LazyPromptError:
            raise
        except Exception as error:  # the clients' errors have nothing in common: no key, no network, a refusal
            raise TokenizerError(f"the provider's client: {type(error).__name__}: {error}") from error


def _rows(asked: Asked, budget: Budget, prompt: str | OpenAIPrompt | Payload, report: TrimReport) -> list[Row]:
    """The messages of a payload as they are sent; of flat text those of the history, the prompter's own first."""
    if not isinstance(prompt, str):
        sent, _ = countable(prompt, profile_of(asked.form))
        return [
            Row(str(message.get("role") or message.get("type") or ""), _beginning(message), (budget.share(message),))
            for message in sent
        ]
    given, history, tools, _ = asked.call
    messages = asked.prompter.fill(given, history, tools).history.messages
    # All turns that a .prompty or .prompt file makes are history; another prompter's own stand before what may go.
    first = 0 if asked.file is not None else len(messages) - len(History.of(history).messages)
    gone = {first + at for at in report.dropped}
    rows: list[Row] = []
    for at, message in enumerate(messages):
        share = budget.share(message)
        after = () if budget.limit is None else (0 if at in gone else share,)
        rows.append(Row(message.role, _beginning(message), (share, *after)))
    return rows


def _beginning(message: Msg | Form) -> str:
    """How a message begins, in one line: its media by kind, then what it says."""
    words: list[str] = []
    for form in forms([message]):
        texts, media = said({key: value for key, value in form.items() if key != "name"})
        words += [f"[{medium.kind}]" for part in media for medium in media_in(part)]
        words += [word for text in texts for word in text[:_LOOKED_AT].split()]
    line = " ".join(words)
    return line if cell_len(line) <= _BEGINNING else f"{set_cell_size(line, _BEGINNING - 1).rstrip()}…"


def _as_dict(options: TokensOptions, report: TrimReport, rows: Sequence[Row]) -> dict[str, object]:
    """The account as JSON values; what a budget leaves stands beside what there was."""
    messages = [
        {"index": at, "role": row.role, "text": row.text, **dict(zip(("tokens", "after"), row.tokens, strict=False))}
        for at, row in enumerate(rows)
    ]
    found = {
        "counter": options["counter"],
        "approximate": options["counter"] == "approximate",
        "format": options["form"],
        **_sums(report, 0),
        "messages": messages,
    }
    return found if options["max_tokens"] is None else found | {"after": _sums(report, 1), "report": report.as_dict()}


def _sums(report: TrimReport, side: int) -> dict[str, object]:
    """The whole and its parts, before the budget or after it."""
    slots = {slot: tokens[side] for slot, tokens in report.slots.items()}
    beside = {name: slots.pop(name, 0) for name in _BESIDE}
    return {"total": (report.before, report.after)[side], "slots": slots, **beside}


def _lines(options: TokensOptions, report: TrimReport, rows: Sequence[Row]) -> list[str]:
    """The account as a table."""
    about = "about " if options["counter"] == "approximate" else ""
    unit = "characters" if options["counter"] == "chars" else "tokens"
    heading = f"{options['form']}: {about}{report.before:,} {unit} ({visible(options['counter'])})"
    numbers = ("TOKENS",) if options["max_tokens"] is None else ("BEFORE", "AFTER")
    # Tools and framing stand below the messages, just above the total.
    slots = dict(report.slots)
    ends = {name: slots.pop(name) for name in _BESIDE if name in slots}
    ends["total"] = Tokens(report.before, report.after)
    table = _table(
        [("SLOT", *numbers, "SHARE")]
        + [
            (name, *_cells(tokens[: len(numbers)]), f"{tokens.after / (report.after or 1):.0%}")
            for name, tokens in (slots | ends).items()
        ],
        {1, 2, 3},
    )
    lines = [heading, "", *table[: -len(ends)], ""]
    if rows:
        told = numbers if len(rows[0].tokens) == len(numbers) else ("TOKENS",)
        messages = [("#", "ROLE", *told, "TEXT")] + [
            (f"{at}", visible(row.role), *_cells(row.tokens), visible(row.text)) for at, row in enumerate(rows)
        ]
        lines += [*_table(messages, {0, *range(2, 2 + len(told))}), ""]
    lines += table[-len(ends) :]
    return lines if options["max_tokens"] is None else [*lines, "", str(report)]


def _cells(counts: Sequence[int]) -> list[str]:
    return [f"{count:,}" for count in counts]


def _table(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """Rows with their columns aligned, some of them to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [gaps[at] + cell if at in right else cell + gaps[at] for at, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines
