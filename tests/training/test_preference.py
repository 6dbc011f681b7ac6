"""Preference pairs: one prompt, two responses, and the labels of TRL's trainers and collators."""

import pickle
import random
from importlib import import_module

import pytest

from lazyprompt import ChatPrompter, Msg, PreferenceSample, Prompter, PromptTemplate
from lazyprompt.errors import FormatError, HistoryError
from lazyprompt.templates.instruction import InstructionTemplate
from support.real_tokenizers import deepseek_tokenizer
from support.vocabularies import chatml
from training.helpers import CALL, EMPTY_THOUGHT, SCAFFOLD, words

PROMPTER = ChatPrompter("Be {a}.", system="").with_markers("qwen3")
VALUES = {"a": "kind", "input": "Yes?"}
MESSAGES = [{"role": "system", "content": "Be kind.\n\n"}, {"role": "user", "content": "Yes?"}]


def sky(city: str) -> str:
    """Tell the weather."""
    return city


def test_chosen_and_rejected_equal_the_training_samples_of_their_responses() -> None:
    history = [["a", "b"]]
    pair = PROMPTER.preference_sample(VALUES, "Oui.", "Non.", history, [sky], mask="O")
    for side, answer in ((pair.chosen, "Oui."), (pair.rejected, "Non.")):
        assert side == PROMPTER.training_sample(VALUES, answer, history, [sky], mask="O")
    assert pickle.loads(pickle.dumps(pair)) == pair  # noqa: S301 - made here
    by_model = ChatPrompter("Be {a}.", system="").preference_sample(VALUES, "Oui.", "Non.", model="qwen3")
    assert by_model == PROMPTER.preference_sample(VALUES, "Oui.", "Non.")


def test_preference_pairs_export_to_the_trl_formats() -> None:
    pair = PROMPTER.preference_sample(VALUES, "Oui.", "Non.")
    prompt = PROMPTER.generate_prompt(VALUES)
    chosen, rejected = ([{"role": "assistant", "content": text}] for text in ("Oui.", "Non."))
    assert pair.export("trl") == {"prompt": MESSAGES, "chosen": chosen, "rejected": rejected}
    assert pair.export("trl-text") == {"prompt": prompt, "chosen": "Oui.<|im_end|>", "rejected": "Non.<|im_end|>"}
    assert pair.export_unpaired("trl") == (
        {"prompt": MESSAGES, "completion": chosen, "label": True},
        {"prompt": MESSAGES, "completion": rejected, "label": False},
    )
    message = r"^unknown .* 'trl-txt' for pairs \(did you mean 'trl-text'\?\); expected one of trl, trl-text$"
    with pytest.raises(FormatError, match=message):
        pair.export("trl-txt")


def test_preference_response_may_be_a_message_with_tool_calls() -> None:
    pair = PROMPTER.preference_sample(VALUES, CALL, Msg("assistant", "No idea.", "assistant"), tools=[sky])
    exported = pair.export("trl")
    function = {"name": "sky", "arguments": {"city": "Köln"}}
    assert exported["chosen"] == [CALL | {"tool_calls": [{"id": "a", "type": "function", "function": function}]}]
    assert exported["rejected"] == [{"role": "assistant", "content": "No idea."}]
    assert exported["tools"] == [*PROMPTER.generate_prompt(VALUES, tools=[sky], return_dict=True)["tools"]]
    text = pair.export("trl-text")["chosen"]
    assert text == 'Let me see.\n<tool_call>\n{"name": "sky", "arguments": {"city": "Köln"}}\n</tool_call><|im_end|>'
    message = "^the response is a message with the role 'user'; expected an assistant message without"
    with pytest.raises(HistoryError, match=message):
        PROMPTER.preference_sample(VALUES, MESSAGES[1], "a")
    # A training sample accepts the message as its label as well.
    assert PROMPTER.training_sample(VALUES, CALL, tools=[sky]) == pair.chosen


def test_pair_with_equal_responses_is_refused() -> None:
    end = r": 'Oui\.<\|im_end\|>'; omit this pair$"
    with pytest.raises(FormatError, match=f"^chosen and rejected have the same response{end}"):
        PROMPTER.preference_sample(VALUES, "Oui.", "Oui.")
    with pytest.raises(FormatError, match=f"same response except for masked text{end}"):
        PROMPTER.preference_sample(VALUES, "O[1]ui.", "O[2]ui.", mask=r"\[\d\]")
    with pytest.raises(FormatError, match=f"same response: '{'x' * 80}'; omit this pair$"):
        PROMPTER.preference_sample(VALUES, "x" * 81, "x" * 81)
    assert PROMPTER.preference_sample(VALUES, "", "Oui.").export("trl-text")["chosen"] == "<|im_end|>"


