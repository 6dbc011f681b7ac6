"""The documented context windows of well-known models. The windows of unlisted models are never guessed."""

from __future__ import annotations

import re

_AZURE = "https://learn.microsoft.com/azure/foundry/foundry-models/concepts/models-sold-directly-by-azure"
_CLAUDE = "https://platform.claude.com/docs/en/models/{}/overview"
# Anthropic's models overview of June 2026, as quoted in the release notes of claude-bridge v0.7.2.
_CLAUDE_2026 = "https://github.com/michalekz/claude-bridge/releases/tag/v0.7.2"
_CLOUD = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/start/get-started-with-gemini-4"
_UIPATH = "https://docs.uipath.com/autopilot/other/latest/user-guide/supported-models-and-limits"
_VERTEX = "https://cloud.google.com/vertex-ai/generative-ai/docs/models/gemini/2-5-flash"
_DEEPSEEK = "https://api-docs.deepseek.com/quick_start/pricing"
_QWEN = "https://help.aliyun.com/zh/model-studio/models"
_QWEN_2025 = "https://help.aliyun.com/zh/model-studio/developer-reference/billing-for-applied-computer-vision"
_GLM = "https://docs.bigmodel.cn/cn/guide/models/text/{}"
_KIMI = "https://platform.kimi.com/docs/models"
_XAI = "https://docs.x.ai/developers/{}"

# Each row lists model names, the size of the models' context window in tokens, and the source of the size.
# The size covers the prompt and the response, except for Gemini models up to 3.8, where it covers only the prompt.
# A documented size of "128K" is listed as 128,000, because an underestimate is safer.
# Model names are listed without version suffixes (see ``_VERSION``).
_ROWS: tuple[tuple[str, int, str], ...] = (
    ("gpt-6.1-sol gpt-6-astra gpt-6-luna gpt-6-sol", 1_050_000, _AZURE),
    ("gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna gpt-5.5 gpt-5.4 gpt-5.4-pro", 1_050_000, _AZURE),
    ("gpt-5.4-mini gpt-5.4-nano gpt-5.3-codex gpt-5.2 gpt-5.2-codex", 400_000, _AZURE),
    ("gpt-5.1 gpt-5.1-codex gpt-5.1-codex-mini gpt-5.1-codex-max", 400_000, _AZURE),
    ("gpt-5 gpt-5-mini gpt-5-nano gpt-5-codex gpt-5-pro", 400_000, _AZURE),
    ("gpt-5-chat gpt-5.1-chat gpt-5.2-chat gpt-5.3-chat", 128_000, _AZURE),
    ("gpt-oss-120b gpt-oss-20b", 131_072, _AZURE),
    ("gpt-4.1 gpt-4.1-mini gpt-4.1-nano", 1_047_576, _AZURE),
    ("o4-mini o3 o3-pro o3-mini o1 codex-mini", 200_000, _AZURE),
    ("o1-mini gpt-4o gpt-4o-mini gpt-4-turbo", 128_000, _AZURE),
    ("claude-fable-5-1 claude-opus-5-5 claude-sonnet-5-5 claude-haiku-5-5", 1_000_000, _CLAUDE.format("haiku-5-5")),
    ("claude-opus-5", 1_000_000, _CLAUDE.format("opus-5")),
    ("claude-sonnet-5", 1_000_000, _CLAUDE.format("sonnet-5")),
    ("claude-opus-4-8", 1_000_000, _CLAUDE.format("opus-4-8")),
    ("claude-opus-4-6", 1_000_000, _CLAUDE.format("opus-4-6")),
    ("claude-fable-5 claude-opus-4-7 claude-sonnet-4-6", 1_000_000, _CLAUDE_2026),
    ("claude-opus-4-5 claude-opus-4-1", 200_000, _CLAUDE_2026),
    ("claude-sonnet-4-5", 200_000, _CLAUDE.format("sonnet-4-5")),
    ("claude-haiku-4-5", 200_000, _CLAUDE.format("haiku-4-5")),
    ("gemini-4-argon", 1_048_576, _CLOUD),
    ("gemini-3.8-flash", 1_048_576, "https://ai.google.dev/gemini-api/docs/models/gemini-3.8-flash"),
    ("gemini-2.5-pro", 1_048_576, _UIPATH),
    ("gemini-2.5-flash", 1_048_576, _VERTEX),
    ("gemini-2.0-flash", 1_048_576, "https://ai.google.dev/gemini-api/docs/models/gemini-2.0-flash"),
    ("deepseek-v4-flash deepseek-v4-pro deepseek-chat deepseek-reasoner", 1_000_000, _DEEPSEEK),
    ("qwen3.5-plus", 1_000_000, _QWEN),
    ("qwen-max", 32_768, _QWEN_2025),
    ("qwen-plus", 131_072, _QWEN_2025),
    ("qwen-turbo", 1_000_000, _QWEN_2025),
    ("qwen-long", 10_000_000, _QWEN_2025),
    ("glm-5.2", 1_000_000, "https://github.com/zai-org/GLM-5"),
    ("glm-5", 200_000, _GLM.format("glm-5")),
    ("glm-4.7", 200_000, _GLM.format("glm-4.7")),
    ("glm-4.6", 200_000, _GLM.format("glm-4.6")),
    ("glm-4.5 glm-4.5-air", 128_000, _GLM.format("glm-4.5")),
    ("kimi-k3", 1_000_000, "https://platform.kimi.ai/docs/guide/kimi-k3-quickstart"),
    ("kimi-k2.6 kimi-k2.7-code", 256_000, "https://www.promptfoo.dev/docs/providers/moonshot/"),
    ("kimi-k2.5 kimi-k2-0905 kimi-k2-turbo kimi-k2-thinking kimi-k2-thinking-turbo", 256_000, _KIMI),
    ("kimi-k2-0711 moonshot-v1-128k moonshot-v1-128k-vision", 128_000, _KIMI),
    ("moonshot-v1-32k moonshot-v1-32k-vision", 32_000, _KIMI),
    ("moonshot-v1-8k moonshot-v1-8k-vision", 8_000, _KIMI),
    ("grok-4.5", 500_000, _XAI.format("grok-4-5")),
    ("grok-4.20 grok-4.20-reasoning grok-4.20-0309-reasoning", 1_000_000, _XAI.format("models/grok-4.20-0309")),
    ("grok-4-fast", 2_000_000, "https://openrouter.ai/x-ai/grok-4-fast"),
    ("grok-4", 256_000, "https://vercel.com/ai-gateway/models/grok-4"),
)
_WINDOWS = {name: tokens for names, tokens, _ in _ROWS for name in names.split()}
# Matches version suffixes in model names: dates, build numbers and release stages.
_VERSION = re.compile(r"(?:[-@](?:\d{3,}(?:-\d\d){0,2}|\d\d-\d{2,4}|latest|preview|exp))*")


def context_of(model: str) -> int | None:
    """Return the size of a model's context window.

    Args:
        model: The provider's name for the model, possibly with a version, such as ``gpt-4o-2024-08-06``. A prefix that
            ends with a slash is ignored, as in ``models/gemini-2.5-pro``.

    Returns:
        The size of the context window in tokens, or None if the model is unknown.
    """
    name = model.rpartition("/")[2].lower()
    known = (each for each in _WINDOWS if name.startswith(each) and _VERSION.fullmatch(name, len(each)))
    return _WINDOWS.get(max(known, key=len, default=""))
