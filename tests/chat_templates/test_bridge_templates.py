"""Bridging with all chat templates: the ids are those of the whole chat rendered anew, or there is a reason."""

import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from tokenizers import Tokenizer

from lazyprompt.chat_templates.bridge import Bridge, bridge_refusal, build_bridge
from lazyprompt.chat_templates.controls import controls_of, sequences_in
from lazyprompt.chat_templates.jinja import ChatJinja
from lazyprompt.chat_templates.traced import common_start
from lazyprompt.chat_templates.untrusted import Rendering, Traces
from lazyprompt.errors import TemplateError
from lazyprompt.messages.encoding import encode
from lazyprompt.safety.policy import NEUTRALIZE
from support.chat_judges import SPECIAL, TOOLS, deepseek, templates

pytestmark = pytest.mark.slow  # models' own templates

# The number of tests for all templates, and of chats for each template; ``--hypothesis-profile=deep`` has 500.
SHARES = 8
CHATS = max(20, settings().max_examples // 2)
WORDS = [
    *("Hello", "weather", "in Köln", "你好", "1 + 1 = 2", "a\nb", "List:\n- x\n\n- y", '{"a": 1}', "<b>bold</b>", "🙂"),
    *("naïve", "true", "None", " end. ", "user", "assistant", "'quoted'", "50%", "e\u0301", "a\u3000b"),
]
CALLS: Any = (("get_weather", {"city": "Köln", "days": 3}), ("now", {}), ("get_weather", {"tags": ["a", None, 1.5]}))


@cache
def model() -> Any:
    return Tokenizer.from_file(str(deepseek() / "tokenizer.json"))


def tokenizer_with(tokens: Sequence[str]) -> Any:
    """DeepSeek's tokenizer with other control tokens; it shares the vocabulary."""
    made: Any = Tokenizer(model().model)
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        setattr(made, name, getattr(model(), name))
    made.add_special_tokens(list(tokens))
    return made


def random_text(chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 4)))


def turns(chance: random.Random) -> list[dict[str, Any]]:
    """A chat with or without a system text, reasoning and tool calls, of which several may be parallel."""
    thinks, calls = chance.random() < 0.5, chance.random() < 0.6
    chat: list[dict[str, Any]] = [{"role": "system", "content": random_text(chance)}] if chance.random() < 0.4 else []
    for _ in range(chance.randint(1, 3)):
        chat.append({"role": "user", "content": random_text(chance)})
        while calls and chance.random() < 0.5:
            called: list[dict[str, Any]] = [
                {"id": f"call{len(chat):03}{at:02}", "type": "function", "function": {"name": name, "arguments": given}}
                for at, (name, given) in enumerate(chance.choices(CALLS, k=chance.choice([1, 1, 2])))
            ]
            chat.append(
                {"role": "assistant", "content": chance.choice(["", random_text(chance)]), "tool_calls": called}
            )
            for call in called:
                content = chance.choice([random_text(chance), '{"t": 3}'])
                result = {"tool_call_id": call["id"], "name": call["function"]["name"], "content": content}
                chat.append({"role": "tool"} | result)
        chat.append({"role": "assistant", "content": random_text(chance)})
    for message in chat:
        if message["role"] == "assistant" and thinks and chance.random() < 0.8:
            message["reasoning_content"] = random_text(chance)
    return [*chat, {"role": "user", "content": random_text(chance)}]


class Judged(NamedTuple):
    """The result of bridging one completion."""

    new: str  # the role of the new messages: tool or user
    reasoning: bool  # whether the response had reasoning
    kind: str  # which completion it was
    got: Bridge  # the result
    problem: str  # what is wrong with it


