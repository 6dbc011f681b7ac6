"""Fine-tuning samples as text: which part is trained, and that the text begins with the prompt of inference."""

import copy
import json
import pickle
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyprompt import (
    AlpacaPrompter,
    ApproximateTokenCounter,
    Budget,
    ChatPrompter,
    EmptyPrompter,
    FormatError,
    HistoryError,
    Markers,
    Msg,
    Prompter,
    PromptTemplate,
    SafetyError,
    SlotError,
    TemplateError,
    TextBlock,
    ThinkingBlock,
    messages_from,
)
from lazyprompt.templates.instruction import InstructionTemplate
from lazyprompt.training.samples import TrainingSample
from support.chat_judges import render_by_transformers, templates
from training.helpers import trained_texts
from training.helpers import weather_call as call

FAMILIES = Markers.families()
PAIRS = [["Q one?", "A one."], ["Q two?", "A two."]]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": {}}}]


# The texts of the assistant begin with A; its calls contain Koln, Rome and Oslo.
CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Q one?"},
    {"role": "assistant", "content": "A one.", "tool_calls": [call(1, "Koln"), call(2, "Rome")]},
    {"role": "tool", "tool_call_id": "call_1", "content": "R rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": "R sun"},
    {"role": "assistant", "content": None, "tool_calls": [call(3, "Oslo")]},
    {"role": "tool", "tool_call_id": "call_3", "content": "R snow"},
    {"role": "assistant", "content": "A two."},
]


def untrained_text(sample: TrainingSample) -> str:
    """The text that is not trained."""
    ends = [0, *(place for span in sample.spans for place in span), len(sample.text)]
    return "|".join(sample.text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True))


def generated_markers(markers: Markers) -> tuple[str, str]:
    """The markers that the model generates before and after its text: some prompts end before the whole marker."""
    soa, prompt = markers.soa, markers.soa if markers.generation is None else markers.generation
    return soa[len(prompt) :] if soa.startswith(prompt) else "", markers.eoa.rstrip()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_assistant_text_and_end_marker_are_trained(family: str) -> None:
    markers = Markers.for_model(family)
    opening, end = generated_markers(markers)
    prompter = ChatPrompter("Be {a}.", system="S").with_markers(markers)
    given = {"a": "kind", "input": "Q three?"}
    last = prompter.training_sample(given, "A three.", PAIRS, TOOLS)
    assert last.text == prompter.generate_prompt(given, PAIRS, TOOLS) + opening + "A three." + markers.eoa
    assert trained_texts(last) == [f"{opening}A three.{end}"]
    every = prompter.training_sample(given, "A three.", PAIRS, TOOLS, train="all")
    assert every.text == last.text
    assert trained_texts(every) == [f"{opening}{text}{end}" for text in ("A one.", "A two.", "A three.")]
    second = prompter.training_sample(given, "A three.", PAIRS, train=lambda _, m: m["content"] == "A two.")
    assert trained_texts(second) == [f"{opening}A two.{end}"]
    none = prompter.training_sample(given, "A three.", PAIRS, train=lambda *_: False)
    assert none.spans == ()
    assert not any(none.trained)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_tool_calls_are_trained_but_tool_results_are_not(family: str) -> None:
    markers = Markers.for_model(family)
    opening, end = generated_markers(markers)
    prompter = ChatPrompter(system="S").with_markers(markers)
    every = prompter.training_sample(None, None, CALLS, TOOLS, train="all")
    assert every.text == prompter.generate_prompt(None, CALLS[:-1], TOOLS) + opening + "A two." + markers.eoa
    first, second, third = trained_texts(every)
    assert "A one." in first
    assert [city in first for city in ("Koln", "Rome", "Oslo")] == [True, True, False]
    assert "Oslo" in second
    assert third == f"{opening}A two.{end}"
    assert first.startswith(opening)
    assert second.startswith(opening if markers.tool_form.opens_turn else "")
    assert all(text.endswith(end) for text in (first, second))
    rest = untrained_text(every)
    assert not any(text in rest for text in ("A one", "A two", "Koln", "Rome", "Oslo"))
    assert all(text in rest for text in ("Q one?", "R rain", "R sun", "R snow", "Says it."))
    last = prompter.training_sample(None, None, CALLS, TOOLS)
    assert (last.text, trained_texts(last)) == (every.text, [third])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_response_can_be_a_tool_call(family: str) -> None:
    prompter = ChatPrompter(system="S").with_markers(family)
    sample = prompter.training_sample(None, None, CALLS[:2], TOOLS)
    assert trained_texts(sample) == trained_texts(prompter.training_sample("Q", "A", CALLS, TOOLS, train="all"))[:1]
    assert sample.messages[-1] == CALLS[1]
    label = [part for part, slot in zip(sample.parts[1::2], sample.slots[1::2], strict=True) if slot == "label"]
    assert label[0] == "A one."
    assert all(sum(word in part for part in label) == n for word, n in (("weather", 2), ("Koln", 1), ("Rome", 1)))


