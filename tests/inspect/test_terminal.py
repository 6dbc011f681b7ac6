import re

import pytest

from lazyprompt import ChatPrompter, Rendered
from lazyprompt.inspect.terminal import PALETTE, Color, rendered_text
from support.inspect_views import views
from support.paths import GOLDEN

pytestmark = pytest.mark.usefixtures("terminal")

ESCAPE = re.compile("\x1b\\[[0-9;]*m")
COLORED, WRITTEN_OUT = "\x1b[36ma", "a\\u001b\n"


def make_rendered(*parts: tuple[str, str]) -> Rendered:
    return Rendered([text for text, _ in parts], [slot for _, slot in parts])


def print_rendered(*parts: tuple[str, str]) -> str:
    return rendered_text(make_rendered(*parts), terminal=True)


def test_slots_get_palette_colors_in_order_of_first_appearance() -> None:
    out = print_rendered(("A", "markers"), ("b", "q"), ("C", "markers"), ("d", "r"), ("\n", "markers"))
    assert out.startswith("\x1b[36mA\x1b[0m\x1b[4;32mb\x1b[0m\x1b[36mC\x1b[0m\x1b[4;33md\x1b[0m")
    colors = "cyan green yellow magenta blue red"
    assert " ".join(PALETTE) == f"{colors} {' '.join(f'bright_{color}' for color in colors.split())}"


def test_legend_of_trusted_text_alone_does_not_mention_trust() -> None:
    assert ESCAPE.sub("", print_rendered(("A\n", "markers"))) == "A\n── markers\n"


def test_more_slots_than_palette_colors_are_shown() -> None:
    parts = [(f"{index}", f"slot{index}") for index in range(2 * len(PALETTE) + 1)]
    assert "slot24" in print_rendered(*parts)


def test_long_lines_and_rich_markup_are_printed_unchanged() -> None:
    text = "word " * 30 + "[bold]x[/bold] :smile: 'quoted' 42"
    assert ESCAPE.sub("", print_rendered((text, "instruction"))).startswith(f"{text}\n──")


def test_missing_newline_at_the_end_is_added_on_a_terminal_only() -> None:
    prompt = make_rendered(("no end", "instruction"))
    assert ESCAPE.sub("", rendered_text(prompt, terminal=True)) == "no end\n── instruction\n"
    assert rendered_text(prompt, "never", terminal=True) == "no end\n"
    assert rendered_text(prompt, terminal=False) == "no end"


def test_pipe_gets_every_character_unchanged() -> None:
    text = "\x1b[2J\r\n\x07\u202e中\ttab"
    assert rendered_text(make_rendered((text, "instruction")), terminal=False) == text


@pytest.mark.parametrize(
    ("environment", "color", "terminal", "text"),
    [
        *(({}, "auto", True, COLORED), ({}, "auto", False, "a\x1b")),
        *(({}, "always", True, COLORED), ({}, "always", False, COLORED)),
        *(({}, "never", True, WRITTEN_OUT), ({}, "never", False, "a\x1b")),
        ({"NO_COLOR": "1"}, "auto", True, WRITTEN_OUT),
        ({"TERM": "dumb"}, "auto", True, WRITTEN_OUT),
        ({"NO_COLOR": "1", "TERM": "dumb"}, "always", False, COLORED),
    ],
)
def test_color_depends_on_the_argument_the_environment_and_the_terminal(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], color: Color, *, terminal: bool, text: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = rendered_text(make_rendered(("a\x1b", "instruction")), color, terminal=terminal)
    assert out.startswith(COLORED) if text == COLORED else out == text


@pytest.mark.parametrize("color", ["never", "always"])
def test_control_characters_of_the_prompt_are_escaped_on_a_terminal(color: Color) -> None:
    alien = "\x1b]0;title\x07\x1b[2J\r\x08\x7f\x9b31m\u202e\u2028\u2066x"
    out = rendered_text(make_rendered(("a\n", "instruction"), (alien, "q"), ("", "instruction")), color, terminal=True)
    left = ESCAPE.sub("", out) if color == "always" else out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066]", left)
    assert "\\u001b]0;title\\u0007\\u001b[2J\\u000d\\u0008\\u007f\\u009b31m\\u202e\\u2028\\u2066x" in left


def test_rendered_prompt_keeps_its_text_and_gets_a_legend() -> None:
    prompt = ChatPrompter("Answer {question}\n").render({"question": "谁？", "input": "hi"}, model="qwen2.5")
    out = ESCAPE.sub("", rendered_text(prompt, "always", terminal=True))
    assert out.startswith(prompt.text)
    assert out[len(prompt.text) :] == "── markers · system · instruction · question · input · not trusted\n"


def test_views_match_the_golden_file() -> None:
    """If a change is meant: ``python tests/support/inspect_views.py > tests/golden/views.txt``."""
    assert views() == (GOLDEN / "views.txt").read_text("utf-8")
