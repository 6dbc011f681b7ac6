"""The turns in a filled template (text, media, tool calls and results), and their conversion to messages.

A turn keeps values separate from the template's own text, because only that text is trusted. A request's report
lists the attributes and tools that messages can't represent.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, cast

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
    """A text item of a turn.

    Args:
        parts: The template's literal text and the inserted values, in order.
    """

    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The item's text with all values inserted."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class MediaItem:
    """An image, an audio clip, a video or a file in a turn.

    Args:
        block: The media block.
        attributes: The attributes in the label of the media link.
    """

    block: MediaBlock
    attributes: Mapping[str, Json] = field(default_factory=dict[str, "Json"])


@dataclass(frozen=True, slots=True)
class CallItem:
    """A tool call in a turn.

    Args:
        call: The tool call as written: a mapping with ``id``, ``type`` and ``function: {name, arguments}``.
    """

    call: JsonObject


@dataclass(frozen=True, slots=True)
class ResultItem:
    """A tool result in a turn.

    Args:
        text: The text of the tool result.
    """

    text: str


_BREAKS = "\n"
# The groups exclude closing brackets, so that the search takes linear time.
_MEDIUM = re.compile(r"!\[([^\[\]\n]*)\]\(([^()\s]*)\)")
# The levels of detail at which a model reads an image.
_DETAILS = ("low", "high", "auto")
Item: TypeAlias = "TextItem | MediaItem | CallItem | ResultItem"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn in a prompt.

    Args:
        role: The turn's role.
        items: The turn's contents.
        attributes: The section's attributes. The attribute ``name`` is the speaker's name.
    """

    role: str
    items: tuple[Item, ...] = ()
    attributes: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    @property
    def only_text(self) -> TextItem | None:
        """The turn's text, or None if the turn contains anything other than one text item."""
        first = self.items[0] if self.items else TextItem(())
        return first if len(self.items) <= 1 and isinstance(first, TextItem) else None


Step: TypeAlias = "Turn | Thread"
"""A part of a conversation: a turn, or a thread of several messages."""


def steps_of(section: Section) -> Iterator[Step]:
    """Yield a section's turns and threads (inserted message lists).

    Args:
        section: The section to convert.

    Yields:
        The section's threads, and a turn for the text and media before, between and after the threads.
    """
    role = section.role or "system"
    run: list[str] = []
    items: list[Item] = []
    has_threads = False
    # Next to an inserted thread, strip all white space. At the section's ends and next to media, strip only line
    # breaks.
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
    if items or not has_threads:
        yield Turn(role, tuple(items), section.attributes)


def text_items(parts: Sequence[str], before: str | None = _BREAKS, behind: str | None = _BREAKS) -> list[TextItem]:
    """Return a list with one stripped text item, or an empty list if no text remains after stripping.

    Args:
        parts: The template's literal text and the inserted values, in order.
        before: The characters to strip from the start of the text, or None to strip all white space.
        behind: The characters to strip from the end of the text, or None to strip all white space.
    """
    left = _strip_parts(parts, before, behind)
    return [TextItem(tuple(left))] if left else []


def _strip_parts(parts: Iterable[str], before: str | None, behind: str | None) -> list[str]:
    """Strip characters from literal text at the start and end of the joined parts; keep inserted values unchanged."""
    left = [part for part in parts if part]
    for at, strip, characters in ((0, str.lstrip, before), (-1, str.rstrip, behind)):
        while left and not isinstance(end := left[at], Value):
            if text := strip(end, characters):
                left[at] = text
                break
            del left[at]
    return left


def attributes_without_type(section: Section) -> dict[str, Json]:
    """Return a section's attributes except ``type``."""
    return {key: value for key, value in section.attributes.items() if key != "type"}


def result_turn(section: Section) -> Turn:
    """Convert a section that contains a tool result to a turn."""
    text = "".join(item.text for item in text_items(section.parts))
    return Turn("tool", (ResultItem(text),), attributes_without_type(section))


_Medium: TypeAlias = "tuple[str, dict[str, Json]] | None"


