"""Chats that keep their history, with online and local modules."""

import asyncio
import json
from typing import Any

import pytest

from lazyprompt import AlpacaPrompter, Budget, CharTokenCounter, ChatPrompter, Msg
from lazyprompt.errors import EngineError, HistoryError, ModuleError, SlotError, ToolsError
from modules.online_scenes import WAYS, close_connections
from modules.talks import BARE, KINDS, Module, ask_chat, module_of, sent_text, turns, weather
from support.model_server.server import Answer, Cut, Ends, ModelServer, Slow, Status


def test_each_turn_is_added_to_the_history_and_sent_with_the_next_turn(module: Module, lenient: ModelServer) -> None:
    chat = module.chat()
    assert chat("你好 🙂") == "pong"
    lenient.answer = Answer("pong two 🏓")
    chat("and again?")
    assert turns(chat) == [
        *(("user", "你好 🙂"), ("assistant", "pong")),
        *(("user", "and again?"), ("assistant", "pong two 🏓")),
    ]
    assert all(text in sent_text(lenient) for text in ("你好 🙂", "pong", "and again?"))
    assert "你好" not in sent_text(lenient, 0).replace("你好 🙂", "")
    assert chat.module is module
    # Another chat has a history of its own.
    module.chat()("hi")
    assert "again" not in sent_text(lenient)


def test_history_of_the_module_is_sent_but_not_added_to_the_chat_history(module: Module, lenient: ModelServer) -> None:
    module.prompt(ChatPrompter(system="Be kind."), history=[["before", "all"]])
    chat = module.chat(
        history=[["once", "more"], {"role": "user", "content": "dict"}, Msg("assistant", "msg", "assistant")]
    )
    chat("hi")
    assert all(
        text in sent_text(lenient) for text in ("Be kind.", "before", "all", "once", "more", "dict", "msg", "hi")
    )
    assert [text for _, text in turns(chat)] == ["once", "more", "dict", "msg", "hi", "pong"]


def test_history_has_the_rendered_user_text_but_not_the_system_text(module: Module, lenient: ModelServer) -> None:
    module.prompt(ChatPrompter({"system": "Answer in {lang}.", "user": "Of {topic}: "}))
    chat = module.chat()
    chat({"lang": "Dutch", "topic": "tea", "input": "how long?"})
    chat({"lang": "German", "topic": "rice", "input": "and this?"})
    assert [text for role, text in turns(chat) if role == "user"] == ["Of tea: how long?", "Of rice: and this?"]
    assert "Answer in German." in sent_text(lenient)
    assert "Dutch" not in sent_text(lenient)
    with pytest.raises(SlotError):
        chat("which slot?")
    assert len(chat.history) == 4


def test_pre_hook_runs_once_per_turn_and_its_text_stays_in_the_history(module: Module, lenient: ModelServer) -> None:
    fetched: list[str] = []

    def fetch(given: Any, *rest: Any) -> Any:
        fetched.append(f"page {len(fetched)}")
        return (f"{given} ({fetched[-1]})", *rest)

    chat = module.prompt(ChatPrompter(system="Be kind.").pre_hook(fetch)).chat()
    chat("one?")
    assert list(chat.stream("two?"))
    assert fetched == ["page 0", "page 1"]
    assert [text for role, text in turns(chat) if role == "user"] == ["one? (page 0)", "two? (page 1)"]
    assert all(text in sent_text(lenient) for text in ("one? (page 0)", "two? (page 1)"))


def test_turn_of_a_reply_can_be_passed_as_history(module: Module, lenient: ModelServer) -> None:
    reply = module("one?", history=[["zero", "0"]])
    assert [(each.role, each.text) for each in reply.turn] == [("user", "one?"), ("assistant", "pong")]
    module("two?", history=reply.turn)
    assert "one?" in sent_text(lenient)


def test_second_turn_is_an_error_if_the_prompter_does_not_support_history(module: Module) -> None:
    module.prompt(AlpacaPrompter("Answer: {input}"))
    chat = module.chat()
    chat("hi")
    before = chat.history
    assert turns(chat) == [("assistant", "pong")]
    with pytest.raises(HistoryError, match="so it does not support history; use ChatPrompter"):
        chat("again")
    assert chat.history is before


