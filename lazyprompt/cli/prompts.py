"""Functions that read a prompter and its call arguments from command-line options and pipes."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lazyprompt._base.secret import HiddenEnvironment
from lazyprompt.cli.streams import (
    Stdin,
    WrongUseError,
    blaming,
    json_list,
    json_or_text,
)
from lazyprompt.errors import (
    BudgetError,
    FormatError,
    HistoryError,
    LazyPromptError,
    MediaError,
    MissingExtraError,
    SafetyError,
    SlotError,
    TokenizerError,
    ToolsError,
)
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter
from lazyprompt.templates.slots import unknown_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping

    from lazyprompt.cli.options import Options
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import AudioBlock, FileBlock, ImageBlock, Msg, VideoBlock
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter


_OPTION_OF: dict[type[LazyPromptError], str] = {
    HistoryError: "--history",
    ToolsError: "--tools",
    SafetyError: "--safety",
    FormatError: "--format",
    BudgetError: "--max-tokens",
    TokenizerError: "--counter",
    MissingExtraError: "--counter",
}
# Matches a URL scheme of two or more letters, because a single letter is a Windows drive.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class PromptRequest:
    """A prompter and the arguments for a call.

    The slots of a prompter take strings; the inputs of a ``.prompty`` file take values of their declared types.

    Args:
        prompter: The prompter.
        file: The ``.prompty`` file that the prompter was loaded from, if any.
        call: The prompter's arguments: input, history, tools and label.
        form: The format of the prompt.
        model: The model name for a provider's format; None in formats for which ``--model`` selects the markers.
        where: The source of the input, as error messages name it: an option such as ``--set``, or ``stdin``.
    """

    prompter: Prompter
    file: Prompty | None = None
    call: tuple[object, HistoryLike | None, ToolsLike, str | None] = (None, None, None, None)
    form: str = "flat"
    model: str | None = None
    where: str = "--set"

    @property
    def names(self) -> Collection[str]:
        """The slot names; for a ``.prompty`` file, its declared inputs and all variables that its template uses."""
        if self.file is None:
            return self.prompter.slots
        return dict.fromkeys((*(each.name for each in self.file.inputs), *self.file.slots))

    def with_system(self, system: str | None) -> PromptRequest:
        """Return a copy with a different system text; None keeps the prompter's system text."""
        return self if system is None else replace(self, prompter=self.prompter.with_system(system))

    @contextmanager
    def blaming(self, where: str = "") -> Generator[None]:
        """Turn the library's errors into usage errors for an option.

        Args:
            where: The source of the input: an option such as ``--set``, or ``stdin``; :attr:`where` by default.

        Raises:
            WrongUseError: The library raised an error inside the block.
        """
        where = where or self.where
        try:
            yield
        except LazyPromptError as error:
            advise = isinstance(error, SlotError) and where != "--set"
            what = f"{error}; use --set name=value to set one slot" if advise else str(error)
            raise WrongUseError(_OPTION_OF.get(type(error), where), what) from error

    def read_values(self, given: Mapping[str, str], stdin: Stdin) -> dict[str, object]:
        """Read the values that are set with ``--set``.

        Args:
            given: The text given for each slot or input, keyed by name.
            stdin: The reader for standard input.

        Raises:
            WrongUseError: A file that a value refers to cannot be read.
        """
        return {name: self.read_value("--set", name, text, stdin) for name, text in given.items()}

    def read_value(self, where: str, name: str, text: str, stdin: Stdin) -> object:
        """Convert an option's text to a value; ``@path`` means the file's text or, for a media input, a media block."""
        kind = self._kind(name)
        is_file = text.startswith("@") and not text.startswith("@@")
        medium = _media_kinds().get(kind) if is_file and kind != "string" else None
        if medium is None:
            return self.value(name, stdin.value(where, text))
        try:
            return medium.from_file(text[1:])
        except (MediaError, ValueError) as error:  # a path with a NUL character raises a ValueError
            # Omit the second part of the media error's message, which contains advice for Python code.
            raise WrongUseError(where, f"{name}: {str(error).partition(';')[0]}") from error

    def value(self, name: str, text: str) -> object:
        """Convert a text to the input's type, or return it unchanged so that :meth:`check` reports the error."""
        kind = self._kind(name)
        if kind == "string" or kind in _media_kinds():
            return text
        value = json_or_text(text)
        if kind == "union":  # keep the text unless its JSON value has one of the input's types
            try:
                self._check({name: value}, name)
            except SlotError:
                return text
        return value

    def with_value(self, values: Mapping[str, object], name: str, value: object) -> dict[str, object]:
        """Return a copy of the values that also contains the user's text.

        Args:
            values: The values of the slots or inputs that don't contain the user's text, keyed by name.
            name: The slot or input for the user's text, as returned by ``prompter.name_of_text``.
            value: The value that contains the user's text.

        Raises:
            SlotError: No user turn of the prompt file uses the input, and the input isn't named ``input``.
        """
        return {**values, name: value} if self.file is None else self.file.with_text(values, name, value)

    def check(self, given: Mapping[str, object], *, history: bool = False) -> None:
        """Validate the inputs of a ``.prompty`` file; a prompter without a file validates its slots when it is filled.

        Args:
            given: The values by name.
            history: True if there is a history, so that a required input of type ``thread`` may be missing.

        Raises:
            SlotError: Inputs are invalid; the message lists all faults.
        """
        if self.file is None:
            return
        known = {name: value for name, value in given.items() if name in self.names}
        faults = [*self._faults(known)]
        try:
            self._check(known, *(each.name for each in self.file.inputs if each.kind != "thread" or not history))
        except SlotError as error:
            faults.append(str(error))
            if any(isinstance(value, str) and self._kind(name) != "string" for name, value in known.items()):
                faults.append("write all values other than text and URLs as JSON")
        if unknown := unknown_inputs(given, self.names):
            faults.append(unknown)
        if faults:
            raise SlotError("; ".join(faults))

    def _check(self, values: Mapping[str, object], *names: str) -> None:
        """Validate the values of the named inputs."""
        from lazyprompt.files.properties import checked_inputs

        checked_inputs(values, [each for each in self.file.inputs if each.name in names] if self.file else [])

    def _kind(self, name: str) -> str:
        """Return the declared type of an input, or ``string`` for a slot."""
        inputs = () if self.file is None else self.file.inputs
        return next((each.kind for each in inputs if each.name == name), "string")

    def _faults(self, values: Mapping[str, object]) -> Iterator[str]:
        """Yield an error message for each invalid thread and for each invalid URL."""
        for name, value in values.items():
            kind = self._kind(name)
            if kind in _media_kinds() and isinstance(value, str) and value and not _ADDRESS.match(value):
                yield f"{name} is {value!r}, which is not a URL; for a file, use @{value}"
            if kind == "thread" and isinstance(value, list):
                from lazyprompt.messages.parse import parse_messages

                try:
                    parse_messages(values[name])  # noqa: PLR1733 - `value` has items of an unknown type here
                except LazyPromptError as error:
                    yield f"{name}: {error}"


