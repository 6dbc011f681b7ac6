"""What a provider's form must say of itself: how turns are written, and how a payload is read for judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt._json import JsonObject
    from lazyprompt.formatters._shape import Check
    from lazyprompt.formatters._turns import Turn
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages import Msg


class Seen(NamedTuple):
    """A block of a payload, as the rules look at it.

    Attributes:
        kind: The kind of block: ``text``, ``thinking``, ``call``, ``result``, or a kind of media.
        where: Its place within the message, as ``.content[0]``.
        text: The text; the id of a call or of what a result answers; the address or MIME type of a medium.
        name: The name of the tool.
    """

    kind: Literal["text", "thinking", "call", "result", "image", "audio", "video", "file"]
    where: str
    text: str = ""
    name: str | None = None


class View(NamedTuple):
    """A message of a payload, as the rules look at it.

    Attributes:
        where: Its place, as ``messages[3]``.
        role: Who speaks: ``system``, ``user``, ``assistant`` or ``tool``.
        seen: Its blocks.
        name: The speaker's name, where it has one.
    """

    where: str
    role: str
    seen: Sequence[Seen]
    name: str | None = None


class Form(Protocol):
    """A wire form: the block mapping of a provider, or of a family of them."""

    @property
    def messages_key(self) -> str:
        """The key of the payload that holds the conversation."""
        ...

    def write(self, turns: Sequence[Turn], profile: Profile, model: str | None) -> dict[str, Any]:
        """The payload of turns that keep the provider's rules, tools apart; fresh all through."""
        ...

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Tools in the provider's form.

        Raises:
            FormatError: A tool has no form there.
        """
        ...

    def shape(self, profile: Profile) -> Check:
        """What a payload must look like, whatever it says."""
        ...

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The names of the functions that a payload declares, each with its place."""
        ...

    def views(self, payload: Mapping[str, Any]) -> Iterator[View]:
        """The messages of a payload for the rules; what has no known shape is passed over."""
        ...

    def parse(self, answer: Mapping[str, object], provider: str) -> Msg:
        """The provider's answer as a message."""
        ...


def objects(value: object) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects in a list, each with its index; nothing of anything else."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [(at, cast("Mapping[str, Any]", item)) for at, item in enumerate(items) if isinstance(item, Mapping)]
