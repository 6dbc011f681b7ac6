"""Native forms: messages as the provider that they came from sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt._base.json import fresh_json

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject

# The key of the metadata for what of a message no block has a place for: fields of parts, and whole parts.
PART_FIELDS = "part_fields"


class Native(NamedTuple):
    """A message in the form of the provider that it came from.

    Attributes:
        provider: The provider.
        data: The message in its form: JSON values, which nothing may change.
    """

    provider: str
    data: Json

    def holds(self, key: str) -> bool:
        """Return True if a key of a message's metadata is in the data: that of a field, or of fields of parts."""
        return key == PART_FIELDS or any(key in item for item in self._objects())

    def has_id(self, call_id: str) -> bool:
        """Return True if the id of a call is in the data; Gemini need not give its calls any."""
        return any(call_id in _ids_in(item) for item in self._objects())

    def custom_calls(self) -> frozenset[str]:
        """Return the ids of OpenAI's calls of custom tools, which take free text in place of arguments."""
        return frozenset(
            call_id
            for item in self._objects()
            for call, key in ((item, "call_id"), *((call, "id") for call in _calls_in(item)))
            if call.get("type") in ("custom", "custom_tool_call") and isinstance(call_id := call.get(key), str)
        )

    def _objects(self) -> list[JsonObject]:
        items = self.data if isinstance(self.data, list) else [self.data]
        return [item for item in items if isinstance(item, dict)]

    def parts(self) -> list[Json]:
        """Return a copy of the data that are a list: the parts of a content, or items."""
        return [*cast("list[Json]", fresh_json(self.data))]


def _ids_in(item: JsonObject) -> list[Json]:
    """Return the ids in an item, of the calls in it too."""
    return [item.get("id"), item.get("call_id"), *(call.get("id") for call in _calls_in(item))]


def _calls_in(item: JsonObject) -> list[JsonObject]:
    """Return the calls within a message of OpenAI, or a part of Gemini."""
    calls = item.get("tool_calls")
    inner = [item.get("function_call"), *(calls if isinstance(calls, list) else ())]
    return [call for call in inner if isinstance(call, dict)]
