"""Rendering of rows to lines: plain rows equal rendered rows, values are kept, and errors name their row."""

import json
import os
import pickle
import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import (
    AlpacaPrompter,
    ChatFormatter,
    ChatPrompter,
    ChatTemplate,
    EmptyPrompter,
    Markers,
    Msg,
    Prompter,
    Prompty,
    TextBlock,
    __version__,
)
from lazyprompt.batch.forms import FORMS, form_of, json_bytes
from lazyprompt.batch.render import RowPlan, render_batch, render_columns
from lazyprompt.budget.budget import Budget
from lazyprompt.errors import BatchError, FormatError, HistoryError, LazyPromptError, SlotError, ToolsError
from lazyprompt.messages.msg import AudioBlock, Base64Source
from lazyprompt.prompters.rows import Columns, RowFault
from lazyprompt.rendering.prompt_template import ChatPromptTemplate
from lazyprompt.templates.instruction import ChatInstructionTemplate
from lazyprompt.tokens.counter import CharTokenCounter
from support.missing import needs

ENDS = "a\nb\rc\r\nd\x0be\x0cf\x1cg\x1dh\x1ei\x85j\u2028k\u2029l"
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"maximum": 1e16}}}},
}
PROMPTERS: dict[str, Prompter] = {
    "two texts": ChatPrompter({"system": 'Be "{style}" {style}.', "user": "{question}\n%d {x y}"}, system="1%s"),
    "bare": ChatPrompter({"user": "{question}\n\u00a0{style}"}, system=""),
    "extra": ChatPrompter("Be {style}. ", ["question"], tools=[TOOL], history=[["Hi", "中文"]]),
    "alpaca": AlpacaPrompter("Be {style} with {question}", tools=[TOOL]),
    "user level": ChatPrompter("Be {style}: {question} ", enable_system=False),
    "of one's own": Prompter(ChatInstructionTemplate("{style}{question}"), ChatPromptTemplate(), system="Be."),
    "empty": EmptyPrompter(),
    # A fixed value is the same in all lines, even if it equals the first value of a trial row.
    "fixed": ChatPrompter({"system": "{tone}{style}", "user": "{tone}: {question}"}, system="").partial(tone="value 0"),
}
# The formats with turns; in all but one, plain rows skip rendering. That one makes a single text of all turns.
TURNS = [name for name, form in FORMS.items() if form.provider not in ("", "flat")]
TEXTS = st.sampled_from(
    ["", " ", "\n", ENDS, "中文", '"\\', "\ue0000\ue001", "\ue0020\ue003", "{style}", "\x00\x7f"]
) | st.text(max_size=10)
CELLS = (
    TEXTS | st.none() | st.integers() | st.floats() | st.booleans() | st.lists(TEXTS, max_size=2) | st.just("\ud800")
)
ROWS = st.fixed_dictionaries(
    {"style": CELLS},
    optional={
        "question": CELLS,
        "input": CELLS,
        "id": st.sampled_from(["a", "", "ü\n", 7, None, "a-b", float("nan")]),
        "history": st.sampled_from([None, "", [["Hi", "Hello"]], '[["a","b"]]', "{", 5, [Msg("user", "a", "user")]]),
        "tools": st.sampled_from([None, [], [TOOL], json.dumps([TOOL]), "no"]),
        "label": st.just("unseen"),
        "other": CELLS,
    },
)


def plan(prompter: Any, name: str = "openai-batch", **more: Any) -> RowPlan:
    form = form_of(name)
    if form.has_model:
        more.setdefault("model", "gpt-4o")
    # It does not support tools.
    more.setdefault("strict", name != "ollama-generate")
    if form.needs:
        more.setdefault("params", {"max_tokens": 5})
    return RowPlan.of(prompter, name, **more)


PLANS = {(kind, name): plan(prompter, name) for kind, prompter in PROMPTERS.items() for name in TURNS}


