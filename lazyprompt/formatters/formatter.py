"""The formatters: messages in, a provider's payload out. All providers take one path.

Messages are read into turns, the steps of ``STEPS`` that a conversation needs make the turns keep the provider's rules,
and the provider's form writes them.
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
from lazyprompt.formatters._merge import STYLES, merge_speakers
from lazyprompt.formatters._repair import (
    add_user_turns,
    answer_results,
    fit_names,
    ids_fit,
    join_neighbours,
    move_media,
    order_exchanges,
    put_system_first,
    strip_last_space,
)
from lazyprompt.formatters._tools import packed_tools
from lazyprompt.formatters._turns import PREFILL, Job, Merging, calls_tools, flat, read
from lazyprompt.formatters._validate import violations
from lazyprompt.formatters.profile import HistoryStyle, Layout, Profile, Turn
from lazyprompt.formatters.providers import profile_of
from lazyprompt.formatters.report import Notes, Payload, Report
from lazyprompt.messages.msg import Base64Source, Msg, URLSource
from lazyprompt.messages.openai_form import PART_FIELDS
from lazyprompt.messages.reading import without_role_name
from lazyprompt.messages.tools import ToolLike, ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.units import Item
    from lazyprompt.formatters._turns import Loaded, MessageLike, Messages, Reading
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.tokens.counter import CountsMessages

    ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"


# Media are loaded so many at a time.
_LOADS = 8
_NO_TOOLS = ToolSet.of(None)
# The keys of a part that mark a cache breakpoint for Anthropic and OpenAI.
_CACHE_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
# Names that say nothing but the role.
_NO_NAMES = frozenset({*ROLES, ""})


# The rules from turns to turns, in the order they are applied, each with the test if anything can break it. A rule puts
# right what breaks it, and reports that; all other turns stay as they are.
STEPS: tuple[tuple[Callable[[list[Turn], Job], list[Turn]], Callable[[Job], object]], ...] = (
    (add_urls, lambda job: job.reading.urls),
    (carry, lambda job: job.reading.unusual or not job.profile.calls_tools),
    (order_exchanges, lambda job: job.reading.unordered or job.reading.media_in_results),
    (put_system_first, lambda job: job.reading.has_late_system),
    (merge_speakers, lambda job: job.merging),
    (fit_names, lambda job: job.profile.names or job.reading.unordered or not ids_fit(job.reading.ids, job)),
    (move_media, lambda job: job.reading.media_in_results),
    (answer_results, lambda job: job.profile.answers_results),
    (join_neighbours, lambda job: job.profile.alternate),
    (add_user_turns, lambda _: True),
    (strip_last_space, lambda job: not job.profile.trailing_space),
)


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
        budget: A budget that makes the payload fit; its tokens are counted as they will be sent.
        token_counter: The counter of the payload's tokens, for ``max_tokens``.
        max_tokens: A budget of so many tokens: the oldest messages go first, system text and the newest turn of the
            user stay.
        media: The loader of local files and addresses; without it nothing is read.
        strict: True if content that the provider cannot carry, unknown keys too, is an error, not an entry of the
            report.
        cache: The places to put cache breakpoints at: ``tools``, ``system``, ``history`` (the last message before the
            newest user's turn); as a mapping, with a lifetime for each.

    Raises:
        FormatError: The provider is unknown, or a setting does not fit it.
    """

    __slots__ = ("_budget", "_cache", "_media", "_merging", "_strict", "model", "profile")

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
        """
        reading, own = _read(messages, tools)
        loaded = self._loaded(self._sources(reading))
        if self._budget is None:
            return self._payload(reading, own, loaded)
        fitted = self._budget.fitted(reading.messages, partial(self._cost, self._budget, reading, own, loaded))
        return self._fitting(reading, own, loaded, fitted)

    async def aformat(self, *messages: Messages, tools: ToolsLike = None) -> Payload:
        """Async version of :meth:`format`: media are loaded side by side, and nothing blocks the event loop.

        A budget counts in a thread, and its summarizer is awaited.
        """
        import asyncio  # noqa: PLC0415 - 25 ms that a program without it need not pay

        reading, own = _read(messages, tools)
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
        fitted = await self._budget.afitted(reading.messages, partial(self._cost, self._budget, reading, own, loaded))
        return self._fitting(reading, own, loaded, fitted)

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
        return message if name == message.name else Msg(name, message.content, "assistant", usage=message.usage)

    def _sources(self, reading: Reading) -> dict[URLSource, str]:
        """Return what must be loaded."""
        # Without a resolver nothing is loaded; before a budget drops any, all media are checked.
        if not reading.unusual or (self._media is None and self._budget is None):
            return {}
        wanted: dict[URLSource, str] = {}
        job = self._job(reading, {}, Notes(), wanted)
        carry(add_urls([turn for turn in reading.turns if turn[3] in reading.unusual], job), job)
        return wanted

    def _job(self, reading: Reading, loaded: Loaded, notes: Notes, wanted: dict[URLSource, str] | None = None) -> Job:
        profile = self.profile
        # A prefill that the provider knows is no last turn.
        user_last = not (reading.prefill and profile.prefill) and profile.needs_user_last(self.model)
        return Job(reading, profile, notes, self._media, loaded, wanted, self._merging, user_last)

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
        """Count the tokens of some of the messages as they will be sent."""
        return budget.count(*countable(self._payload(_part(reading, kept, replaced), tools, loaded), self.profile))

    def _fitting(self, reading: Reading, tools: ToolSet, loaded: Loaded, fitted: Fitted) -> Payload:
        """Format the messages that fit."""
        payload = self._payload(_part(reading, fitted.kept, fitted.replaced), tools, loaded)
        payload.trim = fitted.report
        return payload

    def _payload(self, reading: Reading, tools: ToolSet, loaded: Loaded) -> Payload:
        profile, notes = self.profile, Notes()
        job, turns = self._job(reading, loaded, notes), reading.turns
        for step, is_needed in STEPS:
            if is_needed(job):
                turns = step(turns, job)
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
        prefilled = bool(reading.prefill) and profile.prefill is not None and turns[-1][0] == "assistant"
        if prefilled and profile.prefill:
            payload[profile.form.messages_key][-1][profile.prefill] = True
        self._note_metadata(reading, notes, prefilled=prefilled)
        if profile.names is None:
            self._note_names(reading, notes)
        return Payload(payload, notes.finished(strict=self._strict))

    def _note_names(self, reading: Reading, notes: Notes) -> None:
        for name in sorted({turn[1] for turn in reading.turns} - _NO_NAMES):
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


def _read(messages: Iterable[Messages], tools: ToolsLike) -> tuple[Reading, ToolSet]:
    own = _NO_TOOLS if tools is None else ToolSet.of(tools)
    given = flat(messages)
    if not given:
        raise FormatError("there is no message; give at least one")
    return read(given), own


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

    def _note_names(self, reading: Reading, notes: Notes) -> None:
        """Report the names of agents that call tools; all others stand in the text."""
        calling = {turn[1] for turn in reading.turns if calls_tools(turn[2])}
        for name in sorted(calling - _NO_NAMES):
            why = f"{name!r} calls tools, and {self.profile.name} has no place for the name of who does"
            notes.add("messages", "name", "left out", why, name)


class ProviderTarget:
    """A provider's payload.

    Args:
        provider: The provider.
        model: The model.
        system: Tells the system text of a prompt.

    Raises:
        FormatError: The provider is unknown.
    """

    def __init__(self, provider: str, model: str | None, system: Callable[[Prompt], str]) -> None:
        self._formatter = ChatFormatter(provider, model=model)
        self._system = system

    def render(self, prompt: Prompt) -> Payload:
        """Return the payload.

        If the user has no text and there is no history, the instruction is the user's turn: no provider is sent an
        empty one.

        Raises:
            FormatError: The provider cannot carry what the prompt holds.
        """
        system, instruction = self._system(prompt), "".join(prompt.instruction.parts)
        question, past = prompt.said, prompt.history
        if question is None and prompt.input is not None and instruction and not past:
            instruction, question = "", instruction
        text = f"{system}\n{instruction}" if system and instruction else system or instruction
        messages: list[MessageLike] = [{"role": "system", "content": text}] if text else []
        if not past.has_messages:
            messages += past.to_openai()
        elif self._formatter.profile.names is None:
            messages += past.messages
        else:
            # A history of pairs or dicts names nobody, and a Msg of one has its role for a name.
            messages += map(without_role_name, past.messages)
        if question is not None:
            messages.append({"role": "user", "content": question})
        if prompt.label is not None:
            messages.append({"role": "assistant", "content": prompt.label})
        payload = self._formatter.format(messages, tools=prompt.tools)
        if prompt.source is not None and prompt.source.report:
            payload.report = (*cast("Report", prompt.source.report), *payload.report)
        return payload

    def cost(self, prompt: Prompt, budget: Budget) -> int:
        """Return the tokens of the payload."""
        return budget.count(*countable(self.render(prompt), self._formatter.profile))

    def tokens(self, prompt: Prompt, budget: Budget) -> Mapping[str, int]:
        """Return the tokens of each slot, each counted by itself."""
        return budget.count_slots(prompt, self._system(prompt))


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
    return Budget(max_tokens, counter)


def _part(reading: Reading, kept: Sequence[int], replaced: Mapping[int, Item]) -> Reading:
    """Return the reading of some of the messages, some of them replaced."""
    if not replaced:
        return reading.only(kept)
    changed = cast("Mapping[int, MessageLike]", replaced)
    return read([changed.get(at, message) for at, message in enumerate(reading.messages)]).only(kept)
