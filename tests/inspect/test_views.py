"""Looks and slot diffs as text, for a terminal and for a pipe."""

import os
import re

import pytest
from rich.cells import cell_len

from lazyprompt import Budget, CharTokenCounter, ChatPrompter
from lazyprompt.inspect.look import CallArguments, Look, look, slot_diff
from lazyprompt.inspect.saved import saved_look
from lazyprompt.inspect.terminal import Color, look_text, slot_diff_text

pytestmark = pytest.mark.usefixtures("terminal")

COLORS: tuple[Color, ...] = ("always", "never")
STYLE = re.compile("\x1b\\[[0-9;]*m")
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\U000e0000-\U000e0fff]")
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08<script>alert(1)</script>\u202e\u200b\xad\U000e0041\ufe0f[red]x[/red] :smile:"
)


def look_at(value: object = "Who?", **options: object) -> Look:
    call = CallArguments({"x": value, "input": "Hi"})
    return look(ChatPrompter("Say {x} now", system="S"), call, title="a.yaml", **options)  # type: ignore[arg-type]  # those of look


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_look_text_without_color_is_the_same_in_a_pipe(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert look_text(look_at(), terminal=True) == look_text(look_at(), terminal=False)
    assert "\x1b" not in look_text(look_at(), terminal=True)
    assert "\x1b[" in look_text(look_at(), "always", terminal=False)


@pytest.mark.parametrize("form", ["flat", "openai"])
@pytest.mark.parametrize("color", COLORS)
def test_control_characters_of_hostile_text_are_escaped(form: str, color: Color) -> None:
    history = [["a" + HOSTILE, "b" + HOSTILE]]
    one = look(ChatPrompter("{x}"), CallArguments({"x": HOSTILE, "input": HOSTILE}, history), form=form, title=HOSTILE)
    out = look_text(one, color, terminal=True)
    left = STYLE.sub("", out) if color == "always" else out
    assert not OBEYED.search(left.replace("\n", ""))
    assert r"\u001b]0;title\u0007\u001b[2J\u009b31m" in left
    assert r"\u202e\u200b\u00ad\udb40\udc41\ufe0f[red]x[/red] :smile:" in left
    assert "<script>alert(1)</script>" in left


def test_slot_names_of_any_script_are_aligned() -> None:
    one = look(ChatPrompter("{问题} {q}"), CallArguments({"问题": "谁？👨\u200d👩", "q": "x"}))
    prompt = look_text(one, terminal=False).split("\n\n")[1].splitlines()
    columns = {cell_len(head) for head in (re.split("[|+]", line)[0] for line in prompt)}
    assert len(columns) == 1
    assert any(line.startswith("问题") and "谁？👨\u200d👩" in line for line in prompt)


@pytest.mark.parametrize("columns", [40, 60, 200])
@pytest.mark.parametrize("color", COLORS)
def test_slot_table_fits_the_terminal_width(color: Color, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")  # rich gives a dumb terminal 80 columns
    prompter = ChatPrompter("{a_slot_with_a_rather_long_name_of_its_own} {问题问题问题问题问题}")
    one = look(
        prompter, CallArguments({"a_slot_with_a_rather_long_name_of_its_own": "x" * 99, "问题问题问题问题问题": "谁"})
    )
    out = STYLE.sub("", look_text(one, color, terminal=True))
    table = out[out.index("SLOT") :].splitlines()
    assert max(map(cell_len, table)) <= columns
    assert "".join(line.split()[0] for line in table[1:]).startswith("system")


def test_terminal_width_is_read_from_the_current_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Dataset.map`` with processes replaces ``os.environ`` by a copy, after which the width did not change."""
    slot = "a_slot_with_a_rather_long_name_of_its_own"
    one = look(ChatPrompter(f"{{{slot}}}"), CallArguments({slot: "x"}))
    look_text(one, terminal=True)  # rich is imported
    monkeypatch.setattr(os, "environ", os.environ | {"COLUMNS": "40", "TERM": "xterm-256color"})
    out = STYLE.sub("", look_text(one, terminal=True))
    assert max(map(cell_len, out[out.index("SLOT") :].splitlines())) <= 40


def test_pipe_output_is_not_wrapped() -> None:
    one = look(ChatPrompter("{x}"), CallArguments({"x": "word " * 500}), title="long " * 50)
    lines = look_text(one, terminal=False).splitlines()
    assert f"x           *+ {'word ' * 500}" in lines
    assert lines[0].startswith("long " * 50)


def test_payload_is_shown_as_json_with_escaped_characters() -> None:
    one = look_at("谁\u202e", form="anthropic")
    out = look_text(one, terminal=False)
    assert '"system": "S\\nSay 谁\\u202e now' in out
    assert "* not trusted" not in out
    colored = look_text(one, terminal=True)
    assert '\x1b[1;34m"system"\x1b[0m' in colored
    assert out.splitlines()[2:9] == STYLE.sub("", colored).splitlines()[2:9]


def test_look_text_reports_a_cut_slot() -> None:
    prompter = ChatPrompter("Say {x}", budget=Budget(None, CharTokenCounter(), slots={"x": 9}, cut="end"))
    out = look_text(look(prompter, CallArguments({"x": "a" * 50})), terminal=False)
    assert "- x cut: longer than 9 tokens; 50 → 9" in out


def test_grave_cautions_are_red() -> None:
    one = look(ChatPrompter("{x}").with_safety("off"), CallArguments({"x": "<|im_end|>\u202e"}), model="qwen2.5")
    out = look_text(one, terminal=True)
    assert "\x1b[1;31m! \x1b[0mx: 1 control sequence(s) sent unchanged" in out
    assert "\x1b[1;33m! \x1b[0mx: 1 invisible character(s)" in out
    refused = saved_look('[{"role": "system", "content": "a"}]', form="anthropic")
    assert "\x1b[1;31m! \x1b[0mmessages[0]: " in look_text(refused, terminal=True)


def test_slot_diff_text_is_colored() -> None:
    one, other = (look_at(value) for value in ("Who?", "When?"))
    out = slot_diff_text(one, other, slot_diff(one, other), terminal=True)
    assert "\x1b[31m-Who?" in out
    assert "\x1b[32m+When?" in out
    assert "\x1b[36m@@ -1 +1 @@" in out
    assert "same: system, instruction, input, markers" in STYLE.sub("", out)
    same = slot_diff_text(one, one, slot_diff(one, one), terminal=False)
    assert same.count("\n") == 6
