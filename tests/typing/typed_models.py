# ruff: noqa: T201 - a value that is printed is used
"""Models, conversations and answers as users write them; see typed_prompts.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

from pydantic import BaseModel

from lazyprompt import (
    AsyncReplyStream,
    CallRecord,
    Chat,
    ChatPrompter,
    Delta,
    ModuleError,
    Msg,
    OnlineChatModule,
    Payload,
    Prompty,
    Rendered,
    Reply,
    ReplyStream,
    ResponseParser,
    Secret,
    ToolResultBlock,
    ToolUseBlock,
    TrainableModule,
)


class City(BaseModel):
    name: str
    country: str


def weather(city: str) -> str:
    return f"Sun in {city}."


def print_call(record: CallRecord) -> None:
    print(record)


online = OnlineChatModule("openai", model="gpt-5-mini", api_key=Secret("a"), temperature=0.2, hooks=[print_call])
local = TrainableModule(Path("model.gguf"), max_tokens=20, chat_template="{{ messages }}")


def attached() -> None:
    assert_type(online.prompt(ChatPrompter("Be kind.")), OnlineChatModule)
    assert_type(local.prompt("Be kind."), TrainableModule)
    online.prompt({"system": "Be kind.", "user": "{question}"}, history=[["Hello", "Hi"]])
    online.prompt(Prompty.loads("user:\nHi")).prompt()


def asked() -> None:
    reply = online({"input": "Hello"}, [["Hello", "Hi"]], [weather], temperature=0.0)
    assert_type(reply, Reply)
    assert_type(reply.upper(), str)
    assert_type(reply.tool_calls, Sequence[ToolUseBlock])
    assert_type(reply.usage, Mapping[str, int] | None)
    assert_type(reply.message, Msg)
    for call in reply.tool_calls:
        print(weather(**call.input))
    if reply.finish == "length":
        print("cut")
    online("Go on.", [*reply.turn, {"role": "user", "content": "And then?"}])
    assert_type(online.payload("Hello"), Payload)


async def asked_in_a_loop() -> None:
    assert_type(await online.acall("Hello"), Reply)
    async with online.astream("Hello") as stream:
        assert_type(stream, AsyncReplyStream)
        async for piece in stream:
            assert_type(piece, str)
    print(stream.reply.thinking)
    await online.aclose()


def streamed() -> None:
    with online.stream("Hello") as stream:
        assert_type(stream, ReplyStream)
        for piece in stream:
            print(piece.upper(), end="")
    for delta in online.stream("Hello").deltas():
        assert_type(delta, Delta)


def structured() -> None:
    reply = online("Name a city.", response_format=City)
    city = reply.parsed
    assert_type(city, Any)
    if isinstance(city, City):
        print(city.country)
    online("Name a city.", response_format={"type": "object", "properties": {"name": {"type": "string"}}})


def started() -> None:
    with local.start(port=8080, n_ctx=4096) as running:
        assert_type(running, TrainableModule)
        assert_type(running("Hello"), Reply)
        assert_type(running.render("Hello"), Rendered)
    if local.status() == "died":
        local.stop()
    try:
        local("Hello")
    except ModuleError as error:
        print(error.kind, error.status)


def talked() -> None:
    chat = online.chat(tools=[weather])
    assert_type(chat, Chat)
    for call in chat("Hello").tool_calls:
        chat.add_result(call, {"sun": True})
    assert_type(chat(), Reply)
    assert_type(chat.run("Hello", tools=[weather], max_rounds=3), Reply)
    assert_type([*chat.steps("Hello")], list[Delta | Reply | ToolResultBlock])
    assert_type(chat.history, Sequence[Msg])
    chat.save("chat.json")


def read_back() -> None:
    parser = ResponseParser("qwen3", tools=[{"type": "function", "function": {"name": "weather"}}])
    assert_type(parser.parse("Hello"), Msg)
    stream = parser.stream()
    assert_type(stream.feed("Hel"), list[Delta])
    assert_type(stream.finish(), Msg)


def wrong_modules() -> None:
    OnlineChatModule(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    OnlineChatModule("openai", "gpt-5-mini")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    OnlineChatModule("openai", api_key=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    OnlineChatModule("openai", hooks=print_call)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    TrainableModule(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    TrainableModule("model.gguf", markers=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    online.prompt(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    online.prompt(["Be kind."])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrong_calls() -> None:
    online("Hello", "Before")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    online("Hello", tools=weather)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    online("Hello", response_format="json")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    online("Hello", response_format=City("Cusco", "Peru"))  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType, reportCallIssue]
    print(online("Hello").txt)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    print(online("Hello").usage["prompt_tokens"])  # type: ignore[index]  # pyright: ignore[reportOptionalSubscript, reportUnknownArgumentType]
    for piece in online.stream("Hello"):
        print(piece.text)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    print(*online.astream("Hello"))  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType]
    online.chat().add_result("1", "Sun.")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def wrong_waiting() -> None:
    await online("Hello")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    print(online.acall("Hello").thinking)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
