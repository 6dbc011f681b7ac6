"""Templates of messages: their order, the place of the history, and the use of an input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import ChatPrompter, HistoryError, ImageBlock, Msg, SlotError, TemplateError, TextBlock, URLSource

HISTORY = [["Hi.", "Hello."]]
SYSTEM = {"role": "system", "content": "You know cats."}
PAST = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]

# Texts with slots, and the same texts with the values filled in.
VALUE_OF = {"a": "x{b}", "b": "42", "c": "{{c}}"}
PIECES = st.sampled_from(
    [("{a}", "x{b}"), ("{b}", "42"), ("{c}", "{{c}}"), ("{{a}}", "{a}"), ("{1}", "{1}"), ("t ", "t ")]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=4).map(
    lambda pieces: tuple("".join(side) for side in zip(*pieces, strict=True))
)
TURNS = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), min_size=1, max_size=6)


def as_pair(role: str, text: str) -> object:
    return role, text


def as_dict(role: str, text: str) -> object:
    return {"role": role, "content": text}


def as_msg(role: Any, text: str) -> object:
    return Msg(role, text, role).without_speaker()


@given(
    turns=TURNS,
    place=st.none() | st.integers(0, 6),
    forms=st.lists(st.sampled_from([as_pair, as_dict, as_msg]), min_size=6),
)
def test_messages_keep_their_order_with_the_history_at_its_place(
    turns: list[tuple[str, tuple[str, str]]], place: int | None, forms: list[Any]
) -> None:
    written = [form(role, template) for form, (role, (template, _)) in zip(forms, turns, strict=False)]
    expected = [{"role": role, "content": text} for role, (_, text) in turns]
    systems = [at for at, (role, _) in enumerate(turns, 1) if role == "system"]
    at = max(systems, default=0) if place is None else min(place, len(turns))
    if place is not None:
        written.insert(at, "history")
    prompter = ChatPrompter.from_messages(written)
    values = {name: VALUE_OF[name] for name in prompter.slots}
    expected[at:at] = PAST
    assert prompter.generate_prompt(values, HISTORY, return_dict=True) == {"messages": expected}


def test_a_system_message_after_the_history_is_not_moved() -> None:
    """The system message moved in front of the history if it was the first message of the template."""
    prompter = ChatPrompter.from_messages(["history", ("system", "Be brief."), ("user", "{q}")])
    made = prompter.generate_prompt("Why?", HISTORY, return_dict=True)["messages"]
    assert made == [*PAST, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def test_control_sequences_are_kept_in_the_template_and_neutralized_in_values() -> None:
    template: list[Any] = [
        ("system", "<|im_end|>{a}"),
        ("user", "<|im_start|>{a}"),
        ("assistant", "<|im_end|>b"),
        "history",
    ]
    prompter = ChatPrompter.from_messages([*template, ("user", "<|im_start|>{q}")])
    values = {"a": "<|im_end|>", "q": "<|im_start|>"}
    made = prompter.generate_prompt(values, [["<|im_end|>", "h"]], format="vllm", model="qwen2.5")
    assert [each["content"] for each in made["messages"]] == [
        *("<|im_end|><\\|im_end|>", "<|im_start|><\\|im_end|>", "<|im_end|>b"),
        *("<\\|im_end|>", "h", "<|im_start|><\\|im_start|>"),
    ]


def test_message_blocks_are_kept_and_their_slots_filled() -> None:
    picture = ImageBlock(URLSource("https://example.com/{a}.png"))
    prompter = ChatPrompter.from_messages([Msg("user", [TextBlock("What is {a}?"), picture], "user"), "history"])
    (message,) = prompter.generate_prompt({"a": "this"}, return_dict=True)["messages"]
    assert message["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/{a}.png"}},
    ]
    texts = ChatPrompter.from_messages([Msg("user", [TextBlock("<s>"), TextBlock("{a}")], "user"), ("assistant", "A")])
    segments = texts.render({"a": "</s>"}, model="mistral-v3").segments
    assert [each for each in segments if each.slot in ("instruction", "a")][:2] == [
        ("<s>\n", "instruction", True),
        ("<\\/s>", "a", False),
    ]


@pytest.mark.parametrize("extra", [{"name": "Ann"}, {"metadata": {"k": 1}}, {"url": "https://a.b/c.png"}])
def test_name_metadata_and_url_of_a_template_message_are_kept(extra: dict[str, Any]) -> None:
    template, filled = (
        [Msg(**{"name": role, "role": role, "content": text, **extra}) for role in ("system", "user")]
        for text in ("{q}", "a")
    )
    assert [*ChatPrompter.from_messages(template).fill({"q": "a"}).history.messages] == filled


def test_a_template_message_with_an_image_is_not_repeated_in_a_tool_loop() -> None:
    picture = ImageBlock(URLSource("https://example.com/a.png"))
    asks = Msg("user", [TextBlock("{q}"), picture], "user")
    prompter = ChatPrompter.from_messages(["history", ("assistant", "A"), asks])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    loop: list[dict[str, Any]] = [
        {"role": "user", "content": "What?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    assert [each["role"] for each in prompter.generate_prompt(None, loop, return_dict=True)["messages"]] == [
        *("user", "assistant", "tool", "assistant")
    ]
    asked = prompter.generate_prompt({"q": "And now?"}, loop, return_dict=True)["messages"]
    assert [each["role"] for each in asked] == ["user", "assistant", "tool", "assistant", "user"]


def test_an_input_fills_slots_if_the_template_ends_with_the_user_else_becomes_a_message() -> None:
    asks = ChatPrompter.from_messages([("system", "You know {topic}."), ("user", "Tell me something.")])
    assert asks.generate_prompt("cats", return_dict=True)["messages"][0]["content"] == "You know cats."
    with pytest.raises(SlotError, match="no slot named 'input'"):
        asks.generate_prompt({"topic": "cats", "input": "Hi."})
    open_ended = ChatPrompter.from_messages([("system", "You know {topic}.")])
    made = open_ended.generate_prompt({"topic": "cats", "input": "Hi."}, HISTORY, return_dict=True)
    assert made == {"messages": [SYSTEM, *PAST, {"role": "user", "content": "Hi."}]}
    assert open_ended.generate_prompt({"topic": "cats"}, return_dict=True) == {"messages": [SYSTEM]}


EXAMPLE = """[("system", "You are kind."), "history", ("user", "{question}")]"""
PAIR = f"expected a (role, text) pair or 'history', as in {EXAMPLE}"
ROLE = "expected a (role, text) pair whose role is one of 'system', 'developer', 'user', 'assistant'"


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], f"messages is empty; pass at least one message, as in {EXAMPLE}"),
        ("history", f"messages must be a list such as {EXAMPLE}, not str"),
        (["hist", ("user", "a")], f"messages[0] is the string 'hist' (did you mean 'history'?); {PAIR}"),
        ([("user", "a"), "x" * 99], f"messages[1] is the string {'x' * 40!r}; {PAIR}"),
        (["history", "history", ("user", "a")], "messages contains 'history' 2 times; use it only once"),
        ([("usr", "a")], f"messages[0] has the role 'usr' (did you mean 'user'?); {ROLE}"),
        ([("user", "a", "b")], f"messages[0] has the length 3; {ROLE}"),
        ([["user"]], f"messages[0] has the length 1; {ROLE}"),
        ([(5, "a")], f"messages[0] has type tuple; {ROLE}"),
        ([[]], f"messages[0] has type list; {ROLE}"),
        ([("placeholder", "{x}")], "messages[0] is a LangChain message placeholder; use 'history' instead"),
    ],
)
def test_error_for_an_invalid_message_names_its_index_and_shows_the_valid_form(messages: Any, error: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatPrompter.from_messages(messages)
    assert str(caught.value) == error


@pytest.mark.parametrize("message", [{"role": "bot", "content": "a"}, ("user", 3)])
def test_error_for_an_invalid_role_or_content_names_the_message_index(message: Any) -> None:
    with pytest.raises(HistoryError, match=r"^messages\[1\]"):
        ChatPrompter.from_messages([("human", "a"), message])
