"""The prompt that a command line asks for: the options that describe it, read for every command that takes one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

import click

from lazyprompt._cli_io import Stdin, WrongUseError, json_list, json_object
from lazyprompt._json import well_formed
from lazyprompt.errors import (
    BudgetError,
    FormatError,
    HistoryError,
    LazyPromptError,
    MissingExtraError,
    SafetyError,
    SlotError,
    TokenizerError,
    ToolsError,
)
from lazyprompt.prompter import FORMATS
from lazyprompt.prompters import AlpacaPrompter, ChatPrompter
from lazyprompt.text.safety import SAFETIES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from lazyprompt.formatters.report import Payload
    from lazyprompt.history import HistoryLike
    from lazyprompt.prompt_maker import OpenAIPrompt, ToolsLike
    from lazyprompt.prompter import Prompter
    from lazyprompt.text.safety import Safety

_Command = TypeVar("_Command", bound="Callable[..., Any]")
_OptionText: TypeAlias = "str | tuple[str, ...] | None"

# The option to blame for an error of the library; for any other error it is the one that gave the input.
_OPTION_OF: dict[type[LazyPromptError], str] = {
    HistoryError: "--history",
    ToolsError: "--tools",
    SafetyError: "--safety",
    FormatError: "--format",
    BudgetError: "--max-tokens",
    TokenizerError: "--counter",
    MissingExtraError: "--counter",
}


class WordsOptions(TypedDict):
    """What the options of a prompt's words give."""

    prompt_file: str | None
    kind: Literal["chat", "alpaca"] | None
    instruction: str | None
    user_instruction: str | None
    system: str | None
    extra_keys: tuple[str, ...]
    values: tuple[str, ...]
    text: str | None
    history: str | None
    tools: str | None


class PromptOptions(WordsOptions):
    """What the options of a prompt give: its words, and its form."""

    label: str | None
    model: str | None
    form: str
    safety: Safety | None


def _utf8(_: click.Context, parameter: click.Parameter, value: _OptionText) -> _OptionText:
    """Text that can be written as UTF-8: a shell may hand over any bytes."""
    for text in (value,) if isinstance(value, str) else value or ():
        try:
            well_formed(text, "the text", LazyPromptError)
        except LazyPromptError as error:
            raise WrongUseError(max(parameter.opts, key=len), "the text is not UTF-8") from error
    return value


text_option = partial(click.option, callback=_utf8)

_WORDS = (
    click.argument("prompt_file", required=False, metavar="[PROMPT_FILE]"),
    click.option(
        "--type", "kind", type=click.Choice(["chat", "alpaca"]), help="The form of the prompt.  [default: chat]"
    ),
    text_option("--instruction", help="What the model is told, with slots: 'Answer from {context}.'"),
    text_option("--user-instruction", metavar="TEXT", help="An instruction in the user's turn."),
    text_option("--system", help="The system text, in place of the model's own."),
    text_option("--extra-key", "extra_keys", multiple=True, metavar="NAME", help="A further slot."),
    text_option("--set", "values", multiple=True, metavar="NAME=VALUE", help="The value of a slot."),
    text_option("--input", "text", help="What the user says, or the value of the only slot."),
    click.option("--history", metavar="FILE.json", help="Pairs or OpenAI messages."),
    click.option("--tools", metavar="FILE.json", help="Tools in the OpenAI form."),
)
_FORM = (
    text_option("--label", help="The answer, in training data."),
    text_option("--model", metavar="NAME", help="The model to write for (see lazyprompt families)."),
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        metavar="FORM",
        default="flat",
        show_default=True,
        help="flat, or a provider (see lazyprompt providers).",
    ),
    click.option(
        "--safety", type=click.Choice(SAFETIES), help="For control sequences in values.  [default: neutralize]"
    ),
)


def words_options(command: _Command) -> _Command:
    """Give a command the options of a prompt's words; for the form, it knows better."""
    return with_options(command, _WORDS)


def prompt_options(command: _Command) -> _Command:
    """Give a command the options of a prompt."""
    return with_options(command, (*_WORDS, *_FORM))


def with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    """Give a command options, in the order of its help."""
    for option in reversed(options):
        command = option(command)
    return command


class Asked(NamedTuple):
    """A prompter, and what it is called with.

    Attributes:
        prompter: The prompter.
        call: Input, history, tools and label.
        form: The form that was asked for.
        model: The model at the provider; ``None`` where the prompter has the model's markers.
        where: The option that gave the input.
    """

    prompter: Prompter
    call: tuple[object, HistoryLike | None, ToolsLike, str | None]
    form: str
    model: str | None
    where: str

    def made(self) -> str | OpenAIPrompt | Payload:
        """The prompt in the form that was asked for."""
        return self.prompter.generate_prompt(*self.call, format=self.form, model=self.model)

    @contextmanager
    def blaming(self) -> Generator[None]:
        """Make wrong use of an error of the library.

        Raises:
            WrongUseError: In its place; it names the option to blame.
        """
        try:
            yield
        except LazyPromptError as error:
            advice = "; --set name=value gives one slot its value" if isinstance(error, SlotError) else ""
            what = f"{error}{advice if self.where != '--set' else ''}"
            raise WrongUseError(_OPTION_OF.get(type(error), self.where), what) from error


