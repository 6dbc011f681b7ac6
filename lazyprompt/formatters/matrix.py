"""What each provider takes, block by block, as a table: read out of the profiles, so that it says what they say.

``yes (signed)``: a signature that the provider gave a text or a call goes back to it. Media: how they may be given, and
where those of a tool's result go. Thoughts: which of its own the provider wants back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.formatters.providers import PROVIDERS, profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.formatters.profile import MediaKind, Profile


class Row(NamedTuple):
    """What one provider takes.

    Attributes:
        provider: The provider's name.
        cells: For each column of the table, in order, a short text.
    """

    provider: str
    cells: Mapping[str, str]


def rows() -> list[Row]:
    """The table: one row for each provider, with the columns of ``HEADERS`` behind the provider's own."""
    return [row_of(profile_of(provider)) for provider in PROVIDERS]


def row_of(profile: Profile) -> Row:
    """The row of a provider, also of one that is not in the table.

    Args:
        profile: Its rules.

    Returns:
        Its name and its cells.
    """
    return Row(profile.name, {column: cell(profile) for column, cell in _CELLS.items()})


def _text(profile: Profile) -> str:
    return "yes (signed)" if profile.signs_parts else "yes"


def _calls(profile: Profile) -> str:
    return _text(profile) if profile.calls_tools else "no"


def _results(profile: Profile) -> str:
    return "yes" if profile.calls_tools else "no"


def _medium(kind: MediaKind) -> Callable[[Profile], str]:
    def cell(profile: Profile) -> str:
        media = profile.media.get(kind)
        if media is None:
            return "no"
        ways = "+".join(way for way, fits in (("url", media.url), ("data", media.data)) if fits)
        if not profile.calls_tools:
            return ways
        return f"{ways} (also in results)" if kind in profile.result_media else f"{ways} (after results)"

    return cell


def _thinking(profile: Profile) -> str:
    return {"none": "no", "signed": "signed", "items": "with id", "own": "its own", "text": "as text"}[profile.thinking]


def _system(profile: Profile) -> str:
    return profile.system


def _turns(profile: Profile) -> str:
    if not profile.turns:
        return "one text"
    return "must alternate" if profile.alternate else "any order"


def _names(profile: Profile) -> str:
    return "no" if profile.names is None else "yes"


def _cache(profile: Profile) -> str:
    marks = profile.breakpoints
    if marks is None:
        return "no"
    places = ", ".join(
        name for name, can in (("tools", marks.tools), ("system", marks.system), ("history", True)) if can
    )
    return places if marks.models is None else f"{places} (some models)"


_CELLS: dict[str, Callable[[Profile], str]] = {
    "text": _text,
    "tool_use": _calls,
    "tool_result": _results,
    "image": _medium("image"),
    "audio": _medium("audio"),
    "video": _medium("video"),
    "file": _medium("file"),
    "thinking": _thinking,
    "system": _system,
    "turns": _turns,
    "names": _names,
    "cache": _cache,
}
# The columns of the table.
HEADERS: tuple[str, ...] = ("provider", *_CELLS)