def read_prompt(
    options: Options, purpose: str, opened: PromptRequest | None = None, stdin: Stdin | None = None
) -> PromptRequest:
    """Read the prompt that the command-line options select.

    Args:
        options: The command's options.
        purpose: The verb for the error message if there is no prompt, such as ``render``.
        opened: The result of :func:`open_prompter`, if it was already called.
        stdin: The reader for standard input, if two prompts share it; None for a new reader.

    Raises:
        WrongUseError: An option is invalid, two options conflict, or there is no prompt.
    """
    form, safety, model = options["form"], options["safety"], options["model"]
    request = read_words(options, purpose, opened, stdin)
    prompter = request.prompter
    # In the flat and openai formats, --model names a model family, which determines the markers.
    if model is not None and form in ("flat", "openai"):
        with blaming("--model"):
            prompter = prompter.with_markers(model)
        model = None
    if safety is not None:
        prompter = prompter.with_safety(safety)
    return replace(request, prompter=prompter, call=(*request.call[:3], options["label"]), form=form, model=model)


def read_words(
    options: Options, purpose: str, opened: PromptRequest | None = None, stdin: Stdin | None = None
) -> PromptRequest:
    """Read a prompt and its arguments without the format options, such as ``--format``; see :func:`read_prompt`."""
    request = opened or open_prompter(options)
    where, values, text = _read_input(options, request, stdin or Stdin())
    history, tools = read_history(options), read_tools(options)
    given = text if values is None else values
    sources = (given, history, options["prompt_file"], options["instruction"], options["user_instruction"])
    if all(source is None for source in sources):
        raise WrongUseError("PROMPT_FILE", f"nothing to {purpose}; add a prompt file, --instruction or --input")
    request = replace(request, call=(given, history, tools, None), where=where)
    with request.blaming():
        request.check(values or {}, history=history is not None)
    return request


