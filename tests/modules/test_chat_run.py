"""Chats that run the functions that a model calls."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from lazyprompt import Chat, ChatPrompter, Delta, Msg, Reply, ToolResultBlock, ToolUseBlock
from lazyprompt.errors import HistoryError, ModuleError, ToolsError
from modules.online_scenes import run_in_loop
from modules.talks import make_local, module_of, weather
from support.model_server.server import Answer, ModelServer, Seen

WAYS = ("run", "arun", "steps", "asteps")
ROLES = ["user", "assistant", "tool", "assistant"]


def answers(*given: Answer) -> Callable[[Seen], Answer]:
    """Answers one after another."""
    left = iter(given)
    return lambda _: next(left)


def call_answer(*calls: tuple[str, dict[str, Any]]) -> Answer:
    return Answer("", calls=tuple((f"c{at}", name, given) for at, (name, given) in enumerate(calls)))


def deleter() -> tuple[list[str], Callable[[str], str]]:
    """The deleted names, and the tool function that deletes."""
    ran: list[str] = []

    def delete(name: str) -> str:
        """Delete."""
        ran.append(name)
        return "deleted"

    return ran, delete


def results_in(chat: Chat) -> list[ToolResultBlock]:
    return [block for message in chat.history for block in message.blocks if isinstance(block, ToolResultBlock)]


def run(chat: Chat, way: str, input: object = "Hi.", **more: Any) -> tuple[Reply, list[object]]:
    """The reply of a run, and its steps without deltas."""
    if way == "run":
        return chat.run(input, **more), []
    if way == "steps":
        steps: list[object] = [*chat.steps(input, **more)]
    else:

        async def work() -> list[object]:
            if way == "arun":
                return [await chat.arun(input, **more)]
            return [step async for step in chat.asteps(input, **more)]

        steps = run_in_loop(chat, work())
    reply = steps[-1]
    assert isinstance(reply, Reply)
    texts = [str(step) for step in steps if isinstance(step, Reply)] if way != "arun" else []
    assert "".join(step.text for step in steps if isinstance(step, Delta) and step.kind == "text") == "".join(texts)
    return reply, [step for step in steps if isinstance(step, Reply | ToolResultBlock)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["online", "local"])
def test_run_calls_the_tool_functions_and_sends_their_results(lenient: ModelServer, kind: str, way: str) -> None:
    module = module_of(kind, lenient) if kind == "online" else make_local(lenient, markers="qwen2.5")
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    call = call_answer(("weather", {"city": "Rome"})) if kind == "online" else Answer(text)
    lenient.answer = answers(call, Answer("It rains."))
    chat = module.chat()
    reply, steps = run(chat, way, "How is Rome?", tools=[weather])
    assert reply == "It rains."
    assert [message.role for message in chat.history] == ROLES
    (result,) = chat.history[2].blocks
    assert isinstance(result, ToolResultBlock)
    assert (result.name, result.output, result.is_error) == ("weather", "Rome", False)
    if way in ("steps", "asteps"):
        first, *rest = steps
        assert isinstance(first, Reply)
        assert [call.name for call in first.tool_calls] == ["weather"]
        assert rest == [result, reply]
    module.close()


@pytest.mark.parametrize("way", WAYS)
def test_tool_calls_of_a_response_run_concurrently_and_results_keep_the_order(lenient: ModelServer, way: str) -> None:
    both = Barrier(2, timeout=10)

    def lookup(name: str) -> dict[str, str]:
        """Look up."""
        both.wait()
        return {"name": name}

    lenient.answer = answers(call_answer(("lookup", {"name": "a"}), ("lookup", {"name": "b"})), Answer("Done."))
    chat = module_of("online", lenient).chat(tools=[lookup])
    assert run(chat, way)[0] == "Done."
    sent = [each["content"] for each in lenient.seen[-1].body["messages"] if each["role"] == "tool"]
    assert sent == ['{"name": "a"}', '{"name": "b"}']


@pytest.mark.parametrize("way", WAYS)
def test_failed_tool_call_is_sent_as_an_error_result_and_logged(
    lenient: ModelServer, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    def lookup(name: str) -> str:
        """Look up."""
        raise KeyError(name)

    calls = call_answer(("lookup", {"name": "a"}), ("lookup", {"nmae": "a"}), ("look_up", {}))
    lenient.answer = answers(calls, Answer("I see."))
    chat = module_of("online", lenient).chat(tools=[lookup, weather])
    assert run(chat, way)[0] == "I see."
    results = results_in(chat)
    assert all(result.is_error for result in results)
    failed, misnamed, unknown = (result.output for result in results)
    assert failed == "KeyError: 'a'"
    assert "unexpected keyword argument 'nmae'" in str(misnamed)
    told = "unknown tool 'look_up'; available tools: "
    assert unknown == f"{told}lookup, weather"
    assert sorted((each.levelname, each.getMessage(), bool(each.exc_info)) for each in caplog.records) == [
        ("WARNING", f"the model called an {told}lookup, weather; this error is sent to the model", False),
        *[("WARNING", "the tool 'lookup' failed; its error is sent to the model", True)] * 2,
    ]
    lenient.answer = answers(call_answer(("look_up", {})), Answer("I see."))
    chat = module_of("online", lenient).chat()
    run(chat, way)
    assert results_in(chat)[0].output == f"{told}none"


def test_async_tools_are_awaited_by_arun_and_rejected_by_run(lenient: ModelServer) -> None:
    async def lookup(name: str) -> str:
        """Look up."""
        await asyncio.sleep(0)
        return name.upper()

    lenient.answer = answers(call_answer(("lookup", {"name": "a"})), Answer("A."))
    chat = module_of("online", lenient).chat(tools=[lookup])
    assert run(chat, "arun")[0] == "A."
    assert chat.history[2].blocks == (ToolResultBlock("c0", "lookup", "A"),)
    lenient.answer = call_answer(("lookup", {"name": "a"}))
    with pytest.raises(ToolsError, match="^the tool 'lookup' is async; use arun or asteps$"):
        chat.run("Again.")


@pytest.mark.parametrize("way", WAYS)
def test_exceeding_max_rounds_is_an_error_and_keeps_the_history(lenient: ModelServer, way: str) -> None:
    lenient.answer = call_answer(("weather", {"city": "Rome"}))
    chat = module_of("online", lenient).chat(tools=[weather])
    with pytest.raises(ModuleError, match=r"still calls tools \(weather\) after 2 rounds") as caught:
        run(chat, way, max_rounds=2)
    assert caught.value.kind == "rounds"
    assert str(caught.value).endswith("after 2 rounds; increase max_rounds=, or run again without an input to continue")
    assert [message.role for message in chat.history] == ["user", *("assistant", "tool") * 2, "assistant"]


@pytest.mark.parametrize("way", WAYS)
def test_run_without_an_input_continues_after_max_rounds(lenient: ModelServer, way: str) -> None:
    lenient.answer = answers(
        call_answer(("weather", {"city": "Rome"})), call_answer(("weather", {"city": "Oslo"})), Answer("Done.")
    )
    chat = module_of("online", lenient).chat(tools=[weather])
    with pytest.raises(ModuleError, match="after 1 rounds"):
        run(chat, way, max_rounds=1)
    reply, steps = run(chat, way, None, max_rounds=1)
    assert reply == "Done."
    assert [message.role for message in chat.history] == ["user", *("assistant", "tool") * 2, "assistant"]
    result = chat.history[4].blocks[0]
    assert isinstance(result, ToolResultBlock)
    assert result.output == weather("Oslo")
    assert steps == {"run": [], "arun": [reply]}.get(way, [result, reply])


def test_pending_tool_calls_run_only_without_an_input_and_without_a_result(lenient: ModelServer) -> None:
    ran, delete = deleter()
    lenient.answer = answers(
        call_answer(("delete", {"name": "a"}), ("delete", {"name": "b"})), Answer("No."), Answer("Yes.")
    )
    chat = module_of("online", lenient).chat(tools=[delete])
    first, _ = chat("Delete both.").tool_calls
    saved = chat.history
    assert chat.run("No, stop.") == "No."
    assert ran == []  # a caller who didn't approve the calls asked something else
    again = module_of("online", lenient).chat(saved, tools=[delete])
    again.add_result(first, "not allowed")
    assert again.run() == "Yes."
    assert ran == ["b"]


@pytest.mark.parametrize("way", ["steps", "asteps"])
@pytest.mark.parametrize("refused", [1, 2])
def test_tool_call_with_a_result_added_by_the_caller_is_not_run(lenient: ModelServer, way: str, refused: int) -> None:
    """A refused tool call was run, and its second result made the next request fail."""
    ran, delete = deleter()
    lenient.answer = answers(call_answer(("delete", {"name": "a"}), ("delete", {"name": "b"})), Answer("Done."))
    chat = module_of("online", lenient).chat(tools=[delete])

    def refuse(step: object) -> None:
        for call in step.tool_calls[:refused] if isinstance(step, Reply) else ():
            chat.add_result(call, "not allowed", is_error=True)

    async def work() -> None:
        async for step in chat.asteps("Delete both."):
            refuse(step)

    if way == "steps":
        for step in chat.steps("Delete both."):
            refuse(step)
    else:
        run_in_loop(chat, work())
    no, yes = ("not allowed", True), ("deleted", False)
    results = results_in(chat)
    assert [(each.id, each.output, each.is_error) for each in results] == [
        ("c0", *no),
        ("c1", *(no if refused > 1 else yes)),
    ]
    assert ran == ["b"][refused - 1 :]
    assert [each["role"] for each in lenient.seen[-1].body["messages"]] == ["user", "assistant", "tool", "tool"]


@pytest.mark.parametrize("way", WAYS)
def test_only_pending_tool_calls_of_the_last_reply_run(lenient: ModelServer, way: str) -> None:
    """Pending calls of earlier replies ran together with those of the last reply."""
    ran, delete = deleter()
    past = [
        Msg("user", "Delete a.", "user"),
        Msg("assistant", [ToolUseBlock("c0", "delete", {"name": "a"})], "assistant"),
        Msg("user", "No, b.", "user"),
        Msg("assistant", [ToolUseBlock("c1", "delete", {"name": "b"})], "assistant"),
    ]
    lenient.answer = answers(Answer("Done."))
    chat = module_of("online", lenient).chat(past, tools=[delete])
    assert run(chat, way, None)[0] == "Done."
    assert ran == ["b"]


def test_run_returns_the_reply_if_a_called_tool_is_not_a_function(lenient: ModelServer) -> None:
    search = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    lenient.answer = call_answer(("weather", {"city": "Rome"}), ("search", {}))
    chat = module_of("online", lenient).chat(tools=[weather, search])
    assert [call.name for call in chat.run("Hi.").tool_calls] == ["weather", "search"]
    assert [message.role for message in chat.history] == ["user", "assistant"]


def test_tool_output_that_is_not_json_is_raised_by_run(lenient: ModelServer) -> None:
    def lookup() -> object:
        """Look up."""
        return object()

    lenient.answer = call_answer(("lookup", {}))
    with pytest.raises(HistoryError, match="the output of tool 'lookup' must be text, blocks or a JSON value"):
        module_of("online", lenient).chat(tools=[lookup]).run("Hi.")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("c1", "call must be a ToolUseBlock from reply.tool_calls, not str"),
        (ToolUseBlock("c9", "clock"), "tool call 'c9' (clock) does not await a result; pending calls: 'c1' (clock)"),
        (ToolUseBlock("c0", "clock"), "tool call 'c0' (clock) does not await a result; pending calls: 'c1' (clock)"),
    ],
)
def test_result_for_a_tool_call_that_is_not_pending_is_rejected(lenient: ModelServer, call: Any, words: str) -> None:
    """A str raised an AttributeError, and results of unknown calls were added to the history."""
    calls = Msg("assistant", [ToolUseBlock("c0", "clock"), ToolUseBlock("c1", "clock")], "assistant")
    chat = module_of("online", lenient).chat([calls, Msg("tool", [ToolResultBlock("c0", "clock", "9")], "tool")])
    with pytest.raises(HistoryError) as caught:
        chat.add_result(call, "9:30")
    assert str(caught.value) == words
    assert len(chat.history) == 2
    waiting = ToolUseBlock("c1", "clock")
    chat.add_result(waiting, "9:30")
    with pytest.raises(HistoryError, match=r"^tool call 'c1' \(clock\) does not await a result; pending calls: none$"):
        chat.add_result(waiting, "9:30")


@pytest.mark.parametrize("way", ["__call__", "run"])
def test_request_after_tool_results_reuses_the_slot_values_of_the_turn(lenient: ModelServer, way: str) -> None:
    """Each request after a tool result had to repeat the slot values of the system text."""
    prompter = ChatPrompter.from_messages([("system", "You know {city}."), "history", ("user", "{question}")])
    chat = module_of("online", lenient).prompt(prompter).chat(tools=[weather])
    lenient.answer = answers(call_answer(("weather", {"city": "Rome"})), Answer("It rains."))
    reply = getattr(chat, way)({"city": "Rome", "question": "How is it?"})
    if way == "__call__":
        chat.add_result(reply.tool_calls[0], "rain")
        reply = chat()
    assert reply == "It rains."
    messages = lenient.seen[-1].body["messages"]
    assert [each["role"] for each in messages] == ["system", *ROLES[:3]]
    assert messages[0]["content"] == "You know Rome."
    assert messages[2]["tool_calls"][0]["id"] == messages[3]["tool_call_id"] == "c0"
    assert messages[3]["content"] == ("rain" if way == "__call__" else weather("Rome"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["message", "instruction"])
def test_loaded_chat_runs_pending_calls_if_only_system_slot_values_are_passed(
    lenient: ModelServer, tmp_path: Path, where: str, way: str
) -> None:
    """The pending call did not run, and the slot value of the question was required again."""
    prompters = {
        "message": ChatPrompter.from_messages([("system", "You know {city}."), "history", ("user", "{question}")]),
        "instruction": ChatPrompter({"system": "You know {city}.", "user": ""}, system=""),
    }
    module = module_of("online", lenient).prompt(prompters[where])
    lenient.answer = answers(call_answer(("weather", {"city": "Oslo"})), Answer("It rains."), Answer("No."))
    chat = module.chat(tools=[weather])
    asked = {"city": "Rome", "question": "How is it?"}
    chat(asked)
    chat.save(tmp_path / "chat.json")
    loaded = module.chat(tools=[weather])
    loaded.load(tmp_path / "chat.json")
    assert run(loaded, way, {"city": "Rome"})[0] == "It rains."
    messages = lenient.seen[-1].body["messages"]
    assert [each["role"] for each in messages] == ["system", *ROLES[:3]]
    assert [messages[at]["content"].strip() for at in (0, 1, 3)] == ["You know Rome.", "How is it?", "Oslo"]
    waiting = module.chat(chat.history, tools=[weather])
    assert run(waiting, way, asked)[0] == "No."  # a new question runs no pending call
    assert [message.role for message in waiting.history] == ["user", "assistant", "user", "assistant"]
