"""The pytest plugin, which collects ``*.test.yaml`` files.

pytest imports it at every start, before coverage begins. The rest of the package is imported only for test files.
"""

# pytest does not know all of its own types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lazyprompt.testing.running import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting ``lazyprompt_roots``, which corresponds to the option ``--root``."""
    parser.addini(
        "lazyprompt_roots", "more directories that test files of prompts may read from, besides their own", "paths"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of cases; files of other tools, which have no prompt, are skipped."""
    if not file_path.name.endswith((".test.yaml", ".test.yml")):
        return None
    from lazyprompt.testing.cases import is_case_file

    return PromptCases.from_parent(parent, path=file_path) if is_case_file(file_path) else None


class PromptCases(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each case."""
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
    """A case."""

    def __init__(self, *, result: Result, **more: Any) -> None:
        super().__init__(**more)
        self.result = result

    def runtest(self) -> None:
        """Fail if a check of the case fails."""
        if self.result.failures:
            raise PromptCaseError(self.result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: None = None) -> str:  # type: ignore[override]  # a text is a representation
        """Return the failed checks, without a traceback."""
        if not isinstance(excinfo.value, PromptCaseError):
            return str(super().repr_failure(excinfo, style))
        from lazyprompt.testing.report import failure_lines

        return "\n".join(map("".join, failure_lines(excinfo.value.result)))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the case."""
        case = self.result.case
        return self.path, case.line - 1, f"{self.path.name}: {case.name}"


class PromptCaseError(AssertionError):
    """The failure of a case.

    Args:
        result: The result of the case.
    """

    def __init__(self, result: Result) -> None:
        super().__init__("; ".join(each.message for each in result.failures))
        self.result = result
