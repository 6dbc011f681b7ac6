"""Tools in a provider's form, and the report of the keys that the provider does not take."""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from lazyprompt._base.json import JsonObject, dump
from lazyprompt.errors import FormatError
from lazyprompt.formatters.report import Entry, Report

if TYPE_CHECKING:
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages.tools import ToolSet


# The keys of a function that every provider has a place for.
_FUNCTION = frozenset({"name", "description", "parameters"})
# Keys that are settings, no content: one entry of the report speaks for all tools.
_SETTINGS = {"strict": "strict", "cache_control": "cache"}


@lru_cache(maxsize=128)
def packed_tools(tools: ToolSet, profile: Profile) -> tuple[bytes, Report]:
    """Return tools in a provider's form, packed by ``marshal`` to be copied fast, and the report of keys left out.

    Args:
        tools: The tools.
        profile: The provider's rules.

    Raises:
        FormatError: A tool has a name or a form that the provider refuses, or there are too many cache breakpoints.
    """
    for index, name in enumerate(tools.names):
        if not profile.tool_names.fullmatch(name):
            raise FormatError(
                f"tools[{index}] is named {name!r}, and {profile.name} takes names of the form "
                f"{profile.tool_names.pattern}; rename it"
            )
    lost: dict[str, Entry] = {}
    within = _FUNCTION | {"strict"} if profile.strict_tools else _FUNCTION
    given = tools.copy()
    for index, tool in enumerate(given):
        if tool["type"] == "function":
            _keep(tool, profile.tool_keys | {"type", "function"}, f"tools[{index}]", profile, lost)
            function = cast("JsonObject", tool["function"])
            _keep(function, within, f"tools[{index}].function", profile, lost)
            if profile.refused_schema_keys:
                _keep_object_schema(function, f"tools[{index}].function.parameters", profile, lost)
    written = profile.form.tools(given)
    marks = profile.breakpoints
    if marks is not None and sum(marks.key in tool for tool in written) > marks.most:
        raise FormatError(f"the tools hold more than {marks.most} cache breakpoints, and {profile.name} takes no more")
    return marshal.dumps(written), tuple(lost.values())


def _keep_object_schema(function: JsonObject, where: str, profile: Profile, lost: dict[str, Entry]) -> None:
    """Remove the combinators that the provider refuses at the root of a schema, which stays that of an object."""
    schema = function.get("parameters")
    refused = profile.refused_schema_keys & schema.keys() if isinstance(schema, dict) else frozenset[str]()
    if not isinstance(schema, dict) or not refused:
        return
    for key in sorted(refused):
        why = f"{profile.name} takes no {key!r} at the root of a schema"
        lost[f"{where}.{key}"] = Entry(f"{where}.{key}", "tools", "left out", why, str(dump(schema[key])))
    function["parameters"] = {"type": "object", **{key: value for key, value in schema.items() if key not in refused}}


def _keep(fields: JsonObject, known: frozenset[str], where: str, profile: Profile, lost: dict[str, Entry]) -> None:
    """Remove the keys that are not known, and note those that say something."""
    for key in [key for key in fields if key not in known]:
        value = fields.pop(key)
        kind = _SETTINGS.get(key)
        place = "tools" if kind else f"{where}.{key}"
        if value not in (None, False, "", [], {}):
            text = "" if kind else str(dump(value))
            why = f"{profile.name} takes no {key!r} of a tool"
            lost.setdefault(key if kind else place, Entry(place, kind or "tools", "left out", why, text))