def result_or_error(make: Any, row: Any) -> Any:
    try:
        return make(3, row)
    except LazyPromptError as error:
        return type(error), str(error)


@pytest.mark.slow
@given(st.sampled_from(sorted(PLANS)), ROWS)
def test_a_line_or_error_equals_that_of_full_rendering(of: tuple[str, str], row: dict[str, Any]) -> None:
    """Refused rows have the same error message, too."""
    before = repr(row)
    made = PLANS[of]
    assert result_or_error(made.line, row) == result_or_error(made.rendered_line, row)
    assert repr(row) == before


@given(st.sampled_from(sorted(PLANS)), st.fixed_dictionaries(dict.fromkeys(("style", "question", "input"), TEXTS)))
def test_a_line_of_text_values_equals_that_of_full_rendering(of: tuple[str, str], row: dict[str, Any]) -> None:
    made = PLANS[of]
    assert result_or_error(made.line, row) == result_or_error(made.rendered_line, row)


@pytest.mark.slow
@pytest.mark.parametrize("of", sorted(PLANS))
@pytest.mark.parametrize("value", ["", " ", "\n", "a"])
@pytest.mark.parametrize("last", ["input", "other"])  # only some prompts omit the input
def test_lines_of_blank_rows_equal_those_of_full_rendering(of: tuple[str, str], value: str, last: str) -> None:
    """A blank turn that the provider omits was in the line of a plain row."""
    row = dict.fromkeys(("style", "question", last), value)
    assert result_or_error(PLANS[of].line, row) == result_or_error(PLANS[of].rendered_line, row)


def is_rendered(made: RowPlan, row: dict[str, Any]) -> bool:
    """Return True if the prompt of a row is rendered for its line."""
    made.line(1, row)  # a plan renders one trial row for all plain rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowPlan, "rendered_line", lambda *_: b"rendered")
        return made.line(1, row) == b"rendered"


@pytest.mark.parametrize("of", sorted(PLANS))
def test_text_rows_are_not_rendered_one_by_one(of: tuple[str, str]) -> None:
    made = PLANS[of]
    row = dict.fromkeys(made.cells.slots.values(), "a")
    has_turns = made.form.name != "ollama-generate"
    if row:
        assert is_rendered(made, row) != has_turns
    if made.cells.input is not None:
        assert is_rendered(made, row | {made.cells.input: "b"}) != has_turns


@pytest.mark.parametrize(
    ("of", "row", "rendered"),
    [
        ("two texts", {"id": "n", "history": None, "tools": None, "label": 5, "other": 3}, False),
        ("two texts", {"id": None}, False),
        ("two texts", {"id": ""}, False),
        ("two texts", {"id": 7}, True),
        ("two texts", {"history": []}, True),
        ("two texts", {"tools": [TOOL]}, True),
        ("two texts", {"style": 5}, True),
        ("two texts", {"style": "", "question": " "}, False),
        ("bare", {"style": " ", "question": ""}, True),
        ("bare", {"style": " ", "question": "a"}, False),
        ("user level", {"input": "x", "other": "y"}, False),
        ("user level", {"input": None}, False),
        # Control sequences of a local model: in one value, in two values, and in a value with the template.
        ("local", {}, False),
        ("local", {"style": "<|im_end|>"}, True),
        ("local", {"style": "<|im_", "question": "end|>"}, True),
        ("local", {"question": "<|im_end"}, True),
        ("local", {"question": "im"}, False),
    ],
)
def test_only_rows_of_plain_text_skip_full_rendering(of: str, row: dict[str, Any], rendered: bool) -> None:  # noqa: FBT001 - a case
    local = ChatPrompter({"user": "{style}{question}|>"}, system="")
    made = plan(local, "vllm-batch", model="qwen2.5") if of == "local" else plan(PROMPTERS[of])
    row = {"style": "a", "question": "b"} | row
    assert result_or_error(made.line, row) == result_or_error(made.rendered_line, row)
    assert is_rendered(made, row) is rendered


