"""What becomes of media in a payload: in results, behind them, by address, and what is lost."""

from __future__ import annotations

from base64 import b64encode
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from formatters.helpers import (
    BYE,
    HI,
    IMAGE,
    KINDS,
    PHOTO,
    SEES,
    answering,
    call,
    calling,
    judged,
    reported,
    result,
    said,
)
from lazyprompt import (
    AudioBlock,
    Base64Source,
    ChatFormatter,
    FileBlock,
    FormatError,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.formatters.providers import PROVIDERS
from support.conversations import MP3, MP4, PDF, WAV

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lazyprompt import Payload
    from lazyprompt.messages.msg import Block

    Formats: TypeAlias = Callable[..., Payload]

# They fetch no address themselves.
BLIND = ("ollama", "ollama-generate", "moonshot")
MEDIA: list[Block] = [
    AudioBlock(Base64Source("audio/wav", WAV)),
    AudioBlock(Base64Source("audio/mpeg", MP3)),
    VideoBlock(Base64Source("video/mp4", MP4)),
    FileBlock(Base64Source("application/pdf", PDF), filename="paper.pdf"),
]
PORTRAIT = "https://example.com/a.png"


def shows(url: str) -> Msg:
    return Msg("Ann", [TextBlock("look"), ImageBlock(URLSource(url))], "user")


@pytest.mark.parametrize("provider", SEES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_url_of_a_message_may_be_one_or_several(kind: type[ChatFormatter], provider: str) -> None:
    if provider in BLIND:
        payload = judged(kind(provider), Msg("Ann", "look", "user", url=PORTRAIT))
        assert reported(payload, "image") == ["messages[0].content[1]"]
        return
    one = judged(kind(provider), Msg("Ann", "look", "user", url=PORTRAIT))
    assert one == judged(kind(provider), shows(PORTRAIT))
    several = judged(
        kind(provider), Msg("Ann", "", "user", url=(PORTRAIT, "https://example.com/b", "https://e.com/c.mp3"))
    )
    text = said(several)
    assert text.index(PORTRAIT) < text.index("https://example.com/b")
    # What tells no type counts as a picture, and a sound is a sound.
    assert ("https://e.com/c.mp3" in text) != bool(reported(several, "audio"))


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "ollama-generate"])
@pytest.mark.parametrize("medium", [IMAGE, PHOTO, *MEDIA], ids=lambda block: str(block.kind))
def test_media_of_results_are_native_or_stand_behind_all_results(provider: str, medium: Any) -> None:
    formatter = ChatFormatter(provider)
    answers = answering(result("c1", "§1", medium), result("c2", "§2"))
    payload = judged(formatter, HI, calling(call("c1"), call("c2")), answers, BYE)
    text, data = said(payload), medium.source.data
    rule = formatter.profile.media.get(medium.kind)
    if rule is None or not rule.data:
        assert reported(payload, medium.kind) == ["messages[2].content[0].output[1]"]
        assert data not in text
    elif medium.kind in formatter.profile.result_media:
        assert text.index("§1") < text.index(data) < text.index("§2")
        assert not reported(payload, "tool_result", "moved")
    else:
        assert text.index("§1") < text.index("§2") < text.index(f"({medium.kind} from the tool f)") < text.index(data)
        assert text.count(data) == 1
        assert reported(payload, "tool_result", "moved")


def test_a_result_of_nothing_but_a_picture_says_where_that_is() -> None:
    payload = judged(ChatFormatter("openai"), HI, calling(call("c1")), answering(result("c1", IMAGE)))
    assert payload["messages"][2]["content"] == "(image: in the next message)"


@pytest.mark.parametrize("provider", ["dashscope", "dashscope-multimodal"])
def test_dashscope_takes_the_names_of_files_it_has(provider: str) -> None:
    blocks: list[Block] = [ImageBlock(URLSource("url_to_png1")), VideoBlock(URLSource("oss://bucket/a.mp4"))]
    payload = judged(ChatFormatter(provider), Msg("Ann", blocks, "user"))
    assert payload["messages"][0]["content"] == [{"image": "url_to_png1"}, {"video": "oss://bucket/a.mp4"}]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "ollama"])
