"""PromptEngine, which joins texts and messages into a string or a list of messages within a length limit.

Text written by the application's developer is trusted, but the conversation is not. Only text written by the developer
may contain slots. If the prompt is too long, only messages are dropped. No message can forge the start of another
message.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args
from warnings import warn

from lazyprompt._base.json import MAX_DEPTH, is_mapping, is_sequence, well_formed
from lazyprompt._base.roles import ROLES, SYSTEM_ROLES, Role
from lazyprompt.budget.budget import Budget
from lazyprompt.budget.summary import SUMMARY
from lazyprompt.errors import BudgetError, FormatError, HistoryError, MediaError, SummaryWarning, did_you_mean
from lazyprompt.formatters._guard import guard_for
from lazyprompt.formatters._merge import inert_text
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.formatters.profile import Profile
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock, message_of
from lazyprompt.messages.parse import parse_message
from lazyprompt.safety.policy import guard as guard_parts
from lazyprompt.safety.speakers import one_line, written_names
from lazyprompt.templates.slots import SlotTemplate, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt.budget.units import Item
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters._job import MessageLike
    from lazyprompt.safety.policy import Safety
    from lazyprompt.tokens.counter import Form

PromptType: TypeAlias = Literal["string", "list"]
ShrinkPolicy: TypeAlias = Literal["truncate", "summarize"]
Summarizer: TypeAlias = "Callable[[list[dict[str, str]]], str]"
# A message, or a nested list of messages.
Conversation: TypeAlias = "MessageLike | Sequence[Conversation | None]"
# An argument to ``PromptEngine.join``: text written by the developer, a conversation, or None.
Part: TypeAlias = "str | Conversation | None"

# The low-water mark for summaries. A value just below 1 summarizes as few messages as possible.
_LOW_WATER = 0.999999

_Choice = TypeVar("_Choice", PromptType, ShrinkPolicy)


class _Piece(NamedTuple):
    """A piece of a prompt: either a message or the developer's text.

    Attributes:
        role: The role.
        name: The speaker's name, or an empty string if the message has no name.
        text: The text.
        spoken: True for a message in a conversation; False for the developer's text.
    """

    role: Role
    name: str
    text: str
    spoken: bool


class PromptEngine:
    """An engine that joins a system prompt, a conversation and hints into a single prompt.

    Args:
        model_or_provider: The provider's name or Profile, or an object whose ``provider`` attribute is one of these.
        prompt_type: The type of prompt to return, ``string`` or ``list``. The default is ``string`` for a provider
            whose API accepts text instead of messages, and ``list`` for any other provider.
        max_length: The maximum length of the prompt, measured by ``length``; the oldest messages are dropped first. The
            developer's texts, the newest message and system messages are never dropped.
        shrink_policy: The way to shorten a prompt that exceeds ``max_length``. ``truncate`` drops the oldest messages,
            and ``summarize`` replaces them with a summary. If summarizing fails, a warning is issued and the messages
            are dropped.
        length: A function that measures text, such as ``len`` or a token counter's ``count_text``. A string prompt is
            measured as a whole; the length of a list prompt is the total length of its message contents.
        summarize_model: A function that summarizes message dicts with ``role``, ``name`` and ``content``, oldest first.
        max_summary_length: The maximum length of a summary, measured by ``length``; longer summaries are truncated.
        safety: The policy for control sequences in values, names and messages, which is ``neutralize``, ``raise`` or
            ``off``. The default is ``off`` for hosted providers, and ``neutralize`` for all others.

    Raises:
        FormatError: A setting is invalid, the provider is unknown, or ``summarize`` is used without a model.
        SafetyError: The value of ``safety`` is unknown.
    """

    __slots__ = (
        "_guard",
        "_length",
        "_summarize_model",
        "max_length",
        "max_summary_length",
        "prompt_type",
        "shrink_policy",
    )

    def __init__(
        self,
        model_or_provider: object,
        prompt_type: PromptType | None = None,
        max_length: int | None = None,
        shrink_policy: ShrinkPolicy = "truncate",
        *,
        length: Callable[[str], int] = len,
        summarize_model: Summarizer | None = None,
        max_summary_length: int = 200,
        safety: Safety | None = None,
    ) -> None:
        profile = _profile_for(model_or_provider)
        self.prompt_type: PromptType = (
            _type_for(model_or_provider, profile)
            if prompt_type is None
            else _checked("prompt_type", prompt_type, get_args(PromptType))
        )
        self._guard = guard_for(profile, None, safety)
        self.shrink_policy: ShrinkPolicy = _checked("shrink_policy", shrink_policy, get_args(ShrinkPolicy))
        if shrink_policy == "summarize" and summarize_model is None:
            raise FormatError('shrink_policy "summarize" requires a model; pass summarize_model=, or use "truncate"')
        if max_length is not None:
            _check_limit("max_length", max_length)
        _check_limit("max_summary_length", max_summary_length)
        self.max_length, self.max_summary_length = max_length, max_summary_length
        self._length, self._summarize_model = length, summarize_model

    def join(self, *parts: Part, format_map: Mapping[str, object] | None = None) -> str | list[dict[str, Any]]:
        """Join trusted texts and untrusted messages into a prompt.

        Args:
            parts: The parts in order: strings are the developer's trusted texts; messages (Msg objects or dicts) and
                lists of messages are untrusted. ``None`` is skipped.
            format_map: The values for the slots ``{name}`` in the trusted strings. A slot without a value is left
                unchanged, and ``{{name}}`` becomes ``{name}``. Braces in messages and values are not slots.

        Returns:
            If ``prompt_type`` is ``string``, a string in which each text and each message begins a new line. A message
            begins with ``name:``, and its further lines are indented. If ``prompt_type`` is ``list``, a list of dicts
            with ``role``, ``content`` and optionally ``name``. In a list, text at the very beginning becomes a system
            message, and any other text becomes a user message. A message without a role takes its name as the role if
            the name is a valid role; otherwise, the role is ``user``.

        Raises:
            FormatError: A part has the wrong type, a message has no content, or a message's content is not text.
            SlotError: A value can't be converted to text.
            BudgetError: The parts that are never dropped exceed ``max_length``.
            SafetyError: A value, a name or a message contains a control sequence, and ``safety`` is ``raise``.
        """
        pieces = self._pieces(parts, format_map)
        if self.max_length is not None:
            pieces = self._fit(pieces, self.max_length)
        if self.prompt_type == "string":
            return _string(pieces)
        return [
            {"role": piece.role, "name": piece.name, "content": piece.text}
            if piece.name
            else {"role": piece.role, "content": piece.text}
            for piece in pieces
        ]

    def _pieces(self, parts: tuple[Part, ...], format_map: Mapping[str, object] | None) -> list[_Piece]:
        if format_map is not None and not is_mapping(format_map):
            raise FormatError(f"format_map must be a dict from slot names to values, not {type(format_map).__name__}")
        pieces: list[_Piece] = []
        for index, part in enumerate(parts):
            where = f"parts[{index}]"
            if isinstance(part, str):
                text = well_formed(str.__str__(part), where, FormatError)
                if format_map is not None:
                    filled = _fill(text, format_map, self._guard)
                    text = _indent_values(filled) if self.prompt_type == "string" else "".join(filled)
                pieces.append(_Piece("user" if pieces else "system", "", text, spoken=False))
            elif part is not None:
                pieces += _conversation(part, where, self._guard)
        speakers = ((piece.role, piece.name) for piece in pieces if piece.name)
        names = written_names(speakers, one_line if self.prompt_type == "string" else str)
        return [piece._replace(name=names[piece.role, piece.name]) if piece.name else piece for piece in pieces]

    def _fit(self, pieces: list[_Piece], most: int) -> list[_Piece]:
        """Drop messages until the prompt's length is at most ``most``.

        If the policy is ``summarize``, a summary replaces the dropped messages.
        """
        length, is_string = cache(self._length), self.prompt_type == "string"

        def left(kept: Iterable[int], replaced: Mapping[int, Item]) -> list[_Piece]:
            return [self._summary(replaced[at]) if at in replaced else pieces[at] for at in kept]

        def size(kept: Iterable[int], replaced: Mapping[int, Item]) -> int:
            found = left(kept, replaced)
            return length(_string(found)) if is_string else sum(length(piece.text) for piece in found)

        newest = max((at for at, piece in enumerate(pieces) if piece.spoken), default=-1)
        stays = [
            at for at, piece in enumerate(pieces) if not piece.spoken or at == newest or piece.role in SYSTEM_ROLES
        ]
        if (least := size(stays, {})) > most:
            raise BudgetError(
                f"the developer's text, system messages and the newest message have a total length of {least}, but "
                f"max_length is {most}; increase max_length, or shorten the text"
            )
        policy = self._summarize_model if self.shrink_policy == "summarize" else None
        budget = Budget(
            most,
            _Measure(length),
            policy or "oldest",
            protect=stays,
            # Like AgentScope, drop as few messages as possible.
            low_water=_LOW_WATER if policy else 1,
            summary_tokens=length(SUMMARY) + self.max_summary_length,
        )
        items = [{"role": piece.role, "name": piece.name or piece.role, "content": piece.text} for piece in pieces]
        fitted = budget.fitted(items, size, keep_newest=False)
        if fitted.report.failure is not None:
            warn(f"the oldest messages are left out: {fitted.report.failure}", SummaryWarning, stacklevel=3)
        return left(fitted.kept, fitted.replaced)

    def _summary(self, item: Item) -> _Piece:
        """Convert the budget's summary of dropped messages to a piece of the prompt."""
        text = str(cast("Form", item)["content"])
        piece = _guard_piece(_Piece("user", "", text, spoken=False), "the summary", self._guard)
        return piece._replace(text=_indent(piece.text)) if self.prompt_type == "string" else piece

    def __repr__(self) -> str:
        settings = f"prompt_type={self.prompt_type!r}, max_length={self.max_length!r}"
        return f"PromptEngine({settings}, shrink_policy={self.shrink_policy!r})"


