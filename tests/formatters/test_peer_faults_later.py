"""Faults that were reproduced in a peer's formatters, each with the right behaviour here: 10 to 26.

A line tells what goes wrong there. Faults 14 and 25 are of its token counters, not of a formatter.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from formatters.helpers import (
    BYE,
    CALLING,
    HI,
    IMAGE,
    KINDS,
    PHOTO,
    SEES,
    answering,
    call,
    called,
    calling,
    judged,
    places,
    reported,
    result,
    said,
    texts,
)
from lazyprompt import (
    AudioBlock,
    Base64Source,
    ChatFormatter,
    ImageBlock,
    MediaError,
    MediaResolver,
    Msg,
    MultiAgentFormatter,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    URLSource,
)
from lazyprompt.formatters.providers import PROVIDERS
from support.conversations import PNG
from support.media import PNG as PNG_BYTES
from support.media import Site
from support.paths import TESTS

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

TWO_CALLS = calling(call("c1"), call("c2", "g"))
TWO_PICTURES = answering(result("c1", IMAGE), result("c2", PHOTO, name="g"))


def test_f10_deepseek_keeps_a_message_of_thoughts_alone() -> None:
    """A message that held nothing but thinking was dropped."""
    messages = judged(ChatFormatter("deepseek"), HI, calling(ThinkingBlock("hm")), BYE)["messages"]
    assert messages[1] == {"role": "assistant", "content": "", "reasoning_content": "hm"}


def test_f10_deepseek_says_that_it_takes_no_pictures() -> None:
    """They were dropped, and a log was all there was to tell."""
    payload = judged(ChatFormatter("deepseek"), Msg("Ann", [TextBlock("look"), IMAGE], "user"))
    assert [str(entry) for entry in payload.report if entry.kind == "image"] == [
        "messages[0].content[1] (image) left out: deepseek takes no image"
    ]


@pytest.mark.parametrize("provider", SEES)
@pytest.mark.parametrize("kind", KINDS)
def test_f11_a_message_reads_no_file(kind: type[ChatFormatter], provider: str) -> None:
    """Any path in a message, /etc/hostname too, was read and sent."""
    for path in ("/etc/hostname", "file:///etc/hostname", "secret.txt", "~/.netrc"):
        asks = Msg("Ann", [ImageBlock(URLSource(path))], "user")
        with pytest.raises(MediaError, match=r"messages\[0\]\.content\[0\] is the local file"):
            kind(provider).format(asks)


def test_f11_a_text_that_is_called_a_picture_is_refused(tmp_path: Path) -> None:
    """The ending alone was believed."""
    (tmp_path / "a.jpg").write_text("root:x:0:0", encoding="ascii")
    formatter = ChatFormatter("openai", media=MediaResolver(roots=[tmp_path]))
    with pytest.raises(MediaError, match="is 'image/jpeg' by its ending, but its bytes are none"):
        formatter.format(Msg("Ann", [ImageBlock(URLSource(str(tmp_path / "a.jpg")))], "user"))


@pytest.mark.parametrize("provider", ["openai", "ollama", "moonshot", "dashscope"])
def test_f11_an_address_within_is_neither_asked_nor_passed_on(provider: str, site: Site) -> None:
    """Whatever host a message named was asked, without a limit in time or size."""
    asks = Msg("Ann", [ImageBlock(URLSource(site.gives("/a.png", PNG_BYTES)))], "user")
    with pytest.raises(MediaError, match="host"):
        ChatFormatter(provider, media=MediaResolver(hosts=["example.com"])).format(asks)
    assert site.seen == []


@pytest.mark.asyncio
async def test_f12_the_event_loop_runs_on_while_media_are_loaded(site: Site) -> None:
    """Media were fetched on the event loop itself."""
    free = threading.Event()

    def slow(_: socket.socket) -> Iterator[bytes]:
        # A loop that stood still could not set it.
        if free.wait(20):
            yield b"HTTP/1.1 200 OK\r\n\r\n" + PNG_BYTES

    formatter = ChatFormatter("ollama", media=MediaResolver(hosts=["127.0.0.1"], timeout=30))
    asks = [ImageBlock(URLSource(site.does(f"/{number}", slow))) for number in range(3)]
    task = asyncio.create_task(formatter.aformat(Msg("Ann", asks, "user")))
    await asyncio.sleep(0.05)
    free.set()
    assert len((await task)["messages"][0]["images"]) == 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_f13_no_file_is_left_behind(provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round of formatting wrote the media of results to files that nobody took away."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for kind in KINDS:
        kind(provider).format(HI, TWO_CALLS, TWO_PICTURES)
    assert list(tmp_path.iterdir()) == []


STRICT = """
from lazyprompt import ChatFormatter, LazyPromptError, Msg, ToolResultBlock
from lazyprompt.formatters.providers import PROVIDERS
wrong = [
    lambda: Msg("Ann", 5, "user"),
    lambda: Msg("Ann", "hi", "friend"),
    lambda: Msg("Ann", [{"type": "text"}], "user"),
    lambda: ChatFormatter("nobody"),
    lambda: ChatFormatter("openai").format(),
    lambda: ChatFormatter("openai").format({"role": "nobody", "content": "hi"}),
    *(lambda p=p: ChatFormatter(p).validate({"messages": []}) for p in PROVIDERS),
]
told = []
for act in wrong:
    try:
        act()
    except LazyPromptError:
        told.append(1)
