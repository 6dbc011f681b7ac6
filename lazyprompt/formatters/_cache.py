"""Cache breakpoints, which mark the end of a prompt prefix for the provider to cache.

The limits on breakpoints come from Anthropic's and OpenAI's guides on prompt caching. Anthropic and OpenAI accept at
most four breakpoints in a payload. Anthropic rejects a breakpoint that has a longer lifetime than an earlier
breakpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.formatters.shape import Path, objects

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.profile import Breakpoints, Profile
    from lazyprompt.formatters.report import Notes

# The parts of a payload where a cache breakpoint can be set, in the order in which providers read them.
PLACES = ("tools", "system", "history")
CacheLike: TypeAlias = "Iterable[str] | Mapping[str, str]"


def checked_cache(cache: CacheLike | None, profile: Profile) -> Mapping[str, str]:
    """Validate the requested cache breakpoints and their lifetimes.

    Args:
        cache: Names from ``PLACES``, or a mapping from these names to lifetimes.
        profile: The provider's rules.

    Returns:
        A mapping from positions of breakpoints to cache lifetimes, in the order of ``PLACES``.

    Raises:
        FormatError: A position or lifetime is unknown, or a longer lifetime follows a shorter one.
    """
    if not cache:
        return {}
    if isinstance(cache, str) or not _is_iterable(cache):
        raise FormatError(f"cache must list the breakpoints, such as ('tools', 'system', 'history'), not {cache!r}")
    marks = profile.breakpoints
    usual = marks.lifetimes[0] if marks else ""
    given: dict[str, str] = {**cache} if isinstance(cache, Mapping) else dict.fromkeys(cache, usual)
    for place, lifetime in given.items():
        if place not in PLACES:
            known = ", ".join(PLACES)
            raise FormatError(
                f"unknown cache breakpoint {place!r}{did_you_mean(str(place), PLACES)}; expected one of {known}"
            )
        if marks and lifetime not in marks.lifetimes:
            known = ", ".join(marks.lifetimes)
            raise FormatError(f"cache sets the lifetime of {place!r} to {lifetime!r}; {profile.name} supports {known}")
    ordered = {place: given[place] for place in PLACES if place in given}
    ranks = [marks.lifetimes.index(lifetime) for lifetime in ordered.values()] if marks else []
    if ranks != sorted(ranks, reverse=True):
        raise FormatError(f"cache has a longer lifetime after a shorter one: {ordered}; put longer lifetimes first")
    return ordered


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable)


def with_marks(
    payload: dict[str, Any], cache: Mapping[str, str], profile: Profile, model: str | None, notes: Notes
) -> None:
    """Add cache breakpoints to a new payload, up to the provider's limit, and keep existing breakpoints.

    Args:
        payload: The payload, which is modified in place.
        cache: A mapping from positions of breakpoints (names from ``PLACES``) to cache lifetimes.
        profile: The provider's rules.
        model: The model; some providers support breakpoints only for certain models.
        notes: The report, which lists the breakpoints that were not set.
    """
    marks = profile.breakpoints
    if marks is None or (marks.models is not None and not marks.models.match(model or "")):
        who = profile.name if model is None else f"{profile.name} ({model})"
        notes.add("cache", "cache", "left out", f"{who} does not support cache breakpoints")
        return
    key = profile.form.messages_key
    free = marks.most - len(marked_blocks(payload, marks, key))
    # Set the last breakpoint first: if the provider allows only a few, the longest prefix is cached.
    for place in reversed(list(cache)):
        block = _last_of(payload, place, marks, key)
        if block is None:
            if place == "tools" and "tools" in payload:
                notes.add(f"cache.{place}", "cache", "left out", f"{profile.name} cannot mark tools")
            continue
        if marks.key in block:
            continue
        if free <= 0:
            notes.add(f"cache.{place}", "cache", "left out", f"{profile.name} accepts at most {marks.most} breakpoints")
            continue
        free -= 1
        block[marks.key] = {**marks.mark, "ttl": cache[place]}
    _order_lifetimes(payload, marks, key)


def _order_lifetimes(payload: Mapping[str, Any], marks: Breakpoints, key: str) -> None:
    """Limit each breakpoint's cache lifetime to the shortest one before it, and remove lifetimes of default length."""
    shortest = len(marks.lifetimes) - 1
    for _, mark in _marks(payload, marks.key, key):
        lifetime = mark.get("ttl", marks.lifetimes[0])
        if lifetime in marks.lifetimes:
            shortest = min(shortest, marks.lifetimes.index(lifetime))
            mark["ttl"] = marks.lifetimes[shortest]
        if mark.get("ttl") == marks.lifetimes[0]:
            del mark["ttl"]


def marked_blocks(payload: Mapping[str, Any], marks: Breakpoints, messages_key: str) -> list[tuple[Path, int]]:
    """Return each breakpoint's path and the index of its lifetime in ``marks.lifetimes`` (-1 if unknown)."""
    return [
        (path, marks.lifetimes.index(lifetime) if lifetime in marks.lifetimes else -1)
        for path, mark in _marks(payload, marks.key, messages_key)
        for lifetime in (mark.get("ttl", marks.lifetimes[0]),)
    ]


def _marks(payload: Mapping[str, Any], key: str, messages_key: str) -> Iterator[tuple[Path, JsonObject]]:
    """Yield the path and the fields of each breakpoint, in the order in which a provider reads the payload."""
    for place in ("tools", "system", messages_key):
        for at, item in objects(payload.get(place)):
            if key in item and isinstance(item[key], dict):
                yield (place, at), item[key]
            content = item.get("content")
            if content.__class__ is list:
                for index, block in objects(content):
                    if key in block and isinstance(block[key], dict):
                        yield (place, at, "content", index), block[key]


def _last_of(payload: dict[str, Any], place: str, marks: Breakpoints, messages_key: str) -> dict[str, Any] | None:
    """Return the tool or block for the breakpoint at ``place``, or None; convert string content to a block first."""
    if place == "tools":
        tools = payload.get("tools", ()) if marks.tools else ()
        # Skip tools with deferred loading, because they are not part of the cached prefix.
        return next((tool for tool in reversed(tools) if not tool.get("defer_loading")), None)
    if place == "system" and "system" in payload:
        return _as_parts(payload, "system", "text")[-1]
    messages: list[dict[str, Any]] = payload[messages_key]
    kind = "input_text" if messages_key == "input" else "text"
    if place == "system":
        chosen = next((item for item in messages if item.get("role") in SYSTEM_ROLES), None)
    else:
        chosen = _last_stable(messages, assistant=marks.tools)
    if chosen is None:
        return None
    return _as_parts(chosen, "content", kind)[-1]


def _last_stable(messages: list[dict[str, Any]], *, assistant: bool) -> dict[str, Any] | None:
    """Return the last message that can have a breakpoint and comes before the newest user turn."""
    newest = next((at for at in reversed(range(len(messages))) if messages[at].get("role") == "user"), 0)
    roles = ("user", "assistant") if assistant else ("user", "system", "developer")
    return next(
        (item for item in reversed(messages[:newest]) if item.get("role") in roles and item.get("content")), None
    )


def _as_parts(fields: dict[str, Any], key: str, kind: str) -> list[dict[str, Any]]:
    """Return the content parts in ``fields[key]``, after converting a string there to a list with one text part."""
    if isinstance(fields[key], str):
        fields[key] = [{"type": kind, "text": fields[key]}]
    parts: list[dict[str, Any]] = fields[key]
    return parts
