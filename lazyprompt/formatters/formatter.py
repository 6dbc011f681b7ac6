"""The formatters: messages in, a provider's payload out. The one path that all providers take.

    messages → read → (carried → exchanges → system → merged → names → media → turns, where anything needs it) → written

Most conversations keep a provider's rules already: they are read and written, nothing else.
"""

from __future__ import annotations

import marshal
import re
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from lazyprompt._base.json import dump
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.formatters import _carry, _exchanges, _repair
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters._cache import checked_cache, with_marks
from lazyprompt.formatters._carry import sources_to_load, with_urls
from lazyprompt.formatters._merge import STYLES, merged
from lazyprompt.formatters._tools import packed_tools
from lazyprompt.formatters._turns import PREFILL, calls_tools, flat, read
from lazyprompt.formatters._validate import violations
from lazyprompt.formatters.profile import Layout, Profile
from lazyprompt.formatters.providers import profile_of
from lazyprompt.formatters.report import Notes, Payload
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.openai_form import PART_FIELDS
from lazyprompt.messages.tools import ToolSet
from lazyprompt.safety.speakers import looks_like_role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.units import Item
    from lazyprompt.formatters._cache import CacheLike
    from lazyprompt.formatters._carry import Loaded
    from lazyprompt.formatters._turns import MessageLike, Messages, Reading, Turn
    from lazyprompt.formatters.profile import HistoryStyle
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.msg import Base64Source, URLSource
    from lazyprompt.messages.tools import ToolLike
    from lazyprompt.tokens.counter import CountsMessages

    ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"


# Media are loaded so many at a time.
_LOADS = 8
_NO_TOOLS = ToolSet.of(None)
# Names that say nothing but the role.
# The keys of a part that mark a cache breakpoint for Anthropic and OpenAI.
_CACHE_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
_NO_NAMES = frozenset({*ROLES, ""})


class Settings(TypedDict, total=False):
    """The settings of a :class:`ChatFormatter`, for those that hand them on."""

    model: str | None
    budget: Budget | None
    token_counter: CountsMessages | None
    max_tokens: int | None
    media: MediaResolver | None
    strict: bool
    cache: CacheLike | None


