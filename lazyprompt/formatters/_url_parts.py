"""Media as parts of the form ``{"type": "video_url", "video_url": {"url": ...}}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.msg import Block, VideoBlock


@dataclass(frozen=True, slots=True)
class UrlPart:
    """How a medium is written as a part of a kind, base64 as a ``data:`` address.

    Args:
        kind: The ``type`` of the part, and its other key.
    """

    kind: str

    def __call__(self, block: Block) -> JsonObject:
        """The part of a block."""
        return {"type": self.kind, self.kind: {"url": address_of(cast("VideoBlock", block).source)}}
