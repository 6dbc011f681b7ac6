"""Media types from bytes and URLs, and the arguments of a media resolver: nothing is opened here."""

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyprompt.errors import MediaError
from lazyprompt.media.resolver import (
    MediaResolver,
    check_url,
    checked_source,
    is_local,
    media_type_of,
    sniff_type,
    usual_type,
)
from lazyprompt.messages.msg import Base64Source
from support.media import HEADS, JPEG, MP4, PNG, WHERE, fault, source

TEXTS = [
    b"",
    b"hello",
    b"BMW cars are fast, all of them",
    b"ID3 tags",
    b"\xff\xfeh\0i\0",
    b"<svg/>",
    b"RIFF\0\0\0\0XXXX",
]
PRIVATE = """127.0.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 127.1 127.0.0.1. 0 0x0 10.1.2.3 172.16.0.1 192.168.1.1
169.254.169.254 100.100.100.200 192.0.0.192 192.88.99.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 localhost
LOCALHOST localhost. foo.localhost localhost.localdomain [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1]
[fe80::1] [fc00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [2002:7f00:1::] [64:ff9b::10.0.0.1] [2001:db8::1]"""
MALFORMED = r"""http:// http:///x http:/127.0.0.1/ http:127.0.0.1 http://[::1 http://[::g]/ http://[fe80::1%25eth0]/
http://h:x/ http://h:0/ http://h:70000/ http://1.2.3.4.5/ http://1.2.3.256/ http://127.0.0.09/ http://127%2e0.0.1/
http://１２７.0.0.1/ http://127。0。0。1/ http://münchen.de/ http://[v1.a]/ http://[127.0.0.1]/ http://a@b@h/
http://a..b/ http://-h/ http://h_/x\y http://h.com\@127.0.0.1/ ftp://h/ a.png data:,"""
LISTED = MediaResolver(hosts=["Example.com", "*.example.org"])


@pytest.mark.parametrize(("media_type", "head"), [(kind, head) for kind, heads in HEADS.items() for head in heads])
def test_media_type_is_detected_from_the_first_bytes(media_type: str, head: bytes) -> None:
    assert sniff_type(head) == media_type


@pytest.mark.parametrize("head", TEXTS)
def test_no_media_type_is_detected_for_text_and_unknown_bytes(head: bytes) -> None:
    assert sniff_type(head) is None


LOCAL = "a.png ./a a/b ../x ~/a .hidden /etc/x file:///etc/x FILE:/x C:\\x C:/x a\\b 图.png what?.png 1:2/x"
NOT_LOCAL = "http://h/a.png HTTPS://h/x data:image/png;base64,AA== gs://b/a.png oss://b/a.png url_to_png1 a-b_c 图"


@pytest.mark.parametrize(("url", "local"), [(u, True) for u in LOCAL.split()] + [(u, False) for u in NOT_LOCAL.split()])
def test_is_local_is_true_for_paths_and_file_urls_only(url: str, local: bool) -> None:  # noqa: FBT001 - pytest hands it in
    assert is_local(url) is local


# Each type with its file extensions and, after the bar, its aliases.
KNOWN = """image/png png | image/x-png; image/jpeg jpg jpeg jpe jfif | image/jpg image/pjpeg; image/gif gif |
image/webp webp |; image/bmp bmp | image/x-bmp image/x-ms-bmp; image/tiff tif tiff | image/tif; image/avif avif |
image/heic heic |; image/heif heif |; audio/wav wav | audio/x-wav audio/wave audio/vnd.wave audio/x-pn-wav
audio/mpeg mp3 | audio/mp3 audio/x-mp3 audio/x-mpeg audio/mpeg3; audio/mp4 m4a | audio/x-m4a audio/m4a
audio/flac flac | audio/x-flac; audio/aac aac | audio/x-aac audio/aacp; audio/aiff aif aiff | audio/x-aiff
audio/ogg ogg oga opus | audio/opus application/ogg; video/ogg ogv |; video/quicktime mov | video/mov; video/3gpp 3gp |
video/mp4 mp4 m4v | video/x-m4v; video/webm webm |; video/x-matroska mkv | video/matroska
video/x-msvideo avi | video/avi video/msvideo video/vnd.avi; video/mpeg mpeg mpg | video/mpg video/x-mpeg
video/x-flv flv |; application/pdf pdf | application/x-pdf; application/json json | text/json; text/plain txt |
text/markdown md markdown | text/x-markdown; text/csv csv |; text/html html htm |; text/xml xml | application/xml
image/svg+xml svg |"""


