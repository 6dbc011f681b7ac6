"""Zhipu's chat API (GLM): OpenAI's form, with video and documents by address.

Source: the API reference, "Chat completion" (对话补全).
"""

from __future__ import annotations

from lazyprompt.formatters._url_parts import UrlPart
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import IMAGES, Layout, Media, Profile

ZHIPU = Profile(
    name="zhipu",
    form=ChatForm(
        thinking="reasoning_content",
        parts={"video": UrlPart("video_url"), "file": UrlPart("file_url")},
    ),
    source="https://docs.bigmodel.cn/api-reference/模型-api/对话补全",
    media={
        "image": Media(IMAGES),
        "video": Media(("video/*",), data=False),
        "file": Media(("application/*", "text/*"), data=False),
    },
    thinking="text",
    needs_user=True,
    layouts={"conversation": Layout(), "dialogue": Layout()},
)
