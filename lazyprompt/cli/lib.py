"""The ``lazyprompt lib`` commands, which list, show and compare the prompts in a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from lazyprompt._base.secret import HiddenEnvironment
from lazyprompt.cli.choices import CommandGroup
from lazyprompt.cli.options import json_option, reference_options, with_options
from lazyprompt.cli.streams import blaming, json_text, table, write_json, write_visible
from lazyprompt.files.library.names import YAML_SUFFIXES, LibraryEntry

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.library.library import PromptLibrary


_library_options = with_options(
    click.option(
        "--dir",
        "directory",
        default=".",
        show_default=True,
        metavar="DIR",
        help="The library: a directory, or a package.",
    ),
    click.option("--layer", "layers", multiple=True, metavar="DIR", help="A library that takes precedence."),
    reference_options,
    json_option,
)


class _Library(TypedDict):
    directory: str
    layers: tuple[str, ...]
    params: dict[str, str]
    roots: tuple[str, ...]


@click.group("lib", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List, show and compare the prompts of a library.

    The files are named key[.language][@version].prompty.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command("list")
@click.argument("place", required=False, metavar="[DIR]")
@_library_options
def list_(*, place: str | None, as_json: bool, **options: Unpack[_Library]) -> None:
    r"""List the prompts of a directory or package; DIR is the same as --dir.

    The columns are the key, its languages and its versions, with the newest last. A hyphen means the default language,
    or a file without a version.

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
@click.option("--lang", metavar="TAG", help="The language, such as zh-CN; falls back to zh, then to the default.")
@click.option("--version", metavar="VERSION", help="A version, or a range such as ^1.2.  [default: the newest]")
@_library_options
def show(*, key: str, lang: str | None, version: str | None, as_json: bool, **options: Unpack[_Library]) -> None:
    r"""Show a prompt: its file, its inputs, and its template with all included files.

    \b
    Examples:
      lazyprompt lib show support/refund --dir prompts --lang zh-CN
      lazyprompt lib show support/refund --dir prompts --version '^1.2' --json
    """
    with blaming("--dir"):
        library = _library(options)
    wanted = key, lang, version
    with blaming("KEY"):
        entry = library.entry(*wanted)
        facts: JsonObject = {**_as_dict(entry), "hash": library.hash(*wanted)}
        if entry.path.suffix.lower() in YAML_SUFFIXES:
            facts["inputs"] = [*library.prompter(*wanted).slots]
            text = library.text(entry).removeprefix("\ufeff")
        else:
            prompt = library.get(*wanted)
            facts |= {"dialect": prompt.dialect, **prompt.spec.to_dict()}
            if isinstance(model := facts.get("model"), dict):
                model.pop("connection", None)  # connection settings may contain API keys
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
    r"""Show the differences between two versions of a prompt, by input and section.

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
        options["directory"],
        layers=options["layers"],
        params=options["params"],
        allowed_roots=options["roots"],
        environment=HiddenEnvironment(),
    )


def _as_dict(entry: LibraryEntry) -> JsonObject:
    version = None if entry.version is None else str(entry.version)
    return {**entry._asdict(), "version": version, "path": str(entry.path), "layer": str(entry.layer)}
