"""Turns put into the order and the alphabets that a provider asks for, without a loss of content.

Each function is one rule, from turns to turns; it reports what it had to do. A list that keeps the rule is returned
as it is. Behind them, calls and results: each result right behind its call, each call with one, each id used once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain, groupby, pairwise
from operator import is_, itemgetter
from typing import TYPE_CHECKING, TypeAlias

from lazyprompt._base.roles import SYSTEM_ROLES, Role
from lazyprompt.errors import FormatError
from lazyprompt.formatters._job import Job, is_prefill
from lazyprompt.messages.msg import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, result_of
from lazyprompt.messages.openai_form import NO_RESULT, fitted
from lazyprompt.messages.turns import blocks_of, tools_called, unsigned
from lazyprompt.safety.speakers import written_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages.turns import Content, Turn

# What stands where a provider asks for a user's turn and the conversation has none.
FIRST_TURN = "(The conversation begins.)"
LAST_TURN = "(Please go on.)"
# Why late system text is moved where it may stand among the messages.
LATE_SYSTEM = "system text stands behind the user's turn"
# What the assistant says where a provider wants an answer between results and the user.
AFTER_RESULTS = "(The results are here.)"


def joined(first: Content, second: Content, between: str = "\n\n") -> Content:
    """Return two contents as one: texts with something between, blocks behind each other."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}" if first and second else first or second
    return (*blocks_of(first), *blocks_of(second))


def place_system_text(turns: list[Turn], job: Job) -> list[Turn]:
    """Put system text where the provider (or a merged history) takes it: at the front, or behind a user's turn."""
    if {turn[0] for turn in turns[1:]}.isdisjoint(SYSTEM_ROLES) and (not turns or turns[0][0] != "developer"):
        return turns
    if not job.profile.developer:
        turns = [("system", *turn[1:4]) if turn[0] == "developer" else turn for turn in turns]
    if job.profile.system == "anywhere" and job.merging is None:
        return turns
    front = _system_turns(turns)
    first, rest = turns[:front], turns[front:]
    if job.merging is None and job.profile.takes_late_system(job.model):
        others, late = _behind_users(rest, job)
    else:
        late = [turn for turn in rest if turn[0] in SYSTEM_ROLES]
        others = [turn for turn in rest if turn[0] not in SYSTEM_ROLES]
    for turn in late:
        job.notes.add(f"messages[{turn[3]}]", "text", "moved", "system text stands at the front")
    if late:
        others = _without_void_thoughts(others, late[-1][3], job)
    return [*_as_one_system([*first, *late]), *others]


def _as_one_system(turns: Sequence[Turn]) -> list[Turn]:
    """Join turns of system text."""
    if not turns:
        return []
    role, name, content, at = turns[0]
    for turn in turns[1:]:
        content = joined(content, turn[2])
    return [(role, name, content, at)]


def _behind_users(turns: Sequence[Turn], job: Job) -> tuple[list[Turn], list[Turn]]:
    """Put each late system text behind the next turns of the user or of tools, where it stays for all later calls.

    Source: Anthropic's guide to system messages in mid-conversation: they follow a user's turn, and an answer or
    nothing follows them.

    Returns:
        The turns, and the system text that no user's turn precedes.
    """
    placed: list[Turn] = []
    waiting: list[Turn] = []
    for is_asking, group in groupby(turns, lambda turn: turn[0] in _ASKING or turn[0] in SYSTEM_ROLES):
        neighbours = list(group)
        asking = [turn for turn in neighbours if turn[0] in _ASKING]
        placed += asking if is_asking else neighbours
        waiting += [turn for turn in neighbours if turn[0] in SYSTEM_ROLES]
        if asking and waiting:
            for turn in waiting:
                if turn[3] < asking[-1][3]:
                    job.notes.add(f"messages[{turn[3]}]", "text", "moved", LATE_SYSTEM)
            placed += _as_one_system(waiting)
            waiting = []
    return placed, waiting


# The roles of turns that the assistant answers.
_ASKING = ("user", "tool")


