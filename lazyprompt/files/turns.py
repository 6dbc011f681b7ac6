"""The turns of a filled template: text, media, calls and results; and what of them leaves a prompt file.

A turn keeps the template's own text apart from values, so that flat text shows which parts to trust. The report of a
request lists what stays behind.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from lazyprompt.errors import PromptFileError
from lazyprompt.files.properties import MEDIA, MediaBlock, MediaInput, Thread
from lazyprompt.files.roles import Scanned, Section
from lazyprompt.messages.msg import Block, ImageBlock, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import address_of, source_of
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt._base.roles import Role
    from lazyprompt.files.spec import ToolSpec
    from lazyprompt.formatters.report import Notes


@dataclass(frozen=True, slots=True)
class TextItem:
    """Text.

    Args:
        parts: The template's own text, and values.
    """

    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class MediaItem:
    """A picture, sound, video or file.

    Args:
        block: The block.
        attributes: The attributes that the template gives it.
    """

    block: MediaBlock
    attributes: Mapping[str, Json] = field(default_factory=dict[str, "Json"])


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call of a tool.

    Args:
        call: The call as it is written: ``id``, ``type``, ``function`` with ``name`` and ``arguments``.
    """

    call: JsonObject


@dataclass(frozen=True, slots=True)
class ResultItem:
    """The result of a tool.

    Args:
        text: The result.
    """

    text: str


_BREAKS = "\n"
# Neither part holds a bracket of its own, so that no text takes long to search.
_MEDIUM = re.compile(r"!\[([^\[\]\n]*)\]\(([^()\s]*)\)")
_DETAILS = frozenset(("low", "high", "auto"))
_Piece = TypeVar("_Piece")
Item: TypeAlias = "TextItem | MediaItem | CallItem | ResultItem"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a prompt.

    Args:
        role: The role.
        items: The contents.
        attributes: The attributes of the section: ``name`` is the speaker's.
    """

    role: str
    items: tuple[Item, ...] = ()
    attributes: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    @property
    def only_text(self) -> TextItem | None:
        """The turn's text, or None if it has other contents."""
        first = self.items[0] if self.items else TextItem(())
        return first if len(self.items) <= 1 and isinstance(first, TextItem) else None


Step: TypeAlias = "Turn | Thread"
"""A part of a conversation: a turn, or a thread in its place."""


def steps_of(section: Section) -> Iterator[Step]:
    """Find the steps of a section: a thread in it divides it, media are parts of its turn.

    Args:
        section: The section.

    Yields:
        Turns and threads in turn. Text beside a thread is a turn if there is any.
    """
    role = section.role or "system"
    run: list[str] = []
    items: list[Item] = []
    has_threads = False
    # Beside a thread, white space around text is no part of it; elsewhere line breaks are not.
    before: str | None = _BREAKS
    for part in section.parts:
        held = part.held if isinstance(part, Value) else None
        if held is None:
            run.append(part)
            continue
        around = None if isinstance(held, Thread) else _BREAKS
        items += text_items(run, before, around)
        run, before = [], around
        if isinstance(held, Thread):
            if items:
                yield Turn(role, tuple(items), section.attributes)
            items, has_threads = [], True
            yield held
        elif isinstance(held, MediaInput):
            items.append(MediaItem(held.block))
    items += text_items(run, before)
    # An empty turn is one, too: the template has it.
    if items or not has_threads:
        yield Turn(role, tuple(items), section.attributes)


def text_items(parts: Sequence[str], before: str | None = _BREAKS, behind: str | None = _BREAKS) -> list[TextItem]:
    """Return parts as text, without the template's own line breaks around it; nothing where they are empty.

    Args:
        parts: The template's own text, and values.
        before: The characters that are taken away at the beginning; None is all white space.
        behind: The characters that are taken away at the end.
    """
    left = strip_parts(parts, before, behind)
    return [TextItem(tuple(left))] if left else []


def strip_parts(pieces: Iterable[_Piece], before: str | None = _BREAKS, behind: str | None = _BREAKS) -> list[_Piece]:
    """Return pieces without the template's own white space around them; arguments as of :func:`text_items`."""
    left = [piece for piece in pieces if piece]
    for at, strip, characters in ((0, str.lstrip, before), (-1, str.rstrip, behind)):
        while left and isinstance(end := left[at], str) and not isinstance(end, Value):
            if text := strip(end, characters):
                left[at] = cast("_Piece", text)
                break
            del left[at]
    return left


def attributes_without_type(section: Section) -> dict[str, Json]:
    """Return the attributes of a section but for its type."""
    return {key: value for key, value in section.attributes.items() if key != "type"}


def result_turn(section: Section) -> Turn:
    """Return the turn of a section that holds what a tool gave back."""
    text = "".join(item.text for item in text_items(section.parts))
    return Turn("tool", (ResultItem(text),), attributes_without_type(section))


