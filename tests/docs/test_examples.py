"""Each example runs without a key, and prints what is in tests/golden/examples.

After a change, ``python tests/docs/test_examples.py`` writes these files again: check the difference.
"""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.docs_models import models_at_hand, write_speaker
from support.engines import find_processes
from support.paths import EXAMPLES, GOLDEN

pytestmark = pytest.mark.slow  # engines, clients, servers

HELPERS = {"qwen_token_counter.py", "stand_in.py"}
PROGRAMS = sorted({path.name for path in EXAMPLES.glob("*.py")} - HELPERS)
ARGUMENTS = {"fine_tuning.py": ("set",)}


def imported_modules(name: str) -> set[str]:
    """The modules that an example imports at its top, and those that it asks to install."""
    return set(
        re.findall(r"^(?: {4})?(?:from|import) ([\w.]+)", (EXAMPLES / name).read_text(encoding="utf-8"), re.MULTILINE)
    )


def required_packages(name: str) -> list[str]:
    """The packages that an example says to install; extras have their names."""
    line = re.search(
        r"^python -m pip install (.+?)(?:  |$)", (EXAMPLES / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    return re.findall(r"[\w-]+", line[1]) if line else []


def run(name: str, *arguments: str, folder: Path, key: bool = False, typed: str = "") -> str:
    for package in required_packages(name):
        try:
            version(package)
        except PackageNotFoundError:
            pytest.skip(f"{name} needs {package}")
    environment = {each: value for each, value in os.environ.items() if key or not each.endswith("_API_KEY")}
    done = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, EXAMPLES / name, *arguments],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        input=typed,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def golden(name: str) -> Path:
    return (GOLDEN / "examples" / name).with_suffix(".txt")


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_prints_its_golden_output(name: str, tmp_path: Path) -> None:
    assert run(name, *ARGUMENTS.get(name, ()), folder=tmp_path) == golden(name).read_text(encoding="utf-8")


def test_each_golden_output_belongs_to_an_example() -> None:
    assert {path.stem for path in golden("any").parent.glob("*.txt")} == {Path(name).stem for name in PROGRAMS}


def test_examples_readme_describes_each_example() -> None:
    rows = re.compile(r"^\| \[`(\w+\.py)`\]\(\1\) \| .+ \|$", re.MULTILINE)
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(rows.findall(page)) == sorted([*PROGRAMS, *HELPERS])


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_imports_only_public_names(name: str) -> None:
    # The programs of AgentScope's guides import the module that replaces AgentScope.
    ours = {each for each in imported_modules(name) if each.startswith("lazyprompt")}
    assert ours <= {"lazyprompt", "lazyprompt.compat.agentscope", "lazyprompt.compat.agentscope_0_0"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_names_the_packages_that_it_needs(name: str) -> None:
    packages = {each.partition(".")[0] for each in imported_modules(name)} - sys.stdlib_module_names
    ours = {"lazyprompt", "pydantic", *(Path(each).stem for each in HELPERS)}
    assert packages - ours <= {each.replace("-", "_") for each in required_packages(name)}


def test_chat_example_with_an_api_key_answers_typed_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with models_at_hand(tmp_path, monkeypatch) as server:
        printed = run("chat.py", folder=tmp_path, key=True, typed="When do you open?\n几点开门？\n\n")
    assert printed.count("librarian: ") == 2
    assert "At nine." in printed
    assert "九点。" in printed
    assert [message["role"] for message in server.seen[-1].body["messages"]] == ["system", "user", "assistant", "user"]


def test_local_model_example_leaves_no_process_behind(tmp_path: Path) -> None:
    model = write_speaker(tmp_path / "small.gguf", "9:30")
    assert run("local_model.py", "small.gguf", folder=tmp_path) == "small.gguf: 9:30 (stop)\n"
    assert find_processes(model) == []


def test_fine_tuning_example_writes_each_row_once(tmp_path: Path) -> None:
    run("fine_tuning.py", "set", folder=tmp_path)
    lines = [
        json.loads(line)
        for name in ("train", "test")
        for line in (tmp_path / "set" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["messages"][-1]["role"] for line in lines] == ["assistant"] * 5
    assert len({line["messages"][1]["content"] for line in lines}) == 5


# Packages that `pip install .` does not install.
OPTIONAL = ("dashscope", "fastapi", "langchain_core", "ollama", "openai", "uvicorn")
BLOCK = f"""
import runpy, sys
sys.modules |= dict.fromkeys({OPTIONAL})
sys.argv = sys.argv[1:]
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_without_extras_runs_or_names_the_extra_to_install(name: str, tmp_path: Path) -> None:
    # After the installation that the README names, programs that call a model ended in a traceback.
    done = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, "-c", BLOCK, EXAMPLES / name, *ARGUMENTS.get(name, ())],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == bool(required_packages(name))
    assert re.fullmatch(r".+; install it with: pip install .+\n" if required_packages(name) else "", done.stderr)


if __name__ == "__main__":
    for program in PROGRAMS:
        with TemporaryDirectory() as made:
            golden(program).write_text(run(program, *ARGUMENTS.get(program, ()), folder=Path(made)), encoding="utf-8")
