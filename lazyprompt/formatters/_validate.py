"""Validation of payloads against a provider's rules.

The payload's JSON shape is checked first, followed by the rules that a shape can't express, such as the order of roles.
Each wire format converts its payloads to the same kind of views, so that all formats share one validator.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.json import is_dict
from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.formatters._cache import marked_blocks
from lazyprompt.formatters.shape import UNKNOWN_ROLE, Check, Fault, Kind, MessageView, Path, path_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.roles import Role
    from lazyprompt.formatters.profile import Breakpoints, Media, MediaKind, Profile
    from lazyprompt.messages.native import Native
    from lazyprompt.messages.turns import WrittenTurn


class Violation(NamedTuple):
    """A violation of a provider's rules in a payload.

    Attributes:
        path: The location in the payload, such as ``messages[3].content[0]``.
        what: The problem.
        fix: The suggested fix.
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
    """List a payload's violations of a provider's rules.

    Args:
        payload: Any payload.
        profile: The provider's rules.
        model: The model, if the rules depend on it; a model named in the payload takes precedence.

    Returns:
        Violations of the payload's JSON structure, followed by violations of the provider's rules for messages, tools
        and cache breakpoints.
    """
    key = profile.form.messages_key
    shape = _shape_of(profile)
    if not is_dict(payload):
        return [Violation("the payload", what, fix) for _, what, fix in shape(payload)]
    named = payload.get("model")
    model = named if isinstance(named, str) else model
    views = list(profile.form.views(payload))
    faults = list(shape(payload))
    if not views and not faults and not payload.get(key):
        faults.append(((key,), "contains no message", "add at least one"))
    judge = _Judge(profile, model)
    for view in views:
        judge.message(view)
    judge.unanswered()
    faults += judge.faults
    faults += _order_faults(views, profile, model)
    faults += _tool_faults(profile.form.declared(payload), profile)
    if profile.breakpoints is not None:
        faults += _mark_faults(payload, profile.breakpoints, key)
    return [Violation(path_text(path) or "the payload", what, fix) for path, what, fix in faults]


def is_own_form(role: Role, native: Native, profile: Profile, model: str | None) -> bool:
    """Return True if a message's native content is valid on its own, regardless of other messages."""
    # Add a user turn before system text, because system text after the start of a conversation must follow a user turn.
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
    """A validator for the blocks in a conversation.

    Attributes:
        faults: The violations found so far.
        waiting: The paths of the tool calls that have no result yet, by call id.
    """

    def __init__(self, profile: Profile, model: str | None) -> None:
        self.profile, self.thinks = profile, profile.needs_thoughts(model)
        self.faults: list[Fault] = []
        self.waiting: dict[str, Path] = {}
        self._role = ""
        self._used: set[str] = set()
        self._names: set[str] = set()

    def add(self, path: Path, what: str, fix: str) -> None:
        self.faults.append((path, what, fix))

    def message(self, view: MessageView) -> None:
        """Check the blocks in a message, and check that tool results directly follow their calls."""
        profile, (path, role, seen, name) = self.profile, view
        joins = role == self._role and "alternation" in profile.unenforced
        if self.waiting and not (profile.results_anywhere or joins or (seen and seen[0][0] == "result")):
            self.unanswered()
        self._role = role
        if name is not None and profile.names is not None and not profile.names.fullmatch(name):
            self.add((*path, "name"), f"is {name!r}", f"use {profile.names.pattern}")
        if not seen:
            if not profile.empty_text:
                self.add(path, "has no content", "add content, or remove it")
            return
        if self.thinks and {kind for kind, *_ in seen} & {"call", "thinking"} == {"call"}:
            fix = 'set "reasoning_content", or "" if there is none'
            self.add(path, "calls tools without the preceding reasoning", fix)
        for kind, at, text, tool in seen:
            self.block((*path, *at), role, kind, text, tool)
        if seen[-1][0] == "thinking" and profile.thinking in ("signed", "items"):
            self.add((*path, *seen[-1][1]), "is a final thinking block", "add the content that followed it")

    def block(self, path: Path, role: str, kind: Kind, text: str, tool: str | None) -> None:
        if kind in ("call", "thinking") and role != "assistant":
            self.add(path, f"is a {kind} block from the {role}", "only the assistant may think and call tools")
        if kind == "call":
            self.call(path, text, tool)
        elif kind == "result":
            if self.waiting.pop(text, None) is None:
                what = f"is the result of {text!r}, but no such call is waiting for a result"
                self.add(path, what, "put it directly after its call, or remove it")
        elif kind == "text":
            takes_empty = self.profile.empty_text or "empty text" in self.profile.unenforced
            if not takes_empty and (not text or text.isspace()):
                self.add(path, "is a blank text", "remove it")
        elif kind != "thinking" and kind != "other":  # noqa: PLR1714 - type checkers narrow comparisons
            self.faults += _medium_faults(path, role, kind, text, self.profile)

    def call(self, path: Path, call_id: str, name: str | None) -> None:
        """Check a tool call, and record that it has no result yet."""
        ids, names = self.profile.ids, self.profile.tool_names
        if call_id in (self.waiting if "unique ids" in self.profile.unenforced else self._used):
            self.add(path, f"repeats the id {call_id!r}", "use a unique id for each call")
        if not ids.fullmatch(call_id):
            self.add(path, f"has the invalid id {call_id!r}", f"use {ids.pattern}")
        if name is not None and name not in self._names and not names.fullmatch(name):
            self.add(path, f"calls a tool with the invalid name {name!r}", f"use {names.pattern}")
        self._used.add(call_id)
        self._names.update(() if name is None else (name,))
        self.waiting[call_id] = path

    def unanswered(self) -> None:
        """Report each tool call without a result, then discard these calls."""
        for call_id, path in self.waiting.items():
            self.add(path, f"makes the call {call_id!r}, which has no result", "put its result directly after it")
        self.waiting.clear()


