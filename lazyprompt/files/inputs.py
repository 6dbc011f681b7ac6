"""The inputs of a prompt file: checked against what it declares, and made ready for its template."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from lazyprompt.errors import LazyPromptError, SlotError, did_you_mean
from lazyprompt.files.properties import RICH
from lazyprompt.media.resolver import sniffed
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import AudioBlock, Base64Source, FileBlock, ImageBlock, URLSource, VideoBlock
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.slots import Opaque

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.files.properties import Property
    from lazyprompt.messages.msg import Msg, Source

MediaBlock: TypeAlias = ImageBlock | AudioBlock | FileBlock | VideoBlock

MEDIA: Final[Mapping[str, type[MediaBlock]]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "file": FileBlock,
    "video": VideoBlock,
}
"""The blocks of media, by their names."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
}
_SHOWN = 60
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++={0,2}+\s*+")
# As much of it as tells what it is.
_HEAD = 120


class Thread(list[dict[str, str]], Opaque):
    """A thread in a template: a list of messages to loop over, and the messages that stand in its place.

    Args:
        name: The input.
        messages: The messages.
        left_out: The parts of its section that no message has a place for.
    """

    __slots__ = ("left_out", "messages", "name")

    def __init__(self, name: str, messages: Sequence[Msg], left_out: tuple[str, ...] = ()) -> None:
        super().__init__({"role": each.role, "name": each.name, "content": each.text} for each in messages)
        self.name, self.messages, self.left_out = name, tuple(messages), left_out


@dataclass(frozen=True, slots=True)
class Medium(Opaque):
    """A picture, sound, video or file in a template.

    Args:
        name: The input.
        block: The block that stands in its place.
    """

    name: str
    block: MediaBlock


def checked_inputs(inputs: Mapping[str, object], declared: Sequence[Property]) -> dict[str, object]:
    """Return the inputs of a prompt, with defaults where nothing is given.

    Args:
        inputs: The given ones, which stay as they are; those that are not declared are let through.
        declared: The declared ones.

    Raises:
        SlotError: A required one is missing, or a value is not of its kind; all faults are listed.
    """
    given: dict[str, object] = dict(inputs)
    faults: list[str] = []
    for each in declared:
        value = given.get(each.name)
        if value is None and not (each.nullable and each.name in given):
            given.pop(each.name, None)
            if each.default is not None:
                given[each.name] = each.own_default()
            elif each.required:
                near = did_you_mean(each.name, [name for name in given if all(name != one.name for one in declared)])
                faults.append(f"Missing required input: {each.name}{near}")
        else:
            faults += _misfits(value, each, each.name)
    if faults:
        raise SlotError("; ".join(faults))
    return given


def rich_value(name: str, kind: str, value: object) -> Thread | Medium:
    """Return an input that is a thread or a medium as what holds its place in a template.

    Raises:
        LazyPromptError: It is none.
    """
    if kind == "thread":
        try:
            return Thread(name, messages_from(cast("Any", value)))
        except LazyPromptError as error:
            raise type(error)(f"input {name}: {error}") from error
    if isinstance(value, MediaBlock):
        return Medium(name, value)
    source = value if isinstance(value, (URLSource, Base64Source)) else _source_of(cast("str", value), kind)
    return Medium(name, MEDIA[kind](source))


def _source_of(text: str, kind: str) -> Source:
    """Return the source of a text: an address, a ``data:`` address, or base64 whose first bytes tell what it is."""
    data = "".join(text.split()) if _BASE64.fullmatch(text) else ""
    media_type = (sniffed(a2b_base64(data[:_HEAD])) or "") if data and len(data) % 4 == 0 else ""
    fits = media_type if kind == "file" else media_type.startswith(f"{kind}/")
    return Base64Source(media_type, data) if fits else source_of(text)


def _misfits(value: object, declared: Property, where: str) -> Iterator[str]:
    """Find the faults of a value."""
    kind = declared.kind
    if value is None and declared.nullable:
        return
    if kind == "union":
        if declared.choices and all([*_misfits(value, each, where)] for each in declared.choices):
            kinds = ", ".join(each.kind for each in declared.choices)
            yield f"{where} is {_shown(value)}, and must be one of: {kinds}"
    elif kind in RICH:
        yield from _rich_misfits(value, kind, where)
    elif not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "float")):
        yield f"{where} is {_shown(value)}, and must be of the kind {kind}"
    else:
        if declared.enum_values and value not in declared.enum_values:
            yield f"{where} is {_shown(value)}, and must be one of {', '.join(map(repr, declared.enum_values))}"
        if not isinstance(value, str):
            yield from _misfits_within(value, declared, where)


def _rich_misfits(value: object, kind: str, where: str) -> Iterator[str]:
    if kind == "thread":
        if not isinstance(value, list | tuple):
            yield f"{where} is {_shown(value)}, and must be a thread: a list of messages"
    elif isinstance(value, bytes):
        made = MEDIA[kind].__name__
        yield f"{where} is bytes; give a {made}(Base64Source(media_type, data)), or {made}.from_file(path)"
    elif not isinstance(value, (str, URLSource, Base64Source, MediaBlock)) or value == "":
        yield f"{where} is {_shown(value)}, and must be of the kind {kind}: an address, a source or a block"


def _misfits_within(value: object, declared: Property, where: str) -> Iterator[str]:
    """Find the faults of the items of an array, or the properties of an object."""
    if declared.items is not None and isinstance(value, list | tuple):
        for index, item in enumerate(cast("Sequence[object]", value)):
            yield from _misfits(item, declared.items, f"{where}[{index}]")
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        for each in declared.properties:
            if each.name in fields:
                yield from _misfits(fields[each.name], each, f"{where}.{each.name}")
            elif each.required:
                yield f"Missing required input: {where}.{each.name}"


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
