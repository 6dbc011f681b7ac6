"""What the command line says of a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lazyprompt.cli.streams import Output, WrongUseError, json_text
from lazyprompt.errors import LazyPromptError, MissingExtraError
from lazyprompt.text.chat.template import ChatTemplate
from lazyprompt.tokens.huggingface import read_tokenizer

if TYPE_CHECKING:
    import tokenizers


def checked(path: str, name: str | None, *, as_json: bool) -> Output:
    """What a template can and cannot do.

    Args:
        path: The template's file, or the directory of its tokenizer.
        name: Which of several templates.
        as_json: Whether it is written as JSON.

    Returns:
        A line for each answer.

    Raises:
        WrongUseError: There is no template, or its syntax is wrong.
    """
    try:
        report = ChatTemplate.load(Path(path), name=name).check(_tokenizer_at(Path(path)))
    except LazyPromptError as error:
        raise WrongUseError("PATH", str(error)) from error
    if as_json:
        return Output(json_text([finding._asdict() for finding in report.findings]))
    return Output(f"{report}\n")


def _tokenizer_at(path: Path) -> tokenizers.Tokenizer | None:
    """The tokenizer beside a template, where there is one and it can be read."""
    file = (path if path.is_dir() else path.parent) / "tokenizer.json"
    if not file.exists():
        return None
    try:
        return read_tokenizer(file)
    except MissingExtraError:
        return None
