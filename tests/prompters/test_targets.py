"""What all targets of a prompter have in common, for conversations of every shape."""

import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import (
    Budget,
    CharTokenCounter,
    ChatFormatter,
    ChatPrompter,
    ChatTemplate,
    FormatError,
    Markers,
    Msg,
    Profile,
    SafetyError,
    TemplateError,
    ToolResultBlock,
    messages_from,
)
from lazyprompt.formatters.chat_form import ChatForm
from support.conversations import Maker

FORMATS = ("flat", "openai", "anthropic", "gemini", "openai-responses", "dashscope", "ollama", "mistral")
SEEDS = st.integers(0, 1_000_000)
PROMPTER = ChatPrompter({"system": "Help {who}.", "user": "Say: {what}"})
VALUES = {"who": "Ada", "what": "yes"}
# A limit that everything keeps to.
AMPLE = Budget(10_000_000, CharTokenCounter())


def conversation(seed: int) -> list[Msg]:
    """A conversation without system text in its middle, which flat text has a turn for and other forms move."""
    return [each for each in Maker(Random(seed)).conversation() if each.role in ("user", "assistant", "tool")]  # noqa: S311 - no secret


def render_form(form: str, history: Sequence[Any], prompter: ChatPrompter = PROMPTER) -> object:
    """The prompt in a form; None where the form cannot show the history."""
    try:
        return prompter.generate_prompt(VALUES, list(history), format=form)
    except FormatError:
        return None


@pytest.mark.parametrize("form", FORMATS)
@given(seed=SEEDS)
def test_generate_prompt_is_filling_and_rendering(form: str, seed: int) -> None:
    history = conversation(seed)
    prompt, target = PROMPTER.fill(VALUES, history), PROMPTER.target(form)
    whole = render_form(form, history)
    if whole is not None:
        assert target.render(prompt) == whole
        assert target.render(pickle.loads(pickle.dumps(prompt))) == whole  # noqa: S301 - made right here
    else:
        with pytest.raises(FormatError):
            target.render(prompt)


@pytest.mark.parametrize("form", FORMATS)
@given(seed=SEEDS)
def test_an_ample_budget_changes_no_prompt(form: str, seed: int) -> None:
    history = conversation(seed)
    whole = render_form(form, history)
    assert render_form(form, history, PROMPTER.with_budget(AMPLE)) == whole


@given(seed=SEEDS)
def test_segments_make_up_the_text(seed: int) -> None:
    prompt, target = PROMPTER.fill(VALUES, conversation(seed)), PROMPTER.text_target("qwen2.5")
    try:
        text = target.render(prompt)
    except FormatError:
        return
    assert "".join(segment.text for segment in target.segments(prompt).segments) == text


@pytest.mark.parametrize("form", FORMATS)
@given(seed=SEEDS)
def test_a_history_of_openai_dicts_gives_what_its_messages_give(form: str, seed: int) -> None:
    """The quick reading of dicts knew a few shapes alone, and all others took another way."""
    try:
        dicts = ChatFormatter("openai").format(*conversation(seed))["messages"]
    except FormatError:
        return
    history = messages_from(dicts)
    assert render_form(form, dicts) == render_form(form, history)


@given(seed=SEEDS)
def test_openais_dict_and_a_payload_for_openai_say_the_same(seed: int) -> None:
    """The prompter writes the dict itself, and the formatter repairs what OpenAI would refuse: texts stay the same."""
    try:
        dicts = ChatFormatter("openai").format(*conversation(seed))["messages"]
    except FormatError:
        return
    whole: Any = PROMPTER.generate_prompt(VALUES, dicts, return_dict=True)
    repaired = ChatFormatter("openai").format(*whole["messages"])["messages"]
    assert texts(repaired) == texts(whole["messages"])


@given(seed=SEEDS)
def test_each_form_has_the_texts_of_the_history(seed: int) -> None:
    """Every text of the maker has a mark, by which it is found again, be it in text, a dict or a payload."""
    history = conversation(seed)
    said = {
        part
        for message in history
        for block in message.blocks
        if block.type in ("text", "tool_result")
        for part in marks(getattr(block, "text", "") if not isinstance(block, ToolResultBlock) else block.text)
    }
    for form in ("flat", "openai", "anthropic"):
        whole = render_form(form, history)
        if whole is not None:
            assert said <= marks(str(whole)), form


def texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The marks of the texts of messages, in order."""
    return sorted(mark for message in messages for mark in marks(str(message)))


def marks(text: str) -> set[str]:
    """The marks in a text."""
    return set(text.split("§")[1::2])


@pytest.mark.parametrize("model", ["gpt-5.6", "a-model-of-ours"])
def test_openais_form_takes_a_model_of_no_family(model: str) -> None:
    """It was refused with the advice to give the very form that was given."""
    assert PROMPTER.generate_prompt(VALUES, format="openai", model=model) == PROMPTER.generate_prompt(
        VALUES, format="openai"
    )
    with pytest.raises(TemplateError, match='format="openai"'):
        PROMPTER.generate_prompt(VALUES, model=model)


PARROT = Profile(name="parrot", form=ChatForm(), source="https://parrot.example/docs", alternate=True)
BIRD = Markers(sos="<|sys|>", eos="<|end|>", soh="<|usr|>", eoh="<|end|>", soa="<|bot|>", eoa="<|end|>")
TEMPLATE = ChatTemplate.load("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}")
HISTORY = [{"role": "user", "content": "A"}, {"role": "user", "content": "B"}]


def test_a_format_may_be_a_profile_of_your_own() -> None:
    messages = PROMPTER.generate_prompt(VALUES, HISTORY, return_dict=True)["messages"]
    expected = ChatFormatter(PARROT).format(messages)
    assert [each["role"] for each in expected["messages"]] == ["system", "user"]
    assert PROMPTER.generate_prompt(VALUES, HISTORY, format=PARROT) == expected
    assert PROMPTER.with_budget(AMPLE).fit(VALUES, HISTORY, format=PARROT)[0] == expected
    assert PROMPTER.target(PARROT) is PROMPTER.target(PARROT)


def test_a_model_may_be_markers_or_a_chat_template() -> None:
    for model, prompter in ((BIRD, PROMPTER.with_markers(BIRD)), (TEMPLATE, PROMPTER.with_chat_template(TEMPLATE))):
        expected = prompter.generate_prompt(VALUES, HISTORY)
        assert PROMPTER.generate_prompt(VALUES, HISTORY, model=model) == expected
        assert PROMPTER.render(VALUES, HISTORY, model=model).text == expected
        assert PROMPTER.with_budget(AMPLE).fit(VALUES, HISTORY, model=model)[0] == expected
        sample, same = (
            each.training_sample(VALUES, "C", model=own) for each, own in ((PROMPTER, model), (prompter, None))
        )
        assert sample == same
        # For a server that tokenizes messages, the model determines the control sequences.
        guarded = PROMPTER.generate_prompt({"who": "<|end|>", "what": "<|user|>"}, format="vllm", model=model)
        assert guarded["messages"][0]["content"] == "You are an AI-Agent developed by LazyLLM.\nHelp <\\|end|>."
    own = BIRD.evolve(system="Sing.")
    assert PROMPTER.generate_prompt(VALUES, format="openai", model=own)["messages"][0]["content"] == "Sing.\nHelp Ada."


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"format": object()}, "format must be a name or a Profile, not object; expected one of flat, openai"),
        ({"format": BIRD}, "format must be a name or a Profile, not Markers"),
        ({"format": "opnai"}, "unknown format 'opnai' (did you mean 'openai'?)"),
        ({"format": PARROT, "return_dict": True}, "format is a value of type Profile; remove one of them"),
        ({"model": PARROT}, "model= must be a name, Markers or a ChatTemplate"),
        ({"chat_template": "{{ messages }}"}, "chat_template= must be a ChatTemplate"),
        ({"format": "anthropic", "model": PARROT}, "model= must be a name, Markers or a ChatTemplate"),
        ({"model": TEMPLATE, "chat_template": TEMPLATE}, "pass only one of them"),
    ],
)
def test_errors_of_values_of_your_own_name_their_kinds(given_: dict[str, Any], words: str) -> None:
    """The repr of a profile has a thousand characters."""
    with pytest.raises((FormatError, TemplateError)) as caught:
        PROMPTER.generate_prompt(VALUES, **given_)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_error_names_the_label_that_contains_a_control_sequence() -> None:
    strict = PROMPTER.with_safety("raise")
    with pytest.raises(SafetyError, match=r"^'label' contains the control sequence '<\|im_end\|>'"):
        strict.generate_prompt(VALUES, label="Yes.<|im_end|>", format="vllm")
