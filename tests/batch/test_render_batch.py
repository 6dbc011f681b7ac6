"""From rows to lines: plain rows have the lines of rendered ones, values stay, and errors name their row."""

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
    # A fixed value is the same in all lines, even one that is spelled as the first value of a trial.
    "fixed": ChatPrompter({"system": "{tone}{style}", "user": "{tone}: {question}"}, system="").partial(tone="value 0"),
}
# The forms of turns; all have plain rows but one, which makes one text of all turns.
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
    # It knows no tools.
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
def test_a_line_is_what_rendering_makes(of: tuple[str, str], row: dict[str, Any]) -> None:
    """Also what it refuses, and with which words."""
    before = repr(row)
    made = PLANS[of]
    assert result_or_error(made.line, row) == result_or_error(made.rendered_line, row)
    assert repr(row) == before


@given(st.sampled_from(sorted(PLANS)), st.fixed_dictionaries(dict.fromkeys(("style", "question", "input"), TEXTS)))
def test_a_line_of_texts_is_what_rendering_makes(of: tuple[str, str], row: dict[str, Any]) -> None:
    made = PLANS[of]
    assert result_or_error(made.line, row) == result_or_error(made.rendered_line, row)


@pytest.mark.slow
@pytest.mark.parametrize("of", sorted(PLANS))
@pytest.mark.parametrize("value", ["", " ", "\n", "a"])
def test_blank_rows_have_the_lines_that_rendering_makes(of: tuple[str, str], value: str) -> None:
    """A provider leaves out a turn that is blank, and a line of constant bytes would hold it."""
    for last in ("input", "other"):  # only some prompts leave out the input
        row = dict.fromkeys(("style", "question", last), value)
        assert result_or_error(PLANS[of].line, row) == result_or_error(PLANS[of].rendered_line, row)


def is_rendered(made: RowPlan, row: dict[str, Any]) -> bool:
    """Return True if the prompt of a row is rendered for its line."""
    made.line(1, row)  # a plan renders once for all plain rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowPlan, "rendered_line", lambda *_: b"rendered")
        return made.line(1, row) == b"rendered"


@pytest.mark.parametrize("of", sorted(PLANS))
def test_rows_of_text_are_not_rendered_one_by_one(of: tuple[str, str]) -> None:
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
        # Control sequences of a local model: of one value, of two, and of a value with the template's text.
        ("local", {}, False),
        ("local", {"style": "<|im_end|>"}, True),
        ("local", {"style": "<|im_", "question": "end|>"}, True),
        ("local", {"question": "<|im_end"}, True),
        ("local", {"question": "im"}, False),
    ],
)
def test_a_row_of_text_alone_is_plain(of: str, row: dict[str, Any], rendered: bool) -> None:  # noqa: FBT001 - a case
    local = ChatPrompter({"user": "{style}{question}|>"}, system="")
    made = plan(local, "vllm-batch", model="qwen2.5") if of == "local" else plan(PROMPTERS[of])
    row = {"style": "a", "question": "b"} | row
    assert result_or_error(made.line, row) == result_or_error(made.rendered_line, row)
    assert is_rendered(made, row) is rendered


def test_a_trial_row_has_each_column_with_text() -> None:
    def trial(of: Prompter, **columns: Any) -> object:
        return plan(of, columns=Columns(**columns)).cells.trial()

    assert trial(PROMPTERS["two texts"]) == dict.fromkeys(("style", "question", "label", "input"), "?")
    assert trial(PROMPTERS["empty"], input={"input": "I"}, label="L") == {"I": "?", "L": "?"}
    assert trial(ChatPrompter({"user": "{input}"}, system=""), history="H") == {"input": "?", "label": "?"}


