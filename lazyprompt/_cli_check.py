"""The command ``lazyprompt check``: prompt files looked at, for people, for CI and before a commit."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from rich.cells import cell_len

from lazyprompt._cli_io import Output, WrongUseError, goes_to_terminal, json_text
from lazyprompt.errors import PromptFileError, did_you_mean
from lazyprompt.files.check.check import RULES, SEVERITIES, check
from lazyprompt.files.dialects.table import DIALECTS
from lazyprompt.files.yaml_nodes import MAX_BYTES, Reader, Source, decoded
from lazyprompt.inspect.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.files.check.check import Finding

_FOUND = 1
_SUFFIXES = (".prompty", ".prompt")
_YAML = (".yaml", ".yml")
# What a YAML file of a directory has that is meant as a prompt; any other is left alone.
_OF_PROMPTS = frozenset(("instruction", "extra_keys", "examples"))
_SHOWN = 100


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
@click.option("--format", "form", type=click.Choice(["plain", "json"]), default="plain", show_default=True)
@click.option(
    "--select", multiple=True, metavar="CODES", help="Only these rules, as LP040,LP06: a beginning is enough."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules.")
@click.option("--root", "roots", multiple=True, metavar="DIRECTORY", help="Where ${file:...} may lead to as well.")
@click.option(
    "--dialect", type=click.Choice([*DIALECTS]), help="The dialect of all the files.  [default: each its own]"
)
@click.option("--strict", is_flag=True, help="Warnings count as errors do.")
@click.pass_context
def check_command(context: click.Context, **options: Unpack[CheckOptions]) -> None:
    """Look at prompt files for what is wrong in them.

    FILE is a .prompty, .prompt or YAML prompt file, or a directory, which is gone through. Each finding is a line
    file:line:column: CODE message; the exit status is 1 where one of them is an error (with --strict, or a warning),
    else 0.

    In a file, a comment {# lazyprompt: ignore=LP040 #} lets it off.

    \b
    Examples:
      lazyprompt check prompts/
      lazyprompt check prompts/ --strict --ignore LP07
      lazyprompt check support.prompty --format json
    """  # noqa: D301 - \b is how click is told not to wrap
    select, ignore = _codes("--select", options["select"]), _codes("--ignore", options["ignore"])
    paths = [path for given in options["files"] for path in _files(given)]
    found = [
        each
        for path in dict.fromkeys(paths)
        for each in check(path, allowed_roots=options["roots"], dialect=options["dialect"])
        if each.code in select or (not options["select"])
        if each.code not in ignore
    ]
    terminal = goes_to_terminal(None)
    if options["form"] == "json":
        Output(json_text([asdict(each) for each in found], indent=2, terminal=terminal)).write()
    else:
        Output(visible("".join(map(_plain, found)) + _summed(found, len(set(paths))))).write()
    grave = SEVERITIES[:2] if options["strict"] else SEVERITIES[:1]
    if any(each.severity in grave for each in found):
        context.exit(_FOUND)


def _codes(option: str, given: Sequence[str]) -> frozenset[str]:
    """The rules that are named, by their codes or beginnings of them."""
    found: set[str] = set()
    for word in (word.strip().upper() for each in given for word in each.split(",")):
        named = {code for code in RULES if word and code.startswith(word)}
        if not named:
            raise WrongUseError(option, f"{word!r} is no rule{did_you_mean(word, RULES)}; rules are {', '.join(RULES)}")
        found |= named
    return frozenset(found)


def _files(given: str) -> Iterator[Path]:
    """The prompt files of an argument."""
    path = Path(given)
    if not path.is_dir():
        if not path.exists():
            raise WrongUseError("FILE", f"{given}: there is no such file or directory")
        if path.suffix.lower() not in (*_SUFFIXES, *_YAML):
            known = ", ".join((*_SUFFIXES, *_YAML))
            raise WrongUseError("FILE", f"{given}: prompt files end with {known}")
        yield path
        return
    for each in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in each.relative_to(path).parts)
        if each.is_file() and not hidden and (each.suffix in _SUFFIXES or (each.suffix in _YAML and _is_prompt(each))):
            yield each


def _is_prompt(path: Path) -> bool:
    """Whether a YAML file is meant as a prompt: many others stand beside them."""
    try:
        with path.open("rb") as file:
            node = Reader(Source(decoded(file.read(MAX_BYTES + 1), str(path)), str(path))).read()
    except (PromptFileError, OSError):
        # Another tool's file may be of YAML that is not read here; whoever names it has it checked.
        return False
    return node is not None and isinstance(node.value, dict) and not _OF_PROMPTS.isdisjoint(node.value)


def _plain(finding: Finding) -> str:
    """A finding as lines; an error with the line that it is in."""
    text = f"{finding.file}:{finding.line}:{finding.column}: {finding.code} {finding.message}"
    text += f"; {finding.advice}\n" if finding.advice else "\n"
    if finding.severity != SEVERITIES[0] or not finding.excerpt:
        return text
    begin = max(finding.column - 1 - _SHOWN // 2, 0)
    before = visible(finding.excerpt[begin : finding.column - 1].replace("\t", " "))
    rest = visible(finding.excerpt[finding.column - 1 : begin + _SHOWN].replace("\t", " "))
    return f"{text}    {before}{rest}\n    {' ' * cell_len(before)}^\n"


def _summed(found: Sequence[Finding], files: int) -> str:
    """The last line."""
    counts = Counter(each.severity for each in found)
    told = [f"{counts[each]} {each}{'s' if counts[each] != 1 and each != 'info' else ''}" for each in SEVERITIES]
    told = [each for each in told if not each.startswith("0 ")] or ["nothing found"]
    return f"{', '.join(told)} in {files} file{'s' if files != 1 else ''}\n"
