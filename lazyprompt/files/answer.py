"""Answers to prompt files: a text, an object, calls of tools, vectors or a picture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt.errors import FormatError
from lazyprompt.files.targets import target_of
from lazyprompt.formatters._answers import as_dict
from lazyprompt.messages.msg import TextBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt._base.json import Fields, Json
    from lazyprompt.files.targets import Target

# The keys of the items of an answer's data.
_ITEMS = {"embedding": ("embedding",), "image": ("url", "b64_json")}


def read_answer(
    response: object, provider: str | None = None, api: str | None = None, *, structured: bool = False
) -> Json:
    """Parse an answer.

    Args:
        response: The answer: a dict, or the object of the provider's official client.
        provider: The provider; None is ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``; None is ``chat``.
        structured: True if the answer is JSON, as it is where a prompt file has outputs.

    Returns:
        A list of calls ``{id, name, arguments}``, the arguments as JSON text, where tools are called. Else the text, or
        the reason of a refusal; where it is to be JSON, the value that it is, or the text if it is none. Of embeddings
        the vector, or a list of them; of pictures the address or the base64 data, or a list of them.

    Raises:
        FormatError: It is no answer of this provider, or holds no vector or picture.
    """
    target = target_of(provider, api)
    answer = dict(as_dict(response))
    if target.api in _ITEMS:
        return _items(answer, target)
    if target.api == "responses" and answer.get("output") is None and isinstance(answer.get("output_text"), str):
        answer["output"] = list[object]()
    message = target.own_profile().form.parse(answer, target.profile)
    calls = [block for block in message.blocks if isinstance(block, ToolUseBlock)]
    if calls:
        written = _written(answer)
        return [_call(call, written[at] if at < len(written) else None) for at, call in enumerate(calls)]
    text = "".join(block.text for block in message.blocks if isinstance(block, TextBlock))
    if not text and target.api == "responses":
        given = answer.get("output_text")
        text = given if isinstance(given, str) else ""
    try:
        return cast("Json", json.loads(text)) if structured else text
    except (ValueError, RecursionError):
        return text


def _call(call: ToolUseBlock, written: object) -> Json:
    """Return a call, its arguments as they were written where they were text."""
    if not isinstance(written, str):
        compact = json.dumps(call.input, ensure_ascii=False, separators=(",", ":"))
        written = compact if call.raw_input is None else call.raw_input
    return {"id": call.id, "name": call.name, "arguments": written}


def _written(answer: Fields) -> list[object]:
    """Return the arguments of calls as an answer of OpenAI's has them; text, as a rule."""
    calls = _list(fields_of(_first(answer.get("choices")).get("message")).get("tool_calls"))
    items = [item for item in map(fields_of, _list(answer.get("output"))) if item.get("type") == "function_call"]
    return [each.get("arguments") for each in (*(fields_of(fields_of(call).get("function")) for call in calls), *items)]


def _items(answer: Fields, target: Target) -> Json:
    """Return the vectors or pictures of an answer; one alone is not in a list."""
    fault = answer.get("error")
    if fault:
        raise FormatError(f"{target.profile} answered with an error: {fields_of(fault).get('message') or fault}")
    given = [*map(fields_of, _list(answer.get("data")))]
    # Vectors tell their place: they are put in the order of what was embedded.
    given.sort(key=lambda item: at if isinstance(at := item.get("index"), int) else 0)
    found = [next(filter(None, map(item.get, _ITEMS[target.api])), None) for item in given]
    if not found or None in found:
        raise FormatError(f"this is no answer to a request of the interface {target.api!r}: there is none in its data")
    return cast("Json", found[0] if len(found) == 1 else found)


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _first(value: object) -> Fields:
    return fields_of(next(iter(_list(value)), None))
