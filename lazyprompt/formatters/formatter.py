"""Formatters that convert messages to a provider's payload and apply the same steps for every provider.

``parse_messages`` parses the messages, the functions in ``RULES`` apply the provider's rules, and the provider's wire
format writes the payload.
"""

from __future__ import annotations

import marshal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from lazyprompt._base.json import Json, JsonObject, dump
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters._cache import CacheLike, checked_cache, with_marks
from lazyprompt.formatters._carry import add_urls, carry
from lazyprompt.formatters._guard import guard_for
from lazyprompt.formatters._job import PREFILL, Job, Merging, is_prefill, parse_arguments
from lazyprompt.formatters._merge import STYLES, merge_speakers
from lazyprompt.formatters._repair import (
    answer_results,
    begin_with_user,
    end_with_user,
    fit_names,
    join_neighbours,
    move_media,
    need_user_turn,
    order_exchanges,
    place_system_text,
    refuse_nothing,
    strip_last_space,
)
from lazyprompt.formatters._tools import packed_tools
from lazyprompt.formatters._validate import is_own_form, violations
from lazyprompt.formatters.profile import HistoryLayout, HistoryStyle
from lazyprompt.formatters.providers import profile_of
from lazyprompt.formatters.report import Notes, Payload
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.native import PART_FIELDS, Native
from lazyprompt.messages.tools import ToolLike, ToolSet
from lazyprompt.messages.turns import Turn, WrittenTurn, are_texts, calls_tools, turns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.units import Item
    from lazyprompt.chat_templates.template import ModelLike
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters._job import Loaded, Messages
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.msg import Base64Source, URLSource
    from lazyprompt.safety.policy import Safety
    from lazyprompt.tokens.counter import CountsMessages

    ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"


# The maximum number of media files to load concurrently.
_LOADS = 8
# The content part keys that set a cache breakpoint in Anthropic's and OpenAI's APIs.
_CACHE_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
# Names that are not reported as lost: empty names, and names that repeat the role.
_NO_NAMES = frozenset({*ROLES, ""})


Rule: TypeAlias = "Callable[[list[Turn], Job], list[Turn]]"

RULES: tuple[Rule, ...] = (
    add_urls,
    carry,
    order_exchanges,
    place_system_text,
    merge_speakers,
    fit_names,
    move_media,
    answer_results,
    join_neighbours,
    refuse_nothing,
    need_user_turn,
    begin_with_user,
    end_with_user,
    strip_last_space,
)
"""The rules, in order. Each rule repairs violations and reports its changes."""
TEXT_RULES = frozenset(
    {
        place_system_text,
        merge_speakers,
        join_neighbours,
        need_user_turn,
        begin_with_user,
        end_with_user,
        strip_last_space,
    }
)
"""The rules that a conversation of plain text messages can break."""
# The rules to apply, keyed by whether all messages are plain text and whether speakers are merged.
_APPLIED = {
    (texts, merges): tuple(
        rule for rule in RULES if (merges or rule is not merge_speakers) and (not texts or rule in TEXT_RULES)
    )
    for texts in (False, True)
    for merges in (False, True)
}


class FormatterSettings(TypedDict, total=False):
    """The settings of a :class:`ChatFormatter`, for functions that accept them as keyword arguments."""

    model: ModelLike | None
    budget: Budget | None
    token_counter: CountsMessages | None
    max_tokens: int | None
    media: MediaResolver | None
    strict: bool
    cache: CacheLike | None
    safety: Safety | None


