import runpy
from collections.abc import Iterator, Mapping
from errno import ENOSPC, EPIPE
from unittest.mock import Mock

import click
import pytest

from cli.helpers import ERROR, Ran, Run, run_without
from lazyprompt import __version__
from lazyprompt.cli.main import COMMANDS, commands
from lazyprompt.files.dialects.dialects import DIALECTS
from lazyprompt.files.writing.targets import TARGETS
from support.paths import DOCS

HELP = """\
  Define a prompt once, and render it in the exact format that each model
  expects.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
"""


def test_version_option_prints_the_version(run: Run) -> None:
    assert run("--version") == Ran(0, f"lazyprompt {__version__}\n".encode(), "")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (BrokenPipeError(EPIPE, "Broken pipe"), 141, ""),
        (OSError(ENOSPC, "No space left"), 2, f"{ERROR}stdout: No space left\n"),
    ],
)
def test_stdout_is_dropped_after_a_write_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: OSError, status: int, message: str
) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(commands, "main", Mock(side_effect=error))
    monkeypatch.setattr("lazyprompt.cli.main.drop_stdout", lambda: dropped.append(True))
    assert (run("--version"), dropped) == (Ran(status, b"", message), [True])


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
def test_help_lists_all_commands(run: Run, argv: tuple[str, ...]) -> None:
    ran = run(*argv)
    assert (ran.status, ran.err) == (0, "")
    usage, _, text = ran.out.decode().partition("\n\n")
    assert usage.startswith("Usage: lazyprompt [OPTIONS] ")  # the rest depends on click's version
    assert text == HELP + "".join(f"  {name:14}  {summary}\n" for name, summary in COMMANDS.items())
    assert len(COMMANDS) <= 13


@pytest.mark.parametrize("name", [*COMMANDS, "lib list", "lib show", "lib diff", "list families", "list providers"])
def test_help_of_a_command_has_examples_on_unwrapped_lines(run: Run, name: str) -> None:
    lines = run(*name.split(), "--help").out.decode().splitlines()
    examples = [line for line in lines if f"lazyprompt {name}" in line and line.startswith("    ")]
    assert examples or name == "lib" or name.startswith("list")
    assert not {"\b", "\\"} & {*"".join(line for line in lines if line not in examples)}
    assert max(len(line) for line in lines if line not in examples) <= 80


def test_command_list_shows_each_summary_without_importing_the_commands() -> None:
    for name, summary in COMMANDS.items():
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        assert (command.name, command.get_short_help_str(80)) == (name, summary)
    run_without("lazyprompt.prompters.prompter", "--help")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_imports_no_heavy_packages(name: str) -> None:
    """Importing the classes of prompt files and the studio takes half a second."""
    run_without("yaml jinja2 lazyprompt.files.prompty starlette", name, "--help")


@pytest.mark.parametrize(("name", "option", "table"), [("check", "dialect", DIALECTS), ("convert", "to", TARGETS)])
def test_option_choices_match_the_table_of_the_library(name: str, option: str, table: Mapping[str, object]) -> None:
    """The options repeat the names, because importing the tables takes time."""
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    (found,) = [each for each in command.params if each.name == option]
    assert tuple(getattr(found.type, "choices", ())) == tuple(table)


# Each option with its default, its values, and * if it may be repeated, or ! if it is required.
PARAMETERS = """
--against:REV|DIR --allow-code --answers=.lazyprompt/answers.sqlite:FILE --base-url:URL --bos-token:TEXT
--bpe-file:FILE --browser/--no-browser=True --chat --color=auto(auto|always|never) --column*:NAME=COLUMN
--concurrency(1..):N --concurrency=8(1..):N --counter=approximate:NAME[:ARGUMENT] --dialect(v2|agentschema|v1)
--diff-model:NAME --diff:PROMPT_FILE --dir=.:DIR --download:NAME --engine:NAME --engine=local(local|ray) --env*:NAME
--eos-token:TEXT --extra-key*:NAME --field*:NAME=VALUE --format=flat:FORM --format=plain(plain|json|github|sarif)
--format=table(table|json|junit|github) --history:FILE.json --ignore*:CODES --input --instruction --json --label
--lang:TAG --layer*:DIR --limit(1..):N --mask*:REGEX --max-tokens(1..):N --min-hit-rate(0..1):RATE --model:NAME
--name:NAME --on-error(stop|skip) --param*:NAME=VALUE --port(0..65535):N
--provider!(openai|anthropic|gemini|deepseek|vllm|llama.cpp) --rejects:FILE --restart --root*:DIRECTORY --rpm(1..):N
--run --run:SOURCE:MODEL --safety(neutralize|raise|off) --sample(1..):N --seed:S --select*:CODES --set*:NAME=VALUE
--source:NAME --stream/--no-stream --strict --system --temperature(0..):T --to!(v2|agentschema) --tokens
--tokens:NAME[:ARGUMENT] --tools:FILE.json --tpm(1..):N --train=last(last|all) --type(chat|alpaca)
--undefined(error|empty) --update --url:URL --user-instruction:TEXT --version:VERSION --window(1..):N
--workers=1(1..):N -o/--output!:FILE -o/--output:FILE a! b! file! files!:FILE... key! path! paths:[PATH...]
place:[DIR] place=.:[DIR|FILE] prompt_file! prompt_file:[PROMPT_FILE] rows!
"""


def parameters(command: click.Command | None) -> Iterator[str]:
    assert command is not None
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from parameters(below)
    for each in command.params:
        choices, bounds = getattr(each.type, "choices", ()), [getattr(each.type, end, None) for end in ("min", "max")]
        values = "|".join(choices) if len(choices) < 8 else ""
        values = f"{bounds[0]}..{bounds[1]}".replace("None", "") if any(end is not None for end in bounds) else values
        default = each.to_info_dict()["default"]
        shown = f"={default}" if isinstance(default, str | int) and default is not False else ""
        flags = f"{'*' * each.multiple}{'!' * each.required}" if isinstance(each, click.Option) else "!" * each.required
        name = "/".join([*each.opts, *each.secondary_opts])
        yield f"{name}{shown}{flags}{f'({values})' if values else ''}{f':{each.metavar}' if each.metavar else ''}"


def test_options_have_the_expected_defaults_and_choices() -> None:
    found = {each for name in COMMANDS for each in parameters(commands.get_command(click.Context(commands), name))}
    assert sorted(found) == PARAMETERS.split()


@pytest.mark.parametrize("argv", [["lib"], ["lib", "list"], ["render"]])
def test_h_option_still_works_after_the_command_reference_is_generated(run: Run, argv: list[str]) -> None:
    runpy.run_path(str(DOCS / "make_commands.py"))["page"]()
    assert run(*argv, "-h").out == run(*argv, "--help").out != b""
