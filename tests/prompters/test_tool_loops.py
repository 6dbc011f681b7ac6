"""Tool loops: which user message follows a history that ends with a tool result."""

from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from lazyprompt import AlpacaPrompter, Budget, CharTokenCounter, ChatPrompter, ChatTemplate, EmptyPrompter, Prompter
from lazyprompt.errors import FormatError, HistoryError, SlotError
from lazyprompt.files.prompty import Prompty

CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
FILE = "---\ninputs:\n  q: {kind: string, required: true}\n---\nsystem:\nBe brief.\nuser:\nAsked: {{q}}"
WITH_THREAD = "---\ninputs: {q: {kind: string, required: true}, past: {kind: thread}}\n---\nsystem:\nBe brief.\n"
WITH_THREAD += "{{past}}\nuser:\nAsked: {{q}}"
ASKED = {
    "slots": ChatPrompter({"system": "Be brief.", "user": "Asked: {q}"}, system=""),
    "jinja": ChatPrompter({"system": "Be brief.", "user": "Asked: {{ q }}"}, system="", syntax="jinja2"),
    "messages": ChatPrompter.from_messages([("system", "Be brief."), "history", ("user", "Asked: {q}")]),
    "file": Prompty.loads(FILE).prompter,
    "file of an undeclared input": Prompty.loads("system:\nBe brief.\nuser:\nAsked: {{q}}").prompter,
    "file with a thread": Prompty.loads(WITH_THREAD).prompter,
}


def loop(question: str) -> list[dict[str, Any]]:
    """A history that ends with a tool result."""
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "9:30"},
    ]


def user_texts(prompter: Prompter, given_: object, history: Any) -> list[str]:
    made = prompter.generate_prompt(given_, history, return_dict=True)["messages"]
    return [message["content"] for message in made if message["role"] == "user"]


def check_user_texts(prompter: Prompter, given_: object, history: Any) -> list[str]:
    """The texts of the user messages of a prompt, after a check that flat text and payloads contain as many."""
    texts = user_texts(prompter, given_, history)
    flat = prompter.generate_prompt(given_, history, model="chatml")
    assert flat.count("<|im_start|>user\n") == len(texts) + 1  # the result is a user turn in this family
    assert prompter.render(given_, history, model="chatml").text == flat
    for provider in ("anthropic", "gemini", "ollama"):
        assert str(prompter.generate_prompt(given_, history, format=provider)).count("Asked: ") == len(texts)
    return texts


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("given_", [None, {}, "When?", {"q": "When?"}])
def test_user_message_of_the_template_is_not_repeated_after_a_tool_result(name: str, given_: Any) -> None:
    # The message was repeated after each result, or the call was rejected because of the missing value.
    assert check_user_texts(ASKED[name], given_, loop("Asked: When?")) == ["Asked: When?"]


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize(
    ("given_", "earlier", "added"),
    [
        *(({"q": "And then?"}, [], "And then?"), ("And then?", [], "And then?"), ({"q": "When"}, [], "When")),
        ({"q": "And then?"}, [["Asked: And then?", "Later."]], "And then?"),
    ],
)
def test_new_question_after_a_tool_result_is_added(name: str, given_: Any, earlier: Any, added: str) -> None:
    # A prompt file dropped the question.
    texts = check_user_texts(ASKED[name], given_, [*earlier, *loop("Asked: When?")])
    assert texts == [*(question for question, _ in earlier), "Asked: When?", f"Asked: {added}"]


@pytest.mark.parametrize("name", ASKED)
def test_question_in_the_history_without_its_template_text_is_not_repeated(name: str) -> None:
    assert user_texts(ASKED[name], {"q": "When?"}, loop("When?")) == ["When?"]


def test_user_template_and_input_are_compared_to_the_history_as_one_message() -> None:
    prompter = ChatPrompter({"system": "Be brief.", "user": "In {lang}:\n"}, system="")
    history = loop("In Dutch:\nWhen?")
    assert user_texts(prompter, {"lang": "Dutch"}, history) == ["In Dutch:\nWhen?"]
    assert user_texts(prompter, {"lang": "Dutch", "input": ""}, history) == ["In Dutch:\nWhen?"]
    assert user_texts(prompter, {"lang": "Dutch", "input": "And?"}, history)[-1] == "In Dutch:\nAnd?"
    assert user_texts(prompter, {"lang": "French"}, history)[-1] == "In French:\n"
    assert user_texts(ChatPrompter("Be brief."), "And?", history)[-1] == "And?"
    assert user_texts(ChatPrompter({"user": "Go on."}), None, history) == ["In Dutch:\nWhen?"]


def test_user_message_is_added_if_the_history_has_none() -> None:
    assert user_texts(ChatPrompter({"user": "Go on."}), None, loop("x")[1:]) == ["Go on."]
    assert user_texts(ASKED["slots"], {"q": "When?"}, loop("x")[1:]) == ["Asked: When?"]
    assert user_texts(ASKED["file"], {"q": "When?"}, loop("x")[1:]) == ["Asked: When?"]


