"""The rule that skips tests for missing dependencies hides no fault of the package."""

import os

import pytest

from support.missing import missing_dependency


@pytest.mark.parametrize(
    ("name", "place", "reason"),
    [
        ("mkfifo", __file__, "os.mkfifo is of POSIX systems"),
        ("mkfifo", "lazyprompt/batch/run.py", ""),
        ("mkfiffo", __file__, ""),
    ],
)
def test_absent_posix_name_has_skip_reason(monkeypatch: pytest.MonkeyPatch, name: str, place: str, reason: str) -> None:
    monkeypatch.delattr(os, name, raising=False)
    with pytest.raises(AttributeError) as caught:
        exec(compile(f"os.{name}('pipe')", place, "exec"), {"os": os})  # noqa: S102 - our own
    assert missing_dependency(caught.value) == reason


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("fcntl", "fcntl is of POSIX systems"),
        ("openai.types", "openai is not installed; .ci/run installs the extra 'dev', which has it"),
    ],
)
def test_skip_reason_names_the_absent_module(module: str, reason: str) -> None:
    error = ImportError("cannot be imported")
    error.__cause__ = ModuleNotFoundError(name=module)
    assert missing_dependency(error) == reason


def test_absent_module_of_the_package_is_no_skip_reason() -> None:
    """Tests that import a module of the package under its old name were skipped."""
    assert missing_dependency(ModuleNotFoundError(name="lazyprompt.nothing")) == ""
