"""Properties of all targets (formats) of a prompter, for random conversations."""

import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, reject
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
# A limit that no prompt exceeds.
AMPLE = Budget(10_000_000, CharTokenCounter())


def conversation(seed: int) -> list[Msg]:
    """A conversation without system messages, which flat text keeps in place and other formats move to the start."""
    return [each for each in Maker(Random(seed)).conversation() if each.role in ("user", "assistant", "tool")]  # noqa: S311 - no secret


def render_form(form: str, history: Sequence[Any], prompter: ChatPrompter = PROMPTER) -> object:
    """The prompt in a format; None if the format cannot represent the history."""
    try:
        return prompter.generate_prompt(VALUES, list(history), format=form)
    except FormatError:
        return None


def openai_dicts(seed: int) -> list[dict[str, Any]]:
    """A conversation as OpenAI's messages; hypothesis takes another example if they cannot represent it."""
    try:
        messages: list[dict[str, Any]] = ChatFormatter("openai").format(*conversation(seed))["messages"]
    except FormatError:
        reject()
    return messages


@pytest.mark.parametrize("form", FORMATS)
@given(seed=SEEDS)
def test_generate_prompt_equals_fill_then_render(form: str, seed: int) -> None:
    history = conversation(seed)
    prompt, target = PROMPTER.fill(VALUES, history), PROMPTER.target(form)
    whole = render_form(form, history)
    if whole is not None:
        assert target.render(prompt) == whole
        assert target.render(pickle.loads(pickle.dumps(prompt))) == whole  # noqa: S301 - made right here
    else:
        with pytest.raises(FormatError):
            target.render(prompt)
    assume(whole is not None)  # so that the test fails if no example has a prompt


@pytest.mark.parametrize("form", FORMATS)
@given(seed=SEEDS)
def test_budget_larger_than_the_prompt_changes_nothing(form: str, seed: int) -> None:
    history = conversation(seed)
    whole = render_form(form, history)
    assert render_form(form, history, PROMPTER.with_budget(AMPLE)) == whole
    assume(whole is not None)


@given(seed=SEEDS)
def test_joined_segments_of_a_text_target_are_its_text(seed: int) -> None:
    history, target = conversation(seed), PROMPTER.text_target("qwen2.5")
    assume(render_form("flat", history) is not None)
    prompt = PROMPTER.fill(VALUES, history)
    assert "".join(segment.text for segment in target.segments(prompt).segments) == target.render(prompt)


@pytest.mark.parametrize("form", FORMATS)
@given(seed=SEEDS)
def test_history_of_openai_dicts_renders_like_the_parsed_messages(form: str, seed: int) -> None:
    """The fast path for dicts covered only a few shapes of messages and rendered them differently."""
    dicts = openai_dicts(seed)
    whole = render_form(form, messages_from(dicts))
    assert render_form(form, dicts) == whole
    assume(whole is not None)


@given(seed=SEEDS)
def test_openai_dict_and_openai_payload_contain_the_same_texts(seed: int) -> None:
    """The formatter changes messages that OpenAI would reject, but none of their texts."""
    dicts = openai_dicts(seed)
    whole: Any = PROMPTER.generate_prompt(VALUES, dicts, return_dict=True)
    repaired = ChatFormatter("openai").format(*whole["messages"])["messages"]
    assert texts(repaired) == texts(whole["messages"])


@given(seed=SEEDS)
def test_prompt_in_each_format_contains_all_texts_of_the_history(seed: int) -> None:
    """Every text of the random conversations contains a unique mark."""
    history = conversation(seed)
    expected = {
        part
        for message in history
        for block in message.blocks
        if block.type in ("text", "tool_result")
        for part in marks(getattr(block, "text", "") if not isinstance(block, ToolResultBlock) else block.text)
    }
    prompts = [render_form(form, history) for form in ("flat", "openai", "anthropic")]
    assert all(expected <= marks(str(prompt)) for prompt in prompts if prompt is not None)
    assume(any(prompts))


def texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The marks of the texts of messages, in order."""
    return sorted(mark for message in messages for mark in marks(str(message)))


def marks(text: str) -> set[str]:
    """The marks in a text."""
    return set(text.split("§")[1::2])


@pytest.mark.parametrize("model", ["gpt-5.6", "a-model-of-ours"])
def test_openai_format_accepts_a_model_without_a_family(model: str) -> None:
    """The model was rejected with the advice to pass format="openai", which had been passed."""
    assert PROMPTER.generate_prompt(VALUES, format="openai", model=model) == PROMPTER.generate_prompt(
        VALUES, format="openai"
    )
    with pytest.raises(TemplateError, match='format="openai"'):
        PROMPTER.generate_prompt(VALUES, model=model)


PARROT = Profile(name="parrot", form=ChatForm(), source="https://parrot.example/docs", alternate=True)
BIRD = Markers(sos="<|sys|>", eos="<|end|>", soh="<|usr|>", eoh="<|end|>", soa="<|bot|>", eoa="<|end|>")
TEMPLATE = ChatTemplate.load("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}")
HISTORY = [{"role": "user", "content": "A"}, {"role": "user", "content": "B"}]


def test_format_can_be_a_custom_profile() -> None:
    messages = PROMPTER.generate_prompt(VALUES, HISTORY, return_dict=True)["messages"]
    expected = ChatFormatter(PARROT).format(messages)
    assert [each["role"] for each in expected["messages"]] == ["system", "user"]
    assert PROMPTER.generate_prompt(VALUES, HISTORY, format=PARROT) == expected
    assert PROMPTER.with_budget(AMPLE).fit(VALUES, HISTORY, format=PARROT)[0] == expected
    assert PROMPTER.target(PARROT) is PROMPTER.target(PARROT)


@pytest.mark.parametrize(
    ("model", "prompter"),
    [(BIRD, PROMPTER.with_markers(BIRD)), (TEMPLATE, PROMPTER.with_chat_template(TEMPLATE))],
    ids=["markers", "template"],
)
def test_model_can_be_markers_or_a_chat_template(model: Any, prompter: ChatPrompter) -> None:
    expected = prompter.generate_prompt(VALUES, HISTORY)
    assert PROMPTER.generate_prompt(VALUES, HISTORY, model=model) == expected
    assert PROMPTER.render(VALUES, HISTORY, model=model).text == expected
    assert PROMPTER.with_budget(AMPLE).fit(VALUES, HISTORY, model=model)[0] == expected
    assert PROMPTER.training_sample(VALUES, "C", model=model) == prompter.training_sample(VALUES, "C")
    # For a server that tokenizes messages, the model determines the control sequences.
    guarded = PROMPTER.generate_prompt({"who": "<|end|>", "what": "<|user|>"}, format="vllm", model=model)
    assert guarded["messages"][0]["content"] == "You are an AI-Agent developed by LazyLLM.\nHelp <\\|end|>."


def test_openai_format_uses_the_system_text_of_custom_markers() -> None:
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
def test_error_for_an_invalid_format_or_model_names_its_type(given_: dict[str, Any], words: str) -> None:
    """The error contained the repr of a profile, which has a thousand characters."""
    with pytest.raises((FormatError, TemplateError)) as caught:
        PROMPTER.generate_prompt(VALUES, **given_)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_safety_error_names_the_label_that_contains_a_control_sequence() -> None:
    strict = PROMPTER.with_safety("raise")
    with pytest.raises(SafetyError, match=r"^'label' contains the control sequence '<\|im_end\|>'"):
        strict.generate_prompt(VALUES, label="Yes.<|im_end|>", format="vllm")
