"""Rules that adapt turn order, call ids, tool names and speaker names to a provider's requirements.

Each rule is a function that takes and returns a list of turns and reports its changes. If all turns already comply
with a rule, its function returns the list unchanged. After all rules have run, each tool call has a unique id and
exactly one result, which directly follows the call.
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
from lazyprompt.messages.turns import blocks_of, tools_called, without_signed_thoughts
from lazyprompt.safety.speakers import written_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages.turns import Content, Turn

# The placeholder texts for user turns that a provider requires at the start or end of a conversation.
FIRST_TURN = "(The conversation begins.)"
LAST_TURN = "(Please go on.)"
# The reason that the report states for system text that is moved after a user turn.
LATE_SYSTEM = "system text must follow a user turn"
# The text of the assistant turn that is inserted between tool results and the next user turn.
AFTER_RESULTS = "(The results are here.)"


def join_contents(first: Content, second: Content, between: str = "\n\n") -> Content:
    """Join the contents of two messages: strings with a separator between them, other contents as a tuple of blocks."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}" if first and second else first or second
    return (*blocks_of(first), *blocks_of(second))


def place_system_text(turns: list[Turn], job: Job) -> list[Turn]:
    """Move system text to the front, or after a user turn if the provider accepts it there."""
    if {turn[0] for turn in turns[1:]}.isdisjoint(SYSTEM_ROLES) and (not turns or turns[0][0] != "developer"):
        return turns
    if not job.profile.developer:
        turns = [("system", *turn[1:4]) if turn[0] == "developer" else turn for turn in turns]
    if job.profile.system == "anywhere" and job.merging is None:
        return turns
    front = _system_turns(turns)
    first, rest = turns[:front], turns[front:]
    if job.merging is None and job.profile.takes_late_system(job.model):
        others, late = _move_behind_users(rest, job)
    else:
        late = [turn for turn in rest if turn[0] in SYSTEM_ROLES]
        others = [turn for turn in rest if turn[0] not in SYSTEM_ROLES]
    for turn in late:
        job.notes.add(f"messages[{turn[3]}]", "text", "moved", "system text must be at the front")
    if late:
        others = _without_void_thoughts(others, late[-1][3], job)
    return [*_join_system_text([*first, *late]), *others]


def _join_system_text(turns: Sequence[Turn]) -> list[Turn]:
    if not turns:
        return []
    role, name, content, at = turns[0]
    for turn in turns[1:]:
        content = join_contents(content, turn[2])
    return [(role, name, content, at)]


