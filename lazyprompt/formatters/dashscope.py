"""DashScope's own API (Qwen): OpenAI's messages with content of parts of one key each.

Source: the API references of Generation and MultiModalConversation; the documented form of a message that only calls
tools (its text is null).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.formatters._answers import from_dashscope
from lazyprompt.formatters.chat_form import ChatForm, call_shape, chat_shape, json_text
from lazyprompt.formatters.profile import Layout, Media, MediaKind, Profile
from lazyprompt.formatters.shape import Check, Fault, Path, Seen, Spec, check_of, listed, text_of_json, text_or
from lazyprompt.messages.msg import Block, ImageBlock, TextBlock
from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import JsonObject


@dataclass(frozen=True, slots=True)
class DashScopeForm(ChatForm):
    """Messages with content of parts ``{"text": ...}``, ``{"image": ...}``, ``{"audio": ...}``, ``{"video": ...}``."""

    def part(self, block: Block) -> JsonObject:
        """Write a block as a part of one key."""
        if isinstance(block, TextBlock):
            return {"text": block.text}
        return {block.kind: address_of(cast("ImageBlock", block).source)}

    def shape(self, profile: Profile) -> Check:
        """Return the check of messages by role, content of text or of parts of one key."""
        parts = listed(_one_key("text", *profile.media), 1)
        content = parts if self.lists else text_or(parts)
        return chat_shape(content, content, listed(call_shape(json_text), 1), profile)

    def seen(self, part: Mapping[str, Any], path: Path) -> Seen:
        """Return a part of a content as the rules look at it."""
        for kind in _KINDS:
            if kind in part:
                return kind, path, text_of_json(part[kind]), None
        return "text", path, text_of_json(part.get("text")), None

    parse = staticmethod(from_dashscope)


_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video")


# What may stand beside a medium: how closely it is looked at, and a mark for the cache.
_BESIDE: dict[str, Spec] = dict.fromkeys(
    ("fps?", "max_frames?", "min_pixels?", "max_pixels?", "total_pixels?", "cache_control?"), "any"
)


def _one_key(*kinds: str) -> Check:
    """Return the check of an object of one key of these, and its settings; a text may be null, as documented."""
    known = check_of({f"{kind}?": "text|null" if kind == "text" else "any" for kind in kinds} | _BESIDE)

    def check(value: object) -> Sequence[Fault]:
        faults = known(value)
        if not faults and len(set(kinds).intersection(cast("Mapping[str, object]", value))) != 1:
            return [((), "has not one key", f"give one of {', '.join(kinds)}")]
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
    layouts={"conversation": Layout("joined"), "dialogue": Layout()},
)
DASHSCOPE_MULTIMODAL = DASHSCOPE.but(
    name="dashscope-multimodal",
    form=DashScopeForm(no_text=[{"text": None}], named_results=True, lists=True),
    source="https://help.aliyun.com/zh/model-studio/qwen-vl-api-via-dashscope",
    layouts={"conversation": Layout(), "dialogue": Layout()},
)
