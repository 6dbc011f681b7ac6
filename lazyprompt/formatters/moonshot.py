"""Moonshot's chat API (Kimi): OpenAI's form, pictures as data only; thoughts go back, and nothing may be empty.

Source: the API reference, "Chat", and the guide on thinking models (what was thought before a call must go back).
"""

from __future__ import annotations

from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import IMAGES, Media, Profile

MOONSHOT = Profile(
    name="moonshot",
    form=ChatForm(no_text="", needs_content=True, thinking="reasoning_content"),
    source="https://platform.moonshot.ai/docs/api/chat",
    media={"image": Media(IMAGES, url=False, schemes=("ms",))},
    thinking="text",
    empty_text=False,
)
