"""vLLM's OpenAI-compatible server: OpenAI's form, within what the chat templates of models accept.

Source: the guides on the OpenAI-compatible server and on multimodal inputs; the templates of Llama 2, Mistral and
Gemma, which refuse anything but a system turn first and then user and assistant in turn.
"""

from __future__ import annotations

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
    alternate=True,
    user_first=True,
    needs_user=True,
)
