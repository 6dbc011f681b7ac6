"""Media in a formatter: opened, sent as a URL, loaded once, or left out and reported."""

import asyncio
import os
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

from formatters.helpers import (
    BYE,
    HI,
    KINDS,
    PORTRAIT,
    WITH_IMAGES,
    WITHOUT_URLS,
    Characters,
    answering,
    call,
    calling,
    formatters_of,
    result,
)
from formatters.payloads import accepted, dump, judged, reported
from lazyprompt import ChatFormatter, MediaError, MediaResolver, Payload
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import AudioBlock, Base64Source, FileBlock, ImageBlock, Msg, TextBlock, URLSource
from support.conversations import JPEG, PDF
from support.media import PNG as PNG_BYTES
from support.media import Site

Formats: TypeAlias = Callable[..., Payload]


LOADED = b64encode(PNG_BYTES).decode()
FETCHING = tuple(name for name in WITH_IMAGES if name not in WITHOUT_URLS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    (path / "a.png").write_bytes(PNG_BYTES)
    return path


@pytest.fixture(params=["format", "aformat"])
def formats(request: pytest.FixtureRequest) -> Formats:
    """The synchronous and the asynchronous way to a payload."""
    if request.param == "format":
        return lambda formatter, *messages: formatter.format(*messages)
    return lambda formatter, *messages: asyncio.run(formatter.aformat(*messages))


def shows(*urls: str | os.PathLike[str], media_type: str | None = None) -> Msg:
    return Msg("Ann", [TextBlock("look"), *(ImageBlock(URLSource(str(url), media_type)) for url in urls)], "user")


def fault(formats: Formats, formatter: ChatFormatter, *messages: Msg) -> str:
    with pytest.raises(MediaError) as error:
        formats(formatter, *messages)
    return str(error.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "deepseek"])
@pytest.mark.parametrize("path", ["a.png", "./a", "/etc/hostname", "file:///etc/hostname", "~/a.png", "C:\\a.png"])
def test_local_path_needs_a_resolver(formats: Formats, kind: type[ChatFormatter], provider: str, path: str) -> None:
    error = fault(formats, kind(provider), HI, shows(path))
    assert error.startswith("messages[1].content[1] is the local file ")
    assert "media=MediaResolver(roots=[...])" in error
    assert "ImageBlock.from_file(" in error


@pytest.mark.parametrize("kind", KINDS)
def test_error_names_the_place_of_a_local_path_in_a_tool_result(formats: Formats, kind: type[ChatFormatter]) -> None:
    answer = answering(result("c1", "see", ImageBlock(URLSource("/etc/hostname"))))
    error = fault(formats, kind("anthropic"), HI, calling(call("c1")), answer)
    assert error.startswith("messages[2].content[0].output[1] is the local file '/etc/hostname'")


@pytest.mark.parametrize("kind", KINDS)
def test_error_names_the_place_of_the_first_bad_path(formats: Formats, kind: type[ChatFormatter], root: Path) -> None:
    formatter = kind("openai", media=MediaResolver(roots=[root]))
    error = fault(formats, formatter, HI, shows("/etc/hostname"), BYE, shows("/etc/hostname"))
    assert error.startswith("messages[1].content[1]: '/etc/hostname' is not in")


@pytest.mark.parametrize("kind", KINDS)
def test_file_outside_the_roots_fails(formats: Formats, kind: type[ChatFormatter], root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(PNG_BYTES)
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    formatter = kind("openai", media=MediaResolver(roots=[root], hosts=["example.com"]))
    outside = f"{root}/../secret.png", tmp_path / "secret.png", root / "link.png"
    for path in ("/etc/hostname", "file:///etc/hostname", *outside):
        error = fault(formats, formatter, HI, shows(path))
        assert error.startswith("messages[1].content[1]: ")
        assert "is not in" in error
    assert dump(formats(formatter, shows(root / "a.png"))).count(LOADED) == 1


def test_large_or_mistyped_local_file_is_refused(formats: Formats, root: Path) -> None:
    formatter = ChatFormatter("openai", media=MediaResolver(roots=[root]))
    os.truncate(root / "a.png", 5 << 30)
    limit = "file is too large: 5,368,709,120 bytes; the limit is 20,971,520; increase max_bytes= of the media resolver"
    assert limit in fault(formats, formatter, shows(root / "a.png"))
    (root / "a.txt").write_bytes(b"root:x:0:0")
    mistyped = "is declared as 'image/png' by its media_type, but the content is not"
    assert mistyped in fault(formats, formatter, shows(root / "a.txt", media_type="image/png"))


@pytest.mark.parametrize(
    ("data", "error"), [(PDF, "content is application/pdf"), ("a!", "is not base64"), ("", "is empty")]
)
def test_invalid_image_data_is_refused(data: str, error: str) -> None:
    with pytest.raises(MediaError, match=rf"^messages\[0\]\.content\[0\]: .*{error}"):
        ChatFormatter("openai").format(Msg("Ann", [ImageBlock(Base64Source("image/png", data))], "user"))


def test_wrong_image_type_of_base64_data_is_corrected() -> None:
    payload = judged(ChatFormatter("openai"), Msg("Ann", [ImageBlock(Base64Source("image/png", JPEG))], "user"))
    assert f"data:image/jpeg;base64,{JPEG}" in dump(payload)
    assert reported(payload, "image", "changed") == ["messages[0].content[0]"]


@pytest.mark.parametrize("provider", FETCHING)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "[::1]", "169.254.169.254", "2130706433"])
def test_url_of_a_private_host_is_refused(formats: Formats, provider: str, host: str) -> None:
    assert "is on a private host" in fault(formats, ChatFormatter(provider), shows(f"http://{host}/a.png"))


