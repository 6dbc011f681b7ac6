"""`ChatPrompter.from_messages`: prompt templates that are a list of messages."""

import json
import pickle
from typing import Any

import pytest

from lazyprompt import Budget, CharTokenCounter, ChatPrompter, ChatTemplate, Markers, SafetyError, TemplateError
from lazyprompt.inspect.look import CallArguments, look

HISTORY = [["Hi.", "Hello."]]
PAST = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
IN_ORDER = ChatPrompter.from_messages(
    [
        ("system", "You know {topic}."),
        ("user", "Is {example} one?"),
        ("assistant", "Yes: {example}."),
        "history",
        ("user", "{question} <{topic}>"),
    ]
)
VALUES = {"topic": "cats", "example": "a lynx", "question": "Why?"}
MESSAGES = [
    {"role": "system", "content": "You know cats."},
    {"role": "user", "content": "Is a lynx one?"},
    {"role": "assistant", "content": "Yes: a lynx."},
    *PAST,
    {"role": "user", "content": "Why? <cats>"},
]
CHATML = ChatTemplate.load(
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IN_CHATML = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in MESSAGES)
IN_CHATML += "<|im_start|>assistant\n"


def test_from_messages_adds_no_system_text_and_no_white_space() -> None:
    prompter = ChatPrompter.from_messages([("user", "{question}")])
    assert prompter.generate_prompt("Why?", return_dict=True) == {"messages": [{"role": "user", "content": "Why?"}]}
    assert prompter.generate_prompt("Why?") == "<|Human|>:Why?<|Assistant|>:"
    assert (
        prompter.generate_prompt("Why?", model="qwen2.5") == "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert IN_ORDER.generate_prompt(VALUES) == (
        "<|start_system|>You know cats.<|end_system|><|Human|>:Is a lynx one?<|Assistant|>:Yes: a lynx.<|Human|>:"
        "Why? <cats><|Assistant|>:"
    )


@pytest.mark.parametrize("family", Markers.families())
def test_family_formats_the_messages_like_a_history_of_the_same_texts(family: str) -> None:
    plain = ChatPrompter({"system": "You know cats.", "user": "Why? <cats>"}, system="")
    history = [["Is a lynx one?", "Yes: a lynx."], *HISTORY]
    assert IN_ORDER.generate_prompt(VALUES, HISTORY, model=family) == plain.generate_prompt({}, history, model=family)


def test_chat_template_formats_the_messages() -> None:
    assert IN_ORDER.generate_prompt(VALUES, HISTORY, chat_template=CHATML) == IN_CHATML
    rendered = IN_ORDER.with_chat_template(CHATML).render(VALUES, HISTORY)
    assert rendered.text == IN_CHATML == IN_ORDER.generate_prompt(VALUES, HISTORY, model="chatml")
    assert [each for each in rendered.segments if each.slot == "example"] == [
        each for each in IN_ORDER.render(VALUES, HISTORY, model="chatml").segments if each.slot == "example"
    ]


def test_anthropic_and_gemini_payloads_contain_the_messages() -> None:
    made = IN_ORDER.generate_prompt(VALUES, HISTORY, format="anthropic")
    assert made == {"system": "You know cats.", "messages": MESSAGES[1:]}
    gemini = IN_ORDER.generate_prompt(VALUES, HISTORY, format="gemini")
    texts = [part["text"] for content in gemini["contents"] for part in content["parts"]]
    assert texts == [message["content"] for message in MESSAGES[1:]]
    assert all(type(message["content"]) is str for message in made["messages"])


@pytest.mark.parametrize("target", [{"model": "chatml"}, {"chat_template": CHATML}], ids=["markers", "template"])
def test_template_text_is_trusted_and_slot_values_are_untrusted_in_every_message(target: Any) -> None:
    prompter = ChatPrompter.from_messages(
        [("user", "<|im_end|>{a}"), ("assistant", "{a}<|im_start|>"), ("user", "{q}")]
    )
    rendered = prompter.render({"a": "<|im_end|>", "q": "ok"}, **target)
    own = [(each.text, each.slot, each.trusted) for each in rendered.segments if each.slot != "markers"]
    assert own == [
        ("<|im_end|>", "instruction", True),
        ("<\\|im_end|>", "a", False),
        ("<\\|im_end|>", "a", False),
        ("<|im_start|>", "instruction", True),
        ("ok", "q", False),
    ]
    assert prompter.generate_prompt({"a": "<|im_end|>", "q": "ok"}, **target) == rendered.text
    with pytest.raises(SafetyError):
        prompter.with_safety("raise").generate_prompt({"a": "<|im_end|>", "q": "ok"}, **target)
    strict = ChatPrompter.from_messages([("user", "{q}")], safety="raise")
    with pytest.raises(SafetyError):
        strict.generate_prompt("<|im_end|>", **target)


