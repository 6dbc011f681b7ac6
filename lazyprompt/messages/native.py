"""Native forms: messages as their provider sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.json import fresh_json

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject

# The key of the metadata for content that no block can express: fields of parts, and whole parts.
PART_FIELDS = "part_fields"


class Native(NamedTuple):
    """A message in the form of the provider that sent it.

    Attributes:
        provider: The provider.
        data: The message as JSON: an object, or the list of its parts or items. It must not be changed.
    """

    provider: str
    data: Json

    def holds(self, key: str) -> bool:
        """Return True if the data contain the value of a metadata key: a field, or the fields of parts."""
        return key == PART_FIELDS or any(key in item for item in self.objects())

    def has_id(self, call_id: str) -> bool:
        """Return True if the data contain the id of a call; Gemini's calls may have none."""
        return any(call_id in _ids_in(item) for item in self.objects())

    def custom_calls(self) -> frozenset[str]:
        """Return the ids of calls of OpenAI's custom tools, which take free text instead of arguments."""
        return frozenset(
            call_id
            for item in self.objects()
            for call, key in ((item, "call_id"), *((call, "id") for call in _calls_in(item)))
            if call.get("type") in ("custom", "custom_tool_call") and isinstance(call_id := call.get(key), str)
        )

    def objects(self) -> list[JsonObject]:
        """Return the JSON objects of the data: the message, or its parts or items."""
        return [item for item in self.items() if isinstance(item, dict)]

    def parts(self) -> list[Json]:
        """Return copies of the parts or items."""
        return [*map(fresh_json, self.items())]

    def items(self) -> list[Json]:
        """Return the parts or items; a message is the only one. They must not be changed."""
        return self.data if isinstance(self.data, list) else [self.data]


def _ids_in(item: JsonObject) -> list[Json]:
    """Return the ids of an item and of its calls."""
    return [item.get("id"), item.get("call_id"), *(call.get("id") for call in _calls_in(item))]


def _calls_in(item: JsonObject) -> list[JsonObject]:
    """Return the calls in a message of OpenAI, or in a part of Gemini."""
    calls = item.get("tool_calls")
    inner = [item.get("function_call"), *(calls if isinstance(calls, list) else ())]
    return [call for call in inner if isinstance(call, dict)]