def _move_behind_users(turns: Sequence[Turn], job: Job) -> tuple[list[Turn], list[Turn]]:
    """Move each mid-conversation system message to the end of the next run of user and tool turns.

    According to Anthropic's guide, a mid-conversation system message must follow a user turn, and must either precede
    an assistant turn or end the conversation.

    Returns:
        The reordered turns, and the system turns that can't be placed after a user or tool turn.
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
            placed += _join_system_text(waiting)
            waiting = []
    return placed, waiting


# The roles that require a response from the assistant.
_ASKING = ("user", "tool")


def _without_void_thoughts(turns: Sequence[Turn], before: int, job: Job) -> list[Turn]:
    """Drop the signed thinking blocks before a message index, because changed text invalidates their signatures."""
    if job.profile.thinking not in ("signed", "items"):
        return [*turns]
    kept: list[Turn] = []
    for role, name, content, at in turns:
        left = without_signed_thoughts(content) if at < before else content
        if left is not content:
            why = "text before the reasoning has changed since it was signed"
            lost = "\n".join(block.thinking for block in blocks_of(content) if isinstance(block, ThinkingBlock))
            job.notes.add(f"messages[{at}]", "thinking", "left out", why, lost)
        kept.append((role, name, left, at))
    return kept


def fit_names(turns: list[Turn], job: Job) -> list[Turn]:
    """Replace the call ids, tool names and speaker names that the provider rejects."""
    speakers, calls = _changed_speakers(turns, job.profile), _changed_calls(turns, job)
    if not speakers and not calls:
        return turns
    new: list[Turn] = []
    for role, name, content, at in turns:
        speaker = speakers.get((role, name), name)
        if speaker != name:
            job.notes.add(f"messages[{at}].name", "name", "changed", f"{name!r} is written {speaker!r}", name)
        if calls and isinstance(content, tuple):
            blocks = tuple(_rename_call(block, calls, at, job) for block in content)
            new.append((role, speaker, content if _are_same(blocks, content) else blocks, at))
        else:
            new.append((role, speaker, content, at))
    return new


def _changed_speakers(turns: Iterable[Turn], profile: Profile) -> dict[tuple[str, str], str]:
    """Map each speaker (role and name) whose name the provider rejects to an accepted name."""
    pattern = profile.names
    named = [turn[:2] for turn in turns if turn[1] and turn[0] != "tool"] if pattern else []
    if pattern is None or not named:
        return {}
    written = written_names(named, lambda name: fitted(name, pattern))
    return {speaker: name for speaker, name in written.items() if name != speaker[1]}


def _changed_calls(turns: Iterable[Turn], job: Job) -> dict[str, tuple[str, str]]:
    """Map the id of each call whose id or tool name is rejected to a new id and tool name that the provider accepts."""
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


def _rename_call(block: Block, calls: dict[str, tuple[str, str]], at: int, job: Job) -> Block:
    """Replace the id and the tool name in a tool call or tool result."""
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
    """Move media that the provider doesn't accept in tool results to a user turn after the results."""
    new: list[Turn] = []
    for turn in turns:
        role, name, content, at = turn
        shown: list[Block] = []
        results: list[Block] = []
        # Native tool results stay unchanged, because the provider accepts media in its native format.
        for block in content if role == "tool" and isinstance(content, tuple) and not job.native(turn) else ():
            kept, media = _split_media(block, job.profile)
            results.append(kept)
            tool = block.name if isinstance(block, ToolResultBlock) else ""
            for medium in media:
                shown += [TextBlock(f"({medium.kind} from the tool {tool})"), medium]
        if not shown:
            new.append(turn)
            continue
        why = f"{job.profile.name} only accepts its media from the user"
        job.notes.add(f"messages[{at}]", "tool_result", "moved", why)
        new.append((role, name, tuple(results), at))
        new.append(("user", "", tuple(shown), at))
    return new


def _split_media(block: Block, profile: Profile) -> tuple[Block, list[Block]]:
    """Remove the media that the provider rejects from a tool result; return the result and the removed media."""
    if not isinstance(block, ToolResultBlock) or isinstance(block.output, str):
        return block, []
    media = [each for each in block.output if each.kind != "text" and each.kind not in profile.result_media]
    if not media:
        return block, []
    left = tuple(each for each in block.output if each not in media)
    note = TextBlock(f"({', '.join(each.kind for each in media)}: in the next message)")
    return replace(block, output=left or (note,)), media


def answer_results(turns: list[Turn], job: Job) -> list[Turn]:
    """Add an assistant turn between tool results and the next user turn if the provider requires one."""
    if not job.profile.answers_results:
        return turns
    new: list[Turn] = []
    for turn in turns:
        if turn[0] == "user" and new and new[-1][0] == "tool":
            new.append(("assistant", "", AFTER_RESULTS, turn[3]))
            why = f"{job.profile.name} requires an assistant turn between results and the user turn"
            job.notes.add(f"messages[{turn[3]}]", "message", "added", why)
        new.append(turn)
    return new


def join_neighbours(turns: list[Turn], job: Job) -> list[Turn]:
    """Join adjacent user turns and adjacent assistant turns if the provider requires alternating roles."""
    if not job.profile.alternate or not any(map(_JOINED.__contains__, pairwise([turn[0] for turn in turns]))):
        return turns
    new: list[Turn] = []
    for role, group in groupby(turns, itemgetter(0)):
        neighbours = list(group)
        new += [_join_turns(neighbours)] if (role, role) in _JOINED and len(neighbours) > 1 else neighbours
    return new


