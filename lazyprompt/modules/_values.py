"""Check of the values of call parameters, before the official client serializes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lazyprompt._base.json import is_mapping, is_sequence
from lazyprompt.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
