"""Media on their way through a formatter: what is opened, passed on, loaded once, or left out with a word."""

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
    BLIND,
    BYE,
    HI,
    KINDS,
    PORTRAIT,
    SEES,
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
FETCHING = tuple(name for name in SEES if name not in BLIND)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    (path / "a.png").write_bytes(PNG_BYTES)
    return path


@pytest.fixture(params=["format", "aformat"])
def formats(request: pytest.FixtureRequest) -> Formats:
    """Both ways to a payload, which do the same."""
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
def test_a_local_path_without_a_resolver(formats: Formats, kind: type[ChatFormatter], provider: str) -> None:
    for path in ("cat.png", "./cat", "/etc/hostname", "file:///etc/hostname", "~/cat.png", "C:\\cat.png"):
        told = fault(formats, kind(provider), HI, shows(path))
        assert told.startswith("messages[1].content[1] is the local file ")
        assert "media=MediaResolver(roots=[...])" in told
        assert "ImageBlock.from_file(" in told


def test_the_place_of_a_path_within_a_result_is_told(formats: Formats) -> None:
    answer = answering(result("c1", "see", ImageBlock(URLSource("/etc/hostname"))))
    for kind in KINDS:
        told = fault(formats, kind("anthropic"), HI, calling(call("c1")), answer)
        assert told.startswith("messages[2].content[0].output[1] is the local file '/etc/hostname'")


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_that_is_told_is_the_first(formats: Formats, kind: type[ChatFormatter], root: Path) -> None:
    formatter = kind("openai", media=MediaResolver(roots=[root]))
    told = fault(formats, formatter, HI, shows("/etc/hostname"), BYE, shows("/etc/hostname"))
    assert told.startswith("messages[1].content[1]: '/etc/hostname' is not in")


@pytest.mark.parametrize("kind", KINDS)
def test_files_outside_of_the_roots(formats: Formats, kind: type[ChatFormatter], root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(PNG_BYTES)
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    formatter = kind("openai", media=MediaResolver(roots=[root], hosts=["example.com"]))
    outside = f"{root}/../secret.png", tmp_path / "secret.png", root / "link.png"
    for path in ("/etc/hostname", "file:///etc/hostname", *outside):
        told = fault(formats, formatter, HI, shows(path))
        assert told.startswith("messages[1].content[1]: ")
        assert "is not in" in told
    assert dump(formats(formatter, shows(root / "a.png"))).count(LOADED) == 1


def test_a_picture_of_five_gigabytes_is_not_read(formats: Formats, root: Path) -> None:
    os.truncate(root / "a.png", 5 << 30)
    told = fault(formats, ChatFormatter("openai", media=MediaResolver(roots=[root])), shows(root / "a.png"))
    assert (
        "file is too large: 5,368,709,120 bytes; the limit is 20,971,520; increase max_bytes= of the media resolver"
        in told
    )


@pytest.mark.parametrize(
    ("name", "data", "media_type", "told"),
    [
        ("a.png", b"root:x:0:0", None, "is declared as 'image/png' by its ending, but the content is not"),
        ("a.txt", b"root:x:0:0", "image/png", "is declared as 'image/png' by its media_type, but the content is not"),
    ],
)
def test_a_lying_type(formats: Formats, root: Path, name: str, data: bytes, media_type: str | None, told: str) -> None:
    (root / name).write_bytes(data)
    formatter = ChatFormatter("openai", media=MediaResolver(roots=[root]))
    assert told in fault(formats, formatter, shows(root / name, media_type=media_type))


def test_data_that_lies_is_refused_and_a_wrong_name_of_a_type_mended() -> None:
    formatter = ChatFormatter("openai")
    for data, told in ((PDF, "the content is application/pdf"), ("no base 64!", "is not base64"), ("", "is empty")):
        with pytest.raises(MediaError, match=rf"^messages\[0\]\.content\[0\]: .*{told}"):
            formatter.format(Msg("Ann", [ImageBlock(Base64Source("image/png", data))], "user"))
    payload = judged(formatter, Msg("Ann", [ImageBlock(Base64Source("image/png", JPEG))], "user"))
    assert f"data:image/jpeg;base64,{JPEG}" in dump(payload)
    assert reported(payload, "image", "changed") == ["messages[0].content[0]"]


@pytest.mark.parametrize("provider", FETCHING)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "[::1]", "169.254.169.254", "2130706433"])
def test_a_private_address_is_not_passed_on(formats: Formats, provider: str, host: str) -> None:
    assert "is on a private host" in fault(formats, ChatFormatter(provider), shows(f"http://{host}/a.png"))


@pytest.mark.parametrize("provider", FETCHING)
def test_an_address_is_passed_on(formats: Formats, provider: str, site: Site) -> None:
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


@pytest.mark.parametrize("provider", BLIND)
def test_an_address_is_loaded_for_those_who_fetch_none(formats: Formats, provider: str, site: Site) -> None:
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
def test_an_address_of_no_known_kind_is_an_error(formats: Formats, url: str) -> None:
    told = fault(formats, ChatFormatter("openai"), shows(url))
    assert told.startswith(
        f"messages[0].content[1] has the unsupported URL '{url}'; expected http(s), a local path or base64"
    )


@formatters_of(BLIND)
def test_a_medium_is_loaded_once(formats: Formats, kind: type[ChatFormatter], provider: str, site: Site) -> None:
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


