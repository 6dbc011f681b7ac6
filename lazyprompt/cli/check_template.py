"""``lazyprompt check-template``: a report on a model's chat template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyprompt.cli.errors import blaming
from lazyprompt.cli.options import json_option
from lazyprompt.cli.output import Output, json_output
from lazyprompt.errors import MissingExtraError

if TYPE_CHECKING:
    import tokenizers


@click.command("check-template")
@click.argument("path")
@click.option("--name", metavar="NAME", help="Which of several templates.")
@json_option
def command(path: str, *, name: str | None, as_json: bool) -> Output:
    """Find out what a model's chat template can do.

    PATH is a .jinja file, a tokenizer's directory or a GGUF file. The template is tried out on short chats: does it
    take a system text, tools, arguments as JSON? Does what it wrote stay as it was when a chat goes on? Is a model
    trained with it taught to stop? Which templates can be bridged, and laid out by markers?

    \b
    Examples:
      lazyprompt check-template models/qwen3
      lazyprompt check-template chat_template.jinja --json
    """  # noqa: D301 - \b tells click not to wrap
    from lazyprompt.chat_templates.template import ChatTemplate  # noqa: PLC0415 - 150 ms, not for --help

    with blaming("PATH"):
        report = ChatTemplate.load(Path(path), name=name).check(_tokenizer_beside(Path(path)))
    if as_json:
        return json_output([finding._asdict() for finding in report.findings])
    return Output(f"{report}\n")


def _tokenizer_beside(path: Path) -> tokenizers.Tokenizer | None:
    """Read the tokenizer beside a template, if there is one and its package is installed."""
    file = (path if path.is_dir() else path.parent) / "tokenizer.json"
    if not file.exists():
        return None
    from lazyprompt.chat_templates.token_counter import read_tokenizer  # noqa: PLC0415 - as above

    try:
        return read_tokenizer(file)
    except MissingExtraError:
        return None