REAL = [
    ("qwen2.5", "qwen2_5", ""),
    ("qwen2.5-vl", "qwen2_5_vl", ""),
    ("qwen3-instruct-2507", "qwen3_instruct_2507", ""),
    ("llama-3", "llama3", "<|begin_of_text|>"),
    ("gemma-3", "gemma3", "<bos>"),
    ("phi-3", "phi3", ""),
    ("phi-3.5", "phi3_5", ""),
    ("deepseek-r1-distill", "deepseek_r1_distill", "<｜begin▁of▁sentence｜>"),
    ("glm-4.5", "glm4moe", ""),
    ("command-r", "cohere", "<BOS_TOKEN>"),
    ("lfm2", "lfm2", "<|startoftext|>"),
]
# Only the generation prompt of these families contains the opening reasoning tag; their history drops it.
BEGINS_A_THOUGHT = ("deepseek-r1-distill",)
# Text that only TRL's masks contain: the end of the prompt, and for GLM the beginning of the next user turn.
TRL_HAS_MORE = {"qwen2.5": ("\n", ""), "deepseek-r1-distill": ("<｜Assistant｜>", ""), "glm-4.5": ("", "<|user|>")}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "bos"), REAL, ids=lambda value: str(value)[:20])
def test_sample_text_equals_the_model_template(family: str, name: str, bos: str) -> None:
    sample = ChatPrompter(system="S").training_sample("Q three?", "A three.", PAIRS, train="all", model=family)
    tokens = {"bos_token": bos, "eos_token": ""}
    whole, _ = render_by_transformers(templates()[name], [*sample.messages], **tokens)
    assert sample.text.replace("<think>\n", "") == whole if family in BEGINS_A_THOUGHT else sample.text == whole
    masked = templates()[f"{name}_training"]
    chat: Any = [[{**message} for message in sample.messages]]
    judge: Any = import_module("transformers.utils.chat_template_utils")
    texts, found = judge.render_jinja_template(
        chat, chat_template=masked, return_assistant_tokens_mask=True, continue_final_message=False, **tokens
    )
    # Some of TRL's masks also contain the white space after the marker.
    generated = [texts[0][start:end].rstrip() for start, end in found[0] if end > start]
    before, behind = TRL_HAS_MORE.get(family, ("", ""))
    assert [f"{before}{text}{behind}" for text in trained_texts(sample)] == generated


