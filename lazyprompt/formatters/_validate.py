"""A payload judged by a provider's rules: the one validator.

First the shape, then what the shape cannot say: who may speak when, which call has which result, what may be empty. A
form shows its payload as views; the rules are the same for all of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.formatters._cache import marked_blocks
from lazyprompt.formatters.shape import FINE, Check, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt.formatters.profile import Breakpoints, Media, MediaKind, Profile
    from lazyprompt.formatters.shape import Fault, Path
    from lazyprompt.formatters.views import Seen, View


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


def violations(payload: Mapping[str, Any], profile: Profile, model: str | None = None) -> list[Violation]:
    """List all rules that a payload breaks.

    Args:
        payload: Any payload.
        profile: The provider's rules.
        model: The model, where rules differ from one to another; a payload that names one is judged by that.

    Returns:
        The violations: of the shape first, then of the rest, each in the order of the payload.
    """
    key = profile.form.messages_key
    shape = _shape_of(profile)
    if not isinstance(cast("object", payload), dict):
        return [Violation("the payload", what, fix) for _, what, fix in shape(payload)]
    named = payload.get("model")
    model = named if isinstance(named, str) else model
    views = list(profile.form.views(payload))
    faults = list(shape(payload))
    if not views and not faults and not payload.get(key):
        faults.append(((key,), "holds no message", "give at least one"))
    faults += _block_faults(views, profile, model)
    faults += _order_faults(views, profile, model)
    faults += _tool_faults(profile.form.declared(payload), profile)
    if profile.breakpoints is not None:
        faults += _mark_faults(payload, profile.breakpoints, key)
    return [Violation(shown(path) or "the payload", what, fix) for path, what, fix in faults]


def _block_faults(views: Iterable[View], profile: Profile, model: str | None) -> list[Fault]:
    """Judge the blocks of each message, and that each call has its result right behind it."""
    faults: list[Fault] = []
    calls = _Calls(profile, thinks=profile.needs_thoughts(model))
    names = profile.names
    for view in views:
        path, _, seen, name = view
        if calls.waiting and not profile.results_anywhere and not (seen and seen[0][0] == "result"):
            faults += calls.unanswered()
        if name is not None and names is not None and not names.fullmatch(name):
            faults.append(((*path, "name"), f"is {name!r}", f"use {names.pattern}"))
        if not seen:
            if not profile.empty_text:
                faults.append((path, "has no content", "give it some, or remove it"))
            continue
        faults += _seen_faults(view, calls)
        if seen[-1][0] == "thinking" and profile.thinking in ("signed", "items"):
            faults.append(((*path, *seen[-1][1]), "is a thought at the end", "put what followed it behind it"))
    return [*faults, *calls.unanswered()]


def _seen_faults(view: View, calls: _Calls) -> list[Fault]:
    """Judge the blocks of a message."""
    path, role, seen, _ = view
    profile = calls.profile
    faults: list[Fault] = [*calls.without_thought(path, seen)]
    for kind, at, text, tool in seen:
        if kind == "call":
            if role != "assistant":
                faults.append(((*path, *at), f"is a call of the {role}'s", "only the assistant thinks and calls"))
            faults += calls.made(text, tool, path, at)
        elif kind == "result":
            if calls.waiting.pop(text, None) is None:
                what = f"answers {text!r}, which no call before it waits for"
                faults.append(((*path, *at), what, "put it right behind its call, or remove it"))
        elif kind == "text":
            if not profile.empty_text and (not text or text.isspace()):
                faults.append(((*path, *at), "is a text that shows nothing", "remove it"))
        elif kind != "thinking":
            faults += _medium_faults((*path, *at), role, kind, text, profile)
        elif role != "assistant":
            faults.append(((*path, *at), f"is a thinking of the {role}'s", "only the assistant thinks and calls"))
    return faults


class _Calls:
    """The calls of a conversation: the ids that were used, and the calls without a result."""

    __slots__ = ("names", "profile", "thinks", "used", "waiting")

    def __init__(self, profile: Profile, *, thinks: bool) -> None:
        self.profile, self.thinks = profile, thinks
        self.used: set[str] = set()
        self.names: set[str] = set()
        # Where each stands: the place of its message, and the one in that. They are put together for a fault.
        self.waiting: dict[str, tuple[Path, Path]] = {}

    def made(self, call_id: str, name: str | None, message: Path, at: Path) -> Sequence[Fault]:
        """Note a call, and return its faults."""
        new = call_id not in self.used
        self.used.add(call_id)
        self.waiting[call_id] = message, at
        fits = self.profile.ids.fullmatch(call_id)
        if new and fits and (name is None or name in self.names):
            return FINE
        path = (*message, *at)
        faults: list[Fault] = []
        if not new:
            faults.append((path, f"uses the id {call_id!r} again", "give each call its own"))
        if not fits:
            faults.append((path, f"has the id {call_id!r}, which is refused", f"use {self.profile.ids.pattern}"))
        if name is not None and name not in self.names:
            self.names.add(name)
            if not self.profile.tool_names.fullmatch(name):
                faults.append(
                    (path, f"calls {name!r}, a name that is refused", f"use {self.profile.tool_names.pattern}")
                )
        return faults

    def without_thought(self, path: Path, seen: Sequence[Seen]) -> Iterator[Fault]:
        """Yield a fault where a message of a thinking model calls without a thought."""
        if self.thinks and {kind for kind, *_ in seen} & {"call", "thinking"} == {"call"}:
            yield path, "calls tools without what was thought before", 'give "reasoning_content", "" if there is none'

    def unanswered(self) -> Sequence[Fault]:
        """Return the faults of calls without a result; they wait no longer."""
        if not self.waiting:
            return FINE
        waiting, self.waiting = self.waiting, {}
        return [
            ((*path, *at), f"makes the call {call_id!r}, which is not answered", "put its result right behind it")
            for call_id, (path, at) in waiting.items()
        ]


def _medium_faults(path: Path, role: str, kind: str, source: str, profile: Profile) -> Iterator[Fault]:
    rule = profile.media.get(cast("MediaKind", kind))
    if rule is None or not {"assistant": rule.assistant, "system": rule.system}.get(role, True):
        yield path, f"is {kind} from the {role}", f"{profile.name} takes none; remove it"
    elif not _taken(source, rule):
        ways = " or ".join(way for way, fits in (("an address", rule.url), ("base64 data", rule.data)) if fits)
        yield path, f"is {kind} as {source[:60]!r}", f"give {ways} of {', '.join(rule.types)}"


def _taken(source: str, rule: Media) -> bool:
    """Return True if a provider takes a medium's address, or its ``data:`` and MIME type."""
    if not source.startswith("data:"):
        return rule.url or source.partition(":")[0] in rule.schemes
    return rule.data and (source == "data:" or rule.takes(source.removeprefix("data:").partition(";")[0]))


