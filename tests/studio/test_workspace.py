"""Prompt files are found, read and saved: only in the workspace, as a whole, and without overwriting changes."""

import errno
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

import lazyprompt.studio.workspace
from lazyprompt import PromptLibrary
from lazyprompt._base.files import locked
from lazyprompt.errors import PromptFileError, PromptFileMissingError
from lazyprompt.studio.workspace import MOST_FILES, Content, SaveConflict, Workspace
from support.paths import LIBRARY
from support.windows import PERMISSIONS

TEXT = "---\nname: x\n---\nsystem:\nHi.\n"


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "prompts"
    (made / "support").mkdir(parents=True)
    (made / "x.prompty").write_text(TEXT)
    (made / "support" / "refund.zh@1.2.0.prompty").write_text(TEXT)
    return made


def test_workspace_files_equal_those_of_a_prompt_library() -> None:
    found = Workspace.of(LIBRARY).files()
    library = PromptLibrary(LIBRARY)
    entries = {each.path.relative_to(LIBRARY).as_posix() for key in library.keys() for each in library.entries(key)}  # noqa: SIM118 - no dict
    assert {each.path for each in found} == entries
    assert {each.key for each in found} == set(library.keys())


def test_key_language_and_version_are_read_from_the_file_name(root: Path) -> None:
    assert Workspace.of(root).files() == (
        ("support/refund.zh@1.2.0.prompty", "support/refund", "zh", "1.2.0"),
        ("x.prompty", "x", "", None),
    )


def test_hidden_files_other_files_and_links_to_the_outside_are_not_listed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.prompty").write_text(TEXT)
    (root / "out.prompty").symlink_to(tmp_path / "secret.prompty")
    (root / "linked.prompty").symlink_to(root / "x.prompty")
    for name in ("_part.prompty", ".hidden.prompty", "notes.md", "a:b.prompty", "back\\slash.prompty"):
        (root / name).write_text(TEXT)
    (root / ".git").mkdir()
    (root / ".git" / "a.prompty").write_text(TEXT)
    Path(os.fsdecode(os.fsencode(root) + b"/\xff.prompty")).write_text(TEXT)
    os.mkfifo(root / "pipe.prompty")
    names = {each.path for each in Workspace.of(root).files()}
    assert names == {"x.prompty", "support/refund.zh@1.2.0.prompty", "linked.prompty"}


def test_a_file_with_an_invalid_version_is_listed_under_its_whole_name(root: Path) -> None:
    (root / "x@new.prompty").write_text(TEXT)
    assert ("x@new.prompty", "x@new.prompty", "", None) in Workspace.of(root).files()


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.prompty", "/etc/hosts.prompty", "support/../../secret.prompty", "", ".", "..", "support/"),
        *("notes.md", "_part.prompty", ".hidden.prompty", "support//x.prompty", ".git/a.prompty", "./x.prompty"),
        *("..\\secret.prompty", "C:x.prompty", "x\0.prompty", "x\udcff.prompty", "out.prompty"),
        "outside/secret.prompty",
    ],
)
def test_a_path_outside_the_workspace_cannot_be_read_or_saved(root: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.prompty").write_text(TEXT)
    (root / "out.prompty").symlink_to(tmp_path / "secret.prompty")
    (root / "outside").symlink_to(tmp_path)
    workspace = Workspace.of(root)
    with pytest.raises(PromptFileMissingError, match="not a prompt file in this workspace"):
        workspace.read(path)
    with pytest.raises(PromptFileMissingError, match="not a prompt file in this workspace"):
        workspace.save(path, "x", None)
    assert (tmp_path / "secret.prompty").read_text() == TEXT


def test_a_workspace_of_one_file_contains_only_this_file(root: Path, tmp_path: Path) -> None:
    workspace = Workspace.of(root / "x.prompty")
    assert [each.path for each in workspace.files()] == ["x.prompty"]
    with pytest.raises(PromptFileMissingError):
        workspace.read("support/refund.zh@1.2.0.prompty")
    link = tmp_path / "link.prompty"
    link.symlink_to(root / "x.prompty")
    assert Workspace.of(link) == workspace
    draft = root / "_draft.prompty"
    draft.write_text(TEXT)
    assert Workspace.of(draft).read("_draft.prompty").text == TEXT


def test_a_path_that_is_not_a_directory_or_prompt_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptFileMissingError, match="no such directory or file"):
        Workspace.of(tmp_path / "nowhere")
    (tmp_path / "a.txt").touch()
    with pytest.raises(PromptFileError, match=r"a name that ends with .prompty, .yaml, .yml"):
        Workspace.of(tmp_path / "a.txt")