print(len(wrong) - len(told))
"""


def test_f15_mistakes_are_errors_without_asserts_too() -> None:
    """Messages were checked by assert statements, which python -O leaves out."""
    done = subprocess.run([sys.executable, "-O", "-c", STRICT], check=True, capture_output=True)  # noqa: S603 - our own code
    assert done.stdout.strip() == b"0"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_f16_a_thought_is_never_said_aloud(provider: str) -> None:
    """One form wrote the reasoning down as plain text."""
    payload = judged(ChatFormatter(provider), HI, calling(ThinkingBlock("§secret§"), TextBlock("ok")), BYE)
    assert "ok" in "".join(texts(payload))
    assert "§secret§" not in "".join(texts(payload))
    # Either it goes back as a thought, or the report tells.
    assert ("§secret§" in said(payload)) != bool(reported(payload, "thinking"))


@pytest.mark.parametrize("provider", SEES)
@pytest.mark.parametrize("kind", KINDS)
def test_f17_pictures_of_parallel_results_stand_behind_all_results(kind: type[ChatFormatter], provider: str) -> None:
    """They were put between one result and the next."""
    payload = judged(kind(provider), HI, TWO_CALLS, TWO_PICTURES)
    items = next(payload[key] for key in ("messages", "contents", "input") if key in payload)
    assert PNG in json.dumps(items[-2:])
    roles = [item.get("role") for item in items]
    if provider == "mistral":  # it wants an answer between results and the user
        assert roles[-4:] == ["tool", "tool", "assistant", "user"]
    elif roles.count("tool"):
        assert roles[-3:] == ["tool", "tool", "user"]


@pytest.mark.parametrize("results", [[TWO_PICTURES], [answering(block) for block in TWO_PICTURES.blocks]])
def test_f18_gemini_gets_one_turn_for_all_results_and_their_pictures(results: list[Msg]) -> None:
    """Each result was a turn of its own, and so were the pictures."""
    contents = judged(ChatFormatter("gemini"), HI, TWO_CALLS, *results)["contents"]
    kinds = ["function_response", "function_response", "text", "inline_data", "text", "inline_data"]
    assert [next(iter(part)) for part in contents[-1]["parts"]] == kinds
    assert len(contents) == 3


def test_f18_a_thought_signature_goes_back_as_what_it_is() -> None:
    """It was kept in place of the call's id, and sent as that."""
    answer = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}
    formatter = ChatFormatter("gemini", model="gemini-3-pro")
    message = formatter.parse({"candidates": [{"content": {"role": "model", "parts": [answer]}}]})
    (use,) = message.blocks
    assert isinstance(use, ToolUseBlock)
    part = judged(formatter, HI, message, answering(result(use.id)))["contents"][1]["parts"][0]
    assert part["thought_signature"] == "c2ln"
    assert part["function_call"]["id"] == use.id != "c2ln"


