"""Environment values are never displayed or written; on the command line, only named variables enter a prompt.

An untrusted prompt file may name any variable. ``default: ${env:AWS_SECRET_ACCESS_KEY}`` was sent to the provider;
``lib show``, ``test``, its snapshots and ``inspect --json`` printed it.
"""

import html
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import Budget, CharTokenCounter, PromptLibrary, Prompty
from lazyprompt._base.secret import HiddenEnvironment, SecretText, secrets_within, shown
from lazyprompt.errors import PromptFileError
from lazyprompt.files.references import References, is_connection
from lazyprompt.inspect.look import CallArguments, look, look_json
from lazyprompt.studio.looking import Looking
from lazyprompt.studio.workspace import Workspace
from lazyprompt.testing.cases import CaseFile
from lazyprompt.testing.running import Runner
from security.test_case_files import answers, run_in_process

KEY = 'hunter2/"\\é+AbCdEfGh'
HEAD = """---
name: spy
model:
  id: gpt-4o
  connection: {apiKey: "${env:SPY_KEY}"}
"""
DEFAULT = HEAD + "inputs: {a: {kind: string, default: '${env:SPY_KEY}'}}\n---\nuser:\n"
# Where a file may refer to the variable, and how its template may change the value.
PLACES = {
    "default": DEFAULT + "Hi {{ a }}\n",
    "slice": DEFAULT + "{{ a[2:] }}\n",
    "reversed": DEFAULT + "{{ a | upper }} {{ a | reverse }}\n",
    "letters": DEFAULT + "{{ a | list | join('-') }}\n",
    "choice": HEAD + "inputs: {a: {kind: string, default: '${env:SPY_KEY}', enumValues: [x]}}\n---\nuser:\n{{ a }}\n",
    "instructions": HEAD + "inputs: {}\ninstructions: '${env:SPY_KEY}'\n---\n",
    "file": HEAD + "inputs: {a: {kind: string, default: '${file:a.yaml}'}}\n---\nuser:\n{{ a }}\n",
    "tool": HEAD
    + "tools: [{name: f, kind: function, description: '${env:SPY_KEY}', parameters: []}]\n---\nuser:\nHi\n",
    "option": HEAD.replace("  connection", "  options: {additionalProperties: {user: '${env:SPY_KEY}'}}\n  connection")
    + "---\nuser:\nHi\n",
    "metadata": HEAD + "metadata: {a: ['${env:SPY_KEY}']}\n---\nuser:\nHi\n",
}
EVERY_PLACE = pytest.mark.parametrize("place", PLACES)


def forms() -> set[str]:
    """The forms in which the value must not appear: plain, as JSON, reversed, in capitals, spaced, and in part."""
    quoted = {json.dumps(KEY)[1:-1], json.dumps(KEY, ensure_ascii=False)[1:-1]}
    parts = {KEY, *quoted, KEY.upper(), KEY[::-1], "-".join(KEY), KEY[:7], KEY[-8:]}
    return {*parts, *(json.dumps(part)[1:-1] for part in parts)}


def check_hidden(text: str) -> None:
    assert not [form for form in forms() if form in text], text


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPY_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("'${env:SPY_KEY}'")
    (tmp_path / "spy.test.yaml").write_text(
        "cases:\n  - prompt: [{contains: zzz}, {snapshot: true}, {regex: zzz}, {not_regex: '.'}, {max_tokens: 0}]\n"
    )
    return tmp_path


SHOWING: dict[str, tuple[tuple[str, ...], ...]] = {
    "lib": (("lib", "show", "spy"), ("lib", "show", "spy", "--json"), ("lib", "list", "--json")),
    "diff": (("lib", "diff", "old", "1.0.0", "2.0.0"), ("lib", "diff", "old", "1.0.0", "2.0.0", "--json")),
    "test": (
        *(("test", "--format", form) for form in ("table", "json", "junit", "github")),
        *(("test", "--format", form, "--against", "old") for form in ("table", "json", "github")),
        ("test", "--update"),
        ("test", "--format", "json"),
    ),
    "inspect": (
        ("inspect", "spy.prompty"),
        ("inspect", "spy.prompty", "--json"),
        ("inspect", "spy.prompty", "--format", "openai", "--json"),
        ("inspect", "spy.prompty", "--format", "anthropic"),
        ("inspect", "spy.prompty", "--diff-model", "qwen3", "--json"),
        ("inspect", "spy.prompty", "--diff", "old.prompty"),
    ),
    "check": (("check", "spy.prompty"), ("check", "spy.prompty", "--format", "json")),
    "convert": (("convert", "spy.prompty", "--to", "v2"), ("convert", "spy.prompty", "--to", "agentschema")),
}