def _without_void_thoughts(turns: Sequence[Turn], before: int, job: Job) -> list[Turn]:
    """Leave out the signed thoughts of the messages before an index: text that stands before them has changed since."""
    if job.profile.thinking not in ("signed", "items"):
        return [*turns]
    kept: list[Turn] = []
    for role, name, content, at in turns:
        left = unsigned(content) if at < before else content
        if left is not content:
            why = "text before the thought has changed since it was signed"
            lost = "\n".join(block.thinking for block in blocks_of(content) if isinstance(block, ThinkingBlock))
            job.notes.add(f"messages[{at}]", "thinking", "left out", why, lost)
        kept.append((role, name, left, at))
    return kept


def fit_names(turns: list[Turn], job: Job) -> list[Turn]:
    """Write ids and names of tools, and names of speakers, as the provider takes them."""
    speakers, calls = _changed_speakers(turns, job.profile), _changed_calls(turns, job)
    if not speakers and not calls:
        return turns
    new: list[Turn] = []
    for role, name, content, at in turns:
        speaker = speakers.get((role, name), name)
        if speaker != name:
            job.notes.add(f"messages[{at}].name", "name", "changed", f"{name!r} is written {speaker!r}", name)
        if calls and isinstance(content, tuple):
            blocks = tuple(_renamed(block, calls, at, job) for block in content)
            new.append((role, speaker, content if _are_same(blocks, content) else blocks, at))
        else:
            new.append((role, speaker, content, at))
    return new


def _changed_speakers(turns: Iterable[Turn], profile: Profile) -> dict[tuple[str, str], str]:
    """Map speakers to the names that the provider takes, where those are others."""
    pattern = profile.names
    named = [turn[:2] for turn in turns if turn[1] and turn[0] != "tool"] if pattern else []
    if pattern is None or not named:
        return {}
    written = written_names(named, lambda name: fitted(name, pattern))
    return {speaker: name for speaker, name in written.items() if name != speaker[1]}


def _changed_calls(turns: Iterable[Turn], job: Job) -> dict[str, tuple[str, str]]:
    """Map ids of calls to the id and tool that the provider takes, where one is another; each id is still another."""
    calls, profile = tools_called(turns), job.profile
    taken = {call_id for call_id in calls if profile.ids.fullmatch(call_id)}
    changed: dict[str, tuple[str, str]] = {}
    for call_id, name in calls.items():
        new_id, number = call_id, 2
        if call_id not in taken:
            new_id = fitted(call_id, profile.ids, profile.id_length)
            while new_id in taken:
                new_id, number = fitted(f"{call_id}\x7f{number}", profile.ids, profile.id_length), number + 1
            taken.add(new_id)
        new = new_id, name if profile.tool_names.fullmatch(name) else fitted(name, profile.tool_names)
        if new != (call_id, name):
            changed[call_id] = new
    return changed


def _renamed(block: Block, calls: dict[str, tuple[str, str]], at: int, job: Job) -> Block:
    """Return a call or a result with the id and the name that are written."""
    if not isinstance(block, ToolUseBlock | ToolResultBlock) or block.id not in calls:
        return block
    new_id, new_name = calls[block.id]
    if isinstance(block, ToolUseBlock):
        for what, old, new in (("id", block.id, new_id), ("name", block.name, new_name)):
            if old != new:
                why = f"{old!r} is written {new!r} for {job.profile.name}"
                job.notes.add(f"messages[{at}]", what, "changed", why, old)
    return replace(block, id=new_id, name=new_name)


def move_media(turns: list[Turn], job: Job) -> list[Turn]:
    """Put the media of results in a user's turn behind all results of an exchange, where they must be."""
    new: list[Turn] = []
    for turn in turns:
        role, name, content, at = turn
        shown: list[Block] = []
        results: list[Block] = []
        # What the provider's own form holds, it takes there.
        for block in content if role == "tool" and isinstance(content, tuple) and not job.native(turn) else ():
            kept, media = _parted(block, job.profile)
            results.append(kept)
            tool = block.name if isinstance(block, ToolResultBlock) else ""
            for medium in media:
                shown += [TextBlock(f"({medium.kind} from the tool {tool})"), medium]
        if not shown:
            new.append(turn)
            continue
        why = f"{job.profile.name} takes its media from the user only"
        job.notes.add(f"messages[{at}]", "tool_result", "moved", why)
        new.append((role, name, tuple(results), at))
        new.append(("user", "", tuple(shown), at))
    return new


