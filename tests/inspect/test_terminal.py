from __future__ import annotations

import re

import pytest

from lazyprompt import ChatPrompter, Rendered
from lazyprompt._base.signs import visible
from lazyprompt.inspect.terminal import PALETTE, rendered_text

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def rendered(*parts: tuple[str, str]) -> Rendered:
    return Rendered([text for text, _ in parts], [slot for _, slot in parts])


def printed(prompt: Rendered, *, terminal: bool = True, no_color: bool | None = None) -> str:
    return rendered_text(prompt, "never" if no_color else "auto", terminal=terminal)


def test_slots_take_the_palette_in_order_of_first_appearance() -> None:
    prompt = rendered(("A", "markers"), ("b", "q"), ("C", "markers"), ("d", "r"), ("\n", "markers"))
    out = printed(prompt)
    assert out.startswith("\x1b[36mA\x1b[0m\x1b[4;32mb\x1b[0m\x1b[36mC\x1b[0m\x1b[4;33md\x1b[0m")
    assert PALETTE[:3] == ("cyan", "green", "yellow")


def test_only_untrusted_text_is_underlined() -> None:
    out = printed(rendered(("mine", "instruction"), ("theirs", "q"), ("", "instruction")))
    assert re.search(r"\x1b\[[0-9]+mmine", out)
    assert "\x1b[4;32mtheirs" in out
    assert "\x1b[4mnot trusted" in out


def test_legend_names_each_slot_once_in_its_colour() -> None:
    out = printed(rendered(("A", "markers"), ("b", "问题"), ("C", "markers")))
    legend = out.splitlines()[-1]
    assert ESCAPE.sub("", legend) == "── markers · 问题 · not trusted"
    assert "\x1b[32m问题" in legend


def test_legend_of_trusted_text_alone_does_not_speak_of_trust() -> None:
    assert ESCAPE.sub("", printed(rendered(("A\n", "markers")))) == "A\n── markers\n"


def test_more_slots_than_colours() -> None:
    parts = [(f"{index}", f"slot{index}") for index in range(2 * len(PALETTE) + 1)]
    assert "slot24" in printed(rendered(*parts))


def test_long_lines_and_markup_are_left_alone() -> None:
    text = "word " * 30 + "[bold]x[/bold] :smile: 'quoted' 42"
    assert ESCAPE.sub("", printed(rendered((text, "instruction")))).startswith(f"{text}\n──")


def test_missing_newline_at_the_end_is_added_on_a_terminal_only() -> None:
    prompt = rendered(("no end", "instruction"))
    assert ESCAPE.sub("", printed(prompt)) == "no end\n── instruction\n"
    assert printed(prompt, no_color=True) == "no end\n"
    assert printed(prompt, terminal=False) == "no end"


def test_pipe_gets_every_character() -> None:
    text = "\x1b[2J\r\n\x07\u202e中\ttab"
    assert printed(rendered((text, "instruction")), terminal=False) == text


@pytest.mark.parametrize("no_color", [True, False])
def test_terminal_obeys_nothing_in_the_prompt(no_color: bool) -> None:  # noqa: FBT001 - a parameter
    alien = "\x1b]0;title\x07\x1b[2J\r\x08\x7f\x9b31m\u202e\u2028\u2066x"
    out = printed(rendered(("a\n", "instruction"), (alien, "q"), ("", "instruction")), no_color=no_color)
    left = ESCAPE.sub("", out) if not no_color else out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066]", left)
    assert "\\u001b]0;title\\u0007\\u001b[2J\\u000d\\u0008\\u007f\\u009b31m\\u202e\\u2028\\u2066x" in left


def test_no_color_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = rendered(("a", "instruction"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(prompt) == "a\n"
    assert rendered_text(prompt, terminal=True) == "a\n"


@pytest.mark.parametrize(
    ("color", "terminal", "colored"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("always", True, True),
        ("always", False, True),
        ("never", True, False),
        ("never", False, False),
    ],
)
def test_color_choice(color: str, terminal: bool, colored: bool) -> None:  # noqa: FBT001 - parameters
    text = rendered_text(rendered(("a", "instruction")), color, terminal=terminal)  # type: ignore[arg-type]
    assert ("\x1b[36ma" in text) is colored


def test_always_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[36ma" in rendered_text(rendered(("a", "instruction")), "always", terminal=False)


def test_dumb_terminal_has_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert rendered_text(rendered(("a\x1b", "instruction")), terminal=True) == "a\\u001b\n"


def test_real_prompt_keeps_its_text() -> None:
    prompt = ChatPrompter("Answer {question}\n").render({"question": "谁？", "input": "hi"}, model="qwen2.5")
    out = ESCAPE.sub("", rendered_text(prompt, "always", terminal=True))
    assert out.startswith(prompt.text)
    assert out[len(prompt.text) :] == "── markers · system · instruction · question · input · not trusted\n"


def test_visible_keeps_text_newlines_and_tabs() -> None:
    assert visible("a\n\tb 中文 👨\u200d👩 é") == "a\n\tb 中文 👨\u200d👩 é"