def test_f19_anthropic_gets_all_system_text_in_front() -> None:
    """Later system text went out under a role that there is not."""
    payload = judged(ChatFormatter("anthropic"), Msg("s", "one", "system"), HI, Msg("s", "two", "system"), BYE)
    assert payload["system"] == "one\n\ntwo"
    texts = [{"type": "text", "text": text} for text in ("hi", "bye")]
    assert payload["messages"] == [{"role": "user", "content": texts}]
    assert reported(payload, "text", "moved") == ["messages[2]"]


@pytest.mark.parametrize("provider", CALLING)
@pytest.mark.parametrize("kind", KINDS)
def test_f19_a_call_without_a_result_gets_one(kind: type[ChatFormatter], provider: str) -> None:
    """It was sent as it was, and refused."""
    payload = judged(kind(provider), HI, TWO_CALLS, answering(result("c2", "§2", name="g")), BYE)
    first, second = places(said(payload), "(no result)", "§2")
    assert first < second
    assert reported(payload, "tool_result", "added") == ["messages[1]"]


@pytest.mark.parametrize("provider", CALLING)
def test_f20_each_group_of_messages_has_its_tags(provider: str) -> None:
    """Only the first group had tags; where that was empty, none had."""
    empty = Msg("Ann", "", "user")
    exchange = calling(call("c1")), answering(result("c1", "42"))
    payload = judged(
        MultiAgentFormatter(provider), empty, *exchange, HI, calling(call("c2")), answering(result("c2")), BYE
    )
    text = said(payload)
    assert "<history>\\nAnn: hi\\n</history>" in text
    assert "<history>\\nAnn: bye\\n</history>" in text


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini", "dashscope", "vllm", "openai-responses"])
def test_f20_texts_and_pictures_stay_in_order(provider: str) -> None:
    """Text was joined behind the picture that stood in it."""
    payload = judged(MultiAgentFormatter(provider), Msg("Ann", [TextBlock("§A"), IMAGE, TextBlock("§B")], "user"))
    first, picture, second = places(said(payload), "§A", PNG, "§B")
    assert first < picture < second


@pytest.mark.parametrize("provider", PROVIDERS)
def test_f20_who_only_thinks_has_no_line(provider: str) -> None:
    """A name stood there with nothing behind it."""
    payload = judged(MultiAgentFormatter(provider), HI, Msg("Bot", [ThinkingBlock("hm")], "assistant"), BYE)
    assert "Ann: hi\\nAnn: bye" in said(payload)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_f21_a_picture_is_never_written_as_text(provider: str) -> None:
    """In a result, the repr of the block, base64 and all, became part of the prompt."""
    for kind in KINDS:
        payload = judged(kind(provider), HI, TWO_CALLS, TWO_PICTURES)
        assert "hi" in "".join(texts(payload))
        assert PNG not in "".join(texts(payload))
        assert "ImageBlock(" not in said(payload)
        assert "Base64Source(" not in said(payload)


def test_f21_xai_sees_what_agents_show_and_says_what_it_cannot() -> None:
    """Pictures of the assistant, and all of a merged history, vanished."""
    shows = Msg("Bot", [TextBlock("see"), IMAGE], "assistant")
    assert PNG in said(judged(MultiAgentFormatter("xai"), HI, shows))
    payload = judged(ChatFormatter("xai"), HI, shows)
    assert reported(payload, "image") == ["messages[1].content[1]"]


@pytest.mark.parametrize("provider", CALLING)
def test_f22_parallel_calls_are_one_message(provider: str) -> None:
    """Ollama got a message for each of them, and reads only the first."""
    payload = judged(ChatFormatter(provider), HI, TWO_CALLS, TWO_PICTURES)
    if provider == "ollama":
        assert [len(message.get("tool_calls", ())) for message in payload["messages"]] == [0, 2, 0, 0, 0]
    first, second = (said(payload).index(f'"{call_id}"') for call_id, _ in called(payload))
    assert '"role"' not in said(payload)[first:second]


