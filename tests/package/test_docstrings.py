"""The first line of each docstring: an imperative or a noun phrase, no question, and short."""

import ast
import re

import pytest

from support.paths import PACKAGE

# "As" and "Whether" begin riddles: "Whether it has one" is "Return True if it has one".
QUESTION = re.compile(
    r"(?:What|Whatever|Whether|Which|Who|Whom|Whose|How|Where|When|Why|The same|So many|So much|As)\b"
)
MAX_WORDS = 25


def first_lines() -> list[tuple[str, str]]:
    """The first line of each docstring, with its place."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                doc = ast.get_docstring(node)
                if doc:
                    name = path.relative_to(PACKAGE).as_posix()
                    found.append((f"{name}:{getattr(node, 'lineno', 1)}", doc.splitlines()[0]))
    return found


@pytest.mark.slow
def test_docstrings_begin_with_a_short_plain_line() -> None:
    lines = first_lines()
    assert len(lines) > 1000
    assert [each for each in lines if QUESTION.match(each[1])] == []
    assert [each for each in lines if not re.match(r"[A-Z`*\"'\d]", each[1])] == []
    assert [each for each in lines if len(each[1].split()) > MAX_WORDS] == []
