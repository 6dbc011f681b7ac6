"""Tokens of images, audio, videos and documents, in the format of every provider."""

import struct
import subprocess
import sys
import time
import zlib
from base64 import b64encode, urlsafe_b64encode
from math import ceil
from typing import Any

import pytest

from lazyprompt.errors import MissingExtraError
from lazyprompt.tokens.media import CountedMedia as Media
from lazyprompt.tokens.media import (
    Limit,
    estimate_media_tokens,
    image_size,
    media_in,
    patches,
    picture_tokens,
    rule_for,
    tiles,
)
from support.missing import needs

MOST = 85 + 8 * 170
SQUARE = 85 + 4 * 170


def png(width: int, height: int, padding: int = 0) -> bytes:
    head = struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", bytes(padding)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + bytes(60)


def jpeg(width: int, height: int, before: int = 0) -> bytes:
    """A JPEG with so many bytes of metadata before its size."""
    metadata = b"".join(b"\xff\xe1" + struct.pack(">H", 65_535) + bytes(65_533) for _ in range(before // 65_535))
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + metadata + b"\xff\xc0" + frame + bytes(60)


def webp(width: int, height: int) -> bytes:
    frame = b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height) + bytes(40)
    return b"RIFF" + struct.pack("<L", 12 + len(frame)) + b"WEBPVP8 " + struct.pack("<L", len(frame)) + frame


def text_of(data: bytes) -> str:
    return b64encode(data).decode()


def address(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{text_of(data)}"


def counted(part: dict[str, Any]) -> int:
    return estimate_media_tokens(part)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": address("image/png", png(1024, 1024)), "detail": "auto"}},
        {"type": "image_url", "image_url": address("image/png", png(1024, 1024))},
        {"type": "input_image", "image_url": address("image/png", png(1024, 1024)), "file_id": None},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text_of(png(1024, 1024))}},
        {"type": "image", "source": {"type": "url", "url": address("image/png", png(1024, 1024))}},
        {"inline_data": {"mime_type": "image/png", "data": text_of(png(1024, 1024))}},
        {"inline_data": {"mime_type": "image/png", "data": png(1024, 1024)}},
        {"inlineData": {"mimeType": "image/png", "data": urlsafe_b64encode(png(1024, 1024)).decode()}},
        {"image": address("image/png", png(1024, 1024)), "min_pixels": 3},
        {"image": {"format": "png", "source": {"bytes": png(1024, 1024)}}},
        {"images": [text_of(png(1024, 1024))]},
        {"type": "image_url", "image_url": {"url": text_of(png(1024, 1024))}},
        {"type": "file", "file": {"file_data": address("image/png", png(1024, 1024)), "filename": "a.png"}},
    ],
)
def test_image_tokens_depend_on_the_size_in_every_format(part: dict[str, Any]) -> None:
    assert counted(part) == SQUARE


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "input_image", "file_id": "file-1"},
        {"file_data": {"file_uri": "gs://bucket/a.png", "mime_type": "image/png"}},
        {"fileData": {"fileUri": "gs://bucket/a.png", "mimeType": "image/png"}},
        {"image": "oss://bucket/a.png"},
        {"image": "a.png"},
        {"image": "/home/me/a.png"},
        {"type": "image"},
        {"type": "image", "image": None},
        {"type": "image", "image": 3},
        {"type": "image_url", "image_url": {"url": ""}},
        {"type": "image_url", "image_url": {"url": "data:image/png,%89PNG"}},
        {"type": "image_url", "image_url": {"url": address("image/png", b"no picture")}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}},
    ],
)
def test_an_image_of_unknown_size_has_the_maximum_tokens(part: dict[str, Any]) -> None:
    assert counted(part) == MOST


@pytest.mark.parametrize("make", [png, gif, jpeg, webp])
@pytest.mark.parametrize(
    ("size", "expected"),
    [((1, 1), 1), ((512, 512), 1), ((513, 512), 2), ((1024, 1024), 4), ((2048, 4096), 6), ((4096, 8192), 6)],
)
def test_the_size_of_an_image_is_read_from_its_bytes(make: Any, size: tuple[int, int], expected: int) -> None:
    for width, height in (size, size[::-1]):
        assert counted({"image": address("image/x", make(width, height))}) == 85 + 170 * expected


