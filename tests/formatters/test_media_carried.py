"""Media in payloads: in tool results, after them, as URLs, and media that are left out."""

import tempfile
from base64 import b64encode
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from formatters.helpers import (
    BYE,
    HI,
    IMAGE,
    PHOTO,
    PORTRAIT,
    WITH_IMAGES,
    WITH_TOOLS,
    WITHOUT_URLS,
    answering,
    call,
    calling,
    formatters_of,
    openai_call,
    openai_calling,
    result,
    turn,
)
from formatters.payloads import called, dump, judged, places, reported, roles, texts
from lazyprompt import Base64Source, ChatFormatter, FormatError, Msg, URLSource, VideoBlock
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import AudioBlock, Block, FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolUseBlock
from support.conversations import JPEG, MP3, MP4, PDF, PNG, WAV

MEDIA: list[Block] = [
    AudioBlock(Base64Source("audio/wav", WAV)),
    AudioBlock(Base64Source("audio/mpeg", MP3)),
    VideoBlock(Base64Source("video/mp4", MP4)),
    FileBlock(Base64Source("application/pdf", PDF), filename="paper.pdf"),
]


def shows(url: str) -> Msg:
    return Msg("Ann", [TextBlock("look"), ImageBlock(URLSource(url))], "user")


@formatters_of(WITH_IMAGES)
def test_message_url_can_be_one_url_or_several(kind: type[ChatFormatter], provider: str) -> None:
    one = judged(kind(provider), Msg("Ann", "look", "user", url=PORTRAIT))
    if provider in WITHOUT_URLS:
        assert reported(one, "image") == ["messages[0].content[1]"]
        return
    assert one == judged(kind(provider), shows(PORTRAIT))
    several = judged(
        kind(provider), Msg("Ann", "", "user", url=(PORTRAIT, "https://example.com/b", "https://e.com/c.mp3"))
    )
    text = dump(several)
    assert text.index(PORTRAIT) < text.index("https://example.com/b")
    # A URL of unknown type counts as an image; an .mp3 counts as audio.
    assert ("https://e.com/c.mp3" in text) != bool(reported(several, "audio"))


@pytest.mark.parametrize("provider", WITH_TOOLS)
@pytest.mark.parametrize("medium", [IMAGE, PHOTO, *MEDIA], ids=lambda block: str(block.kind))
def test_media_of_tool_results_stay_in_the_result_or_follow_all_results(provider: str, medium: Any) -> None:
    formatter = ChatFormatter(provider)
    answers = answering(result("c1", "§1", medium), result("c2", "§2"))
    payload = judged(formatter, HI, calling(call("c1"), call("c2")), answers, BYE)
    text, data = dump(payload), medium.source.data
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


@pytest.mark.parametrize("provider", ["dashscope", "dashscope-multimodal"])
def test_dashscope_accepts_names_of_uploaded_files(provider: str) -> None:
    blocks: list[Block] = [ImageBlock(URLSource("url_to_png1")), VideoBlock(URLSource("oss://bucket/a.mp4"))]
    payload = judged(ChatFormatter(provider), Msg("Ann", blocks, "user"))
    assert payload["messages"][0]["content"] == [{"image": "url_to_png1"}, {"video": "oss://bucket/a.mp4"}]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "ollama"])
def test_document_in_an_image_block_is_left_out(provider: str) -> None:
    block = ImageBlock(Base64Source("application/pdf", PDF))
    payload = judged(ChatFormatter(provider), Msg("Ann", [TextBlock("look"), block], "user"))
    assert PDF not in dump(payload)
    (loss,) = (entry.reason for entry in payload.report if entry.is_loss)
    assert loss.endswith(", not application/pdf")


def test_moonshot_accepts_urls_of_uploaded_files() -> None:
    payload = judged(ChatFormatter("moonshot"), shows("ms://file-1"))
    assert payload["messages"][0]["content"][1]["image_url"] == {"url": "ms://file-1"}
    assert not reported(payload, "image")


@pytest.mark.parametrize(
    ("block", "media_type"),
    [
        (ImageBlock(URLSource("gs://bucket/a.JPG?x=1")), "image/jpeg"),
        (ImageBlock(URLSource("https://example.com/a.gif")), "image/gif"),
        (ImageBlock(URLSource("https://example.com/x.png?sig=1")), "image/png"),
        (VideoBlock(URLSource("https://example.com/v", "video/mp4")), "video/mp4"),
        (FileBlock(URLSource("https://example.com/paper.pdf")), "application/pdf"),
    ],
)
def test_gemini_gets_the_mime_type_of_a_url(block: Any, media_type: str) -> None:
    """URLs ending in .jpg, and URLs with a query, were refused."""
    parts = judged(ChatFormatter("gemini"), Msg("Ann", [block], "user"))["contents"][0]["parts"]
    assert parts == [{"file_data": {"file_uri": block.source.url, "mime_type": media_type}}]


def all_objects(value: object) -> Iterator[object]:
    """The mutable objects in a JSON value."""
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from all_objects(item)


