"""One definition of a prompt, exactly what every model takes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyprompt._base.secret import Secret
    from lazyprompt._base.trusted import Trusted
    from lazyprompt._version import __version__
    from lazyprompt.answers.parser import Delta, ResponseParser, ResponseStream
    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.errors import (
        BatchError,
        BudgetError,
        EngineError,
        FormatError,
        HistoryError,
        LazyPromptError,
        MediaError,
        MissingExtraError,
        ModuleError,
        PromptFileError,
        PromptFileMissingError,
        SafetyError,
        SlotError,
        TemplateError,
        TokenizerError,
        ToolsError,
    )
    from lazyprompt.files.check.check import Finding, check
    from lazyprompt.files.dialects.translation import Note
    from lazyprompt.files.library.library import PromptLibrary
    from lazyprompt.files.library.prompt_diff import PromptDiff
    from lazyprompt.files.prompt_file import PromptFile
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.segments import TemplateSegment
    from lazyprompt.files.writing.conversion import Converted
    from lazyprompt.files.writing.convert import convert
    from lazyprompt.formatters.counters import AnthropicTokenCounter, GeminiTokenCounter
    from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
    from lazyprompt.formatters.media import MediaResolver
    from lazyprompt.formatters.profile import Breakpoints, Layout, Media, Profile
    from lazyprompt.formatters.prompt_engine import PromptEngine
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.formatters.report import Entry, Payload
    from lazyprompt.history import messages_from
    from lazyprompt.messages import (
        AudioBlock,
        Base64Source,
        FileBlock,
        ImageBlock,
        Msg,
        TextBlock,
        ThinkingBlock,
        ToolResultBlock,
        ToolUseBlock,
        URLSource,
        VideoBlock,
    )
    from lazyprompt.modules.chat import Chat
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.streams import AsyncReplyStream, ReplyStream
    from lazyprompt.modules.telemetry import CallRecord
    from lazyprompt.modules.trainable import TrainableModule
    from lazyprompt.openai_form import OpenAIPrompt
    from lazyprompt.prompt import Prompt, Rendered, Segment, Text
    from lazyprompt.prompter import Prompter
    from lazyprompt.prompters import AlpacaPrompter, ChatPrompter, EmptyPrompter
    from lazyprompt.text.chat.template import ChatTemplate
    from lazyprompt.text.example_selection import (
        ExampleOffer,
        ExampleSelector,
        FirstExamples,
        LengthBudget,
        MostSimilar,
    )
    from lazyprompt.text.few_shot import FewShotTemplate
    from lazyprompt.text.instruction import (
        AlpacaInstructionTemplate,
        ChatInstructionTemplate,
        Filled,
        InstructionTemplate,
    )
    from lazyprompt.text.markers import Markers
    from lazyprompt.text.template import AlpacaPromptTemplate, ChatPromptTemplate, PromptTemplate, neutralize, restore
    from lazyprompt.tokens.approximate import ApproximateTokenCounter
    from lazyprompt.tokens.counter import CharTokenCounter, TokenCounter
    from lazyprompt.tokens.huggingface import HuggingFaceTokenCounter
    from lazyprompt.tokens.openai import TiktokenCounter
    from lazyprompt.training import TrainingSample

__all__ = [
    "AlpacaInstructionTemplate",
    "AlpacaPromptTemplate",
    "AlpacaPrompter",
    "AnthropicTokenCounter",
    "ApproximateTokenCounter",
    "AsyncReplyStream",
    "AudioBlock",
    "Base64Source",
    "BatchError",
    "Breakpoints",
    "Budget",
    "BudgetError",
    "CallRecord",
    "CharTokenCounter",
    "Chat",
    "ChatFormatter",
    "ChatInstructionTemplate",
    "ChatPromptTemplate",
    "ChatPrompter",
    "ChatTemplate",
    "Converted",
    "Delta",
    "EmptyPrompter",
    "EngineError",
    "Entry",
    "ExampleOffer",
    "ExampleSelector",
    "FewShotTemplate",
    "FileBlock",
    "Filled",
    "Finding",
    "FirstExamples",
    "FormatError",
    "GeminiTokenCounter",
    "HistoryError",
    "HuggingFaceTokenCounter",
    "ImageBlock",
    "InstructionTemplate",
    "Layout",
    "LazyPromptError",
    "LengthBudget",
    "Markers",
    "Media",
    "MediaError",
    "MediaResolver",
    "MissingExtraError",
    "ModuleError",
    "MostSimilar",
    "Msg",
    "MultiAgentFormatter",
    "Note",
    "OnlineChatModule",
    "OpenAIPrompt",
    "Payload",
    "Profile",
    "Prompt",
    "PromptDiff",
    "PromptEngine",
    "PromptFile",
    "PromptFileError",
    "PromptFileMissingError",
    "PromptLibrary",
    "PromptTemplate",
    "Prompter",
    "Prompty",
    "Rendered",
    "Reply",
    "ReplyStream",
    "ResponseParser",
    "ResponseStream",
    "SafetyError",
    "Secret",
    "Segment",
    "SlotError",
    "TemplateError",
    "TemplateSegment",
    "Text",
    "TextBlock",
    "ThinkingBlock",
    "TiktokenCounter",
    "TokenCounter",
    "TokenizerError",
    "ToolResultBlock",
    "ToolUseBlock",
    "ToolsError",
    "TrainableModule",
    "TrainingSample",
    "TrimReport",
    "Trusted",
    "URLSource",
    "VideoBlock",
    "__version__",
    "check",
    "convert",
    "messages_from",
    "neutralize",
    "restore",
]

# Where each of them lives. Nothing is imported before it is asked for: the package itself costs a millisecond.
_HOMES = {
    "_version": "__version__",
    "answers.parser": "Delta ResponseParser ResponseStream",
    "budget.budget": "Budget",
    "budget.report": "TrimReport",
    "errors": (
        "BatchError BudgetError EngineError FormatError HistoryError LazyPromptError MediaError MissingExtraError "
        "ModuleError PromptFileError PromptFileMissingError SafetyError SlotError TemplateError TokenizerError "
        "ToolsError"
    ),
    "files.check.check": "Finding check",
    "files.dialects.translation": "Note",
    "files.library.library": "PromptLibrary",
    "files.library.prompt_diff": "PromptDiff",
    "files.prompt_file": "PromptFile",
    "files.prompty": "Prompty",
    "files.segments": "TemplateSegment",
    "files.writing.conversion": "Converted",
    "files.writing.convert": "convert",
    "formatters.counters": "AnthropicTokenCounter GeminiTokenCounter",
    "formatters.profile": "Breakpoints Layout Media Profile",
    "formatters.formatter": "ChatFormatter MultiAgentFormatter",
    "formatters.media": "MediaResolver",
    "formatters.prompt_engine": "PromptEngine",
    "formatters.report": "Entry Payload",
    "history": "messages_from",
    "messages": (
        "AudioBlock Base64Source FileBlock ImageBlock Msg TextBlock ThinkingBlock ToolResultBlock "
        "ToolUseBlock URLSource VideoBlock"
    ),
    "modules.chat": "Chat",
    "modules.online": "OnlineChatModule",
    "formatters.reply": "Reply",
    "modules.streams": "AsyncReplyStream ReplyStream",
    "modules.telemetry": "CallRecord",
    "modules.trainable": "TrainableModule",
    "prompt": "Prompt Rendered Segment Text",
    "openai_form": "OpenAIPrompt",
    "prompter": "Prompter",
    "prompters": "AlpacaPrompter ChatPrompter EmptyPrompter",
    "_base.secret": "Secret",
    "text.chat.template": "ChatTemplate",
    "text.example_selection": "ExampleOffer ExampleSelector FirstExamples LengthBudget MostSimilar",
    "text.few_shot": "FewShotTemplate",
    "text.instruction": "AlpacaInstructionTemplate ChatInstructionTemplate Filled InstructionTemplate",
    "text.markers": "Markers",
    "tokens.approximate": "ApproximateTokenCounter",
    "tokens.counter": "CharTokenCounter TokenCounter",
    "tokens.huggingface": "HuggingFaceTokenCounter",
    "tokens.openai": "TiktokenCounter",
    "training": "TrainingSample",
    "text.template": "AlpacaPromptTemplate ChatPromptTemplate PromptTemplate neutralize restore",
    "_base.trusted": "Trusted",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'lazyprompt' has no attribute {name!r}")
    value: object = getattr(import_module(f"lazyprompt.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
