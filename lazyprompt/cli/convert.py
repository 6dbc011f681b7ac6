"""``lazyprompt convert``: a prompt file in another form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from lazyprompt.cli.errors import blaming
from lazyprompt.cli.options import Options, output_option, reference_options
from lazyprompt.cli.output import Output, note, text_output
from lazyprompt.files.library.names import YAML_SUFFIXES

if TYPE_CHECKING:
    from lazyprompt.files.prompty import Prompty

_FORMS = ("v2", "agentschema", "dotprompt", "langchain-json")  # their table costs 200 ms


@click.command("convert")
@click.argument("file")
@click.option("--to", type=click.Choice(_FORMS), required=True, help="The form.")
@output_option
@reference_options
def command(**options: Unpack[Options]) -> Output:
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
    from lazyprompt.files.writing.convert import convert  # noqa: PLC0415 - 200 ms, not for --help

    with blaming("FILE"):
        prompt, left_out = _read(options)
        converted = convert(prompt, options["to"])
    for each in (*left_out, *converted.notes):
        note(f"note: {options['file']}: {each}")
    return text_output(converted.text, options["output"])


def _read(options: Options) -> tuple[Prompty, tuple[str, ...]]:
    """Read a prompt from its file, a prompter's YAML or LangChain's; and list the parts that this loses."""
    from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - as above
    from lazyprompt.files.prompty import Prompty  # noqa: PLC0415 - as above
    from lazyprompt.files.writing.langchain import from_langchain, langchain_data  # noqa: PLC0415 - as above
    from lazyprompt.files.yaml_nodes import text_of_file  # noqa: PLC0415 - as above

    path = Path(options["file"])
    text = text_of_file(str(path))
    if (data := langchain_data(text, str(path))) is not None:
        written = from_langchain(data, path.name.partition(".")[0])
        return Prompty.loads(written.text, path.parent, name=str(path)), written.notes
    if path.suffix.lower() not in YAML_SUFFIXES:
        return Prompty.load(path, options["params"], options["roots"]), ()
    file = PromptFile.load(path)
    return Prompty.from_prompter(file.prompter, name=path.stem, model=file.model), ()