def test_f23_a_file_url_is_decoded_and_stays_within_its_root(tmp_path: Path) -> None:
    """Its path was opened with the escapes in it, and any text went out as a picture."""
    (tmp_path / "a b.png").write_bytes(PNG_BYTES)
    (tmp_path / "secret.txt").write_text("secret", encoding="ascii")
    formatter = ChatFormatter("anthropic", media=MediaResolver(roots=[tmp_path]))
    good = ImageBlock(URLSource(f"file://{tmp_path}/a%20b.png"))
    source = judged(formatter, Msg("Ann", [good], "user"))["messages"][0]["content"][0]["source"]
    assert source["media_type"] == "image/png"
    lie = ImageBlock(URLSource(f"file://{tmp_path}/secret.txt", "image/png"))
    with pytest.raises(MediaError, match="its bytes are none"):
        formatter.format(Msg("Ann", [lie], "user"))


@pytest.mark.parametrize("url", ["https://xxx.png", "https://example.com/%7Ea?b=ü&c#d"])
def test_f23_an_address_is_passed_on_as_it_was_given(url: str) -> None:
    """It was normalised, and came out as another."""
    asks = Msg("Ann", [ImageBlock(URLSource(url))], "user")
    assert judged(ChatFormatter("openai"), asks)["messages"][0]["content"][0]["image_url"]["url"] == url


@pytest.mark.parametrize("provider", CALLING)
def test_f24_arguments_that_are_no_json_stay_with_their_call(provider: str) -> None:
    """Three forms sent the broken text on, and three others mended it."""
    broken = ToolUseBlock("c1", "f", raw_input='{"city": "§Zür')
    payload = judged(ChatFormatter(provider), HI, calling(broken), answering(result("c1")))
    assert "§Zür" in said(payload)
    assert reported(payload, "tool_use", "changed") == ["messages[1].content[0]"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_f24_a_sound_of_another_type_is_no_crash(provider: str) -> None:
    """Sounds that were declared to be fine raised a TypeError."""
    ogg = AudioBlock(Base64Source("audio/ogg", "T2dnUwACAAAA"))
    payload = judged(ChatFormatter(provider), Msg("Ann", [TextBlock("hear"), ogg], "user"))
    assert ("T2dnUwACAAAA" in said(payload)) != bool(reported(payload, "audio"))


SAME = """
from random import Random
from support.conversations import Maker
from lazyprompt import ChatFormatter, MultiAgentFormatter
from lazyprompt.formatters.providers import PROVIDERS
for kind in (ChatFormatter, MultiAgentFormatter):
    for provider in PROVIDERS:
        for seed in (1, 2, 3, 5):
            payload = kind(provider).format(*Maker(Random(seed)).conversation())
            print(payload, payload.report)
"""


def test_f24_the_same_conversation_is_the_same_bytes_in_every_process() -> None:
    """Media had random names, so that no prompt could be cached."""
    outputs = {
        subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", SAME],
            check=True,
            capture_output=True,
            cwd=TESTS,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


def test_f24_gemini_gets_no_empty_text() -> None:
    """Empty texts were sent on."""
    payload = judged(ChatFormatter("gemini"), Msg("Ann", [TextBlock(""), TextBlock("hi")], "user"))
    assert payload["contents"][0]["parts"] == [{"text": "hi"}]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_f26_a_rule_holds_for_every_provider(kind: type[ChatFormatter], provider: str) -> None:
    """Each provider had a copy of the same loop, and a mended fault lived on in the others."""
    late = Msg("s", "two", "system"), Msg("Bot", "", "assistant"), answering(result("c1", "§1", IMAGE))
    first = Msg("Bot", [TextBlock("§0"), call("c1"), call("天气 1", "a.b:c"), ThinkingBlock("hm")], "assistant")
    payload = judged(kind(provider), first, *late, answering(result("天气 1", "§2", name="a.b:c")), HI, HI)
    found = places(said(payload), "§0", *(() if provider == "ollama-generate" else ("§1", "§2")))
    assert found == sorted(found)
