"""Moonshot's chat API (Kimi): OpenAI's form, pictures as data only; thoughts go back, and nothing may be empty.

Source: the API reference, "Chat", and the guide on thinking models (what was thought before a call must go back).
"""

from __future__ import annotations

import re

from lazyprompt.formatters._url_parts import UrlPart
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import IMAGES, Media, Profile

MOONSHOT = Profile(
    name="moonshot",
    form=ChatForm(no_text="", needs_content=True, thinking="reasoning_content", parts={"video": UrlPart("video_url")}),
    source="https://platform.moonshot.ai/docs/api/chat",
    media={
        "image": Media(IMAGES, url=False, schemes=("ms",)),
        "video": Media(("video/*",), url=False, schemes=("ms",)),
    },
    # Moonshot's own tools are named like $web_search.
    tool_names=re.compile(r"\$?[a-zA-Z0-9_-]{1,63}"),
    thinking="text",
    thinks=re.compile(r"(?:.*/)?kimi-(?:thinking|k2-thinking|k2[.-][5-9]|k(?:[3-9]|\d\d))"),
    empty_text=False,
    prefill="partial",
)