def _parted(block: Block, profile: Profile) -> tuple[Block, list[Block]]:
    """Return a result without the media that it cannot hold, and those media."""
    if not isinstance(block, ToolResultBlock) or isinstance(block.output, str):
        return block, []
    media = [each for each in block.output if each.kind != "text" and each.kind not in profile.result_media]
    if not media:
        return block, []
    left = tuple(each for each in block.output if each not in media)
    note = TextBlock(f"({', '.join(each.kind for each in media)}: in the next message)")
    return replace(block, output=left or (note,)), media


def answer_results(turns: list[Turn], job: Job) -> list[Turn]:
    """Put a turn of the assistant between results and the user's next turn, if the provider asks for that."""
    if not job.profile.answers_results:
        return turns
    new: list[Turn] = []
    for turn in turns:
        if turn[0] == "user" and new and new[-1][0] == "tool":
            new.append(("assistant", "", AFTER_RESULTS, turn[3]))
            why = f"{job.profile.name} wants an answer between results and the user's turn"
            job.notes.add(f"messages[{turn[3]}]", "message", "added", why)
        new.append(turn)
    return new


def join_neighbours(turns: list[Turn], job: Job) -> list[Turn]:
    """Make one turn of neighbours of the user, or of the assistant, if the provider wants the roles to alternate."""
    if not job.profile.alternate or not any(map(_JOINED.__contains__, pairwise([turn[0] for turn in turns]))):
        return turns
    new: list[Turn] = []
    for role, group in groupby(turns, itemgetter(0)):
        neighbours = list(group)
        new += [_as_one(neighbours)] if (role, role) in _JOINED and len(neighbours) > 1 else neighbours
    return new


def _as_one(turns: list[Turn]) -> Turn:
    """Join turns; their texts stay blocks of their own, and a form whose content is one text makes lines of them."""
    role, name, _, at = turns[0]
    blocks = chain.from_iterable(blocks_of(turn[2]) for turn in turns)
    # Thoughts stand before the rest, as the turn of one answer has them, and calls behind it.
    ordered = sorted(blocks, key=lambda block: (not isinstance(block, ThinkingBlock), isinstance(block, ToolUseBlock)))
    return role, name, tuple(ordered) or "", at


# The roles of neighbours that become one turn.
_JOINED = frozenset({("user", "user"), ("assistant", "assistant")})


def refuse_nothing(turns: list[Turn], job: Job) -> list[Turn]:
    """Refuse a conversation of which nothing is left.

    Raises:
        FormatError: There is no turn; the error lists what was left out.
    """
    if not turns:
        lost = "".join(f"; {entry}" for entry in job.notes if entry.is_loss)
        raise FormatError(f"there is no message with any content; give at least one{lost}")
    return turns


def need_user_turn(turns: list[Turn], job: Job) -> list[Turn]:
    """Give the conversation a turn of the user, if the provider needs one."""
    if not job.profile.needs_user or any(turn[0] == "user" for turn in turns):
        return turns
    front = _system_turns(turns)
    if front < len(turns):
        return _with_user_turn(turns, front, FIRST_TURN, "needs a user's turn", job)
    role, _, content, at = turns[-1]
    why = f"{job.profile.name} needs a user's turn; the {role}'s is one now"
    job.notes.add(f"messages[{at}]", "text", "moved", why)
    return [*turns[:-1], ("user", "", content, at)]


def begin_with_user(turns: list[Turn], job: Job) -> list[Turn]:
    """Put a turn of the user first, behind the system text, if the provider begins with one."""
    if not job.profile.user_first:
        return turns
    front = _system_turns(turns)
    if front == len(turns) or turns[front][0] == "user":
        return turns
    return _with_user_turn(turns, front, FIRST_TURN, "begins with the user's turn", job)


def end_with_user(turns: list[Turn], job: Job) -> list[Turn]:
    """Put a turn of the user last, if the provider ends with one; an answer to go on with is no last turn."""
    if turns[-1][0] != "assistant" or not job.profile.needs_user_last(job.model):
        return turns
    if job.profile.prefill and is_prefill(job.messages[-1]):
        return turns
    return _with_user_turn(turns, len(turns), LAST_TURN, "ends with the user's turn", job)


def _system_turns(turns: list[Turn]) -> int:
    """Return the number of turns with system text at the front."""
    return next((at for at, turn in enumerate(turns) if turn[0] not in SYSTEM_ROLES), len(turns))


def _with_user_turn(turns: list[Turn], place: int, text: str, reason: str, job: Job) -> list[Turn]:
    job.notes.add("messages", "message", "added", f"{job.profile.name} {reason}")
    return [*turns[:place], ("user", "", text, 0), *turns[place:]]


