"""Tests of packages that are not installed are skipped, with the package's name, in place of failing."""

import configparser
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lazyprompt import MissingExtraError
from support.paths import ROOT

# Packages whose module has another name.
MODULES = {
    "google-genai": "google",
    "ipykernel": "IPython",
    "opentelemetry-sdk": "opentelemetry",
    "pillow": "PIL",
    "zai-sdk": "zai",
}


def _extras() -> dict[str, str]:
    """Return the extra that installs each optional module; one of the tests if there is one."""
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = metadata["options.extras_require"]
    found = {}
    for extra in (*extras, "ci", "dev"):
        names = {re.split(r"[^\w-]", line)[0] for line in extras[extra].splitlines() if line and line[0] != "#"}
        found.update({MODULES.get(name, name.replace("-", "_")): extra for name in names})
    # Official clients install httpx or httpx2.
    return found | {"httpx": "dev", "httpx2": "dev"}


EXTRAS = _extras()


def needs(*modules: str) -> ModuleType:
    """Skip a test, or a module of tests, that needs a package that is not installed; return the last one."""
    found: list[ModuleType] = [pytest.importorskip(module, reason=_absent(module)) for module in modules]
    return found[-1]


def _absent(module: str) -> str:
    name = module.partition(".")[0]
    return f"{name} is not installed; .ci/run installs the extra {EXTRAS[name]!r}, which has it"


def missing(error: BaseException | None) -> str:
    """Return the optional package for want of which an error was raised; empty if it has another cause."""
    while error is not None:
        if isinstance(error, MissingExtraError):
            return str(error)
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
            return _absent(str(error.name))
        error = error.__cause__
    return ""


class SkippedModule(pytest.Module):
    """A module of tests that is skipped where it imports a package that is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if reason := missing(error):
                pytest.skip(reason, allow_module_level=True)
            raise


@pytest.hookimpl
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return SkippedModule.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    yield from _skipped()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield from _skipped()


def _skipped() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if reason := missing(error):
            pytest.skip(reason)
        raise
