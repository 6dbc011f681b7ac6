"""OpenAI's Chat Completions API.

Source: the API reference, "Create chat completion"; the guides on vision, audio, PDF files and prompt caching; the
types of the official client.
"""

from __future__ import annotations

import re

from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import IMAGES, PDF, Breakpoints, Media, Profile
from lazyprompt.messages.openai_form import ID_LENGTH, IDS, NAMES

OPENAI = Profile(
    name="openai",
    form=ChatForm(text_lists=True),
    source="https://platform.openai.com/docs/api-reference/chat/create",
    media={
        "image": Media(IMAGES),
        "audio": Media(("audio/wav", "audio/mpeg"), url=False),
        "file": Media(PDF, url=False),
    },
    url_media=frozenset({"image"}),
    developer=True,
    names=NAMES,
    ids=IDS,
    id_length=ID_LENGTH,
    breakpoints=Breakpoints(
        key="prompt_cache_breakpoint",
        mark={"mode": "explicit"},
        lifetimes=("30m", "12h"),
        models=re.compile(r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)"),
    ),
)