def asked_prompt(options: PromptOptions, purpose: str) -> Asked:
    """What the options ask for.

    Args:
        options: The options.
        purpose: What is to be done with the prompt, as ``render``.

    Returns:
        The prompter and its call.

    Raises:
        WrongUseError: An option is wrong, or says nothing beside others; or there is no prompt at all.
    """
    form, safety = options["form"], options["safety"]
    if form != "flat" and safety is not None:
        raise WrongUseError("--safety", f"only flat text is searched for control sequences; leave out --format {form}")
    asked = asked_words(options, purpose)
    # The model's markers and system text are the prompter's own; a provider is told its name.
    own = options["model"] is not None and form in ("flat", "openai")
    prompter = _for_model(asked.prompter, str(options["model"])) if own else asked.prompter
    if safety is not None:
        prompter = prompter.with_safety(safety)
    given, history, tools, _ = asked.call
    call = given, history, tools, options["label"]
    return Asked(prompter, call, form, None if own else options["model"], asked.where)


def asked_words(options: WordsOptions, purpose: str) -> Asked:
    """What the options of a prompt's words ask for, as flat text of no model.

    Args:
        options: The options.
        purpose: What is to be done with the prompt, as ``run``.

    Returns:
        The prompter and its call.

    Raises:
        WrongUseError: As of :func:`asked_prompt`.
    """
    _refuse_conflicts(options)
    prompter = _prompter(options)
    where, given = _given(options, prompter)
    history = cast("HistoryLike | None", json_list("--history", options["history"]))
    tools = cast("ToolsLike", json_list("--tools", options["tools"]))
    sources = (given, history, options["prompt_file"], options["instruction"], options["user_instruction"])
    if all(source is None for source in sources):
        raise WrongUseError("PROMPT_FILE", f"nothing to {purpose}; give a prompt file, --instruction or --input")
    return Asked(prompter, (given, history, tools, None), "flat", None, where)


def _for_model(prompter: Prompter, model: str) -> Prompter:
    try:
        return prompter.with_markers(model)
    except LazyPromptError as error:
        raise WrongUseError("--model", str(error)) from error


def _refuse_conflicts(options: WordsOptions) -> None:
    """Refuse options that would say nothing beside others."""
    in_file = {
        "--type": options["kind"],
        "--instruction": options["instruction"],
        "--user-instruction": options["user_instruction"],
        "--extra-key": options["extra_keys"] or None,
    }
    for option, value in in_file.items():
        if value is not None and options["prompt_file"] is not None:
            raise WrongUseError(option, "the prompt file says that; give one of the two")


def _prompter(options: WordsOptions) -> Prompter:
    """The prompter of the prompt file or of the options, with what overrides it."""
    where = "PROMPT_FILE"
    try:
        if options["prompt_file"] is not None:
            from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - yaml costs 10 ms

            prompter: Prompter = PromptFile.load(options["prompt_file"]).prompter
        else:
            where = "--extra-key" if options["extra_keys"] else "--instruction"
            make = AlpacaPrompter if options["kind"] == "alpaca" else ChatPrompter
            prompter = make(_instruction(options), options["extra_keys"])
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    return prompter if options["system"] is None else prompter.with_system(options["system"])


def _instruction(options: WordsOptions) -> str | dict[str, str] | None:
    system, user = options["instruction"], options["user_instruction"]
    if user is None:
        return system
    return {"user": user} if system is None else {"system": system, "user": user}


def _given(options: WordsOptions, prompter: Prompter) -> tuple[str, object]:
    """The input, and which option gave it."""
    stdin = Stdin()
    values = _values(options["values"], stdin)
    if options["text"] is not None:
        text = stdin.value("--input", options["text"])
        if "input" in values:
            raise WrongUseError("--input", "--set gives a value for 'input' too; give one of the two")
        return ("--set", {**values, "input": text}) if values else ("--input", text)
    if values or not (prompter.slots or isinstance(prompter, ChatPrompter)):
        return "--set", values or None
    piped = stdin.read_if_piped()
    if not piped:
        return "--set", None
    by_name = json_object(piped)
    return "stdin", piped.removesuffix("\n") if by_name is None else by_name


def _values(settings: Iterable[str], stdin: Stdin) -> dict[str, str]:
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise WrongUseError("--set", f"{short(setting)} is not of the form name=value")
        if name in values:
            raise WrongUseError("--set", f"{name!r} is given twice")
        values[name] = stdin.value("--set", value)
    return values