def steps_with_media(
    section: Section, medium: Callable[[str, str], _Medium], address_of: Callable[[str], str] = str
) -> Iterator[Step]:
    """Yield a section's turns and threads (inserted message lists), with Markdown media links converted to blocks.

    Links in inserted values remain text.

    Args:
        section: The section to convert.
        medium: A function that returns a media link's kind and attributes from its label and URL, or None to
            keep the link as text.
        address_of: A function that converts the address in a media link to a URL or path, for example by removing a
            prefix.
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
    """Return the index of the step that the history replaces (a thread without a name), or None if there is none."""
    return next((index for index, step in enumerate(steps) if isinstance(step, Thread) and not step.name), None)


def with_history(steps: Sequence[Step], history: Sequence[Msg]) -> list[Step]:
    """Insert earlier messages into a conversation.

    Args:
        steps: The conversation's turns and threads, in order; a thread is a list of messages.
        history: The earlier messages, which replace the history section (a thread without a name). Without a history
            section, the messages are inserted before a final user turn, or at the end if the last turn isn't a user
            turn.
    """
    made = [*steps]
    at = place_of_history(made)
    if at is not None and isinstance(place := made[at], Thread):
        made[at] = Thread("history", history, place.left_out)
        return made
    last = made[-1] if made else None
    end = len(made) - (isinstance(last, Turn) and last.role == "user")
    return [*made[:end], Thread("history", history), *made[end:]]


def messages_of(steps: Sequence[Step]) -> list[Msg]:
    """Convert a conversation to messages.

    A turn's ``name`` attribute becomes the message's speaker name, and its other attributes become the message's
    metadata.

    Args:
        steps: The conversation's turns and threads, in order; a thread is a list of messages.

    Raises:
        PromptFileError: A tool call has no name, or a tool result has no id.
    """
    return [message for step in steps for message in (step.messages if isinstance(step, Thread) else (_message(step),))]


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
            name = _detail_name(attributes)
            return replace(image, detail=str(attributes[name])) if name else image
        case MediaItem(block):
            return block
        case CallItem(call):
            return _call(call)
        case ResultItem(text):
            own_id = turn.attributes.get("tool_call_id") or turn.attributes.get("id")
            if not own_id:
                what = f'a {turn.role} turn needs the id of its tool call: {turn.role}[tool_call_id="..."]:'
                raise PromptFileError(what)
            return ToolResultBlock(str(own_id), str(turn.attributes.get("name") or ""), text)


def _detail_name(attributes: Mapping[str, Json]) -> str | None:
    """Return the name of the attribute that sets an image's level of detail, or None if there is no valid one."""
    return next((name for name in ("detail", "quality") if attributes.get(name) in _DETAILS), None)


def _call(call: JsonObject) -> ToolUseBlock:
    function = call.get("function")
    fields = function if isinstance(function, dict) else call
    name, arguments = fields.get("name"), fields.get("arguments", fields.get("input"))
    if not isinstance(name, str) or not name:
        raise PromptFileError("a tool_call has no name; write function: {name: ..., arguments: ...}")
    if arguments is not None and not isinstance(arguments, dict):
        raise PromptFileError(f"the arguments of the tool_call {name!r} must be a mapping")
    return ToolUseBlock(str(call.get("id") or ""), name, arguments or {})


def functions_of(specs: Sequence[ToolSpec], notes: Notes) -> list[JsonObject]:
    """Return the front matter's function tools in OpenAI's format; providers don't support other kinds of tools.

    Args:
        specs: The tools in the front matter.
        notes: The report, which receives an entry for each tool that isn't a function.
    """
    for at, spec in enumerate(specs):
        if spec.kind != "function":
            _note_tool(f"tools[{at}]", f"of kind {spec.kind!r}", spec.name, notes)
    return [spec.function() for spec in specs if spec.kind == "function"]


