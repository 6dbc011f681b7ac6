"""Masks: text inside a response that is not trained."""

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
    ("response", "mask", "expected"),
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
def test_masked_text_of_a_response_is_not_trained(response: str, mask: Any, expected: list[str]) -> None:
    sample = PROMPTER.training_sample(VALUES, response, mask=mask)
    assert trained_texts(sample) == expected
    assert sample.text == PROMPTER.training_sample(VALUES, response).text
    assert pickle.loads(pickle.dumps(sample)) == sample  # noqa: S301 - made here
    assert trained_texts(sample.with_mask(())) == [f"{response}<|im_end|>"]


# Two responses, "abab" and "cab".
RESPONSES = [(2, 6), (8, 11)]


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
    assert find_masked("x<abab>-cab-", RESPONSES, mask) == Masked(tuple(masked), unmatched)


def test_mask_is_applied_to_each_trained_response_separately() -> None:
    history = [["a", "one"], ["b", "two"]]
    sample = PROMPTER.training_sample(VALUES, "three", history, train="all", mask=[r"^\w", r"two\W+three"])
    assert trained_texts(sample) == ["ne<|im_end|>", "wo<|im_end|>", "hree<|im_end|>"]
    # The mask is not applied to untrained text.
    sample = PROMPTER.training_sample(VALUES, "three", history, mask=["two", "e"])
    assert trained_texts(sample) == ["thr", "<|im_", "nd|>"]
    assert sample.unmatched == ("two",)


def test_mask_patterns_without_a_match_are_reported() -> None:
    sample = PROMPTER.training_sample(VALUES, "ab", mask=["a", "y*", "<think>"])
    assert sample.unmatched == ("y*", "<think>")
    assert PROMPTER.training_sample(VALUES, "ab", mask=lambda _: []).unmatched == ()


KINDS = "a mask must be a string, a list of strings or a function"
SPANS = "for a response of 12 characters; expected (start, end)"


def test_chat_template_accepts_a_mask() -> None:
    template = ChatTemplate.load(CHATML)
    chat = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": f"{SCAFFOLD}Oui."}]
    # The text of a response is a value: it is neutralized before the mask is applied.
    sample = template.training_sample(chat, mask=EMPTY_THOUGHT, safety="off")
    assert trained_texts(sample) == ["Oui.<|im_end|>"]
    by_prompter = PROMPTER.training_sample(VALUES, "[1]Oui.", mask=r"\[1\]", chat_template=template)
    assert trained_texts(by_prompter) == ["Oui.<|im_end|>"]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("(", "the mask's pattern '(' is not a valid regular expression: missing ) at position 1"),
        ([re.compile("a")], f"{KINDS}, not re.compile('a'); for a compiled pattern, use its .pattern"),
        ([3], f"{KINDS}, not 3; for a compiled pattern, use its .pattern"),
        *((lambda _, each=each: [each], f"the mask returned {each} {SPANS}") for each in ((2, 1), (0, 13), 3, (-1, 1))),
        (lambda _: ["ab"], f"the mask returned 'ab' {SPANS}"),
    ],
)
def test_invalid_mask_is_refused(mask: Any, message: str) -> None:
    with pytest.raises(FormatError) as refused:
        PROMPTER.training_sample(VALUES, "ab", mask=mask)
    assert str(refused.value) == message


@pytest.mark.slow
def test_mask_pattern_with_exponential_time_is_stopped() -> None:
    """Python's ``re`` would need more than 2 ** 60 steps."""
    with pytest.raises(FormatError, match=r"takes more than 1 s for 71 characters"):
        PROMPTER.training_sample(VALUES, "a" * 60 + "!", mask=r"(a|a)+$")


@pytest.mark.parametrize("form", ["openai", "alpaca", "sharegpt", "trl"])
def test_message_formats_refuse_masked_text_inside_a_response(form: str) -> None:
    sample = PROMPTER.training_sample(VALUES, f"{SCAFFOLD}Oui.", mask=EMPTY_THOUGHT)
    message = rf"^the {form} format can't express masked text inside a response; use features\(\), or trl-text$"
    with pytest.raises(FormatError, match=message):
        sample.export(form)
    assert PROMPTER.training_sample(VALUES, "Oui.", mask=EMPTY_THOUGHT).export(form)


def test_trl_text_puts_a_masked_beginning_into_the_prompt() -> None:
    sample = PROMPTER.training_sample(VALUES, f"{SCAFFOLD}Oui.", mask=EMPTY_THOUGHT)
    prompt = PROMPTER.generate_prompt(VALUES)
    assert sample.export("trl-text") == {"prompt": f"{prompt}{SCAFFOLD}", "completion": "Oui.<|im_end|>"}
    with pytest.raises(FormatError, match="untrained text after trained text"):
        PROMPTER.training_sample(VALUES, "a[1]b", mask=r"\[1\]").export("trl-text")


# "hello" and " world" are tokens.
@pytest.mark.parametrize(("mask", "left"), [("hel", [" world"]), ("llo", [" world"]), ("o w", []), ("orl", ["hello"])])
def test_token_with_masked_text_is_not_trained(mask: str, left: list[str]) -> None:
    sample = PROMPTER.training_sample(VALUES, "hello world", mask=mask)
    ids, labels, straddling = sample.labels(chatml())
    assert chatml().decode([label for label in labels if label != -100]) == "".join(left) + "<|im_end|>"
    assert {chatml().decode([ids[at]]) for at in straddling} == {"hello", " world"} - {*left}


@lru_cache(maxsize=1)
def _bytes_of_characters() -> dict[str, int]:
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
        else bytes(_bytes_of_characters()[character] for character in tokenizer.convert_ids_to_tokens(made))
        for made in ids
    ]


MASKS = (EMPTY_THOUGHT, r"\[\d+\]", "(?s)^.{0,3}", r"\s+$|好", "o|1", "<think>")


@pytest.mark.slow
@each_family
def test_token_labels_of_200_random_conversations_are_correct(family: str, tokenizer: Any) -> None:
    """The expected labels come from the prompts alone: only the text and the ids of the sample are used."""
    draw = random.Random(28)  # noqa: S311 - the same conversations each time
    prompter = ChatPrompter("Be {a}.", system="").with_markers(family)
    end = Markers.for_model(family).eoa.rstrip()
    counts = Counter[str]()

    for _ in range(200):
        # A trained response of the history with reasoning in its text is refused.
        history = [[words(draw, SCAFFOLD, *FORGED), words(draw)] for _ in range(draw.randint(0, 4))]
        turns = [*history, [words(draw, SCAFFOLD, *FORGED), words(draw, SCAFFOLD)]]
        values = {"a": words(draw, SCAFFOLD, *FORGED), "input": turns[-1][0]}
        masks = draw.sample(MASKS, draw.randint(1, 3))
        train: Literal["last", "all"] = draw.choice(("last", "all"))
        sample = prompter.training_sample(values, turns[-1][1], history, train=train, mask=masks)
        state = ["other"] * len(sample.text)
        for at in range(len(turns)) if train == "all" else [len(history)]:
            start = len(prompter.generate_prompt(values | {"input": turns[at][0]}, history[:at]))
            whole = turns[at][1] + end
            assert sample.text.startswith(whole, start)
            state[start : start + len(whole)] = ["trained"] * len(whole)
            for match in chain.from_iterable(re.finditer(mask, whole) for mask in masks):
                state[start + match.start() : start + match.end()] = ["masked"] * len(match[0])
        ids, labels, straddling = sample.labels(tokenizer())
        of_bytes = [kind for character, kind in zip(sample.text, state, strict=True) for _ in character.encode()]
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
