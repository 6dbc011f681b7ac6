"""Masks: text inside an answer that is not trained."""

import pickle
import random
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

import pytest

from lazyprompt import ChatPrompter, ChatTemplate, Markers
from lazyprompt.errors import FormatError
from lazyprompt.training.masks import Masked, find_masked
from support.vocabularies import chatml
from training.helpers import EMPTY_THOUGHT, FORGED, SCAFFOLD, each_family, trained_texts, words

PROMPTER = ChatPrompter("Be {a}.", system="").with_markers("qwen3")
VALUES = {"a": "kind", "input": "Yes?"}
CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


@pytest.mark.parametrize(
    ("answer", "mask", "left"),
    [
        (f"{SCAFFOLD}Oui.", EMPTY_THOUGHT, ["Oui.<|im_end|>"]),
        ("<think>\nhm\n</think>\n\nOui.", EMPTY_THOUGHT, ["<think>\nhm\n</think>\n\nOui.<|im_end|>"]),
        ("a[1]b[2]c", [r"\[\d\]"], ["a", "b", "c<|im_end|>"]),
        ("a[1]b", [r"\[1", r"1\]"], ["a", "b<|im_end|>"]),
        ("ab", "^a", ["b<|im_end|>"]),
        ("ab", "(?s).*", []),
        ("ab", "x*", ["ab<|im_end|>"]),
        ("ab", "Be kind", ["ab<|im_end|>"]),
        ("ab", lambda text: [(0, text.index("b"))], ["b<|im_end|>"]),
        ("ab", lambda text: [(1, 2), (0, 1)] if text.endswith("<|im_end|>") else [], ["<|im_end|>"]),
        ("ab", (), ["ab<|im_end|>"]),
    ],
)
def test_what_a_mask_finds_in_an_answer_is_not_trained_texts(answer: str, mask: Any, left: list[str]) -> None:
    sample = PROMPTER.training_sample(VALUES, answer, mask=mask)
    assert trained_texts(sample) == left
    assert sample.text == PROMPTER.training_sample(VALUES, answer).text
    assert pickle.loads(pickle.dumps(sample)) == sample  # noqa: S301 - made here
    assert trained_texts(sample.with_mask(())) == [f"{answer}<|im_end|>"]


# Two responses, "abab" and "cab".
ANSWERS = [(2, 6), (8, 11)]


@pytest.mark.parametrize(
    ("mask", "masked", "unmatched"),
    [
        ("ab", [(2, 6), (9, 11)], ()),
        ("b", [(3, 4), (5, 6), (10, 11)], ()),
        (["^ab", "x", "ba", ""], [(2, 5)], ("x", "")),
        (["ba", "abab", "c"], [(2, 6), (8, 9)], ()),
        (["b.*", "ba"], [(3, 6), (10, 11)], ()),
        ([], [], ()),
        (lambda text: [(0, len(text))], [(2, 6), (8, 11)], ()),
        (lambda _: [(0, 0), (3, 3)], [], ()),
        (lambda text: [(2, 3), (1, 2)] if text == "cab" else (), [(9, 11)], ()),
    ],
)
def test_masked_text_is_found_in_each_response(mask: Any, masked: list[Any], unmatched: tuple[str, ...]) -> None:
    """Adjacent and overlapping text is joined, in order; empty text is left out."""
    assert find_masked("x<abab>-cab-", ANSWERS, mask) == Masked(tuple(masked), unmatched)


def test_each_answer_is_looked_at_by_itself() -> None:
    history = [["a", "one"], ["b", "two"]]
    sample = PROMPTER.training_sample(VALUES, "three", history, train="all", mask=[r"^\w", r"two\W+three"])
    assert trained_texts(sample) == ["ne<|im_end|>", "wo<|im_end|>", "hree<|im_end|>"]
    # Nothing that is not trained is looked at.
    sample = PROMPTER.training_sample(VALUES, "three", history, mask=["two", "e"])
    assert trained_texts(sample) == ["thr", "<|im_", "nd|>"]
    assert sample.unmatched == ("two",)


def test_patterns_that_match_nowhere_are_reported() -> None:
    sample = PROMPTER.training_sample(VALUES, "ab", mask=["a", "y*", "<think>"])
    assert sample.unmatched == ("y*", "<think>")
    assert PROMPTER.training_sample(VALUES, "ab", mask=lambda _: []).unmatched == ()


KINDS = "a mask must be a string, a list of strings or a function"
SPANS = "for a response of 12 characters; expected (start, end)"


def test_templates_take_masks_too() -> None:
    template = ChatTemplate.load(CHATML)
    chat = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": f"{SCAFFOLD}Oui."}]
    # The text of an answer is a value: it is broken before it is looked at.
    sample = template.training_sample(chat, mask=EMPTY_THOUGHT, safety="off")
    assert trained_texts(sample) == ["Oui.<|im_end|>"]
    by_prompter = PROMPTER.training_sample(VALUES, "[1]Oui.", mask=r"\[1\]", chat_template=template)
    assert trained_texts(by_prompter) == ["Oui.<|im_end|>"]


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        ("(", "the mask's pattern '(' is not a valid regular expression: missing ) at position 1"),
        ([re.compile("a")], f"{KINDS}, not re.compile('a'); for a compiled pattern, use its .pattern"),
        ([3], f"{KINDS}, not 3; for a compiled pattern, use its .pattern"),
        *((lambda _, each=each: [each], f"the mask returned {each} {SPANS}") for each in ((2, 1), (0, 13), 3, (-1, 1))),
        (lambda _: ["ab"], f"the mask returned 'ab' {SPANS}"),
    ],
)
def test_a_mask_that_is_none_is_refused(mask: Any, told: str) -> None:
    with pytest.raises(FormatError) as refused:
        PROMPTER.training_sample(VALUES, "ab", mask=mask)
    assert str(refused.value) == told