def _join_turns(turns: list[Turn]) -> Turn:
    """Join turns into a single turn; each text stays a separate block."""
    role, name, _, at = turns[0]
    blocks = chain.from_iterable(blocks_of(turn[2]) for turn in turns)
    # Sort the joined blocks like those in a single reply: thinking blocks first, tool calls last.
    ordered = sorted(blocks, key=lambda block: (not isinstance(block, ThinkingBlock), isinstance(block, ToolUseBlock)))
    return role, name, tuple(ordered) or "", at


# Adjacent turns with these pairs of roles are joined.
_JOINED = frozenset({("user", "user"), ("assistant", "assistant")})


def refuse_nothing(turns: list[Turn], job: Job) -> list[Turn]:
    """Raise an error if a conversation has no content.

    Raises:
        FormatError: No turns are left; the error message lists the dropped content.
    """
    if not turns:
        lost = "".join(f"; {entry}" for entry in job.notes if entry.is_loss)
        raise FormatError(f"no message has any content; pass at least one that does{lost}")
    return turns


def need_user_turn(turns: list[Turn], job: Job) -> list[Turn]:
    """Add a user turn if the provider requires one and the conversation has none."""
    if not job.profile.needs_user or any(turn[0] == "user" for turn in turns):
        return turns
    front = _system_turns(turns)
    if front < len(turns):
        return _with_user_turn(turns, front, FIRST_TURN, "requires a user turn", job)
    role, _, content, at = turns[-1]
    why = f"{job.profile.name} requires a user turn, so the {role} text is sent as one"
    job.notes.add(f"messages[{at}]", "text", "moved", why)
    return [*turns[:-1], ("user", "", content, at)]


def begin_with_user(turns: list[Turn], job: Job) -> list[Turn]:
    """Add a user turn after the system text if the provider requires the first turn to be a user turn."""
    if not job.profile.user_first:
        return turns
    front = _system_turns(turns)
    if front == len(turns) or turns[front][0] == "user":
        return turns
    return _with_user_turn(turns, front, FIRST_TURN, "requires a user turn first", job)


def end_with_user(turns: list[Turn], job: Job) -> list[Turn]:
    """Add a user turn at the end if the provider requires one, unless the last message is a partial reply."""
    if turns[-1][0] != "assistant" or not job.profile.needs_user_last(job.model):
        return turns
    if job.profile.prefill and is_prefill(job.messages[-1]):
        return turns
    return _with_user_turn(turns, len(turns), LAST_TURN, "requires a user turn last", job)


def _system_turns(turns: list[Turn]) -> int:
    """Return the number of leading turns with system text."""
    return next((at for at, turn in enumerate(turns) if turn[0] not in SYSTEM_ROLES), len(turns))


def _with_user_turn(turns: list[Turn], place: int, text: str, reason: str, job: Job) -> list[Turn]:
    job.notes.add("messages", "message", "added", f"{job.profile.name} {reason}")
    return [*turns[:place], ("user", "", text, 0), *turns[place:]]


def strip_last_space(turns: list[Turn], job: Job) -> list[Turn]:
    """If the provider rejects trailing white space, strip it from a final assistant turn."""
    role, name, content, at = turns[-1]
    if job.profile.trailing_space or role != "assistant":
        return turns
    last = blocks_of(content)[-1:]
    if not last or not isinstance(last[0], TextBlock) or last[0].text == last[0].text.rstrip():
        return turns
    text, left = last[0].text, last[0].text.rstrip()
    why = f"{job.profile.name} does not accept trailing white space"
    job.notes.add(f"messages[{at}]", "text", "changed", why, text)
    new: Content = left if isinstance(content, str) else (*content[:-1], replace(last[0], text=left))
    return [*turns[:-1], (role, name, new, at)]


