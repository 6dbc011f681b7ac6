"""Messages in any accepted form, read into turns: what every later step works on.

A turn is a plain tuple, for there are many of them and a formatter is in a hurry. Most conversations need nothing but
to be written down; reading finds out, on the way, whether this is one of them.
"""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from json import JSONDecodeError, JSONDecoder
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from lazyprompt._base.json import Fields, well_formed
from lazyprompt._base.roles import SYSTEM_ROLES, Role
from lazyprompt.errors import FormatError, HistoryError, MediaError
from lazyprompt.formatters._trusted import trusted_call, trusted_result
from lazyprompt.messages.histories.openai import message_from_openai
from lazyprompt.messages.histories.read import is_openai, message_fields, read_history, without_role_names
from lazyprompt.messages.msg import Block, Msg, TextBlock, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json
    from lazyprompt.messages.history import HistoryLike, MessageObject, Pair

Content: TypeAlias = str | tuple[Block, ...]
# The role, the speaker's name (empty where there is none), what was said, and the index of the message it came from.
Turn: TypeAlias = tuple[Role, str, Content, int]
MessageLike: TypeAlias = "Msg | Fields"
Messages: TypeAlias = "MessageLike | Pair | MessageObject | HistoryLike | None"


_MESSAGES = frozenset({Msg, dict})
# The keys that mark the beginning of an answer, which the model goes on with.
PREFILL = ("prefix", "partial")


def blocks_of(content: Content) -> tuple[Block, ...]:
    """A content as blocks, plain text as one of them."""
    return content if isinstance(content, tuple) else (TextBlock(content),) if content else ()


def calls_tools(content: Content) -> bool:
    """Whether there is a call in a content."""
    return isinstance(content, tuple) and any(isinstance(block, ToolUseBlock) for block in content)


class Reading:
    """The turns of a conversation, and what was seen while reading them.

    Attributes:
        messages: The messages, each as it was given.
        turns: One for each message.
        rough: Whether something must be put right first, or decided by the provider's rules: results away from their
            calls, empty texts, thoughts, media, texts beside results.
        repeats: Whether two turns of the user, or of the assistant, follow each other.
        late_system: Whether system text stands behind another turn.
        has_developer: Whether the role ``developer`` speaks.
        names: The names of all speakers.
        ids: The ids of all tool calls, with the tools they call.
        metadata: What messages hold beside role, name and content, by the index of the message.
        prefill: True if the last message is the beginning of the answer, marked with ``prefix`` or ``partial``.
        cut: How many of the messages were left out, to keep to a budget.
    """

    __slots__ = (
        "cut",
        "has_developer",
        "ids",
        "late_system",
        "messages",
        "metadata",
        "names",
        "prefill",
        "repeats",
        "rough",
        "turns",
    )

    def __init__(self, messages: list[MessageLike]) -> None:
        self.messages = messages
        self.turns: list[Turn] = []
        self.rough = self.repeats = self.late_system = self.has_developer = False
        self.names: set[str] = set()
        self.ids: dict[str, str] = {}
        self.metadata: dict[int, Mapping[str, Json]] = {}
        self.prefill = False
        self.cut = 0

    def only(self, kept: Sequence[int]) -> Reading:
        """The reading of some of the messages, by their indices; what it says of ids is what all of them have."""
        if len(kept) == len(self.turns):
            return self
        shorter = copy(self)
        shorter.turns = [self.turns[at] for at in kept]
        shorter.cut = len(self.turns) - len(kept)
        roles = [turn[0] for turn in shorter.turns]
        shorter.names = {turn[1] for turn in shorter.turns}
        shorter.metadata = {at: self.metadata[at] for at in kept if at in self.metadata}
        shorter.prefill = self.prefill and len(self.turns) - 1 in kept
        shorter.has_developer = "developer" in roles
        shorter.repeats = any(role == before and role != "tool" for before, role in pairwise(roles))
        shorter.late_system = any(
            role in SYSTEM_ROLES and before not in SYSTEM_ROLES for before, role in pairwise(roles)
        )
        return shorter


def flat(messages: Iterable[Messages]) -> list[MessageLike]:
    """The messages of all arguments in one list; pairs become two messages, ``None`` none.

    Raises:
        FormatError: Something is neither a message nor a list of them.
    """
    items = list(messages)
    if _MESSAGES.issuperset(map(type, items)):
        return cast("list[MessageLike]", items)
    found = list(_items(items))
    if _MESSAGES.issuperset(map(type, found)):
        return cast("list[MessageLike]", found)
    return _as_messages(found)


