"""What a formatter writes of a conversation is read again as that conversation, as far as the form can carry it."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import ChatFormatter, FormatError, Msg, messages_from
from lazyprompt._base.roles import SYSTEM_ROLES
from support.conversations import Maker, lines_by_role

KEYS = {"openai": "messages", "anthropic": "messages", "gemini": "contents", "openai-responses": "input"}


def nameless(messages: Iterable[Msg]) -> list[Msg]:
    """Messages without the names that only repeat the role: no form has a place for the difference."""
    return [
        Msg("" if message.name == message.role else message.name, message.content, message.role, message.url)
        for message in messages
    ]


@pytest.mark.parametrize("provider", KEYS)
@given(seed=st.integers(0, 1_000_000))
def test_what_was_formatted_is_read_back(provider: str, seed: int) -> None:
    formatter, key = ChatFormatter(provider), KEYS[provider]
    given_messages = nameless(Maker(Random(seed)).conversation())  # noqa: S311 - no secret
    try:
        first = formatter.format(*given_messages)
    except FormatError:
        return
    read = nameless(messages_from(first[key]))
    second = formatter.format(*read)
    assert second[key] == first[key], "nothing that the form holds is lost in reading"
    assert nameless(messages_from(second[key])) == read
    if not first.report:
        # Formatting left nothing out and moved nothing: then what is read is what was given.
        # A result may stand in a system message as well.
        spoken, given_texts = (
            [each for each in lines_by_role(messages) if each[0] not in SYSTEM_ROLES or provider == "openai"]
            for messages in (read, given_messages)
        )
        assert spoken == given_texts
