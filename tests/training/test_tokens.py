"""The table of tokens: the message, slot and origin of each, and if it is trained."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from lazyprompt import ChatPrompter, ChatTemplate, Markers, Msg, Prompter, PromptTemplate, ToolResultBlock, ToolUseBlock
from lazyprompt.templates.instruction import InstructionTemplate
from lazyprompt.training.samples import TrainingSample
from support.chat_judges import templates
from support.vocabularies import chatml
from training.helpers import each_family, words


def call(number: int, **arguments: str) -> dict[str, Any]:
    function = {"name": f"f{number}", "arguments": json.dumps(arguments)}
    return {"id": f"c{number}", "type": "function", "function": function}


HISTORY: list[Any] = [
    {"role": "user", "content": "m1 Weather?"},
    {"role": "assistant", "content": "m2 See.", "tool_calls": [call(2, a="m2 x"), call(3, a="m2 y")]},
    {"role": "tool", "tool_call_id": "c2", "content": "m3 rain"},
    {"role": "tool", "tool_call_id": "c3", "content": "m4 sun"},
    {"role": "assistant", "content": "m5 It rains."},
]
BLOCKS: list[Any] = [
    Msg("user", "m1 Weather?", "user"),
    Msg("assistant", [ToolUseBlock("c2", "f2", {"a": "m2 x"}), ToolUseBlock("c3", "f3", {"a": "m2 y"})], "assistant"),
    Msg("user", [ToolResultBlock("c2", "f2", "m3 rain"), ToolResultBlock("c3", "f3", "m4 sun")], "user"),
    Msg("assistant", "m5 It rains.", "assistant"),
]
PAIRS = [["m1 a", "m2 b"], ["m3 c", "m4 d"]]
TEMPLATE = pytest.param("template", marks=pytest.mark.slow)


def texts_of(sample: TrainingSample, tokenizer: Any) -> dict[int, str]:
    """The text of the tokens of each message, without the markers."""
    texts: dict[int, str] = {}
    for token in sample.tokens(tokenizer):
        if token.message is not None and token.slot != "markers":
            texts[token.message] = texts.get(token.message, "") + token.text
    return texts


@pytest.mark.parametrize("train", ["last", "all"])
@pytest.mark.parametrize("family", ["qwen3", "llama3.1", "mistral-v3", "gemma2", "chatglm3", "default", TEMPLATE])
@pytest.mark.parametrize(("history", "last"), [(HISTORY, 7), (BLOCKS, 7), (PAIRS, 6), ([], 2)])
def test_tokens_have_the_index_of_their_message(family: str, history: Any, last: int, train: Any) -> None:
    prompter = ChatPrompter("m0 Be {a}.", system="")
    if family == "template":
        prompter = prompter.with_chat_template(ChatTemplate.load(templates()["qwen3_training"]))
    elif family != "default":
        prompter = prompter.with_markers(family)
    given = {"a": "m0 kind", "input": f"m{last - 1} Und?"}
    sample = prompter.training_sample(given, f"m{last} Ja.", history, train=train)
    texts = texts_of(sample, chatml())
    # Some families put the system text into the last turn.
    assert sorted(texts) == [*range(last + 1)]
    for at, text in texts.items():
        # It contains no text of other messages, and all of its own except the first letter, which may be one token
        # with the space at the end of a marker.
        words = {word for word in text.replace('"', " ").split() if word[0] == "m" and word[1:].isdigit()}
        assert words <= {f"m{at}"}
        content = sample.messages[at].get("content")
        assert str(content or "").strip()[1:] in text


def test_tokens_have_the_origin_and_slot_of_their_segment() -> None:
    prompter = ChatPrompter("Be {a}.", system="").with_markers("qwen3")
    sample = prompter.training_sample({"a": "kind", "input": "Yes"}, "No")
    tokens = sample.tokens(chatml())
    assert [token[1:] for token in tokens if token.text.strip() in ("Be", "kind", "Yes", "No", "<|im_end|>")] == [
        ("Be", 0, "instruction", True, False),
        # The token begins with the space of the instruction.
        (" kind", 0, "instruction", True, False),
        ("<|im_end|>", None, "markers", True, False),
        ("Yes", 1, "input", False, False),
        ("<|im_end|>", None, "markers", True, False),
        ("No", 2, "label", False, True),
        ("<|im_end|>", 2, "markers", True, True),
    ]
    assert {token.message for token in replace(sample, part_messages=()).tokens(chatml())} == {None}


def test_slots_of_the_user_template_belong_to_the_user_message() -> None:
    prompter = ChatPrompter({"system": "Be {a}.", "user": "So {a}: {b} "}, system="").with_markers("qwen3")
    sample = prompter.training_sample({"a": "m", "b": "n", "input": "o"}, "p")
    found = [(token.text, token.message) for token in sample.tokens(chatml()) if token.message in (0, 1)]
    assert "".join(text for text, at in found if at == 0) == "Be m."
    assert "".join(text for text, at in found if at == 1) == "So m: n o"
    bare = Prompter(InstructionTemplate(), PromptTemplate("{input}"), system="").training_sample("a", "b")
    assert [token.message for token in bare.tokens(chatml())] == [0]


@pytest.mark.slow
def test_chat_template_tokens_have_the_index_of_their_message() -> None:
    template = ChatTemplate.load(templates()["qwen3_training"])
    roles = ("system", "user", "assistant", "user", "assistant")
    chat = [{"role": role, "content": f"m{at}"} for at, role in enumerate(roles)]
    sample = template.training_sample(chat, train="all")
    assert [text.strip() for text in texts_of(sample, chatml()).values()] == ["m0", "m1", "m2", "m3", "m4"]
    ends = [(token.message, token.trained) for token in sample.tokens(chatml()) if token.text == "<|im_end|>"]
    # The end markers of the assistant turns are trained.
    assert ends == [(None, False), (None, False), (2, True), (None, False), (4, True)]


@pytest.mark.slow
@each_family
def test_token_messages_of_200_random_conversations_are_correct(family: str, tokenizer: Any) -> None:
    draw = random.Random(29)  # noqa: S311 - the same conversations each time
    prompter = ChatPrompter("Be {a}.", system="").with_markers(family)
    end = Markers.for_model(family).eoa.rstrip()
    for _ in range(200):
        texts = [words(draw, "<|im_end|>", "</think>") for _ in range(2 * draw.randint(0, 4) + 3)]
        history = [texts[at : at + 2] for at in range(3, len(texts), 2)]
        values = {"a": texts[0], "input": texts[1]}
        sample = prompter.training_sample(values, texts[2], history, mask=r"\[\d\]")
        tokens, labels = sample.tokens(tokenizer()), sample.labels(tokenizer())
        assert [token.id for token in tokens] == labels.input_ids
        assert [token.id if token.trained else -100 for token in tokens] == labels.labels
        # The message of each character, according to prompts that grow by a turn.
        state: list[int | None] = [None] * len(sample.text)
        for at, (question, _) in enumerate([*history, texts[1:3]]):
            rendered = prompter.render(values | {"input": question}, history[:at])
            begin = 0
            for text, slot, _trusted in rendered.segments:
                if slot in ("input", "a", "instruction"):
                    state[begin : begin + len(text)] = [2 * at + 1 if slot == "input" else 0] * len(text)
                begin += len(text)
            # The end marker of a trained response belongs to it.
            length = sample.text.index(end, begin) - begin + (len(end) if at == len(history) else 0)
            state[begin : begin + length] = [2 * at + 2] * length
        done = 0
        for token in tokens:
            # Two tokens may have one character.
            begin = sample.text.index(token.text, max(0, done - 1))
            assert token.message == state[begin]
            done = begin + len(token.text)
        assert done == len(sample.text)