@pytest.mark.parametrize("row", KNOWN.replace("\n", "; ").split("; "))
def test_media_type_is_known_by_its_file_extensions_and_aliases(row: str) -> None:
    endings, _, names = row.partition("|")
    media_type, *known = endings.split()
    assert {media_type_of(f"a.{ending}") for ending in known} == {media_type}
    assert {usual_type(name) for name in (media_type, *names.split())} == {media_type}


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        ("a.JPG", "image/jpeg"),
        ("https://h/a/b.png?sig=1.gif#x.pdf", "image/png"),
        ("https://h/a?file=a.png", None),
        ("https://example.md", None),
        ("https://example.md?x.png", None),
        ("file:///a/b.mp3", "audio/mpeg"),
        ("what?.mp4", "video/mp4"),
        ("a.tar", None),
        ("a", None),
        ("gs://bucket/a.webm", "video/webm"),
    ],
)
def test_media_type_of_a_url_is_taken_from_its_file_extension(url: str, media_type: str | None) -> None:
    assert media_type_of(url) == media_type


@pytest.mark.parametrize(
    ("kind", "given", "data", "media_type"),
    [
        ("image", "image/jpg", JPEG, "image/jpeg"),
        ("image", "IMAGE/PNG; x=y", PNG, "image/png"),
        ("image", "image/png", JPEG, "image/jpeg"),
        ("image", "application/octet-stream", PNG, "image/png"),
        ("image", "image/png", b"hello", "image/png"),
        ("audio", "audio/x-wav", b"hello", "audio/wav"),
        ("audio", "audio/L16;rate=24000", b"hello", "audio/L16;rate=24000"),
        ("audio", "audio/x-m4a", MP4, "audio/mp4"),
        ("video", "video/mp4", HEADS["audio/mp4"][0], "video/mp4"),
        ("file", "application/x-pdf", b"%PDF-1.7", "application/pdf"),
        ("file", "application/octet-stream", PNG, "image/png"),
        ("file", "image/png", JPEG, "image/jpeg"),
        ("file", "audio/mp4", MP4, "audio/mp4"),
        ("file", "text/plain; charset=gbk", b"\xc4\xe3", "text/plain; charset=gbk"),
    ],
)
def test_source_gets_the_usual_name_of_its_detected_type(kind: str, given: str, data: bytes, media_type: str) -> None:
    assert checked_source(source(given, data), kind, WHERE) == source(media_type, data)


def test_correct_source_is_returned_unchanged() -> None:
    right = source("image/png", PNG)
    assert checked_source(right, "image", WHERE) is right


def test_base64_with_line_breaks_or_urlsafe_alphabet_is_normalized() -> None:
    assert checked_source(Base64Source("image/png", "-_-_\n  AA==\r\n"), "image", WHERE).data == "+/+/AA=="


@pytest.mark.parametrize(
    ("data", "error"),
    [("", "empty"), (" \n", "empty"), ("data:image/png;base64,AAAA", "data: URL"), ("AA*A", r"'\*' at index 2")]
    + [(data, "padding") for data in ("A", "AAA", "AA=A", "=AAA", "A===", "AAAA====")]
    + [("图图图图", "'图' at index 0")],
)
def test_invalid_base64_is_refused(data: str, error: str) -> None:
    with pytest.raises(MediaError, match=rf"^messages\[2\]\.content\[1\]: the data is .*{error}"):
        checked_source(Base64Source("image/png", data), "image", WHERE)


@pytest.mark.parametrize(
    ("kind", "given", "data"),
    [
        ("image", "image/png", b"%PDF-1.7"),
        ("image", "image/png", MP4),
        ("audio", "audio/wav", PNG),
        ("file", "application/pdf", PNG),
        ("video", "video/mp4", HEADS["audio/wav"][0]),
    ],
)
def test_data_of_another_media_kind_is_refused(kind: str, given: str, data: bytes) -> None:
    with pytest.raises(MediaError, match=rf"^messages\[2\].*declared as '{given}', but the content is "):
        checked_source(source(given, data), kind, WHERE)


