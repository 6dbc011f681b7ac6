"""Assistant turns are formatted, returned by a provider and parsed unchanged; payloads pass a local server."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.helpers import MEDIA
from formatters.payloads import reported
from lazyprompt import ChatFormatter, MultiAgentFormatter, Payload
from lazyprompt.formatters.providers import rows
from lazyprompt.messages.msg import Block, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from support.providers.loopback import Loopback, answer_of, normalize
from support.providers.types import PROVIDERS as ALL_PROVIDERS
from support.providers.types import Payload as PayloadForm
from support.providers.types import sdk

TABLE = {row.provider: row.cells for row in rows() if row.cells["tool_use"] != "no"}
PROVIDERS = tuple(TABLE)
# Providers whose content is one string, and whose reasoning is too.
ONE_TEXT = ("deepseek", "zhipu", "moonshot", "xai", "vllm", "ollama", "dashscope", "openai-responses")
AS_TEXT = [provider for provider in PROVIDERS if TABLE[provider]["thinking"] == "as text"]
FORGETFUL = [provider for provider in PROVIDERS if TABLE[provider]["thinking"] == "no"]
QUESTION = Msg("user", "Is it raining?", "user")
SIGNATURE = b64encode(b"\xfb\xff signed").decode()
ARGUMENTS: dict[str, Any] = {
    "city": "Zürich, 苏黎世 🙂",
    "theCamel": {"the_snake": [1, -2.5, None, True, {"": [[], {}]}]},
    "quote": '"\\"\n\u2028</tool>',
}


def format_conversation(provider: str, *blocks: Block) -> Payload:
    """A conversation with an assistant turn of these blocks, and the results of its calls."""
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    results = [ToolResultBlock(call.id, call.name, "Rain.") for call in calls]
    turn = Msg("assistant", blocks, "assistant"), Msg("tool", results, "tool") if results else QUESTION
    formatter = ChatFormatter(provider, safety="off")
    payload = formatter.format(QUESTION, *turn)
    formatter.validate(payload)
    return payload


def provider_answer(provider: str, payload: Payload) -> dict[str, Any]:
    """A provider's response with the assistant turn of a payload."""
    answer: dict[str, Any] = answer_of(provider)
    payload = deepcopy(payload)
    if provider == "gemini":
        (content,) = [each for each in payload["contents"] if each["role"] == "model"]
        answer["candidates"][0]["content"] = content
    elif provider == "openai-responses":
        items = [item for item in payload["input"] if item.get("role") != "user"]
        answer["output"] = [output_of(item) for item in items if item.get("type") != "function_call_output"]
    else:
        (message,) = [each for each in payload["messages"] if each["role"] == "assistant"]
        if provider == "anthropic":
            said = message["content"]
            answer["content"] = [{"type": "text", "text": said}] if isinstance(said, str) else said
        elif provider == "ollama":
            answer["message"] = message
        else:
            answer.get("output", answer)["choices"][0]["message"] = message
    return answer