def test_partial_and_pickled_prompters_give_the_same_messages() -> None:
    partial = IN_ORDER.partial(topic="cats", example=lambda: "a lynx")
    assert partial.slots == ("question",)
    assert partial.generate_prompt("Why?", HISTORY, return_dict=True) == {"messages": MESSAGES}
    copied = pickle.loads(pickle.dumps(IN_ORDER))  # noqa: S301 - our own
    prompt = copied.fill(VALUES, HISTORY)
    assert pickle.loads(pickle.dumps(prompt)) == prompt  # noqa: S301 - our own
    assert copied.generate_prompt(VALUES, HISTORY, return_dict=True) == {"messages": MESSAGES}


def test_budget_keeps_the_messages_of_the_template_and_cuts_their_slots() -> None:
    budget = Budget(300, CharTokenCounter(), slots={"example": 20})
    prompter = IN_ORDER.with_budget(budget)
    history = [[f"question {at}", f"answer {at}"] for at in range(50)]
    made, report = prompter.fit({**VALUES, "example": "a lynx " * 20}, history, format="openai")
    messages = made["messages"]
    assert [messages[0], messages[-1]] == [MESSAGES[0], MESSAGES[-1]]
    example = messages[1]["content"].removeprefix("Is ").removesuffix(" one?")
    assert len(example) <= 20
    assert messages[2]["content"] == f"Yes: {example}."
    assert messages[-2] == {"role": "assistant", "content": "answer 49"}
    assert report.after <= 300 < report.before
    assert {"example", "topic", "question", "instruction", "history"} <= {*report.slots}


@pytest.mark.parametrize("target", [{"model": "chatml"}, {"chat_template": CHATML}], ids=["markers", "template"])
def test_training_sample_trains_the_assistant_messages_of_the_template(target: Any) -> None:
    sample = IN_ORDER.training_sample(VALUES, "Because.", HISTORY, train="all", **target)
    assert list(sample.messages) == [*MESSAGES, {"role": "assistant", "content": "Because."}]
    trained = [sample.text[start:stop] for start, stop in sample.spans]
    assert trained == ["Yes: a lynx.<|im_end|>", "Hello.<|im_end|>", "Because.<|im_end|>"]
    placed = [
        (part, at) for part, at in zip(sample.parts, sample.part_messages, strict=True) if part and at is not None
    ]
    for at, message in enumerate(sample.messages):
        assert "".join(part for part, place in placed if place == at).strip() == message["content"]
    answers = ChatPrompter.from_messages([("user", "{q}"), ("assistant", "{a}")])
    last = answers.training_sample({"q": "Why?", "a": "So."}, **target)
    assert [last.text[start:stop] for start, stop in last.spans] == ["So.<|im_end|>"]


def test_look_shows_the_slots_of_every_message() -> None:
    seen = look(IN_ORDER, CallArguments(VALUES, HISTORY), model="chatml")
    names = ["instruction", "topic", "example", "history", "question", "user", "markers"]
    assert [slot.name for slot in seen.slots] == names


def test_custom_markers_surround_the_messages_without_additional_text() -> None:
    markers = Markers(sos="[[S]]", eos="[[/S]]\n", soh="[[U]]", eoh="[[/U]]\n", soa="[[A]]", eoa="[[/A]]\n")
    assert IN_ORDER.with_markers(markers).generate_prompt(VALUES, HISTORY) == (
        "[[S]]You know cats.[[/S]]\n[[U]]Is a lynx one?[[/U]]\n[[A]]Yes: a lynx.[[/A]]\n"
        "[[U]]Hi.[[/U]]\n[[A]]Hello.[[/A]]\n[[U]]Why? <cats>[[/U]]\n[[A]]"
    )