# A tool call, and a list for its result. The list is empty until the result is found.
_Place: TypeAlias = "tuple[ToolUseBlock, list[ToolResultBlock]]"


def order_exchanges(turns: list[Turn], job: Job) -> list[Turn]:
    """Move tool results directly after their calls, in the order of the calls.

    In the returned list, all tool results are in turns with the role ``tool``, which contain no other blocks.

    Raises:
        FormatError: A result has no preceding call, a call has two results, or a call is not from the assistant.
    """
    if (ordered := _group_results(turns, job)) is not None:
        return ordered
    order = _Order(job)
    for role, name, content, at in turns:
        if isinstance(content, str):
            order.adjacent.clear()
            order.turns.append((("user" if role == "tool" else role, name, content, at), []))
        else:
            order.add_message(role, name, content, at)
    return order.ordered_turns()


def with_call(result: ToolResultBlock, call_id: str, name: str) -> ToolResultBlock:
    """Return a tool result with the id and the tool name of its call."""
    if (result.id, result.name) == (call_id, name):
        return result
    if isinstance(result.output, str) and not result.is_error:
        return result_of(call_id, name, result.output)
    return replace(result, id=call_id, name=name)


def _group_results(turns: list[Turn], job: Job) -> list[Turn] | None:
    """Merge the results of each turn's tool calls into one turn; return None if the turns need other repairs."""
    new: list[Turn] = []
    used: set[str] = set()
    # The unanswered tool calls of the last turn, and the results found so far.
    waiting: deque[ToolUseBlock] = deque()
    results: list[Block] = []
    for turn in turns:
        role, _, content, at = turn
        if role == "tool":
            for block in content:
                if not isinstance(block, ToolResultBlock) or not waiting or block.id != waiting[0].id:
                    return None
                results.append(with_call(block, block.id, waiting.popleft().name))
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
            # Only assistant turns may contain tool calls.
            if (
                not unique
                or any(isinstance(each, ToolResultBlock) for each in content)
                or (ids and role != "assistant")
            ):
                return None
    return None if waiting else new


def _are_same(blocks: Sequence[Block], content: Sequence[Block]) -> bool:
    """Return True if two sequences contain the same objects in the same order."""
    return len(blocks) == len(content) and all(map(is_, blocks, content))