def _items(given: Iterable[object]) -> Iterator[object]:
    """Yield the items of lists in lists; a pair is one item, and ``None`` none."""
    for item in given:
        if isinstance(item, list | tuple):
            inner = cast("Sequence[object]", item)
            if len(inner) == 2 and isinstance(inner[0], str):  # noqa: PLR2004 - a pair
                yield inner
            else:
                yield from _items(inner)
        elif isinstance(item, Msg) or message_fields(item) is not None:
            yield item
        elif item is not None:
            raise FormatError(
                f"{item!r} is a {type(item).__name__}; give Msg objects, message dicts of any provider, pairs "
                "[question, answer], or lists of them"
            )


def _as_messages(items: list[object]) -> list[MessageLike]:
    """Read items of any form."""
    return [*without_role_names(items, read_history(items))]


def read(messages: list[MessageLike]) -> Reading:
    """Read messages into turns.

    Args:
        messages: Msg and dicts; left as they are.

    Returns:
        The turns, and whether they can be written as they are.

    Raises:
        HistoryError: A dict is no message.
    """
    try:
        return _read(messages)
    except _OtherFormError:
        return _read(_as_messages(cast("list[object]", messages)))


class _OtherFormError(Exception):
    """A dict is in another form than OpenAI's: the conversation must be read as a whole."""


def _read(messages: list[MessageLike]) -> Reading:
    """Read Msg and OpenAI dicts."""
    reading = Reading(messages)
    turns, names = reading.turns, reading.names
    # The calls without a result yet, by id, with the tool's name.
    waiting: dict[str, str] = {}
    rough = False
    before = ""
    for at, item in enumerate(messages):
        # isinstance, for it tells the type checker too: a cast would cost as much as all of this.
        if isinstance(item, Msg):
            role, content = item.role, item.content
            # A result's name is the tool's, and the result has it itself.
            name = "" if role == "tool" and not isinstance(content, str) else item.name
            names.add(name)
            if isinstance(content, str):
                # Nothing may stand between a call and its results; white space alone is no text to some providers.
                if waiting or not content or content.isspace() or role == "tool" or item.url is not None:
                    rough = True
            elif not _plain_blocks(role, content, waiting, reading.ids) or item.url is not None:
                rough = True
        else:
            role, name, content, plain = _dict_turn(item, at, waiting, reading)
            if name:
                names.add(name)
            if not plain:
                rough = True
        if role == before and role != "tool":
            reading.repeats = True
        if role == "system" or role == "developer":  # noqa: PLR1714 - compared one by one, it costs half
            reading.late_system = reading.late_system or before not in ("", "system", "developer")
            reading.has_developer = reading.has_developer or role == "developer"
        before = role
        turns.append((role, name, content, at))
    reading.rough = rough or bool(waiting)
    reading.metadata |= {
        at: item.metadata for at, item in enumerate(messages) if isinstance(item, Msg) and item.metadata
    }
    last = reading.metadata.get(len(turns) - 1, {})
    reading.prefill = before == "assistant" and True in map(last.get, PREFILL)
    return reading


def _plain_blocks(role: Role, blocks: tuple[Block, ...], waiting: dict[str, str], ids: dict[str, str]) -> bool:
    """Whether the blocks of a turn can be written as they are; calls wait from now on, and results end the wait."""
    if role == "tool":
        fine = bool(blocks)
        for result in blocks:
            if not isinstance(result, ToolResultBlock):
                fine = False
                continue
            # Results stand in the order of their calls.
            named = result.id == next(iter(waiting), None) and result.name == waiting[result.id]
            if not named or not isinstance(result.output, str) or result.is_error:
                fine = False
            waiting.pop(result.id, None)
        return fine
    if waiting:
        return False
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            if role != "assistant" or block.id in ids or block.raw_input is not None or block.signature:
                return False
            waiting[block.id] = ids[block.id] = block.name
        # Text behind a call is written before it, or as a turn of its own.
        elif not isinstance(block, TextBlock) or waiting or block.signature or not block.text or block.text.isspace():
            return False
    return bool(blocks)


