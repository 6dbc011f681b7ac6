"""Reads a history: each item in its own form, which one table of shapes tells."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.client_objects import members_of, plain
from lazyprompt._base.roles import LANGCHAIN_WORDS
from lazyprompt.errors import HistoryError, MediaError
from lazyprompt.messages.msg import Msg, ToolResultBlock, ToolUseBlock, message_of
from lazyprompt.messages.read_gemini import read_content
from lazyprompt.messages.read_langchain import TYPES, read_message, read_tuple
from lazyprompt.messages.read_openai import ITEMS, continues, parted, plain_fields, read_fields, read_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyprompt._base.json import Fields, JsonObject

_ACCEPTED = (
    "a pair [question, answer], a message dict of OpenAI, Anthropic, Gemini or the Responses API, a LangChain tuple or "
    "message, or a Msg"
)
_PAIR = 2


class Shape(NamedTuple):
    """A form of message dicts, and how it is known.

    Attributes:
        name: The form, for errors.
        read: The reader: of the dict, its place for errors, and the calls still without a result.
        keys: The keys that such a dict has.
        types: The values of ``type`` that it has; empty where it says nothing of its form.
        lacks: Keys that another form has and this one lacks.
    """

    name: str
    read: Callable[[Fields, str, Mapping[str, str]], tuple[Msg, ...]]
    keys: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()

    def fits(self, item: Fields) -> bool:
        """Return True if a dict is of this form."""
        if not self.keys <= item.keys() or not self.lacks.isdisjoint(item):
            return False
        kind = item.get("type")
        return not self.types or (isinstance(kind, str) and kind in self.types)


def _from_openai(item: Fields, where: str, waiting: Mapping[str, str]) -> tuple[Msg, ...]:
    name, content, role, url, metadata = read_fields(item, where, waiting)
    message = message_of(name or role, content, role, url, metadata)
    return parted(message) if role == "user" and type(content) is tuple else (message,)


def _only(*keys: str) -> Callable[[Fields, str, Mapping[str, str]], tuple[Msg, ...]]:
    """Return the reader of a dict in which only these keys are the message."""
    return lambda item, where, waiting: _from_openai({key: item[key] for key in keys if key in item}, where, waiting)


_OF_AGENTSCOPE = ("name", "role", "content", "url", "metadata")
# The attributes of message objects that are no client's: AgentScope's, LangChain's and Gemini's. The first two tell.
_BESIDE_TYPE = ("name", "role", "tool_calls", "tool_call_id", "status", "additional_kwargs", "invalid_tool_calls")
_ATTRIBUTES = (
    ("role", "content", "name", "url", "metadata", "tool_calls", "tool_call_id"),
    ("type", "content", *_BESIDE_TYPE),
    ("role", "parts"),
)

SHAPES = (
    Shape("a content of Gemini", read_content, frozenset({"parts"})),
    Shape("an item of the Responses API", read_item, frozenset({"type"}), frozenset(ITEMS), frozenset({"stop_reason"})),
    Shape("a message of LangChain", read_message, frozenset({"type"}), TYPES),
    Shape("an answer of Anthropic", _only("role", "content"), frozenset({"content", "stop_reason"})),
    Shape("a Msg of AgentScope", _only(*_OF_AGENTSCOPE), frozenset({"name", "role", "content", "timestamp"})),
)
"""The forms of dicts beside OpenAI's, which Anthropic's messages share."""

_OPENAI = Shape("a message of OpenAI or Anthropic", _from_openai)
_RESPONSES = SHAPES[1]
# The shapes of a list for the Responses API.
_ITEMS = frozenset({_RESPONSES, _OPENAI})
# A dict with none of these keys is of none of the shapes.
MARKS = frozenset({"parts", "type", "stop_reason", "timestamp"})


class HistoryRead(NamedTuple):
    """The messages of a history, and the items that each is made of.

    Attributes:
        messages: The messages.
        firsts: The index of the first item of each message. Its last is the one before the next message's first.
    """

    messages: list[Msg]
    firsts: list[int]

    def sources(self, count: int) -> list[range]:
        """Return the indices of the items of each message, of a history with so many items."""
        borders = dict(pairwise([*dict.fromkeys(self.firsts), count]))
        return [range(first, borders[first]) for first in self.firsts]


def without_role_names(history: Sequence[object], read: HistoryRead) -> list[Msg]:
    """Return the messages that were read; one that names no speaker has no name, unless it was given as a Msg."""
    return [
        message if isinstance(history[first], Msg) else without_role_name(message)
        for message, first in zip(*read, strict=True)
    ]


def without_role_name(message: Msg) -> Msg:
    """Return a message without a name that only repeats its role."""
    if message.name != message.role:
        return message
    return Msg("", message.content, message.role, message.url, message.metadata)


def is_openai(item: Fields) -> bool:
    """Return True if a dict is read as an OpenAI message (or Anthropic's, which is like it)."""
    return MARKS.isdisjoint(item) or not any(shape.fits(item) for shape in SHAPES)


def messages_of(history: object) -> tuple[Msg, ...]:
    """Read the messages of a history; see :func:`read_history`."""
    if not isinstance(history, list | tuple):
        raise _no_list(history)
    items = cast("Sequence[object]", history)
    if items and type(items[0]) is not dict and all([isinstance(item, Msg) for item in items]):  # noqa: C419 - a generator takes three times as long
        return cast("tuple[Msg, ...]", tuple(items))
    return tuple(read_history(items).messages)


def _no_list(history: object) -> HistoryError:
    return HistoryError(f"a history is a list, not a {type(history).__name__}; its items are {_ACCEPTED}")


def read_history(history: object) -> HistoryRead:
    """Read a history, each item in its own form.

    Args:
        history: Pairs, message dicts of any provider, LangChain's messages and Msg, in any mixture.

    Returns:
        The messages, each with the items that it is made of.

    Raises:
        HistoryError: It is no list, or an item has no accepted shape, or could be of two; the message names its index.
    """
    if not isinstance(history, list | tuple):
        raise _no_list(history)
    items = cast("Sequence[Any]", history)
    messages: list[Msg] = []
    waiting = OpenCalls(messages)
    # The shapes of the items that are no plain dicts of OpenAI's form, and the number of messages of those not of one.
    shapes: dict[int, Shape | None] = {}
    counts: dict[int, int] = {}
    index = 0
    try:
        for index, item in enumerate(items):
            if fields := plain_fields(item):
                # Most messages come here, so what would be a call is written out.
                name, content, role, url, metadata = fields
                messages.append(message_of(name or role, content, role, url, metadata))
                continue
            if item.__class__ is dict and MARKS.isdisjoint(item):
                new = _from_openai(item, f"history[{index}]", waiting)
            else:
                shapes[index], new = _read_item(item, f"history[{index}]", waiting, items)
            messages += new
            if len(new) != 1:
                counts[index] = len(new)
    except (HistoryError, MediaError) as error:
        where = f"history[{index}]"
        raise error if str(error).startswith(where) else type(error)(f"{where}: {error}") from error
    firsts = [at for at in range(len(items)) for _ in range(counts.get(at, 1))] if counts else [*range(len(items))]
    read = HistoryRead(messages, firsts)
    return _with_items_joined(read, shapes) if _RESPONSES in shapes.values() else read


def _with_items_joined(read: HistoryRead, shapes: Mapping[int, Shape | None]) -> HistoryRead:
    """Join the items of a list for the Responses API that are one message; plain messages may stand between them.

    Args:
        read: The messages, each item read by itself.
        shapes: The shapes of the items, by their index; that of an item that is missing is OpenAI's.
    """
    joined = HistoryRead([], [])
    messages, firsts = joined
    last = read.firsts[0]
    for message, index in zip(*read, strict=True):
        neighbours = {shapes.get(last, _OPENAI), shapes.get(index, _OPENAI)}
        may_join = index != last and _RESPONSES in neighbours and neighbours <= _ITEMS
        if may_join and continues(messages[-1], message):
            messages[-1] = _joined(messages[-1], message)
        else:
            messages.append(message)
            firsts.append(index)
        last = index
    return joined


class OpenCalls(Mapping[str, str]):
    """The calls of a conversation that have no result yet: their tools by their ids, the oldest first.

    Few results need them, so the messages are looked through only when somebody asks.

    Args:
        messages: The conversation as far as it is read.
    """

    def __init__(self, messages: Sequence[Msg]) -> None:
        self._messages = messages
        self._seen = 0
        self._names: dict[str, str] = {}

    def _now(self) -> dict[str, str]:
        for message in self._messages[self._seen :]:
            for block in message.blocks:
                if isinstance(block, ToolUseBlock):
                    self._names[block.id] = block.name
                elif isinstance(block, ToolResultBlock):
                    self._names.pop(block.id, None)
        self._seen = len(self._messages)
        return self._names

    def __getitem__(self, call_id: str) -> str:
        return self._now()[call_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


def _joined(first: Msg, second: Msg) -> Msg:
    blocks = (*first.blocks, *second.blocks)
    url, metadata = cast("str | None", first.url), cast("JsonObject", first.metadata or second.metadata)
    # Both messages were checked when they were read. To check all blocks again for each item would take quadratic time.
    return message_of(first.name, blocks, first.role, url, metadata)


def _read_item(
    given: object, where: str, waiting: Mapping[str, str], history: Sequence[object]
) -> tuple[Shape | None, tuple[Msg, ...]]:
    """Read a message dict or object, a pair, or a Msg; the latter two have no shape."""
    if isinstance(given, Msg):
        return None, (given,)
    if isinstance(given, list | tuple):
        return None, _read_pair(cast("Sequence[object]", given), where, history)
    item = message_fields(given)
    if item is None:
        raise HistoryError(f"{where} is a {type(given).__name__}; a history holds {_ACCEPTED}")
    shape = _shape_of(item, where)
    return shape, shape.read(item, where, waiting)


def _shape_of(item: Fields, where: str) -> Shape:
    """Return the form of a dict that may be of another than OpenAI's."""
    shapes = [shape for shape in SHAPES if shape.fits(item)]
    if len(shapes) > 1 or (shapes and shapes[0].read is read_content and "content" in item):
        names = " or ".join([*(shape.name for shape in shapes), *(["a message with 'content'"] * (len(shapes) == 1))])
        raise HistoryError(f"{where} could be {names}: it has {', '.join(map(repr, item))}; leave out the keys of one")
    return shapes[0] if shapes else _OPENAI


def message_fields(item: object) -> Fields | None:
    """Return the fields of a message dict, or of an object with the attributes of a message; ``None`` for all else."""
    if isinstance(item, dict):
        return cast("Fields", item)
    if members_of(item) is not None:
        return cast("Fields", plain(item))
    for names in _ATTRIBUTES:
        if all(hasattr(item, name) for name in names[:2]):
            return {name: value for name in names if (value := getattr(item, name, None)) is not None}
    return None


def _read_pair(pair: Sequence[object], where: str, history: Sequence[object]) -> tuple[Msg, ...]:
    """Read a pair of question and answer, or a LangChain tuple of role and content."""
    if len(pair) != _PAIR:
        raise HistoryError(f"{where} has {len(pair)} items; a pair is [question, answer]")
    if _is_langchain(pair) and not _is_pair(pair, where, history):
        return (read_tuple(str(pair[0]), pair[1], where),)
    roles = ("user", "assistant")
    for role, text in zip(roles, pair, strict=True):
        if not isinstance(text, str | list | tuple):
            raise HistoryError(f"{where}: the {role}'s part is a {type(text).__name__}; give text or a list of blocks")
    return tuple(
        message
        for role, part in zip(roles, pair, strict=True)
        for message in _read_item({"role": role, "content": part}, where, {}, ())[1]
    )


def _is_langchain(pair: Sequence[object]) -> bool:
    return isinstance(pair[0], str) and pair[0] in LANGCHAIN_WORDS


def _is_pair(pair: Sequence[object], where: str, history: Sequence[object]) -> bool:
    """Return True if a pair that begins with a role of LangChain is a question and its answer all the same.

    A list is one, for LangChain has tuples; a tuple is none. The other pairs of the same type must agree: a question
    may be just such a word, and no question may change the role of an answer.

    Raises:
        HistoryError: They do not agree.
    """
    others = [each for each in history if type(each) is type(pair)]
    has_questions = not all(_is_langchain(each) for each in others if len(each) == _PAIR)
    if has_questions != isinstance(pair, list):
        raise HistoryError(
            f"{where} begins with {pair[0]!r}, which can be the role of a LangChain tuple or a question; for a message "
            "write {'role': ..., 'content': ...} or give tuples alone, for a question {'role': 'user', 'content': ...}"
        )
    return has_questions
