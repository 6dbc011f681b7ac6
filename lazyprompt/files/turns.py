"""The turns of a filled template: text, media, calls and results; and what of them leaves a prompt file.

A turn keeps the template's own text apart from values, so that whoever writes it as flat text knows what to trust. The
report of a request tells what stays behind.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from lazyprompt.errors import PromptFileError
from lazyprompt.files.inputs import Medium, Thread
from lazyprompt.files.roles import sections
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import (
    AudioBlock,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    VideoBlock,
)
from lazyprompt.messages.openai_form import address_of
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt._base.roles import Role
    from lazyprompt.files.roles import Section
    from lazyprompt.files.spec import ToolSpec
    from lazyprompt.formatters.report import Notes
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Block


@dataclass(frozen=True, slots=True)
class TextItem:
    """Text.

    Args:
        parts: The template's own text, and values.
    """

    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture, sound, video or file.

    Args:
        block: The block.
        attributes: What the template says of it.
    """

    block: ImageBlock | AudioBlock | FileBlock | VideoBlock
    attributes: Mapping[str, Json] = field(default_factory=dict[str, "Json"])


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool.

    Args:
        call: As it is written: ``id``, ``type``, ``function`` with ``name`` and ``arguments``.
    """

    call: JsonObject


@dataclass(frozen=True, slots=True)
class Returned:
    """What a tool gave back.

    Args:
        said: The text.
    """

    said: TextItem


_BREAKS = "\n"
_DETAILS = frozenset(("low", "high", "auto"))
Item: TypeAlias = "TextItem | Shown | Called | Returned"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a prompt.

    Args:
        role: Who speaks.
        items: What is said.
        attributes: What is said beside it: ``name`` is the speaker's.
    """

    role: str
    items: tuple[Item, ...] = ()
    attributes: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    @property
    def only_text(self) -> TextItem | None:
        """The turn's text, where it says nothing else."""
        if not self.items:
            return TextItem(())
        only = self.items[0]
        return only if len(self.items) == 1 and isinstance(only, TextItem) else None


Step: TypeAlias = "Turn | Thread"
"""A part of a conversation: a turn, or a thread in its place."""


def steps_of(section: Section) -> Iterator[Step]:
    """The steps of a section: a thread in it divides it, media are parts of its turn.

    Args:
        section: The section.

    Yields:
        Turns and threads in turn. What stands beside a thread is a turn if it says something.
    """
    role = section.role or "system"
    run: list[str] = []
    items: list[Item] = []
    threads = 0
    # What stands around text here: beside a thread, its white space is no part of it.
    before: str | None = _BREAKS
    for part in section.parts:
        held = part.held if isinstance(part, Value) else None
        if held is None:
            run.append(part)
            continue
        is_thread = isinstance(held, Thread)
        items += text_items(run, before, None if is_thread else _BREAKS)
        run = []
        before = None if is_thread else _BREAKS
        if isinstance(held, Thread):
            if items:
                yield Turn(role, tuple(items), section.attributes)
                items = []
            threads += 1
            yield held
        elif isinstance(held, Medium):
            items.append(Shown(held.block))
    items += text_items(run, before)
    # An empty turn is one, too: the template has it.
    if items or not threads:
        yield Turn(role, tuple(items), section.attributes)


def text_items(parts: Sequence[str], before: str | None = _BREAKS, behind: str | None = _BREAKS) -> list[TextItem]:
    """Parts as text, without the template's own line breaks around it; nothing where they are empty.

    Args:
        parts: The template's own text, and values.
        before: The signs that are taken away at the beginning; None is all white space.
        behind: The same of the end.
    """
    left = [part for part in parts if part]
    while left and not isinstance(left[0], Value) and not left[0].lstrip(before):
        del left[0]
    while left and not isinstance(left[-1], Value) and not left[-1].rstrip(behind):
        del left[-1]
    if left and not isinstance(left[0], Value):
        left[0] = left[0].lstrip(before)
    if left and not isinstance(left[-1], Value):
        left[-1] = left[-1].rstrip(behind)
    return [TextItem(tuple(left))] if left else []


def place_of_history(steps: Sequence[Step]) -> int | None:
    """Return the index of the thread without a name, which holds the history's place; None if there is none."""
    return next((index for index, step in enumerate(steps) if isinstance(step, Thread) and not step.name), None)


