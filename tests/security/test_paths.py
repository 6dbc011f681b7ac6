"""Paths never lead out of the allowed directories, nor to pipes and devices.

Related tests: tests/files/test_references.py, test_includes.py and library/test_library.py,
tests/media/test_media_files.py.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from lazyprompt import MediaResolver, PromptLibrary, Prompty, URLSource
from lazyprompt._base import files
from lazyprompt.errors import LazyPromptError, PromptFileError
from lazyprompt.files.check.check import check
from lazyprompt.files.references import References
from lazyprompt.testing.cases import CaseFile
from security.test_case_files import run_in_process
from support.windows import resolving_as_windows

HIDDEN = "the secret"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


def naive(base: Path, name: str) -> str:
    """Read a file by joining its name to a directory."""
    return (base / name).read_text()


def load_reference(base: Path, name: str) -> str:
    return str(Prompty.loads(f"---\nmetadata: {{a: '${{file:{name}}}'}}\n---\n", base).metadata["a"])


def load_include(base: Path, name: str) -> str:
    return Prompty.loads(f'{{% include "{name}" %}}', base).render()


def load_partial(base: Path, name: str) -> str:
    return Prompty.loads(f"---\ntemplate: {{format: mustache}}\n---\n{{{{> {name} }}}}", base).render()


def load_from_library(base: Path, name: str) -> str:
    (base / "a.prompty").write_text(f'{{% include "{name}" %}}')
    return PromptLibrary(base).get("a").render()


def load_medium(base: Path, name: str) -> str:
    return MediaResolver(roots=[base]).load(URLSource(str(base / name)), "messages[0].content[0]").data


# The ways to read a file, each with the position that its errors begin with.
WAYS: dict[Callable[[Path, str], str], str] = {
    load_reference: "<string>:2:",
    load_include: "<string>:1:1: ",
    load_partial: "<string>:4:1: ",
    load_from_library: "",
    load_medium: "messages[0].content[0]: ",
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory with links that lead out of it, each in its own way."""
    made = tmp_path / "base"
    (made / "in" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "deep").mkdir(parents=True)
    for path in (tmp_path / "secret.txt", tmp_path / "out" / "deep" / "secret.txt"):
        path.write_text(HIDDEN)
    (made / "in" / "deep" / "a.txt").write_text("fine")
    (made / "link.txt").symlink_to(tmp_path / "secret.txt")
    (made / "relative.txt").symlink_to("../secret.txt")
    (made / "door").symlink_to(tmp_path / "out")
    (made / "in" / "door").symlink_to("../../out/deep")
    (made / "one.txt").symlink_to("two.txt")
    (made / "two.txt").symlink_to("in/door/secret.txt")
    return made


NAMES = [
    "../secret.txt",
    "in/../../secret.txt",
    "in/deep/../../../out/deep/secret.txt",
    "{tmp}/secret.txt",
    "//{tmp}/secret.txt",
    "link.txt",
    "relative.txt",
    "door/deep/secret.txt",
    "in/door/secret.txt",
    "one.txt",
    "door/../secret.txt",
]


@EVERY_WAY
@pytest.mark.parametrize("name", NAMES)
def test_path_that_leads_out_of_the_root_is_refused(base: Path, way: Callable[[Path, str], str], name: str) -> None:
    """The naive version, which joins the path and reads it, gives the secret for each of these names."""
    name = name.format(tmp=base.parent)
    assert naive(base, name) == HIDDEN
    with pytest.raises(LazyPromptError) as caught:
        way(base, name)
    assert HIDDEN not in str(caught.value)
    assert str(caught.value).startswith(WAYS[way] or str(base))


@EVERY_WAY
def test_file_within_the_root_is_read(base: Path, way: Callable[[Path, str], str]) -> None:
    assert way(base, "in/deep/a.txt") in {"fine", "ZmluZQ=="}


def check_then_read(base: Path, name: str, between: Callable[[], None]) -> str:
    """The naive version checks where the path leads, and then opens it by its name."""
    path = base / name
    if not path.resolve().is_relative_to(base.resolve()):
        raise ValueError(name)
    between()
    return path.read_text()