def test_pair_with_different_prompts_is_refused() -> None:
    bare = Prompter(InstructionTemplate(), PromptTemplate("{input}"), system="")
    with pytest.raises(FormatError, match="starting at character 1: '' and 'b'; use the same prompt"):
        PreferenceSample(bare.training_sample("a", "x"), bare.training_sample("ab", "y"))
    samples = [PROMPTER.training_sample({"a": how, "input": "Yes?"}, "Oui.") for how in ("kind", "kin")]
    with pytest.raises(FormatError) as refused:
        PreferenceSample(*samples)
    assert str(refused.value) == (
        "the prompts of chosen and rejected differ, starting at character 25: "
        "'d.\\n\\n<|im_end|>\\n<|im_start|>user\\nYes?<|im' and '.\\n\\n<|im_end|>\\n<|im_start|>user\\nYes?<|im_'; "
        "use the same prompt for both"
    )


def test_mask_pattern_that_matches_neither_response_is_reported() -> None:
    pair = PROMPTER.preference_sample(VALUES, f"{SCAFFOLD}Oui.", "Non.", mask=[EMPTY_THOUGHT, "x", "N"])
    assert pair.unmatched == ("x",)


def test_masked_beginning_of_both_responses_belongs_to_the_prompt() -> None:
    answers = f"{SCAFFOLD}Oui.", f"{SCAFFOLD}Non."
    pair = PROMPTER.preference_sample(VALUES, *answers, mask=EMPTY_THOUGHT)
    prompt = PROMPTER.generate_prompt(VALUES) + SCAFFOLD
    assert pair.export("trl-text") == {"prompt": prompt, "chosen": "Oui.<|im_end|>", "rejected": "Non.<|im_end|>"}
    ids = pair.features(chatml())
    texts = [chatml().decode(ids[key]) for key in ("prompt_ids", "chosen_ids", "rejected_ids")]
    assert texts == [prompt, "Oui.<|im_end|>", "Non.<|im_end|>"]
    assert pair.unpaired_features(chatml()) == (
        {"prompt_ids": ids["prompt_ids"], "completion_ids": ids["chosen_ids"], "label": True},
        {"prompt_ids": ids["prompt_ids"], "completion_ids": ids["rejected_ids"], "label": False},
    )
    whole = pair.reward_features(chatml())
    texts = [chatml().decode(whole["chosen_ids"]), chatml().decode(whole["rejected_ids"])]
    assert texts == [pair.chosen.text, pair.rejected.text]
    with pytest.raises(FormatError, match="masked text inside a response; use features"):
        pair.export("trl")


@pytest.mark.parametrize("begun", ["", "<think>\n</think>\n\n"])
def test_different_masked_beginnings_are_refused(begun: str) -> None:
    pair = PROMPTER.preference_sample(VALUES, f"{SCAFFOLD}Oui.", f"{begun}Non.", mask=EMPTY_THOUGHT)
    for made in (lambda: pair.export("trl-text"), lambda: pair.features(chatml())):
        with pytest.raises(FormatError) as refused:
            made()
        assert str(refused.value) == (
            f"one response begins with the masked text {SCAFFOLD!r}, the other with {begun!r}; TRL requires the same "
            "prompt for both, so add this text to both responses or to neither"
        )
    assert pair.reward_features(chatml())
    pair = PROMPTER.preference_sample(VALUES, "Oui.", "Non.", mask=r"Oui\.<\|im_end\|>")
    with pytest.raises(FormatError, match="^the trl-text format can't express a conversation without trained text"):
        pair.export("trl-text")


def test_masked_text_inside_a_response_is_refused_in_trl_features() -> None:
    pair = PROMPTER.preference_sample(VALUES, "a [1] b", "c", mask=r"\[1\]")
    for made in (pair.features, pair.unpaired_features):
        with pytest.raises(FormatError, match="text inside a response can't be masked"):
            made(chatml())
    assert pair.chosen.features(chatml())["labels"].count(-100) > 0
    pair = PROMPTER.preference_sample(VALUES, f"{SCAFFOLD}\n\nOui.", f"{SCAFFOLD}Non.", mask="<think>\n\n</think>\n\n")
    with pytest.raises(FormatError, match="also mask the whitespace"):
        pair.features(chatml())


