"""The command ``lazyprompt tokens``: what a prompt costs, slot by slot and message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import click
from click.core import ParameterSource
from rich.cells import cell_len, set_cell_size

from lazyprompt._cli_io import Output, WrongUseError, goes_to_terminal, json_text
from lazyprompt._cli_prompt import PromptOptions, asked_prompt
from lazyprompt._json import dump
from lazyprompt.budget.budget import Budget
from lazyprompt.budget.report import Tokens
from lazyprompt.budget.tally import Tally
from lazyprompt.errors import LazyPromptError, TokenizerError, did_you_mean
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.prompted import prompted
from lazyprompt.formatters.providers import profile_of
from lazyprompt.history import History
from lazyprompt.inspect.terminal import visible
from lazyprompt.prompt import MARKERS
from lazyprompt.text.template import resolved_system
from lazyprompt.tokens.media import media_in
from lazyprompt.tokens.said import forms, said
from lazyprompt.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lazyprompt._cli_prompt import Asked
    from lazyprompt._json import Json
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.report import Payload
    from lazyprompt.history import HistoryLike
    from lazyprompt.messages import Msg
    from lazyprompt.prompt import Prompt
    from lazyprompt.prompter import OpenAIPrompt
    from lazyprompt.tokens.counter import TokenCounter
    from lazyprompt.tokens.said import Form

# The counters, and what stands behind the colon of each; nothing where there is no colon.
_COUNTERS = {
    "approximate": "",
    "chars": "",
    "tiktoken": "MODEL_OR_ENCODING",
    "huggingface": "PATH",
    "anthropic": "MODEL",
    "gemini": "MODEL",
}
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
    """A message: who speaks, how it begins, and what it costs."""

    role: str
    text: str
    tokens: Tokens


class Account(NamedTuple):
    """What a prompt costs, before a budget and after it; without one, both are the same.

    Attributes:
        total: The whole.
        slots: Its slots.
        tools: The tools that are sent with it.
        messages: Its messages; of flat text, those of the history.
        report: The report of the budget, where there was one.
    """

    total: Tokens
    slots: dict[str, Tokens]
    tools: Tokens
    messages: list[Row]
    report: TrimReport | None

    @property
    def framing(self) -> Tokens:
        """What stands around the slots and the tools: the rest of the whole."""
        parts = [*self.slots.values(), self.tools]
        return Tokens(*(whole - sum(each) for whole, *each in zip(self.total, *parts, strict=True)))


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
    counter = _counter(options["counter"], options["bpe_file"])
    asked = asked_prompt(options, "count")
    with asked.blaming():
        account = (_flat if asked.form == "flat" else _payload)(asked, counter, options["max_tokens"])
        if options["as_json"]:
            return Output(json_text(_as_dict(options, account), terminal=goes_to_terminal(None)))
        return Output("".join(f"{line}\n" for line in _lines(options, account)))


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


def _counter(asked: str, bpe_file: str | None) -> TokenCounter:
    """The counter of an option ``NAME[:ARGUMENT]``."""
    name, colon, argument = asked.partition(":")
    if name not in _COUNTERS:
        known = ", ".join(f"{each}:{needed}" if needed else each for each, needed in _COUNTERS.items())
        raise WrongUseError("--counter", f"{name!r} is no counter{did_you_mean(name, _COUNTERS)}; known are {known}")
    needed = _COUNTERS[name]
    if needed and not argument:
        raise WrongUseError("--counter", f"{name} needs to know of what; give {name}:{needed}")
    if colon and not needed:
        raise WrongUseError("--counter", f"{name} takes nothing behind a colon; give {name}")
    if bpe_file is not None and name != "tiktoken":
        raise WrongUseError("--bpe-file", "only tiktoken reads it; give --counter tiktoken:MODEL_OR_ENCODING with it")
    try:
        return _made(name, argument, bpe_file)
    except LazyPromptError as error:
        raise WrongUseError("--counter" if bpe_file is None else "--bpe-file", str(error)) from error


def _made(name: str, argument: str, bpe_file: str | None) -> TokenCounter:
    match name:
        case "chars":
            from lazyprompt.tokens.counter import CharTokenCounter  # noqa: PLC0415 - one counter is needed, not all

            return CharTokenCounter()
        case "tiktoken":
            from lazyprompt.tokens.openai import TiktokenCounter  # noqa: PLC0415 - as above

            return TiktokenCounter(argument, bpe_file)
        case "huggingface":
            from lazyprompt.tokens.huggingface import HuggingFaceTokenCounter  # noqa: PLC0415 - as above

            return HuggingFaceTokenCounter(argument)
        case "anthropic":
            from lazyprompt.formatters.counters import AnthropicTokenCounter  # noqa: PLC0415 - as above

            return _Asking(AnthropicTokenCounter(argument))
        case "gemini":
            from lazyprompt.formatters.counters import GeminiTokenCounter  # noqa: PLC0415 - as above

            return _Asking(GeminiTokenCounter(argument))
        case _:
            from lazyprompt.tokens.approximate import ApproximateTokenCounter  # noqa: PLC0415 - as above

            return ApproximateTokenCounter()


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


def _flat(asked: Asked, counter: TokenCounter, max_tokens: int | None) -> Account:
    """The account of flat text."""
    prompter, (given, history, tools, _) = asked.prompter, asked.call
    rendered = prompter.render(*asked.call)
    before = rendered.tokens(counter)
    whole = counter.count_text(rendered.text)
    _, report = _fitted(asked, counter, max_tokens)
    after = before if report is None else {slot: tokens.after for slot, tokens in report.slots.items()}
    slots = {slot: Tokens(count, after.get(slot, 0)) for slot, count in before.items() if slot != MARKERS}
    filled = prompter.fill(given, history, tools)
    # A slot may be named so too; where there are tools as well, they are counted together.
    own = slots.pop("tools", Tokens(0, 0)) if filled.tools else Tokens(0, 0)
    total = Tokens(whole, whole if report is None else report.after)
    return Account(total, slots, own, _past(filled.history, history, report, Tally(counter)), report)


def _payload(asked: Asked, counter: TokenCounter, max_tokens: int | None) -> Account:
    """The account of a provider's payload."""
    given, history, tools, _ = asked.call
    messages, own_tools = _countable(asked, asked.made())
    total = left = counter.count(messages, own_tools)
    fitted, report = _fitted(asked, counter, max_tokens)
    kept = messages
    if fitted is not None:
        kept, _ = _countable(asked, fitted)
        left = counter.count(kept, own_tools)
    filled = asked.prompter.fill(given, history, tools)
    system = resolved_system(filled.system, asked.markers)
    now, told, label = messages, total, 0
    if filled.history:
        now, label = _now(asked, filled, system, messages, counter)
        told = counter.count(now, own_tools)
    alone = counter.count(now) if own_tools else told
    past = Tokens(total - told - label, left - told - label)
    return Account(
        Tokens(total, left),
        _slots(asked, filled, system, counter, past),
        Tokens(told - alone, told - alone),
        _compared(messages, kept, Tally(counter)),
        report,
    )