def test_a_trial_row_has_a_placeholder_in_each_text_column() -> None:
    def trial(of: Prompter, **columns: Any) -> object:
        return plan(of, columns=Columns(**columns)).cells.trial()

    assert trial(PROMPTERS["two texts"]) == dict.fromkeys(("style", "question", "label", "input"), "?")
    assert trial(PROMPTERS["empty"], input={"input": "I"}, label="L") == {"I": "?", "L": "?"}
    assert trial(ChatPrompter({"user": "{input}"}, system=""), history="H") == {"input": "?", "label": "?"}


class Loud(ChatPrompter):
    """A subclass, which may change values in any way."""

    def generate_prompt(self, input: object = None, *args: Any, **more: Any) -> Any:
        return super().generate_prompt({key: str(value).upper() for key, value in dict(input).items()}, *args, **more)  # type: ignore[call-overload]


def shout(given: Any, *rest: Any) -> Any:
    return ({key: value.upper() for key, value in given.items()}, *rest)


INSTRUCTION = "Be {style}."
CHANGING: dict[str, Prompter] = {
    "derived": Loud(INSTRUCTION),
    "hook": ChatPrompter(INSTRUCTION).pre_hook(shout),
    "budget": ChatPrompter(INSTRUCTION, budget=Budget(500, CharTokenCounter())),
    "show": ChatPrompter(INSTRUCTION, show=True),
    "jinja2": ChatPrompter("Be {{ style | upper }}.", syntax="jinja2"),
}


@pytest.mark.parametrize("kind", CHANGING)
def test_a_prompter_that_changes_values_renders_every_row(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(CHANGING[kind])
    assert is_rendered(made, {"style": "kind"})
    capsys.readouterr()
    content = json.loads(made.line(1, {"style": "kind"}))["body"]["messages"][0]["content"]
    assert ("KIND" in content) == (kind in ("derived", "hook", "jinja2"))
    assert bool(capsys.readouterr().err) == (kind == "show")


def test_a_prompt_that_a_provider_refuses_is_an_error_of_each_row() -> None:
    """The plan is made although not even a trial row can be rendered."""
    far = deepcopy(TOOL)
    far["function"]["name"] = "a.b"  # type: ignore[index]
    made = plan(ChatPrompter(INSTRUCTION, tools=[far]), "anthropic-batch")
    with pytest.raises(LazyPromptError, match="^row 5: tools.0. is named 'a.b'"):
        made.line(5, {"style": "kind"})
    assert str(made.settings["prompt"]).startswith("sha256:")


def test_a_hook_added_after_the_plan_has_no_effect() -> None:
    prompter = ChatPrompter(INSTRUCTION, system="")
    made = plan(prompter)
    before = made.line(1, {"style": "kind"})
    prompter.pre_hook(shout)
    assert made.line(1, {"style": "kind"}) == made.rendered_line(1, {"style": "kind"}) == before
    assert b"KIND" in plan(prompter).line(1, {"style": "kind"})


def test_str_subclasses_with_custom_addition_are_inserted_as_plain_text() -> None:
    """For example, markupsafe.Markup escapes added text."""

    class Eager(str):
        __slots__ = ()

        def __add__(self, other: str) -> str:
            return f"{self}!{other}"

        __radd__ = __add__

    row = {"style": Eager("kind"), "question": Eager("a")}
    assert b'Be \\"kind\\" kind.' in PLANS["two texts", "openai-batch"].line(1, row)


@pytest.mark.parametrize("name", FORMS)
def test_line_separators_in_values_do_not_break_a_line(name: str) -> None:
    made = plan(ChatPrompter("Be {style}.", system=""), name)
    line = made.line(1, {"style": ENDS, "question": ENDS, "label": ENDS, "input": "a"})
    assert line.count(b"\n") == 1
    assert line.count(b"\r") == line.count(b"\x0b") == line.count(b"\x1c") == 0
    assert ENDS in _texts(json.loads(line))


def _texts(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(map(_texts, value.values()))
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(10**40, "1" + "0" * 40), (1e16, "1e+16"), (True, "True"), ({"a": [1, "中"]}, '{"a": [1, "中"]}')],
)
def test_values_that_are_not_text_are_written_as_in_prompts(value: object, text: str) -> None:
    line = plan(ChatPrompter({"user": "{style}"}, system="")).line(1, {"style": value})
    assert json.loads(line)["body"]["messages"][0]["content"] == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((10**6000, "integer of 19932 bits"), (b"a", "bytes; decode"), ("\udc80", "lone surrogate")),
        *((value, "column 'style' has no value") for value in (float("nan"), None)),
        ((float("nan"),), "nan, which is not valid JSON"),
    ],
    ids=range(6),
)
def test_values_that_cannot_be_written_are_errors(value: object, message: str) -> None:
    with pytest.raises(SlotError, match=f"^row 1: .*{message}"):
        plan(ChatPrompter({"user": "{style}"}, system="")).line(1, {"style": value})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"style": "a"}, "^row 9: there is no column 'question'; the row has 'style'$"),
        (
            {"style": "a", "qestion": "b"},
            r"^row 9: there is no column 'question' \(did you mean 'qestion'\?\); the row has",
        ),
        ({}, "^row 9: there is no column 'style'; the row has no columns$"),
    ],
)
def test_a_missing_column_is_reported_with_its_row(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SlotError, match=message):
        PLANS["two texts", "openai-batch"].line(9, row)


