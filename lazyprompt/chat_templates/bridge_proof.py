"""A check that a template leaves earlier prompts and responses unchanged when more messages follow.

Many templates remove the reasoning from earlier turns, move the tools, or end the last turn differently. The check
therefore renders each of a small set of sample chats twice: with a response as the last message, and with new messages
after the response. Up to the end of the response, the two renderings must be equal. The text after the response must be
the same for all sample chats.
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

# A tool call's id and function name.
Call: TypeAlias = tuple[str, str]
# The role of each new message, and whether the message content is a list.
Shape: TypeAlias = tuple[tuple[str, bool], ...]

# Each letter denotes one kind of sample response:
#   a  text
#   c  a tool call
#   d  text and a tool call
#   e  a tool call without arguments
#   A, C, D  the same as a, c and d, with reasoning in a separate field
#   E, F  the same as a and d, with reasoning inside the text
#   P  text, with reasoning in a content part
_TALKING, _CALLING, _CALLING_BESIDE, _THINKING, _IN_TEXT = "aAEP", "cCedDF", "dDF", "ACD", "EF"
# Sample chat histories: "s" is a system message, "u" is a user message, and "t" is a tool result.
_HISTORIES = ("u", "su", "uau", "uAu", "uEu", "uct", "uCt", "uCtct", "udt", "uDt", "uFt", "udtau", "uDtAu", "suAuCtt")
_SAID, _THOUGHT, _CALLED = "responsum dictum", "cogitatum dictum", "look_around"
_IN_HISTORY = re.compile(r"(?:quaestio|exitus|prius) \d+(?: \d+)?")
# Rendering the sample chats at two different times reveals whether a template writes the date.
_TIMES = datetime(2024, 1, 2, 3, 4), datetime(2031, 11, 12, 13, 14)  # noqa: DTZ001 - the local time, as in templates
# Characters that can close a JSON value.
_CLOSERS = "\"'}])"
# Matches a reasoning part that the template wrote as Python or JSON source.
_WRITTEN_PART = re.compile(r"""['"]thinking['"]""")
_TAG = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
# The opening and closing reasoning tags that the check supports.
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


_TOOLS = None, [_tool(_CALLED)], [_tool("wait"), _tool(_CALLED)]


class UnprovenError(Exception):
    """Raised if new messages might change the rendered prompt or response; the error message states why."""


class Thought(IntEnum):
    """The kind of reasoning in a text: none, empty tags, closed reasoning or unclosed reasoning."""

    NONE = 0
    EMPTY = 1
    WHOLE = 2
    OPEN = 3


_KINDS = ("without reasoning", "with empty reasoning", "with reasoning", "with unclosed reasoning")


def thought_in(text: str) -> Thought:
    """Return the kind of reasoning in a text whose white space has been removed."""
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
    """Return the text after the last closing reasoning tag."""
    return text[max(at + len(closing) if (at := text.rfind(closing)) >= 0 else 0 for _, closing in MARKS) :]


def without_space(text: str) -> str:
    """Remove white space from a text, because some tokenizers do not decode white space exactly."""
    return "".join(text.split())


def results_in(roles: Iterable[str], result: str = "tool") -> int:
    """Count the tool results at the beginning of a list of roles."""
    return len([*takewhile(result.__eq__, roles)])


def calls_for(results: Chat, number: int = 90000, name: str = _CALLED) -> list[Call]:
    """Return a tool call for each tool result, with placeholders for missing ids and names.

    Args:
        results: The tool results.
        number: The number in the placeholder id for the first tool result; the number increases by 1 for each further
            result. A placeholder id consists of exactly nine alphanumeric characters, as Mistral's templates require.
        name: The placeholder for a missing function name.
    """
    return [
        (str(result.get("tool_call_id") or f"call{number + at:05}"), str(result.get("name") or name))
        for at, result in enumerate(results)
    ]


