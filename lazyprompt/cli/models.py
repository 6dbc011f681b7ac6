"""The model that options and prompt files name: opened to be asked, and closed."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from lazyprompt.cli.errors import NoAnswerError, WrongUseError, blaming
from lazyprompt.cli.output import note
from lazyprompt.cli.tables import table
from lazyprompt.errors import LazyPromptError
from lazyprompt.modules.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lazyprompt.cli.options import ModelOptions
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.trainable import TrainableModule


def sources_help() -> str:
    """Return the sources as a table, for the end of a command's help."""
    rows = [("SOURCE", "MODEL", "KEY, IN THE ENVIRONMENT")]
    for source in SOURCES.values():
        keys = " or ".join(source.keys) or "as its client says"
        rows.append((source.name, source.model or "--model", keys if source.needs_key else f"{keys}, if any"))
    # \b tells click not to wrap
    return "\b\n" + "\n".join(table(rows))


@contextmanager
def opened_model(
    options: ModelOptions, file: Prompty | None = None, **settings: float
) -> Generator[OnlineChatModule | TrainableModule]:
    """Open a model, which can be asked inside the context; an engine that was started ends with it.

    Args:
        options: The options.
        file: The prompt file; its model and options hold where no option is given.
        settings: Further settings of the module, as ``retries`` and ``timeout``.

    Raises:
        WrongUseError: An option is wrong, or has no effect beside others; or no model is named.
        NoAnswerError: In place of each error of the library within the context.
    """
    params: Mapping[str, Any] = {}
    unused: Sequence[str] = ()
    if file is not None:
        from lazyprompt.cli.file_models import file_model  # noqa: PLC0415 - only files need it, and it costs 50 ms

        source, model, params, unused = file_model(options, file)
        options = {**options, "source": source, "model": model}
    _refuse_conflicts(options)
    where, opened = _open(options, {**params, **settings})
    try:
        with opened as module:
            yield module
    except LazyPromptError as error:
        raise NoAnswerError(where, str(error)) from error
    if unused:
        note(f"of the prompt file is not used: model.{', model.'.join(unused)}")


def length_warning(reply: Reply) -> str:
    """Return a warning if the answer ended at the token limit, else nothing."""
    cut = reply.finish == "length"
    return "the answer ended at the limit of tokens; give a larger --max-tokens" if cut else ""


def _refuse_conflicts(options: ModelOptions) -> None:
    """Refuse options that have no effect beside others."""
    if options["source"] is None:
        if options["base_url"] is not None:
            raise WrongUseError("--base-url", "it is the address of a source; give --source, or --url of an engine")
        if options["model"] is None:
            raise WrongUseError("--source", "there is no model to ask; give --source, or --model of a local one")
        return
    for option, value in (("--engine", options["engine"]), ("--url", options["url"])):
        if value is not None:
            raise WrongUseError(option, "it is for local models; leave out --source, or give --base-url")


def _open(
    options: ModelOptions, params: Mapping[str, Any]
) -> tuple[str, AbstractContextManager[OnlineChatModule | TrainableModule]]:
    """Return the option that names the model, and the module as a context; options go before parameters."""
    given = {"max_tokens": options["max_tokens"], "temperature": options["temperature"]}
    params = {**params, **{name: value for name, value in given.items() if value is not None}}
    if options["source"] is not None:
        from lazyprompt.modules.online import OnlineChatModule  # noqa: PLC0415 - slow, and only here

        with blaming("--source"):
            module = OnlineChatModule(options["source"], model=options["model"], base_url=options["base_url"], **params)
            module.source.key(None)  # report a missing key before anything else
        return "--source", closing(module)
    from lazyprompt.modules.engines import engine_named  # noqa: PLC0415 - as above
    from lazyprompt.modules.trainable import TrainableModule  # noqa: PLC0415 - as above

    if options["engine"] is not None:
        with blaming("--engine"):
            engine_named(options["engine"])
    with blaming("--model"):
        local = TrainableModule(options["model"] or "", engine=options["engine"], url=options["url"], **params)
        _ = local.layout  # without a layout for its prompts, the engine need not start
    return "--model", local
