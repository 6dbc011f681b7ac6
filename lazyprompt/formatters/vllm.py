"""vLLM's OpenAI-compatible server: OpenAI's form, within what the chat templates of most models accept.

Source: the guides on the OpenAI-compatible server and on multimodal inputs. The server hands names and turns to the
model's template as they are; the templates of Llama 2 and Gemma refuse a system turn that is not the first. A template
may write a name without a look at it, so a name holds nothing that could be a control sequence.
"""

from __future__ import annotations

import re

from lazyprompt.formatters._url_parts import UrlPart
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import IMAGES, Media, Profile

VLLM = Profile(
    name="vllm",
    form=ChatForm(no_text="", parts={"audio": UrlPart("audio_url"), "video": UrlPart("video_url")}),
    source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",
    media={
        "image": Media(IMAGES),
        "audio": Media(("audio/*",)),
        "video": Media(("video/*",)),
    },
    system="first",
    names=re.compile(r"[\w .-]{1,64}"),
    user_first=True,
    needs_user=True,
)
