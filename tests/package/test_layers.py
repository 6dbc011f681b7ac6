"""The layers of docs/internals/architecture.md: every import leads to a lower layer, and imports form no cycle."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from typing import NamedTuple

import pytest

from support.paths import PACKAGE

PAGE = (PACKAGE.parent / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
ROW = re.compile(r"^\| (\d+) \| `(\w+)/` \| (.+?) \| `([\w/]+\.py)` \|$", re.MULTILINE)
LAYERS = {folder: int(layer) for layer, folder, _, _ in ROW.findall(PAGE)}
DOOR = re.compile(r"^- `([\w/]+\.py)` → `(\w+)/`: ", re.MULTILINE)


class Arrow(NamedTuple):
    """An import of one file of the package by another."""

    source: str
    target: str
    is_deferred: bool
    is_door: bool


def arrows_of(name: str) -> Iterator[Arrow]:
    """All imports of a file: at its top, under TYPE_CHECKING and inside functions."""
    text = FILES[name].read_text(encoding="utf-8")
    lines, tree = text.splitlines(), ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    deferred = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [each if each in FILES else node.module for each in names]
        else:
            continue
        for target in {each for each in names if each in FILES and each != name}:
            yield Arrow(name, target, id(node) in deferred, "# door: " in lines[node.lineno - 1])


@cache
def arrows() -> list[Arrow]:
    """All imports of the package; the public names of lazyprompt/__init__.py are a table for type checkers."""
    return [arrow for name in FILES if name != "lazyprompt" for arrow in arrows_of(name)]


def folder_of(name: str) -> str | None:
    """The folder of a file; None at the root."""
    parts = FILES[name].relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def goes_down(arrow: Arrow) -> bool:
    """Whether an import goes to a lower layer, or stays in its folder."""
    source, target = folder_of(arrow.source), folder_of(arrow.target)
    if source is None or source == target:
        return True
    if target is None:
        return arrow.target in {"lazyprompt.errors", "lazyprompt._version"} or source == "cli"
    return LAYERS[target] < LAYERS[source]


@pytest.mark.slow
def test_imports_lead_to_lower_layers_or_stay_in_their_folder() -> None:
    assert [arrow[:2] for arrow in arrows() if not arrow.is_door and not goes_down(arrow)] == []


def test_imports_form_no_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for arrow in arrows():
        if not arrow.is_door:
            graph.setdefault(arrow.source, set()).add(arrow.target)
    # A cycle raises a graphlib.CycleError that names its files.
    assert [*TopologicalSorter(graph).static_order()]


def test_upward_imports_are_the_documented_doors() -> None:
    doors = [arrow for arrow in arrows() if arrow.is_door]
    assert all(arrow.is_deferred for arrow in doors)
    found = {(FILES[arrow.source].relative_to(PACKAGE).as_posix(), folder_of(arrow.target)) for arrow in doors}
    assert found == {*DOOR.findall(PAGE)}
    assert len(doors) <= 5


@pytest.mark.slow
def test_at_most_50_imports_are_deferred() -> None:
    deferred = {arrow[:2] for arrow in arrows() if arrow.is_deferred and not arrow.is_door}
    assert len(deferred - {arrow[:2] for arrow in arrows() if not arrow.is_deferred}) <= 50


def test_table_of_layers_describes_each_folder_and_names_its_first_file() -> None:
    assert {*LAYERS} == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert max(LAYERS.values()) <= 11
    for _, folder, sentence, first in ROW.findall(PAGE):
        doc = import_module(f"lazyprompt.{folder}").__doc__ or ""
        assert f"{sentence} Read {first.removeprefix(f'{folder}/')} first." == " ".join(doc.split())
        assert (PACKAGE / first).exists()


def test_package_root_has_four_modules() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "_version.py", "errors.py"}


@pytest.mark.parametrize("step", sorted(set(re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE))), ids=":".join)
def test_functions_named_on_the_architecture_page_exist(step: tuple[str, str]) -> None:
    file, function = step
    found: object = import_module("lazyprompt." + file.removesuffix(".py").replace("/", "."))
    for name in function.split("."):
        found = getattr(found, name)
    assert callable(found)


OUTPUTS = (
    "Flat text with markers",
    "Flat text with a model's own chat template",
    "A provider's payload, including OpenAI's",
)


@pytest.mark.parametrize("output", OUTPUTS)
def test_route_to_an_output_visits_at_most_eight_files_once_each(output: str) -> None:
    """The fields of a prompt were computed in five places, and OpenAI's payload was made and then repaired."""
    routes = PAGE[PAGE.index("All routes of") :]
    begins, own = (steps_of(routes[routes.index(title) :]) for title in ("All routes of", f"\n{output}:\n"))
    files = [file for step in (*begins, *own) if (file := first_file(step))]
    assert len(files) == len(set(files)) <= 8


def steps_of(text: str) -> list[str]:
    """The numbered steps after the first line of a text."""
    return re.findall(r"^\d\. (.+)", text.split("\n\n", 2)[1], re.MULTILINE)


def first_file(step: str) -> str:
    """The first file that a step names; the others are alternatives."""
    found = re.search(r"`([\w/]+\.py):", step)
    return found[1] if found else ""
