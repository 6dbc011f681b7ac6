"""Messages as a chat template is given them: plain data, the arguments of calls read, reasoning under its names.

Source: transformers 5, ``transformers/utils/chat_template_utils.py`` (``_plain_template_data``,
``_alias_reasoning_fields``) and ``PreTrainedTokenizerBase.apply_chat_template``.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.json import MAX_DEPTH
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")
_TEXTS = {str}
_FLAT = frozenset((str, int, float, bool, type(None)))
# The names under which reasoning travels; transformers gives templates the first and the second.
REASONING = ("reasoning_content", "thinking", "reasoning")
_REASONING = frozenset(REASONING)


def without_none(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the keys that hold None, as transformers' ``apply_chat_template`` gives them to a template.

    Args:
        messages: Messages in the OpenAI form, where a message that only calls has the content None.

    Returns:
        The messages; templates show a key that is not there as nothing, and None as "None".
    """
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


class PlainData(NamedTuple):
    """What a template is given.

    Attributes:
        data: The data: messages, or tools. Nothing changes it.
        texts: All texts in it.
    """

    data: Any
    texts: Sequence[str]


def chat_messages(messages: Iterable[object], form: Callable[[dict[str, Any]], dict[str, Any]]) -> PlainData:
    """Messages as plain data, as :func:`chat_message` makes each.

    Args:
        messages: The messages.
        form: What gives messages that call, or have no content, the form that the template takes.

    Returns:
        Copies.

    Raises:
        FormatError: As :func:`chat_message`.
    """
    given = cast("Sequence[dict[str, Any]]", messages if isinstance(messages, list) else [*messages])
    chat: list[dict[str, Any]] = []
    texts: list[str] = []
    start = 0
    # Most are a role and a text. Between those that are not, all is done in C: this is where the time of a long chat
    # would go.
    others = [at for at, message in enumerate(given) if type(message) is not dict or len(message) != 2]  # noqa: PLR2004
    for other in (*others, len(given)):
        run = given[start:other]
        if (found := _plain_texts(run)) is not None:
            chat += [message.copy() for message in run]
            texts += found
            start = other
        for at in range(start, min(other + 1, len(given))):
            plain = _flat(given[at]) or chat_message(given[at], f"messages[{at}]")
            if "tool_calls" in plain or plain.get("content", "") is None:
                plain = form(plain)
            texts += texts_in(plain)
            chat.append(plain)
        start = other + 1
    return PlainData(chat, texts)


def _plain_texts(messages: Sequence[dict[str, Any]]) -> list[str] | None:
    """The texts of dicts with two keys, where these are a role and a text; else None."""
    try:
        texts = [*map(_CONTENT, messages), *map(_ROLE, messages)]
    except KeyError:
        return None
    return texts if {*map(type, texts)} <= _TEXTS else None


def _flat(message: object) -> dict[str, Any] | None:
    """A copy of a message that is plain data as it is: texts, none of them reasoning; else None."""
    if type(message) is not dict:
        return None
    fields = cast("dict[str, Any]", message)
    is_flat = {*map(type, fields), *map(type, fields.values())} == _TEXTS and _REASONING.isdisjoint(fields)
    return fields.copy() if is_flat else None


