"""Messages in the native format of the provider that sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.json import fresh_json

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject

# The metadata key for content parts (or fields of content parts) that no block type can represent.
PART_FIELDS = "part_fields"


class Native(NamedTuple):
    """A message in the native format of the provider that sent it.

    Attributes:
        provider: The name of the provider, such as ``anthropic``.
        data: The message as JSON: an object, or a list of the message's content parts or output items. Don't modify
            this value.
    """

    provider: str
    data: Json

    def holds(self, key: str) -> bool:
        """Return True if the native data already include the value of this metadata key."""
        return key == PART_FIELDS or any(key in item for item in self.objects())

    def has_id(self, call_id: str) -> bool:
        """Return True if the native data contain this tool call id, which Gemini may have omitted."""
        return any(call_id in _ids_in(item) for item in self.objects())

    def custom_calls(self) -> frozenset[str]:
        """Return the ids of calls to OpenAI's custom tools, which take free text instead of arguments."""
        return frozenset(
            call_id
            for item in self.objects()
            for call, key in ((item, "call_id"), *((call, "id") for call in _calls_in(item)))
            if call.get("type") in ("custom", "custom_tool_call") and isinstance(call_id := call.get(key), str)
        )

    def objects(self) -> list[JsonObject]:
        """Return all JSON objects in the native data: the message, or its content parts or output items."""
        return [item for item in self.items() if isinstance(item, dict)]

    def parts(self) -> list[Json]:
        """Return copies of the content parts or output items in the native data."""
        return [*map(fresh_json, self.items())]

    def items(self) -> list[Json]:
        """Return the parts or items of the message, or a list with the whole message if the message is a single object.

        Don't modify the result.
        """
        return self.data if isinstance(self.data, list) else [self.data]


def _ids_in(item: JsonObject) -> list[Json]:
    return [item.get("id"), item.get("call_id"), *(call.get("id") for call in _calls_in(item))]


def _calls_in(item: JsonObject) -> list[JsonObject]:
    """Return the tool calls in an OpenAI message or a Gemini part."""
    calls = item.get("tool_calls")
    inner = [item.get("function_call"), *(calls if isinstance(calls, list) else ())]
    return [call for call in inner if isinstance(call, dict)]