_Medium: TypeAlias = "tuple[str, dict[str, Json]] | None"


def steps_with_media(
    section: Section, medium: Callable[[str, str], _Medium], address_of: Callable[[str], str] = str
) -> Iterator[Step]:
    """Find the steps of a section, with the media that its own text has in Markdown; what is in a value is text.

    Args:
        section: The section.
        medium: Gives the kind and the attributes of a medium, by the words in brackets and the address; None for text.
        address_of: Makes an address of one as it is written.
    """
    for step in steps_of(section):
        yield step if isinstance(step, Thread) else replace(step, items=tuple(_with_media(step, medium, address_of)))


def _with_media(turn: Turn, medium: Callable[[str, str], _Medium], address: Callable[[str], str]) -> Iterator[Item]:
    for item in turn.items:
        if not isinstance(item, TextItem):
            yield item
            continue
        filled = Scanned(item.parts)
        end = 0
        for match in _MEDIUM.finditer(filled.text) if "](" in filled.text else ():
            given = "".join(filled.between(*match.span(2)))
            if named := medium(match[1], given):
                yield from text_items(filled.between(end, match.start()))
                yield MediaItem(MEDIA[named[0]](source_of(address(given))), named[1])
                end = match.end()
        yield from text_items(filled.between(end, len(filled.text))) if end else [item]


def place_of_history(steps: Sequence[Step]) -> int | None:
    """Return the index of the thread without a name, which holds the history's place; None if there is none."""
    return next((index for index, step in enumerate(steps) if isinstance(step, Thread) and not step.name), None)


def with_history(steps: Sequence[Step], history: Sequence[Msg]) -> list[Step]:
    """Return a conversation with its history.

    Args:
        steps: Its turns and threads.
        history: The messages. They take the place of a thread without a name; else they stand before the last turn, if
            that is the user's, or at the end.
    """
    made = [*steps]
    at = place_of_history(made)
    if at is not None:
        made[at] = Thread("history", history, cast("Thread", made[at]).left_out)
        return made
    last = made[-1] if made else None
    end = len(made) - (isinstance(last, Turn) and last.role == "user")
    return [*made[:end], Thread("history", history), *made[end:]]


def messages_of(steps: Sequence[Step]) -> list[Msg]:
    """Return a conversation as messages; ``name`` is the speaker's, all other attributes are metadata.

    Args:
        steps: Its turns and threads.

    Raises:
        PromptFileError: A call or a result lacks a name or an id.
    """
    return [message for step in steps for message in (step.messages if isinstance(step, Thread) else (_message(step),))]


# The attributes that a message has a place for: the speaker; and of a result, its call and the name of its tool.
_PLACES = {"tool": frozenset(("name", "tool_call_id", "id"))}
_PLACES_OF_OTHERS = frozenset(("name",))


def _message(turn: Turn) -> Msg:
    only = turn.only_text
    content: str | list[Block] = only.text if only is not None else [_block(item, turn) for item in turn.items]
    name = None if turn.role == "tool" else turn.attributes.get("name")
    places = _PLACES.get(turn.role, _PLACES_OF_OTHERS)
    metadata = {key: value for key, value in turn.attributes.items() if key not in places}
    message = Msg(str(name) if name else turn.role, content, cast("Role", turn.role), metadata=metadata)
    return message if name else message.without_speaker()


def _block(item: Item, turn: Turn) -> Block:
    match item:
        case TextItem():
            return TextBlock(item.text)
        case MediaItem(ImageBlock() as image, attributes):
            # A template may call it quality, too.
            detail = attributes.get("detail", attributes.get("quality"))
            return replace(image, detail=detail) if isinstance(detail, str) and detail in _DETAILS else image
        case MediaItem(block):
            return block
        case CallItem(call):
            return _call(call)
        case ResultItem(text):
            own_id = turn.attributes.get("tool_call_id") or turn.attributes.get("id")
            if not own_id:
                what = f'a {turn.role} turn answers a call: tell which, as {turn.role}[tool_call_id="..."]:'
                raise PromptFileError(what)
            return ToolResultBlock(str(own_id), str(turn.attributes.get("name") or ""), text)


def _call(call: JsonObject) -> ToolUseBlock:
    function = call.get("function")
    fields = function if isinstance(function, dict) else call
    name, arguments = fields.get("name"), fields.get("arguments", fields.get("input"))
    if not isinstance(name, str) or not name:
        raise PromptFileError("a tool_call has no name: it is function: {name: ..., arguments: ...}")
    if arguments is not None and not isinstance(arguments, dict):
        raise PromptFileError(f"the arguments of the tool_call {name!r} are a mapping")
    return ToolUseBlock(str(call.get("id") or ""), name, arguments or {})