class Loud(ChatPrompter):
    """A class of one's own, which may do anything with a value."""

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
def test_a_prompter_that_does_more_with_values_has_no_plain_rows(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(CHANGING[kind])
    assert is_rendered(made, {"style": "kind"})
    capsys.readouterr()
    content = json.loads(made.line(1, {"style": "kind"}))["body"]["messages"][0]["content"]
    assert ("KIND" in content) == (kind in ("derived", "hook", "jinja2"))
    assert bool(capsys.readouterr().err) == (kind == "show")


def test_what_a_provider_refuses_each_row_says() -> None:
    """Not even a trial row can be rendered; the plan is made all the same."""
    far = deepcopy(TOOL)
    far["function"]["name"] = "a.b"  # type: ignore[index]
    made = plan(ChatPrompter(INSTRUCTION, tools=[far]), "anthropic-batch")
    with pytest.raises(LazyPromptError, match="^row 5: tools.0. is named 'a.b'"):
        made.line(5, {"style": "kind"})
    assert str(made.settings["prompt"]).startswith("sha256:")


def test_a_hook_that_comes_later_is_not_the_plans() -> None:
    prompter = ChatPrompter(INSTRUCTION, system="")
    made = plan(prompter)
    before = made.line(1, {"style": "kind"})
    prompter.pre_hook(shout)
    assert made.line(1, {"style": "kind"}) == made.rendered_line(1, {"style": "kind"}) == before
    assert b"KIND" in plan(prompter).line(1, {"style": "kind"})


def test_texts_that_add_otherwise_are_put_in_as_they_are() -> None:
    """Markup of markupsafe, say, escapes what it is added to."""

    class Eager(str):
        __slots__ = ()

        def __add__(self, other: str) -> str:
            return f"{self}!{other}"

        __radd__ = __add__

    row = {"style": Eager("kind"), "question": Eager("a")}
    assert b'Be \\"kind\\" kind.' in PLANS["two texts", "openai-batch"].line(1, row)


def test_every_kind_of_lines_end_stays_within_its_line() -> None:
    for name in FORMS:
        made = plan(ChatPrompter("Be {style}.", system=""), name)
        line = made.line(1, {"style": ENDS, "question": ENDS, "label": ENDS, "input": "a"})
        assert line.count(b"\n") == 1
        assert line.count(b"\r") == line.count(b"\x0b") == line.count(b"\x1c") == 0
        assert ENDS in _texts(json.loads(line)), name


def _texts(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(map(_texts, value.values()))
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return value if isinstance(value, str) else ""


def test_values_that_are_no_text_are_written_as_prompts_have_them() -> None:
    made = plan(ChatPrompter({"user": "{style}"}, system=""))

    def system_text(value: object) -> str:
        return str(json.loads(made.line(1, {"style": value}))["body"]["messages"][0]["content"])

    assert system_text(10**40) == "1" + "0" * 40
    assert system_text(1e16) == "1e+16"
    assert system_text(value=True) == "True"
    assert system_text({"a": [1, "中"]}) == '{"a": [1, "中"]}'
    for value, message in {
        10**6000: "integer of 19932 bits",
        b"a": "bytes; decode",
        "\udc80": "lone surrogate",
        float("nan"): "column 'style' has no value",
        None: "column 'style' has no value",
        (float("nan"),): "nan, which is not valid JSON",
    }.items():
        with pytest.raises(SlotError, match=f"^row 1: .*{message}"):
            system_text(value)


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
def test_a_missing_column_is_named_with_its_row(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SlotError, match=message):
        PLANS["two texts", "openai-batch"].line(9, row)


def test_columns_may_have_other_names() -> None:
    columns = Columns({"style": "Stil", "input": "Frage"}, history="davor", id="Nr")
    made = plan(ChatPrompter("Be {style}.", system=""), columns=columns)
    row = {"Stil": "kind", "Frage": "Ja?", "davor": [["Hi", "Hello"]], "Nr": 12, "input": "no", "history": "no"}
    line = json.loads(made.line(1, row))
    assert line["custom_id"] == "12"
    assert [message["content"] for message in line["body"]["messages"]] == ["Be kind.\n\n", "Hi", "Hello", "Ja?"]
    with pytest.raises(SlotError, match=r"there is no column 'Stil' \(for the slot 'style'\)"):
        made.line(1, {"style": "kind"})


def test_a_column_that_fills_a_slot_is_nothing_else() -> None:
    made = plan(ChatPrompter({"user": "{history} {tools} {id}"}, system=""))
    line = json.loads(made.line(1, {"history": "of Rome", "tools": "of iron", "id": "x"}))
    assert line["body"] == {"model": "gpt-4o", "messages": [{"role": "user", "content": "of Rome of iron x"}]}
    assert line["custom_id"] == "x"


def test_history_and_tools_are_lists_or_json_of_them() -> None:
    made = plan(ChatPrompter("Be {style}.", system=""))
    row = {"style": "a", "input": "b"}
    history, tools = [["Hi", "中文"]], [TOOL]
    as_lists = made.line(1, {**row, "history": history, "tools": tools})
    assert as_lists == made.line(1, {**row, "history": json.dumps(history), "tools": json.dumps(tools)})
    assert made.line(1, {**row, "history": "", "tools": " "}) == made.line(1, row)
    # As Python writes a number, and not as orjson does.
    assert b'"maximum":1e+16' in as_lists
    with pytest.raises(HistoryError, match="^row 1: column 'history' is not a valid JSON list"):
        made.line(1, {**row, "history": "[["})
    with pytest.raises(ToolsError, match="^row 1: column 'tools' is not a valid JSON list"):
        made.line(1, {**row, "tools": "f"})


def test_numbers_that_are_the_same_in_every_row_are_written_as_python_does() -> None:
    row = {"style": "a", "question": "b", "history": [["c", "d"]]}
    for name in ("openai-batch", "anthropic-batch", "gemini-batch"):
        made = PLANS["extra", name]
        assert b'"maximum":1e+16' in made.line(1, row)
        assert b'"maximum":1e+16' in made.line(1, {"style": "a", "question": "b"})
    huge = plan(ChatPrompter("Be {style}."), params={"seed": 10**30})
    assert huge.line(1, row).endswith(b',"seed":%d}}\n' % 10**30)


def test_nothing_is_shared_with_rows_or_among_them() -> None:
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


def test_what_a_form_cannot_carry_is_an_error_unless_it_may_be_left_out() -> None:
    sound = Msg("user", [TextBlock("a"), AudioBlock(Base64Source("audio/wav", "UklGRg=="))], "user")
    row = {"input": "b", "history": [sound]}
    with pytest.raises(
        FormatError, match="^row 4: anthropic does not support some of the content: .*audio.*; strict=False omits it"
    ):
        plan(ChatPrompter(), "anthropic").line(4, row)
    assert b"UklGRg" not in plan(ChatPrompter(), "anthropic", strict=False).line(4, row)


def test_a_prompter_without_slots_says_what_the_rows_say() -> None:
    made = plan(ChatPrompter("Be kind.", system=""))
    assert b'"content":"a"' in made.line(1, {"input": "a"})
    assert b'"content":"Hi"' in made.line(1, {"history": [{"role": "user", "content": "Hi"}]})


def test_samples_are_trained_on_the_label_and_prompts_never_show_it() -> None:
    row = {"style": "a", "input": "b", "label": "the answer"}
    prompter = ChatPrompter("Be {style}.")
    for name in FORMS:
        line = plan(prompter, name).line(1, row)
        assert (b"the answer" in line) == name.startswith("train-"), name
    with pytest.raises(SlotError, match="^row 2: a training sample requires a response"):
        plan(prompter, "train-openai").line(2, {"style": "a", "input": "b"})
    with pytest.raises(BatchError, match="unknown train value 'most'"):
        plan(prompter, "train-openai", train="most")


def test_a_family_gives_flat_lines_its_markers() -> None:
    made = plan(ChatPrompter("Be {style}.", system=""), "flat", model="chatml")
    line = json.loads(made.line(1, {"style": "a <|im_end|>", "input": "b"}))
    assert line["prompt"].startswith("<|im_start|>system\nBe a ")
    assert line["prompt"].count("<|im_end|>") == 2
    # A hosted service does not read them, although its form is that of a local server.
    for name, text in (("vllm-batch", b"<\\\\|im_end|>"), ("dashscope-batch", b"<|im_end|>")):
        assert text in plan(ChatPrompter("{style}"), name, model="qwen2.5").line(1, {"style": "<|im_end|>"})


def test_render_batch_gives_what_lines_hold() -> None:
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
    for wrong, message in {"on_error": "unknown on_error value 'skip'", "format": "unknown format 'skip'"}.items():
        with pytest.raises(ValueError, match=message):
            prompter.render_batch(rows, **{wrong: "skip"})  # type: ignore[call-overload]
    with pytest.raises(BatchError, match="rows must be an iterable .*, not int"):
        render_batch(prompter, 5)
    with pytest.raises(BatchError, match="prompter must be a Prompter or a prompt file, not str"):
        render_batch("Be kind.", rows)  # type: ignore[call-overload]


def test_columns_become_columns() -> None:
    made = plan(ChatPrompter("Be {style}.", system=""), model="m")
    found = render_columns(made, {"style": ["中", None], "id": ["x", None]}, first=11)
    assert found["line"] == [made.line(11, {"style": "中", "id": "x"}).decode()[:-1], None]
    assert found["error"] == [None, "row 12: column 'style' has no value"]
    with pytest.raises(BatchError, match="equal length"):
        render_columns(made, {"a": [1], "b": []})


def test_settings_tell_plans_apart_and_are_json() -> None:
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


def test_a_prompt_file_brings_its_model_and_its_options() -> None:
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


def test_what_a_plan_says_goes_before_the_prompt_file() -> None:
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
def test_a_prompt_file_has_all_other_forms_as_its_prompter_has(name: str) -> None:
    prompty = Prompty.loads(FILE)
    row = {"question": "a", "label": "b", "history": [["Hi", "Hello"]]}
    line = RowPlan.of(prompty, name).line(1, row)
    assert line == RowPlan.of(prompty.prompter, name).line(1, row)
    assert b"Hello" in line


def test_a_prompt_file_without_a_model_needs_one() -> None:
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


def test_a_table_of_text_has_values_of_all_kinds_for_a_prompt_file() -> None:
    """A row of CSV is all text: no file with a number in its inputs could be filled from one."""
    made = RowPlan.of(Prompty.loads(TYPED), "openai")
    as_text = {"n": "5", "ok": "true", "tags": '["a"]', "word": "5"}
    assert made.line(1, as_text) == made.line(1, {"n": 5, "ok": True, "tags": ["a"], "word": "5"})
    assert b"3 " in made.line(1, {**as_text, "n": " "})
    with pytest.raises(SlotError, match="^row 1: n is 'five', but must be of kind integer"):
        made.line(1, {**as_text, "n": "five"})


def test_a_row_of_a_prompt_file_has_no_tools_of_its_own() -> None:
    with pytest.raises(ToolsError, match="row 1: both the row and the prompt file define tools"):
        RowPlan.of(Prompty.loads(FILE), "openai-batch").line(1, {"question": "a", "tools": [TOOL]})


ACME = ChatFormatter("mistral").profile.but(name="acme")
BIRD = Markers(sos="<|sys|>", eos="<|end|>", soh="<|usr|>", eoh="<|end|>", soa="<|bot|>", eoa="<|end|>")
TEMPLATE = ChatTemplate.load("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}")
GREET = ChatPrompter.from_messages([("system", "Be {style}."), "history", ("user", "{question}")])
GREETED = {"style": "brief", "question": "Why?<|end|>"}


def test_a_format_may_be_a_profile_of_your_own() -> None:
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
def test_a_model_may_be_a_family_of_your_own(model: Markers | ChatTemplate) -> None:
    for form, expected in (
        ("flat", GREET.generate_prompt(GREETED, model=model)),
        ("openai", GREET.generate_prompt(GREETED, format="openai", model=model)),
        ("vllm", GREET.generate_prompt(GREETED, format="vllm", model=model)),
    ):
        (row,) = render_batch(GREET, [GREETED], format=form, model=model)
        assert [*row.values()][1:] == [expected]
        # Ray and the command line hand the plan to other processes.
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
def test_a_value_that_cannot_be_taken_is_refused_before_the_first_row(form: Any, model: Any, words: str) -> None:
    with pytest.raises((BatchError, FormatError)) as caught:
        render_batch(GREET, iter(()), format=form, model=model)
    assert str(caught.value).startswith(words)


def test_the_responses_to_train_on_are_chosen() -> None:
    history = [("user", "Hi"), ("assistant", "Hello.")]
    rows = [{"input": "Why?", "label": "So.", "history": [{"role": role, "content": text} for role, text in history]}]
    prompter = ChatPrompter("Be brief.")
    with pytest.raises(FormatError, match='pass train="all"'):
        [*render_batch(prompter, rows, format="train-sharegpt")]
    (line,) = prompter.render_batch(rows, format="train-sharegpt", train="all")
    assert [turn["value"] for turn in line["conversations"]] == ["Hi", "Hello.", "Why?", "So."]
