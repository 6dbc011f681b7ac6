"""What the profiles of the providers say about their documentation and their models."""

from __future__ import annotations

from lazyprompt.formatters.providers import PROVIDERS, profile_of


def test_each_profile_names_the_documentation_of_its_provider() -> None:
    assert {provider: profile_of(provider).source.removeprefix("https://") for provider in PROVIDERS} == {
        "openai": "platform.openai.com/docs/api-reference/chat/create",
        "openai-responses": "platform.openai.com/docs/api-reference/responses/create",
        "anthropic": "platform.claude.com/docs/en/api/messages",
        "gemini": "ai.google.dev/api/generate-content",
        "dashscope": "help.aliyun.com/zh/model-studio/qwen-api-reference/",
        "dashscope-multimodal": "help.aliyun.com/zh/model-studio/qwen-vl-api-via-dashscope",
        "ollama": "github.com/ollama/ollama/blob/main/docs/api.md",
        "ollama-generate": "github.com/ollama/ollama/blob/main/docs/api.md#generate-a-completion",
        "deepseek": "api-docs.deepseek.com/guides/thinking_mode",
        "zhipu": "docs.bigmodel.cn/api-reference/模型-api/对话补全",
        "litellm": "docs.litellm.ai/docs/completion/input",
        "moonshot": "platform.moonshot.ai/docs/api/chat",
        "xai": "docs.x.ai/docs/api-reference#chat-completions",
        "vllm": "docs.vllm.ai/en/latest/serving/openai_compatible_server/",
        "mistral": "docs.mistral.ai/api/#tag/chat",
    }


def test_these_models_need_reasoning_in_each_message_with_calls() -> None:
    names = {
        "deepseek": "deepseek-reasoner deepseek-v4 a/deepseek-v10 deepseek-chat deepseek-v3",
        "moonshot": "kimi-thinking kimi-k2-thinking kimi-k2.5 a/kimi-k2-9 kimi-k3 kimi-k10 kimi-k2 kimi-k2.4",
    }
    assert {each: list(map(profile_of(each).needs_thoughts, given.split())) for each, given in names.items()} == {
        "deepseek": [True] * 3 + [False] * 2,
        "moonshot": [True] * 6 + [False] * 2,
    }
