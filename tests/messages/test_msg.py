import copy
import dataclasses
import pickle
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import Base64Source, Msg, ToolResultBlock, ToolUseBlock, URLSource, VideoBlock
from lazyprompt.errors import HistoryError, MediaError
from lazyprompt.messages.msg import AudioBlock, FileBlock, ImageBlock, TextBlock, ThinkingBlock, block_from, text_of

URL = URLSource("https://example.org/a.png", "image/png")
DATA = Base64Source("image/png", "aGVsbG8=")
BLOCKS: list[Any] = [
    TextBlock("hi"),
    ThinkingBlock("hmm", signature="proof"),
    ToolUseBlock("1", "f", {"a": [1]}),
    ToolResultBlock("1", "f", "42"),
    ToolResultBlock("1", "f", (TextBlock("42"), ImageBlock(DATA))),
    ImageBlock(URL, detail="low"),
    AudioBlock(DATA),
    VideoBlock(URL),
    FileBlock(DATA, filename="a.pdf"),
]
VALUES = [*BLOCKS, URL, DATA, Msg("Bob", "hi", "user"), Msg("Bob", tuple(BLOCKS), "user", url="u", metadata={"k": [1]})]
MEDIA = [ImageBlock, AudioBlock, VideoBlock, FileBlock]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_blocks_sources_and_messages_are_frozen_slotted_hashable_and_picklable(value: Any) -> None:
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, "other")
    assert not hasattr(value, "__dict__")
    for twin in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):  # noqa: S301 - our bytes
        assert twin == value
        assert type(twin) is type(value)
        assert hash(twin) == hash(value)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_block_round_trips_through_its_dict_form(block: Any) -> None:
    assert block.type == type(block).kind
    assert block_from(dataclasses.asdict(block), "content") == block
    assert block_from(block, "content") is block


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_block_refuses_a_wrong_value_of_its_type_field(block: Any) -> None:
    with pytest.raises(HistoryError, match=f"^the type of a {type(block).__name__} must be '{block.type}', not"):
        dataclasses.replace(block, type="wrong")


def test_arguments_metadata_and_content_are_copied() -> None:
    arguments: Any = {"a": [1]}
    call = ToolUseBlock("1", "f", arguments)
    message = Msg("Bob", "hi", "user", metadata=arguments)
    content: Any = [{"type": "text", "text": "hi"}]
    message_of_blocks = Msg("Bob", content, "user")
    arguments["a"].append(2)
    content.clear()
    assert call.input == {"a": [1]}
    assert message.metadata == {"a": [1]}
    assert message_of_blocks.content == (TextBlock("hi"),)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *((TextBlock, {"text": None}), (ToolUseBlock, {"id": 5, "name": "f"})),
        *((ToolUseBlock, {"id": "1", "name": "f"} | bad) for bad in ({"name": None}, {"input": "{}"}, {"input": [1]})),
        *((ToolResultBlock, fields) for fields in ({"id": 5}, {"id": "1", "name": 5})),
        *((ToolResultBlock, {"id": "1", "output": output}) for output in (5, None)),
        (ToolResultBlock, {"id": "1", "output": {"type": "text", "text": "x"}}),
        *((ImageBlock, {"source": URL, "detail": 5}), (FileBlock, {"source": URL, "filename": 5})),
    ],
)
def test_block_field_of_a_wrong_type_is_refused_with_the_name_of_that_type(kind: Any, fields: Any) -> None:
    (wrong,) = (value for value in fields.values() if not isinstance(value, str | URLSource) or value == "{}")
    with pytest.raises(HistoryError, match=f"not {type(wrong).__name__}"):
        kind(**fields)


@pytest.mark.parametrize(
    ("kind", "name", "label"),
    [(TextBlock, "text", "text"), (ThinkingBlock, "thinking", "text"), (ThinkingBlock, "signature", "signature")],
)
def test_block_field_of_a_wrong_type_is_refused_with_the_field_name(kind: Any, name: str, label: str) -> None:
    with pytest.raises(HistoryError, match=f"^the {label} of a {kind.__name__} must be a string, not int"):
        kind(**{name: 5})


