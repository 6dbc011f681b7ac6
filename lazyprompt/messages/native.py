"""Native forms: messages as the provider that they came from sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt._base.json import fresh_json

if TYPE_CHECKING:
    from lazyprompt._base.json import Json

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
        items = self.data if isinstance(self.data, list) else [self.data]
        return key == PART_FIELDS or any(isinstance(item, dict) and key in item for item in items)

    def has_id(self, call_id: str) -> bool:
        """Return True if the id of a call is in the data; Gemini need not give its calls any."""
        items = self.data if isinstance(self.data, list) else [self.data]
        return any(call_id in _ids_in(item) for item in items)

    def parts(self) -> list[Json]:
        """Return a copy of the data that are a list: the parts of a content, or items."""
        return [*cast("list[Json]", fresh_json(self.data))]


def _ids_in(item: Json) -> list[Json]:
    """Return the ids in an item, of the calls in it too."""
    if not isinstance(item, dict):
        return []
    inner = [item.get("function_call"), *(calls if isinstance(calls := item.get("tool_calls"), list) else ())]
    return [item.get("id"), item.get("call_id"), *(each.get("id") for each in inner if isinstance(each, dict))]