@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_tools_passed_as_an_iterator_are_sent(module: Module, lenient: ModelServer) -> None:
    """A call reads the tools twice, and the iterator was exhausted the second time."""
    module("hi", tools=(tool for tool in [weather]))
    assert "weather" in json.dumps(lenient.seen[-1].body)


@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_tools_of_a_chat_are_sent_in_each_turn(module: Module, lenient: ModelServer) -> None:
    chat = module.chat(tools=(tool for tool in [weather]))  # an iterator is at its end after the first turn
    chat("hi")
    chat("again")
    for seen in lenient.seen:
        assert "weather" in json.dumps(seen.body)
    with pytest.raises(ToolsError):
        module.chat(tools=[{"name": "weather"}])
    with pytest.raises(HistoryError):
        module.chat(history=[{"role": "wizard"}])


@pytest.mark.parametrize("way", WAYS)
def test_only_successful_turns_are_added_to_the_history(module: Module, lenient: ModelServer, way: str) -> None:
    chat = module.chat()
    lenient.answer = Answer("so far so good")
    for fault in (Status(500), Cut(), Ends()):
        lenient.faults = [fault]
        with pytest.raises((EngineError, ModuleError)):
            ask_chat(chat, way)
        assert chat.history == ()
    ask_chat(chat, way, "one")
    kept = chat.history
    lenient.answer = Answer("")
    with pytest.raises((EngineError, ModuleError)) as caught:
        ask_chat(chat, way, "two")
    assert caught.value.kind == "empty"
    assert chat.history is kept
    lenient.answer = Answer("three")
    ask_chat(chat, way, "two")
    assert turns(chat) == [("user", "one"), ("assistant", "so far so good"), ("user", "two"), ("assistant", "three")]
    assert [text for text in ("one", "so far so good", "two") if text not in sent_text(lenient)] == []


def test_streamed_turn_is_added_to_the_history_only_when_the_stream_ends(module: Module, lenient: ModelServer) -> None:
    lenient.answer = Answer("one two three four")
    chat = module.chat()
    stream = chat.stream("never begun")
    stream.close()
    with chat.stream("left early") as stream:
        next(iter(stream))
        assert chat.history == ()
    assert chat.history == ()
    stream = chat.stream("to its end")
    for _ in stream:
        assert chat.history == ()
    assert [text for _, text in turns(chat)] == ["to its end", "one two three four"]


def test_cancelled_stream_is_not_added_to_the_history(module: Module, lenient: ModelServer) -> None:
    chat = module.chat()
    lenient.answer = Answer("one two three four five six seven eight")
    lenient.faults = [Slow(first=0.0, between=0.3)]

    async def cancelled() -> None:
        async def read() -> None:
            async for _ in chat.astream("hi"):
                begun.set()

        begun = asyncio.Event()
        task = asyncio.create_task(read())
        await asyncio.wait({task, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await close_connections(chat)

    asyncio.run(cancelled())
    assert chat.history == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_budget_trims_the_payload_but_not_the_chat_history(lenient: ModelServer, kind: str) -> None:
    module = module_of(kind, lenient, budget=Budget(400, CharTokenCounter())).prompt(BARE)
    chat = module.chat()
    for turn in range(8):
        lenient.answer = Answer(f"answer {turn} ".ljust(60, "a"))
        chat(f"question {turn} ".ljust(60, "q"))
    assert len(chat.history) == 16
    assert "question 0" in chat.history[0].text
    assert "question 7" in sent_text(lenient)
    assert "question 0" not in sent_text(lenient)
    module.close()


def test_slot_values_of_a_chat_apply_to_each_turn_unless_overridden(module: Module, lenient: ModelServer) -> None:
    # Each turn had to pass all values again.
    module.prompt(ChatPrompter("Answer from: {context}", system=""), [["Hello", "Hi"]])
    chat = module.chat(values={"context": "We open at nine."})
    chat("When?")
    chat({"input": "And then?", "context": "Closed."})
    sent_texts = [json.dumps(each.body) for each in lenient.seen[-2:]]
    assert ["We open at nine." in text for text in sent_texts] == [True, False]
    assert all("Hello" in text for text in sent_texts)
    assert turns(chat)[::2] == [("user", "When?"), ("user", "And then?")]
    assert module.prompter.slots == ("context",)
    with pytest.raises(SlotError, match=r"no slot named 'contxt' \(did you mean 'context'\?\)"):
        module.chat(values={"contxt": "x"})
