"""``lazyprompt inspect``: where each part of a prompt came from, its cost, and what to look at twice."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

import click

from lazyprompt.cli.counters import token_counter
from lazyprompt.cli.errors import WrongUseError
from lazyprompt.cli.options import (
    Options,
    budget_option,
    color_option,
    count_option,
    counter_option,
    given_besides,
    json_option,
    prompt_options,
)
from lazyprompt.cli.output import Output, goes_to_terminal, json_output
from lazyprompt.cli.prompts import Opened, open_prompter, read_prompt
from lazyprompt.cli.reading import Stdin, file_text
from lazyprompt.errors import LazyPromptError, did_you_mean
from lazyprompt.inspect.as_json import look_json
from lazyprompt.inspect.look import Call, look
from lazyprompt.inspect.saved import saved_look
from lazyprompt.inspect.slot_diff import slot_diff
from lazyprompt.inspect.terminal import look_text, slot_diff_text
from lazyprompt.prompters.prompter import Prompter

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

    from lazyprompt.cli.prompts import PromptRequest
    from lazyprompt.inspect.look import Look
    from lazyprompt.tokens.counter import TokenCounter

# The suffixes of saved payloads; of a .jsonl file, the first line is read.
_SAVED, _LINES = (".json", ".jsonl"), ".jsonl"
_STDIN = "-"
# The parameters for a saved payload; all others describe a prompt that is made.
_OF_PAYLOADS = frozenset(
    {"prompt_file", "form", "model", "counter", "window", "other", "other_model", "as_json", "color"}
)


_NAME = r"[^\W\d]\w*"
_REFERENCE = re.compile(rf"(?P<module>{_NAME}(?:\.{_NAME})*|.+\.py):(?P<name>{_NAME}(?:\.{_NAME})*)")
_WHERE = "PROMPT_FILE"


class _Side(NamedTuple):
    """A prompt to look at.

    Attributes:
        name: Its name on the command line; None if options alone describe it.
        model: The model.
        opened: Its prompter; None for a saved payload.
    """

    name: str | None
    model: str | None
    opened: PromptRequest | None


class _SharedStdin(Stdin):
    """The standard input of two prompts, which both read."""

    def __init__(self) -> None:
        super().__init__()
        self._text: str | None = None

    def read(self, reader: str) -> str:
        """Read all of it."""
        if self._text is None:
            self._text = super().read(reader)
        return self._text


@click.command("inspect")
@prompt_options
@counter_option
@budget_option
@count_option("--window", help="The context window in tokens.  [default: what is known of the model]")
@click.option("--diff", "other", metavar="PROMPT_FILE", help="Another prompt, to compare it with slot by slot.")
@click.option("--diff-model", "other_model", metavar="NAME", help="Another model, to compare the prompt for both.")
@json_option
@color_option
def command(**options: Unpack[Options]) -> Output:
    r"""Show where each part of a prompt came from, and its cost.

    It also shows what to look at twice. PROMPT_FILE is a prompt file, as for lazyprompt render; or a prompter in
    Python, as module:name or path/to/file.py:name, which runs the code of that module; or a saved payload: a .json
    file, the first line of a .jsonl file, or - for the standard input.

    On a terminal the slots are coloured, and untrusted text is underlined; in a pipe each line begins with its slot.
    Control characters and invisible characters are written out.

    \b
    Examples:
      lazyprompt inspect order.prompty --set urgent=true --model qwen2.5
      lazyprompt inspect app.prompts:answer --set question='Who?' --format anthropic
      lazyprompt inspect order@1.prompty --set urgent=true --diff order@2.prompty
      lazyprompt inspect order.prompty --set urgent=true --model qwen3 --diff-model llama3.1
      lazyprompt inspect request.json --window 8192
    """
    if options["color"] == "always" and options["as_json"]:
        raise WrongUseError("--color", "JSON has no colour; leave out --json")
    sides = _sides(options)
    if all(side.opened is None for side in sides) and (other := given_besides(_OF_PAYLOADS)):
        raise WrongUseError(other, "a saved payload is whole already; leave it out")
    counter = token_counter(options["counter"])
    terminal = goes_to_terminal()
    stdin = _SharedStdin() if len(sides) > 1 else Stdin()
    looks = [_look_at(options, sides, at, counter, stdin) for at in range(len(sides))]
    if len(looks) == 1:
        if options["as_json"]:
            return json_output(look_json(looks[0]))
        return Output(look_text(looks[0], options["color"], terminal=terminal))
    before, after = looks
    changes = slot_diff(before, after)
    if options["as_json"]:
        slots = [{**change._asdict(), "lines": [*change.lines]} for change in changes]
        return json_output({"before": look_json(before), "after": look_json(after), "slots": slots})
    return Output(slot_diff_text(before, after, changes, options["color"], terminal=terminal))


def _sides(options: Options) -> list[_Side]:
    """Open the prompt, and the one to compare it with."""
    name, other, other_model = options["prompt_file"], options["other"], options["other_model"]
    first = _Side(name, options["model"], _opened(options, name))
    if other is None and other_model is None:
        return [first]
    if other is None and first.opened is None:
        raise WrongUseError("--diff-model", "a saved payload is made for one model; --diff names another prompt")
    model = options["model"] if other_model is None else other_model
    with _blaming_option("--diff"):
        return [first, first._replace(model=model) if other is None else _Side(other, model, _opened(options, other))]


def _opened(options: Options, name: str | None) -> PromptRequest | None:
    """Open the prompter of a name; None for a saved payload."""
    if name is not None and (name == _STDIN or Path(name).suffix.lower() in _SAVED):
        return None
    opened = prompter_at(name) if name is not None and is_reference(name) else None
    return open_prompter(_options_of(options, name), opened)


def _options_of(options: Options, name: str | None) -> Options:
    return cast("Options", {**options, "prompt_file": name})


def _look_at(options: Options, sides: list[_Side], at: int, counter: TokenCounter, stdin: Stdin) -> Look:
    """Look at one of the prompts."""
    side = sides[at]
    with _blaming_option("--diff" if options["other"] is not None else "--diff-model", only=at > 0):
        if side.opened is None:
            return _look_at_saved(options, side, counter, stdin)
        others = [each.opened for each in sides if each.opened is not None and each is not side]
        given = _options_of(options, side.name)
        given["model"] = side.model
        given["values"] = _values_of(options["values"], side.opened, others)
        request = read_prompt(given, "look at", side.opened, stdin)
        with request.blaming():
            return look(
                request.prompter,
                Call(*request.call),
                title=side.name or "",
                form=request.form,
                model=side.model,
                counter=counter,
                max_tokens=options["max_tokens"],
                window=options["window"],
            )


def _values_of(values: dict[str, str], opened: PromptRequest, others: list[PromptRequest]) -> dict[str, str]:
    """Select the values for one of two prompts: those that not only the other has a slot for."""
    foreign = {name for other in others for name in other.inputs.names} - {*opened.inputs.names}
    return {name: text for name, text in values.items() if name not in foreign}


def _look_at_saved(options: Options, side: _Side, counter: TokenCounter, stdin: Stdin) -> Look:
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
def _blaming_option(option: str, *, only: bool = True) -> Generator[None]:
    """Blame the option that named a prompt for what is wrong with it."""
    try:
        yield
    except WrongUseError as error:
        if not only:
            raise
        raise WrongUseError(option, error.message) from error


def is_reference(text: str) -> bool:
    """Return True if a text names something in Python, and no file."""
    return _REFERENCE.fullmatch(text) is not None and not Path(text).exists()


def prompter_at(reference: str) -> Opened:
    """Import the prompter that a reference names, which runs the code of its module.

    Args:
        reference: ``module:name``, found as ``python -m module`` would find it, or ``path/to/file.py:name``; the name
            is that of a prompter, of a Prompty, or of a function without arguments that gives one.

    Returns:
        The prompter, and the prompt file that it is from.

    Raises:
        WrongUseError: There is none; or the code failed.
    """
    match = _REFERENCE.fullmatch(reference)
    place, name = (match["module"], match["name"]) if match else (reference, "")
    with _user_code(place):
        found: object = _import(place)
    module = found
    for step in name.split("."):
        if not hasattr(found, step):
            names = sorted(key for key, value in vars(module).items() if _is_prompt(value))
            there = f"; prompters there are {', '.join(names)}" if names else ""
            raise WrongUseError(_WHERE, f"{place} has no {name!r}{did_you_mean(name, names)}{there}")
        found = getattr(found, step)
    if not _is_prompt(found) and callable(found):
        with _user_code(reference):
            found = found()
    if isinstance(found, Prompter):
        return found, None
    from lazyprompt.files.prompty import Prompty  # noqa: PLC0415 - jinja2 and yaml cost 30 ms

    if isinstance(found, Prompty):
        return found.prompter, found
    raise WrongUseError(
        _WHERE,
        f"{reference} is a {type(found).__name__}; name a prompter, a Prompty, or a function without arguments that "
        "gives one",
    )


def _is_prompt(value: object) -> bool:
    return isinstance(value, Prompter) or type(value).__name__ == "Prompty"


def _import(place: str) -> ModuleType:
    """Import a module; as with ``python``, modules beside it can be imported too."""
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return import_module(place)
    path = Path(place).resolve()
    # A name that no module has which it may import.
    spec = spec_from_file_location(f"lazyprompt_inspected_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    sys.path.insert(0, str(path.parent))
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _user_code(what: str) -> Generator[None]:
    """Run code of the user: its output goes to the standard error, and its errors become wrong use."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise WrongUseError(_WHERE, f"{what}: {type(error).__name__}: {error}{_line_of(error)}") from error


def _line_of(error: BaseException) -> str:
    """Name the line of the user's code that raised an error, if there is one."""
    if isinstance(error, SyntaxError):
        return ""  # its message has the line
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    last = frames[-1] if frames else None
    if last is None or last.filename == __file__:
        return ""
    return f" ({Path(last.filename).name}, line {last.lineno})"
