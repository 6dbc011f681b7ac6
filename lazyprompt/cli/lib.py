"""``lazyprompt lib list|show|diff``, ``check`` and ``convert``: libraries of prompts, and prompt files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from lazyprompt.cli.options import json_option, output_option, reference_options, root_option, with_options
from lazyprompt.cli.streams import WrongUseError, blaming, json_text, note, table, write_json, write_text, write_visible
from lazyprompt.errors import did_you_mean
from lazyprompt.files.library.names import YAML_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.library.library import PromptLibrary
    from lazyprompt.files.library.names import Entry
    from lazyprompt.files.prompty import Prompty


_library_options = with_options(
    click.option(
        "--dir",
        "directory",
        default=".",
        show_default=True,
        metavar="DIR",
        help="The library: a directory, or a package.",
    ),
    click.option("--layer", "layers", multiple=True, metavar="DIR", help="A library that goes before it."),
    reference_options,
    json_option,
)


class _Library(TypedDict):
    directory: str
    layers: tuple[str, ...]
    params: dict[str, str]
    roots: tuple[str, ...]


@click.group("lib", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List, show and compare the prompts of a library.

    Its files are named key[.language][@version].prompty.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command("list")
@click.argument("place", required=False, metavar="[DIR]")
@_library_options
def list_(*, place: str | None, as_json: bool, **options: Unpack[_Library]) -> None:
    r"""List the prompts of a directory or package; DIR is the same as --dir.

    The columns: the key, its languages, and its versions, the newest last; - stands for the default language, and for
    a file without a version.

    \b
    Examples:
      lazyprompt lib list prompts
      lazyprompt lib list acme.prompts --layer team --json
    """
    with blaming("DIR"):
        library = _library(options if place is None else {**options, "directory": place})
        keys = library.keys()
        found = {key: library.entries(key) for key in keys}
    if as_json:
        return write_json([{"key": key, "files": [*map(_as_dict, files)]} for key, files in found.items()])
    rows = [("KEY", "LANGUAGES", "VERSIONS")]
    for key, files in found.items():
        languages = dict.fromkeys(each.lang or "-" for each in sorted(files, key=lambda one: one.lang))
        versions = [*library.versions(key)]
        if any(each.version is None for each in files):
            versions.insert(0, "-")
        rows.append((key, " ".join(languages), " ".join(versions)))
    return write_visible("\n".join(table(rows)) + "\n")


@command.command()
@click.argument("key")
@click.option("--lang", metavar="TAG", help="The language, as zh-CN; else a wider one, else the default.")
@click.option("--version", metavar="VERSION", help="A version, or a range as ^1.2; else the newest.")
@_library_options
def show(*, key: str, lang: str | None, version: str | None, as_json: bool, **options: Unpack[_Library]) -> None:
    r"""Show a prompt: which file it is, what it takes, and its template with all that it includes.

    \b
    Examples:
      lazyprompt lib show support/refund --dir prompts --lang zh-CN
      lazyprompt lib show support/refund --dir prompts --version '^1.2' --json
    """
    from lazyprompt.files.yaml_nodes import text_of_file

    with blaming("--dir"):
        library = _library(options)
    wanted = key, lang, version
    with blaming("KEY"):
        entry = library.entry(*wanted)
        facts: JsonObject = {**_as_dict(entry), "hash": library.hash(*wanted)}
        if entry.path.suffix.lower() in YAML_SUFFIXES:
            facts["inputs"] = [*library.prompter(*wanted).slots]
            text = text_of_file(str(entry.path)).removeprefix("\ufeff")
        else:
            prompt = library.get(*wanted)
            facts |= {"dialect": prompt.dialect, **prompt.spec.to_dict()}
            if isinstance(model := facts.get("model"), dict):
                model.pop("connection", None)  # it may hold keys
            text = prompt.instructions
    if as_json:
        return write_json({**facts, "template": text})
    lines = [
        f"{name}: {value if isinstance(value, str) else json_text(value)}"
        for name, value in facts.items()
        if value not in (None, "")
    ]
    return write_visible("\n".join([*lines, "", text.rstrip("\n")]) + "\n")


@command.command()
@click.argument("key")
@click.argument("a")
@click.argument("b")
@click.option("--lang", metavar="TAG", help="The language of both.")
@_library_options
def diff(*, key: str, a: str, b: str, lang: str | None, as_json: bool, **options: Unpack[_Library]) -> None:
    r"""Show what differs between two versions of a prompt, input by input and section by section.

    \b
    Examples:
      lazyprompt lib diff support/refund 1.2.0 2.0.0 --dir prompts
    """
    with blaming("--dir"):
        library = _library(options)
    with blaming("KEY"):
        found = library.diff(key, a, b, lang)
    return write_json(found.to_dict()) if as_json else write_visible(f"{found}\n")


def _library(options: _Library) -> PromptLibrary:
    from lazyprompt.files.library.library import PromptLibrary

    return PromptLibrary(
        options["directory"], layers=options["layers"], params=options["params"], allowed_roots=options["roots"]
    )


def _as_dict(entry: Entry) -> JsonObject:
    version = None if entry.version is None else str(entry.version)
    return {**entry._asdict(), "version": version, "path": str(entry.path), "layer": str(entry.layer)}


_FORMS = ("v2", "agentschema", "dotprompt", "langchain-json")  # their table costs 200 ms


@click.command("convert")
@click.argument("file")
@click.option("--to", type=click.Choice(_FORMS), required=True, help="The form.")
@output_option
@reference_options
def convert(*, file: str, to: str, output: str | None, params: dict[str, str], roots: tuple[str, ...]) -> None:
    r"""Write a prompt file in another form.

    FILE may also be a prompt that LangChain saved as JSON or YAML. What the other form cannot hold is listed on
    the standard error, a line for each. References, such as ${env:KEY}, stay as they are, so that no secret is written;
    but the file is read first, and must find what they lead to.

    \b
    Examples:
      lazyprompt convert old.prompty --to v2 -o new.prompty
      lazyprompt convert qa.prompty --to langchain-json > qa.json
      lazyprompt convert chain.json --to v2 -o chain.prompty
    """
    from lazyprompt.files.prompty import convert as write

    with blaming("FILE"):
        prompt, left_out = _read_any(Path(file), params, roots)
        converted = write(prompt, to)
    for each in (*left_out, *converted.notes):
        note(f"note: {file}: {each}")
    write_visible(converted.text, output)


def _read_any(path: Path, params: dict[str, str], roots: tuple[str, ...]) -> tuple[Prompty, tuple[str, ...]]:
    """Read a prompt from its file, a prompter's YAML or LangChain's; and list the parts that this loses."""
    from lazyprompt.files.prompt_file import PromptFile
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.writing.langchain import from_langchain, langchain_data
    from lazyprompt.files.yaml_nodes import text_of_file

    text = text_of_file(str(path))
    if (data := langchain_data(text, str(path))) is not None:
        written = from_langchain(data, path.name.partition(".")[0])
        return Prompty.loads(written.text, path.parent, name=str(path)), written.notes
    if path.suffix.lower() not in YAML_SUFFIXES:
        return Prompty.load(path, params, roots), ()
    file = PromptFile.load(path)
    return Prompty.from_prompter(file.prompter, name=path.stem, model=file.model), ()


_FOUND = 1
_DIALECTS = ("v2", "agentschema", "v1", "dotprompt")  # their table costs 160 ms


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format", "form", type=click.Choice(["plain", "json", "github", "sarif"]), default="plain", show_default=True
)
@click.option(
    "--select", multiple=True, metavar="CODES", help="Only these rules, as LP040,LP06: a beginning is enough."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules.")
@root_option
@click.option("--dialect", type=click.Choice(_DIALECTS), help="The dialect of all the files.  [default: each its own]")
@click.option("--strict", is_flag=True, help="Warnings count as errors do.")
@click.pass_context
def check_files(
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
    """
    from lazyprompt.files.check.check import RULES, SEVERITIES, check, github, report, sarif

    chosen = (_codes("--select", select, RULES) or {*RULES}) - _codes("--ignore", ignore, RULES)
    paths = [*dict.fromkeys(path for given in files for path in _prompt_files(given))]
    if not paths or not chosen:
        what = f"no prompt file is in {', '.join(files)}" if chosen else "--select and --ignore leave no rule"
        raise WrongUseError("FILE", f"nothing was checked: {what}")
    found = [each for path in paths for each in check(path, allowed_roots=roots, dialect=dialect)]
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
    """Find the rules that an option names, by their codes or beginnings of them."""
    found: set[str] = set()
    for word in (word.strip().upper() for each in given for word in each.split(",")):
        named = {code for code in rules if word and code.startswith(word)}
        if not named:
            raise WrongUseError(option, f"{word!r} is no rule{did_you_mean(word, rules)}; rules are {', '.join(rules)}")
        found |= named
    return found


def _prompt_files(given: str) -> Iterator[Path]:
    """Find the prompt files of an argument."""
    from lazyprompt.files.check.check import prompt_files
    from lazyprompt.files.library.names import SUFFIXES

    path = Path(given)
    if path.is_dir():
        yield from prompt_files(path)
    elif not path.exists():
        raise WrongUseError("FILE", f"{given}: there is no such file or directory")
    elif path.suffix.lower() not in SUFFIXES:
        raise WrongUseError("FILE", f"{given}: prompt files end with {', '.join(SUFFIXES)}")
    else:
        yield path