@pytest.mark.parametrize("bad", [{"a": {1}}, {"a": float("nan")}, {1: 2}])
def test_arguments_and_metadata_that_are_not_json_are_refused(bad: Any) -> None:
    with pytest.raises(HistoryError, match=r"^f\.input"):
        ToolUseBlock("1", "f", bad)
    with pytest.raises(HistoryError, match=r"^metadata"):
        Msg("Bob", "hi", "user", metadata=bad)


LONE = "\ud800"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *((TextBlock, {"text": LONE}), (ThinkingBlock, {"thinking": LONE})),
        *((ThinkingBlock, {"thinking": "x", "signature": LONE}), (ToolUseBlock, {"id": LONE, "name": "f"})),
        *((ToolUseBlock, {"id": "1", "name": LONE}), (ToolUseBlock, {"id": "1", "name": "f", "input": {"a": [LONE]}})),
        *((ToolResultBlock, {"id": LONE}), (ToolResultBlock, {"id": "1", "name": LONE})),
        (ToolResultBlock, {"id": "1", "output": LONE}),
        (ToolResultBlock, {"id": "1", "output": [{"type": "text", "text": LONE}]}),
        *((ImageBlock, {"source": URL, "detail": LONE}), (FileBlock, {"source": URL, "filename": LONE})),
        *((URLSource, {"url": LONE}), (URLSource, {"url": "u", "media_type": LONE})),
        *((Base64Source, {"media_type": LONE, "data": ""}), (Base64Source, {"media_type": "image/png", "data": LONE})),
        *((Msg, {"name": LONE, "content": "x", "role": "user"}), (Msg, {"name": "x", "content": LONE, "role": "user"})),
        (Msg, {"name": "x", "content": [{"type": "text", "text": LONE}], "role": "user"}),
        (Msg, {"name": "x", "content": "x", "role": "user", "url": LONE}),
        (Msg, {"name": "x", "content": "x", "role": "user", "metadata": {LONE: 1}}),
    ],
)
def test_lone_surrogate_is_refused_in_every_field_of_blocks_sources_and_messages(kind: Any, fields: Any) -> None:
    with pytest.raises((HistoryError, MediaError), match=r"has a lone surrogate \(\\ud800\) at index 0"):
        kind(**fields)


@pytest.mark.parametrize("kind", MEDIA)
def test_media_blocks_accept_a_source_or_its_dict_form(kind: Any) -> None:
    assert kind({"type": "url", "url": URL.url, "media_type": "image/png"}) == kind(URL)
    assert kind({"type": "base64", "media_type": "image/png", "data": DATA.data}).source == DATA


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (5, "the source of ImageBlock must be a URLSource or Base64Source, not int"),
        ({"type": "ftp"}, "unknown source type 'ftp'; expected one of 'url', 'base64'"),
        ({"type": ["url"]}, r"unknown source type \['url'\]; expected one of"),
        ({"url": "u"}, "unknown source type None; expected one of"),
        ({"type": "url", "address": "u"}, r"invalid fields for URLSource \(type, address\)"),
        ({"type": "base64", "data": "x"}, r"invalid fields for Base64Source \(type, data\): .*media_type"),
        ({"type": "url", "url": 5}, "the url of a URLSource must be a string, not int"),
    ],
)
def test_malformed_media_source_is_refused(source: Any, error: str) -> None:
    with pytest.raises(MediaError, match=f"^{error}"):
        ImageBlock(source)


def test_repr_of_a_media_block_leaves_out_base64_data() -> None:
    assert "aGVsbG8=" not in repr(ImageBlock(DATA))
    assert "image/png" in repr(ImageBlock(DATA))


