"""The threat model names a test for each promise, and all tests that it names exist."""

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

from support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "security.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+(?:::\w+)?)`")


def promises(text: str) -> list[str]:
    """The rows of the tables of promises, without headings."""
    section = re.search(r"^## What is promised\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\|.*\|$", section[1], re.MULTILINE) if section else []
    return [row for row in rows if row not in ("| promise | test |", "|---|---|")]


@lru_cache
def names_in(path: str) -> frozenset[str]:
    """The tests of a module; those in classes with the name of the class before them."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def test_each_promise_of_the_threat_model_names_a_test() -> None:
    rows = promises(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 50
    assert [row for row in rows if not NAMED.search(row.split("|")[2])] == []


@pytest.mark.parametrize("row", promises(PAGE.read_text(encoding="utf-8")), ids=lambda row: row[2:60])
def test_tests_named_in_the_threat_model_exist(row: str) -> None:
    for path, name in NAMED.findall(row):
        assert (ROOT / path).is_file(), path
        assert name in names_in(path), f"{path} has no {name}"


def test_promises_of_the_threat_model_are_unique() -> None:
    texts = [row.split("|")[1].strip() for row in promises(PAGE.read_text(encoding="utf-8"))]
    assert len(set(texts)) == len(texts)


def test_each_security_test_module_describes_a_naive_version() -> None:
    """Each module has a docstring, and at least one of its tests describes what a naive version does."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = [ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert ast.get_docstring(tree), path.name
        assert any("naive" in text for text in docs), path.name


def test_security_policy_explains_how_to_report_a_vulnerability() -> None:
    text = (ROOT / ".github" / "SECURITY.md").read_text(encoding="utf-8")
    assert "private vulnerability reporting" in text
    assert "@" not in text
    assert "docs/reference/security.md" in text
