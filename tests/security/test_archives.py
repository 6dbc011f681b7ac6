"""A prompt library in an archive is extracted within its own copy, and within limits.

That no code of a package runs: tests/files/library/test_library.py.
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
    """The directory of the extracted copies."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def pack(tmp_path: Path, *members: tuple[str | zipfile.ZipInfo, str | bytes]) -> Path:
    path = tmp_path / "a.zip"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore")  # about duplicate names
        for name, data in (*members, ("pkg/ok.prompty", PROMPT)):
            file.writestr(name, data)
    return path


def naive(archive: Path, into: Path) -> None:
    """Extract an archive by joining its member names to a directory."""
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
def test_archive_members_are_never_extracted_outside_the_copy(tmp_path: Path, temporary: Path, name: str) -> None:
    """The naive version writes ``evil.prompty`` beside its directory. Ours once raised an OSError."""
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
def test_absolute_member_names_are_extracted_within_the_copy(tmp_path: Path, temporary: Path, name: str) -> None:
    made = library(pack(tmp_path, (name, PROMPT)))
    keys = made.keys()
    assert "ok" in keys
    (copy,) = temporary.iterdir()
    assert files_in(temporary) == {f"{copy.name}/{each}" for each in files_in(copy)}
    assert not (tmp_path / "evil.prompty").exists()


@pytest.mark.parametrize("kind", [S_IFLNK, S_IFIFO])
def test_link_or_pipe_member_is_extracted_as_regular_file(tmp_path: Path, temporary: Path, kind: int) -> None:
    """The naive version, as tar does it, makes a link to a file outside, which is then read as a prompt."""
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
    ("members", "message"),
    [
        ([("pkg/a", "x"), ("pkg/a/b.prompty", PROMPT)], "cannot extract 'a' from the archive: .*exists"),
        ([("pkg/" + "x" * 300 + ".prompty", PROMPT)], "cannot extract .* from the archive: .*too long"),
        ([("pkg/" + "a/" * 30 + "x.prompty", PROMPT)], "can contain at most 10000 files"),
    ],
)
def test_archive_that_cannot_be_extracted_is_refused_and_leaves_no_files(
    tmp_path: Path, temporary: Path, members: list[tuple[str, str]], message: str
) -> None:
    """The naive version raises an OSError or makes all the nested directories, and leaves them behind."""
    archive = pack(tmp_path, *members)
    if "at most" in message:
        naive(archive, temporary)
        assert len(max(temporary.rglob("x.prompty")).parts) > 30
        rmtree(temporary / "pkg")
    else:
        with pytest.raises(OSError, match="exists|too long"):
            naive(archive, temporary / "by_hand")
        rmtree(temporary / "by_hand")
    with pytest.raises(PromptFileError, match=message):
        library(archive)
    assert list(temporary.iterdir()) == []


def test_corrupt_archive_raises_a_prompt_file_error(tmp_path: Path, temporary: Path) -> None:
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
def test_zip_bomb_fills_neither_memory_nor_disk(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive version writes 36 MB for a file of 40 KB. Ours once had no limit for all members together."""
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


def test_archive_member_too_large_for_a_prompt_is_cut_and_refused(tmp_path: Path, temporary: Path) -> None:
    made = library(pack(tmp_path, ("pkg/large.prompty", bytes(7_000_000))))
    sizes = {each.name: each.stat().st_size for each in temporary.rglob("*.prompty")}
    assert sizes == {"large.prompty": 5_000_001, "ok.prompty": len(PROMPT)}
    with pytest.raises(PromptFileError, match="file is too large"):
        made.get("large")


def test_archive_with_more_members_than_the_limit_is_refused(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive version writes as many files as there are names. The limit, 10,000, is lowered to be quick."""
    monkeypatch.setattr(layers, "MAX_FILES", 50)
    archive = pack(tmp_path, *((f"pkg/{number}.txt", "") for number in range(60)))
    naive(archive, tmp_path / "by_hand")
    assert len(files_in(tmp_path / "by_hand")) == 61
    with pytest.raises(PromptFileError, match="can contain at most 50 files") as held:
        library(archive)
    # The extracted files once remained as long as the exception was referenced.
    assert list(temporary.iterdir()) == []
    assert held.value.__traceback__ is not None