@pytest.mark.parametrize("host", PRIVATE.split())
@pytest.mark.parametrize("hosts", [(), ("example.com", "*.example.com")])
def test_private_host_is_refused_in_every_spelling(host: str, hosts: tuple[str, ...]) -> None:
    with pytest.raises(MediaError, match="is on a private host"):
        check_url(f"http://{host}:8000/a.png", WHERE, hosts)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "127.1", "[::ffff:127.0.0.1]", "[::1]", "localhost."])
def test_listed_private_host_is_accepted(host: str) -> None:
    MediaResolver(hosts=["127.0.0.1", "::1", "LocalHost"]).check(f"http://{host}/a.png", WHERE)


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1]", "[64:ff9b::8.8.8.8]", "[2002:808:808::]", "a.b", "_x.b"])
def test_public_host_is_accepted(host: str) -> None:
    check_url(f"https://{host}/a.png?x=@#f", WHERE)
    check_url(f"HTTPS://{host}:/", WHERE)


@pytest.mark.parametrize("url", [*MALFORMED.split(), "http://h/a b", "http://h/\n", " http://h/", ""])
def test_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(MediaError, match=r"^messages\[2\]\.content\[1\]: '"):
        check_url(url, WHERE)


@pytest.mark.parametrize(
    "url", ["https://u:SECRET@h/", "https://SECRET@h/", "https://u:SE/CRET@h:x/?SECRET", "s3:SECRET"]
)
def test_error_messages_contain_no_secrets(url: str) -> None:
    with pytest.raises(MediaError) as error:
        check_url(url, WHERE)
    assert "SECRET" not in str(error.value)
    assert fault(f"x.png?{'SECRET' * 99}", roots=["/etc"])
    assert len(fault(f"https://h/{'x' * 9999}")) < 500


@pytest.mark.parametrize("host", ["example.com", "EXAMPLE.COM.", "a.example.org", "a.b.example.org"])
def test_listed_host_is_accepted(host: str) -> None:
    LISTED.check(f"https://{host}/", WHERE)


@pytest.mark.parametrize("host", ["a.example.com", "example.org", "badexample.org", "example.com.evil.net", "8.8.8.8"])
def test_unlisted_host_is_refused(host: str) -> None:
    with pytest.raises(MediaError, match="is not allowed; add the host to hosts="):
        LISTED.check(f"https://{host}/", WHERE)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"roots": "/tmp"}, "roots must be a list or tuple, not str"),  # noqa: S108 - nothing is put there
        ({"roots": [""]}, "roots contains '', which is not a directory"),
        ({"roots": ["/no/such"]}, "roots contains '/no/such', which is not a directory"),
        ({"roots": [__file__]}, "which is not a directory"),
        ({"roots": [5]}, "roots contains 5"),
        ({"hosts": "example.com"}, "hosts must be a list or tuple, not str"),
        *(
            ({"hosts": [host]}, "hosts contains ")
            for host in ("http://h", "h:80", "h/x", "", "*", "*.", "*.1.2.3", "h h", "[::1]", 5)
        ),
        *(({"max_bytes": size}, "max_bytes must be ") for size in (0, -1, 1.5, True, "5")),
        *(({"timeout": size}, "timeout must be ") for size in (0, -1, float("nan"), float("inf"), True, "5", None)),
    ],
)
def test_media_resolver_refuses_invalid_arguments(fields: Any, error: str) -> None:
    with pytest.raises(MediaError, match=error):
        MediaResolver(**fields)


def test_media_resolver_is_immutable_comparable_and_picklable(root: Path) -> None:
    resolver = MediaResolver([root, str(root)], ["A.b", "127.1", "*.C.d"], 5, 1)
    assert (resolver.roots, resolver.hosts) == ((str(root.resolve()),) * 2, ("a.b", "127.0.0.1", "*.c.d"))
    for twin in (pickle.loads(pickle.dumps(resolver)), dataclasses.replace(resolver)):  # noqa: S301 - our bytes
        assert twin == resolver
        assert hash(twin) == hash(resolver)
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolver.max_bytes = 6  # type: ignore[misc]


def test_importing_the_media_resolver_imports_no_network_modules() -> None:
    code = "import sys, lazyprompt.media.resolver; print([m for m in ('urllib3', 'socket', 'ssl') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603 - our own code
    assert done.stdout.strip() == b"[]"
