"""Token counters: what all of them can do, and the simplest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from lazyprompt.tokens.said import forms, json_text, said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.tokens.said import Form


class CountsMessages(Protocol):
    """Anything that counts the tokens of messages.

    A counter may also have an attribute ``additive``. ``True``: the count of messages is the sum of what each of them
    adds to the count of none, so that a budget need count each of them but once. ``False``: messages change each
    other's count. Of a counter without it, a budget finds out.
    """

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """The number of tokens of messages in a provider's form, and of the tools sent with them."""
        ...


class TokenCounter(CountsMessages, Protocol):
    """Anything that counts tokens, of messages and of texts."""

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
    additive: ClassVar[bool] = True

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """The number of characters of messages and tools.

        Args:
            messages: Messages in any provider's form, or Msg.
            tools: The tools in any provider's form.

        Returns:
            The sum of all their texts' lengths.

        Raises:
            FormatError: A call or a tool is no JSON value.
        """
        counted = sum(len(text) for message in forms(messages) for text in said(message)[0])
        return counted + sum(len(json_text(tool, "a tool")) for tool in tools or ())

    def count_text(self, text: str) -> int:
        """The number of characters of a text."""
        return len(text)
