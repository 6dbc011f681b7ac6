"""The rules of a provider, as data. How to add one: docs/reference/providers.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from lazyprompt._base.frozen import read_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.shape import Check, MessageView, Path
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.turns import WrittenTurn

MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
# Rules that some providers document but don't enforce.
Unenforced: TypeAlias = Literal["alternation", "user first", "system first", "empty text", "unique ids"]
HistoryStyle: TypeAlias = Literal["tags", "conversation", "dialogue"]

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = ("application/pdf",)
ALL_MEDIA = frozenset({"image", "audio", "video", "file"})


class Form(Protocol):
    """A wire form: the writer, parser and checks of the payloads of one or more providers."""

    @property
    def messages_key(self) -> str:
        """The key of the conversation in the payload."""
        ...

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write turns that follow the provider's rules as a new payload without tools."""
        ...

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return tools in the provider's form.

        Raises:
            FormatError: The provider has no form for a tool.
        """
        ...

    def shape(self, profile: Profile) -> Check:
        """Return a check of a payload's shape."""
        ...

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the path and the name of each function that a payload declares."""
        ...

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield views of a payload's messages for the validator; values of an unknown shape are skipped."""
        ...

    def parse(self, answer: Mapping[str, object], provider: str) -> Msg:
        """Parse the provider's answer as a message."""
        ...


@read_only
@dataclass(frozen=True, slots=True)
class Media:
    """A provider's rules for one kind of media.

    Args:
        types: The accepted MIME types, such as ``image/png``, or ``image/*`` for all of a kind. Media are sent with the
            type's name from this list.
        url: True if the provider fetches media from an address.
        data: True if the provider accepts base64.
        schemes: Further accepted schemes of addresses, such as ``gs``.
        opaque: True if any text is accepted as an address, such as the name of an uploaded file.
        assistant: True if the assistant's messages may contain such media.
        system: True if the system message may contain such media.
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
    """The layout of a merged history.

    Args:
        system: The place of the system text: a turn of its own (``own``), the beginning of the user's turn
            (``joined``), or a system turn that also contains the history (``host``).
        join: The text between the system text and the history.
        media_last: True if media follow all text.
        changes: Fields of the profile with other values for this style, from older documentation of the provider.
    """

    system: Literal["own", "joined", "host"] = "own"
    join: str = "\n"
    media_last: bool = True
    changes: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)


@read_only
@dataclass(frozen=True, slots=True)
class Breakpoints:
    """A provider's rules for cache breakpoints: marks at the end of a cached prefix.

    Args:
        key: The key of the mark in a block.
        mark: The mark without a lifetime.
        lifetimes: The accepted lifetimes, the default first, then longer ones.
        tools: True if a tool may have a mark.
        models: The models that support marks; ``None`` for all.
        most: The largest number of marks in a payload.
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
    """The rules of a provider.

    Args:
        name: The provider's name in ``ChatFormatter(name)``.
        form: The wire form, which writes and parses payloads.
        source: The documentation of the rules.
        native: The native form, as in :attr:`lazyprompt.Msg.native`, of messages that are sent unchanged.
        media: The media that the user's messages may contain, by kind.
        result_media: The kinds of media that a tool result may contain; others follow in a user's turn.
        error_results: True if a result can be marked as a tool's failure.
        url_media: The kinds of media that the ``url`` of a message may refer to.
        thinking: The thoughts to send: none, those that the provider signed or redacted (``signed``), those with its id
            (``items``), its own as text (``own``), or all as text (``text``).
        thinks: The models that refuse a call without its preceding thought, even an empty one.
        signs_parts: True if the provider signs texts and calls, and expects these signatures back.
        calls_tools: True if the provider supports tools.
        turns: True if the provider supports turns; otherwise the conversation is one text.
        system: The place of system text: any turn (``anywhere``), the first turn only (``first``), or outside of the
            messages (``apart``).
        late_system: The models that accept further system text after a user's turn; an unnamed model is ``""``.
        developer: True if the provider has the role ``developer``; otherwise it is written as system text.
        alternate: True if user and assistant must alternate.
        user_first: True if the first turn after the system text must be the user's.
        user_last: True if the last turn must be the user's or a tool's.
        prefill: The key that marks the assistant's last turn as an answer to continue; ``""`` if every last turn of the
            assistant is continued, ``None`` if none is.
        no_prefill: The models that refuse a last turn of the assistant.
        needs_user: True if there must be a user's turn.
        empty_text: True if blank text may be sent.
        names: The accepted names of speakers; ``None`` if messages have no names.
        results_anywhere: True if results need not follow their calls directly.
        answers_results: True if a turn of the assistant must separate results from the user's next turn.
        ids: The accepted ids of tool calls.
        id_length: The length limit of an id that replaces a refused one.
        tool_names: The accepted names of tools.
        strict_tools: True if a tool may have ``strict``.
        tool_keys: The further keys that a tool may have next to its function.
        refused_schema_keys: The keys that are refused at the root of a tool's schema.
        tokenizes: True for a server that tokenizes texts with the model's chat template, so that control sequences in
            untrusted text are neutralised by default; False for a hosted provider.
        trailing_space: True if an answer to continue may end in white space.
        breakpoints: The rules for cache breakpoints; ``None`` if there are none.
        unenforced: The documented rules that the provider doesn't enforce. ``format`` follows them, and ``validate``
            ignores them.
        layouts: The layouts of merged histories, by style.
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
        """Return a copy with some rules changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the names are the fields' own

    def needs_user_last(self, model: str | None) -> bool:
        """Return True if the last turn must be the user's or a tool's, for a model."""
        return self.user_last or _matches(model, self.no_prefill)

    def needs_thoughts(self, model: str | None) -> bool:
        """Return True if a model refuses a call without its preceding thought."""
        return _matches(model, self.thinks)

    def takes_late_system(self, model: str | None) -> bool:
        """Return True if a model accepts system text after a user's turn."""
        return _matches(model or "", self.late_system)

    def layout(self, style: HistoryStyle) -> HistoryLayout:
        """Return the layout of a merged history in a style."""
        return self.layouts.get(style, HistoryLayout(media_last=style != "tags"))
