"""The command line: reads options, calls the library, writes what comes back.

Wrong use is one line on the standard error that names the option, and exit status 2; never a traceback.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from reprlib import repr as short
from shutil import copymode
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, Unpack, cast

import click

from lazyprompt._json import well_formed
from lazyprompt._version import __version__
from lazyprompt.errors import FormatError, HistoryError, LazyPromptError, SafetyError, SlotError, ToolsError
from lazyprompt.inspect.terminal import rendered_text, visible
from lazyprompt.prompter import FORMATS, AlpacaPrompter, ChatPrompter
from lazyprompt.text.markers import Markers
from lazyprompt.text.safety import SAFETIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.history import HistoryLike
    from lazyprompt.inspect.terminal import Color
    from lazyprompt.prompter import Prompter
    from lazyprompt.text.safety import Safety
    from lazyprompt.tools import ToolLike

_WRONG_USE, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141

# The option to name where only the error says what was wrong.
_OPTION_OF: dict[type[LazyPromptError], str] = {
    HistoryError: "--history",
    ToolsError: "--tools",
    SafetyError: "--safety",
    FormatError: "--format",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments without the program's name; those of the process if left out.

    Returns:
        The exit status: 0, 2 for wrong use, 130 if interrupted, 141 if nobody reads the output any more.
    """
    try:
        arguments = sys.argv[1:] if argv is None else argv
        made: object = _cli.main(arguments, prog_name="lazyprompt", standalone_mode=False)
        if isinstance(made, _Output):
            made.write()
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return _PIPE_CLOSED
    except click.ClickException as error:
        return _complain(_place(error), error.message or error.format_message())
    return 0


def _complain(where: str, what: str) -> int:
    """Say in one line what was wrong."""
    # The caret under a line of YAML points nowhere once lines are joined.
    lines = (line.strip() for line in what.splitlines())
    print(
        visible(f"lazyprompt: error: {where}: {'; '.join(line for line in lines if line not in ('', '^'))}"),
        file=sys.stderr,
    )
    return _WRONG_USE


def _place(error: click.ClickException) -> str:
    """The option or argument an error is about."""
    if isinstance(error, _WrongUseError):
        return error.where
    if isinstance(error, click.NoSuchOption | click.BadOptionUsage):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None:
        return max(error.param.opts, key=len) if isinstance(error.param, click.Option) else "PROMPT_FILE"
    context = error.ctx if isinstance(error, click.UsageError) else None
    return str(context.info_name) if context is not None and context.parent is not None else "COMMAND"


class _WrongUseError(click.ClickException):
    """Wrong use of an option."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


# --- Reading -----------------------------------------------------------------------------------------------------


class _TextType(click.ParamType):
    """Text that can be written as UTF-8: a shell may hand over any bytes."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return well_formed(value, "the text", LazyPromptError)
        except LazyPromptError as error:
            raise click.BadParameter("the text is not UTF-8", ctx, param) from error


_TEXT = _TextType()


class _Stdin:
    """The standard input, which can be read once."""

    def __init__(self) -> None:
        self._reader: str | None = None

    def read(self, reader: str) -> str:
        if self._reader is not None:
            raise _WrongUseError(reader, f"the standard input was read already, by {self._reader}")
        self._reader = reader
        try:
            return _decoded(sys.stdin.buffer.read() if sys.stdin else b"", reader, "the standard input")
        except OSError as error:
            raise _WrongUseError(reader, f"the standard input: {error.strerror}") from error

    def read_if_given(self) -> str:
        """What was piped in; nothing where a person sits at a terminal."""
        return "" if sys.stdin is None or sys.stdin.isatty() else self.read("stdin")  # pyright: ignore[reportUnnecessaryComparison]