def test_columns_can_be_mapped_to_other_names() -> None:
    columns = Columns({"style": "Stil", "input": "Frage"}, history="davor", id="Nr")
    made = plan(ChatPrompter("Be {style}.", system=""), columns=columns)
    row = {"Stil": "kind", "Frage": "Ja?", "davor": [["Hi", "Hello"]], "Nr": 12, "input": "no", "history": "no"}
    line = json.loads(made.line(1, row))
    assert line["custom_id"] == "12"
    assert [message["content"] for message in line["body"]["messages"]] == ["Be kind.\n\n", "Hi", "Hello", "Ja?"]
    with pytest.raises(SlotError, match=r"there is no column 'Stil' \(for the slot 'style'\)"):
        made.line(1, {"style": "kind"})


def test_a_column_used_by_a_slot_has_no_other_role() -> None:
    made = plan(ChatPrompter({"user": "{history} {tools} {id}"}, system=""))
    line = json.loads(made.line(1, {"history": "of Rome", "tools": "of iron", "id": "x"}))
    assert line["body"] == {"model": "gpt-4o", "messages": [{"role": "user", "content": "of Rome of iron x"}]}
    assert line["custom_id"] == "x"


def test_history_and_tools_can_be_lists_or_json_text() -> None:
    made = plan(ChatPrompter("Be {style}.", system=""))
    row = {"style": "a", "input": "b"}
    history, tools = [["Hi", "中文"]], [TOOL]
    as_lists = made.line(1, {**row, "history": history, "tools": tools})
    assert as_lists == made.line(1, {**row, "history": json.dumps(history), "tools": json.dumps(tools)})
    assert made.line(1, {**row, "history": "", "tools": " "}) == made.line(1, row)
    # The number is written as by Python, not as by orjson.
    assert b'"maximum":1e+16' in as_lists
    with pytest.raises(HistoryError, match="^row 1: column 'history' is not a valid JSON list"):
        made.line(1, {**row, "history": "[["})
    with pytest.raises(ToolsError, match="^row 1: column 'tools' is not a valid JSON list"):
        made.line(1, {**row, "tools": "f"})