def _provider_of(model: object) -> object:
    if isinstance(model, ChatFormatter):
        return model.profile
    return model if isinstance(model, str | Profile) else getattr(model, "provider", None)


def _profile_for(model: object) -> Profile | None:
    """Return the rules of a model's provider, or None if the provider is unknown."""
    provider = _provider_of(model)
    if isinstance(provider, str):
        return profile_of(provider) if provider in PROVIDERS else None
    return provider if isinstance(provider, Profile) else None


def _type_for(model: object, profile: Profile | None) -> PromptType:
    """Return the prompt type for a model or a provider."""
    if profile is not None:
        return "list" if profile.turns else "string"
    provider = _provider_of(model)
    if isinstance(provider, str):
        given = f"the provider {provider!r} is unknown{did_you_mean(provider, PROVIDERS)}"
    else:
        given = f"{type(model).__name__} has no provider name"
    raise FormatError(
        f"{given}; expected one of {', '.join(PROVIDERS)}, or a Profile; for any other provider, set "
        'prompt_type="string" or "list"'
    )


def _checked(setting: str, given: _Choice, known: tuple[str, ...]) -> _Choice:
    if given not in known:
        near = did_you_mean(str(given), known)
        raise FormatError(f"{setting} {given!r} is unknown{near}; expected one of {', '.join(known)}")
    return given


