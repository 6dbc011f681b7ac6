from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lazyprompt import CharTokenCounter, ChatPrompter, Prompter
from lazyprompt.inspect.look import Call, Look, look
from lazyprompt.inspect.saved import saved_look
from lazyprompt.inspect.slot_diff import SharedPrefix, SlotChange, shared_prefix, slot_diff


def seen(prompter: Prompter, given: object, form: str = "flat", model: str | None = None) -> Look:
    return look(prompter, Call(given), form=form, model=model, counter=CharTokenCounter())


def test_slots_of_two_prompts() -> None:
    one = seen(ChatPrompter("Say {x} to {y}.", system=""), {"x": "Hi", "y": "a\nb\nc"})
    other = seen(ChatPrompter("Say {x} to {z}.", system=""), {"x": "Hi", "z": "you"})
    changes = slot_diff(one, other)
    assert [(change.name, change.state, change.before, change.after) for change in changes] == [
        ("instruction", "same", 11, 11),
        ("x", "same", 2, 2),
        ("y", "removed", 5, 0),
        ("z", "added", 0, 3),
        ("markers", "same", 60, 60),
    ]
    assert changes[2].lines == ("@@ -1,3 +0,0 @@", "-a", "-b", "-c")
    assert changes[3].lines == ("@@ -0,0 +1 @@", "+you")


def test_lines_that_changed_with_those_around() -> None:
    texts = ["\n".join(f"{at}{end}" for at in range(9)) for end in ("", "!")]
    one, other = (
        seen(ChatPrompter("{x}", system=""), {"x": text.replace("4!", "four")})
        for text in (texts[0], texts[0].replace("4", "4!"))
    )
    (change,) = (change for change in slot_diff(one, other) if change.state != "same")
    assert change == SlotChange(
        "x", "changed", 17, 20, ("@@ -2,7 +2,7 @@", " 1", " 2", " 3", "-4", "+four", " 5", " 6", " 7")
    )


def test_the_markers_of_two_models() -> None:
    prompter = ChatPrompter("Say {x}", system="S")
    changes = slot_diff(seen(prompter, {"x": "Hi"}, model="qwen2.5"), seen(prompter, {"x": "Hi"}, model="llama3.1"))
    # Llama's template trims what is said, too.
    assert [change.name for change in changes if change.state == "changed"] == ["instruction", "markers"]
    assert changes[-1].name == "markers"
    assert "-<|im_start|>system" in changes[-1].lines


def test_what_stands_around_comes_last_and_may_differ_in_tokens_alone() -> None:
    one, other = (look(ChatPrompter("Say"), Call("Hi", past), form="openai") for past in (None, [["a", "b"]]))
    other = replace(other, slots=(*other.slots[:-1], other.slots[-1]._replace(tokens=99)))
    changes = slot_diff(one, other)
    assert [(change.name, change.state) for change in changes] == [
        ("system", "same"),
        ("instruction", "same"),
        ("input", "same"),
        ("history", "added"),
        ("framing", "changed"),
    ]
    assert changes[-1].lines == ()


def test_the_same_text_is_the_same_whatever_it_counts() -> None:
    # Once markers changed that were the same: what is left of the whole is counted as theirs.
    one = seen(ChatPrompter("Say {x}"), {"x": "Hi"})
    other = replace(one, slots=tuple(slot._replace(tokens=slot.tokens + 1) for slot in one.slots))
    assert {change.state for change in slot_diff(one, other)} == {"same"}


def test_the_end_of_a_line_is_a_difference() -> None:
    prompter = ChatPrompter("{x}", system="")
    one, other = (seen(prompter, {"x": text}) for text in ("a", "a\n"))
    (change,) = (each for each in slot_diff(one, other) if each.state != "same")
    assert change.lines == ("@@ -1 +1,2 @@", " a", "+")


def test_a_prompt_and_itself() -> None:
    one = seen(ChatPrompter("Say {x}"), {"x": "Hi"}, form="anthropic")
    assert {change.state for change in slot_diff(one, one)} == {"same"}
    assert all(change.lines == () for change in slot_diff(one, one))


def test_the_end_of_the_shared_beginning_is_the_slot_that_a_cache_breaks_at() -> None:
    prompter = ChatPrompter({"system": "It is {now}.\nThe manual:\n{manual}", "user": "{q}"}, system="You help.")

    def made(form: str, values: dict[str, str], history: list[list[str]] | None = None) -> Look:
        given = {"now": "10:00", "manual": "a\nb\nc", "q": "Why?"} | values
        return look(prompter, Call(given, history), form=form, counter=CharTokenCounter())

    for form in ("flat", "openai", "anthropic"):
        one = made(form, {})
        assert shared_prefix(one, one) == SharedPrefix(one.total, one.total, None, 1)
        for values, slot, line in (({"now": "10:05"}, "now", 1), ({"manual": "a\nb\nd"}, "manual", 3)):
            other = made(form, values)
            assert shared_prefix(one, other)[1:] == (other.total, slot, line)
        assert shared_prefix(one, made(form, {"q": "Why? How?"})).slot == "q"
    found = shared_prefix(made("openai", {}), made("openai", {}, [["Hi", "Ho"]]))
    assert (found.slot, found.tokens) == ("history", len("You help.It is 10:00.\nThe manual:\na\nb\nc"))


def test_tools_stand_first_in_a_payload_that_was_saved() -> None:
    def saved(*names: str) -> Look:
        tools: list[dict[str, Any]] = [
            {"type": "function", "function": {"name": name, "parameters": {}}} for name in names
        ]
        return saved_look(json.dumps({"messages": [{"role": "user", "content": "Hi"}], "tools": tools}))

    found = shared_prefix(saved("a", "b"), saved("b", "a"))
    assert (found.slot, found.line) == ("tools", 1)
