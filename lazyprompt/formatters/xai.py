"""xAI's chat API (Grok): OpenAI's form, with pictures.

Source: the guides on chat and on image understanding.
"""

from __future__ import annotations

from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.openai import OPENAI
from lazyprompt.formatters.profile import Media, Profile

XAI = Profile(
    name="xai",
    form=ChatForm(no_text=""),
    source="https://docs.x.ai/docs/api-reference#chat-completions",
    media={"image": Media(("image/png", "image/jpeg"))},
    names=OPENAI.names,
    ids=OPENAI.ids,
    id_length=OPENAI.id_length,
)
