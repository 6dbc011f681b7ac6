"""The arguments of ``format``: messages, pairs and lists of them."""

from typing import Any

import pytest

from lazyprompt import Msg, TextBlock
from lazyprompt.formatters._job import is_prefill, parse_arguments

X = Msg("user", "x", "user")
PAIR = [("user", "q"), ("assistant", "a")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([X, None, {"role": "system", "content": "s"}], [("user", "x"), ("system", "s")]),
        ([["q", "a"], [X]], [*PAIR, ("user", "x")]),
        ([[["q", "a"], [X, [None]]]], [*PAIR, ("user", "x")]),
        ([["q", [TextBlock("a")]]], PAIR),
        ([[None, X], ()], [("user", "x")]),
    ],
)
def test_nested_lists_of_messages_become_one_conversation(given: Any, expected: list[tuple[str, str]]) -> None:
    assert [(message.role, message.text) for message in parse_arguments(given)] == expected


@pytest.mark.parametrize(
    ("role", "metadata", "expected"),
    [("assistant", {"partial": True}, True), ("assistant", {"prefix": 1}, False), ("user", {"prefix": True}, False)],
)
def test_prefill_is_an_assistant_message_marked_with_true(role: Any, metadata: Any, *, expected: bool) -> None:
    assert is_prefill(Msg(role, "x", role, metadata=metadata)) is expected
