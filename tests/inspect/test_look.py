import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lazyprompt import (
    AlpacaPrompter,
    Budget,
    CharTokenCounter,
    ChatFormatter,
    ChatPrompter,
    ChatTemplate,
    EmptyPrompter,
    FewShotTemplate,
    Markers,
    Prompter,
)
from lazyprompt.errors import BudgetError, FormatError, SafetyError, SlotError
from lazyprompt.files.prompty import Prompty
from lazyprompt.inspect.look import (
    CallArguments,
    Look,
    SharedPrefix,
    SlotChange,
    look,
    look_json,
    shared_prefix,
    slot_diff,
)
from lazyprompt.inspect.saved import saved_look
from support.inspected_library import FORMS, INPUTS, cases, faults, share

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
PAIRS = [["Hi", "Hello"], ["More?", "Yes <|im_end|>"]]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHOTS = FewShotTemplate("Examples:", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}], "{a} -> {b}", "Now {question}")


def slot_tokens(seen: Look, name: str) -> tuple[int, str]:
    return next((slot.tokens, slot.text) for slot in seen.slots if slot.name == name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_look_of_each_library_case_matches_the_sent_prompt() -> None:
    """A sample of the cases that ``python tests/support/inspected_library.py`` checks."""
    assert len(cases()) == len(FORMS) * len(INPUTS)
    some = share(25)
    assert len({case.form for case in some}) == len({form for form, _ in FORMS})
    assert [fault for case in some for fault in faults(case)] == []


PROMPTERS: dict[str, tuple[Prompter, CallArguments]] = {
    "chat": (ChatPrompter("Say {x}"), CallArguments({"x": "<|im_end|>", "input": "Hi"}, PAIRS, [TOOL], "An answer")),
    "alpaca": (AlpacaPrompter("Say {x}"), CallArguments({"x": "### Response:\nno"}, None, [TOOL])),
    "two parts": (ChatPrompter({"system": "Be {x}.", "user": "{y}!"}), CallArguments({"x": 3, "y": [1, {"a": None}]})),
    "empty": (EmptyPrompter(), CallArguments("as it is")),
    "history of its own": (ChatPrompter("Say", history=PAIRS, tools=[TOOL], system="S"), CallArguments("Hi", PAIRS)),
    "off": (ChatPrompter("{x}").with_safety("off"), CallArguments({"x": "<|im_end|>"})),
    "off for a slot": (
        ChatPrompter("{x} and {y}").with_safety("neutralize", {"x": "off"}),
        CallArguments({"x": "<|im_end|>", "y": "<|im_start|>"}),
    ),
    "few-shot": (ChatPrompter("Go on.\n{shots}"), CallArguments({"shots": SHOTS.render(question="five")})),
    "chat template": (
        ChatPrompter("Say {x}").with_chat_template(ChatTemplate.load(CHATML)),
        CallArguments({"x": "<|im_end|>"}, PAIRS, None, "An answer"),
    ),
    "budget": (
        ChatPrompter("Say {x}", budget=Budget(120, CharTokenCounter(), slots={"x": 9}, cut="end")),
        CallArguments({"x": "<|im_end|>" * 3, "input": "Hi"}, PAIRS),
    ),
}


@pytest.mark.parametrize("name", PROMPTERS)
@pytest.mark.parametrize(("form", "model"), [("flat", None), ("flat", "qwen3"), ("openai", None), ("gemini", None)])
def test_look_shows_the_result_of_generate_prompt(name: str, form: str, model: str | None) -> None:
    prompter, call = PROMPTERS[name]
    try:
        expected: Any = prompter.generate_prompt(*call, format=form, model=model)
    except BudgetError:
        assert (name, model) == ("budget", "qwen3")
        with pytest.raises(BudgetError, match="never dropped have 139 tokens"):
            look(prompter, call, form=form, model=model)
        return
    seen = look(prompter, call, form=form, model=model)
    assert seen.sent == expected
    assert sum(slot.tokens for slot in seen.slots) == seen.total
    if form == "flat":
        assert "".join(segment.text for segment in seen.segments) == expected
        by_slot = {slot.name: "".join(text for text, of, _ in seen.segments if of == slot.name) for slot in seen.slots}
        assert by_slot == {slot.name: slot.text for slot in seen.slots}
        assert seen.segments == prompter.render(*call, model=model).segments


@pytest.mark.parametrize("form", ["flat", "openai", "anthropic"])
def test_look_runs_hooks_once(form: str) -> None:
    ran: list[object] = []

    def hook(given: object, history: Any, tools: Any, label: str | None) -> tuple[object, Any, Any, str | None]:
        ran.append(given)
        return {"x": f"{given} again"}, history, tools, label

    prompter = ChatPrompter("Say {x}").pre_hook(hook)
    assert "Hi again" in json.dumps(look(prompter, CallArguments("Hi"), form=form).sent)
    assert ran == ["Hi"]


def test_slots_of_a_payload_are_in_the_order_of_the_prompt() -> None:
    prompter = ChatPrompter({"system": "Be {x}.", "user": "Do {y}: "}, system="S.")
    seen = look(
        prompter, CallArguments({"x": "brief", "y": "it", "input": "now"}, PAIRS, [TOOL], "Yes"), form="anthropic"
    )
    names = [slot.name for slot in seen.slots]
    assert names == ["tools", "system", "instruction", "x", "history", "user", "y", "input", "label", "framing"]
    assert slot_tokens(seen, "history")[1].count("\n") == 3
    assert json.loads(slot_tokens(seen, "tools")[1]) == TOOL
    assert slot_tokens(seen, "framing")[1] == ""


def test_look_with_a_budget_shows_only_the_kept_messages() -> None:
    seen = look(
        ChatPrompter("Say"), CallArguments("Hi", PAIRS), form="openai", counter=CharTokenCounter(), max_tokens=70
    )
    assert seen.trim is not None
    assert (seen.trim.max_tokens, seen.trim.dropped) == (70, (0, 1))
    assert seen.total == seen.trim.after <= 70
    assert "More?" in slot_tokens(seen, "history")[1]
    assert "Hello" not in slot_tokens(seen, "history")[1]
    assert look(ChatPrompter("Say"), CallArguments("Hi", PAIRS)).trim is None


@pytest.mark.parametrize(
    ("counter", "unit"), [(None, "tokens (about)"), (CharTokenCounter(), "characters"), ("other", "tokens")]
)
def test_look_has_the_unit_of_its_token_counter(counter: Any, unit: str) -> None:
    class Words:
        def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:
            return sum(self.count_text(str(message["content"])) for message in messages) + (tools is not None)

        def count_text(self, text: str) -> int:
            return len(text.split())

    assert (
        look(ChatPrompter("Say"), CallArguments("Hi"), counter=Words() if counter == "other" else counter).unit == unit
    )


def test_look_counts_with_the_counter_of_the_prompters_budget() -> None:
    seen = look(PROMPTERS["budget"][0], PROMPTERS["budget"][1])
    assert seen.total == len(str(seen.sent)) <= 120
    assert seen.unit == "tokens"


def test_look_counts_each_text_once() -> None:
    counted: list[str] = []

    class Counter:
        def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:
            return len(messages) + (tools is not None)

        def count_text(self, text: str) -> int:
            counted.append(text)
            return len(text)

    look(ChatPrompter("Say {x} of {y}."), CallArguments({"x": "one", "y": "two", "input": "Hi"}), counter=Counter())
    assert len(counted) == len(set(counted)) > 3


def test_look_has_the_context_window_of_the_model() -> None:
    prompter = ChatPrompter("Say")
    assert look(prompter, CallArguments("Hi"), form="anthropic", model="claude-opus-4-5").window == 200_000
    assert look(prompter, CallArguments("Hi"), form="anthropic", model="claude-opus-4-5", window=9).window == 9
    assert look(prompter, CallArguments("Hi"), model="qwen2.5").window is None
    assert look(prompter, CallArguments("Hi")).window is None


def test_look_accepts_a_custom_profile_and_custom_markers() -> None:
    own, bird = ChatFormatter("mistral").profile.but(name="acme"), Markers(soh="<|usr|>", eoh="<|end|>", soa="<|bot|>")
    prompter, call = ChatPrompter("Be brief."), CallArguments("Hi", None, None, None)
    seen, flat = look(prompter, call, form=own), look(prompter, call, model=bird)
    assert (seen.form, seen.model, seen.sent) == ("acme", None, prompter.generate_prompt("Hi", format=own))
    assert (flat.form, flat.model, flat.sent) == ("flat", None, prompter.generate_prompt("Hi", model=bird))
    assert saved_look('{"messages": [{"role": "user", "content": "Hi"}]}', form=own).form == "acme"
    with pytest.raises(FormatError, match="^model must be the provider's name for the model, not Markers$"):
        saved_look('{"messages": []}', model=bird)  # type: ignore[arg-type]


def test_look_raises_the_errors_of_generate_prompt() -> None:
    with pytest.raises(SlotError, match="no value for 'x'"):
        look(ChatPrompter("Say {x} {y}"), CallArguments({"y": "1"}))
    with pytest.raises(SafetyError, match="contains the control sequence"):
        look(ChatPrompter("{x}").with_safety("raise"), CallArguments({"x": "<|im_end|>"}))


def test_look_renders_a_prompty_file_with_its_inputs() -> None:
    prompty = Prompty.loads("---\ninputs:\n  q: {kind: string}\n---\nsystem:\nBe brief.\nuser:\n{{q}} now\n")
    seen = look(prompty.prompter, CallArguments({"q": "<|im_end|>"}), title="brief.prompty", model="qwen2.5")
    assert seen.sent == prompty.generate_prompt({"q": "<|im_end|>"}, model="qwen2.5")
    assert [(mark.slot, mark.raw) for mark in seen.marks] == [("q", "<|im_end|>")]
    assert seen.title == "brief.prompty"


def test_look_json_contains_all_fields_of_a_look() -> None:
    call = CallArguments({"x": "<|im_end|>\u202e"}, PAIRS)
    seen = look(ChatPrompter("Say {x}."), call, model="qwen2.5", max_tokens=1000, window=90, title="x.json")
    found: Any = json.loads(json.dumps(look_json(seen)))
    assert seen.trim is not None
    trim = {**json.loads(json.dumps(seen.trim.as_dict())), "text": str(seen.trim)}
    about: dict[str, Any] = {"title": "x.json", "form": "flat", "model": "qwen2.5", "text": seen.sent, "payload": None}
    assert found == {
        "segments": [{"text": text, "slot": slot, "trusted": trusted} for text, slot, trusted in seen.segments],
        "slots": [{"name": name, "tokens": tokens} for name, tokens, _ in seen.slots],
        **about,
        "window": 90,
        "total": seen.total,
        "unit": "tokens (about)",
        "report": [],
        "trim": trim,
        "marks": [
            {"slot": slot, "start": start, "end": end, "raw": raw, "safe": safe}
            for slot, start, end, raw, safe in seen.marks
        ],
        "cautions": [{"kind": each.kind, "values": {**each.values}, "text": str(each)} for each in seen.cautions],
    }
    assert (len(found["marks"]), len(found["cautions"]), trim["after"]) == (2, 4, seen.total)


def test_look_json_of_a_payload_contains_its_report() -> None:
    history = [{"role": "user", "name": "Ann", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    found: Any = look_json(look(ChatPrompter("Say"), CallArguments("More", history), form="anthropic"))
    assert found["text"] is None
    assert found["payload"]["messages"][0]["role"] == "user"
    reason = "'Ann': anthropic does not support names; use MultiAgentFormatter to send them"
    left_out = {"where": "messages", "kind": "name", "action": "left out", "reason": reason, "is_loss": False}
    assert found["report"] == [left_out]
    assert found["segments"] == found["marks"] == []


def test_chat_template_that_loses_the_origin_of_text_gives_an_origin_caution() -> None:
    # Prompters dropped the note of their chat template, so the caution was never given.
    template = ChatTemplate.load("{{ (messages[0].content|attr('upper')|string)[:6] }} {{ messages[0].content }}")
    seen = look(ChatPrompter("Be kind.").with_chat_template(template), CallArguments("Hi"))
    assert [caution.kind for caution in seen.cautions] == ["origin"]


def look_at(prompter: Prompter, given: object, form: str = "flat", model: str | None = None) -> Look:
    return look(prompter, CallArguments(given), form=form, model=model, counter=CharTokenCounter())


def test_slot_diff_lists_same_added_and_removed_slots() -> None:
    one = look_at(ChatPrompter("Say {x} to {y}.", system=""), {"x": "Hi", "y": "a\nb\nc"})
    other = look_at(ChatPrompter("Say {x} to {z}.", system=""), {"x": "Hi", "z": "you"})
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


def test_slot_diff_shows_an_added_line_break() -> None:
    one, other = (look_at(ChatPrompter("{x}", system=""), {"x": text}) for text in ("a", "a\n"))
    (change,) = (each for each in slot_diff(one, other) if each.state != "same")
    assert change.lines == ("@@ -1 +1,2 @@", " a", "+")


def test_slot_diff_shows_changed_lines_with_context() -> None:
    text = "\n".join(map(str, range(9)))
    one, other = (look_at(ChatPrompter("{x}", system=""), {"x": each}) for each in (text, text.replace("4", "four")))
    (change,) = (change for change in slot_diff(one, other) if change.state != "same")
    assert change == SlotChange(
        "x", "changed", 17, 20, ("@@ -2,7 +2,7 @@", " 1", " 2", " 3", "-4", "+four", " 5", " 6", " 7")
    )


@pytest.mark.parametrize("form", ["flat", "anthropic"])
def test_slot_diff_ignores_token_counts_of_equal_texts(form: str) -> None:
    # Equal markers were shown as changed, because they get the rest of the total token count.
    one = look_at(ChatPrompter("Say {x}"), {"x": "Hi"}, form)
    other = replace(one, slots=tuple(slot._replace(tokens=slot.tokens + (form == "flat")) for slot in one.slots))
    assert {(change.state, change.lines) for change in slot_diff(one, other)} == {("same", ())}


def test_slot_diff_of_two_models_shows_changed_markers() -> None:
    prompter = ChatPrompter("Say {x}", system="S")
    changes = slot_diff(
        look_at(prompter, {"x": "Hi"}, model="qwen2.5"), look_at(prompter, {"x": "Hi"}, model="llama3.1")
    )
    # Llama's template also trims the instruction.
    assert [change.name for change in changes if change.state == "changed"] == ["instruction", "markers"]
    assert changes[-1].name == "markers"
    assert "-<|im_start|>system" in changes[-1].lines


def test_slot_diff_lists_framing_last_and_compares_its_tokens() -> None:
    one, other = (look(ChatPrompter("Say"), CallArguments("Hi", past), form="openai") for past in (None, [["a", "b"]]))
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


@pytest.mark.parametrize("form", ["flat", "openai", "anthropic"])
def test_shared_prefix_ends_at_the_first_changed_slot(form: str) -> None:
    prompter = ChatPrompter({"system": "It is {now}.\nThe manual:\n{manual}", "user": "{q}"}, system="You help.")

    def made(form: str, values: dict[str, str], history: list[list[str]] | None = None) -> Look:
        given = {"now": "10:00", "manual": "a\nb\nc", "q": "Why?"} | values
        return look(prompter, CallArguments(given, history), form=form, counter=CharTokenCounter())

    one = made(form, {})
    assert shared_prefix(one, one) == SharedPrefix(one.total, one.total, None, 1)
    for values, slot, line in (({"now": "10:05"}, "now", 1), ({"manual": "a\nb\nd"}, "manual", 3)):
        other = made(form, values)
        assert shared_prefix(one, other)[1:] == (other.total, slot, line)
    assert shared_prefix(one, made(form, {"q": "Why? How?"})).slot == "q"
    found = shared_prefix(made("openai", {}), made("openai", {}, [["Hi", "Ho"]]))
    assert (found.slot, found.tokens) == ("history", len("You help.It is 10:00.\nThe manual:\na\nb\nc"))


def test_shared_prefix_of_saved_payloads_begins_with_the_tools() -> None:
    def saved(*names: str) -> Look:
        tools: list[dict[str, Any]] = [
            {"type": "function", "function": {"name": name, "parameters": {}}} for name in names
        ]
        return saved_look(json.dumps({"messages": [{"role": "user", "content": "Hi"}], "tools": tools}))

    assert shared_prefix(saved("a", "b"), saved("b", "a")) == SharedPrefix(14, 50, "tools", 1)
