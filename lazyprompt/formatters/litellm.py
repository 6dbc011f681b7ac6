"""LiteLLM's completion call: OpenAI's form, translated there for the provider behind it.

Source: LiteLLM's documentation, "Input params" and "Reasoning content" (signed thoughts go back in ``thinking_blocks``;
they are left out here, for only the provider behind it knows whether they are its own).
"""

from __future__ import annotations

from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.openai import OPENAI
from lazyprompt.formatters.profile import IMAGES, PDF, Layout, Media, Profile
from lazyprompt.messages.openai_form import NAMES

LITELLM = Profile(
    name="litellm",
    form=ChatForm(text_lists=True),
    source="https://docs.litellm.ai/docs/completion/input",
    media={
        "image": Media(IMAGES),
        "audio": Media(("audio/wav", "audio/mpeg"), url=False),
        "file": Media(PDF, url=False),
    },
    developer=True,
    prefill="prefix",
    names=NAMES,
    ids=OPENAI.ids,
    id_length=OPENAI.id_length,
    layouts={"conversation": Layout("joined"), "dialogue": Layout("joined")},
)