class RenderedAnswer(NamedTuple):
    """A sample chat and its response, rendered by the template.

    Attributes:
        chat: The messages, ending with the response.
        prompt: The rendered chat before the response, ending with the generation prompt.
        begin: The index in ``prompt`` where the generation prompt begins.
        last: The rendered chat, ending with the response.
        end: The index in ``last`` where the response ends, directly after ``word``.
        word: The last sample text in the rendered response, such as the content or a tool-call argument.
    """

    chat: Chat
    prompt: str
    begin: int
    last: str
    end: int
    word: str

    @property
    def prompt_end(self) -> str:
        """The text that the template itself writes at the end of the prompt, with all white space removed."""
        last = max((word.end() for word in _IN_HISTORY.finditer(self.prompt)), default=0)
        return without_space(self.prompt[last:].lstrip(_CLOSERS))

    @property
    def answer(self) -> str:
        """The rendered response, with the generation prompt before it."""
        return self.last[self.begin : self.end]

    def end_in(self, full: str) -> tuple[int | None, bool]:
        """Find the end of the response in a rendered chat that continues after the response.

        Returns:
            The index in ``full`` at which the response ends, or None if ``full`` does not contain the response. The
            second item is True if ``full`` and ``last`` are equal up to that index.
        """
        if not full.startswith(self.prompt):
            return None, False
        if self.last.startswith(self.prompt) and full.startswith(self.last[: self.end]):
            return self.end, True
        end = len(self.prompt)
        # A function name occurs once for each tool call that uses it, so find its last occurrence.
        for _ in range(self.last.count(self.word, self.begin, self.end)):
            at = full.find(self.word, end)
            if at < 0:
                return None, False
            end = at + len(self.word)
        return end, False

    def difference(self, full: str) -> str:
        """Describe the first change that new messages cause in the rendered chat."""
        in_answer = full.startswith(self.prompt)
        written = self.last[: self.end] if in_answer else self.prompt
        at = len(common_start(written, full))
        return (
            f"new messages change the {'response' if in_answer else 'prompt'}: "
            f"the template writes {full[at : at + 40]!r} instead of {written[at : at + 40]!r}"
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A chat template and its variables other than ``messages``.

    Args:
        template: The template.
        tools: The number of sample tools: 0, 1 or 2 (see ``_TOOLS``).
        variables: The template variables except messages, tools, documents and ``add_generation_prompt``.
    """

    template: ChatJinja
    tools: int
    variables: Mapping[str, object] = field(hash=False)

    @classmethod
    def of(cls, template: ChatJinja, variables: Mapping[str, object], *, tools: bool) -> Setting:
        """Create a :class:`Setting` in which the template's ``strftime_now`` formats a fixed time."""
        return cls(replace(template, now=_TIMES[0]), int(tools), variables)

    def given(self, *, prompted: bool) -> dict[str, object]:
        """Return all variables of the template except the messages."""
        tools = _TOOLS[self.tools]
        return {"documents": None, **self.variables, "tools": tools, "add_generation_prompt": prompted}

    def text(self, chat: Chat, *, prompted: bool) -> str:
        """Render a chat."""
        return self.template.run(chat, self.given(prompted=prompted))

    def new(self, shape: Shape, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Create sample messages with the given roles; the first messages are the results of the given tool calls."""
        made: list[dict[str, Any]] = []
        for at, (role, in_parts) in enumerate(shape):
            text = f"novum {at}"
            made.append({"role": role, "content": [{"type": "text", "text": text}] if in_parts else text})
        for message, (name, tool) in zip(made, calls, strict=False):
            message |= {"tool_call_id": name, "name": tool}
        return made

    def history(self, letters: str) -> list[dict[str, Any]]:
        """Create a sample chat from a string with one letter for each message."""
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
        """Create a sample response, and return it with the sample texts that it contains."""
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
        return self.template.call_form.convert(message), words

    def render_answer(self, history: str, letter: str, calls: Sequence[Call]) -> RenderedAnswer:
        """Render a sample chat with a response.

        Raises:
            TemplateError: The template rejects the chat.
            UnprovenError: The template does not render the response.
        """
        chat, prompt, begin = _render_before(self, history)
        message, words = self.answer(letter, calls)
        last = self.text([*chat, message], prompted=False)
        ends = [last.rfind(word, begin) + len(word) if word and word in last[begin:] else -1 for word in words]
        if "tool_calls" in message and max(ends[2:], default=-1) < 0:
            raise UnprovenError("the template does not render tool calls")
        end = max(ends)
        if end < 0 or _WRITTEN_PART.search(last, begin):
            raise UnprovenError("the template does not render the text of assistant messages")
        return RenderedAnswer([*chat, message], prompt, begin, last, end, words[ends.index(end)])


@lru_cache(maxsize=256)
def _render_before(setting: Setting, history: str) -> tuple[Chat, str, int]:
    """Render a sample chat that ends with the generation prompt.

    Returns:
        The messages, the rendered prompt, and the index in the prompt at which the generation prompt begins.
    """
    chat = setting.history(history)
    prompt = setting.text(chat, prompted=True)
    return chat, prompt, len(common_prefix(setting.text(chat, prompted=False), prompt))


class Trial(NamedTuple):
    """A rendered sample chat, with new messages after the response.

    Attributes:
        history: The kinds of the messages before the response, as one letter for each message.
        answer: The letter that denotes the kind of response, such as ``a`` for text.
        prompt: The text that the template itself writes at the end of the prompt, with all white space removed.
        earlier: The kind of reasoning in earlier turns.
        thought: The kind of reasoning in the response.
        reason: The reason why the template changes the response; empty if the response stays unchanged.
        kept: True if new messages don't change the rendered response.
        ending: The text after the response if the response is the last message.
        common: The prefix of ``ending`` that the template also writes when new messages follow the response.
        tail: The text after ``common`` when new messages follow the response.
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
    """The rendered sample chats for one sequence of new messages.

    Attributes:
        trials: The rendered sample chats.
        call: A pattern for the beginning of a tool call, after the reasoning; None if the pattern would also match an
            ordinary text response.
        unlike: True if an assistant turn with a tool call ends differently when no result follows.
    """

    trials: Sequence[Trial]
    call: re.Pattern[str] | None
    unlike: bool

    def trial(self, prompt: str, earlier: Thought, thought: Thought, *, calls_only: bool) -> tuple[Trial, str]:
        """Return a rendered sample chat that matches a prompt and a response.

        Args:
            prompt: The text that the template itself writes at the end of the prompt, with all white space removed.
            earlier: The kind of reasoning in earlier turns.
            thought: The kind of reasoning in the response.
            calls_only: True if the response contains tool calls and no text.

        Returns:
            The first matching sample chat, and the longest common suffix of ``Trial.common`` in all matching sample
            chats.

        Raises:
            UnprovenError: No sample chat matches, or new messages change the text of a matching sample chat.
        """
        if thought is Thought.OPEN:
            raise UnprovenError("the completion ends before its reasoning is closed")
        near = [trial for trial in self.trials if trial.prompt == prompt]
        if earlier is Thought.EMPTY and all(trial.earlier is not earlier for trial in near):
            earlier = Thought.WHOLE
        near = [trial for trial in near if trial.earlier <= earlier]
        alike = [trial for trial in near if trial.thought == thought]
        alike = [trial for trial in alike if not (calls_only and trial.answer in _CALLING_BESIDE)]
        if why := next((trial.reason for trial in alike if trial.reason), ""):
            raise UnprovenError(why)
        if not alike:
            other = next((f": {trial.reason}" for trial in near if trial.reason), "")
            raise UnprovenError(f"the template cannot render a response {_KINDS[thought]} in this chat{other}")
        tags = [max((tag.start() for tag in _TAG.finditer(trial.common)), default=None) for trial in alike]
        ends = {"" if at is None else trial.common[at:] for at, trial in zip(tags, alike, strict=True)}
        if len(ends) > 1 or len({trial.tail for trial in alike}) > 1:
            raise UnprovenError(
                "the text that the template writes after a response depends on the response or on earlier messages"
            )
        return alike[0], common_prefix(*(trial.common[::-1] for trial in alike))[::-1]


def prove(setting: Setting, shape: Shape) -> Proof:
    """Render the sample chats for one sequence of new messages.

    Raises:
        UnprovenError: The template rejects or changes all sample responses, or the text after a response depends on the
            time, the tools or unanswered tool calls.
    """
    proof = _prove(setting, shape)
    if isinstance(proof, str):
        raise UnprovenError(proof)
    return proof


@lru_cache(maxsize=256)
def _prove(setting: Setting, shape: Shape) -> Proof | str:
    calls = calls_for(_ANY_CALL * results_in(role for role, _ in shape))
    new = setting.new(shape, calls)
    trials: list[Trial] = []
    why = ""
    for history in _HISTORIES:
        # A template that rejects the two shortest chats also rejects all longer chats.
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
        return "the text that the template writes after a response depends on the time or the tools"
    more = _tails(setting, safe.history, safe.answer, [*calls, *calls_for(_ANY_CALL, 80000)], new) if calls else None
    if more is not None and safe.tail not in more:
        return "the text that the template writes after a response depends on tool calls without results"
    unanswered = [] if calls else [_tails(setting, "u", letter, calls_for(_ANY_CALL), new) for letter in "cd"]
    ended = [tails for tails in unanswered if tails is not None]
    ends = {tail: common for tails in ended for tail, common in tails.items()}
    unlike = bool(ended) and not (
        ends and all(tail == safe.tail and common.endswith(safe.common) for tail, common in ends.items())
    )
    return Proof(trials, call_opening(setting), unlike)


def _trials(setting: Setting, history: str, letter: str, calls: Sequence[Call], new: Chat) -> Iterator[Trial]:
    """Render a sample chat with and without new messages after the response, and yield the trials.

    If the template changes the response, ``Trial.reason`` describes the change. A trial with an empty ``reason``
    contains the text after the response.
    """
    rendered = setting.render_answer(history, letter, calls)
    full = setting.text([*rendered.chat, *new], prompted=True)
    end, kept = rendered.end_in(full)
    earlier, thought = (
        thought_in(without_space(text)) for text in (rendered.prompt[: rendered.begin], rendered.answer)
    )
    trial = Trial(
        history, letter, rendered.prompt_end, earlier, thought, kept=kept, ending=rendered.last[rendered.end :]
    )
    if letter in _CALLING_BESIDE and _SAID not in rendered.answer:
        yield trial._replace(reason="the template drops the text of a response that calls a tool")
        return
    if not kept:
        yield trial._replace(reason=rendered.difference(full))
    if letter in _THINKING and _THOUGHT not in rendered.answer:
        yield trial._replace(thought=Thought.WHOLE, reason="the template drops the reasoning")
    if end is not None:
        thought = thought_in(without_space(full[rendered.begin : end]))
        common = common_start(full[end:], trial.ending)
        yield trial._replace(thought=thought, common=common, tail=full[end + len(common) :])


def _tails(setting: Setting, history: str, letter: str, calls: Sequence[Call], new: Chat) -> dict[str, str] | None:
    """Render a sample chat, and map ``Trial.tail`` to ``Trial.common`` for each trial with an empty ``Trial.reason``.

    Return None if the template can't render the sample chat.
    """
    try:
        trials = [*_trials(setting, history, letter, calls, new)]
    except (TemplateError, UnprovenError):
        return None
    return {trial.tail: trial.common for trial in trials if not trial.reason}


@lru_cache(maxsize=128)
def call_opening(setting: Setting) -> re.Pattern[str] | None:
    """Return a pattern for the beginning of a response that contains only a tool call.

    The pattern expects text from which all white space has been removed. The result is None if the template renders no
    tool calls, or if every such pattern would also match a response without tool calls.
    """
    try:
        rendered = [setting.render_answer("u", letter, calls_for(_ANY_CALL)) for letter in "ac"]
    except (TemplateError, UnprovenError):
        return None
    answers = [each.last[len(common_start(each.prompt, each.last)) :] for each in rendered]
    says, calls = (behind_thoughts(without_space(answer)) for answer in answers)
    # Match the text before the function name. If plain responses also match, use a longer pattern.
    pieces = [*map(re.escape, calls.split(_CALLED))]
    patterns = (".+?".join(pieces[:most]) for most in range(1, len(pieces)))
    return next((re.compile(pattern) for pattern in patterns if not re.match(pattern, says)), None)