@pytest.mark.parametrize("way", [load_reference, load_include, load_medium], ids=lambda way: way.__name__)
@pytest.mark.parametrize("swapped", ["in", "in/deep", "in/deep/secret.txt"])
@pytest.mark.parametrize("in_steps", [True, False])
def test_link_planted_between_path_check_and_read_is_not_followed(
    base: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path, str], str], swapped: str, *, in_steps: bool
) -> None:
    """The naive version, which checks the path and then opens it by its name, returns the secret. So did ``${file:}``.

    On systems that cannot open paths step by step, such as Windows, media could not be read at all.
    """
    if not in_steps:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    inner = base / "in" / "deep" / "secret.txt"
    inner.write_text("fine")

    def swap() -> None:
        (base / swapped).rename(base / "gone")
        (base / swapped).symlink_to(base.parent / "out" / Path(swapped).relative_to("in"))

    def back() -> None:
        (base / swapped).unlink()
        (base / "gone").rename(base / swapped)

    assert check_then_read(base, "in/deep/secret.txt", swap) == HIDDEN
    back()
    opened = files.open_nofollow

    def late(root: str, path: str) -> int:
        swap()
        return opened(root, path)

    monkeypatch.setattr(files, "open_nofollow", late)
    with pytest.raises(LazyPromptError, match="cannot be read") as caught:
        way(base, "in/deep/secret.txt")
    assert str(caught.value).startswith(WAYS[way])
    back()
    monkeypatch.setattr(files, "open_nofollow", opened)
    assert way(base, "in/deep/secret.txt") in {"fine", "ZmluZQ=="}


def prompt_of_a_library(base: Path) -> str:
    return PromptLibrary(base).get("in/deep/found").render()


def yaml_of_a_library(base: Path) -> str:
    return PromptLibrary(base).prompter("in/deep/found.x").generate_prompt()


def rows_of_a_test_file(base: Path) -> str:
    (base / "own.prompty").write_text("user:\nfine\n")
    (base / "a.test.yaml").write_text("file: own.prompty\nrows: in/deep/found.jsonl\n")
    return str([*CaseFile.read(base / "a.test.yaml").cases()])


def checked_in_a_directory(base: Path) -> str:
    first, *others = check(base / "in" / "deep" / "found.prompty", found_in=base)
    if first.code == "LP001":
        raise PromptFileError(first.message)
    return str([first, *others])


@pytest.mark.parametrize(
    "way",
    [prompt_of_a_library, yaml_of_a_library, rows_of_a_test_file, checked_in_a_directory],
    ids=lambda way: way.__name__,
)
@pytest.mark.parametrize("swapped", ["in/deep", "in/deep/{}"])
def test_link_planted_between_listing_and_read_is_not_followed(
    base: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path], str], swapped: str
) -> None:
    """Files of a library and rows of test files were checked, and then opened by their names."""
    texts = {
        "found.prompty": "user:\n{}\n\nassistant:\n",
        "found.x.yaml": "instruction: {}\n",
        "found.jsonl": '{{"a": "{}"}}\n',
    }
    for name, text in texts.items():
        (base / "in" / "deep" / name).write_text(text.format("fine"))
        (base.parent / "out" / "deep" / name).write_text(text.format(HIDDEN))
    assert "fine" in way(base) or way is checked_in_a_directory
    look = References.path_of

    def looked(references: References, given: str, start: Path | None = None) -> Path:
        found = look(references, given, start)
        if found.name in texts and not (base / "gone").exists():
            place = swapped.format(found.name)
            (base / place).rename(base / "gone")
            (base / place).symlink_to(base.parent / "out" / Path(place).relative_to("in"))
        return found

    monkeypatch.setattr(References, "path_of", looked)
    with pytest.raises(LazyPromptError, match="cannot be read") as caught:
        way(base)
    assert (base / "gone").exists()
    assert HIDDEN not in str(caught.value)


def test_check_command_reads_no_files_outside_its_directory(base: Path) -> None:
    """A link in a directory was followed, and an error quoted the first lines of its target."""
    (base / "in" / "spy.prompty").symlink_to(base.parent / "secret.prompty")
    (base / "in" / "spy.yaml").symlink_to(base.parent / "secret.yaml")
    (base / "in" / "own.prompty").symlink_to("../fine.prompty")
    (base / "fine.prompty").write_text("user:\nfine\n")
    (base.parent / "secret.prompty").write_text(f"user:\n{{{{ {HIDDEN} }}}}\n")
    (base.parent / "secret.yaml").write_text(f"type: chat\ninstruction: [{HIDDEN}]\n")
    ran = run_in_process("check", str(base))
    assert ran.status == 1
    assert f"{base}/in/spy.prompty:1:1: LP001 'spy.prompty' is outside allowed roots" in ran.out
    assert "in 3 files" in ran.out
    assert HIDDEN not in ran.out + ran.err
    ran = run_in_process("check", str(base), "--root", str(base.parent))
    assert ran.out.count(HIDDEN) == 2
    assert HIDDEN in run_in_process("check", str(base / "in" / "spy.prompty")).out


@EVERY_WAY
def test_unc_path_makes_windows_connect_to_no_other_machine(
    base: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path, str], str]
) -> None:
    """Resolving such a path logs in to the other machine: the naive version sends a hash of the user's password."""
    resolved = resolving_as_windows(monkeypatch)
    with pytest.raises(LazyPromptError, match=r"is outside|lies outside|is not in|there is no|not found"):
        way(base, "//evil/share/a.txt")
    assert str(base) in resolved
    assert not [path for path in resolved if "evil" in path]


