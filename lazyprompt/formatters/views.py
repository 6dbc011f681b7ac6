"""The view of a payload that the rules judge, and what forms read of its JSON for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from lazyprompt._base.roles import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt.formatters.shape import Path

# A block of a payload as the rules look at it: its kind, its place within the message, its text (of a call or a result
# the id, of a medium the address, or ``data:`` and the MIME type), the name of the tool. Plain tuples: there are many.
Kind: TypeAlias = Literal["text", "thinking", "call", "result", "image", "audio", "video", "file"]
Seen: TypeAlias = "tuple[Kind, Path, str, str | None]"
# A message as the rules look at it: its place, its role (system, user, assistant, tool; prefill for the beginning of an
# answer, which the model goes on with), its blocks, the speaker.
View: TypeAlias = "tuple[Path, str, Sequence[Seen], str | None]"


def text_of_json(value: object) -> str:
    """Return a JSON value that is a text; nothing of anything else, which the shape refuses."""
    return value if isinstance(value, str) else ""


def role_of_json(value: object) -> str:
    """Return a role that is known; ``nobody`` for any other, which the shape refuses."""
    return value if isinstance(value, str) and value in ROLES else "nobody"


def name_of_json(value: object) -> str | None:
    """Return a JSON value that is a text; None for anything else."""
    return value if isinstance(value, str) else None


def named(places: Iterable[tuple[Path, Mapping[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Return the names of the objects at some places; one that is missing or no text the shape refuses."""
    return (((*path, "name"), item["name"]) for path, item in places if isinstance(item.get("name"), str))


def objects(value: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list, each with its index; nothing of anything else."""
    if not isinstance(value, list):
        return []
    items = cast("list[dict[str, Any]]", value)
    return [(at, item) for at, item in enumerate(items) if isinstance(cast("object", item), dict)]