def _check_limit(setting: str, limit: object) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise FormatError(f"{setting} must be a positive integer, not {limit!r}")


def _conversation(part: object, where: str, guard: MessageGuard | None, depth: int = 0) -> Iterator[_Piece]:
    """Yield a prompt piece for each message in ``part``, which is a message or a nested list of messages."""
    if isinstance(part, Msg) or is_mapping(part):
        yield _guard_piece(_message(part, where), where, guard)
    elif is_sequence(part) and depth < MAX_DEPTH:
        for index, item in enumerate(part):
            if item is not None:
                yield from _conversation(item, f"{where}[{index}]", guard, depth + 1)
    elif isinstance(part, str):
        raise FormatError(
            f"{where} is a string in a list of messages; use a message, or pass the string as a separate part"
        )
    elif is_sequence(part):
        raise FormatError(f"{where[:20]}… is a list that is nested deeper than {MAX_DEPTH} levels or contains itself")
    else:
        raise FormatError(
            f"{where} has type {type(part).__name__}; expected text, a message (Msg or dict) or a list of messages"
        )


def _message(given: MessageLike, where: str) -> _Piece:
    if isinstance(given, Msg):
        message, name = given, given.name
    else:
        named = given.get("name")
        name = named if isinstance(named, str) else ""  # parse_message rejects names that are not strings
        role = given.get("role") or (name if name in ROLES else "user")
        if given.get("content") is None and not given.get("tool_calls"):
            raise FormatError(f"{where}, from {name or role!r}, has no content; add its text")
        try:
            message = parse_message({**given, "role": role}, where)
        except (HistoryError, MediaError) as error:
            raise FormatError(str(error)) from error
    others = {block.kind for block in message.blocks if not isinstance(block, TextBlock | ThinkingBlock)}
    others |= {"url"} if message.urls else set()
    if others or message.role == "tool":
        raise FormatError(
            f"{where}, from {message.name!r}, contains {', '.join(sorted(others or {'tool_result'}))}, but "
            "PromptEngine only supports text; use a ChatFormatter"
        )
    if not isinstance(message.content, str) and not any(isinstance(block, TextBlock) for block in message.content):
        raise FormatError(f"{where}, from {message.name!r}, has no content; add its text")
    return _Piece(message.role, name, message.text, spoken=True)


