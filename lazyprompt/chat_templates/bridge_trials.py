"""What a template makes of an answer when more messages come behind it.

A prompt that an engine has seen, and the answer that it gave, can be gone on with only where the template goes on with
them too. Many do not: they take the thoughts out of earlier turns, move the tools, or end the last turn in a way of its
own. So answers with and without thoughts and calls are tried in small chats, once for each kind of new messages.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt.chat_templates.bridge_chats import (
    ANY_RESULT,
    CALLED,
    CALLING,
    CALLING_BESIDE,
    HISTORIES,
    SAID,
    TALKING,
    THINKING,
    THOUGHT,
    Look,
    Setting,
    UnprovenError,
    alike_at_start,
    before_answer,
    calls_for,
    common_tokens,
    results_in,
    without_space,
)
from lazyprompt.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.chat_templates.bridge_chats import Call

# The role of each new message, and whether its content is a list of parts; of many alike in a row, two.
Shape: TypeAlias = tuple[tuple[str, bool], ...]
# What opens a thought and what closes it, without white space; either may be unknown.
Marks: TypeAlias = tuple[tuple[str, str], ...]

# What engines and readers know as a thought, whatever the template says.
_THINK: Marks = (("<think>", "</think>"), ("", "</think>"))
_TAG = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")


class Thought(IntEnum):
    """What a text shows of thoughts."""

    NONE = 0
    EMPTY = 1
    WHOLE = 2
    OPEN = 3


_KINDS = ("without a thought", "with an empty thought", "with a thought", "with half a thought")


class Trial(NamedTuple):
    """What became of an answer when more messages came.

    Attributes:
        history: The chat before.
        answer: The answer's letter.
        prompt: What the template writes at the end of the prompt, without white space.
        earlier: What the prompt shows of thoughts of earlier turns.
        thought: What is seen of thoughts in the answer.
        reason: Why it cannot be gone on with; nothing where it can.
        kept: Whether it is written as it was where it was the last message.
        ending: What stands behind it where it is the last message.
        common: What of that stands there when more messages come.
        tail: What stands behind that.
    """

    history: str
    answer: str
    prompt: str
    earlier: Thought
    thought: Thought
    reason: str = ""
    kept: bool = False
    ending: str = ""
    common: str = ""
    tail: str = ""


class Proof(NamedTuple):
    """What the trials say of one kind of new messages.

    Attributes:
        trials: The trials.
        marks: What stands around thoughts.
        calls: What an answer begins with that only thinks and calls, without white space; None if that does not tell.
        unlike: Whether a turn with a call that nobody answers ends in another way.
    """

    trials: tuple[Trial, ...]
    marks: Marks
    calls: re.Pattern[str] | None
    unlike: bool

    @property
    def prompts(self) -> list[str]:
        """What may end a prompt, the longest first."""
        return sorted({trial.prompt for trial in self.trials}, key=len, reverse=True)

    def trial(self, prompt: str, earlier: Thought, thought: Thought, *, calls_only: bool) -> tuple[Trial, str]:
        """A trial that stands for a prompt and an answer.

        Args:
            prompt: What ends the prompt.
            earlier: What the prompt shows of thoughts of earlier turns.
            thought: What is seen of thoughts in the answer.
            calls_only: Whether the answer does nothing but think and call.

        Returns:
            The trial, and what ends all turns that it stands for; that of the trial itself may begin earlier, with what
            ends its argument.

        Raises:
            UnprovenError: One shows that it cannot be gone on with, or there is none.
        """
        if thought is Thought.OPEN:
            raise UnprovenError("the completion ends within a thought")
        near = [trial for trial in self.trials if trial.prompt == prompt]
        if earlier is Thought.EMPTY and all(trial.earlier is not earlier for trial in near):
            # The template does not write that by itself: somebody's thought was blank.
            earlier = Thought.WHOLE
        near = [trial for trial in near if trial.earlier <= earlier]
        alike = [trial for trial in near if trial.thought == thought]
        if calls_only:
            alike = [trial for trial in alike if trial.answer not in CALLING_BESIDE]
        for trial in alike:
            if trial.reason:
                raise UnprovenError(trial.reason)
        if not alike:
            other = next((f": {trial.reason}" for trial in near if trial.reason), "")
            raise UnprovenError(f"the template writes no answer {_KINDS[thought]} in such a chat{other}")
        shared = alike_at_start(*(trial.common[::-1] for trial in alike))[::-1]
        last_tags = [
            len(trial.common) - max(tag.start() for tag in _TAG.finditer(trial.common))
            for trial in alike
            if _TAG.search(trial.common)
        ]
        if len({trial.tail for trial in alike}) > 1 or max(last_tags, default=0) > len(shared):
            raise UnprovenError("what the template writes behind an answer depends on what came before it")
        return alike[0], shared


def proof_of(setting: Setting, shape: Shape) -> Proof:
    """What the trials say of one kind of new messages.

    Args:
        setting: The template.
        shape: The new messages.

    Raises:
        UnprovenError: Nothing can be gone on with.
    """
    proof = _tried(setting, shape)
    if isinstance(proof, str):
        raise UnprovenError(proof)
    return proof


def thought_in(text: str, marks: Marks) -> Thought:
    """What a text shows of thoughts.

    Args:
        text: The text, without white space.
        marks: What stands around thoughts.
    """
    rest = text
    for opening, closing in marks:
        if opening and closing:
            rest = rest.replace(opening + closing, "")
    found = Thought.NONE if rest == text else Thought.EMPTY
    for opening, closing in marks:
        if (opening or closing) in rest:
            is_open = opening and closing and rest.rfind(opening) > rest.rfind(closing)
            found = max(found, Thought.OPEN if is_open else Thought.WHOLE)
    return found


def behind_thoughts(text: str, marks: Marks) -> str:
    """What stands behind the last thought in a text.

    Args:
        text: The text, without white space.
        marks: What stands around thoughts.
    """
    ends = [at + len(closing) for _, closing in marks if closing and (at := text.rfind(closing)) >= 0]
    return text[max(ends, default=0) :]


@lru_cache(maxsize=256)
def _tried(setting: Setting, shape: Shape) -> Proof | str:
    """What the trials say, or why they say nothing."""
    calls = calls_for([ANY_RESULT] * results_in(role for role, _ in shape))
    new = [
        setting.result(f"novum {at}", calls[at], in_parts=in_parts)
        if at < len(calls)
        else setting.message(role, f"novum {at}", in_parts=in_parts)
        for at, (role, in_parts) in enumerate(shape)
    ]
    marks = _marks(setting)
    trials: list[Trial] = []
    why = ""
    for history in HISTORIES:
        # What is refused with the user's question alone, and with system text before it, is refused with more.
        if not trials and history not in HISTORIES[:2]:
            break
        for letter in CALLING if calls else TALKING:
            try:
                trials += _trials(setting, history, letter, calls, new)
            except (TemplateError, UnprovenError) as error:
                why = why or str(error)
    safe = next((trial for trial in trials if not trial.reason), None)
    if safe is None:
        return trials[0].reason if trials else why
    if safe.tail not in _tails(setting.other(), safe, calls, new):
        return "what the template writes behind an answer depends on the time or the tools"
    if calls and safe.tail not in _tails(setting, safe, [*calls, *calls_for([ANY_RESULT], 80000)], new, safe.tail):
        return "what the template writes behind an answer depends on calls that nobody answers"
    return Proof(tuple(trials), marks, _calling(setting), not calls and _is_unlike(setting, new, safe))


def _trials(
    setting: Setting, history: str, letter: str, calls: Sequence[Call], new: Sequence[Mapping[str, Any]]
) -> list[Trial]:
    """What becomes of one answer in one chat: as it is written, and as it is written when more messages come."""
    marks = _marks(setting)
    answer = setting.answer(letter, calls)
    look = Look.at(setting, before_answer(setting, history), answer)
    before = look.before
    full = setting.text([*before.chat, answer.message, *new], prompted=True)

    def seen(text: str) -> Thought:
        return thought_in(without_space(text), marks)

    end, kept = look.end_in(full, answer.words[look.final])
    earlier = seen(before.prompt[: before.begin])
    trial = Trial(history, letter, before.ending, earlier, seen(look.answer), kept=kept, ending=look.ending)
    if letter in CALLING_BESIDE and SAID not in look.answer:
        return [trial._replace(reason="the template leaves out what is said beside a call")]
    trials = [] if kept else [trial._replace(reason=look.difference(full))]
    if letter in THINKING and THOUGHT not in look.answer:
        trials.append(trial._replace(thought=Thought.WHOLE, reason="the template leaves out what was thought"))
    if end is not None:
        common = common_tokens(full[end:], look.ending)
        tail = full[end + len(common) :]
        trials.append(trial._replace(thought=seen(full[before.begin : end]), common=common, tail=tail))
    return trials


def _tails(
    setting: Setting, like: Trial, calls: Sequence[Call], new: Sequence[Mapping[str, Any]], otherwise: str = ""
) -> list[str]:
    """What stands behind an answer in other circumstances; something else where the template refuses those."""
    try:
        return [trial.tail for trial in _trials(setting, like.history, like.answer, calls, new) if not trial.reason]
    except (TemplateError, UnprovenError):
        return [otherwise]


def _is_unlike(setting: Setting, new: Sequence[Mapping[str, Any]], plain: Trial) -> bool:
    """Whether a turn with a call that nobody answers ends in another way than one without."""
    trials: list[Trial] = []
    for letter in "cd":
        try:
            trials += _trials(setting, "u", letter, calls_for([ANY_RESULT]), new)
        except (TemplateError, UnprovenError):
            continue
    safe = [trial for trial in trials if not trial.reason]
    alike = all(trial.tail == plain.tail and trial.common.endswith(plain.common) for trial in safe)
    return bool(trials) and not (safe and alike)


def _look(setting: Setting, letter: str) -> Look | None:
    """The shortest chat with an answer, if the template shows it."""
    try:
        return Look.at(setting, before_answer(setting, "u"), setting.answer(letter, calls_for([ANY_RESULT])))
    except (TemplateError, UnprovenError):
        return None


@lru_cache(maxsize=128)
def _calling(setting: Setting) -> re.Pattern[str] | None:
    """What an answer begins with that only thinks and calls; None where one that says something begins so too."""
    marks = _marks(setting)
    began: list[str] = []
    for letter in "cea":
        look = _look(setting, letter)
        answer = look.last[len(common_tokens(look.before.prompt, look.last)) :] if look else ""
        began.append(behind_thoughts(without_space(answer), marks))
    before, name, _ = began[0].partition(CALLED)
    behind = alike_at_start(*(answer.partition(CALLED)[2].partition(CALLED)[0] for answer in began[:2]))
    for pattern in (re.escape(before), f"{re.escape(before)}.+?{re.escape(behind)}"):
        if name and before and not re.match(pattern, began[2]):
            return re.compile(pattern)
    return None


@lru_cache(maxsize=128)
def _marks(setting: Setting) -> Marks:
    """What stands around thoughts: what a template writes before them and behind them, and where there are none."""
    without = [look.answer for letter in "ac" if (look := _look(setting, letter))]
    around: list[tuple[str, str]] = []
    for letter in "ACDP":
        look = _look(setting, letter)
        before, thought, behind = look.answer.partition(THOUGHT) if look else ("", "", "")
        if thought:
            ends = [at for word in (SAID, CALLED, calls_for([ANY_RESULT])[0][0]) if (at := behind.find(word)) >= 0]
            around.append((before, behind[: min(ends, default=0)]))
    closing = without_space(common_tokens(*(behind for _, behind in around)))
    tag = _TAG.search(closing)
    closing = closing[: tag.end()] if tag else closing
    pairs = {(_opening(before, without), closing) for before, _ in around}
    return (*_THINK, *sorted(pairs - {("", ""), *_THINK}))


def _opening(before: str, without: Sequence[str]) -> str:
    """What opens a thought: what stands before it alone, or else the last tag there."""
    alike = max((common_tokens(before, text) for text in without), key=len, default="")
    tags = _TAG.findall(before)
    return without_space(before[len(alike) :]) or (tags[-1] if tags else "")
