"""Functions that open the model selected by the command-line options or a prompt file."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.secret import revealed
from lazyprompt.cli.streams import (
    NoAnswerError,
    WrongUseError,
    blaming,
    note,
    table,
)
from lazyprompt.errors import LazyPromptError, MissingExtraError, ModuleError
from lazyprompt.modules.sources import SOURCES, source_named

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from lazyprompt.cli.options import Options
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.targets import Place
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.trainable import TrainableModule


# Maps a provider's name in prompt files to the source name in ``--model``, if these names differ.
_SOURCES = {"googleai": "gemini", "openai-responses": "openai", "dashscope-multimodal": "dashscope"}
# Maps prompt file options to the parameter names that all clients and engines share.
_COMMON = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
# The request field that wraps the options. Clients expect the options without this wrapper.
_HOLDER = "generation_config"
# Maps each client that has more than the common options to True if the client also accepts arbitrary request fields.
# The Gemini client receives no arbitrary fields, because a field could set the URL to which it sends the API key.
_TAKES_FIELDS = {"openai:connect": True, "anthropic:connect": True, "gemini:connect": False}


def sources_help() -> str:
    """Return the table of model sources for a command's help text."""
    rows = [("SOURCE", "MODEL", "KEY, IN THE ENVIRONMENT")]
    for source in SOURCES.values():
        keys = " or ".join(source.keys)
        rows.append((source.name, source.model or "--model", keys if source.needs_key else f"{keys}, if any"))
    # Click's no-wrap marker, a backspace character, preserves the table's line breaks.
    return "\b\n" + "\n".join(table(rows))


@contextmanager
def open_model(
    options: Options, file: Prompty | None = None, **settings: float
) -> Generator[OnlineChatModule | TrainableModule]:
    """Open a model for the duration of a ``with`` block; at the end, stop the engine if one was started.

    Args:
        options: The command's options.
        file: The prompt file with the default model and options.
        settings: Additional settings for the chat module, such as ``retries`` and ``timeout``.

    Raises:
        WrongUseError: An option is invalid, two options conflict, or no model is set.
        NoAnswerError: The library raised an error inside the ``with`` block.
    """
    found = FileModel(options["source"], options["model"], {}) if file is None else file_model(options, file)
    _refuse_conflicts(options, found)
    given = {name: options.get(name) for name in ("max_tokens", "temperature")}
    params = {**found.params, **settings, **{name: value for name, value in given.items() if value is not None}}
    where, opened = _open(options, found, params)
    try:
        with opened as module:
            yield module
    except LazyPromptError as error:
        raise NoAnswerError(where, str(error)) from error
    if found.unused:
        note(f"unused fields in the prompt file: model.{', model.'.join(found.unused)}")


def length_warning(reply: Reply) -> str:
    """Return a warning if the response was truncated at the token limit, or ``""``."""
    cut = reply.finish == "length"
    return "the response was truncated at the token limit; use a larger --max-tokens" if cut else ""


def _refuse_conflicts(options: Options, found: FileModel) -> None:
    if found.source is None:
        if options["base_url"] is not None:
            raise WrongUseError("--base-url", "this option requires --source; for a running engine, use --url instead")
        if found.model is None:
            raise WrongUseError("--source", "no model is set; use --source, or --model for a local model")
        return
    for option, value in (("--engine", options["engine"]), ("--url", options["url"])):
        if value is not None:
            raise WrongUseError(option, "this option is for local models; remove --source, or use --base-url")


def _open(
    options: Options, found: FileModel, params: Mapping[str, Any]
) -> tuple[str, AbstractContextManager[OnlineChatModule | TrainableModule]]:
    """Return the option that selected the model, and the opened chat module as a context manager."""
    if found.source is not None:
        from lazyprompt.modules.online import OnlineChatModule

        with blaming("--source"):
            module = OnlineChatModule(found.source, model=found.model, base_url=options["base_url"], **params)
            module.source.key(None)  # raise an error early if the API key is missing
        return "--source", closing(module)
    from lazyprompt.modules.engines import engine_named
    from lazyprompt.modules.trainable import TrainableModule

    if options["engine"] is not None:
        with blaming("--engine"):
            engine_named(options["engine"])
    with blaming("--model"):
        local = TrainableModule(found.model or "", engine=options["engine"], url=options["url"], **params)
        _ = local.layout  # raise an error for an unknown prompt format before the engine starts
    return "--model", local


