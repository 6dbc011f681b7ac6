"""``lazyprompt inspect``: on a real pseudo-terminal, whose screen an emulator shows, and in a pipe."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyte
import pytest

from cli.helpers import QA, Run, fault, write
from cli.pseudo_terminal import written_to_terminal
from lazyprompt.prompters.target_choice import FORMATS
from support.chat_judges import deepseek
from support.paths import PROMPTS

PROGRAM = "import sys; from lazyprompt.cli.main import main; sys.exit(main())"
# A title, a cleared screen, a moved cursor, colour, a bell, and the same with C1; then bidi and invisible characters.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x1b[31mred\x07\x9b2J\x9d0;owned\x9c\x85\r\x08\x0e\x1bc"
UNSEEN = "a\u202eb\u2066c\u200bd\xade\U000e0041f\ufe0fg\u2028h"
WRITTEN = r"a\u202eb\u2066c\u200bd\u00ade\udb40\udc41f\ufe0fg\u2028h"
PLAIN = ("--instruction", "Say {x} now", "--set", "x=Who?", "--input", "Hi", "--model", "qwen2.5")
TRANSLATE = str(PROMPTS / "translate.yaml")
PYTHON = """
from lazyprompt import ChatPrompter
from lazyprompt.files.prompty import Prompty
print("imported")
answer = ChatPrompter("Answer {question}.")
class Prompts:
    answer = answer
def made():
    return Prompty.loads("---\\ninputs:\\n  n: {kind: number}\\n---\\nuser:\\n{{n}} apples\\n")
def needs(x):
    return answer
def fails():
    raise ValueError("no\\x1b luck")
