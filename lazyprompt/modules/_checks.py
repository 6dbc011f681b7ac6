"""Checks of call parameters and client settings, before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lazyprompt._base.json import is_mapping, is_sequence
from lazyprompt.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt.modules.clients._base import ClientSettings

_JSON: Final = (str, int, float, type(None))
# The arguments of modules that are meant when one of our own values is passed as a call parameter.
_MEANT: Final = {
    "Budget": "budget=",
    "ChatTemplate": "chat_template=",
    "Markers": "markers=",
    "Profile": "source=Source(NAME, provider=PROFILE, ...)",
    "Source": "source=",
}
# The meaning of LazyLLM's argument names, and what to pass instead.
_LAZYLLM: Final = {
    "llm_chat_history": "the earlier messages; pass them as history=",
    "static_params": "default parameters; pass them as keyword arguments: temperature=0.2",
}


def check_values(params: Mapping[str, object], package: str) -> None:
    """Check that call parameters contain only JSON values and objects that the official client accepts.

    Args:
        params: The parameters.
        package: The official client's package, whose own objects are accepted, as are pydantic's and httpx's.

    Raises:
        ModuleError: A parameter contains another value, or has LazyLLM's name for another argument.
    """
    for name, value in params.items():
        if name in _LAZYLLM:
            raise ModuleError(f"{name!r} is LazyLLM's name for {_LAZYLLM[name]}")
        # Most parameters are numbers and text.
        if isinstance(value, _JSON):
            continue
        for other in _others_in(value, frozenset(("httpx", package.partition(".")[0]))):
            kind = type(other).__name__
            meant = _MEANT.get(kind)
            advice = f"did you mean {meant}?" if meant else "pass JSON values, or objects of the official client"
            raise ModuleError(f"the call parameter {name!r} contains a {kind}, which can't be sent; {advice}")
        if name == "response_format" and isinstance(value, type):
            raise ModuleError("response_format= is an argument of each call, not of the module: module(input, ...)")


def _others_in(value: object, packages: frozenset[str]) -> Iterator[object]:
    """Yield the values that are neither JSON nor objects of pydantic or the given packages."""
    if is_mapping(value):
        for item in value.values():
            yield from _others_in(item, packages)
    elif is_sequence(value) and not hasattr(value, "_fields"):  # a named tuple, such as a Source, is no JSON list
        for item in value:
            yield from _others_in(item, packages)
    elif not isinstance(value, _JSON):
        kind = value if isinstance(value, type) else type(value)
        if not hasattr(kind, "model_dump") and kind.__module__.partition(".")[0] not in packages:
            yield value


def check_params(params: Mapping[str, Any], payload: Mapping[str, Any], error: type[ModuleError]) -> Mapping[str, Any]:
    """Check that no parameter overrides the prompt or the model, and return the parameters."""
    for name in params:
        if name in ("model", "stream") or name in payload:
            raise error(
                f"{name!r} cannot be a call parameter: the prompter renders {' and '.join(payload)}, the module sets "
                "the model, and module.stream(...) streams the response"
            )
    return params


def check_settings(settings: ClientSettings, concurrency: int | None, error: type[ModuleError]) -> ClientSettings:
    """Validate client settings and return them."""
    if not _is_positive(settings.timeout):
        raise error(f"timeout must be a positive number of seconds, not {settings.timeout!r}")
    if "api_key" in settings.options:  # an API key in the options would appear in reprs and logs
        raise error("pass the key as api_key=, not in options=")
    _check_number("retries", settings.retries, 0, error)
    _check_number("concurrency", 1 if concurrency is None else concurrency, 1, error)
    _check_number("max_answer_bytes", settings.max_answer_bytes, 1, error)
    return settings


def _check_number(name: str, value: object, least: int, error: type[ModuleError]) -> None:
    if not isinstance(value, int):
        raise error(f"{name} must be an integer, not {value!r}")
    if value < least:
        raise error(f"{name} must be at least {least}, not {value}")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0
