"""The rules of a provider, as data. How to add one: docs/reference/providers.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from lazyprompt._base.frozen import read_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.shape import Check, Path, View
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.turns import WrittenTurn

MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]
# Rules that some providers document, and do not insist on.
Unenforced: TypeAlias = Literal["alternation", "user first", "system first", "empty text", "unique ids"]
HistoryStyle: TypeAlias = Literal["tags", "conversation", "dialogue"]

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = ("application/pdf",)
ALL_MEDIA = frozenset({"image", "audio", "video", "file"})


class Form(Protocol):
    """A wire form: the block mapping of a provider, or of a family of them."""

    @property
    def messages_key(self) -> str:
        """The key of the payload that holds the conversation."""
        ...

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the payload of turns that keep the provider's rules, tools apart; fresh all through."""
        ...

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return tools in the provider's form.

        Raises:
            FormatError: A tool has no form there.
        """
        ...

    def shape(self, profile: Profile) -> Check:
        """Return the check of a payload's shape."""
        ...

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the names of the functions that a payload declares, each with its place."""
        ...

    def views(self, payload: Mapping[str, Any]) -> Iterator[View]:
        """Yield the messages of a payload for the rules; what has no known shape is passed over."""
        ...

    def parse(self, answer: Mapping[str, object], provider: str) -> Msg:
        """Read the provider's answer as a message."""
        ...


@read_only
@dataclass(frozen=True, slots=True)
class Media:
    """The ways in which a provider takes one kind of media.

    Args:
        types: The MIME types it takes, ``image/*`` for all of a kind; one that is named is sent by that name.
        url: True if by address, so that the provider fetches it.
        data: True if as base64.
        schemes: Further schemes of addresses it knows, as ``gs``.
        opaque: True if any token will do for an address (the names of files uploaded before).
        assistant: True if in the assistant's messages too.
        system: True if in the system message too.
    """

    types: tuple[str, ...]
    url: bool = True
    data: bool = True
    schemes: tuple[str, ...] = ()
    opaque: bool = False
    assistant: bool = False
    system: bool = False

    def takes(self, media_type: str) -> bool:
        """Return True if the provider takes media of a MIME type."""
        return media_type in self.types or f"{media_type.partition('/')[0]}/*" in self.types


@read_only
@dataclass(frozen=True, slots=True)
class Layout:
    """The place of the system text in a merged history.

    Args:
        system: In a turn of its own (``own``), at the beginning of the user's turn (``joined``), or in a system turn
            that holds the history as well (``host``).
        join: What stands between it and the history.
        media_last: True if pictures and the like stand behind all text.
        changes: Rules of the provider that were others when the style was written down.
    """

    system: Literal["own", "joined", "host"] = "own"
    join: str = "\n"
    media_last: bool = True
    changes: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)


@read_only
@dataclass(frozen=True, slots=True)
class Breakpoints:
    """Marks up to which a provider caches.

    Args:
        key: The key of a block that holds the mark.
        mark: The mark without a lifetime.
        lifetimes: The lifetimes it knows, the default first, then longer ones.
        tools: True if a tool can hold a mark.
        models: The models that know marks; ``None`` for all.
    """

    key: str
    mark: Mapping[str, str]
    lifetimes: tuple[str, ...]
    tools: bool = False
    models: re.Pattern[str] | None = None
    most: int = 4


def _is_one(model: str | None, models: re.Pattern[str] | None) -> bool:
    return models is not None and model is not None and models.match(model) is not None


@read_only
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """The rules of a provider.

    Args:
        name: What the provider is called in ``ChatFormatter(name)``.
        form: How turns and blocks are written and read: the block mapping.
        source: Where the rules are written down.
        native: The native form of messages, as :attr:`lazyprompt.Msg.native` names it, that it is sent as they stand.
        media: The media it takes from the user, by kind.
        result_media: The kinds of media it takes within a tool's result; others follow in a user's turn.
        error_results: True if a result can say that the tool failed.
        url_media: The kinds that the ``url`` of a message may be, for this provider.
        thinking: Which thoughts it wants back: none, those it signed or redacted itself (``signed``), those it gave an
            id (``items``), its own as text (``own``), or all as text (``text``).
        thinks: The models that refuse a call without the thought before it, be it empty.
        signs_parts: True if it signs texts and calls, and wants those signatures back.
        calls_tools: True if it knows tools.
        turns: True if it knows turns; else all is one text.
        system: Where system text may stand: in any turn (``anywhere``), only first, and only one (``first``), or beside
            the messages (``apart``).
        late_system: The models that take further system text behind a user's turn; an unnamed model is ``""``.
        developer: True if the role ``developer`` is known; else it is written as system text.
        alternate: True if user and assistant must take turns.
        user_first: True if a user's turn must be the first behind the system text.
        user_last: True if a user's turn (or a tool's) must be the last.
        prefill: The key of a last turn of the assistant that the model goes on with; ``""`` where every last turn of
            the assistant is one, ``None`` where none is.
        no_prefill: The models that refuse a last turn of the assistant.
        needs_user: True if there must be a user's turn at all.
        empty_text: True if a text without a visible sign may be sent.
        names: The names it takes for speakers; ``None`` where it has no place for names.
        results_anywhere: True if results may stand further behind their calls.
        answers_results: True if the assistant must speak between results and the user's next turn.
        ids: The ids of tool calls it takes; a mapped id is at most ``id_length`` long.
        id_length: The longest id of a tool call.
        tool_names: The names of tools it takes.
        strict_tools: True if a tool may ask that its schema is kept to the letter.
        tool_keys: The further keys that it takes beside the function of a tool.
        refused_schema_keys: The keys that it refuses at the root of a tool's schema.
        tokenizes: True if it is a server that tokenizes texts with the model's chat template, so that control sequences
            in untrusted text are neutralised by default; False for a hosted provider.
        trailing_space: True if an unfinished last answer may end in white space.
        breakpoints: Its marks of caching; ``None`` if it has none.
        unenforced: The rules that ``format`` keeps, for they are documented, and that the provider does not insist on:
            ``validate`` does not judge by them.
        layouts: Where the documented styles of merged histories put the system text.
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
    layouts: Mapping[str, Layout] = field(default_factory=dict[str, Layout])

    def but(self, **changes: object) -> Profile:
        """Return the profile of a provider that follows this one in all but some rules."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the names are the fields' own

    def needs_user_last(self, model: str | None) -> bool:
        """Return True if the last turn must be the user's or a tool's, for a model."""
        return self.user_last or _is_one(model, self.no_prefill)

    def needs_thoughts(self, model: str | None) -> bool:
        """Return True if a model refuses a call without the thought before it."""
        return _is_one(model, self.thinks)

    def takes_late_system(self, model: str | None) -> bool:
        """Return True if a model takes system text behind a user's turn."""
        return _is_one(model or "", self.late_system)

    def layout(self, style: HistoryStyle) -> Layout:
        """Return the place of the system text in a merged history of a style."""
        return self.layouts.get(style, Layout(media_last=style != "tags"))