@formatters_of(PROVIDERS)
def test_formatting_changes_no_input_and_shares_no_objects_with_it(kind: type[ChatFormatter], provider: str) -> None:
    parameters = {"type": "object", "properties": {"at": {}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}] * (provider in WITH_TOOLS)
    use = ToolUseBlock("c1", "f", {"at": [1, {"deep": []}]})
    nested: list[Any] = ['{"at": [1, {"deep": []}]}', {"at": [1, {"deep": []}]}]
    dicts = [
        openai_calling(*(openai_call(f"d{at}", arguments=arguments) for at, arguments in enumerate(nested))),
        *({"role": "tool", "tool_call_id": f"d{at}", "content": "§"} for at in range(len(nested))),
        turn("user", {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PORTRAIT}}),
    ]
    said = Msg("s", "Be brief.", "system"), HI, calling(use), answering(result("c1", "§", IMAGE))
    messages: list[Any] = [*said, *dicts]
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
def test_strict_formatter_raises_an_error_that_lists_all_losses(provider: str) -> None:
    bitmap = ImageBlock(Base64Source("image/bmp", b64encode(b"BM" + bytes(30)).decode()))
    messages = [
        Msg("Sys", [TextBlock("be brief"), IMAGE], "system"),
        Msg("Ann", [TextBlock("hi"), bitmap, *MEDIA], "user"),
        Msg("Bot", [TextBlock("ok"), IMAGE], "assistant"),
        BYE,
    ]
    payload = ChatFormatter(provider).format(*messages)
    losses = [str(entry) for entry in payload.report if entry.is_loss]
    assert losses
    with pytest.raises(FormatError, match="^the payload would lose content: ") as error:
        ChatFormatter(provider, strict=True).format(*messages)
    assert all(loss in str(error.value) for loss in losses)


@formatters_of(PROVIDERS)
def test_strict_formatter_may_drop_reasoning_names_and_empty_messages(kind: type[ChatFormatter], provider: str) -> None:
    thinks = Msg("Dr. 李", [ThinkingBlock("hm"), TextBlock("hello", signature="c2ln")], "assistant")
    messages = HI, Msg("Eve", "", "user"), Msg("Bob", [ThinkingBlock("hm")], "assistant"), thinks, BYE
    payload = judged(kind(provider, strict=True), *messages)
    assert payload.report


@pytest.mark.parametrize("media_type", ["audio/mpeg", "audio/mp3", "audio/x-mp3"])
def test_every_mime_type_of_mp3_is_accepted(media_type: str) -> None:
    """Only two spellings of MIME types were known; any other was a TypeError."""
    sound = AudioBlock(Base64Source(media_type, MP3))
    payload = judged(ChatFormatter("openai"), Msg("Ann", [sound], "user"))
    assert payload["messages"][0]["content"][0]["input_audio"] == {"data": MP3, "format": "mp3"}


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "xai"])
def test_image_in_an_assistant_message_is_left_out(provider: str) -> None:
    """An image in an assistant message was sent, and the provider refused it."""
    payload = judged(ChatFormatter(provider), HI, Msg("Bot", [TextBlock("see"), IMAGE], "assistant"), BYE)
    assert PNG not in dump(payload)
    assert reported(payload, "image") == ["messages[1].content[1]"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_unsupported_audio_type_is_reported(provider: str) -> None:
    """Audio of a type that the profile listed raised a TypeError."""
    ogg = AudioBlock(Base64Source("audio/ogg", "T2dnUwACAAAA"))
    payload = judged(ChatFormatter(provider), Msg("Ann", [TextBlock("hear"), ogg], "user"))
    assert ("T2dnUwACAAAA" in dump(payload)) != bool(reported(payload, "audio"))


TWO_CALLS = calling(call("c1"), call("c2", "g"))
TWO_RESULTS = result("c1", IMAGE), result("c2", PHOTO, name="g")
# The last roles of a payload with images in results; Mistral requires an assistant turn before the user turn.
ENDS = {
    "openai": ["assistant", "tool", "tool", "user"],
    "mistral": ["tool", "tool", "assistant", "user"],
    "anthropic": ["user", "assistant", "user"],
    "gemini": ["user", "model", "user"],
    "openai-responses": ["function_call", "function_call", "function_call_output", "function_call_output"],
}


@formatters_of(PROVIDERS)
def test_images_of_parallel_tool_results_follow_all_results_in_order(
    kind: type[ChatFormatter], provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images were reversed, put between the results, sent as the repr of a block, or left as temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    payload = judged(kind(provider), HI, TWO_CALLS, answering(*TWO_RESULTS))
    assert judged(kind(provider), HI, TWO_CALLS, *map(answering, TWO_RESULTS)) == payload
    assert list(tmp_path.iterdir()) == []
    text, spoken = dump(payload), "".join(texts(payload))
    assert "hi" in spoken
    assert not [mark for mark in ("ImageBlock(", "Base64Source(") if mark in text]
    assert not [data for data in (PNG, JPEG) if data in spoken]
    if provider == "ollama-generate":
        return
    first, second = (text.index(f'"{call_id}"') for call_id, _ in called(payload))
    assert '"role"' not in text[first:second], "parallel calls are one message"
    if provider in WITH_IMAGES:
        assert second < places(text, PNG, JPEG)[0] < places(text, PNG, JPEG)[1]
        assert roles(payload)[-len(ENDS.get(provider, ENDS["openai"])) :] == ENDS.get(provider, ENDS["openai"])
    if provider == "gemini":
        kinds = ["function_response", "function_response", "text", "inline_data", "text", "inline_data"]
        assert [next(iter(part)) for part in payload["contents"][-1]["parts"]] == kinds


@pytest.mark.parametrize(
    ("given", "sent"), [("audio/mp3", "audio/mp3"), ("audio/mpeg", "audio/mpeg"), ("audio/x-mp3", "audio/mpeg")]
)
def test_gemini_gets_an_audio_type_that_it_documents(given: str, sent: str) -> None:
    # audio/mp3, which its guide lists, was sent as audio/mpeg, which it does not.
    payload = judged(ChatFormatter("gemini"), Msg("user", [AudioBlock(Base64Source(given, MP3))], "user"))
    assert payload["contents"][0]["parts"][0]["inline_data"]["mime_type"] == sent
    assert bool(payload.report) is (given != sent)
