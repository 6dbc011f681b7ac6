"""The command ``lazyprompt inspect``: which part of a prompt came from where, what it costs, what to look at twice."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

import click
from click.core import ParameterSource

from lazyprompt.cli.prompts import PromptOptions, asked_prompt, asked_prompter, prompt_options, text_option
from lazyprompt.cli.python_prompters import is_reference, prompter_at
from lazyprompt.cli.streams import Output, Stdin, WrongUseError, file_text, goes_to_terminal, json_text
from lazyprompt.cli.tokens import counter_of
from lazyprompt.errors import LazyPromptError
from lazyprompt.inspect.as_json import look_json
from lazyprompt.inspect.look import Call, look
from lazyprompt.inspect.saved import saved_look
from lazyprompt.inspect.slot_diff import slot_diff
from lazyprompt.inspect.terminal import look_text, slot_diff_text

if TYPE_CHECKING:
    from collections.abc import Generator

    from lazyprompt.cli.prompts import Asked
    from lazyprompt.inspect.look import Look
    from lazyprompt.inspect.terminal import Color
    from lazyprompt.tokens.counter import TokenCounter

# How the names of saved payloads end; of lines, the first is meant.
_SAVED, _LINES = (".json", ".jsonl"), ".jsonl"
_STDIN = "-"
# What can be said of a saved payload; all else says what a prompt is made of.
_OF_PAYLOADS = frozenset(
    {"prompt_file", "form", "model", "counter", "window", "other", "other_model", "as_json", "color"}
)


class InspectOptions(PromptOptions):
    """What the options of the command give."""

    counter: str
    max_tokens: int | None
    window: int | None
    other: str | None
    other_model: str | None
    as_json: bool
    color: Color


class _Side(NamedTuple):
    """A prompt to be looked at.

    Attributes:
        name: Its name on the command line; None where options alone describe it.
        model: The model.
        opened: Its prompter; None for a saved payload.
    """

    name: str | None
    model: str | None
    opened: Asked | None


class _SharedStdin(Stdin):
    """The standard input of two prompts: what one has read, the other reads too."""

    def __init__(self) -> None:
        super().__init__()
        self._text: str | None = None

    def read(self, reader: str) -> str:
        """All of it."""
        if self._text is None:
            self._text = super().read(reader)
        return self._text


@click.command()
@prompt_options
@text_option(
    "--counter", default="approximate", show_default=True, metavar="NAME[:ARGUMENT]", help="As for lazyprompt tokens."
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), metavar="N", help="Show what a budget of so many would leave."
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    metavar="N",
    help="The context window in tokens.  [default: what is known of the model]",
)
@click.option("--diff", "other", metavar="PROMPT_FILE", help="Another prompt, to compare it with slot by slot.")
@click.option("--diff-model", "other_model", metavar="NAME", help="Another model, to compare the prompt for both.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def inspect(**options: Unpack[InspectOptions]) -> Output:
    """Look at a prompt: which part came from where, what each costs, what to look at twice.

    PROMPT_FILE is a prompt file, as for lazyprompt render; or a prompter in Python, as module:name or
    path/to/file.py:name, which runs the code of that module; or a saved payload: a .json file, the first line of a
    .jsonl file, or - for the standard input.

    On a terminal the slots are coloured, and what nobody trusts is underlined; in a pipe each line begins with its
    slot. Signs that a terminal would obey, or nobody would see, are written out.

    \b
    Examples:
      lazyprompt inspect order.prompty --set urgent=true --model qwen2.5
      lazyprompt inspect app.prompts:answer --set question='Who?' --format anthropic
      lazyprompt inspect order@1.prompty --set urgent=true --diff order@2.prompty
      lazyprompt inspect order.prompty --set urgent=true --model qwen3 --diff-model llama3.1
      lazyprompt inspect request.json --window 8192
    """  # noqa: D301 - \b is how click is told not to wrap
    if options["color"] == "always" and options["as_json"]:
        raise WrongUseError("--color", "JSON has no colour; leave out --json")
    sides = _sides(options)
    _refuse_unused(sides)
    counter = counter_of(options["counter"], None)
    terminal = goes_to_terminal(None)
    stdin = _SharedStdin() if len(sides) > 1 else Stdin()
    looks = [_looked_at(options, sides, at, counter, stdin) for at in range(len(sides))]
    if len(looks) == 1:
        if options["as_json"]:
            return Output(json_text(look_json(looks[0]), terminal=terminal))
        return Output(look_text(looks[0], options["color"], terminal=terminal))
    before, after = looks
    changes = slot_diff(before, after)
    if options["as_json"]:
        slots = [{**change._asdict(), "lines": [*change.lines]} for change in changes]
        found = {"before": look_json(before), "after": look_json(after), "slots": slots}
        return Output(json_text(found, terminal=terminal))
    return Output(slot_diff_text(before, after, changes, options["color"], terminal=terminal))


def _sides(options: InspectOptions) -> list[_Side]:
    """The prompt, and the one that it is to be compared with."""
    name, other, other_model = options["prompt_file"], options["other"], options["other_model"]
    first = _Side(name, options["model"], _opened(options, name))
    if other is None and other_model is None:
        return [first]
    if other is None and first.opened is None:
        raise WrongUseError("--diff-model", "a saved payload is made for one model; --diff names another prompt")
    model = options["model"] if other_model is None else other_model
    with _blamed("--diff"):
        return [first, first._replace(model=model) if other is None else _Side(other, model, _opened(options, other))]


def _opened(options: InspectOptions, name: str | None) -> Asked | None:
    """The prompter that is asked for; None for a saved payload."""
    if name is not None and (name == _STDIN or Path(name).suffix.lower() in _SAVED):
        return None
    opened = prompter_at(name) if name is not None and is_reference(name) else None
    return asked_prompter(_options_of(options, name), opened)


def _options_of(options: InspectOptions, name: str | None) -> InspectOptions:
    return cast("InspectOptions", {**options, "prompt_file": name})


def _refuse_unused(sides: list[_Side]) -> None:
    """Refuse options that say how a prompt is made, where none is made."""
    if any(side.opened is not None for side in sides):
        return
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name not in _OF_PAYLOADS:
            raise WrongUseError(max(parameter.opts, key=len), "a saved payload is whole already; leave it out")


def _looked_at(options: InspectOptions, sides: list[_Side], at: int, counter: TokenCounter, stdin: Stdin) -> Look:
    """What there is to see of one of the prompts."""
    side = sides[at]
    with _blamed("--diff" if options["other"] is not None else "--diff-model", only=at > 0):
        if side.opened is None:
            return _look_at_saved(options, side, counter, stdin)
        others = [each.opened for each in sides if each.opened is not None and each is not side]
        given = _options_of(options, side.name)
        given["model"] = side.model
        given["values"] = _values_of(options["values"], side.opened, others)
        asked = asked_prompt(given, "look at", side.opened, stdin)
        with asked.blaming():
            return look(
                asked.prompter,
                Call(*asked.call),
                title=side.name or "",
                form=asked.form,
                model=side.model,
                counter=counter,
                max_tokens=options["max_tokens"],
                window=options["window"],
            )


def _values_of(values: tuple[str, ...], opened: Asked, others: list[Asked]) -> tuple[str, ...]:
    """The values for one of two prompts: without those that only the other has a slot for."""
    foreign = {name for other in others for name in other.inputs.names} - {*opened.inputs.names}
    return tuple(value for value in values if value.partition("=")[0] not in foreign)


def _look_at_saved(options: InspectOptions, side: _Side, counter: TokenCounter, stdin: Stdin) -> Look:
    name = side.name or ""
    text = stdin.read("PROMPT_FILE") if name == _STDIN else file_text("PROMPT_FILE", name)
    if name.lower().endswith(_LINES):
        text = next((line for line in text.split("\n") if line.strip()), "")
    try:
        return saved_look(
            text,
            title="the standard input" if name == _STDIN else name,
            form=None if options["form"] == "flat" else options["form"],
            model=side.model,
            counter=counter,
            window=options["window"],
        )
    except LazyPromptError as error:
        raise WrongUseError("PROMPT_FILE", f"{name}: {error}") from error


@contextmanager
def _blamed(option: str, *, only: bool = True) -> Generator[None]:
    """Blame the option that named a prompt for what is wrong with it."""
    try:
        yield
    except WrongUseError as error:
        if not only:
            raise
        raise WrongUseError(option, error.message) from error
