"""A payload judged by a provider's rules: the one validator.

First the shape, then what the shape cannot say: who may speak when, which call has which result, what may be empty. A
form shows its payload as views; the rules are the same for all of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.formatters._cache import marked_blocks
from lazyprompt.formatters._shape import Check, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt.formatters.form import Seen, View
    from lazyprompt.formatters.profile import MediaKind, Profile

_SYSTEM = ("system", "developer")
_MEDIA = ("image", "audio", "video", "file")


class Violation(NamedTuple):
    """A rule that a payload breaks.

    Attributes:
        path: Where, as ``messages[3].content[0]``.
        what: What is wrong there.
        fix: What to do.
    """

    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"  {self.path} {self.what}; {self.fix}"


@lru_cache(maxsize=64)
def _shape_of(profile: Profile) -> Check:
    return profile.form.shape(profile)


def violations(payload: Mapping[str, Any], profile: Profile) -> list[Violation]:
    """All rules that a payload breaks.

    Args:
        payload: Any payload.
        profile: The provider's rules.

    Returns:
        The violations, in the order of the payload for each kind of rule.
    """
    found = [Violation(shown(path) or "the payload", what, fix) for path, what, fix in _shape_of(profile)(payload)]
    views = list(profile.form.views(payload))
    if not views and not found:
        found.append(Violation(profile.form.messages_key, "holds no message", "give at least one"))
    found += _exchange_faults(views, profile)
    found += _order_faults(views, profile)
    found += _block_faults(views, profile)
    found += _tool_faults(profile.form.declared(payload), profile)
    if profile.breakpoints is not None:
        found += _mark_faults(payload, profile)
    return found


def _exchange_faults(views: Sequence[View], profile: Profile) -> Iterator[Violation]:
    """Each call has a result right behind it, and each result a call."""
    used: set[str] = set()
    waiting: dict[str, str] = {}
    for view in views:
        answers = [seen for seen in view.seen if seen.kind == "result"]
        if waiting and not answers and not profile.results_anywhere:
            yield from _unanswered(waiting)
            waiting = {}
        for seen in view.seen:
            if seen.kind == "call":
                if seen.text in used:
                    yield Violation(
                        view.where + seen.where, f"uses the id {seen.text!r} again", "give each call its own"
                    )
                used.add(seen.text)
                waiting[seen.text] = view.where + seen.where
                if not profile.ids.fullmatch(seen.text):
                    want = f"use {profile.ids.pattern}, at most {profile.id_length} signs"
                    yield Violation(view.where + seen.where, f"has the id {seen.text!r}, which is refused", want)
                if seen.name is not None and not profile.tool_names.fullmatch(seen.name):
                    want = f"use {profile.tool_names.pattern}"
                    yield Violation(view.where + seen.where, f"calls {seen.name!r}, a name that is refused", want)
            elif seen.kind == "result" and waiting.pop(seen.text, None) is None:
                what = f"answers {seen.text!r}, which no call before it waits for"
                yield Violation(view.where + seen.where, what, "put it right behind its call, or remove it")
        if waiting and answers and view.role != "tool" and not profile.results_anywhere:
            # All results of an exchange stand in one turn of the user.
            yield from _unanswered(waiting)
            waiting = {}
    yield from _unanswered(waiting)


def _unanswered(waiting: Mapping[str, str]) -> Iterator[Violation]:
    for call_id, where in waiting.items():
        yield Violation(where, f"makes the call {call_id!r}, which is not answered", "put its result right behind it")


def _tool_faults(declared: Iterable[tuple[str, str]], profile: Profile) -> Iterator[Violation]:
    """Names of tools, each used once."""
    seen: set[str] = set()
    for where, name in declared:
        if not profile.tool_names.fullmatch(name):
            yield Violation(where, f"is {name!r}", f"use {profile.tool_names.pattern}")
        if name in seen:
            yield Violation(where, f"is {name!r}, as a tool before it is named", "give each its own name")
        seen.add(name)


def _order_faults(views: Sequence[View], profile: Profile) -> Iterator[Violation]:
    """Who may speak when."""
    said = [view for view in views if view.role not in _SYSTEM]
    if profile.system != "anywhere":
        for at, view in enumerate(views):
            if at and view.role in _SYSTEM:
                yield Violation(view.where, "is a system message behind the first", "put all system text first, in one")
    if profile.needs_user and said and all(view.role != "user" for view in said):
        yield Violation(said[0].where, "and the rest hold no user's turn", "add one")
    if not said and views and profile.needs_user:
        yield Violation(views[0].where, "is system text alone", "add a user's turn")
    if said:
        yield from _turn_faults(said, profile)


def _turn_faults(said: Sequence[View], profile: Profile) -> Iterator[Violation]:
    """User and assistant in turn, the right one first and last."""
    if profile.user_first and said[0].role != "user":
        yield Violation(said[0].where, f"is the {said[0].role}'s, and comes first", "begin with the user's turn")
    if profile.user_last and said[-1].role not in ("user", "tool"):
        yield Violation(said[-1].where, f"is the {said[-1].role}'s, and comes last", "end with the user's turn")
    if profile.alternate:
        for before, view in pairwise(said):
            if view.role == before.role != "tool":
                yield Violation(view.where, f"is the {view.role}'s, as {before.where} is", "make one message of both")
    last = said[-1].seen[-1] if said[-1].seen else None
    if (
        not profile.prefix
        and said[-1].role == "assistant"
        and last
        and last.kind == "text"
        and last.text[-1:].isspace()
    ):
        yield Violation(said[-1].where + last.where, "ends in white space", "cut it off")


def _block_faults(views: Iterable[View], profile: Profile) -> Iterator[Violation]:
    """What a block may hold, and where it may stand."""
    for view in views:
        if view.name is not None and profile.names is not None and not profile.names.fullmatch(view.name):
            yield Violation(f"{view.where}.name", f"is {view.name!r}", f"use {profile.names.pattern}")
        if not view.seen and not (profile.empty_text and view.role != "tool"):
            yield Violation(view.where, "has no content", "give it some, or remove it")
        for seen in view.seen:
            if seen.kind == "text":
                if not profile.empty_text and view.role != "tool" and (not seen.text or seen.text.isspace()):
                    yield Violation(view.where + seen.where, "is a text that shows nothing", "remove it")
            elif seen.kind in _MEDIA:
                yield from _medium_faults(view, seen, profile)
            elif seen.kind != "result" and view.role != "assistant":
                what = f"is the {view.role}'s, and holds a {seen.kind}"
                yield Violation(view.where + seen.where, what, "only the assistant thinks and calls")
        if view.seen and view.seen[-1].kind == "thinking" and profile.thinking in ("signed", "items"):
            yield Violation(
                view.where + view.seen[-1].where, "is a thought at the end", "put what followed it behind it"
            )


def _medium_faults(view: View, seen: Seen, profile: Profile) -> Iterator[Violation]:
    rule = profile.media.get(cast("MediaKind", seen.kind))
    allowed = {"assistant": rule.assistant, "system": rule.system}.get(view.role, True) if rule else False
    if rule is None or not allowed:
        what = f"is {seen.kind} from the {view.role}"
        yield Violation(view.where + seen.where, what, f"{profile.name} takes none; remove it")
    elif not _taken(seen.text, rule.url, rule.data, rule.takes):
        what = f"is {seen.kind} as {seen.text[:60]!r}"
        ways = " or ".join(way for way, fits in (("an address", rule.url), ("base64 data", rule.data)) if fits)
        yield Violation(view.where + seen.where, what, f"give {ways} of {', '.join(rule.types)}")


def _taken(source: str, url: bool, data: bool, takes: Any) -> bool:  # noqa: ANN401, FBT001
    """Whether a medium's address, or ``data:`` and its MIME type, is of a kind that a provider takes."""
    if not source.startswith("data:"):
        return url
    return data and (source == "data:" or takes(source.removeprefix("data:").partition(";")[0]))


def _mark_faults(payload: Mapping[str, Any], profile: Profile) -> Iterator[Violation]:
    """Cache breakpoints: not too many, longer lifetimes first."""
    marks = profile.breakpoints
    if marks is None:
        return
    found = marked_blocks(payload, marks)
    for where, _ in found[marks.most :]:
        yield Violation(where, "is one cache breakpoint too many", f"set at most {marks.most}")
    shortest = len(marks.lifetimes)
    for where, rank in found:
        if rank < 0:
            yield Violation(where, "has a breakpoint of unknown lifetime", f"use {' or '.join(marks.lifetimes)}")
        elif rank > shortest:
            yield Violation(where, "has a longer lifetime than a breakpoint before it", "put longer lifetimes first")
        shortest = min(shortest, rank) if rank >= 0 else shortest
