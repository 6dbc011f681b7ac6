"""Define a prompt once and render it in every model's own format."""

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
    from lazyprompt.caching.report import CacheReport
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.chat_templates.token_counter import HuggingFaceTokenCounter
    from lazyprompt.compat.prompt_engine import PromptEngine
    from lazyprompt.errors import (
        ApproximateCountWarning,
        BatchError,
        BudgetError,
        EngineError,
        FormatError,
        HistoryError,
        LazyPromptError,
        LazyPromptWarning,
        MediaError,
        MissingExtraError,
        ModuleError,
        PromptFileError,
        PromptFileMissingError,
        SafetyError,
        SlotError,
        SummaryWarning,
        TemplateError,
        TokenizerError,
        ToolFormWarning,
        ToolsError,
    )
    from lazyprompt.files.check.check import Finding, check
    from lazyprompt.files.library.library import PromptLibrary
    from lazyprompt.files.library.prompt_diff import PromptDiff
    from lazyprompt.files.prompt_file import PromptFile
    from lazyprompt.files.prompty import Prompty, convert
    from lazyprompt.files.roles import TemplateSegment
    from lazyprompt.files.spec import Note
    from lazyprompt.files.writing.conversion import Converted
    from lazyprompt.formatters.counters import AnthropicTokenCounter, GeminiTokenCounter
    from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
    from lazyprompt.formatters.profile import Breakpoints, HistoryLayout, Media, Profile
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.formatters.report import Entry, Payload
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.encoding import TokenCache
    from lazyprompt.messages.history import messages_from
    from lazyprompt.messages.msg import (
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
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.prompt import Prompt, Rendered, Segment, Text
    from lazyprompt.modules._reading import AsyncReplyStream, ReplyStream
    from lazyprompt.modules.chat import Chat
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.sources import Source
    from lazyprompt.modules.telemetry import CallLog, CallRecord
    from lazyprompt.modules.trainable import TrainableModule
    from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter, EmptyPrompter
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.rendering.markers import Markers
    from lazyprompt.rendering.prompt_template import (
        AlpacaPromptTemplate,
        ChatPromptTemplate,
        PromptTemplate,
        neutralize,
        restore,
    )
    from lazyprompt.templates.few_shot import (
        ExampleOffer,
        ExampleSelector,
        FewShotTemplate,
        FirstExamples,
        LengthBudget,
        MostSimilar,
    )
    from lazyprompt.templates.instruction import (
        AlpacaInstructionTemplate,
        ChatInstructionTemplate,
        Filled,
        InstructionTemplate,
    )
    from lazyprompt.tokens.approximate import ApproximateTokenCounter
    from lazyprompt.tokens.counter import CharTokenCounter, TokenCounter
    from lazyprompt.tokens.openai import TiktokenCounter
    from lazyprompt.training.preference import PreferenceSample
    from lazyprompt.training.samples import TrainingSample

__all__ = [
    "AlpacaInstructionTemplate",
    "AlpacaPromptTemplate",
    "AlpacaPrompter",
    "AnthropicTokenCounter",
    "ApproximateCountWarning",
    "ApproximateTokenCounter",
    "AsyncReplyStream",
    "AudioBlock",
    "Base64Source",
    "BatchError",
    "Breakpoints",
    "Budget",
    "BudgetError",
    "CacheReport",
    "CallLog",
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
    "HistoryLayout",
    "HuggingFaceTokenCounter",
    "ImageBlock",
    "InstructionTemplate",
    "LazyPromptError",
    "LazyPromptWarning",
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
    "PreferenceSample",
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
    "Source",
    "SummaryWarning",
    "TemplateError",
    "TemplateSegment",
    "Text",
    "TextBlock",
    "ThinkingBlock",
    "TiktokenCounter",
    "TokenCache",
    "TokenCounter",
    "TokenizerError",
    "ToolFormWarning",
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

# Maps each module to its public names, which are imported on first access so that importing the package is fast.
_HOMES = {
    "_version": "__version__",
    "answers.parser": "Delta ResponseParser ResponseStream",
    "budget.budget": "Budget",
    "budget.report": "TrimReport",
    "caching.report": "CacheReport",
    "errors": (
        "ApproximateCountWarning BatchError BudgetError EngineError FormatError HistoryError LazyPromptError "
        "LazyPromptWarning MediaError MissingExtraError ModuleError PromptFileError PromptFileMissingError "
        "SafetyError SlotError SummaryWarning TemplateError TokenizerError ToolFormWarning ToolsError"
    ),
    "files.check.check": "Finding check",
    "files.library.library": "PromptLibrary",
    "files.library.prompt_diff": "PromptDiff",
    "files.prompt_file": "PromptFile",
    "files.prompty": "Prompty convert",
    "files.roles": "TemplateSegment",
    "files.spec": "Note",
    "files.writing.conversion": "Converted",
    "formatters.counters": "AnthropicTokenCounter GeminiTokenCounter",
    "formatters.profile": "Breakpoints HistoryLayout Media Profile",
    "formatters.formatter": "ChatFormatter MultiAgentFormatter",
    "media.resolver": "MediaResolver",
    "compat.prompt_engine": "PromptEngine",
    "formatters.report": "Entry Payload",
    "messages.history": "messages_from",
    "messages.msg": (
        "AudioBlock Base64Source FileBlock ImageBlock Msg TextBlock ThinkingBlock ToolResultBlock "
        "ToolUseBlock URLSource VideoBlock"
    ),
    "modules.chat": "Chat",
    "modules.online": "OnlineChatModule",
    "modules.sources": "Source",
    "formatters.reply": "Reply",
    "modules._reading": "AsyncReplyStream ReplyStream",
    "modules.telemetry": "CallLog CallRecord",
    "modules.trainable": "TrainableModule",
    "messages.prompt": "Prompt Rendered Segment Text",
    "messages.encoding": "TokenCache",
    "messages.openai_form": "OpenAIPrompt",
    "prompters.prompter": "Prompter",
    "prompters.kinds": "AlpacaPrompter ChatPrompter EmptyPrompter",
    "_base.secret": "Secret",
    "chat_templates.template": "ChatTemplate",
    "templates.few_shot": "ExampleOffer ExampleSelector FewShotTemplate FirstExamples LengthBudget MostSimilar",
    "templates.instruction": "AlpacaInstructionTemplate ChatInstructionTemplate Filled InstructionTemplate",
    "rendering.markers": "Markers",
    "tokens.approximate": "ApproximateTokenCounter",
    "tokens.counter": "CharTokenCounter TokenCounter",
    "chat_templates.token_counter": "HuggingFaceTokenCounter",
    "tokens.openai": "TiktokenCounter",
    "training.preference": "PreferenceSample",
    "training.samples": "TrainingSample",
    "rendering.prompt_template": "AlpacaPromptTemplate ChatPromptTemplate PromptTemplate neutralize restore",
    "_base.trusted": "Trusted",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name on first access."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'lazyprompt' has no attribute {name!r}")
    value: object = getattr(import_module(f"lazyprompt.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
