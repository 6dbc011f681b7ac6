"""The inputs of a prompt file: checked against what it declares, and made ready for its template."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from lazyprompt.errors import LazyPromptError, SlotError, did_you_mean
from lazyprompt.files.properties import RICH
from lazyprompt.media.resolver import sniffed
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import AudioBlock, Base64Source, FileBlock, ImageBlock, URLSource, VideoBlock
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.slots import Opaque

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyprompt.files.properties import Property
    from lazyprompt.messages.msg import Msg, Source

MEDIA: Final[Mapping[str, type[ImageBlock | AudioBlock | FileBlock | VideoBlock]]] = {
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
    """A thread in a template: a list of what was said, to go through; and the messages that stand in its place.

    Args:
        name: The input.
        messages: What was said.
        left_out: What its section says beside it, and no message can.
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
    block: ImageBlock | AudioBlock | FileBlock | VideoBlock


def checked_inputs(inputs: Mapping[str, object], declared: Sequence[Property]) -> dict[str, object]:
    """The inputs of a prompt, with defaults where nothing is given.

    Args:
        inputs: What is given. It stays as it is; what is not declared is let through.
        declared: What the prompt takes.

    Returns:
        A value for each input that is given or has a default.

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


def ready(
    values: Mapping[str, object], declared: Sequence[Property], absent: Callable[[str], object]
) -> dict[str, Any]:
    """Checked inputs as a template is given them: threads and media as what holds their place.

    Args:
        values: The inputs.
        declared: What the prompt takes.
        absent: What stands for an input, by its name, that is declared and not given: it is empty, and no error.

    Raises:
        LazyPromptError: A thread or a picture is none.
    """
    made: dict[str, Any] = {each.name: absent(each.name) for each in declared if each.name not in values}
    kinds = {each.name: each.kind for each in declared}
    for name, value in values.items():
        kind = kinds.get(name)
        made[name] = _rich(name, kind, value) if kind in RICH else value
    return made


def _rich(name: str, kind: str, value: object) -> Thread | Medium:
    if kind == "thread":
        try:
            return Thread(name, messages_from(cast("Any", value)))
        except LazyPromptError as error:
            raise type(error)(f"input {name}: {error}") from error
    block = MEDIA[kind]
    if isinstance(value, (ImageBlock, AudioBlock, FileBlock, VideoBlock)):
        return Medium(name, value)
    if isinstance(value, (URLSource, Base64Source)):
        return Medium(name, block(value))
    return Medium(name, block(_source_of(cast("str", value), kind)))


def _source_of(text: str, kind: str) -> Source:
    """Where the medium of a text is: an address, a ``data:`` address, or base64 whose first bytes tell what it is."""
    data = "".join(text.split()) if _BASE64.fullmatch(text) else ""
    if not data or len(data) % 4:
        return source_of(text)

    media_type = sniffed(a2b_base64(data[:_HEAD])) or ""
    fits = media_type if kind == "file" else media_type.startswith(f"{kind}/")
    return Base64Source(media_type, data) if fits else source_of(text)


def _misfits(value: object, declared: Property, where: str) -> Iterator[str]:
    """What is wrong with a value."""
    kind = declared.kind
    if value is None and declared.nullable:
        return
    if kind == "union":
        if declared.choices and not any(not [*_misfits(value, each, where)] for each in declared.choices):
            kinds = ", ".join(each.kind for each in declared.choices)
            yield f"{where} is {_shown(value)}, and must be one of: {kinds}"
        return
    if kind in RICH:
        yield from _rich_misfits(value, kind, where)
        return
    number = isinstance(value, bool) and kind in ("integer", "float")
    if number or not isinstance(value, _TYPES[kind]):
        yield f"{where} is {_shown(value)}, and must be of the kind {kind}"
        return
    if declared.enum_values and value not in declared.enum_values:
        yield f"{where} is {_shown(value)}, and must be one of {', '.join(map(repr, declared.enum_values))}"
    if not isinstance(value, str):
        yield from _misfits_within(value, declared, where)


def _misfits_within(value: object, declared: Property, where: str) -> Iterator[str]:
    """What is wrong with the items of an array, or the properties of an object."""
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


def _rich_misfits(value: object, kind: str, where: str) -> Iterator[str]:
    if kind == "thread":
        if not isinstance(value, list | tuple):
            yield f"{where} is {_shown(value)}, and must be a thread: a list of messages"
        return
    blocks = (ImageBlock, AudioBlock, FileBlock, VideoBlock)
    if isinstance(value, bytes):
        made = MEDIA[kind].__name__
        yield f"{where} is bytes; give a {made}(Base64Source(media_type, data)), or {made}.from_file(path)"
    elif not isinstance(value, (str, URLSource, Base64Source, *blocks)) or value == "":
        yield f"{where} is {_shown(value)}, and must be of the kind {kind}: an address, a source or a block"


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
