"""A pytest plugin that collects ``*.test.yaml`` files.

pytest imports this module at every start, before coverage measurement begins. To include the rest of lazyprompt in
coverage measurement, this module imports it only when a test file is collected.
"""

# pytest's type annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lazyprompt.testing.running import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ``lazyprompt_roots`` setting, which is equivalent to the ``--root`` option."""
    parser.addini("lazyprompt_roots", "additional directories that prompt test files may read from", "paths")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a test file; skip files of other tools that use the same suffix."""
    if not file_path.name.endswith((".test.yaml", ".test.yml")):
        return None
    from lazyprompt.testing.cases import is_case_file

    return PromptCases.from_parent(parent, path=file_path) if is_case_file(file_path) else None


class PromptCases(pytest.File):
    """A test file that pytest has collected."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a pytest item for each test case."""
        from lazyprompt.errors import LazyPromptError
        from lazyprompt.testing.cases import CaseFile
        from lazyprompt.testing.running import Runner

        roots = [*map(str, self.config.getini("lazyprompt_roots"))]
        try:
            for result in Runner(roots=roots).run([CaseFile.read(self.path, roots)]):
                yield PromptCase.from_parent(self, name=result.case.name, result=result)
        except LazyPromptError as error:
            raise self.CollectError(str(error)) from error


class PromptCase(pytest.Item):
    """A pytest item for one test case."""

    def __init__(self, *, result: Result, **more: Any) -> None:
        super().__init__(**more)
        self.result = result

    def runtest(self) -> None:
        """Raise an error if any check of this test case has failed."""
        if self.result.failures:
            raise PromptCaseError(self.result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: None = None) -> str:  # type: ignore[override]  # a string is a valid representation
        """Return a description of the failed checks without a traceback."""
        if not isinstance(excinfo.value, PromptCaseError):
            return str(super().repr_failure(excinfo, style))
        from lazyprompt.testing.report import failure_lines

        return "\n".join(map("".join, failure_lines(excinfo.value.result)))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the test case."""
        case = self.result.case
        return self.path, case.line - 1, f"{self.path.name}: {case.name}"


class PromptCaseError(AssertionError):
    """An error for a failed test case.

    Args:
        result: The result of the test case.
    """

    def __init__(self, result: Result) -> None:
        super().__init__("; ".join(each.message for each in result.failures))
        self.result = result
