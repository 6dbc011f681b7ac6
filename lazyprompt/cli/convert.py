"""The command ``lazyprompt convert``: a prompt file in another form."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from lazyprompt.cli.prompts import FILE_OPTIONS, settings, with_options
from lazyprompt.cli.streams import Output, WrongUseError, goes_to_terminal
from lazyprompt.errors import LazyPromptError
from lazyprompt.inspect.signs import visible

if TYPE_CHECKING:
    from lazyprompt.files.prompty import Prompty

_FORMS = ("v2", "agentschema", "dotprompt", "langchain-json")


class ConvertOptions(TypedDict):
    """What the options of the command give."""

    file: str
    to: str
    output: str | None
    params: tuple[str, ...]
    roots: tuple[str, ...]


@click.command()
@click.argument("file")
@click.option("--to", type=click.Choice(_FORMS), required=True, help="The form.")
@click.option("-o", "--output", metavar="OUT", help="Write to a file, in one step.")
@partial(with_options, options=FILE_OPTIONS)
def convert(**options: Unpack[ConvertOptions]) -> Output:
    """Write a prompt file, or a prompt that LangChain saved as JSON or YAML, in another form.

    What that form cannot say is told on the standard error, a line for each. References, such as ${env:KEY}, stay as
    they are, so that no secret is written; but the file is read first, and must find what they lead to.

    \b
    Examples:
      lazyprompt convert old.prompty --to v2 -o new.prompty
      lazyprompt convert qa.prompty --to langchain-json > qa.json
      lazyprompt convert chain.json --to v2 -o chain.prompty
    """  # noqa: D301 - \b is how click is told not to wrap
    return converted(options)


def converted(options: ConvertOptions) -> Output:
    """A prompt file in another form; what that cannot say is written to the standard error.

    Args:
        options: The options.

    Raises:
        WrongUseError: The file is none, or cannot be said in that form.
    """
    from lazyprompt.files.writing.convert import convert as written  # noqa: PLC0415 - no other command needs it

    try:
        prompt, left_out = _prompt(options)
        made = written(prompt, options["to"])
    except LazyPromptError as error:
        raise WrongUseError("FILE", str(error)) from error
    for note in (*left_out, *made.notes):
        click.echo(visible(f"lazyprompt: note: {options['file']}: {note}"), err=True)
    output = options["output"]
    # A terminal obeys what it is shown; a file is to be as it is.
    return Output(visible(made.text) if goes_to_terminal(output) else made.text, output)


def _prompt(options: ConvertOptions) -> tuple[Prompty, tuple[str, ...]]:
    """Read the prompt of a file, of a prompter's YAML or of what LangChain saved; and what that leaves out."""
    from lazyprompt.files.library.names import YAML_SUFFIXES  # noqa: PLC0415 - no other command needs it
    from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - as above
    from lazyprompt.files.prompty import Prompty  # noqa: PLC0415 - as above
    from lazyprompt.files.writing.from_langchain import from_langchain, langchain_data  # noqa: PLC0415 - as above
    from lazyprompt.files.yaml_nodes import text_of_file  # noqa: PLC0415 - as above

    path = Path(options["file"])
    text = text_of_file(str(path))
    if (data := langchain_data(text, str(path))) is not None:
        made = from_langchain(data, path.name.partition(".")[0])
        return Prompty.loads(made.text, path.parent, name=str(path)), made.notes
    if path.suffix.lower() not in YAML_SUFFIXES:
        return Prompty.load(path, settings("--param", options["params"]), options["roots"]), ()
    read = PromptFile.load(path)
    return Prompty.from_prompter(read.prompter, name=path.stem, model=read.model), ()
