"""The prompt that a command line asks for: the options that describe it, read for every command that takes one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

import click

from lazyprompt._json import well_formed
from lazyprompt.cli.inputs import FileInputs, SlotInputs, with_text
from lazyprompt.cli.streams import Stdin, WrongUseError, json_list, json_object
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

    from lazyprompt.cli.inputs import Inputs
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.formatters.report import Payload
    from lazyprompt.history import HistoryLike
    from lazyprompt.prompt_maker import OpenAIPrompt, ToolsLike
    from lazyprompt.prompter import Prompter
    from lazyprompt.text.safety import Safety

_Command = TypeVar("_Command", bound="Callable[..., Any]")
_OptionText: TypeAlias = "str | tuple[str, ...] | None"
# A prompter, and the file that it is from.
Opened: TypeAlias = "tuple[Prompter, Prompty | None]"

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
# How the names of files end that are a prompt themselves; all others are YAML prompt files.
_SUFFIXES = (".prompty", ".prompt")


class WordsOptions(TypedDict):
    """What the options of a prompt's words give."""

    prompt_file: str | None
    params: tuple[str, ...]
    roots: tuple[str, ...]
    kind: Literal["chat", "alpaca"] | None
    instruction: str | None
    user_instruction: str | None
    system: str | None
    extra_keys: tuple[str, ...]
    values: tuple[str, ...]
    text: str | None
    history: str | None
    tools: str | None


NO_WORDS: Final[WordsOptions] = {
    "prompt_file": None,
    "params": (),
    "roots": (),
    "kind": None,
    "instruction": None,
    "user_instruction": None,
    "system": None,
    "extra_keys": (),
    "values": (),
    "text": None,
    "history": None,
    "tools": None,
}
"""What they give where nobody gave any: for commands that have only some of them."""


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

FILE_OPTIONS = (
    text_option(
        "--param", "params", multiple=True, metavar="NAME=VALUE", help="The value of ${params:NAME} in a file."
    ),
    click.option("--root", "roots", multiple=True, metavar="DIRECTORY", help="Where ${file:...} may lead to as well."),
)
"""The options of a ``.prompty`` or ``.prompt`` file."""