def read_history(options: Options) -> list[Msg] | None:
    """Read the messages from the file that ``--history`` names; return None if the option is not set."""
    found = json_list("--history", options["history"])
    if found is None:
        return None
    from lazyprompt.messages.parse import parse_messages

    with blaming("--history"):
        return parse_messages(found)


def read_tools(options: Options) -> ToolsLike:
    """Read the tools from the file that ``--tools`` names."""
    return cast("ToolsLike", json_list("--tools", options["tools"]))


def open_prompter(options: Options, opened: PromptRequest | None = None) -> PromptRequest:
    """Open the prompter that the options select, without reading the prompt's input.

    Args:
        options: The command's options.
        opened: The prompter that ``PROMPT_FILE`` refers to, if that argument is not a file.

    Raises:
        WrongUseError: An option is invalid or conflicts with another option.
    """
    system, user = options["instruction"], options["user_instruction"]
    in_file = {
        "--type": options["kind"],
        "--instruction": system,
        "--user-instruction": user,
        "--extra-key": options["extra_keys"] or None,
    }
    for option, value in in_file.items():
        if value is not None and options["prompt_file"] is not None:
            raise WrongUseError(option, "the prompt file defines this value; pass either the option or the file")
    opened = opened or open_file(options)
    if opened is None:
        make = AlpacaPrompter if options["kind"] == "alpaca" else ChatPrompter
        instruction = system if user is None else ({} if system is None else {"system": system}) | {"user": user}
        with blaming("--extra-key" if options["extra_keys"] else "--instruction"):
            opened = PromptRequest(make(instruction, options["extra_keys"]))
    return opened.with_system(options["system"])


def open_file(options: Options) -> PromptRequest | None:
    """Open the prompt file, or return None if the command line names none.

    Raises:
        WrongUseError: The file cannot be read, or its type does not support one of the options.
    """
    name, params, roots = options["prompt_file"], options["params"], options["roots"]
    has_references = name is not None and Path(name).suffix.lower() == ".prompty"
    undefined = options.get("undefined")
    for option, given in (("--param", params), ("--root", roots), ("--undefined", undefined)):
        if given and not has_references:
            raise WrongUseError(option, "this option requires a .prompty file")
    if name is None:
        return None
    with blaming("PROMPT_FILE"):
        if has_references:
            from lazyprompt.files.prompty import Prompty
            from lazyprompt.files.references import References

            place, env = Path(name), options.get("env")
            # Commands without --env only display the prompt, so hide the environment values.
            environment, named = (HiddenEnvironment(), None) if env is None else (None, frozenset(env))
            allowed = tuple(map(Path, roots))
            # References in connection settings stay unresolved, because no command uses the settings.
            references = References(place.parent, allowed, dict(params), environment, named, connects_later=True)
            file = Prompty.of_file(place, references, undefined or "error")
            return PromptRequest(file.prompter, file)
        from lazyprompt.files.prompt_file import PromptFile

        return PromptRequest(PromptFile.load(name).prompter)


def _media_kinds() -> Mapping[str, type[ImageBlock | AudioBlock | FileBlock | VideoBlock]]:
    """Return the block class for each media type, importing the module only when it is needed."""
    from lazyprompt.files.properties import MEDIA

    return MEDIA


def _read_input(
    options: Options, request: PromptRequest, stdin: Stdin
) -> tuple[str, Mapping[str, object] | None, object]:
    """Return the source of the input (an option or ``stdin``), its values by name, and any text without a slot name."""
    values = request.read_values(options["values"], stdin)
    text = options["text"]
    if text is not None:
        if "input" in values:
            raise WrongUseError("--input", "--set also sets a value for 'input'; remove --input or --set input=...")
        where = "--input"
    else:
        # Piped text that is not a JSON object becomes a slot's value or the user turn.
        takes_text = request.names or (request.file is None and isinstance(request.prompter, ChatPrompter))
        piped = stdin.read_if_piped() if takes_text and not values else ""
        if not piped:
            return "--set", values or None, None
        by_name = json_or_text(piped)
        if isinstance(by_name, dict):
            return "stdin", by_name, None
        where = "stdin"
        text = piped.removesuffix("\n")
    with request.blaming(where):
        name = request.prompter.name_of_text(values)
        # Unlike option values, piped text that starts with @ is not a file name.
        value = request.value(name, text) if where == "stdin" else request.read_value(where, name, text, stdin)
        if request.file is None and not values:
            # Return text without a slot name unchanged, so that the prompter's error message shows the expected dict.
            return where, None, value
        return ("--set" if values else where), request.with_value(values, name, value), None