def _decoded(data: bytes, where: str, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _WrongUseError(where, f"{name}: byte 0x{data[error.start]:02x} at {error.start} is not UTF-8") from error


def _file(where: str, path: str) -> str:
    try:
        return _decoded(Path(path).read_bytes(), where, path)
    except (OSError, ValueError) as error:
        raise _WrongUseError(where, f"{path or repr(path)}: {getattr(error, 'strerror', error)}") from error


def _value(where: str, text: str, stdin: _Stdin) -> str:
    """The text that a value stands for: ``@file``, ``@-``, ``@@x`` for ``@x``, or itself."""
    if not text.startswith("@"):
        return text
    if text.startswith("@@"):
        return text[1:]
    if text == "@-":
        return stdin.read(where)
    try:
        return _file(where, text[1:])
    except _WrongUseError as error:
        raise _WrongUseError(where, f"{error.message} (a text that begins with @ is written @@)") from error


def _json_list(where: str, path: str | None) -> list[object] | None:
    """The list in a JSON file."""
    if path is None:
        return None
    try:
        value: object = json.loads(_file(where, path))
    except (ValueError, RecursionError) as error:
        raise _WrongUseError(where, f"{path}: no JSON: {error}") from error
    if not isinstance(value, list):
        raise _WrongUseError(where, f"{path}: holds a JSON {type(value).__name__}, but must hold a list")
    return cast("list[object]", value)


def _json_object(text: str) -> dict[str, object] | None:
    """The object, if the text is a JSON object."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


# --- lazyprompt --------------------------------------------------------------------------------------------------


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazyprompt", message="%(prog)s %(version)s")
@click.pass_context
def _cli(context: click.Context) -> None:
    """One definition of a prompt, exactly what every model takes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _Options(TypedDict):
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
    label: str | None
    model: str | None
    form: Literal["flat", "openai"]
    as_json: bool
    safety: Safety | None
    color: Color
    output: str | None


@_cli.command()
@click.argument("prompt_file", required=False, metavar="[PROMPT_FILE]")
@click.option("--type", "kind", type=click.Choice(["chat", "alpaca"]), help="The form of the prompt.  [default: chat]")
@click.option("--instruction", type=_TEXT, help="What the model is told, with slots: 'Answer from {context}.'")
@click.option("--user-instruction", type=_TEXT, help="An instruction in the user's turn.")
@click.option("--system", type=_TEXT, help="The system text, in place of the model's own.")
@click.option("--extra-key", "extra_keys", type=_TEXT, multiple=True, metavar="NAME", help="A further slot.")
@click.option("--set", "values", type=_TEXT, multiple=True, metavar="NAME=VALUE", help="The value of a slot.")
@click.option("--input", "text", type=_TEXT, help="What the user says, or the value of the only slot.")
@click.option("--history", metavar="FILE.json", help="Pairs or OpenAI messages.")
@click.option("--tools", metavar="FILE.json", help="Tools in the OpenAI form.")
@click.option("--label", type=_TEXT, help="The answer, in training data.")
@click.option("--model", type=_TEXT, metavar="NAME", help="The model to write for (see lazyprompt families).")
@click.option("--format", "form", type=click.Choice(FORMATS), default="flat", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON; for flat text with its segments.")
@click.option(
    "--safety", type=click.Choice(SAFETIES), help="What to do with control sequences in values, in flat text."
)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write to a file, in one step.")
def render(**options: Unpack[_Options]) -> _Output:
    """Make a prompt, from a YAML prompt file or from options.

    In --set and --input, @FILE is the text of a file, @- the standard input, and @@x is @x. Without either, what is
    piped in is the input: a JSON object gives the slots their values, any other text is as for --input.

    \b
    Examples:
      lazyprompt render --instruction 'Translate into {language}.' --set language=French --input 'Good morning'
      lazyprompt render qa.yaml --set context=@report.txt --set question='Who paid?' --model qwen2.5
      echo '{"language": "French", "input": "Good morning"}' | lazyprompt render translate.yaml --format openai
    """
    _refuse_conflicts(options)
    prompter = _prompter(options)
    stdin = _Stdin()
    where, given = _given(options, prompter, stdin)
    history = cast("HistoryLike | None", _json_list("--history", options["history"]))
    if given is None and history is None and not prompter.slots and _says_nothing(options):
        raise _WrongUseError("PROMPT_FILE", "nothing to render; give a prompt file, --instruction or --input")
    tools = cast("list[ToolLike] | None", _json_list("--tools", options["tools"]))
    return _made(options, prompter, (where, given), (history, tools))


def _refuse_conflicts(options: _Options) -> None:
    """Refuse options that would say nothing beside others."""
    if options["prompt_file"] is not None:
        given = {
            "--type": options["kind"],
            "--instruction": options["instruction"],
            "--user-instruction": options["user_instruction"],
            "--extra-key": options["extra_keys"] or None,
        }
        for option, value in given.items():
            if value is not None:
                raise _WrongUseError(option, "the prompt file says that; give one of the two")
    if options["form"] == "openai" and options["safety"] is not None:
        raise _WrongUseError("--safety", "only flat text is searched for control sequences; take --format flat")
    if options["color"] == "always" and (options["as_json"] or options["form"] == "openai"):
        raise _WrongUseError("--color", "only flat text has colour; leave out --json and --format openai")


def _prompter(options: _Options) -> Prompter:
    """The prompter of the prompt file or of the options, with what overrides it."""
    path, model, safety = options["prompt_file"], options["model"], options["safety"]
    where = "PROMPT_FILE"
    try:
        if path is not None:
            from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - yaml costs 10 ms

            prompter = PromptFile.load(path).prompter
        else:
            where = "--extra-key" if options["extra_keys"] else "--instruction"
            make = AlpacaPrompter if options["kind"] == "alpaca" else ChatPrompter
            prompter = make(_instruction(options), options["extra_keys"])
        if options["system"] is not None:
            prompter = prompter.with_system(options["system"])
        where = "--model"
        prompter = prompter if model is None else prompter.with_markers(model)
    except LazyPromptError as error:
        raise _WrongUseError(where, str(error)) from error
    return prompter if safety is None else prompter.with_safety(safety)


def _instruction(options: _Options) -> str | dict[str, str] | None:
    system, user = options["instruction"], options["user_instruction"]
    if user is None:
        return system
    return {"user": user} if system is None else {"system": system, "user": user}


def _given(options: _Options, prompter: Prompter, stdin: _Stdin) -> tuple[str, object]:
    """The input, and which option gave it."""
    text, values = options["text"], _values(options["values"], stdin)
    if text is not None:
        text = _value("--input", text, stdin)
        if "input" in values:
            raise _WrongUseError("--input", "--set gives a value for 'input' too; give one of the two")
        return ("--set", {**values, "input": text}) if values else ("--input", text)
    if values or not (prompter.slots or isinstance(prompter, ChatPrompter)):
        return "--set", values or None
    piped = stdin.read_if_given()
    if not piped:
        return "--set", None
    as_object = _json_object(piped)
    return "stdin", piped.removesuffix("\n") if as_object is None else as_object


def _values(settings: Iterable[str], stdin: _Stdin) -> dict[str, str]:
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise _WrongUseError("--set", f"{short(setting)} is not of the form name=value")
        if name in values:
            raise _WrongUseError("--set", f"{name!r} is given twice")
        values[name] = _value("--set", value, stdin)
    return values


def _made(
    options: _Options,
    prompter: Prompter,
    given: tuple[str, object],
    past: tuple[HistoryLike | None, list[ToolLike] | None],
) -> _Output:
    """The prompt in the form that was asked for."""
    where, value = given
    label, output = options["label"], options["output"]
    terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    try:
        if options["form"] == "openai":
            form = prompter.generate_prompt(value, *past, label, format="openai")
            return _Output(_json(form, indent=None if options["as_json"] else 2, terminal=terminal), output)
        rendered = prompter.render(value, *past, label)
    except LazyPromptError as error:
        what = str(error)
        if isinstance(error, SlotError) and where != "--set":
            what += "; --set name=value gives each slot its value"
        raise _WrongUseError(_OPTION_OF.get(type(error), where), what) from error
    if options["as_json"]:
        segments = [segment._asdict() for segment in rendered.segments]
        return _Output(_json({"text": rendered.text, "segments": segments}, terminal=terminal), output)
    return _Output(rendered_text(rendered, options["color"], terminal=terminal), output)


@_cli.command()
@click.option("--json", "as_json", is_flag=True, help="All markers of each family, as one line of JSON.")
def families(*, as_json: bool) -> _Output:
    """List the model families that --model knows.

    The columns: the name, whether the family brings a system text of its own, and the texts at which to stop.
    """
    found = {name: Markers.for_model(name) for name in Markers.families()}
    if as_json:
        return _Output(_json([{"name": name, **asdict(markers)} for name, markers in found.items()]), None)
    rows = [("NAME", "SYSTEM", "STOP")]
    for name, markers in found.items():
        rows.append((name, "yes" if markers.system else "no", " ".join(map(json.dumps, markers.stop))))
    width = max(len(name) for name, _, _ in rows)
    return _Output("".join(f"{name:{width}}  {system:6}  {stop}\n" for name, system, stop in rows), None)


# --- Writing -----------------------------------------------------------------------------------------------------


class _Output(NamedTuple):
    """What a command made, and the file it goes to; ``None`` is the standard output."""

    text: str
    path: str | None

    def write(self) -> None:
        data = self.text.encode()
        try:
            if self.path is not None:
                _write_file(Path(self.path), data)
            elif sys.stdout is not None:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            if self.path is None:
                _drop_stdout()
            what = f"{self.path or 'standard output'}: {getattr(error, 'strerror', error)}"
            raise _WrongUseError("--output" if self.path is not None else "stdout", what) from error


def _json(value: object, *, indent: int | None = None, terminal: bool = False) -> str:
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators) + "\n"
    return visible(text) if terminal else text


def _write_file(path: Path, data: bytes) -> None:
    """Write a file in one step: whoever reads it sees the old content or the new."""
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device or a pipe is written to, not replaced
        path.write_bytes(data)
        return
    temporary = path.with_name(f".lazyprompt-{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        if path.exists():
            copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _drop_stdout() -> None:
    """Keep Python from complaining, on its way out, about what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
