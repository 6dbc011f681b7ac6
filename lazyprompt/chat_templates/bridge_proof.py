"""Proof that a template goes on with its own prompts and answers when more messages come.

Many templates do not: they take the thoughts out of earlier turns, move the tools, or end the last turn in a way of its
own. So a small family of chats is rendered, once with an answer last and once with new messages behind it. The text up
to the end of the answer must stay, and what follows it must be the same in the whole family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt.chat_templates.traced import common_prefix, common_start
from lazyprompt.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import Chat, ChatJinja

# The id and the name of a call.
Call: TypeAlias = tuple[str, str]
# The role of each new message, and True if its content is a list of parts; of many alike in a row, two.
Shape: TypeAlias = tuple[tuple[str, bool], ...]

# An answer is a letter: "a" says something, "c" calls, "e" calls without arguments, "d" says something and calls; "A",
# "C", "D" think first, in a field of their own; "E" and "F" say and call with the thought in their text, "P" says with
# the thought in a part.
_TALKING, _CALLING, _CALLING_BESIDE, _THINKING, _IN_TEXT = "aAEP", "cCedDF", "dDF", "ACD", "EF"
# The chats that come before it; "s", "u" and "t" are the system, the user and the result of a call.
_HISTORIES = ("u", "su", "uau", "uAu", "uEu", "uct", "uCt", "uCtct", "udt", "uDt", "uFt", "udtau", "uDtAu", "suAuCtt")
_SAID, _THOUGHT, _CALLED = "responsum dictum", "cogitatum dictum", "look_around"
_IN_HISTORY = re.compile(r"(?:quaestio|exitus|prius) \d+(?: \d+)?")
# The time in the chats, and another time.
_TIMES = datetime(2024, 1, 2, 3, 4), datetime(2031, 11, 12, 13, 14)  # noqa: DTZ001 - the local time, as in templates
# What closes a value that is written as JSON.
_CLOSERS = "\"'}])"
# A part with a thought that was written as Python or JSON has it.
_WRITTEN_PART = re.compile(r"""['"]thinking['"]""")
_TAG = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
# What opens a thought and what closes it. A thought in other marks counts as no thought: then the family refuses.
MARKS = (
    *(("<think>", "</think>"), ("", "</think>"), ("<thought>", "</thought>"), ("<seed:think>", "</seed:think>")),
    *(("[THINK]", "[/THINK]"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("<|channel>thought", "<channel|>")),
    *(("analysis<|message|>", "<|end|>"), ("self<|message|>", "<|eom|>")),
)
_ANY_CALL: tuple[Mapping[str, Any], ...] = ({},)


def _tool(name: str) -> dict[str, Any]:
    place = {"type": "string", "description": "Where."}
    parameters = {"type": "object", "properties": {"at": place}, "required": ["at"]}
    return {"type": "function", "function": {"name": name, "description": "Go.", "parameters": parameters}}


# No tools, some, and others.
_TOOLS = None, [_tool(_CALLED)], [_tool("wait"), _tool(_CALLED)]


class UnprovenError(Exception):
    """The reason why nothing proves that a prompt and an answer can be gone on with."""


class Thought(IntEnum):
    """Part of a thought that a text shows."""

    NONE = 0
    EMPTY = 1
    WHOLE = 2
    OPEN = 3


_KINDS = ("without a thought", "with an empty thought", "with a thought", "with half a thought")


def thought_in(text: str) -> Thought:
    """Return how much of a thought a text without white space shows."""
    rest = text
    for opening, closing in MARKS:
        if opening:
            rest = rest.replace(opening + closing, "")
    found = Thought.NONE if rest == text else Thought.EMPTY
    for opening, closing in MARKS:
        if (opening or closing) in rest:
            is_open = opening and rest.rfind(opening) > rest.rfind(closing)
            found = max(found, Thought.OPEN if is_open else Thought.WHOLE)
    return found


def behind_thoughts(text: str) -> str:
    """Return the text behind the last thought."""
    return text[max(at + len(closing) if (at := text.rfind(closing)) >= 0 else 0 for _, closing in MARKS) :]


def without_space(text: str) -> str:
    """Return a text without its white space, of which tokenizers do not give back all."""
    return "".join(text.split())


def results_in(roles: Iterable[str], result: str = "tool") -> int:
    """Count the results of calls that roles begin with."""
    return len([*takewhile(result.__eq__, roles)])


def calls_for(results: Chat, number: int = 90000, name: str = _CALLED) -> list[Call]:
    """Return the calls that results answer; ids and names that they do not hold are made up.

    Args:
        results: The results.
        number: A number in made-up ids, which are of nine letters and digits, as Mistral's templates want them.
        name: The made-up name.
    """
    return [
        (str(result.get("tool_call_id") or f"call{number + at:05}"), str(result.get("name") or name))
        for at, result in enumerate(results)
    ]


class Shown(NamedTuple):
    """A chat and an answer, as the template shows them.

    Attributes:
        chat: The messages, the answer last.
        prompt: The chat before the answer, with the generation prompt.
        begin: The place where the generation prompt begins.
        last: The chat with the answer.
        end: The place where the answer's last word ends in it.
        word: That word.
    """

    chat: Chat
    prompt: str
    begin: int
    last: str
    end: int
    word: str

    @property
    def prompt_end(self) -> str:
        """The template's own text at the end of the prompt, without white space."""
        last = max((word.end() for word in _IN_HISTORY.finditer(self.prompt)), default=0)
        return without_space(self.prompt[last:].lstrip(_CLOSERS))

    @property
    def answer(self) -> str:
        """The answer as the template shows it."""
        return self.last[self.begin : self.end]

    def end_in(self, full: str) -> tuple[int | None, bool]:
        """Return where the answer ends in the chat with more messages, and True if it is written as before."""
        if not full.startswith(self.prompt):
            return None, False
        if self.last.startswith(self.prompt) and full.startswith(self.last[: self.end]):
            return self.end, True
        end = len(self.prompt)
        # As many calls, as often its name.
        for _ in range(self.last.count(self.word, self.begin, self.end)):
            at = full.find(self.word, end)
            if at < 0:
                return None, False
            end = at + len(self.word)
        return end, False

    def difference(self, full: str) -> str:
        """Explain where the chat with more messages is another."""
        in_answer = full.startswith(self.prompt)
        written = self.last[: self.end] if in_answer else self.prompt
        at = len(common_start(written, full))
        return (
            f"with the new messages behind it, the template writes {full[at : at + 40]!r} "
            f"where the {'answer' if in_answer else 'prompt'} has {written[at : at + 40]!r}"
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A template with all that it is given besides messages.

    Args:
        template: The template.
        tools: 0 for no tools, 1 for some, 2 for others.
        variables: The other variables.
    """

    template: ChatJinja
    tools: int
    variables: Mapping[str, object] = field(hash=False)

    @classmethod
    def of(cls, template: ChatJinja, variables: Mapping[str, object], *, tools: bool) -> Setting:
        """Return a template at a fixed time."""
        return cls(replace(template, now=_TIMES[0]), int(tools), variables)

    def given(self, *, prompted: bool) -> dict[str, object]:
        """Return the variables of the template."""
        tools = _TOOLS[self.tools]
        return {"documents": None, **self.variables, "tools": tools, "add_generation_prompt": prompted}

    def text(self, chat: Chat, *, prompted: bool) -> str:
        """Render a chat."""
        return self.template.run(chat, self.given(prompted=prompted))

    def new(self, shape: Shape, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Return new messages of a shape, the first of them the results of calls."""
        made: list[dict[str, Any]] = []
        for at, (role, in_parts) in enumerate(shape):
            text = f"novum {at}"
            made.append({"role": role, "content": [{"type": "text", "text": text}] if in_parts else text})
        for message, (name, tool) in zip(made, calls, strict=False):
            message |= {"tool_call_id": name, "name": tool}
        return made

    def history(self, letters: str) -> list[dict[str, Any]]:
        """Return a chat, each of its calls answered at once."""
        chat: list[dict[str, Any]] = []
        calls: list[Call] = []
        for at, letter in enumerate(letters):
            if letter == "t":
                name, tool = calls.pop(0)
                content = self.template.content(f"exitus {at}")
                chat.append({"role": "tool", "content": content, "tool_call_id": name, "name": tool})
            elif letter in "su":
                role = "system" if letter == "s" else "user"
                chat.append({"role": role, "content": self.template.content(f"quaestio {at}")})
            else:
                calls = calls_for(_ANY_CALL * results_in(letters[at + 1 :], "t"), 10 * at)
                chat.append(self.answer(letter, calls, f"prius {at}")[0])
        return chat

    def answer(self, letter: str, calls: Sequence[Call], word: str = "dictum") -> tuple[dict[str, Any], list[str]]:
        """Return an answer, and the words in it."""
        content, thought = "" if letter in "cCe" else f"responsum {word}", f"cogitatum {word}"
        words = [content, thought]
        if letter in _IN_TEXT:
            content = f"<think>\n{thought}\n</think>\n\n{content}"
        message: dict[str, Any] = {"role": "assistant", "content": self.template.content(content)}
        if letter in _THINKING:
            message |= {"reasoning_content": thought, "thinking": thought}
        if letter == "P":
            message["content"] = [{"type": "thinking", "thinking": thought}, {"type": "text", "text": content}]
        if letter in _CALLING:
            made: list[dict[str, Any]] = []
            for at, (name, tool) in enumerate(calls):
                arguments = {} if letter == "e" else {"at": f"argumentum {word} {at}"}
                made.append({"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}})
                words += (name, tool, *arguments.values())
            message["tool_calls"] = made
        return self.template.takes.form(message), words

    def shown(self, history: str, letter: str, calls: Sequence[Call]) -> Shown:
        """Render a chat with an answer.

        Raises:
            TemplateError: The template refuses it.
            UnprovenError: It does not show the answer.
        """
        chat, prompt, begin = _before(self, history)
        message, words = self.answer(letter, calls)
        last = self.text([*chat, message], prompted=False)
        ends = [last.rfind(word, begin) + len(word) if word and word in last[begin:] else -1 for word in words]
        if "tool_calls" in message and max(ends[2:], default=-1) < 0:
            raise UnprovenError("the template does not show calls")
        end = max(ends)
        if end < 0 or _WRITTEN_PART.search(last, begin):
            raise UnprovenError("the template does not show what an assistant says")
        return Shown([*chat, message], prompt, begin, last, end, words[ends.index(end)])


@lru_cache(maxsize=256)
def _before(setting: Setting, history: str) -> tuple[Chat, str, int]:
    """Render the chat before an answer; return it, its prompt, and where the generation prompt begins."""
    chat = setting.history(history)
    prompt = setting.text(chat, prompted=True)
    return chat, prompt, len(common_prefix(setting.text(chat, prompted=False), prompt))


class Trial(NamedTuple):
    """One chat and answer of the family, with new messages behind it.

    Attributes:
        history: The chat before, in letters.
        answer: The answer's letter.
        prompt: The template's own text at the end of the prompt, without white space.
        earlier: How much of earlier thoughts the prompt shows.
        thought: How much of a thought the answer shows.
        reason: The reason why it cannot be gone on with; empty if it can.
        kept: True if it is written as it was as the last message.
        ending: The text behind the answer as the last message.
        common: The beginning of it that stays.
        tail: The text behind that.
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
    """The family, for one shape of new messages.

    Attributes:
        trials: The trials.
        call: The beginning of an answer that only thinks and calls, behind the thought; None if that does not tell.
        unlike: True if a turn with a call that nobody answers ends in another way.
    """

    trials: Sequence[Trial]
    call: re.Pattern[str] | None
    unlike: bool

    def trial(self, prompt: str, earlier: Thought, thought: Thought, *, calls_only: bool) -> tuple[Trial, str]:
        """Return a trial that stands for a prompt and an answer, and the text that ends all turns like it.

        Args:
            prompt: The end of the prompt.
            earlier: How much of earlier thoughts the prompt shows.
            thought: How much of a thought the answer shows.
            calls_only: True if the answer only thinks and calls.

        Raises:
            UnprovenError: One that is like it cannot be gone on with, or there is none.
        """
        if thought is Thought.OPEN:
            raise UnprovenError("the completion ends within a thought")
        near = [trial for trial in self.trials if trial.prompt == prompt]
        if earlier is Thought.EMPTY and all(trial.earlier is not earlier for trial in near):
            # The template does not write that by itself: somebody's thought was blank.
            earlier = Thought.WHOLE
        near = [trial for trial in near if trial.earlier <= earlier]
        alike = [trial for trial in near if trial.thought == thought]
        alike = [trial for trial in alike if not (calls_only and trial.answer in _CALLING_BESIDE)]
        if why := next((trial.reason for trial in alike if trial.reason), ""):
            raise UnprovenError(why)
        if not alike:
            other = next((f": {trial.reason}" for trial in near if trial.reason), "")
            raise UnprovenError(f"the template writes no answer {_KINDS[thought]} in such a chat{other}")
        tags = [max((tag.start() for tag in _TAG.finditer(trial.common)), default=None) for trial in alike]
        ends = {"" if at is None else trial.common[at:] for at, trial in zip(tags, alike, strict=True)}
        if len(ends) > 1 or len({trial.tail for trial in alike}) > 1:
            raise UnprovenError("what the template writes behind an answer depends on what came before it")
        return alike[0], common_prefix(*(trial.common[::-1] for trial in alike))[::-1]


def proof_of(setting: Setting, shape: Shape) -> Proof:
    """Render the family for one shape of new messages.

    Raises:
        UnprovenError: Nothing can be gone on with.
    """
    proof = _proof(setting, shape)
    if isinstance(proof, str):
        raise UnprovenError(proof)
    return proof


@lru_cache(maxsize=256)
def _proof(setting: Setting, shape: Shape) -> Proof | str:
    calls = calls_for(_ANY_CALL * results_in(role for role, _ in shape))
    new = setting.new(shape, calls)
    trials: list[Trial] = []
    why = ""
    for history in _HISTORIES:
        # What is refused with the user's question alone, and with system text before it, is refused with more.
        if not trials and history not in _HISTORIES[:2]:
            break
        for letter in _CALLING if calls else _TALKING:
            try:
                trials += _trials(setting, history, letter, calls, new)
            except (TemplateError, UnprovenError) as error:
                why = why or str(error)
    safe = next((trial for trial in trials if not trial.reason), None)
    if safe is None:
        return trials[0].reason if trials else why
    other = replace(setting, template=replace(setting.template, now=_TIMES[1]), tools=setting.tools * 2)
    if safe.tail not in (_tails(other, safe.history, safe.answer, calls, new) or ()):
        return "what the template writes behind an answer depends on the time or the tools"
    more = _tails(setting, safe.history, safe.answer, [*calls, *calls_for(_ANY_CALL, 80000)], new) if calls else None
    if more is not None and safe.tail not in more:
        return "what the template writes behind an answer depends on calls that nobody answers"
    unanswered = [] if calls else [_tails(setting, "u", letter, calls_for(_ANY_CALL), new) for letter in "cd"]
    ended = [tails for tails in unanswered if tails is not None]
    ends = {tail: common for tails in ended for tail, common in tails.items()}
    unlike = bool(ended) and not (
        ends and all(tail == safe.tail and common.endswith(safe.common) for tail, common in ends.items())
    )
    return Proof(trials, call_opening(setting), unlike)


def _trials(setting: Setting, history: str, letter: str, calls: Sequence[Call], new: Chat) -> Iterator[Trial]:
    """Yield an answer as it is written last, and as it is written when more messages come."""
    shown = setting.shown(history, letter, calls)
    full = setting.text([*shown.chat, *new], prompted=True)
    end, kept = shown.end_in(full)
    earlier, thought = (thought_in(without_space(text)) for text in (shown.prompt[: shown.begin], shown.answer))
    trial = Trial(history, letter, shown.prompt_end, earlier, thought, kept=kept, ending=shown.last[shown.end :])
    if letter in _CALLING_BESIDE and _SAID not in shown.answer:
        yield trial._replace(reason="the template leaves out what is said beside a call")
        return
    if not kept:
        yield trial._replace(reason=shown.difference(full))
    if letter in _THINKING and _THOUGHT not in shown.answer:
        yield trial._replace(thought=Thought.WHOLE, reason="the template leaves out what was thought")
    if end is not None:
        thought = thought_in(without_space(full[shown.begin : end]))
        common = common_start(full[end:], trial.ending)
        yield trial._replace(thought=thought, common=common, tail=full[end + len(common) :])


def _tails(setting: Setting, history: str, letter: str, calls: Sequence[Call], new: Chat) -> dict[str, str] | None:
    """Return the texts behind an answer, each with the end of the turn; None where the template refuses the chat."""
    try:
        trials = [*_trials(setting, history, letter, calls, new)]
    except (TemplateError, UnprovenError):
        return None
    return {trial.tail: trial.common for trial in trials if not trial.reason}


@lru_cache(maxsize=128)
def call_opening(setting: Setting) -> re.Pattern[str] | None:
    """Return the beginning of an answer that only calls, without white space; None if others may begin so too."""
    try:
        shown = [setting.shown("u", letter, calls_for(_ANY_CALL)) for letter in "ac"]
    except (TemplateError, UnprovenError):
        return None
    answers = [each.last[len(common_start(each.prompt, each.last)) :] for each in shown]
    says, calls = (behind_thoughts(without_space(answer)) for answer in answers)
    # Up to the name, or where that does not tell, up to where it stands again.
    pieces = [*map(re.escape, calls.split(_CALLED))]
    patterns = (".+?".join(pieces[:most]) for most in range(1, len(pieces)))
    return next((re.compile(pattern) for pattern in patterns if not re.match(pattern, says)), None)
