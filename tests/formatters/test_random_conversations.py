"""Random conversations become valid payloads for every provider."""

import json
import re
from functools import cache
from random import Random

import pytest
from hypothesis import settings

from formatters.helpers import formatters_of
from lazyprompt import ChatFormatter, FormatError, Msg
from lazyprompt.formatters.providers import PROVIDERS
from support.conversations import Maker
from support.providers.judges import in_order
from support.providers.types import strictly

pytestmark = pytest.mark.slow  # random conversations with all judges

# Per formatter and provider; ``--hypothesis-profile=deep`` has more.
CONVERSATIONS = max(300, 10 * settings().max_examples)


@cache
def conversation(seed: int) -> tuple[list[Msg], str]:
    """A conversation, made once for all formatters, and its repr before formatting."""
    messages = Maker(Random(seed)).conversation()  # noqa: S311 - chance is what is wanted
    return messages, repr(messages)


@formatters_of(PROVIDERS)
def test_random_conversation_becomes_a_valid_payload(kind: type[ChatFormatter], provider: str) -> None:
    formatter, formatted = kind(provider), 0
    for seed in range(CONVERSATIONS):
        messages, before = conversation(seed)
        try:
            payload = formatter.format(*messages)
        except FormatError as error:
            if "no message has any content" not in str(error):
                pytest.fail(f"{provider}, seed {seed}: {error}")
            continue
        try:
            formatter.validate(payload)
            strictly(provider, payload)
            in_order(provider, payload)
        except ValueError as error:
            pytest.fail(f"{provider}, seed {seed}: {error}")
        assert repr(messages) == before
        said, report = json.dumps(payload, ensure_ascii=False), json.dumps([entry.text for entry in payload.report])
        marks = re.findall(r"§\d+§", before)
        assert not [mark for mark in marks if mark not in said and json.dumps(mark)[1:-1] not in report], seed
        assert formatter.format(*messages) == payload
        formatted += 1
    assert formatted > 0.8 * CONVERSATIONS
