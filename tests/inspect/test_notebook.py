"""Notebooks: the example, the display of messages, and the limits of views."""

import json
import re
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from markupsafe import Markup

from lazyprompt import Msg, Rendered
from lazyprompt.inspect.notebook import Room, Run, Shell, load_ipython_extension, unload_ipython_extension
from lazyprompt.inspect.notebook import html_of as html_of_value
from support.paths import EXAMPLES

NOTEBOOK = EXAMPLES / "see_the_prompt.ipynb"
HELLO = Msg("user", "Hello <b>", "user")


def test_example_notebook_is_stored_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_example_notebook_runs_and_shows_its_views() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own, which change from version to version
        import nbformat  # noqa: PLC0415 - half a second, and only for this
        from nbclient import NotebookClient  # noqa: PLC0415 - as above

        notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]  # it has no types
        NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    others = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" not in output]
    assert others == []
    held = [
        ("about", "Answer the readers of a library from ", 'title="notes, not trusted"'),
        ("Open.&lt;\\|im_end|&gt;", ">U+200B</span>", ">U+202E</span>"),
        ("none given", "find_book", "Is Emma in?"),
        ("4 messages", "What are you looking for?"),
        ("<summary>thinking</summary>", "find_book", "&#34;title&#34;: &#34;Emma&#34;"),
        ("dropped: the oldest go first", "</table>"),
    ]
    assert len(shown) == len(held)
    for html, parts in zip(shown, held, strict=True):
        assert html.startswith('<div class="lazyprompt"><style>')
        assert "<script" not in html
        for part in parts:
            assert part in html
    assert "\u202e" not in "".join(shown)


@pytest.fixture
def shell() -> Shell:
    made: Any = SimpleNamespace(display_formatter=DisplayFormatter())
    return made  # type: ignore[no-any-return]


def displayed_html(shell: Shell, value: object) -> str | None:
    data, _ = shell.display_formatter.format(value)  # type: ignore[attr-defined]
    return data.get("text/html")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "messages",
    [
        [HELLO, HELLO],
        (HELLO,),
        [{"role": "user", "content": "Hello <b>"}],
        [{"role": "system", "content": "x"}, HELLO],
        [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "Hello <b>", "arguments": "{}"}}]}],
    ],
    ids=["list", "tuple", "dicts", "mixed", "calls"],
)
def test_list_of_messages_is_displayed_as_a_conversation(shell: Shell, messages: Any) -> None:
    assert displayed_html(shell, messages) is None
    load_ipython_extension(shell)
    assert "Hello &lt;b&gt;" in (displayed_html(shell, messages) or "")
    unload_ipython_extension(shell)
    assert displayed_html(shell, messages) is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        (),
        [1],
        ["user"],
        [{"role": "user", "parts": ["x"]}],
        [{"type": "human", "content": "x"}],
        [{"role": "owner", "content": "x"}],
        [HELLO, 1],
        [{"role": "user", "content": 3}],
        [{"role": ["user"], "content": "x"}],
    ],
    ids=repr,
)
def test_other_lists_are_displayed_without_html(shell: Shell, value: Any) -> None:
    load_ipython_extension(shell)
    assert displayed_html(shell, value) is None


def test_existing_list_formatter_is_kept_and_restored(shell: Shell) -> None:
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(list, lambda value: f"<i>{len(value)}</i>")  # type: ignore[arg-type]
    load_ipython_extension(shell)
    assert displayed_html(shell, [1, 2]) == "<i>2</i>"
    assert "Hello" in (displayed_html(shell, [HELLO]) or "")
    unload_ipython_extension(shell)
    assert displayed_html(shell, [HELLO]) == "<i>1</i>"


def test_message_is_displayed_without_the_extension(shell: Shell) -> None:
    assert "Hello &lt;b&gt;" in (displayed_html(shell, HELLO) or "")