def test_reading_an_image_size_requires_the_images_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess would make a budget drop messages that fit."""
    monkeypatch.setitem(sys.modules, "imagesize", None)
    with pytest.raises(MissingExtraError, match=r'pip install .+\[images\]"$'):
        estimate_media_tokens({"image": {"data": text_of(png(1, 1))}})
    assert estimate_media_tokens({"image": {"url": "https://a.example/b.png"}}) > 0


@pytest.mark.parametrize("before", [0, 65_535, 400_000])
def test_the_size_of_a_jpeg_after_long_metadata_is_found(before: int) -> None:
    """Photographs have long metadata, with thumbnails, before their size."""
    assert counted({"image": address("image/jpeg", jpeg(640, 480, before))}) == 85 + 2 * 170


def test_base64_with_line_breaks_and_without_padding_is_decoded() -> None:
    lines = "\r\n".join(text_of(png(600, 600))[at : at + 76] for at in range(0, 200, 76))
    assert counted({"image": f"data:image/png;base64,{lines.rstrip('=')}"}) == SQUARE


@pytest.mark.timing
def test_large_images_are_not_fully_decoded() -> None:
    part = {"image": address("image/png", png(1024, 1024, padding=20_000_000))}
    began = time.perf_counter()
    assert counted(part) == SQUARE
    assert time.perf_counter() - began < 0.2


@pytest.mark.parametrize(
    "data",
    [
        png(0, 0),
        png(9, 9)[:12],
        gif(5, 5)[:8],
        gif(40_000, 40_000),
        jpeg(5, 5)[:6],
        b"\xff\xd8" + b"\xff" * 99,
        b"RIFF\x10\0\0\0WEBPVP8?",
        b"II*\0\x08\0\0\0" + b"\xff" * 99,
        b"MM\0*\xff\xff\xff\xff",
        b"<svg width='x' height='y'>",
        b"<svg width='100%' height='1'>",
        b"P6 x",
        b"\0\0\0\x18ftypavif" + bytes(99),
        b"",
    ],
)
def test_a_broken_image_has_the_maximum_tokens(data: bytes) -> None:
    assert counted({"image": {"data": text_of(data)}}) == MOST
    assert image_size(media_in({"image": {"data": text_of(data)}})[0]) is None


@pytest.mark.parametrize("error", [ValueError, struct.error, OverflowError])
def test_a_broken_image_has_the_maximum_tokens_with_older_versions_of_imagesize(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_: object) -> None:
        raise error("no picture")

    monkeypatch.setattr("imagesize.get", get)
    assert counted({"image": address("image/png", png(9, 9))}) == MOST


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "input_audio", "input_audio": {"data": text_of(bytes(64_000)), "format": "wav"}}, 64),
        *(({"audio": address("audio/wav", bytes(32_001))}, 64), ({"audio": address("audio/x-wav", b"")}, 32)),
        ({"type": "input_audio", "input_audio": {"data": text_of(bytes(16_000)), "format": "mp3"}}, 64),
        ({"inline_data": {"mime_type": "audio/ogg", "data": bytes(8_001)}}, 64),
        *(({"audio": "https://example.com/a.mp3"}, 60 * 32), ({"type": "audio"}, 60 * 32)),
        ({"type": "video"}, 60 * 295),
        ({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}, 60 * 295),
        ({"inline_data": {"mime_type": "video/mp4", "data": text_of(bytes(125_001))}}, 2 * 295),
        ({"file_data": {"file_uri": "gs://a/b", "mime_type": "video/mp4"}}, 60 * 295),
        ({"video": ["https://example.com/1.jpg", address("image/png", png(9, 9))]}, MOST + 255),
    ],
)
def test_tokens_of_audio_and_video_are_estimated_from_their_bytes(part: dict[str, Any], expected: int) -> None:
    assert counted(part) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "file", "file": {"file_data": address("application/pdf", bytes(60_000)), "filename": "a.pdf"}}, 3),
        ({"type": "input_file", "file_data": address("application/pdf", b"%PDF-1.7")}, 1),
        ({"type": "document", "source": {"type": "base64", "data": text_of(bytes(20_001))}}, 2),
        ({"inline_data": {"mime_type": "application/pdf", "data": text_of(bytes(19_999))}}, 1),
        ({"type": "file", "file": {"file_data": address("application/zip", bytes(20_000))}}, 1),
        ({"type": "file", "file": {"file_id": "file-1"}}, 10),
        ({"type": "input_file", "file_url": "https://example.com/a.pdf"}, 10),
        ({"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}, 10),
        *(({"type": "file"}, 10), ({"unknown": 1}, 10)),
    ],
)
def test_tokens_of_documents_are_estimated_from_their_bytes(part: dict[str, Any], expected: int) -> None:
    assert counted(part) == 3_000 * expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "abcd"}, 2),
        ({"type": "base64", "media_type": "text/plain", "data": text_of(b"abc" * 10)}, 15),
        ({"type": "content", "content": "你好"}, 3),
        ({"type": "content", "content": [{"type": "text", "text": "ab"}, "c", {"type": "image"}]}, 1 + MOST),
        ({"type": "text", "data": "\ud800"}, 2),
    ],
)
def test_text_documents_are_counted_as_text(source: dict[str, Any], expected: int) -> None:
    assert counted({"type": "document", "source": source}) == expected


def test_estimating_media_tokens_does_not_modify_the_part() -> None:
    part = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "ab"}]}}
    before = str(part)
    estimate_media_tokens(part)
    assert str(part) == before


def test_estimating_media_tokens_opens_no_file_or_connection() -> None:
    code = """
