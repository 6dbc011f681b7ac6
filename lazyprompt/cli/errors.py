"""The errors of the command line; each names the option or argument to blame."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lazyprompt.errors import LazyPromptError

if TYPE_CHECKING:
    from collections.abc import Generator


class CommandError(click.ClickException):
    """An error with the option, argument or stream to blame.

    Args:
        where: The option, argument or stream.
        what: The message.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


class WrongUseError(CommandError):
    """Wrong use of the command line."""

    exit_code = 2


class NoAnswerError(CommandError):
    """A model that gives no answer, although the command line is right."""


@contextmanager
def blaming(where: str, path: str | None = None) -> Generator[None]:
    """Turn the library's errors, and files that cannot be read, into wrong use of an option.

    Args:
        where: The option or argument.
        path: The file's name on the command line; None for the error's own.

    Raises:
        WrongUseError: In place of the error.
    """
    try:
        yield
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    except OSError as error:
        raise WrongUseError(where, f"{path or error.filename}: {error.strerror}") from error
