"""The command ``lazyprompt check``: prompt files looked at, for people, for CI and before a commit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from lazyprompt.cli.streams import Output, WrongUseError, goes_to_terminal, json_text
from lazyprompt.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_FOUND = 1
_DIALECTS = ("v2", "agentschema", "v1", "dotprompt")


class CheckOptions(TypedDict):
    """The options of ``lazyprompt check``."""

    files: tuple[str, ...]
    form: str
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    roots: tuple[str, ...]
    dialect: str | None
    strict: bool


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format", "form", type=click.Choice(["plain", "json", "github", "sarif"]), default="plain", show_default=True
)
@click.option(
    "--select", multiple=True, metavar="CODES", help="Only these rules, as LP040,LP06: a beginning is enough."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules.")
@click.option(
    "--root", "roots", multiple=True, metavar="DIRECTORY", help="Where ${file:...} and included files may lie as well."
)
@click.option("--dialect", type=click.Choice(_DIALECTS), help="The dialect of all the files.  [default: each its own]")
@click.option("--strict", is_flag=True, help="Warnings count as errors do.")
@click.pass_context
def check_command(context: click.Context, **options: Unpack[CheckOptions]) -> None:
    """Look at prompt files for what is wrong in them.

    FILE is a .prompty, .prompt or YAML prompt file, or a directory, which is gone through. Each finding is a line
    file:line:column: CODE message. The exit status is 1 where one of them is an error (with --strict, or a warning),
    2 for wrong use or where nothing was checked, else 0.

    In a file, a comment {# lazyprompt: ignore=LP040 #} lets it off.

    \b
    Examples:
      lazyprompt check prompts/
      lazyprompt check prompts/ --strict --ignore LP07
      lazyprompt check support.prompty --format json
      lazyprompt check prompts/ --format sarif > check.sarif
    """  # noqa: D301 - \b is how click is told not to wrap
    from lazyprompt.files.check.check import RULES, SEVERITIES, check  # noqa: PLC0415 - no other command checks
    from lazyprompt.files.check.report import github, report, sarif  # noqa: PLC0415 - as above

    select = _codes("--select", options["select"], RULES) or frozenset(RULES)
    chosen = select - _codes("--ignore", options["ignore"], RULES)
    paths = [*dict.fromkeys(path for given in options["files"] for path in _files(given))]
    if not paths or not chosen:
        given = ", ".join(options["files"])
        what = f"no prompt file is in {given}" if chosen else "--select and --ignore leave no rule"
        raise WrongUseError("FILE", f"nothing was checked: {what}")
    found = [
        each
        for path in paths
        for each in check(path, allowed_roots=options["roots"], dialect=options["dialect"])
        if each.code in chosen
    ]
    terminal = goes_to_terminal(None)
    forms: dict[str, Callable[[], str]] = {
        "plain": lambda: report(found, len(paths)),
        "json": lambda: json_text([asdict(each) for each in found], indent=2, terminal=terminal),
        "github": lambda: github(found, len(paths)),
        "sarif": lambda: json_text(sarif(found), indent=2, terminal=terminal),
    }
    Output(forms[options["form"]]()).write()
    grave = SEVERITIES[: 2 if options["strict"] else 1]
    if any(each.severity in grave for each in found):
        context.exit(_FOUND)


def _codes(option: str, given: Sequence[str], rules: Collection[str]) -> frozenset[str]:
    """The rules that are named, by their codes or beginnings of them."""
    found: set[str] = set()
    for word in (word.strip().upper() for each in given for word in each.split(",")):
        named = {code for code in rules if word and code.startswith(word)}
        if not named:
            raise WrongUseError(option, f"{word!r} is no rule{did_you_mean(word, rules)}; rules are {', '.join(rules)}")
        found |= named
    return frozenset(found)


def _files(given: str) -> Iterator[Path]:
    """The prompt files of an argument."""
    from lazyprompt.files.check.prompt_files import SUFFIXES, prompt_files  # noqa: PLC0415 - no other command checks

    path = Path(given)
    if path.is_dir():
        yield from prompt_files(path)
    elif not path.exists():
        raise WrongUseError("FILE", f"{given}: there is no such file or directory")
    elif path.suffix.lower() not in SUFFIXES:
        raise WrongUseError("FILE", f"{given}: prompt files end with {', '.join(SUFFIXES)}")
    else:
        yield path