def _dict_turn(item: Fields, at: int, waiting: dict[str, str], reading: Reading) -> tuple[Role, str, Content, bool]:
    """Return the turn of an OpenAI dict, and True if it can be written as it is."""
    try:
        plain = _plain_turn(item, waiting, reading.ids)
    except (AttributeError, LookupError, TypeError, ValueError, StopIteration):
        plain = None  # what is wrong with it, if anything is, the careful reading says
    return plain or _careful_turn(item, at, waiting, reading)


def _plain_turn(item: Fields, waiting: dict[str, str], ids: dict[str, str]) -> tuple[Role, str, Content, bool] | None:
    """Return the turn of an OpenAI dict of a plain shape, or None.

    Raises:
        LookupError: It has no plain shape (or AttributeError, TypeError, ValueError, StopIteration).
    """
    role, content = item.get("role"), item.get("content")
    if isinstance(content, str):
        if not (content.isascii() or well_formed(content, "", HistoryError)):
            return None
        if len(item) == 2:  # noqa: PLR2004 - role and content
            fine = not waiting and not content.isspace() and content != ""
            return _SPEAKERS[role], "", content, fine  # type: ignore[index]  # what is no role is no key
        call_id = item["tool_call_id"]
        # The name, where there is one, is the tool's, which the call tells too.
        if role == "tool" and isinstance(call_id, str) and len(item) == 3 + isinstance(item.get("name"), str):
            in_order = len(waiting) == 1 or call_id == next(iter(waiting))
            return "tool", "", (trusted_result(call_id, waiting.pop(call_id), content),), in_order
    elif role == "assistant" and content is None and len(item) == 3 and not waiting and "content" in item:  # noqa: PLR2004 - and its calls
        used = len(ids)
        calls: Any = item["tool_calls"]
        blocks = tuple([_quick_call(call, waiting, ids) for call in calls])
        return "assistant", "", blocks, bool(blocks) and len(ids) == used + len(blocks)
    return None


def _careful_turn(item: Fields, at: int, waiting: dict[str, str], reading: Reading) -> tuple[Role, str, Content, bool]:
    """Return the turn of an OpenAI dict of any shape, and True if it can be written as it is.

    Raises:
        HistoryError: It is no message (or MediaError).
    """
    if not is_openai(item):
        raise _OtherFormError
    where = f"messages[{at}]"
    try:
        message = message_from_openai(item, where, list(waiting))
    except (HistoryError, MediaError) as error:
        raise error if str(error).startswith(where) else type(error)(f"{where}: {error}") from error
    if isinstance(message.content, str):
        fine = not waiting and not message.content.isspace() and message.content != ""
    else:
        fine = _plain_blocks(message.role, message.content, waiting, reading.ids)
    if message.metadata:
        reading.metadata[at] = message.metadata
    # A dict without a name has none; as a Msg it would be called what its role is. That of a result is the tool's.
    name = message.name if item.get("name") and message.role != "tool" else ""
    return message.role, name, message.content, fine and message.url is None


_SPEAKERS: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


def _quick_call(call: dict[str, Any], waiting: dict[str, str], ids: dict[str, str]) -> ToolUseBlock:
    """A call whose arguments are plain JSON; it waits for its result from now on.

    Raises:
        ValueError: They are not (or AttributeError, LookupError, TypeError, StopIteration: it is no plain call).
    """
    function = call["function"]
    call_id, name, arguments = call["id"], function["name"], function["arguments"]
    # Half of a surrogate pair can hide in an escape; what is nested too deep, or too long a number, in a long text.
    if (
        not (arguments.isascii() and name.isascii() and call_id.isascii())
        or len(arguments) > _LONG
        or "\\" in arguments
    ):
        raise ValueError("not plain")
    value, end = _scan(arguments, 0)
    if value.__class__ is not dict or end != len(arguments) or not name:
        raise ValueError("not plain")
    waiting[call_id] = ids[call_id] = name
    return trusted_call(call_id, name, value)


def _refuse(constant: str) -> NoReturn:
    raise JSONDecodeError("no JSON", constant, 0)


# Within so many signs nothing can be nested deeper than is allowed, and no integer be too long to be written.
_LONG = 400
# It stops the iteration where there is no JSON at all.
_scan: Callable[[str, int], tuple[Any, int]] = JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined]  # the stubs leave it out
