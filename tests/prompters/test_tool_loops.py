"""Tool loops: what is said again, and what is not, where the history ends with a tool's result."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyprompt import AlpacaPrompter, Budget, CharTokenCounter, ChatPrompter, ChatTemplate, EmptyPrompter, Prompter
from lazyprompt.errors import HistoryError, LazyPromptError, SlotError
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
    """A history that ends with a tool's result."""
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "9:30"},
    ]


def user_texts(prompter: Prompter, given_: object, history: Any) -> list[str]:
    made = prompter.generate_prompt(given_, history, return_dict=True)["messages"]
    return [message["content"] for message in made if message["role"] == "user"]


def check_user_texts(prompter: Prompter, given_: object, history: Any) -> list[str]:
    """What the user says in the messages of a prompt, which flat text and payloads say too."""
    texts = user_texts(prompter, given_, history)
    flat = prompter.generate_prompt(given_, history, model="chatml")
    assert flat.count("<|im_start|>user\n") == len(texts) + 1  # the result is a user turn in this family
    assert prompter.render(given_, history, model="chatml").text == flat
    for provider in ("anthropic", "gemini", "ollama"):
        assert str(prompter.generate_prompt(given_, history, format=provider)).count("Asked: ") == len(texts)
    return texts


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("given_", [None, {}, "When?", {"q": "When?"}])
def test_the_users_part_is_not_said_again(name: str, given_: Any) -> None:
    # Once it was asked anew behind each result, or the value was missing.
    assert check_user_texts(ASKED[name], given_, loop("Asked: When?")) == ["Asked: When?"]


@pytest.mark.parametrize("name", ASKED)
def test_another_question_is_never_dropped(name: str) -> None:
    # Once a prompt file dropped it.
    for given_ in ({"q": "And then?"}, "And then?"):
        texts = check_user_texts(ASKED[name], given_, loop("Asked: When?"))
        assert texts == ["Asked: When?", "Asked: And then?"]
    earlier = [["Asked: And then?", "Later."], *loop("Asked: When?")]
    assert check_user_texts(ASKED[name], {"q": "And then?"}, earlier)[-1] == "Asked: And then?"
    assert check_user_texts(ASKED[name], {"q": "When"}, loop("Asked: When?"))[-1] == "Asked: When"


@pytest.mark.parametrize("name", ASKED)
def test_a_question_that_stands_in_the_history_without_its_template_is_the_same(name: str) -> None:
    assert user_texts(ASKED[name], {"q": "When?"}, loop("When?")) == ["When?"]


def test_text_beside_the_users_part() -> None:
    prompter = ChatPrompter({"system": "Be brief.", "user": "In {lang}:\n"}, system="")
    asked = loop("In Dutch:\nWhen?")
    assert user_texts(prompter, {"lang": "Dutch"}, asked) == ["In Dutch:\nWhen?"]
    assert user_texts(prompter, {"lang": "Dutch", "input": ""}, asked) == ["In Dutch:\nWhen?"]
    assert user_texts(prompter, {"lang": "Dutch", "input": "And?"}, asked)[-1] == "In Dutch:\nAnd?"
    assert user_texts(prompter, {"lang": "French"}, asked)[-1] == "In French:\n"
    assert user_texts(ChatPrompter("Be brief."), "And?", asked)[-1] == "And?"
    assert user_texts(ChatPrompter({"user": "Go on."}), None, asked) == ["In Dutch:\nWhen?"]


def test_what_nobody_said_yet_is_said() -> None:
    assert user_texts(ChatPrompter({"user": "Go on."}), None, loop("x")[1:]) == ["Go on."]
    assert user_texts(ASKED["slots"], {"q": "When?"}, loop("x")[1:]) == ["Asked: When?"]
    assert user_texts(ASKED["file"], {"q": "When?"}, loop("x")[1:]) == ["Asked: When?"]


def test_values_of_the_system_part_are_needed_and_those_of_the_users_part_go_together() -> None:
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


def test_elsewhere_all_values_are_needed() -> None:
    for history in (None, [["When?", "At nine."]], [{"role": "user", "content": "When?"}]):
        with pytest.raises(SlotError, match="no value for 'q'"):
            ASKED["slots"].generate_prompt(history=history)
    with pytest.raises(HistoryError, match="does not support history"):
        AlpacaPrompter("{q}").generate_prompt("x", loop("When?"))


def test_within_a_budget_and_in_training_data() -> None:
    prompter = ASKED["slots"].with_budget(Budget(200, CharTokenCounter()))
    assert user_texts(prompter, None, [["a", "b" * 300], *loop("Asked: When?")]) == ["Asked: When?"]
    answered = [*loop("Asked: When?"), {"role": "assistant", "content": "At 9:30."}]
    sample = ASKED["slots"].training_sample(history=answered, model="chatml")
    assert [message["role"] for message in sample.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert ASKED["slots"].fill(history=loop("Asked: When?")).input is None


SHOWN = ["a", "When?", "\n", "{q}"]
TEXT = st.sampled_from(["", *SHOWN])
# A message of the user's is sent as it was given, an empty one too; a pair without a question has none.
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
    """What the user's messages of a payload hold."""
    turns = payload.get("messages") or payload.get("contents") or payload.get("input") or []
    return [turn.get("content", turn.get("parts")) for turn in turns if turn.get("role") == "user"]


def is_empty(content: Any) -> bool:
    if isinstance(content, list):
        return all(set(part) <= {"type", "text"} and not part.get("text") for part in content)
    return not content


@pytest.mark.slow
@settings(max_examples=150)
@given(prompter=st.sampled_from(PROMPTERS), given_=INPUT, history=HISTORY, form=st.sampled_from(FORMATS))
def test_no_turn_of_the_user_is_empty(prompter: Prompter, given_: Any, history: Any, form: Any) -> None:
    try:
        payload = prompter.generate_prompt(given_, history, format=form)
    except LazyPromptError:
        return  # the input does not fit this prompter
    assert not [content for content in contents(payload) if is_empty(content)]
    if not isinstance(prompter, EmptyPrompter):  # flat, it is the input alone
        for laid_out in ({"model": "chatml"}, {"chat_template": TEMPLATE}):
            assert "<|im_start|>user\n<|im_end|>" not in prompter.generate_prompt(given_, history, **laid_out)


@pytest.mark.parametrize("form", FORMATS)
def test_the_empty_turn_of_alpaca_is_printed_in_openais_form_alone(form: Any) -> None:
    payload = AlpacaPrompter("Add {q}").generate_prompt("1+1", format=form)
    assert [is_empty(content) for content in contents(payload)] == [form == "openai"]