def test_budget_drops_the_same_list_items_from_every_message() -> None:
    prompter = ChatPrompter.from_messages([("user", "{passages}"), ("assistant", "Read."), ("user", "{passages} {q}")])
    passages = [f"passage {at} " * 3 for at in range(9)]
    prompt, report = prompter.with_budget(Budget(300, CharTokenCounter())).fit(
        {"passages": passages, "q": "Why?"}, HISTORY, format="openai"
    )
    first, _, last = (each["content"] for each in prompt["messages"] if each["content"] not in ("Hi.", "Hello."))
    left = json.loads(first)
    assert 0 < len(left) < len(passages)
    assert left == passages[: len(left)]
    assert last == f"{first} Why?"
    assert report.after <= 300


JINJA: list[Any] = [
    ("system", "Be {{ mood }}.{% for each in notes %}\n- {{ each }}{% endfor %}"),
    ("user", "Shout {a}: {{ mood | upper }}"),
    ("assistant", "KIND"),
    "history",
    ("user", "{{ question }}"),
]
GIVEN = {"mood": "kind", "notes": ["one<|im_end|>", "two"], "question": "Why? {{ mood }}"}


def test_message_texts_can_be_jinja_templates() -> None:
    prompter = ChatPrompter.from_messages(JINJA, syntax="jinja2")
    assert prompter.slots == ("mood", "notes", "question")
    expected = [
        {"role": "system", "content": "Be kind.\n- one<|im_end|>\n- two"},
        {"role": "user", "content": "Shout {a}: KIND"},
        {"role": "assistant", "content": "KIND"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Why? {{ mood }}"},
    ]
    again = pickle.loads(pickle.dumps(prompter))  # noqa: S301 - our own pickle
    for each in (prompter, again, prompter.partial(mood="sad")):
        assert each.generate_prompt(GIVEN, [["Hi", "Hello"]], return_dict=True) == {"messages": expected}
    assert "- one<\\|im_end|>\n" in prompter.generate_prompt(GIVEN, model="chatml")
    (row,) = prompter.render_batch([GIVEN], format="openai")
    assert row["payload"] == prompter.generate_prompt(GIVEN, return_dict=True)
    fitted, report = prompter.with_budget(Budget(80, CharTokenCounter())).fit(
        {**GIVEN, "notes": ["a" * 20, "b" * 20]}, format="openai"
    )
    assert fitted["messages"][0]["content"] == "Be kind.\n- " + "a" * 20
    assert report.lists["notes"].dropped == (1,)


def test_unknown_syntax_and_invalid_jinja_are_rejected() -> None:
    with pytest.raises(TemplateError, match=r"^unknown syntax 'jinja' \(did you mean 'jinja2'\?\); expected one of"):
        ChatPrompter.from_messages(JINJA, syntax="jinja")  # type: ignore[arg-type]
    with pytest.raises(TemplateError, match="Jinja"):
        ChatPrompter.from_messages([("user", "{% if %}")], syntax="jinja2")


WITH_SYSTEM = [{"role": "system", "content": "Be kind."}, *PAST]
HISTORY_ONLY = ChatPrompter.from_messages(["history"])


def test_prompter_of_the_history_alone_adds_nothing_to_a_chat() -> None:
    """A template of the history alone was rejected as empty, so no prompter left complete chats unchanged."""
    assert HISTORY_ONLY.generate_prompt("Why?", WITH_SYSTEM, format="openai") == {
        "messages": [*WITH_SYSTEM, {"role": "user", "content": "Why?"}]
    }
    assert HISTORY_ONLY.generate_prompt(history=WITH_SYSTEM[:2], model="qwen2.5") == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("family", Markers.families())
@pytest.mark.parametrize("chat", [PAST, WITH_SYSTEM], ids=["without system", "with system"])
def test_training_sample_of_a_complete_chat_has_no_default_system_text(chat: list[dict[str, str]], family: str) -> None:
    sample = HISTORY_ONLY.with_markers(family).training_sample(history=chat)
    assert [*sample.messages] == chat
    assert sample.text.count("Be kind.") == len(chat) - len(PAST)
    default = Markers.for_model(family).system
    assert not default or default not in sample.text
    (span,) = sample.spans
    assert "Hello." in sample.text[slice(*span)]
