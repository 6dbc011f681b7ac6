"""The ``lazyprompt inspect`` command, which shows the origin and cost of each part of a prompt, with warnings."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from lazyprompt._base.characters import visible
from lazyprompt.cli.options import (
    Options,
    budget_option,
    color_option,
    count_option,
    counter_option,
    find_other_option,
    json_option,
    load_counter_tokenizer,
    prompt_options,
    text_option,
    token_counter,
)
from lazyprompt.cli.prompts import PromptRequest, open_prompter, read_prompt
from lazyprompt.cli.streams import Stdin, WrongUseError, blaming, file_text, goes_to_terminal, write_json, write_text
from lazyprompt.errors import LazyPromptError, did_you_mean
from lazyprompt.inspect.look import CallArguments, Look, look, look_json, shared_prefix, slot_diff
from lazyprompt.inspect.saved import saved_look
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.training.masks import find_masked

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

    from lazyprompt.inspect.terminal import Color
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.tokens.counter import TokenCounter

# The suffixes of saved payload files. Only the first line of a .jsonl file is read.
_SAVED, _LINES = (".json", ".jsonl"), ".jsonl"
_STDIN = "-"
# The command-line parameters that apply to saved payloads.
_OF_PAYLOADS = ("prompt_file", "form", "model", "counter", "window", "other", "other_model", "as_json", "color")

_NAME = r"[^\W\d]\w*"
_REFERENCE = re.compile(rf"(?:{_NAME}(?:\.{_NAME})*|.+\.py):{_NAME}(?:\.{_NAME})*")
_WHERE = "PROMPT_FILE"


@click.command("inspect")
@prompt_options
@counter_option
@budget_option
@count_option("--window", help="The context window in tokens.  [default: the model's, if known]")
@click.option("--tokens", "shows_tokens", is_flag=True, help="Show each token of the training sample with --label.")
@text_option("--mask", "masks", multiple=True, metavar="REGEX", help="Text in the response to exclude from the loss.")
@click.option("--diff", "other", metavar="PROMPT_FILE", help="Compare with another prompt, slot by slot.")
@click.option("--diff-model", "other_model", metavar="NAME", help="Compare with the same prompt for another model.")
@json_option
@color_option
def command(
    *,
    counter: str,
    window: int | None,
    shows_tokens: bool,
    masks: tuple[str, ...],
    other: str | None,
    other_model: str | None,
    as_json: bool,
    color: Color,
    **options: Unpack[Options],
) -> None:
    r"""Show where each part of a prompt came from, and its cost.

    The command also shows warnings. PROMPT_FILE is a .prompty or YAML prompt file, a prompter in Python or a saved
    payload. A prompter is named as module:name or path/to/file.py:name; that module's code is run. A saved payload can
    be a .json file, the first line of a .jsonl file, or - for standard input.

    On a terminal, slots are coloured and untrusted text is underlined; in piped output, each line begins with its
    slot's name. Control characters and invisible characters are escaped.

    \b
    Examples:
      lazyprompt inspect order.prompty --set urgent=true --model qwen2.5
      lazyprompt inspect app.prompts:answer --set question='Who?' --format anthropic
      lazyprompt inspect order@1.prompty --set urgent=true --diff order@2.prompty
      lazyprompt inspect order.prompty --set urgent=true --model qwen3 --diff-model llama3.1
      lazyprompt inspect request.json --window 8192
      lazyprompt inspect qa.yaml --set question='Who?' --label Me --tokens --counter huggingface:model/
    """
    if color == "always" and as_json:
        raise WrongUseError("--color", "JSON output has no colour; remove --json")
    opened = _open(options)
    sides = [(options, opened)]
    if other is not None or other_model is not None:
        if other is None and opened is None:
            raise WrongUseError(
                "--diff-model", "a saved payload cannot be rendered for another model; use --diff with another prompt"
            )
        second: Options = {**options, "model": options["model"] if other_model is None else other_model}
        if other is not None:
            second["prompt_file"] = other
            with _blaming_option("--diff"):
                opened = _open(second)
        sides.append((second, opened))
    if all(opened is None for _, opened in sides) and (useless := find_other_option(*_OF_PAYLOADS)):
        raise WrongUseError(useless, "this option does not apply to a saved payload; remove it")
    sample = _sample_options(options, counter, masks) if shows_tokens or masks else _SampleOptions()
    counts, stdin = token_counter(counter), Stdin(shared=len(sides) > 1)
    looks: list[Look] = []
    for given, opened in sides:
        with _blaming_option("" if not looks else "--diff-model" if other is None else "--diff"):
            if opened is None:
                looks.append(_look_at_saved(given, counts, window, stdin))
                continue
            # Skip values for slots that exist only in the other prompt.
            foreign = {name for _, each in sides if each is not None for name in each.names} - {*opened.names}
            values = {name: text for name, text in options["values"].items() if name not in foreign}
            looks.append(_look_at({**given, "values": values}, opened, counts, window, stdin, sample))
    if len(looks) > 1:
        return _compare(looks[0], looks[1], color, as_json=as_json)
    if as_json:
        return write_json(look_json(looks[0]))
    from lazyprompt.inspect.terminal import look_text

    return write_text(look_text(looks[0], color, terminal=goes_to_terminal()))


def _compare(before: Look, after: Look, color: Color, *, as_json: bool) -> None:
    from lazyprompt.caching.prefix import check_prefix

    changes = slot_diff(before, after)
    prefix = None if isinstance(after.sent, str) else check_prefix(before.sent, after.sent)
    if not as_json:
        from lazyprompt.inspect.terminal import slot_diff_text

        write_text(slot_diff_text(before, after, changes, color, terminal=goes_to_terminal()))
        return None if prefix is None else write_text(f"\nfirst change: {visible(str(prefix))}\n")
    slots = [{**change._asdict(), "lines": [*change.lines]} for change in changes]
    shared = shared_prefix(before, after)._asdict()
    first = None if prefix is None else prefix._asdict()
    looks = {"before": look_json(before), "after": look_json(after)}
    return write_json({**looks, "slots": slots, "shared": shared, "prefix": first})


def _open(options: Options) -> PromptRequest | None:
    """Open the prompter that ``PROMPT_FILE`` refers to; return None if it is a saved payload."""
    name = options["prompt_file"]
    if name is not None and (name == _STDIN or Path(name).suffix.lower() in _SAVED):
        return None
    return open_prompter(options, prompter_at(name) if name is not None and is_reference(name) else None)


class _SampleOptions(TypedDict, total=False):
    """The options for a training sample: its tokenizer, and patterns for text to exclude from the loss."""

    tokenizer: TokenizerLike
    mask: tuple[str, ...]


def _sample_options(options: Options, counter: str, masks: tuple[str, ...]) -> _SampleOptions:
    if options["label"] is None:
        raise WrongUseError("--tokens", "a training sample requires a response; pass it with --label")
    if options["form"] != "flat":
        raise WrongUseError("--tokens", "this option requires flat text; remove --format")
    with blaming("--mask"):
        find_masked("", (), masks)
    return {"tokenizer": load_counter_tokenizer(counter), "mask": masks}


def _look_at(
    options: Options,
    opened: PromptRequest,
    counter: TokenCounter,
    window: int | None,
    stdin: Stdin,
    sample: _SampleOptions,
) -> Look:
    request = read_prompt(options, "inspect", opened, stdin)
    with request.blaming():
        return look(
            request.prompter,
            CallArguments(*request.call),
            title=options["prompt_file"] or "",
            form=request.form,
            model=options["model"],
            counter=counter,
            max_tokens=options["max_tokens"],
            window=window,
            **sample,
        )


def _look_at_saved(options: Options, counter: TokenCounter, window: int | None, stdin: Stdin) -> Look:
    name = options["prompt_file"] or ""
    text = stdin.read(_WHERE) if name == _STDIN else file_text(_WHERE, name)
    if name.lower().endswith(_LINES):
        text = next((line for line in text.split("\n") if line.strip()), "")
    try:
        return saved_look(
            text,
            title="standard input" if name == _STDIN else name,
            form=None if options["form"] == "flat" else options["form"],
            model=options["model"],
            counter=counter,
            window=window,
        )
    except LazyPromptError as error:
        raise WrongUseError(_WHERE, f"{name}: {error}") from error


@contextmanager
def _blaming_option(option: str) -> Generator[None]:
    """Report usage errors raised inside the block as errors of an option, unless ``option`` is ``""``."""
    try:
        yield
    except WrongUseError as error:
        error.where = option or error.where
        raise


def is_reference(text: str) -> bool:
    """Return True if a text has the form of a reference to a Python object and is not an existing file."""
    return _REFERENCE.fullmatch(text) is not None and not Path(text).exists()


def prompter_at(reference: str) -> PromptRequest:
    """Import the prompter that a reference names; the import runs the module's code.

    Args:
        reference: ``module:name`` or ``path/to/file.py:name``. The current directory is searched for ``module`` first.
            The name refers to a prompter, a Prompty, or a function without arguments that returns one.

    Returns:
        The request, which contains the prompter and, if there is one, its prompt file.

    Raises:
        WrongUseError: The name does not exist, it does not refer to a prompter, or the user's code raised an error.
    """
    place, _, name = reference.rpartition(":")
    with _user_code(place):
        module = _import(place)
    found: object = module
    for step in name.split("."):
        if not hasattr(found, step):
            names = sorted(key for key, value in vars(module).items() if _is_prompt(value))
            there = f"; available prompters: {', '.join(names)}" if names else ""
            raise WrongUseError(_WHERE, f"{place} has no {name!r}{did_you_mean(name, names)}{there}")
        found = getattr(found, step)
    if not _is_prompt(found) and callable(found):
        with _user_code(reference):
            found = found()
    if isinstance(found, Prompter):
        return PromptRequest(found)
    from lazyprompt.files.prompty import Prompty

    if isinstance(found, Prompty):
        return PromptRequest(found.prompter, found)
    raise WrongUseError(
        _WHERE,
        f"{reference} must be a prompter, a Prompty or a function without arguments that returns one, not a "
        f"{type(found).__name__}",
    )


def _is_prompt(value: object) -> bool:
    """Return True for a prompter or a Prompty; the Prompty class is recognized by name to avoid importing it."""
    return isinstance(value, Prompter) or type(value).__name__ == "Prompty"


def _import(place: str) -> ModuleType:
    """Import a module, and add its directory to the module search path, as ``python`` does."""
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return import_module(place)
    path = Path(place).resolve()
    # Prefix the module's name, so that the name can't clash with a module that the user's file imports.
    spec = spec_from_file_location(f"lazyprompt_inspected_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    sys.path.insert(0, str(path.parent))
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _user_code(what: str) -> Generator[None]:
    """Run the user's code with its output redirected to standard error, and turn its errors into usage errors."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise WrongUseError(_WHERE, f"{what}: {type(error).__name__}: {error}{_line_of(error)}") from error


def _line_of(error: BaseException) -> str:
    """Return the file and line number at which the user's code raised an error, or ``""``."""
    if isinstance(error, SyntaxError):
        return ""  # a SyntaxError's message already contains the line
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    last = frames[-1] if frames else None
    if last is None or last.filename == __file__:
        return ""
    return f" ({Path(last.filename).name}, line {last.lineno})"