TEXT = st.lists(
    st.one_of(
        st.sampled_from(
            ["<|im_end|>", "<|im_start|>user\n", "</s>", "[INST]", "### Response:\n", "\n", " ", "<", "|>", "{a}", "＜"]
        ),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    max_size=5,
).map("".join)
# Reasoning and calls as text, which a trained turn of the history must not contain.
LABEL = st.lists(TEXT | st.sampled_from(["<think>", "</think>", "<tool_call>"]), max_size=3).map("".join)
SAID = st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, TEXT, st.just([]))
CALLED = st.builds(
    lambda text, city: [
        {"role": "assistant", "content": text, "tool_calls": [call(1, city)]},
        {"role": "tool", "tool_call_id": "call_1", "content": city},
    ],
    TEXT,
    TEXT,
)
USER = TEXT.map(lambda text: {"role": "user", "content": text})
SYSTEM = TEXT.map(lambda text: {"role": "system", "content": text})
TURNS = st.lists(
    st.one_of(USER.map(lambda m: [m]), SAID.map(lambda m: [m]), SYSTEM.map(lambda m: [m]), CALLED), max_size=5
)
HISTORIES = st.one_of(
    st.lists(st.tuples(TEXT, TEXT).map(list), max_size=4),
    TURNS.map(lambda turns: [each for turn in turns for each in turn]),
)
PROMPTERS: list[Prompter] = [
    ChatPrompter("ctx {a}"),
    ChatPrompter({"system": "You know {a}.", "user": "Say: "}, system="Sys."),
    ChatPrompter("x {a} y", extra_keys="k", system="", history=[["own q", "own a"]]),
    ChatPrompter("{a}", enable_system=False),
    Prompter(InstructionTemplate("I {a}"), PromptTemplate("{system}{instruction}{tools}|{history}|{history}{input}->")),
]
TRAIN: Any = st.sampled_from(["last", "all", lambda index, _: index % 2 == 0])


def fill_slots(prompter: Prompter, text: str) -> dict[str, object]:
    return {**dict.fromkeys(prompter.slots, text), "input": text}


@pytest.mark.slow
@pytest.mark.parametrize("family", [None, *FAMILIES])
@settings(max_examples=10)
@given(data=st.data())
def test_sample_begins_with_the_prompt(family: str | None, data: st.DataObject) -> None:
    prompter = data.draw(st.sampled_from(PROMPTERS))
    given_, history = fill_slots(prompter, data.draw(TEXT)), data.draw(HISTORIES)
    label, tools, train = data.draw(LABEL), data.draw(st.sampled_from([None, TOOLS])), data.draw(TRAIN)
    prompt = prompter.generate_prompt(given_, history, tools, model=family)
    try:
        sample = prompter.training_sample(given_, label, history, tools, train=train, model=family)
    except SafetyError as error:
        assert train != "last"
        assert "a turn in the history that is included in the loss contains" in str(error)  # noqa: PT017
        return
    assert sample.text.startswith(prompt)
    assert prompter.generate_prompt(given_, history, tools, model=family) == prompt
    assert len(sample.parts) == len(sample.slots) == len(sample.trained)
    assert len(sample.parts) % 2 == 1
    assert "".join(segment.text for segment in sample.segments) == sample.text
    # The value of train does not change the text.
    assert prompter.training_sample(given_, label, history, tools, model=family).text == sample.text
    rendered = prompter.render(given_, history, tools, model=family)
    slots = [(text, slot) for text, slot, trusted in sample.segments if slot not in ("label", "markers")]
    assert slots == [(text, slot) for text, slot, trusted in rendered.segments if slot != "markers"]


@given(data=st.data(), text=TEXT, label=LABEL)
def test_alpaca_sample_begins_with_the_prompt(data: st.DataObject, text: str, label: str) -> None:
    prompter = data.draw(st.sampled_from([AlpacaPrompter("do {a}", extra_keys="k"), EmptyPrompter()]))
    given_: object = dict.fromkeys(prompter.slots, text) if prompter.slots else text
    sample = prompter.training_sample(given_, label)
    assert sample.text == prompter.generate_prompt(given_, label=label)
    assert sample.text.startswith(prompter.generate_prompt(given_))


def test_label_without_an_end_marker_ends_the_text() -> None:
    prompter = AlpacaPrompter("Sum up {a}.", system="")
    assert prompter.training_sample("x", "y").text.endswith("### Response:\ny")
    sample = prompter.with_markers(Markers(eoa="</s>")).training_sample("x", "y")
    assert sample.text.endswith("### Response:\ny</s>")
    assert trained_texts(sample) == ["y</s>"]


def test_white_space_after_the_end_marker_is_not_trained() -> None:
    sample = ChatPrompter(system="").training_sample("q", "a", model="chatml")
    assert sample.text == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
    assert sample.spans == ((51, 62),)
    assert [segment.slot for segment in sample.segments] == ["markers", "input", "markers", "label", "markers"]
    # The trained text of an empty response is its end marker.
    assert trained_texts(ChatPrompter(system="").training_sample("q", "", model="chatml")) == ["<|im_end|>"]