@pytest.mark.parametrize("name", ["openai-batch", "anthropic-batch", "gemini-batch"])
@pytest.mark.parametrize("history", [None, [["c", "d"]]])
def test_constant_numbers_are_written_as_by_python(name: str, history: object) -> None:
    row = {"style": "a", "question": "b", "history": history}
    assert b'"maximum":1e+16' in PLANS["extra", name].line(1, row)
    huge = plan(ChatPrompter("Be {style}."), params={"seed": 10**30})
    assert huge.line(1, row).endswith(b',"seed":%d}}\n' % 10**30)


def test_line_objects_share_nothing_with_rows_or_each_other() -> None:
    params: dict[str, Any] = {"stop": ["a"]}
    made = plan(ChatPrompter("Be {style}.", tools=[TOOL]), params=params)
    row = {"style": "a", "history": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "input": "b"}
    before = deepcopy(row)
    first, second = made.line_object(1, row), made.line_object(1, row)
    body: Any = first["body"]
    body["messages"].clear()
    body["tools"][0]["function"].clear()
    body["stop"].clear()
    assert made.line_object(1, row) == second != first
    assert row == before
    assert params == {"stop": ["a"]}


def test_unsupported_content_is_an_error_unless_strict_is_false() -> None:
    sound = Msg("user", [TextBlock("a"), AudioBlock(Base64Source("audio/wav", "UklGRg=="))], "user")
    row = {"input": "b", "history": [sound]}
    with pytest.raises(
        FormatError, match="^row 4: anthropic does not support some of the content: .*audio.*; strict=False omits it"
    ):
        plan(ChatPrompter(), "anthropic").line(4, row)
    assert b"UklGRg" not in plan(ChatPrompter(), "anthropic", strict=False).line(4, row)


def test_a_prompter_without_slots_uses_the_input_or_history_of_a_row() -> None:
    made = plan(ChatPrompter("Be kind.", system=""))
    assert b'"content":"a"' in made.line(1, {"input": "a"})
    assert b'"content":"Hi"' in made.line(1, {"history": [{"role": "user", "content": "Hi"}]})


@pytest.mark.parametrize("name", FORMS)
def test_the_label_is_in_training_samples_and_not_in_prompts(name: str) -> None:
    line = plan(ChatPrompter("Be {style}."), name).line(1, {"style": "a", "input": "b", "label": "the answer"})
    assert (b"the answer" in line) == name.startswith("train-")


def test_a_training_sample_without_a_label_is_an_error() -> None:
    prompter = ChatPrompter("Be {style}.")
    with pytest.raises(SlotError, match="^row 2: a training sample requires a response"):
        plan(prompter, "train-openai").line(2, {"style": "a", "input": "b"})
    with pytest.raises(BatchError, match="unknown train value 'most'"):
        plan(prompter, "train-openai", train="most")


def test_flat_lines_have_the_markers_of_the_model_family() -> None:
    made = plan(ChatPrompter("Be {style}.", system=""), "flat", model="chatml")
    line = json.loads(made.line(1, {"style": "a <|im_end|>", "input": "b"}))
    assert line["prompt"].startswith("<|im_start|>system\nBe a ")
    assert line["prompt"].count("<|im_end|>") == 2


# A hosted service does not parse markers, although its format is that of a local server.
@pytest.mark.parametrize(("name", "text"), [("vllm-batch", b"<\\\\|im_end|>"), ("dashscope-batch", b"<|im_end|>")])
def test_markers_in_values_are_neutralized_for_local_servers_only(name: str, text: bytes) -> None:
    assert text in plan(ChatPrompter("{style}"), name, model="qwen2.5").line(1, {"style": "<|im_end|>"})