@EVERY_WAY
def test_named_pipe_is_refused_without_waiting_for_a_writer(base: Path, way: Callable[[Path, str], str]) -> None:
    """The naive version waits until another process writes into the pipe. So did ``${file:}``."""
    os.mkfifo(base / "pipe.txt")
    reading = Thread(target=naive, args=(base, "pipe.txt"), daemon=True)
    reading.start()
    reading.join(0.05)
    assert reading.is_alive()
    (base / "pipe.txt").write_text("")
    reading.join(5)
    assert not reading.is_alive()
    with pytest.raises(LazyPromptError, match="not a regular file|not found"):
        way(base, "pipe.txt")
    # A library does not list it.
    os.mkfifo(base / "pipe.prompty")
    assert "pipe" not in PromptLibrary(base).keys()  # noqa: SIM118 - no dict
    with pytest.raises(PromptFileError, match="no prompt 'pipe'"):
        PromptLibrary(base).get("pipe")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_endless_device_is_refused(device: str) -> None:
    """The naive version ``Path(device).read_text()`` fills the memory; here it goes on after 6 MB."""
    with Path(device).open("rb") as file:
        assert len(file.read(6_000_000)) == 6_000_000
    with pytest.raises(PromptFileError, match="1:1: the file cannot be read: the path is a device, not a regular file"):
        Prompty.load(device)
    front = f"---\nmetadata: {{a: '${{file:{device}}}'}}\n---\n"
    with pytest.raises(PromptFileError, match="the path is a device, not a regular file"):
        Prompty.loads(front, "/", allowed_roots=["/dev"])


@LINUX
@EVERY_WAY
@pytest.mark.parametrize(
    "name", ["/proc/self/environ", "own/environ", "/proc/self/root{tmp}/secret.txt", "own/cmdline"]
)
def test_files_below_proc_self_are_refused(base: Path, way: Callable[[Path, str], str], name: str) -> None:
    """The naive version reads the environment of the process, with its keys, and any file below ``root``."""
    (base / "own").symlink_to("/proc/self")
    assert naive(base, name.format(tmp=base.parent))
    with pytest.raises(LazyPromptError):
        way(base, name.format(tmp=base.parent))


@EVERY_WAY
def test_path_with_a_nul_character_is_refused(base: Path, way: Callable[[Path, str], str]) -> None:
    """The naive version raises a ValueError, which callers do not expect; a program in C would read ``a.txt``."""
    with pytest.raises(ValueError, match="null byte"):
        naive(base, "in/deep/a.txt\0.md")
    with pytest.raises(LazyPromptError):
        way(base, "in/deep/a.txt\0.md")
    with pytest.raises(PromptFileError, match=r"<string>:2:15: .* is not a valid path"):
        Prompty.loads('---\nmetadata: {a: "${file:in/deep/a.txt\\0.md}"}\n---\n', base)


@pytest.mark.parametrize(
    "key", ["../secret", "{tmp}/secret", "in/../../secret", "in\\..\\..\\secret", "~/secret", "secret\0"]
)
def test_library_key_that_looks_like_a_path_is_refused(base: Path, key: str) -> None:
    """The naive version uses the key as a path: ``../secret`` leads out."""
    (base.parent / "secret.prompty").write_text(HIDDEN)
    assert naive(base, "../secret.prompty") == HIDDEN
    with pytest.raises(PromptFileError, match="no prompt"):
        PromptLibrary(base).get(key.format(tmp=base.parent))


def follow(base: Path, name: str) -> list[object]:
    """The naive version of references in files: each is read when it is met."""
    text = naive(base, name)
    return [follow(base, text.partition("${file:")[2].rstrip("}"))] if "${file:" in text else []


@pytest.mark.parametrize("text", ["${{file:{}.yaml}}", "a: ${{file:{}.yaml}}", "- - - - ${{file:{}.yaml}}"])
def test_chain_of_1000_file_references_is_refused(base: Path, text: str) -> None:
    """The naive version ends with a RecursionError. So did ours with about 200 files."""
    for number in range(1000):
        (base / f"{number}.yaml").write_text(text.format(number + 1))
    (base / "1000.yaml").write_text("1")
    with pytest.raises(RecursionError):
        follow(base, "0.yaml")
    with pytest.raises(PromptFileError, match=r"\.yaml:1:\d+: nested deeper than 100 levels"):
        load_reference(base, "0.yaml")


def test_nesting_limit_applies_to_values_of_files_read_before(base: Path) -> None:
    """Values of files read before were not checked again, so that files of 90 levels each could be nested."""
    for number in range(20):
        below = f"'${{file:{number - 1}.yaml}}'" if number else "1"
        (base / f"{number}.yaml").write_text("[" * 90 + below + "]" * 90)
    every = ", ".join(f"'${{file:{number}.yaml}}'" for number in range(20))
    with pytest.raises(PromptFileError, match="nested deeper than 100 levels"):
        Prompty.loads(f"---\nmetadata: {{a: [{every}]}}\n---\n", base)