class ChatFormatter:
    """Messages of a user and an assistant as a provider's payload.

    It keeps nothing of a call, so one formatter serves all threads.

    Args:
        provider: The provider's name, or a profile of your own.
        model: The model, where rules differ from one to another (cache breakpoints, thoughts, answer prefill).
        budget: What makes the payload fit: its tokens are counted as they will be sent.
        token_counter: What counts the payload's tokens, for ``max_tokens``.
        max_tokens: The same as a budget of so many tokens: the oldest messages go first, system text and the newest
            turn of the user stay.
        media: What may load local files and addresses; without it nothing is read.
        strict: Whether content that the provider cannot carry, unknown keys too, is an error, not an entry of the
            report.
        cache: The places to put cache breakpoints at: ``tools``, ``system``, ``history`` (the last message before the
            newest user's turn); as a mapping, with a lifetime for each.

    Raises:
        FormatError: The provider is unknown, or a setting does not fit it.
    """

    __slots__ = ("_budget", "_cache", "_media", "_strict", "model", "profile")

    def __init__(
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
    ) -> None:
        self.profile = provider if isinstance(provider, Profile) else profile_of(provider)
        self.model = model
        self._budget = _budget_of(budget, max_tokens, token_counter)
        self._media, self._strict = media, strict
        self._cache = checked_cache(cache, self.profile)

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.profile.name

    def format(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """The payload of a conversation.

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
        """
        given, own = self._given(messages, tools)
        reading = read(given)
        loaded = self._loaded(self._sources(reading))
        if self._budget is None:
            return self._payload(reading, own, loaded)
        cost = partial(self._cost, self._budget, reading, own, loaded)
        return self._fitting(reading, own, loaded, self._budget.fitted(reading.messages, cost))

    async def aformat(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """The same as :meth:`format`, with media loaded side by side and nothing that blocks the event loop.

        A budget counts in a thread, and its summarizer is awaited.
        """
        import asyncio  # noqa: PLC0415 - 25 ms that a program without it need not pay

        given, own = self._given(messages, tools)
        reading = read(given)
        sources = self._sources(reading)
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
            return self._payload(reading, own, loaded)
        cost = partial(self._cost, self._budget, reading, own, loaded)
        return self._fitting(reading, own, loaded, await self._budget.afitted(reading.messages, cost))

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
        """The provider's answer as a message, ready for history.

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
        return message if name == message.name else Msg(name, message.content, "assistant", usage=message.usage)

    def _given(self, messages: tuple[Messages, ...], tools: ToolsLike) -> tuple[list[MessageLike], ToolSet]:
        own = _NO_TOOLS if tools is None else ToolSet.of(tools)
        given = flat(messages)
        if not given:
            raise FormatError("there is no message; give at least one")
        return given, own

    def _sources(self, reading: Reading) -> dict[URLSource, str]:
        """What must be loaded."""
        if not reading.rough:
            return {}

        turns = with_urls(reading.turns, reading.messages, self.profile, Notes())
        return sources_to_load(turns, self.profile, self._media, merges=self._merges)

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
        reading: Reading,
        tools: ToolSet,
        loaded: Loaded,
        kept: Sequence[int],
        replaced: Mapping[int, Item],
    ) -> int:
        """What some of the messages cost as they will be sent."""
        return budget.count(*countable(self._payload(_part(reading, kept, replaced), tools, loaded), self.profile))

    def _fitting(self, reading: Reading, tools: ToolSet, loaded: Loaded, fitted: Fitted) -> Payload:
        """The payload of what fits."""
        payload = self._payload(_part(reading, fitted.kept, fitted.replaced), tools, loaded)
        payload.trim = fitted.report
        return payload

    def _payload(self, reading: Reading, tools: ToolSet, loaded: Loaded) -> Payload:
        profile, notes = self.profile, Notes()
        turns = reading.turns if self._is_plain(reading) else self._repaired(reading, loaded, notes)
        payload = profile.form.write(turns, profile, self.model)
        if tools.names:
            if profile.calls_tools:
                packed, lost = packed_tools(tools, profile)
                notes += lost
                payload["tools"] = marshal.loads(packed)  # noqa: S302 - bytes of our own making
            else:
                notes.add("tools", "tools", "left out", f"{profile.name} knows no tools", ", ".join(tools.names))
        if reading.cut:
            why = f"{reading.cut} of the messages went, to keep to the budget; see trim"
            notes.add("messages", "message", "left out", why)
        if self._cache:
            with_marks(payload, self._cache, profile, self.model, notes)
        if reading.metadata:
            self._note_metadata(reading, notes, prefilled=self._mark_prefill(payload, reading, turns))
        if profile.names is None and not reading.names <= _NO_NAMES:
            self._note_names(reading, notes)
        return Payload(payload, notes.finished(strict=self._strict)) if notes else Payload(payload)

    def _is_plain(self, reading: Reading) -> bool:
        """Whether a conversation keeps the provider's rules as it is."""
        profile, turns = self.profile, reading.turns
        first: str = turns[0][0]
        if (
            reading.rough
            or not profile.calls_tools
            or (reading.has_developer and not profile.developer)
            or (profile.system != "anywhere" and (reading.late_system or (reading.repeats and first != "user")))
            or (profile.alternate and reading.repeats)
            or (profile.answers_results and ("tool", "user") in pairwise([turn[0] for turn in turns]))
            or (reading.ids and not _all_fit(reading, profile))
        ):
            return False
        if first == "system":
            first = turns[1][0] if len(turns) > 1 else "nobody"
        if first != "user" and (
            profile.user_first or (profile.needs_user and all(turn[0] != "user" for turn in turns))
        ):
            return False
        if turns[-1][0] == "assistant" and (self._needs_user_last(reading) or not profile.trailing_space):
            return False
        if profile.names is None:
            return True
        wrong = {
            name
            for name in reading.names
            if name and (name in _NO_NAMES or not profile.names.fullmatch(name) or looks_like_role(name))
        }
        return not wrong or all(name == role or name not in wrong for role, name, _, _ in turns)

    def _repaired(self, reading: Reading, loaded: Loaded, notes: Notes) -> list[Turn]:
        """The turns with all that breaks a rule put right."""
        profile = self.profile
        turns = _carry.with_urls(reading.turns, reading.messages, profile, notes)
        turns = _carry.carried(turns, profile, self._media, loaded, notes, merges=self._merges)
        turns = _exchanges.exchanges(turns, notes)
        turns = _repair.with_system_first(turns, profile, notes, always=self._merges)
        turns = self._merged(turns, notes)
        turns = _repair.with_fitting_names(turns, profile, notes)
        turns = _repair.with_media_behind(turns, profile, notes)
        turns = _repair.with_answers(turns, profile, notes)
        turns = _repair.taking_turns(turns, profile, notes, user_last=self._needs_user_last(reading))
        return _repair.without_last_space(turns, profile, notes)

    def _needs_user_last(self, reading: Reading) -> bool:
        """Return True if the last turn must be the user's or a tool's; a prefill that the provider knows is none."""
        return not (reading.prefill and self.profile.prefill) and self.profile.needs_user_last(self.model)

    def _mark_prefill(self, payload: dict[str, Any], reading: Reading, turns: list[Turn]) -> bool:
        """Mark the beginning of the answer as such; return False where the payload has none."""
        key = self.profile.prefill
        if not reading.prefill or key is None or turns[-1][0] != "assistant":
            return False
        if key:
            payload[self.profile.form.messages_key][-1][key] = True
        return True

    @property
    def _merges(self) -> bool:
        """Whether all speakers are merged into the user's turns."""
        return not self.profile.turns

    def _merged(self, turns: list[Turn], notes: Notes) -> list[Turn]:
        """The turns as they are; a provider that takes one text gets a conversation as one."""
        if self.profile.turns or sum(turn[0] != "system" for turn in turns) <= 1:
            return turns

        return merged(turns, Layout(), "conversation", notes)

    def _note_names(self, reading: Reading, notes: Notes) -> None:
        for name in sorted(reading.names - _NO_NAMES):
            why = f"{name!r}: {self.profile.name} has no place for names; MultiAgentFormatter writes them"
            notes.add("messages", "name", "left out", why, name)

    def _note_metadata(self, reading: Reading, notes: Notes, *, prefilled: bool) -> None:
        last = reading.turns[-1][3]
        for at, fields in sorted(reading.metadata.items()):
            for key, value in fields.items():
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


def _note_part_fields(parts: Mapping[str, JsonObject], where: str, notes: Notes) -> None:
    """Report the fields of parts that no block has a place for."""
    for part, fields in parts.items():
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

    __slots__ = ("_layout", "history_style")

    def __init__(
        self, provider: str | Profile, *, history_style: HistoryStyle = "tags", **settings: Unpack[Settings]
    ) -> None:
        if history_style not in STYLES:
            known = ", ".join(STYLES)
            near = did_you_mean(str(history_style), STYLES)
            raise FormatError(f"history_style {history_style!r} is unknown{near}; known are {known}")
        super().__init__(provider, **settings)
        self.history_style: HistoryStyle = history_style
        self._layout = self.profile.layout(history_style)
        if self._layout.changes:
            self.profile = self.profile.but(**self._layout.changes)

    def _is_plain(self, reading: Reading) -> bool:
        return False

    @property
    def _merges(self) -> bool:
        return True

    def _merged(self, turns: list[Turn], notes: Notes) -> list[Turn]:
        return merged(turns, self._layout, self.history_style, notes)

    def _note_names(self, reading: Reading, notes: Notes) -> None:
        """Names stand in the text, but for those of agents that call tools."""
        calling = {turn[1] for turn in reading.turns if calls_tools(turn[2])}
        for name in sorted(calling - _NO_NAMES):
            why = f"{name!r} calls tools, and {self.profile.name} has no place for the name of who does"
            notes.add("messages", "name", "left out", why, name)


def _all_fit(reading: Reading, profile: Profile) -> bool:
    """Whether ids and names of all calls are in the provider's alphabets."""
    ids = _all_of(profile.ids.pattern).fullmatch("\0".join(reading.ids))
    return ids is not None and all(map(profile.tool_names.fullmatch, set(reading.ids.values())))


@lru_cache(maxsize=64)
def _all_of(pattern: str) -> re.Pattern[str]:
    """What many texts of a pattern match, joined with a sign that none of them holds."""
    return re.compile(f"(?:{pattern})(?:\0(?:{pattern}))*")


def countable(
    payload: Mapping[str, Any], profile: Profile
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]] | None]:
    """A payload as messages and tools, for a counter; system text that stands apart is the first message."""
    said = payload[profile.form.messages_key]
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
    for key in ("system", "instructions", "system_instruction"):
        if key in payload:
            messages.insert(0, {"role": "system", "content": payload[key]})
    return messages, list(payload["tools"]) if "tools" in payload else None


def _budget_of(budget: Budget | None, max_tokens: int | None, counter: CountsMessages | None) -> Budget | None:
    """The budget: the one that was given, or what a limit and a counter are."""
    if max_tokens is None and counter is None and budget is None:
        return None
    from lazyprompt.budget.budget import Budget, checked_budget  # noqa: PLC0415 - only a limit needs it

    if max_tokens is None and counter is None:
        return checked_budget(budget)
    if budget is not None:
        raise FormatError("a budget has its own limit and counter; give budget, or max_tokens and token_counter")
    if max_tokens is None or counter is None:
        raise FormatError("max_tokens and token_counter go together: give both, or neither")
    return Budget(max_tokens, counter)


def _part(reading: Reading, kept: Sequence[int], replaced: Mapping[int, Item]) -> Reading:
    """The reading of some of the messages, some of them replaced."""
    if not replaced:
        return reading.only(kept)
    changed = cast("Mapping[int, MessageLike]", replaced)
    return read([changed.get(at, message) for at, message in enumerate(reading.messages)]).only(kept)