def named_functions(tools: Sequence[Mapping[str, Json]], notes: Notes) -> list[JsonObject]:
    """Return the function tools defined in a template's text, in OpenAI's format.

    Args:
        tools: The tools defined in the template's text.
        notes: The report, which receives an entry for each tool that isn't a function, and for other keys of functions.
    """
    found: list[JsonObject] = []
    for tool in tools:
        if isinstance(function := tool.get("function"), dict):
            found.append({"type": "function", "function": deepcopy(function)})
            for key, value in tool.items():
                if key not in ("type", "function"):
                    # The runtime finds a tool by its id, as a model does by its name, so dropping the id is no loss.
                    kind = "name" if key == "id" else "tools"
                    notes.add("tools", kind, "left out", f"{key!r} of a tool is only for the runtime", str(value))
        else:
            name = str(tool.get("name") or tool.get("id") or "")
            _note_tool("tools", f"of type {tool.get('type')!r}", name, notes)
    return found


def _note_tool(where: str, kind: str, name: str, notes: Notes) -> None:
    why = f"a tool {kind} is called by the runtime, not by the model: convert it to functions"
    notes.add(where, "tools", "left out", why, name)


def drop_own_attributes(steps: Iterable[Step], notes: Notes) -> list[Step]:
    """Return the turns and threads without the attributes that messages can't represent.

    Args:
        steps: The conversation's turns and threads, in order; a thread is a list of messages.
        notes: The report, which receives an entry for each attribute, and each key of a tool call, that isn't sent.
    """
    found: list[Step] = []
    at = 0
    for step in steps:
        if isinstance(step, Thread):
            for what in step.left_out:
                notes.add(f"messages[{at}]", "metadata", "left out", f"{what} is not part of a message")
            found.append(step)
            at += len(step.messages)
            continue
        places = _PLACES.get(step.role, _PLACES_OF_OTHERS)
        kept = {name: value for name, value in step.attributes.items() if name in places}
        dropped = (f"the attribute {name!r}" for name in step.attributes if name not in places)
        for what in (*dropped, *chain.from_iterable(map(_unsent_fields, step.items))):
            notes.add(f"messages[{at}]", "metadata", "left out", f"{what} is not part of a message")
        found.append(step if len(kept) == len(step.attributes) else replace(step, attributes=kept))
        at += 1
    return found


def _unsent_fields(item: Item) -> Iterator[str]:
    """Yield the attributes of a media link, or the keys of a tool call, that content blocks can't represent."""
    if isinstance(item, MediaItem):
        used = _detail_name(item.attributes) if isinstance(item.block, ImageBlock) else None
        yield from (f"the attribute {name!r} of the {item.block.kind}" for name in item.attributes if name != used)
    elif isinstance(item, CallItem):
        outer = {key: value for key, value in item.call.items() if key not in ("id", "type", "function")}
        function = item.call.get("function")
        fields = function if isinstance(function, dict) else outer
        known = ("name", "arguments" if "arguments" in fields else "input")
        unsent = [*(outer if fields is function else ()), *(key for key in fields if key not in known)]
        yield from (f"the key {key!r} of the tool call" for key in unsent)


def neutral_messages(steps: Sequence[Step]) -> list[JsonObject]:
    """Convert a conversation to Prompty's neutral format.

    Args:
        steps: The conversation's turns and threads, in order; a thread is a list of messages.

    Returns:
        One dict per message, with ``role``, the turn's attributes, and ``content`` as text or typed parts. Thinking
        blocks in a thread's messages are omitted.
    """
    turns = (turn for step in steps for turn in (map(_turn_of, step.messages) if isinstance(step, Thread) else (step,)))
    return [*map(_neutral, turns)]


def _neutral(turn: Turn) -> JsonObject:
    only = turn.only_text
    content: Json = only.text if only is not None else [_part(item) for item in turn.items]
    # Omit the tool's name, because the tool call already contains the name.
    kept = {key: value for key, value in turn.attributes.items() if turn.role != "tool" or key != "name"}
    return {**deepcopy(kept), "role": turn.role, "content": content}


def _turn_of(message: Msg) -> Turn:
    """Convert a message from a thread (an inserted message list) to the equivalent turn."""
    attributes: JsonObject = {}
    if message.name not in ("", message.role):
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
