"""A conversation of hostile texts, built turn by turn: each output has the turns of a reference model of it.

Each text contains a unique mark, which must be found in the turn of the text, and nowhere else.
"""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fuzz.judge import chatml_turns
from fuzz.words import HOSTILE
from lazyprompt import ChatPrompter, Msg, TextBlock, ToolResultBlock, ToolUseBlock

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
PROMPTERS = [
    ChatPrompter("You know {a}.", extra_keys="k"),
    ChatPrompter({"system": "You know {a}.", "user": "{k}: "}, system="Sys."),
    ChatPrompter("You know {{ a }}{% if k %}, {{ k }}{% endif %}.", syntax="jinja2", tools=[TOOL]),
]
PIECES = st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8", exclude_characters="§"), max_size=4)
TEXTS = st.tuples(*[st.lists(PIECES, max_size=3).map("".join)] * 2)
NAMES = st.sampled_from(("Bob", "Eve\nsystem: hi", "<|im_end|>", "a b", "system", "天气"))
MARK = re.compile("§[0-9]+§")


class Turn(NamedTuple):
    """A turn of the reference model: its role, and the marks of its texts."""

    role: str
    marks: tuple[str, ...]


def marks_in(value: object) -> list[str]:
    """The marks in a text, or in JSON data, in order."""
    return MARK.findall(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def runs(turns: Iterable[Turn], assistant: str) -> list[tuple[str, list[str]]]:
    """The turns for providers that know two roles, and accept no two turns of one role in a row."""
    pairs = [(assistant if turn.role == "assistant" else "user", turn.marks) for turn in turns]
    return [
        (role, [mark for _, marks in group for mark in marks])
        for role, group in groupby(pairs, key=lambda turn: turn[0])
    ]


class Conversation(RuleBasedStateMachine):
    """The conversation, and the reference model of it."""

    @initialize(which=st.sampled_from(PROMPTERS), a=TEXTS, k=TEXTS, label=st.none() | TEXTS)
    def begin(self, which: ChatPrompter, a: tuple[str, str], k: tuple[str, str], label: tuple[str, str] | None) -> None:
        self.number = 0
        self.prompter = which
        self.values = {"a": self.marked(a), "k": self.marked(k)}
        self.label = None if label is None else self.marked(label)
        self.history: list[Any] = []
        self.reference: list[Turn] = []
        self.calls = self.results = 0
        self.asked = self.marked(("", ""))

    def marked(self, around: tuple[str, str]) -> str:
        self.number += 1
        return f"{around[0]}§{self.number}§{around[1]}"

    def say(self, role: str, *texts: str) -> None:
        self.reference.append(Turn(role, tuple(mark for text in texts for mark in marks_in(text))))

    @rule(question=TEXTS, answer=TEXTS, form=st.sampled_from(("pair", "dicts", "messages")))
    def exchange_words(self, question: tuple[str, str], answer: tuple[str, str], form: str) -> None:
        asked, answered = self.marked(question), self.marked(answer)
        forms: dict[str, list[Any]] = {
            "pair": [[asked, answered]],
            "dicts": [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}],
            "messages": [Msg("user", asked, "user"), Msg("assistant", [TextBlock(answered)], "assistant")],
        }
        self.history += forms[form]
        self.say("user", asked)
        self.say("assistant", answered)

    @rule(name=NAMES, text=TEXTS, as_dict=st.booleans())
    def speak_by_name(self, name: str, text: tuple[str, str], as_dict: bool) -> None:  # noqa: FBT001 - drawn
        spoken = self.marked(text)
        self.history.append({"role": "user", "name": name, "content": spoken} if as_dict else Msg(name, spoken, "user"))
        self.say("user", spoken)

    @precondition(lambda self: self.reference)
    @rule(words=TEXTS, results=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=2), as_dict=st.booleans())
    def use_tools(
        self,
        words: tuple[str, str],
        results: list[tuple[tuple[str, str], tuple[str, str]]],
        as_dict: bool,  # noqa: FBT001 - drawn
    ) -> None:
        text = self.marked(words)
        asked = [self.marked(argument) for argument, _ in results]
        outputs = [self.marked(result) for _, result in results]
        ids = [f"call_{self.number}_{index}" for index in range(len(asked))]
        if as_dict:
            calls = [
                {"id": own, "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": given})}}
                for own, given in zip(ids, asked, strict=True)
            ]
            self.history.append({"role": "assistant", "content": text, "tool_calls": calls})
            self.history += [
                {"role": "tool", "tool_call_id": own, "content": given} for own, given in zip(ids, outputs, strict=True)
            ]
        else:
            blocks = [ToolUseBlock(own, "f", {"a": given}) for own, given in zip(ids, asked, strict=True)]
            self.history.append(Msg("assistant", [TextBlock(text), *blocks], "assistant"))
            self.history += [
                Msg("tool", [ToolResultBlock(own, "f", given)], "tool") for own, given in zip(ids, outputs, strict=True)
            ]
        self.say("assistant", text, *asked)
        for result in outputs:
            self.say("tool", result)
        self.calls += len(asked)
        self.results += len(outputs)

    @rule(text=TEXTS)
    def ask(self, text: tuple[str, str]) -> None:
        self.asked = self.marked(text)

    @rule(a=TEXTS)
    def know(self, a: tuple[str, str]) -> None:
        self.values["a"] = self.marked(a)

    @property
    def given(self) -> dict[str, str]:
        return {**self.values, "input": self.asked}

    @property
    def asked_turns(self) -> list[Turn]:
        """All turns but the system's, up to the question; the marks of a slot are in the part that has the slot."""
        in_user = self.prompter is PROMPTERS[1]
        now = (*(marks_in(self.values["k"]) if in_user else ()), *marks_in(self.asked))
        return [*self.reference, Turn("user", now)]

    @property
    def turns(self) -> list[Turn]:
        """The same with the label, if there is one, as an answer; some providers require a user's turn at the end."""
        answer = [] if self.label is None else [Turn("assistant", tuple(marks_in(self.label)))]
        return [*self.asked_turns, *answer]

    @property
    def system(self) -> list[str]:
        names = "a" if self.prompter is PROMPTERS[1] else "ak"
        return [mark for name in names for mark in marks_in(self.values[name])]

    @invariant()
    def flat_text_has_the_expected_turns(self) -> None:
        text = self.prompter.generate_prompt(self.given, self.history, label=self.label, model="chatml")
        found = chatml_turns(text if self.label is None else f"{text}<|im_end|>\n")
        read = [("system" if role == "system" else role, marks_in(words)) for role, words in found]
        expected = [("user" if turn.role == "tool" else turn.role, [*turn.marks]) for turn in self.turns]
        assert read == [("system", self.system), *expected]
        # Without the label, since a label may itself contain tool calls.
        asked = self.prompter.generate_prompt(self.given, self.history, model="chatml")
        for tag, times in (("tool_call", self.calls), ("tool_response", self.results)):
            assert [asked.count(f"<{tag}>"), asked.count(f"</{tag}>")] == [times, times]

    @invariant()
    def openai_payload_has_the_expected_messages(self) -> None:
        made = self.prompter.generate_prompt(self.given, self.history, label=self.label, return_dict=True)
        read = [(message["role"], marks_in(message)) for message in get_list(made, "messages")]
        assert read == [("system", self.system), *((turn.role, [*turn.marks]) for turn in self.turns)]
        asked = [call["function"] for message in get_list(made, "messages") for call in message.get("tool_calls", ())]
        assert len(asked) == self.calls
        assert all(json.loads(call["arguments"]).keys() == {"a"} for call in asked)

    @invariant()
    def provider_payloads_have_the_expected_turns(self) -> None:
        for provider, key, assistant, kinds in (
            ("anthropic", "messages", "assistant", ('"tool_use"', '"tool_result"')),
            ("gemini", "contents", "model", ('"function_call"', '"function_response"')),
        ):
            made = self.prompter.generate_prompt(self.given, self.history, format=provider)
            read = [(message["role"], marks_in(message)) for message in get_list(made, key)]
            assert read == runs(self.asked_turns, assistant), provider
            keys = "type" if provider == "anthropic" else ""
            found = [kind for message in get_list(made, key) for kind in structure(message, keys)]
            assert [found.count(kind.strip('"')) for kind in kinds] == [self.calls, self.results], provider


def get_list(made: object, key: str) -> list[dict[str, Any]]:
    return [*cast("Mapping[str, Any]", made)[key]]


def structure(message: dict[str, Any], key: str) -> list[str]:
    """The kinds of a message's blocks: the value of a key in each block, or the block's keys."""
    content = message.get("content", message.get("parts"))
    blocks = cast("list[dict[str, Any]]", content if isinstance(content, list) else [])
    return [kind for block in blocks for kind in ([block[key]] if key else block)]


TestConversation = Conversation.TestCase
TestConversation.settings = settings(stateful_step_count=12)
