"""Random conversations, as irregular as real ones, for tests that must pass for all of them."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, TypeVar

from lazyprompt import (
    AudioBlock,
    Base64Source,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from lazyprompt._base.json import JsonObject
    from lazyprompt._base.roles import Role
    from lazyprompt.messages.msg import Block

_T = TypeVar("_T")

WORDS = (
    *("hello", "你好", "the weather", "Zürich", "a\nb", "x: y", "</history>", "{slot}", "🙂", "fin"),
    *("<|im_end|>", "1. one"),
)
NAMES = ("user", "assistant", "Bob", "Alice", "Dr. 李", "Eve\nBob: hi", "a b", "Friday")
TOOLS = ("get_weather", "search", "天气", "a.b:c", "run")
ARGUMENTS: tuple[JsonObject, ...] = ({}, {"city": "Zürich"}, {"at": [1, 2.5, None, {"deep": True}]})
PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
JPEG = b64encode(b"\xff\xd8\xff\xe0" + bytes(24)).decode()
WAV = b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(24)).decode()
MP3 = b64encode(b"ID3\x03\x00" + bytes(24)).decode()
PDF = b64encode(b"%PDF-1.7\n" + bytes(24)).decode()
MP4 = b64encode(b"\x00\x00\x00\x18ftypmp42" + bytes(24)).decode()
MEDIA: tuple[Block, ...] = (
    ImageBlock(Base64Source("image/png", PNG)),
    ImageBlock(Base64Source("image/jpeg", JPEG)),
    ImageBlock(Base64Source("image/bmp", b64encode(b"BM" + bytes(30)).decode())),
    ImageBlock(URLSource("https://example.com/cat.png?size=1")),
    AudioBlock(Base64Source("audio/wav", WAV)),
    AudioBlock(Base64Source("audio/mpeg", MP3)),
    AudioBlock(URLSource("https://example.com/a.mp3")),
    VideoBlock(Base64Source("video/mp4", MP4)),
    VideoBlock(URLSource("https://example.com/v.mp4")),
    FileBlock(Base64Source("application/pdf", PDF), filename="paper.pdf"),
    FileBlock(URLSource("https://example.com/paper.pdf")),
)


class Maker:
    """Makes conversations from one random generator; each text has a unique mark, so that it can be found again."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.marks = 0

    def one(self, items: Sequence[_T]) -> _T:
        return self.chance.choice(items)

    def maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def text(self, *, empty: float = 0.1) -> str:
        if self.maybe(empty):
            return self.one(("", " ", "\n\t"))
        self.marks += 1
        words = " ".join(self.one(WORDS) for _ in range(self.chance.randint(1, 3)))
        return f"{words} §{self.marks}§" + self.one(("", "", " "))

    def random_content(self, role: Role) -> str | list[Block]:
        if self.maybe(0.6):
            return self.text()
        number = self.chance.randint(0, 3)
        blocks = [TextBlock(self.text()) if self.maybe(0.6) else self.one(MEDIA) for _ in range(number)]
        if role == "assistant" and self.maybe(0.4):
            blocks.insert(0, self.thought())
        return blocks

    def thought(self) -> ThinkingBlock:
        text = self.text(empty=0)
        return self.one(
            (
                ThinkingBlock(text),
                ThinkingBlock(text, "c2ln", provider="anthropic"),
                ThinkingBlock(text, "c2ln"),
                ThinkingBlock(redacted="b3BhcXVl", provider="anthropic"),
                ThinkingBlock(text, "c2ln", id="rs_1", provider="openai-responses"),
                ThinkingBlock(text, provider="gemini"),
            )
        )

    def exchange(self, number: int) -> list[Msg]:
        """Calls with their results: together or apart, in order or not, some missing."""
        calls: list[Block] = []
        results: list[ToolResultBlock] = []
        for index in range(self.chance.randint(1, 3)):
            call_id = self.one((f"call_{number}_{index}", f"call_{index}", "天气 1", f"c{number}.{index}" + "x" * 60))
            while any(isinstance(call, ToolUseBlock) and call.id == call_id for call in calls):
                call_id += "a"
            name = self.one(TOOLS)
            arguments = self.one(ARGUMENTS)
            raw = '{"city": "Zür' if self.maybe(0.05) else None
            signature = "c2ln" if self.maybe(0.1) else None
            calls.append(ToolUseBlock(call_id, name, {} if raw else arguments, raw_input=raw, signature=signature))
            results.append(ToolResultBlock(call_id, self.one((name, "")), self.output()))
        if self.maybe(0.5):
            calls.insert(self.chance.randint(0, 1), TextBlock(self.text()))
        if self.maybe(0.3):
            calls.insert(0, self.thought())
        name = self.one(NAMES)
        if self.maybe(0.15):
            results = results[:-1]  # a call without a result
        self.chance.shuffle(results)
        if self.maybe(0.15):
            return [Msg(name, [*calls, *results], "assistant")]
        role: Role = self.one(("tool", "system", "user"))
        together = [results] if results else []
        answers = [Msg("tool", each, role) for each in ([[one] for one in results] if self.maybe(0.5) else together)]
        if answers and role == "user" and self.maybe(0.3):
            answers[0] = Msg("tool", [TextBlock(self.text()), *answers[0].blocks], role)
        if answers and self.maybe(0.1):
            answers.insert(0, Msg("Bob", self.text(), "user"))
        return [Msg(name, calls, "assistant"), *answers]

    def output(self) -> str | list[Block]:
        if self.maybe(0.7):
            return self.text()
        return [TextBlock(self.text(empty=0)), *([self.one(MEDIA)] if self.maybe(0.5) else [])]

    def conversation(self) -> list[Msg]:
        roles: tuple[Role, ...] = ("system", "developer")
        messages = [Msg("system", self.text(), self.one(roles)) for _ in range(self.chance.randint(0, 2))]
        for number in range(self.chance.randint(1, 6)):
            kind = self.chance.random()
            if kind < 0.35:
                messages.append(Msg(self.one(NAMES), self.random_content("user"), "user"))
            elif kind < 0.6:
                messages.append(Msg(self.one(NAMES), self.random_content("assistant"), "assistant"))
            elif kind < 0.67:
                messages.append(Msg("system", self.text(), "system"))
            elif kind < 0.72:
                text, url = self.text(), self.one(("https://example.com/x.png", ("https://e.com/a.mp3",)))
                messages.append(Msg("Bob", text, "user", url=url))
            else:
                messages += self.exchange(number)
        return messages


def lines_by_role(messages: Iterable[Msg]) -> list[tuple[str, str]]:
    """The lines, calls and results of each role, sorted: the same however a form cuts them into messages."""
    found: list[tuple[str, str]] = []
    for message in messages:
        for block in message.blocks:
            role = "tool" if isinstance(block, ToolResultBlock) else message.role
            text = getattr(block, "text", "")
            if isinstance(block, ToolUseBlock):
                text = f"{block.id} {block.name} {block.input}"
            found += ((role, line) for line in text.split("\n") if line)
    # Formatting puts the results of an exchange in the order of its calls, and the texts of an answer on lines of one.
    return sorted(found)