def test_a_document_in_a_block_of_pictures_is_left_out(provider: str) -> None:
    block = ImageBlock(Base64Source("application/pdf", PDF))
    payload = judged(ChatFormatter(provider), Msg("Ann", [TextBlock("look"), block], "user"))
    assert PDF not in said(payload)
    (loss,) = (entry.reason for entry in payload.report if entry.is_loss)
    assert loss.endswith(", not application/pdf")


def test_moonshot_takes_the_addresses_of_files_it_has() -> None:
    payload = judged(ChatFormatter("moonshot"), shows("ms://file-1"))
    assert payload["messages"][0]["content"][1]["image_url"] == {"url": "ms://file-1"}
    assert not reported(payload, "image")


def test_gemini_is_told_the_type_of_an_address() -> None:
    blocks: list[Block] = [
        ImageBlock(URLSource("gs://bucket/a.JPG?x=1")),
        VideoBlock(URLSource("https://example.com/v", "video/mp4")),
        FileBlock(URLSource("https://example.com/paper.pdf")),
    ]
    parts = judged(ChatFormatter("gemini"), Msg("Ann", blocks, "user"))["contents"][0]["parts"]
    assert [part["file_data"]["mime_type"] for part in parts] == ["image/jpeg", "video/mp4", "application/pdf"]


def all_objects(value: object) -> Iterator[object]:
    """The mutable objects in a JSON value."""
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from all_objects(item)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_shared_and_no_input_is_changed(kind: type[ChatFormatter], provider: str) -> None:
    tools = (
        []
        if provider == "ollama-generate"
        else [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"at": {}}}}}
        ]
    )
    use = ToolUseBlock("c1", "f", {"at": [1, {"deep": []}]})
    nested: list[Any] = ['{"at": [1, {"deep": []}]}', {"at": [1, {"deep": []}]}]
    dicts: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": f"d{at}", "type": "function", "function": {"name": "f", "arguments": arguments}}
                for at, arguments in enumerate(nested)
            ],
        },
        *({"role": "tool", "tool_call_id": f"d{at}", "content": "§"} for at in range(len(nested))),
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PORTRAIT}}],
        },
    ]
    messages: list[Any] = [
        Msg("s", "Be brief.", "system"),
        HI,
        calling(use),
        answering(result("c1", "§", IMAGE)),
        *dicts,
    ]
    before, formatter = deepcopy((messages, tools)), kind(provider)
    first, second = (judged(formatter, *messages, tools=tools) for _ in range(2))
    assert first == second
    shared = {id(each) for each in all_objects([dicts, tools, use.input])}
    assert not shared & {id(each) for each in all_objects(first)}
    assert not {id(each) for each in all_objects(first)} & {id(each) for each in all_objects(second)}
    for each in list(all_objects(first)):
        each.clear()  # type: ignore[attr-defined]  # lists and dicts have it
    assert (messages, tools) == before
    assert judged(formatter, *messages, tools=tools) == second


@pytest.mark.parametrize("provider", PROVIDERS)
def test_strict_is_an_error_that_lists_all_losses(provider: str) -> None:
    bitmap = ImageBlock(Base64Source("image/bmp", b64encode(b"BM" + bytes(30)).decode()))
    messages = [
        Msg("Ann", [TextBlock("hi"), bitmap, *MEDIA], "user"),
        Msg("Bot", [TextBlock("ok"), IMAGE], "assistant"),
        BYE,
    ]
    payload = ChatFormatter(provider).format(*messages)
    losses = [str(entry) for entry in payload.report if entry.is_loss]
    assert losses
    with pytest.raises(FormatError, match="^strict=True, and the payload cannot carry all: ") as error:
        ChatFormatter(provider, strict=True).format(*messages)
    assert all(loss in str(error.value) for loss in losses)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_strict_does_not_mind_thoughts_names_and_empty_messages(kind: type[ChatFormatter], provider: str) -> None:
    thinks = Msg("Dr. 李", [ThinkingBlock("hm"), TextBlock("hello", signature="c2ln")], "assistant")
    messages = HI, Msg("Eve", "", "user"), Msg("Bob", [ThinkingBlock("hm")], "assistant"), thinks, BYE
    payload = judged(kind(provider, strict=True), *messages)
    assert payload.report