@pytest.mark.slow
def test_a_pattern_that_would_take_forever_is_stopped() -> None:
    """The naive version: ``re`` would take more than 2 ** 60 steps."""
    with pytest.raises(FormatError, match=r"takes more than 1 s for 71 characters"):
        PROMPTER.training_sample(VALUES, "a" * 60 + "!", mask=r"(a|a)+$")


@pytest.mark.parametrize("form", ["openai", "alpaca", "sharegpt", "trl"])
def test_forms_of_messages_have_no_place_for_a_mask(form: str) -> None:
    sample = PROMPTER.training_sample(VALUES, f"{SCAFFOLD}Oui.", mask=EMPTY_THOUGHT)
    told = rf"^the {form} format can't express masked text inside a response; use features\(\), or trl-text$"
    with pytest.raises(FormatError, match=told):
        sample.export(form)
    assert PROMPTER.training_sample(VALUES, "Oui.", mask=EMPTY_THOUGHT).export(form)


def test_text_forms_count_a_masked_beginning_to_the_prompt() -> None:
    sample = PROMPTER.training_sample(VALUES, f"{SCAFFOLD}Oui.", mask=EMPTY_THOUGHT)
    prompt = PROMPTER.generate_prompt(VALUES)
    assert sample.export("trl-text") == {"prompt": f"{prompt}{SCAFFOLD}", "completion": "Oui.<|im_end|>"}
    with pytest.raises(FormatError, match="untrained text after trained text"):
        PROMPTER.training_sample(VALUES, "a[1]b", mask=r"\[1\]").export("trl-text")


def test_a_token_that_holds_masked_text_is_not_trained_texts() -> None:
    # "hello" is a token of its own, as is " world".
    for mask, left in (("hel", [" world"]), ("llo", [" world"]), ("o w", []), ("orl", ["hello"])):
        sample = PROMPTER.training_sample(VALUES, "hello world", mask=mask)
        ids, labels, straddling = sample.labels(chatml())
        assert chatml().decode([label for label in labels if label != -100]) == "".join(left) + "<|im_end|>"
        assert {chatml().decode([ids[at]]) for at in straddling} == {"hello", " world"} - {*left}


@lru_cache(maxsize=1)
def _bytes_of_signs() -> dict[str, int]:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


def _pieces(tokenizer: Any, ids: Iterable[int]) -> list[bytes]:
    """The bytes of each token, of the vocabulary alone."""
    if hasattr(tokenizer, "decode_single_token_bytes"):
        return [tokenizer.decode_single_token_bytes(made) for made in ids]
    added = tokenizer.added_tokens_decoder
    return [
        added[made].content.encode()
        if made in added
        else bytes(_bytes_of_signs()[sign] for sign in tokenizer.convert_ids_to_tokens(made))
        for made in ids
    ]


MASKS = (EMPTY_THOUGHT, r"\[\d+\]", "(?s)^.{0,3}", r"\s+$|好", "o|1", "<think>")


@pytest.mark.slow
@each_family
def test_no_token_of_200_conversations_is_astray(family: str, tokenizer: Any) -> None:
    """Each token, against bytes that are counted off the prompts: nothing of the sample but its ids is asked for."""
    draw = random.Random(28)  # noqa: S311 - the same conversations each time
    prompter = ChatPrompter("Be {a}.", system="").with_markers(family)
    end = Markers.for_model(family).eoa.rstrip()
    counts = Counter[str]()

    for _ in range(200):
        # An answer of the history that thinks in its text is refused.
        talk = [[words(draw, SCAFFOLD, *FORGED), words(draw)] for _ in range(draw.randint(0, 4))]
        turns = [*talk, [words(draw, SCAFFOLD, *FORGED), words(draw, SCAFFOLD)]]
        values = {"a": words(draw, SCAFFOLD, *FORGED), "input": turns[-1][0]}
        masks = draw.sample(MASKS, draw.randint(1, 3))
        train: Literal["last", "all"] = draw.choice(("last", "all"))
        sample = prompter.training_sample(values, turns[-1][1], talk, train=train, mask=masks)
        state = ["other"] * len(sample.text)
        for at in range(len(turns)) if train == "all" else [len(talk)]:
            start = len(prompter.generate_prompt(values | {"input": turns[at][0]}, talk[:at]))
            whole = turns[at][1] + end
            assert sample.text.startswith(whole, start)
            state[start : start + len(whole)] = ["trained"] * len(whole)
            for match in chain.from_iterable(re.finditer(mask, whole) for mask in masks):
                state[start + match.start() : start + match.end()] = ["masked"] * len(match[0])
        ids, labels, straddling = sample.labels(tokenizer())
        of_bytes = [kind for sign, kind in zip(sample.text, state, strict=True) for _ in sign.encode()]
        done = 0
        for at, (made, label, piece) in enumerate(zip(ids, labels, _pieces(tokenizer(), ids), strict=True)):
            kinds = of_bytes[done : done + len(piece)]
            done += len(piece)
            assert label == (made if kinds[0] == "trained" and "masked" not in kinds else -100)
            assert at in straddling or len({kind == "trained" for kind in kinds}) == 1
            counts[kinds[0]] += 1
        assert done == len(of_bytes)
    assert min(counts.values()) > 500
    assert len(counts) == 3
