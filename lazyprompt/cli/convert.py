"""The ``lazyprompt convert`` command, which writes a prompt file in another Prompty dialect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyprompt._base.secret import HiddenEnvironment
from lazyprompt.cli.choices import OneOf
from lazyprompt.cli.options import output_option, reference_options
from lazyprompt.cli.streams import blaming, note, write_visible
from lazyprompt.files.library.names import YAML_SUFFIXES

if TYPE_CHECKING:
    from lazyprompt.files.prompty import Prompty


# The dialect names are copied, because importing them from lazyprompt.files takes 200 ms.
_DIALECTS = ("v2", "agentschema")


@click.command("convert")
@click.argument("file")
@click.option("--to", type=OneOf(_DIALECTS), required=True, help="The target dialect.")
@output_option
@reference_options
def command(*, file: str, to: str, output: str | None, params: dict[str, str], roots: tuple[str, ...]) -> None:
    r"""Write a prompt file in another format.

    FILE is a .prompty file in any dialect, or a YAML prompt file. Fields that the target dialect lacks are listed on
    standard error, one per line. References such as ${env:KEY} stay references, so that no secret is written, but they
    must resolve when the file is read.

    \b
    Examples:
      lazyprompt convert old.prompty --to v2 -o new.prompty
      lazyprompt convert qa.yaml --to v2 > qa.prompty
    """
    from lazyprompt.files.prompty import convert as write

    with blaming("FILE"):
        converted = write(_read(Path(file), params, roots), to)
    for each in converted.notes:
        note(f"note: {file}: {each}")
    write_visible(converted.text, output)


def _read(path: Path, params: dict[str, str], roots: tuple[str, ...]) -> Prompty:
    """Load a .prompty or YAML prompt file."""
    from lazyprompt.files.prompt_file import PromptFile
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.references import References

    if path.suffix.lower() not in YAML_SUFFIXES:
        references = References(
            path.parent, tuple(map(Path, roots)), dict(params), HiddenEnvironment(), connects_later=True
        )
        return Prompty.of_file(path, references)
    file = PromptFile.load(path)
    return Prompty.from_prompter(file.prompter, name=path.stem, model=file.model)
