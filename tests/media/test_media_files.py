"""Files as media: only regular files under a root, of a limited size and the declared type."""

import os
import re
import socket
import sys
from pathlib import Path

import pytest

from lazyprompt._base.files import names_other_machine
from lazyprompt.errors import MediaError
from lazyprompt.media.resolver import MediaResolver
from lazyprompt.messages.msg import URLSource
from support.media import JPEG, MP4, PNG, WHERE, fault, load, source
from support.windows import resolving_as_windows


def test_a_file_in_a_root_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "below").mkdir()
    path = root / "below" / "a b%20#ü.png"
    path.write_bytes(PNG)
    (root / "link.png").symlink_to(path)
    monkeypatch.chdir(root)
    escaped = f"{root}/below/a%20b%2520%23%C3%BC.png"
    for url in (
        path,
        "below/a b%20#ü.png",
        "./link.png",
        f"file://{escaped}",
        f"file://LOCALHOST{escaped}",
        f"file:{escaped}",
    ):
        assert load(url, roots=[root]) == source("image/png", PNG)
    assert load(path, roots=["/", root]) == source("image/png", PNG)


def test_a_file_outside_of_the_roots_is_not_read(root: Path, tmp_path: Path) -> None:
    for name in ("root2", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(PNG)
    (root / "link.png").symlink_to(tmp_path / "secret" / "a.png")
    (root / "dir").symlink_to(tmp_path / "secret")
    (root / "zero.png").symlink_to("/dev/zero")
    outside: list[str | Path] = [
        "/etc/hostname",
        "file:///etc/hostname",
        "~/a.png",
        f"file://{root}/%2E%2E/secret/a.png",
    ]
    outside += [root / "link.png", root / "dir" / "a.png", root / "zero.png", root, tmp_path / "root2" / "a.png"]
    # The error does not reveal whether the file exists.
    for url in (*outside, "/no/such.png"):
        assert f"is not in {root}; add its directory to roots=" in fault(url, roots=[root])
        assert "allow its directory with MediaResolver(roots=[...])" in fault(url)


@pytest.mark.parametrize(
    "url", ["file://host/etc/x", "file:a.png", "file:", "file:///a?b", "file:///a#b", "file://etc/x"]
)
def test_file_url_with_a_remote_host_or_an_invalid_form_is_refused(url: str) -> None:
    shown = re.split("[?#]", url)[0]
    assert f"{shown!r} is not a local file URL" in fault(url, roots=["/"])


@pytest.mark.parametrize("url", ["url_to_png1", "data:image/png;base64,SECRET", "gs://b/a.png", "s3://SECRET/x", ""])
def test_source_that_is_neither_a_path_nor_an_http_url_is_refused(url: str) -> None:
    shown = re.sub(":.+", ":…", url)
    assert f"{shown!r} is neither a path nor an http(s) URL" in fault(url, roots=["/"])


def test_only_regular_files_are_read(root: Path) -> None:
    os.mkfifo(root / "fifo.png")
    (root / "dir.png").mkdir()
    for path in (root / "fifo.png", root / "dir.png"):
        assert "not a regular file" in fault(path, roots=[root])
    assert "the path is a device, not a regular file" in fault("/dev/zero", roots=["/dev"])
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(root / "s.png"))
        assert "cannot be read" in fault(root / "s.png", roots=[root])


def test_unreadable_file_error_contains_the_reason(root: Path) -> None:
    (root / "loop.png").symlink_to(root / "loop.png")
    assert "cannot be read: Too many levels of symbolic links" in fault(root / "loop.png", roots=[root])
    assert "cannot be read: No such file or directory" in fault(root / "none.png", roots=[root])
    assert "cannot be read: Not a directory" in fault(f"{__file__}/a.png", roots=["/"])
    long, error = f"{root}/{'x' * 300}.png", "cannot be read: File name too long; fix the cause or pass another path"
    assert fault(long, roots=[root]) == f"{WHERE}: {long[:200] + '…'!r} {error}"
    assert "contains a null byte" in fault("a\0.png", roots=[root])
    assert "contains a null byte" in fault("file:///a%00.png", roots=[root])