def functions_of(specs: Sequence[ToolSpec], notes: Notes) -> list[JsonObject]:
    """Return the tools of a front matter that are functions, in OpenAI's form: no provider calls others.

    Args:
        specs: The tools.
        notes: The report that gets those that are no functions.
    """
    for at, spec in enumerate(specs):
        if spec.kind != "function":
            _note_tool(f"tools[{at}]", f"of the kind {spec.kind!r}", spec.name, notes)
    return [spec.function() for spec in specs if spec.kind == "function"]


def named_functions(tools: Sequence[Mapping[str, Json]], notes: Notes) -> list[JsonObject]:
    """Return the tools that a text names and that are functions, in OpenAI's form.

    Args:
        tools: The tools.
        notes: The report that gets those that are no functions.
    """
    found: list[JsonObject] = []
    for tool in tools:
        if isinstance(function := tool.get("function"), dict):
            found.append({"type": "function", "function": deepcopy(function)})
        else:
            name = str(tool.get("name") or tool.get("id") or "")
            _note_tool("tools", f"of the type {tool.get('type')!r}", name, notes)
    return found


def _note_tool(where: str, kind: str, name: str, notes: Notes) -> None:
    why = f"a tool {kind} is called by who runs the prompt: turn it into functions"
    notes.add(where, "tools", "left out", why, name)


def drop_own_attributes(steps: Iterable[Step], notes: Notes) -> list[Step]:
    """Return the turns of a prompt without the attributes that no message has a place for; threads stay whole.

    Args:
        steps: Turns and threads.
        notes: The report that gets those attributes.
    """
    found: list[Step] = []
    at = 0
    for step in steps:
        if isinstance(step, Thread):
            for what in step.left_out:
                notes.add(f"messages[{at}]", "metadata", "left out", f"{what} is the template's own")
            found.append(step)
            at += len(step.messages)
            continue
        places = _PLACES.get(step.role, _PLACES_OF_OTHERS)
        kept = {name: value for name, value in step.attributes.items() if name in places}
        for name in step.attributes:
            if name not in places:
                notes.add(f"messages[{at}]", "metadata", "left out", f"the attribute {name!r} is the template's own")
        found.append(step if len(kept) == len(step.attributes) else replace(step, attributes=kept))
        at += 1
    return found


def neutral_messages(steps: Sequence[Step]) -> list[JsonObject]:
    """Return a conversation in the neutral form.

    Args:
        steps: Its turns and threads.

    Returns:
        A dict for each message: ``role``, its attributes, ``content`` as text or as typed parts. The thoughts of a
        thread are not in it.
    """
    turns = (turn for step in steps for turn in (map(_turn_of, step.messages) if isinstance(step, Thread) else (step,)))
    return [*map(_neutral, turns)]


def _neutral(turn: Turn) -> JsonObject:
    only = turn.only_text
    content: Json = only.text if only is not None else [_part(item) for item in turn.items]
    # The call of a result has the name of the tool.
    kept = {key: value for key, value in turn.attributes.items() if turn.role != "tool" or key != "name"}
    return {**deepcopy(kept), "role": turn.role, "content": content}


def _turn_of(message: Msg) -> Turn:
    """Return a message of a thread as the turn of a template that says the same."""
    attributes: JsonObject = {}
    if message.role != "tool" and message.name not in ("", message.role):
        attributes["name"] = message.name
    results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
    if len(results) == 1:
        attributes["tool_call_id"] = results[0].id
    left = [block for block in message.blocks if not isinstance(block, ThinkingBlock)]
    if all(isinstance(block, TextBlock) for block in left):
        return Turn(message.role, (TextItem((message.text,)),), attributes)
    return Turn(message.role, tuple(map(_item_of, left)), attributes)


def _item_of(block: Block) -> Item:
    match block:
        case ToolUseBlock():
            function: JsonObject = {"name": block.name, "arguments": block.own_arguments()}
            return CallItem({"id": block.id, "type": "function", "function": function})
        case ToolResultBlock():
            return ResultItem(block.text)
        case ImageBlock(detail=str(detail)):
            return MediaItem(block, {"detail": detail})
        case TextBlock(text) | ThinkingBlock(text):
            return TextItem((text,))
        case _:
            return MediaItem(block)


def _part(item: Item) -> JsonObject:
    match item:
        case TextItem():
            return {"type": "text", "text": item.text}
        case CallItem(call):
            return {"type": "tool_call", "tool_call": deepcopy(call)}
        case ResultItem(text):
            return {"type": "tool_result", "tool_result": text}
        case MediaItem(block, attributes):
            kind = "image_url" if isinstance(block, ImageBlock) else block.type
            return {"type": kind, kind: {"url": address_of(block.source), **deepcopy(dict(attributes))}}
