"""AgentScope's API as of version 0.0, which differs from version 0.1 only in the heading of a history."""
# ruff: noqa: D101, E701 - the classes differ only in their names and are laid out as a table

from __future__ import annotations

from lazyprompt.compat import agentscope
from lazyprompt.compat.agentscope import Msg, OpenAIChatWrapper, PromptEngine

# fmt: off
__all__ = [
    "DashScopeChatWrapper", "DashScopeMultiModalWrapper", "GeminiChatWrapper", "LiteLLMChatWrapper", "Msg",
    "OllamaChatWrapper", "OllamaGenerationWrapper", "OpenAIChatWrapper", "PromptEngine", "ZhipuAIChatWrapper",
]

class DashScopeChatWrapper(agentscope.DashScopeChatWrapper): history_style = "dialogue"
class DashScopeMultiModalWrapper(agentscope.DashScopeMultiModalWrapper): history_style = "dialogue"
class OllamaChatWrapper(agentscope.OllamaChatWrapper): history_style = "dialogue"
class OllamaGenerationWrapper(agentscope.OllamaGenerationWrapper): history_style = "dialogue"
class GeminiChatWrapper(agentscope.GeminiChatWrapper): history_style = "dialogue"
class ZhipuAIChatWrapper(agentscope.ZhipuAIChatWrapper): history_style = "dialogue"
class LiteLLMChatWrapper(agentscope.LiteLLMChatWrapper): history_style = "dialogue"
# fmt: on
