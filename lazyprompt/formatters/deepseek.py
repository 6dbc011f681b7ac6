"""DeepSeek's chat API: OpenAI's form, text only; thoughts go back.

Source: the guides on thinking mode and tool calls (what was thought before a call must go back with it), and on
multi-round conversation.
"""

from __future__ import annotations

import re

from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import Profile

DEEPSEEK = Profile(
    name="deepseek",
    form=ChatForm(thinking="reasoning_content"),
    source="https://api-docs.deepseek.com/guides/thinking_mode",
    thinking="text",
    thinks=re.compile(r"(?:.*/)?deepseek-(?:reasoner|v(?:[4-9]|\d\d))"),
    system="first",
    alternate=True,
    user_last=True,
    prefill="prefix",
    needs_user=True,
    user_first=True,
)
