"""Provider rules as data; ``docs/reference/providers.md`` explains how to add a provider."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError, check_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.shape import Check, MessageView, Path
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.turns import WrittenTurn

MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
# The rules that some providers document but do not enforce.
Unenforced: TypeAlias = Literal["alternation", "user first", "system first", "empty text", "unique ids"]
HistoryStyle: TypeAlias = Literal["tags", "conversation", "dialogue"]

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = ("application/pdf",)
ALL_MEDIA = frozenset({"image", "audio", "video", "file"})


class Form(Protocol):
    """A wire format, which writes, parses and checks payloads for one or more providers."""

    @property
    def messages_key(self) -> str:
        """The payload key that contains the conversation."""
        ...

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns as a new payload without tools; the turns already follow the provider's rules."""
        ...

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return tools in the provider's format.

        Raises:
            FormatError: The provider doesn't support a tool of this type.
        """
        ...

    def shape(self, profile: Profile) -> Check:
        """Return a check for the JSON shape of a payload."""
        ...

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the path and name of each function that a payload declares."""
        ...

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield a ``MessageView`` of each message in a payload, skipping values that have the wrong shape."""
        ...

    def parse(self, answer: Mapping[str, object], provider: str) -> Msg:
        """Parse the provider's response as a message."""
        ...


@read_only
@dataclass(frozen=True, slots=True)
class Media:
    """A provider's rules for one kind of media.

    Args:
        types: The accepted MIME types, such as ``image/png``, or ``image/*`` for all image types. If an alias such as
            ``audio/mp3`` is listed, it is sent unchanged.
        url: True if the provider fetches media from URLs.
        data: True if the provider accepts base64 data.
        schemes: The accepted URL schemes besides HTTP(S), such as ``gs``.
        opaque: True if a string that is not a URL is accepted as well, such as the name of an uploaded file.
        assistant: True if assistant messages may contain this kind of media.
        system: True if the system message may contain this kind of media.
    """

    types: tuple[str, ...]
    url: bool = True
    data: bool = True
    schemes: tuple[str, ...] = ()
    opaque: bool = False
    assistant: bool = False
    system: bool = False

    def takes(self, media_type: str) -> bool:
        """Return True if the provider accepts a MIME type."""
        return media_type in self.types or f"{media_type.partition('/')[0]}/*" in self.types


@read_only
@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """The position of a merged history relative to the system text and to media.

    Args:
        system: The turn that contains the system text. ``own`` writes system text as a separate turn, ``joined`` writes
            it at the start of the user turn, and ``host`` writes it in a system turn that also contains the history.
        join: The separator between the system text and the history.
        media_last: True to place all media after the history's text; False to keep media between the history's lines.
        changes: The profile fields to override for this history style.
    """

    system: Literal["own", "joined", "host"] = "own"
    join: str = "\n"
    media_last: bool = True
    changes: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)


@read_only
@dataclass(frozen=True, slots=True)
class Breakpoints:
    """A provider's rules for cache breakpoints, which mark the end of a cached prefix.

    Args:
        key: The block key that sets a cache breakpoint.
        mark: The value of ``key`` for a breakpoint without an explicit lifetime.
        lifetimes: The accepted lifetimes of cached prefixes, in increasing order; the first lifetime is the default.
        tools: True if a tool may have a breakpoint.
        models: A pattern for the models that support breakpoints; ``None`` if all models do.
        most: The maximum number of breakpoints in a payload.
    """

    key: str
    mark: Mapping[str, str]
    lifetimes: tuple[str, ...]
    tools: bool = False
    models: re.Pattern[str] | None = None
    most: int = 4


def _matches(model: str | None, models: re.Pattern[str] | None) -> bool:
    return models is not None and model is not None and models.match(model) is not None