def strip_last_space(turns: list[Turn], job: Job) -> list[Turn]:
    """Remove the white space that ends an unfinished last answer, if the provider refuses it."""
    role, name, content, at = turns[-1]
    if job.profile.trailing_space or role != "assistant":
        return turns
    last = blocks_of(content)[-1:]
    if not last or not isinstance(last[0], TextBlock) or last[0].text == last[0].text.rstrip():
        return turns
    text, left = last[0].text, last[0].text.rstrip()
    job.notes.add(f"messages[{at}]", "text", "changed", f"{job.profile.name} takes no white space at its end", text)
    new: Content = left if isinstance(content, str) else (*content[:-1], replace(last[0], text=left))
    return [*turns[:-1], (role, name, new, at)]


# A call, and its result once that is there.
_Place: TypeAlias = "tuple[ToolUseBlock, list[ToolResultBlock]]"


def order_exchanges(turns: list[Turn], job: Job) -> list[Turn]:
    """Put the results of all calls right behind them, in the order of the calls.

    Results stand in turns of the role ``tool`` and nowhere else, and those hold nothing else.

    Raises:
        FormatError: A result has no call before it, a call has two results, or somebody calls who is not the assistant.
    """
    if (ordered := _in_order(turns, job)) is not None:
        return ordered
    order = _Order(job)
    for role, name, content, at in turns:
        if isinstance(content, str):
            order.together.clear()
            order.turns.append((("user" if role == "tool" else role, name, content, at), []))
        else:
            order.take(role, name, content, at)
    return order.finished()


def answering(result: ToolResultBlock, call_id: str, name: str) -> ToolResultBlock:
    """Return a result with the id and the name of the call that it answers."""
    if (result.id, result.name) == (call_id, name):
        return result
    if isinstance(result.output, str) and not result.is_error:
        return result_of(call_id, name, result.output)
    return replace(result, id=call_id, name=name)


def _in_order(turns: list[Turn], job: Job) -> list[Turn] | None:
    """Return turns with one turn for all results of an exchange, if these stand right behind their calls; else None."""
    new: list[Turn] = []
    used: set[str] = set()
    # The calls that wait for a result, and the results of the calls before them.
    waiting: deque[ToolUseBlock] = deque()
    results: list[Block] = []
    for turn in turns:
        role, _, content, at = turn
        if role == "tool":
            for block in content:
                if not isinstance(block, ToolResultBlock) or not waiting or block.id != waiting[0].id:
                    return None
                results.append(answering(block, block.id, waiting.popleft().name))
            if not waiting:
                as_given = len(results) == len(content) and job.messages[at].native and job.native(turn)
                new.append(("tool", "", content, at) if as_given else ("tool", "", tuple(results), new[-1][3]))
                results.clear()
            continue
        if waiting:
            return None
        new.append(turn)
        if isinstance(content, tuple):
            waiting.extend([block for block in content if isinstance(block, ToolUseBlock)])
            ids = {call.id for call in waiting}
            unique = len(ids) == len(waiting) and used.isdisjoint(ids)
            used |= ids
            # Only the assistant calls.
            if (
                not unique
                or any(isinstance(each, ToolResultBlock) for each in content)
                or (ids and role != "assistant")
            ):
                return None
    return None if waiting else new


def _are_same(blocks: Sequence[Block], content: Sequence[Block]) -> bool:
    """Return True if the blocks of a content are these very objects: nothing about them was changed."""
    return len(blocks) == len(content) and all(map(is_, blocks, content))


