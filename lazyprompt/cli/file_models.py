"""The model that a ``.prompty`` or ``.prompt`` file names, with its options; options of the command line go first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.secret import revealed
from lazyprompt.cli.errors import WrongUseError
from lazyprompt.errors import MissingExtraError, ModuleError
from lazyprompt.files.targets import target_of
from lazyprompt.modules.client import Settings
from lazyprompt.modules.sources import SOURCES, source_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.cli.options import ModelOptions
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.targets import Place

# Providers in prompt files, and the sources that they are.
_SOURCES = {"googleai": "gemini", "openai-responses": "openai"}
# Options that all clients and engines have under the same name.
_COMMON = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
# The part of a request that holds options; the client takes them without it.
_HOLDER = "generation_config"
# The clients that take more options, and True if any field of a request is one. For other clients, a field could be
# the address that keys are sent to.
_TAKES_FIELDS = {"openai:connect": True, "anthropic:connect": True, "gemini:connect": False}


class FileModel(NamedTuple):
    """The model that options and a file name.

    Attributes:
        source: The source; None for a local model.
        model: The model's name.
        params: The parameters of each call.
        unused: The file's options that no call can have, as the front matter names them.
    """

    source: str | None
    model: str | None
    params: Mapping[str, Any]
    unused: tuple[str, ...] = ()


def file_model(options: ModelOptions, prompt: Prompty) -> FileModel:
    """Find the model of a file, or of options that name another.

    Args:
        options: The options.
        prompt: The file.

    Raises:
        WrongUseError: The file is for another task than chat, or names an unknown provider.
    """
    declared = cast("dict[str, Json]", revealed(prompt.model))
    task = declared.get("apiType")
    if task in ("embedding", "image"):
        raise WrongUseError("PROMPT_FILE", f"its model.apiType is {task!r}, and a model is asked for text")
    provider, name = _text(declared.get("provider")), _text(declared.get("id"))
    source = options["source"] or _source(options, provider, name)
    # Another provider does not know the file's model.
    same_provider = provider is None or (source is not None and _source_name(provider) in (None, _source_name(source)))
    params, unused = _params(cast("dict[str, Json]", declared.get("options") or {}), source, fields=same_provider)
    unused += ["connection"] if declared.get("connection") else []
    return FileModel(source, options["model"] or (name if same_provider else None), params, tuple(unused))


def _source(options: ModelOptions, provider: str | None, name: str | None) -> str | None:
    """Find the source that a file names, unless the options name a local model; the default is OpenAI."""
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
        what = f"its model.provider is {provider!r}, which is no source: give --source, one of {', '.join(SOURCES)}"
        raise WrongUseError("PROMPT_FILE", what)
    return source


def _source_name(provider: str) -> str | None:
    """Find the source of a provider; None if there is none."""
    try:
        return source_named(_SOURCES.get(provider, provider)).name
    except ModuleError:
        return None


def _params(options: Mapping[str, Json], source: str | None, *, fields: bool) -> tuple[dict[str, Any], list[str]]:
    """Convert the options of a file to parameters of a call; and list those that are none."""
    places = _places(source, fields=fields)
    params: dict[str, Any] = {}
    unused: list[str] = []
    for name, value in options.items():
        if value is None or value == []:
            continue
        param: dict[str, Any] = _nested(places[name], value) if name in places else {}
        if param and _takes(source, param):
            params |= param
        else:
            unused.append(f"options.{name}")
    return params, unused


def _places(source: str | None, *, fields: bool) -> dict[str, Place]:
    """Find the place of each option of a file among the parameters of a call, with the provider's own fields."""
    common: dict[str, Place] = {name: (its,) for name, its in _COMMON.items()}
    known = None if source is None else SOURCES.get(_source_name(source) or "")
    client = "" if known is None else known.connect.rpartition(".")[2]
    if known is None or client not in _TAKES_FIELDS:  # an unknown source is an error later
        return common
    options = target_of(known.provider).options
    found = {name: common.get(name, tuple(key for key in place if key != _HOLDER)) for name, place in options.items()}
    return {**found, "additionalProperties": ("extra_body",)} if fields and _TAKES_FIELDS[client] else found


def _nested(place: Place, value: object) -> dict[str, Any]:
    """Put a value under its keys."""
    first, *rest = place
    return {first: _nested(tuple(rest), value) if rest else value}


def _takes(source: str | None, params: Mapping[str, Any]) -> bool:
    """Return True if the installed client knows the parameters: a newer one may know fewer."""
    if source is None:
        return True
    try:
        source_named(source).client(Settings(None, None, 1.0, 0, {})).params(params)
    except MissingExtraError:  # reported when the model is asked
        return True
    except ModuleError:
        return False
    return True


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
