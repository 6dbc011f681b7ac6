"""The model that a command line asks: the options that name it, read for every command that asks one."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from lazyprompt.cli.prompts import text_option, with_options
from lazyprompt.cli.streams import WrongUseError
from lazyprompt.cli.terminal import warn
from lazyprompt.errors import LazyPromptError
from lazyprompt.modules.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lazyprompt.files.prompty import Prompty
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.reply import Reply
    from lazyprompt.modules.trainable import TrainableModule

_Command = TypeVar("_Command", bound="Callable[..., Any]")


class NoAnswerError(click.ClickException):
    """There is no answer, though the command line was used rightly.

    Args:
        where: The option that named the model.
        what: Why.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


class ModelOptions(TypedDict):
    """What the options of a model give."""

    source: str | None
    model: str | None
    base_url: str | None
    engine: str | None
    url: str | None
    max_tokens: int | None
    temperature: float | None


_OPTIONS = (
    text_option("--source", metavar="NAME", help="Who has the model; one of those below."),
    text_option(
        "--model",
        metavar="NAME",
        help="The model at the source. Without --source a local one: a GGUF file, a directory, owner/name or name:tag; "
        "its engine is started, and ended with the command.",
    ),
    text_option("--base-url", metavar="URL", help="Another address of the source."),
    text_option("--engine", metavar="NAME", help="The engine of a local model.  [default: one that serves it]"),
    text_option("--url", metavar="URL", help="Where the engine of a local model runs already."),
    click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="The most tokens of an answer."),
    click.option("--temperature", type=click.FloatRange(min=0), metavar="T", help="How freely the model chooses."),
)


def model_options(command: _Command) -> _Command:
    """Give a command the options of a model."""
    return with_options(command, _OPTIONS)


def sources_help() -> str:
    """The sources as a table, which ends the help of a command."""
    rows = [("SOURCE", "MODEL", "KEY, IN THE ENVIRONMENT")]
    for source in SOURCES.values():
        keys = " or ".join(source.keys) or "as its client says"
        rows.append((source.name, source.model or "--model", keys if source.needs_key else f"{keys}, if any"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    # \b is how click is told not to wrap
    return "\b\n" + "\n".join(line.rstrip() for line in lines)


@contextmanager
def opened_model(
    options: ModelOptions, file: Prompty | None = None, **settings: float
) -> Generator[OnlineChatModule | TrainableModule]:
    """The model, which can be asked while the context is open; its engine, if one was started, ends with it.

    Args:
        options: The options.
        file: The prompt file, whose model and options hold where no option says otherwise.
        settings: Further settings of the module, as ``retries`` and ``timeout``.

    Raises:
        WrongUseError: An option is wrong, or says nothing beside others; or no model is named.
        NoAnswerError: In the place of each error of the library within the context.
    """
    said: Mapping[str, Any] = {}
    left: Sequence[str] = ()
    if file is not None:
        from lazyprompt.cli.file_models import model_of  # noqa: PLC0415 - only files need it

        source, model, said, left = model_of(options, file)
        options = {**options, "source": source, "model": model}
    _refuse_conflicts(options)
    where, opened = _model(options, {**said, **settings})
    try:
        with opened as module:
            yield module
    except LazyPromptError as error:
        raise NoAnswerError(where, str(error)) from error
    if left:
        warn(f"of the prompt file is not used: model.{', model.'.join(left)}")


def remark(reply: Reply) -> str:
    """What is to be said of an answer that is not whole; empty where it is."""
    cut = reply.finish == "length"
    return "the answer ended at the limit of tokens; give a larger --max-tokens" if cut else ""


def _refuse_conflicts(options: ModelOptions) -> None:
    """Refuse options that would say nothing beside others."""
    if options["source"] is None:
        if options["base_url"] is not None:
            raise WrongUseError("--base-url", "it is the address of a source; give --source, or --url of an engine")
        if options["model"] is None:
            raise WrongUseError("--source", "there is no model to ask; give --source, or --model of a local one")
        return
    for option, value in (("--engine", options["engine"]), ("--url", options["url"])):
        if value is not None:
            raise WrongUseError(option, "it is for local models; leave out --source, or give --base-url")


def _model(
    options: ModelOptions, said: Mapping[str, Any]
) -> tuple[str, AbstractContextManager[OnlineChatModule | TrainableModule]]:
    """The option that named the model, and what opens and closes it; what a file says holds where no option does."""
    given = {"max_tokens": options["max_tokens"], "temperature": options["temperature"]}
    params: dict[str, Any] = {**said, **{name: value for name, value in given.items() if value is not None}}
    where = "--source"
    try:
        if options["source"] is not None:
            from lazyprompt.modules.online import OnlineChatModule  # noqa: PLC0415 - slow, and only here

            module = OnlineChatModule(options["source"], model=options["model"], base_url=options["base_url"], **params)
            module.source.key(None)  # a missing key is told before anything else
            return where, closing(module)
        from lazyprompt.modules.engines import engine_named  # noqa: PLC0415 - as above
        from lazyprompt.modules.trainable import TrainableModule  # noqa: PLC0415 - as above

        where = "--engine"
        if options["engine"] is not None:
            engine_named(options["engine"])
        where = "--model"
        local = TrainableModule(options["model"] or "", engine=options["engine"], url=options["url"], **params)
        _ = local.layout  # a model whose prompts nobody can lay out is not worth a start of its engine
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    return where, local