number = 3
"""


def on_terminal(*argv: str, columns: int = 100) -> bytes:
    """Return the output of the program on a terminal with some columns."""
    return written_to_terminal(["-c", PROGRAM, "inspect", *argv], {"TERM": "xterm-256color"}, columns)


def terminal_screen(data: bytes, columns: int = 100) -> pyte.Screen:
    """Return the screen of a terminal after some output."""
    screen = pyte.Screen(columns, 200)
    screen.set_mode(pyte.modes.LNM)
    pyte.ByteStream(screen).feed(data)
    return screen


def lines(screen: pyte.Screen) -> list[str]:
    return [line.rstrip() for line in screen.display]


@pytest.mark.slow
def test_terminal_shows_colours_and_a_bar_for_each_slot() -> None:
    screen = terminal_screen(on_terminal(*PLAIN, "--window", "1000"))
    shown = lines(screen)
    assert shown[0] == "flat · qwen2.5 · 48 of 1,000 tokens (about), 5%"
    row = next(at for at, line in enumerate(shown) if line.startswith("Say Who? now"))
    cells = screen.buffer[row]
    assert (cells[0].fg, cells[0].underscore) == (cells[9].fg, False)
    assert (cells[4].fg != cells[0].fg, cells[4].underscore) == (True, True)
    table = shown.index(next(line for line in shown if line.startswith("SLOT")))
    x = next(at for at in range(table, 200) if shown[at].startswith("x "))
    assert screen.buffer[x][0].fg == cells[4].fg
    assert re.search("[█▉▊▋▌▍▎▏]", shown[x])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["flat", "openai"])
def test_escapes_and_invisible_characters_are_shown_escaped_on_a_terminal(form: str) -> None:
    hostile = f"{ESCAPES}{UNSEEN}<script>alert(1)</script>"
    data = on_terminal("--instruction", "{x}", "--set", f"x={hostile}", "--format", form, columns=400)
    screen = terminal_screen(data, 400)
    text = "\n".join(lines(screen))
    assert screen.title == ""
    assert WRITTEN in text
    assert "<script>alert(1)</script>" in text
    assert r"\u001b]0;owned\u0007\u001b[2J\u001b[1;1H\u001b[31mred\u0007\u009b2J\u009d0;owned\u009c\u0085" in text
    assert "U+001B" in text
    assert lines(screen)[0].startswith(form)
    # The only control characters are those of colours and of line ends.
    left = re.sub(rb"\x1b\[[0-9;]*m|\r\n", b"", data).decode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\xad\U000e0000-\U000e0fff]", left)


# In a pipe.


def test_piped_output_is_coloured_only_on_request(run: Run) -> None:
    ran = run("inspect", *PLAIN)
    assert (ran.status, ran.err) == (0, "")
    text = ran.out.decode()
    assert "\x1b" not in text
    assert "\nx           *+ Who?\n" in text
    assert "\x1b[" in run("inspect", *PLAIN, "--color", "always").out.decode()


def test_json_has_text_model_token_count_and_budget_report(run: Run) -> None:
    found: Any = run("inspect", *PLAIN, "--json", "--max-tokens", "500", "--counter", "chars").json
    assert found["text"] == run("render", *PLAIN).out.decode()
    assert (found["form"], found["model"], found["unit"], found["window"]) == ("flat", "qwen2.5", "characters", None)
    assert found["total"] == len(found["text"])
    assert found["trim"]["max_tokens"] == 500


@pytest.mark.slow
def test_tokens_option_lists_each_token_of_a_training_sample(run: Run) -> None:
    tokenizer = f"huggingface:{deepseek()}"
    argv = ("--instruction", "Say {x}", "--set", "x=ab", "--system", "", "--input", "Hi", "--model", "deepseek-v3")
    label = ("--label", "<think>\n\n</think>Ja.\u202e")
    sample = (*label, "--tokens", "--counter", tokenizer, "--mask", r"<think>\s*</think>")
    shown = run("inspect", *argv, *sample, "--mask", "zzz").out.decode()
    table = [line.split() for line in shown.split("TOKEN")[-1].split("\n")]
    assert ["2", "639", "0", "instruction", "trusted", '"', 'ab"'] in table
    assert ["9", "128822", "2", "label", "trusted", '"</think>"'] in table
    assert ["10", "59094", "2", "label", "value", "yes", '"Ja"'] in table
    assert "\u202e" not in shown
    assert "- the mask 'zzz' matches nowhere in the answers\n" in shown
    found: Any = run("inspect", *argv, *sample, "--json").json
    assert found["unmatched"] == []
    ends = {"id": 1, "text": "<｜end▁of▁sentence｜>", "message": 2, "slot": "markers", "trusted": True, "trained": True}
    assert found["tokens"][-1] == ends
    assert "tokens" not in run("inspect", *argv, "--json").json
    assert fault(run("inspect", *argv, *sample, "--mask", "(")).startswith("--mask: the mask's pattern '('")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--input", "a"], "a training sample requires a response; pass it with --label"),
        (["--input", "a", "--label", "b"], "a tokenizer is required; use --counter huggingface:PATH"),
        (["--input", "a", "--label", "b", "--format", "openai"], "this option requires flat text"),
        (["-"], "this option does not apply to a saved payload"),
    ],
)
def test_usage_error_of_the_tokens_option(run: Run, argv: list[str], message: str) -> None:
    assert fault(run("inspect", *argv, "--tokens")).startswith(f"--tokens: {message}")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("prompt", [(*QA, "--set=question=Who?", "--set=context=us"), (TRANSLATE, "--input", "Save?")])
def test_inspected_prompt_equals_the_output_of_render(run: Run, prompt: tuple[str, ...], form: str) -> None:
    argv = (*prompt, "--format", form)
    found: Any = run("inspect", *argv, "--json").json
    assert found["title"] == (TRANSLATE if TRANSLATE in prompt else "")
    rendered = run("render", *argv).out.decode()
    assert (found["text"] if form == "flat" else found["payload"]) == (
        rendered if form == "flat" else json.loads(rendered)
    )


@pytest.mark.parametrize("argv", [(), QA, (*QA, "--set", "quetsion=1"), ("no.prompty",)])
def test_usage_errors_are_those_of_render(run: Run, argv: tuple[str, ...]) -> None:
    expected = fault(run("render", *argv)).replace("nothing to render", "nothing to inspect")
    assert fault(run("inspect", *argv)) == expected


# Prompters in Python.


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "pkg").mkdir()
    write(tmp_path / "pkg" / "app_of_a_test.py", PYTHON)
    monkeypatch.delitem(sys.modules, "pkg.app_of_a_test", raising=False)
    monkeypatch.delitem(sys.modules, "pkg", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["pkg.app_of_a_test:answer", "pkg/app_of_a_test.py:answer", "pkg.app_of_a_test:Prompts.answer"]
)
def test_prompter_in_a_python_module_or_file_is_inspected(run: Run, app: Path, name: str) -> None:  # noqa: ARG001 - a fixture
    ran = run("inspect", name, "--set", "question=Who?", "--json")
    found: Any = json.loads(ran.out)
    assert (ran.status, ran.err) == (0, "imported\n")
    assert found["title"] == name
    assert "Answer Who?." in found["text"]


def test_python_file_imports_the_modules_beside_it_first(run: Run, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(app / "named_twice_of_a_test.py", "TEXT = 'of the working directory'")
    write(app / "pkg" / "named_twice_of_a_test.py", "TEXT = 'of the directory of the file'")
    # The file has the name of a module that it imports.
    code = "import lazyprompt, json, named_twice_of_a_test as other\nmade = lazyprompt.ChatPrompter(other.TEXT)"
    write(app / "pkg" / "json.py", f"{code}\njson.dumps([])")
    monkeypatch.delitem(sys.modules, "named_twice_of_a_test", raising=False)
    monkeypatch.setitem(sys.modules, "json", json)
    sys.path.insert(0, str(app))
    found: Any = json.loads(run("inspect", "pkg/json.py:made", "--json").out)
    assert "of the directory of the file" in found["text"]


def test_function_that_returns_a_prompty_is_called(run: Run, app: Path) -> None:  # noqa: ARG001 - a fixture
    found: Any = json.loads(run("inspect", "pkg/app_of_a_test.py:made", "--set", "n=3", "--json").out)
    assert "3 apples" in found["text"]
    ran = run("inspect", "pkg/app_of_a_test.py:made", "--set", "n=three")
    assert ran.status == 2
    assert "--set: n is 'three', but must be of kind float" in ran.err


NOT_A_PROMPTER = "must be a prompter, a Prompty or a function without arguments that returns one"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "pkg.app_of_a_test:anser",
            "pkg.app_of_a_test has no 'anser' (did you mean 'answer'?); available prompters: answer",
        ),
        ("pkg.app_of_a_test:number", f"pkg.app_of_a_test:number {NOT_A_PROMPTER}, not a int"),
        ("pkg.app_of_a_test:needs", "TypeError: needs() missing 1 required positional argument: 'x'"),
        ("pkg.app_of_a_test:fails", r"ValueError: no\u001b luck (app_of_a_test.py, line 13)"),
        ("math:answer", "PROMPT_FILE: math has no 'answer'"),
        ("pkg.nowhere:answer", "pkg.nowhere: ModuleNotFoundError: No module named 'pkg.nowhere'"),
        ("pkg/nowhere.py:answer", "FileNotFoundError: [Errno 2] No such file or directory: '/pkg/nowhere.py'"),
        ("bad.py:x", "bad.py: SyntaxError: '(' was never closed (bad.py, line 1)"),
        ("exits.py:x", "exits.py: SystemExit: 3 (exits.py, line 2)"),
        ("others.py:x", f"others.py:x {NOT_A_PROMPTER}, not a Prompty"),
    ],
)
def test_error_in_python_code_is_one_line_without_a_traceback(run: Run, app: Path, name: str, message: str) -> None:
    write(app / "bad.py", "x = (")
    write(app / "exits.py", "import sys\nsys.exit(3)")
    write(app / "others.py", "class Prompty:\n    pass\nx = Prompty()")
    ran = run("inspect", name)
    assert (ran.status, ran.out) == (2, b"")
    assert ran.err.splitlines()[-1].replace(str(app), "").endswith(message)
    assert "Traceback" not in ran.err


def test_render_does_not_import_python_modules(run: Run, app: Path) -> None:  # noqa: ARG001 - a fixture
    ran = run("render", "pkg.app_of_a_test:answer", "--set", "question=Who?")
    assert ran.status == 2
    assert "imported" not in ran.err


# Saved payloads.

SAVED = {"model": "gpt-4o", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi\u202e"}]}


def test_saved_payload_is_inspected_from_a_file_a_pipe_or_json_lines(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", SAVED)
    text = run("inspect", path).out.decode()
    assert text.startswith(f"{path} · openai · gpt-4o · 15 of 128,000 tokens (about), 0%\n\n{{\n")
    assert "! messages[1] (user): 1 invisible character(s): U+202E" in text
    piped = run("inspect", "-", stdin=json.dumps(SAVED).encode()).out.decode()
    assert piped == text.replace(path, "standard input")
    batch = write(tmp_path / "a.jsonl", f"\n{json.dumps({'custom_id': '1', 'body': SAVED})}\nno JSON\n")
    found: Any = run("inspect", batch, "--json", "--window", "20").json
    assert (found["payload"], found["window"]) == (SAVED, 20)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("a.json", "--set", "a=b"), "--set: this option does not apply to a saved payload; remove it"),
        (("a.json", "--max-tokens", "9"), "--max-tokens: this option does not apply to a saved payload; remove it"),
        (
            ("a.json", "--diff-model", "x"),
            "--diff-model: a saved payload cannot be rendered for another model; use --diff with another prompt",
        ),
        (("none.json",), "PROMPT_FILE: none.json: No such file or directory"),
        (
            ("b.json",),
            "PROMPT_FILE: b.json: the saved payload is not valid JSON: Expecting value: line 1 column 1 (char 0)",
        ),
        (("a.json", "--diff", "none.json"), "--diff: none.json: No such file or directory"),
        (
            ("a.json", "--format", "gemini"),
            "PROMPT_FILE: a.json: a payload for gemini must contain its messages in 'contents', but the key is missing",
        ),
        (("a.json", "--json", "--color", "always"), "--color: JSON output has no colour; remove --json"),
    ],
)
def test_usage_error_for_a_saved_payload(run: Run, tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    write(tmp_path / "a.json", SAVED)
    write(tmp_path / "b.json", "")
    assert fault(run("inspect", *argv)) == message


# Two prompts.


def test_diff_shows_the_first_change_between_two_saved_payloads(run: Run, tmp_path: Path) -> None:
    """The later of two requests does not continue the earlier one, which makes its signed reasoning invalid."""
    reasoning = {"type": "thinking", "thinking": "hm", "signature": "s"}
    response = {"role": "assistant", "content": [reasoning, {"type": "text", "text": "Yes."}]}
    question = [{"role": "user", "content": "Is it open?"}]
    for name, system, messages in (("a", "Be kind.", question), ("b", "Be brief.", [*question, response, *question])):
        write(tmp_path / f"{name}.json", json.dumps({"system": system, "messages": messages}))
    found: Any = run("inspect", "a.json", "--diff", "b.json", "--json").json
    assert found["prefix"] == {
        "message": None,
        "slot": "system",
        "reason": "the caller changed the system text",
        "thoughts": 1,
    }
    text = run("inspect", "a.json", "--diff", "b.json").out.decode()
    assert text.endswith(
        "\nfirst change: system: the caller changed the system text; void signed thoughts after it: 1\n"
    )
    assert "first change" not in run("inspect", "a.json", "--diff", "a.json").out.decode()


def test_diff_compares_two_prompts_by_slot(run: Run, tmp_path: Path) -> None:
    for name, instruction in (("a.yaml", "Answer {q}."), ("b.yaml", "Answer {q} from {text}.")):
        write(tmp_path / name, f"type: chat\ninstruction: '{instruction}'\n")
    # Each prompt uses only the values of its own slots.
    argv = ("--set", "q=Who?", "--set", "text=us")
    found: Any = run("inspect", "a.yaml", "--diff", "b.yaml", *argv, "--json").json
    states = {change["name"]: change["state"] for change in found["slots"]}
    assert states == {"system": "same", "instruction": "changed", "q": "same", "text": "added", "markers": "same"}
    assert found["shared"].items() >= {"slot": "instruction", "line": 1}.items()
    assert found["before"]["title"] == "a.yaml"
    assert found["after"]["text"] == run("render", "b.yaml", *argv).out.decode()
    text = run("inspect", "b.yaml", "--diff", "a.yaml", *argv).out.decode()
    assert "text: removed, 1\n@@ -1 +0,0 @@\n-us\n" in text
    assert fault(run("inspect", "a.yaml", "--diff", "b.yaml", "--set", "q=Who?")).startswith(
        "--diff: no value for 'text'"
    )
    assert "no slot named 'no'" in fault(
        run("inspect", "a.yaml", "--diff", "b.yaml", *argv, "--set", "no=1", "--set", "nor=2")
    )


def test_diff_uses_piped_input_for_both_prompts(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.yaml", f"type: chat\ninstruction: 'Answer {{input}} {name}'\n")
    found: Any = run("inspect", "a.yaml", "--diff", "b.yaml", "--json", stdin=b"Who?").json
    assert [change["state"] for change in found["slots"] if change["name"] == "input"] == ["same"]


def test_diff_model_option_compares_one_prompt_for_two_models(run: Run) -> None:
    found: Any = run("inspect", *PLAIN, "--diff-model", "llama3.1", "--json").json
    assert (found["before"]["model"], found["after"]["model"]) == ("qwen2.5", "llama3.1")
    assert fault(run("inspect", *PLAIN, "--diff-model", "nobody")).startswith("--diff-model: ")


def test_diff_compares_a_prompt_with_a_saved_payload(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "sent.json", SAVED)
    found: Any = run("inspect", "--input", "Hi", "--format", "openai", "--diff", path, "--json").json
    assert (found["before"]["title"], found["after"]["title"]) == ("", path)


@pytest.mark.parametrize(
    "more",
    [
        *(("--format", "openai"), ("--model", "gpt-4o"), ("--counter", "chars"), ("--window", "9")),
        *(("--diff", "b.json"), ("--json",), ("--color", "never")),
    ],
)
def test_option_applies_to_a_saved_payload(run: Run, tmp_path: Path, more: tuple[str, ...]) -> None:
    for name in ("a.json", "b.json"):
        write(tmp_path / name, {"messages": [{"role": "user", "content": name}]})
    ran = run("inspect", "a.json", *more)
    assert (ran.status, ran.err) == (0, "")
