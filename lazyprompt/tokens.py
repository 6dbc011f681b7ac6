"""Token counters: what a budget measures with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from lazyprompt._json import checked, dump
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Where messages hold what is said, in any provider's form.
_SAID = ("content", "parts", "output", "reasoning_content", "thinking")
# Calls in the forms that have them beside what is said.
_CALLS = ("tool_calls", "arguments")
# Parts that hold no text: by their type, or by a key of theirs.
_MEDIA = frozenset(
    form.format(kind)
    for form in ("{}", "{}_url", "{}_data", "input_{}", "inline_data", "document")
    for kind in ("image", "audio", "video", "file")
)


class TokenCounter(Protocol):
    """Anything that counts tokens."""

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """The number of tokens of messages in a provider's form, and of the tools sent with them."""
        ...

    def count_text(self, text: str) -> int:
        """The number of tokens of a text."""
        ...


class CharTokenCounter:
    """Counts characters: the unit is a character, not a token of any model.

    It counts what is text: names, contents, tool calls and tools as JSON. Roles, ids and the signs that a provider puts
    around messages are not counted, and neither are pictures and other media. Each message counts the same whichever
    stand beside it.
    """

    __slots__ = ()

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """The number of characters of messages and tools.

        Args:
            messages: Messages in any provider's form.
            tools: The tools in any provider's form.

        Returns:
            The sum of all their texts' lengths.

        Raises:
            FormatError: A call or a tool is no JSON value.
        """
        return sum(map(_message, messages)) + sum(_json(tool, "a tool") for tool in tools or ())

    def count_text(self, text: str) -> int:
        """The number of characters of a text."""
        return len(text)


def _message(message: Mapping[str, Any]) -> int:
    name = message.get("name")
    return (
        (len(name) if isinstance(name, str) else 0)
        + sum(_said(message.get(key)) for key in _SAID)
        + sum(_json(message[key], f"the {key} of a message") for key in _CALLS if message.get(key))
    )


def _said(content: object) -> int:
    """The characters of a content: a text, a list of parts, or anything else as JSON."""
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list | tuple):
        return sum(map(_part, cast("Sequence[object]", content)))
    return 0 if content is None else _json(content, "the content of a message")


def _part(part: object) -> int:
    if not isinstance(part, dict):
        return _said(part)
    fields = cast("Mapping[str, object]", part)
    if fields.get("type") in _MEDIA or not _MEDIA.isdisjoint(fields):
        return 0
    for key in ("text", "thinking", "content", "output"):
        if key in fields:
            return _said(fields[key])
    return _json(fields, "a part of a message")


def _json(value: object, what: str) -> int:
    return len(value) if isinstance(value, str) else len(dump(checked(value, what, FormatError)))