def _guard_piece(piece: _Piece, where: str, guard: MessageGuard | None) -> _Piece:
    """Return a copy of a prompt piece, with the control sequences in its name and text neutralised."""
    if guard is None:
        return piece
    message = guard.message(message_of(piece.name, piece.text, piece.role), where)
    return piece._replace(name=message.speaker or piece.name, text=message.text)


def _fill(text: str, values: Mapping[str, object], guard: MessageGuard | None) -> Sequence[str]:
    """Fill the slots of a text; return fixed text alternating with values, which a guard neutralises if present."""
    template = SlotTemplate(text)
    filled = template.filled(
        {slot: value_text(values[slot], slot) if slot in values else f"{{{slot}}}" for slot in template.slots}
    )
    return filled.parts if guard is None else guard_parts(guard.controls, filled.parts, filled.slots, guard.policy)


def _indent_values(parts: Sequence[str]) -> str:
    """Join filled parts, indenting each line that begins in a value and looks like the start of a message."""
    made = [inert_text(part) if index % 2 else part for index, part in enumerate(parts)]
    ends = list(accumulate(map(len, made)))
    lines = "".join(made).splitlines(keepends=True)
    begin = 0
    for index, line in enumerate(lines):
        in_value = bisect_right(ends, begin) % 2 == 1
        begin += len(line)
        if in_value and inert_text(f"\n{line}") != f"\n{line}":
            lines[index] = f"  {line}"
    return "".join(lines)


def _string(pieces: list[_Piece]) -> str:
    return "\n".join(
        f"{piece.name or piece.role}: {_indent(piece.text)}" if piece.spoken else piece.text for piece in pieces
    )


def _indent(text: str) -> str:
    """Indent all lines after the first, so that none looks like the start of a message or like the developer's text."""
    return inert_text("  ".join(text.splitlines(keepends=True)))


class _Measure:
    """An adapter that lets a budget use the engine's ``length`` function as a token counter."""

    def __init__(self, length: Callable[[str], int]) -> None:
        self.count_text = length

    def count(self, messages: Sequence[Form], tools: Sequence[Form] | None = None) -> int:  # noqa: ARG002 - there are none
        """Return the total length of the message contents, measured by the engine's ``length`` function."""
        return sum(self.count_text(str(message["content"])) for message in messages)
