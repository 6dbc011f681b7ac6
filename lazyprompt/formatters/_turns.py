"""Messages in any accepted form, read into turns: the values that every later step works on.

A turn is a plain tuple, for there are many of them. Reading also notes which turns need which kind of work, so that
each step touches only those.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from lazyprompt.errors import FormatError, HistoryError, MediaError
from lazyprompt.messages.msg import Msg, TextBlock, ToolResultBlock, ToolUseBlock, UnsharedCall, plain_block, result_of
from lazyprompt.messages.read_openai import plain_fields, read_fields
from lazyprompt.messages.reading import MARKS, is_openai, message_fields, read_history, without_role_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Fields, Json
    from lazyprompt._base.roles import Role
    from lazyprompt.formatters.profile import Content, HistoryStyle, Layout, Profile, Turn
    from lazyprompt.formatters.report import Notes
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.history import HistoryLike, MessageObject, Pair
    from lazyprompt.messages.msg import Base64Source, Block, URLSource

MessageLike: TypeAlias = "Msg | Fields"
Messages: TypeAlias = "MessageLike | Pair | MessageObject | HistoryLike | None"


_MESSAGES = frozenset({Msg, dict})
# The keys that mark the beginning of an answer, which the model goes on with.
PREFILL = ("prefix", "partial")


def blocks_of(content: Content) -> tuple[Block, ...]:
    """Return a content as blocks, plain text as one of them."""
    return content if isinstance(content, tuple) else (plain_block(content),) if content else ()


def tools_called(turns: Iterable[Turn]) -> dict[str, str]:
    """Return the tools that turns call, by the ids of the calls: a result need not name its own."""
    return {
        block.id: block.name
        for turn in turns
        if isinstance(turn[2], tuple)
        for block in turn[2]
        if isinstance(block, ToolUseBlock)
    }


def calls_tools(content: Content) -> bool:
    """Return True if there is a call in a content."""
    return isinstance(content, tuple) and any(isinstance(block, ToolUseBlock) for block in content)


@dataclass(slots=True)
class Reading:
    """The turns of a conversation, and the work that they may need.

    Attributes:
        messages: The messages, each as it was given.
        turns: One for each message.
        unusual: The indices of messages that hold more than text, calls and results of text: empty texts, thoughts,
            media, signatures, failed tools. The provider's rules decide about them.
        urls: The addresses in ``url``, by the index of the message.
        has_late_system: True if system text stands behind the first message, or is the developer's.
        unordered: True if a result does not stand right behind its call, or a call's id was used before.
        media_in_results: True if a result holds media.
        ids: The ids of all tool calls, with the tools they call.
        metadata: The keys of messages beside role, name and content, by the index of the message.
        prefill: True if the last message is the beginning of the answer, marked with ``prefix`` or ``partial``.
        waiting: The calls without a result so far, by id, with the tool's name.
        cut: The number of messages that were left out, to keep to a budget.
    """

    messages: list[MessageLike]
    turns: list[Turn] = field(default_factory=list["Turn"])
    unusual: set[int] = field(default_factory=set[int])
    urls: dict[int, tuple[str, ...]] = field(default_factory=dict[int, "tuple[str, ...]"])
    has_late_system: bool = False
    unordered: bool = False
    media_in_results: bool = False
    ids: dict[str, str] = field(default_factory=dict[str, str])
    metadata: dict[int, Mapping[str, Json]] = field(default_factory=dict[int, "Mapping[str, Json]"])
    prefill: bool = False
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    cut: int = 0

    def only(self, kept: Sequence[int]) -> Reading:
        """Return the reading of some of the messages, by their indices; the work noted is that of all of them."""
        if len(kept) == len(self.turns):
            return self
        shorter = copy(self)
        shorter.turns = [self.turns[at] for at in kept]
        shorter.cut = len(self.turns) - len(kept)
        shorter.metadata = {at: self.metadata[at] for at in kept if at in self.metadata}
        shorter.prefill = self.prefill and len(self.turns) - 1 in kept
        return shorter

    def add(
        self,
        name: str,
        content: Content,
        role: Role,
        url: str | tuple[str, ...] | None,
        metadata: Mapping[str, Json] | None,
    ) -> None:
        """Read the fields of the next message into a turn."""
        at = len(self.turns)
        if not isinstance(content, str):
            self._note_blocks(role, content, at)
            if role == "tool":
                name = ""  # it is the tool's, and the results have it
        else:
            if not content or content.isspace():
                self.unusual.add(at)
            # Nothing may stand between a call and its results, and a tool says nothing but results.
            if self.waiting or role == "tool":
                self.unordered = True
        if url is not None:
            self.urls[at] = (url,) if isinstance(url, str) else url
            self.unusual.add(at)
            self.unordered = self.unordered or role != "user"
        if metadata:
            self.metadata[at] = metadata
        if (role == "system" and at) or role == "developer":
            self.has_late_system = True
        self.turns.append((role, name, content, at))

    def _note_blocks(self, role: Role, blocks: tuple[Block, ...], at: int) -> None:
        """Note the work that the blocks of a turn need."""
        waiting, is_tool = self.waiting, role == "tool"
        unusual, unordered = not blocks, bool(waiting) and not is_tool
        calls = False
        for block in blocks:
            if isinstance(block, ToolUseBlock):
                calls = True
                unordered = unordered or role != "assistant" or block.id in self.ids
                unusual = unusual or block.raw_input is not None or block.signature is not None
                waiting[block.id] = self.ids[block.id] = block.name
            elif isinstance(block, ToolResultBlock):
                unordered = unordered or not is_tool or block.id != next(iter(waiting), None)
                if block.is_error or type(block.output) is not str:
                    unusual = True
                    self.media_in_results = self.media_in_results or _holds_media(block)
                waiting.pop(block.id, None)
            else:
                # A tool says nothing but results, and whatever stands behind a call is written before it.
                unordered = unordered or is_tool or calls
                plain = isinstance(block, TextBlock) and block.text and not block.text.isspace() and not block.signature
                unusual = unusual or not plain
        if unusual:
            self.unusual.add(at)
        if unordered:
            self.unordered = True


Loaded: TypeAlias = "Mapping[URLSource, Base64Source]"


class Merging(NamedTuple):
    """The rule by which the messages of all speakers become histories in the user's turns.

    Attributes:
        layout: The place of the system text.
        style: The form of a history.
        single: True if a single message is written as a history too.
    """

    layout: Layout
    style: HistoryStyle
    single: bool


class Job(NamedTuple):
    """One conversation on its way to a payload.

    Attributes:
        reading: The conversation, and the work that it may need.
        profile: The provider's rules.
        notes: The report so far; steps add to it.
        resolver: The loader of media; None where nothing may be loaded.
        loaded: The media that were loaded.
        wanted: The media to load, each with the place where it is first met; None where they are loaded.
        merging: The rule by which speakers are merged; None where they are not.
        user_last: True if the last turn must be the user's or a tool's.
    """

    reading: Reading
    profile: Profile
    notes: Notes
    resolver: MediaResolver | None
    loaded: Loaded
    wanted: dict[URLSource, str] | None
    merging: Merging | None
    user_last: bool


def answering(result: ToolResultBlock, call_id: str, name: str) -> ToolResultBlock:
    """Return a result with the id and the name of the call that it answers."""
    if (result.id, result.name) == (call_id, name):
        return result
    if isinstance(result.output, str) and not result.is_error:
        return result_of(call_id, name, result.output)
    return replace(result, id=call_id, name=name)


def _holds_media(result: ToolResultBlock) -> bool:
    return isinstance(result.output, tuple) and any(block.kind != "text" for block in result.output)


def flat(messages: Iterable[Messages]) -> list[MessageLike]:
    """Return the messages of all arguments in one list; pairs become two messages, ``None`` none.

    Raises:
        FormatError: Something is neither a message nor a list of them.
    """
    items: list[object] = list(messages)
    if not _MESSAGES.issuperset(map(type, items)):
        items = list(_items(items))
    if not _MESSAGES.issuperset(map(type, items)):
        return [*without_role_names(items, read_history(items))]
    return cast("list[MessageLike]", items)


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


def read(messages: list[MessageLike]) -> Reading:
    """Read messages into turns.

    Args:
        messages: Msg and dicts; left as they are.

    Returns:
        The turns, and the work that they may need.

    Raises:
        HistoryError: A dict is no message (or MediaError).
    """
    reading = Reading(messages)
    where = ""
    try:
        for at, item in enumerate(messages):
            if isinstance(item, Msg):
                reading.add(item.name, item.content, item.role, item.url, item.metadata)
            elif fields := plain_fields(item):
                # A call with a star takes twice as long.
                name, content, role, url, metadata = fields
                reading.add(name, content, role, url, metadata)
            elif MARKS.isdisjoint(item) or is_openai(item):
                where = f"messages[{at}]"
                reading.add(*read_fields(item, where, reading.waiting, UnsharedCall))
            else:
                # Other forms are read as a whole: a message may be several items. Their errors name the places.
                where = ""
                return read([*without_role_names(messages, read_history(messages))])
    except (HistoryError, MediaError) as error:
        raise error if str(error).startswith(where) else type(error)(f"{where}: {error}") from error
    reading.unordered = reading.unordered or bool(reading.waiting)
    last = reading.metadata.get(len(messages) - 1, {})
    reading.prefill = reading.turns[-1][0] == "assistant" and True in map(last.get, PREFILL)
    return reading
