"""Content parts of all providers: the block of each, and the errors for malformed fields."""

import re
from typing import Any

import pytest
from pydantic import BaseModel

from lazyprompt import Base64Source, ToolUseBlock, URLSource, VideoBlock
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import AudioBlock, FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock
from lazyprompt.messages.read_parts import read_parts

URL = "https://a.example/b"
AT, DATA, PDF = URLSource(URL), Base64Source("image/png", "AAAA"), Base64Source("application/pdf", "AAAA")
INLINE = "data:application/pdf;base64,AAAA"


class Address(BaseModel):
    """An object of a client."""

    url: str


DOCUMENTS: list[Any] = [
    ({"type": "text", "data": "a"}, Base64Source("text/plain", "YQ==")),
    ({"type": "content", "content": "a"}, Base64Source("text/plain", "YQ==")),
    ({"type": "url", "url": URL}, AT),
    ({"type": "base64", "media_type": "application/pdf", "data": "AAAA"}, PDF),
]


IMAGES: list[Any] = [
    ({"source_type": "base64", "mime_type": "image/png", "data": "AAAA"}, DATA),
    ({"mime_type": "image/png", "base64": "AAAA"}, DATA),
    *(({key: URL}, AT) for key in ("url", "path", "image")),
]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "output_text", "text": "a"}, TextBlock("a")),
        ({"type": "refusal", "refusal": "no"}, TextBlock("no")),
        ({"type": "redacted_thinking", "data": "x"}, ThinkingBlock(redacted="x", provider="anthropic")),
        ({"type": "reasoning", "reasoning": "hm"}, ThinkingBlock("hm")),
        ({"type": "tool_call", "id": "c", "name": "f", "args": {"a": 1}}, ToolUseBlock("c", "f", {"a": 1})),
        ({"type": "tool_call", "id": "c", "name": "f"}, ToolUseBlock("c", "f")),
        ({"type": "tool_result", "tool_use_id": "c", "content": "1"}, ToolResultBlock("c", output="1")),
        (
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "1"}], "is_error": True},
            ToolResultBlock("c", output=[TextBlock("1")], is_error=True),
        ),
        *(
            ({"type": "document", "source": source, "title": "t"}, FileBlock(held, filename="t"))
            for source, held in DOCUMENTS
        ),
        *(({"type": "image", **fields}, ImageBlock(held)) for fields, held in IMAGES),
        *(({"type": "image_url", "image_url": given}, ImageBlock(AT)) for given in (URL, Address(url=URL))),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "auto"}}, ImageBlock(AT, detail="auto")),
        ({"type": "input_image", "image_url": URL, "detail": "low"}, ImageBlock(AT, detail="low")),
        *(({"type": "input_image", "image_url": URL} | more, ImageBlock(AT)) for more in ({}, {"detail": "auto"})),
        ({"type": "video_url", "video_url": {"url": URL}}, VideoBlock(AT)),
        ({"type": "audio_url", "audio_url": URL}, AudioBlock(AT)),
        ({"type": "file_url", "file_url": URL}, FileBlock(AT)),
        ({"type": "document_url", "document_url": URL, "document_name": "t"}, FileBlock(AT, filename="t")),
        ({"type": "input_audio", "input_audio": URL}, AudioBlock(AT)),
        *(
            ({"type": "input_audio", "input_audio": given}, AudioBlock(Base64Source(f"audio/{kind}", data)))
            for given, kind, data in [
                ("UklGAAAA", "wav", "UklGAAAA"),
                ("AAAA", "mpeg", "AAAA"),
                ({"data": "AAAA"}, "wav", "AAAA"),
                ({"data": "AAAA", "format": "mp3"}, "mpeg", "AAAA"),
                ({"data": "AAAA", "format": "flac"}, "flac", "AAAA"),
            ]
        ),
        ({"type": "file", "file": {"file_data": INLINE, "filename": "t"}}, FileBlock(PDF, filename="t")),
        ({"type": "file", "url": URL}, FileBlock(AT)),
        ({"type": "input_file", "file_data": INLINE, "filename": "t"}, FileBlock(PDF, filename="t")),
        ({"type": "input_file", "file_url": URL}, FileBlock(AT)),
        *(
            ({key: URL}, kind(AT))
            for key, kind in [("image", ImageBlock), ("audio", AudioBlock), ("video", VideoBlock)]
        ),
        ({"text": "a"}, TextBlock("a")),
    ],
)
def test_content_part_becomes_a_block(part: Any, block: Any) -> None:
    part_fields: dict[str, Any] = {}
    assert read_parts([part], "w[0].c", part_fields) == (block,)
    assert part_fields == {}
    assert read_parts([{**part, "own": 1, "empty": "", "none": None, "more": []}], "w[0].c", part_fields) == (block,)
    assert part_fields == {"c[0]": {"own": 1}}


