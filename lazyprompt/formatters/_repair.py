"""Turns put into the order and the alphabets that a provider asks for, without losing what was said.

Each function is one rule, from turns to turns; what it had to do is written down.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.errors import FormatError
from lazyprompt.formatters._turns import blocks_of
from lazyprompt.messages.msg import TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import fitted
from lazyprompt.safety.speakers import written_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.formatters._turns import Content, Turn
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.report import Action, Notes
    from lazyprompt.messages.msg import Block

# What stands where a provider asks for a user's turn and the conversation has none.
FIRST_TURN = "(The conversation begins.)"
LAST_TURN = "(Please go on.)"
# What the assistant says where a provider wants an answer between results and the user.
AFTER_RESULTS = "(The results are here.)"


def with_fitting_names(turns: Iterable[Turn], profile: Profile, notes: Notes) -> list[Turn]:
    """The turns with ids and names of tools, and names of speakers, that the provider takes."""
    new: list[Turn] = []
    turns = list(turns)
    ids = _fitting_ids(turns, profile)
    speakers = _fitting_speakers(turns, profile)
    for role, name, content, at in turns:
        speaker = speakers.get((role, name), name)
        if speaker != name:
            notes.add(f"messages[{at}].name", "name", "changed", f"{name!r} is written {speaker!r}", name)
        blocks = () if isinstance(content, str) else content
        fitting = tuple(_fitting(block, at, ids, profile, notes) for block in blocks)
        new.append((role, speaker, content if isinstance(content, str) else fitting, at))
    return new


def _fitting_speakers(turns: Iterable[Turn], profile: Profile) -> dict[tuple[str, str], str]:
    """Map speakers to the names that the provider takes; empty where it has no place for names."""
    pattern = profile.names
    if pattern is None:
        return {}
    return written_names(
        (turn[:2] for turn in turns if turn[1] and turn[0] != "tool"), lambda name: fitted(name, pattern)
    )


def _fitting_ids(turns: Iterable[Turn], profile: Profile) -> dict[str, str]:
    """The ids of all calls as the provider takes them, each still another."""
    given = [
        block.id
        for turn in turns
        if not isinstance(turn[2], str)
        for block in turn[2]
        if isinstance(block, ToolUseBlock)
    ]
    ids = {call_id: call_id for call_id in given if profile.ids.fullmatch(call_id)}
    for call_id in given:
        new, number = fitted(call_id, profile.ids, profile.id_length), 2
        while call_id not in ids and new in ids.values():
            new, number = fitted(f"{call_id}\x7f{number}", profile.ids, profile.id_length), number + 1
        ids.setdefault(call_id, new)
    return ids


def _fitting(block: Block, at: int, ids: dict[str, str], profile: Profile, notes: Notes) -> Block:
    if not isinstance(block, ToolUseBlock | ToolResultBlock):
        return block
    new_id, new_name = ids[block.id], fitted(block.name, profile.tool_names)
    if (new_id, new_name) == (block.id, block.name):
        return block
    if isinstance(block, ToolUseBlock):
        for what, old, new in (("id", block.id, new_id), ("name", block.name, new_name)):
            if old != new:
                notes.add(f"messages[{at}]", what, "changed", f"{old!r} is written {new!r} for {profile.name}", old)
    return replace(block, id=new_id, name=new_name)


def with_media_behind(turns: Iterable[Turn], profile: Profile, notes: Notes) -> list[Turn]:
    """The turns with the media of results in a user's turn behind all results of an exchange, where they must be."""
    new: list[Turn] = []
    for turn in turns:
        role, name, content, at = turn
        shown: list[Block] = []
        results: list[Block] = []
        for block in content if role == "tool" and isinstance(content, tuple) else ():
            kept, media = _parted(block, profile)
            results.append(kept)
            for medium in media:
                shown += [TextBlock(f"({medium.kind} from the tool {_name_of(block)})"), medium]
        if not shown:
            new.append(turn)
            continue
        notes.add(f"messages[{at}]", "tool_result", "moved", f"{profile.name} takes its media from the user only")
        new.append((role, name, tuple(results), at))
        new.append(("user", "", tuple(shown), at))
    return new


def _parted(block: Block, profile: Profile) -> tuple[Block, list[Block]]:
    """A result without the media that it cannot hold, and those media."""
    if not isinstance(block, ToolResultBlock) or isinstance(block.output, str):
        return block, []
    media = [each for each in block.output if each.kind != "text" and each.kind not in profile.result_media]
    if not media:
        return block, []
    left = tuple(each for each in block.output if each not in media)
    note = TextBlock(f"({', '.join(each.kind for each in media)}: in the next message)")
    return replace(block, output=left or (note,)), media


