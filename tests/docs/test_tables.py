"""The tables of the manual are generated from data, and each page is up to date."""

import configparser
import json
import re
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from attacks.attacks import attacks, honest
from lazyprompt import Markers
from support.paths import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def importing() -> Iterator[None]:
    """Let scripts import the modules beside them; undo this afterwards."""
    path, modules = sys.path.copy(), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(DOCS / f"make_{name}.py"))


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("attacks", "internals/attacks.md"),
        ("blocks", "reference/blocks.md"),
        ("commands", "reference/command-line.md"),
        ("families", "reference/families.md"),
        ("speed", "reference/speed.md"),
    ],
)
@pytest.mark.usefixtures("importing")
def test_generated_page_matches_its_data(name: str, page: str) -> None:
    made = script(name)["page"]()
    assert made == (DOCS / page).read_text(encoding="utf-8"), f"run: python docs/make_{name}.py"


def test_install_page_lists_the_requirements_of_each_extra() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg", encoding="utf-8")
    page = (DOCS / "guide" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ?(.*?) \|$", page, re.MULTILINE)
    needs = {
        name: [] if name == "all" else lines.split()
        for name, lines in metadata["options.extras_require"].items()
        if name not in ("ci", "dev", "docs")
    }
    assert {extra: re.findall(r"`([^`]+)`", installs) for extra, installs in rows} == needs
    core = page.partition("## Core dependencies")[2]
    assert sorted(re.findall(r"`([^`]+)`", core)) == metadata["options"]["install_requires"].split()


def test_install_page_lists_the_tested_systems_and_python_versions() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["quick"]["strategy"]["matrix"]
    whole = [
        step["with"]["python-version"] for step in jobs["test"]["steps"] if "python-version" in step.get("with", {})
    ]
    quick = [{"os": system, "python": version} for system in matrix["os"] for version in matrix["python"]]
    names = {"ubuntu-latest": "Linux", "macos-latest": "macOS", "windows-latest": "Windows"}
    tested = {(names[each["os"]], each["python"]) for each in [*quick, *matrix["include"]]}
    page = (DOCS / "guide" / "install.md").read_text(encoding="utf-8").partition("## Platforms")[2]
    rows = re.findall(r"^\| (\w+) \| ([\d., ]+) \| (.*) \|$", page, re.MULTILINE)
    assert {(system, version) for system, versions, _ in rows for version in versions.split(", ")} == tested
    assert [(system, versions) for system, versions, tests in rows if tests.startswith("all")] == [("Linux", *whole)]
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg", encoding="utf-8")
    classified = re.findall(r"Python :: (\d\.\d+)", metadata["metadata"]["classifiers"])
    assert sorted({version for _, version in tested}) == classified


@pytest.mark.usefixtures("importing")
def test_changed_figure_changes_the_speed_table() -> None:
    made = script("speed")
    figures = made["committed"]()
    figures["templates"]["plain"]["median"] = 0.615
    figures["modules"]["added"]["gemini"] = (0.07, 0.08)
    table = made["others_table"](figures)
    assert "median 0.615" in table
    assert "–0.08 | 0.05 |" in table


@pytest.mark.usefixtures("importing")
def test_changed_command_changes_its_table_row() -> None:
    made = script("commands")
    command = made["group"].get_command(made["click"].Context(made["group"]), "convert")
    changed = made["click"].Command("convert", params=command.params, help="Write a | b.\n\nMore.")
    assert made["row"]("lazyprompt convert", changed) == "| `convert FILE` | Write a \\| b. |\n"


def test_attacks_page_states_the_current_numbers() -> None:
    text = " ".join((DOCS / "internals" / "attacks.md").read_text(encoding="utf-8").split())
    assert f"`tests/attacks/corpus.json` contains {len(attacks()):,} attack texts" in text
    assert f"`honest.json` contains {len(honest())} ordinary texts" in text
    assert f"all {len(Markers.families())} model families" in text


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_readme_is_short_and_states_the_current_numbers(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 120
    assert f"{len(attacks()):,}" in text
    assert re.search(rf"\b{len(Markers.families())} ", text)
    figures = json.loads((ROOT / "benchmarks" / "figures.json").read_text(encoding="utf-8"))["rows"]
    shown = re.findall(r"^\| .+ \| ([\d.]+) \| .+ \|$", text, re.MULTILINE)
    measured = [figures[row]["median"] for row in ("slots", "chatml", "anthropic", "jsonl")]
    assert [float(each) for each in shown] == [pytest.approx(each, rel=0.15) for each in measured]


def test_benchmark_attacks_succeed_only_with_safety_off() -> None:
    figures = json.loads((ROOT / "benchmarks" / "figures.json").read_text(encoding="utf-8"))["attacks"]
    ours = next(each for each in figures["libraries"] if each["library"] == "lazyprompt")
    forging = [entry for entry, (_, forged, *_) in ours["entries"].items() if forged]
    assert len(ours["entries"]) > 5
    assert [entry for entry in forging if 'safety="off"' not in entry] == []