class ChatFormatter:
    """Formatter that converts a conversation between a user and an assistant to a provider's payload.

    A formatter stores no state between calls, so threads may share it.

    Args:
        provider: The provider's name, or a custom profile.
        model: The model, if the rules depend on it (for cache breakpoints, reasoning or prefill). With Markers or a
            ChatTemplate, ``safety`` covers the control sequences of this family.
        budget: A token budget for the payload, whose tokens are counted in the provider's format.
        token_counter: The token counter for ``max_tokens``.
        max_tokens: A token limit for the payload. The oldest messages are dropped first; system text and the newest
            user turn are kept.
        media: The loader for local files and URLs; without a loader, nothing is loaded.
        strict: True to raise an error for content that the provider doesn't accept, including unknown keys. By default,
            the report lists the dropped content; ``payload.report.raise_for_losses()`` raises the same error.
        cache: The positions of cache breakpoints: ``tools`` (after all tools), ``system`` (after the system text) and
            ``history`` (before the newest user turn). A mapping from positions to lifetimes also sets each breakpoint's
            lifetime.
        safety: The policy for control sequences: ``neutralize``, ``raise`` or ``off``. All messages and tools
            are untrusted. The default is ``neutralize`` for servers that tokenize text with the model's chat template
            (vLLM, Ollama), and ``off`` for hosted providers. If the model is unknown, the policy covers the control
            sequences of all model families.

    Raises:
        FormatError: The provider is unknown or does not support a setting.
        SafetyError: The value of ``safety`` is unknown.
    """

    __slots__ = ("_budget", "_cache", "_guard", "_media", "_merging", "_strict", "model", "profile")

    def __init__(  # noqa: PLR0913 - all but one are keyword-only
        self,
        provider: str | Profile,
        *,
        model: ModelLike | None = None,
        budget: Budget | None = None,
        token_counter: CountsMessages | None = None,
        max_tokens: int | None = None,
        media: MediaResolver | None = None,
        strict: bool = False,
        cache: CacheLike | None = None,
        safety: Safety | None = None,
    ) -> None:
        self.profile = profile_of(provider)
        self.model = model if isinstance(model, str) else None
        self._budget = _build_budget(budget, max_tokens, token_counter)
        self._media, self._strict = media, strict
        self._cache = checked_cache(cache, self.profile)
        self._guard = guard_for(self.profile, model, safety)
        # If the provider has no chat turns, merge the conversation into a single text.
        self._merging = None if self.profile.turns else Merging(HistoryLayout(), "conversation", single=False)

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.profile.name

    def format(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """Format a conversation as a payload.

        Args:
            messages: Msg objects, OpenAI dicts, pairs, or lists of these in any combination; ``None`` is skipped.
                The messages are not modified, and the payload shares no mutable objects with them.
            tools: The tools that the model may call: dicts in the OpenAI format or Python functions.

        Returns:
            The payload, with a report on changed and dropped content.

        Raises:
            FormatError: The conversation is empty, a tool result has no call, the provider rejects a tool, or content
                was lost and ``strict`` is set.
            MediaError: A media file can't be read, or the formatter is not allowed to read it.
            HistoryError: An argument is not a message.
            BudgetError: The protected messages alone exceed the token limit.
            SafetyError: Text contains a control sequence, and ``safety`` is ``raise``.
        """
        return self._format(parse_arguments(messages), ToolSet.of(tools))

    def format_parsed(self, messages: Sequence[Msg], tools: ToolSet, guard: MessageGuard | None) -> Payload:
        """Format parsed messages, using the caller's guard for control sequences."""
        return self._payload(messages, range(len(messages)), tools, {}, guard)

    def _format(self, messages: Sequence[Msg], tools: ToolSet) -> Payload:
        loaded: Loaded = self._load(self._sources(messages)) if self._media or self._budget else {}
        if self._budget is None:
            return self._payload(messages, range(len(messages)), tools, loaded, self._guard)
        fitted = self._budget.fitted(messages, partial(self._cost, self._budget, messages, tools, loaded))
        return self._format_fitted(messages, tools, loaded, fitted)

    async def aformat(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """Async version of :meth:`format`, which loads media concurrently and never blocks the event loop.

        If a budget is set, tokens are counted in a thread, and an async summarizer is awaited.
        """
        import asyncio  # noqa: PLC0415 - importing it takes 25 ms

        parsed, own = parse_arguments(messages), ToolSet.of(tools)
        sources = self._sources(parsed) if self._media or self._budget else {}
        loaded: Loaded = {}
        resolver = self._media
        if sources and resolver:
            gate = asyncio.Semaphore(_LOADS)

            async def load(source: URLSource, where: str) -> Base64Source:
                async with gate:
                    return await resolver.aload(source, where)

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {source: group.create_task(load(source, where)) for source, where in sources.items()}
            except ExceptionGroup as failed:
                # Raise the first exception, because the other tasks were cancelled after the first failure.
                raise failed.exceptions[0] from None
            loaded = {source: task.result() for source, task in tasks.items()}
        if self._budget is None:
            return self._payload(parsed, range(len(parsed)), own, loaded, self._guard)
        fitted = await self._budget.afitted(parsed, partial(self._cost, self._budget, parsed, own, loaded))
        return self._format_fitted(parsed, own, loaded, fitted)

    def validate(self, payload: Mapping[str, Any]) -> None:
        """Validate a payload against the provider's rules.

        Args:
            payload: A payload, built by a formatter or by hand.

        Raises:
            FormatError: The payload breaks a rule; the error message lists each violation with its path and a fix.
        """
        found = violations(payload, self.profile, self.model)
        if found:
            raise FormatError(f"{self.profile.name} would reject this payload:\n" + "\n".join(map(str, found)))

    def parse(self, response: object, name: str = "assistant") -> Msg:
        """Parse the provider's response as a message that can be added to the history.

        Args:
            response: The response, as a dict or an object from the official client.
            name: The speaker's name.

        Returns:
            The message with text, reasoning and tool calls, and ``usage`` if the provider reports it. Arguments that
            are not a JSON object become the ``raw_input`` of the call.

        Raises:
            FormatError: The value is not a response from this provider.
        """
        message = self.profile.form.parse(as_dict(response), self.profile.name)
        return message if name == message.name else message.spoken_by(name)

    def _sources(self, messages: Sequence[Msg]) -> dict[URLSource, str]:
        """Check all media, including those in messages that a budget may drop, and return the media to load."""
        wanted: dict[URLSource, str] = {}
        turns = turns_of(messages)
        job = self._job(messages, {}, Notes(), wanted)
        carry(add_urls(turns, job), job)
        return wanted

    def _job(
        self,
        messages: Sequence[Msg],
        loaded: Loaded,
        notes: Notes,
        wanted: dict[URLSource, str] | None = None,
    ) -> Job:
        return Job(messages, self.profile, notes, self._media, loaded, wanted, self._merging, self.model)

    def _load(self, sources: dict[URLSource, str]) -> Loaded:
        if not sources or self._media is None:
            return {}
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only media need it

        with ThreadPoolExecutor(_LOADS) as pool:
            found = pool.map(self._media.load, sources, sources.values())
            return dict(zip(sources, found, strict=True))

    def _cost(
        self,
        budget: Budget,
        messages: Sequence[Msg],
        tools: ToolSet,
        loaded: Loaded,
        kept: Sequence[int],
        replaced: Mapping[int, Item],
    ) -> int:
        """Count the tokens of the kept messages in the provider's format."""
        payload = self._payload(_replace_messages(messages, replaced), kept, tools, loaded, self._guard)
        return budget.count(*countable(payload, self.profile))

    def _format_fitted(self, messages: Sequence[Msg], tools: ToolSet, loaded: Loaded, fitted: Fitted) -> Payload:
        payload = self._payload(_replace_messages(messages, fitted.replaced), fitted.kept, tools, loaded, self._guard)
        payload.trim = fitted.report
        return payload

    def _payload(
        self,
        messages: Sequence[Msg],
        kept: Sequence[int],
        tools: ToolSet,
        loaded: Loaded,
        guard: MessageGuard | None,
    ) -> Payload:
        """Build the payload from the messages that the budget keeps.

        Control sequences in the kept messages are neutralised, and the provider's rules are applied to these messages.
        """
        if not kept:
            raise FormatError("no messages to format; pass at least one")
        guarded = Notes()
        neutralised: dict[str, str] = {}
        if guard is not None:
            messages = guard.messages(messages, kept, guarded, neutralised)
        profile, job = self.profile, self._job(messages, loaded, Notes())
        given, texts = turns_of(messages), are_texts(messages)
        if len(kept) < len(messages):
            given = [given[at] for at in kept]
        written: Sequence[WrittenTurn]
        if not texts and [message for message in messages if message.native]:
            turns, job = self._with_natives(given, job)
            written = [(*turn[:2], job.native(turn) or turn[2], turn[3]) for turn in turns]
        else:
            turns = written = self._apply_rules(given, job, texts=texts)
        notes = job.notes
        notes[:0] = guarded
        payload = profile.form.write(written, profile, self.model)
        if own := self._write_tools(tools, notes):
            payload["tools"] = own if guard is None else guard.tools(own, notes, neutralised)
        if dropped := len(messages) - len(given):
            why = f"the budget dropped {dropped} message{'s' * (dropped > 1)}; see trim"
            notes.add("messages", "message", "left out", why)
        if self._cache:
            with_marks(payload, self._cache, profile, self.model, notes)
        if not texts:
            self._add_keys(payload, messages, given, written, notes)
        made = Payload(payload, notes, None, (*neutralised.items(),))
        if self._strict:
            made.report.raise_for_losses()
        return made

    def _write_tools(self, tools: ToolSet, notes: Notes) -> list[JsonObject]:
        """Return new dicts of the tools in the provider's format; none if the provider does not support tools."""
        if not tools.names:
            return []
        if not self.profile.calls_tools:
            why = f"{self.profile.name} does not support tools"
            notes.add("tools", "tools", "left out", why, ", ".join(tools.names))
            return []
        packed, lost = packed_tools(tools, self.profile)
        notes += lost
        own: list[JsonObject] = marshal.loads(packed)  # noqa: S302 - the bytes are from packed_tools
        return own

    def _apply_rules(self, turns: list[Turn], job: Job, *, texts: bool) -> list[Turn]:
        for rule in _APPLIED[texts, self._merging is not None]:
            turns = rule(turns, job)
        return turns

    def _with_natives(self, given: list[Turn], job: Job) -> tuple[list[Turn], Job]:
        """Apply the rules to turns, keeping a message's native content unless a rule must change the message."""
        changed = {at for *_, at in given if self._needs_change(job.messages[at])}
        while True:
            job = job._replace(notes=Notes(), changed=job.changed | changed)
            turns = self._apply_rules(given, job, texts=False)
            if not (changed := _changed(given, turns, job)):
                break
        for at in sorted(job.changed):
            job.notes.add(f"messages[{at}]", "native", "changed", "a rule changes it, so its blocks are sent instead")
        return turns, job

    def _needs_change(self, message: Msg) -> bool:
        """Return True if a message's native content breaks one of the provider's rules."""
        native, profile = message.native, self.profile
        if native is None or native.provider != profile.native:
            return False
        return not is_own_form(message.role, native, profile, self.model)

    def _add_keys(
        self,
        payload: dict[str, Any],
        messages: Sequence[Msg],
        given: Sequence[Turn],
        turns: Sequence[WrittenTurn],
        notes: Notes,
    ) -> None:
        """Mark a final partial reply as prefill, and report metadata and names that are not sent."""
        profile, last = self.profile, given[-1][3]
        is_last = last == len(messages) - 1 and turns[-1][0] == "assistant" and profile.prefill is not None
        prefilled = is_last and is_prefill(messages[last])
        if prefilled and profile.prefill:
            payload[profile.form.messages_key][-1][profile.prefill] = True
        natives = {turn[3]: turn[2] for turn in turns if isinstance(turn[2], Native)}
        self._note_metadata(messages, given, natives, notes, prefilled=prefilled)
        if profile.names is None:
            self._note_names(given, notes)

    def _note_names(self, turns: Sequence[Turn], notes: Notes) -> None:
        for name in sorted({turn[1] for turn in turns if turn[0] != "tool"} - _NO_NAMES):
            why = f"{name!r}: {self.profile.name} does not support names; use MultiAgentFormatter to send them"
            notes.add("messages", "name", "left out", why, name)

    def _note_metadata(
        self,
        messages: Sequence[Msg],
        turns: Sequence[Turn],
        natives: Mapping[int, Native],
        notes: Notes,
        *,
        prefilled: bool,
    ) -> None:
        last = turns[-1][3]
        for *_, at in turns:
            for key, value in messages[at].metadata.items():
                if at in natives and natives[at].holds(key):
                    continue
                if key == PART_FIELDS:
                    _note_part_fields(value, f"messages[{at}]", notes)
                    continue
                if key in PREFILL and (value is False or (prefilled and at == last)):
                    continue
                what = "does not continue an unfinished answer" if key in PREFILL else "does not support this key"
                why = f"{self.profile.name} {what}"
                notes.add(f"messages[{at}].{key}", "metadata", "left out", why, str(dump(value)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.profile.name!r})"


def _changed(given: Sequence[Turn], turns: Sequence[Turn], job: Job) -> set[int]:
    """Return the indices of messages whose native content the rules changed."""
    natives = {turn[3] for turn in given if job.native(turn)}
    return natives - {turn[3] for turn in turns if job.native(turn)} if natives else natives


def _note_part_fields(parts: Json, where: str, notes: Notes) -> None:
    """Report the parts and part fields that content blocks can't represent."""
    for part, fields in parts.items() if isinstance(parts, dict) else ():
        if not isinstance(fields, dict):
            continue
        whole = fields.get("type")
        if isinstance(whole, str):
            notes.add(f"{where}.{part}", whole, "left out", "only the provider that sent it supports it", dump(fields))
            continue
        for key, value in fields.items():
            kind, why = "metadata", "content blocks do not support this field"
            if key in _CACHE_MARKS:
                kind, why = "cache", "breakpoints are set with cache="
            notes.add(f"{where}.{part}.{key}", kind, "left out", why, str(dump(value)))


class MultiAgentFormatter(ChatFormatter):
    """Formatter for conversations between named speakers, which merges consecutive messages into one user turn.

    The text of a merged turn is called a history; it contains the name of each message's speaker. Messages with tool
    calls or tool results are not merged; they remain separate turns between the histories.

    Args:
        provider: The provider's name, or a custom profile.
        history_style: The style of a history: between ``<history>`` tags (``tags``), or after a line
            ``## Conversation History`` (``conversation``) or ``## Dialogue History`` (``dialogue``).
        heading: The heading before a history, including the trailing newline; None for the default heading of
            ``history_style``.
        settings: The settings of :class:`ChatFormatter`.

    Raises:
        FormatError: The provider or the style is unknown, or the provider does not support a setting.
    """

    __slots__ = ("history_style",)

    def __init__(
        self,
        provider: str | Profile,
        *,
        history_style: HistoryStyle = "tags",
        heading: str | None = None,
        **settings: Unpack[FormatterSettings],
    ) -> None:
        if history_style not in STYLES:
            known = ", ".join(STYLES)
            near = did_you_mean(str(history_style), STYLES)
            raise FormatError(f"history_style {history_style!r} is unknown{near}; expected one of {known}")
        super().__init__(provider, **settings)
        self.history_style: HistoryStyle = history_style
        layout = self.profile.layout(history_style)
        self._merging = Merging(layout, history_style, single=True, heading=heading)
        if layout.changes:
            self.profile = self.profile.but(**layout.changes)

    def _note_names(self, turns: Sequence[Turn], notes: Notes) -> None:
        """Report speaker names on turns with tool calls, because these turns are not merged and lose their names."""
        calling = {turn[1] for turn in turns if calls_tools(turn[2])}
        for name in sorted(calling - _NO_NAMES):
            why = f"{name!r} calls tools, but {self.profile.name} does not support names for callers"
            notes.add("messages", "name", "left out", why, name)


def countable(
    payload: Mapping[str, Any], profile: Profile
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]] | None]:
    """Return a payload's messages and tools for a token counter; separate system text becomes the first message."""
    content = payload[profile.form.messages_key]
    messages: list[Mapping[str, Any]] = (
        [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
    )
    for key in ("system", "instructions", "system_instruction"):
        if key in payload:
            messages.insert(0, {"role": "system", "content": payload[key]})
    return messages, list(payload["tools"]) if "tools" in payload else None


def _build_budget(budget: Budget | None, max_tokens: int | None, counter: CountsMessages | None) -> Budget | None:
    """Return the caller's budget, or build a budget from a token limit and a counter."""
    if max_tokens is None and counter is None and budget is None:
        return None
    from lazyprompt.budget.budget import Budget, checked_budget  # noqa: PLC0415 - only a limit needs it

    if max_tokens is None and counter is None:
        return checked_budget(budget)
    if budget is not None:
        raise FormatError("budget already sets the limit and counter; pass budget, or max_tokens and token_counter")
    if max_tokens is None or counter is None:
        raise FormatError("max_tokens and token_counter require each other; pass both, or neither")
    # Like AgentScope, drop no more messages than necessary.
    return Budget(max_tokens, counter, low_water=1)


def _replace_messages(messages: Sequence[Msg], replaced: Mapping[int, Item]) -> Sequence[Msg]:
    """Return the messages after replacing the messages at the indices in ``replaced``."""
    changed = {at: item for at, item in replaced.items() if isinstance(item, Msg)}
    return [changed.get(at, message) for at, message in enumerate(messages)] if changed else messages
