"""The ``check`` command, which finds mistakes in prompt files, and ``check-template``, which reports on a template."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyprompt.cli.choices import OneOf
from lazyprompt.cli.options import json_option, root_option
from lazyprompt.cli.streams import (
    WrongUseError,
    blaming,
    write_json,
    write_text,
)
from lazyprompt.errors import MissingExtraError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import tokenizers


_FOUND = 1
_PLACEHOLDERS = {"bos_token": "<s>", "eos_token": "</s>"}
# The dialect names are copied, because importing them from lazyprompt.files takes 160 ms.
_DIALECTS = ("v2", "agentschema", "v1")


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "form", type=OneOf(["plain", "json", "github", "sarif"]), default="plain", show_default=True)
@click.option(
    "--select", multiple=True, metavar="CODES", help="Only these rules: codes or prefixes, such as LP040,LP06."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Exclude these rules.")
@root_option
@click.option("--dialect", type=OneOf(_DIALECTS), help="The dialect of all files.  [default: detected for each]")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.pass_context
def command(
    context: click.Context,
    *,
    files: tuple[str, ...],
    form: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    roots: tuple[str, ...],
    dialect: str | None,
    strict: bool,
) -> None:
    r"""Find mistakes in prompt files.

    FILE is a .prompty or YAML prompt file, or a directory that is searched for prompt files. Each finding is printed as
    file:line:column: CODE message. The exit status is 1 if there are errors (or warnings, with --strict), 2 for a usage
    error or if nothing was checked, else 0.

    To disable a rule in one file, add a comment such as {# lazyprompt: ignore=LP040 #}.

    \b
    Examples:
      lazyprompt check prompts/
      lazyprompt check prompts/ --strict --ignore LP07
      lazyprompt check support.prompty --format json
      lazyprompt check prompts/ --format sarif > check.sarif
    """
    from lazyprompt.files.check.check import RULES, SEVERITIES, check, github, report, sarif

    chosen = (_codes("--select", select, RULES) or {*RULES}) - _codes("--ignore", ignore, RULES)
    paths = {path: place for given in files for path, place in _prompt_files(given, roots)}
    if not paths or not chosen:
        what = f"no prompt file in {', '.join(files)}" if chosen else "--select and --ignore leave no rule"
        raise WrongUseError("FILE", f"nothing was checked: {what}")
    found = [
        each
        for path, place in paths.items()
        for each in check(path, allowed_roots=roots, dialect=dialect, found_in=place)
    ]
    found = [each for each in found if each.code in chosen]
    outputs = {
        "plain": lambda: write_text(report(found, len(paths))),
        "json": lambda: write_json([asdict(each) for each in found], indent=2),
        "github": lambda: write_text(github(found, len(paths))),
        "sarif": lambda: write_json(sarif(found), indent=2),
    }
    outputs[form]()
    serious = SEVERITIES[: 2 if strict else 1]
    if any(each.severity in serious for each in found):
        context.exit(_FOUND)


def _codes(option: str, given: Sequence[str], rules: Collection[str]) -> set[str]:
    """Return the codes of the rules that an option selects by code or prefix."""
    found: set[str] = set()
    for word in (word.strip().upper() for each in given for word in each.split(",")):
        named = {code for code in rules if word and code.startswith(word)}
        if not named:
            raise WrongUseError(
                option, f"unknown rule {word!r}{did_you_mean(word, rules)}; expected one of {', '.join(rules)}"
            )
        found |= named
    return found


def _prompt_files(given: str, roots: Sequence[str]) -> Iterator[tuple[Path, Path | None]]:
    """Yield the prompt files that an argument names; pair each with the directory that was searched, or with None."""
    from lazyprompt.files.check.check import prompt_files
    from lazyprompt.files.library.names import SUFFIXES

    path = Path(given)
    if path.is_dir():
        yield from ((each, path) for each in prompt_files(path, roots))
    elif not path.exists():
        raise WrongUseError("FILE", f"{given}: no such file or directory")
    elif path.suffix.lower() not in SUFFIXES:
        raise WrongUseError("FILE", f"{given}: not a prompt file; expected a name ending in {', '.join(SUFFIXES)}")
    else:
        yield path, None


@click.command("check-template")
@click.argument("path")
@click.option("--name", metavar="NAME", help="The template's name, if there are several.")
@click.option("--bos-token", metavar="TEXT", help="The beginning-of-text token, without a tokenizer.  [default: <s>]")
@click.option("--eos-token", metavar="TEXT", help="The end-of-text token, without a tokenizer.  [default: </s>]")
@json_option
def check_template(path: str, *, name: str | None, bos_token: str | None, eos_token: str | None, as_json: bool) -> None:
    r"""Report what a model's chat template supports.

    PATH is a .jinja file, a tokenizer's directory or a GGUF file. The command renders short sample chats with the
    template. The report states whether the template supports system messages, tools, and tool-call arguments as JSON
    text. It also states whether earlier text stays the same as a chat grows. Further lines state whether training
    teaches the model to stop, whether a chat can continue from token ids, and whether markers can replace the template.

    \b
    Examples:
      lazyprompt check-template models/qwen3
      lazyprompt check-template chat_template.jinja --json
    """
    from lazyprompt.chat_templates.template import ChatTemplate

    given = {"bos_token": bos_token, "eos_token": eos_token}
    tokens = {token: text for token, text in given.items() if text is not None}
    with blaming("PATH"):
        template = ChatTemplate.load(Path(path), name=name, **tokens)
        # A template file alone doesn't define special tokens, so render the template with placeholder tokens.
        used = {token: text for token, text in _PLACEHOLDERS.items() if token in template.text}
        template = ChatTemplate.load(Path(path), name=name, **{**used, **template.special_tokens})
        report = template.check(_tokenizer_beside(Path(path)))
    if as_json:
        write_json([finding._asdict() for finding in report.findings])
    else:
        write_text(f"{report}\n")


def _tokenizer_beside(path: Path) -> tokenizers.Tokenizer | None:
    """Load the tokenizer in a template's directory; return None if the file or the tokenizers package is missing."""
    file = (path if path.is_dir() else path.parent) / "tokenizer.json"
    if not file.exists():
        return None
    from lazyprompt.chat_templates.token_counter import read_tokenizer

    try:
        return read_tokenizer(file)
    except MissingExtraError:
        return None
