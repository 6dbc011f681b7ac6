"""Parsing of call logs in JSON Lines, as written by :class:`lazyprompt.CallLog`, and of OpenTelemetry spans."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.files import open_regular
from lazyprompt._base.json import is_list
from lazyprompt.caching.reading import MESSAGE_KEYS, PromptCall
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Object = dict[str, Any]

# Keys for the payload in CallLog lines and in OpenAI, Anthropic and Gemini batch files.
_PAYLOADS = ("payload", "body", "params", "request")
_NANOSECONDS = 1e9
# Larger time values are in nanoseconds, not seconds.
_MOST_SECONDS = 1e14
_PLAIN = ("stringValue", "boolValue", "doubleValue", "bytesValue")


def read_calls(file: str | os.PathLike[str] | Iterable[str]) -> Iterator[PromptCall]:
    """Read the calls in a log lazily.

    Each line is a JSON object: a line from :class:`lazyprompt.CallLog`, a payload, an OpenAI, Anthropic or Gemini batch
    request, or an OpenTelemetry span. The log can also contain objects that span several lines: a single object,
    several in sequence, a list, or OTLP's structure. Spans for operations other than model calls are skipped.

    Args:
        file: The path of the log, or an iterable of its lines.

    Yields:
        The calls.

    Raises:
        FormatError: A line has an unsupported format, or a span contains no messages.
        OSError: The file can't be read.
    """
    if not isinstance(file, str | os.PathLike):
        yield from _calls_of(iter(file), "line ")
        return
    try:
        with os.fdopen(open_regular(file), encoding="utf-8-sig") as lines:
            yield from _calls_of(lines, f"{os.fspath(file)}:")
    except UnicodeDecodeError as error:
        raise FormatError(f"{os.fspath(file)}: not valid UTF-8: {error}") from error


def _calls_of(lines: Iterator[str], place: str) -> Iterator[PromptCall]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{place}{number}"
        try:
            values = iter([json.loads(line)])
        except (ValueError, RecursionError) as error:
            if number > 1:
                raise FormatError(f"{where}: not a valid JSON line: {error}") from error
            values = _values(line + "".join(lines), where)
        for value in values:
            try:
                yield from _calls_in(value, where)
            except FormatError:
                raise
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
                raise FormatError(f"{where}: not a valid model call: {type(error).__name__}: {error}") from error


def _values(text: str, where: str) -> Iterator[object]:
    """Yield each JSON value in a text that contains several values in sequence."""
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{where}: neither this line nor the whole file is valid JSON: {error}") from error
        yield value
        while text[at : at + 1].isspace():
            at += 1


def _calls_in(value: object, where: str) -> Iterator[PromptCall]:
    """Yield the logged model calls that a JSON value contains."""
    if is_list(value):
        for at, each in enumerate(value):
            yield from _calls_in(each, f"{where}[{at}]")
        return
    if not isinstance(value, dict):
        raise FormatError(f"{where}: a call must be an object, not {value!r:.60}")
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
            raise FormatError(
                f"{where}: not a payload; expected one of {keys}, found {', '.join(payload) or 'no keys'}"
            )
        given = line if payload is not line else {}
        conversation = given.get("conversation")
        yield PromptCall(
            payload,
            time=_time(given.get("time")),
            conversation=None if conversation is None else str(conversation),
            model=given.get("model") or payload.get("model"),
        )


def _span(span: Object, where: str) -> Iterator[PromptCall]:
    """Yield the model call that a span records under OpenTelemetry's GenAI conventions; other spans yield nothing."""
    found = _attributes(span["attributes"])
    events: list[Object] = span.get("events") or []
    for event in events:
        found = {**_attributes(event.get("attributes") or {}), **found}
    if found.get("gen_ai.operation.name") not in ("chat", "text_completion", "generate_content"):
        return
    if "gen_ai.input.messages" not in found:
        raise FormatError(
            f"{where}: the span {span.get('name')!r} has no gen_ai.input.messages; enable message content capture in "
            "the instrumentation"
        )
    system, tools, given = (
        _parse_list(found.get(f"gen_ai.{name}"))
        for name in ("system_instructions", "tool.definitions", "input.messages")
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
    """Convert a message's parts to OpenAI content; a single text part becomes a string."""
    parts: list[Object] = message.get("parts") or []
    blocks = [
        {"type": "text", "text": str(part.get("content", ""))} if part.get("type") == "text" else part for part in parts
    ]
    is_text = len(blocks) == 1 and blocks[0].get("type") == "text"
    return blocks[0]["text"] if is_text else blocks


def _parse_list(value: Any) -> list[Object]:  # noqa: ANN401 - a span attribute
    """Return the list in a span attribute, which may be JSON text; a missing attribute becomes an empty list."""
    found: list[Object] = json.loads(value) if isinstance(value, str) else value or []
    return found


def _attributes(given: Object | list[Object]) -> Object:
    """Return attributes as a dict, converting OTLP's list of key-value pairs."""
    if isinstance(given, dict):
        return given
    return {each["key"]: _value(each.get("value") or {}) for each in given}


def _value(value: Object) -> object:
    """Convert an OTLP value to a Python value."""
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return [_value(each) for each in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return _attributes(value["kvlistValue"].get("values", []))
    return next((value[key] for key in _PLAIN if key in value), None)


def _time(value: object) -> float | None:
    """Convert a time in seconds, nanoseconds or ISO 8601 to seconds; return None for any other value."""
    if isinstance(value, str):
        value = int(value) if value.isdigit() else datetime.fromisoformat(value).timestamp()
    if not isinstance(value, int | float):
        return None
    return value / _NANOSECONDS if value > _MOST_SECONDS else float(value)