@pytest.mark.parametrize(
    ("more", "block", "rest"),
    [
        *(({}, TextBlock(""), {}), ({"own": 1}, TextBlock(""), {"own": 1})),
        *(({"own": 1, "image": URL}, ImageBlock(AT), {"own": 1}), ({"image": 3}, TextBlock(""), {"image": 3})),
    ],
)
def test_content_part_with_null_text_is_read_by_its_other_keys(more: Any, block: Any, rest: Any) -> None:
    """A key beside a null text raised a KeyError."""
    part_fields: dict[str, Any] = {}
    assert read_parts([{"text": None, **more}], "c", part_fields) == (block,)
    assert part_fields == ({"c[0]": rest} if rest else {})


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"file_id": "f"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "input_file", "file_id": "f"},
        {"type": "new", "a": ""},
    ],
)
def test_content_part_without_a_matching_block_is_kept_in_the_part_fields(part: Any) -> None:
    part_fields: dict[str, Any] = {}
    assert read_parts([part], "c", part_fields) == ()
    assert part_fields == {"c[0]": part}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        *(({"text": 3}, " has the unknown type None; expected one"), ({"image": None}, " has the unknown type None")),
        ({"type": "refusal", "refusal": 3}, ".refusal must be a string, not int"),
        ({"type": "redacted_thinking"}, ".data is missing or empty"),
        ({"type": "reasoning", "reasoning": 3}, ".reasoning must be a string"),
        ({"type": "reasoning", "extras": {"signature": 3}}, ".extras.signature must be a string"),
        ({"type": "tool_call", "name": "f"}, ".id is missing or empty"),
        ({"type": "tool_call", "id": "c"}, ".name is missing or empty"),
        ({"type": "tool_call", "id": "c", "name": "f", "args": 3}, ".args must be a dict, not int"),
        ({"type": "tool_result", "tool_use_id": ""}, ".tool_use_id is missing or empty"),
        ({"type": "tool_result", "tool_use_id": "c", "content": 3}, ".content must be a list, not int"),
        ({"type": "document", "source": 3}, ".source must be a dict, not int"),
        ({"type": "document", "source": {}, "title": 3}, ".title must be a string"),
        ({"type": "document", "source": {"type": "text", "data": 3}}, ".source.data must be a string"),
        ({"type": "document", "source": {"type": "disk"}}, ".source has the type 'disk'; expected 'base64', 'url'"),
        ({"type": "image", "mime_type": 3}, ".mime_type must be a string"),
        ({"type": "image", "data": "AAAA"}, ".mime_type is missing or empty"),
        ({"type": "image", "base64": 3}, ".base64 must be a string"),
        ({"type": "image", "data": 3}, ".data must be a string"),
        ({"type": "video", "path": 3}, ".path must be a string"),
        ({"type": "video", "own": 3}, ".url (or base64, or source) is missing or empty"),
        ({"type": "file"}, ".url (or base64, or source) is missing or empty"),
        ({"type": "video_url", "video_url": 3}, ".video_url must be a dict, not int"),
        ({"type": "video_url", "video_url": {}}, ".video_url.url is missing or empty"),
        ({"type": "document_url"}, ".document_url is missing or empty"),
        ({"type": "document_url", "document_url": URL, "document_name": 3}, ".document_name must be a string"),
        ({"type": "image_url"}, ".image_url must be a dict, not NoneType"),
        ({"type": "image_url", "image_url": {}}, ".image_url.url is missing or empty"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": 3}}, ".image_url.detail must be a string"),
        ({"type": "input_image"}, ".image_url is missing or empty"),
        ({"type": "input_image", "detail": 3}, ".detail must be a string"),
        ({"type": "input_audio"}, ".input_audio must be a dict, not NoneType"),
        ({"type": "input_audio", "input_audio": {"format": 3}}, ".input_audio.format must be a string"),
        ({"type": "input_audio", "input_audio": {}}, ".input_audio.data is missing or empty"),
        ({"type": "input_audio", "input_audio": {"data": 3}}, ".input_audio.data must be a string"),
        ({"type": "file", "file": 3}, ".file must be a dict, not int"),
        ({"type": "file", "file": {}}, ".file must contain 'file_data' or 'file_id'"),
        ({"type": "file", "file": {"file_data": 3}}, ".file.file_data must be a string"),
        ({"type": "file", "file": {"file_data": INLINE, "filename": 3}}, ".file.filename must be a string"),
        ({"type": "input_file"}, ".file_data (or file_url) is missing or empty"),
        ({"type": "input_file", "filename": 3}, ".filename must be a string"),
    ],
)
def test_malformed_content_part_is_refused_with_the_path_of_the_field(part: Any, message: str) -> None:
    with pytest.raises(HistoryError, match="^" + re.escape(f"c[0]{message}")):
        read_parts([part], "c", {})