_WORDS = (
    click.argument("prompt_file", required=False, metavar="[PROMPT_FILE]"),
    click.option(
        "--type", "kind", type=click.Choice(["chat", "alpaca"]), help="The form of the prompt.  [default: chat]"
    ),
    text_option("--instruction", help="What the model is told, with slots: 'Answer from {context}.'"),
    text_option("--user-instruction", metavar="TEXT", help="An instruction in the user's turn."),
    text_option("--system", help="The system text, in place of the model's own."),
    text_option("--extra-key", "extra_keys", multiple=True, metavar="NAME", help="A further slot."),
    text_option("--set", "values", multiple=True, metavar="NAME=VALUE", help="The value of a slot, or of an input."),
    text_option("--input", "text", help="The user's text, or the value of the only open slot in the user's part."),
    click.option("--history", metavar="FILE.json", help="Pairs or OpenAI messages."),
    click.option("--tools", metavar="FILE.json", help="Tools in the OpenAI form."),
    *FILE_OPTIONS,
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
        inputs: How the prompt takes its input.
        file: The ``.prompty`` or ``.prompt`` file that it is from.
    """

    prompter: Prompter
    call: tuple[object, HistoryLike | None, ToolsLike, str | None]
    form: str
    model: str | None
    where: str
    inputs: Inputs
    file: Prompty | None = None

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


def asked_prompt(
    options: PromptOptions, purpose: str, opened: Asked | None = None, stdin: Stdin | None = None
) -> Asked:
    """What the options ask for.

    Args:
        options: The options.
        purpose: What is to be done with the prompt, as ``render``.
        opened: The prompter, where it is known already; else it is that of :func:`asked_prompter`.
        stdin: The standard input, where others read it too.

    Returns:
        The prompter and its call.

    Raises:
        WrongUseError: An option is wrong, or says nothing beside others; or there is no prompt at all.
    """
    form, safety = options["form"], options["safety"]
    if form != "flat" and safety is not None:
        raise WrongUseError("--safety", f"only flat text is searched for control sequences; leave out --format {form}")
    asked = asked_words(options, purpose, opened, stdin)
    # The model's markers and system text are the prompter's own; a provider is told its name.
    own = options["model"] is not None and form in ("flat", "openai")
    prompter = _for_model(asked.prompter, str(options["model"])) if own else asked.prompter
    if safety is not None:
        prompter = prompter.with_safety(safety)
    given, history, tools, _ = asked.call
    call = given, history, tools, options["label"]
    return asked._replace(prompter=prompter, call=call, form=form, model=None if own else options["model"])


def asked_words(options: WordsOptions, purpose: str, opened: Asked | None = None, stdin: Stdin | None = None) -> Asked:
    """What the options of a prompt's words ask for, as flat text of no model.

    Args:
        options: The options.
        purpose: What is to be done with the prompt, as ``run``.
        opened: As of :func:`asked_prompt`.
        stdin: As of :func:`asked_prompt`.

    Returns:
        The prompter and its call.

    Raises:
        WrongUseError: As of :func:`asked_prompt`.
    """
    asked = opened or asked_prompter(options)
    where, given = _given(options, asked.inputs, stdin or Stdin())
    history = cast("HistoryLike | None", json_list("--history", options["history"]))
    tools = cast("ToolsLike", json_list("--tools", options["tools"]))
    sources = (given, history, options["prompt_file"], options["instruction"], options["user_instruction"])
    if all(source is None for source in sources):
        raise WrongUseError("PROMPT_FILE", f"nothing to {purpose}; give a prompt file, --instruction or --input")
    asked = asked._replace(call=(given, history, tools, None), where=where)
    with asked.blaming():
        asked.inputs.check(given, history=history is not None)
    return asked


def asked_prompter(options: WordsOptions, opened: Opened | None = None) -> Asked:
    """The prompter of the prompt file or of the options, with what overrides it, as flat text of no model.

    Args:
        options: The options; what they give as input is left out.
        opened: What the prompt file is, where that is known already.

    Raises:
        WrongUseError: As of :func:`asked_prompt`.
    """
    _refuse_conflicts(options)
    name = options["prompt_file"]
    params = settings("--param", options["params"])
    where = "PROMPT_FILE"
    file: Prompty | None = None
    try:
        if name is None:
            where = "--extra-key" if options["extra_keys"] else "--instruction"
            make = AlpacaPrompter if options["kind"] == "alpaca" else ChatPrompter
            prompter: Prompter = make(_instruction(options), options["extra_keys"])
        elif opened is not None:
            prompter, file = opened
        elif _is_prompty(name):
            from lazyprompt.files.prompty import Prompty  # noqa: PLC0415 - jinja2 and yaml cost 30 ms

            file = Prompty.load(name, params, options["roots"])
            prompter = file.prompter
        else:
            from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - yaml costs 10 ms

            prompter = PromptFile.load(name).prompter
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    prompter = prompter if options["system"] is None else prompter.with_system(options["system"])
    inputs = SlotInputs(prompter) if file is None else FileInputs(file)
    return Asked(prompter, (None, None, None, None), "flat", None, "--set", inputs, file)


def _is_prompty(name: str | None) -> bool:
    return name is not None and Path(name).suffix.lower() in _SUFFIXES


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
    for option, given in (("--param", options["params"]), ("--root", options["roots"])):
        if given and not _is_prompty(options["prompt_file"]):
            raise WrongUseError(option, f"it is for files whose names end with {' or '.join(_SUFFIXES)}")


def _instruction(options: WordsOptions) -> str | dict[str, str] | None:
    system, user = options["instruction"], options["user_instruction"]
    if user is None:
        return system
    return {"user": user} if system is None else {"system": system, "user": user}


def _given(options: WordsOptions, inputs: Inputs, stdin: Stdin) -> tuple[str, object]:
    """The input, and which option gave it."""
    values = read_values(options["values"], inputs, stdin)
    text = options["text"]
    if text is not None:
        if "input" in values:
            raise WrongUseError("--input", "--set gives a value for 'input' too; give one of the two")
        made = with_text("--input", values, inputs, lambda name: inputs.read("--input", name, text, stdin))
        return ("--set" if values else "--input"), made
    piped = "" if values or not inputs.takes_text else stdin.read_if_piped()
    if not piped:
        return "--set", values or None
    by_name = json_object(piped)
    if by_name is not None:
        return "stdin", by_name
    # Nothing piped in names a file.
    return "stdin", with_text("stdin", {}, inputs, lambda name: inputs.value(name, piped.removesuffix("\n")))


def read_values(given: Iterable[str], inputs: Inputs, stdin: Stdin) -> dict[str, object]:
    """The values that ``--set`` gives, by their names.

    Args:
        given: What it was given, each time.
        inputs: How the prompt takes them.
        stdin: The standard input.

    Raises:
        WrongUseError: A setting is none, or its file cannot be read.
    """
    return {name: inputs.read("--set", name, text, stdin) for name, text in settings("--set", given).items()}


def settings(option: str, given: Iterable[str]) -> dict[str, str]:
    """What an option ``NAME=VALUE`` that can be given more than once says.

    Args:
        option: The option.
        given: What it was given.

    Raises:
        WrongUseError: It is of another form, or names something twice.
    """
    values: dict[str, str] = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise WrongUseError(option, f"{short(setting)} is not of the form name=value")
        if name in values:
            raise WrongUseError(option, f"{name!r} is given twice")
        values[name] = value
    return values