def with_history(steps: Sequence[Step], history: Sequence[Msg]) -> list[Step]:
    """A conversation with what was said before it.

    Args:
        steps: Its turns and threads.
        history: What was said before. It stands where a thread without a name holds its place; else before the last
            turn, if that is the user's, or at the end.
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
    """A conversation as messages.

    Args:
        steps: Its turns and threads.
    """
    found: list[Msg] = []
    for step in steps:
        if isinstance(step, Thread):
            found += step.messages
        else:
            found.append(message_of(step))
    return found


def message_of(turn: Turn) -> Msg:
    """A turn as a message; ``name`` is the speaker's, all other attributes are its metadata.

    Args:
        turn: The turn.

    Raises:
        PromptFileError: A call or a result in it lacks what it needs.
    """
    only = turn.only_text
    content: str | list[Block] = only.text if only is not None else [_block(item, turn) for item in turn.items]
    # What is said of a result, whose it is and of which tool, its block has.
    told = ("name", "tool_call_id", "id") if turn.role == "tool" else ("name",)
    name = None if turn.role == "tool" else turn.attributes.get("name")
    metadata = {key: value for key, value in turn.attributes.items() if key not in told}
    return Msg(str(name) if name else turn.role, content, cast("Role", turn.role), metadata=metadata)


def _block(item: Item, turn: Turn) -> Block:
    if isinstance(item, TextItem):
        return TextBlock(item.text)
    if isinstance(item, Shown):
        return _shown(item)
    if isinstance(item, Called):
        return _call(item.call)
    own_id = turn.attributes.get("tool_call_id") or turn.attributes.get("id")
    if not own_id:
        raise PromptFileError(f'a {turn.role} turn answers a call: tell which, as {turn.role}[tool_call_id="..."]:')
    return ToolResultBlock(str(own_id), str(turn.attributes.get("name") or ""), item.said.text)


def _shown(item: Shown) -> Block:
    """The block of a medium; how closely a picture is to be looked at, the template may say as detail or quality."""
    detail = item.attributes.get("detail", item.attributes.get("quality"))
    if isinstance(item.block, ImageBlock) and isinstance(detail, str) and detail in _DETAILS:
        return replace(item.block, detail=detail)
    return item.block


def _call(call: JsonObject) -> ToolUseBlock:
    function = call.get("function")
    fields = function if isinstance(function, dict) else call
    name, arguments = fields.get("name"), fields.get("arguments", fields.get("input"))
    if not isinstance(name, str) or not name:
        raise PromptFileError("a tool_call has no name: it is function: {name: ..., arguments: ...}")
    if arguments is not None and not isinstance(arguments, dict):
        raise PromptFileError(f"the arguments of the tool_call {name!r} are a mapping")
    return ToolUseBlock(str(call.get("id") or ""), name, cast("JsonObject", arguments or {}))


_MARK = re.compile(r"__PROMPTY_THREAD_[0-9a-f]{8}_(\w+?)__(?!\w)")


def messages_from_text(rendered: str, threads: Mapping[str, HistoryLike] | None = None) -> list[Msg]:
    """The messages of a filled template.

    Args:
        rendered: Its text, with lines that name roles. What stands before the first is the system's.
        threads: What was said in each thread, by the name of its input; it stands where the text has the thread's mark,
            ``__PROMPTY_THREAD_`` with eight hexadecimal digits, ``_``, the name, and ``__``. Any other mark is text.

    Returns:
        The messages.

    Raises:
        HistoryError: A thread is no list of messages.
    """
    rendered = rendered.replace("\r\n", "\n").replace("\r", "\n")
    given = {name: Thread(name, messages_from(thread)) for name, thread in (threads or {}).items()}
    parts: list[str] = []
    end = 0
    for mark in _MARK.finditer(rendered):
        thread = given.get(mark[1])
        if thread is not None:
            parts += (rendered[end : mark.start()], Value("", mark[1], thread))
            end = mark.end()
    parts.append(rendered[end:])
    return messages_of([step for section in sections(parts) for step in steps_of(section)])


# What of a turn's attributes a message has a place for: the speaker; and of a result, whose it is.
_PLACES = frozenset({"name"})
_PLACES_OF_RESULT = frozenset({"name", "tool_call_id", "id"})


def functions_of(specs: Sequence[ToolSpec], notes: Notes) -> list[JsonObject]:
    """The tools of a front matter that are functions, in OpenAI's form: no provider calls others.

    Args:
        specs: The tools.
        notes: Where those that are no functions are written down.
    """
    found: list[JsonObject] = []
    for at, spec in enumerate(specs):
        if spec.kind == "function":
            found.append(spec.function())
        else:
            _note_tool(f"tools[{at}]", f"of the kind {spec.kind!r}", spec.name, notes)
    return found


def named_functions(tools: Sequence[Mapping[str, Json]], notes: Notes) -> list[JsonObject]:
    """The tools that a text names and that are functions, in OpenAI's form.

    Args:
        tools: The tools.
        notes: Where those that are no functions are written down.
    """
    found: list[JsonObject] = []
    for tool in tools:
        if isinstance(tool.get("function"), dict):
            found.append({"type": "function", "function": deepcopy(tool["function"])})
        else:
            name = str(tool.get("name") or tool.get("id") or "")
            _note_tool("tools", f"of the type {tool.get('type')!r}", name, notes)
    return found


def _note_tool(where: str, kind: str, name: str, notes: Notes) -> None:
    why = f"a tool {kind} is called by who runs the prompt: turn it into functions"
    notes.add(where, "tools", "left out", why, name)


def as_sent(steps: Iterable[Step], notes: Notes) -> list[Step]:
    """The turns of a prompt without the attributes that no message has a place for; threads are their caller's.

    Args:
        steps: Turns and threads.
        notes: Where those attributes are written down.
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
        places = _PLACES_OF_RESULT if step.role == "tool" else _PLACES
        kept = {name: value for name, value in step.attributes.items() if name in places}
        if len(kept) == len(step.attributes):
            found.append(step)
        else:
            note_attributes((name for name in step.attributes if name not in places), at, notes)
            found.append(replace(step, attributes=kept))
        at += 1
    return found


