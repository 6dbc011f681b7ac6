"""Parses conversations whose messages are in any of the accepted formats.

``FORMS`` lists the formats of dicts and objects, each with its characteristic keys and its reader. A reader receives
the item's fields, the item's name for errors, and the tool calls that have no result yet.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lazyprompt._base.client_objects import plain_fields
from lazyprompt._base.json import is_sequence, is_well_formed
from lazyprompt._base.roles import LANGCHAIN_WORDS
from lazyprompt.errors import HistoryError, MediaError
from lazyprompt.messages.msg import Msg, plain_message, text_message
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.messages.read_gemini import read_content
from lazyprompt.messages.read_langchain import TYPES, read_message, read_tuple
from lazyprompt.messages.read_openai import ITEMS, continues, joined, parted, read_item, read_openai
from lazyprompt.messages.read_parts import PART_TYPES
from lazyprompt.messages.read_sharegpt import KEYS, read_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt._base.json import Fields

    # A reader receives the item's fields, the item's name for error messages, and the tool calls without a result.
    Reader: TypeAlias = Callable[[Fields, str, OpenCalls], tuple[Msg, ...]]

_ACCEPTED = (
    "a pair [question, answer], a message dict from OpenAI, Anthropic, Gemini, ShareGPT or the Responses API, a "
    "LangChain tuple or message, or a Msg"
)
_PAIR = 2


class MessageForm(NamedTuple):
    """A format of message dicts, with the criteria that identify it.

    Attributes:
        name: The format's name in error messages.
        read: The function that parses a dict in this format.
        keys: The keys that every dict in this format contains.
        types: The values of ``type`` that identify this format; empty if any value is possible.
        lacks: Keys that never occur in this format.
        others: The values of ``type`` that identify other formats.
        apart: Keys that are never all present in one dict of this format; empty if any combination is possible.
    """

    name: str
    read: Reader
    keys: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()

    def matches(self, item: Fields) -> bool:
        """Return True if a dict is in this format."""
        given = item.keys()
        if not self.keys <= given or not self.lacks.isdisjoint(given) or (self.apart and self.apart <= given):
            return False
        kind = item.get("type")
        if not self.types:
            return not self.others or (isinstance(kind, str) and kind not in self.others)
        return isinstance(kind, str) and kind in self.types


def _read_openai(item: Fields, where: str, waiting: OpenCalls) -> tuple[Msg, ...]:
    message = read_openai(item, where, waiting)
    return parted(message) if message.role == "user" and type(message.content) is tuple else (message,)


def _only(*keys: str) -> Reader:
    """Return a reader for OpenAI messages that ignores all keys of a dict except the given ones."""
    return lambda item, where, waiting: _read_openai({key: item[key] for key in keys if key in item}, where, waiting)


_OF_AGENTSCOPE = ("name", "role", "content", "url", "metadata")
# The attributes of a LangChain message other than `type` and `content`.
_BESIDE_TYPE = ("name", "role", "tool_calls", "tool_call_id", "status", "additional_kwargs", "invalid_tool_calls")
# The attributes of message objects in the formats of AgentScope, LangChain and Gemini, one row per format.
# An object matches a row if it has the row's first two attributes.
_ATTRIBUTES = (
    ("role", "content", "name", "url", "metadata", "tool_calls", "tool_call_id"),
    ("type", "content", *_BESIDE_TYPE),
    ("role", "parts"),
)

FORMS = (
    MessageForm("a Gemini content", read_content, frozenset({"parts"})),
    MessageForm("a LangChain message", read_message, frozenset({"type"}), TYPES),
    MessageForm("a ShareGPT message", read_turn, KEYS),
    MessageForm("a Responses API item", read_item, frozenset({"type"}), frozenset(ITEMS), frozenset({"stop_reason"})),
    # Accept items of unknown types, because new releases of the Responses API add item types.
    MessageForm(
        "a Responses API item",
        read_item,
        frozenset({"type"}),
        lacks=frozenset({"parts", "stop_reason"}),
        others=frozenset({*TYPES, *ITEMS, *PART_TYPES}),
        apart=frozenset({"role", "content"}),
    ),
    MessageForm("an Anthropic response", _only("role", "content"), frozenset({"content", "stop_reason"})),
    MessageForm("an AgentScope Msg", _only(*_OF_AGENTSCOPE), frozenset({"name", "role", "content", "timestamp"})),
)
"""All formats of message dicts, except the format that OpenAI and Anthropic share."""

_OPENAI = MessageForm("an OpenAI or Anthropic message", _read_openai)
_ITEM_FORMS = frozenset({form for form in FORMS if form.read is read_item})
# A dict without any of these keys is parsed as an OpenAI message.
_MARKS = frozenset[str]().union(*(form.keys for form in FORMS)) - {"name", "role", "content"}
# The message formats allowed in a list of Responses API items.
_ITEMS = _ITEM_FORMS | {_OPENAI}


class ParsedMessages(NamedTuple):
    """Parsed messages, with the indices of the items they were parsed from.

    Attributes:
        messages: The parsed messages.
        firsts: The index of the first item of each message. A message consists of this item and all items before the
            next message's first item.
        has_forms: True if an item is a dict or object in a format other than OpenAI's.
    """

    messages: list[Msg]
    firsts: list[int]
    has_forms: bool = False

    def sources(self, count: int) -> list[range]:
        """Return the range of item indices for each message.

        Args:
            count: The number of items in the parsed list.
        """
        borders = dict(pairwise([*dict.fromkeys(self.firsts), count]))
        return [range(first, borders[first]) for first in self.firsts]


def parse_messages(items: object, where: str = "history") -> list[Msg]:
    """Parse messages in any accepted format.

    Args:
        items: A list that may mix pairs, message dicts from any provider, LangChain messages, and :class:`Msg` objects.
            A pair without a question is a greeting from the assistant.
        where: The name of the list in error messages.

    Returns:
        The messages. Keys with null or empty values are dropped, and a name that equals the role is not treated as a
        speaker. Call arguments that are not a JSON object are stored as ``raw_input``.

    Raises:
        HistoryError: ``items`` is not a list, or an item's format is ambiguous or not accepted; the error includes the
            item's index.
        MediaError: A media block has no usable source.
    """
    messages, forms, counts = _parse_each(items, where)
    if not _ITEM_FORMS.isdisjoint(forms.values()):
        return _with_items_joined(_with_sources(messages, counts), forms).messages
    return messages


def parse_with_sources(items: object, where: str = "history") -> ParsedMessages:
    """Parse messages like :func:`parse_messages`, and record which items each message was parsed from."""
    messages, forms, counts = _parse_each(items, where)
    parsed = _with_sources(messages, counts)._replace(has_forms=any(forms.values()))
    return _with_items_joined(parsed, forms) if not _ITEM_FORMS.isdisjoint(forms.values()) else parsed


def _with_sources(messages: list[Msg], counts: Mapping[int, int]) -> ParsedMessages:
    firsts: list[int] = []
    at = 0
    while len(firsts) < len(messages):
        firsts += [at] * counts.get(at, 1)
        at += 1
    return ParsedMessages(messages, firsts)


def _parse_each(items: object, where: str) -> tuple[list[Msg], dict[int, MessageForm | None], dict[int, int]]:
    """Parse each item separately.

    Returns:
        The messages, a dict of formats and a dict of message counts; both dicts have item indices as keys. The first
        dict contains the formats of items that are not in OpenAI's format. The second dict contains the message counts
        of items that didn't produce exactly one message.
    """
    if not isinstance(items, list | tuple):
        raise HistoryError(f"a history must be a list, not {type(items).__name__}; each item must be {_ACCEPTED}")
    given = cast("Sequence[Any]", items)
    messages: list[Msg] = []
    waiting = OpenCalls(messages)
    forms: dict[int, MessageForm | None] = {}
    counts: dict[int, int] = {}
    for index, item in enumerate(given):
        has_fields = item.__class__ is dict
        if has_fields and (message := plain_message(item)):
            messages.append(message)
        elif not has_fields and _is_plain_pair(item):
            messages += text_message(item[0], "user"), text_message(item[1], "assistant")
            forms[index], counts[index] = None, _PAIR
        elif isinstance(item, Msg):
            messages.append(item)
            forms[index] = None
        else:
            form, new = _parse_item(item, f"{where}[{index}]", waiting, given)
            messages += new
            if form is not _OPENAI:
                forms[index] = form
            if len(new) != 1:
                counts[index] = len(new)
    return messages, forms, counts


def parse_message(item: object, where: str) -> Msg:
    """Parse a single message.

    Args:
        item: A message dict from any provider, or a :class:`Msg`.
        where: The item's name in error messages.

    Raises:
        HistoryError: The item does not contain exactly one message.
        MediaError: A media block has no usable source.
    """
    _, messages = _parse_item(item, where, OpenCalls(), ())
    if len(messages) != 1:
        raise HistoryError(f"{where} contains {len(messages)} messages; expected exactly one")
    return messages[0]


def _with_items_joined(parsed: ParsedMessages, forms: Mapping[int, MessageForm | None]) -> ParsedMessages:
    """Join the messages of adjacent Responses API items and OpenAI messages that form one message.

    Args:
        parsed: The messages parsed separately from each item.
        forms: The format of each item that is not in OpenAI's format, by index.
    """
    found = ParsedMessages([], [], parsed.has_forms)
    messages, firsts, _ = found
    last = parsed.firsts[0]
    for message, index in zip(parsed.messages, parsed.firsts, strict=True):
        neighbours = {forms.get(last, _OPENAI), forms.get(index, _OPENAI)}
        may_join = index != last and not _ITEM_FORMS.isdisjoint(neighbours) and neighbours <= _ITEMS
        if may_join and continues(messages[-1], message):
            messages[-1] = joined(messages[-1], message)
        else:
            messages.append(message)
            firsts.append(index)
        last = index
    return found


def _parse_item(
    given: object, where: str, waiting: OpenCalls, items: Sequence[object]
) -> tuple[MessageForm | None, tuple[Msg, ...]]:
    """Parse a message dict or object, a pair, or a ``Msg``. For pairs and ``Msg``, the returned format is None."""
    if isinstance(given, Msg):
        return None, (given,)
    try:
        if (fields := message_fields(given)) is not None:
            form = _form_of(fields, where)
            return form, form.read(fields, where, waiting)
        return None, _read_pair(given, where, items)
    except (HistoryError, MediaError) as error:
        # Errors from content blocks don't contain the history item's name, so add the name.
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from error


def _form_of(item: Fields, where: str) -> MessageForm:
    if _MARKS.isdisjoint(item):
        return _OPENAI
    found = [form for form in FORMS if form.matches(item)]
    if len(found) > 1 or (found and found[0].read is read_content and "content" in item):
        names = " or ".join([*(form.name for form in found), *(["a message with 'content'"] * (len(found) == 1))])
        given = ", ".join(map(repr, item))
        raise HistoryError(f"{where} could be {names}, because its keys are {given}; remove the keys of one format")
    return found[0] if found else _OPENAI


def message_fields(item: object) -> Fields | None:
    """Return the fields of a message dict or object, or ``None`` for any other value."""
    if isinstance(item, dict):
        return cast("Fields", item)
    if (fields := plain_fields(item)) is not None:
        return fields
    for names in _ATTRIBUTES:
        if all(hasattr(item, name) for name in names[:2]):
            return {name: value for name in names if (value := getattr(item, name, None)) is not None}
    return None


def _is_plain_pair(pair: Any) -> bool:  # noqa: ANN401 - any item of a history
    """Return True for a pair of strings that can only be a question and its answer, not a LangChain tuple."""
    if (pair.__class__ is not list and pair.__class__ is not tuple) or len(pair) != _PAIR:
        return False
    question, answer = pair
    if question.__class__ is not str or answer.__class__ is not str or not question or question in LANGCHAIN_WORDS:
        return False
    return (question.isascii() and answer.isascii()) or is_well_formed(question + answer)


def _read_pair(pair: object, where: str, items: Sequence[object]) -> tuple[Msg, ...]:
    """Parse a ``[question, answer]`` pair, or a LangChain tuple of role and content."""
    if not is_sequence(pair):
        raise HistoryError(f"{where} must be {_ACCEPTED}, not {type(pair).__name__}")
    if len(pair) != _PAIR:
        raise HistoryError(f"{where} contains {len(pair)} items; a pair must be [question, answer]")
    if _is_langchain(pair) and not _is_pair(pair, where, items):
        return (read_tuple(str(pair[0]), pair[1], where),)
    roles = ("user", "assistant")
    for role, text in zip(roles, pair, strict=True):
        if role == "user" and not text:
            continue
        if not isinstance(text, str | list | tuple):
            kind = type(text).__name__
            raise HistoryError(
                f"{where}: the {role} content of the pair must be a string or a list of blocks, not {kind}"
            )
    return tuple(
        message
        for role, part in zip(roles, pair, strict=True)
        # An empty question is skipped, so that the assistant's greeting starts the conversation.
        if part or role == "assistant"
        for message in _read_openai({"role": role, "content": part}, where, OpenCalls())
    )


def _is_langchain(pair: Sequence[object]) -> bool:
    return isinstance(pair[0], str) and pair[0] in LANGCHAIN_WORDS


def _is_pair(pair: Sequence[object], where: str, items: Sequence[object]) -> bool:
    """Return True if a pair is a question and its answer, although it begins with the name of a LangChain role.

    LangChain writes messages as tuples, so a two-item list is parsed as a question and its answer, and a two-item tuple
    as a LangChain message. Because a question can equal a role name, at least one of the history's two-item lists must
    begin with text that is not a role name. All two-item tuples must begin with a role name.

    Raises:
        HistoryError: All two-item lists begin with a role name, or a two-item tuple doesn't begin with one.
    """
    others = [each for each in items if type(each) is type(pair)]
    has_questions = not all(_is_langchain(each) for each in others if len(each) == _PAIR)
    if has_questions != isinstance(pair, list):
        raise HistoryError(
            f"{where} begins with {pair[0]!r}, which can be a question or the role of a LangChain message; for a "
            "message, write {'role': ..., 'content': ...} or pass only LangChain tuples; for a question, write "
            "{'role': 'user', 'content': ...}"
        )
    return has_questions
