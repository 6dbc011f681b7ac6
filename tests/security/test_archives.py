"""A library in an archive writes nothing outside of its own copy, and not more than it may.

That no code of a package is run: tests/files/library/test_library.py.
"""

import tempfile
import warnings
import zipfile
import zlib
from pathlib import Path
from shutil import rmtree
from stat import S_IFIFO, S_IFLNK

import pytest

from lazyprompt import PromptLibrary
from lazyprompt.errors import PromptFileError
from lazyprompt.files.library import layers
from support.memory import peak_of

PROMPT = "user:\nhi"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies of archives are put."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def pack(tmp_path: Path, *members: tuple[str | zipfile.ZipInfo, str | bytes]) -> Path:
    path = tmp_path / "a.zip"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in (*members, ("pkg/ok.prompty", PROMPT)):
            file.writestr(name, data)
    return path


def naive(archive: Path, into: Path) -> None:
    """An archive taken out as anybody would do it by hand."""
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read(name))


def library(archive: Path) -> PromptLibrary:
    return PromptLibrary(zipfile.Path(archive) / "pkg/")


def files_in(place: Path) -> set[str]:
    return {str(each.relative_to(place)) for each in place.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    "name", ["pkg/../../evil.prompty", "pkg/s/../../../evil.prompty", "../evil.prompty", "{tmp}/evil.prompty", "pkg/.."]
)
def test_no_member_is_written_outside(tmp_path: Path, temporary: Path, name: str) -> None:
    """The naive version writes ``evil.prompty`` beside its directory. Ours left an OSError to the caller."""
    archive = pack(tmp_path, (name.format(tmp=tmp_path), "evil"))
    if name != "pkg/..":
        (tmp_path / "by_hand").mkdir()
        naive(archive, tmp_path / "by_hand")
        (tmp_path / "evil.prompty").unlink()
    before = files_in(tmp_path)
    if name.startswith("pkg"):
        with pytest.raises(PromptFileError, match=r"a.zip/pkg/.*: the archive member '\.\.' is not a valid file name"):
            library(archive)
        assert list(temporary.iterdir()) == []
    else:
        assert library(archive).keys() == ("ok",)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("name", ["pkg//etc/evil.prompty", "pkg/C:\\evil.prompty", "pkg/..\\evil.prompty"])
def test_an_absolute_name_is_one_within(tmp_path: Path, temporary: Path, name: str) -> None:
    made = library(pack(tmp_path, (name, PROMPT)))
    keys = made.keys()
    assert "ok" in keys
    (copy,) = temporary.iterdir()
    assert files_in(temporary) == {f"{copy.name}/{each}" for each in files_in(copy)}
    assert not (tmp_path / "evil.prompty").exists()


@pytest.mark.parametrize("kind", [S_IFLNK, S_IFIFO])
def test_a_member_that_is_a_link_is_the_text_of_its_path(tmp_path: Path, temporary: Path, kind: int) -> None:
    """The naive version, as tar makes it: a link to a file outside, which is then read as if it were a prompt."""
    secret = tmp_path / "secret.prompty"
    secret.write_text("the secret")
    (tmp_path / "link.prompty").symlink_to(secret)
    assert (tmp_path / "link.prompty").read_text() == "the secret"
    link = zipfile.ZipInfo("pkg/link.prompty")
    link.external_attr = (kind | 0o777) << 16
    made = library(pack(tmp_path, (link, str(secret))))
    (found,) = temporary.rglob("link.prompty")
    assert found.is_file()
    assert not found.is_symlink()
    assert made.get("link").render() == str(secret)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("pkg/a", "x"), ("pkg/a/b.prompty", PROMPT)], "cannot extract 'a' from the archive: .*exists"),
        ([("pkg/" + "x" * 300 + ".prompty", PROMPT)], "cannot extract .* from the archive: .*too long"),
        ([("pkg/" + "a/" * 30 + "x.prompty", PROMPT)], "can contain at most 10000 files"),
    ],
)
def test_what_no_directory_can_hold_is_refused(
    tmp_path: Path, temporary: Path, members: list[tuple[str, str]], says: str
) -> None:
    """The naive version fails with an OSError, or makes directories as deep as it is told; and leaves them there."""
    archive = pack(tmp_path, *members)
    if "at most" in says:
        naive(archive, temporary)
        assert len(max(temporary.rglob("x.prompty")).parts) > 30
        rmtree(temporary / "pkg")
    else:
        with pytest.raises(OSError, match="directory|too long"):
            naive(archive, temporary / "by_hand")
        rmtree(temporary / "by_hand")
    with pytest.raises(PromptFileError, match=says):
        library(archive)
    assert list(temporary.iterdir()) == []


def test_a_broken_archive_is_an_error_of_ours(tmp_path: Path, temporary: Path) -> None:
    archive = pack(tmp_path, ("pkg/a.txt", "x" * 1000))
    data = bytearray(archive.read_bytes())
    at = data.index(b"pkg/a.txt") + len("pkg/a.txt")
    data[at : at + 4] = b"\xff\xff\xff\xff"
    archive.write_bytes(data)
    with pytest.raises(zlib.error):
        naive(archive, temporary / "by_hand")
    with pytest.raises(PromptFileError, match="a.zip/pkg/: cannot extract 'a.txt' from the archive"):
        library(archive)


@pytest.mark.slow
def test_a_bomb_fills_neither_the_memory_nor_the_disk(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive version writes 36 MB for a file of 40 KB. Ours had no bound for all members together: 50 GB of them."""
    monkeypatch.setattr(layers, "MAX_TOTAL", 11_000_000)
    archive = pack(
        tmp_path, ("pkg/large.txt", bytes(20_000_000)), *((f"pkg/{n}.txt", bytes(4_000_000)) for n in range(4))
    )
    assert archive.stat().st_size < 50_000
    naive(archive, tmp_path / "by_hand")
    assert sum(each.stat().st_size for each in (tmp_path / "by_hand" / "pkg").iterdir()) > 36_000_000

    def load() -> None:
        with pytest.raises(PromptFileError, match="can contain at most 11000000 bytes"):
            library(archive)

    assert peak_of(load) < 16_000_000
    assert list(temporary.iterdir()) == []


def test_a_member_that_is_too_large_for_a_prompt_is_not_copied(tmp_path: Path, temporary: Path) -> None:
    made = library(pack(tmp_path, ("pkg/large.prompty", bytes(5_000_001))))
    assert made.keys() == ("ok",)
    assert {Path(each).name for each in files_in(temporary)} == {"ok.prompty"}


def test_there_are_not_more_members_than_a_library_has(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive version writes as many files as there are names. The bound, 10,000, is set lower to be quick."""
    monkeypatch.setattr(layers, "MAX_FILES", 50)
    archive = pack(tmp_path, *((f"pkg/{number}.txt", "") for number in range(60)))
    naive(archive, tmp_path / "by_hand")
    assert len(files_in(tmp_path / "by_hand")) == 61
    with pytest.raises(PromptFileError, match="can contain at most 50 files") as held:
        library(archive)
    # What was taken out stayed as long as anybody held the error.
    assert list(temporary.iterdir()) == []
    assert held.value.__traceback__ is not None
