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
from lazyprompt.formatters.shape import Check, Fault, Kind, Path, View, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.roles import Role
    from lazyprompt.formatters.profile import Breakpoints, Media, MediaKind, Profile
    from lazyprompt.messages.native import Native
    from lazyprompt.messages.turns import WrittenTurn


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
    judge = _Judge(profile, model)
    for view in views:
        judge.message(view)
    judge.unanswered()
    faults += judge.faults
    faults += _order_faults(views, profile, model)
    faults += _tool_faults(profile.form.declared(payload), profile)
    if profile.breakpoints is not None:
        faults += _mark_faults(payload, profile.breakpoints, key)
    return [Violation(shown(path) or "the payload", what, fix) for path, what, fix in faults]


def is_own_form(role: Role, native: Native, profile: Profile, model: str | None) -> bool:
    """Return True if a provider takes a message in its own form by itself: what stands around it is not judged."""
    # System text may be one of several, behind a user's turn.
    before: list[WrittenTurn] = [("user", "", "-", 0)] if role in SYSTEM_ROLES else []
    payload = profile.form.write([*before, (role, "", native, 0)], profile, model)
    if _shape_of(profile)(payload):
        return False
    judge = _Judge(profile, model)
    for view in profile.form.views(payload):
        judge.waiting = {text: path for kind, path, text, _ in view[2] if kind == "result"}
        judge.message(view)
    return not judge.faults


class _Judge:
    """The faults of the blocks of a conversation.

    Attributes:
        faults: The faults so far.
        waiting: The calls without a result, by id, each with its place.
    """

    def __init__(self, profile: Profile, model: str | None) -> None:
        self.profile, self.thinks = profile, profile.needs_thoughts(model)
        self.faults: list[Fault] = []
        self.waiting: dict[str, Path] = {}
        self._role = ""
        self._used: set[str] = set()
        self._names: set[str] = set()

    def add(self, path: Path, what: str, fix: str) -> None:
        """Add a fault."""
        self.faults.append((path, what, fix))

    def message(self, view: View) -> None:
        """Judge the blocks of a message, and that results stand right behind their calls."""
        profile, (path, role, seen, name) = self.profile, view
        joins = role == self._role and "alternation" in profile.unenforced
        if self.waiting and not (profile.results_anywhere or joins or (seen and seen[0][0] == "result")):
            self.unanswered()
        self._role = role
        if name is not None and profile.names is not None and not profile.names.fullmatch(name):
            self.add((*path, "name"), f"is {name!r}", f"use {profile.names.pattern}")
        if not seen:
            if not profile.empty_text:
                self.add(path, "has no content", "give it some, or remove it")
            return
        if self.thinks and {kind for kind, *_ in seen} & {"call", "thinking"} == {"call"}:
            fix = 'give "reasoning_content", "" if there is none'
            self.add(path, "calls tools without what was thought before", fix)
        for kind, at, text, tool in seen:
            self.block((*path, *at), role, kind, text, tool)
        if seen[-1][0] == "thinking" and profile.thinking in ("signed", "items"):
            self.add((*path, *seen[-1][1]), "is a thought at the end", "put what followed it behind it")

    def block(self, path: Path, role: str, kind: Kind, text: str, tool: str | None) -> None:
        """Judge a block."""
        if kind in ("call", "thinking") and role != "assistant":
            self.add(path, f"is a {kind} of the {role}'s", "only the assistant thinks and calls")
        if kind == "call":
            self.call(path, text, tool)
        elif kind == "result":
            if self.waiting.pop(text, None) is None:
                what = f"answers {text!r}, which no call before it waits for"
                self.add(path, what, "put it right behind its call, or remove it")
        elif kind == "text":
            takes_empty = self.profile.empty_text or "empty text" in self.profile.unenforced
            if not takes_empty and (not text or text.isspace()):
                self.add(path, "is a text that shows nothing", "remove it")
        elif kind not in ("thinking", "other"):
            self.faults += _medium_faults(path, role, kind, text, self.profile)

    def call(self, path: Path, call_id: str, name: str | None) -> None:
        """Judge a call, and note that it waits for its result."""
        ids, names = self.profile.ids, self.profile.tool_names
        if call_id in (self.waiting if "unique ids" in self.profile.unenforced else self._used):
            self.add(path, f"uses the id {call_id!r} again", "give each call its own")
        if not ids.fullmatch(call_id):
            self.add(path, f"has the id {call_id!r}, which is refused", f"use {ids.pattern}")
        if name is not None and name not in self._names and not names.fullmatch(name):
            self.add(path, f"calls {name!r}, a name that is refused", f"use {names.pattern}")
        self._used.add(call_id)
        self._names.update(() if name is None else (name,))
        self.waiting[call_id] = path

    def unanswered(self) -> None:
        """Add the calls without a result as faults; they wait no longer."""
        for call_id, path in self.waiting.items():
            self.add(path, f"makes the call {call_id!r}, which is not answered", "put its result right behind it")
        self.waiting.clear()


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
    turns = [view for view in views if view[1] != "system" and view[1] != "developer"]
    if profile.system != "anywhere" and "system first" not in profile.unenforced:
        yield from _system_faults(views, is_late_taken=profile.takes_late_system(model))
    if profile.needs_user and views and all(view[1] != "user" for view in turns):
        yield (turns or views)[0][0], "and the rest hold no user's turn", "add one"
    if turns:
        yield from _turn_faults(turns, profile, model)
    for before, view in pairwise(turns if profile.answers_results else ()):
        if before[1] == "tool" and view[1] == "user":
            yield view[0], "is the user's, right behind a result", "put an answer of the assistant between them"


def _system_faults(views: Sequence[View], *, is_late_taken: bool) -> Iterator[Fault]:
    """Judge system text behind the first: it is refused, or stands between the user's turn and the answer."""
    for at, view in enumerate(views):
        if view[1] not in SYSTEM_ROLES or (at == 0 and view[0][0] != "messages"):
            continue
        behind = views[at + 1][1] if at + 1 < len(views) else ""
        if not is_late_taken:
            if at > 0:
                yield view[0], "is a system message behind the first", "put all system text first, in one"
        elif at == 0 or views[at - 1][0] == ("system",) or behind in ("user", "tool"):
            yield view[0], "is a system message at the wrong place", "put it between a user's turn and the answer"


def _turn_faults(turns: Sequence[View], profile: Profile, model: str | None) -> Iterator[Fault]:
    """Judge if user and assistant take turns, the right one first and last."""
    path, first, *_ = turns[0]
    if profile.user_first and first != "user" and "user first" not in profile.unenforced:
        yield path, f"is the {first}'s, and comes first", "begin with the user's turn"
    path, last, seen, *_ = turns[-1]
    if last not in ("user", "tool", "prefill") and profile.needs_user_last(model):
        yield path, f"is the {last}'s, and comes last", "end with the user's turn"
    if profile.alternate and "alternation" not in profile.unenforced:
        before = "nobody"
        for view in turns:
            role = view[1]
            if role == before and role != "tool":
                yield view[0], f"is the {role}'s, as the turn before it is", "make one message of both"
            before = role
    if last == "assistant" and seen and not profile.trailing_space:
        kind, at, text, _ = seen[-1]
        if kind == "text" and text[-1:].isspace():
            yield (*turns[-1][0], *at), "ends in white space", "cut it off"


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