import sys
def hook(event, args):
    if event.startswith("socket.") or (event == "open" and "example" in str(args[0])):
        print(event, args)
sys.addaudithook(hook)
from lazyprompt.tokens.media import estimate_media_tokens
for url in ("http://example.com/a.png", "/example.png", "file:///example.png"):
    estimate_media_tokens({"image": url})
    estimate_media_tokens({"image": {"data": url}})
print("urllib.request" in sys.modules)
"""
    needs("imagesize")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603 - our own code
    assert done.stdout.splitlines()[1:] == []


# Image tokens on OpenAI's bills: community.openai.com/t/1281361, and JOHNISKING/image-token-cost for GPT-6 (auto,
# high) and GPT-5.5 (auto).
def test_image_tiles_equal_openais_bills() -> None:
    assert [tiles(2049, 513), tiles(2050, 513), tiles(1, 9_999), tiles(768, 2048)] == [8, 4, 4, 8]


def test_image_patches_equal_openais_guide_and_bills() -> None:
    old, high = Limit(2048, 1536), Limit(2048, 2500)
    assert patches(1024, 1024, old) == 1024
    assert patches(1800, 2400, old) == 1452
    assert patches(4000, 1474, old) == 1536
    assert patches(2048, 2048, high) == 2500
    assert patches(1, 99_999, Limit(0, 1536)) == 1536


@pytest.mark.parametrize(
    ("width", "height", "gpt_6", "gpt_6_high", "gpt_5_5"),
    [
        *((256, 256, 77, 77, 77), (1024, 1024, 1229, 1229, 1229), (1280, 720, 1104, 1104, 1104)),
        *((1080, 1920, 2448, 2448, 2448), (2560, 1440, 4320, 2931, 4320), (3840, 2160, 9792, 2931, 9792)),
        (4032, 3024, 14_364, 2942, 11_868),
    ],
)
def test_image_tokens_equal_openais_bills(width: int, height: int, gpt_6: int, gpt_6_high: int, gpt_5_5: int) -> None:
    size = (width, height)
    assert picture_tokens(rule_for("gpt-6-astra"), size) == gpt_6
    assert picture_tokens(rule_for("gpt-6-astra"), size, "high") == gpt_6_high
    assert picture_tokens(rule_for("gpt-5.5"), size) == gpt_5_5


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4o-mini", "gpt-4.1-nano", "o4-mini", "gpt-5.2", "gpt-5.4", "gpt-5.5"])
@pytest.mark.parametrize("detail", ["low", "high", "original", "auto", ""])
def test_no_image_has_more_tokens_than_an_image_of_unknown_size(model: str, detail: str) -> None:
    rule = rule_for(model)
    sizes = [(1, 1), (1, 99_999), (99_999, 2), (777, 3333), (2048, 2048), (4999, 5001), (9_999, 9_999)]
    assert all(0 < picture_tokens(rule, size, detail) <= picture_tokens(rule, None, detail) for size in sizes)


LONG, LARGE = (9000, 500), (3000, 3000)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ("gpt-4 gpt-4o chatgpt-4o gpt-4.1 gpt-4.5 cl100k_base gpt-4-turbo", (85, 765, 765, 765, 765, 1445, 85)),
        ("gpt-4o-mini ft:gpt-4o-mini:a", (2833, 25501, 25501, 25501, 25501, 48169, 2833)),
        ("gpt-4.1-mini", (415, 415, 6636, 415, 6636, 9954, 9954)),
        *(("gpt-4.1-nano", (630, 630, 3742, 630, 3742, 3779, 3779)), ("o1 o3", (75, 675, 675, 675, 675, 1275, 75))),
        ("o4-mini", (441, 441, 2617, 441, 2617, 2642, 2642)),
        ("computer-use-preview", (65, 581, 581, 581, 581, 1097, 65)),
        ("gpt-5 gpt-5.1", (70, 630, 630, 630, 630, 1190, 70)),
        ("gpt-5-mini", (308, 308, 1826, 308, 1826, 1844, 1844)),
        ("gpt-5-nano", (384, 384, 2282, 384, 2282, 2304, 2304)),
        ("gpt-5-codex-mini gpt-5.1-codex-mini", (415, 415, 2465, 415, 2465, 2489, 2489)),
        ("gpt-5.2 gpt-5.3", (308, 308, 4916, 308, 4916, 7373, 7373)),
        *(("gpt-5.4", (308, 308, 3000, 2482, 3000, 3000, 7373)), ("gpt-5.5", (20, 308, 3000, 2482, 10604, 12000, 308))),
        ("gpt-5.6", (20, 308, 3000, 5415, 10604, 12000, 308)),
        ("gpt-5. gpt-6 gpt-5.7", (20, 2614, 3000, 5415, 10604, 12000, 308)),
        ("unknown", (630, 2614, 6636, 5415, 10604, 12000, 9954)),
    ],
)
def test_image_tokens_follow_the_rule_of_each_model(models: str, expected: tuple[int, ...]) -> None:
    """A long image at low, high and original, a large one at high and auto, and one of unknown size."""
    asked = [(LONG, "low"), (LONG, "high"), (LARGE, "high"), (LONG, "original"), (LARGE, "auto"), (None, "auto")]
    for model in models.split():
        rule = rule_for(model)
        assert tuple(picture_tokens(rule, size, detail) for size, detail in [*asked, (None, "low")]) == expected
    assert (rule_for(models.split(maxsplit=1)[0]) is None) == (models == "unknown")


def test_an_image_for_gpt_5_6_is_scaled_down_to_65535_pixels() -> None:
    assert picture_tokens(rule_for("gpt-5.6"), (65_536, 32_769), "original") == ceil(1.2 * 2048 * 1024)


PNG = "data:image/png;base64,AAAA"
LEAST = "A" * 1024


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            [Media("image", "image/png", data="AAAA", detail="low")],
        ),
        ({"image_url": "https://a", "detail": "high"}, [Media("image", detail="high")]),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AAAA"}},
            [Media("image", "image/gif", data="AAAA")],
        ),
        ({"inline_data": {"mime_type": "audio/wav", "data": b"abc"}}, [Media("audio", "audio/wav", data=b"abc")]),
        (
            {"file": {"file_data": "data:video/mp4;base64,AAAA", "filename": "a"}},
            [Media("video", "video/mp4", data="AAAA")],
        ),
        (
            {"source": {"type": "text", "media_type": "text/plain", "data": "abc"}},
            [Media("file", "text/plain", text="abc")],
        ),
        (
            {"source": {"content": [{"type": "text", "text": "a"}, {"image": "a"}, "b", {"type": "image"}]}},
            [Media("file", text="a"), Media("image", data="a"), Media("image")],
        ),
        ({"type": "audio", "audio": LEAST}, [Media("audio", data=LEAST)]),
        ({"type": "audio", "audio": LEAST[1:]}, [Media("audio")]),
        ({"type": "audio", "audio": f"file:{LEAST}"}, [Media("audio")]),
        ({"type": "audio", "audio": "data:;base64,AAAA"}, [Media("audio", data="AAAA")]),
        ({"type": "audio", "audio": "DATA:image/GIF,abc"}, [Media("image", "image/gif")]),
        ({"images": ["AAAA", b"a"]}, [Media("image", data="AAAA"), Media("image", data=b"a")]),
        ({"video": ["https://a", PNG]}, [Media("image"), Media("image", "image/png", data="AAAA")]),
        ({"type": "video", "video": {"format": "mp4", "source": {"bytes": b"a"}}}, [Media("video", "mp4", data=b"a")]),
        *(({"type": "x"}, [Media("file")]), ({"image": []}, [Media("file")])),
        *(({"image": None}, [Media("file")]), ({"type": "image", "image": 3}, [Media("image")])),
        (
            {"type": "input_audio", "input_audio": {"data": "data:audio/ogg;base64,AAAA", "format": "wav"}},
            [Media("audio", "audio/ogg", data="AAAA")],
        ),
        ({"file": {"url": "https://a", "mimeType": "image/png"}}, [Media("image", "image/png")]),
        ({"type": "image", "image": {}}, [Media("image")]),
        ({"source": {"text": "a"}}, [Media("file", text="a")]),
        ({"file": {"content": "abc", "data": None}}, [Media("file", text="abc")]),
    ],
)
def test_media_in_a_part_are_found_with_their_type_and_data(part: dict[str, Any], expected: list[Media]) -> None:
    assert media_in(part) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [(png(0, 9), None), (png(9, 0), None), (png(1, 9), (1, 9)), (text_of(png(9, 1)), (9, 1)), (None, None), ("", None)],
)
def test_image_size_requires_a_positive_width_and_height(data: Any, expected: tuple[int, int] | None) -> None:
    assert image_size(Media("image", data=data)) == expected