@pytest.mark.parametrize(
    ("rejected", "expected"), [("p me", ["Oh", " hello you", " help me"]), ("lo me", ["Oh hello", " you", " me"])]
)
def test_token_across_the_prompt_border_belongs_to_the_responses_if_they_differ(
    rejected: str, expected: list[str]
) -> None:
    bare = Prompter(InstructionTemplate(), PromptTemplate("{input}"), system="")
    pair = bare.preference_sample("Oh hel", "lo you", rejected)
    ids = pair.features(chatml())
    assert [chatml().decode(made) for made in (ids["prompt_ids"], ids["chosen_ids"], ids["rejected_ids"])] == expected
    assert pair.chosen.labels(chatml()).straddling == [1]


def random_pairs(count: int) -> list[tuple[PreferenceSample, str]]:
    draw = random.Random(28)  # noqa: S311 - the same each time
    pairs: list[tuple[PreferenceSample, str]] = []
    for at in range(count):
        texts = [words(draw, "<|im_end|>", "</think>") for _ in range(6)]
        values, start, history = {"a": texts[0], "input": texts[1]}, draw.choice(("", SCAFFOLD)), [texts[4:]]
        prompter = ChatPrompter("Be {a}.", system="").with_markers(("qwen3", "deepseek-v3")[at % 2])
        # A line break before a response may be one token with the line break at its beginning.
        answers = [f"{start}{side}{text.lstrip()}" for side, text in zip("+-", texts[2:4], strict=True)]
        pair = prompter.preference_sample(values, answers[0], answers[1], history, mask=EMPTY_THOUGHT)
        pairs.append((pair, prompter.generate_prompt(values, history) + start))
    return pairs


@pytest.mark.slow
def test_pair_features_share_the_prompt_ids() -> None:
    for at, (pair, prompt) in enumerate(random_pairs(60)):
        tokenizer = deepseek_tokenizer() if at % 2 else chatml()
        ids = pair.features(tokenizer)
        assert tokenizer.decode(ids["prompt_ids"]) == prompt
        for side, key in ((pair.chosen, "chosen_ids"), (pair.rejected, "rejected_ids")):
            whole, labels, straddling = side.labels(tokenizer)
            answer = ids[key]  # type: ignore[literal-required]
            assert not straddling
            assert [label for label in labels if label != -100] == answer
            assert whole[: len(ids["prompt_ids"]) + len(answer)] == ids["prompt_ids"] + answer


@pytest.mark.slow
def test_trl_collators_train_the_labelled_tokens() -> None:
    """TRL needs torch, five gigabytes: only one stage of the workflow runs this test."""
    pytest.importorskip("trl", reason="trl is not installed; the workflow does, in its stage trainers")
    dpo, kto, reward = (import_module(f"trl.trainer.{name}_trainer") for name in ("dpo", "kto", "reward"))
    for tokenizer, parity in ((chatml(), 0), (deepseek_tokenizer(), 1)):
        pairs = [pair for pair, _ in random_pairs(200)[parity::2]]
        both = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
        collated = dpo.DataCollatorForPreference(pad_token_id=0)([pair.features(tokenizer) for pair in pairs])
        rows = [row for pair in pairs for row in pair.unpaired_features(tokenizer)]
        unpaired = kto.DataCollatorForUnpairedPreference(pad_token_id=0)(rows)
        sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
        for batch, samples in ((collated, both), (unpaired, sides)):
            for ids, mask, attention, sample in zip(
                *(batch[name].tolist() for name in ("input_ids", "completion_mask", "attention_mask")),
                samples,
                strict=True,
            ):
                whole, labels, _ = sample.labels(tokenizer)
                length = sum(attention)
                assert ids[:length] == whole[:length]
                assert [made if on else -100 for made, on in zip(ids, mask, strict=True)][:length] == labels[:length]
                # Only the text after the end of the response is left out.
                assert set(labels[length:]) <= {-100}
                assert not any(mask[length:])
        assert unpaired["label"].tolist() == [True, False] * len(pairs)
        scored = reward.DataCollatorForPreference(pad_token_id=0)([pair.reward_features(tokenizer) for pair in pairs])
        for ids, attention, sample in zip(
            scored["input_ids"].tolist(), scored["attention_mask"].tolist(), both, strict=True
        ):
            assert ids[: sum(attention)] == sample.labels(tokenizer).input_ids
