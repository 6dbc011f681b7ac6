"""Logs of calls, as JSON lines and OpenTelemetry spans; :class:`lazyprompt.CallLog` writes one."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.files import open_regular
from lazyprompt.caching.reading import MESSAGE_KEYS, PromptCall
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Object = dict[str, Any]

# The keys under which a line has a payload: those of this log, and of the batch files of OpenAI, Anthropic and Gemini.
_PAYLOADS = ("payload", "body", "params", "request")
_NANOSECONDS = 1e9
# A time beyond this is in nanoseconds.
_MOST_SECONDS = 1e14
# The values of OTLP's JSON that are what they say.
_PLAIN = ("stringValue", "boolValue", "doubleValue", "bytesValue")


def read_calls(file: str | os.PathLike[str] | Iterable[str]) -> Iterator[PromptCall]:
    """Read the calls of a log, one after the other.

    Each line is an object: a line of :class:`CallLog`; a payload; a line of a batch file of OpenAI, Anthropic or
    Gemini; or a span of OpenTelemetry. A whole file may also be JSON over several lines: a list of these, spans as OTLP
    has them, or one behind the other. Spans that are no calls of models are passed over.

    Args:
        file: The path of the file, or its lines.

    Yields:
        The calls.

    Raises:
        FormatError: A line is none of these, or a span does not have the messages.
        OSError: The file cannot be read.
    """
    if not isinstance(file, str | os.PathLike):
        yield from _calls_of(iter(file), "line ")
        return
    try:
        with os.fdopen(open_regular(file), encoding="utf-8-sig") as lines:
            yield from _calls_of(lines, f"{os.fspath(file)}:")
    except UnicodeDecodeError as error:
        raise FormatError(f"{os.fspath(file)}: this is not UTF-8: {error}") from error


def _calls_of(lines: Iterator[str], place: str) -> Iterator[PromptCall]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{place}{number}"
        try:
            values = iter([json.loads(line)])
        except (ValueError, RecursionError) as error:
            if number > 1:
                raise FormatError(f"{where}: this line is not JSON: {error}") from error
            values = _values(line + "".join(lines), where)
        for value in values:
            try:
                yield from _calls_in(value, where)
            except FormatError:
                raise
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
                raise FormatError(f"{where}: this is no call: {type(error).__name__}: {error}") from error


def _values(text: str, where: str) -> Iterator[object]:
    """Read a file with JSON values over several lines, one behind the other."""
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{where}: this is no JSON, neither by itself nor with all lines: {error}") from error
        yield value
        while text[at : at + 1].isspace():
            at += 1


def _calls_in(value: object, where: str) -> Iterator[PromptCall]:
    """Yield the calls of a JSON value."""
    if isinstance(value, list):
        for at, each in enumerate(cast("list[object]", value)):
            yield from _calls_in(each, f"{where}[{at}]")
        return
    if not isinstance(value, dict):
        raise FormatError(f"{where}: a call is an object, not {value!r:.60}")
    line = cast("Object", value)
    if "resourceSpans" in line:
        for resource in line["resourceSpans"]:
            for scope in resource.get("scopeSpans", ()):
                yield from _calls_in(scope.get("spans", []), where)
    elif "attributes" in line:
        yield from _span(line, where)
    else:
        payload = next((line[key] for key in _PAYLOADS if isinstance(line.get(key), dict)), line)
        if not any(key in payload for key in MESSAGE_KEYS):
            keys = ", ".join(MESSAGE_KEYS)
            raise FormatError(f"{where}: a payload has one of {keys}; this has {', '.join(payload) or 'nothing'}")
        given = line if payload is not line else {}
        conversation = given.get("conversation")
        yield PromptCall(
            payload,
            time=_time(given.get("time")),
            conversation=None if conversation is None else str(conversation),
            model=given.get("model") or payload.get("model"),
        )


def _span(span: Object, where: str) -> Iterator[PromptCall]:
    """Yield the call of a span of OpenTelemetry's GenAI conventions; nothing of any other span."""
    found = _attributes(span["attributes"])
    for event in cast("list[Object]", span.get("events") or []):
        found = {**_attributes(event.get("attributes") or {}), **found}
    if found.get("gen_ai.operation.name") not in ("chat", "text_completion", "generate_content"):
        return
    if "gen_ai.input.messages" not in found:
        raise FormatError(
            f"{where}: the span {span.get('name')!r} has no gen_ai.input.messages; let the instrumentation capture "
            "the content of messages"
        )
    system, tools, given = (
        _parsed(found.get(f"gen_ai.{name}")) for name in ("system_instructions", "tool.definitions", "input.messages")
    )
    messages: list[Object] = [*([{"role": "system", "parts": system}] if system else []), *given]
    payload = {
        **({"tools": tools} if tools else {}),
        "messages": [{"role": message.get("role", ""), "content": _content(message)} for message in messages],
    }
    yield PromptCall(
        payload,
        time=_time(span.get("startTimeUnixNano") or span.get("start_time")),
        conversation=found.get("gen_ai.conversation.id"),
        model=found.get("gen_ai.request.model"),
    )


def _content(message: Object) -> str | list[Object]:
    """Return the parts of a message as content: one text as it is."""
    parts: list[Object] = message.get("parts") or []
    blocks = [
        {"type": "text", "text": str(part.get("content", ""))} if part.get("type") == "text" else part for part in parts
    ]
    is_text = len(blocks) == 1 and blocks[0].get("type") == "text"
    return blocks[0]["text"] if is_text else blocks


def _parsed(value: object) -> list[Object]:
    """Return a list that may be written as JSON."""
    return cast("list[Object]", json.loads(value) if isinstance(value, str) else value or [])


def _attributes(given: object) -> Object:
    """Return attributes by name; OTLP has a list of them."""
    if isinstance(given, dict):
        return cast("Object", given)
    return {each["key"]: _value(each.get("value") or {}) for each in cast("list[Object]", given)}


def _value(value: Object) -> object:
    """Return a value of OTLP."""
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return [_value(each) for each in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return _attributes(value["kvlistValue"].get("values", []))
    return next((value[key] for key in _PLAIN if key in value), None)


def _time(value: object) -> float | None:
    """Return a time in seconds: of a number of seconds or nanoseconds, or of ISO 8601."""
    if isinstance(value, str):
        value = int(value) if value.isdigit() else datetime.fromisoformat(value).timestamp()
    if not isinstance(value, int | float):
        return None
    return value / _NANOSECONDS if value > _MOST_SECONDS else float(value)
