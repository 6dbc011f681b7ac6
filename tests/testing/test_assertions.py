"""Prompts tested in code, and the plugin that collects files of cases."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lazyprompt import ChatFormatter, ChatPrompter, Prompty
from lazyprompt.errors import PromptFileError, SlotError
from lazyprompt.testing import assert_prompt, render_cases

if TYPE_CHECKING:
    from lazyprompt.prompters.target_choice import FormatLike

PROMPT = "---\nname: greet\ninputs: [{name: name, kind: string, required: true}]\n---\nsystem:\nGreet {{ name }}.\n"
CASES = """cases:
  - {name: Ann, inputs: {name: Ann}, prompt: [{contains: Ann}]}
  - {name: Bob, inputs: {name: Bob}, prompt: [{contains: Ann}]}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("greet.prompty").write_text(PROMPT, encoding="utf-8")
    Path("greet.test.yaml").write_text(CASES, encoding="utf-8")


def test_render_cases_renders_all_cases_of_a_prompt_file() -> None:
    cases = render_cases("greet.prompty")
    assert [str(case) for case in cases] == ["Ann", "Bob"]
    assert cases[1].payload("anthropic") == Prompty.load("greet.prompty").request({"name": "Bob"}, provider="anthropic")
    assert [turn.text for turn in cases[0].turns] == ["Greet Ann."]
    assert_prompt(cases[0], contains="Ann", roles=["system"])


def test_a_prompt_file_without_test_cases_is_an_error() -> None:
    Path("greet.test.yaml").unlink()
    with pytest.raises(PromptFileError, match="greet.prompty:1:1: no test cases found; create greet.test.yaml"):
        render_cases("greet.prompty")


def test_the_assertion_error_lists_all_failed_checks() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_prompt("greet.prompty", {"name": "Ann"}, contains=["Ann", "Bob"], not_contains="Greet", max_tokens=1)
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "contains",
        "not_contains",
        "max_tokens",
    ]


@pytest.mark.parametrize("prompt", [Prompty.loads(PROMPT), ChatPrompter("Greet {name}.", system=""), "greet.prompty"])
def test_assert_prompt_accepts_a_prompty_a_prompter_or_a_path(prompt: Prompty | ChatPrompter | str) -> None:
    case = assert_prompt(prompt, {"name": "Ann"}, contains="Greet Ann.", safe=True, valid="anthropic")
    assert case.turns[0].role == "system"
    with pytest.raises(SlotError):
        assert_prompt(prompt, {})


def test_the_check_valid_accepts_a_provider_profile() -> None:
    own = ChatFormatter("mistral").profile.but(name="acme")
    both: list[FormatLike] = [own, "openai"]
    for valid in (own, both):
        assert assert_prompt("greet.prompty", {"name": "Ann"}, valid=valid).payload(own)["messages"] == [
            {"role": "user", "content": "Greet Ann."}
        ]
    strict = own.but(needs_user=True, tool_names=re.compile("x"))
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    with pytest.raises(AssertionError, match="^valid: acme: "):
        assert_prompt(ChatPrompter("Hi"), "there", tools=tools, valid=["openai", strict])


def test_checks_accept_any_sequence() -> None:
    assert_prompt("greet.prompty", {"name": "Ann"}, contains=("Greet", "Ann"), roles=("system",), valid=("openai",))


def test_an_invalid_value_of_a_check_is_an_error() -> None:
    with pytest.raises(ValueError, match="^valid must be a provider or a list of providers, not int$"):
        assert_prompt("greet.prompty", {"name": "Ann"}, valid=["openai", 7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="valid must be a provider or a list of providers, not 'opnai'"):
        assert_prompt("greet.prompty", {"name": "Ann"}, valid="opnai")


def collect_tests(*arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    return ran.stdout


@pytest.mark.slow
def test_the_pytest_plugin_collects_test_cases_of_prompt_files() -> None:
    out = collect_tests()
    assert "1 failed, 1 passed" in out
    assert "greet.test.yaml:3: Bob\n  contains: the text does not contain 'Ann'\n" in out
    assert "FAILED greet.test.yaml::Bob" in out


@pytest.mark.slow
def test_the_pytest_plugin_reports_invalid_test_files_and_ignores_those_of_other_tools() -> None:
    Path("other.test.yaml").write_text("suites: [1]\n", encoding="utf-8")
    Path("alone.test.yaml").write_text("cases: [1]\n", encoding="utf-8")
    Path("greet.test.yaml").write_text("cases: [{inputs: {name: Ann}, prompt: [{contain: x}]}]\n", encoding="utf-8")
    # All cases of a file with a misspelled name were ignored.
    Path("gret.test.yml").write_text("cases:\n- name: a\n  prompt: [{contains: Ann}]\n", encoding="utf-8")
    out = collect_tests()
    assert "2 errors" in out
    assert "gret.test.yml:1:1: the prompt file gret.prompty doesn't exist (nor gret.yaml or" in out.replace("\n", "")
    assert "unknown prompt check 'contain' (did you mean 'contains'?)" in out


@pytest.mark.slow
def test_the_pytest_plugin_imports_few_modules_of_the_package() -> None:
    """Modules imported before coverage starts would be reported as never executed."""
    Path("greet.test.yaml").unlink()
    Path("test_none.py").write_text(
        "import sys\ndef test_none():\n    assert 'lazyprompt.testing.pytest_plugin' in sys.modules\n"
        "    assert len([name for name in sys.modules if name.partition('.')[0] == 'lazyprompt']) <= 4\n",
        encoding="utf-8",
    )
    assert "1 passed" in collect_tests()


@pytest.mark.parametrize("call", [lambda path: assert_prompt(path, {"q": "Why?", "urgnt": True}), render_cases])
def test_a_value_for_an_undeclared_input_is_an_error(tmp_path: Path, call: Callable[[Path], object]) -> None:
    inputs = "  - {name: q, kind: string}\n  - {name: urgent, kind: boolean, default: false}\n"
    text = f"---\ninputs:\n{inputs}---\nuser:\n{{{{q}}}} {{{{urgent}}}}\n"
    (path := tmp_path / "ask.prompty").write_text(text)
    (tmp_path / "ask.test.yaml").write_text("cases:\n  - inputs: {q: Why?, urgnt: true}\n")
    with pytest.raises(SlotError, match=r"no input named 'urgnt' \(did you mean 'urgent'\?\)"):
        call(path)