@pytest.mark.parametrize("provider", FETCHING)
def test_allowed_url_is_sent_without_being_loaded(formats: Formats, provider: str, site: Site) -> None:
    assert dump(formats(ChatFormatter(provider), shows(PORTRAIT))).count(PORTRAIT) == 1
    formatter = ChatFormatter(provider, media=MediaResolver(hosts=["127.0.0.1", "*.example.org"]))
    url = site.gives("/a.png")
    assert dump(accepted(formatter, formats(formatter, shows(url)))).count(url) == 1
    limited = ChatFormatter(
        provider, media=MediaResolver(hosts=["127.0.0.1"]), token_counter=Characters(), max_tokens=900
    )
    assert dump(formats(limited, *[Msg("Ann", "x" * 90, "user")] * 20, shows(url))).count("x" * 90) < 20
    assert "is on a host that is not allowed; add the host to hosts=" in fault(formats, formatter, shows(PORTRAIT))
    assert "host" in fault(formats, ChatFormatter(provider, media=MediaResolver(hosts=["example.com"])), shows(url))
    assert site.seen == []


@pytest.mark.parametrize("provider", WITHOUT_URLS)
def test_url_is_loaded_for_providers_that_fetch_no_urls(formats: Formats, provider: str, site: Site) -> None:
    formatter = ChatFormatter(provider, media=MediaResolver(hosts=["127.0.0.1"]))
    payload = accepted(formatter, formats(formatter, shows(site.gives("/a.png"))))
    assert dump(payload).count(LOADED) == 1
    strict = ChatFormatter(provider, media=MediaResolver(hosts=["example.com"]))
    assert "host" in fault(formats, strict, shows(site.gives("/a.png")))
    assert len(site.seen) == 1
    assert "is on a host that is not allowed" in fault(formats, formatter, shows(PORTRAIT))
    left = accepted(formatter, formats(ChatFormatter(provider), shows(PORTRAIT)))
    assert [(entry.where, entry.text) for entry in left.report if entry.kind == "image"] == [
        ("messages[0].content[1]", PORTRAIT)
    ]
    assert "pass media=MediaResolver(hosts=[...]) to load it" in str(left.report)


@pytest.mark.parametrize("url", ["gs://b/a.png", "url_to_png1", "ftp://example.com/a.png", "javascript:alert(1)"])
def test_url_of_an_unsupported_scheme_is_an_error(formats: Formats, url: str) -> None:
    error = fault(formats, ChatFormatter("openai"), shows(url))
    assert error.startswith(
        f"messages[0].content[1] has the unsupported URL '{url}'; expected http(s), a local path or base64"
    )


@formatters_of(WITHOUT_URLS)
def test_each_media_url_is_loaded_once(formats: Formats, kind: type[ChatFormatter], provider: str, site: Site) -> None:
    urls = [site.gives(f"/{number}.png") for number in range(3)]
    answer = answering(result("c1", *(ImageBlock(URLSource(url)) for url in urls)))
    said = [Msg("Ann", "x" * 99, "user")] * 60
    messages = [shows(*urls), *said, calling(call("c1")), answer, shows(urls[0])]
    resolver = MediaResolver(hosts=["127.0.0.1"])
    counter = Characters()
    limited = kind(provider, media=resolver, token_counter=counter, max_tokens=3_000)
    for formatter in (kind(provider, media=resolver), limited):
        site.seen.clear()
        text = dump(accepted(formatter, formats(formatter, *messages)))
        assert sorted(each["target"] for each in site.seen) == ["/0.png", "/1.png", "/2.png"]
        assert text.count(LOADED) >= 1
    assert counter.asked > 2
    assert text.count("x" * 99) < 60


def test_media_left_out_of_the_payload_are_not_loaded(formats: Formats, site: Site, root: Path) -> None:
    url = site.gives("/a.png")
    resolver = MediaResolver(roots=[root], hosts=["127.0.0.1"])
    for provider, message in (
        ("deepseek", shows(url, root / "a.png")),
        ("ollama", Msg("Bot", [ImageBlock(URLSource(url))], "assistant")),
        ("ollama", Msg("Ann", [AudioBlock(URLSource(url))], "user")),
        ("ollama", Msg("Ann", "hi", "user", url=url.replace(".png", ".mp3"))),
    ):
        payload = formats(ChatFormatter(provider, media=resolver), HI, message)
        assert payload.report
        assert LOADED not in dump(payload)
    assert site.seen == []