def test_a_workspace_of_too_many_files_or_folders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Listing a whole home directory would take minutes.
    monkeypatch.setattr(lazyprompt.studio.workspace, "MOST_FILES", 2)
    monkeypatch.setattr(lazyprompt.studio.workspace, "_MOST_DIRECTORIES", 1)
    (tmp_path / "sub").mkdir()
    for name in "ab":
        (tmp_path / f"{name}.prompty").touch()
    assert len(Workspace.of(tmp_path).files()) == 2
    (tmp_path / "other").mkdir()
    with pytest.raises(PromptFileError, match="more than 2 prompt files or 1 directories"):
        Workspace.of(tmp_path)
    (tmp_path / "other").rmdir()
    (tmp_path / "c.prompty").touch()
    with pytest.raises(PromptFileError, match="more than 2 prompt files or 1 directories"):
        Workspace.of(tmp_path)
    assert MOST_FILES > 1000


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbf---\r\nname: x\r\n---\r\nHi\r\n", b"a\rb\nc\r\nd", "中\u2028".encode(), b""]
)
def test_reading_and_saving_a_file_keeps_every_byte(root: Path, data: bytes) -> None:
    path = root / "x.prompty"
    path.write_bytes(data)
    workspace = Workspace.of(root)
    content = workspace.read("x.prompty")
    assert content == Content(data.decode(), digest(data))
    assert workspace.save("x.prompty", content.text, content.hash) == content
    assert path.read_bytes() == data


def test_a_file_that_is_not_utf8_or_is_too_large_is_refused(root: Path) -> None:
    (root / "x.prompty").write_bytes(b"a\xff")
    (root / "big.prompty").write_bytes(b"x" * 5_000_001)
    workspace = Workspace.of(root)
    with pytest.raises(PromptFileError, match="x.prompty:1:2: byte 0xff is not UTF-8"):
        workspace.read("x.prompty")
    with pytest.raises(PromptFileError, match="file is too large: 5,000,001 bytes; the limit is 5,000,000"):
        workspace.read("big.prompty")
    with pytest.raises(PromptFileError, match="larger than 5000000 bytes"):
        workspace.save("new.prompty", "x" * 5_000_001, None)
    with pytest.raises(PromptFileMissingError, match="no such file"):
        workspace.read("support/none.prompty")


@PERMISSIONS
def test_saving_keeps_the_file_mode_and_the_symbolic_link(root: Path) -> None:
    path, link = root / "x.prompty", root / "link.prompty"
    path.chmod(0o604)
    link.symlink_to(path)
    workspace = Workspace.of(root)
    before = {each.name for each in root.iterdir()}
    done = workspace.save("link.prompty", "new", digest(TEXT.encode()))
    assert done == Content("new", digest(b"new"))
    assert path.read_text() == "new"
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert {each.name for each in root.iterdir()} == before


def test_saving_over_a_changed_or_deleted_file_is_a_conflict(root: Path) -> None:
    workspace = Workspace.of(root)
    read = workspace.read("x.prompty")
    (root / "x.prompty").write_text("theirs")
    refused = workspace.save("x.prompty", "mine", read.hash)
    assert refused == SaveConflict(
        "x.prompty has changed on disk since it was opened", Content("theirs", digest(b"theirs"))
    )
    assert (root / "x.prompty").read_text() == "theirs"
    (root / "x.prompty").unlink()
    refused = workspace.save("x.prompty", "mine", read.hash)
    assert refused == SaveConflict("x.prompty no longer exists; save again to create it", None)
    assert isinstance(workspace.save("x.prompty", "mine", None), Content)
    assert isinstance(workspace.save("x.prompty", "mine too", None), SaveConflict)
    assert (root / "x.prompty").read_text() == "mine"
    assert workspace.save("new/er/y.prompty", "mine", None) == Content("mine", digest(b"mine"))
    assert (root / "new" / "er" / "y.prompty").read_text() == "mine"


