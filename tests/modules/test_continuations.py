"""A chat of ten turns with a server that rejects a request that does not continue the previous one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from lazyprompt import ChatPrompter
from modules.online_scenes import close_all, module
from support.model_server.parts import Ask
from support.model_server.server import Answer, Misbehaviour, ModelServer, Seen, Status
from support.model_server.voices import VOICES

Json = dict[str, Any]
PROMPTER = ChatPrompter("Answer in one word.", system="")
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "opening hours"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://e.com", "title": "Hours", "encrypted_content": "eA=="}],
}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c_free", "name": "run", "input": "print(1)"}


class Form(NamedTuple):
    """What a provider sends besides text, reasoning and function calls."""

    said: str  # the key of a request that holds the conversation
    own: tuple[Json, ...] = ()  # what its server tools leave in an answer
    free: tuple[Json, ...] = ()  # a call of a custom tool, which takes free text


FORMS = {
    "anthropic": Form("messages", (SEARCH, FOUND)),
    "openai-responses": Form(
        "input",
        ({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},),
        (CUSTOM,),
    ),
    "gemini": Form(
        "contents",
        (
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "c2ln"},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ),
    ),
    "openai": Form(
        "messages", (), ({"id": "c_free", "type": "custom", "custom": {"name": "run", "input": "print(1)"}},)
    ),
}


@dataclass
class Memory:
    """A server's memory of a chat."""

    source: str
    answers: Iterator[Answer]  # those to come
    said: list[Json] = field(default_factory=list[Json])  # what the next request begins with
    refused: list[str] = field(default_factory=list[str])  # why a request was refused

    def judge(self, seen: Seen) -> Misbehaviour | None:
        said = seen.body[FORMS[self.source].said]
        begin = [in_blocks(message) for message in said[: len(self.said)]]
        if begin == [in_blocks(message) for message in self.said]:
            return None
        self.refused.append(f"expected {self.said}, got {begin}")
        return Status(400, "this does not continue the conversation")

    def answer(self, seen: Seen) -> Answer:
        answer = next(self.answers)
        whole = VOICES[self.source].whole(answer, Ask(seen.model, seen.body))
        self.said = [*seen.body[FORMS[self.source].said], *answer_messages(self.source, whole)]
        return answer


def in_blocks(message: Json) -> Json:
    """A message with its text as a block, which is equivalent for Anthropic."""
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def answer_messages(source: str, whole: Json) -> list[Json]:
    """A response as messages of the next request."""
    match source:
        case "anthropic":
            return [{"role": "assistant", "content": whole["content"]}]
        case "openai-responses":
            return list(whole["output"])
        case "gemini":
            return [whole["candidates"][0]["content"]]
        case _:
            message = whole["choices"][0]["message"]
            return [{key: value for key, value in message.items() if value is not None or key == "content"}]


def ten_answers(form: Form) -> list[Answer]:
    """Responses with each kind of content that a provider sends, twice."""
    call = ("call_1", "find", {"q": "hours"})
    again: tuple[str, str, Json] = ("call_2", "find", {})
    return [
        Answer("Hello."),
        Answer("From 9 to 5.", "I look it up.", native=form.own),
        Answer("", "The tool knows.", (call,)),
        Answer("It is open.", "Now I know."),
        Answer("Let me see.", native=form.free) if form.free else Answer("Let me see."),
        Answer("One."),
        Answer("Both.", "Two of them.", (again,), native=form.own),
        Answer("Yes."),
        Answer("", "Hm.", (("call_3", "find", {}), ("call_4", "find", {}))),
        Answer("Bye.", "That is all."),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("source", FORMS)
def test_provider_accepts_ten_turns_with_reasoning_tool_calls_and_server_tools(source: str, stream: bool) -> None:  # noqa: FBT001 - pytest hands it in
    """Server tools, custom calls and reasoning were lost or changed, and the provider rejected the next turn."""
    memory = Memory(source, iter(ten_answers(FORMS[source])))
    with ModelServer(memory.answer, judges=False) as server:
        server.faults = memory.judge
        chat = module(server, source, stream=stream).prompt(PROMPTER).chat()
        reply = chat("Question 0")
        for turn in range(1, 10):
            for call in reply.tool_calls:
                chat.add_result(call, f"result of {call.id}")
            reply = chat() if reply.tool_calls else chat(f"Question {turn}")
        assert reply == "Bye."
    assert not memory.refused
    assert len(server.seen) == 10
    close_all()
