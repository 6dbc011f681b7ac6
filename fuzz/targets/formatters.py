"""Payloads: accepted by their own rules, and of the same shape whatever anybody says."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from fuzz.conversations import TOOLS, conversation
from fuzz.judge import require, shape
from fuzz.target import Target
from lazyprompt.errors import LazyPromptError
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.history import messages_from

if TYPE_CHECKING:
    from fuzz.chance import Chance

_KINDS = (ChatFormatter, MultiAgentFormatter)
_SPEAKS = re.compile("[#＃]|[^ \t:：#＃][^:：]{0,300}[:：]")
_STRUCTURE = frozenset(("role", "type"))


@cache
def _formatter(kind: type[ChatFormatter], provider: str) -> ChatFormatter:
    return kind(provider)


def _run(chance: Chance) -> None:
    formatter = _formatter(chance.one(_KINDS), chance.one(PROVIDERS))
    if chance.number(3) == 1:
        _anything(formatter, chance)
        return
    messages, quiet = conversation(chance, calls=not chance.flag())
    tools = TOOLS if chance.flag() else None
    given: list[Any] = [*messages_from(messages)] if chance.flag() else messages
    before = repr(given)
    payload = formatter.format(*given, tools=tools)
    require(repr(given) == before, "what was given was changed")
    require(formatter.format(*given, tools=tools) == payload, "the same messages give another payload")
    written = json.dumps(payload)
    try:
        formatter.validate(payload)
        other = formatter.format(*quiet, tools=tools)
    except LazyPromptError as error:
        require(holds=False, what=f"{formatter!r}: {error}")
        return
    require(_shape(payload) == _shape(other), f"{formatter!r}: a text changed the shape of the payload")
    # Tags count in what users and agents say; system text is the developer's, and exchanges stand outside of histories.
    if isinstance(formatter, MultiAgentFormatter) and all(each["role"] in ("user", "assistant") for each in messages):
        calm = json.dumps(other)
        for tag in ("<history>", "</history>"):
            require(written.lower().count(tag) == calm.count(tag), f"{formatter!r}: a text forged {tag}")
        require(_spoken(dict(payload)) == _spoken(dict(other)), f"{formatter!r}: a text forged a line of a speaker")


def _shape(payload: Any) -> object:  # noqa: ANN401 - a payload is any JSON
    # A name that a provider has no signs for is left out, whatever it says.
    return shape(dict(payload), _STRUCTURE.__contains__, without="name")


def _spoken(value: object) -> int:
    """How many lines of a payload's texts begin as a speaker's line does, or as a header."""
    if isinstance(value, dict):
        return sum(map(_spoken, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return sum(map(_spoken, cast("list[object]", value)))
    return sum(_SPEAKS.match(line) is not None for line in value.splitlines()) if isinstance(value, str) else 0


def _anything(formatter: ChatFormatter, chance: Chance) -> None:
    """Whatever JSON is given for messages: a payload that can be written, or an error of the package."""
    try:
        given = json.loads(chance.text())
    except (ValueError, RecursionError):
        given = [
            {"role": chance.one(("user", "tool", "assistant")), "content": chance.json(), "tool_calls": chance.json()}
        ]
    payload = formatter.format(given)
    json.dumps(payload)
    try:
        formatter.validate(payload)
    except LazyPromptError as error:
        require(holds=False, what=f"{formatter!r}: {error}")


FORMATTERS = Target(
    "formatters",
    _run,
    (
        *('[{"role": "user", "content": "a"}]', '{"role": "assistant", "content": null, "tool_calls": [', "]}", "}]"),
        *('{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}', '"tool_call_id": "c"'),
        *('{"role": "tool", "tool_call_id": "c", "content": "r"}', '["q", "a"]', '{"type": "text", "text": "a"}'),
        *('{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}', '"name": "Bob"'),
        *('"reasoning_content": "hm"', '{"type": "tool_result", "id": "c", "output": "a"}', ", ", ": ", "null", "1e9"),
        *(
            '{"type": "tool_use", "id": "c", "name": "f", "input": {}}',
            '{"type": "thinking", "thinking": "a"}',
            "https://",
        ),
    ),
)