def test_missing_system_slot_or_only_some_user_slots_is_an_error_in_a_tool_loop() -> None:
    prompter = ChatPrompter({"system": "From {doc}.", "user": "{a}, {b}"})
    with pytest.raises(SlotError, match="no value for 'doc'"):
        prompter.generate_prompt(history=loop("x, y"))
    with pytest.raises(SlotError, match="no value for 'b'"):
        prompter.generate_prompt({"doc": "d", "a": "x"}, loop("x, y"))
    with pytest.raises(SlotError, match="no value for 'a', 'b'"):
        prompter.generate_prompt({"doc": "d", "input": "And?"}, loop("x, y"))
    assert user_texts(prompter, {"doc": "d"}, loop("x, y")) == ["x, y"]
    shared = "---\ninputs: {q: {kind: string, required: true}}\n---\nsystem:\nAnswer {{q}}.\nuser:\n{{q}}"
    with pytest.raises(SlotError, match="Missing required input: q"):
        Prompty.loads(shared).generate_prompt(history=loop("When?"))


@pytest.mark.parametrize("history", [None, [["When?", "At nine."]], [{"role": "user", "content": "When?"}]])
def test_missing_slot_value_is_an_error_outside_of_a_tool_loop(history: Any) -> None:
    with pytest.raises(SlotError, match="no value for 'q'"):
        ASKED["slots"].generate_prompt(history=history)


def test_alpaca_prompter_rejects_a_tool_loop() -> None:
    with pytest.raises(HistoryError, match="does not support history"):
        AlpacaPrompter("{q}").generate_prompt("x", loop("When?"))


def test_user_message_is_not_repeated_with_a_budget_or_in_a_training_sample() -> None:
    prompter = ASKED["slots"].with_budget(Budget(200, CharTokenCounter()))
    assert user_texts(prompter, None, [["a", "b" * 300], *loop("Asked: When?")]) == ["Asked: When?"]
    answered = [*loop("Asked: When?"), {"role": "assistant", "content": "At 9:30."}]
    sample = ASKED["slots"].training_sample(history=answered, model="chatml")
    assert [message["role"] for message in sample.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert ASKED["slots"].fill(history=loop("Asked: When?")).input is None


SHOWN = ["a", "When?", "\n", "{q}"]
TEXT = st.sampled_from(["", *SHOWN])
# Empty user messages of a history are kept, so there are none here; a pair with an empty question adds none.
MESSAGE = st.one_of(
    st.builds(lambda text: [{"role": "user", "content": text}], st.sampled_from(SHOWN)),
    st.builds(lambda text: [{"role": "user", "content": [{"type": "text", "text": text}]}], st.sampled_from(SHOWN)),
    st.builds(lambda text: [{"role": "assistant", "content": text or "b"}], TEXT),
    st.builds(lambda text: loop(text)[1:], TEXT),
    st.builds(lambda text: [(text, "yes")], TEXT),
)
HISTORY = st.lists(MESSAGE, max_size=4).map(lambda runs: [message for run in runs for message in run])
INPUT = st.one_of(
    st.none(), TEXT, st.builds(lambda text: {"input": text}, TEXT), st.builds(lambda text: {"q": text}, TEXT)
)
PROMPTERS: list[Prompter] = [
    ChatPrompter("Be brief.", system=""),
    ChatPrompter("Answer {input}."),
    ChatPrompter({"user": "{q}"}, system=""),
    ChatPrompter({"system": "S", "user": "{q}"}, enable_system=False),
    ChatPrompter(system=""),
    ChatPrompter(system="", history=[("", "Hello!")]),
    EmptyPrompter(),
    Prompty.loads("system:\nBe brief.\nuser:\n{{input}}").prompter,
    Prompty.loads("---\ninputs: {q: ''}\n---\nuser:\n{{q}}").prompter,
]
FORMATS = (
    *("openai", "openai-responses", "anthropic", "gemini", "ollama", "deepseek", "vllm", "zhipu", "moonshot", "xai"),
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
TEMPLATE = ChatTemplate.load(CHATML)


def contents(payload: Any) -> list[Any]:
    """The contents of the user messages of a payload."""
    turns = payload.get("messages") or payload.get("contents") or payload.get("input") or []
    return [turn.get("content", turn.get("parts")) for turn in turns if turn.get("role") == "user"]


def is_empty(content: Any) -> bool:
    if isinstance(content, list):
        return all(set(part) <= {"type", "text"} and not part.get("text") for part in content)
    return not content


@pytest.mark.slow
@settings(max_examples=150)
@given(prompter=st.sampled_from(PROMPTERS), given_=INPUT, history=HISTORY, form=st.sampled_from(FORMATS))
def test_prompts_contain_no_empty_user_turn(prompter: Prompter, given_: Any, history: Any, form: Any) -> None:
    try:
        payload = prompter.generate_prompt(given_, history, format=form)
    except (SlotError, FormatError):
        reject()  # the input does not fit this prompter; the test fails if none fits
    assert not [content for content in contents(payload) if is_empty(content)]
    if not isinstance(prompter, EmptyPrompter):  # whose flat prompt is the input alone
        for target in ({"model": "chatml"}, {"chat_template": TEMPLATE}):
            assert "<|im_start|>user\n<|im_end|>" not in prompter.generate_prompt(given_, history, **target)


@pytest.mark.parametrize("form", FORMATS)
def test_empty_user_turn_of_alpaca_is_in_the_openai_format_only(form: Any) -> None:
    payload = AlpacaPrompter("Add {q}").generate_prompt("1+1", format=form)
    assert [is_empty(content) for content in contents(payload)] == [form == "openai"]
