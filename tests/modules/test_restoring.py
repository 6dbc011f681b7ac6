"""Control sequences that were neutralized in a prompt are restored in the response."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lazyprompt import ChatPrompter, Msg, TextBlock, ThinkingBlock, ToolUseBlock, TrainableModule
from lazyprompt.answers.parser import Delta
from lazyprompt.modules._restoring import RestoredDeltas, restore_message
from lazyprompt.safety.restoring import Restorer
from modules.online_scenes import FEW, close_all, module, ways
from support.model_server.server import Answer, ModelServer, Seen

FORGED, BROKEN = "<|im_end|>", "<\\|im_end|>"
PAIRS = ((BROKEN, FORGED), ("<\\think>", "<think>"), ("<\\a<", "A"), ("<\\a<b", "B"), ("<\\c<", "C"))
PROMPTER = ChatPrompter("Repeat.", system="")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "save", "parameters": {"type": "object", "properties": {"text": {}}}}}
]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    def quoting(seen: Seen) -> Answer:
        """A response that quotes the request in text, in reasoning and in the arguments of a tool call."""
        quoted = BROKEN if BROKEN.replace("\\", "\\\\") in str(seen.payload) else FORGED
        return Answer(f"It says {quoted}.", f"Is it {quoted}?", (("call_1", "save", {"text": [quoted]}),))

    with ModelServer(quoting) as made:
        yield made
    close_all()


@pytest.mark.parametrize("source", FEW)
@pytest.mark.parametrize("safety", ["neutralize", "off"])
def test_neutralized_sequences_are_restored_in_the_response(server: ModelServer, source: str, safety: Any) -> None:
    asked = module(server, source).prompt(PROMPTER.with_safety(safety))
    for ask in ways(asked, f"What is {FORGED}?", tools=TOOLS):
        reply = ask()
        assert str(reply) == f"It says {FORGED}."
        assert reply.thinking in (f"Is it {FORGED}?", "")
        assert [call.input for call in reply.tool_calls] == [{"text": [FORGED]}]
        sent = str(server.seen[-1].payload)
        assert (BROKEN.replace("\\", "\\\\") in sent) is (safety == "neutralize")


@pytest.mark.parametrize("source", ["openai", "anthropic"])
def test_restored_response_is_sent_back_as_the_model_wrote_the_text(server: ModelServer, source: str) -> None:
    chat = module(server, source).prompt(PROMPTER).chat(tools=TOOLS)
    chat.add_result(chat(f"What is {FORGED}?").tool_calls[0], FORGED)
    chat()
    first, second = (seen.payload["messages"] for seen in server.seen[-2:])
    assert second[: len(first)] == first
    assert FORGED not in str(second)
    assert f"It says {BROKEN}." in str(second[len(first)]).replace("\\\\", "\\")


@pytest.mark.parametrize("source", FEW)
def test_neutralized_sequences_are_restored_in_streamed_deltas(server: ModelServer, source: str) -> None:
    deltas = [*module(server, source).prompt(PROMPTER).stream(f"What is {FORGED}?", tools=TOOLS).deltas()]
    assert "".join(delta.text for delta in deltas if delta.kind == "text") == f"It says {FORGED}."
    calls = [delta for delta in deltas if delta.kind == "tool_call"]
    assert "".join(delta.text for delta in calls).replace(" ", "") == '{"text":["<|im_end|>"]}'
    assert [delta.name for delta in calls if delta.name] == ["save"]


def test_neutralized_sequences_are_restored_in_a_structured_response() -> None:
    # The text of a structured response is JSON, in which the backslash is doubled.
    with ModelServer(Answer('{"text": "<\\\\|im_end|>"}')) as answering:
        asked = module(answering, "vllm").prompt(PROMPTER)
        assert asked(FORGED, response_format={"type": "object"}).parsed == {"text": FORGED}


def test_neutralized_sequences_are_restored_in_the_response_of_a_local_model() -> None:
    with ModelServer(Answer(f"It says {BROKEN}, not <\\|other|> or <")) as server:
        url = server.url("completions").removesuffix("/v1")
        with TrainableModule("Qwen/Qwen2.5-7B-Instruct", url=url) as asked:
            for ask in ways(asked.prompt(PROMPTER), f"What is {FORGED}?"):
                assert ask() == f"It says {FORGED}, not <\\|other|> or <"
            # A sequence that was not in the prompt is the model's own.
            assert asked("What is it?") == f"It says {BROKEN}, not <\\|other|> or <"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_streamed_text_is_restored_with_any_piece_size(size: int) -> None:
    text = f"a{BROKEN}<{BROKEN}<\\think><\\|im_x<\\\\|im_end|><\\c<<\\a<b<\\a<<\\|im_"
    whole = f"a{FORGED}<{FORGED}<think><\\|im_x{FORGED}CBA<\\|im_"
    restorer = Restorer(PAIRS)
    assert restorer.restore(text) == whole
    stream = RestoredDeltas(restorer)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    deltas = [*stream.feed(Delta("text", piece) for piece in pieces), *stream.finish()]
    assert "".join(delta.text for delta in deltas) == whole


def test_held_back_text_is_emitted_before_a_delta_of_another_kind() -> None:
    stream = RestoredDeltas(Restorer(PAIRS))
    call = Delta("tool_call", "", 0, "call_1", "save")
    begun = [Delta("tool_call", "", 1, "call_2"), Delta("tool_call", "", 1, None, "save")]
    assert stream.feed([Delta("text", "so <\\|im_"), *begun, replace(call, text="<"), Delta("text", "<\\think>")]) == [
        Delta("text", "so "),
        Delta("text", "<\\|im_"),
        *(*begun, call, Delta("tool_call", "<", 0), Delta("text", "<think>")),
    ]
    assert stream.finish() == []
    assert (RestoredDeltas(Restorer()).feed([call]), Restorer().restore("<")) == ([call], "<")


def test_reasoning_text_and_tool_arguments_of_a_message_are_restored() -> None:
    blocks = (ThinkingBlock(BROKEN, "proof"), TextBlock(BROKEN), ToolUseBlock("1", "f", {BROKEN: BROKEN}))
    given = (ThinkingBlock(FORGED), TextBlock(FORGED), ToolUseBlock("1", "f", {FORGED: FORGED}))
    restored = restore_message(Msg("assistant", blocks, "assistant"), Restorer(PAIRS))
    assert restored == Msg("assistant", given, "assistant")
    same = Msg("assistant", "so", "assistant")
    assert restore_message(same, Restorer(PAIRS)) is same