def _medium_faults(path: Path, role: str, kind: MediaKind, source: str, profile: Profile) -> Iterator[Fault]:
    rule = profile.media.get(kind)
    if rule is None or not {"assistant": rule.assistant, "system": rule.system}.get(role, True):
        yield path, f"is {kind} from the {role}", f"{profile.name} does not accept it; remove it"
    elif not _is_accepted(source, rule):
        ways = " or ".join(way for way, fits in (("a URL", rule.url), ("base64 data", rule.data)) if fits)
        yield path, f"is {kind} as {source[:60]!r}", f"use {ways} of type {', '.join(rule.types)}"


def _is_accepted(source: str, rule: Media) -> bool:
    """Return True if a provider accepts a media URL; for a ``data:`` URL, the MIME type must be accepted too."""
    if not source.startswith("data:"):
        return rule.url or source.partition(":")[0] in rule.schemes
    return rule.data and (source == "data:" or rule.takes(source.removeprefix("data:").partition(";")[0]))


def _tool_faults(declared: Iterable[tuple[Path, str]], profile: Profile) -> Iterator[Fault]:
    """Check that tool names are valid and unique."""
    used: set[str] = set()
    for path, name in declared:
        if not profile.tool_names.fullmatch(name):
            yield path, f"is {name!r}", f"use {profile.tool_names.pattern}"
        if name in used:
            yield path, f"is {name!r}, the name of another tool", "use a unique name for each tool"
        used.add(name)


def _order_faults(views: Sequence[MessageView], profile: Profile, model: str | None) -> Iterator[Fault]:
    """Check that the order of roles follows the provider's rules."""
    turns = [view for view in views if view[1] != "system" and view[1] != "developer"]
    if profile.system != "anywhere" and "system first" not in profile.unenforced:
        yield from _system_faults(views, accepts_late=profile.takes_late_system(model))
    if profile.needs_user and views and all(view[1] != "user" for view in turns):
        yield (turns or views)[0][0], "and all later messages are not user messages", "add a user message"
    if turns:
        yield from _turn_faults(turns, profile, model)
    for before, view in pairwise(turns if profile.answers_results else ()):
        if before[1] == "tool" and view[1] == "user":
            yield view[0], "is a user turn directly after a tool result", "add an assistant turn between them"


def _system_faults(views: Sequence[MessageView], *, accepts_late: bool) -> Iterator[Fault]:
    """Check that system messages come first, or between a user and an assistant turn if the provider accepts that."""
    for at, view in enumerate(views):
        if view[1] not in SYSTEM_ROLES or (at == 0 and view[0][0] != "messages"):
            continue
        behind = views[at + 1][1] if at + 1 < len(views) else ""
        if not accepts_late:
            if at > 0:
                yield view[0], "is a second system message", "put all system text into the first message"
        elif at == 0 or views[at - 1][0] == ("system",) or behind in ("user", "tool"):
            yield view[0], "is a system message in the wrong place", "put it between a user and an assistant turn"


def _turn_faults(turns: Sequence[MessageView], profile: Profile, model: str | None) -> Iterator[Fault]:
    """Check that user and assistant turns alternate, and check the roles of the first and last turn."""
    path, first, *_ = turns[0]
    if profile.user_first and first not in ("user", UNKNOWN_ROLE) and "user first" not in profile.unenforced:
        yield path, f"has the role {first!r}, but comes first", "begin with a user turn"
    path, last, seen, *_ = turns[-1]
    if last not in ("user", "tool", "prefill", UNKNOWN_ROLE) and profile.needs_user_last(model):
        yield path, f"has the role {last!r}, but comes last", "end with a user turn"
    if profile.alternate and "alternation" not in profile.unenforced:
        before = ""
        for view in turns:
            role = view[1]
            if role == before and role not in ("tool", UNKNOWN_ROLE):
                yield view[0], f"has the role {role!r}, like the turn before it", "join both messages"
            before = role
    if last == "assistant" and seen and not profile.trailing_space:
        kind, at, text, _ = seen[-1]
        if kind == "text" and text[-1:].isspace():
            yield (*turns[-1][0], *at), "ends in white space", "strip it"


def _mark_faults(payload: Mapping[str, Any], marks: Breakpoints, messages_key: str) -> Iterator[Fault]:
    """Check the number of cache breakpoints, and check that longer lifetimes come first."""
    found = marked_blocks(payload, marks, messages_key)
    for path, _ in found[marks.most :]:
        yield path, "is one cache breakpoint too many", f"set at most {marks.most}"
    shortest = len(marks.lifetimes)
    for path, rank in found:
        if rank < 0:
            yield path, "has a breakpoint with an unknown lifetime", f"use {' or '.join(marks.lifetimes)}"
        elif rank > shortest:
            yield path, "has a longer lifetime than a breakpoint before it", "put longer lifetimes first"
        shortest = min(shortest, rank) if rank >= 0 else shortest