@pytest.mark.parametrize("history", [PAIRS, [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]])
def test_last_turn_is_the_label_if_no_label_is_passed(history: Any) -> None:
    prompter = ChatPrompter("Be {a}.").with_markers("qwen2.5")
    kind = {"a": "kind"}
    messages = messages_from(history)
    sample = prompter.training_sample(kind, None, history)
    assert sample == prompter.training_sample(kind, messages[-1].text, messages[:-1])
    assert sample.text.startswith(prompter.generate_prompt(kind, messages[:-1]))
    assert trained_texts(sample) == [messages[-1].text + "<|im_end|>"]
    every = prompter.training_sample(kind, None, history, train="all")
    assert trained_texts(every) == [m.text + "<|im_end|>" for m in messages if m.role == "assistant"]


@pytest.mark.parametrize(
    ("prompter", "given_", "history"),
    [
        (ChatPrompter("Be kind."), "q", None),
        (ChatPrompter("Be kind."), "q", PAIRS),  # text after the history
        (ChatPrompter("Be kind."), None, None),
        (ChatPrompter("Be kind."), None, [{"role": "user", "content": "q"}]),
        (ChatPrompter("Be kind."), None, CALLS[:3]),
        (ChatPrompter({"user": "Go on."}), None, PAIRS),
        (ChatPrompter("Go on.", history=PAIRS), None, None),  # few-shot examples are not responses
    ],
)
def test_sample_without_a_response_is_refused(prompter: Prompter, given_: object, history: Any) -> None:
    with pytest.raises(SlotError, match="requires a response; pass label=, or pass a history that ends with"):
        prompter.training_sample(given_, None, history)


def test_train_function_is_called_for_each_assistant_message() -> None:
    asked: list[tuple[int, dict[str, Any]]] = []

    def train(index: int, message: dict[str, Any]) -> bool:
        asked.append((index, copy.deepcopy(message)))
        message.clear()
        return index != 5

    sample = ChatPrompter(system="S").training_sample(None, None, CALLS, train=train, model="qwen2.5")
    assert asked == [(index, sample.messages[index]) for index in (2, 5, 7)]
    assert sample.trained_messages == (False, False, True, False, False, False, False, True)
    first, last = trained_texts(sample)
    assert first.startswith("A one.\n<tool_call>")
    assert last == "A two.<|im_end|>"


def test_train_function_can_use_the_weights_of_openai_messages() -> None:
    history: list[Any] = [*CALLS[:1], {"role": "assistant", "content": "no", "weight": 0}, CALLS[0], CALLS[-1]]
    sample = ChatPrompter(system="").training_sample(
        None, None, history, train=lambda _, message: message.get("weight") != 0, model="chatml"
    )
    assert trained_texts(sample) == ["A two.<|im_end|>"]
    assert [message.get("weight") for message in sample.export("openai")["messages"]] == [None, 0, None, None]  # type: ignore[union-attr]


def test_unknown_train_value_is_refused() -> None:
    message = r"unknown value 'lats' for train \(did you mean 'last'\?\); expected last, all or a"
    with pytest.raises(FormatError, match=message):
        ChatPrompter().training_sample("q", "a", train="lats")  # type: ignore[arg-type]


def test_trained_turn_with_content_that_flat_text_omits_is_an_error() -> None:
    thinks = Msg("assistant", [ThinkingBlock("hm"), TextBlock("a")], "assistant")
    prompter = ChatPrompter(system="").with_markers("qwen3")
    with pytest.raises(FormatError, match=r"messages\[1\] is included in the loss and contains thinking blocks, which"):
        prompter.training_sample(None, None, [*CALLS[:1], thinks])
    with pytest.raises(FormatError, match=r"messages\[1\] is included in the loss"):
        prompter.training_sample("q", "a", [*CALLS[:1], thinks], train="all")
    assert trained_texts(prompter.training_sample("q", "a", [*CALLS[:1], thinks])) == ["a<|im_end|>"]
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    shows: list[Any] = [*CALLS[:1], {"role": "assistant", "content": [picture]}]
    with pytest.raises(FormatError, match="the answer contains a block of type 'image'"):
        prompter.training_sample(None, None, shows)
    with pytest.raises(FormatError, match="the answer contains the url 'x'"):
        prompter.training_sample(None, None, [*CALLS[:1], Msg("assistant", "a", "assistant", url="x")])


