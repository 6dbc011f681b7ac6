"""AgentScope's names of version 0.0: as in version 0.1, except that a history has the heading of a dialogue."""
# ruff: noqa: D101, E701 - classes that differ only in their names are a table

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