def test_render_batch_yields_line_objects_or_faults() -> None:
    prompter = ChatPrompter("Be {style}.", system="")
    rows = {"style": ["a", None, "c"]}
    first = next(prompter.render_batch(rows))
    assert first == {"id": "row-1", "prompt": prompter.generate_prompt({"style": "a"})}
    found = list(prompter.render_batch(rows, format="openai-batch", model="m", on_error="return"))
    assert [type(each) for each in found] == [dict, RowFault, dict]
    assert found[1] == RowFault(2, "row 2: column 'style' has no value")
    assert found[2] == json.loads(plan(prompter, model="m").line(3, {"style": "c"}))
    with pytest.raises(SlotError, match="row 2"):
        list(prompter.render_batch(rows))
    with pytest.raises(ValueError, match="unknown on_error value 'skip'"):
        prompter.render_batch(rows, on_error="skip")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="unknown format 'skip'"):
        prompter.render_batch(rows, format="skip")
    with pytest.raises(BatchError, match="rows must be an iterable .*, not int"):
        render_batch(prompter, 5)
    with pytest.raises(BatchError, match="prompter must be a Prompter or a prompt file, not str"):
        render_batch("Be kind.", rows)  # type: ignore[call-overload]


def test_render_columns_returns_line_and_error_columns() -> None:
    made = plan(ChatPrompter("Be {style}.", system=""), model="m")
    found = render_columns(made, {"style": ["中", None], "id": ["x", None]}, first=11)
    assert found["line"] == [made.line(11, {"style": "中", "id": "x"}).decode()[:-1], None]
    assert found["error"] == [None, "row 12: column 'style' has no value"]
    with pytest.raises(BatchError, match="equal length"):
        render_columns(made, {"a": [1], "b": []})


def test_different_plans_have_different_json_settings() -> None:
    prompter = ChatPrompter("Be {style}.", system="")
    others = [
        plan(prompter),
        plan(prompter, model="m"),
        plan(prompter, "vllm-batch"),
        plan(prompter, params={"n": 1}),
        plan(prompter, columns=Columns(id="key")),
        plan(prompter, columns=Columns({"style": "x"})),
        plan(prompter, strict=False),
        plan(ChatPrompter("Be {style}!", system="")),
        plan(prompter.with_system("a")),
        plan(ChatPrompter("Be {style}.", system="", tools=[TOOL])),
        plan(ChatPrompter("Be {style}.", system="", history=[["a", "b"]])),
        plan(prompter, "flat"),
        plan(prompter.with_markers("chatml"), "flat"),
        plan(prompter.with_markers("llama3"), "flat"),
        # Too small for the trial row; the errors differ.
        *(plan(ChatPrompter("Be {style}.", system="", budget=Budget(most, CharTokenCounter()))) for most in (1, 2)),
    ]
    columns = Columns({"style": "S", "input": "I"}, history="H", tools="T", label="L", id="N")
    made = plan(prompter, columns=columns, params={"n": 1}, strict=False)
    assert made.settings == {
        "lazyprompt": __version__,
        "format": "openai-batch",
        "model": "gpt-4o",
        "columns": {"input": {"style": "S", "input": "I"}, "history": "H", "tools": "T", "label": "L", "id": "N"},
        "params": {"n": 1},
        "train": "last",
        "strict": False,
        "prompt": made.settings["prompt"],
    }
    settings = [json.dumps(made.settings) for made in others]
    assert len(set(settings)) == len(settings)
    assert plan(ChatPrompter("Be {style}.", system="")).settings == others[0].settings
    assert plan(prompter, "flat").settings["model"] is None