def output_of(item: dict[str, Any]) -> dict[str, Any]:
    """An item as the Responses API returns it: messages have parts."""
    if "role" not in item:
        return item
    part = {"type": "output_text", "text": item["content"], "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


# The response class of each provider's client; OpenAI's for the others.
CLASSES = {
    "openai-responses": ("openai.types.responses", "Response"),
    "anthropic": ("anthropic.types", "Message"),
    "gemini": ("google.genai.types", "GenerateContentResponse"),
    "mistral": ("mistralai.client.models", "ChatCompletionResponse"),
    "zhipu": ("zai.types.chat.chat_completion", "Completion"),
    "ollama": ("ollama", "ChatResponse"),
    "dashscope": ("dashscope.api_entities.dashscope_response", "GenerationResponse"),
    "dashscope-multimodal": ("dashscope.api_entities.dashscope_response", "MultiModalConversationResponse"),
}


def object_of(provider: str, answer: dict[str, Any]) -> object:
    """A response as an object of the provider's client."""
    home, name = CLASSES.get(provider, ("openai.types.chat", "ChatCompletion"))
    kind, answer = getattr(sdk(home), name), deepcopy(answer)
    if name == "ChatCompletion":
        # OpenAI's client does not validate responses: there may be parts where its types have a string.
        return kind.construct(**answer)
    if "dashscope" in home:
        whole = sdk(home).DashScopeAPIResponse(status_code=200, code="", message="", **answer)
        return kind.from_api_response(whole)
    return kind.model_validate(answer)


def read_back(provider: str, *blocks: Block) -> Msg:
    """The message parsed from a formatted turn; REST dict and client object give the same."""
    answer = provider_answer(provider, format_conversation(provider, *blocks))
    message = ChatFormatter(provider).parse(answer)
    again = assistant_message(*with_place_ids(list(message.blocks))) if provider == "ollama" else message
    assert ChatFormatter(provider).parse(object_of(provider, answer)) == again
    return message


def assistant_message(*blocks: Block) -> Msg:
    return Msg("assistant", blocks, "assistant")


def thoughts_of(provider: str) -> list[Block]:
    """Reasoning blocks of the kinds that a provider accepts."""
    sorts: dict[str, list[Block]] = {
        "no": [],
        "as text": [ThinkingBlock("Hm.\n嗯。", provider=provider)],
        "its own": [ThinkingBlock("Hm.", provider=provider), ThinkingBlock("嗯。", SIGNATURE, provider=provider)],
        "signed": [
            ThinkingBlock("Hm.", SIGNATURE, provider=provider),
            ThinkingBlock("", SIGNATURE, provider=provider),
            ThinkingBlock(redacted="b3BhcXVl", provider=provider),
        ],
        "with id": [
            ThinkingBlock("Hm.\n\nSo.", "gAAA", id="rs_1", provider=provider),
            ThinkingBlock(id="rs_2", provider=provider),
        ],
    }
    return sorts[TABLE[provider]["thinking"]]


def everything(provider: str) -> list[Block]:
    """A turn with reasoning, text and calls, and with signatures where the provider has them."""
    signature = SIGNATURE if TABLE[provider]["tool_use"] == "yes (signed)" else None
    return [
        *thoughts_of(provider),
        TextBlock("Let me see: “Zürich” 🙂", signature=signature),
        ToolUseBlock("callnr000", "weather", ARGUMENTS, signature=signature),
        ToolUseBlock("callnr001", "now"),
        ToolUseBlock("callnr002", "weather", {"city": "Bern"}),
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_turn_with_reasoning_text_and_calls_is_parsed_back_unchanged(provider: str) -> None:
    blocks = everything(provider)
    assert read_back(provider, *blocks) == assistant_message(*blocks)
    assert format_conversation(provider, *blocks).report == ()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("block", [TextBlock("Yes."), ToolUseBlock("callnr000", "weather", ARGUMENTS)])
@pytest.mark.parametrize("reasoning", [False, True])
def test_turn_of_a_text_or_a_call_is_parsed_back_unchanged(provider: str, block: Block, *, reasoning: bool) -> None:
    blocks = [*(thoughts_of(provider) if reasoning else ()), block]
    assert read_back(provider, *blocks) == assistant_message(*blocks)


WORDS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: not text.isspace())
ID = st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True)
NINE = st.from_regex(r"[a-zA-Z0-9]{9}", fullmatch=True)
NAME = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", fullmatch=True)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=10
)
OBJECT = st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=4)


def thoughts(provider: str) -> st.SearchStrategy[Sequence[Block]]:
    own = st.just(provider)
    proof = st.binary(min_size=1).map(lambda raw: b64encode(raw).decode())
    signed = st.builds(ThinkingBlock, WORDS, proof, provider=own)
    redacted = st.builds(ThinkingBlock, redacted=proof, provider=own)
    items = st.builds(ThinkingBlock, st.just("") | WORDS, st.none() | proof, id=ID, provider=own)
    return {
        "no": st.just(()),
        "as text": st.lists(st.builds(ThinkingBlock, WORDS, provider=own), max_size=1),
        "its own": st.lists(st.builds(ThinkingBlock, WORDS, st.none() | proof, provider=own), max_size=3),
        "signed": st.lists(signed | redacted, max_size=3),
        "with id": st.lists(items, max_size=3),
    }[TABLE[provider]["thinking"]]


