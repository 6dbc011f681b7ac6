"""AgentScope's names of its version 0.0, over this package: as in 0.1, but a history is headed as a dialogue."""
# ruff: noqa: D101, E701 - a table, as in the module for 0.1

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
