"""Every kind of block, item and part of the clients' types, as a server sends it, goes back in the next request.

A module reads the answer through the official client, streamed and not.
"""

import re
from typing import Any

import pytest
from google.genai import types as gemini_types

from formatters.test_every_kind import BLOCKS, GEMINI_PARTS, ITEMS, is_sent_or_reported
from lazyprompt import ChatPrompter
from modules.online_scenes import close_all, module
from support.model_server.server import Answer, ModelServer
from support.smallest import members_of, smallest

PROMPTER = ChatPrompter("Be kind.")
# A response with only these kinds cannot continue a chat: a call awaits its result, a result has a call. The smallest
# message of the Responses API is empty.
APART = {"tool_use", "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
GEMINI_CALLS = ("function_call", "function_response")
MEDIA = {
    "inline_data": {"mime_type": "image/png", "data": "eA=="},
    "file_data": {"mime_type": "image/png", "file_uri": "gs://a"},
}


def with_text(kind: str) -> Any:
    """The smallest value of a Gemini part with its first text field: all fields are optional."""
    (model, *_) = members_of(gemini_types.Part.model_fields[kind].annotation)
    fields = getattr(model, "model_fields", {})
    texts = [name for name, field in fields.items() if str in members_of(field.annotation)]
    return MEDIA.get(kind) or ({texts[0]: "x"} if texts else smallest(model))


pytestmark = pytest.mark.slow  # a server and a client for each kind
KINDS = [
    *(("anthropic", kind, block) for kind, block in BLOCKS.items() if kind not in APART),
    *(("openai-responses", kind, item) for kind, item in ITEMS.items() if kind not in APART),
    *(("gemini", kind, {kind: with_text(kind)}) for kind in GEMINI_PARTS if kind not in ("text", *GEMINI_CALLS)),
]


def on_the_wire(value: Any) -> Any:
    """A value with keys as Gemini's REST API has them."""
    if isinstance(value, list):
        return [on_the_wire(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {re.sub("_([a-z])", lambda m: m[1].upper(), key): on_the_wire(item) for key, item in value.items()}


class Sent(dict[str, Any]):
    """The body of a request with the report of the payload it came from."""

    report: Any = ()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("source", "kind", "value"), KINDS, ids=[f"{source}-{kind}" for source, kind, _ in KINDS])
def test_received_block_is_sent_back_or_reported(source: str, kind: str, value: Any, stream: bool) -> None:  # noqa: FBT001 - pytest hands it in
    given = on_the_wire(value) if source == "gemini" else value
    with ModelServer(Answer("Hello.", native=(given,)), judges=False) as server:
        chat = module(server, source, stream=stream).prompt(PROMPTER).chat()
        chat("Hi")
        reply = chat("Go on")
        body = server.seen[1].body
        # The client does not convert keys inside parts, and the API accepts both spellings.
        sent = Sent(on_the_wire(body) if source == "gemini" else body)
        sent.report = reply.report
    close_all()
    assert is_sent_or_reported(sent, given), (kind, sent)
