"""Prompts under test: their turns with the slot of each piece, their payloads, settings and marks."""

from pathlib import Path
from typing import Any

import pytest

from lazyprompt import ApproximateTokenCounter, CharTokenCounter, ChatPrompter
from lazyprompt.errors import FormatError
from lazyprompt.testing.rendered import LoadedPrompt, TurnText

FILE = """---
name: a
model: {id: gpt-4o, apiType: chat, options: {temperature: 0.5}, connection: {kind: key, apiKey: k}}
inputs: [{name: who, kind: string}, {name: talk, kind: thread}]
outputs: [{name: o, kind: string}]
tools: [{name: f, kind: function, parameters: [{name: k, kind: string}]}]
---
system:
Greet {{ who }}.
{{ talk }}
user:
Hi {{ who ~ "!" }}
"""
HISTORY = [{"role": "user", "content": "h"}, {"role": "assistant", "content": "r"}]
CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("span", "slot"),
    [((0, 3), "instruction"), ((2, 6), "a"), ((3, 5), "a"), ((5, 6), "b"), ((1, 4), "instruction"), ((9, 9), "")],
)
def test_slot_at_returns_the_slot_that_covers_most_of_the_range(span: tuple[int, int], slot: str) -> None:
    turn = TurnText("user", (("", "own"), ("a", "xy"), ("b", "z")))
    assert turn.text == "ownxyz"
    assert turn.slot_at(*span) == slot


def test_a_rendered_prompter_has_turns_with_slots_and_payloads() -> None:
    loaded = LoadedPrompt.of(ChatPrompter("Greet {who}.", system="Be kind.", tools=[_tool]))
    case = loaded.render({"who": "Ann", "input": "Hi"}, HISTORY, name="n")
    assert case.turns == (
        TurnText("system", (("", "Be kind.\n"), ("", "Greet "), ("who", "Ann"), ("", ".\n\n"))),
        TurnText("user", (("history", "h"),)),
        TurnText("assistant", (("history", "r"),)),
        TurnText("user", (("input", "Hi"),)),
    )
    row = {"who": "Ann", "input": "Hi", "history": HISTORY, "tools": CALLS}
    assert loaded.arguments(row) == ({"who": "Ann", "input": "Hi"}, HISTORY, CALLS)
    assert case.slots == {"": "Be kind.\nGreet .\n\n", "who": "Ann", "history": "hr", "input": "Hi"}
    assert case.text == "Be kind.\nGreet Ann.\n\n\n\nh\n\nr\n\nHi"
    assert (str(case), case.call) == ("n", ({"who": "Ann", "input": "Hi"}, HISTORY, None))
    assert (loaded.is_chat, loaded.secrets) == (True, ())
    assert case.payload("openai") == case.render("openai")
    payload, counters = case.render("openai"), (CharTokenCounter(), ApproximateTokenCounter())
    counts = [each.count(payload["messages"], payload["tools"]) for each in counters]
    assert [case.count(counters[0]), case.tokens] == counts
    with pytest.raises(FormatError, match="'flat' renders text; use a provider that renders a payload"):
        case.render("flat")


def test_a_rendered_prompt_without_input_has_the_turns_of_its_instructions() -> None:
    case = LoadedPrompt.of(ChatPrompter({"user": "Ask {q}"}, system="S")).render({"q": "a"})
    asked = TurnText("user", (("", "Ask "), ("q", "a")))
    assert case.turns == (TurnText("system", (("", "S"),)), asked)
    prompter = ChatPrompter.from_messages([("user", "Ask {q}"), ("assistant", "{q}")])
    assert LoadedPrompt.of(prompter).render({"q": "a"}).turns == (asked, TurnText("assistant", (("q", "a"),)))


def test_tokens_of_a_prompt_unsupported_by_openai_are_counted_from_its_text(tmp_path: Path) -> None:
    text = "---\ninputs: [{name: p, kind: image}]\n---\nuser:\nSee {{p}}"
    case = LoadedPrompt.load(tmp_path / "a.prompty", text=text).render({"p": "file:///x.png"})
    assert (case.text, case.count(CharTokenCounter())) == ("See [image]", len("See [image]"))


def test_a_rendered_prompt_file_has_turns_settings_and_requests(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(FILE, encoding="utf-8")
    loaded = LoadedPrompt.load(tmp_path / "a.prompty")
    case = loaded.render({"who": "Ann", "talk": [*HISTORY, {"role": "assistant", "tool_calls": CALLS}]})
    calls = case.turns[3].pieces
    assert [case.turns[at] for at in (0, 1, 2, 4)] == [
        TurnText("system", (("", "Greet "), ("who", "Ann"), ("", "."))),
        *(TurnText(role, (("history", text),)) for role, text in (("user", "h"), ("assistant", "r"))),
        TurnText("user", (("", "Hi "), ("", "Ann!"))),
    ]
    assert [(slot, "ToolUseBlock" in text) for slot, text in calls] == [("history", True)]
    settings: Any = loaded.settings
    assert settings["model"] == {"id": "gpt-4o", "apiType": "chat"}
    assert settings["parameters"] == {"temperature": 0.5}
    assert [each["name"] for kind in ("tools", "answer form") for each in settings[kind]] == ["f", "o"]
    assert loaded.counter[0] in ("tiktoken:gpt-4o", "approximate")
    assert case.payload("dashscope") == case.render("dashscope")
    assert (case.payload()["model"], "model" in case.render("openai")) == ("gpt-4o", False)
    loaded.check_names("an input that is no mapping")
    assert loaded.reads_like(LoadedPrompt.load(tmp_path / "a.prompty", text=FILE + "More."))
    assert not loaded.reads_like(LoadedPrompt.load(tmp_path / "a.prompty", text="user:\n{{ other }}"))


@pytest.mark.parametrize(("api", "is_chat"), [("chat", True), ("responses", True), ("embedding", False)])
def test_the_model_and_api_type_of_a_prompt_file_are_read(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_chat: bool
) -> None:
    monkeypatch.setattr("lazyprompt.testing.rendered.counter_named", str.upper)
    text = f'---\nmodel: {{id: hub/m, apiType: {api}}}\n---\nuser:\nq\n\ntool[tool_call_id="c"]:\n1\n'
    loaded = LoadedPrompt.load(tmp_path / "a.prompty", text=text)
    counter: object = loaded.counter
    assert loaded.is_chat is is_chat
    assert counter == ("tiktoken:m", "TIKTOKEN:M")
    case = loaded.render()
    assert (str(case), case.turns) == ("", (TurnText("user", (("", "q"),)), TurnText("tool", (("", "1"),))))


def test_a_yaml_prompt_file_has_its_model_as_a_setting(tmp_path: Path) -> None:
    loaded = LoadedPrompt.load(tmp_path / "a.yaml", text="instruction: Hi\nmodel: qwen2.5")
    assert loaded.file is None
    assert loaded.settings == {"tools": [], "model": "qwen2.5"}


def test_control_sequences_in_values_are_marked() -> None:
    case = LoadedPrompt.of(ChatPrompter("<|im_end|>{who}", system="")).render({"who": "a<|im_end|>", "input": "b"})
    assert [(mark.slot, mark.raw) for mark in case.marks] == [("who", "<|im_end|>")]


def _tool(key: str) -> str:
    """Look a thing up.

    Args:
        key: The key.
    """
    return key
