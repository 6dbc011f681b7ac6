"""The neutral form of a conversation: no provider's, with the typed content that agent definitions have."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from lazyprompt.files.inputs import Thread
from lazyprompt.files.turns import Called, Said, Shown
from lazyprompt.messages import Base64Source, ImageBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt._json import Json, JsonObject
    from lazyprompt.files.turns import Item, Step, Turn


def neutral(steps: Sequence[Step]) -> list[JsonObject]:
    """A conversation in the neutral form.

    Args:
        steps: Its turns and threads.

    Returns:
        A dict for each message: ``role``, its attributes, ``content`` as text or as typed parts.
    """
    found: list[JsonObject] = []
    for step in steps:
        if isinstance(step, Thread):
            found += [{"role": each.role, "content": each.text} for each in step.messages]
        else:
            found.append(_message(step))
    return found


def _message(turn: Turn) -> JsonObject:
    only = turn.only_text
    content: Json = only.text if only is not None else [_part(item) for item in turn.items]
    # Whose result it is, its call says.
    kept = {key: value for key, value in turn.attributes.items() if turn.role != "tool" or key != "name"}
    return {**deepcopy(kept), "role": turn.role, "content": content}


def _part(item: Item) -> JsonObject:
    if isinstance(item, Said):
        return {"type": "text", "text": item.text}
    if isinstance(item, Called):
        return {"type": "tool_call", "tool_call": deepcopy(item.call)}
    if isinstance(item, Shown):
        kind = "image_url" if isinstance(item.block, ImageBlock) else item.block.type
        source = item.block.source
        address = f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64Source) else source.url
        return {"type": kind, kind: {"url": address, **deepcopy(dict(item.attributes))}}
    return {"type": "tool_result", "tool_result": item.said.text}
