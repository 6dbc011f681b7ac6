"""The command ``lazyprompt doctor``, on installed packages that the tests make: whole ones and broken ones."""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken

import lazyprompt
from lazyprompt.cli import doctor
from lazyprompt.modules.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.helpers import Ran

    Run = Callable[..., Ran]

VARIABLES = sorted({name for source in SOURCES.values() for name in source.keys})
SECRET = "sk-a-secret-of-a-test"  # noqa: S105 - no key
# What the installed lazyprompt says of itself, in these tests.
METADATA = """\
Metadata-Version: 2.4
Name: lazyprompt
Version: 9.9
Requires-Dist: click>=8.1
Provides-Extra: one
Requires-Dist: one-client[fast]>=2.0; extra == "one"
Provides-Extra: two
Requires-Dist: two_parts>=1; extra == "two"
Requires-Dist: one-client>=2.0; extra == "two"
Provides-Extra: all
Requires-Dist: lazyprompt[one,two]; extra == "all"
"""


class Site:
    """A folder of installed packages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.distribution("lazyprompt", METADATA, "")

    def distribution(self, name: str, metadata: str, record: str) -> None:
        folder = self.path / f"{name.replace('-', '_')}-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(metadata, encoding="utf-8")
        (folder / "RECORD").write_text(record, encoding="utf-8")

    def package(self, name: str, version: str, code: str | None = "", module: str | None = None) -> None:
        """A package; without code its files are gone."""
        module = module or name.replace("-", "_")
        place = f"{module.replace('.', '/')}/__init__.py"
        self.distribution(name, f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", f"{place},,\n")
        if code is not None:
            (self.path / place).parent.mkdir(parents=True)
            (self.path / place).write_text(code, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path / "site")
    root = str(Path(lazyprompt.__file__).parents[1])
    monkeypatch.syspath_prepend(str(made.path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(made.path), root]))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "vocabularies"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return made


def states(ran: Ran) -> dict[str, str]:
    told: dict[str, Any] = json.loads(ran.out)
    return {name: extra["state"] for name, extra in told["extras"].items()}


def faults(ran: Ran) -> list[str]:
    assert ran.err == ""
    found: list[str] = json.loads(ran.out)["faults"]
    assert ran.status == (1 if found else 0)
    return found


def test_what_is_not_installed_is_no_fault(run: Run, site: Site) -> None:
    site.package("two_parts", "1.4")
    ran = run("doctor")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.decode().splitlines()
    assert lines[0] == f"lazyprompt  {lazyprompt.__version__}"
    at = next(at for at, line in enumerate(lines) if line.startswith("EXTRA"))
    assert [line.split(maxsplit=1) for line in lines[at + 1 : at + 5]] == [
        ["(core)", f"ready          click {version('click')}"],
        ["one", "not installed  one-client[fast]>=2.0 is not installed"],
        ["two", "in part        two_parts 1.4, one-client>=2.0 is not installed"],
        [
            "all",
            "in part        one-client[fast]>=2.0 is not installed, two_parts 1.4, one-client>=2.0 is not installed",
        ],
    ]
    assert lines[-1] == "Nothing is wrong."


def test_whole_packages_are_imported_in_processes_of_their_own(run: Run, site: Site) -> None:
    site.package("one-client", "2.1", "print('hello')", module="google.one_client")
    site.package("two_parts", "1.4", "import atexit, os; atexit.register(os.abort)")
    ran = run("doctor", "--import", "--json")
    assert faults(ran) == []
    assert states(ran) == {"(core)": "ready", "one": "ready", "two": "ready", "all": "ready"}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('no libfoo:\\nlook\\x1b[31m elsewhere')", "ImportError: no libfoo: look\x1b[31m elsewhere"),
        ("import there_is_none", "ModuleNotFoundError: No module named 'there_is_none'"),
        ("import sys; sys.exit('not today')", "SystemExit: not today"),
    ],
)
def test_a_package_that_cannot_be_imported_is_told_in_one_line(run: Run, site: Site, code: str, said: str) -> None:
    site.package("one-client", "2.1", code)
    assert faults(run("doctor", "--json")) == []
    assert faults(run("doctor", "--import", "--json")) == [f"one-client[fast]: it cannot be imported: {said}"]
    shown = run("doctor", "--import").out
    assert shown.splitlines()[-1].startswith(b"wrong: one-client[fast]: it cannot be imported: ")
    assert b"\x1b" not in shown


def test_a_package_that_ends_the_process_ends_not_ours(run: Run, site: Site) -> None:
    site.package("one-client", "2.1", "import os; os.abort()")
    assert faults(run("doctor", "--import", "--json")) == ["one-client[fast]: its import ended the process (SIGABRT)"]


def test_a_version_out_of_bounds(run: Run, site: Site) -> None:
    site.package("one-client", "1.9")
    site.package("two_parts", "0.9")
    ran = run("doctor", "--json")
    assert faults(ran) == [
        "one-client[fast]: 1.9 is installed, and it must be >=2.0",
        "two_parts: 0.9 is installed, and it must be >=1",
        "one-client: 1.9 is installed, and it must be >=2.0",
    ]
    assert set(states(ran).values()) == {"ready", "broken"}


def test_a_version_out_of_bounds_is_no_fault_where_the_extra_was_not_asked_for(run: Run, site: Site) -> None:
    site.package("two_parts", "0.9")
    ran = run("doctor", "--json")
    assert faults(ran) == []
    assert states(ran)["two"] == "in part"


def test_a_version_out_of_bounds_is_no_fault_where_another_package_brought_it(run: Run, site: Site) -> None:
    """The extra hf brings a huggingface_hub that is too new for tgi: a good installation was called broken."""
    site.package("one-client", "1.9")
    wants = 'Metadata-Version: 2.1\nName: other\nVersion: 1\nRequires-Dist: One_Client[fast] (>1,<2); os_name != ""\n'
    site.distribution("other", wants, "")
    ran = run("doctor", "--json")
    assert faults(ran) == []
    assert states(ran)["one"] == "in part"
    assert b"one-client[fast] 1.9 is not >=2.0\n" in run("doctor").out


@pytest.mark.parametrize(
    ("installed", "suits"),
    [
        ("2", True),
        ("2.0.0", True),
        ("10.1", True),
        ("2.0.post1", True),
        ("2.0+cpu", True),
        ("2026.10.1", True),
        ("1.99.9", False),
        ("2.0rc1.dev3", False),
        ("2.0.dev3", False),
        ("2.1rc1", True),
        ("latest", False),
    ],
)
def test_odd_versions(run: Run, site: Site, installed: str, *, suits: bool) -> None:
    site.package("one-client", installed)
    assert len(faults(run("doctor", "--json"))) == (0 if suits else 1)


def test_files_that_are_gone(run: Run, site: Site) -> None:
    site.package("one-client", "2.1", code=None)
    assert faults(run("doctor", "--json")) == ["one-client[fast]: its module one_client is not there; install it again"]


def test_a_package_of_the_core_that_is_missing(run: Run, site: Site) -> None:
    (site.path / "lazyprompt-1.dist-info" / "METADATA").write_text(METADATA.replace("click", "clack"), encoding="utf-8")
    ran = run("doctor", "--json")
    assert faults(ran) == ["clack>=8.1 is needed, and is not installed"]
    assert states(ran)["(core)"] == "broken"


@pytest.mark.usefixtures("site")
def test_without_metadata(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "distribution", fails)
    (fault,) = faults(run("doctor", "--json"))
    assert fault.startswith("lazyprompt is not installed, only found as files: extras are not known")


@pytest.mark.parametrize("options", [(), ("--json",), ("--import",), ("--import", "--json")])
def test_keys_are_never_shown(run: Run, site: Site, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    # Whoever puts the whole environment into an error cannot show them either.
    site.package("one-client", "2.1", "import os\nraise ImportError(str(sorted(os.environ.values())))")
    shown: list[str] = []
    for key in (SECRET, SECRET * 7):
        for name in VARIABLES:
            monkeypatch.setenv(name, key)
        shown.append(run("doctor", *options).out.decode())
    assert SECRET not in shown[0]
    assert all(name in shown[0] for name in VARIABLES)
    assert shown[0] == shown[1]


@pytest.mark.usefixtures("site")
def test_each_source_says_whether_it_has_its_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", " ")
    told = {
        each["source"]: (each["state"], each["variables"]) for each in json.loads(run("doctor", "--json").out)["keys"]
    }
    assert list(told) == list(SOURCES)
    assert told["gemini"] == ("set", ["GOOGLE_API_KEY"])
    assert told["openai"] == ("empty", ["OPENAI_API_KEY"])
    assert told["anthropic"] == ("not set", ["ANTHROPIC_API_KEY"])
    assert told["ollama"][0] == told["litellm"][0] == "not needed"
    assert b"gemini                set         GOOGLE_API_KEY\n" in run("doctor").out


@pytest.mark.usefixtures("site")
def test_vocabularies_that_are_missing_or_damaged(run: Run, tmp_path: Path) -> None:
    ran = run("doctor", "--json")
    told: dict[str, Any] = json.loads(ran.out)["vocabularies"]
    assert told["encodings"] == dict.fromkeys(tiktoken.list_encoding_names(), "missing")
    assert told["folder"] == f"{tmp_path / 'vocabularies'} (TIKTOKEN_CACHE_DIR)"
    (tmp_path / "vocabularies").mkdir()
    # The name that tiktoken's cache gives cl100k_base.
    (tmp_path / "vocabularies" / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(b"half a dow")
    (fault,) = faults(run("doctor", "--json"))
    assert fault.startswith("cl100k_base: ")
    assert fault.endswith("download it with `lazyprompt tokens --download cl100k_base`")


@pytest.mark.usefixtures("site")
def test_a_cache_that_is_turned_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert (
        b"They are looked for in no folder: TIKTOKEN_CACHE_DIR is empty, which turns tiktoken's cache off\n"
        b"To have one: lazyprompt tokens --download o200k_base\n"
    ) in run("doctor").out
