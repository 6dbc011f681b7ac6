"""A formatted conversation is read back as the same conversation, as far as the format can express it."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lazyprompt import ChatFormatter, FormatError, Msg, messages_from
from lazyprompt._base.roles import SYSTEM_ROLES
from support.conversations import Maker, lines_by_role

KEYS = {"openai": "messages", "anthropic": "messages", "gemini": "contents", "openai-responses": "input"}


def nameless(messages: Iterable[Msg]) -> list[Msg]:
    """The messages without names that equal the role, which no format distinguishes from missing names."""
    return [
        Msg("" if message.name == message.role else message.name, message.content, message.role, message.url)
        for message in messages
    ]


@pytest.mark.parametrize("provider", KEYS)
@given(seed=st.integers(0, 1_000_000))
def test_formatted_conversation_is_read_back_as_the_same_conversation(provider: str, seed: int) -> None:
    formatter, key = ChatFormatter(provider), KEYS[provider]
    given_messages = nameless(Maker(Random(seed)).conversation())  # noqa: S311 - no secret
    try:
        first = formatter.format(*given_messages)
    except FormatError as error:
        assume("no message has any content" not in str(error))
        raise
    read = nameless(messages_from(first[key]))
    second = formatter.format(*read)
    assert second[key] == first[key], "reading loses something that the format expresses"
    assert nameless(messages_from(second[key])) == read
    if not first.report:
        # Formatting left out and moved nothing, so the messages read back are the original ones.
        # A tool result may be in a system message, too.
        read_texts, given_texts = (
            [each for each in lines_by_role(messages) if each[0] not in SYSTEM_ROLES or provider == "openai"]
            for messages in (read, given_messages)
        )
        assert read_texts == given_texts
