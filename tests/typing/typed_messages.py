# ruff: noqa: T201 - a value that is printed is used
"""Messages, formatters, counters and budgets as users write them; see typed_prompts.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

from lazyprompt import (
    ApproximateTokenCounter,
    AudioBlock,
    Base64Source,
    Budget,
    CharTokenCounter,
    ChatFormatter,
    FileBlock,
    HuggingFaceTokenCounter,
    ImageBlock,
    MediaResolver,
    Msg,
    MultiAgentFormatter,
    Payload,
    PromptEngine,
    TextBlock,
    ThinkingBlock,
    TiktokenCounter,
    TokenCounter,
    ToolResultBlock,
    ToolUseBlock,
    TrimReport,
    URLSource,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

formatter = ChatFormatter("anthropic", model="claude-haiku-4-5", strict=True, media=MediaResolver(roots=["."]))
ada = Msg("Ada", "Hello", "user")


class Words:
    """A counter of a user's own."""

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        return sum(len(str(message.get("content")).split()) for message in messages) + len(tools or ())

    def count_text(self, text: str) -> int:
        return len(text.split())


class Letters:
    def count(self, text: str) -> int:
        return len(text)


def weather(city: str) -> str:
    return f"Sun in {city}."


def messages() -> list[Msg]:
    return [
        ada,
        Msg("Bob", [TextBlock("Look:"), ImageBlock(URLSource("https://example.com/a.png"))], "assistant"),
        Msg("Bob", [{"type": "text", "text": "Hello"}], "assistant", metadata={"priority": 3}),
        Msg("Bob", [ThinkingBlock("Hm."), ToolUseBlock("1", "weather", {"city": "Rome"})], "assistant"),
        Msg("tool", [ToolResultBlock("1", "weather", "Sun.")], "tool"),
        Msg("Ada", (FileBlock.from_file("a.pdf"), AudioBlock(Base64Source("audio/wav", "aGk="))), "user"),
        Msg(name="Ada", content="Hello", role="user", url="https://example.com/a.png"),
    ]


def blocks(message: Msg) -> None:
    assert_type(message.text, str)
    for block in message.blocks:
        if isinstance(block, ToolUseBlock):
            # As docs/reference/modules.md has it: what a model wrote is any JSON.
            print(block.name, weather(**block.input), block.input["city"])
        elif block.type == "text":
            print(block.text)


def formatted(dicts: list[dict[str, Any]]) -> None:
    assert_type(formatter.format(*messages()), Payload)
    assert_type(formatter.format(messages(), tools=[weather]), Payload)
    assert_type(formatter.format(*dicts), Payload)
    assert_type(formatter.format(dicts), Payload)
    assert_type(formatter.format({"role": "user", "content": "Hello"}, ada)["messages"][0]["role"], Any)
    for entry in formatter.format(ada).report:
        print(entry.where, entry.is_loss)
    trim = formatter.format(ada).trim
    print(trim.dropped if trim else "")
    formatter.validate(formatter.format(ada))
    assert_type(formatter.parse({"content": []}), Msg)
    several = MultiAgentFormatter("openai", history_style="dialogue", model="gpt-5", max_tokens=100)
    assert_type(several.format(*messages()), Payload)
    print(PromptEngine("gpt-5").join("Be kind.", [ada]))


async def formatted_in_a_loop() -> None:
    assert_type(await formatter.aformat(*messages()), Payload)


def budgets(dicts: list[dict[str, Any]]) -> None:
    budget = Budget(1000, TiktokenCounter("gpt-4o", missing="approximate"), "cache", reserve=100, protect=["system", 0])
    assert_type(budget.fit(messages()), tuple[list[Msg], TrimReport])
    assert_type(budget.fit(dicts, tools=[weather]), tuple[list[dict[str, Any]], TrimReport])
    kept, report = budget.fit(messages())
    print(kept[0].text, report.dropped, report.max_tokens, bool(report))
    Budget(100, Words(), policy=lambda given: f"{len(given)} messages")
    Budget(100, priority={"user": 2.0, 0: 1.0}, slots={"context": 50}, cut="middle")


async def budgets_in_a_loop() -> None:
    async def summary(given: Sequence[Mapping[str, Any]]) -> str:
        return f"{len(given)} messages"

    assert_type(await Budget(100, policy=summary).afit(messages()), tuple[list[Msg], TrimReport])


def counters() -> list[TokenCounter]:
    assert_type(CharTokenCounter().count([ada, {"role": "user", "content": "Hello"}]), int)
    assert_type(ApproximateTokenCounter().count_text("Hello"), int)
    return [
        CharTokenCounter(),
        ApproximateTokenCounter(),
        TiktokenCounter("o200k_base"),
        HuggingFaceTokenCounter(Path("tokenizer.json")),
        Words(),
    ]


def wrong_messages() -> None:
    Msg("Ada", "Hello", "boss")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Msg("Ada", 3, "user")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Msg("Ada", "Hello")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Msg("Ada", [3], "user")  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    ada.content = "Bye"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    TextBlock(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ToolUseBlock("1", "weather", "Rome")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ImageBlock("a.png")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    print(ada.blocks[0].text)  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    print(ada.texts)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]


def wrong_formatters() -> None:
    ChatFormatter(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ChatFormatter("anthropic", strct=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ChatFormatter("anthropic", budget=100)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    formatter.format(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    formatter.format(ada, tools=weather)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    print(formatter.format(ada).reports)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    print(formatter.format(ada).report[0].loss)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    MultiAgentFormatter("openai", history_style="tag")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    MultiAgentFormatter("openai", strct=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def wrong_budgets() -> None:
    Budget("100")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Budget(100, policy="newest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Budget(100, Letters())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Budget(100, cut="start")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    counter: TokenCounter = Letters()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(counter)
    TiktokenCounter(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    TiktokenCounter("gpt-4o", missing="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