def test_what_is_left_out_is_not_loaded(formats: Formats, site: Site, root: Path) -> None:
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


def test_loads_run_side_by_side(formats: Formats, site: Site) -> None:
    together = threading.Barrier(5, timeout=20)

    def slow(_: socket.socket) -> Iterable[bytes]:
        # No answer comes before all have asked.
        together.wait()
        return [b"HTTP/1.1 200 OK\r\n\r\n" + PNG_BYTES]

    formatter = ChatFormatter("moonshot", media=MediaResolver(hosts=["127.0.0.1"], timeout=30))
    payload = formats(formatter, shows(*(site.does(f"/{number}.png", slow) for number in range(5))))
    assert dump(payload).count(LOADED) == 5


@pytest.mark.asyncio
async def test_the_event_loop_is_not_blocked_and_a_cancelled_call_hangs_up(site: Site) -> None:
    asked, gone = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> Iterable[bytes]:
        asked.set()
        if connection.recv(1) == b"":
            gone.set()
        return []

    formatter = ChatFormatter("ollama", media=MediaResolver(hosts=["127.0.0.1"], timeout=600))
    task = asyncio.create_task(formatter.aformat(shows(site.does("/a.png", wait))))
    # Only a loop that runs on lets this one return.
    assert await asyncio.to_thread(asked.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gone.wait, 20)


def test_bytes_that_are_text_are_base64_too(tmp_path: Path) -> None:
    """A download that happened to be valid UTF-8 was passed on as it was."""
    (tmp_path / "a.txt").write_text("ascii bytes", encoding="ascii")
    formatter = ChatFormatter("gemini", media=MediaResolver(roots=[tmp_path]))
    payload = judged(formatter, Msg("Ann", [FileBlock(URLSource(str(tmp_path / "a.txt")))], "user"))
    data = {"mime_type": "text/plain", "data": "YXNjaWkgYnl0ZXM="}
    assert payload["contents"][0]["parts"] == [{"inline_data": data}]


@pytest.mark.parametrize("name", ["a.jpg", "a.JPEG", "a.PNG"])
def test_openai_gets_the_true_type_of_a_local_picture(tmp_path: Path, name: str) -> None:
    """image/jpg went out, and an ending in capitals was an error."""
    data, kind = (PNG_BYTES, "png") if name == "a.PNG" else (b"\xff\xd8\xff\xe0" + bytes(24), "jpeg")
    (tmp_path / name).write_bytes(data)
    formatter = ChatFormatter("openai", media=MediaResolver(roots=[tmp_path]))
    payload = judged(formatter, Msg("Ann", [ImageBlock(URLSource(str(tmp_path / name)))], "user"))
    assert payload["messages"][0]["content"][0]["image_url"]["url"].startswith(f"data:image/{kind};base64,")


@pytest.mark.parametrize("provider", ["dashscope", "openai", "ollama", "gemini"])
def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path, provider: str) -> None:
    """The path itself was sent as an address."""
    missing = Msg("Ann", [ImageBlock(URLSource(str(tmp_path / "no.png")))], "user")
    with pytest.raises(MediaError, match=r"messages\[0\]\.content\[0\].*No such file"):
        ChatFormatter(provider, media=MediaResolver(roots=[tmp_path])).format(missing)


def test_a_file_url_is_decoded_and_stays_within_its_root(tmp_path: Path) -> None:
    """Its path was opened with the escapes in it, and any text went out as a picture."""
    (tmp_path / "a b.png").write_bytes(PNG_BYTES)
    formatter = ChatFormatter("anthropic", media=MediaResolver(roots=[tmp_path]))
    good = ImageBlock(URLSource(f"file://{tmp_path}/a%20b.png"))
    source = judged(formatter, Msg("Ann", [good], "user"))["messages"][0]["content"][0]["source"]
    assert source["media_type"] == "image/png"


@pytest.mark.parametrize("url", ["https://xxx.png", "https://example.com/%7Ea?b=ü&c#d"])
def test_an_address_is_passed_on_as_it_was_given(url: str) -> None:
    """It was normalised, and came out as another."""
    asks = Msg("Ann", [ImageBlock(URLSource(url))], "user")
    assert judged(ChatFormatter("openai"), asks)["messages"][0]["content"][0]["image_url"]["url"] == url


@pytest.mark.asyncio
async def test_where_one_medium_fails_the_others_stop_loading(root: Path, site: Site) -> None:
    # The others went on loading when nobody waited for them any more.
    before = len(asyncio.all_tasks())
    slow = site.does("/slow.png", lambda connection: [connection.recv(1)])
    formatter = ChatFormatter("ollama", media=MediaResolver(roots=[root], hosts=["127.0.0.1"]))
    with pytest.raises(MediaError, match=r"content\[2\].*gone.png"):
        await formatter.aformat(shows(slow, root / "gone.png"))
    assert len(asyncio.all_tasks()) == before


def test_a_file_in_a_result_is_loaded_whoever_brings_the_result(root: Path) -> None:
    # In a message of the role system, as AgentScope has it, it was not loaded, and then missed.
    answer = Msg("system", [result("1", ImageBlock(URLSource(str(root / "a.png"))))], "system")
    payload = judged(ChatFormatter("anthropic", media=MediaResolver(roots=[root])), HI, calling(call("1")), answer)
    assert payload["messages"][2]["content"][0]["content"][0]["source"]["media_type"] == "image/png"
