"""The formatters: messages in, a provider's payload out. All providers take one path.

``parse_messages`` reads the messages, the functions of ``RULES`` make them keep the provider's rules, and the
provider's form writes them.
"""

from __future__ import annotations

import marshal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from lazyprompt._base.json import JsonObject, dump
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
from lazyprompt.formatters.profile import HistoryStyle, Layout, Profile
from lazyprompt.formatters.providers import profile_of
from lazyprompt.formatters.report import Notes, Payload
from lazyprompt.messages.native import PART_FIELDS, Native
from lazyprompt.messages.tools import ToolLike, ToolSet
from lazyprompt.messages.turns import Turn, WrittenTurn, are_texts, calls_tools, turns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.units import Item
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters._job import Loaded, Messages
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.msg import Base64Source, Msg, URLSource
    from lazyprompt.safety.policy import Safety
    from lazyprompt.tokens.counter import CountsMessages

    ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"


# Media are loaded so many at a time.
_LOADS = 8
# The keys of a part that mark a cache breakpoint for Anthropic and OpenAI.
_CACHE_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
# Names that say nothing but the role.
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
"""The rules, in the order in which they apply. Each puts right what breaks it, and reports that."""
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
"""Those that texts alone can break."""
# The rules to apply, by whether all messages are texts, and whether speakers are merged.
_APPLIED = {
    (texts, merges): tuple(
        rule for rule in RULES if (merges or rule is not merge_speakers) and (not texts or rule in TEXT_RULES)
    )
    for texts in (False, True)
    for merges in (False, True)
}


class Settings(TypedDict, total=False):
    """The settings of a :class:`ChatFormatter`, for those that hand them on."""

    model: str | None
    budget: Budget | None
    token_counter: CountsMessages | None
    max_tokens: int | None
    media: MediaResolver | None
    strict: bool
    cache: CacheLike | None
    safety: Safety | None