def _now(
    asked: Asked, filled: Prompt, system: str, messages: list[Mapping[str, Any]], counter: TokenCounter
) -> tuple[list[Mapping[str, Any]], int]:
    """The messages of a payload without its history; and what the label counts, where it is not among them."""
    told, label = str(filled.instruction), asked.call[3]
    said = f"{filled.user}{filled.input or ''}" or filled.input
    if said or (said is not None and told):
        prompt = prompted(asked.form, asked.model, (system, told), (), said, ToolSet.of(None), label)
        return _countable(asked, prompt)[0], 0
    # Nobody speaks but the history: by itself the rest would be no conversation that a provider takes.
    leading = [message for message in messages[:1] if message.get("role") == "system"]
    return leading, counter.count_text(label) if label else 0


def _slots(asked: Asked, filled: Prompt, system: str, counter: TokenCounter, history: Tokens) -> dict[str, Tokens]:
    """The slots of a payload: each text by itself, the history by what it adds."""
    label = asked.call[3]
    texts: list[tuple[str, str | None]] = [
        ("system", system),
        *zip(filled.instruction.slots, filled.instruction.parts, strict=True),
        ("history", None),
        *zip(filled.user.slots, filled.user.parts, strict=True),
        ("input", filled.input or ""),
        ("label", label or ""),
    ]
    slots: dict[str, Tokens] = {}
    for slot, text in texts:
        count = counter.count_text(text) if text else 0
        added = history if text is None else (count, count)
        if any(added):
            old = slots.get(slot, Tokens(0, 0))
            slots[slot] = Tokens(old.before + added[0], old.after + added[1])
    return slots


def _fitted(
    asked: Asked, counter: TokenCounter, max_tokens: int | None
) -> tuple[str | OpenAIPrompt | Payload | None, TrimReport | None]:
    """The prompt that a budget leaves, and its report, where there is a budget."""
    if max_tokens is None:
        return None, None
    prompter = asked.prompter.with_budget(Budget(max_tokens, counter))
    return prompter.fit(*asked.call, format=asked.form, model=asked.model)


def _countable(
    asked: Asked, prompt: str | OpenAIPrompt | Payload
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]] | None]:
    return countable(cast("Payload", prompt), profile_of(asked.form))


def _past(whole: History, given: HistoryLike | None, report: TrimReport | None, tally: Tally) -> list[Row]:
    """The messages of the history, the prompter's own first, which never go."""
    messages = whole.messages
    first = len(messages) - len(History.of(given).messages)
    gone: Collection[int] = () if report is None else {first + at for at in report.dropped}
    rows: list[Row] = []
    for at, message in enumerate(messages):
        share = tally.share(message)
        rows.append(_row([message], Tokens(share, 0 if at in gone else share), message.role))
    return rows


