"""The small chats that a template is tried out on, to see what it makes of an answer when more messages come."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import takewhile
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja

# The id and the name of a call.
Call: TypeAlias = tuple[str, str]
# A result of which nothing is known.
ANY_RESULT: Mapping[str, Any] = {}

# An answer is a letter: "a" says something, "c" calls, "e" calls without arguments, "d" says something and calls; "A",
# "C", "D" think first, in a field of their own; "E" and "F" say and call with the thought in their text, "P" says with
# the thought in a part.
TALKING, CALLING, CALLING_BESIDE, THINKING = "aAEP", "cCedDF", "dDF", "ACD"
_IN_TEXT = "EF"
# The chats that come before it; "s", "u" and "t" are the system, the user and the result of a call.
HISTORIES = ("u", "su", "uau", "uAu", "uEu", "uct", "uCt", "uCtct", "udt", "uDt", "uFt", "udtau", "uDtAu", "suAuCtt")
# What an answer says, thinks and calls in a trial.
SAID, THOUGHT, CALLED = "responsum dictum", "cogitatum dictum", "look_around"
_ARGUMENT = "argumentum"
_IN_HISTORY = re.compile(r"(?:quaestio|exitus|prius) \d+(?: \d+)?")
# The time in trials, and another time.
_TIMES = datetime(2024, 1, 2, 3, 4), datetime(2031, 11, 12, 13, 14)  # noqa: DTZ001 - the local time, as in templates


def _tool(name: str) -> dict[str, Any]:
    place = {"type": "string", "description": "Where."}
    parameters = {"type": "object", "properties": {"at": place}, "required": ["at"]}
    return {"type": "function", "function": {"name": name, "description": "Go.", "parameters": parameters}}


# No tools, some, and others.
_TOOLS = None, [_tool(CALLED)], [_tool("wait"), _tool(CALLED)]

# What closes a value that is written as JSON.
_CLOSERS = "\"'}])"
# A part with a thought that was written as Python or JSON has it.
_WRITTEN_PART = re.compile(r"""['"]thinking['"]""")
_BEGUN = re.compile(r"<[^<>]*\Z")


class UnprovenError(Exception):
    """Why nothing proves that a prompt and an answer can be gone on with."""