def _name_of(block: Block) -> str:
    return block.name if isinstance(block, ToolResultBlock) else ""


def joined(first: Content, second: Content, between: str = "\n\n") -> Content:
    """Two contents as one: texts with something between, blocks behind each other."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}" if first and second else first or second
    return (*blocks_of(first), *blocks_of(second))


def with_system_first(turns: Iterable[Turn], profile: Profile, notes: Notes, *, always: bool = False) -> list[Turn]:
    """The turns with all system text in one turn at the front, where the provider asks for that (or always)."""
    known: list[Turn] = [
        turn if profile.developer or turn[0] != "developer" else ("system", turn[1], turn[2], turn[3]) for turn in turns
    ]
    if profile.system == "anywhere" and not always:
        return known
    system: Turn | None = None
    others: list[Turn] = []
    for turn in known:
        if turn[0] not in SYSTEM_ROLES:
            others.append(turn)
            continue
        if others:
            notes.add(f"messages[{turn[3]}]", "text", "moved", "system text stands at the front")
        system = turn if system is None else (system[0], system[1], joined(system[2], turn[2]), system[3])
    return others if system is None else [system, *others]


def with_answers(turns: list[Turn], profile: Profile, notes: Notes) -> list[Turn]:
    """Put a turn of the assistant between results and the user's next turn, where the provider asks for one."""
    if not profile.answers_results:
        return turns
    new: list[Turn] = []
    for turn in turns:
        if turn[0] == "user" and new and new[-1][0] == "tool":
            new.append(("assistant", "", AFTER_RESULTS, turn[3]))
            why = f"{profile.name} wants an answer between results and the user's turn"
            notes.add(f"messages[{turn[3]}]", "message", "added", why)
        new.append(turn)
    return new


def taking_turns(turns: Iterable[Turn], profile: Profile, notes: Notes, *, user_last: bool) -> list[Turn]:
    """Let user and assistant speak in turn, the user first and last, as far as the provider asks for that."""
    new: list[Turn] = []
    for turn in turns:
        role = turn[0]
        if profile.alternate and new and new[-1][0] == role and role in ("user", "assistant"):
            before = new[-1]
            # Their texts stay blocks of their own; a form whose content is one text makes lines of them.
            both = (*blocks_of(before[2]), *blocks_of(turn[2]))
            new[-1] = (role, before[1], _thoughts_first(both) or "", before[3])
        else:
            new.append(turn)
    if not new:
        raise FormatError("there is no message with any content; give at least one")
    front = 0
    while front < len(new) and new[front][0] in SYSTEM_ROLES:
        front += 1

    def put(index: int, text: str, reason: str, action: Action = "added") -> None:
        new.insert(index, ("user", "", text, 0))
        notes.add("messages", "message", action, f"{profile.name} {reason}")

    if profile.needs_user and not any(turn[0] == "user" for turn in new[front:]):
        if front == len(new) and front:
            role, _, content, at = new.pop()
            new.append(("user", "", content, at))
            notes.add(
                f"messages[{at}]", "text", "moved", f"{profile.name} needs a user's turn; the {role}'s is one now"
            )
        else:
            put(front, FIRST_TURN, "needs a user's turn")
    if profile.user_first and new[front:] and new[front][0] != "user":
        put(front, FIRST_TURN, "begins with the user's turn")
    if user_last and new[-1][0] == "assistant":
        put(len(new), LAST_TURN, "ends with the user's turn")
    return new


def _thoughts_first(content: tuple[Block, ...]) -> tuple[Block, ...]:
    """Put the thoughts before the rest, as the turn of one answer has them, and calls behind it."""
    return tuple(
        sorted(content, key=lambda block: (not isinstance(block, ThinkingBlock), isinstance(block, ToolUseBlock)))
    )


def without_last_space(turns: list[Turn], profile: Profile, notes: Notes) -> list[Turn]:
    """The turns without the white space that ends an unfinished last answer, where the provider refuses it."""
    role, name, content, at = turns[-1]
    if profile.trailing_space or role != "assistant":
        return turns
    blocks = list(blocks_of(content))
    last = blocks[-1]
    if not isinstance(last, TextBlock) or last.text == last.text.rstrip():
        return turns
    notes.add(f"messages[{at}]", "text", "changed", f"{profile.name} takes no white space at its end", last.text)
    left = last.text.rstrip()
    new: Content = left if isinstance(content, str) else (*blocks[:-1], replace(last, text=left))
    return [*turns[:-1], (role, name, new, at)]