def turns(provider: str) -> st.SearchStrategy[list[Block]]:
    """Random turns of reasoning, texts and calls, with at least one text or call."""
    signature = st.none() | st.just(SIGNATURE) if TABLE[provider]["tool_use"] == "yes (signed)" else st.none()
    call = st.builds(ToolUseBlock, NINE if provider == "mistral" else ID, NAME, OBJECT, signature=signature)
    calls = st.lists(call, max_size=4, unique_by=lambda block: block.id)
    text = st.builds(TextBlock, WORDS, signature=signature)
    texts = st.lists(text, max_size=1 if provider in ONE_TEXT else 3)
    some = st.tuples(thoughts(provider), texts, calls).filter(lambda drawn: bool(drawn[1] or drawn[2]))
    return some.map(lambda drawn: [*drawn[0], *drawn[1], *drawn[2]])


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS)
@given(data=st.data())
def test_random_turn_is_parsed_back_unchanged(provider: str, data: st.DataObject) -> None:
    blocks = data.draw(turns(provider))
    answer = provider_answer(provider, format_conversation(provider, *blocks))
    assert ChatFormatter(provider).parse(answer) == assistant_message(*blocks)
    message = ChatFormatter(provider).parse(object_of(provider, answer))
    assert message == (
        assistant_message(*with_place_ids(blocks)) if provider == "ollama" else assistant_message(*blocks)
    )


def with_place_ids(blocks: list[Block]) -> list[Block]:
    """The blocks, with call ids made from the position."""
    calls = iter(range(len(blocks)))
    return [
        ToolUseBlock(f"call_{next(calls)}", block.name, block.input) if isinstance(block, ToolUseBlock) else block
        for block in blocks
    ]


@pytest.mark.parametrize("provider", ONE_TEXT)
def test_several_texts_are_parsed_back_as_lines_where_content_is_one_string(provider: str) -> None:
    texts = TextBlock("One."), TextBlock("Two.\n"), TextBlock("三。")
    assert read_back(provider, *texts, ToolUseBlock("callnr000", "now")) == assistant_message(
        TextBlock("One.\nTwo.\n\n三。"), ToolUseBlock("callnr000", "now")
    )


@pytest.mark.parametrize("provider", [provider for provider in PROVIDERS if provider not in ONE_TEXT])
def test_several_texts_are_parsed_back_unchanged_where_content_has_parts(provider: str) -> None:
    blocks = TextBlock("One."), TextBlock("Two.\n"), TextBlock("三。"), ToolUseBlock("callnr000", "now")
    assert read_back(provider, *blocks) == assistant_message(*blocks)


@pytest.mark.parametrize("provider", AS_TEXT)
def test_several_reasoning_blocks_are_parsed_back_as_lines_of_one_block(provider: str) -> None:
    thoughts = ThinkingBlock("One.", provider=provider), ThinkingBlock("二。", "c2ln", provider="anthropic")
    assert read_back(provider, *thoughts, TextBlock("So.")) == assistant_message(
        ThinkingBlock("One.\n二。", provider=provider), TextBlock("So.")
    )