class FileModel(NamedTuple):
    """The model that the options and a prompt file select.

    Attributes:
        source: The name of the model source, such as ``openai``; None for a local model.
        model: The model's name.
        params: The parameters for each call.
        unused: The prompt file's options that the client does not support, named as in the front matter.
    """

    source: str | None
    model: str | None
    params: Mapping[str, Any]
    unused: tuple[str, ...] = ()


def file_model(options: Options, prompt: Prompty) -> FileModel:
    """Select the model from the options, or else from the prompt file.

    Args:
        options: The command's options.
        prompt: The prompt file.

    Raises:
        WrongUseError: The file is for a task other than chat, or its provider is unknown.
    """
    declared = prompt.model
    task = revealed(declared.get("apiType"))
    if task in ("embedding", "image"):
        raise WrongUseError("PROMPT_FILE", f"model.apiType is {task!r}; only chat models can be called")
    provider, name = (str(revealed(declared.get(field)) or "") or None for field in ("provider", "id"))
    source = options["source"] or _source(options, provider, name)
    # A prompt file's model name is valid only for the file's provider.
    same_provider = provider is None or (source is not None and _source_name(provider) in (None, _source_name(source)))
    places = _places(source, fields=same_provider)
    params: dict[str, Any] = {}
    unused: list[str] = []
    given = declared.get("options")
    for option, value in given.items() if isinstance(given, dict) else ():
        if value is None or value == []:
            continue
        param: Any = revealed(value)
        for key in reversed(places.get(option, ())):
            param = {key: param}
        if option in places and _takes(source, param):
            params |= param
        else:
            unused.append(f"options.{option}")
    unused += ["connection"] if declared.get("connection") else []
    return FileModel(source, options["model"] or (name if same_provider else None), params, tuple(unused))


def _source(options: Options, provider: str | None, name: str | None) -> str | None:
    """Return the model source in the prompt file (default: OpenAI), or None if the options select a local model."""
    model = options["model"]
    if options["engine"] is not None or options["url"] is not None:
        return None
    is_path = model is not None and (model.lower().endswith(".gguf") or Path(model).exists())
    if options["base_url"] is None and (is_path or (model is not None and provider is None)):
        return None
    if provider is None:
        return None if name is None else "openai"
    source = _source_name(provider)
    if source is None:
        what = f"model.provider {provider!r} is not a known source; set --source to one of {', '.join(SOURCES)}"
        raise WrongUseError("PROMPT_FILE", what)
    return source


def _source_name(provider: str) -> str | None:
    """Return the name of the model source for a provider's name, or None if no source has this name."""
    try:
        return source_named(_SOURCES.get(provider, provider)).name
    except ModuleError:
        return None


def _places(source: str | None, *, fields: bool) -> dict[str, Place]:
    """Map each option of a prompt file to the path of its call parameter, including provider-specific options."""
    common: dict[str, Place] = {name: (its,) for name, its in _COMMON.items()}
    known = None if source is None else SOURCES.get(_source_name(source) or "")
    client = "" if known is None else str(known.connect)
    # Opening the model later raises an error for an unknown source.
    if known is None or client not in _TAKES_FIELDS:
        return common
    from lazyprompt.files.targets import target_of

    options = target_of(known.provider).options
    found = {name: common.get(name, tuple(key for key in place if key != _HOLDER)) for name, place in options.items()}
    return {**found, "additionalProperties": ("extra_body",)} if fields and _TAKES_FIELDS[client] else found


def _takes(source: str | None, params: Mapping[str, Any]) -> bool:
    """Return True if the source's client, in its installed version, supports the parameters."""
    if source is None:
        return True
    from lazyprompt.modules.clients._base import ClientSettings

    try:
        source_named(source).client(ClientSettings(None, None, 1.0, 0, {})).params(params)
    except MissingExtraError:  # the missing package is reported when the model is called
        return True
    except ModuleError:
        return False
    return True