def _compared(before: Sequence[Form], after: Sequence[Form], tally: Tally) -> list[Row]:
    """The messages before and after: those that are the same in both, and what else stands in their place."""
    keys, kept = [[dump(cast("Json", message)) for message in messages] for messages in (before, after)]
    shares = {key: tally.share(message) for key, message in zip((*keys, *kept), (*before, *after), strict=True)}
    rows: list[Row] = []
    # Without a budget there is nothing to compare, which takes long where many are the same.
    changes = [("equal", 0, len(keys), 0, 0)] if kept == keys else _changes(keys, kept)
    for tag, start, end, new_start, new_end in changes:
        stays = tag == "equal"
        rows += [_form_row(before[at], shares[keys[at]], stays * shares[keys[at]]) for at in range(start, end)]
        rows += [_form_row(after[at], 0, shares[kept[at]]) for at in range(new_start, new_end) if not stays]
    return rows


def _changes(before: Sequence[str], after: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    from difflib import SequenceMatcher  # noqa: PLC0415 - only a budget needs it

    return SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def _form_row(message: Form, before: int, after: int) -> Row:
    return _row([message], Tokens(before, after), message.get("role") or message.get("type") or "")


def _row(messages: Sequence[Msg | Form], tokens: Tokens, role: object) -> Row:
    return Row(str(role), _beginning(forms(messages)), tokens)


def _beginning(messages: Sequence[Form]) -> str:
    """How messages begin, in one line: their media by kind, then what they say."""
    words: list[str] = []
    for message in messages:
        texts, media = said({key: value for key, value in message.items() if key != "name"})
        words += [f"[{medium.kind}]" for part in media for medium in media_in(part)]
        words += [word for text in texts for word in text[:_LOOKED_AT].split()]
    line = " ".join(words)
    return line if cell_len(line) <= _BEGINNING else f"{set_cell_size(line, _BEGINNING - 1).rstrip()}…"


def _as_dict(options: TokensOptions, account: Account) -> dict[str, object]:
    """The account as JSON values; what a budget leaves stands beside what there was."""
    messages: list[dict[str, object]] = [
        {"index": at, "role": row.role, "text": row.text, "tokens": row.tokens.before}
        for at, row in enumerate(account.messages)
    ]
    found = {
        "counter": options["counter"],
        "approximate": _is_approximate(options),
        "format": options["form"],
        **_sums(account, 0),
        "messages": messages,
    }
    if account.report is not None:
        for message, row in zip(messages, account.messages, strict=True):
            message["after"] = row.tokens.after
        found |= {"after": _sums(account, 1), "report": account.report.as_dict()}
    return found


def _sums(account: Account, side: int) -> dict[str, object]:
    return {
        "total": account.total[side],
        "slots": {slot: tokens[side] for slot, tokens in account.slots.items()},
        "tools": account.tools[side],
        "framing": account.framing[side],
    }


def _is_approximate(options: TokensOptions) -> bool:
    return options["counter"] == "approximate"


def _lines(options: TokensOptions, account: Account) -> list[str]:
    """The account as a table."""
    about = "about " if _is_approximate(options) else ""
    unit = "characters" if options["counter"] == "chars" else "tokens"
    heading = f"{options['form']}: {about}{account.total.before:,} {unit} ({visible(options['counter'])})"
    numbers = ("TOKENS",) if account.report is None else ("BEFORE", "AFTER")

    def cells(tokens: Tokens) -> list[str]:
        return [f"{count:,}" for count in tokens[: len(numbers)]]

    ends = {"tools": account.tools} if any(account.tools) else {}
    ends |= {"framing": account.framing, "total": account.total}
    whole = account.total.after or 1
    sums = [("SLOT", *numbers, "SHARE")] + [
        (name, *cells(tokens), f"{tokens.after / whole:.0%}")
        for name, tokens in (*account.slots.items(), *ends.items())
    ]
    table = _table(sums, {*range(1, len(sums[0]))})
    lines = [heading, "", *table[: -len(ends)], ""]
    if account.messages:
        rows = [("#", "ROLE", *numbers, "TEXT")] + [
            (f"{at}", visible(row.role), *cells(row.tokens), visible(row.text))
            for at, row in enumerate(account.messages)
        ]
        lines += [*_table(rows, {0, *range(2, len(rows[0]) - 1)}), ""]
    lines += table[-len(ends) :]
    return lines if account.report is None else [*lines, "", str(account.report)]


def _table(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """Rows with their columns aligned, some of them to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        columns = zip(row, gaps, strict=True)
        cells = [gap + cell if at in right else cell + gap for at, (cell, gap) in enumerate(columns)]
        lines.append("  ".join(cells).rstrip())
    return lines