@pytest.mark.slow
@EVERY_PLACE
@pytest.mark.parametrize("command", SHOWING)
def test_commands_print_and_write_no_environment_values(base: Path, place: str, command: str) -> None:
    """The naive version masks the text of a default, but not what a template makes of it by reversing or cutting.

    ``check`` and ``convert`` never showed the value; they are here to keep it so.
    """
    (base / "spy.prompty").write_text(PLACES[place])
    for name in ("old.prompty", "old@1.0.0.prompty", "old@2.0.0.prompty"):
        (base / name).write_text(PLACES[place].replace("name: spy", f"name: '{name}'").replace("Hi", name))
    older = base / "old@1.0.0.prompty"  # with another value, so that ``lib diff`` has something to show
    older.write_text(older.read_text().replace("'${env:SPY_KEY}'", "x"))
    (base / "old").mkdir()
    (base / "old" / "a.yaml").write_text("'${env:SPY_KEY}'")
    (base / "old" / "spy.prompty").write_text(PLACES[place] + "\nold\n")
    before = {*base.rglob("*")}
    for arguments in SHOWING[command]:
        ran = run_in_process(*arguments)
        check_hidden(ran.out + ran.err)
        assert "Traceback" not in ran.err
        assert ran.out
    for path in {*base.rglob("*")} - before:
        check_hidden(path.read_text())


@EVERY_PLACE
def test_studio_shows_no_environment_values(base: Path, place: str) -> None:
    """The page rendered the prompt with the values, and so showed them."""
    (base / "spy.prompty").write_text(PLACES[place])
    looking = Looking(Workspace.of(base))
    check_hidden(json.dumps(looking.file("spy.prompty"), ensure_ascii=False))
    prompt: Any = looking._read("spy.prompty", PLACES[place])  # noqa: SLF001 - what all its views are made of
    check_hidden(prompt.prompter.generate_prompt())


@EVERY_PLACE
def test_inspection_from_python_shows_no_environment_values(base: Path, place: str) -> None:
    """Inspecting a prompt from Python showed the values, in HTML and as JSON."""
    if place == "choice":
        pytest.skip("the value is none of the choices")
    (base / "spy.prompty").write_text(PLACES[place])
    prompters = [Prompty.load("spy.prompty").prompter, PromptLibrary(base).get("spy").prompter]
    prompters += [pickle.loads(pickle.dumps(prompters[0])), prompters[0].with_safety("raise").with_markers("qwen3")]  # noqa: S301 - our own
    for prompter in prompters:
        for form in ("flat", "openai", "anthropic"):
            seen = look(prompter, CallArguments(), form=form)
            check_hidden(html.unescape(seen._repr_html_()))
            check_hidden(str(look_json(seen)))
            assert place in ("metadata", "option") or "env:spy_key" in str(seen.sent).replace("-", "").lower()
    assert prompters[0].for_display().for_display().secrets


def test_inspection_keeps_partial_values_and_the_budget(base: Path) -> None:
    (base / "spy.prompty").write_text(PLACES["default"].replace("Hi", "Hi {{ b }}"))
    prompter = Prompty.load("spy.prompty").prompter.partial(b="Ann").with_budget(Budget(1000, CharTokenCounter()))
    assert look(prompter, CallArguments()).sent == prompter.generate_prompt().replace(KEY, "${env:SPY_KEY}")
    assert look(prompter, CallArguments(), max_tokens=900).sent == look(prompter, CallArguments()).sent
    other = PromptLibrary(base, environment={"SPY_KEY": "another", "SPY": ""})
    assert "another" in other.get("spy").prompter.generate_prompt({"b": "x"})
    assert "another" not in str(look(other.get("spy").prompter, CallArguments({"b": "x"})))


SENDING = [("render",), ("render", "--format", "openai"), ("tokens",), ("run", "--source", "openai")]


@EVERY_PLACE
@pytest.mark.parametrize("command", [*SENDING, ("batch",)])
def test_variable_not_named_by_env_option_is_refused(base: Path, place: str, command: tuple[str, ...]) -> None:
    (base / "spy.prompty").write_text(PLACES[place])
    (base / "rows.jsonl").write_text("{}\n")
    more = ("rows.jsonl", "-o", "out.jsonl") if command == ("batch",) else ()
    ran = run_in_process(command[0], "spy.prompty", *more, *command[1:])
    assert ran.status == 2
    assert "--env SPY_KEY" in ran.err
    check_hidden(ran.out + ran.err)
    assert not (base / "out.jsonl").exists()
    ran = run_in_process(command[0], "spy.prompty", *more, *command[1:], "--env", "SPY_KEYS")
    assert ran.status == 2


@pytest.mark.parametrize("place", [each for each in PLACES if each not in ("choice", "metadata", "option", "tool")])
def test_variable_named_by_env_option_enters_the_prompt(base: Path, place: str) -> None:
    (base / "spy.prompty").write_text(PLACES[place])
    ran = run_in_process("render", "spy.prompty", "--env", "SPY_KEY")
    assert (ran.status, ran.err) == (0, "")
    assert [form for form in forms() if form in ran.out]


