"""The format and rules of DashScope's own API for Qwen, in which each content part has a single key.

Source: the API references for Generation and MultiModalConversation. According to these references, the content of a
message with only tool calls is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lazyprompt._base.client_objects import fields_of
from lazyprompt.formatters._answers import from_dashscope
from lazyprompt.formatters.chat_form import ChatForm, call_shape, chat_shape, json_text
from lazyprompt.formatters.profile import HistoryLayout, Media, MediaKind, Profile
from lazyprompt.formatters.shape import BlockView, Check, Fault, Path, Spec, check_of, list_of, text_of_json, text_or
from lazyprompt.messages.msg import Block, MediaBlock, text_of
from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import JsonObject


@dataclass(frozen=True, slots=True)
class DashScopeForm(ChatForm):
    """DashScope's format, in which each content part has one key: ``text``, ``image``, ``audio`` or ``video``."""

    def part(self, block: Block) -> JsonObject:
        """Write a block as a part with a single key."""
        if isinstance(block, MediaBlock):
            return {block.kind: address_of(block.source)}
        return {"text": text_of((block,))}

    def shape(self, profile: Profile) -> Check:
        """Return a check for messages whose content is text or a list of parts with a single key."""
        parts = list_of(_one_key("text", *profile.media), 1)
        content = parts if self.lists else text_or(parts)
        return chat_shape(content, content, list_of(call_shape(json_text), 1), profile)

    def block_view(self, part: Mapping[str, Any], path: Path) -> BlockView:
        """Return a ``BlockView`` of a content part."""
        for kind in _KINDS:
            if kind in part:
                return kind, path, text_of_json(part[kind]), None
        return "text", path, text_of_json(part.get("text")), None

    parse = staticmethod(from_dashscope)


_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video")


# The optional keys of a media part: settings for video frames and image sizes, and a cache breakpoint.
_BESIDE: dict[str, Spec] = dict.fromkeys(
    ("fps?", "max_frames?", "min_pixels?", "max_pixels?", "total_pixels?", "cache_control?"), "any"
)


def _one_key(*kinds: str) -> Check:
    """Build a check for a content part with exactly one content key and optional settings; ``text`` may be null."""
    known = check_of({f"{kind}?": "text|null" if kind == "text" else "any" for kind in kinds} | _BESIDE)

    def check(value: object) -> Sequence[Fault]:
        faults = known(value)
        if not faults and len(fields_of(value).keys() & kinds) != 1:
            return [((), "must have exactly one content key", f"use one of {', '.join(kinds)}")]
        return faults

    return check


DASHSCOPE = Profile(
    name="dashscope",
    form=DashScopeForm(no_text=[{"text": None}], named_results=True),
    source="https://help.aliyun.com/zh/model-studio/qwen-api-reference/",
    media={kind: Media((f"{kind}/*",), schemes=("oss",), opaque=True, system=True) for kind in _KINDS},
    system="first",
    alternate=True,
    user_first=True,
    user_last=True,
    prefill="partial",
    needs_user=True,
    strict_tools=False,
    layouts={"conversation": HistoryLayout("joined"), "dialogue": HistoryLayout()},
)
DASHSCOPE_MULTIMODAL = DASHSCOPE.but(
    name="dashscope-multimodal",
    form=DashScopeForm(no_text=[{"text": None}], named_results=True, lists=True),
    source="https://help.aliyun.com/zh/model-studio/qwen-vl-api-via-dashscope",
    layouts={"conversation": HistoryLayout(), "dialogue": HistoryLayout()},
)