def test_a_read_only_file_is_not_replaced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It could be replaced, because that needs only write permission for the directory.
    def none(_path: Path, _mode: int) -> bool:
        return False

    monkeypatch.setattr(os, "access", none)
    with pytest.raises(PermissionError, match="the file is read-only"):
        Workspace.of(root).save("x.prompty", "new", digest(TEXT.encode()))
    assert (root / "x.prompty").read_text() == TEXT


def test_only_one_of_many_concurrent_saves_succeeds(root: Path) -> None:
    known = digest(TEXT.encode())

    def saved_by(number: int) -> Content | SaveConflict:
        return Workspace(root).save("x.prompty", f"{number}", known)

    with ThreadPoolExecutor(8) as pool:
        done = [*pool.map(saved_by, range(24))]
    (saved,) = [each for each in done if isinstance(each, Content)]
    assert (root / "x.prompty").read_text() == saved.text


def test_a_file_locked_by_another_save_can_be_saved_later(root: Path) -> None:
    workspace = Workspace.of(root)
    read = workspace.read("x.prompty")
    name = next(iter(locks_made_by(workspace, read)))
    with locked(root / name):
        refused = workspace.save("x.prompty", "new", read.hash)
    assert refused == SaveConflict("x.prompty is being saved by another program; save again", read)
    assert isinstance(workspace.save("x.prompty", "new", read.hash), Content)


def locks_made_by(workspace: Workspace, read: Content) -> set[str]:
    """The names of the lock files beside a file while it is saved."""
    seen: set[str] = set()

    def looked(path: Path, data: bytes) -> None:
        seen.update(each.name for each in path.parent.iterdir() if each.name.endswith(".lock"))
        path.write_bytes(data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lazyprompt.studio.workspace, "write_whole", looked)
        workspace.save("x.prompty", read.text, read.hash)
    return seen


SAVE = """
import sys
from pathlib import Path
from lazyprompt.studio.workspace import Content, Workspace
workspace, name, count = Workspace(Path(sys.argv[1])), sys.argv[2], 0
sys.stdin.readline()
for turn in range(60):
    read = workspace.read("x.prompty")
    done = workspace.save("x.prompty", read.text + name, read.hash)
    count += isinstance(done, Content)
print(count)
"""


@pytest.mark.slow
def test_concurrent_saves_of_two_processes_lose_no_text(root: Path) -> None:
    (root / "x.prompty").write_text("")
    root = root.resolve()
    both = [
        subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", SAVE, root, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    for each in both:
        if each.stdin is None:
            pytest.fail("no pipe")
        each.stdin.write("go\n")
        each.stdin.flush()
    counts = [int(each.communicate(timeout=60)[0]) for each in both]
    text = (root / "x.prompty").read_text()
    assert [text.count(name) for name in "ab"] == counts
    assert sum(counts) == len(text) > 0


def test_a_full_disk_does_not_change_the_old_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    before = {each.name for each in root.iterdir()}
    with pytest.raises(OSError, match="No space left on device"):
        Workspace.of(root).save("x.prompty", "new", digest(TEXT.encode()))
    assert (root / "x.prompty").read_text() == TEXT
    assert {each.name for each in root.iterdir()} == before


KILLED = """
import os, signal, sys
from pathlib import Path
from lazyprompt.studio.workspace import Workspace
workspace = Workspace(Path(sys.argv[1]))
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "fsync":
    os.fsync = die
else:
    Path.replace = die
workspace.save("x.prompty", "new" * 1000, workspace.read("x.prompty").hash)
"""


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_process_killed_while_saving_does_not_change_the_old_file(root: Path, at: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, root.resolve(), at], check=False, timeout=60)  # noqa: S603 - our own program
    assert done.returncode == -signal.SIGKILL
    assert (root / "x.prompty").read_text() == TEXT
    workspace = Workspace.of(root)
    assert {each.path for each in workspace.files()} == {"x.prompty", "support/refund.zh@1.2.0.prompty"}
    # The lock ended with the process.
    assert isinstance(workspace.save("x.prompty", "new", digest(TEXT.encode())), Content)
