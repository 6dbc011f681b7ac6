import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lazyprompt
from lazyprompt import errors
from lazyprompt.errors import LazyPromptError, SlotError, did_you_mean, install_command, requirement_of

BUILT_IN = {
    "SlotError": KeyError,
    "HistoryError": ValueError,
    "ToolsError": ValueError,
    "FormatError": ValueError,
    "MediaError": ValueError,
    "BudgetError": ValueError,
    "BatchError": ValueError,
    "TemplateError": ValueError,
    "PromptFileError": ValueError,
    "SafetyError": ValueError,
    "TokenizerError": LookupError,
    "ModuleError": RuntimeError,
    "EngineError": RuntimeError,
    "MissingExtraError": ImportError,
}


@pytest.mark.parametrize(("name", "built_in"), BUILT_IN.items())
def test_each_error_is_a_lazyprompt_error_and_a_built_in_error(name: str, built_in: type[Exception]) -> None:
    kind = getattr(errors, name)
    with pytest.raises(built_in, match="what was given"):
        raise kind("what was given")
    assert issubclass(kind, LazyPromptError)
    assert getattr(lazyprompt, name) is kind


def test_error_classes_are_complete_and_shown_in_the_module_docstring() -> None:
    assert {kind.__name__ for kind in LazyPromptError.__subclasses__()} == BUILT_IN.keys() - {"EngineError"}
    assert issubclass(errors.EngineError, errors.ModuleError)
    for name, built_in in BUILT_IN.items():
        assert f"{name} ({built_in.__name__})" in (errors.__doc__ or "")


def test_slot_error_prints_its_message_and_not_a_repr() -> None:
    assert str(KeyError("no 'x'")) != "no 'x'"
    assert str(SlotError("no 'x'")) == "no 'x'"
    assert str(SlotError()) == ""
    assert str(SlotError("no", 3)) == "no 3"


@pytest.mark.parametrize("name", ["LazyPromptError", *BUILT_IN])
def test_errors_can_be_pickled_and_copied(name: str) -> None:
    error = getattr(errors, name)("what was given")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(twin) is type(error)
        assert str(twin) == "what was given"


def test_module_error_keeps_its_attributes_when_pickled() -> None:
    error = errors.EngineError("gone", kind="empty", status=500, partial="a")
    for twin in (error, pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own bytes
        assert (str(twin), twin.kind, twin.status, twin.partial) == ("gone", "empty", 500, "a")
    bare = errors.ModuleError("gone")
    assert (bare.kind, bare.status, bare.partial, errors.BatchError("x").setting) == ("", None, None, "")


def test_nearest_known_name_is_suggested() -> None:
    assert did_you_mean("contxt", ["query", "context"]) == " (did you mean 'context'?)"
    assert did_you_mean("contxt", iter(["context"])) == " (did you mean 'context'?)"


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("ip", "id"),
        ("di", "id"),
        ("ID", "id"),
        ("ctx", "context"),
        ("城是", "城市"),
        ("问提", "问题"),
        ("用户", "用户名"),
        ("ｑａ", "qa"),
    ],
)
def test_similar_short_and_chinese_names_are_suggested(given: str, known: str) -> None:
    # One wrong character of two leaves a similarity of a half, which was too little for a suggestion.
    assert did_you_mean(given, ["input", known, "zebra"]) == f" (did you mean {known!r}?)"


@pytest.mark.parametrize(
    ("given", "known"),
    [("context", []), ("context", ["zebra"]), ("de", ["en"]), ("x", ["y"]), (3, ["3"]), (None, ["None"])],
)
def test_no_name_is_suggested_without_a_similar_one(given: object, known: list[str]) -> None:
    assert did_you_mean(given, known) == ""


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({}, '"lazyprompt[openai]"'),
        ({"url": "{root}", "dir_info": {}}, '"{path}[openai]"'),
        ({"url": "{root}/gone", "dir_info": {}}, '"lazyprompt[openai]"'),
        ({"url": "{root}/x.whl", "archive_info": {}}, '"lazyprompt[openai] @ {root}/x.whl"'),
        (
            {"url": "https://git.example/lazyprompt", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            '"lazyprompt[openai] @ git+https://git.example/lazyprompt"',
        ),
    ],
)
def test_extra_is_installed_from_the_package_source(origin: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """From a checkout, the hint once installed a package of the same name from the index."""
    root = tmp_path.as_uri()
    given = {name: value.format(root=root) if name == "url" else value for name, value in origin.items()}
    assert requirement_of("openai", tmp_path / "site-packages", given) == expected.format(root=root, path=tmp_path)


def test_extra_of_a_checkout_is_installed_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert requirement_of("openai", tmp_path, {}) == f'-e "{tmp_path}[openai]"'
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lazyprompt/errors.py"))
    assert install_command("openai") == 'pip install -e ".[openai]"'
    assert requirement_of("openai", tmp_path / "lib", {"url": tmp_path.as_uri(), "dir_info": {}}) == '".[openai]"'


@pytest.mark.parametrize(
    ("origin", "source"), [(None, ""), ("no JSON", ""), ('{"url": "https://a/x.whl"}', " @ https://a/x.whl")]
)
def test_install_command_uses_the_source_that_pip_recorded(
    origin: str | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lazyprompt/errors.py"))
    pip = SimpleNamespace(read_text={"direct_url.json": origin}.__getitem__)
    monkeypatch.setattr("importlib.metadata.distribution", {"lazyprompt": pip}.__getitem__)
    assert install_command("openai") == f'pip install "lazyprompt[openai]{source}"'