def test_media_are_loaded_concurrently(formats: Formats, site: Site) -> None:
    together = threading.Barrier(5, timeout=20)

    def slow(_: socket.socket) -> Iterable[bytes]:
        # No response is sent before all requests have arrived.
        together.wait()
        return [b"HTTP/1.1 200 OK\r\n\r\n" + PNG_BYTES]

    formatter = ChatFormatter("moonshot", media=MediaResolver(hosts=["127.0.0.1"], timeout=30))
    payload = formats(formatter, shows(*(site.does(f"/{number}.png", slow) for number in range(5))))
    assert dump(payload).count(LOADED) == 5


@pytest.mark.asyncio
async def test_aformat_does_not_block_the_event_loop_and_closes_connections_when_cancelled(site: Site) -> None:
    asked, gone = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> Iterable[bytes]:
        asked.set()
        if connection.recv(1) == b"":
            gone.set()
        return []

    formatter = ChatFormatter("ollama", media=MediaResolver(hosts=["127.0.0.1"], timeout=600))
    task = asyncio.create_task(formatter.aformat(shows(site.does("/a.png", wait))))
    # This returns only if the event loop is not blocked.
    assert await asyncio.to_thread(asked.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gone.wait, 20)


def test_text_file_content_is_sent_as_base64(tmp_path: Path) -> None:
    """A file with valid UTF-8 content was sent without base64 encoding."""
    (tmp_path / "a.txt").write_text("ascii bytes", encoding="ascii")
    formatter = ChatFormatter("gemini", media=MediaResolver(roots=[tmp_path]))
    payload = judged(formatter, Msg("Ann", [FileBlock(URLSource(str(tmp_path / "a.txt")))], "user"))
    data = {"mime_type": "text/plain", "data": "YXNjaWkgYnl0ZXM="}
    assert payload["contents"][0]["parts"] == [{"inline_data": data}]


@pytest.mark.parametrize("name", ["a.jpg", "a.JPEG", "a.PNG"])
def test_openai_gets_the_detected_type_of_a_local_image(tmp_path: Path, name: str) -> None:
    """image/jpg was sent, and an upper-case file extension was an error."""
    data, kind = (PNG_BYTES, "png") if name == "a.PNG" else (b"\xff\xd8\xff\xe0" + bytes(24), "jpeg")
    (tmp_path / name).write_bytes(data)
    formatter = ChatFormatter("openai", media=MediaResolver(roots=[tmp_path]))
    payload = judged(formatter, Msg("Ann", [ImageBlock(URLSource(str(tmp_path / name)))], "user"))
    assert payload["messages"][0]["content"][0]["image_url"]["url"].startswith(f"data:image/{kind};base64,")


@pytest.mark.parametrize("provider", ["dashscope", "openai", "ollama", "gemini"])
def test_path_of_a_missing_file_is_an_error(tmp_path: Path, provider: str) -> None:
    """The path itself was sent as a URL."""
    missing = Msg("Ann", [ImageBlock(URLSource(str(tmp_path / "no.png")))], "user")
    with pytest.raises(MediaError, match=r"messages\[0\]\.content\[0\].*No such file"):
        ChatFormatter(provider, media=MediaResolver(roots=[tmp_path])).format(missing)


@pytest.mark.parametrize("url", ["https://xxx.png", "https://example.com/%7Ea?b=ü&c#d"])
def test_image_url_is_sent_unchanged(url: str) -> None:
    """The URL was normalized and changed."""
    asks = Msg("Ann", [ImageBlock(URLSource(url))], "user")
    assert judged(ChatFormatter("openai"), asks)["messages"][0]["content"][0]["image_url"]["url"] == url


@pytest.mark.asyncio
async def test_other_downloads_are_cancelled_when_a_medium_fails_to_load(root: Path, site: Site) -> None:
    # The other downloads continued after the error.
    before = len(asyncio.all_tasks())
    slow = site.does("/slow.png", lambda connection: [connection.recv(1)])
    formatter = ChatFormatter("ollama", media=MediaResolver(roots=[root], hosts=["127.0.0.1"]))
    with pytest.raises(MediaError, match=r"content\[2\].*gone.png"):
        await formatter.aformat(shows(slow, root / "gone.png"))
    assert len(asyncio.all_tasks()) == before


def test_file_in_a_tool_result_of_a_system_message_is_loaded(root: Path) -> None:
    # AgentScope puts results into system messages, where the file was not loaded.
    answer = Msg("system", [result("1", ImageBlock(URLSource(str(root / "a.png"))))], "system")
    payload = judged(ChatFormatter("anthropic", media=MediaResolver(roots=[root])), HI, calling(call("1")), answer)
    assert payload["messages"][2]["content"][0]["content"][0]["source"]["media_type"] == "image/png"
