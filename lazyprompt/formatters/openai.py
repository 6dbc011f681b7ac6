"""Profiles for OpenAI's Chat Completions API and for providers whose APIs use the same format.

Each profile's ``source`` links to the API reference; the comment above a profile lists further sources.
"""

from __future__ import annotations

import re

from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import ALL_MEDIA, IMAGES, PDF, Breakpoints, HistoryLayout, Media, Profile
from lazyprompt.messages.openai_form import ID_LENGTH, IDS, NAMES, UrlPart

# Source: OpenAI's guides on vision, audio, PDF files and prompt caching, and the types in OpenAI's SDK.
OPENAI = Profile(
    name="openai",
    form=ChatForm(text_lists=True),
    source="https://platform.openai.com/docs/api-reference/chat/create",
    native="openai",
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
    # OpenAI rejects these keys at the root of a tool's schema.
    refused_schema_keys=frozenset({"oneOf", "anyOf", "allOf", "enum", "not"}),
    breakpoints=Breakpoints(
        key="prompt_cache_breakpoint",
        mark={"mode": "explicit"},
        lifetimes=("30m", "12h"),
        models=re.compile(r"gpt-(5\.([6-9]|\d\d)|[6-9]\b|[12]\d)"),
    ),
)

# Source: DeepSeek's guides on multi-round conversation, tool calls and thinking mode.
# In thinking mode, DeepSeek requires each request to include the reasoning that preceded earlier tool calls.
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
    # DeepSeek supports JSON output, but not an output schema.
    output_schemas=False,
    unenforced=frozenset({"system first"}),
)

# Source: the pages "Input params" and "Reasoning content" in LiteLLM's documentation.
# Signed reasoning is dropped, because LiteLLM may route the next request to a provider that can't verify it.
LITELLM = OPENAI.but(
    name="litellm",
    source="https://docs.litellm.ai/docs/completion/input",
    native="",
    url_media=ALL_MEDIA,
    prefill="prefix",
    refused_schema_keys=frozenset[str](),
    breakpoints=None,
    layouts={"conversation": HistoryLayout("joined"), "dialogue": HistoryLayout("joined")},
)

# Source: Moonshot's guide on thinking models, which requires the reasoning before a tool call in the next request.
# Moonshot's API rejects empty text.
MOONSHOT = Profile(
    name="moonshot",
    form=ChatForm(no_text="", needs_content=True, thinking="reasoning_content", parts={"video": UrlPart("video_url")}),
    source="https://platform.moonshot.ai/docs/api/chat",
    media={
        "image": Media(IMAGES, url=False, schemes=("ms",)),
        "video": Media(("video/*",), url=False, schemes=("ms",)),
    },
    # Moonshot's built-in tools have names like ``$web_search``.
    tool_names=re.compile(r"\$?[a-zA-Z0-9_-]{1,63}"),
    thinking="text",
    thinks=re.compile(r"(?:.*/)?kimi-(?:thinking|k2-thinking|k2[.-][5-9]|k(?:[3-9]|\d\d))"),
    empty_text=False,
    prefill="partial",
)

# Source: vLLM's guides on the OpenAI-compatible server and on multimodal inputs.
# vLLM passes speaker names and turns unchanged to the model's chat template.
# System text must come first, because some chat templates (Llama 2, Gemma) reject later system turns.
# The pattern for names excludes control sequences, because chat templates may insert names unescaped.
VLLM = Profile(
    name="vllm",
    form=ChatForm(no_text="", parts={"audio": UrlPart("audio_url"), "video": UrlPart("video_url")}),
    source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",
    media={"image": Media(IMAGES), "audio": Media(("audio/*",)), "video": Media(("video/*",))},
    tokenizes=True,
    system="first",
    names=re.compile(r"[\w .-]{1,64}"),
    user_first=True,
    needs_user=True,
)

# Source: xAI's guides on chat and on image understanding.
XAI = Profile(
    name="xai",
    form=ChatForm(no_text=""),
    source="https://docs.x.ai/docs/api-reference#chat-completions",
    media={"image": Media(("image/png", "image/jpeg"))},
    names=NAMES,
    ids=IDS,
    id_length=ID_LENGTH,
)

ZHIPU = Profile(
    name="zhipu",
    form=ChatForm(thinking="reasoning_content", parts={"video": UrlPart("video_url"), "file": UrlPart("file_url")}),
    source="https://docs.bigmodel.cn/api-reference/模型-api/对话补全",
    media={
        "image": Media(IMAGES),
        "video": Media(("video/*",), data=False),
        "file": Media(("application/*", "text/*"), data=False),
    },
    thinking="text",
    needs_user=True,
    layouts={"conversation": HistoryLayout(), "dialogue": HistoryLayout()},
)
