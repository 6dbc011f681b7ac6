"""What a ``.prompty`` or ``.prompt`` file says of its model, where no option of ``run`` and ``chat`` says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.cli.streams import WrongUseError
from lazyprompt.errors import MissingExtraError, ModuleError
from lazyprompt.files.targets import target_of
from lazyprompt.modules.client import Settings
from lazyprompt.modules.sources import SOURCES, source_named
from lazyprompt.secret import revealed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._json import Json
    from lazyprompt.cli.models import ModelOptions
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.targets import Place

# Providers of prompt files that are a source under another name.
_SOURCES = {"googleai": "gemini", "openai-responses": "openai"}
# What all clients and engines are told under the same names.
_COMMON = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
# Where a request holds its options; the client takes them as they are.
_HOLDER = "generation_config"
# The clients that are known to take more than these, and whether they take any field of a request. To others, a field
# could be the address that keys are sent to.
_TAKES_FIELDS = {"openai:connect": True, "anthropic:connect": True, "gemini:connect": False}


class FileModel(NamedTuple):
    """A model that is to be asked, as options and a file say.

    Attributes:
        source: Who has it; None for a local one.
        model: Its name.
        params: What each call is told.
        left: What the file says and no call is told, in the words of its front matter.
    """

    source: str | None
    model: str | None
    params: Mapping[str, Any]
    left: tuple[str, ...] = ()


def model_of(options: ModelOptions, prompt: Prompty) -> FileModel:
    """The model of a file, or of options that name another.

    Args:
        options: The options.
        prompt: The file.

    Raises:
        WrongUseError: The file asks for what is no chat, or names a provider that cannot be asked.
    """
    said = cast("dict[str, Json]", revealed(prompt.model))
    if said.get("apiType") in ("embedding", "image"):
        raise WrongUseError("PROMPT_FILE", f"its model.apiType is {said['apiType']!r}, and a model is asked for text")
    provider, name = _text(said.get("provider")), _text(said.get("id"))
    source = options["source"] or _source(options, provider, name)
    # Another provider knows nothing of the model that the file names.
    its_own = provider is None or (source is not None and _named(provider) in (None, _named(source)))
    params, left = _params(cast("dict[str, Json]", said.get("options") or {}), source, fields=its_own)
    left += ["connection"] if said.get("connection") else []
    return FileModel(source, options["model"] or (name if its_own else None), params, tuple(left))


def _source(options: ModelOptions, provider: str | None, name: str | None) -> str | None:
    """The source that a file names, unless the options name a local model; without a word about it, OpenAI."""
    model = options["model"]
    if options["engine"] is not None or options["url"] is not None:
        return None
    is_path = model is not None and (model.lower().endswith(".gguf") or Path(model).exists())
    if options["base_url"] is None and (is_path or (model is not None and provider is None)):
        return None
    if provider is None:
        return None if name is None else "openai"
    source = _named(provider)
    if source is None:
        what = f"its model.provider is {provider!r}, which is no source: give --source, one of {', '.join(SOURCES)}"
        raise WrongUseError("PROMPT_FILE", what)
    return source


def _named(provider: str) -> str | None:
    """The source of a provider; None where there is none."""
    try:
        return source_named(_SOURCES.get(provider, provider)).name
    except ModuleError:
        return None


def _params(options: Mapping[str, Json], source: str | None, *, fields: bool) -> tuple[dict[str, Any], list[str]]:
    """The options of a file as parameters of a call; and the names of those that are none."""
    places = _places(source, fields=fields)
    params: dict[str, Any] = {}
    left: list[str] = []
    for name, value in options.items():
        if value is None or value == []:
            continue
        made: dict[str, Any] = _nested(places[name], value) if name in places else {}
        if made and _takes(source, made):
            params |= made
        else:
            left.append(f"options.{name}")
    return params, left


def _places(source: str | None, *, fields: bool) -> dict[str, Place]:
    """Where the parameters of a call have the options of a file, and fields of the provider's own."""
    common: dict[str, Place] = {name: (its,) for name, its in _COMMON.items()}
    known = None if source is None else SOURCES.get(_named(source) or "")
    client = "" if known is None else known.connect.rpartition(".")[2]
    if known is None or client not in _TAKES_FIELDS:  # of a source that is none, an error comes where it is opened
        return common
    options = target_of(known.provider).options
    found = {name: common.get(name, tuple(key for key in place if key != _HOLDER)) for name, place in options.items()}
    return {**found, "additionalProperties": ("extra_body",)} if fields and _TAKES_FIELDS[client] else found


def _nested(place: Place, value: object) -> dict[str, Any]:
    """A value under its keys."""
    first, *rest = place
    return {first: _nested(tuple(rest), value) if rest else value}


def _takes(source: str | None, params: Mapping[str, Any]) -> bool:
    """Whether the client that is installed knows parameters: a newer one may know fewer."""
    if source is None:
        return True
    try:
        source_named(source).client(Settings(None, None, 1.0, 0, {})).params(params)
    except MissingExtraError:  # that it is not installed is said where it is asked
        return True
    except ModuleError:
        return False
    return True


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
