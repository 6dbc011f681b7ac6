"""The prompt that options describe: opens its prompter and reads the arguments to call it with."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from lazyprompt.cli.errors import WrongUseError, blaming
from lazyprompt.cli.inputs import FileInputs, SlotInputs
from lazyprompt.cli.reading import Stdin, json_list, json_object
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
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from lazyprompt.cli.options import FileOptions, Options
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter

# A prompter, and the .prompty or .prompt file that it is from.
Opened: TypeAlias = "tuple[Prompter, Prompty | None]"

# The option to blame for an error of the library; any other error is blamed on the option that gave the input.
_OPTION_OF: dict[type[LazyPromptError], str] = {
    HistoryError: "--history",
    ToolsError: "--tools",
    SafetyError: "--safety",
    FormatError: "--format",
    BudgetError: "--max-tokens",
    TokenizerError: "--counter",
    MissingExtraError: "--counter",
}
# The names of .prompty and .prompt files end so; all other files are YAML prompt files.
_SUFFIXES = (".prompty", ".prompt")


class PromptRequest(NamedTuple):
    """A prompter, and the arguments to call it with.

    Attributes:
        prompter: The prompter.
        inputs: Reads the values of its slots or inputs.
        file: The ``.prompty`` or ``.prompt`` file that it is from.
        call: Input, history, tools and label.
        form: The format of the prompt.
        model: The model at the provider; None if the prompter has the model's markers.
        where: The option that gave the input.
    """

    prompter: Prompter
    inputs: SlotInputs
    file: Prompty | None
    call: tuple[object, HistoryLike | None, ToolsLike, str | None] = (None, None, None, None)
    form: str = "flat"
    model: str | None = None
    where: str = "--set"

    @classmethod
    def of(cls, opened: Opened, system: str | None = None) -> PromptRequest:
        """Return a request without input, for flat text of no model.

        Args:
            opened: The prompter, and the file that it is from.
            system: The system text; None for the prompter's own.
        """
        prompter, file = opened
        if system is not None:
            prompter = prompter.with_system(system)
        return cls(prompter, SlotInputs(prompter) if file is None else FileInputs(prompter, file), file)

    @contextmanager
    def blaming(self) -> Generator[None]:
        """Turn an error of the library into wrong use of the option that it is about.

        Raises:
            WrongUseError: In place of the error.
        """
        try:
            yield
        except LazyPromptError as error:
            advise = isinstance(error, SlotError) and self.where != "--set"
            what = f"{error}; --set name=value gives one slot its value" if advise else str(error)
            raise WrongUseError(_OPTION_OF.get(type(error), self.where), what) from error


def read_prompt(
    options: Options, purpose: str, opened: PromptRequest | None = None, stdin: Stdin | None = None
) -> PromptRequest:
    """Read the prompt that options describe.

    Args:
        options: The options.
        purpose: The verb for the error without a prompt, as ``render``.
        opened: The request of :func:`open_prompter`, if it was called already.
        stdin: The standard input, if two prompts share it.

    Raises:
        WrongUseError: An option is wrong, or has no effect beside others; or there is no prompt at all.
    """
    form, safety, model = options["form"], options["safety"], options["model"]
    if form != "flat" and safety is not None:
        raise WrongUseError("--safety", f"only flat text is searched for control sequences; leave out --format {form}")
    request = read_words(options, purpose, opened, stdin)
    prompter = request.prompter
    # Markers and system text of a family are the prompter's own; a provider gets the model's name.
    if model is not None and form in ("flat", "openai"):
        with blaming("--model"):
            prompter = prompter.with_markers(model)
        model = None
    if safety is not None:
        prompter = prompter.with_safety(safety)
    call = (*request.call[:3], options["label"])
    return request._replace(prompter=prompter, call=call, form=form, model=model)


def read_words(
    options: Options, purpose: str, opened: PromptRequest | None = None, stdin: Stdin | None = None
) -> PromptRequest:
    """Read the words of a prompt, as flat text of no model; arguments and errors as of :func:`read_prompt`."""
    request = opened or open_prompter(options)
    where, given = _read_input(options, request.inputs, stdin or Stdin())
    history = cast("HistoryLike | None", json_list("--history", options["history"]))
    tools = cast("ToolsLike", json_list("--tools", options["tools"]))
    sources = (given, history, options["prompt_file"], options["instruction"], options["user_instruction"])
    if all(source is None for source in sources):
        raise WrongUseError("PROMPT_FILE", f"nothing to {purpose}; give a prompt file, --instruction or --input")
    request = request._replace(call=(given, history, tools, None), where=where)
    with request.blaming():
        request.inputs.check(given, history=history is not None)
    return request


def open_prompter(options: Options, opened: Opened | None = None) -> PromptRequest:
    """Open the prompter that options describe, without its input.

    Args:
        options: The options.
        opened: The prompter that the option of the prompt file names, if that is no file.

    Raises:
        WrongUseError: As of :func:`read_prompt`.
    """
    in_file = {
        "--type": options["kind"],
        "--instruction": options["instruction"],
        "--user-instruction": options["user_instruction"],
        "--extra-key": options["extra_keys"] or None,
    }
    for option, value in in_file.items():
        if value is not None and options["prompt_file"] is not None:
            raise WrongUseError(option, "the prompt file says that; give one of the two")
    opened = opened or open_file(options)
    if opened is None:
        make = AlpacaPrompter if options["kind"] == "alpaca" else ChatPrompter
        with blaming("--extra-key" if options["extra_keys"] else "--instruction"):
            opened = make(_instruction(options), options["extra_keys"]), None
    return PromptRequest.of(opened, options["system"])


def open_file(options: FileOptions) -> Opened | None:
    """Open the prompt file that options name; None if they name none.

    Raises:
        WrongUseError: The file cannot be read, or an option has no effect on it.
    """
    name, params, roots = options["prompt_file"], options["params"], options["roots"]
    has_references = name is not None and Path(name).suffix.lower() in _SUFFIXES
    for option, given in (("--param", params), ("--root", roots)):
        if given and not has_references:
            raise WrongUseError(option, f"it is for files whose names end with {' or '.join(_SUFFIXES)}")
    if name is None:
        return None
    with blaming("PROMPT_FILE"):
        if has_references:
            from lazyprompt.files.prompty import Prompty  # noqa: PLC0415 - jinja2 and yaml cost 30 ms

            file = Prompty.load(name, params, roots)
            return file.prompter, file
        from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - yaml costs 10 ms

        return PromptFile.load(name).prompter, None


def _instruction(options: Options) -> str | dict[str, str] | None:
    system, user = options["instruction"], options["user_instruction"]
    if user is None:
        return system
    return {"user": user} if system is None else {"system": system, "user": user}


def _read_input(options: Options, inputs: SlotInputs, stdin: Stdin) -> tuple[str, object]:
    """Read the input, and name the option that gave it."""
    values = read_values(options["values"], inputs, stdin)
    text = options["text"]
    if text is not None:
        if "input" in values:
            raise WrongUseError("--input", "--set gives a value for 'input' too; give one of the two")
        with _blaming_text("--input"):
            name = inputs.open_name(values)
            given = inputs.with_text(values, name, inputs.read("--input", name, text, stdin))
        return ("--set" if values else "--input"), given
    piped = "" if values or not inputs.takes_text else stdin.read_if_piped()
    if not piped:
        return "--set", values or None
    by_name = json_object(piped)
    if by_name is not None:
        return "stdin", by_name
    with _blaming_text("stdin"):
        name = inputs.open_name({})
        # Piped text never names a file.
        return "stdin", inputs.with_text({}, name, inputs.value(name, piped.removesuffix("\n")))


@contextmanager
def _blaming_text(where: str) -> Generator[None]:
    """Blame a text given without a name, if it could be the value of several names or of none."""
    try:
        yield
    except SlotError as error:
        raise WrongUseError(where, f"{error}; --set name=value gives one its value") from error


def read_values(given: Mapping[str, str], inputs: SlotInputs, stdin: Stdin) -> dict[str, object]:
    """Read the values that ``--set`` gives.

    Args:
        given: The text of each value.
        inputs: Reads them.
        stdin: The standard input.

    Raises:
        WrongUseError: The file of a value cannot be read.
    """
    return {name: inputs.read("--set", name, text, stdin) for name, text in given.items()}
