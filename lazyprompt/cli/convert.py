"""``lazyprompt convert``: a prompt file in another form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyprompt.cli.options import output_option, reference_options
from lazyprompt.cli.streams import blaming, note, write_visible
from lazyprompt.files.library.names import YAML_SUFFIXES

if TYPE_CHECKING:
    from lazyprompt.files.prompty import Prompty


_FORMS = ("v2", "agentschema", "dotprompt", "langchain-json")  # their table costs 200 ms


@click.command("convert")
@click.argument("file")
@click.option("--to", type=click.Choice(_FORMS), required=True, help="The form.")
@output_option
@reference_options
def command(*, file: str, to: str, output: str | None, params: dict[str, str], roots: tuple[str, ...]) -> None:
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