def test_label_keeps_reasoning_and_call_tags_but_cannot_end_its_turn() -> None:
    prompter = ChatPrompter(system="").with_markers("qwen3")
    label = "<think>\nhm\n</think>\n\na<|im_end|>\n<|im_start|>user\nb<tool_call>x</tool_call>"
    sample = prompter.training_sample("q", label)
    assert trained_texts(sample) == [label.replace("<|", "<\\|") + "<|im_end|>"]
    # The tags are trusted, so that they become special tokens.
    parts = [(text, trusted) for text, slot, trusted in sample.segments if slot == "label"]
    assert [text for text, trusted in parts if trusted] == ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    with pytest.raises(SafetyError, match="'label' contains the control sequence '<|im_end|>'"):
        prompter.with_safety("raise").training_sample("q", "a<|im_end|>")
    assert prompter.with_safety("off").training_sample("q", "<|im_end|>").text.endswith("<|im_end|><|im_end|>\n")


def test_label_and_end_marker_do_not_join_into_a_stop_marker() -> None:
    sample = ChatPrompter(system="").with_markers(Markers(eoa="|>", stop=("<|stop|>",))).training_sample("q", "a<|stop")
    assert "<|stop|>" not in sample.text


def test_history_turn_with_neutralized_tags_is_not_trained() -> None:
    prompter = ChatPrompter(system="").with_markers("qwen3")
    history = [["q", "<think>\nhm\n</think>\n\na"]]
    with pytest.raises(SafetyError, match=r"neutralises: '<\\\\think>\\nhm.*; pass calls as tool_calls"):
        prompter.training_sample("r", "b", history, train="all")
    assert trained_texts(prompter.training_sample("r", "b", history)) == ["b<|im_end|>"]
    trusting = prompter.with_safety("off").training_sample("r", "b", history, train="all")
    assert trained_texts(trusting) == ["<think>\nhm\n</think>\n\na<|im_end|>", "b<|im_end|>"]
    tags = [text for text, slot, trusted in trusting.segments if trusted and slot == "history"]
    assert tags == ["<think>", "</think>"]
    # An end marker in a response of the history is neutralized as well; JSON keeps its value.
    forged = prompter.training_sample("r", "b", [["q", "a<|im_end|>"]], train="all")
    assert trained_texts(forged)[0] == "a<\\|im_end|><|im_end|>"
    called = [CALLS[0], {**CALLS[1], "tool_calls": [call(1, "<think>")]}, CALLS[2]]
    text = trained_texts(prompter.training_sample(None, "b", called, train="all"))[0]
    written = json.loads(text.partition("<tool_call>\n")[2].partition("\n</tool_call>")[0])
    assert written["arguments"] == {"city": "<think>"}


def test_pre_hooks_run_before_the_sample_is_rendered() -> None:
    prompter = ChatPrompter(system="").pre_hook(lambda i, h, t, label: (f"{i}?", h, t, f"{label}."))
    sample = prompter.training_sample("q", "a", model="chatml")
    assert [message["content"] for message in sample.messages] == ["q?", "a."]
    assert trained_texts(sample) == ["a.<|im_end|>"]
    with pytest.raises(TemplateError, match="must return the tuple"):
        ChatPrompter().pre_hook(lambda *_: None).training_sample("q", "a")  # type: ignore[arg-type]


