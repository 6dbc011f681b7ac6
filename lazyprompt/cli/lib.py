"""The commands for libraries of prompts: ``lazyprompt lib list|show|diff``."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack

import click

from lazyprompt.cli.prompts import FILE_OPTIONS, settings, with_options
from lazyprompt.cli.streams import Output, WrongUseError, goes_to_terminal, json_text
from lazyprompt.errors import LazyPromptError
from lazyprompt.inspect.signs import visible

if TYPE_CHECKING:
    from collections.abc import Generator

    from lazyprompt._json import Json, JsonObject
    from lazyprompt.files.library.library import PromptLibrary
    from lazyprompt.files.library.names import Entry

_Table: TypeAlias = "list[tuple[str, ...]]"


class _Where(TypedDict):
    directory: str
    layers: tuple[str, ...]
    params: tuple[str, ...]
    roots: tuple[str, ...]
    as_json: bool


_library_options = partial(
    with_options,
    options=(
        click.option(
            "--dir",
            "directory",
            default=".",
            show_default=True,
            metavar="DIR",
            help="The library: a directory, or a package.",
        ),
        click.option("--layer", "layers", multiple=True, metavar="DIR", help="A library that goes before it."),
        *FILE_OPTIONS,
        click.option("--json", "as_json", is_flag=True, help="One line of JSON."),
    ),
)


@click.group(invoke_without_command=True)
@click.pass_context
def lib(context: click.Context) -> None:
    """Look at a library of prompts: files named key[.language][@version].prompty."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _ListOptions(_Where):
    place: str | None


@lib.command("list")
@click.argument("place", required=False, metavar="[DIR]")
@_library_options
def list_(**options: Unpack[_ListOptions]) -> Output:
    """List the prompts of a directory, or of a package; DIR is the same as --dir.

    The columns: the key, its languages, and its versions, the newest last; - stands for the default language, and for
    a file without a version.

    \b
    Examples:
      lazyprompt lib list prompts
      lazyprompt lib list acme.prompts --layer team --json
    """  # noqa: D301 - \b is how click is told not to wrap
    with _blaming("DIR"):
        library = _library(options, options["place"])
        keys = library.keys()
        found = {key: library.entries(key) for key in keys}
    if options["as_json"]:
        return Output(json_text([{"key": key, "files": [*map(_told, files)]} for key, files in found.items()]))
    rows: _Table = [("KEY", "LANGUAGES", "VERSIONS")]
    for key, files in found.items():
        languages = dict.fromkeys(each.lang or "-" for each in sorted(files, key=lambda one: one.lang))
        versions = [*library.versions(key)]
        if any(each.version is None for each in files):
            versions.insert(0, "-")
        rows.append((key, " ".join(languages), " ".join(versions)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return Output(_for_screen("\n".join(lines) + "\n"))


class _ShowOptions(_Where):
    key: str
    lang: str | None
    version: str | None


@lib.command()
@click.argument("key")
@click.option("--lang", metavar="TAG", help="The language, as zh-CN; else a wider one, else the default.")
@click.option("--version", metavar="VERSION", help="A version, or a range as ^1.2; else the newest.")
@_library_options
def show(**options: Unpack[_ShowOptions]) -> Output:
    """Show a prompt: which file it is, what it takes, and its template with all that it includes.

    \b
    Examples:
      lazyprompt lib show support/refund --dir prompts --lang zh-CN
      lazyprompt lib show support/refund --dir prompts --version '^1.2' --json
    """  # noqa: D301 - as above
    from lazyprompt.files.library.names import YAML_SUFFIXES  # noqa: PLC0415 - yaml costs 10 ms
    from lazyprompt.files.yaml_nodes import text_of_file  # noqa: PLC0415 - yaml costs 10 ms

    with _blaming("--dir"):
        library = _library(options)
    asked = options["key"], options["lang"], options["version"]
    with _blaming("KEY"):
        entry = library.entry(*asked)
        told: JsonObject = {**_told(entry), "hash": library.hash(*asked)}
        if entry.path.suffix.lower() in YAML_SUFFIXES:
            told["inputs"] = [*library.prompter(*asked).slots]
            text = text_of_file(str(entry.path)).removeprefix("\ufeff")
        else:
            prompt = library.get(*asked)
            fields: JsonObject = prompt.spec.to_dict()
            _without_connection(fields)
            told |= {"dialect": prompt.dialect, **fields}
            text = prompt.instructions
    if options["as_json"]:
        return Output(json_text({**told, "template": text}))
    lines = [f"{name}: {_line(value)}" for name, value in told.items() if value not in (None, "")]
    return Output(_for_screen("\n".join([*lines, "", text.rstrip("\n")]) + "\n"))


class _DiffOptions(_Where):
    key: str
    a: str
    b: str
    lang: str | None


@lib.command()
@click.argument("key")
@click.argument("a")
@click.argument("b")
@click.option("--lang", metavar="TAG", help="The language of both.")
@_library_options
def diff(**options: Unpack[_DiffOptions]) -> Output:
    """Show what differs between two versions of a prompt, input by input and section by section.

    \b
    Examples:
      lazyprompt lib diff support/refund 1.2.0 2.0.0 --dir prompts
    """  # noqa: D301 - as above
    with _blaming("--dir"):
        library = _library(options)
    with _blaming("KEY"):
        found = library.diff(options["key"], options["a"], options["b"], options["lang"])
    return Output(json_text(found.to_dict()) if options["as_json"] else _for_screen(f"{found}\n"))


@contextmanager
def _blaming(where: str) -> Generator[None]:
    """Errors of the library as wrong use of an option."""
    try:
        yield
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    except OSError as error:
        raise WrongUseError(where, f"{error.filename}: {error.strerror}") from error


def _library(options: _Where, place: str | None = None) -> PromptLibrary:
    from lazyprompt.files.library.library import PromptLibrary  # noqa: PLC0415 - yaml costs 10 ms

    params = settings("--param", options["params"])
    path = options["directory"] if place is None else place
    return PromptLibrary(path, layers=options["layers"], params=params, allowed_roots=options["roots"])


def _told(entry: Entry) -> JsonObject:
    version = None if entry.version is None else str(entry.version)
    return {
        "key": entry.key,
        "lang": entry.lang,
        "version": version,
        "path": str(entry.path),
        "layer": str(entry.layer),
    }


def _without_connection(fields: JsonObject) -> None:
    """Leave out how the model is reached, where keys may stand."""
    model = fields.get("model")
    if isinstance(model, dict):
        model.pop("connection", None)


def _line(value: Json) -> str:
    """A value in one line; a name or a path as it is."""
    return value if isinstance(value, str) else json_text(value).rstrip("\n")


def _for_screen(text: str) -> str:
    return visible(text) if goes_to_terminal(None) else text