@pytest.mark.parametrize("provider", FORGETFUL)
def test_reasoning_is_left_out_and_reported_for_providers_that_do_not_accept_it(provider: str) -> None:
    rest = TextBlock("So."), ToolUseBlock("callnr000", "weather", ARGUMENTS)
    thought = ThinkingBlock("Hm.", SIGNATURE, id="rs_1", provider=provider)
    assert read_back(provider, thought, *rest) == assistant_message(*rest)
    (entry,) = format_conversation(provider, thought, *rest).report
    assert (entry.kind, entry.action, entry.text) == ("thinking", "left out", "Hm.")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_arguments_that_are_not_a_json_object_are_parsed_back_under_raw_input(provider: str) -> None:
    raw = '{"city": "Zür'
    assert read_back(provider, ToolUseBlock("callnr000", "weather", raw_input=raw)) == assistant_message(
        ToolUseBlock("callnr000", "weather", {"raw_input": raw})
    )
    payload = format_conversation(provider, ToolUseBlock("callnr000", "weather", raw_input=raw))
    assert reported(payload, "tool_use", "changed") == ["messages[1].content[0]"]


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Rain?", "parameters": SCHEMA}}
SYSTEM, ANSWER = Msg("system", "Be brief.", "system"), Msg("assistant", "It is.", "assistant")
CALLS = assistant_message(
    TextBlock("I look."), ToolUseBlock("call_0", "weather", ARGUMENTS), ToolUseBlock("call_1", "weather", {})
)
RESULTS = Msg("tool", [ToolResultBlock("call_1", "weather", "Sun."), ToolResultBlock("call_0", output="Rain.")], "tool")
CONVERSATIONS: dict[str, list[Msg]] = {
    "plain": [QUESTION, ANSWER, QUESTION],
    "system": [SYSTEM, QUESTION, ANSWER, SYSTEM, QUESTION],
    "tools": [SYSTEM, QUESTION, CALLS, RESULTS, QUESTION],
    "agents": [SYSTEM, Msg("Ann", "Hi.", "user"), Msg("Bob", "Hello.", "assistant"), CALLS, RESULTS, QUESTION],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


def send_accepted(server: Loopback, provider: str, payload: PayloadForm) -> Any:
    """The client's response to a payload that the validator and the server accept."""
    ChatFormatter(provider).validate(payload)
    response = server.send(provider, payload)
    seen = server.seen[-1]
    assert (seen.provider, seen.refusal) == (provider, None)
    assert normalize(provider, seen.payload) == normalize(provider, payload)
    return response


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONVERSATIONS)
@pytest.mark.parametrize("provider", ALL_PROVIDERS)
def test_conversation_is_accepted_by_the_client_and_the_server(provider: str, kind: str, server: Loopback) -> None:
    formatter = (MultiAgentFormatter if kind == "agents" else ChatFormatter)(provider)
    payload = formatter.format(*CONVERSATIONS[kind], tools=[TOOL] if provider in PROVIDERS else None)
    answer = formatter.parse(send_accepted(server, provider, payload), "Friday")
    assert answer == Msg("Friday", "pong", "assistant")
    send_accepted(server, provider, formatter.format(*CONVERSATIONS[kind], answer, QUESTION))


@pytest.mark.parametrize("provider", ALL_PROVIDERS)
def test_all_supported_media_are_accepted_by_the_client_and_the_server(provider: str, server: Loopback) -> None:
    cells = next(row.cells for row in rows() if row.provider == provider)
    blocks = [each for kind, ways in MEDIA.items() for way, each in ways.items() if way in cells[kind]]
    formatter = ChatFormatter(provider, strict=True)
    send_accepted(server, provider, formatter.format(Msg("user", [TextBlock("What is this?"), *blocks], "user")))
    if provider in PROVIDERS:
        shown = ToolResultBlock("call_1", output=(TextBlock("See."), *blocks))
        send_accepted(
            server, provider, formatter.format(QUESTION, CALLS, Msg("tool", [shown, RESULTS.blocks[1]], "tool"))
        )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_response_with_reasoning_and_calls_is_sent_back_with_its_results(provider: str) -> None:
    formatter, blocks = ChatFormatter(provider), everything(provider)
    if provider == "openai-responses":
        del blocks[1]  # a reasoning item must be followed by another item
    with Loopback({provider: provider_answer(provider, format_conversation(provider, *blocks))}) as server:
        answer = formatter.parse(send_accepted(server, provider, formatter.format(SYSTEM, QUESTION, tools=[TOOL])))
        assert answer == assistant_message(*(with_place_ids(blocks) if provider == "ollama" else blocks))
        calls = [block for block in answer.blocks if isinstance(block, ToolUseBlock)]
        results = Msg("tool", [ToolResultBlock(call.id, call.name, "Rain.") for call in calls], "tool")
        # The agent loop continues: a second response with calls of the same ids, and their results.
        for turns in ([answer, results], [answer, results] * 2):
            send_accepted(server, provider, formatter.format(SYSTEM, QUESTION, *turns, tools=[TOOL]))