class _Order:
    """A builder that collects turns and moves each tool result directly after its call."""

    def __init__(self, job: Job) -> None:
        self.job, self.notes = job, job.notes
        # The turns added so far, each with its tool calls and their results.
        self.turns: list[tuple[Turn, list[_Place]]] = []
        # Unanswered tool calls by original id, oldest first.
        self.waiting: dict[str, deque[_Place]] = {}
        self.used: set[str] = set()
        # For each repeated id, the next number to append to it.
        self.numbers: dict[str, int] = {}
        # The blocks and index of each message that begins with a tool result, keyed by that result's call id and the
        # number of blocks.
        self.answers: dict[tuple[str, int], tuple[tuple[Block, ...], int]] = {}
        # The call ids in the current run of assistant messages, up to the first tool result.
        self.adjacent: set[str] = set()

    def add_message(self, role: Role, name: str, content: tuple[Block, ...], at: int) -> None:
        """Attach a message's tool results to their calls, and add its other blocks as turns."""
        if not any(isinstance(block, ToolResultBlock) for block in content):
            self.add_turn("user" if role == "tool" else role, name, content, at)
            return
        if isinstance(first := content[0], ToolResultBlock):
            self.answers[first.id, len(content)] = (content, at)
        waiting: list[Block] = []
        for index, block in enumerate(content):
            if not isinstance(block, ToolResultBlock):
                waiting.append(block)
                continue
            self.adjacent.clear()
            if role == "assistant" and waiting:
                # Add the blocks before a tool result as a separate turn, because they may contain its call.
                self.add_turn(role, name, tuple(waiting), at)
                waiting = []
            self.add_result(block, f"messages[{at}].content[{index}]", behind=bool(waiting))
        if waiting:
            # Tool messages may only contain results, so the remaining blocks become a user turn.
            self.add_turn("user" if role == "tool" else role, name, tuple(waiting), at)

    def add_turn(self, role: Role, name: str, blocks: tuple[Block, ...], at: int) -> None:
        """Add a turn, and record that each of its tool calls needs a result."""
        calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
        if not calls:
            self.adjacent.clear()
            self.turns.append(((role, name, blocks, at), []))
            return
        if role != "assistant":
            where = f"messages[{at}] calls the tool {calls[0].name!r}"
            raise FormatError(f"{where}, but its role is {role!r}; only assistant messages can call tools")
        places: list[_Place] = []
        for call in calls:
            places.append((self.with_unique_id(call, at), []))
            if call.id not in self.adjacent:
                # Discard earlier calls with this id, because a later result can only belong to the new call.
                self.waiting[call.id] = deque()
            self.adjacent.add(call.id)
            self.waiting[call.id].append(places[-1])
        renamed = iter([call for call, _ in places])
        changed = tuple(next(renamed) if isinstance(block, ToolUseBlock) else block for block in blocks)
        native = self.job.native((role, name, blocks, at))
        # Keep native tool calls without ids unchanged.
        is_same = _are_same(changed, blocks) or (native and not any(native.has_id(call.id) for call in calls))
        self.turns.append(((role, name, blocks if is_same else changed, at), places))

    def with_unique_id(self, call: ToolUseBlock, at: int) -> ToolUseBlock:
        """Return the call with an id that no earlier call uses."""
        new, number = call.id, self.numbers.get(call.id, 2)
        while new in self.used:
            new, number = f"{call.id}_{number}", number + 1
        self.numbers[call.id] = number
        self.used.add(new)
        if new == call.id:
            return call
        self.notes.add(f"messages[{at}]", "id", "changed", f"the id {call.id!r} is already used; replaced by {new!r}")
        return replace(call, id=new)

    def add_result(self, result: ToolResultBlock, where: str, *, behind: bool) -> None:
        if result.id not in self.waiting:
            raise FormatError(
                f"{where} is the result of the call {result.id!r}, but no earlier message contains this call; keep a "
                "call and its result together, or remove both"
            )
        if not self.waiting[result.id]:
            raise FormatError(f"{where} is a second result for the call {result.id!r}; a call can have only one result")
        call, results = self.waiting[result.id].popleft()
        results.append(with_call(result, call.id, call.name))
        if behind or not self.turns[-1][1]:
            self.notes.add(where, "tool_result", "moved", "a result must directly follow its call")

    def _as_given(self, results: list[ToolResultBlock], at: int) -> tuple[Content, int]:
        """Return the content of the turn that contains the given tool results, and the turn's message index.

        If a message in the provider's native format contains exactly the given tool results, its content is returned.
        """
        content, place = self.answers.get((results[0].id, len(results)), ((), at))
        is_whole = [block.id for block in content if isinstance(block, ToolResultBlock)] == [
            each.id for each in results
        ]
        is_native = is_whole and self.job.native(("tool", "", content, place)) is not None
        return (content, place) if is_native else (tuple(results), at)

    def ordered_turns(self) -> list[Turn]:
        """Return all turns, with tool results directly after their calls."""
        ordered: list[Turn] = []
        for turn, places in self.turns:
            ordered.append(turn)
            for call, results in places:
                if not results:
                    why = f"the call {call.id!r} has no result, and every call needs one"
                    self.notes.add(f"messages[{turn[3]}]", "tool_result", "added", why)
                    results.append(ToolResultBlock(call.id, call.name, NO_RESULT))
            if places:
                results = [result for _, results in places for result in results]
                ordered.append(("tool", "", *self._as_given(results, turn[3])))
        return ordered
