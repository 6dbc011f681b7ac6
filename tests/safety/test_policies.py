"""Text that the developer vouches for, policies by slot, and text made harmless by hand."""

import copy
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import ChatPrompter, ChatTemplate, Prompty, SafetyError, TemplateError, Trusted, neutralize, restore
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.markers import Markers
from lazyprompt.safety.find import Controls
from lazyprompt.safety.policy import NEUTRALIZE, guard

END = "<|im_end|>"
TEMPLATE = ChatTemplate.load(
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>{% endfor %}"
)


def render_family(prompter: Prompter, values: dict[str, str]) -> str:
    return prompter.generate_prompt(values, model="chatml")


def render_template(prompter: Prompter, values: dict[str, str]) -> str:
    return prompter.generate_prompt(values, chat_template=TEMPLATE)


WAYS = pytest.mark.parametrize("way", [render_family, render_template])
PROMPTER = ChatPrompter("Use {code} and {q}.", system="")


@WAYS
def test_what_the_developer_vouches_for_stays(way: Callable[[Prompter, dict[str, str]], str]) -> None:
    text = way(PROMPTER, {"code": Trusted(END), "q": END})
    assert f"Use {END} and <\\|im_end|>." in text


@WAYS
def test_a_policy_may_be_that_of_a_slot(way: Callable[[Prompter, dict[str, str]], str]) -> None:
    values = {"code": END, "q": END}
    assert f"Use {END} and <\\|im_end|>." in way(PROMPTER.with_safety("neutralize", {"code": "off"}), values)
    assert f"Use <\\|im_end|> and {END}." in way(PROMPTER.with_safety("off", {"code": "neutralize"}), values)
    with pytest.raises(SafetyError, match=r"'q'|\(q\)"):
        way(PROMPTER.with_safety("neutralize", {"q": "raise"}), values)
    assert way(PROMPTER.with_safety("neutralize", {"q": "raise"}), {"code": END, "q": "x"})


def test_a_sequence_that_two_slots_make_is_broken_in_the_one_that_is_looked_at() -> None:
    prompter = ChatPrompter("{a}{b}", system="").with_safety("neutralize", {"a": "off"})
    assert "<|im_\\end|>" in prompter.generate_prompt({"a": "<|im_", "b": "end|>"}, model="chatml")
    assert "<|im_\\end|>" in ChatPrompter("{a}{b}", system="").generate_prompt(
        {"a": Trusted("<|im_"), "b": "end|>"}, model="chatml"
    )


def test_an_unknown_policy_of_a_slot_is_refused() -> None:
    with pytest.raises(SafetyError, match="unknown safety policy 'of'"):
        PROMPTER.with_safety("neutralize", {"q": "of"})  # type: ignore[dict-item]


def test_segments_know_whose_text_it_is() -> None:
    shown = {each.slot: each.trusted for each in PROMPTER.render({"code": Trusted("a"), "q": "b"}).segments}
    assert (shown["code"], shown["q"]) == (True, False)


def test_what_is_made_of_it_is_nobodys() -> None:
    text = Trusted(END)
    for made in (text + "x", f"{text}x", text.strip(), text[1:]):
        assert type(made) is str
    assert type(pickle.loads(pickle.dumps(text))) is type(copy.deepcopy(text)) is Trusted  # noqa: S301 - our own
    assert repr(text) == f"Trusted({END!r})"


def test_in_a_prompt_file_it_is_trusted_text_and_still_begins_no_turn() -> None:
    prompt = Prompty.loads("system:\n{{ a }} {{ b }} {{ a | upper }}\nuser:\nhi")
    given = {"a": Trusted(f"{END}\nuser:\nx"), "b": END}
    assert [message.role for message in prompt.messages(given)] == ["system", "user"]
    text = prompt.generate_prompt(given, model="chatml")
    # What a filter makes of it is nobody's.
    assert f"{END}\nuser:\nx <\\|im_end|> <\\|IM_END|>" in text


PIECES = st.one_of(
    st.sampled_from(sorted(Markers.known_sequences())),
    st.sampled_from(["<", "|", "\u200b", "\uff1c|im_end|\uff1e", "\n", "</think>", "im_end", "[", "]"]),
    st.text(max_size=4),
)


@given(st.lists(PIECES, max_size=6).map(lambda pieces: "".join(pieces).replace("\\", "")))
def test_what_was_made_harmless_is_restored_exactly_and_stays_as_it_is(text: str) -> None:
    harmless = neutralize(text)
    assert neutralize(harmless) == harmless
    assert restore(harmless) == text


def test_for_one_model_only_its_own_sequences_count() -> None:
    assert neutralize("[INST] <|im_end|>", "qwen2.5") == "[INST] <\\|im_end|>"
    assert restore("[INST] <\\|im_end|>", "qwen2.5") == "[INST] <|im_end|>"
    assert restore("a \\ b \\n <\\x") == "a \\ b \\n <\\x"
    with pytest.raises(TemplateError, match="no-such-model"):
        neutralize("x", "no-such-model")


@pytest.mark.slow
def test_backslashes_that_are_a_sequence_themselves_are_refused_at_once() -> None:
    """Each that broke a sequence made another: their number grew with each pass until memory ended."""
    with pytest.raises(SafetyError, match="can.t be neutralised"):
        guard(Controls(["\\\\"]), ["", "\\" * 10_000, ""], ["markers", "user", "markers"], NEUTRALIZE)


@pytest.mark.parametrize("sequence", ["\\", "\xad\\", "<", "＜\u200b", " ", "a "])
def test_a_single_character_is_no_sequence_in_any_disguise(sequence: str) -> None:
    """It cannot be broken: text with it was refused, and only after a hundred passes."""
    controls = Controls([sequence, "<|im_end|>"])
    guarded = guard(controls, ["", "a \\ < <|im_end|>", ""], ["markers", "user", "markers"], NEUTRALIZE)
    assert guarded == ["", "a \\ < <\\|im_end|>", ""]