def chat_message(message: object, where: str) -> dict[str, object]:
    """A message as plain data, its reasoning under the names that transformers gives it.

    Args:
        message: The message.
        where: How an error names it.

    Returns:
        A copy.

    Raises:
        FormatError: It is no dict, or something in it is no plain data.
    """
    if not isinstance(message, Mapping):
        raise FormatError(f"{where} is a {type(message).__name__}; a template is given dicts")
    plain = cast("dict[str, object]", plain_data(cast("object", message), where))
    reasoning = next((plain[name] for name in REASONING if plain.get(name) is not None), None)
    return plain if reasoning is None else {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def plain_data(value: object, where: str, depth: int = 0) -> object:
    """A copy of a value as plain data: a template never sees an object with methods of its own.

    Args:
        value: The value: text, numbers, True and False, None, and lists, tuples and dicts of them.
        where: How an error names it.
        depth: How deep in the value this is.

    Returns:
        The copy; a tuple stays one, since templates show it as Python writes it.

    Raises:
        FormatError: Something in it is anything else.
    """
    kind = type(value)
    if kind in _FLAT:
        return value
    if depth >= MAX_DEPTH:
        raise FormatError(f"{where} is nested deeper than {MAX_DEPTH} levels, or holds itself")
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {
            key if type(key) is str else plain_data(key, f"a key of {where}"): item
            if type(item) in _FLAT
            else plain_data(item, f"{where}.{key}", depth + 1)
            for key, item in items
        }
    if isinstance(value, list | tuple):
        copy = [
            plain_data(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(cast("Sequence[object]", value))
        ]
        return tuple(copy) if isinstance(value, tuple) else copy
    # Members of an Enum and the like, which have methods of their own.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise FormatError(f"{where} is a {kind.__name__}, which is no JSON value")


def plain_tools(tools: Sequence[Mapping[str, Any]] | None) -> PlainData:
    """Tools as plain data; the last 64 sets are kept.

    Args:
        tools: The tools.

    Returns:
        What a template may be given.

    Raises:
        FormatError: Something in them is no plain data.
    """
    try:
        # Version 2 writes equal content as equal bytes; later ones also write which strings are shared.
        packed = marshal.dumps(cast("list[Any]", tools), 2)
    except ValueError:  # something marshal does not know: a mapping or str of another class, or a mistake
        made = plain_data(tools, "tools")
        return PlainData(made, tuple(texts_in(made)))
    return _packed_tools(packed)


@lru_cache(maxsize=64)
def _packed_tools(packed: bytes) -> PlainData:
    made = plain_data(marshal.loads(packed), "tools")  # noqa: S302 - bytes that have just been dumped
    return PlainData(made, tuple(texts_in(made)))


def texts_in(value: object) -> list[str]:
    """All texts in plain data, the keys of dicts too."""
    texts: list[str] = []
    level = [value]
    while level:
        inside: list[object] = []
        for item in level:
            if isinstance(item, str):
                texts.append(item)
            elif isinstance(item, dict):
                inside += cast("dict[object, object]", item)
                inside += cast("dict[object, object]", item).values()
            elif isinstance(item, list | tuple):
                inside += cast("Sequence[object]", item)
        level = inside
    return texts


def with_arguments(message: dict[str, object]) -> dict[str, object]:
    """A message with the arguments of its calls as dicts, as most templates want them.

    Args:
        message: The message, in the OpenAI form: the arguments are JSON.

    Returns:
        A copy where there are such calls; arguments that are no JSON object stay as they are.
    """
    return _with_calls(message, _read)


def with_json_arguments(message: dict[str, object]) -> dict[str, object]:
    """A message with the arguments of its calls as JSON, as OpenAI's form and a few templates want them.

    Args:
        message: The message.

    Returns:
        A copy where there are such calls.
    """
    return _with_calls(message, _written)


def _with_calls(message: dict[str, object], change: Callable[[object], object]) -> dict[str, object]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_call(call, change) for call in cast("list[object]", calls)]}


def _call(call: object, change: Callable[[object], object]) -> object:
    if not isinstance(call, dict):
        return call
    fields = cast("dict[str, object]", call)
    if isinstance(fields.get("function"), dict):
        return {**fields, "function": _call(fields["function"], change)}
    return {**fields, "arguments": change(fields["arguments"])} if "arguments" in fields else fields


def _read(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        # A model wrote them, and wrote no JSON: the template is given its words.
        return arguments
    return cast("object", read) if isinstance(read, dict) else arguments


def _written(arguments: object) -> object:
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict | list) else arguments