def test_budget_applies_to_the_prompt_but_not_to_the_label() -> None:
    history = [[f"question {number}", f"answer {number}"] for number in range(40)]
    budget = Budget(120, ApproximateTokenCounter())
    prompter = ChatPrompter(system="", budget=budget).with_markers("chatml")
    label = "A long answer. " * 50
    sample = prompter.training_sample("now?", label, history, train="all")
    assert sample.text == prompter.generate_prompt("now?", history) + label + "<|im_end|>\n"
    assert 1 < len(sample.spans) < 40
    assert [m["role"] for m in sample.messages].count("assistant") == len(sample.spans)
    # The sample contains only the messages of its text.
    assert all(str(message["content"]) in sample.text for message in sample.messages)
    limited = ChatPrompter("{a}", system="", budget={"a": 12})
    shortened = limited.training_sample({"a": "word " * 50}, "x", model="chatml")
    assert shortened.messages[0]["content"] in shortened.text  # type: ignore[operator]
    assert len(shortened.text) < 150


def test_model_argument_selects_the_family_of_a_sample() -> None:
    prompter = ChatPrompter(system="")
    assert prompter.training_sample("q", "a", model="llama-3").text.endswith("<|eot_id|>")
    with pytest.raises(TemplateError, match="no model family is known"):
        prompter.training_sample("q", "a", model="nothing-known")


def test_sample_messages_and_tools_have_the_openai_form() -> None:
    prompter = ChatPrompter("Be {a}.", tools=TOOLS, system="S")
    sample = prompter.training_sample({"a": "kind", "input": "q"}, "a", PAIRS)
    form = prompter.generate_prompt({"a": "kind", "input": "q"}, PAIRS, label="a", return_dict=True)
    assert (list(sample.messages), list(sample.tools)) == (form["messages"], form["tools"])
    assert ChatPrompter().training_sample("q", "a").tools == ()


@pytest.mark.parametrize("label", ["a", None])
def test_alpaca_prompter_refuses_a_history(label: str | None) -> None:
    with pytest.raises(HistoryError, match="does not support history"):
        AlpacaPrompter("{a}").training_sample("x", label, PAIRS)


def test_sample_is_picklable_hashable_and_immutable() -> None:
    prompter = ChatPrompter("Be {a}.", tools=TOOLS)
    history = copy.deepcopy(CALLS)
    sample = prompter.training_sample({"a": "kind"}, None, history, train="all")
    again = pickle.loads(pickle.dumps(sample))  # noqa: S301 - our own
    assert again == sample == prompter.training_sample({"a": "kind"}, None, CALLS, train="all")
    assert len({again, sample}) == 1
    assert history == CALLS
    assert {type(slot) for slot in sample.slots} == {str}
    with pytest.raises(AttributeError):
        sample.parts = ()  # type: ignore[misc]


def test_label_of_a_str_subclass_becomes_plain_text() -> None:
    class Shouted(str):
        __slots__ = ()

        def __str__(self) -> str:
            return self.upper()

    sample = ChatPrompter(system="").training_sample("q", Shouted("a"), model="chatml")
    assert trained_texts(sample) == ["a<|im_end|>"]
    assert type(sample.messages[-1]["content"]) is str


def test_consecutive_assistant_turns_stay_separate() -> None:
    history = [CALLS[0], CALLS[-1], CALLS[-1], CALLS[0]]
    sample = ChatPrompter(system="").training_sample(None, "A", history, train=lambda at, _: at == 1, model="chatml")
    assert trained_texts(sample) == ["A two.<|im_end|>"]
    assert sample.text[: sample.spans[0][0]].count("assistant") == 1


RESULT: Any = {"type": "tool_result", "id": "1", "name": "weather", "output": "R"}
CALL: Any = {"type": "tool_use", "id": "1", "name": "weather", "input": {}}
WITH_RESULT = [Msg("u", "q", "user"), Msg("a", [CALL, RESULT], "assistant")]


@pytest.mark.parametrize("train", ["all", "last"])
@pytest.mark.parametrize("history", [WITH_RESULT, [*WITH_RESULT, Msg("a", [RESULT], "assistant")]])
def test_tool_results_inside_an_assistant_message_are_not_trained(history: list[Msg], train: Any) -> None:
    sample = ChatPrompter(system="").training_sample(None, "A", history, train=train, model="qwen2.5")
    assert len(sample.spans) == (2 if train == "all" else 1)
    assert "<tool_response>" not in "".join(trained_texts(sample))