class Answer(NamedTuple):
    """What the assistant says in a trial.

    Attributes:
        message: The message.
        words: The texts in it.
    """

    message: Mapping[str, Any]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """A template with all that it is given besides messages.

    Args:
        template: The template.
        tools: Whether there are tools: 0, 1, or 2 for others.
        variables: What else it looks up.
    """

    template: ChatJinja
    tools: int
    variables: Mapping[str, object] = field(hash=False)

    @classmethod
    def of(cls, template: ChatJinja, variables: Mapping[str, object], *, tools: bool) -> Setting:
        """A template as it is tried out: it is always told the same time."""
        return cls(replace(template, now=_TIMES[0]), int(tools), variables)

    def other(self) -> Setting:
        """The same at another time, with other tools if any."""
        return replace(self, template=replace(self.template, now=_TIMES[1]), tools=self.tools * 2)

    def given(self, *, prompted: bool) -> dict[str, object]:
        """The variables of the template."""
        tools = _TOOLS[self.tools]
        return {"documents": None, **self.variables, "tools": tools, "add_generation_prompt": prompted}

    def text(self, chat: Sequence[Mapping[str, Any]], *, prompted: bool) -> str:
        """What the template writes."""
        return self.template.run(chat, self.given(prompted=prompted))

    def message(self, role: str, text: str, *, in_parts: bool | None = None) -> dict[str, Any]:
        """A message, its content as the template shows it, or as is said."""
        if in_parts is None:
            in_parts = self.template.shows_parts and not self.template.shows_text
        return {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}

    def result(self, text: str, call: Call, *, in_parts: bool | None = None) -> dict[str, Any]:
        """The result of a call."""
        return self.message("tool", text, in_parts=in_parts) | {"tool_call_id": call[0], "name": call[1]}

    def answer(self, letter: str, calls: Sequence[Call] = (), word: str = "dictum") -> Answer:
        """What the assistant says, thinks and calls."""
        said, thought = "" if letter in "cCe" else f"responsum {word}", f"cogitatum {word}"
        words = [said, thought]
        if letter in _IN_TEXT:
            said = f"<think>\n{thought}\n</think>\n\n{said}"
        message = self.message("assistant", said)
        if letter in THINKING:
            message |= {"reasoning_content": thought, "thinking": thought}
        if letter == "P":
            message["content"] = [{"type": "thinking", "thinking": thought}, {"type": "text", "text": said}]
        if letter in CALLING:
            made: list[dict[str, Any]] = []
            for at, (name, tool) in enumerate(calls):
                arguments = {} if letter == "e" else {"at": f"{_ARGUMENT} {word} {at}"}
                made.append({"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}})
                words += (name, tool, *arguments.values())
            message["tool_calls"] = made
        return Answer(self.template.takes.form(message), tuple(words))

    def history(self, letters: str) -> list[Mapping[str, Any]]:
        """A chat that comes before; each of its calls is answered at once."""
        chat: list[Mapping[str, Any]] = []
        calls: list[Call] = []
        for at, letter in enumerate(letters):
            if letter == "t":
                chat.append(self.result(f"exitus {at}", calls.pop(0)))
            elif letter in "su":
                chat.append(self.message("system" if letter == "s" else "user", f"quaestio {at}"))
            else:
                calls = calls_for([ANY_RESULT] * results_in(letters[at + 1 :], "t"), 10 * at)
                chat.append(self.answer(letter, calls, f"prius {at}").message)
        return chat


def results_in(roles: Iterable[str], result: str = "tool") -> int:
    """How many results of calls roles begin with."""
    return len([*takewhile(result.__eq__, roles)])


def calls_for(results: Sequence[Mapping[str, Any]], number: int = 90000, name: str = CALLED) -> list[Call]:
    """Calls that results answer; what a result does not say is made up.

    Args:
        results: The results.
        number: What made-up ids have in them. They are of nine letters and digits, as Mistral's templates want them.
        name: What is called where a result does not say it.
    """
    return [
        (str(result.get("tool_call_id") or f"call{number + at:05}"), str(result.get("name") or name))
        for at, result in enumerate(results)
    ]


class Before(NamedTuple):
    """A chat before an answer, as the template shows it.

    Attributes:
        chat: The chat.
        prompt: The chat, with what invites the assistant to speak.
        begin: Where that begins.
        ending: What the template writes behind the last message, without white space.
    """

    chat: Sequence[Mapping[str, Any]]
    prompt: str
    begin: int
    ending: str


@lru_cache(maxsize=256)
def before_answer(setting: Setting, letters: str) -> Before:
    """Look at a chat before an answer.

    Args:
        setting: The template.
        letters: The chat.

    Raises:
        TemplateError: The template refuses it.
    """
    chat = setting.history(letters)
    prompt = setting.text(chat, prompted=True)
    last = max((word.end() for word in _IN_HISTORY.finditer(prompt)), default=0)
    ending = without_space(prompt[last:].lstrip(_CLOSERS))
    return Before(chat, prompt, len(alike_at_start(setting.text(chat, prompted=False), prompt)), ending)


class Look(NamedTuple):
    """A chat with an answer, as the template shows it.

    Attributes:
        before: The chat before the answer.
        last: The chat with the answer, which is its last message.
        end: Where the answer's last word ends in it.
        final: Which of its words that is.
    """

    before: Before
    last: str
    end: int
    final: int

    @classmethod
    def at(cls, setting: Setting, before: Before, answer: Answer) -> Look:
        """Look at a chat with an answer.

        Raises:
            TemplateError: The template refuses it.
            UnprovenError: It does not show the answer.
        """
        last = setting.text([*before.chat, answer.message], prompted=False)
        places = [last.rfind(word, before.begin) if word else -1 for word in answer.words]
        if "tool_calls" in answer.message and max(places[2:], default=-1) < 0:
            raise UnprovenError("the template does not show calls")
        if max(places) < 0 or _WRITTEN_PART.search(last, before.begin):
            raise UnprovenError("the template does not show what an assistant says")
        ends = [at + len(word) if at >= 0 else -1 for at, word in zip(places, answer.words, strict=True)]
        end = max(ends)
        return cls(before, last, end, ends.index(end))

    @property
    def answer(self) -> str:
        """The answer, behind the chat without what invites to speak."""
        return self.last[self.before.begin : self.end]

    @property
    def ending(self) -> str:
        """What stands behind the answer."""
        return self.last[self.end :]

    def end_in(self, full: str, word: str) -> tuple[int | None, bool]:
        """Where the answer ends in the chat with more messages, if that begins as the prompt does.

        Args:
            full: The chat with more messages.
            word: The last word of the answer.

        Returns:
            The place, and whether the answer is written as it is where it is the last message.
        """
        prompt = self.before.prompt
        if not full.startswith(prompt):
            return None, False
        if self.last.startswith(prompt) and full.startswith(self.last[: self.end]):
            return self.end, True
        end = len(prompt)
        # As many calls, as often its name.
        for _ in range(self.last.count(word, self.before.begin, self.end)):
            at = full.find(word, end)
            if at < 0:
                return None, False
            end = at + len(word)
        return end, False

    def difference(self, full: str) -> str:
        """Where the chat with more messages is another."""
        in_answer = full.startswith(self.before.prompt)
        written = self.last[: self.end] if in_answer else self.before.prompt
        at = len(common_tokens(written, full))
        return (
            f"with the new messages behind it, the template writes {full[at : at + 40]!r} "
            f"where the {'answer' if in_answer else 'prompt'} has {written[at : at + 40]!r}"
        )


def alike_at_start(*texts: str) -> str:
    """What texts begin with alike."""
    return commonprefix(texts)  # noqa: RUF071 - they are no paths


def common_tokens(*texts: str) -> str:
    """What texts begin with alike, up to the end of a token."""
    return _BEGUN.sub("", alike_at_start(*texts))


def without_space(text: str) -> str:
    """A text without its white space, of which tokenizers do not give back all."""
    return "".join(text.split())