@pytest.mark.parametrize(
    ("kind", "name", "media_type"),
    [
        *((ImageBlock, "图 1.png", "image/png"), (VideoBlock, "a.mp4", "video/mp4")),
        (FileBlock, "a.pdf", "application/pdf"),
    ],
)
def test_from_file_reads_the_file_immediately(tmp_path: Path, kind: Any, name: str, media_type: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x00\xffdata")
    block = kind.from_file(path)
    assert kind.from_file(str(path)) == block
    path.unlink()
    assert type(block) is kind
    assert block.source.media_type == media_type
    assert b64decode(block.source.data) == b"\x00\xffdata"
    assert getattr(block, "filename", name) == name


def test_from_file_refuses_missing_files_and_unknown_suffixes_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"cannot read '.*nowhere\.png': No such file"):
        ImageBlock.from_file(tmp_path / "nowhere.png")
    (tmp_path / "picture").write_bytes(b"x")
    with pytest.raises(MediaError, match=r"no known MIME type for the suffix of '.*picture'"):
        ImageBlock.from_file(tmp_path / "picture")


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (5, r"here\[1\] must be a block such as .*, not int"),
        (None, r"here\[1\] must be a block such as .*, not NoneType"),
        ("text", r"here\[1\] must be a block such as .*, not str"),
        ({}, r"here\[1\] has the unknown type None; expected one of text, thinking, tool_use"),
        ({"type": "txt"}, r"here\[1\] has the unknown type 'txt' .*did you mean 'text'\?"),
        ({"type": ["text"]}, r"here\[1\] has the unknown type \['text'\] .*; expected one of"),
        ({"type": "text", "txt": "x"}, r"invalid fields for TextBlock \(type, txt\)"),
        ({"type": "text", 5: "x"}, r"invalid fields for TextBlock \(type, 5\)"),
    ],
)
def test_malformed_block_is_refused_with_its_position(item: Any, error: str) -> None:
    with pytest.raises(HistoryError, match=f"^{error}"):
        block_from(item, "here[1]")


def test_malformed_block_in_a_tool_result_is_refused_with_its_position() -> None:
    with pytest.raises(HistoryError, match=r"^the output of tool 'f'\[0\] must be a block such as .*, not int"):
        ToolResultBlock("1", "f", [5])  # type: ignore[list-item]


def test_text_of_content_joins_the_text_blocks_with_newlines() -> None:
    blocks = (TextBlock("a"), ThinkingBlock("t"), ImageBlock(URL), TextBlock("b"))
    assert text_of(blocks) == "a\nb"
    assert text_of("plain") == "plain"
    assert Msg("Bob", blocks, "user").text == "a\nb"
    assert ToolResultBlock("1", "f", blocks).text == "a\nb"
    assert ToolResultBlock("1", "f", "plain").text == "plain"


def test_plain_text_is_one_block_and_empty_or_missing_content_has_no_blocks() -> None:
    assert Msg("Bob", "hi", "user").blocks == (TextBlock("hi"),)
    assert Msg("Bob", "", "user").blocks == ()
    assert Msg("Bob", (TextBlock("hi"),), "user").blocks == (TextBlock("hi"),)
    message = Msg("Bob", None, "assistant", metadata=None)
    assert (message.content, message.metadata) == ((), {})


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"role": "asistant"}, r"unknown role 'asistant' .*did you mean 'assistant'\?\); expected one of system, "),
        *(({"role": None}, "unknown role None"), ({"role": ["user"]}, r"unknown role \['user'\]")),
        ({"name": None}, "the name of a message must be a string, not NoneType"),
        ({"content": 5}, "the content of 'Bob' must be a string or a list of blocks, not int"),
        ({"content": {"type": "text", "text": "x"}}, "the content of 'Bob' must be a string or a list of blocks, not"),
        ({"content": [5]}, r"content\[0\] must be a block such as .*, not int"),
        ({"url": 5}, "the URL of the message from 'Bob' must be a string or a list of strings, not int"),
        ({"metadata": [("a", 1)]}, "the metadata of 'Bob' must be a dict, not list"),
    ],
)
def test_malformed_message_is_refused(fields: Any, error: str) -> None:
    with pytest.raises(HistoryError, match=f"^{error}"):
        Msg(**({"name": "Bob", "content": "x", "role": "user"} | fields))