def note_attributes(names: Iterable[str], at: int, notes: Notes) -> None:
    """Write down attributes that stay behind.

    Args:
        names: Their names.
        at: The message that has them.
        notes: Where they are written down.
    """
    for name in names:
        notes.add(f"messages[{at}]", "metadata", "left out", f"the attribute {name!r} is the template's own")


def neutral(steps: Sequence[Step]) -> list[JsonObject]:
    """A conversation in the neutral form.

    Args:
        steps: Its turns and threads.

    Returns:
        A dict for each message: ``role``, its attributes, ``content`` as text or as typed parts. The thoughts of a
        thread are not in it.
    """
    found: list[JsonObject] = []
    for step in steps:
        if isinstance(step, Thread):
            found += map(_of_thread, step.messages)
        else:
            found.append(_message(step))
    return found


def _message(turn: Turn) -> JsonObject:
    only = turn.only_text
    content: Json = only.text if only is not None else [_part(item) for item in turn.items]
    # Whose result it is, its call says.
    kept = {key: value for key, value in turn.attributes.items() if turn.role != "tool" or key != "name"}
    return {**deepcopy(kept), "role": turn.role, "content": content}


def _of_thread(message: Msg) -> JsonObject:
    """A message of a thread, with what a turn of the template that says the same would have."""
    made: JsonObject = {"role": message.role}
    if message.role != "tool" and message.name not in ("", message.role):
        made["name"] = message.name
    results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
    if len(results) == 1:
        made["tool_call_id"] = results[0].id
    said = [block for block in message.blocks if not isinstance(block, ThinkingBlock)]
    plain = all(isinstance(block, TextBlock) for block in said)
    content: Json = message.text if plain else [_part_of(block) for block in said]
    return {**made, "content": content}


def _part_of(block: Block) -> JsonObject:
    match block:
        case ToolUseBlock():
            function: JsonObject = {"name": block.name, "arguments": block.own_arguments()}
            return _call_part({"id": block.id, "type": "function", "function": function})
        case ToolResultBlock():
            return _result(block.text)
        case ImageBlock(detail=str(detail)):
            return _medium(block, {"detail": detail})
        case ImageBlock() | AudioBlock() | FileBlock() | VideoBlock():
            return _medium(block, {})
        case TextBlock(text) | ThinkingBlock(text):
            return _text(text)


def _part(item: Item) -> JsonObject:
    if isinstance(item, TextItem):
        return _text(item.text)
    if isinstance(item, Called):
        return _call_part(deepcopy(item.call))
    if isinstance(item, Shown):
        return _medium(item.block, item.attributes)
    return _result(item.said.text)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _call_part(call: JsonObject) -> JsonObject:
    return {"type": "tool_call", "tool_call": call}


def _result(text: str) -> JsonObject:
    return {"type": "tool_result", "tool_result": text}


def _medium(block: ImageBlock | AudioBlock | FileBlock | VideoBlock, attributes: Mapping[str, Json]) -> JsonObject:
    kind = "image_url" if isinstance(block, ImageBlock) else block.type
    return {"type": kind, kind: {"url": address_of(block.source), **deepcopy(dict(attributes))}}