@read_only
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """A provider's rules for payloads.

    Args:
        name: The provider's name.
        form: The wire format, which writes and parses payloads.
        source: The URL of the documentation for the rules.
        native: The name of the provider's native format in :attr:`lazyprompt.Msg.native`. Content in this format is
            sent unchanged.
        media: The rules for media in user messages, by kind; other kinds are not accepted.
        result_media: The kinds of media that a tool result may contain; other kinds are moved to a user turn.
        error_results: True if a tool result can be marked as an error.
        url_media: The kinds of media that a message's ``url`` may refer to.
        thinking: The kinds of thinking blocks that are sent back to the provider. ``none`` drops all thinking blocks.
            ``signed`` keeps thinking blocks that the provider signed or redacted, and ``items`` keeps thinking blocks
            with an id from the provider. ``own`` sends the provider's own thinking blocks as text, and ``text`` sends
            all thinking blocks as text.
        thinks: A pattern for the models that require a reasoning field, even an empty one, in each message with tool
            calls.
        signs_parts: True if the provider signs texts and tool calls, and expects the signatures back.
        calls_tools: True if the provider supports tools.
        output_schemas: True if the provider accepts a JSON schema for structured output.
        turns: True if the provider supports turns; False to send the conversation as a single text.
        system: Where system text may be sent: in any turn (``anywhere``), only in the first turn (``first``), or
            outside the list of messages (``apart``).
        late_system: A pattern for the models that accept system text after a user turn; an unknown model is matched
            as ``""``.
        developer: True if the provider supports the role ``developer``; False to send developer messages as system
            text.
        alternate: True if user and assistant turns must alternate.
        user_first: True if the first turn after the system text must be a user turn.
        user_last: True if the last turn must be a user or tool turn.
        prefill: The key that marks a final assistant turn as a partial reply to continue. An empty string means that
            the provider always continues a final assistant turn, and ``None`` that it never does.
        no_prefill: A pattern for the models that reject a final assistant turn.
        needs_user: True if a payload must contain a user turn.
        empty_text: True if the provider accepts blank text.
        names: A pattern for valid speaker names; ``None`` if messages can't have names.
        results_anywhere: True if tool results don't have to follow their calls directly.
        answers_results: True if an assistant turn must separate tool results from the next user turn.
        ids: A pattern for valid tool call ids.
        id_length: The maximum length of the ids that replace invalid ids.
        tool_names: A pattern for valid tool names.
        strict_tools: True if a tool may contain ``strict``.
        tool_keys: The additional keys that are allowed in a tool next to its function.
        refused_schema_keys: The keys that are not allowed at the root of a tool's schema.
        tokenizes: True for a server that tokenizes text with the model's chat template; False for a hosted provider.
            If True, control sequences in untrusted text are neutralised by default.
        trailing_space: True if a partial reply may end in white space.
        breakpoints: The rules for cache breakpoints; ``None`` if the provider doesn't support them.
        unenforced: The documented rules that the provider doesn't enforce. ``format`` follows these rules, but
            ``validate`` ignores them.
        layouts: The :class:`HistoryLayout` of each history style.
    """

    name: str
    form: Form
    source: str
    native: str = ""
    media: Mapping[MediaKind, Media] = field(default_factory=dict[MediaKind, Media])
    result_media: frozenset[str] = frozenset()
    error_results: bool = False
    url_media: frozenset[str] = ALL_MEDIA
    thinking: Literal["none", "signed", "items", "own", "text"] = "none"
    thinks: re.Pattern[str] | None = None
    signs_parts: bool = False
    calls_tools: bool = True
    output_schemas: bool = True
    turns: bool = True
    system: Literal["anywhere", "first", "apart"] = "anywhere"
    late_system: re.Pattern[str] | None = None
    developer: bool = False
    alternate: bool = False
    user_first: bool = False
    user_last: bool = False
    prefill: str | None = None
    no_prefill: re.Pattern[str] | None = None
    needs_user: bool = False
    empty_text: bool = True
    names: re.Pattern[str] | None = None
    results_anywhere: bool = False
    answers_results: bool = False
    ids: re.Pattern[str] = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
    id_length: int = 64
    tool_names: re.Pattern[str] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    strict_tools: bool = True
    tool_keys: frozenset[str] = frozenset()
    refused_schema_keys: frozenset[str] = frozenset()
    tokenizes: bool = False
    trailing_space: bool = True
    breakpoints: Breakpoints | None = None
    unenforced: frozenset[Unenforced] = frozenset()
    layouts: Mapping[str, HistoryLayout] = field(default_factory=dict[str, HistoryLayout])

    def but(self, **changes: object) -> Profile:
        """Return a copy of the profile with the given fields replaced.

        Raises:
            FormatError: A keyword is not the name of a field.
        """
        check_names(changes, [each.name for each in fields(self)], "field", FormatError)
        return replace(self, **changes)  # type: ignore[arg-type]  # the names are the fields' own

    def needs_user_last(self, model: str | None) -> bool:
        """Return True if a model requires a user or tool turn as the last turn."""
        return self.user_last or _matches(model, self.no_prefill)

    def needs_thoughts(self, model: str | None) -> bool:
        """Return True if a model requires reasoning, possibly empty, in each message with tool calls."""
        return _matches(model, self.thinks)

    def takes_late_system(self, model: str | None) -> bool:
        """Return True if a model accepts system text after a user turn."""
        return _matches(model or "", self.late_system)

    def layout(self, style: HistoryStyle) -> HistoryLayout:
        """Return the :class:`HistoryLayout` of a history style."""
        return self.layouts.get(style, HistoryLayout(media_last=style != "tags"))
