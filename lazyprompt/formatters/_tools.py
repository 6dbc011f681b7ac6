"""Conversion of tools to a provider's format, with a report of the keys that the provider does not support."""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import TYPE_CHECKING

from lazyprompt._base.json import JsonObject, dump
from lazyprompt.errors import FormatError
from lazyprompt.formatters.report import Entries, Entry

if TYPE_CHECKING:
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages.tools import ToolSet


# The keys of a function definition that every provider supports.
_FUNCTION = frozenset({"name", "description", "parameters"})
# Maps each optional key of a tool definition to the kind of its report entry. One entry covers the dropped key in all
# tools.
_SETTINGS = {"strict": "strict", "cache_control": "cache"}


@lru_cache(maxsize=128)
def packed_tools(tools: ToolSet, profile: Profile) -> tuple[bytes, Entries]:
    """Return tools in a provider's format, serialized with ``marshal`` for fast copies, and a report of dropped keys.

    Args:
        tools: The tools.
        profile: The provider's rules.

    Raises:
        FormatError: The provider rejects a tool's name or type, or the tools contain too many cache breakpoints.
    """
    for index, name in enumerate(tools.names):
        if not profile.tool_names.fullmatch(name):
            raise FormatError(
                f"tools[{index}] is named {name!r}, but {profile.name} only accepts names that match "
                f"{profile.tool_names.pattern}; rename the tool"
            )
    lost: dict[str, Entry] = {}
    within = _FUNCTION | {"strict"} if profile.strict_tools else _FUNCTION
    given = tools.copy()
    for index, tool in enumerate(given):
        function = tool.get("function")
        if tool["type"] == "function" and isinstance(function, dict):
            _keep(tool, profile.tool_keys | {"type", "function"}, f"tools[{index}]", profile, lost)
            _keep(function, within, f"tools[{index}].function", profile, lost)
            if profile.refused_schema_keys:
                _keep_object_schema(function, f"tools[{index}].function.parameters", profile, lost)
    written = profile.form.tools(given)
    marks = profile.breakpoints
    if marks is not None and sum(marks.key in tool for tool in written) > marks.most:
        raise FormatError(f"the tools contain more than {marks.most} cache breakpoints, the limit for {profile.name}")
    return marshal.dumps(written), tuple(lost.values())


def _keep_object_schema(function: JsonObject, where: str, profile: Profile, lost: dict[str, Entry]) -> None:
    """Remove keywords that the provider rejects at a schema's root; a root without a type gets the type ``object``."""
    schema = function.get("parameters")
    refused = profile.refused_schema_keys & schema.keys() if isinstance(schema, dict) else frozenset[str]()
    if not isinstance(schema, dict) or not refused:
        return
    for key in sorted(refused):
        why = f"{profile.name} does not accept {key!r} at the root of a schema"
        lost[f"{where}.{key}"] = Entry(f"{where}.{key}", "tools", "left out", why, str(dump(schema[key])))
    function["parameters"] = {"type": "object", **{key: value for key, value in schema.items() if key not in refused}}


def _keep(fields: JsonObject, known: frozenset[str], where: str, profile: Profile, lost: dict[str, Entry]) -> None:
    """Remove unknown keys, and report each removed key whose value is not empty."""
    for key in [key for key in fields if key not in known]:
        value = fields.pop(key)
        kind = _SETTINGS.get(key)
        place = "tools" if kind else f"{where}.{key}"
        if value not in (None, False, "", [], {}):
            text = "" if kind else str(dump(value))
            why = f"{profile.name} does not support {key!r} of a tool"
            lost.setdefault(key if kind else place, Entry(place, kind or "tools", "left out", why, text))