class _Order:
    """The turns so far, and the calls that wait for their results."""

    def __init__(self, job: Job) -> None:
        self.job, self.notes = job, job.notes
        # Each turn with its calls.
        self.turns: list[tuple[Turn, list[_Place]]] = []
        # The calls by the id that they were given, the oldest first.
        self.waiting: dict[str, deque[_Place]] = {}
        self.used: set[str] = set()
        # The number to try next for an id that is used again.
        self.numbers: dict[str, int] = {}
        # The contents of results alone, with the index of their message, by the first id and the number of results.
        self.answers: dict[tuple[str, int], tuple[tuple[Block, ...], int]] = {}
        # The calls of messages that follow each other without anything between may wait together.
        self.together: set[str] = set()

    def take(self, role: Role, name: str, content: tuple[Block, ...], at: int) -> None:
        """Put the blocks of a message where they belong."""
        if not any(isinstance(block, ToolResultBlock) for block in content):
            self.say("user" if role == "tool" else role, name, content, at)
            return
        if isinstance(first := content[0], ToolResultBlock):
            self.answers[first.id, len(content)] = (content, at)
        waiting: list[Block] = []
        for index, block in enumerate(content):
            if not isinstance(block, ToolResultBlock):
                waiting.append(block)
                continue
            self.together.clear()
            if role == "assistant" and waiting:
                # Call and result in one message: the content before the result stays before it.
                self.say(role, name, tuple(waiting), at)
                waiting = []
            self.answer(block, f"messages[{at}].content[{index}]", behind=bool(waiting))
        if waiting:
            # A tool cannot say anything but results; the user's side can.
            self.say("user" if role == "tool" else role, name, tuple(waiting), at)

    def say(self, role: Role, name: str, blocks: tuple[Block, ...], at: int) -> None:
        """Add a turn, with the places of the results of its calls."""
        calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
        if not calls:
            self.together.clear()
            self.turns.append(((role, name, blocks, at), []))
            return
        if role != "assistant":
            where = f"messages[{at}] calls the tool {calls[0].name!r}"
            raise FormatError(f"{where}, and its role is {role!r}; only the assistant's messages can")
        places: list[_Place] = []
        for call in calls:
            places.append((self.unique(call, at), []))
            if call.id not in self.together:
                # An older call of this id is answered already, or never will be.
                self.waiting[call.id] = deque()
            self.together.add(call.id)
            self.waiting[call.id].append(places[-1])
        renamed = iter([call for call, _ in places])
        changed = tuple(next(renamed) if isinstance(block, ToolUseBlock) else block for block in blocks)
        native = self.job.native((role, name, blocks, at))
        # A call without an id of the provider's own has none to change.
        is_same = _are_same(changed, blocks) or (native and not any(native.has_id(call.id) for call in calls))
        self.turns.append(((role, name, blocks if is_same else changed, at), places))

    def unique(self, call: ToolUseBlock, at: int) -> ToolUseBlock:
        """Return the call with an id that no other has."""
        new, number = call.id, self.numbers.get(call.id, 2)
        while new in self.used:
            new, number = f"{call.id}_{number}", number + 1
        self.numbers[call.id] = number
        self.used.add(new)
        if new == call.id:
            return call
        self.notes.add(f"messages[{at}]", "id", "changed", f"the id {call.id!r} was used before; it is {new!r} here")
        return replace(call, id=new)

    def answer(self, result: ToolResultBlock, where: str, *, behind: bool) -> None:
        """Put a result behind its call."""
        if result.id not in self.waiting:
            raise FormatError(
                f"{where} is the result of the call {result.id!r}, which nobody made before it; keep a call and its "
                "result together, or leave out both"
            )
        if not self.waiting[result.id]:
            raise FormatError(f"{where} is a second result of the call {result.id!r}; a call has one result")
        call, results = self.waiting[result.id].popleft()
        results.append(answering(result, call.id, call.name))
        if behind or not self.turns[-1][1]:
            self.notes.add(where, "tool_result", "moved", "a result stands right behind its call")

    def _as_given(self, results: list[ToolResultBlock], at: int) -> tuple[Content, int]:
        """Return results as the content of a turn, and the index of its message: that of the calls, unless native."""
        content, place = self.answers.get((results[0].id, len(results)), ((), at))
        is_whole = [block.id for block in content if isinstance(block, ToolResultBlock)] == [
            each.id for each in results
        ]
        is_native = is_whole and self.job.native(("tool", "", content, place)) is not None
        return (content, place) if is_native else (tuple(results), at)

    def finished(self) -> list[Turn]:
        """Return all turns, the results behind the calls."""
        ordered: list[Turn] = []
        for turn, places in self.turns:
            ordered.append(turn)
            for call, results in places:
                if not results:
                    why = f"the call {call.id!r} was never answered, and every call must be"
                    self.notes.add(f"messages[{turn[3]}]", "tool_result", "added", why)
                    results.append(ToolResultBlock(call.id, call.name, NO_RESULT))
            if places:
                results = [result for _, results in places for result in results]
                ordered.append(("tool", "", *self._as_given(results, turn[3])))
        return ordered