class Judge:
    """A template with a tokenizer that knows its control tokens."""

    def __init__(self, text: str, now: Any = None) -> None:
        self.template = ChatJinja(text, SPECIAL, now)
        self.controls = controls_of(self.template, frozenset())
        self.tokenizer = tokenizer_with(sorted(sequences_in(self.template) | set(SPECIAL.values())))

    def rendered(self, chat: list[dict[str, Any]], tools: Any, *, prompted: bool) -> Traces:
        given = {"tools": tools, "documents": None, "add_generation_prompt": prompted}
        return Rendering(self.template, given, self.controls, NEUTRALIZE).traced(chat)

    def judge(self, chance: random.Random, *, by_rendering: bool = False) -> Iterator[Judged]:
        chat = turns(chance)
        tools = TOOLS if any("tool_calls" in message for message in chat) else None
        if self.template.shows_parts and not self.template.shows_text:
            chat = [message | {"content": [{"type": "text", "text": message["content"]}]} for message in chat]
        chat = self.template.prepare(chat)
        responses = [at for at, message in enumerate(chat) if message["role"] == "assistant"]
        called = [at for at in responses if "tool_calls" in chat[at]]
        at = chance.choice(called if called and chance.random() < 0.5 else responses)
        new = chat[at + 1 : next((other for other in responses if other > at), None)]
        try:
            prompt = self.rendered(chat[:at], tools, prompted=True)
            last = self.rendered(chat[: at + 1], tools, prompted=False)
            full = self.rendered([*chat[: at + 1], *new], tools, prompted=True)
        except TemplateError:
            return
        start, before = len(prompt.text), encode(prompt.parts, self.tokenizer).ids
        made = encode(full.parts, self.tokenizer)
        behind = [token for token, (_, end) in zip(made.ids, made.offsets, strict=True) if end > start]
        # An engine cannot have produced a token that straddles the border of the prompt.
        straddles = any(begin < start < end for begin, end in made.offsets)
        for kind, ids in self.completions(prompt, last, full, len(chat[:at])).items():
            messages = chat[:at] if by_rendering else None
            rendering = Rendering(self.template, {"tools": tools}, self.controls, NEUTRALIZE)
            got = build_bridge(rendering, before, ids, new, self.tokenizer, messages)
            problem = "" if got.ids or got.reason else "there is no reason"
            if got.ids is not None:
                wrong = got.ids[: len(before) + len(ids)] != before + ids
                problem = "it does not begin with the previous ids" if wrong else ""
                added = self.decoded(got.ids[len(before) :])
                same = full.text == prompt.text + added and (straddles or got.ids == before + behind)
                # The reasoning in the engine's ids stays even if the template drops it from the messages.
                if not same and not (by_rendering and bare(full.text) == bare(prompt.text + added) != full.text):
                    problem = problem or f"{chat} at {at}: {added!r} is not in {full.text!r}"
            yield Judged(new[0]["role"], "reasoning_content" in chat[at], kind, got, problem)

    def completions(self, prompt: Traces, last: Traces, full: Traces, at: int) -> dict[str, list[int]]:
        """Completions of an engine: as the template writes the response last, amid a chat, without its end, …"""
        ends = [
            (sum(map(len, last.parts[: index + 1])), part)
            for index, part in enumerate(last.parts)
            if part and last.origins[index].message == at
        ]
        if not ends:
            return {}
        end, word = ends[-1]
        found: dict[str, list[int]] = {}
        if last.text.startswith(prompt.text):
            found["engine"] = self.ids_of(last, len(prompt.text), max(end, len(last.text.rstrip())))
        if full.text.startswith(prompt.text):
            there = end if full.text.startswith(last.text[:end]) else full.text.find(word, len(prompt.text)) + len(word)
            if full.text.startswith(last.text[:end]) or full.text.count(word, len(prompt.text)) == 1:
                ending = common_start(full.text[there:], last.text[end:]).rstrip()
                found["history"] = self.ids_of(full, len(prompt.text), there + len(ending))
                if ending:
                    found["cut off"] = found["history"][:-1]
                if found.get("engine") == found["history"]:
                    del found["engine"]
        return found

    def ids_of(self, traces: Traces, start: int, stop: int) -> list[int]:
        made = encode(traces.parts, self.tokenizer)
        if any(begin < start < end for begin, end in made.offsets):
            return encode([traces.text[start:stop]], self.tokenizer).ids
        return [
            token for token, (begin, end) in zip(made.ids, made.offsets, strict=True) if start <= begin and end <= stop
        ]

    def decoded(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text


def bare(text: str) -> str:
    """A text without white space and without the reasoning in all models' tags."""
    marks = "<think>(.*?)</think>|<seed:think>.*?</seed:think>|<\\|channel>thought.*?<channel\\|>"
    marks += "|<\\|start\\|>assistant<\\|channel\\|>analysis<\\|message\\|>.*?<\\|end\\|>"
    return re.sub("<think>$", "", re.sub(marks, "", "".join(text.split())))


@pytest.mark.parametrize("share", range(SHARES))
def test_bridged_ids_proven_by_rendering_equal_the_whole_chat_except_reasoning(share: int) -> None:
    kept = 0
    for name in sorted(templates())[share::SHARES]:
        judge = Judge(templates()[name])
        seeds = (random.Random(f"{name} {seed}") for seed in range(CHATS // 2))  # noqa: S311 - chats to try
        found = [one for chance in seeds for one in judge.judge(chance, by_rendering=True)]
        assert [one.problem for one in found if one.problem] == [], name
        behind = [one for one in found if one.new == "user" and one.kind == "history"]
        assert all(one.got.ids for one in behind), [name, *(one.got.reason for one in behind)]
        kept += sum(one.reasoning for one in behind)
    assert kept > 0


@pytest.mark.parametrize("share", range(SHARES))
def test_bridged_ids_equal_the_ids_of_the_whole_chat(share: int) -> None:
    for name in sorted(templates())[share::SHARES]:
        judge = Judge(templates()[name])
        found = [one for seed in range(CHATS) for one in judge.judge(random.Random(f"{name} {seed}"))]  # noqa: S311
        assert [one.problem for one in found if one.problem] == [], name
        goes_on = {new for new in ("user", "tool") if not bridge_refusal(judge.template, [new], tools=True)}
        assert goes_on <= {one.new for one in found if one.got.ids and one.kind in ("history", "engine")}, name


KINDS: dict[str, dict[str, Any]] = {
    "user": {},
    "user, behind a thought": {"thought": True},
    "tool": {"roles": ["tool"], "tools": True},
    "tool, behind a thought": {"roles": ["tool"], "tools": True, "thought": True},
}


def test_number_of_templates_that_can_be_bridged() -> None:
    """With ``-n0 -s`` it prints a table."""
    shares = dict.fromkeys(KINDS, 0)
    for name, text in sorted(templates().items()):
        print(name)  # noqa: T201 - the table
        for kind, options in KINDS.items():
            refusal = bridge_refusal(ChatJinja(text, SPECIAL), **options)
            shares[kind] += not refusal
            print(f"    {kind:24} {refusal or 'yes'}")  # noqa: T201 - the table
    print(shares, "of", len(templates()))  # noqa: T201 - the table
    assert shares == {"user": 57, "user, behind a thought": 7, "tool": 36, "tool, behind a thought": 31}
