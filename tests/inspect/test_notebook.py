"""Notebooks: what they show of prompts, in a kernel of their own, and lists of messages, which are asked for."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.formatters import DisplayFormatter

from lazyprompt import Msg
from lazyprompt.inspect.notebook import load_ipython_extension, unload_ipython_extension
from support.paths import EXAMPLES

if TYPE_CHECKING:
    from lazyprompt.inspect.notebook import Shell

NOTEBOOK = EXAMPLES / "see_the_prompt.ipynb"
HELLO = Msg("user", "Hello <b>", "user")


def test_the_example_is_stored_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_the_example_runs_in_a_kernel_and_shows_its_views() -> None:
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


def html_of(shell: Shell, value: object) -> str | None:
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
def test_lists_of_messages_are_conversations(shell: Shell, messages: Any) -> None:
    assert html_of(shell, messages) is None
    load_ipython_extension(shell)
    assert "Hello &lt;b&gt;" in (html_of(shell, messages) or "")
    unload_ipython_extension(shell)
    assert html_of(shell, messages) is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        (),
        [1],
        ["user"],
        [{"role": "user"}],
        [{"role": "owner", "content": "x"}],
        [HELLO, 1],
        [{"role": "user", "content": 3}],
        [{"role": ["user"], "content": "x"}],
    ],
    ids=repr,
)
def test_other_lists_are_shown_as_before(shell: Shell, value: Any) -> None:
    load_ipython_extension(shell)
    assert html_of(shell, value) is None


def test_what_showed_lists_before_shows_them_still(shell: Shell) -> None:
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(list, lambda value: f"<i>{len(value)}</i>")  # type: ignore[arg-type]
    load_ipython_extension(shell)
    assert html_of(shell, [1, 2]) == "<i>2</i>"
    assert "Hello" in (html_of(shell, [HELLO]) or "")
    unload_ipython_extension(shell)
    assert html_of(shell, [HELLO]) == "<i>1</i>"


def test_a_message_shows_itself_with_nothing_loaded(shell: Shell) -> None:
    assert "Hello &lt;b&gt;" in (html_of(shell, HELLO) or "")


def test_nothing_of_a_notebook_is_imported_by_the_package_nor_ipython_by_the_extension() -> None:
    check = (
        "import sys, lazyprompt; lazyprompt.ChatPrompter('{input}').render('x', model='qwen2.5').segments;"
        "print([name for name in sys.modules if name.startswith('lazyprompt.inspect')]);"
        "import lazyprompt.inspect.notebook; print('IPython' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True)  # noqa: S603 - ours
    assert done.stdout == "[]\nFalse\n"