class ChatFormatter:
    """Messages of a user and an assistant as a provider's payload.

    It keeps nothing of a call, so one formatter serves all threads.

    Args:
        provider: The provider's name, or a profile of your own.
        model: The model, where rules differ from one to another (cache breakpoints, thoughts, answer prefill).
        budget: A budget that makes the payload fit; its tokens are counted as they will be sent.
        token_counter: The counter of the payload's tokens, for ``max_tokens``.
        max_tokens: A budget of so many tokens: the oldest messages go first, system text and the newest turn of the
            user stay.
        media: The loader of local files and addresses; without it nothing is read.
        strict: True if content that the provider cannot carry, unknown keys too, is an error, not an entry of the
            report.
        cache: The places to put cache breakpoints at: ``tools``, ``system``, ``history`` (the last message before the
            newest user's turn); as a mapping, with a lifetime for each.
        safety: What becomes of control sequences in messages and tools, none of which is trusted: ``neutralize``,
            ``raise`` or ``off``. None neutralises them for servers that tokenize texts with the model's chat template
            (vLLM, Ollama), and leaves them for hosted providers. They are those of the model's family, or of all
            families if the model is unknown.

    Raises:
        FormatError: The provider is unknown, or a setting does not fit it.
        SafetyError: There is no such ``safety``.
    """

    __slots__ = ("_budget", "_cache", "_guard", "_media", "_merging", "_strict", "model", "profile")

    def __init__(  # noqa: PLR0913 - all but one are given by name
        self,
        provider: str | Profile,
        *,
        model: str | None = None,
        budget: Budget | None = None,
        token_counter: CountsMessages | None = None,
        max_tokens: int | None = None,
        media: MediaResolver | None = None,
        strict: bool = False,
        cache: CacheLike | None = None,
        safety: Safety | None = None,
    ) -> None:
        self.profile = provider if isinstance(provider, Profile) else profile_of(provider)
        self.model = model
        self._budget = _budget_of(budget, max_tokens, token_counter)
        self._media, self._strict = media, strict
        self._cache = checked_cache(cache, self.profile)
        self._guard = guard_for(self.profile, model, safety)
        # A provider that takes one text gets a conversation as one.
        self._merging = None if self.profile.turns else Merging(Layout(), "conversation", single=False)

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.profile.name

    def format(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """Format a conversation as a payload.

        Args:
            messages: Msg, OpenAI dicts, pairs, or lists of them in any mixture; ``None`` is passed over. They stay as
                they are, and the payload shares nothing mutable with them.
            tools: The tools the model may call: dicts in the OpenAI form or Python functions.

        Returns:
            The payload, with a report of all that is not in it as it was given.

        Raises:
            FormatError: A result has no call, a tool no form or name that the provider takes, there is no message, or
                ``strict`` and content was lost.
            MediaError: A picture or the like cannot be read, or may not be.
            HistoryError: Something is no message.
            BudgetError: Even what must stay does not fit.
            SafetyError: Text holds a control sequence, and ``safety`` is ``raise``.
        """
        return self._format(parse_arguments(messages), ToolSet.of(tools))

    def format_parsed(self, messages: Sequence[Msg], tools: ToolSet, guard: MessageGuard | None) -> Payload:
        """Format messages that are parsed already, with a guard of the caller's; see :meth:`format`."""
        return self._payload(messages, range(len(messages)), tools, {}, guard)

    def _format(self, messages: Sequence[Msg], tools: ToolSet) -> Payload:
        loaded: Loaded = self._loaded(self._sources(messages)) if self._media or self._budget else {}
        if self._budget is None:
            return self._payload(messages, range(len(messages)), tools, loaded, self._guard)
        fitted = self._budget.fitted(messages, partial(self._cost, self._budget, messages, tools, loaded))
        return self._fitting(messages, tools, loaded, fitted)

    async def aformat(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """Async version of :meth:`format`: media are loaded side by side, and nothing blocks the event loop.

        A budget counts in a thread, and its summarizer is awaited.
        """
        import asyncio  # noqa: PLC0415 - 25 ms that a program without it need not pay

        parsed, own = parse_arguments(messages), ToolSet.of(tools)
        sources = self._sources(parsed) if self._media or self._budget else {}
        loaded: Loaded = {}
        if sources:
            resolver = cast("MediaResolver", self._media)
            gate = asyncio.Semaphore(_LOADS)

            async def load(source: URLSource, where: str) -> Base64Source:
                async with gate:
                    return await resolver.aload(source, where)

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {source: group.create_task(load(source, where)) for source, where in sources.items()}
            except ExceptionGroup as failed:
                # The first that failed ended the others.
                raise failed.exceptions[0] from None
            loaded = {source: task.result() for source, task in tasks.items()}
        if self._budget is None:
            return self._payload(parsed, range(len(parsed)), own, loaded, self._guard)
        fitted = await self._budget.afitted(parsed, partial(self._cost, self._budget, parsed, own, loaded))
        return self._fitting(parsed, own, loaded, fitted)

    def validate(self, payload: Mapping[str, Any]) -> None:
        """Judge any payload by the provider's rules.

        Args:
            payload: The payload: this package's or anybody's.

        Raises:
            FormatError: It breaks a rule; all violations are listed, each with its path and what to do.
        """
        found = violations(payload, self.profile, self.model)
        if found:
            raise FormatError(f"{self.profile.name} would refuse this payload:\n" + "\n".join(map(str, found)))

    def parse(self, response: object, name: str = "assistant") -> Msg:
        """Read the provider's answer as a message, ready for history.

        Args:
            response: The answer: a dict, or the official client's own object.
            name: Who the message is from.

        Returns:
            The message with text, thoughts and calls; ``usage`` where the provider tells it. Arguments that are no JSON
            object are kept as the ``raw_input`` of the call.

        Raises:
            FormatError: It is no answer of this provider.
        """
        message = self.profile.form.parse(as_dict(response), self.profile.name)
        return message if name == message.name else message.spoken_by(name)

    def _sources(self, messages: Sequence[Msg]) -> dict[URLSource, str]:
        """Return what must be loaded; before a budget drops any, all media are checked."""
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

    def _loaded(self, sources: dict[URLSource, str]) -> Loaded:
        if not sources:
            return {}
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only media need it

        with ThreadPoolExecutor(_LOADS) as pool:
            found = pool.map(cast("MediaResolver", self._media).load, sources, sources.values())
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
        """Count the tokens of some of the messages as they will be sent."""
        payload = self._payload(_replaced(messages, replaced), kept, tools, loaded, self._guard)
        return budget.count(*countable(payload, self.profile))

    def _fitting(self, messages: Sequence[Msg], tools: ToolSet, loaded: Loaded, fitted: Fitted) -> Payload:
        """Format the messages that fit."""
        payload = self._payload(_replaced(messages, fitted.replaced), fitted.kept, tools, loaded, self._guard)
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
        """Guard the messages that are kept, by their indices, apply the rules, and write the payload."""
        if not kept:
            raise FormatError("there is no message; give at least one")
        guarded, neutralised = Notes(), dict[str, str]()
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
            turns = written = self._ruled(given, job, texts=texts)
        notes = job.notes
        notes[:0] = guarded
        payload = profile.form.write(written, profile, self.model)
        if tools.names and profile.calls_tools:
            packed, lost = packed_tools(tools, profile)
            notes += lost
            own: list[JsonObject] = marshal.loads(packed)  # noqa: S302 - bytes of our own making
            payload["tools"] = own if guard is None else guard.tools(own, notes, neutralised)
        elif tools.names:
            notes.add("tools", "tools", "left out", f"{profile.name} knows no tools", ", ".join(tools.names))
        if len(given) < len(messages):
            why = f"{len(messages) - len(given)} of the messages went, to keep to the budget; see trim"
            notes.add("messages", "message", "left out", why)
        if self._cache:
            with_marks(payload, self._cache, profile, self.model, notes)
        if not texts:
            self._add_keys(payload, messages, given, written, notes)
        return Payload(payload, notes.finished(strict=self._strict), None, (*neutralised.items(),))

    def _ruled(self, turns: list[Turn], job: Job, *, texts: bool) -> list[Turn]:
        """Apply the rules."""
        for rule in _APPLIED[texts, self._merging is not None]:
            turns = rule(turns, job)
        return turns

    def _with_natives(self, given: list[Turn], job: Job) -> tuple[list[Turn], Job]:
        """Apply the rules to turns of which some are the provider's own: as they came, or judged by all rules."""
        changed = {at for *_, at in given if self._refuses(job.messages[at])}
        while True:
            job = job._replace(notes=Notes(), changed=job.changed | changed)
            turns = self._ruled(given, job, texts=False)
            if not (changed := _changed(given, turns, job)):
                break
        for at in sorted(job.changed):
            job.notes.add(f"messages[{at}]", "native", "changed", "a rule has to change it, so its blocks are sent")
        return turns, job

    def _refuses(self, message: Msg) -> bool:
        """Return True if a message in the provider's own form breaks a rule of the provider."""
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
        """Mark a last answer that the model goes on with; report further keys and names that have no place."""
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
            why = f"{name!r}: {self.profile.name} has no place for names; MultiAgentFormatter writes them"
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
                    _note_part_fields(cast("Mapping[str, JsonObject]", value), f"messages[{at}]", notes)
                    continue
                if key in PREFILL and (value is False or (prefilled and at == last)):
                    continue
                what = "goes on with no unfinished answer" if key in PREFILL else "has no place for it"
                why = f"{self.profile.name} {what}"
                notes.add(f"messages[{at}].{key}", "metadata", "left out", why, str(dump(value)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.profile.name!r})"


def _changed(given: Sequence[Turn], turns: Sequence[Turn], job: Job) -> set[int]:
    """Return the indices of the messages from the provider that are not among the turns as they came."""
    came = {turn[3] for turn in given if job.native(turn)}
    return came - {turn[3] for turn in turns if job.native(turn)} if came else came


def _note_part_fields(parts: Mapping[str, JsonObject], where: str, notes: Notes) -> None:
    """Report what of the parts of a message no block has a place for: whole parts, and fields."""
    for part, fields in parts.items():
        whole = fields.get("type")
        if isinstance(whole, str):
            notes.add(
                f"{where}.{part}", whole, "left out", "only the provider that it came from knows it", dump(fields)
            )
            continue
        for key, value in fields.items():
            kind, why = "metadata", "a block has no place for it"
            if key in _CACHE_MARKS:
                kind, why = "cache", "breakpoints are set with cache="
            notes.add(f"{where}.{part}.{key}", kind, "left out", why, str(dump(value)))


class MultiAgentFormatter(ChatFormatter):
    """Messages of many named speakers as a provider's payload: what they say becomes a history in the user's turns.

    Exchanges of tool calls and results stay as they are between the histories.

    Args:
        provider: As in :class:`ChatFormatter`.
        history_style: How a history is written: between ``<history>`` tags (``tags``), or behind a line
            ``## Conversation History`` (``conversation``) or ``## Dialogue History`` (``dialogue``).
        settings: As in :class:`ChatFormatter`.

    Raises:
        FormatError: The provider or the style is unknown, or a setting does not fit.
    """

    __slots__ = ("history_style",)

    def __init__(
        self, provider: str | Profile, *, history_style: HistoryStyle = "tags", **settings: Unpack[Settings]
    ) -> None:
        if history_style not in STYLES:
            known = ", ".join(STYLES)
            near = did_you_mean(str(history_style), STYLES)
            raise FormatError(f"history_style {history_style!r} is unknown{near}; known are {known}")
        super().__init__(provider, **settings)
        self.history_style: HistoryStyle = history_style
        layout = self.profile.layout(history_style)
        self._merging = Merging(layout, history_style, single=True)
        if layout.changes:
            self.profile = self.profile.but(**layout.changes)

    def _note_names(self, turns: Sequence[Turn], notes: Notes) -> None:
        """Report the names of agents that call tools; all others stand in the text."""
        calling = {turn[1] for turn in turns if calls_tools(turn[2])}
        for name in sorted(calling - _NO_NAMES):
            why = f"{name!r} calls tools, and {self.profile.name} has no place for the name of who does"
            notes.add("messages", "name", "left out", why, name)


def countable(
    payload: Mapping[str, Any], profile: Profile
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]] | None]:
    """Return a payload as messages and tools, for a counter; system text that stands apart is the first message."""
    content = payload[profile.form.messages_key]
    messages: list[Mapping[str, Any]] = (
        [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
    )
    for key in ("system", "instructions", "system_instruction"):
        if key in payload:
            messages.insert(0, {"role": "system", "content": payload[key]})
    return messages, list(payload["tools"]) if "tools" in payload else None


def _budget_of(budget: Budget | None, max_tokens: int | None, counter: CountsMessages | None) -> Budget | None:
    """Return the budget that was given, or the one that a limit and a counter make."""
    if max_tokens is None and counter is None and budget is None:
        return None
    from lazyprompt.budget.budget import Budget, checked_budget  # noqa: PLC0415 - only a limit needs it

    if max_tokens is None and counter is None:
        return checked_budget(budget)
    if budget is not None:
        raise FormatError("a budget has its own limit and counter; give budget, or max_tokens and token_counter")
    if max_tokens is None or counter is None:
        raise FormatError("max_tokens and token_counter go together: give both, or neither")
    # As in AgentScope, whose arguments these are, no more goes than must.
    return Budget(max_tokens, counter, low_water=1)


def _replaced(messages: Sequence[Msg], replaced: Mapping[int, Item]) -> Sequence[Msg]:
    """Return messages, some of them replaced."""
    changed = cast("Mapping[int, Msg]", replaced)
    return [changed.get(at, message) for at, message in enumerate(messages)] if changed else messages