def test_package_imports_no_inspect_modules_and_the_extension_no_ipython() -> None:
    check = (
        "import sys, lazyprompt; lazyprompt.ChatPrompter('{input}').render('x', model='qwen2.5').segments;"
        "print([name for name in sys.modules if name.startswith('lazyprompt.inspect')]);"
        "import lazyprompt.inspect.notebook; print('IPython' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True)  # noqa: S603 - ours
    assert done.stdout == "[]\nFalse\n"


@pytest.mark.parametrize(
    ("text", "head", "rest"),
    [
        ("", 0, 0),
        ("x" * 4400, 4400, 0),
        ("x" * 4401, 4000, 401),
        ("a\n" * 61, 122, 0),
        ("a\n" * 60 + "b" * 400, 520, 0),
        ("a\n" * 60 + "b" * 401, 120, 401),
        ("a\n" * 59 + "b" * 401, 519, 0),
        ("a\n" * 59 + "b" * 3882 + "\n" + "c" * 401, 4000, 402),
    ],
)
def test_long_texts_are_folded(text: str, head: int, rest: int) -> None:
    flow = Room().flow([Run(text[:2], "look", "title", 3), Run(text[2:])])
    assert "".join(run.text for run in (*flow.head, *flow.rest)) == text
    assert [sum(len(run.text) for run in runs) for runs in (flow.head, flow.rest)] == [head, rest]
    assert flow[0::3] == (len(text), rest)
    assert flow.left == 0
    assert flow.head[:1] == ([Run(text[:2], "look", "title", 3)] if text else [])


@pytest.mark.parametrize(
    ("signs", "texts", "shown", "left"),
    [
        (100, ["x" * 50, "y" * 50, "z"], ["x" * 50, "y" * 20], 0),
        (100, ["x" * 80], ["x" * 80], 5),
        (15, ["x"], [""], 0),
        (16, ["x", "y"], ["x"], 0),
        (0, ["x"], [], 0),
        # Each hidden character is shown as an element.
        (100, ["\x1b" * 9], ["\x1b" * 5], -15),
        (100, ["é\ufdd0é\x1b"], ["é\ufdd0é\x1b"], 43),
    ],
)
def test_view_limits_the_number_of_characters(signs: int, texts: list[str], shown: list[str], left: int) -> None:
    room = Room(signs=signs)
    flow = room.flow(map(Run, texts))
    assert [run.text for run in flow.head] == shown
    assert (flow.whole, flow.left) == (len("".join(texts)), len("".join(texts)) - len("".join(shown)))
    assert room.signs == left


def test_fold_without_room_is_left_out() -> None:
    flow = Room(signs=4100).flow([Run("x" * 5000)])
    assert (flow.whole, len(flow.head[0].text), flow.left) == (5000, 4000, 930)
    assert [run.text for run in flow.rest] == ["x" * 70]
    flow = Room(signs=3000).flow([Run("x" * 5000)])
    assert (len(flow.head[0].text), flow.rest, flow.left) == (2985, [], 2015)


@pytest.mark.parametrize(
    ("signs", "fits", "left"), [(-9, 0, -9), (179, 0, 179), (180, 1, 0), (600, 3, 60), (9999, 4, 9279)]
)
def test_view_limits_the_number_of_rows(signs: int, fits: int, left: int) -> None:
    room = Room(signs=signs)
    assert room.rows("abcd") == "abcd"[:fits]
    assert room.signs == left


@pytest.mark.parametrize(("signs", "fits", "left"), [(0, 0, 0), (5, 1, 0), (6, 2, -4), (99, 4, 79)])
def test_view_limits_the_number_of_items(signs: int, fits: int, left: int) -> None:
    room = Room(signs=signs)
    assert room.fill("abcd", Markup, 5) == [*map(Markup, "abcd"[:fits])]
    assert room.signs == left


def test_segments_have_a_slot_number_a_color_and_a_title() -> None:
    slots = ["markers", *(f"s{at}" for at in range(8)), "n" * 81]
    values = [f"v{at}" for at in range(10)]
    html = html_of_value(Rendered(["a", "b<|im_end|>c", "d"], ["markers", "q", "markers"]))
    assert '<bdi class="lp-slot lp-hue0" title="markers">a</bdi>' in html
    html = html_of_value(
        Rendered(
            [part for value in values for part in ("", value)] + [""],
            [*(each for slot in slots for each in ("markers", slot)), "markers"],
        )
    )
    found = re.findall(r'<bdi class="([^"]*)" title="([^"]*)"(?: data-n="(\d+)")?>(v\d)</bdi>', html)
    assert found[0] == ("lp-slot lp-hue0 lp-open", "markers, not trusted", "", "v0")
    assert found[1:9] == [
        (f"lp-slot lp-hue{at} lp-open", f"s{at - 1}, not trusted", f"{at}", f"v{at}") for at in range(1, 9)
    ]
    assert found[9] == ("lp-slot lp-hue1 lp-open", f"{'n' * 80}…, not trusted", "9", "v9")