def _tool_faults(declared: Iterable[tuple[Path, str]], profile: Profile) -> Iterator[Fault]:
    """Judge the names of tools: each is used once."""
    used: set[str] = set()
    for path, name in declared:
        if not profile.tool_names.fullmatch(name):
            yield path, f"is {name!r}", f"use {profile.tool_names.pattern}"
        if name in used:
            yield path, f"is {name!r}, as a tool before it is named", "give each its own name"
        used.add(name)


def _order_faults(views: Sequence[View], profile: Profile, model: str | None) -> Iterator[Fault]:
    """Judge the order of roles."""
    said = [view for view in views if view[1] != "system" and view[1] != "developer"]
    first = bool(views) and views[0][1] in SYSTEM_ROLES
    if profile.system != "anywhere" and len(said) + first < len(views):
        for view in views[1:]:
            if view[1] in SYSTEM_ROLES:
                yield view[0], "is a system message behind the first", "put all system text first, in one"
    if profile.needs_user and views and all(view[1] != "user" for view in said):
        yield (said or views)[0][0], "and the rest hold no user's turn", "add one"
    if said:
        yield from _turn_faults(said, profile, model)
    for before, view in pairwise(said if profile.answers_results else ()):
        if before[1] == "tool" and view[1] == "user":
            yield view[0], "is the user's, right behind a result", "put an answer of the assistant between them"


def _turn_faults(said: Sequence[View], profile: Profile, model: str | None) -> Iterator[Fault]:
    """Judge if user and assistant take turns, the right one first and last."""
    path, first, *_ = said[0]
    if profile.user_first and first != "user":
        yield path, f"is the {first}'s, and comes first", "begin with the user's turn"
    path, last, seen, *_ = said[-1]
    if last not in ("user", "tool", "prefill") and profile.needs_user_last(model):
        yield path, f"is the {last}'s, and comes last", "end with the user's turn"
    if profile.alternate and not profile.combines_turns:
        before = "nobody"
        for view in said:
            role = view[1]
            if role == before and role != "tool":
                yield view[0], f"is the {role}'s, as the turn before it is", "make one message of both"
            before = role
    if last == "assistant" and seen and not profile.trailing_space:
        kind, at, text, _ = seen[-1]
        if kind == "text" and text[-1:].isspace():
            yield (*said[-1][0], *at), "ends in white space", "cut it off"


def _mark_faults(payload: Mapping[str, Any], marks: Breakpoints, messages_key: str) -> Iterator[Fault]:
    """Judge cache breakpoints: not too many, longer lifetimes first."""
    found = marked_blocks(payload, marks, messages_key)
    for path, _ in found[marks.most :]:
        yield path, "is one cache breakpoint too many", f"set at most {marks.most}"
    shortest = len(marks.lifetimes)
    for path, rank in found:
        if rank < 0:
            yield path, "has a breakpoint of unknown lifetime", f"use {' or '.join(marks.lifetimes)}"
        elif rank > shortest:
            yield path, "has a longer lifetime than a breakpoint before it", "put longer lifetimes first"
        shortest = min(shortest, rank) if rank >= 0 else shortest