@pytest.mark.slow
def test_settings_are_the_same_in_every_process() -> None:
    code = (
        "from lazyprompt import ChatPrompter; from lazyprompt.batch.render import RowPlan; "
        "print(RowPlan.of(ChatPrompter('Be {a} {b} {c}.', tools=[print]), 'flat').settings['prompt'])"
    ).replace("[print]", "None")
    found = {
        subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_orjson_writes_text_as_python_does() -> None:
    orjson = needs("orjson")

    @given(st.text() | st.text(st.characters(max_codepoint=0x2FF)))
    def check(text: str) -> None:
        assert orjson.dumps(text) == json_bytes(text)

    check()


FILE = """---
name: asking
model:
  id: gpt-4o
  options: {temperature: 0.5, maxOutputTokens: 100}
inputs:
  style: {kind: string, default: kind}
  question: {kind: string, required: true}
---
system:
Be {{style}}.

user:
{{question}}
"""


def test_a_prompt_file_sets_the_model_and_options_of_requests() -> None:
    prompty = Prompty.loads(FILE)
    rows = [{"question": "a", "note": 1}, {"question": "b", "style": "brief"}, {"note": 2}]
    first, second, third = prompty.render_batch(rows, format="openai-batch", on_error="return")
    assert isinstance(first, dict)
    assert first["body"] == {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "a"}],
        "temperature": 0.5,
        "max_completion_tokens": 100,
    }
    assert "Be brief." in json.dumps(second)
    assert isinstance(third, RowFault)
    assert third.reason.startswith("row 3: ")
    assert "question" in third.reason


def test_model_and_params_of_a_plan_override_the_prompt_file() -> None:
    made = plan(Prompty.loads(FILE), model="other", params={"temperature": 1})
    body = json.loads(made.line(1, {"question": "a"}))["body"]
    assert (body["model"], body["temperature"]) == ("other", 1)
    anthropic = json.loads(RowPlan.of(Prompty.loads(FILE), "anthropic-batch").line(1, {"question": "a"}))
    assert (anthropic["params"]["model"], anthropic["params"]["max_tokens"]) == ("gpt-4o", 100)
    gemini = json.loads(RowPlan.of(Prompty.loads(FILE), "gemini-batch").line(1, {"question": "a"}))["request"]
    assert gemini["system_instruction"] == {"parts": [{"text": "Be kind."}]}
    assert gemini["generation_config"] == {"temperature": 0.5, "max_output_tokens": 100}
    assert "model" not in gemini


@pytest.mark.parametrize("name", ["flat", "openai", "anthropic", "train-openai"])
def test_lines_of_a_prompt_file_equal_those_of_its_prompter(name: str) -> None:
    prompty = Prompty.loads(FILE)
    row = {"question": "a", "label": "b", "history": [["Hi", "Hello"]]}
    line = RowPlan.of(prompty, name).line(1, row)
    assert line == RowPlan.of(prompty.prompter, name).line(1, row)
    assert b"Hello" in line


def test_a_prompt_file_without_a_model_requires_the_model_option() -> None:
    prompty = Prompty.loads(FILE.replace("  id: gpt-4o\n", ""))
    with pytest.raises(BatchError, match="^openai-batch requires a model name in each request; pass model="):
        RowPlan.of(prompty, "openai-batch")
    assert b'"model":"m"' in RowPlan.of(prompty, "openai-batch", model="m").line(1, {"question": "a"})


TYPED = """---
name: typed
model: m
inputs:
  n: {kind: integer, default: 3}
  ok: {kind: boolean}
  tags: {kind: array}
  word: {kind: string}
---
user:
{{n}} {{ok}} {{tags}} {{word}}
"""


def test_text_cells_are_converted_to_the_input_kinds_of_a_prompt_file() -> None:
    """CSV rows contain only text, so prompt files with numeric inputs could not be rendered from CSV."""
    made = RowPlan.of(Prompty.loads(TYPED), "openai")
    as_text = {"n": "5", "ok": "true", "tags": '["a"]', "word": "5"}
    assert made.line(1, as_text) == made.line(1, {"n": 5, "ok": True, "tags": ["a"], "word": "5"})
    assert b"3 " in made.line(1, {**as_text, "n": " "})
    with pytest.raises(SlotError, match="^row 1: n is 'five', but must be of kind integer"):
        made.line(1, {**as_text, "n": "five"})


def test_tools_in_a_row_of_a_prompt_file_are_refused() -> None:
    with pytest.raises(ToolsError, match="row 1: both the row and the prompt file define tools"):
        RowPlan.of(Prompty.loads(FILE), "openai-batch").line(1, {"question": "a", "tools": [TOOL]})