def test_connection_settings_use_variables_without_env_option(base: Path) -> None:
    (base / "spy.prompty").write_text(HEAD + "---\nuser:\nHi\n")
    assert run_in_process("render", "spy.prompty").status == 0
    assert run_in_process("check", "--strict", "spy.prompty").status == 0


@EVERY_PLACE
def test_check_reports_environment_variables_in_a_prompt(base: Path, place: str) -> None:
    (base / "spy.prompty").write_text(PLACES[place])
    ran = run_in_process("check", "--strict", "spy.prompty", "--select", "LP062")
    assert ran.status == 1
    assert "LP062" in ran.out


@pytest.mark.parametrize(
    ("path", "connects"),
    [
        (("model", "connection"), True),
        (("model", "configuration"), True),
        (("tools", "*", "connection"), True),
        (("tools", "search", "connection"), True),
        (("inputs", "connection"), False),
        (("inputs", "model", "connection"), False),
        (("model", "options", "connection"), False),
        (("connection",), False),
        (("metadata", "model", "connection"), False),
        ((), False),
    ],
)
def test_connection_settings_are_recognized_by_their_path(path: tuple[str, ...], *, connects: bool) -> None:
    assert is_connection(path) is connects


def test_file_first_read_for_connection_settings_is_checked_again_elsewhere(base: Path) -> None:
    """A file is read once, but the place that refers to it decides which variables it may use."""
    text = "---\nmodel: {connection: {apiKey: '${file:a.yaml}'}}\nmetadata: {a: '${file:a.yaml}'}\n---\nuser:\nHi\n"
    path = base / "spy.prompty"
    with pytest.raises(PromptFileError, match=r"a\.yaml:1:1: .*--env SPY_KEY"):
        Prompty.of_file(path, References(base, named=frozenset()), text=text)
    first = Prompty.of_file(path, References(base, named=frozenset({"SPY_KEY"})), text=text)
    assert first.metadata["a"] == KEY


def test_default_of_an_environment_reference_is_not_secret(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "spy.prompty").write_text("---\ninputs: {a: {default: '${env:CITY:Paris}'}}\n---\nuser:\n{{ a }}\n")
    assert "Paris" in run_in_process("render", "spy.prompty").out
    monkeypatch.setenv("CITY", "Rome")
    assert run_in_process("render", "spy.prompty").status == 2
    assert "${env:CITY}" in run_in_process("inspect", "spy.prompty").out


def test_saved_responses_contain_no_environment_values(base: Path) -> None:
    """A model that repeats its prompt put the value into the saved responses and the reports."""
    (base / "spy.prompty").write_text(PLACES["default"])
    (base / "spy.test.yaml").write_text("cases: [{answer: [{contains: zzz}]}]\n")
    file = CaseFile.read(base / "spy.test.yaml")
    (refused,) = Runner(answers=answers(Path("a.sqlite"))).run([file])
    assert "--env SPY_KEY" in refused.failures[0].message
    kept = answers(Path("a.sqlite"))
    (result,) = Runner(answers=kept, env=["SPY_KEY"]).run([file])
    kept.close()
    assert kept.asked == 1
    check_hidden(str(result.answer) + str(result.failures))
    assert "***" in str(result.answer)
    assert KEY.encode() not in b"".join(each.read_bytes() for each in base.glob("a.sqlite*"))


SECRET = SecretText(KEY, "${env:SPY_KEY}")


@pytest.mark.parametrize("write", [json.dumps, repr])
@pytest.mark.parametrize("value", [SECRET, [SECRET], {"a": {"b": (SECRET, 1)}}, {SECRET: 1}, [[{"a": [SECRET]}]]])
def test_secret_texts_are_hidden_anywhere_in_a_value(write: Callable[[object], str], value: object) -> None:
    assert [*secrets_within(value)] == ([SECRET] if value != {SECRET: 1} else [])
    check_hidden(write(shown(value)))
    assert "${env:SPY_KEY}" in write(shown(value))


def test_secret_text_is_hidden_within_other_texts() -> None:
    other: dict[str, Any] = {"a": f"<{KEY}>", "b": json.dumps({"c": KEY})}
    check_hidden(json.dumps(shown(other, [SECRET]), ensure_ascii=False))


def test_prompt_hash_does_not_depend_on_environment_values(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash included the values, so that it confirmed a guessed value and differed between machines."""
    (base / "spy.prompty").write_text(PLACES["default"])
    first = Prompty.load("spy.prompty").hash
    monkeypatch.setenv("SPY_KEY", "another")
    assert Prompty.load("spy.prompty").hash == first
    assert PromptLibrary(base, environment=HiddenEnvironment()).hash("spy") == first