def test_files_are_read_by_path_on_systems_without_dir_fd(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no dir_fd: no local file could be read there."""
    monkeypatch.setattr(os, "supports_dir_fd", set())
    for path in (root / "a.png", root / "below" / "a.png"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(PNG)
        assert load(path, roots=[root]) == source("image/png", PNG)
    (root / "link.png").symlink_to(root / "a.png")
    assert load(root / "link.png", roots=[root]) == source("image/png", PNG)
    assert "cannot be read: No such file or directory" in fault(root / "none.png", roots=[root])
    assert "the path is a directory, not a regular file" in fault(root / "below", roots=[root])


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///C:/media/a%20b.png", "C:/media/a b.png"),
        ("file://localhost/c:/media/a.png", "c:/media/a.png"),
        ("file:/C:/a%C3%BC.png", "C:/a\u00fc.png"),
        (r"C:\media\a.png", r"C:\media\a.png"),
        (r"media\a.png", r"media\a.png"),
        ("file:///media/a.png", "/media/a.png"),
    ],
)
def test_windows_paths_are_decoded_on_windows(root: Path, monkeypatch: pytest.MonkeyPatch, url: str, path: str) -> None:
    resolver = MediaResolver(roots=[root])
    asked = resolving_as_windows(monkeypatch)
    with pytest.raises(MediaError, match="is not in"):
        resolver.load(URLSource(url), WHERE)
    assert asked == [path]


@pytest.mark.parametrize(
    "url",
    [
        r"\\evil\share\a.png",
        "//evil/share/a.png",
        r"/\evil/share/a.png",
        r"\\?\UNC\evil\share\a.png",
        r"\\.\pipe\a.png",
        "file:////evil/share/a.png",
        "file:///%5C%5Cevil%5Cshare%5Ca.png",
        "file:///%5Cevil/share/a.png",
    ],
)
def test_windows_path_on_another_machine_is_not_opened(root: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A message could make Windows log in at another machine, before the roots were checked."""
    resolver = MediaResolver(roots=[root])
    asked = resolving_as_windows(monkeypatch)
    with pytest.raises(MediaError, match="is not in"):
        resolver.load(URLSource(url), WHERE)
    assert asked == []


def test_windows_path_under_a_network_root_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving_as_windows(monkeypatch)
    roots = [r"\\files\media"]
    assert not names_other_machine(r"\\FILES\media\a.png", roots)
    assert not names_other_machine("//files/Media/a.png", roots)
    assert names_other_machine(r"\\files\other\a.png", roots)
    assert not asked


def test_file_larger_than_max_bytes_is_refused(root: Path) -> None:
    path = root / "a.png"
    path.write_bytes(PNG)
    assert load(path, roots=[root], max_bytes=len(PNG)).media_type == "image/png"
    assert "file is too large: 68 bytes; the limit is 67; increase max_bytes=" in fault(
        path, roots=[root], max_bytes=67
    )
    os.truncate(path, 5 << 30)
    assert "file is too large: 5,368,709,120 bytes" in fault(path, roots=[root])
    if sys.platform == "linux":
        assert "grew while being read" in fault("/proc/self/status", roots=["/proc"])


def test_reading_files_leaves_no_file_descriptors_open(root: Path) -> None:
    (root / "below").mkdir()
    (root / "below" / "a.txt").write_bytes(PNG)
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(50):
        fault(root / "below" / "a.txt", roots=[root])
        fault(root / "below" / "none" / "a.txt", roots=[root])
    # Other threads of this process open and close descriptors too.
    assert len(list(Path("/dev/fd").iterdir())) < before + 50


@pytest.mark.parametrize(
    ("name", "data", "declared", "error"),
    [
        ("a.png", b"root:x:0:0", None, "is declared as 'image/png' by its ending, but the content is not"),
        ("a.txt", b"root:x:0:0", "image/png", "is declared as 'image/png' by its media_type, but the content is not"),
        ("a.png", b"hello", "text/plain", "is declared as 'image/png' by its ending"),
        ("a.png", JPEG, None, "is declared as 'image/png' by its ending, but the content is image/jpeg"),
        ("a.jpg", JPEG, "image/png", "is declared as 'image/png' by its media_type, but the content is image/jpeg"),
        ("a.txt", PNG, None, "is declared as 'text/plain' by its ending, but the content is image/png"),
        ("a.pdf", b"PK\3\4", None, "the content is not"),
        ("a.svg", b"<svg/>", None, "the content is not"),
        ("./a", b"hello", None, "has an unknown type"),
        ("a.txt", b"\xff\xfeh\0i\0", None, "is not valid UTF-8"),
        ("a.json", b"{}\0", None, "is not valid UTF-8"),
        ("a.png", b"", None, "is empty"),
        ("a.txt", b"", None, "is empty"),
    ],
)
def test_file_of_a_wrong_type_is_refused(root: Path, name: str, data: bytes, declared: str | None, error: str) -> None:
    (root / name).write_bytes(data)
    assert error in fault(root / name, declared, roots=[root])


@pytest.mark.parametrize(
    ("name", "data", "declared", "media_type"),
    [
        ("a", PNG, None, "image/png"),
        ("a.bin", PNG, "application/octet-stream", "image/png"),
        ("a.jpg", JPEG, "image/jpg", "image/jpeg"),
        ("a.md", "# 你好".encode(), None, "text/markdown"),
        ("a.log", b"hello", "text/plain; charset=utf-8", "text/plain"),
        ("a.json", b"{}", None, "application/json"),
        ("a.mp4", MP4, "audio/mp4", "audio/mp4"),
        ("a.m4a", MP4, None, "audio/mp4"),
    ],
)
def test_media_type_of_a_file_is_detected_from_its_bytes(
    root: Path, name: str, data: bytes, declared: str | None, media_type: str
) -> None:
    (root / name).write_bytes(data)
    assert load(root / name, declared, roots=[root]) == source(media_type, data)