ACME = ChatFormatter("mistral").profile.but(name="acme")
BIRD = Markers(sos="<|sys|>", eos="<|end|>", soh="<|usr|>", eoh="<|end|>", soa="<|bot|>", eoa="<|end|>")
TEMPLATE = ChatTemplate.load("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}")
GREET = ChatPrompter.from_messages([("system", "Be {style}."), "history", ("user", "{question}")])
GREETED = {"style": "brief", "question": "Why?<|end|>"}


def test_a_custom_profile_is_accepted_as_format() -> None:
    rows = [GREETED, {**GREETED, "history": [["a", "b"]]}]
    assert [*render_batch(GREET, rows, format=ACME)] == [*render_batch(GREET, rows, format="mistral")]
    file = Prompty.loads("---\ninputs: {question: {kind: string}}\n---\nuser:\n{{ question }}")
    found = [*render_batch(file, [{"question": "Why?"}], format=ACME)]
    plan = RowPlan.of(GREET, ACME)
    again = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own pickle
    assert again.line(1, GREETED) == plan.line(1, GREETED)
    assert again.settings == plan.settings
    assert plan.settings["format"] == "acme"
    assert found == [{"custom_id": "row-1", "payload": {"messages": [{"role": "user", "content": "Why?"}]}}]


@pytest.mark.parametrize("model", [BIRD, TEMPLATE])
@pytest.mark.parametrize("form", ["flat", "openai", "vllm"])
def test_custom_markers_and_chat_templates_are_accepted_as_model(form: Any, model: Markers | ChatTemplate) -> None:
    (row,) = render_batch(GREET, [GREETED], format=form, model=model)
    assert [*row.values()][1:] == [GREET.generate_prompt(GREETED, format=form, model=model)]
    # Ray and the command line send the plan to other processes.
    plan = RowPlan.of(GREET, form, model=model)
    again = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own pickle
    assert again.line(1, GREETED) == plan.line(1, GREETED) == json_bytes(row) + b"\n"
    assert again.settings == plan.settings
    (sample,) = render_batch(GREET, [{**GREETED, "label": "So."}], format="train-trl-text", model=model)
    assert sample == GREET.training_sample(GREETED, "So.", model=model).export("trl-text")


@pytest.mark.parametrize(
    ("form", "model", "words"),
    [
        ("openai-batch", BIRD, "openai-batch writes the model's name into each request; model= must be a name, not Ma"),
        ("gemini-batch", TEMPLATE, "gemini-batch writes the model's name into each request; model= must be a name, "),
        ("flat", ACME, "model= must be a name, Markers or a ChatTemplate, as returned by ChatTemplate.load, not Pro"),
        ("anthropic", ACME, "model= must be a name, Markers or a ChatTemplate, as returned by ChatTemplate.load, no"),
        (BIRD, None, "format must be one of flat, openai"),
    ],
)
def test_wrong_format_and_model_values_are_refused_before_the_first_row(form: Any, model: Any, words: str) -> None:
    with pytest.raises((BatchError, FormatError)) as caught:
        render_batch(GREET, iter(()), format=form, model=model)
    assert str(caught.value).startswith(words)


def test_train_all_trains_on_every_response() -> None:
    history = [("user", "Hi"), ("assistant", "Hello.")]
    rows = [{"input": "Why?", "label": "So.", "history": [{"role": role, "content": text} for role, text in history]}]
    prompter = ChatPrompter("Be brief.")
    with pytest.raises(FormatError, match='pass train="all"'):
        [*render_batch(prompter, rows, format="train-sharegpt")]
    (line,) = prompter.render_batch(rows, format="train-sharegpt", train="all")
    assert [turn["value"] for turn in line["conversations"]] == ["Hi", "Hello.", "Why?", "So."]
